"""A tenth set of faults, written blind: eight scripts of kinds that no set before has, in ways of writing of their own, in two halves.

Half A (``--set 10a``), by which the judge may be mended: ``flow``, a normalising flow; ``folds``, cross-validation; ``tasks``, three tasks
weighed by learned variances; ``finetune``, a net that is pretrained, frozen and thawed in part.

Half B (``--set 10b``), run once at the end: ``pseudo``, labels that a net gives itself; ``speech``, a loss over alignments; ``codes``, a
codebook and a prior over its codes; ``physics``, an equation as the loss, with LBFGS.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

HERE = Path(__file__).parent / "scripts"

# From one draw more on, all draws are others: nothing repeats bit for bit, and seeds have to tell.
OTHERWISE = {
    "flow": ("    best = math.inf\n", "    best = math.inf\n    torch.rand(1)\n"),
    "folds": ("    place = stratified(y, FOLDS)\n", "    place = stratified(y, FOLDS)\n    torch.rand(1)\n"),
    "tasks": ("    for epoch in range(1,", "    torch.rand(1)\n    for epoch in range(1,"),
    "finetune": ("    thawed = 0\n", "    thawed = 0\n    torch.rand(1)\n"),
    "pseudo": ("best = 0.0\nsums", "torch.rand(1)\nbest = 0.0\nsums"),
    "speech": ("        self.criterion =", "        torch.rand(1)\n        self.criterion ="),
    "codes": ("    step = 0\n", "    step = 0\n    torch.rand(1)\n"),
    "physics": ("history = []\n", "history = []\ntorch.rand(1)\nnp.random.rand(1)\n"),
}

CASES = Cases(HERE, OTHERWISE)
fault, sound, hidden, others = CASES.fault, CASES.sound, CASES.hidden, CASES.others


# To mend with.
TWELFTH = [
    # ---------------------------------------------------------------------------------------------- a flow
    fault("determinant of the first layers lost", "flow", ("self.log_scale.sum().expand(len(x))", "torch.zeros(len(x))")),
    fault("one noise for the batch", "flow", ("torch.rand(cells.shape)", "torch.rand(1, DIMS)")),
    fault("noise drawn once, before the loop", "flow", ("TensorDataset(measurements(1500, 1))", "TensorDataset(measurements(1500, 1) + torch.rand(1500, DIMS))"), ("torch.rand(cells.shape)", "0.0")),
    fault("the middle of the cell in place of noise", "flow", ("torch.rand(cells.shape)", "0.5")),
    fault("orders not in the checkpoint", "flow", ("torch.randperm(DIMS))", "torch.randperm(DIMS), persistent=False)")),
    fault("layers set by every batch", "flow", ("                self.ready.fill_(True)\n", "")),
    fault("clipped after the step", "flow", ("            clip_grad_norm_(flow.parameters(), 1.0)\n            optimizer.step()\n", "            optimizer.step()\n            clip_grad_norm_(flow.parameters(), 1.0)\n")),
    fault("schedule by epoch", "flow", ("            scheduler.step()\n            running += loss.item()\n", "            running += loss.item()\n        scheduler.step()\n")),
    fault("judged with noise", "flow", ("bits(flow, cells, 0.5)", "bits(flow, cells, torch.rand(cells.shape))")),
    fault("held-out figure is a mean of batches", "flow", ("bits(flow, cells, 0.5).sum().item()\n        count += len(cells)", "bits(flow, cells, 0.5).mean().item()\n        count += 1")),
    sound("fused Adam", "flow", ("betas=(0.9, 0.99))", "betas=(0.9, 0.99), fused=True)")),
    sound("noise filled in place", "flow", ("torch.rand(cells.shape)", "torch.empty(cells.shape).uniform_()")),
    sound("losses read once an epoch", "flow", ("running = 0.0", "running = torch.zeros(())"), ("running += loss.item()", "running += loss.detach()")),
    sound("density by torch.distributions", "flow", ("-0.5 * (z**2).sum(1) - 0.5 * DIMS * math.log(2 * math.pi)", "torch.distributions.Normal(0.0, 1.0).log_prob(z).sum(1)")),
    # ---------------------------------------------------------------------------------------------- folds
    fault("scaled by all rows", "folds", ("x[tr].mean(0), x[tr].std(0)", "x.mean(0), x.std(0)")),
    fault("one net for all folds", "folds", ("    net = Net()\n", "    net = NET\n"), ("    seed_all(11)\n", "    global NET\n    seed_all(11)\n    NET = Net()\n")),
    fault("folds not stratified", "folds", ("place = stratified(y, FOLDS)", "place = np.random.permutation(len(y)) % FOLDS")),
    fault("judged by the last epoch's weights", "folds", ("    net.load_state_dict(state)\n", "")),
    fault("best weights by reference", "folds", ("{k: v.clone() for k, v in net.state_dict().items()}", "net.state_dict()")),
    fault("later of two equal epochs kept", "folds", ("if hits > best", "if hits >= best")),
    fault("seeds set anew for each fold", "folds", ("    net = Net()\n", "    seed_all(11)\n    net = Net()\n")),
    fault("predicts in training mode", "folds", ("    net.eval()\n", "")),
    fault("momentum no longer cycled", "folds", ("total_steps=EPOCHS * len(loader))", "total_steps=EPOCHS * len(loader), cycle_momentum=False)")),
    fault("last partial batch dropped", "folds", ("shuffle=True)", "shuffle=True, drop_last=True)")),
    fault("answers averaged before the softmax", "folds", ("predict(net, torch.from_numpy((x_test - mean) / std)).softmax(1) / FOLDS", "predict(net, torch.from_numpy((x_test - mean) / std)) / FOLDS"), ("    loss = -np.log", "    together = together.softmax(1)\n    loss = -np.log")),
    fault("label smoothing lost", "folds", (", label_smoothing=0.05)", ")")),
    sound("fused SGD", "folds", ("weight_decay=1e-3)", "weight_decay=1e-3, fused=True)")),
    sound("predicts in one piece, in inference mode", "folds", ("    with torch.no_grad():\n        return torch.cat([net(part) for part in x.split(100)])", "    with torch.inference_mode():\n        return net(x)")),
    sound("scaled as tensors", "folds", ("torch.from_numpy((x - mean) / std)\n", "torch.from_numpy(x).sub(torch.from_numpy(mean)).mul_(1 / torch.from_numpy(std))\n")),
    sound("weights kept by deepcopy", "folds", ("import random\n", "import copy\nimport random\n"), ("{k: v.clone() for k, v in net.state_dict().items()}", "copy.deepcopy(net.state_dict())")),
    # ---------------------------------------------------------------------------------------------- tasks
    fault("variances do not learn", "tasks", ('        {"params": criterion.parameters(), "weight_decay": 0.0, "lr": settings.lr * 5},\n', "")),
    fault("variances have no price", "tasks", (" + 0.5 * self.log_var).sum()", ").sum()")),
    fault("missing headings count as zero", "tasks", ("F.mse_loss(heading[known], target[1][known])", "F.mse_loss(heading * known, target[1].nan_to_num())")),
    fault("heading does not train the trunk", "tasks", ("self.heading(h)", "self.heading(h.detach())")),
    fault("heading not turned with the picture", "tasks", ("picture.flip(0), -heading", "picture.flip(0), heading")),
    fault("one flip for the batch", "tasks", ("    def __getitem__(self, i):\n", "    def __getitems__(self, indices):\n        self.coin = torch.rand(()) if self.train else 1.0\n        return [self[i] for i in indices]\n\n    def __getitem__(self, i):\n"), ("if torch.rand(()) < 0.5:", "if self.coin < 0.5:")),
    fault("gradients cleared at every batch", "tasks", ("                optimizer.zero_grad()\n                scheduler.step()\n", "                scheduler.step()\n"), ("            loss, parts = criterion", "            optimizer.zero_grad()\n            loss, parts = criterion")),
    fault("variances decay", "tasks", ('"weight_decay": 0.0, "lr"', '"weight_decay": settings.decay, "lr"')),
    fault("variances at the net's rate", "tasks", (', "lr": settings.lr * 5}', "}")),
    fault("norms and biases decay", "tasks", ('{"params": vectors, "weight_decay": 0.0}', '{"params": vectors, "weight_decay": settings.decay}')),
    fault("dropout of the kind lost", "tasks", ("self.kind(self.drop(h))", "self.kind(h)")),
    fault("variances clipped with the net", "tasks", ("nn.utils.clip_grad_norm_(model.parameters(), 2.0)", "nn.utils.clip_grad_norm_([*model.parameters(), *criterion.parameters()], 2.0)")),
    sound("fused AdamW", "tasks", ("], lr=settings.lr)", "], lr=settings.lr, fused=True)")),
    sound("mean of known headings by a mask", "tasks", ("F.mse_loss(heading[known], target[1][known])", "((heading - target[1].nan_to_num()).square() * known).sum() / known.sum()")),
    sound("judged in larger batches", "tasks", ("Shapes(130, 2, False), 50)", "Shapes(130, 2, False), 130)")),
    sound("gradients cleared before the window", "tasks", ("                optimizer.zero_grad()\n                scheduler.step()\n", "                scheduler.step()\n"), ("            loss, parts = criterion", "            if i % settings.windows == 0:\n                optimizer.zero_grad()\n            loss, parts = criterion")),
    # ---------------------------------------------------------------------------------------------- frozen and thawed
    fault("pretrained body not loaded", "finetune", ('    model.load_state_dict({k: v for k, v in weights.items() if k.startswith("body.")}, strict=False)\n', "")),
    fault("frozen norms in training mode", "finetune", ("model.body[: 3 - thawed]", "model.body[:0]")),
    fault("thawed block not given to the optimizer", "finetune", ('            opt.add_param_group({"params": model.body[2].parameters(), "lr": 1e-3})\n', "")),
    fault("all of the body thawed", "finetune", ("for p in model.body[2].parameters()", "for p in model.body.parameters()"), ('{"params": model.body[2].parameters(), "lr"', '{"params": model.body.parameters(), "lr"')),
    fault("thawed at the head's rate", "finetune", (', "lr": 1e-3})', "})")),
    fault("the norm of the thawed block stays as it is", "finetune", ("model.body[: 3 - thawed]", "model.body")),
    fault("moments lost at the thaw", "finetune", ('            opt.add_param_group({"params": model.body[2].parameters(), "lr": 1e-3})\n', '            opt = torch.optim.AdamW([{"params": model.head.parameters()}, {"params": model.body[2].parameters(), "lr": 1e-3}], lr=1e-2, weight_decay=0.01)\n')),
    fault("drawn without replacement", "finetune", ("(1 / per_class)[y], len(y))", "(1 / per_class)[y], len(y), replacement=False)")),
    fault("shuffled in place of balanced", "finetune", ("sampler=sampler", "shuffle=True")),
    fault("one roll for the batch", "finetune", ("torch.randint(0, 64, (len(x), 1, 1))", "torch.randint(0, 64, (1, 1, 1)).expand(len(x), 1, 1)")),
    fault("rate of pretraining falls by batch", "finetune", ("            sum_ += loss.item()\n        decay.step()\n", "            sum_ += loss.item()\n            decay.step()\n")),
    fault("smoothing lost", "finetune", ("nn.CrossEntropyLoss(label_smoothing=0.1)", "nn.CrossEntropyLoss()")),
    sound("frozen blocks without a graph", "finetune", ("        return self.head(self.body(x).mean(2))", "        for block in self.body:\n            with torch.set_grad_enabled(torch.is_grad_enabled() and next(block.parameters()).requires_grad):\n                x = block(x)\n        return self.head(x.mean(2))")),
    sound("fused AdamW and SGD", "finetune", ("lr=1e-2, weight_decay=0.01)", "lr=1e-2, weight_decay=0.01, fused=True)"), ("weight_decay=5e-4)", "weight_decay=5e-4, fused=True)")),
    sound("judged in one batch, in inference mode", "finetune", ("    with torch.no_grad():", "    with torch.inference_mode():"), ("waves(240, 4, 4)), batch_size=80)", "waves(240, 4, 4)), batch_size=240)")),
    sound("sums read once an epoch", "finetune", ("            loss = criterion(model(shifted(x)), y)\n            opt.zero_grad()\n            loss.backward()\n            opt.step()\n            sum_ += loss.item()", "            loss = criterion(model(shifted(x)), y)\n            opt.zero_grad(set_to_none=True)\n            loss.backward()\n            opt.step()\n            sum_ += loss.detach()")),
    # ---------------------------------------------------------------------------------------------- behind other draws
    others("flow"),
    hidden("noise of half the width", "flow", ("torch.rand(cells.shape)", "0.25 + 0.5 * torch.rand(cells.shape)")),
    hidden("scales bounded to 1", "flow", ("scale = 1.5 * torch.tanh(scale / 1.5)\n        return torch.cat([kept, moved * scale", "scale = torch.tanh(scale)\n        return torch.cat([kept, moved * scale")),
    hidden("clipped at 2", "flow", ("flow.parameters(), 1.0", "flow.parameters(), 2.0")),
    others("folds"),
    hidden("smoothing lost", "folds", (", label_smoothing=0.05)", ")")),
    hidden("scaled by all rows", "folds", ("x[tr].mean(0), x[tr].std(0)", "x.mean(0), x.std(0)")),
    hidden("less dropout", "folds", ("0.15, self", "0.1, self")),
    others("tasks"),
    hidden("heading not turned with the picture", "tasks", ("picture.flip(0), -heading", "picture.flip(0), heading")),
    hidden("missing headings count as zero", "tasks", ("F.mse_loss(heading[known], target[1][known])", "F.mse_loss(heading * known, target[1].nan_to_num())")),
    hidden("heading does not train the trunk", "tasks", ("self.heading(h)", "self.heading(h.detach())")),
    others("finetune"),
    hidden("moments lost at the thaw", "finetune", ('            opt.add_param_group({"params": model.body[2].parameters(), "lr": 1e-3})\n', '            opt = torch.optim.AdamW([{"params": model.head.parameters()}, {"params": model.body[2].parameters(), "lr": 1e-3}], lr=1e-2, weight_decay=0.01)\n')),
    hidden("half the smoothing", "finetune", ("nn.CrossEntropyLoss(label_smoothing=0.1)", "nn.CrossEntropyLoss(label_smoothing=0.05)")),
    hidden("one loudness for the batch", "finetune", ("torch.randn(len(x), 1, 1))", "torch.randn(1, 1, 1))")),
]

# Run once.
THIRTEENTH = [
    # ---------------------------------------------------------------------------------------------- labels of its own
    fault("every answer counts", "pseudo", ("(belief.max(1).values >= SURE).float()", "torch.ones(len(belief))")),
    fault("mean over the sure ones", "pseudo", ("* mask).mean()", "* mask).sum() / mask.sum().clamp(min=1)")),
    fault("labels from the harsh picture", "pseudo", ("F.softmax(out_soft / HEAT", "F.softmax(out_hard / HEAT")),
    fault("beliefs not sharpened", "pseudo", ("out_soft / HEAT", "out_soft")),
    fault("a gradient through the beliefs", "pseudo", ("    with torch.no_grad():\n        belief = F.softmax(out_soft / HEAT, dim=1)\n        mask =", "    belief = F.softmax(out_soft / HEAT, dim=1)\n    with torch.no_grad():\n        mask =")),
    fault("the average before the step", "pseudo", ("    optimizer.step()\n    scheduler.step()\n    follow(shadow, model)\n", "    follow(shadow, model)\n    optimizer.step()\n    scheduler.step()\n")),
    fault("buffers do not follow", "pseudo", ("    for s, b in zip(shadow.buffers(), model.buffers()):\n        s.copy_(b)\n", "")),
    fault("judged without the average", "pseudo", ("test(shadow, held)", "test(model, held)")),
    fault("labelled and plain pictures apart", "pseudo", ("    out = model(torch.cat([gently(x), soft, hard]))\n    out_x = out[: len(x)]\n    out_soft, out_hard = out[len(x) :].chunk(2)\n", "    out_x = model(gently(x))\n    out_soft, out_hard = model(torch.cat([soft, hard])).chunk(2)\n")),
    fault("one hole for the batch", "pseudo", ("top = torch.randint(0, 8, (len(x), 1, 1, 1))\n    left = torch.randint(0, 8, (len(x), 1, 1, 1))", "top = torch.randint(0, 8, (1, 1, 1, 1))\n    left = torch.randint(0, 8, (1, 1, 1, 1))")),
    fault("labelled pictures in one order", "pseudo", ("batch_size=BATCH, shuffle=True, drop_last=True", "batch_size=BATCH, drop_last=True")),
    sound("beliefs detached by hand", "pseudo", ("    with torch.no_grad():\n        belief = F.softmax(out_soft / HEAT, dim=1)", "    with torch.no_grad():\n        belief = F.softmax(out_soft.detach() / HEAT, dim=1)")),
    sound("average with foreach", "pseudo", ("    for s, p in zip(shadow.parameters(), model.parameters()):\n        s.mul_(KEEP).add_(p, alpha=1 - KEEP)\n", "    mine, theirs = list(shadow.parameters()), list(model.parameters())\n    torch._foreach_mul_(mine, KEEP)\n    torch._foreach_add_(mine, theirs, alpha=1 - KEEP)\n")),
    sound("fused SGD", "pseudo", ("nesterov=True)", "nesterov=True, fused=True)")),
    sound("rolled by gathering", "pseudo", ("    out = torch.empty_like(x)\n    for i, picture in enumerate(x):\n        dx, dy = torch.randint(-1, 2, (2,)).tolist()\n        out[i] = picture.roll((dx, dy), (1, 2))\n    return out\n", "    by = torch.stack([torch.randint(-1, 2, (2,)) for _ in x])\n    row = (torch.arange(12) - by[:, :1]) % 12\n    col = (torch.arange(12) - by[:, 1:]) % 12\n    return x[torch.arange(len(x))[:, None, None], 0, row[:, :, None], col[:, None, :]][:, None]\n")),
    # ---------------------------------------------------------------------------------------------- speech
    fault("padding counts as sound", "speech", ("loss = self.criterion(out.transpose(0, 1), texts, lengths, sizes)", "loss = self.criterion(out.transpose(0, 1), texts, torch.full_like(lengths, out.shape[1]), sizes)")),
    fault("batches in the same order in every epoch", "speech", ("        self.buckets.set_epoch(number)\n", "")),
    fault("lengths always together", "speech", ("self.lengths[i] + jitter[i]", "self.lengths[i]")),
    fault("one hidden band for the batch", "speech", ("    def __getitem__(self, index):\n", "    def __getitems__(self, indices):\n        self.at = int(torch.randint(0, BANDS - 2, (1,))) if self.training else 0\n        return [self[index] for index in indices]\n\n    def __getitem__(self, index):\n"), ("            at = int(torch.randint(0, BANDS - 2, (1,)))\n", "            at = self.at\n")),
    fault("hidden frames pile up in the data", "speech", ("            frames = frames.clone()\n", "")),
    fault("rate of errors is a mean of utterances", "speech", ("                    wrong += edits(spell(path[:length]), text[:size])\n                    letters += size\n", "                    wrong += edits(spell(path[:length]), text[:size]) / size\n                    letters += 1\n")),
    fault("repeated letters not joined", "speech", ("if c != before and c != BLANK", "if c != BLANK")),
    fault("loss by utterance, not by letter", "speech", ("zero_infinity=True)", 'zero_infinity=True, reduction="none")'), ("texts, lengths, sizes)\n            self.optimizer", "texts, lengths, sizes).mean()\n            self.optimizer")),
    fault("state of the schedule not saved", "speech", ('                "scheduler": self.scheduler.state_dict(),\n', "")),
    fault("plateau of the loss", "speech", ("self.scheduler.step(rate)", "self.scheduler.step(loss)")),
    fault("dropout between the layers lost", "speech", (", dropout=0.15)", ")")),
    fault("the net hears the padding", "speech", ("        packed = pack_padded_sequence(self.front(frames), lengths, batch_first=True, enforce_sorted=False)\n        hidden, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)\n", "        hidden, _ = self.rnn(self.front(frames))\n")),
    sound("texts joined end to end", "speech", ("texts, lengths, sizes)\n            self.optimizer", "torch.cat([text[:size] for text, size in zip(texts, sizes)]), lengths, sizes)\n            self.optimizer")),
    sound("fused AdamW", "speech", ("weight_decay=1e-2)", "weight_decay=1e-2, fused=True)")),
    sound("letters joined by torch", "speech", ("    letters, before = [], BLANK\n    for c in path:\n        if c != before and c != BLANK:\n            letters.append(c)\n        before = c\n    return letters\n", "    return [c for c in torch.unique_consecutive(torch.tensor(path)).tolist() if c != BLANK]\n")),
    sound("losses read once an epoch", "speech", ("total, count = 0.0, 0", "total, count = torch.zeros(()), 0"), ("total += loss.item() * len(sizes)", "total += loss.detach() * len(sizes)"), ("return total / count", "return (total / count).item()")),
    # ---------------------------------------------------------------------------------------------- codes
    fault("straight through lost", "codes", ("return z + (picked - z).detach()", "return picked")),
    fault("commitment lost", "codes", ("(error + beta * commitment).backward()", "error.backward()")),
    fault("averages not smoothed", "codes", ("        smooth = (self.uses + self.eps) / (total + self.count * self.eps) * total\n", "        smooth = self.uses + 1.0\n")),
    fault("the book follows in evaluation, too", "codes", ("        if self.training:\n            self.follow(flat.detach(), index)\n", "        self.follow(flat.detach(), index)\n")),
    fault("dead rows stay dead", "codes", ("if step % 10 == 0 and step < 60", "if step % 10 == 0 and step < 0")),
    fault("all dead rows born alike", "codes", ("flat[torch.randperm(len(flat))[: int(dead.sum())]]", "flat[torch.randperm(len(flat))[:1]].expand(int(dead.sum()), -1)")),
    fault("sums of dead rows not set", "codes", ("        self.sums[dead] = born\n", "")),
    fault("the table not shared", "codes", ("        self.out.weight = self.table.weight\n", "")),
    fault("prior of a book that moves", "codes", ("    coder.eval()\n    prior = Prior", "    prior = Prior"), ("    train_prior(coder, loader)", "    coder.train()\n    train_prior(coder, loader)")),
    fault("each code predicts itself", "codes", ("codes[:, :-1]], 1)", "codes[:, 1:]], 1)")),
    fault("noise lost, flips kept", "codes", ("            image = image + 0.05 * torch.randn(image.shape)\n", "")),
    fault("last batch counts in full", "codes", ("total += loss.item() * len(x)", "total += loss.item() * 32")),
    sound("sums by index_add", "codes", ("        hot = F.one_hot(index, self.count).float()\n        self.uses.mul_(self.decay).add_(hot.sum(0), alpha=1 - self.decay)\n        self.sums.mul_(self.decay).add_(hot.t() @ flat, alpha=1 - self.decay)\n", "        self.uses.mul_(self.decay).add_(torch.bincount(index, minlength=self.count), alpha=1 - self.decay)\n        self.sums.mul_(self.decay).add_(torch.zeros_like(self.sums).index_add_(0, index, flat), alpha=1 - self.decay)\n")),
    sound("fused Adam, prior with foreach", "codes", ("lr=5e-3)", "lr=5e-3, fused=True)"), ("weight_decay=0.01)", "weight_decay=0.01, foreach=True)")),
    sound("judged in one batch", "codes", ("jitter=False), batch_size=60)", "jitter=False), batch_size=150)")),
    sound("codes without the decoder", "codes", ("codes = coder(x)[1]", "codes = coder.book(coder.down(x))[1]")),
    # ---------------------------------------------------------------------------------------------- an equation
    fault("points drawn once", "physics", ("    if step % 20 == 0:\n        x, t", "    if step == 0:\n        x, t")),
    fault("points drawn at every step", "physics", ("    if step % 20 == 0:\n        x, t", "    if step % 1 == 0:\n        x, t")),
    fault("places without strata", "physics", ("x = (torch.arange(n) + torch.rand(n)) / n", "x = torch.rand(n)")),
    fault("times in the order of the places", "physics", ("t = torch.rand(n)\n", "t = torch.rand(n).sort().values\n")),
    fault("weight of the start lost", "physics", ("    loss = inner + W_START * start + w_edge * edge\n    adam", "    loss = inner + start + w_edge * edge\n    adam")),
    fault("weight of the edges not kept up", "physics", ("w_edge = 0.5 * w_edge + 0.5 * min", "_ = 0.5 * w_edge + 0.5 * min")),
    fault("gradients not cleared in the closure", "physics", ("        lbfgs.zero_grad()\n", "")),
    fault("closure without the weight of the edges", "physics", ("        loss = inner + W_START * start + w_edge * edge\n        loss.backward()", "        loss = inner + W_START * start + edge\n        loss.backward()")),
    fault("no search along the line", "physics", (', line_search_fn="strong_wolfe"', "")),
    fault("rate of the slopes lost", "physics", (', "lr": 2e-2}', "}")),
    fault("in single precision", "physics", ("torch.set_default_dtype(torch.float64)\n", ""), ("(60, 1)))", "(60, 1))).float()"), ("(40, 1)))", "(40, 1))).float()")),
    fault("both ends as one mean", "physics", ("edge = net(torch.zeros_like(te), te).pow(2).mean() + net(torch.ones_like(te), te).pow(2).mean()", "edge = torch.cat([net(torch.zeros_like(te), te), net(torch.ones_like(te), te)]).pow(2).mean()")),
    fault("rate falls only at the end", "physics", ("    decay.step()\n    history", "    history"), ("lbfgs = torch", "decay.step()\nlbfgs = torch")),
    sound("fused Adam", "physics", ("], lr=8e-3)", "], lr=8e-3, fused=True)")),
    sound("both ends in one call", "physics", ("edge = net(torch.zeros_like(te), te).pow(2).mean() + net(torch.ones_like(te), te).pow(2).mean()", "edge = 2 * net(torch.cat([zero_t := torch.zeros_like(te), zero_t + 1]), torch.cat([te, te])).pow(2).mean()")),
    sound("gradients by torch.autograd with ones", "physics", ("torch.autograd.grad(u_x.sum(), x, create_graph=True)", "torch.autograd.grad(u_x, x, torch.ones_like(u_x), create_graph=True)")),
    sound("losses kept as tensors", "physics", ("    history.append(loss.item())\n", "    history.append(loss.detach())\n"), ("np.mean(history[-20:])", "torch.stack(history[-20:]).mean()"), ('"history": history}', '"history": [h.item() for h in history]}')),
    # ---------------------------------------------------------------------------------------------- behind other draws
    others("pseudo"),
    hidden("mean over the sure ones", "pseudo", ("* mask).mean()", "* mask).sum() / mask.sum().clamp(min=1)")),
    hidden("the average before the step", "pseudo", ("    optimizer.step()\n    scheduler.step()\n    follow(shadow, model)\n", "    follow(shadow, model)\n    optimizer.step()\n    scheduler.step()\n")),
    hidden("labels from the harsh picture", "pseudo", ("F.softmax(out_soft / HEAT", "F.softmax(out_hard / HEAT")),
    others("speech"),
    hidden("padding counts as sound", "speech", ("loss = self.criterion(out.transpose(0, 1), texts, lengths, sizes)", "loss = self.criterion(out.transpose(0, 1), texts, torch.full_like(lengths, out.shape[1]), sizes)")),
    hidden("one hidden band for the batch", "speech", ("    def __getitem__(self, index):\n", "    def __getitems__(self, indices):\n        self.at = int(torch.randint(0, BANDS - 2, (1,))) if self.training else 0\n        return [self[index] for index in indices]\n\n    def __getitem__(self, index):\n"), ("            at = int(torch.randint(0, BANDS - 2, (1,)))\n", "            at = self.at\n")),
    hidden("clipped to the value", "speech", ("nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)", "nn.utils.clip_grad_value_(self.model.parameters(), 1.0)")),
    others("codes"),
    hidden("half the commitment", "codes", ("beta=0.25", "beta=0.125")),
    hidden("all dead rows born alike", "codes", ("flat[torch.randperm(len(flat))[: int(dead.sum())]]", "flat[torch.randperm(len(flat))[:1]].expand(int(dead.sum()), -1)")),
    hidden("the book follows in evaluation, too", "codes", ("        if self.training:\n            self.follow(flat.detach(), index)\n", "        self.follow(flat.detach(), index)\n")),
    others("physics"),
    hidden("places without strata", "physics", ("x = (torch.arange(n) + torch.rand(n)) / n", "x = torch.rand(n)")),
    hidden("weight of the edges not kept up", "physics", ("w_edge = 0.5 * w_edge + 0.5 * min", "_ = 0.5 * w_edge + 0.5 * min")),
    hidden("times in the order of the places", "physics", ("t = torch.rand(n)\n", "t = torch.rand(n).sort().values\n")),
]
