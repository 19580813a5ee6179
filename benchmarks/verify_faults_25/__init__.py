"""A twenty-fifth set of faults, written without sight of the judge: large sound restructurings (augmentation and data moved to tensors, passes put
together, loops made one) beside wrong ones that look alike. Above each case stands why it is wrong, or sound.

Part a: ``count``: images that are augmented, counted by a CNN; ``s2s``: sequences to sequences, with the truth fed in by a coin; ``a2c``: an actor
and a critic on copies of a pole; ``wgan``: two networks with a penalty on gradients, and an average of the weights.

Part b: ``packlm``: a language model on documents packed into rows; ``mfbpr``: a recommender that ranks what was bought before negatives that are drawn;
``fixmatch``: learning from few labels and what the network is sure of; ``quant``: quantiles, stopped early on validation.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

CASES = Cases(Path(__file__).parent / "scripts")
fault, sound = CASES.fault, CASES.sound


# --------------------------------------------------------------------------------- count
COUNT = [
    # Per-image augmentation moved to the batch with separate draws for every image and the same law (two flips, independent row/column shift, gain, pixel
    # noise); a fresh permutation each pass, same drop_last.
    sound(
        "count-batch-aug", "count",
        ("class Counter(nn.Module):\n", """\
class TensorLoader:
    \"\"\"Whole data set as one tensor; a fresh permutation per pass; augmentation on the batch.\"\"\"

    def __init__(self, ds, batch_size, device):
        self.x, self.y = ds.images.to(device), ds.counts.to(device)
        self.mean, self.std, self.bs = ds.mean, ds.std, batch_size
        self.ar = torch.arange(32, device=device)

    def __len__(self):
        return len(self.y) // self.bs

    def augment(self, x):
        b, dev = len(x), x.device
        x = torch.where(torch.rand(b, 1, 1, 1, device=dev) < 0.5, x.flip(-1), x)
        x = torch.where(torch.rand(b, 1, 1, 1, device=dev) < 0.5, x.flip(-2), x)
        rows = torch.randint(0, 5, (b, 1), device=dev) + self.ar
        cols = torch.randint(0, 5, (b, 1), device=dev) + self.ar
        padded = F.pad(x, (2, 2, 2, 2), mode="replicate").squeeze(1)
        x = padded[torch.arange(b, device=dev)[:, None, None], rows[:, :, None], cols[:, None, :]].unsqueeze(1)
        x = x * (0.8 + 0.4 * torch.rand(b, 1, 1, 1, device=dev))
        x = x + 0.03 * torch.randn_like(x)
        return (x - self.mean) / self.std

    def __iter__(self):
        perm = torch.randperm(len(self.y), device=self.y.device)
        for k in range(len(self)):
            idx = perm[k * self.bs:(k + 1) * self.bs]
            yield self.augment(self.x[idx]), self.y[idx]


class Counter(nn.Module):
"""),
        ("    train_dl = DataLoader(train_ds, batch_size=args.batch_size, shuffle=True, drop_last=True)\n", "    train_dl = TensorLoader(train_ds, args.batch_size, device)\n"),
    ),
    # Batch augmentation draws one flip, one shift and one gain for all 50 images of a batch, so the gradients of a batch share one distortion: less variety
    # and correlated noise (and batch statistics see one gain).
    fault(
        "count-batch-aug-one-draw", "count",
        ("class Counter(nn.Module):\n", """\
class TensorLoader:
    \"\"\"Whole data set as one tensor; a fresh permutation per pass; augmentation on the batch.\"\"\"

    def __init__(self, ds, batch_size, device):
        self.x, self.y = ds.images.to(device), ds.counts.to(device)
        self.mean, self.std, self.bs = ds.mean, ds.std, batch_size

    def __len__(self):
        return len(self.y) // self.bs

    def augment(self, x):
        dev = x.device
        flips = [d for d in (-1, -2) if torch.rand(()) < 0.5]
        x = x.flip(flips) if flips else x
        dy, dx = torch.randint(0, 5, (2,)).tolist()
        x = F.pad(x, (2, 2, 2, 2), mode="replicate")[:, :, dy:dy + 32, dx:dx + 32]
        x = x * (0.8 + 0.4 * torch.rand((), device=dev))
        x = x + 0.03 * torch.randn_like(x)
        return (x - self.mean) / self.std

    def __iter__(self):
        perm = torch.randperm(len(self.y), device=self.y.device)
        for k in range(len(self)):
            idx = perm[k * self.bs:(k + 1) * self.bs]
            yield self.augment(self.x[idx]), self.y[idx]


class Counter(nn.Module):
"""),
        ("    train_dl = DataLoader(train_ds, batch_size=args.batch_size, shuffle=True, drop_last=True)\n", "    train_dl = TensorLoader(train_ds, args.batch_size, device)\n"),
    ),
    # The permutation is drawn once when the loader is built: every pass has the same batches in the same order and the 20 images past the last whole batch
    # are never trained on.
    fault(
        "count-perm-once", "count",
        ("class Counter(nn.Module):\n", """\
class TensorLoader:
    \"\"\"Whole data set as one tensor; a fresh permutation per pass; augmentation on the batch.\"\"\"

    def __init__(self, ds, batch_size, device):
        self.x, self.y = ds.images.to(device), ds.counts.to(device)
        self.mean, self.std, self.bs = ds.mean, ds.std, batch_size
        self.ar = torch.arange(32, device=device)
        self.perm = torch.randperm(len(self.y), device=device)

    def __len__(self):
        return len(self.y) // self.bs

    def augment(self, x):
        b, dev = len(x), x.device
        x = torch.where(torch.rand(b, 1, 1, 1, device=dev) < 0.5, x.flip(-1), x)
        x = torch.where(torch.rand(b, 1, 1, 1, device=dev) < 0.5, x.flip(-2), x)
        rows = torch.randint(0, 5, (b, 1), device=dev) + self.ar
        cols = torch.randint(0, 5, (b, 1), device=dev) + self.ar
        padded = F.pad(x, (2, 2, 2, 2), mode="replicate").squeeze(1)
        x = padded[torch.arange(b, device=dev)[:, None, None], rows[:, :, None], cols[:, None, :]].unsqueeze(1)
        x = x * (0.8 + 0.4 * torch.rand(b, 1, 1, 1, device=dev))
        x = x + 0.03 * torch.randn_like(x)
        return (x - self.mean) / self.std

    def __iter__(self):
        for k in range(len(self)):
            idx = self.perm[k * self.bs:(k + 1) * self.bs]
            yield self.augment(self.x[idx]), self.y[idx]


class Counter(nn.Module):
"""),
        ("    train_dl = DataLoader(train_ds, batch_size=args.batch_size, shuffle=True, drop_last=True)\n", "    train_dl = TensorLoader(train_ds, args.batch_size, device)\n"),
    ),
    # The images are normalised once up front and gain and noise are then applied to the normalised values: the gain scales around the mean and the noise is
    # several times weaker than the 0.03 of the pixel scale.
    fault(
        "count-normalise-first", "count",
        ("class Counter(nn.Module):\n", """\
class TensorLoader:
    \"\"\"Whole data set as one tensor; a fresh permutation per pass; augmentation on the batch.\"\"\"

    def __init__(self, ds, batch_size, device):
        self.x = ((ds.images - ds.mean) / ds.std).to(device)  # once, not per batch
        self.y = ds.counts.to(device)
        self.bs = batch_size
        self.ar = torch.arange(32, device=device)

    def __len__(self):
        return len(self.y) // self.bs

    def augment(self, x):
        b, dev = len(x), x.device
        x = torch.where(torch.rand(b, 1, 1, 1, device=dev) < 0.5, x.flip(-1), x)
        x = torch.where(torch.rand(b, 1, 1, 1, device=dev) < 0.5, x.flip(-2), x)
        rows = torch.randint(0, 5, (b, 1), device=dev) + self.ar
        cols = torch.randint(0, 5, (b, 1), device=dev) + self.ar
        padded = F.pad(x, (2, 2, 2, 2), mode="replicate").squeeze(1)
        x = padded[torch.arange(b, device=dev)[:, None, None], rows[:, :, None], cols[:, None, :]].unsqueeze(1)
        x = x * (0.8 + 0.4 * torch.rand(b, 1, 1, 1, device=dev))
        return x + 0.03 * torch.randn_like(x)

    def __iter__(self):
        perm = torch.randperm(len(self.y), device=self.y.device)
        for k in range(len(self)):
            idx = perm[k * self.bs:(k + 1) * self.bs]
            yield self.augment(self.x[idx]), self.y[idx]


class Counter(nn.Module):
"""),
        ("    train_dl = DataLoader(train_ds, batch_size=args.batch_size, shuffle=True, drop_last=True)\n", "    train_dl = TensorLoader(train_ds, args.batch_size, device)\n"),
    ),
    # Only memory layout and evaluation change: channels_last model and inputs, validation images kept as one normalised tensor, inference_mode, one large
    # batch, sums read once; the same sums up to rounding (no DataLoader draws a base seed in evaluation any more, which only shifts the later random
    # draws).
    sound(
        "count-eval-device-channels-last", "count",
        ("""\
    err, sq, n = 0.0, 0.0, 0
    with torch.no_grad():
        for x, y in loader:
            p = model(x.to(device))
            err += (p - y.to(device)).abs().sum().item()
            sq += ((p - y.to(device)) ** 2).sum().item()
            n += len(y)
    return err / n, math.sqrt(sq / n)
""", """\
    images, target = loader
    with torch.inference_mode():
        diff = torch.cat([model(x) for x in images.split(512)]) - target
        mae, mse = torch.stack([diff.abs().mean(), diff.square().mean()]).tolist()
    return mae, math.sqrt(mse)
"""),
        ("    val_dl = DataLoader(val_ds, batch_size=64)\n", "    val_dl = (((val_ds.images - mean) / std).to(device, memory_format=torch.channels_last), val_ds.counts.to(device))\n"),
        ("    model = Counter().to(device)\n", "    model = Counter().to(device, memory_format=torch.channels_last)\n"),
        ("            pred = model(x.to(device))\n", "            pred = model(x.to(device, memory_format=torch.channels_last))\n"),
    ),
    # The hand-set warm-up and cosine written as LambdaLR stepped after each optimiser step (same rate at every step), fused SGD with the same hyper-
    # parameters, running loss kept as a tensor and read once a pass; equal up to rounding.
    sound(
        "count-fused-lambda", "count",
        ("weight_decay=1e-4, nesterov=True)\n", """\
weight_decay=1e-4, nesterov=True,
                          fused=True)
"""),
        ("    step = 0\n", """\
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: (s + 1) / warm if s < warm else
                                              0.5 * (1 + math.cos(math.pi * (s - warm) / (total - warm))))
"""),
        ("        running = 0.0\n", "        running = torch.zeros((), device=device)\n"),
        ("""\
            lr = args.lr * (step + 1) / warm if step < warm else \\
                args.lr * 0.5 * (1 + math.cos(math.pi * (step - warm) / (total - warm)))
            for g in opt.param_groups:
                g["lr"] = lr
""", ""),
        ("""\
            opt.step()
            running += loss.item()
            step += 1
""", """\
            opt.step()
            sched.step()
            running += loss.detach()
"""),
        ("{running / len(train_dl):.4f}", "{running.item() / len(train_dl):.4f}"),
    ),
    # A background thread takes the batches from the same DataLoader through a short queue; it makes the same random draws in the same order (the main
    # thread draws none meanwhile and the pass is drained before evaluation).
    sound(
        "count-prefetch-thread", "count",
        ("""\
import os
import random
""", """\
import os
import queue
import random
import threading
"""),
        ("class Counter(nn.Module):\n", """\
class Prefetch:
    \"\"\"Iterates over `loader` in a background thread, `depth` batches ahead.\"\"\"

    def __init__(self, loader, depth=4):
        self.loader, self.depth = loader, depth

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        q, end = queue.Queue(self.depth), object()

        def work():
            for item in self.loader:
                q.put(item)
            q.put(end)

        t = threading.Thread(target=work, daemon=True)
        t.start()
        while (item := q.get()) is not end:
            yield item
        t.join()


class Counter(nn.Module):
"""),
        ("    train_dl = DataLoader(train_ds, batch_size=args.batch_size, shuffle=True, drop_last=True)\n", "    train_dl = Prefetch(DataLoader(train_ds, batch_size=args.batch_size, shuffle=True, drop_last=True))\n"),
    ),
    # In-place ReLU (its input is not needed by BatchNorm's backward), gradients cleared before the forward pass, and the best weights copied into
    # preallocated buffers instead of a deep copy of the module; the same numbers.
    sound(
        "count-inplace-best-buffers", "count",
        ("nn.BatchNorm2d(o), nn.ReLU())", "nn.BatchNorm2d(o), nn.ReLU(inplace=True))"),
        ("    best_mae, best_model = float(\"inf\"), None\n", """\
    best_mae = float("inf")
    best_state = {k: torch.empty_like(v) for k, v in model.state_dict().items()}
"""),
        ("""\
            pred = model(x.to(device))
            loss = F.smooth_l1_loss(pred, y.to(device))
            opt.zero_grad()
""", """\
            opt.zero_grad(set_to_none=True)
            pred = model(x.to(device))
            loss = F.smooth_l1_loss(pred, y.to(device))
"""),
        ("            best_mae, best_model = mae, copy.deepcopy(model)\n", """\
            best_mae = mae
            with torch.no_grad():
                for k, v in model.state_dict().items():
                    best_state[k].copy_(v)
"""),
        ("torch.save({\"model\": best_model.state_dict(), \"mae\"", "torch.save({\"model\": best_state, \"mae\""),
        ("""\
import argparse
import copy
""", "import argparse\n"),
    ),
]

# ----------------------------------------------------------------------------------- s2s
S2S = [
    # All coins (one per sample and step) drawn before the loop, logits stacked and one cross entropy averaged over the non-pad targets; the same law and
    # the same token mean.
    sound(
        "s2s-coins-ahead-one-loss", "s2s",
        ("""\
        tok = torch.full((len(src),), BOS)
        loss = 0.0
        for t in range(tgt.shape[1]):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            loss = loss + F.cross_entropy(logits, tgt[:, t], ignore_index=PAD, reduction="sum")
            coin = torch.rand(len(src)) < eps
            tok = torch.where(coin, tgt[:, t], logits.argmax(-1))
        return loss / (tgt != PAD).sum()
""", """\
        tok = torch.full((len(src),), BOS)
        B, T = tgt.shape
        coins = torch.rand(T, B) < eps
        steps = []
        for t in range(T):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            steps.append(logits)
            tok = torch.where(coins[t], tgt[:, t], logits.argmax(-1))
        return F.cross_entropy(torch.stack(steps, 1).flatten(0, 1), tgt.flatten(), ignore_index=PAD)
"""),
    ),
    # The attention keys and the pad mask depend only on the source and are computed once per batch instead of at each step; equal up to the order in which
    # gradients add.
    sound(
        "s2s-keys-once", "s2s",
        ("    def decode_step(self, tok, h, ctx, memory, src):\n", """\
    def prepare(self, memory, src):
        return self.key(memory) / math.sqrt(memory.shape[-1] // 2), src == PAD

    def decode_step(self, tok, h, ctx, memory, src, ready):
        keys, blank = ready
"""),
        ("""\
        keys = self.key(memory)
        att = torch.bmm(keys, h.unsqueeze(-1)).squeeze(-1) / math.sqrt(h.shape[-1])
        att = att.masked_fill(src == PAD, -1e9).softmax(-1)
""", "        att = torch.bmm(keys, h.unsqueeze(-1)).squeeze(-1).masked_fill(blank, -1e9).softmax(-1)\n"),
        ("""\
        tok = torch.full((len(src),), BOS)
        loss = 0.0
        for t in range(tgt.shape[1]):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            loss = loss + F.cross_entropy(logits, tgt[:, t], ignore_index=PAD, reduction="sum")
            coin = torch.rand(len(src)) < eps
            tok = torch.where(coin, tgt[:, t], logits.argmax(-1))
        return loss / (tgt != PAD).sum()
""", """\
        tok = torch.full((len(src),), BOS)
        loss, ready = 0.0, self.prepare(memory, src)
        for t in range(tgt.shape[1]):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src, ready)
            loss = loss + F.cross_entropy(logits, tgt[:, t], ignore_index=PAD, reduction="sum")
            coin = torch.rand(len(src)) < eps
            tok = torch.where(coin, tgt[:, t], logits.argmax(-1))
        return loss / (tgt != PAD).sum()
"""),
        ("""\
        tok, outs = torch.full((len(src),), BOS), []
        for _ in range(max_len):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
""", """\
        tok, outs, ready = torch.full((len(src),), BOS), [], self.prepare(memory, src)
        for _ in range(max_len):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src, ready)
"""),
    ),
    # The training set is padded once; the buckets are made with torch: permutation, stable sort by length inside each pool, batches in random order, then
    # trimmed to the batch's longest source and target: the same law of batches, drawn from torch's generator.
    sound(
        "s2s-padded-tensor-buckets", "s2s",
        ("""\
    order = list(range(len(pairs)))
    random.shuffle(order)
    batches = []
    for s in range(0, len(order), pool * batch_size):
        chunk = sorted(order[s:s + pool * batch_size], key=lambda i: len(pairs[i][0]))
        batches += [chunk[k:k + batch_size] for k in range(0, len(chunk), batch_size)]
    random.shuffle(batches)
    return batches
""", """\
    src, lens, tgt, tlens = pairs
    batches = []
    for chunk in torch.randperm(len(lens)).split(pool * batch_size):
        chunk = chunk[lens[chunk].argsort(stable=True)]
        batches += chunk.split(batch_size)
    for k in torch.randperm(len(batches)).tolist():
        b = batches[k]
        yield src[b, :lens[b].max()], lens[b], tgt[b, :tlens[b].max()]
"""),
        ("    model = Seq2Seq()\n", """\
    src, lens, tgt = collate(train, range(len(train)))
    table = (src, lens, tgt, (tgt != PAD).sum(1))
    model = Seq2Seq()
"""),
        ("""\
        for idx in bucket_batches(train, a.batch):
            src, lens, tgt = collate(train, idx)
""", "        for src, lens, tgt in bucket_batches(table, a.batch):\n"),
    ),
    # Greedy decoding of the whole test set at once under inference_mode into a preallocated buffer, stopping when every row has met EOS, matches counted on
    # tensors (a row is right exactly when its prefix up to EOS agrees, as before); fused Adam.
    sound(
        "s2s-eval-one-batch", "s2s",
        ("""\
        tok, outs = torch.full((len(src),), BOS), []
        for _ in range(max_len):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            tok = logits.argmax(-1)
            outs.append(tok)
        return torch.stack(outs, 1)
""", """\
        tok = torch.full((len(src),), BOS)
        outs = torch.full((len(src), max_len), PAD)
        done = torch.zeros(len(src), dtype=torch.bool)
        for t in range(max_len):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            tok = logits.argmax(-1)
            outs[:, t] = tok
            done |= tok == EOS
            if done.all():
                break
        return outs
"""),
        ("""\
    ok = 0
    with torch.no_grad():
        for s in range(0, len(pairs), batch_size):
            idx = range(s, min(s + batch_size, len(pairs)))
            src, lens, _ = collate(pairs, idx)
            pred = model.greedy(src, lens)
            for row, i in zip(pred.tolist(), idx):
                want = pairs[i][1].tolist()
                ok += row[:len(want)] == want
    model.train()
    return ok / len(pairs)
""", """\
    with torch.inference_mode():
        src, lens, want = collate(pairs, range(len(pairs)))
        pred = model.greedy(src, lens)[:, :want.shape[1]]
        ok = ((pred == want) | (want == PAD)).all(1).sum().item()
    model.train()
    return ok / len(pairs)
"""),
        ("Adam(model.parameters(), lr=a.lr)", "Adam(model.parameters(), lr=a.lr, fused=True)"),
    ),
    # The coins come from a generator of their own, seeded from the run's seed, through bernoulli_ into a preallocated buffer, and none is drawn after the
    # last step, where it has no use; the same independent Bernoulli(eps) per sample and step.
    sound(
        "s2s-own-coin-generator", "s2s",
        ("        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)\n", """\
        self.coin_rng = torch.Generator().manual_seed(torch.initial_seed() + 7919)
        self.emb = nn.Embedding(VOCAB, dim, padding_idx=PAD)
"""),
        ("""\
        tok = torch.full((len(src),), BOS)
        loss = 0.0
        for t in range(tgt.shape[1]):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            loss = loss + F.cross_entropy(logits, tgt[:, t], ignore_index=PAD, reduction="sum")
            coin = torch.rand(len(src)) < eps
            tok = torch.where(coin, tgt[:, t], logits.argmax(-1))
        return loss / (tgt != PAD).sum()
""", """\
        tok = torch.full((len(src),), BOS)
        loss, last = 0.0, tgt.shape[1] - 1
        coin = torch.empty(len(src), dtype=torch.bool)
        for t in range(last + 1):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            loss = loss + F.cross_entropy(logits, tgt[:, t], ignore_index=PAD, reduction="sum")
            if t < last:
                coin.bernoulli_(eps, generator=self.coin_rng)
                tok = torch.where(coin, tgt[:, t], logits.argmax(-1))
        return loss / (tgt != PAD).sum()
"""),
    ),
    # One coin decides for the whole batch and all its steps: sequences are fed wholly with true tokens or wholly with predictions, which is not per-token
    # scheduled sampling and makes the gradient far noisier.
    fault(
        "s2s-one-coin-per-batch", "s2s",
        ("""\
        tok = torch.full((len(src),), BOS)
        loss = 0.0
        for t in range(tgt.shape[1]):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            loss = loss + F.cross_entropy(logits, tgt[:, t], ignore_index=PAD, reduction="sum")
            coin = torch.rand(len(src)) < eps
            tok = torch.where(coin, tgt[:, t], logits.argmax(-1))
        return loss / (tgt != PAD).sum()
""", """\
        tok = torch.full((len(src),), BOS)
        B, T = tgt.shape
        teacher = bool(torch.rand(()) < eps)
        steps = []
        for t in range(T):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            steps.append(logits)
            tok = tgt[:, t] if teacher else logits.argmax(-1)
        return F.cross_entropy(torch.stack(steps, 1).flatten(0, 1), tgt.flatten(), ignore_index=PAD)
"""),
    ),
    # The stacked cross entropy lost its ignore_index: pad targets count in sum and mean, so the model spends itself on predicting padding and the weight of
    # real tokens varies with the padding.
    fault(
        "s2s-pad-in-mean", "s2s",
        ("""\
        tok = torch.full((len(src),), BOS)
        loss = 0.0
        for t in range(tgt.shape[1]):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            loss = loss + F.cross_entropy(logits, tgt[:, t], ignore_index=PAD, reduction="sum")
            coin = torch.rand(len(src)) < eps
            tok = torch.where(coin, tgt[:, t], logits.argmax(-1))
        return loss / (tgt != PAD).sum()
""", """\
        tok = torch.full((len(src),), BOS)
        B, T = tgt.shape
        coins = torch.rand(T, B) < eps
        steps = []
        for t in range(T):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            steps.append(logits)
            tok = torch.where(coins[t], tgt[:, t], logits.argmax(-1))
        return F.cross_entropy(torch.stack(steps, 1).flatten(0, 1), tgt.flatten())
"""),
    ),
    # Coins drawn ahead were named use_model but still compared with eps: predictions are fed with chance eps, so the schedule runs from free running
    # towards full teacher forcing.
    fault(
        "s2s-coin-sense-flipped", "s2s",
        ("""\
        tok = torch.full((len(src),), BOS)
        loss = 0.0
        for t in range(tgt.shape[1]):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            loss = loss + F.cross_entropy(logits, tgt[:, t], ignore_index=PAD, reduction="sum")
            coin = torch.rand(len(src)) < eps
            tok = torch.where(coin, tgt[:, t], logits.argmax(-1))
        return loss / (tgt != PAD).sum()
""", """\
        tok = torch.full((len(src),), BOS)
        B, T = tgt.shape
        use_model = torch.rand(T, B) < eps
        steps = []
        for t in range(T):
            logits, h, ctx = self.decode_step(tok, h, ctx, memory, src)
            steps.append(logits)
            tok = torch.where(use_model[t], logits.argmax(-1), tgt[:, t])
        return F.cross_entropy(torch.stack(steps, 1).flatten(0, 1), tgt.flatten(), ignore_index=PAD)
"""),
    ),
]

# ----------------------------------------------------------------------------------- a2c
A2C = [
    # All copies of the environment stepped as one array with the same physics in double precision; every finished copy gets its own fresh start from the
    # same uniform law.
    sound(
        "a2c-vector-env", "a2c",
        ("""\
        rng = np.random.default_rng(seed)
        self.envs = [CartPole(rng) for _ in range(n)]
        self.ret = np.zeros(n)
        self.finished = []

    def reset(self):
        return torch.from_numpy(np.stack([e.reset() for e in self.envs]))

    def step(self, actions):
        \"\"\"Returns obs (after auto-reset), scaled reward, terminated, truncated, obs before the reset.\"\"\"
        obs, rew, term, trunc, last = [], [], [], [], []
        for k, (e, a) in enumerate(zip(self.envs, actions.tolist())):
            o, r, d, tr = e.step(a)
            self.ret[k] += r
            last.append(o)
            if d or tr:
                self.finished.append(self.ret[k])
                self.ret[k] = 0.0
                o = e.reset()
            obs.append(o); rew.append(0.1 * r); term.append(d); trunc.append(tr)
        return (torch.from_numpy(np.stack(obs)), torch.tensor(rew), torch.tensor(term),
                torch.tensor(trunc), torch.from_numpy(np.stack(last)))
""", """\
        self.rng, self.n, self.limit = np.random.default_rng(seed), n, CartPole(None).limit
        self.finished = []

    def start(self, k):
        return self.rng.uniform(-0.08, 0.08, size=(k, 4))

    def reset(self):
        self.s, self.t = self.start(self.n), np.zeros(self.n, dtype=np.int64)
        return torch.from_numpy(self.s.astype(np.float32))

    def step(self, actions):
        \"\"\"Returns obs (after auto-reset), scaled reward, terminated, truncated, obs before the reset.\"\"\"
        c = CartPole
        x, v, th, w = self.s.T
        f = np.where(actions.numpy() == 1, c.F, -c.F)
        cos, sin = np.cos(th), np.sin(th)
        m = c.MC + c.MP
        tmp = (f + c.MP * c.L * w * w * sin) / m
        acc_th = (c.G * sin - cos * tmp) / (c.L * (4.0 / 3.0 - c.MP * cos * cos / m))
        acc_x = tmp - c.MP * c.L * acc_th * cos / m
        s = np.stack([x + c.DT * v, v + c.DT * acc_x, th + c.DT * w, w + c.DT * acc_th], axis=1)
        self.t += 1
        term = (np.abs(s[:, 0]) > 1.2) | (np.abs(s[:, 2]) > 0.2095)
        trunc = (self.t >= self.limit) & ~term
        last = torch.from_numpy(s.astype(np.float32))
        over = term | trunc
        if over.any():
            self.finished += self.t[over].astype(float).tolist()
            s[over] = self.start(int(over.sum()))
            self.t[over] = 0
        self.s = s
        return (torch.from_numpy(s.astype(np.float32)), torch.full((self.n,), 0.1), torch.from_numpy(term),
                torch.from_numpy(trunc), last)
"""),
    ),
    # The rollout runs without gradients into preallocated buffers; log-probabilities, entropies and values come from one pass over all steps for the update
    # (the weights do not change within a rollout), GAE on whole tensors; equal up to rounding.
    sound(
        "a2c-nograd-rollout", "a2c",
        ("""\
    obs = env.reset()
    for update in range(args.updates):
""", """\
    obs = env.reset()
    T, N = args.steps, args.envs
    obs_buf, last_buf, act_buf = torch.zeros(T, N, 4), torch.zeros(T, N, 4), torch.zeros(T, N, dtype=torch.long)
    rewards, adv = torch.zeros(T, N), torch.zeros(T, N)
    terms, truncs = torch.zeros(T, N, dtype=torch.bool), torch.zeros(T, N, dtype=torch.bool)
    for update in range(args.updates):
"""),
        ("""\
        logps, ents, values, nexts, rewards, terms, truncs = [], [], [], [], [], [], []
        for _ in range(args.steps):
            logits, value = net(obs)
            dist = Categorical(logits=logits)
            action = dist.sample()
            obs, r, term, trunc, last = env.step(action)
            with torch.no_grad():
                nexts.append(net(last)[1])
            logps.append(dist.log_prob(action)); ents.append(dist.entropy()); values.append(value)
            rewards.append(r); terms.append(term); truncs.append(trunc)
        adv, gae = [None] * args.steps, torch.zeros(args.envs)
        for t in reversed(range(args.steps)):
            v = values[t].detach()
            delta = rewards[t] + args.gamma * nexts[t] * (~terms[t]) - v
            gae = delta + args.gamma * args.lam * gae * (~(terms[t] | truncs[t]))
            adv[t] = gae
        adv, values, logps = torch.stack(adv), torch.stack(values), torch.stack(logps)
""", """\
        with torch.no_grad():
            for t in range(T):
                obs_buf[t] = obs
                act_buf[t] = Categorical(logits=net(obs)[0]).sample()
                obs, rewards[t], terms[t], truncs[t], last_buf[t] = env.step(act_buf[t])
            nexts = net(last_buf.view(T * N, 4))[1].view(T, N)
        logits, values = net(obs_buf.view(T * N, 4))
        dist = Categorical(logits=logits.view(T, N, 2))
        values, logps, ents = values.view(T, N), dist.log_prob(act_buf), dist.entropy()
        delta = rewards + args.gamma * nexts * ~terms - values.detach()
        keep = args.gamma * args.lam * (~(terms | truncs)).float()
        gae = torch.zeros(N)
        for t in reversed(range(T)):
            gae = delta[t] + keep[t] * gae
            adv[t] = gae
"""),
        ("        entropy = torch.stack(ents).mean()\n", "        entropy = ents.mean()\n"),
    ),
    # Two actions: sampled by comparing a uniform draw with sigmoid(l1 - l0), log-probability and entropy from log_softmax; the same law and the same
    # formulas without Categorical.
    sound(
        "a2c-bernoulli-action", "a2c",
        ("""\
            dist = Categorical(logits=logits)
            action = dist.sample()
""", """\
            logp = logits.log_softmax(-1)
            with torch.no_grad():
                action = (torch.rand(args.envs) < logp[:, 1].exp()).long()
"""),
        ("            logps.append(dist.log_prob(action)); ents.append(dist.entropy()); values.append(value)\n", """\
            logps.append(logp.gather(1, action[:, None]).squeeze(1))
            ents.append(-(logp.exp() * logp).sum(-1)); values.append(value)
"""),
        ("from torch.distributions import Categorical\n", ""),
    ),
    # Fused Adam with the linear decay written as LambdaLR stepped after each update (same rate at each update), checkpoint from cloned tensors; the same
    # training up to rounding.
    sound(
        "a2c-fused-adam-lambda", "a2c",
        ("lr=args.lr, eps=1e-5)\n", """\
lr=args.lr, eps=1e-5, fused=True)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: 1 - k / args.updates)
"""),
        ("""\
        for g in opt.param_groups:
            g["lr"] = args.lr * (1 - update / args.updates)
""", ""),
        ("        opt.step()\n", """\
        opt.step()
        sched.step()
"""),
        ("torch.save({\"net\": net.state_dict(), ", "torch.save({\"net\": {k: v.detach().cpu().clone() for k, v in net.state_dict().items()}, "),
    ),
    # The value of the next state is the next step's own value where the episode goes on (same weights, same observation); the net is asked again only for
    # the last step and for time-limit ends, and it is masked where the pole fell; the same advantages up to rounding.
    sound(
        "a2c-reuse-next-values", "a2c",
        ("""\
        logps, ents, values, nexts, rewards, terms, truncs = [], [], [], [], [], [], []
        for _ in range(args.steps):
            logits, value = net(obs)
            dist = Categorical(logits=logits)
            action = dist.sample()
            obs, r, term, trunc, last = env.step(action)
            with torch.no_grad():
                nexts.append(net(last)[1])
            logps.append(dist.log_prob(action)); ents.append(dist.entropy()); values.append(value)
            rewards.append(r); terms.append(term); truncs.append(trunc)
        adv, gae = [None] * args.steps, torch.zeros(args.envs)
        for t in reversed(range(args.steps)):
            v = values[t].detach()
            delta = rewards[t] + args.gamma * nexts[t] * (~terms[t]) - v
            gae = delta + args.gamma * args.lam * gae * (~(terms[t] | truncs[t]))
            adv[t] = gae
        adv, values, logps = torch.stack(adv), torch.stack(values), torch.stack(logps)
""", """\
        logps, ents, values, lasts, rewards, terms, truncs = [], [], [], [], [], [], []
        for _ in range(args.steps):
            logits, value = net(obs)
            dist = Categorical(logits=logits)
            action = dist.sample()
            obs, r, term, trunc, last = env.step(action)
            logps.append(dist.log_prob(action)); ents.append(dist.entropy()); values.append(value)
            rewards.append(r); terms.append(term); truncs.append(trunc); lasts.append(last)
        values, rewards, terms, truncs, lasts = map(torch.stack, (values, rewards, terms, truncs, lasts))
        logps = torch.stack(logps)
        with torch.no_grad():
            v = values.detach()
            nexts = torch.cat([v[1:], net(lasts[-1])[1][None]])
            if truncs.any():
                nexts[truncs] = net(lasts[truncs])[1]
            delta = rewards + args.gamma * nexts * ~terms - v
            keep = args.gamma * args.lam * ~(terms | truncs)
            adv = delta.clone()
            for t in reversed(range(args.steps - 1)):
                adv[t] += keep[t] * adv[t + 1]
"""),
    ),
    # Values of next states are reused and time-limit ends are masked like falls: no bootstrap at the limit, so states late in a good episode are taught a
    # too low value.
    fault(
        "a2c-limit-as-terminal", "a2c",
        ("""\
        logps, ents, values, nexts, rewards, terms, truncs = [], [], [], [], [], [], []
        for _ in range(args.steps):
            logits, value = net(obs)
            dist = Categorical(logits=logits)
            action = dist.sample()
            obs, r, term, trunc, last = env.step(action)
            with torch.no_grad():
                nexts.append(net(last)[1])
            logps.append(dist.log_prob(action)); ents.append(dist.entropy()); values.append(value)
            rewards.append(r); terms.append(term); truncs.append(trunc)
        adv, gae = [None] * args.steps, torch.zeros(args.envs)
        for t in reversed(range(args.steps)):
            v = values[t].detach()
            delta = rewards[t] + args.gamma * nexts[t] * (~terms[t]) - v
            gae = delta + args.gamma * args.lam * gae * (~(terms[t] | truncs[t]))
            adv[t] = gae
        adv, values, logps = torch.stack(adv), torch.stack(values), torch.stack(logps)
""", """\
        logps, ents, values, lasts, rewards, terms, truncs = [], [], [], [], [], [], []
        for _ in range(args.steps):
            logits, value = net(obs)
            dist = Categorical(logits=logits)
            action = dist.sample()
            obs, r, term, trunc, last = env.step(action)
            logps.append(dist.log_prob(action)); ents.append(dist.entropy()); values.append(value)
            rewards.append(r); terms.append(term); truncs.append(trunc); lasts.append(last)
        values, rewards, terms, truncs, lasts = map(torch.stack, (values, rewards, terms, truncs, lasts))
        logps = torch.stack(logps)
        with torch.no_grad():
            v = values.detach()
            nexts = torch.cat([v[1:], net(lasts[-1])[1][None]])
            live = ~(terms | truncs)
            delta = rewards + args.gamma * nexts * live - v
            keep = args.gamma * args.lam * live
            adv = delta.clone()
            for t in reversed(range(args.steps - 1)):
                adv[t] += keep[t] * adv[t + 1]
"""),
    ),
    # In the batched update the values are not detached when the advantages are formed: the policy loss sends gradients into the critic through the
    # normalised advantages.
    fault(
        "a2c-advantage-with-graph", "a2c",
        ("""\
    obs = env.reset()
    for update in range(args.updates):
""", """\
    obs = env.reset()
    T, N = args.steps, args.envs
    obs_buf, last_buf, act_buf = torch.zeros(T, N, 4), torch.zeros(T, N, 4), torch.zeros(T, N, dtype=torch.long)
    rewards = torch.zeros(T, N)
    terms, truncs = torch.zeros(T, N, dtype=torch.bool), torch.zeros(T, N, dtype=torch.bool)
    for update in range(args.updates):
"""),
        ("""\
        logps, ents, values, nexts, rewards, terms, truncs = [], [], [], [], [], [], []
        for _ in range(args.steps):
            logits, value = net(obs)
            dist = Categorical(logits=logits)
            action = dist.sample()
            obs, r, term, trunc, last = env.step(action)
            with torch.no_grad():
                nexts.append(net(last)[1])
            logps.append(dist.log_prob(action)); ents.append(dist.entropy()); values.append(value)
            rewards.append(r); terms.append(term); truncs.append(trunc)
        adv, gae = [None] * args.steps, torch.zeros(args.envs)
        for t in reversed(range(args.steps)):
            v = values[t].detach()
            delta = rewards[t] + args.gamma * nexts[t] * (~terms[t]) - v
            gae = delta + args.gamma * args.lam * gae * (~(terms[t] | truncs[t]))
            adv[t] = gae
        adv, values, logps = torch.stack(adv), torch.stack(values), torch.stack(logps)
""", """\
        with torch.no_grad():
            for t in range(T):
                obs_buf[t] = obs
                act_buf[t] = Categorical(logits=net(obs)[0]).sample()
                obs, rewards[t], terms[t], truncs[t], last_buf[t] = env.step(act_buf[t])
            nexts = net(last_buf.view(T * N, 4))[1].view(T, N)
        logits, values = net(obs_buf.view(T * N, 4))
        dist = Categorical(logits=logits.view(T, N, 2))
        values, logps, ents = values.view(T, N), dist.log_prob(act_buf), dist.entropy()
        delta = rewards + args.gamma * nexts * ~terms - values
        keep = args.gamma * args.lam * (~(terms | truncs)).float()
        adv, gae = [None] * T, torch.zeros(N)
        for t in reversed(range(T)):
            gae = delta[t] + keep[t] * gae
            adv[t] = gae
        adv = torch.stack(adv)
"""),
        ("        returns = adv + values.detach()\n", "        returns = (adv + values).detach()\n"),
        ("        entropy = torch.stack(ents).mean()\n", "        entropy = ents.mean()\n"),
    ),
    # The recursion over the whole tensors is cut only at falls, not at time-limit resets: advantages of the next episode's start flow back into the last
    # steps of the one before.
    fault(
        "a2c-gae-leaks-over-limit", "a2c",
        ("""\
    obs = env.reset()
    for update in range(args.updates):
""", """\
    obs = env.reset()
    T, N = args.steps, args.envs
    obs_buf, last_buf, act_buf = torch.zeros(T, N, 4), torch.zeros(T, N, 4), torch.zeros(T, N, dtype=torch.long)
    rewards, adv = torch.zeros(T, N), torch.zeros(T, N)
    terms, truncs = torch.zeros(T, N, dtype=torch.bool), torch.zeros(T, N, dtype=torch.bool)
    for update in range(args.updates):
"""),
        ("""\
        logps, ents, values, nexts, rewards, terms, truncs = [], [], [], [], [], [], []
        for _ in range(args.steps):
            logits, value = net(obs)
            dist = Categorical(logits=logits)
            action = dist.sample()
            obs, r, term, trunc, last = env.step(action)
            with torch.no_grad():
                nexts.append(net(last)[1])
            logps.append(dist.log_prob(action)); ents.append(dist.entropy()); values.append(value)
            rewards.append(r); terms.append(term); truncs.append(trunc)
        adv, gae = [None] * args.steps, torch.zeros(args.envs)
        for t in reversed(range(args.steps)):
            v = values[t].detach()
            delta = rewards[t] + args.gamma * nexts[t] * (~terms[t]) - v
            gae = delta + args.gamma * args.lam * gae * (~(terms[t] | truncs[t]))
            adv[t] = gae
        adv, values, logps = torch.stack(adv), torch.stack(values), torch.stack(logps)
""", """\
        with torch.no_grad():
            for t in range(T):
                obs_buf[t] = obs
                act_buf[t] = Categorical(logits=net(obs)[0]).sample()
                obs, rewards[t], terms[t], truncs[t], last_buf[t] = env.step(act_buf[t])
            nexts = net(last_buf.view(T * N, 4))[1].view(T, N)
        logits, values = net(obs_buf.view(T * N, 4))
        dist = Categorical(logits=logits.view(T, N, 2))
        values, logps, ents = values.view(T, N), dist.log_prob(act_buf), dist.entropy()
        delta = rewards + args.gamma * nexts * ~terms - values.detach()
        keep = args.gamma * args.lam * (~terms).float()
        gae = torch.zeros(N)
        for t in reversed(range(T)):
            gae = delta[t] + keep[t] * gae
            adv[t] = gae
"""),
        ("        entropy = torch.stack(ents).mean()\n", "        entropy = ents.mean()\n"),
    ),
]

# ---------------------------------------------------------------------------------- wgan
WGAN = [
    # Fake, real and mixed points go through the critic in one pass (LayerNorm acts per sample) and the penalty's gradient is taken from the mixed part
    # alone; the same loss up to rounding.
    sound(
        "wgan-concat-critic", "wgan",
        ("""\
        gap = critic(fake).mean() - critic(real).mean()
        gp = gradient_penalty(critic, real, fake)
        d_loss = gap + args.gp * gp
""", """\
        eps = torch.rand(len(real), 1)
        mix = torch.lerp(fake, real, eps).requires_grad_(True)
        s_fake, s_real, s_mix = critic(torch.cat([fake, real, mix])).chunk(3)
        grad, = torch.autograd.grad(s_mix.sum(), mix, create_graph=True)
        gap = s_fake.mean() - s_real.mean()
        gp = (grad.norm(2, dim=1) - 1).square().mean()
        d_loss = gap + args.gp * gp
"""),
    ),
    # The generator does not change during the critic steps, so the fakes of all of them come from one pass over fresh noise, split into separate batches;
    # each critic step still has its own noise and real batch.
    sound(
        "wgan-fakes-ahead", "wgan",
        ("""\
    for _ in range(args.n_critic):
        real = next(stream)
        with torch.no_grad():
            fake = gen(torch.randn(len(real), args.zdim))
""", """\
    with torch.no_grad():
        fakes = gen(torch.randn(args.n_critic * args.batch, args.zdim)).split(args.batch)
    for fake in fakes:
        real = next(stream)
"""),
    ),
    # The critic's weights need no gradient in the generator step (they were cleared before use anyway), EMA as one foreach lerp, fused Adam with the same
    # settings; equal up to rounding.
    sound(
        "wgan-freeze-foreach-fused", "wgan",
        ("opt_g = torch.optim.Adam(gen.parameters(), lr=args.lr, betas=(0.5, 0.9))", "opt_g = torch.optim.Adam(gen.parameters(), lr=args.lr, betas=(0.5, 0.9), fused=True)"),
        ("opt_d = torch.optim.Adam(critic.parameters(), lr=args.lr, betas=(0.5, 0.9))", "opt_d = torch.optim.Adam(critic.parameters(), lr=args.lr, betas=(0.5, 0.9), fused=True)"),
        ("    fake = gen(torch.randn(args.batch, args.zdim))\n", """\
    critic.requires_grad_(False)
    fake = gen(torch.randn(args.batch, args.zdim))
"""),
        ("    opt_g.step()\n", """\
    opt_g.step()
    critic.requires_grad_(True)
"""),
        ("""\
    with torch.no_grad():
        for pe, p in zip(gen_ema.parameters(), gen.parameters()):
            pe.mul_(args.ema).add_(p, alpha=1 - args.ema)
""", "    torch._foreach_lerp_(list(gen_ema.parameters()), [p.detach() for p in gen.parameters()], 1 - args.ema)\n"),
    ),
    # Reals are slices of a permuted tensor (new permutation each pass, 32 whole batches as before); latent noise comes from its own generator seeded from
    # the run's seed, written into a preallocated buffer that is refilled before each use.
    sound(
        "wgan-tensor-stream-own-noise", "wgan",
        ("""\
def endless(loader):
    while True:
        for (x,) in loader:
            yield x
""", """\
def endless(data, batch):
    while True:
        shuffled = data[torch.randperm(len(data))]
        for k in range(len(data) // batch):
            yield shuffled[k * batch:(k + 1) * batch]
"""),
        ("loader = DataLoader(TensorDataset(train_x), batch_size=args.batch, shuffle=True, drop_last=True)\n", """\
noise_rng = torch.Generator().manual_seed(torch.initial_seed() + 1000003)
z = torch.empty(args.batch, args.zdim)
"""),
        ("stream = endless(loader)\n", "stream = endless(train_x, args.batch)\n"),
        ("            fake = gen(torch.randn(len(real), args.zdim))\n", "            fake = gen(z.normal_(generator=noise_rng))\n"),
        ("    fake = gen(torch.randn(args.batch, args.zdim))\n", "    fake = gen(z.normal_(generator=noise_rng))\n"),
        ("from torch.utils.data import DataLoader, TensorDataset\n", ""),
    ),
    # The penalty through vector_norm on lerp-ed points with the same per-sample draws, real and fake scored in one pass, and the sliced distance as one
    # sort over all projections; the same numbers up to rounding.
    sound(
        "wgan-penalty-and-metric-fused", "wgan",
        ("""\
        gap = critic(fake).mean() - critic(real).mean()
        gp = gradient_penalty(critic, real, fake)
        d_loss = gap + args.gp * gp
""", """\
        gap = torch.mv(critic(torch.cat([fake, real])).view(2, -1), torch.full((len(real),), 1 / len(real))).diff().neg().squeeze()
        gp = gradient_penalty(critic, real, fake)
        d_loss = gap + args.gp * gp
"""),
        ("""\
    mix = (eps * real + (1 - eps) * fake).requires_grad_(True)
    out = critic(mix)
    grad = torch.autograd.grad(out, mix, grad_outputs=torch.ones_like(out), create_graph=True)[0]
    return ((grad.norm(2, dim=1) - 1) ** 2).mean()
""", """\
    mix = torch.lerp(fake, real, eps).requires_grad_(True)
    grad, = torch.autograd.grad(critic(mix).sum(), mix, create_graph=True)
    return (torch.linalg.vector_norm(grad, dim=1) - 1).square().mean()
"""),
        ("""\
    total = 0.0
    for d in dirs:
        d = d / d.norm()
        total += ((a @ d).sort()[0] - (b @ d).sort()[0]).abs().mean().item()
    return total / n_proj
""", """\
    dirs = (dirs / dirs.norm(dim=1, keepdim=True)).T
    return ((a @ dirs).sort(0)[0] - (b @ dirs).sort(0)[0]).abs().mean().item()
"""),
    ),
    # A single interpolation factor is drawn for the whole batch, so each penalty looks at one level between real and fake only and its estimate is far
    # noisier.
    fault(
        "wgan-one-mix-draw", "wgan",
        ("    eps = torch.rand(real.shape[0], 1)\n", "    eps = torch.rand(1, 1)\n"),
    ),
    # The gradient for the penalty is taken without create_graph: the penalty is printed and added but is a constant, so the critic is trained without any
    # Lipschitz constraint.
    fault(
        "wgan-penalty-no-graph", "wgan",
        ("    grad = torch.autograd.grad(out, mix, grad_outputs=torch.ones_like(out), create_graph=True)[0]\n", "    grad, = torch.autograd.grad(out.sum(), mix, retain_graph=True)\n"),
    ),
    # The EMA update was fused into the critic loop: it runs n_critic times per generator step, so the average forgets about four times as fast as intended.
    fault(
        "wgan-ema-per-critic-step", "wgan",
        ("        opt_d.step()\n", """\
        opt_d.step()
        torch._foreach_lerp_(ema_params, gen_params, 1 - args.ema)
"""),
        ("""\
    with torch.no_grad():
        for pe, p in zip(gen_ema.parameters(), gen.parameters()):
            pe.mul_(args.ema).add_(p, alpha=1 - args.ema)
""", ""),
        ("stream = endless(loader)\n", """\
stream = endless(loader)
ema_params, gen_params = list(gen_ema.parameters()), [p.detach() for p in gen.parameters()]
"""),
    ),
]


# ---------------------------------------------------------------------------------- packlm
PACKLM = [
    # scaled_dot_product_attention with the same boolean causal-and-same-document mask, built once per forward pass instead of once per layer; the same
    # function up to rounding.
    sound(
        "packlm-sdpa-mask-once", "packlm",
        ("""\
    def forward(self, x, doc):
        B, T, D = x.shape
""", """\
    def forward(self, x, allowed):
        B, T, D = x.shape
"""),
        ("""\
        same = doc[:, :, None] == doc[:, None, :]
        causal = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        allowed = (same & causal)[:, None]
""", ""),
        ("""\
        att = (q @ k.transpose(-2, -1)) / math.sqrt(self.hd)
        att = att.masked_fill(~allowed, float("-inf")).softmax(-1)
        y = (att @ v).transpose(1, 2).reshape(B, T, D)
""", """\
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        y = y.transpose(1, 2).reshape(B, T, D)
"""),
        ("""\
    def forward(self, x, doc):
        x = x + self.attn(self.ln1(x), doc)
""", """\
    def forward(self, x, allowed):
        x = x + self.attn(self.ln1(x), allowed)
"""),
        ("""\
        for b in self.blocks:
            x = b(x, doc)
        return self.head(self.ln_f(x))
""", """\
        T = tok.shape[1]
        causal = torch.ones(T, T, dtype=torch.bool, device=tok.device).tril()
        allowed = ((doc[:, :, None] == doc[:, None, :]) & causal).unsqueeze(1)
        for b in self.blocks:
            x = b(x, allowed)
        return self.head(self.ln_f(x))
"""),
    ),
    # q, k and v from one matrix product with the three weights concatenated (same parameters, same draws, same decay and clipping), attention through
    # SDPA with the same mask; equal up to rounding.
    sound(
        "packlm-fused-qkv", "packlm",
        ("""\
        q = self.q(x).view(B, T, self.heads, self.hd).transpose(1, 2)
        k = self.k(x).view(B, T, self.heads, self.hd).transpose(1, 2)
        v = self.v(x).view(B, T, self.heads, self.hd).transpose(1, 2)
""", """\
        w = torch.cat([self.q.weight, self.k.weight, self.v.weight])
        q, k, v = F.linear(x, w).view(B, T, 3, self.heads, self.hd).permute(2, 0, 3, 1, 4).unbind(0)
"""),
        ("""\
        att = (q @ k.transpose(-2, -1)) / math.sqrt(self.hd)
        att = att.masked_fill(~allowed, float("-inf")).softmax(-1)
        y = (att @ v).transpose(1, 2).reshape(B, T, D)
""", """\
        y = F.scaled_dot_product_attention(q, k, v, attn_mask=allowed)
        y = y.transpose(1, 2).reshape(B, T, D)
"""),
    ),
    # The micro batches of a group are concatenated and run in one pass; the loss is a sum over tokens divided by the tokens of the group and the model
    # has neither dropout nor batch statistics, so the gradient is the same up to rounding.
    sound(
        "packlm-no-accum", "packlm",
        ("""\
            acc = 0.0
            for m in group:
                loss = loss_sum(model, m) / n_tok
                loss.backward()
                acc += loss.item()
""", """\
            loss = loss_sum(model, tuple(torch.cat(part) for part in zip(*group))) / n_tok
            loss.backward()
"""),
        ("loss {acc:.4f} lr", "loss {loss.item():.4f} lr"),
    ),
    # The output layer and the cross entropy run only at positions that have a target (the others were ignored anyway); fused AdamW, foreach clipping
    # and the loss read only when printed; equal up to rounding.
    sound(
        "packlm-head-on-valid", "packlm",
        ("""\
            x = b(x, doc)
        return self.head(self.ln_f(x))
""", """\
            x = b(x, doc)
        return self.ln_f(x)
"""),
        ("""\
    logits = model(tok, doc, pos)
    return F.cross_entropy(logits.view(-1, VOCAB), tgt.view(-1), ignore_index=-100, reduction="sum")
""", """\
    valid = tgt != -100
    hidden = model(tok, doc, pos)[valid]
    return F.cross_entropy(model.head(hidden), tgt[valid], reduction="sum")
"""),
        ("betas=(0.9, 0.95))", "betas=(0.9, 0.95), fused=True)"),
        ("""\
            acc = 0.0
""", """\
            acc = torch.zeros(())
"""),
        ("""\
                acc += loss.item()
""", """\
                acc += loss.detach()
"""),
        ("clip_grad_norm_(model.parameters(), 1.0)", "clip_grad_norm_(model.parameters(), 1.0, foreach=True)"),
        ("loss {acc:.4f} lr", "loss {acc.item():.4f} lr"),
    ),
    # The same greedy packing in the same order, with running totals and four flat scatters instead of slices per document; the tensors are bit for bit
    # those of the original.
    sound(
        "packlm-pack-flat", "packlm",
        ("""\
    rows, cur = [], []  # rows of document numbers
    for i in order:
        if sum(len(docs[j]) for j in cur) + len(docs[i]) > row_len:
            rows.append(cur)
            cur = []
        cur.append(i)
    rows.append(cur)
    tok = torch.full((len(rows), row_len), PAD)
    tgt = torch.full((len(rows), row_len), -100)
    doc = torch.full((len(rows), row_len), -1)
    pos = torch.zeros((len(rows), row_len), dtype=torch.long)
    for r, members in enumerate(rows):
        at = 0
        for k, i in enumerate(members):
            d = torch.tensor(docs[i])
            tok[r, at:at + len(d)] = d
            tgt[r, at:at + len(d) - 1] = d[1:]
            doc[r, at:at + len(d)] = k
            pos[r, at:at + len(d)] = torch.arange(len(d))
            at += len(d)
    return tok, tgt, doc, pos
""", """\
    order = list(order)
    lens = np.array([len(docs[i]) for i in order])
    row, used, rank = 0, 0, -1
    starts, ranks = np.empty(len(order), dtype=np.int64), np.empty(len(order), dtype=np.int64)
    for n, ln in enumerate(lens.tolist()):
        if used + ln > row_len:
            row, used, rank = row + 1, 0, -1
        rank += 1
        starts[n], ranks[n] = row * row_len + used, rank
        used += ln
    flat = np.concatenate([np.asarray(docs[i], dtype=np.int64) for i in order])
    inner = np.arange(lens.sum()) - np.repeat(np.cumsum(lens) - lens, lens)
    where = np.repeat(starts, lens) + inner
    size = (row + 1) * row_len
    tok, tgt = np.full(size, PAD, dtype=np.int64), np.full(size, -100, dtype=np.int64)
    doc, pos = np.full(size, -1, dtype=np.int64), np.zeros(size, dtype=np.int64)
    tok[where], doc[where], pos[where] = flat, np.repeat(ranks, lens), inner
    later = inner > 0
    tgt[where[later] - 1] = flat[later]
    return tuple(torch.from_numpy(a).view(row + 1, row_len) for a in (tok, tgt, doc, pos))
"""),
        ("""\
        with torch.no_grad():
            nll""", """\
        with torch.inference_mode():
            nll"""),
    ),
    # SDPA with is_causal=True and without the document mask: tokens attend to the unrelated documents packed before them in the row, in training and in
    # evaluation.
    fault(
        "packlm-is-causal", "packlm",
        ("""\
        same = doc[:, :, None] == doc[:, None, :]
        causal = torch.ones(T, T, dtype=torch.bool, device=x.device).tril()
        allowed = (same & causal)[:, None]
""", ""),
        ("""\
        att = (q @ k.transpose(-2, -1)) / math.sqrt(self.hd)
        att = att.masked_fill(~allowed, float("-inf")).softmax(-1)
        y = (att @ v).transpose(1, 2).reshape(B, T, D)
""", """\
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        y = y.transpose(1, 2).reshape(B, T, D)
"""),
    ),
    # The rate is computed from a counter of micro batches while the length of the schedule is counted in optimiser steps: warm-up and decay run twice
    # as fast and the second half trains at the floor.
    fault(
        "packlm-lr-per-micro", "packlm",
        ("""\
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: min(
        (s + 1) / warmup, 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, s / total)))))
""", """\
    def rate(s):
        return args.lr * min((s + 1) / warmup, 0.1 + 0.9 * 0.5 * (1 + math.cos(math.pi * min(1.0, s / total))))

"""),
        ("""\
            acc = 0.0
            for m in group:
""", """\
            lr = rate(epoch * len(micro) + start)
            for g in opt.param_groups:
                g["lr"] = lr
            acc = 0.0
            for m in group:
"""),
        ("""\
            sched.step()
""", ""),
        ("lr {sched.get_last_lr()[0]:.5f}", "lr {lr:.5f}"),
    ),
    # The two parameter groups were merged into one fused AdamW call and the weight decay of 0.1 was lost with them: the default 0.01 now applies to all
    # parameters, norms and biases included.
    fault(
        "packlm-fused-adamw-decay-lost", "packlm",
        ("""\
    decay = [p for p in model.parameters() if p.ndim >= 2]
    plain = [p for p in model.parameters() if p.ndim < 2]
    opt = torch.optim.AdamW([{"params": decay, "weight_decay": 0.1}, {"params": plain, "weight_decay": 0.0}],
                            lr=args.lr, betas=(0.9, 0.95))
""", """\
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr, betas=(0.9, 0.95), fused=True)
"""),
    ),
]


# ---------------------------------------------------------------------------------- mfbpr
MFBPR = [
    # Pairs as tensors with a fresh permutation each pass; all negatives of a pass drawn with multinomial from count**0.75 and the known positives
    # redrawn until none is left, which is the same rejection law.
    sound(
        "mfbpr-vector-negatives", "mfbpr",
        ("""\
class MF(nn.Module):
""", """\
class PairLoader:
    \"\"\"Pairs as tensors, a new permutation per pass, all negatives of a pass drawn together.\"\"\"

    def __init__(self, data, batch):
        self.batch = batch
        self.users, self.items = torch.tensor(data.pairs).T.contiguous()
        self.weight = torch.from_numpy(data.prob)
        self.known = torch.zeros(N_USERS, N_ITEMS, dtype=torch.bool)
        self.known[self.users, self.items] = True

    def negatives(self, users):
        neg = torch.multinomial(self.weight, len(users), replacement=True)
        bad = self.known[users, neg].nonzero().squeeze(1)
        while len(bad):
            neg[bad] = torch.multinomial(self.weight, len(bad), replacement=True)
            bad = bad[self.known[users[bad], neg[bad]]]
        return neg

    def __iter__(self):
        perm = torch.randperm(len(self.users))
        u, i = self.users[perm], self.items[perm]
        return zip(u.split(self.batch), i.split(self.batch), self.negatives(u).split(self.batch))


class MF(nn.Module):
"""),
        ("""\
loader = DataLoader(data, batch_size=BATCH, shuffle=True)
""", """\
loader = PairLoader(data, BATCH)
"""),
    ),
    # The loader yields pairs only and the negatives are drawn per batch from the weights with the user's known items set to zero: exactly the law that
    # rejection gives, from torch's generator instead of numpy's.
    sound(
        "mfbpr-masked-multinomial", "mfbpr",
        ("""\
loader = DataLoader(data, batch_size=BATCH, shuffle=True)
""", """\
loader = DataLoader(torch.tensor(data.pairs), batch_size=BATCH, shuffle=True)
allowed = torch.from_numpy(data.prob).float().repeat(N_USERS, 1)
allowed[tuple(torch.tensor(data.pairs).T)] = 0.0
"""),
        ("""\
    for step, (u, i, j) in enumerate(loader):
""", """\
    for step, pair in enumerate(loader):
        u, i = pair.unbind(1)
        j = torch.multinomial(allowed[u], 1).squeeze(1)
"""),
    ),
    # Sparse embedding gradients: Adagrad without decay does not move a row whose gradient is zero nor its accumulator, so the sparse update is the
    # dense one up to the order of summation.
    sound(
        "mfbpr-sparse-adagrad", "mfbpr",
        ("nn.Embedding(N_USERS, DIM)", "nn.Embedding(N_USERS, DIM, sparse=True)"),
        ("nn.Embedding(N_ITEMS, DIM)", "nn.Embedding(N_ITEMS, DIM, sparse=True)"),
        ("nn.Embedding(N_ITEMS, 1)", "nn.Embedding(N_ITEMS, 1, sparse=True)"),
    ),
    # Each row is looked up once, score difference and regulariser from the same rows, softplus(-d) for -logsigmoid(d), sums kept as tensors and read
    # once a pass; the same loss and gradient up to rounding.
    sound(
        "mfbpr-fused-loss-one-lookup", "mfbpr",
        ("""\
        pos = model.score(u, i)
        neg = model.score(u, j)
        loss = -F.logsigmoid(pos - neg).mean() + REG * model.reg(u, i, j)
""", """\
        eu, ei, ej = model.user(u), model.item(i), model.item(j)
        gap = torch.einsum("bd,bd->b", eu, ei - ej) + (model.bias(i) - model.bias(j)).squeeze(1)
        sq = torch.cat([eu, ei, ej]).square().sum() / len(u)
        loss = F.softplus(-gap).mean() + REG * sq
"""),
        ("""\
    tot, correct, n = 0.0, 0, 0
""", """\
    tot, correct, n = torch.zeros((), dtype=torch.float64), torch.zeros((), dtype=torch.long), 0
"""),
        ("""\
        tot += loss.item() * len(u)
        correct += (pos > neg).sum().item()
""", """\
        tot += loss.detach() * len(u)
        correct += (gap.detach() > 0).sum()
"""),
    ),
    # Evaluation only: one score matrix with known items masked, the rank of each target counted instead of a top-k list (same hits and gains but for
    # exact ties); the training is untouched save for foreach Adagrad.
    sound(
        "mfbpr-eval-matrix", "mfbpr",
        ("""\
    hits, ndcg = 0, 0.0
    with torch.no_grad():
        for u, target in test:
            s = model.score(torch.full((N_ITEMS,), u), torch.arange(N_ITEMS))
            s[list(seen[u])] = -float("inf")
            top = s.topk(k).indices.tolist()
            if target in top:
                hits += 1
                ndcg += 1 / math.log2(top.index(target) + 2)
    model.train()
    return hits / len(test), ndcg / len(test)
""", """\
    users, targets = torch.tensor(test).T
    with torch.inference_mode():
        s = model.user.weight @ model.item.weight.T + model.bias.weight.T
        for u, items in enumerate(seen):
            s[u, list(items)] = -float("inf")
        s = s[users]
        rank = (s > s.gather(1, targets[:, None])).sum(1)
        hit = rank < k
        gain = torch.where(hit, 1 / torch.log2(rank + 2.0), 0.0)
    model.train()
    return hit.double().mean().item(), gain.double().mean().item()
"""),
        ("Adagrad(model.parameters(), lr=LR)", "Adagrad(model.parameters(), lr=LR, foreach=True)"),
    ),
    # The vectorised sampler draws negatives uniformly over the items (randint) instead of by count**0.75: easier negatives, other popularity bias.
    fault(
        "mfbpr-uniform-negatives", "mfbpr",
        ("""\
class MF(nn.Module):
""", """\
class PairLoader:
    \"\"\"Pairs as tensors, a new permutation per pass, all negatives of a pass drawn together.\"\"\"

    def __init__(self, data, batch):
        self.batch = batch
        self.users, self.items = torch.tensor(data.pairs).T.contiguous()
        self.known = torch.zeros(N_USERS, N_ITEMS, dtype=torch.bool)
        self.known[self.users, self.items] = True

    def negatives(self, users):
        neg = torch.randint(N_ITEMS, (len(users),))
        bad = self.known[users, neg].nonzero().squeeze(1)
        while len(bad):
            neg[bad] = torch.randint(N_ITEMS, (len(bad),))
            bad = bad[self.known[users[bad], neg[bad]]]
        return neg

    def __iter__(self):
        perm = torch.randperm(len(self.users))
        u, i = self.users[perm], self.items[perm]
        return zip(u.split(self.batch), i.split(self.batch), self.negatives(u).split(self.batch))


class MF(nn.Module):
"""),
        ("""\
loader = DataLoader(data, batch_size=BATCH, shuffle=True)
""", """\
loader = PairLoader(data, BATCH)
"""),
    ),
    # The vectorised sampler keeps negatives that are known positives of the user, so known positives (popular ones most) are pushed down.
    fault(
        "mfbpr-no-rejection", "mfbpr",
        ("""\
class MF(nn.Module):
""", """\
class PairLoader:
    \"\"\"Pairs as tensors, a new permutation per pass, all negatives of a pass drawn together.\"\"\"

    def __init__(self, data, batch):
        self.batch = batch
        self.users, self.items = torch.tensor(data.pairs).T.contiguous()
        self.weight = torch.from_numpy(data.prob)

    def negatives(self, users):
        return torch.multinomial(self.weight, len(users), replacement=True)

    def __iter__(self):
        perm = torch.randperm(len(self.users))
        u, i = self.users[perm], self.items[perm]
        return zip(u.split(self.batch), i.split(self.batch), self.negatives(u).split(self.batch))


class MF(nn.Module):
"""),
        ("""\
loader = DataLoader(data, batch_size=BATCH, shuffle=True)
""", """\
loader = PairLoader(data, BATCH)
"""),
    ),
    # The negatives are drawn once at the start and reused in every pass: each pair meets one negative for the whole training instead of a new one per
    # pass, and the model overfits to those comparisons.
    fault(
        "mfbpr-fixed-negatives", "mfbpr",
        ("""\
class MF(nn.Module):
""", """\
class PairLoader:
    \"\"\"Pairs as tensors, a new permutation per pass, negatives drawn ahead.\"\"\"

    def __init__(self, data, batch):
        self.batch = batch
        self.users, self.items = torch.tensor(data.pairs).T.contiguous()
        self.weight = torch.from_numpy(data.prob)
        self.known = torch.zeros(N_USERS, N_ITEMS, dtype=torch.bool)
        self.known[self.users, self.items] = True
        self.neg = self.negatives(self.users)

    def negatives(self, users):
        neg = torch.multinomial(self.weight, len(users), replacement=True)
        bad = self.known[users, neg].nonzero().squeeze(1)
        while len(bad):
            neg[bad] = torch.multinomial(self.weight, len(bad), replacement=True)
            bad = bad[self.known[users[bad], neg[bad]]]
        return neg

    def __iter__(self):
        perm = torch.randperm(len(self.users))
        return zip(*(t[perm].split(self.batch) for t in (self.users, self.items, self.neg)))


class MF(nn.Module):
"""),
        ("""\
loader = DataLoader(data, batch_size=BATCH, shuffle=True)
""", """\
loader = PairLoader(data, BATCH)
"""),
    ),
]


# ---------------------------------------------------------------------------------- fixmatch
FIXMATCH = [
    # Weak and strong augmentation work on the whole batch with index tables and separate draws for each image: flip, shift with replicated border,
    # contrast, noise and blanked square have the same laws.
    sound(
        "fixmatch-batch-aug", "fixmatch",
        ("""\
def weak(x):
    \"\"\"Per image: random horizontal flip and a shift by up to one pixel.\"\"\"
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    dy, dx = torch.randint(0, 3, (2,)).tolist()
    return F.pad(x, (1, 1, 1, 1), mode="replicate")[..., dy:dy + SIZE, dx:dx + SIZE]


def strong(x):
    \"\"\"Per image: weak, contrast change, noise and one blanked 5 x 5 square.\"\"\"
    x = weak(x)
    x = x * (0.5 + torch.rand(())) + 0.1 * torch.randn_like(x)
    cy, cx = torch.randint(0, SIZE - 4, (2,)).tolist()
    x[..., cy:cy + 5, cx:cx + 5] = 0.1
    return x


def each(fn, batch):
    return torch.stack([fn(x) for x in batch])
""", """\
GRID = torch.arange(SIZE)


def weak(x):
    \"\"\"On a batch, each image with its own draws: horizontal flip, shift by up to one pixel.\"\"\"
    n = len(x)
    cols = torch.where(torch.rand(n, 1) < 0.5, SIZE - 1 - GRID, GRID)
    shift = torch.randint(-1, 2, (2, n, 1))
    rows = (GRID + shift[0]).clamp(0, SIZE - 1)
    cols = cols.gather(1, (GRID + shift[1]).clamp(0, SIZE - 1))
    return x[torch.arange(n)[:, None, None], 0, rows[:, :, None], cols[:, None, :]].unsqueeze(1)


def strong(x):
    \"\"\"On a batch: weak, contrast, noise and one blanked 5 x 5 square, drawn for each image.\"\"\"
    x = weak(x)
    n = len(x)
    x = x * (0.5 + torch.rand(n, 1, 1, 1)) + 0.1 * torch.randn_like(x)
    corner = torch.randint(0, SIZE - 4, (2, n, 1))
    inside = (GRID >= corner) & (GRID < corner + 5)
    return x.masked_fill((inside[0][:, :, None] & inside[1][:, None, :]).unsqueeze(1), 0.1)


def each(fn, batch):
    return fn(batch)
"""),
    ),
    # Labelled and strong images share one forward pass (GroupNorm acts per sample), the weak ones stay in a pass without gradients; the augmentations
    # are drawn in the same order; equal up to rounding.
    sound(
        "fixmatch-concat-forward", "fixmatch",
        ("""\
        logits_l = model(each(weak, lab_x[li]))
        loss_l = F.cross_entropy(logits_l, lab_y[li])
        with torch.no_grad():
            conf, pseudo = F.softmax(model(each(weak, u)), dim=1).max(1)
            mask = (conf >= args.threshold).float()
        logits_s = model(each(strong, u))
        loss_u = (F.cross_entropy(logits_s, pseudo, reduction="none") * mask).mean()
""", """\
        x_l, x_w, x_s = each(weak, lab_x[li]), each(weak, u), each(strong, u)
        with torch.no_grad():
            conf, pseudo = model(x_w).softmax(1).max(1)
            mask = (conf >= args.threshold).float()
        ce = F.cross_entropy(model(torch.cat([x_l, x_s])), torch.cat([lab_y[li], pseudo]), reduction="none")
        loss_l = ce[:args.bs].mean()
        loss_u = torch.dot(ce[args.bs:], mask) / nu
"""),
    ),
    # Strong augmentation and its forward pass run only for images above the threshold and the sum is still divided by the full unlabelled batch;
    # rejected images had weight zero, so the law of the gradient is the same.
    sound(
        "fixmatch-skip-rejected", "fixmatch",
        ("""\
        logits_l = model(each(weak, lab_x[li]))
        loss_l = F.cross_entropy(logits_l, lab_y[li])
        with torch.no_grad():
            conf, pseudo = F.softmax(model(each(weak, u)), dim=1).max(1)
            mask = (conf >= args.threshold).float()
        logits_s = model(each(strong, u))
        loss_u = (F.cross_entropy(logits_s, pseudo, reduction="none") * mask).mean()
""", """\
        logits_l = model(each(weak, lab_x[li]))
        loss_l = F.cross_entropy(logits_l, lab_y[li])
        with torch.no_grad():
            conf, pseudo = F.softmax(model(each(weak, u)), dim=1).max(1)
            mask = (conf >= args.threshold).float()
            keep = mask.nonzero().squeeze(1)
        if len(keep):
            logits_s = model(each(strong, u[keep]))
            loss_u = F.cross_entropy(logits_s, pseudo[keep], reduction="sum") / nu
        else:
            loss_u = torch.zeros(())
"""),
    ),
    # EMA as one foreach lerp after each step, cosine as LambdaLR with the same rate at each step, foreach SGD, evaluation in one inference_mode batch;
    # equal up to rounding.
    sound(
        "fixmatch-ema-foreach-lambda", "fixmatch",
        ("""\
    with torch.no_grad():
        for a, b in zip(ema.parameters(), model.parameters()):
            a.copy_(decay * a + (1 - decay) * b)
""", """\
    torch._foreach_lerp_([a.data for a in ema.parameters()], [b.data for b in model.parameters()], 1 - decay)
"""),
        ("""\
        for g in opt.param_groups:
            g["lr"] = args.lr * math.cos(7 * math.pi * step / (16 * args.steps))
""", ""),
        ("""\
nesterov=True, weight_decay=5e-4)
""", """\
nesterov=True, weight_decay=5e-4,
                          foreach=True)
    sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda s: math.cos(7 * math.pi * s / (16 * args.steps)))
"""),
        ("""\
        opt.step()
""", """\
        opt.step()
        sched.step()
"""),
        ("""\
    right = 0
    with torch.no_grad():
        for s in range(0, len(x), 100):
            right += (model(x[s:s + 100]).argmax(1) == y[s:s + 100]).sum().item()
    model.train()
    return right / len(x)
""", """\
    with torch.inference_mode():
        acc = (model(x).argmax(1) == y).double().mean().item()
    model.train()
    return acc
"""),
    ),
    # Choosing and augmenting images does not depend on the model, so a background thread prepares the batches ahead; it makes the same draws in the
    # same order and the main thread draws none.
    sound(
        "fixmatch-prefetch-thread", "fixmatch",
        ("""\
import os

import numpy""", """\
import os
import queue
import threading

import numpy"""),
        ("""\
    unl_order = torch.randperm(len(unl_x))
    at, nu = 0, args.bs * args.mu
    for step in range(args.steps):
""", """\
    nu, ready = args.bs * args.mu, queue.Queue(6)

    def produce():
        unl_order, at = torch.randperm(len(unl_x)), 0
        for _ in range(args.steps):
            li = torch.randint(0, len(lab_x), (args.bs,))
            if at + nu > len(unl_x):
                unl_order, at = torch.randperm(len(unl_x)), 0
            u = unl_x[unl_order[at:at + nu]]
            at += nu
            ready.put((each(weak, lab_x[li]), lab_y[li], each(weak, u), each(strong, u)))

    threading.Thread(target=produce, daemon=True).start()
    for step in range(args.steps):
"""),
        ("""\
        li = torch.randint(0, len(lab_x), (args.bs,))
        if at + nu > len(unl_x):
            unl_order, at = torch.randperm(len(unl_x)), 0
        u = unl_x[unl_order[at:at + nu]]
        at += nu
        logits_l = model(each(weak, lab_x[li]))
        loss_l = F.cross_entropy(logits_l, lab_y[li])
        with torch.no_grad():
            conf, pseudo = F.softmax(model(each(weak, u)), dim=1).max(1)
            mask = (conf >= args.threshold).float()
        logits_s = model(each(strong, u))
        loss_u = (F.cross_entropy(logits_s, pseudo, reduction="none") * mask).mean()
""", """\
        x_l, y_l, x_w, x_s = ready.get()
        logits_l = model(x_l)
        loss_l = F.cross_entropy(logits_l, y_l)
        with torch.no_grad():
            conf, pseudo = F.softmax(model(x_w), dim=1).max(1)
            mask = (conf >= args.threshold).float()
        logits_s = model(x_s)
        loss_u = (F.cross_entropy(logits_s, pseudo, reduction="none") * mask).mean()
"""),
    ),
    # The unlabelled loss is averaged over the accepted images instead of the whole unlabelled batch: early on, when few pass the threshold, their
    # pseudo labels weigh many times more.
    fault(
        "fixmatch-mean-over-kept", "fixmatch",
        ("""\
        logits_l = model(each(weak, lab_x[li]))
        loss_l = F.cross_entropy(logits_l, lab_y[li])
        with torch.no_grad():
            conf, pseudo = F.softmax(model(each(weak, u)), dim=1).max(1)
            mask = (conf >= args.threshold).float()
        logits_s = model(each(strong, u))
        loss_u = (F.cross_entropy(logits_s, pseudo, reduction="none") * mask).mean()
""", """\
        logits_l = model(each(weak, lab_x[li]))
        loss_l = F.cross_entropy(logits_l, lab_y[li])
        with torch.no_grad():
            conf, pseudo = F.softmax(model(each(weak, u)), dim=1).max(1)
            mask = (conf >= args.threshold).float()
        logits_s = model(each(strong, u))
        loss_u = torch.dot(F.cross_entropy(logits_s, pseudo, reduction="none"), mask) / mask.sum().clamp(min=1)
"""),
    ),
    # The softmax was dropped as monotone, but the threshold of 0.9 now applies to raw logits, which nearly always exceed it: pseudo labels of any
    # confidence are trained on from the first steps.
    fault(
        "fixmatch-threshold-on-logits", "fixmatch",
        ("""\
        logits_l = model(each(weak, lab_x[li]))
        loss_l = F.cross_entropy(logits_l, lab_y[li])
        with torch.no_grad():
            conf, pseudo = F.softmax(model(each(weak, u)), dim=1).max(1)
            mask = (conf >= args.threshold).float()
        logits_s = model(each(strong, u))
        loss_u = (F.cross_entropy(logits_s, pseudo, reduction="none") * mask).mean()
""", """\
        logits_l = model(each(weak, lab_x[li]))
        loss_l = F.cross_entropy(logits_l, lab_y[li])
        with torch.no_grad():
            conf, pseudo = model(each(weak, u)).max(1)
            mask = (conf >= args.threshold).float()
        logits_s = model(each(strong, u))
        loss_u = (F.cross_entropy(logits_s, pseudo, reduction="none") * mask).mean()
"""),
    ),
    # The unlabelled set is shuffled into place once a pass and batches are views of it; the batched strong augmentation works in place on the view, so
    # contrast changes, noise and blanked squares pile up in the data.
    fault(
        "fixmatch-inplace-data-damage", "fixmatch",
        ("""\
def weak(x):
    \"\"\"Per image: random horizontal flip and a shift by up to one pixel.\"\"\"
    if torch.rand(()) < 0.5:
        x = x.flip(-1)
    dy, dx = torch.randint(0, 3, (2,)).tolist()
    return F.pad(x, (1, 1, 1, 1), mode="replicate")[..., dy:dy + SIZE, dx:dx + SIZE]


def strong(x):
    \"\"\"Per image: weak, contrast change, noise and one blanked 5 x 5 square.\"\"\"
    x = weak(x)
    x = x * (0.5 + torch.rand(())) + 0.1 * torch.randn_like(x)
    cy, cx = torch.randint(0, SIZE - 4, (2,)).tolist()
    x[..., cy:cy + 5, cx:cx + 5] = 0.1
    return x


def each(fn, batch):
    return torch.stack([fn(x) for x in batch])
""", """\
GRID = torch.arange(SIZE)


def weak(x):
    \"\"\"On a batch, each image with its own draws: horizontal flip, shift by up to one pixel.\"\"\"
    n = len(x)
    cols = torch.where(torch.rand(n, 1) < 0.5, SIZE - 1 - GRID, GRID)
    shift = torch.randint(-1, 2, (2, n, 1))
    rows = (GRID + shift[0]).clamp(0, SIZE - 1)
    cols = cols.gather(1, (GRID + shift[1]).clamp(0, SIZE - 1))
    return x[torch.arange(n)[:, None, None], 0, rows[:, :, None], cols[:, None, :]].unsqueeze(1)


def strong(x):
    \"\"\"On a batch, in place: contrast, noise and one blanked 5 x 5 square, then weak, drawn for each image.\"\"\"
    n = len(x)
    x.mul_(0.5 + torch.rand(n, 1, 1, 1)).add_(torch.randn_like(x), alpha=0.1)
    corner = torch.randint(0, SIZE - 4, (2, n, 1))
    inside = (GRID >= corner) & (GRID < corner + 5)
    return weak(x.masked_fill_((inside[0][:, :, None] & inside[1][:, None, :]).unsqueeze(1), 0.1))


def each(fn, batch):
    return fn(batch)
"""),
        ("""\
    unl_order = torch.randperm(len(unl_x))
""", """\
    unl_x = unl_x[torch.randperm(len(unl_x))]
"""),
        ("""\
            unl_order, at = torch.randperm(len(unl_x)), 0
        u = unl_x[unl_order[at:at + nu]]
""", """\
            unl_x, at = unl_x[torch.randperm(len(unl_x))], 0
        u = unl_x[at:at + nu]
"""),
    ),
]


# ---------------------------------------------------------------------------------- quant
QUANT = [
    # Rows are taken from the tensors by slices of a fresh permutation each pass, the short last batch included, and the running loss is kept as a
    # tensor; the same law of batches.
    sound(
        "quant-tensor-perm", "quant",
        ("""\
    train_dl = DataLoader(train, batch_size=args.batch, shuffle=True)
""", """\
    xs, hs, ys = train.tensors
"""),
        ("""\
        run, seen = 0.0, 0
        for xb, hb, yb in train_dl:
            loss = pinball(model(xb, hb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            run += loss.item() * len(yb)
            seen += len(yb)
""", """\
        run, seen = torch.zeros(()), len(ys)
        for idx in torch.randperm(seen).split(args.batch):
            loss = pinball(model(xs[idx], hs[idx]), ys[idx])
            opt.zero_grad()
            loss.backward()
            opt.step()
            run += loss.detach() * len(idx)
"""),
    ),
    # All quantiles at once: err * (q - [err < 0]) averaged over rows and quantiles is the mean of the three pinball losses; equal up to rounding (fused
    # Adam as well).
    sound(
        "quant-pinball-fused", "quant",
        ("""\
QUANTILES = [0.1, 0.5, 0.9]
""", """\
QUANTILES = [0.1, 0.5, 0.9]
Q = torch.tensor(QUANTILES)
"""),
        ("""\
    total = 0.0
    for k, q in enumerate(QUANTILES):
        err = y - pred[:, k]
        total = total + torch.max(q * err, (q - 1) * err).mean()
    return total / len(QUANTILES)
""", """\
    err = y.unsqueeze(1) - pred
    return (err * (Q - (err.detach() < 0).to(err.dtype))).mean()
"""),
        ("Adam(model.parameters(), lr=args.lr)", "Adam(model.parameters(), lr=args.lr, fused=True)"),
    ),
    # Validation in one inference_mode pass over all rows (the row-weighted mean of batch means is that mean) and the best weights copied into
    # preallocated CPU buffers; the same law (no DataLoader draws a base seed in validation any more, which only shifts later draws).
    sound(
        "quant-val-whole-best-buffers", "quant",
        ("""\
    val_dl = DataLoader(val, batch_size=args.batch)
""", """\
    xv, hv, yv = val.tensors
"""),
        ("""\
        model.eval()
        tot, cnt = 0.0, 0
        with torch.no_grad():
            for xb, hb, yb in val_dl:
                tot += pinball(model(xb, hb), yb).item() * len(yb)
                cnt += len(yb)
        val_loss = tot / cnt
""", """\
        model.eval()
        with torch.inference_mode():
            val_loss = pinball(model(xv, hv), yv).item()
"""),
        ("""\
    best, best_state, bad = float("inf"), None, 0
""", """\
    best, bad = float("inf"), 0
    best_state = {k: torch.empty_like(v, device="cpu") for k, v in model.state_dict().items()}
"""),
        ("""\
            best_state = copy.deepcopy(model.state_dict())
""", """\
            for k, v in model.state_dict().items():
                best_state[k].copy_(v)
"""),
    ),
    # Dropout written out with a mask from its own generator (seeded from the run's seed), scaled by 1/(1-p), active only in training; the same law,
    # other draws.
    sound(
        "quant-own-dropout", "quant",
        ("""\
class QuantileNet(nn.Module):
""", """\
class FastDropout(nn.Module):
    def __init__(self, p):
        super().__init__()
        self.keep = 1 - p
        self.rng = torch.Generator().manual_seed(torch.initial_seed() + 31337)

    def forward(self, x):
        if not self.training:
            return x
        mask = torch.empty_like(x).bernoulli_(self.keep, generator=self.rng)
        return x * mask.div_(self.keep)


class QuantileNet(nn.Module):
"""),
        ("""\
        self.net = nn.Sequential(nn.Linear(n_feat + 6, hidden), nn.ReLU(), nn.Dropout(drop),
                                 nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout(drop),
                                 nn.Linear(hidden, len(QUANTILES)))
""", """\
        fast = FastDropout(drop)
        self.net = nn.Sequential(nn.Linear(n_feat + 6, hidden), nn.ReLU(), fast,
                                 nn.Linear(hidden, hidden), nn.ReLU(), fast,
                                 nn.Linear(hidden, len(QUANTILES)))
"""),
    ),
    # ReduceLROnPlateau written out by hand with its defaults (relative threshold 1e-4, more than 3 bad epochs halve the rate, counter back to 0);
    # training sums read once a pass, gradients set to None; the same decisions.
    sound(
        "quant-hand-plateau", "quant",
        ("""\
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, factor=0.5, patience=3)
""", """\
    low, stale = float("inf"), 0
"""),
        ("""\
        plateau.step(val_loss)
""", """\
        if val_loss < low * (1 - 1e-4):
            low, stale = val_loss, 0
        else:
            stale += 1
        if stale > 3:
            opt.param_groups[0]["lr"] *= 0.5
            stale = 0
"""),
        ("""\
        run, seen = 0.0, 0
        for xb, hb, yb in train_dl:
            loss = pinball(model(xb, hb), yb)
            opt.zero_grad()
            loss.backward()
            opt.step()
            run += loss.item() * len(yb)
            seen += len(yb)
""", """\
        losses, sizes = [], []
        for xb, hb, yb in train_dl:
            opt.zero_grad(set_to_none=True)
            loss = pinball(model(xb, hb), yb)
            loss.backward()
            opt.step()
            losses.append(loss.detach())
            sizes.append(len(yb))
        seen = sum(sizes)
        run = torch.dot(torch.stack(losses), torch.tensor(sizes, dtype=torch.float32)).item()
"""),
    ),
    # The best state is kept as detached references without a copy: later steps overwrite it, so the restored and saved weights are those of the last
    # epoch, eight epochs past the best.
    fault(
        "quant-best-alias", "quant",
        ("""\
            best_state = copy.deepcopy(model.state_dict())
""", """\
            best_state = {k: v.detach().cpu() for k, v in model.state_dict().items()}
"""),
    ),
    # Each split is standardised with its own mean and spread instead of the training ones: with drift, validation and test inputs lose their shift, so
    # stopping, rate and reported scores rest on inputs the deployed model will not get.
    fault(
        "quant-stats-per-split", "quant",
        ("""\
    mu, sd = x[:n_tr].mean(0), x[:n_tr].std(0)
    x = (x - mu) / sd
""", """\
    mu, sd = x[:n_tr].mean(0), x[:n_tr].std(0)
    x = torch.cat([(p - p.mean(0)) / p.std(0) for p in (x[:n_tr], x[n_tr:n_tr + n_va], x[n_tr + n_va:])])
"""),
    ),
    # model.eval() was replaced by inference_mode in validation: dropout stays active there, so the rate schedule, stopping and choice of the best epoch
    # follow a noisy and biased loss.
    fault(
        "quant-inference-mode-not-eval", "quant",
        ("""\
        model.eval()
        tot, cnt = 0.0, 0
        with torch.no_grad():
            for xb, hb, yb in val_dl:
                tot += pinball(model(xb, hb), yb).item() * len(yb)
                cnt += len(yb)
        val_loss = tot / cnt
""", """\
        tot, cnt = 0.0, 0
        with torch.inference_mode():
            for xb, hb, yb in val_dl:
                tot += pinball(model(xb, hb), yb).item() * len(yb)
                cnt += len(yb)
        val_loss = tot / cnt
"""),
    ),
]

PART_A = COUNT + S2S + A2C + WGAN
PART_B = PACKLM + MFBPR + FIXMATCH + QUANT

del COUNT, S2S, A2C, WGAN, PACKLM, MFBPR, FIXMATCH, QUANT
