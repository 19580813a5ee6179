"""A sixteenth set of faults: six short scripts of kinds that no set before has, in the manner of ordinary users, written without sight of the judge.

Part a: ``picnic``: pictures with mixup in the collate function and an average of the weights; ``parrot``: a recurrent language model with truncated
backpropagation that goes back to its best; ``meadow``: a segmenter with dice loss and accumulated gradients. Part b: ``ferry``: proximal policy
steps on its own river; ``orchard``: a graph with sampled neighbours; ``lookout``: a ranker of two towers with hard negatives and two weighed tasks.
``CASES.claimed`` says of each case what its author would say it is (exact, rounding, sampling): of a sound one that is so, of a fault it is not.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Claims

CASES = Claims(Path(__file__).parent / "scripts")
fault, sound = CASES.wrong, CASES.right


# ------------------------------------------------------------------------------------ picnic
STACKED = "        x = torch.stack([s[0] for s in samples])\n"
GET = "        img = self.images[i]\n        if self.train:\n            img = self.augment(img)\n        return img, self.labels[i]\n"
PLAIN = "        return self.images[i], self.labels[i]\n"
AVERAGED = "        for e, p in zip(self.module.parameters(), model.parameters()):\n            e.mul_(self.decay).add_(p, alpha=1 - self.decay)\n        for e, b in zip(self.module.buffers(), model.buffers()):\n            e.copy_(b)\n"
LERP = "        torch._foreach_lerp_([*self.module.parameters()], [*model.parameters()], 1 - self.decay)\n"
SOFT = "            loss = -(target * F.log_softmax(logits, dim=1)).sum(1).mean()\n"
TARGET = "        target = F.one_hot(y, NUM_CLASSES).float() * (1 - SMOOTHING) + SMOOTHING / NUM_CLASSES\n"
MIXED = "        target = lam.view(-1, 1) * target + (1 - lam).view(-1, 1) * target[perm]\n        return x, target\n"
SGD = "torch.optim.SGD(param_groups(model, 0.02), lr=BASE_LR, momentum=0.9, nesterov=True)"
EACH = """        flip = torch.rand(len(x), 1, 1, 1) < 0.5
        x = torch.where(flip, x.flip(-1), x)
        shift = torch.randint(-2, 3, (2, len(x), 1))
        rows, cols = (torch.arange(SIZE) - shift) % SIZE
        x = x[torch.arange(len(x)).view(-1, 1, 1, 1), torch.arange(3).view(-1, 1, 1), rows[:, None, :, None], cols[:, None, None, :]]
        x = x * (0.7 + 0.6 * torch.rand(len(x), 3, 1, 1))
"""

PICNIC = [
    fault("sampling", "a batch augmented at once", "picnic", ("    def augment(self, img):\n", "    @staticmethod\n    def augment(img):\n"), ("(dy, dx), (1, 2))", "(dy, dx), (-2, -1))"), (GET, PLAIN), (STACKED, "        x = FruitDataset.augment(torch.stack([s[0] for s in samples]))\n")),
    fault("sampling", "one lambda for a batch", "picnic", ("self.beta.sample((len(x),))", "self.beta.sample().expand(len(x))")),
    fault("exact", "augmented pictures kept for later epochs", "picnic", ("self.images, self.labels, self.train = images, labels, train\n", "self.images, self.labels, self.train = images, labels, train\n        self.ready = {}\n"), (GET, "        if not self.train:\n            return self.images[i], self.labels[i]\n        if i not in self.ready:\n            self.ready[i] = self.augment(self.images[i])\n        return self.ready[i], self.labels[i]\n")),
    fault("exact", "average taken before the step", "picnic", ("            loss.backward()\n            optimizer.step()\n            ema.update(model)\n", "            loss.backward()\n            ema.update(model)\n            optimizer.step()\n")),
    fault("rounding", "average by lists, without the running statistics", "picnic", (AVERAGED, LERP)),
    fault("rounding", "labels mixed in the loss", "picnic", (TARGET, ""), (MIXED, "        return x, y, y[perm], lam\n"), ("for x, target in train_loader", "for x, first, second, lam in train_loader"), (SOFT, "            loss = (lam * F.cross_entropy(logits, first, label_smoothing=SMOOTHING) + (1 - lam) * F.cross_entropy(logits, second, label_smoothing=SMOOTHING)).mean()\n")),
    fault("exact", "horizon in full batches", "picnic", ("total_steps = EPOCHS * len(train_loader)", "total_steps = EPOCHS * (len(train_set) // BATCH_SIZE)")),
    fault("exact", "put in training mode once", "picnic", ("    for epoch in range(EPOCHS):\n        model.train()\n", "    model.train()\n    for epoch in range(EPOCHS):\n")),
    fault("rounding", "fused optimizer with one group", "picnic", (SGD, "torch.optim.SGD(model.parameters(), lr=BASE_LR, momentum=0.9, nesterov=True, weight_decay=0.02, fused=True)")),
    fault("exact", "mean of the batches' means", "picnic", ('F.cross_entropy(logits, y, reduction="sum").item()', "F.cross_entropy(logits, y).item()"), ("return loss_sum / seen,", "return loss_sum / len(loader),")),
    sound("sampling", "a batch augmented at once, each picture with its own draws", "picnic", (GET, PLAIN), (STACKED, STACKED + EACH)),
    sound("rounding", "loss in one call, fused optimizer", "picnic", (SOFT, "            loss = F.cross_entropy(logits, target)\n"), (SGD, SGD[:-1] + ", fused=True)")),
    sound("exact", "losses read once an epoch, judged in inference mode", "picnic", ("            running += loss.item() * len(x)\n", "            running = running + loss.detach().double() * len(x)\n"), ("    with torch.no_grad():\n        for x, y in loader:\n", "    with torch.inference_mode():\n        for x, y in loader:\n"), ('loss_sum += F.cross_entropy(logits, y, reduction="sum").item()', 'loss_sum = loss_sum + F.cross_entropy(logits, y, reduction="sum").double()'), ("correct += (logits.argmax(1) == y).sum().item()", "correct = correct + (logits.argmax(1) == y).sum()"), ("return loss_sum / seen, correct / seen", "return loss_sum.item() / seen, correct.item() / seen")),
    sound("rounding", "average by lists", "picnic", (AVERAGED, LERP + "        torch._foreach_copy_([*self.module.buffers()], [*model.buffers()])\n")),
]

# ------------------------------------------------------------------------------------ parrot
MASK = "        mask = torch.bernoulli(torch.full((1, x.size(1), x.size(2)), 1 - self.p)) / (1 - self.p)\n        return x * mask\n"
HIDDEN = "        hidden = model.init_hidden(train_data.size(1))\n"
RATE = '            optimizer.param_groups[0]["lr"] = lr * seq_len / args.bptt\n'
BEST = '            best = copy.deepcopy({"model": model.state_dict(), "optimizer": optimizer.state_dict()})\n'
ADAM = "torch.optim.Adam(model.parameters(), lr=args.lr, weight_decay=1e-5)"
STATE = "            logits, hidden, _, _ = model(data[i : i + n], hidden)\n"

PARROT = [
    fault("exact", "judged without carrying the state", "parrot", (STATE, "            logits = model(data[i : i + n], hidden)[0]\n")),
    fault("sampling", "plain dropout", "parrot", ("        if not self.training or self.p == 0:\n            return x\n" + MASK, "        return F.dropout(x, self.p, self.training)\n")),
    fault("sampling", "one mask for all streams", "parrot", ("torch.full((1, x.size(1), x.size(2)), 1 - self.p)", "torch.full((x.size(2),), 1 - self.p)")),
    fault("exact", "state made once for all epochs", "parrot", (HIDDEN, ""), ("    for epoch in range(args.epochs):\n", HIDDEN[4:] + "    for epoch in range(args.epochs):\n")),
    fault("exact", "rate of the window before", "parrot", (RATE, ""), ("            optimizer.step()\n", "            optimizer.step()\n" + RATE)),
    fault("exact", "best kept without a copy", "parrot", (BEST, '            best = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}\n')),
    fault("exact", "back to the best without the optimizer", "parrot", ('            optimizer.load_state_dict(copy.deepcopy(best["optimizer"]))\n', "")),
    fault("exact", "weights tied by their data", "parrot", ("        self.decoder.weight = self.encoder.weight\n", "        self.decoder.weight.data = self.encoder.weight.data\n")),
    fault("rounding", "activations flattened once", "parrot", ("        return self.decoder(x), new_hidden, raw, x\n", "        raw, x = raw.flatten(0, 1), x.flatten(0, 1)\n        return self.decoder(x), new_hidden, raw, x\n"), ("            ce = F.cross_entropy(logits.flatten(0, 1), y.flatten())\n", "            ce = F.cross_entropy(logits, y.flatten())\n"), ("F.cross_entropy(logits.flatten(0, 1), data", "F.cross_entropy(logits, data")),
    fault("exact", "short windows at the end left out", "parrot", ("        while i < len(train_data) - 1:\n", "        while i + args.bptt < len(train_data):\n")),
    sound("sampling", "mask by dropout of ones", "parrot", (MASK, "        return x * F.dropout(torch.ones_like(x[:1]), self.p)\n")),
    sound("rounding", "judged in one window", "parrot", ("def evaluate(model, data, window=40)", "def evaluate(model, data, window=4000)")),
    sound("exact", "losses read once an epoch, best copied once", "parrot", ("            total += ce.item() * seq_len\n", "            total = total + ce.detach().double() * seq_len\n"), (BEST, '            best = {"model": {k: v.clone() for k, v in model.state_dict().items()}, "optimizer": copy.deepcopy(optimizer.state_dict())}\n')),
    sound("rounding", "fused optimizer, tables of logits flat", "parrot", (ADAM, ADAM[:-1] + ", fused=True)"), ("        return self.decoder(x), new_hidden, raw, x\n", "        return self.decoder(x.flatten(0, 1)), new_hidden, raw, x\n"), ("            ce = F.cross_entropy(logits.flatten(0, 1), y.flatten())\n", "            ce = F.cross_entropy(logits, y.flatten())\n"), ("F.cross_entropy(logits.flatten(0, 1), data", "F.cross_entropy(logits, data")),
]

# ------------------------------------------------------------------------------------ meadow
VIEWS = "        probs = model(x).softmax(1)\n        probs = probs + model(x.flip(-1)).softmax(1).flip(-1)\n"
CROPS = """    xs, ys = [], []
    for img, lab in zip(images, labels):
        top, left = torch.randint(0, FULL - CROP + 1, (2,)).tolist()
        img, lab = img[:, top : top + CROP, left : left + CROP], lab[top : top + CROP, left : left + CROP]
        if torch.rand(1) < 0.5:
            img, lab = img.flip(-1), lab.flip(-1)
        xs.append(img)
        ys.append(lab)
    return torch.stack(xs), torch.stack(ys)
"""
BACKWARD = "                (loss * len(idx) / size).backward()\n"
GROUP = """            for idx in group:
                x, y = random_crops(train_x[idx], train_y[idx])
                loss = criterion(model(x), y)
                (loss * len(idx) / size).backward()
                epoch_loss += loss.item() * len(idx)
"""
PER_BATCH = "        now = torch.bincount(y[known] * CLASSES + pred[known], minlength=CLASSES**2).view(CLASSES, CLASSES).float()\n        inter = now.diag()\n        ious.append(inter / (now.sum(0) + now.sum(1) - inter))\n"
ADAMW = "torch.optim.AdamW(model.parameters(), lr=lr, weight_decay=0.05)"

MEADOW = [
    fault("exact", "every part of a group weighs a fourth", "meadow", (BACKWARD, "                (loss / accum).backward()\n")),
    fault("rounding", "dice of the batch", "meadow", ("    inter = (probs * truth).sum((2, 3))\n    union = probs.sum((2, 3)) + truth.sum((2, 3))\n", "    inter = (probs * truth).sum((0, 2, 3))\n    union = (probs + truth).sum((0, 2, 3))\n")),
    fault("exact", "unlabelled pixels masked in the truth only", "meadow", ("    probs = logits.softmax(1) * valid\n", "    probs = logits.softmax(1)\n")),
    fault("sampling", "one crop and flip for a batch", "meadow", (CROPS, "    top, left = torch.randint(0, FULL - CROP + 1, (2,)).tolist()\n    images, labels = images[:, :, top : top + CROP, left : left + CROP], labels[:, top : top + CROP, left : left + CROP]\n    if torch.rand(1) < 0.5:\n        images, labels = images.flip(-1), labels.flip(-1)\n    return images, labels\n")),
    fault("sampling", "crops at once, flips of whole batches", "meadow", (CROPS, "    n, span = len(images), torch.arange(CROP)\n    top, left = torch.randint(0, FULL - CROP + 1, (2, n, 1))\n    rows, cols, which = (top + span)[:, :, None], (left + span)[:, None], torch.arange(n).view(-1, 1, 1)\n    images, labels = images[which, :, rows, cols].permute(0, 3, 1, 2), labels[which, rows, cols]\n    if torch.rand(1) < 0.5:\n        images, labels = images.flip(-1), labels.flip(-1)\n    return images, labels\n")),
    fault("exact", "horizon in parts of groups", "meadow", ("    max_steps = epochs * -(-batches // accum)\n", "    max_steps = epochs * batches\n")),
    fault("exact", "overlap averaged over batches", "meadow", ("    confusion = torch.zeros(CLASSES, CLASSES)\n", "    ious = []\n"), ("        confusion += torch.bincount(y[known] * CLASSES + pred[known], minlength=CLASSES**2).view(CLASSES, CLASSES)\n", PER_BATCH), ("    inter = confusion.diag()\n    iou = inter / (confusion.sum(0) + confusion.sum(1) - inter)\n", "    iou = torch.stack(ious).mean(0)\n")),
    fault("exact", "first stage computed again in the backward pass", "meadow", ("import torch.nn.functional as F\n", "import torch.nn.functional as F\nfrom torch.utils.checkpoint import checkpoint\n"), ("        a = self.down1(x)\n", "        a = checkpoint(self.down1, x, use_reentrant=False) if self.training else self.down1(x)\n")),
    fault("rounding", "a group in one call", "meadow", (GROUP, "            made = [random_crops(train_x[idx], train_y[idx]) for idx in group]\n            logits = model(torch.cat([x for x, _ in made])).split([len(idx) for idx in group])\n            losses = [criterion(out, y) * len(idx) for out, (_, y), idx in zip(logits, made, group)]\n            (sum(losses) / size).backward()\n            epoch_loss += sum(losses).item()\n")),
    fault("rounding", "views in one call, none turned back", "meadow", (VIEWS, "        probs = model(torch.cat([x, x.flip(-1)])).softmax(1).unflatten(0, (2, -1)).sum(0)\n")),
    sound("rounding", "views in one call", "meadow", (VIEWS, "        probs, turned = model(torch.cat([x, x.flip(-1)])).softmax(1).chunk(2)\n        probs = probs + turned.flip(-1)\n")),
    sound("sampling", "crops at once, each with its own draws", "meadow", (CROPS, "    n, span = len(images), torch.arange(CROP)\n    top, left = torch.randint(0, FULL - CROP + 1, (2, n, 1))\n    cols = torch.where(torch.rand(n, 1) < 0.5, left + span.flip(0), left + span)\n    rows, cols, which = (top + span)[:, :, None], cols[:, None], torch.arange(n).view(-1, 1, 1)\n    return images[which, :, rows, cols].permute(0, 3, 1, 2).contiguous(), labels[which, rows, cols]\n")),
    sound("exact", "losses read once an epoch", "meadow", ("                epoch_loss += loss.item() * len(idx)\n", "                epoch_loss = epoch_loss + loss.detach().double() * len(idx)\n"), ("@torch.no_grad()\ndef evaluate", "@torch.inference_mode()\ndef evaluate")),
    sound("rounding", "fused optimizer, overlaps by einsum", "meadow", (ADAMW, ADAMW[:-1] + ", fused=True)"), ("    inter = (probs * truth).sum((2, 3))\n    union = probs.sum((2, 3)) + truth.sum((2, 3))\n", '    inter = torch.einsum("nchw,nchw->nc", probs, truth.to(probs.dtype))\n    union = (probs + truth).sum((2, 3))\n')),
]

PART_A = PICNIC + PARROT + MEADOW

del PICNIC, PARROT, MEADOW  # a set's lists are its parts

# ------------------------------------------------------------------------------------ ferry
ADVANTAGES = "                adv = advantages[idx]\n                adv = (adv - adv.mean()) / (adv.std() + 1e-8)\n"
LOSSES = "        losses = []\n"
MINI = "            for idx in torch.randperm(len(xs)).chunk(MINIBATCHES):\n"
ROWS = "                rows.append((x, action, dist.log_prob(action), agent.value(x), reward, next_value, done.float(), (done | truncated).float()))\n            xs, actions, old_logp, old_values, rewards"
LEAN = "                rows.append((x, action, reward, next_value, done.float(), (done | truncated).float()))\n            xs, actions, rewards"
NORMED = "            norm.update(torch.cat(seen))\n"
FROM_GAE = "            advantages = gae(rewards, old_values, next_values, dones, ends)\n"
AGAIN = "            old_logp, old_values = Categorical(logits=agent.actor(xs)).log_prob(actions), agent.value(xs)\n"
ANNEALED = '        for group in optimizer.param_groups:\n            group["lr"] = LR * (1 - update / UPDATES)\n'
KLS = "            kls = []\n"
SCORED = "        if (update + 1) % 3 == 0:\n"
CAT = "        return torch.cat([self.pos, self.vel, 10 * self.wind[:, None] + 50, self.t[:, None].float()], 1)\n"
NEXT = "                next_value = agent.value(norm(final))\n"

FERRY = [
    fault("rounding", "advantages normalised once an update", "ferry", (ADVANTAGES, "                adv = advantages[idx]\n"), (LOSSES, "        advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)\n" + LOSSES)),
    fault("sampling", "one order of the rows for all passes", "ferry", (LOSSES, LOSSES + "        parts = torch.randperm(len(xs)).chunk(MINIBATCHES)\n"), (MINI, "            for idx in parts:\n")),
    fault("rounding", "rollout judged in one call, after the norm has moved", "ferry", (ROWS, LEAN), (FROM_GAE, "            norm.update(torch.cat(seen))\n            xs = norm(torch.stack(seen))\n" + AGAIN + FROM_GAE), ("            returns = advantages + old_values\n" + NORMED, "            returns = advantages + old_values\n")),
    fault("exact", "trips cut off lead on into the next", "ferry", ("(1 - ends[t])", "(1 - dones[t])")),
    fault("rounding", "values of the next step by shifting", "ferry", (NEXT, "                next_value = reward\n"), (FROM_GAE, "            next_values = torch.cat([old_values[1:], agent.value(norm(obs))[None]])\n" + FROM_GAE)),
    fault("exact", "rate set after the update", "ferry", (ANNEALED, ""), (SCORED, ANNEALED + SCORED)),
    fault("exact", "distances gathered over all passes", "ferry", (KLS, ""), (LOSSES, LOSSES + KLS[4:])),
    fault("sampling", "one gust for all boats", "ferry", ("0.1 * torch.randn(self.n, 2, generator=self.g)", "0.1 * torch.randn(2, generator=self.g)")),
    fault("exact", "norm follows every step", "ferry", ("                seen.append(obs)\n", "                norm.update(obs)\n"), (NORMED, "")),
    fault("exact", "observations written into one buffer", "ferry", ("self.n, self.g = n, torch.Generator().manual_seed(seed)\n", "self.n, self.g, self.buffer = n, torch.Generator().manual_seed(seed), torch.empty(n, 6)\n"), (CAT, CAT.replace("], 1)", "], 1, out=self.buffer)"))),
    sound("rounding", "rollout judged in one call", "ferry", (ROWS, LEAN), (FROM_GAE, AGAIN + FROM_GAE)),
    sound("rounding", "log-probabilities by hand, fused optimizer", "ferry", ("                dist, value = Categorical(logits=agent.actor(xs[idx])), agent.value(xs[idx])\n", "                logp, value = agent.actor(xs[idx]).log_softmax(-1), agent.value(xs[idx])\n"), ("dist.log_prob(actions[idx]) - old", "logp.gather(1, actions[idx, None]).squeeze(1) - old"), ("dist.entropy().mean()", "-(logp.exp() * logp).sum(1).mean()"), ("lr=LR, eps=1e-5)", "lr=LR, eps=1e-5, fused=True)")),
    sound("exact", "losses read once an update", "ferry", ("losses.append((pg_loss.item(), v_loss.item(), entropy.item()))", "losses.append(torch.stack([pg_loss, v_loss, entropy]).detach())"), ("(ratio.detach() - 1 - logratio.detach()).mean().item()", "(ratio.detach() - 1 - logratio.detach()).mean()"), ("if sum(kls) / len(kls) > TARGET_KL", "if sum(torch.stack(kls).tolist()) / len(kls) > TARGET_KL"), ("zip(*losses))", "zip(*torch.stack(losses).tolist()))")),
    sound("sampling", "orders drawn by summed chances", "ferry", ("action = dist.sample()\n", "action = (dist.probs.cumsum(-1) < torch.rand(NUM_ENVS, 1)).sum(-1).clamp(max=4)\n")),
]

# ------------------------------------------------------------------------------------ orchard
PICK = "        pick = (torch.rand(len(nodes), fanout) * degree[:, None]).long()\n"
TOTAL = "        total = torch.zeros(NODES, h.size(1)).index_add_(0, src, h[self.dst])\n        return torch.where(self.degree[:, None] > 0, total / self.degree.clamp(min=1)[:, None], h)\n"
FIRST = "        h = self.layer1(x[nodes], x[far].mean(2))\n        return self.layer2(h[:, 0], h[:, 1:].mean(1))\n"
WEIGHED = "            loss = F.cross_entropy(logits, y[seeds], weight=class_weight)\n"
SCALED = "    x = (x - x[train_idx].mean(0)) / x[train_idx].std(0)\n"
LOADER = "    loader = DataLoader(train_idx, batch_size=64, shuffle=True)\n"
SAMPLE = "    def sample(self, nodes, fanout):\n"
DRAWN = '        """Draws with replacement; a node without neighbours is its own."""\n'

ORCHARD = [
    fault("sampling", "neighbours of every node drawn once", "orchard", ("        self.dst = dst[order]\n", "        self.dst, self.drawn = dst[order], {}\n"), (SAMPLE, "    def sample(self, nodes, fanout):\n        if fanout not in self.drawn:\n            self.drawn[fanout] = self.draw(torch.arange(NODES), fanout)\n        return self.drawn[fanout][nodes]\n\n    def draw(self, nodes, fanout):\n")),
    fault("sampling", "the same places in all lists", "orchard", ("torch.rand(len(nodes), fanout) * degree", "torch.rand(fanout) * degree")),
    fault("exact", "batches made once", "orchard", (LOADER, LOADER.replace("= DataLoader", "= list(DataLoader").replace("True)", "True))"))),
    fault("exact", "training links told by one end", "orchard", ("    inside = is_train[src] & is_train[dst]\n", "    inside = is_train[src]\n")),
    fault("rounding", "divided before the sum, by the other end", "orchard", (TOTAL, "        h_scaled = h / self.degree.clamp(min=1)[:, None]\n        total = torch.zeros(NODES, h.size(1)).index_add_(0, src, h_scaled[self.dst])\n        return torch.where(self.degree[:, None] > 0, total, h)\n")),
    fault("exact", "scaled by all nodes", "orchard", (SCALED, "    x = (x - x.mean(0)) / x.std(0)\n")),
    fault("rounding", "weighed loss by the mean of the rows", "orchard", (WEIGHED, '            loss = (F.cross_entropy(logits, y[seeds], reduction="none") * class_weight[y[seeds]]).mean()\n')),
    fault("exact", "nodes dropped out at evaluation too", "orchard", ("F.dropout(F.normalize(h, dim=-1), self.dropout, self.training)", "F.dropout(F.normalize(h, dim=-1), self.dropout)")),
    fault("rounding", "features kept in half before they are scaled", "orchard", ("    x = torch.cat([x[:, :-2], year[:, None], 700 + 30 * x[:, -1:]], 1)\n", "    x = torch.cat([x[:, :-2], year[:, None], 700 + 30 * x[:, -1:]], 1).half()\n"), (SCALED, "    x = x.to(torch.get_default_dtype())\n" + SCALED)),
    fault("exact", "first layer of the neighbours without a gradient", "orchard", (FIRST, "        h = self.layer1(x[nodes], x[far].mean(2))\n        return self.layer2(h[:, 0], h[:, 1:].detach().mean(1))\n")),
    sound("sampling", "seeds and places drawn as whole numbers", "orchard", (PICK, "        pick = torch.randint(2**40, (len(nodes), fanout)) % degree.clamp(min=1)[:, None]\n"), (LOADER, ""), ("        for seeds in loader:\n", "        for seeds in train_idx[torch.randperm(len(train_idx))].split(64):\n")),
    sound("rounding", "mean by a sparse product", "orchard", (TOTAL, "        share = (1 / self.degree.to(h.dtype))[src]\n        table = torch.sparse_coo_tensor(torch.stack([src, self.dst]), share, (NODES, NODES))\n        return torch.where(self.degree[:, None] > 0, torch.sparse.mm(table, h), h)\n")),
    sound("exact", "losses read once an epoch", "orchard", ("            w = class_weight[y[seeds]].sum().item()\n            loss_sum += loss.item() * w\n            weight_sum += w\n", "            w = class_weight[y[seeds]].sum().double()\n            loss_sum = loss_sum + loss.detach().double() * w\n            weight_sum = weight_sum + w\n"), ("    @torch.no_grad()\n    def full", "    @torch.inference_mode()\n    def full")),
    sound("rounding", "all nodes projected before they are gathered, fused optimizer", "orchard", ("self.self1(x) + self.neigh1(around))", "self.self1(x) + around)"), ("self.layer1(x[nodes], x[far].mean(2))", "self.layer1(x[nodes], self.neigh1(x)[far].mean(2))"), ("self.layer1(x, graph.mean(x))", "self.layer1(x, graph.mean(self.neigh1(x)))"), ("weight_decay=5e-4)", "weight_decay=5e-4, fused=True)")),
]

# ------------------------------------------------------------------------------------ lookout
POOLED = "        there = (history != PAD).unsqueeze(-1)\n        pooled = (self.seen(history) * there).sum(1) / there.sum(1)\n"
MINE = "        pool = mine(model, history, known)\n"
TOWERS = '    optimizer = torch.optim.AdamW([\n        {"params": model.parameters(), "weight_decay": 0.01},\n        {"params": weigh.parameters(), "weight_decay": 0.0, "lr": 0.02},\n    ], lr=8e-3)  # fmt: skip\n'
DWELL = "            dwell_loss = F.smooth_l1_loss(guess[told], spent[told])\n"
MINED = "    model.eval()\n    scores = model.users(history) @"
BACK_ON = "    model.train()\n    return scores.topk"
HARDS = "            hard = pool[u].gather(1, torch.randint(POOL, (len(u), HARD)))\n"
BOTH = "            hu, vi = model.users(history[u]), model.items(pos)\n" + HARDS

LOOKOUT = [
    fault("exact", "hard ones mined once", "lookout", (MINE, ""), ("    for epoch in range(EPOCHS):\n", MINE[4:] + "    for epoch in range(EPOCHS):\n")),
    fault("exact", "mined with dropout on", "lookout", (MINED, MINED[17:]), (BACK_ON, "    return scores.topk")),
    fault("exact", "mined among the places to learn", "lookout", (MINE, "        pool = mine(model, history, history)\n")),
    fault("rounding", "histories by the mean of their columns", "lookout", (POOLED, "        pooled = self.seen(history).mean(1)\n")),
    fault("exact", "hard ones without the correction", "lookout", (" / temp - log_q[hard]\n", " / temp\n")),
    fault("exact", "other places of the same user count as misses", "lookout", ("(pos[:, None] == pos[None]) | (u[:, None] == u[None])", "pos[:, None] == pos[None]")),
    fault("rounding", "fused optimizer over the model's parameters", "lookout", (TOWERS, "    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, weight_decay=0.01, fused=True)\n")),
    fault("rounding", "unknown times as noughts", "lookout", (DWELL, "            dwell_loss = F.smooth_l1_loss(guess * told, spent.nan_to_num(0.0))\n")),
    fault("exact", "temperature read as a number", "lookout", ("temp = model.log_temp.exp().clamp(min=0.02)", "temp = max(model.log_temp.exp().item(), 0.02)")),
    fault("sampling", "one draw of hard columns for a batch", "lookout", (HARDS, "            hard = pool[u][:, torch.randint(POOL, (HARD,))]\n")),
    sound("sampling", "places of a batch in one call", "lookout", (BOTH, HARDS + "            hu = model.users(history[u])\n            vi, against = model.items(torch.cat([pos[:, None], hard], 1)).split([1, HARD], 1)\n            vi = vi.squeeze(1)\n"), ("(hu[:, None] * model.items(hard)).sum(-1)", "(hu[:, None] * against).sum(-1)")),
    sound("rounding", "unknown times as noughts, divided by the known", "lookout", (DWELL, '            dwell_loss = F.smooth_l1_loss(guess * told, spent.nan_to_num(0.0), reduction="sum") / told.sum()\n'), (TOWERS, TOWERS.replace("lr=8e-3)", "lr=8e-3, fused=True)"))),
    sound("rounding", "histories by bags", "lookout", (POOLED, '        pooled = F.embedding_bag(history, self.seen.weight, mode="mean", padding_idx=PAD)\n')),
    sound("rounding", "judged in one piece, scores of hard ones by a product", "lookout", ("torch.arange(USERS).split(150)", "torch.arange(USERS).split(USERS)"), ("(hu[:, None] * model.items(hard)).sum(-1)", "torch.bmm(model.items(hard), hu[:, :, None]).squeeze(-1)")),
]

PART_B = FERRY + ORCHARD + LOOKOUT

del FERRY, ORCHARD, LOOKOUT
