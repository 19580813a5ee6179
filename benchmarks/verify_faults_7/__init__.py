"""A seventh set of faults, written blind: eight scripts in ways of writing of their own.

A trainer with callbacks, segmentation in bfloat16, truncated backpropagation with gathered gradients, two nets against each other, contrastive
learning with a queue, an average with early stopping, a policy, and a package that cleans pictures of noise. ``python -m benchmarks.verify_faults --set 7``.
"""

from __future__ import annotations

from pathlib import Path

from tests.faults import Case

HERE = Path(__file__).parent / "scripts"


def fault(name: str, base: str, *edits: tuple[str, str], file: str = "") -> Case:
    return Case(name, base, "unknown", edits, folder=HERE, file=file)


def sound(name: str, base: str, *edits: tuple[str, str], file: str = "") -> Case:
    return Case(name, base, "unknown", edits, sound=True, folder=HERE, file=file)


GROW, LEAVES, CLEANER = "garden/grow.py", "garden/leaves.py", "garden/cleaner.py"

EIGHTH = [
    # ---------------------------------------------------------------------------------------------- callbacks
    fault("label smoothing lost", "callbacks", ('nn.CrossEntropyLoss(label_smoothing=CONFIG["smoothing"])', "nn.CrossEntropyLoss()")),
    fault("evaluation mode left on", "callbacks", ("        model.train()\n", "")),
    fault("validated in training mode", "callbacks", ("        model.eval()\n", "")),
    fault("warm-up by epoch", "callbacks", ("def on_step(self, trainer):\n        self.scheduler.step()", "def on_epoch(self, trainer):\n        self.scheduler.step()")),
    fault("the drop of the rate by step", "callbacks", ("def on_epoch(self, trainer):\n        self.scheduler.step()", "def on_step(self, trainer):\n        self.scheduler.step()")),
    fault("the last weights in best.pt", "callbacks", ('if trainer.figures["accuracy"] > self.best:', 'if trainer.figures["accuracy"] >= 0:')),
    fault("the training figure is a mean of batches", "callbacks", ("total += loss.item() * x.size(0)", "total += loss.item()"), ("seen += x.size(0)", "seen += 1")),
    fault("nesterov lost", "callbacks", ("momentum=0.9, nesterov=True", "momentum=0.9, fused=True")),
    fault("decay of biases and norms, too", "callbacks", ('[{"params": decay, "weight_decay": 1e-2}, {"params": rest, "weight_decay": 0.0}]', "model.parameters(), weight_decay=1e-2")),
    fault("gradients cleared once an epoch", "callbacks", ("        self.optimizer.zero_grad()\n", ""), ("            total, seen = 0.0, 0\n", "            total, seen = 0.0, 0\n            self.optimizer.zero_grad()\n")),
    fault("the last batch dropped", "callbacks", ("shuffle=True)", "shuffle=True, drop_last=True)")),
    fault("the loss of the step before is counted", "callbacks", ("            for x, y in loader:\n                loss = self.step(x, y)\n", "            last = torch.zeros(())\n            for x, y in loader:\n                loss, last = last, self.step(x, y).detach()\n")),
    sound("fused SGD", "callbacks", ("nesterov=True", "nesterov=True, fused=True")),
    sound("the loss read once an epoch", "callbacks", ("total += loss.item() * x.size(0)", "total += loss.detach().double() * x.size(0)"), ('self.figures["train"] = total / seen', 'self.figures["train"] = (total / seen).item()')),
    sound("inference mode", "callbacks", ("with torch.no_grad():", "with torch.inference_mode():")),
    sound("larger validation batches", "callbacks", ("batch_size=25)", "batch_size=110)")),
    sound("two workers", "callbacks", ("shuffle=True)", "shuffle=True, num_workers=2, persistent_workers=True)")),
    # ---------------------------------------------------------------------------------------------- masks
    fault("clipped before unscaling", "masks", ("        scaler.unscale_(optimizer)\n        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n", "        norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n        scaler.unscale_(optimizer)\n")),
    fault("weights and AdamW's state in bfloat16", "masks", ("model = Cutter()\n", "model = Cutter().bfloat16()\n"), ("guess = model(image)", "guess = model(image.bfloat16())"), ("out, side = model(image)", "out, side = model(image.bfloat16())")),
    fault("the border counts in dice", "masks", ("keep = (mask != IGNORE).float()", "keep = torch.ones_like(mask).float()")),
    fault("dice over the batch", "masks", ("return 1 - ((2 * (p * t).sum((1, 2)) + 1) / (p.sum((1, 2)) + t.sum((1, 2)) + 1)).mean()", "return 1 - (2 * (p * t).sum() + 1) / (p.sum() + t.sum() + 1)")),
    fault("no gradient from the side head", "masks", ("self.side(b))", "self.side(b.detach()))")),
    fault("one flip for the batch", "masks", ("Blobs(150, 4, True)", "Blobs(150, 4, False)"), ("        coarse = mask", "        if torch.rand(()) < 0.5:\n            image, mask = image.flip(-1), mask.flip(-1)\n        coarse = mask"), ('        with torch.autocast("cpu", dtype=torch.bfloat16):\n            out, side = model(image)\n', ""), ("        loss = F.cross", '        with torch.autocast("cpu", dtype=torch.bfloat16):\n            out, side = model(image)\n        loss = F.cross')),
    fault("the picture alone is flipped", "masks", ("image, mask = image.flip(-1), mask.flip(-1)", "image = image.flip(-1)")),
    fault("overlap is a mean of batches", "masks", ("inter = inter + ((guess == 1) & (mask == 1) & keep).sum()", "found = ((guess == 1) & (mask == 1) & keep).sum()"), ("union = union + (((guess == 1) | (mask == 1)) & keep).sum()", "inter, union = inter + found / (((guess == 1) | (mask == 1)) & keep).sum(), union + 1")),
    fault("the schedule stepped before the optimizer", "masks", ("        scaler.step(optimizer)\n        scaler.update()\n        schedule.step()\n", "        schedule.step()\n        scaler.step(optimizer)\n        scaler.update()\n")),
    fault("statistics of BatchNorm frozen after the first evaluation", "masks", ("    model.train()\n", "    model.train()\n    for part in model.modules():\n        if isinstance(part, nn.BatchNorm2d):\n            part.eval()\n")),
    fault("the last batch kept", "masks", (", drop_last=True", "")),
    sound("fused AdamW", "masks", ("weight_decay=0.02)", "weight_decay=0.02, fused=True)")),
    sound("inference mode and a larger validation batch", "masks", ("with torch.no_grad():", "with torch.inference_mode():"), ("Blobs(54, 5, False), batch_size=12", "Blobs(54, 5, False), batch_size=54")),
    sound("two workers that stay", "masks", ("drop_last=True)", "drop_last=True, num_workers=2, persistent_workers=True)")),
    sound("no scaler for bfloat16", "masks", ("scaler.scale(loss).backward()", "loss.backward()"), ("        scaler.unscale_(optimizer)\n", ""), ("scaler.step(optimizer)", "optimizer.step()"), ("        scaler.update()\n", "")),
    sound("channels_last", "masks", ("model = Cutter()\n", "model = Cutter().to(memory_format=torch.channels_last)\n")),
    # ---------------------------------------------------------------------------------------------- story
    fault("gathered losses not divided", "story", ("(loss / self.plan.gather).backward()", "loss.backward()")),
    fault("the state is not carried", "story", ("state = tuple(s.detach() for s in state)", "state = None")),
    fault("the state is not carried in the evaluation", "story", ('reduction="sum").item()\n', 'reduction="sum").item()\n            state = None\n')),
    fault("backpropagated over three windows", "story", ("            state = tuple(s.detach() for s in state)\n", ""), ("(loss / self.plan.gather).backward()", "gathered = gathered + loss / self.plan.gather"), ("        state, total, letters = None, 0.0, 0\n        for number", "        state, total, letters, gathered = None, 0.0, 0, 0.0\n        for number"), ("                self.update()\n", "                gathered.backward()\n                state, gathered = tuple(s.detach() for s in state), 0.0\n                self.update()\n")),
    fault("updated one window early", "story", ("if number % self.plan.gather == 0", "if (number + 1) % self.plan.gather == 0")),
    fault("gradients left over go into the next epoch", "story", ("        self.optimizer.zero_grad()\n        return", "        return")),
    fault("the rate set after the step", "story", ('        for group in self.optimizer.param_groups:\n            group["lr"] = self.rate()\n        self.optimizer.step()\n', '        self.optimizer.step()\n        for group in self.optimizer.param_groups:\n            group["lr"] = self.rate()\n')),
    fault("clipped at each window", "story", ("        norm = nn.utils.clip_grad_norm_(self.model.parameters(), self.plan.clip)\n", ""), ("        return norm\n", ""), ("(loss / self.plan.gather).backward()\n", "(loss / self.plan.gather).backward()\n            nn.utils.clip_grad_norm_(self.model.parameters(), self.plan.clip)\n")),
    fault("dropout between the layers lost", "story", (", dropout=0.15)", ")")),
    fault("the divided loss is logged", "story", ("total += loss.item() * y.numel()", "total += (loss / self.plan.gather).item() * y.numel()")),
    fault("perplexity of the windows' mean", "story", ('y.flatten(), reduction="sum").item()\n            letters += y.numel()', "y.flatten()).item()\n            letters += 1")),
    sound("fused Adam", "story", ("betas=(0.9, 0.98))", "betas=(0.9, 0.98), fused=True)")),
    sound("inference mode", "story", ("@torch.no_grad()", "@torch.inference_mode()")),
    sound("the loss read once an epoch", "story", ("total += loss.item() * y.numel()", "total = total + loss.detach().double() * y.numel()"), ("        return total / letters\n", "        return total.item() / letters\n")),
    sound("clipped with foreach, gradients cleared to None", "story", ("self.plan.clip)", "self.plan.clip, foreach=True)"), ("        self.optimizer.zero_grad()\n        self.steps", "        self.optimizer.zero_grad(set_to_none=True)\n        self.steps")),
    # ---------------------------------------------------------------------------------------------- duel
    fault("fakes for the judge made in evaluation mode", "duel", ("            fake = maker(torch.randn(len(real), Z))\n", "            maker.eval()\n            fake = maker(torch.randn(len(real), Z))\n            maker.train()\n")),
    fault("the same noise for every judgement", "duel", ("fake = maker(torch.randn(len(real), Z))", "fake = maker(fixed[: len(real)])")),
    fault("the wrong optimizer is cleared", "duel", ("        opt_maker.zero_grad()\n", "        opt_judge.zero_grad()\n")),
    fault("buffers of the average not copied", "duel", ("            for a, b in zip(slow.buffers(), maker.buffers()):\n                a.copy_(b)\n", "")),
    fault("the average follows before the step", "duel", ("        train_maker(32)\n        follow(0.9)\n", "        follow(0.9)\n        train_maker(32)\n")),
    fault("gradients kept for the penalty", "duel", ("        opt_judge.zero_grad()\n        penalty", "        penalty")),
    fault("the judge's rate does not fall", "duel", ("for o in (opt_maker, opt_judge)]", "for o in (opt_maker,)]")),
    fault("figures never set back", "duel", ("            sums.update(judge=0.0, maker=0.0)\n", "")),
    fault("no dropout in the judge", "duel", ("    slow = copy", "    judge.eval()\n    slow = copy")),
    fault("the average left in training mode", "duel", ("            slow.eval()\n", "")),
    sound("fused Adam", "duel", ("lr=2e-3, betas=(0.5, 0.99))", "lr=2e-3, betas=(0.5, 0.99), fused=True)"), ("lr=4e-3, betas=(0.5, 0.99))", "lr=4e-3, betas=(0.5, 0.99), fused=True)")),
    sound("the average with foreach", "duel", ("            for a, b in zip(slow.parameters(), maker.parameters()):\n                a.mul_(keep).add_(b, alpha=1 - keep)\n", "            mine = list(slow.parameters())\n            torch._foreach_mul_(mine, keep)\n            torch._foreach_add_(mine, list(maker.parameters()), alpha=1 - keep)\n")),
    sound("real and fake judged at once", "duel", ("loss = (1 - judge(real)).relu().mean() + (1 + judge(fake)).relu().mean()", "good, bad = judge(torch.cat([real, fake])).split(len(real))\n        loss = (1 - good).relu().mean() + (1 + bad).relu().mean()")),
    sound("figures summed as tensors", "duel", ('sums["judge"] += loss.item()', 'sums["judge"] += loss.detach()'), ('sums["maker"] += loss.item()', 'sums["maker"] += loss.detach()')),
    # ---------------------------------------------------------------------------------------------- twins
    fault("the key encoder follows after the keys", "twins", ("            self.follow()\n            order", "            order"), ("[order.argsort()]\n", "[order.argsort()]\n            self.follow()\n")),
    fault("the queue shared with the graph", "twins", ("self.queue.clone().detach().T", "self.queue.T")),
    fault("keys pushed before they are compared", "twins", ("        self.push(k)\n", ""), ("        same = ", "        self.push(k)\n        same = ")),
    fault("one view for both", "twins", ("logits, target = model(view(batch), view(batch))", "both = view(batch)\n            logits, target = model(both, both)")),
    fault("one mask for the batch", "twins", ("torch.rand(x.shape) < 0.15", "torch.rand(x.shape[1]) < 0.15")),
    fault("one brightness for the batch", "twins", ("0.4 * torch.rand(len(x), 1)", "0.4 * torch.rand(1, 1)")),
    fault("evaluation mode left on", "twins", ("    model.train()\n", "")),
    fault("the queue's place stands still", "twins", ("        self.at.fill_((at + len(keys)) % len(self.queue))\n", "")),
    fault("keys in the wrong order", "twins", ("[order.argsort()]", "[order]")),
    fault("the cosine stepped at each batch", "twins", ("        scheduler.step()\n", ""), ("            optimizer.step()\n            loss_meter", "            optimizer.step()\n            scheduler.step()\n            loss_meter")),
    fault("one order for all rounds", "twins", ('    for round_ in range(settings["rounds"]):\n', '    order = torch.randperm(len(x))\n    for round_ in range(settings["rounds"]):\n'), ("torch.randperm(len(x)).split", "order.split")),
    fault("the probe learns on tensors of inference mode", "twins", ("    with torch.no_grad():\n        features", "    with torch.inference_mode():\n        features")),
    sound("keys not shuffled", "twins", ("            order = torch.randperm(len(b))\n            k = F.normalize(self.key(b[order]), dim=1)[order.argsort()]\n", "            k = F.normalize(self.key(b), dim=1)\n")),
    sound("the key encoder with foreach", "twins", ("        for k, q in zip(self.key.parameters(), self.query.parameters()):\n            k.data = k.data * self.keep + q.data * (1 - self.keep)\n", "        keys = list(self.key.parameters())\n        torch._foreach_mul_(keys, self.keep)\n        torch._foreach_add_(keys, list(self.query.parameters()), alpha=1 - self.keep)\n")),
    sound("fused SGD", "twins", ("weight_decay=5e-4)", "weight_decay=5e-4, fused=True)")),
    sound("meters of tensors", "twins", ("loss_meter.add(loss.item(), len(batch))", "loss_meter.add(loss.detach(), len(batch))"), ("top.add((logits.argmax(1) == 0).float().mean().item(), len(batch))", "top.add((logits.argmax(1) == 0).float().mean(), len(batch))")),
    # ---------------------------------------------------------------------------------------------- keeper
    fault("the best weights kept by reference", "keeper", ("kept = copy.deepcopy(slow.module.state_dict())", "kept = slow.module.state_dict()")),
    fault("the model in place of its average is kept", "keeper", ("kept = copy.deepcopy(slow.module.state_dict())", "kept = copy.deepcopy(model.state_dict())")),
    fault("buffers not averaged", "keeper", ("zip(self.module.state_dict().items(), model.state_dict().values())", "zip(self.module.named_parameters(), model.parameters())")),
    fault("the average's warm-up lost", "keeper", ("keep = min(self.keep, (1 + self.updates) / (10 + self.updates))", "keep = self.keep")),
    fault("the plateau of the training loss", "keeper", ("plateau.step(rmse)", "plateau.step(total / len(x))")),
    fault("the model in place of its average is validated", "keeper", ('errors(slow.module, "valid", goal)', 'errors(model, "valid", goal)')),
    fault("rmse of the batches' mean", "keeper", ("squares += miss.pow(2).sum().item()", "squares += miss.pow(2).mean().item()"), ("absolute += miss.abs().sum().item()", "absolute += miss.abs().mean().item()"), ("count += len(y)", "count += 1")),
    fault("scaled with all rows", "keeper", ('Scale(X[cut["train"]])', "Scale(X)")),
    fault("order lost", "keeper", ("torch.randperm(len(x))", "torch.arange(len(x))")),
    fault("drawn with replacement", "keeper", ("torch.randperm(len(x))", "torch.randint(0, len(x), (len(x),))")),
    fault("clipped before the gradients are there", "keeper", ("            loss.backward()\n            nn.utils.clip_grad_value_(model.parameters(), 0.05)\n", "            nn.utils.clip_grad_value_(model.parameters(), 0.05)\n            loss.backward()\n")),
    fault("the last rows dropped", "keeper", ("in order.split(32)", "in order[: len(order) // 32 * 32].split(32)")),
    fault("the average updated before the step", "keeper", ("            optimizer.step()\n            slow.update(model)\n", "            slow.update(model)\n            optimizer.step()\n")),
    fault("patience one longer", "keeper", ("waited == 3", "waited > 3")),
    sound("larger batches in the evaluation", "keeper", ("size=50", "size=150")),
    sound("inference mode, sums as tensors", "keeper", ("    with torch.no_grad():\n        for x, group, y", "    with torch.inference_mode():\n        for x, group, y"), ("squares += miss.pow(2).sum().item()", "squares += miss.pow(2).sum().double()"), ("absolute += miss.abs().sum().item()", "absolute += miss.abs().sum().double()"), ("return (squares / count) ** 0.5, absolute / count", "return (squares.item() / count) ** 0.5, absolute.item() / count")),
    sound("the goal scaled once", "keeper", ('x, group, y = X[cut["train"]], GROUP[cut["train"]], Y[cut["train"]]', 'x, group, y = X[cut["train"]], GROUP[cut["train"]], goal(Y[cut["train"]])'), ("goal(y[rows])", "y[rows]")),
    sound("the average with foreach", "keeper", ("            for (name, a), b in zip(self.module.state_dict().items(), model.state_dict().values()):\n                if a.dtype.is_floating_point:\n                    a.mul_(keep).add_(b, alpha=1 - keep)\n                else:\n                    a.copy_(b)\n", "            pairs = list(zip(self.module.state_dict().values(), model.state_dict().values()))\n            torch._foreach_lerp_([a for a, b in pairs if a.is_floating_point()], [b for a, b in pairs if a.is_floating_point()], 1 - keep)\n            for a, b in pairs:\n                if not a.is_floating_point():\n                    a.copy_(b)\n")),
    sound("rows by index_select, RMSprop with foreach", "keeper", ("model(x[rows], group[rows])", "model(x.index_select(0, rows), group.index_select(0, rows))"), ("lr=4e-3, weight_decay=1e-4)", "lr=4e-3, weight_decay=1e-4, foreach=True)")),
    # ---------------------------------------------------------------------------------------------- agent
    fault("the gain is not detached", "agent", ("gain = (returns - values).detach()", "gain = returns - values")),
    fault("the baseline does not learn", "agent", ("((values - returns).pow(2)", "((values.detach() - returns).pow(2)")),
    fault("the mask lost in the policy's loss", "agent", ("(torch.stack(logs) * gain * alive).sum() / alive.sum()", "(torch.stack(logs) * gain).mean()")),
    fault("the mask lost in the entropy", "agent", ("(torch.stack(entropies) * alive).sum() / alive.sum()", "torch.stack(entropies).mean()")),
    fault("rewards not discounted", "agent", ("total = reward + gamma * total", "total = reward + total")),
    fault("the entropy bonus lost", "agent", (" - self.bonus * entropy\n", "\n")),
    fault("the gain normalised with what is masked", "agent", ("(gain - gain[alive > 0].mean()) / (gain[alive > 0].std() + 1e-6)", "(gain - gain.mean()) / (gain.std() + 1e-6)")),
    fault("one wind for all walkers", "agent", ("(torch.rand(self.many) < 0.1).float()", "(torch.rand(1) < 0.1).float()")),
    fault("clipped after the step", "agent", ("        nn.utils.clip_grad_norm_(self.walker.parameters(), 0.7)\n        self.optimizer.step()\n", "        self.optimizer.step()\n        nn.utils.clip_grad_norm_(self.walker.parameters(), 0.7)\n")),
    fault("the rate falls one update early", "agent", ("    loss, entropy, score = learner.learn()\n", ""), ("(1 - update / 75)\n", "(1 - update / 75)\n    loss, entropy, score = learner.learn()\n")),
    sound("fused Adam", "agent", ("eps=1e-5)", "eps=1e-5, fused=True)")),
    sound("inference mode", "agent", ("@torch.no_grad()", "@torch.inference_mode()")),
    sound("returns written into one tensor", "agent", ("    total, out = torch.zeros_like(rewards[0]), []\n    for reward in reversed(rewards):\n        total = reward + gamma * total\n        out.insert(0, total)\n    return torch.stack(out)\n", "    out = torch.stack(rewards)\n    for at in range(len(out) - 2, -1, -1):\n        out[at] += gamma * out[at + 1]\n    return out\n")),
    sound("entropy read where it is printed", "agent", ("return loss.item(), entropy.item(), score", "return loss.detach(), entropy.detach(), score")),
    # ---------------------------------------------------------------------------------------------- greenhouse
    fault("workers draw the same", "greenhouse", ("seed = torch.initial_seed() % 2**32", "seed = 0"), file=LEAVES),
    fault("each picture changed once for all epochs", "greenhouse", ("    def __getitem__", "    @functools.cache\n    def __getitem__"), ("import random\n", "import functools\nimport random\n"), ("num_workers=2,", "num_workers=2, persistent_workers=True,"), file=LEAVES),
    fault("order lost", "greenhouse", (" shuffle=True,", ""), file=LEAVES),
    fault("the kind hidden for whole batches", "greenhouse", ("torch.rand(len(kind)) <", "torch.rand(1) <"), file=GROW),
    fault("one level for the batch", "greenhouse", ("level = torch.randint(0, self.levels, (len(clean),))", "level = torch.randint(0, self.levels, (1,)).expand(len(clean))"), file=CLEANER),
    fault("the generator's state not set back", "greenhouse", ("    torch.set_rng_state(state)\n", ""), file=GROW),
    fault("the average stays in the model", "greenhouse", ("        average.swap(model)\n        print", "        print"), file=GROW),
    fault("saved after the weights are swapped back", "greenhouse", ('        if found < best:\n            best = found\n            torch.save(model.state_dict(), "leaves_best.pt")\n        average.swap(model)\n', '        average.swap(model)\n        if found < best:\n            best = found\n            torch.save(model.state_dict(), "leaves_best.pt")\n'), file=GROW),
    fault("the schedule stepped by epoch", "greenhouse", ("            scheduler.step()\n", ""), ("        average.swap(model)\n        found", "        scheduler.step()\n        average.swap(model)\n        found"), file=GROW),
    fault("evaluation mode left on", "greenhouse", ("    model.train()\n", ""), file=GROW),
    fault("the average shares the weights", "greenhouse", ("p.detach().clone()", "p.detach()"), file=CLEANER),
    fault("loss of the levels not weighted", "greenhouse", ("return each * noise.weight(level)", "return each"), file=GROW),
    sound("persistent workers", "greenhouse", ("num_workers=2,", "num_workers=2, persistent_workers=True,"), file=LEAVES),
    sound("fused AdamW", "greenhouse", ("weight_decay=0.01)", "weight_decay=0.01, fused=True)"), file=GROW),
    sound("the average with foreach", "greenhouse", ("        for name, p in model.named_parameters():\n            self.shadow[name].lerp_(p, 1 - settings.keep)\n", "        torch._foreach_lerp_(list(self.shadow.values()), list(model.parameters()), 1 - settings.keep)\n"), file=CLEANER),
    sound("inference mode, the loss read once an epoch", "greenhouse", ("with torch.no_grad():", "with torch.inference_mode():"), ("running += loss.item() * len(clean)", "running += loss.detach() * len(clean)"), file=GROW),
    sound("workers seeded by the loader alone", "greenhouse", (" worker_init_fn=seed_worker,", ""), file=LEAVES),
]
