"""A twenty-first set of faults: six short scripts of everyday kinds, written without sight of the judge.

Part a: ``reviews``: a transformer classifier with warm-up, label smoothing and accumulated gradients; ``cells``: a small U-Net with dice
and a plateau scheduler; ``houses``: a table with weighted rows and early stopping. Part b: ``pole``: double DQN with replay and a target
network on several poles at once; ``glyphs``: a conditional GAN with two optimizers, a gradient penalty and averaged weights; ``dates``:
sequence to sequence with attention and teacher forcing that fades.
``CASES.claimed`` says of each case what its author would say it is (exact, rounding, sampling): of a sound one that is so, of a fault it is not.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Claims

CASES = Claims(Path(__file__).parent / "scripts")
fault, sound = CASES.wrong, CASES.right


# ------------------------------------------------------------------------------------ reviews
BACKWARD = '        (loss / CFG["accumulate"]).backward()\n'
CLIP = '            nn.utils.clip_grad_norm_(model.parameters(), CFG["max_norm"])\n'
POOL = """        x = self.norm(x).masked_fill(pad.unsqueeze(-1), 0.0)
        x = x.sum(1) / (~pad).sum(1, keepdim=True)
        return self.head(x)
"""
CRITERION = '    criterion = nn.CrossEntropyLoss(label_smoothing=CFG["smoothing"])\n'
SMOOTHED = """    eps = CFG["smoothing"]

    def criterion(logits, labels):
        logs = logits.log_softmax(1)
        true = logs.gather(1, labels.unsqueeze(1)).squeeze(1)
        return -((1 - eps) * true + eps / (CLASSES - 1) * (logs.sum(1) - true)).mean()

"""
GROUPS = """    decay = [p for p in model.parameters() if p.ndim >= 2]
    no_decay = [p for p in model.parameters() if p.ndim < 2]
    groups = [{"params": decay, "weight_decay": CFG["weight_decay"]}, {"params": no_decay, "weight_decay": 0.0}]
    return torch.optim.AdamW(groups, lr=CFG["lr"])
"""
ONE_GROUP = '    return torch.optim.AdamW(model.parameters(), lr=CFG["lr"], weight_decay=CFG["weight_decay"], foreach=True)\n'
SCORES = """        scores = q @ k.transpose(-2, -1) / math.sqrt(d // self.heads)
        scores = scores.masked_fill(pad[:, None, None, :], float("-inf"))
        weights = F.dropout(scores.softmax(-1), self.dropout, self.training)
        return self.out((weights @ v).transpose(1, 2).reshape(b, t, d))
"""
SDPA = """        x = F.scaled_dot_product_attention(q, k, v, ~pad[:, None, None, :], self.dropout if self.training else 0.0)
        return self.out(x.transpose(1, 2).reshape(b, t, d))
"""
TOKEN_BY_TOKEN = "    def __getitem__(self, i):\n        return self.items[i]\n"
BATCH_AT_ONCE = """    def __getitems__(self, index):
        if not hasattr(self, "lengths"):
            self.lengths = torch.tensor([len(t) for t, _ in self.items])
            self.tokens = nn.utils.rnn.pad_sequence([t for t, _ in self.items], batch_first=True, padding_value=PAD)
            self.labels = torch.tensor([label for _, label in self.items])
        index = torch.tensor(index)
        return self.tokens[index, : self.lengths[index].max()], self.labels[index]
"""
COLLATE = """    tokens = nn.utils.rnn.pad_sequence([t for t, _ in items], batch_first=True, padding_value=PAD)
    labels = torch.tensor([label for _, label in items])
    return tokens, labels
"""
RUNNING = "        running += loss.item() * len(labels)\n"
RUNNING_LATER = "        running = running + loss.detach().double() * len(labels)\n"

REVIEWS = [
    fault("exact", "gradients clipped after each backward", "reviews", (BACKWARD, BACKWARD + CLIP[4:]), ("== len(loader):\n" + CLIP, "== len(loader):\n")),
    fault("sampling", "positions of lost words drawn once a batch", "reviews", ("torch.rand(tokens.shape)", "torch.rand(tokens.shape[1])")),
    fault("rounding", "mean over the padded length", "reviews", (POOL, "        x = self.norm(x).masked_fill(pad.unsqueeze(-1), 0.0)\n        return self.head(x.mean(1))\n")),
    fault("rounding", "label smoothing by one log-softmax, over the other labels", "reviews", (CRITERION, SMOOTHED)),
    fault("exact", "one group of parameters for the foreach step", "reviews", (GROUPS, ONE_GROUP)),
    sound("rounding", "scaled dot product attention, losses read once an epoch", "reviews", (SCORES, SDPA), (RUNNING, RUNNING_LATER)),
    sound("exact", "reviews padded once, batches indexed at once in the loader's order, no inference graph", "reviews", (TOKEN_BY_TOKEN, BATCH_AT_ONCE), (COLLATE, "    return items\n"), ("@torch.no_grad()\n", "@torch.inference_mode()\n"), (RUNNING, RUNNING_LATER)),
]

# ------------------------------------------------------------------------------------ cells
DICE = """    overlap = (probs * masks).sum((1, 2, 3))
    size = probs.sum((1, 2, 3)) + masks.sum((1, 2, 3))
    return (1 - (2 * overlap + eps) / (size + eps)).mean()
"""
DICE_OF_ALL = """    overlap = torch.dot(probs.flatten(), masks.flatten())
    size = (probs + masks).sum()
    return 1 - (2 * overlap + eps) / (size + eps)
"""
DICE_BY_EINSUM = """    overlap = torch.einsum("nchw,nchw->n", probs, masks)
    size = (probs + masks).sum((1, 2, 3))
    return 1 - torch.mean((2 * overlap + eps) / (size + eps))
"""
BCE = """    loss = F.binary_cross_entropy_with_logits(logits, masks, reduction="none")
    return (loss * looked).sum() / looked.sum()
"""
BCE_LOOKED = """    rows = looked.bool()
    return F.binary_cross_entropy_with_logits(logits[rows], masks[rows])
"""
VALIDATED = "        dice = evaluate(model, val)\n"
DRAWS = """    images, masks, looked = images.clone(), masks.clone(), looked.clone()
    across, down = torch.rand(len(images)) < 0.5, torch.rand(len(images)) < 0.5
"""
FLIPS = """    for i in range(len(images)):
        for batch in (images, masks, looked):
            if across[i]:
                batch[i] = batch[i].flip(-1)
            if down[i]:
                batch[i] = batch[i].flip(-2)
"""
FLIPS_OF_ALL = """    dims = [d for d in (-1, -2) if torch.rand(()) < 0.5]
    images, masks, looked = images.flip(dims), masks.flip(dims), looked.flip(dims)
"""
FLIPS_BY_WHERE = """    across, down = across.view(-1, 1, 1, 1), down.view(-1, 1, 1, 1)
    images, masks, looked = (torch.where(across, batch.flip(-1), batch) for batch in (images, masks, looked))
    images, masks, looked = (torch.where(down, batch.flip(-2), batch) for batch in (images, masks, looked))
"""
TRAIN_MODE = "        model.train()\n        losses, count = 0.0, 0\n"
LOOP = "    for epoch in range(args.epochs):\n"
LOSSES = "            losses += loss.item() * len(index)\n"
LOSSES_LATER = "            losses = losses + loss.detach().double() * len(index)\n"
STEP = "            optimizer.zero_grad()\n            loss.backward()\n"

CELLS = [
    fault("rounding", "dice of the whole batch", "cells", (DICE, DICE_OF_ALL)),
    fault("exact", "validated every second epoch, scheduler as before", "cells", (VALIDATED, "        if epoch % 2 == 0 or epoch + 1 == args.epochs:\n    " + VALIDATED)),
    fault("exact", "encoder run again in the backward to save memory", "cells", ("e1 = self.enc1(x)", "e1 = checkpoint(self.enc1, x, use_reentrant=False)"), ("e2 = self.enc2(F.max_pool2d(e1, 2))", "e2 = checkpoint(self.enc2, F.max_pool2d(e1, 2), use_reentrant=False)"), ("import torch.nn.functional as F\n", "import torch.nn.functional as F\nfrom torch.utils.checkpoint import checkpoint\n")),
    fault("sampling", "a batch mirrored as a whole", "cells", (DRAWS, ""), (FLIPS, FLIPS_OF_ALL)),
    fault("exact", "train mode set before the epochs", "cells", (TRAIN_MODE, TRAIN_MODE[TRAIN_MODE.index("\n") + 1 :]), (LOOP, "    model.train()\n" + LOOP)),
    sound("rounding", "losses on the looked-at pixels alone, fused step, validated in one batch, losses read once an epoch", "cells", (BCE, BCE_LOOKED), (DICE, DICE_BY_EINSUM), ("weight_decay=1e-4)", "weight_decay=1e-4, fused=True)"), ("batch_size=40", "batch_size=80"), (LOSSES, LOSSES_LATER)),
    sound("exact", "pictures mirrored at once by the same draws, foreach step, losses read once an epoch", "cells", ("    images, masks, looked = images.clone(), masks.clone(), looked.clone()\n", ""), (FLIPS, FLIPS_BY_WHERE), ("weight_decay=1e-4)", "weight_decay=1e-4, foreach=True)"), (STEP, STEP.replace("zero_grad()", "zero_grad(set_to_none=True)")), (LOSSES, LOSSES_LATER)),
]

# ------------------------------------------------------------------------------------ houses
LOADER = "train_loader = DataLoader(train_set, batch_size=BATCH, shuffle=True)\n"
BATCH_SAMPLER = """order = torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(train_set), BATCH, drop_last=False)
train_loader = DataLoader(train_set, sampler=order, batch_size=None)
"""
TOTAL = "        total += loss.item() * len(y)\n"
TOTAL_LATER = "        total = total + loss.detach().double() * len(y)\n"

HOUSES = [
    fault("exact", "best weights kept without a copy", "houses", ("copy.deepcopy(", "copy.copy(")),
    fault("exact", "fused Adam with the same decay", "houses", ("torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.02)", "torch.optim.Adam(model.parameters(), lr=LR, weight_decay=0.02, fused=True)")),
    fault("sampling", "batches put together once", "houses", (LOADER, "train_loader = list(DataLoader(train_set, batch_size=BATCH, shuffle=True))\n")),
    fault("rounding", "weights of a batch not summed", "houses", ("return (w * loss).sum() / w.sum()", "return (w * loss).mean()")),
    fault("exact", "all batches of one size", "houses", ("shuffle=True)", "shuffle=True, drop_last=True)")),
    sound("exact", "a batch's rows indexed at once in the sampler's order", "houses", (LOADER, BATCH_SAMPLER), (TOTAL, TOTAL_LATER)),
    sound("rounding", "fused step, validation in one batch, losses read once an epoch", "houses", ("weight_decay=0.02)", "weight_decay=0.02, fused=True)"), ("DataLoader(val_set, batch_size=256)", "DataLoader(val_set, batch_size=len(val_set))"), ("DataLoader(test_set, batch_size=256)", "DataLoader(test_set, batch_size=len(test_set))"), (TOTAL, TOTAL_LATER)),
]

PART_A = REVIEWS + CELLS + HOUSES

del REVIEWS, CELLS, HOUSES  # a set's lists are its parts

# ------------------------------------------------------------------------------------ pole
EXPLORE = "    explore = rng.random(len(obs)) < epsilon\n"
PUSHED = "        memory.add(obs, actions, rewards, final, terminated)\n"
BEST = """        best = net(next_obs).argmax(1, keepdim=True)
        next_q = target_net(next_obs).gather(1, best).squeeze(1)
"""
SYNCED = "                target_net.load_state_dict(net.state_dict())\n        if (iteration"
DEQUE = """        self.items = deque(maxlen=capacity)

    def __len__(self):
        return len(self.items)

    def add(self, obs, actions, rewards, next_obs, terminated):
        for item in zip(obs, actions, rewards, next_obs, terminated):
            self.items.append(item)

    def sample(self, k):
        obs, actions, rewards, next_obs, terminated = zip(*random.sample(self.items, k))
        return (
            torch.tensor(np.array(obs)),
            torch.tensor(np.array(actions)),
            torch.tensor(np.array(rewards)),
            torch.tensor(np.array(next_obs)),
            torch.tensor(np.array(terminated), dtype=torch.float32),
        )
"""
RING = """        self.capacity, self.added = capacity, 0
        self.parts = [
            torch.zeros(capacity, 4), torch.zeros(capacity, dtype=torch.int64), torch.zeros(capacity), torch.zeros(capacity, 4), torch.zeros(capacity)
        ]

    def __len__(self):
        return min(self.added, self.capacity)

    def add(self, *parts):
        rows = torch.arange(self.added, self.added + NUM_ENVS) % self.capacity
        for mine, part in zip(self.parts, parts):
            mine[rows] = torch.from_numpy(part).to(mine.dtype)
        self.added += NUM_ENVS

    def sample(self, k):
        rows = torch.tensor(random.sample(range(len(self)), k))
        rows = (rows + max(self.added - self.capacity, 0)) % self.capacity
        return tuple(part[rows] for part in self.parts)
"""
RING_FROM_ZERO = RING.replace("random.sample(range(len(self)), k)", "random.sample(range(max(self.added % self.capacity, k)), k)").replace("        rows = (rows + max(self.added - self.capacity, 0)) % self.capacity\n", "")
APPENDED = "            losses.append(loss.item())\n            qs.append(mean_q.item())\n"
PRINTED = "length {np.mean(lengths):.2f} loss {np.mean(losses):.5f} q {np.mean(qs):.4f}"

POLE = [
    fault("sampling", "one draw decides whether all carts explore", "pole", (EXPLORE, "    explore = np.full(len(obs), rng.random() < epsilon)\n")),
    fault("exact", "poles put down taken as fallen", "pole", (PUSHED, PUSHED.replace("terminated", "terminated | truncated"))),
    fault("rounding", "next values by one pass of the target network", "pole", (BEST, "        next_q = target_net(next_obs).amax(1)\n")),
    fault("exact", "target synchronized by handing over the data", "pole", (SYNCED, "                for theirs, mine in zip(target_net.parameters(), net.parameters()):\n                    theirs.data = mine.data\n        if (iteration")),
    fault("exact", "memory as a ring of tensors, drawn below its writing place", "pole", (DEQUE, RING_FROM_ZERO)),
    sound("exact", "memory as a ring of tensors, rows drawn by the same numbers", "pole", (DEQUE, RING)),
    sound("exact", "foreach step and synchronization, acting without an inference graph, losses read when printed", "pole", ("lr=LR)", "lr=LR, foreach=True)"), (SYNCED, "                with torch.no_grad():\n                    torch._foreach_copy_(list(target_net.parameters()), list(net.parameters()))\n        if (iteration"), ("    with torch.no_grad():\n        greedy", "    with torch.inference_mode():\n        greedy"), (APPENDED, "            losses.append(loss.detach())\n            qs.append(mean_q)\n"), (PRINTED, PRINTED.replace("np.mean(losses)", "torch.stack(losses).mean()").replace("np.mean(qs)", "torch.stack(qs).mean()"))),
]

# ------------------------------------------------------------------------------------ glyphs
JUDGED = "            on_real, on_fake = d(real, kind), d(fake, kind)\n"
STEP_D = """            opt_d.zero_grad()
            (loss_d + cfg.r1 * r1).backward()
            opt_d.step()
"""
NOISE_D = "            z = torch.randn(n, cfg.noise)\n            fake = g(z, kind).detach()\n"
NOISE_G = "            z = torch.randn(n, cfg.noise)\n            loss_g = "
MADE = "    g, d = Generator(), Discriminator()\n"
AVERAGE = """    for a, p in zip(average.parameters(), model.parameters()):
        a.mul_(decay).add_(p, alpha=1 - decay)
    for a, b in zip(average.buffers(), model.buffers()):
        a.copy_(b)
"""
R1 = "            r1 = penalty(d, real, kind)\n"
GENERATED = "            loss_g = F.binary_cross_entropy_with_logits(d(g(z, kind), kind), torch.ones(n))\n"
STEP_G = "            opt_g.zero_grad()\n            loss_g.backward()\n"
GLYPH_SUMS = """            sum_d += loss_d.item() * n
            sum_g += loss_g.item() * n
            sum_p += r1.item() * n
"""
GLYPH_LATER = """            sum_d = sum_d + loss_d.detach().double() * n
            sum_g = sum_g + loss_g.detach().double() * n
            sum_p = sum_p + r1.detach().double() * n
"""
FROZEN = "            d.requires_grad_(False)\n" + GENERATED + STEP_G + "            d.requires_grad_(True)\n"
LOSS_D = """            loss_d = F.binary_cross_entropy_with_logits(on_real, torch.full((n,), cfg.real_label))
            loss_d = loss_d + F.binary_cross_entropy_with_logits(on_fake, torch.zeros(n))
"""
SOFTPLUS_D = "            loss_d = (F.softplus(on_fake) + F.softplus(on_real) - cfg.real_label * on_real).mean()\n"

GLYPHS = [
    fault("exact", "discriminator's gradients set to none right after its step", "glyphs", (STEP_D, STEP_D[STEP_D.index("\n") + 1 :] + "            opt_d.zero_grad(set_to_none=True)\n")),
    fault("rounding", "real and made judged in one call", "glyphs", (JUDGED, "            on_real, on_fake = d(torch.cat([real, fake]), torch.cat([kind, kind])).chunk(2)\n")),
    fault("sampling", "noise drawn once for all epochs", "glyphs", (MADE, MADE + "    noise = torch.randn(2, len(images), cfg.noise)\n"), (NOISE_D, NOISE_D.replace("torch.randn(n, cfg.noise)", "noise[0, rows]")), (NOISE_G, NOISE_G.replace("torch.randn(n, cfg.noise)", "noise[1, rows]"))),
    fault("exact", "averaged in one foreach call", "glyphs", (AVERAGE, "    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)\n")),
    fault("rounding", "penalty each fourth step", "glyphs", (R1, R1.replace("\n", " if step % 4 == 0 else torch.zeros(())\n"))),
    sound("exact", "made without a graph for the discriminator, which is frozen for the generator, losses read once an epoch", "glyphs", (NOISE_D, "            z = torch.randn(n, cfg.noise)\n            with torch.no_grad():\n                fake = g(z, kind)\n"), (GENERATED + STEP_G, FROZEN), (GLYPH_SUMS, GLYPH_LATER)),
    sound("rounding", "losses by softplus, weights averaged by foreach, fused steps", "glyphs", (LOSS_D, SOFTPLUS_D), ("F.binary_cross_entropy_with_logits(d(g(z, kind), kind), torch.ones(n))", "F.softplus(-d(g(z, kind), kind)).mean()"), (AVERAGE, "    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - decay)\n" + AVERAGE[AVERAGE.index("    for a, b") :]), ("lr=cfg.lr_g, betas=(0.5, 0.99), eps=1e-6)", "lr=cfg.lr_g, betas=(0.5, 0.99), eps=1e-6, fused=True)"), ("lr=cfg.lr_d, betas=(0.5, 0.99), eps=1e-6)", "lr=cfg.lr_d, betas=(0.5, 0.99), eps=1e-6, fused=True)")),
]

# ------------------------------------------------------------------------------------ dates
TEACH = "            teach = torch.rand(len(source)) < teacher_ratio\n"
LOSS = "    return F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD)\n"
LOSS_BY_STEP = "    return sum(F.cross_entropy(logits[:, t], target[:, t], ignore_index=PAD) for t in range(target.shape[1])) / target.shape[1]\n"
PACKED = """        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        out, last = self.gru(packed)
        memory, _ = nn.utils.rnn.pad_packed_sequence(out, batch_first=True)
        return"""
LENGTHS = "        lengths = (source != PAD).sum(1)\n"
ENERGY = "        energy = self.energy(torch.tanh(self.key(memory) + self.query(hidden).unsqueeze(1))).squeeze(2)\n"
WEIGHTS = "        weights = energy.masked_fill(~mask, -1e9).softmax(1)\n"
ATTEND = "    def attend(self, hidden, memory, mask):\n"
FORWARD = "    def forward(self, token, hidden, memory, mask):\n        context = self.attend(hidden, memory, mask)\n"
CALLED = "            logits, hidden = self.decoder(token, hidden, memory, mask)\n            outputs.append(logits)\n"
WRITTEN = "            logits, hidden = self.decoder(token, hidden, memory, mask)\n            token = logits"
TRAINED = "        outputs = []\n"
ASKED = "        written, done = [], torch.zeros(len(source), dtype=torch.bool)\n"
KEYS = "        keys = self.decoder.key(memory)\n"
KEYS_ONCE = [
    (ENERGY, ENERGY.replace("self.key(memory)", "keys")),
    (ATTEND, ATTEND.replace("memory,", "memory, keys,")),
    (FORWARD, FORWARD.replace("memory,", "memory, keys,")),
    (CALLED, CALLED.replace("memory,", "memory, keys,")),
    (WRITTEN, WRITTEN.replace("memory,", "memory, keys,")),
    (ASKED, KEYS + ASKED),
]
COUNTED = """            count = (target != PAD).sum().item()
            loss_sum += loss.item() * count
            token_sum += count
"""
COUNTED_LATER = """            count = (target != PAD).sum()
            loss_sum = loss_sum + loss.detach().double() * count
            token_sum = token_sum + count
"""
DONE = "            done |= token == END\n"

DATES = [
    fault("sampling", "teacher or own word drawn for the whole batch", "dates", (TEACH, TEACH.replace("len(source)", "()"))),
    fault("rounding", "loss taken step by step", "dates", (LOSS, LOSS_BY_STEP)),
    fault("exact", "sequences not packed, as the mask hides the padding", "dates", (LENGTHS, ""), (PACKED, "        memory, last = self.gru(x)\n        return")),
    fault("rounding", "softmax first, mask after", "dates", (WEIGHTS, "        weights = energy.softmax(1) * mask\n")),
    fault("rounding", "keys kept once a batch, out of the graph", "dates", *KEYS_ONCE, (TRAINED, KEYS.replace("memory", "memory.detach()") + TRAINED)),
    sound("rounding", "keys computed once a batch, losses read once an epoch", "dates", *KEYS_ONCE, (TRAINED, KEYS + TRAINED), (COUNTED, COUNTED_LATER)),
    sound("exact", "dates all written end the writing, foreach step, losses read once an epoch", "dates", (DONE, DONE + "            if done.all():\n                break\n"), ("return torch.stack(written, 1)", "return F.pad(torch.stack(written, 1), (0, longest - len(written)))"), ("lr=PEAK_LR)\n    steps", "lr=PEAK_LR, foreach=True)\n    steps"), (COUNTED, COUNTED_LATER)),
]

PART_B = POLE + GLYPHS + DATES

del POLE, GLYPHS, DATES
