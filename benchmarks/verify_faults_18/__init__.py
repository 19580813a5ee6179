"""An eighteenth set of faults: six short scripts in the manner of ordinary users, written without sight of the judge.

Part a: ``whistle``: a conformer with CTC on padded utterances; ``kiln``: diffusion with a cosine schedule, guidance and averaged weights; ``tram``: a language
model with accumulated micro-batches and warm-up. Part b: ``heron``: double DQN with returns of three steps; ``ledger``: a table of numbers and kinds read by
several loader workers; ``tide``: a mean teacher with few labels.
``CASES.claimed`` says of each case what its author would say it is (exact, rounding, sampling): of a sound one that is so, of a fault it is not.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Claims

CASES = Claims(Path(__file__).parent / "scripts")
fault, sound = CASES.wrong, CASES.right


# ------------------------------------------------------------------------------------ whistle
SCORES = "        score = q @ k.transpose(-1, -2) / q.size(-1) ** 0.5\n        score = score.masked_fill(~there[:, None, None, :], -1e9)\n        return self.out((score.softmax(-1) @ v).transpose(1, 2).flatten(2))\n"
SILENCED = """    x = x.clone()
    for i, n in enumerate(lengths.tolist()):
        t0, f0 = int(torch.randint(0, n - 4, (1,))), int(torch.randint(0, BANDS - 2, (1,)))
        x[i, t0 : t0 + 4] = 0
        x[i, :, f0 : f0 + 2] = 0
    return x
"""
AT_ONCE = """    t0, f0 = int(torch.randint(0, int(lengths.min()) - 4, (1,))), int(torch.randint(0, BANDS - 2, (1,)))
    x = x.clone()
    x[:, t0 : t0 + 4] = 0
    x[:, :, f0 : f0 + 2] = 0
    return x
"""
BY_MASK = """    drawn = torch.stack([torch.cat([torch.randint(0, n - 4, (1,)), torch.randint(0, BANDS - 2, (1,))]) for n in lengths.tolist()])
    t, f = torch.arange(x.size(1)) - drawn[:, :1], torch.arange(BANDS) - drawn[:, 1:]
    quiet = ((t >= 0) & (t < 4)).unsqueeze(2) | ((f >= 0) & (f < 2)).unsqueeze(1)
    return x.masked_fill(quiet, 0)
"""
COUNTED = "                errors += distance(said, text.tolist())\n                total += len(text)\n"

WHISTLE = [
    fault("rounding", "fused attention without the mask", "whistle", (SCORES, "        return self.out(F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2))\n")),
    fault("exact", "padding let into the convolution", "whistle", ("        x = F.glu(self.pw1(x), dim=-1) * there.unsqueeze(-1)\n", "        x = F.glu(self.pw1(x), dim=-1)\n")),
    fault("sampling", "one span silenced for a batch", "whistle", (SILENCED, AT_ONCE)),
    fault("exact", "last weights kept without a copy", "whistle", ("{k: v.clone() for k, v in model.state_dict().items()}", "model.state_dict()")),
    fault("exact", "error rates averaged over the batches", "whistle", ("            best = logp.argmax(-1)\n", "            best = logp.argmax(-1)\n            wrong, there = 0, 0\n"), (COUNTED, "                wrong += distance(said, text.tolist())\n                there += len(text)\n            errors += wrong / there\n            total += 1\n")),
    sound("rounding", "fused attention with the mask, judged in one batch", "whistle", (SCORES, "        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=there[:, None, None, :]).transpose(1, 2).flatten(2))\n"), ("def evaluate(model, feats, texts, ctc, batch=20)", "def evaluate(model, feats, texts, ctc, batch=70)")),
    sound("exact", "spans silenced by one mask, losses read once an epoch", "whistle", (SILENCED, BY_MASK), ("            running += loss.item() * len(idx)\n", "            running = running + loss.detach().double() * len(idx)\n"), ("    with torch.no_grad():\n", "    with torch.inference_mode():\n")),
]

# ------------------------------------------------------------------------------------ kiln
FOLLOW = "        d = min(self.decay, (1 + self.updates) / (10 + self.updates))\n        for a, p in zip(self.model.parameters(), model.parameters()):\n            a.lerp_(p, 1 - d)\n"
LISTS = "        torch._foreach_lerp_([*self.model.parameters()], [*model.parameters()], 1 - "
TWO = "        with_kind = model(x, t, kind)\n        without = model(x, t, torch.full_like(kind, NONE))\n"
ONE = " = model(x.repeat(2, 1), t.repeat(2), torch.cat([kind, torch.full_like(kind, NONE)])).chunk(2)\n"
WEIGHED = "    return (weight * (model(noisy, t, kind) - v).pow(2).mean(1)).mean()\n"
KILN_ADAMW = "torch.optim.AdamW(model.parameters(), lr=LR, weight_decay=0.01)"

KILN = [
    fault("rounding", "average by lists, at its full decay from the start", "kiln", (FOLLOW, LISTS + "self.decay)\n")),
    fault("exact", "put in training mode once", "kiln", ("    was = model.training\n    model.eval()\n", "    model.eval()\n"), ("    model.train(was)\n", ""), ("    for epoch in range(EPOCHS):\n        model.train()\n", "    model.train()\n    for epoch in range(EPOCHS):\n")),
    fault("sampling", "one time for a batch", "kiln", ("            t = torch.randint(0, STEPS, (len(idx),))\n", "            t = torch.randint(0, STEPS, (1,)).expand(len(idx))\n")),
    fault("rounding", "guided by one call, halves mixed up", "kiln", (TWO, "        without, with_kind" + ONE)),
    fault("rounding", "mean of the weights times the mean of the squares", "kiln", (WEIGHED, "    return weight.mean() * F.mse_loss(model(noisy, t, kind), v)\n")),
    sound("rounding", "guided by one call, average by lists", "kiln", (FOLLOW, FOLLOW.splitlines(True)[0] + LISTS + "d)\n"), (TWO, "        with_kind, without" + ONE)),
    sound("rounding", "held-out glazes in one piece, losses read once an epoch, fused optimizer", "kiln", ("    for i in range(0, len(x), 128):\n        part = slice(i, i + 128)\n", "    for part in (slice(None),):\n"), ("            total += loss.item() * len(idx)\n", "            total = total + loss.detach().double() * len(idx)\n"), (KILN_ADAMW, KILN_ADAMW[:-1] + ", fused=True)")),
]

# ------------------------------------------------------------------------------------ tram
MICROS = '            loss = F.cross_entropy(logits.flatten(0, 1), m[:, 1:].flatten(), ignore_index=PAD, reduction="sum")\n            (loss / total).backward()\n            sums += loss.item()\n'
BY_MEAN = "            loss = F.cross_entropy(logits.flatten(0, 1), m[:, 1:].flatten(), ignore_index=PAD)\n            (loss / ACCUM).backward()\n            sums += loss.item() * int((m[:, 1:] != PAD).sum())\n"
CLIPPED = "        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n"
CAUSAL = "        score = q @ k.transpose(-1, -2) / math.sqrt(c // self.heads)\n        ahead = torch.ones(n, n, dtype=torch.bool).triu(1)\n        weights = score.masked_fill(ahead, -math.inf).softmax(-1)\n"
MIXED = "(weights @ v).transpose(1, 2)"
GROUPS = "    decay = [p for p in model.parameters() if p.dim() >= 2]\n    rest = [p for p in model.parameters() if p.dim() < 2]\n"

TRAM = [
    fault("rounding", "every micro-batch by its own mean", "tram", (MICROS, BY_MEAN)),
    fault("exact", "clipped after each micro-batch", "tram", (CLIPPED, ""), ("            sums += loss.item()\n", "            sums += loss.item()\n    " + CLIPPED)),
    fault("exact", "groups told by name", "tram", (GROUPS, '    decay = [p for n, p in model.named_parameters() if "norm" not in n]\n    rest = [p for n, p in model.named_parameters() if "norm" in n]\n')),
    fault("exact", "short micro-batch at the end of a pass left out", "tram", ("        for idx in torch.randperm(len(rows)).split(MICRO):\n", "        for idx in torch.randperm(len(rows))[: len(rows) // MICRO * MICRO].view(-1, MICRO):\n")),
    fault("rounding", "judged in bfloat16", "tram", ("        logits, target = model(part[:, :-1]), part[:, 1:]\n", '        with torch.autocast("cpu", dtype=torch.bfloat16):\n            logits, target = model(part[:, :-1]).to(torch.get_default_dtype()), part[:, 1:]\n')),
    sound("rounding", "fused attention and optimizer, judged in one batch", "tram", (CAUSAL, "        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)\n"), (MIXED, "mixed.transpose(1, 2)"), ("betas=(0.9, 0.95))", "betas=(0.9, 0.95), fused=True)"), ("def evaluate(model, rows, batch=25)", "def evaluate(model, rows, batch=180)")),
    sound("exact", "losses and norms read when printed, mask made once", "tram", ("            sums += loss.item()\n", "            sums = sums + loss.detach().double()\n"), ("        norms += norm.item()\n", "        norms = norms + norm.double()\n"), ("        self.heads, self.p = heads, p\n", "        self.heads, self.p, self.ahead = heads, p, torch.ones(MAXLEN, MAXLEN, dtype=torch.bool).triu(1)\n"), ("        ahead = torch.ones(n, n, dtype=torch.bool).triu(1)\n", "        ahead = self.ahead[:n, :n]\n")),
]

PART_A = WHISTLE + KILN + TRAM

del WHISTLE, KILN, TRAM  # a set's lists are its parts

# ------------------------------------------------------------------------------------ heron
COPIED = "        if (step + 1) % COPY == 0:\n            target.load_state_dict(q.state_dict())\n"
READ = "            losses.append(loss.item())\n            guesses.append(guess.mean().item())\n"
CHOICE = "                choice = q(nxt).argmax(1, keepdim=True)\n                goal = ret + discount * target(nxt).gather(1, choice).squeeze(1)\n"
LEFT = "            while window:\n                store(replay, window, after, ended)\n"
SHOWN = "loss {sum(losses) / len(losses):.5f} guess {sum(guesses) / len(guesses):.4f}"
ROWS = "        return self.obs[idx], self.action[idx], self.ret[idx], self.after[idx], self.discount[idx]\n"

HERON = [
    fault("exact", "target copied where the network learns", "heron", (COPIED, ""), (READ, READ + "".join("    " + line for line in COPIED.splitlines(True)))),
    fault("exact", "trips cut off count as ended", "heron", (LEFT, LEFT.replace("ended)", "ended or cut)"))),
    fault("rounding", "choice and value by one network", "heron", (CHOICE, "                goal = ret + discount * target(nxt).amax(1)\n")),
    fault("exact", "one discount for all rows", "heron", ("0.0 if ended else GAMMA ** len(window))", "0.0 if ended else GAMMA**N_STEP)")),
    fault("exact", "marsh for evaluation made once", "heron", ("def evaluate(q, trips=10):\n    marsh, total, caught = Marsh(1000), 0.0, 0\n", "def evaluate(q, trips=10, marsh=Marsh(1000)):\n    total, caught = 0.0, 0\n")),
    sound("exact", "losses read when printed, acts in inference mode", "heron", (READ, "            losses.append(loss.detach())\n            guesses.append(guess.detach().mean())\n"), (SHOWN, "loss {sum(torch.stack(losses).tolist()) / len(losses):.5f} guess {sum(torch.stack(guesses).tolist()) / len(guesses):.4f}"), ("            with torch.no_grad():\n                action = q(obs)", "            with torch.inference_mode():\n                action = q(obs)"), ("@torch.no_grad()\ndef evaluate", "@torch.inference_mode()\ndef evaluate")),
    sound("rounding", "optimizer and copies by lists", "heron", ("torch.optim.Adam(q.parameters(), lr=LR)", "torch.optim.Adam(q.parameters(), lr=LR, foreach=True)"), ("            target.load_state_dict(q.state_dict())\n", "            with torch.no_grad():\n                torch._foreach_copy_([*target.parameters()], [*q.parameters()])\n"), (ROWS, "        return tuple(rows.index_select(0, idx) for rows in (self.obs, self.action, self.ret, self.after, self.discount))\n"), ("                goal = ret + discount * target(nxt)", "                goal = torch.addcmul(ret, discount, target(nxt)"), (".gather(1, choice).squeeze(1)\n", ".gather(1, choice).squeeze(1))\n")),
]

# ------------------------------------------------------------------------------------ ledger
SET = "    train_loader = DataLoader(Boats(table, scale, blur=0.1), BATCH, shuffle=True, num_workers=WORKERS, persistent_workers=True)\n"
ITEM = "        x = (self.numbers[i] - self.mean) / self.std\n        gap = x.isnan()\n        x = x.nan_to_num(0.0)\n"
KEPT = "        self.numbers, self.kinds, self.price = table\n"
GOT = "self.kinds[i], (self.price[i].log() - self.shift) / self.width\n"
ERROR = "            error += ((guess[:, 1] * width + shift).exp() - (y * width + shift).exp()).abs().sum().item()\n"
LEDGER_ADAMW = 'torch.optim.AdamW([{"params": [p for t in model.tables for p in t.parameters()], "weight_decay": 0.3}, {"params": [p for n, p in model.named_parameters() if not n.startswith("tables")]}], lr=1e-2, weight_decay=0.01)'
SAVED = '    torch.save({"model": kept, "last": model.state_dict(), "scale": scale}, "ledger.pt")\n'
TAKEN = "    model.load_state_dict(kept)\n"

LEDGER = [
    fault("sampling", "rows made once, blur and all", "ledger", ("from torch.utils.data import DataLoader, Dataset\n", "from torch.utils.data import DataLoader, Dataset, TensorDataset\n"), (SET, "    made = Boats(table, scale, blur=0.1)\n    made = [torch.stack(column) for column in zip(*[made[i] for i in range(len(made))])]\n    train_loader = DataLoader(TensorDataset(*made), BATCH, shuffle=True)\n")),
    fault("exact", "gaps filled before the scaling", "ledger", (ITEM, "        gap = self.numbers[i].isnan()\n        x = (self.numbers[i].nan_to_num(0.0) - self.mean) / self.std\n")),
    fault("rounding", "fused optimizer with one decay", "ledger", (LEDGER_ADAMW, "torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=0.01, fused=True)")),
    fault("exact", "errors averaged over the batches", "ledger", (ERROR, ERROR.replace(".sum().item()", ".mean().item()")), ("return loss / n, error / n, inside / n", "return loss / n, error / len(loader), inside / n")),
    fault("exact", "saved after the best was put back", "ledger", (SAVED, ""), (TAKEN, TAKEN + SAVED)),
    sound("exact", "rows scaled once, blurred as they are read", "ledger", (KEPT, "        numbers, self.kinds, price = table\n        x = (numbers - self.mean) / self.std\n        self.gap, self.x = x.isnan().to(x.dtype), x.nan_to_num(0.0)\n        self.price = (price.log() - self.shift) / self.width\n"), (ITEM, "        x = self.x[i]\n"), ("torch.cat([x, gap.to(x.dtype)]), " + GOT, "torch.cat([x, self.gap[i]]), self.kinds[i], self.price[i]\n")),
    sound("rounding", "judged in large batches, losses read once an epoch, fused optimizer", "ledger", ("DataLoader(Boats(valid, scale), BATCH)", "DataLoader(Boats(valid, scale), 450)"), ("DataLoader(Boats(test, scale), BATCH)", "DataLoader(Boats(test, scale), 450)"), ("            total += loss.item() * len(y)\n", "            total = total + loss.detach().double() * len(y)\n"), (LEDGER_ADAMW, LEDGER_ADAMW[:-1] + ", fused=True)")),
]

# ------------------------------------------------------------------------------------ tide
STEPPED = "            optimizer.step()\n            scheduler.step()\n            follow(teacher, student)\n"
JUDGED = "            teacher.eval()\n"
LOOP = "    for epoch in range(EPOCHS):\n"
AGREED = '            loss_free = (F.cross_entropy(blind, guess, reduction="none") * sure).mean()\n'
MOVED = "    for a, p in zip(teacher.parameters(), student.parameters()):\n        a.mul_(DECAY).add_(p, alpha=1 - DECAY)\n    for a, b in zip(teacher.buffers(), student.buffers()):\n        a.copy_(b)\n"
STATE = '{"student": student.state_dict(), "teacher": teacher.state_dict(), "prior": prior}'

TIDE = [
    fault("exact", "teacher follows before the step", "tide", (STEPPED, "            follow(teacher, student)\n            optimizer.step()\n            scheduler.step()\n")),
    fault("exact", "teacher put in evaluation mode once", "tide", (JUDGED, ""), (LOOP, JUDGED[8:] + LOOP)),
    fault("rounding", "unsure curves left out of the mean", "tide", (AGREED, '            loss_free = (F.cross_entropy(blind, guess, reduction="none") * sure).sum() / sure.sum().clamp(min=1)\n')),
    fault("sampling", "one scale and one gap for a batch", "tide", ("torch.rand(len(x), 1, 1)", "torch.rand(1)"), ("    start = torch.randint(0, LENGTH - 8, (len(x), 1, 1))\n", "    start = torch.randint(0, LENGTH - 8, (1,))\n")),
    fault("exact", "weights for the file copied before the last epoch", "tide", (LOOP, LOOP + "        saved = copy.deepcopy(" + STATE + ")\n"), ("    torch.save(" + STATE, "    torch.save(saved")),
    sound("rounding", "teacher follows by lists, judged in one batch", "tide", (MOVED, "    torch._foreach_lerp_([*teacher.parameters()], [*student.parameters()], 1 - DECAY)\n    torch._foreach_copy_([*teacher.buffers()], [*student.buffers()])\n"), ("def evaluate(model, x, y, batch=90)", "def evaluate(model, x, y, batch=400)")),
    sound("exact", "teacher put in evaluation mode once and left in it", "tide", (JUDGED, ""), (LOOP, JUDGED[8:] + LOOP), ("    model.eval()\n", "    was = model.training\n    model.eval()\n"), ("    model.train()\n", "    model.train(was)\n"), ("            taken += sure.sum().item()\n", "            taken = taken + sure.sum().double()\n"), ("loss += F.cross_entropy(logits, yb, reduction=\"sum\").item()", "loss = loss + F.cross_entropy(logits, yb, reduction=\"sum\").double()"), ("return loss / len(x), (hits", "return loss.item() / len(x), (hits")),
]

PART_B = HERON + LEDGER + TIDE

del HERON, LEDGER, TIDE
