"""An eighth set of faults, written blind: ten scripts in ways of writing of their own, in two halves.

Half A (``--set 8a``), by which the judge may be mended: ``novelist``, a character model with accumulated gradients in bfloat16; ``smoke``, a
diffusion model with an average of the weights; ``balance``, Q-learning with a buffer and a target net; ``orchard``, the package ``grove``,
pictures with workers and a run that is taken up again; ``interpreter``, sequences to sequences with a teacher.

Half B (``--set 8b``), run once at the end: ``ledger``, a table in memory; ``citation``, a graph as one batch with early stopping; ``pairs``,
contrastive learning with a probe; ``forger``, a critic with a penalty on gradients; ``pupil``, a teacher and a student.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

HERE = Path(__file__).parent / "scripts"
CASES = Cases(HERE)
fault, sound = CASES.fault, CASES.sound


DATA, ENGINE, MAIN, NET = "grove/data.py", "grove/engine.py", "grove/main.py", "grove/model.py"

ATTENTION = """        att = (q @ k.transpose(-2, -1)) / math.sqrt(k.size(-1))
        att = att.masked_fill(self.mask[:T, :T] == 0, float("-inf"))
        att = self.drop(F.softmax(att, dim=-1))
        y = (att @ v).transpose(1, 2)"""

BUFFER = """    def __init__(self, capacity):
        self.memory = collections.deque(maxlen=capacity)

    def push(self, *args):
        self.memory.append(Transition(*args))

    def sample(self, batch_size):
        batch = Transition(*zip(*random.sample(self.memory, batch_size)))
        state = torch.from_numpy(np.stack(batch.state))
        action = torch.tensor(batch.action)
        reward = torch.tensor(batch.reward)
        next_state = torch.from_numpy(np.stack(batch.next_state))
        done = torch.tensor(batch.done, dtype=torch.float32)
        return state, action, reward, next_state, done

    def __len__(self):
        return len(self.memory)
"""

RING = """    def __init__(self, capacity):
        self.capacity, self.size, self.head = capacity, 0, 0
        self.state = torch.zeros(capacity, 4)
        self.next_state = torch.zeros(capacity, 4)
        self.action = torch.zeros(capacity, dtype=torch.long)
        self.reward = torch.zeros(capacity)
        self.done = torch.zeros(capacity)

    def push(self, state, action, reward, next_state, done):
        at = self.head
        self.state[at] = torch.from_numpy(state)
        self.next_state[at] = torch.from_numpy(next_state)
        self.action[at], self.reward[at], self.done[at] = action, reward, float(done)
        self.head = (at + 1) % self.capacity
        self.size = min(self.size + 1, self.capacity)

    def sample(self, batch_size):
        picks = torch.tensor(random.sample(range(self.size), batch_size))
        if self.size == self.capacity:
            picks = (picks + self.head) % self.capacity
        return self.state[picks], self.action[picks], self.reward[picks], self.next_state[picks], self.done[picks]

    def __len__(self):
        return self.size
"""

AHEAD = '''def ahead(loader):
    """The next batch is copied while the present one is worked on."""
    held = None
    for x, y in loader:
        if held is None:
            held = (x.clone(), y.clone())
            continue
        now = held
        held[0].copy_(x, non_blocking=True)
        held[1].copy_(y, non_blocking=True)
        yield now
    yield held


def train_one_epoch('''

NINTH = [
    # ---------------------------------------------------------------------------------------------- novelist
    fault("loss not divided by the steps of a sum", "novelist", ("yb.view(-1)) / args.accum\n", "yb.view(-1))\n"), ("lossf += loss.item()", "lossf += loss.item() / args.accum")),
    fault("two small batches in place of three", "novelist", ("for micro in range(args.accum):", "for micro in range(args.accum - 1):"), ("yb.view(-1)) / args.accum\n", "yb.view(-1)) / (args.accum - 1)\n")),
    fault("gradients cleared before each small batch", "novelist", ("    optimizer.zero_grad()\n    lossf = 0.0\n    for micro in range(args.accum):\n", "    lossf = 0.0\n    for micro in range(args.accum):\n        optimizer.zero_grad()\n")),
    fault("one small batch three times", "novelist", ('    for micro in range(args.accum):\n        xb, yb = get_batch("train")\n', '    xb, yb = get_batch("train")\n    for micro in range(args.accum):\n')),
    fault("dropout of attention lost", "novelist", (ATTENTION, "        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)")),
    fault("attention drops out in evaluation, too", "novelist", (ATTENTION, "        y = F.scaled_dot_product_attention(q, k, v, dropout_p=args.dropout, is_causal=True).transpose(1, 2)")),
    fault("attention sees what comes", "novelist", (ATTENTION, "        y = F.scaled_dot_product_attention(q, k, v, dropout_p=args.dropout if self.training else 0.0).transpose(1, 2)")),
    fault("weights in bfloat16", "novelist", ("model = GPT(len(chars))", "model = GPT(len(chars)).bfloat16()")),
    fault("the rate one step ahead", "novelist", ("lr = get_lr(step)", "lr = get_lr(step + 1)")),
    fault("the cosine counts the warm-up", "novelist", ("ratio = (it - args.warmup) / (args.steps - args.warmup)", "ratio = it / args.steps")),
    fault("clipped after the step", "novelist", ("    norm = nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)\n    optimizer.step()\n", "    optimizer.step()\n    norm = nn.utils.clip_grad_norm_(model.parameters(), args.grad_clip)\n")),
    fault("clipped at each small batch", "novelist", ("        lossf += loss.item()\n    norm = nn", "        lossf += loss.item()\n        norm = nn")),
    fault("evaluation mode left on", "novelist", ("    model.train()\n", "")),
    fault("decay of norms and biases, too", "novelist", ('"weight_decay": 0.0}', '"weight_decay": args.weight_decay}')),
    fault("second beta lost", "novelist", (", betas=(0.9, 0.95)", ", fused=True")),
    sound("fused AdamW", "novelist", (", betas=(0.9, 0.95)", ", betas=(0.9, 0.95), fused=True")),
    sound("attention in one call", "novelist", (ATTENTION, "        y = F.scaled_dot_product_attention(q, k, v, dropout_p=args.dropout if self.training else 0.0, is_causal=True).transpose(1, 2)")),
    sound("batches gathered by one index", "novelist", ("    x = torch.stack([source[i : i + args.block_size] for i in ix])\n    y = torch.stack([source[i + 1 : i + 1 + args.block_size] for i in ix])\n", "    at = ix[:, None] + torch.arange(args.block_size)\n    x, y = source[at], source[at + 1]\n")),
    sound("loss read where it is printed", "novelist", ("lossf += loss.item()", "lossf += loss.detach()")),
    sound("inference mode, positions kept", "novelist", ("@torch.no_grad()", "@torch.inference_mode()"), ("self.pos(torch.arange(idx.size(1)))", "self.pos.weight[: idx.size(1)]")),
    sound("query, key and value by one product", "novelist", ("        q = self.query(x).view", "        q, k, v = F.linear(x, torch.cat([self.query.weight, self.key.weight, self.value.weight])).chunk(3, dim=-1)\n        q = q.view"), ("k = self.key(x).view", "k = k.view"), ("v = self.value(x).view", "v = v.view")),
    # ---------------------------------------------------------------------------------------------- smoke
    fault("warm-up of the average lost", "smoke", ("d = min(self.decay, (1 + self.n) / (10 + self.n))", "d = self.decay")),
    fault("averaged before the step", "smoke", ("            opt.step()\n            warm.step()\n            ema.update(net)\n", "            ema.update(net)\n            opt.step()\n            warm.step()\n")),
    fault("averaged at every other step, decay kept", "smoke", ("            ema.update(net)\n", "            if step % 2 == 0:\n                ema.update(net)\n")),
    fault("validated without the average", "smoke", ("validate(ema.model,", "validate(net,")),
    fault("one level for the batch", "smoke", ("t = torch.randint(0, T, (len(x),))", "t = torch.randint(0, T, (1,)).expand(len(x))")),
    fault("one noise for the batch", "smoke", ("noise = torch.randn_like(x)", "noise = torch.randn_like(x[:1]).expand_as(x)")),
    fault("label hidden for whole batches", "smoke", ("torch.rand(len(y)) <", "torch.rand(1) <")),
    fault("label never hidden", "smoke", ("            y = torch.where(torch.rand(len(y)) < 0.15, torch.full_like(y, 2), y)\n", "")),
    fault("the noise is overwritten by the noisy picture", "smoke", ("return a.sqrt() * x0 + (1 - a).sqrt() * noise", "return noise.mul_((1 - a).sqrt()).add_(a.sqrt() * x0)")),
    fault("noise of sampling drawn once", "smoke", ("    x = torch.randn(len(y), 1, SIZE, SIZE)\n", "    x = torch.randn(len(y), 1, SIZE, SIZE)\n    noise = torch.randn_like(x)\n"), ("betas[step].sqrt() * torch.randn_like(x)", "betas[step].sqrt() * noise")),
    fault("clipping lost", "smoke", ("            torch.nn.utils.clip_grad_norm_(net.parameters(), 1.0)\n", "")),
    fault("the sum of losses not set back", "smoke", ("                running = 0.0\n", "")),
    fault("warm-up by epoch", "smoke", ("            warm.step()\n", ""), ("    while step < STEPS:\n", "    while step < STEPS:\n        if step:\n            warm.step()\n")),
    fault("dropout off", "smoke", ("    net = Denoiser()\n", "    net = Denoiser().eval()\n")),
    sound("fused Adam", "smoke", ("lr=3e-3)", "lr=3e-3, fused=True)")),
    sound("average with foreach", "smoke", ("        for e, p in zip(self.model.parameters(), model.parameters()):\n            e.mul_(d).add_(p, alpha=1 - d)\n", "        torch._foreach_lerp_(list(self.model.parameters()), list(model.parameters()), 1 - d)\n")),
    sound("roots of the levels kept", "smoke", ("    a = abar[t].view(-1, 1, 1, 1)\n    return a.sqrt() * x0 + (1 - a).sqrt() * noise\n", "    return keep[t].view(-1, 1, 1, 1) * x0 + lose[t].view(-1, 1, 1, 1) * noise\n"), ("abar = torch.cumprod(alphas, dim=0)\n", "abar = torch.cumprod(alphas, dim=0)\nkeep, lose = abar.sqrt(), (1 - abar).sqrt()\n")),
    sound("with and without label in one pass", "smoke", ("        cond = net(x, t, y)\n        free = net(x, t, torch.full_like(y, 2))\n", "        cond, free = net(torch.cat([x, x]), torch.cat([t, t]), torch.cat([y, torch.full_like(y, 2)])).chunk(2)\n")),
    sound("loss read where it is printed", "smoke", ("running += loss.item()", "running += loss.detach()"), ('history.append({"step": step, "loss": running / 50', 'history.append({"step": step, "loss": float(running) / 50')),
    sound("inference mode", "smoke", ("@torch.no_grad()\ndef validate", "@torch.inference_mode()\ndef validate"), ("@torch.no_grad()\ndef sample", "@torch.inference_mode()\ndef sample")),
    # ---------------------------------------------------------------------------------------------- balance
    fault("loss of every pair in the batch", "balance", (".gather(1, action.unsqueeze(1)).squeeze(1)", ".gather(1, action.unsqueeze(1))")),
    fault("an end by time counts as a fall", "balance", ("next_state, fell)\n", "next_state, fell or late)\n")),
    fault("falls have a future", "balance", ("self.gamma * (1 - done) * future", "self.gamma * future")),
    fault("the target shares the weights", "balance", ("copy.deepcopy(self.policy)", "self.policy")),
    fault("the target chooses, too", "balance", ("best = self.policy(next_state)", "best = self.target(next_state)")),
    fault("one array for all states", "balance", ("size=4)\n", "size=4).astype(np.float32)\n"), ("return self.state.astype(np.float32)\n", "return self.state\n"), ("self.state = self.state + 0.02", "self.state += 0.02"), ("return self.state.astype(np.float32), 1.0", "return self.state, 1.0")),
    fault("target copied at each update", "balance", ("step % agent.target_every == 0", "step % train_every == 0")),
    fault("chance falls by episode", "balance", ("agent.act(state, step)", "agent.act(state, len(returns))")),
    fault("each batch drawn is used twice", "balance", ("    target_every = 150\n", "    target_every = 150\n    turn = 0\n"), ("        state, action, reward, next_state, done = self.buffer.sample(self.batch_size)\n", "        if self.turn % 2 == 0:\n            self.batch = self.buffer.sample(self.batch_size)\n        self.turn += 1\n        state, action, reward, next_state, done = self.batch\n")),
    fault("empty places of the ring are drawn", "balance", (BUFFER, RING.replace("range(self.size)", "range(self.capacity)"))),
    fault("the next state is that of the next place", "balance", ("        batch = Transition(*zip(*random.sample(self.memory, batch_size)))\n", "        picks = random.sample(range(len(self.memory) - 1), batch_size)\n        batch = Transition(*zip(*[self.memory[i] for i in picks]))\n"), ("np.stack(batch.next_state)", "np.stack([self.memory[i + 1].state for i in picks])")),
    fault("loss is a sum", "balance", ("nn.SmoothL1Loss()", 'nn.SmoothL1Loss(reduction="sum")')),
    fault("mean of all returns", "balance", ("np.mean(returns[-10:])", "np.mean(returns)")),
    fault("the ring forgets its newest", "balance", (BUFFER, RING.replace("self.head = (at + 1) % self.capacity", "self.head = min(at + 1, self.capacity - 1)").replace("        if self.size == self.capacity:\n            picks = (picks + self.head) % self.capacity\n", ""))),
    sound("a ring of tensors", "balance", (BUFFER, RING)),
    sound("fused Adam", "balance", ("lr=2e-3)", "lr=2e-3, fused=True)")),
    sound("inference mode while acting", "balance", ("        with torch.no_grad():\n            return", "        with torch.inference_mode():\n            return"), ("            with torch.no_grad():\n                action", "            with torch.inference_mode():\n                action")),
    sound("both states in one pass", "balance", ("        q = self.policy(state).gather", "        now, then = self.policy(torch.cat([state, next_state])).chunk(2)\n        q = now.gather"), ("best = self.policy(next_state).argmax", "best = then.argmax")),
    sound("figures read where they are printed", "balance", ("return loss.item(), q.mean().item()", "return loss.detach(), q.detach().mean()"), ("{np.mean(losses[-100:]):.4f}", "{torch.stack(losses[-100:]).mean():.4f}"), ("{np.mean(values[-100:]):.3f}", "{torch.stack(values[-100:]).mean():.3f}")),
    sound("target copied with foreach", "balance", ("            agent.target.load_state_dict(agent.policy.state_dict())\n", "            with torch.no_grad():\n                torch._foreach_copy_(list(agent.target.parameters()), list(agent.policy.parameters()))\n")),
    # ---------------------------------------------------------------------------------------------- orchard
    fault("workers draw the same", "orchard", ("seed = torch.initial_seed() % 2**32", "seed = 1234"), file=DATA),
    fault("pictures changed once for all epochs", "orchard", ("        self.augment = augment\n", "        self.augment = augment\n        self.ready = [self.make(i) for i in range(count)]\n"), ("    def __getitem__(self, index):\n", "    def __getitem__(self, index):\n        return self.ready[index]\n\n    def make(self, index):\n"), file=DATA),
    fault("noise is one number for a picture", "orchard", ("np.random.normal(0, 0.05, image.shape)", "np.random.normal(0, 0.05)"), file=DATA),
    fault("normalised before it is changed", "orchard", ("self.images.append(image.astype(np.float32))", "self.images.append(((image - MEAN) / STD).astype(np.float32))"), ("        image = (image - MEAN) / STD\n", ""), file=DATA),
    fault("order lost", "orchard", ("        shuffle=True,\n", ""), file=DATA),
    fault("pictures of the validation changed", "orchard", ("augment=False", "augment=True"), file=DATA),
    fault("labels not mixed", "orchard", ("lam * target + (1 - lam) * target[order]", "target"), file=ENGINE),
    fault("labels mixed in another order", "orchard", ("lam * target + (1 - lam) * target[order]", "lam * target + (1 - lam) * target[torch.randperm(x.size(0))]"), file=ENGINE),
    fault("smoothing lost", "orchard", ("    target = target * (1 - cfg.smoothing) + cfg.smoothing / classes\n", ""), file=ENGINE),
    fault("evaluation mode left on", "orchard", ("    model.train()\n", ""), file=ENGINE),
    fault("evaluated in training mode", "orchard", ("    model.eval()\n", ""), file=ENGINE),
    fault("validation loss is a mean of batches", "orchard", (', reduction="sum").item()', ").item()"), ("return loss / count, right", "return loss / len(loader), right"), file=ENGINE),
    fault("first batch skipped, last used twice", "orchard", ("def train_one_epoch(", AHEAD), ("    for x, y in loader:\n        x, y = mixup", "    for x, y in ahead(loader):\n        x, y = mixup"), file=ENGINE),
    fault("schedule stepped by epoch", "orchard", ("        scheduler.step()\n", ""), ("    return total / count", "    scheduler.step()\n    return total / count"), file=ENGINE),
    fault("state of the optimizer not restored", "orchard", ('        optimizer.load_state_dict(state["optimizer"])\n', ""), file=MAIN),
    fault("schedule not restored", "orchard", ('        scheduler.load_state_dict(state["scheduler"])\n', ""), file=MAIN),
    fault("an epoch left out when taken up again", "orchard", ('state["epoch"] + 1', 'state["epoch"] + 2'), file=MAIN),
    fault("the epoch before is run again", "orchard", ('state["epoch"] + 1', 'state["epoch"]'), file=MAIN),
    fault("the best accuracy never kept", "orchard", ("                best = accuracy\n", ""), file=MAIN),
    sound("persistent workers", "orchard", ("        num_workers=cfg.workers,\n", "        num_workers=cfg.workers,\n        persistent_workers=True,\n        prefetch_factor=4,\n"), file=DATA),
    sound("workers seeded by the loader alone", "orchard", ("        worker_init_fn=worker_init_fn,\n", ""), file=DATA),
    sound("larger validation batches", "orchard", ("batch_size=cfg.val_batch", "batch_size=cfg.val_size"), file=DATA),
    sound("loss in one call, read once an epoch", "orchard", ("loss = -(y * F.log_softmax(logits, dim=1)).sum(dim=1).mean()", "loss = F.cross_entropy(logits, y)"), ("total += loss.item() * x.size(0)", "total += loss.detach() * x.size(0)"), ("return total / count", "return (total / count).item()"), file=ENGINE),
    sound("inference mode", "orchard", ("@torch.no_grad()", "@torch.inference_mode()"), ("loss += F.cross_entropy(logits, y, reduction=\"sum\").item()", "loss += F.cross_entropy(logits, y, reduction=\"sum\")"), ("return loss / count, right", "return loss.item() / count, right"), file=ENGINE),
    sound("fused SGD, channels last", "orchard", ("weight_decay=cfg.weight_decay)", "weight_decay=cfg.weight_decay, fused=True)"), ("model = Net(cfg.classes)", "model = Net(cfg.classes).to(memory_format=torch.channels_last)"), file=MAIN),
    sound("the picture not copied", "orchard", ("        image = self.images[index].copy()\n", "        image = self.images[index]\n"), file=DATA),
    # ---------------------------------------------------------------------------------------------- interpreter
    fault("padding runs through the encoder", "interpreter", ("        outputs, hidden = self.rnn(packed)\n        outputs, _ = pad_packed_sequence(outputs, batch_first=True)\n", "        outputs, hidden = self.rnn(embedded)\n")),
    fault("the last state not put back in order", "interpreter", ("        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)\n", "        lengths, order = lengths.sort(descending=True)\n        packed = pack_padded_sequence(embedded[order], lengths, batch_first=True)\n"), ("        outputs, _ = pad_packed_sequence(outputs, batch_first=True)\n", "        outputs, _ = pad_packed_sequence(outputs, batch_first=True)\n        outputs = outputs[order.argsort()]\n")),
    fault("attention on padding", "interpreter", (".squeeze(2).masked_fill(mask == 0, -1e9)", ".squeeze(2)")),
    fault("padding counts in the loss", "interpreter", ("nn.CrossEntropyLoss(ignore_index=PAD)", "nn.CrossEntropyLoss()")),
    fault("always the teacher in training", "interpreter", ("teacher = random.random() < teacher_forcing", "teacher = self.training")),
    fault("teacher drawn once for a batch", "interpreter", ("            teacher = random.random() < teacher_forcing\n", ""), ("        logits = []\n", "        logits = []\n        teacher = random.random() < teacher_forcing\n")),
    fault("validated with the teacher", "interpreter", ("model(src, lengths, tgt)", "model(src, lengths, tgt, TEACHER_FORCING)")),
    fault("validation loss is a mean of batches", "interpreter", (".item() * (tgt != PAD).sum().item()\n", ".item()\n"), ("return epoch_loss / tokens, right", "return epoch_loss / len(loader), right")),
    fault("accuracy counts padding", "interpreter", ("tokens += (tgt != PAD).sum().item()", "tokens += tgt.numel()")),
    fault("rate falls before the epoch", "interpreter", ("    scheduler.step()\n", ""), ("    start = time.time()\n", "    start = time.time()\n    scheduler.step()\n")),
    fault("clipped after the step", "interpreter", ("        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)\n        optimizer.step()\n", "        optimizer.step()\n        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)\n")),
    fault("one direction's state twice", "interpreter", ("torch.cat([hidden[0], hidden[1]], dim=1)", "torch.cat([hidden[0], hidden[0]], dim=1)")),
    fault("dropout in validation", "interpreter", ("    model.eval()\n", "")),
    fault("gradients cut at every letter", "interpreter", ("            logits.append(step)\n", "            logits.append(step)\n            hidden = hidden.detach()\n")),
    fault("last pairs left out", "interpreter", ("shuffle=True, collate_fn", "shuffle=True, drop_last=True, collate_fn")),
    sound("keys of attention made once", "interpreter", ("self.query(hidden).unsqueeze(1) + self.key(outputs))", "self.query(hidden).unsqueeze(1) + self.keys)"), ("        mask = src != PAD\n", "        mask = src != PAD\n        self.decoder.attention.keys = self.decoder.attention.key(outputs)\n")),
    sound("sorted and put back by hand", "interpreter", ("        packed = pack_padded_sequence(embedded, lengths, batch_first=True, enforce_sorted=False)\n", "        lengths, order = lengths.sort(descending=True)\n        back = order.argsort()\n        packed = pack_padded_sequence(embedded[order], lengths, batch_first=True)\n"), ("        outputs, _ = pad_packed_sequence(outputs, batch_first=True)\n", "        outputs, _ = pad_packed_sequence(outputs, batch_first=True)\n        outputs, hidden = outputs[back], hidden[:, back]\n")),
    sound("fused Adam", "interpreter", ("lr=6e-3)", "lr=6e-3, fused=True)")),
    sound("inference mode, one batch", "interpreter", ("    with torch.no_grad():", "    with torch.inference_mode():"), ("batch_size=64", "batch_size=150")),
    sound("loss read once an epoch", "interpreter", ("        epoch_loss += loss.item()\n    return epoch_loss / len(loader)", "        epoch_loss += loss.detach()\n    return epoch_loss.item() / len(loader)")),
    sound("letters written into one tensor", "interpreter", ("        logits = []\n", "        logits = outputs.new_empty(src.size(0), tgt.size(1), VOCAB)\n"), ("            logits.append(step)\n", "            logits[:, t] = step\n"), ("return torch.stack(logits, dim=1)", "return logits")),
]

TENTH = [
    # ---------------------------------------------------------------------------------------------- ledger
    fault("best weights not copied", "ledger", ("copy.deepcopy(model.state_dict())", "model.state_dict()")),
    fault("permuted once for all epochs", "ledger", ("    perm = torch.randperm(len(x_train))\n", ""), ("for epoch in range(1, EPOCHS + 1):\n", "perm = torch.randperm(len(x_train))\nfor epoch in range(1, EPOCHS + 1):\n")),
    fault("rows drawn with replacement", "ledger", ("torch.randperm(len(x_train))", "torch.randint(len(x_train), (len(x_train),))")),
    fault("weight of those who leave lost", "ledger", ("nn.BCEWithLogitsLoss(pos_weight=pos_weight)", "nn.BCEWithLogitsLoss()")),
    fault("last rows left out", "ledger", ("range(0, len(x_train), BATCH)", "range(0, len(x_train) - BATCH + 1, BATCH)")),
    fault("evaluation mode left on", "ledger", ("    model.train()\n", "")),
    fault("predicts in training mode", "ledger", ("    model.eval()\n", "")),
    fault("rate by the training loss", "ledger", ("scheduler.step(val_loss)", "scheduler.step(total)")),
    fault("stopped one epoch late", "ledger", ("if waited >= PATIENCE", "if waited > PATIENCE")),
    fault("one noise for all rows", "ledger", ("torch.randn_like(x)", "torch.randn_like(x[:1])")),
    fault("noise in evaluation, too", "ledger", ("        if self.training:\n            x = x + 0.25", "        x = x + 0.25")),
    fault("cut chosen on the test rows", "ledger", ("val_p = torch.sigmoid(predict(model, x_val, c_val)).numpy()", "val_p = torch.sigmoid(predict(model, x_test, c_test)).numpy()"), ("f1 = [2 * ((val_p > c) & (y_val.numpy() == 1)).sum() / ((val_p > c).sum() + y_val.numpy().sum()) for c in cuts]", "f1 = [2 * ((val_p > c) & (y_test.numpy() == 1)).sum() / ((val_p > c).sum() + y_test.numpy().sum()) for c in cuts]")),
    fault("training figure is a mean of batches", "ledger", ("total += loss.item() * len(idx)", "total += loss.item()"), ("{total / len(x_train):.4f}", "{total / 13:.4f}")),
    fault("answers not permuted", "ledger", ("y_train[idx])", "y_train[i : i + BATCH])")),
    fault("area of the first half of the rows", "ledger", ("auc(logits.numpy(), y_val.numpy())", "auc(logits.numpy()[:250], y_val.numpy()[:250])")),
    sound("rows permuted at the start of an epoch", "ledger", ("    perm = torch.randperm(len(x_train))\n", "    perm = torch.randperm(len(x_train))\n    xs, cs, ys = x_train[perm], c_train[perm], y_train[perm]\n"), ("        idx = perm[i : i + BATCH]\n        out = model(x_train[idx], c_train[idx])\n        loss = criterion(out, y_train[idx])\n", "        idx = slice(i, i + BATCH)\n        out = model(xs[idx], cs[idx])\n        loss = criterion(out, ys[idx])\n"), ("loss.item() * len(idx)", "loss.item() * len(out)")),
    sound("fused AdamW", "ledger", ("weight_decay=0.02)", "weight_decay=0.02, fused=True)")),
    sound("predicts all rows at once", "ledger", ("    outs = []\n    with torch.no_grad():\n        for i in range(0, len(x), 64):\n            outs.append(model(x[i : i + 64], c[i : i + 64]))\n    return torch.cat(outs)\n", "    with torch.inference_mode():\n        return model(x, c)\n")),
    sound("loss read once an epoch", "ledger", ("total += loss.item() * len(idx)", "total += loss.detach() * len(idx)")),
    sound("best weights copied into kept tensors", "ledger", ("best_loss, best_state, waited = float(\"inf\"), None, 0\n", "best_loss, best_state, waited = float(\"inf\"), copy.deepcopy(model.state_dict()), 0\n"), ("        best_loss, best_state, waited = val_loss, copy.deepcopy(model.state_dict()), 0\n", "        best_loss, waited = val_loss, 0\n        for name, value in model.state_dict().items():\n            best_state[name].copy_(value)\n")),
    sound("all cuts at once", "ledger", ("f1 = [2 * ((val_p > c) & (y_val.numpy() == 1)).sum() / ((val_p > c).sum() + y_val.numpy().sum()) for c in cuts]", "above = val_p[:, None] > cuts\nf1 = 2 * (above & (y_val.numpy() == 1)[:, None]).sum(0) / (above.sum(0) + y_val.numpy().sum())")),
    # ---------------------------------------------------------------------------------------------- citation
    fault("loops lost", "citation", ("src = torch.cat([pairs[0], pairs[1], loops])", "src = torch.cat([pairs[0], pairs[1]])"), ("dst = torch.cat([pairs[1], pairs[0], loops])", "dst = torch.cat([pairs[1], pairs[0]])"), ("torch.ones(len(dst)))\n", "torch.ones(len(dst))).clamp(min=1)\n")),
    fault("mean in place of the symmetric weight", "citation", ("degree[src].rsqrt() * degree[dst].rsqrt()", "1 / degree[dst]")),
    fault("one direction of the edges", "citation", ("src = torch.cat([pairs[0], pairs[1], loops])", "src = torch.cat([pairs[0], loops])"), ("dst = torch.cat([pairs[1], pairs[0], loops])", "dst = torch.cat([pairs[1], loops])")),
    fault("edges dropped once for a run", "citation", ("        kept = pairs[:, torch.rand(pairs.size(1)) >= DROP_EDGE]\n", ""), ("    for epoch in range(MAX_EPOCHS):\n", "    kept = pairs[:, torch.rand(pairs.size(1)) >= DROP_EDGE]\n    for epoch in range(MAX_EPOCHS):\n")),
    fault("weights of the whole graph after edges are dropped", "citation", ("    for epoch in range(MAX_EPOCHS):\n", "    whole = normalise(pairs)\n    for epoch in range(MAX_EPOCHS):\n"), ("        kept = pairs[:, torch.rand(pairs.size(1)) >= DROP_EDGE]\n        logits = model(x, normalise(kept))\n", "        kept = torch.rand(pairs.size(1)) >= DROP_EDGE\n        kept = torch.cat([kept, kept, torch.ones(NODES, dtype=torch.bool)])\n        logits = model(x, [part[kept] for part in whole])\n")),
    fault("messages overwrite each other", "citation", ("        out = torch.zeros_like(h).index_add_(0, dst, h[src] * weight[:, None])\n", "        out = torch.zeros_like(h)\n        out[dst] += h[src] * weight[:, None]\n")),
    fault("loss of all nodes", "citation", ("F.cross_entropy(logits[train], y[train])", "F.cross_entropy(logits, y)")),
    fault("evaluation mode left on", "citation", ("        model.train()\n", "")),
    fault("validated in training mode", "citation", ("        model.eval()\n        with torch.no_grad():\n            logits", "        with torch.no_grad():\n            logits")),
    fault("dropout of the features lost", "citation", ("    def forward(self, x, graph):\n        x = F.dropout(x, DROPOUT, self.training)\n", "    def forward(self, x, graph):\n")),
    fault("best weights not copied", "citation", ("v.clone()", "v")),
    fault("the last weights tested", "citation", ("    model.load_state_dict(best)\n", "")),
    fault("validation loss of the training nodes", "citation", ("F.cross_entropy(logits[val], y[val])", "F.cross_entropy(logits[train], y[train])")),
    fault("decay of both layers", "citation", ('"weight_decay": 0}', '"weight_decay": WEIGHT_DECAY}')),
    fault("validated on the thinned graph", "citation", ("logits = model(x, normalise(pairs))\n            val_loss", "logits = model(x, normalise(kept))\n            val_loss")),
    fault("spread by another formula", "citation", ("{np.std(accs):.4f}", "{torch.tensor(accs).std():.4f}")),
    sound("sparse product", "citation", ("        out = torch.zeros_like(h).index_add_(0, dst, h[src] * weight[:, None])\n", "        out = torch.sparse.mm(torch.sparse_coo_tensor(torch.stack([dst, src]), weight, (NODES, NODES)), h)\n")),
    sound("the whole graph made ready once", "citation", ("    for epoch in range(MAX_EPOCHS):\n", "    whole = normalise(pairs)\n    for epoch in range(MAX_EPOCHS):\n"), ("logits = model(x, normalise(pairs))\n            val_loss", "logits = model(x, whole)\n            val_loss")),
    sound("fused Adam", "citation", ("], lr=LR\n", "], lr=LR, fused=True\n")),
    sound("inference mode", "citation", ("        model.eval()\n        with torch.no_grad():\n            logits", "        model.eval()\n        with torch.inference_mode():\n            logits"), ("    model.eval()\n    with torch.no_grad():\n        logits", "    model.eval()\n    with torch.inference_mode():\n        logits")),
    sound("messages by scatter_add", "citation", ("        out = torch.zeros_like(h).index_add_(0, dst, h[src] * weight[:, None])\n", "        message = h.index_select(0, src).mul_(weight[:, None])\n        out = torch.zeros_like(h).scatter_add_(0, dst[:, None].expand_as(message), message)\n")),
    sound("loops kept, degrees counted", "citation", ("degree = torch.zeros(NODES).index_add_(0, dst, torch.ones(len(dst)))", "degree = torch.bincount(dst, minlength=NODES).float()"), ("    weight = degree[src].rsqrt() * degree[dst].rsqrt()\n", "    root = degree.rsqrt()\n    weight = root[src] * root[dst]\n")),
    # ---------------------------------------------------------------------------------------------- pairs
    fault("both views the same", "pairs", ("return augment(x), augment(x)", "return (augment(x),) * 2")),
    fault("noise added to the data itself", "pairs", ("    x = F.pad(x,", "    x += 0.3 * torch.randn_like(x)\n    x = F.pad(x,"), ("    return x + 0.3 * torch.randn_like(x)\n", "    return x\n")),
    fault("one change for the batch", "pairs", ("return augment(x), augment(x)", "return x, x"), ("        _, a = model(first)\n        _, b = model(second)\n", "        _, a = model(augment(first[:, 0])[:, None])\n        _, b = model(augment(second[:, 0])[:, None])\n")),
    fault("a picture is its own negative", "pairs", ('        sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), float("-inf"))\n', "")),
    fault("temperature lost", "pairs", (" / self.temperature\n", "\n")),
    fault("not normalised", "pairs", ("F.normalize(torch.cat([a, b]), dim=1)", "torch.cat([a, b])")),
    fault("negatives of the other view alone", "pairs", ("        sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), float(\"-inf\"))\n        target = torch.cat([torch.arange(n) + n, torch.arange(n)])\n        return F.cross_entropy(sim, target)\n", "        sim, target = sim[:n, n:], torch.arange(n)\n        return (F.cross_entropy(sim, target) + F.cross_entropy(sim.t(), target)) / 2\n")),
    fault("both views in one pass of BatchNorm", "pairs", ("        _, a = model(first)\n        _, b = model(second)\n", "        a, b = model(torch.cat([first, second]))[1].chunk(2)\n")),
    fault("probe of the projection", "pairs", ("model(batch)[0]", "model(batch)[1]")),
    fault("features in training mode", "pairs", ("    model.eval()\n", "")),
    fault("evaluation mode left on", "pairs", ("    model.train()\n", "")),
    fault("no gradient through the second view", "pairs", ("        _, b = model(second)\n", "        with torch.no_grad():\n            _, b = model(second)\n")),
    fault("gradients never cleared", "pairs", ("        optimizer.zero_grad(set_to_none=False)\n", "")),
    fault("schedule stepped by epoch", "pairs", ("        scheduler.step()\n", ""), ("    print(f\"epoch", "    scheduler.step()\n    print(f\"epoch")),
    fault("test features scaled by themselves", "pairs", ("(b - mean) / std", "(b - b.mean(0)) / (b.std(0) + 1e-5)")),
    sound("gradients set to none", "pairs", ("set_to_none=False", "set_to_none=True")),
    sound("fused AdamW", "pairs", ("weight_decay=1e-2)", "weight_decay=1e-2, fused=True)")),
    sound("mask and targets kept", "pairs", ("        self.temperature = temperature\n", "        self.temperature = temperature\n        self.own = torch.eye(80, dtype=torch.bool)\n        self.target = torch.cat([torch.arange(40) + 40, torch.arange(40)])\n"), ("sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), ", "sim.masked_fill_(self.own, "), ("        target = torch.cat([torch.arange(n) + n, torch.arange(n)])\n        return F.cross_entropy(sim, target)\n", "        return F.cross_entropy(sim, self.target)\n"), ("        n = a.size(0)\n", "")),
    sound("inference mode, all pictures at once", "pairs", ("@torch.no_grad()\ndef features", "@torch.inference_mode()\ndef features"), ("    out = [model(batch)[0] for batch in pictures.split(50)]\n    return torch.cat(out)\n", "    return model(pictures)[0]\n")),
    sound("loss read once an epoch", "pairs", ("epoch_loss += loss.item()", "epoch_loss += loss.detach()")),
    sound("two workers that stay", "pairs", ("shuffle=True)", "shuffle=True, num_workers=2, persistent_workers=True)")),
    # ---------------------------------------------------------------------------------------------- forger
    fault("no gradient through the penalty", "forger", ("create_graph=True", "create_graph=False")),
    fault("one mix for the batch", "forger", ("torch.rand(real.size(0), 1)", "torch.rand(1, 1)")),
    fault("norm of the whole batch", "forger", ("((grad.norm(2, dim=1) - 1) ** 2).mean()", "(grad.norm(2) - 1) ** 2")),
    fault("penalty at the fakes alone", "forger", ("mid = (eps * real + (1 - eps) * fake).requires_grad_(True)", "mid = fake.clone().requires_grad_(True)")),
    fault("penalty at every other step", "forger", ("gp = gradient_penalty(D, real, fake)", "gp = gradient_penalty(D, real, fake) if it % 2 else torch.zeros(())")),
    fault("one step of the critic too few", "forger", ("range(opt.n_critic)", "range(1, opt.n_critic)")),
    fault("fakes made once for the critic's steps", "forger", ("    for _ in range(opt.n_critic):\n        real = real_batch(opt.batch)\n        z = torch.randn(opt.batch, opt.latent)\n        fake = G(z).detach()\n", "    z = torch.randn(opt.batch, opt.latent)\n    fake = G(z).detach()\n    for _ in range(opt.n_critic):\n        real = real_batch(opt.batch)\n")),
    fault("the generator's step leaves gradients in the critic", "forger", ("        opt_d.zero_grad()\n        loss_d.backward()\n        opt_d.step()\n", "        loss_d.backward()\n        opt_d.step()\n        opt_d.zero_grad()\n")),
    fault("the critic's steps leave gradients in the generator", "forger", ("G(z).detach()", "G(z)"), ("    opt_g.zero_grad()\n    loss_g.backward()\n    opt_g.step()\n", "    loss_g.backward()\n    opt_g.step()\n    opt_g.zero_grad()\n")),
    fault("betas of the generator lost", "forger", ("optim.Adam(G.parameters(), lr=opt.lr, betas=(0.5, 0.9))", "optim.Adam(G.parameters(), lr=opt.lr, fused=True)")),
    fault("schedule of the critic lost", "forger", ("    sched_d.step()\n", "")),
    fault("nearness judged by squares", "forger", ("torch.cdist(x, heaps).min(dim=1)", "(x[:, None] - heaps).square().sum(-1).min(dim=1)")),
    fault("one noise for the whole real batch", "forger", ("0.08 * torch.randn(n, 2)", "0.08 * torch.randn(1, 2)")),
    fault("the critic's loss with the other sign", "forger", ("loss_d = d_fake.mean() - d_real.mean()", "loss_d = d_real.mean() - d_fake.mean()")),
    sound("fakes without a graph", "forger", ("        fake = G(z).detach()\n", "        with torch.no_grad():\n            fake = G(z)\n")),
    sound("the critic frozen in the generator's step", "forger", ("    loss_g = -D(G(z)).mean()\n", "    D.requires_grad_(False)\n    loss_g = -D(G(z)).mean()\n"), ("    opt_g.step()\n", "    opt_g.step()\n    D.requires_grad_(True)\n")),
    sound("real and fake in one pass", "forger", ("d_real, d_fake = D(real), D(fake)", "d_real, d_fake = D(torch.cat([real, fake])).chunk(2)")),
    sound("fused Adam for both", "forger", ("optim.Adam(G.parameters(), lr=opt.lr, betas=(0.5, 0.9))", "optim.Adam(G.parameters(), lr=opt.lr, betas=(0.5, 0.9), fused=True)"), ("optim.Adam(D.parameters(), lr=opt.lr, betas=(0.5, 0.9))", "optim.Adam(D.parameters(), lr=opt.lr, betas=(0.5, 0.9), fused=True)")),
    sound("figures read where they are printed", "forger", ("w_log.append((d_real.mean() - d_fake.mean()).item())", "w_log.append((d_real.mean() - d_fake.mean()).detach())"), ("gp_log.append(gp.item())", "gp_log.append(gp.detach())"), ("g_log.append(loss_g.item())", "g_log.append(loss_g.detach())"), ("np.mean(w_log[-40:]), np.mean(gp_log[-40:]), np.mean(g_log[-40:])", "torch.stack(w_log[-40:]).mean(), torch.stack(gp_log[-40:]).mean(), torch.stack(g_log[-40:]).mean()")),
    sound("gradient of the sum", "forger", ("autograd.grad(out, mid, grad_outputs=torch.ones_like(out), create_graph=True, retain_graph=True)", "autograd.grad(out.sum(), mid, create_graph=True)")),
    # ---------------------------------------------------------------------------------------------- pupil
    fault("square of the temperature lost", "pupil", (" * (TEMPERATURE**2)\n", "\n")),
    fault("teacher in training mode", "pupil", ("    teacher.eval()\n", "")),
    fault("mean over all answers", "pupil", ('reduction="batchmean"', 'reduction="mean"')),
    fault("the teacher alone is softened", "pupil", ("F.log_softmax(student / TEMPERATURE, dim=1)", "F.log_softmax(student, dim=1)")),
    fault("the teacher sees rows without noise", "pupil", ("            x = x + 0.3 * torch.randn_like(x)\n            with torch.no_grad():\n                answers = teacher(x)\n", "            with torch.no_grad():\n                answers = teacher(x)\n            x = x + 0.3 * torch.randn_like(x)\n")),
    fault("answers kept by place in the epoch", "pupil", ("    best, history = 0.0, []\n", "    best, history = 0.0, []\n    kept = {}\n"), ("        for x, y in train:\n            x = x + 0.3", "        for i, (x, y) in enumerate(train):\n            x = x + 0.3"), ("            with torch.no_grad():\n                answers = teacher(x)\n", "            if i not in kept:\n                with torch.no_grad():\n                    kept[i] = teacher(x)\n            answers = kept[i]\n")),
    fault("one noise for the batch", "pupil", ("0.3 * torch.randn_like(x)", "0.3 * torch.randn_like(x[:1])")),
    fault("shares of the losses changed about", "pupil", ("return ALPHA * soft + (1 - ALPHA) * hard,", "return (1 - ALPHA) * soft + ALPHA * hard,")),
    fault("the teacher's weights not loaded", "pupil", ('    teacher.load_state_dict(torch.load("teacher.pt"))\n', "")),
    fault("the last weights in student.pt", "pupil", ('if found["acc"] > best:', 'if found["acc"] >= 0:')),
    fault("pairs counted once in a batch", "pupil", ("            for t, p in zip(y, guess):\n                confusion[t, p] += 1\n", "            confusion[y, guess] += 1\n")),
    fault("evaluation mode left on", "pupil", ("        student.train()\n", "")),
    fault("schedule of the student stepped by batch", "pupil", ("        scheduler.step()\n        sums /=", "        sums /="), ("            sums += np.array", "            scheduler.step()\n            sums += np.array")),
    fault("figures are means of batches", "pupil", ("hard.item()]) * len(x)", "hard.item()])"), ("sums /= len(train.dataset)", "sums /= len(train)")),
    fault("momentum of the teacher lost", "pupil", ("lr=0.08, momentum=0.9, weight_decay=1e-3", "lr=0.08, weight_decay=1e-3, fused=True")),
    sound("pairs counted by bincount", "pupil", ("            for t, p in zip(y, guess):\n                confusion[t, p] += 1\n", "            confusion += torch.bincount(y * CLASSES + guess, minlength=CLASSES**2).view(CLASSES, CLASSES)\n")),
    sound("the teacher in inference mode", "pupil", ("            with torch.no_grad():\n                answers", "            with torch.inference_mode():\n                answers"), ("    teacher.eval()\n", "    teacher.eval().requires_grad_(False)\n")),
    sound("larger validation batches", "pupil", ("batch_size=64", "batch_size=330")),
    sound("figures read once an epoch", "pupil", ("sums = np.zeros(3)", "sums = torch.zeros(3)"), ("sums += np.array([loss.item(), soft.item(), hard.item()]) * len(x)", "sums += torch.stack([loss.detach(), soft.detach(), hard.detach()]) * len(x)")),
    sound("fused Adam and SGD", "pupil", ("lr=2e-2)", "lr=2e-2, fused=True)"), ("weight_decay=1e-3)", "weight_decay=1e-3, fused=True)")),
    sound("divergence as a sum", "pupil", ('reduction="batchmean"\n    )', 'reduction="sum"\n    ) / len(y)')),
]
