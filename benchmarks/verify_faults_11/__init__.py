"""An eleventh set of faults, written blind: eight scripts of kinds that the tenth does not have, in two halves, alternating by name.

Half A (``FOURTEENTH``): ``clinics``, federated averaging; ``memory``, contrast against a queue; ``scan``, a radiance field; ``swing``, control
by an actor, two critics and a prioritised replay.

Half B (``FIFTEENTH``): ``episodes``, learning to learn; ``phrases``, sequence to sequence; ``spots``, a detector; ``vintage``, a stream with
hidden states carried over, whose parts lie in the package ``cellar`` beside it.
"""

from __future__ import annotations

from pathlib import Path

from tests.faults import Case

HERE = Path(__file__).parent / "scripts"


def fault(name: str, base: str, *edits: tuple[str, str]) -> Case:
    return Case(name, base, "unknown", edits, folder=HERE)


def sound(name: str, base: str, *edits: tuple[str, str]) -> Case:
    return Case(name, base, "unknown", edits, sound=True, folder=HERE)


# From one draw more on, all draws are others: nothing repeats bit for bit, and seeds have to tell.
OTHERWISE = {
    "clinics": ("    best, kept = 0.0, None\n", "    best, kept = 0.0, None\n    torch.rand(1)\n    rng.random()\n"),
    "memory": ("    criterion = nn.CrossEntropyLoss()\n", "    criterion = nn.CrossEntropyLoss()\n    torch.rand(1)\n"),
    "scan": ("lr=args.lr, eps=1e-7)\n", "lr=args.lr, eps=1e-7)\n    torch.rand(1)\n    np.random.rand(1)\n"),
    "swing": ("    recent = collections.deque(maxlen=args.ahead)\n", "    recent = collections.deque(maxlen=args.ahead)\n    torch.rand(1)\n    np.random.rand(1)\n"),
    "episodes": ("    best = 0.0\n    meta.train()\n", "    best = 0.0\n    torch.rand(1)\n    rng.random()\n    meta.train()\n"),
    "phrases": ("    updates = 0\n    for epoch", "    updates = 0\n    torch.rand(1)\n    for epoch"),
    "spots": ("    slow = Slow(model, opt.decay)\n", "    slow = Slow(model, opt.decay)\n    torch.rand(1)\n    np.random.rand(1)\n    random.random()\n"),
    "vintage": ("    keeper = Keeper(args.out)\n", "    keeper = Keeper(args.out)\n    torch.rand(1)\n"),
}


def hidden(name: str, base: str, *edits: tuple[str, str]) -> Case:
    """A fault behind other draws."""
    return fault(f"drawn otherwise, and {name}", base, OTHERWISE[base], *edits)


def others(base: str) -> Case:
    return sound("drawn otherwise, no more", base, OTHERWISE[base])


FOURTEENTH = [
    # -------------------------------------------------------------------------------- federated averaging
    fault("clinics weighed the same", "clinics", ("            weights.append(clinics[i].count)\n", "            weights.append(1)\n")),
    fault("weights of the norms averaged as well", "clinics", ("    local = norm_names(model)\n", "    local = [k for k in norm_names(model) if not k.endswith((\"weight\", \"bias\"))]\n")),
    fault("pulled towards the moving weights", "clinics", ("    anchor = {n: p.detach().clone() for n, p in model.named_parameters()}\n", "    anchor = {n: p.detach() for n, p in model.named_parameters()}\n")),
    fault("local momentum lives on", "clinics", ("    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)\n    total", "    optimizer = model.__dict__.setdefault(\"optimizer\", torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4))\n    optimizer.param_groups[0][\"lr\"] = lr\n    total")),
    fault("decay by the evaluation", "clinics", ("args.lr_decay**rnd\n", "args.lr_decay ** (rnd // args.eval_every)\n")),
    fault("last batch dropped", "clinics", ("drop_last=False", "drop_last=True")),
    fault("order of the records fixed", "clinics", ("shuffle=True", "shuffle=False")),
    fault("each clinic goes on from the one before", "clinics", ("    load(model, shared, clinic, local)\n    model.train()\n", "    if clinic.norms is not None:\n        model.load_state_dict(clinic.norms, strict=False)\n    model.train()\n")),
    fault("training mode set once", "clinics", ("    load(model, shared, clinic, local)\n    model.train()\n", "    load(model, shared, clinic, local)\n"), ("    model = build()\n", "    model = build().train()\n")),
    fault("clipped without the pull", "clinics", ("            loss = loss + 0.5 * args.mu * prox\n            loss.backward()\n            nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)\n", "            loss.backward()\n            nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)\n            (0.5 * args.mu * prox).backward()\n")),
    fault("one class weight for all clinics", "clinics", ("weight=clinic.class_weight", "weight=WEIGHT"), ("    model = build()\n", "    global WEIGHT\n    WEIGHT = torch.stack([c.class_weight for c in clinics]).mean(0)\n    model = build()\n")),
    fault("server momentum lost", "clinics", ("            shared[k] = shared[k] + velocity[k]\n", "            shared[k] = shared[k] + mean\n")),
    hidden("clinics weighed the same", "clinics", ("            weights.append(clinics[i].count)\n", "            weights.append(1)\n")),
    hidden("judged with the norms of the last clinic", "clinics", ("        load(model, shared, clinic, local)\n        model.eval()\n", "        model.load_state_dict(shared | {k: v for k, v in model.state_dict().items() if k in local})\n        model.eval()\n")),
    sound("loss read once a clinic", "clinics", ("            total += loss.item()\n", "            total = total + loss.detach().double()\n"), ("return delta, total / steps", "return delta, float(total) / steps")),
    sound("fused optimizer", "clinics", ("weight_decay=1e-4)\n    total", "weight_decay=1e-4, fused=True)\n    total")),
    sound("pull as a gradient of its own, before the clip", "clinics", ("            prox = 0.0\n            for name, param in model.named_parameters():\n                if name not in local:\n                    prox = prox + (param - anchor[name]).pow(2).sum()\n            loss = loss + 0.5 * args.mu * prox\n            loss.backward()\n", "            loss.backward()\n            with torch.no_grad():\n                prox = 0.0\n                for p, a in free:\n                    gap = p - a\n                    prox = prox + gap.square().sum()\n                    p.grad.add_(gap, alpha=args.mu)\n            loss = loss.detach() + 0.5 * args.mu * prox\n"), ("    total, steps = 0.0, 0\n", "    free = [(p, anchor[n]) for n, p in model.named_parameters() if n not in local]\n    total, steps = 0.0, 0\n")),
    sound("held records judged at once", "clinics", ("TensorDataset(x[count:], y[count:]), batch_size=20)", "TensorDataset(x[count:], y[count:]), batch_size=60)")),
    sound("batches by index, in another order", "clinics", ("        for x, y in clinic.train:\n            if len(x) < 2:\n", "        records, labels = clinic.train.dataset.tensors\n        for rows in torch.randperm(clinic.count).split(args.batch_size):\n            x, y = records[rows], labels[rows]\n            if len(x) < 2:\n")),
    others("clinics"),
    # -------------------------------------------------------------------------------- a queue of negatives
    fault("keys put into the queue before they are compared", "memory", ("        negative = torch.einsum", "        self.enqueue(k)\n        negative = torch.einsum"), ("        self.enqueue(k)\n        return", "        return")),
    fault("views drawn once", "memory", ("    loader = DataLoader(TwoViews(x), ", "    views = TwoViews(x)\n    loader = DataLoader([views[i] for i in range(len(views))], ")),
    fault("norms of the keys over the whole batch in order", "memory", ("            order = torch.randperm(len(b))\n            half = len(b) // 2\n            k = torch.cat([self.key(b[order[:half]]), self.key(b[order[half:]])])\n            k = k[order.argsort()]\n", "            k = self.key(b)\n")),
    fault("norms of the slow net in judging mode", "memory", ("        model.train()\n        losses", "        model.train()\n        model.key.eval()\n        losses")),
    fault("training mode set once", "memory", ("        model.train()\n        losses", "        losses"), ("    net.train()\n    return right", "    return right")),
    fault("pointer of the queue stands still", "memory", ("        self.ptr[0] = (ptr + n) % self.size\n", "        ptr = (ptr + n) % self.size\n")),
    fault("rate set after the epoch", "memory", ("            right += (logits.argmax(1) == 0).float().mean().item()\n", "            right += (logits.argmax(1) == 0).float().mean().item()\n        lr = adjust(optimizer, epoch, args)\n"), ("        lr = adjust(optimizer, epoch, args)\n        model.train()\n", "        model.train()\n")),
    fault("slow net in half precision", "memory", ("        self.key = Encoder()\n", "        self.key = Encoder().bfloat16()\n"), ("slow.data = slow.data * self.m + fast.data * (1.0 - self.m)", "slow.data.mul_(self.m).add_(fast.data.bfloat16(), alpha=1.0 - self.m)"), ("            half = len(b) // 2\n", "            half = len(b) // 2\n            b = b.bfloat16()\n"), ("            k = k[order.argsort()]\n", "            k = k[order.argsort()].float()\n")),
    fault("queue not in the checkpoint", "memory", ("torch.randn(size, 32), dim=1))\n", "torch.randn(size, 32), dim=1), persistent=False)\n")),
    fault("order of the records fixed", "memory", ("shuffle=True", "shuffle=False")),
    fault("judged with the norms of the batch", "memory", ("    net.eval()\n", "")),
    fault("one shift, sign and gap for the batch", "memory", ("        return self.view(self.x[i]), self.view(self.x[i])\n", "        return self.view(self.x[i]), self.view(self.x[i])\n\n    def __getitems__(self, rows):\n        x = self.x[rows]\n        return list(zip(self.view(x), self.view(x)))\n"), ("torch.roll(x, int(torch.randint(0, LENGTH, ())))", "torch.roll(x, int(torch.randint(0, LENGTH, ())), dims=-1)"), ("x[start : start + 12]", "x[..., start : start + 12]"), ("torch.randn(LENGTH)\n\n    def __getitem__", "torch.randn_like(x)\n\n    def __getitem__")),
    hidden("pointer of the queue stands still", "memory", ("        self.ptr[0] = (ptr + n) % self.size\n", "        ptr = (ptr + n) % self.size\n")),
    hidden("masked gaps lost", "memory", ("            x[start : start + 12] = 0.0\n", "            x[start : start] = 0.0\n")),
    sound("slow net by lists", "memory", ("        for slow, fast in zip(self.key.parameters(), self.query.parameters()):\n            slow.data = slow.data * self.m + fast.data * (1.0 - self.m)\n", "        slow, fast = list(self.key.parameters()), list(self.query.parameters())\n        torch._foreach_mul_(slow, self.m)\n        torch._foreach_add_(slow, fast, alpha=1.0 - self.m)\n")),
    sound("losses read once an epoch", "memory", ("            losses += loss.item()\n            right += (logits.argmax(1) == 0).float().mean().item()\n", "            losses = losses + loss.detach().double()\n            right = right + (logits.detach().argmax(1) == 0).float().mean().double()\n"), ("        found = neighbours", "        losses, right = float(losses), float(right)\n        found = neighbours")),
    sound("one product for the logits, targets made once", "memory", ("        positive = torch.einsum(\"nc,nc->n\", q, k).unsqueeze(1)\n        negative = torch.einsum(\"nc,kc->nk\", q, self.queue.clone().detach())\n", "        positive = (q * k).sum(1, keepdim=True)\n        negative = q @ self.queue.T.clone()\n"), ("        return logits, torch.zeros(len(a), dtype=torch.long)\n", "        if self.target is None or len(self.target) != len(a):\n            self.target = torch.zeros(len(a), dtype=torch.long)\n        return logits, self.target\n"), ("        self.query = Encoder()\n", "        self.target = None\n        self.query = Encoder()\n")),
    sound("fused optimizer, gradients freed", "memory", ("weight_decay=5e-4)\n", "weight_decay=5e-4, fused=True)\n"), ("optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=True)")),
    sound("two workers", "memory", ("shuffle=True, drop_last=True)", "shuffle=True, drop_last=True, num_workers=2, persistent_workers=True)")),
    others("memory"),
    # -------------------------------------------------------------------------------- a radiance field
    fault("one background for the batch", "scan", ("torch.rand(args.rays, 3)", "torch.rand(1, 3)")),
    fault("samples at the middles", "scan", ("args, background, True, noise)", "args, background, False, noise)")),
    fault("one jitter for all rays", "scan", ("torch.rand(count, samples) if jitter", "torch.rand(samples).expand(count, samples) if jitter")),
    fault("places of the samples learned through", "scan", ("weights.detach()", "weights")),
    fault("last gap lost", "scan", ("torch.full_like(z[:, :1], 1e2)", "torch.zeros_like(z[:, :1])")),
    fault("rate set at the reports", "scan", ("        for group in optimizer.param_groups:\n            group[\"lr\"] = args.lr * (args.final_lr / args.lr) ** ((step + 1) / args.steps)\n", ""), ("        if (step + 1) % args.every == 0:\n", "        if (step + 1) % args.every == 0:\n            for group in optimizer.param_groups:\n                group[\"lr\"] = args.lr * (args.final_lr / args.lr) ** ((step + 1) / args.steps)\n")),
    fault("slow nets moved each tenth step", "scan", ("        with torch.no_grad():\n            decay", "        if step % 10 == 0:\n          with torch.no_grad():\n            decay")),
    fault("each net clipped by itself", "scan", ("        torch.nn.utils.clip_grad_norm_(params, 0.05)\n", "        torch.nn.utils.clip_grad_norm_(coarse.parameters(), 0.05)\n        torch.nn.utils.clip_grad_norm_(fine.parameters(), 0.05)\n")),
    fault("order drawn once", "scan", ("                order, at = np.random.permutation(len(origins)), 0\n            rows", "                at = 0\n            rows")),
    fault("places in half precision", "scan", ("        x = (points[..., None] * self.frequencies).flatten(-2)\n", "        x = (points[..., None].bfloat16() * self.frequencies.bfloat16()).flatten(-2).float()\n")),
    fault("raw nets kept", "scan", ("{\"coarse\": slow[0].state_dict(), \"fine\": slow[1].state_dict(),", "{\"coarse\": coarse.state_dict(), \"fine\": fine.state_dict(),")),
    fault("judged on black", "scan", ("_, rgb = render(coarse, fine, o, d, args, 1.0, jitter=False)", "_, rgb = render(coarse, fine, o, d, args, 0.0, jitter=False)"), ("(1 - p[:, 3:]) * 1.0", "(1 - p[:, 3:]) * 0.0")),
    hidden("weight of the coarse loss lost", "scan", ("loss_fine + 0.5 * ((first", "loss_fine + ((first")),
    hidden("fine samples at fixed places", "scan", ("    u = torch.rand(len(z), samples) if jitter else torch.linspace(0.02", "    u = torch.linspace(0.02")),
    sound("losses read at the reports", "scan", ("        history.append(loss_fine.item())\n", "        history.append(loss_fine.detach())\n"), ("mean = sum(history[-args.every :]) / args.every", "mean = sum(torch.stack(history[-args.every :]).tolist()) / args.every")),
    sound("fused optimizer and slow nets by lists", "scan", ("eps=1e-7)", "eps=1e-7, fused=True)"), ("            for s, f in zip(slow, (coarse, fine)):\n                for a, b in zip(s.parameters(), f.parameters()):\n                    a.mul_(decay).add_(b, alpha=1 - decay)\n", "            torch._foreach_mul_(slow_params, decay)\n            torch._foreach_add_(slow_params, params, alpha=1 - decay)\n"), ("    history = []\n", "    history = []\n    slow_params = list(slow[0].parameters()) + list(slow[1].parameters())\n")),
    sound("light by sums", "scan", ("    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]\n", "    depth = density * gaps\n    through = torch.exp(-torch.cat([torch.zeros_like(depth[:, :1]), torch.cumsum(depth[:, :-1], 1)], 1))\n")),
    sound("all held rays at once, rays in one table", "scan", ("zip(origins.split(60), directions.split(60), pixels.split(60))", "zip(origins.split(360), directions.split(360), pixels.split(360))"), ("    coarse, fine = Field(), Field()\n", "    table = torch.cat([origins, directions, pixels], 1)\n    coarse, fine = Field(), Field()\n"), ("        truth = pixels[rows, :3] + (1 - pixels[rows, 3:]) * background\n", "        o, d, color, opacity = table[rows].split([2, 2, 3, 1], 1)\n        truth = color + (1 - opacity) * background\n"), ("render(coarse, fine, origins[rows], directions[rows], args, background, True", "render(coarse, fine, o, d, args, background, True")),
    sound("order drawn by torch", "scan", ("    order, at = np.random.permutation(len(origins)), 0\n    history", "    order, at = torch.randperm(len(origins)), 0\n    history"), ("                order, at = np.random.permutation(len(origins)), 0\n            rows", "                order, at = torch.randperm(len(origins)), 0\n            rows"), ("            rows = central[np.random.randint(0, len(central), args.rays)]\n", "            rows = torch.from_numpy(central)[torch.randint(0, len(central), (args.rays,))]\n"), ("        rows = torch.from_numpy(rows)\n", "")),
    others("scan"),
    # -------------------------------------------------------------------------------- a swing-up with replay
    fault("weights of the replay lost", "swing", ("critic_loss = (weight * (", "critic_loss = ((")),
    fault("new steps enter with the priority one", "swing", ("top = self.priority[: self.count].max() if self.count else 1.0", "top = 1.0")),
    fault("the horizon taken for an end", "swing", ("0.0 if fell else", "0.0 if fell or late else")),
    fault("one smoothing noise for the batch", "swing", ("torch.randn_like(action) * args.smooth", "torch.randn(1, 1) * args.smooth")),
    fault("targets moved at every update", "swing", ("            for net, lag in ((self.actor, self.actor_target), (self.critics, self.critics_target)):\n                for p, t in zip(net.parameters(), lag.parameters()):\n                    t.data.mul_(1 - args.tau).add_(args.tau * p.data)\n", "        for net, lag in ((self.actor, self.actor_target), (self.critics, self.critics_target)):\n            for p, t in zip(net.parameters(), lag.parameters()):\n                t.data.lerp_(p.data, args.tau)\n")),
    fault("last steps of an episode lost", "swing", ("                recent.popleft()\n                if not (fell or late):\n                    break\n", "                recent.popleft()\n                if fell or late:\n                    recent.clear()\n                break\n")),
    fault("last steps run into the next episode", "swing", ("                if not (fell or late):\n                    break\n", "                break\n")),
    fault("acts by a copy of the actor made at the reports", "swing", ("        action = self.actor(torch.from_numpy", "        action = self.copy(torch.from_numpy"), ("        self.scaler = Scaler()\n", "        self.scaler = Scaler()\n        self.copy = copy.deepcopy(self.actor)\n"), ("            found = evaluate(agent)\n", "            agent.copy.load_state_dict(agent.actor.state_dict())\n            found = evaluate(agent)\n")),
    fault("scaled when stored", "swing", ("        state, next_state = self.scaler(state), self.scaler(next_state)\n", ""), ("replay.add(recent[0][0], recent[0][1], gain, next_state, ", "replay.add(agent.scaler(recent[0][0]), recent[0][1], gain, agent.scaler(next_state), ")),
    fault("beta stays", "swing", ("agent.learn(replay, 0.4 + 0.6 * step / args.steps)", "agent.learn(replay, 0.4)")),
    fault("clipped after the step", "swing", ("        nn.utils.clip_grad_norm_(self.critics.parameters(), 1.0)\n        self.critic_optimizer.step()\n", "        self.critic_optimizer.step()\n        nn.utils.clip_grad_norm_(self.critics.parameters(), 1.0)\n")),
    fault("updates put off and done in blocks", "swing", ("        if step > args.start:\n            losses.append(agent.learn(replay, 0.4 + 0.6 * step / args.steps))\n", "        if step > args.start and step % 50 == 0:\n            losses += [agent.learn(replay, 0.4 + 0.6 * step / args.steps) for _ in range(50)]\n")),
    fault("episodes of the judge all start alike", "swing", ("    env = Pendulum(1000)\n    total = 0.0\n    for _ in range(episodes):\n", "    total = 0.0\n    for _ in range(episodes):\n        env = Pendulum(1000)\n")),
    hidden("the horizon taken for an end", "swing", ("0.0 if fell else", "0.0 if fell or late else")),
    sound("fused optimizers", "swing", ("lr=args.actor_lr)", "lr=args.actor_lr, fused=True)"), ("lr=args.critic_lr)", "lr=args.critic_lr, fused=True)")),
    sound("losses read at the reports", "swing", ("        return critic_loss.item()\n", "        return critic_loss.detach()\n"), ("np.mean(losses[-args.report:])", "np.mean(torch.stack(losses[-args.report:]).tolist())")),
    sound("rows by a search of the sums", "swing", ("        rows = np.random.choice(self.count, batch, p=p)\n", "        sums = p.cumsum()\n        sums /= sums[-1]\n        rows = sums.searchsorted(np.random.random_sample(batch), side=\"right\")\n")),
    sound("replay read as tensors, scale worked out once", "swing", ("        return rows, weight, [torch.from_numpy(part[rows]) for part in parts]\n", "        index = torch.from_numpy(rows)\n        return rows, weight, [torch.from_numpy(part).index_select(0, index) for part in parts]\n"), ("        state, next_state = self.scaler(state), self.scaler(next_state)\n", "        both = self.scaler(torch.cat([state, next_state]))\n        state, next_state = both.chunk(2)\n")),
    sound("episodes judged side by side", "swing", ("    env = Pendulum(1000)\n    total = 0.0\n    for _ in range(episodes):\n        state, over = env.reset(), False\n        while not over:\n            state, reward, fell, late = env.step(agent.act(state)[0])\n            over = fell or late\n            total += reward\n    return total / episodes\n", "    rng = np.random.RandomState(1000)\n    envs = [Pendulum(0) for _ in range(episodes)]\n    states = []\n    for env in envs:\n        env.rng = rng\n        states.append(env.reset())\n    total = 0.0\n    while envs:\n        with torch.no_grad():\n            actions = agent.actor(torch.from_numpy(agent.scaler(np.stack(states)))).numpy().clip(-1, 1)\n        left, states = [], []\n        for env, action in zip(envs, actions):\n            state, reward, fell, late = env.step(action[0])\n            total += reward\n            if not (fell or late):\n                left.append(env)\n                states.append(state)\n        envs = left\n    return total / episodes\n")),
    others("swing"),
]

FIFTEENTH = [
    # -------------------------------------------------------------------------------- learning to learn
    fault("never second order", "episodes", ("second_order = iteration >= cfg.first_order_until", "second_order = False")),
    fault("every step counts to the end", "episodes", ("        importance = importance_at(iteration, cfg)\n", ""), ("    running, accuracy = [], []\n    for iteration", "    running, accuracy = [], []\n    importance = importance_at(0, cfg)\n    for iteration")),
    fault("scheduler stepped by the task", "episodes", ("            running.append(loss.item())\n", "            scheduler.step()\n            running.append(loss.item())\n"), ("        optimizer.step()\n        scheduler.step()\n", "        optimizer.step()\n")),
    fault("rates clipped along", "episodes", ("clip_grad_norm_(meta.learner.parameters(), cfg.clip)", "clip_grad_norm_(meta.parameters(), cfg.clip)")),
    fault("glyphs no longer turned", "episodes", ("task(cfg, rng, turn=True)", "task(cfg, rng, turn=False)")),
    fault("tasks drawn once", "episodes", ("    for iteration in range(cfg.iterations):\n", "    pool = [train_glyphs.task(cfg, rng, turn=True) for _ in range(40)]\n    for iteration in range(cfg.iterations):\n"), ("        for _ in range(cfg.tasks):\n            loss, right = meta.run_task(train_glyphs.task(cfg, rng, turn=True), ", "        for j in range(cfg.tasks):\n            loss, right = meta.run_task(pool[(iteration * cfg.tasks + j) % 40], ")),
    fault("trains in judging mode after the first judging", "episodes", ("    meta.train()\n    return np.mean", "    return np.mean")),
    fault("inner steps take the first rate", "episodes", ("self.rates[n.replace(\".\", \"-\")][step] * g", "self.rates[n.replace(\".\", \"-\")][0] * g")),
    fault("all weights decay, rates too", "episodes", ("    optimizer = torch.optim.AdamW([\n        {\"params\": meta.learner.parameters(), \"weight_decay\": cfg.weight_decay},\n        {\"params\": meta.rates.parameters(), \"weight_decay\": 0.0},\n    ], lr=cfg.outer_lr)\n", "    optimizer = torch.optim.AdamW(meta.parameters(), lr=cfg.outer_lr)\n")),
    fault("pictures of support and query from one pile", "episodes", ("            query += pictures[cfg.shots :]\n", "            query += pictures[: cfg.queries]\n")),
    fault("tested with the last weights", "episodes", ("    meta.load_state_dict(torch.load(folder / \"best.pt\", weights_only=False)[\"meta\"])\n", "")),
    fault("gradients kept over two iterations", "episodes", ("        optimizer.zero_grad()\n        for _", "        if iteration % 2 == 0:\n            optimizer.zero_grad()\n        for _")),
    hidden("never second order", "episodes", ("second_order = iteration >= cfg.first_order_until", "second_order = False")),
    hidden("judged on the classes of the training", "episodes", ("validate(meta, held_glyphs, cfg)", "validate(meta, train_glyphs, cfg)")),
    sound("losses read at the reports", "episodes", ("            running.append(loss.item())\n            accuracy.append(right.item())\n", "            running.append(loss.detach())\n            accuracy.append(right)\n"), ("np.mean(running), np.mean(accuracy), loss", "np.mean(torch.stack(running).tolist()), np.mean(torch.stack(accuracy).tolist()), loss")),
    sound("held tasks drawn once and kept", "episodes", ("    rng = np.random.default_rng(777)\n    losses", "    key = id(glyphs)\n    if key not in KEPT:\n        rng = np.random.default_rng(777)\n        KEPT[key] = glyphs, [glyphs.task(cfg, rng, turn=False) for _ in range(cfg.validation_tasks)]\n    losses"), ("    for _ in range(cfg.validation_tasks):\n        loss, right = meta.run_task(glyphs.task(cfg, rng, turn=False), ", "    for task in KEPT[key][1]:\n        loss, right = meta.run_task(task, "), ("def validate(meta", "KEPT = {}\n\n\ndef validate(meta")),
    sound("strokes drawn by parts", "episodes", ("        picture = np.exp(-((grid[None, :, None] - path[:, 0, None, None]) ** 2 + (grid[None, None, :] - path[:, 1, None, None]) ** 2) / 0.8).max(0)\n", "        down = np.exp(-((grid - path[:, :1]) ** 2) / 0.8)\n        across = np.exp(-((grid - path[:, 1:]) ** 2) / 0.8)\n        picture = (down[:, :, None] * across[:, None, :]).max(0)\n")),
    sound("fused optimizer", "episodes", ("    ], lr=cfg.outer_lr)\n", "    ], lr=cfg.outer_lr, fused=True)\n")),
    sound("tasks summed before one way back", "episodes", ("            (loss / cfg.tasks).backward()\n", "            whole = whole + loss / cfg.tasks\n"), ("        optimizer.zero_grad()\n        for _", "        optimizer.zero_grad()\n        whole = 0.0\n        for _"), ("        nn.utils.clip_grad_norm_(meta.learner", "        whole.backward()\n        nn.utils.clip_grad_norm_(meta.learner")),
    others("episodes"),
    # -------------------------------------------------------------------------------- sequence to sequence
    fault("each batch by its own tokens", "phrases", ("                loss, _ = smoothed(", "                loss, own = smoothed("), ("(loss / tokens).backward()", "(loss / own / args.accumulate).backward()")),
    fault("padding attended to", "phrases", (".squeeze(2).masked_fill(mask, float(\"-inf\"))", ".squeeze(2)")),
    fault("padding read by the encoder", "phrases", ("        packed = pack_padded_sequence(self.drop(self.embed(x)), lengths, batch_first=True, enforce_sorted=False)\n        out, h = self.rnn(packed)\n        return pad_packed_sequence(out, batch_first=True)[0], torch.cat([h[0], h[1]], 1)\n", "        out, h = self.rnn(self.drop(self.embed(x)))\n        return out, torch.cat([h[0], h[1]], 1)\n")),
    fault("one teacher for the batch", "phrases", ("torch.rand(len(source)) < teacher", "torch.rand(()) < teacher")),
    fault("teacher set once an epoch", "phrases", ("            teacher = max(0.5, 1.0 - updates / 160)\n", ""), ("        waiting = []\n        for source", "        waiting = []\n        teacher = max(0.5, 1.0 - updates / 160)\n        for source")),
    fault("one order for all epochs", "phrases", ("        train.epoch = epoch\n", "")),
    fault("from short to long", "phrases", ("        if self.shuffle:\n            rng.shuffle(batches)\n", "")),
    fault("scheduler stepped by the batch", "phrases", ("                epoch_loss += loss.item()\n", "                epoch_loss += loss.item()\n                scheduler.step()\n"), ("            optimizer.zero_grad()\n            scheduler.step()\n", "            optimizer.zero_grad()\n")),
    fault("words dropped once", "phrases", ("model(drop_words(s, args.word_drop), n, t, teacher)", "model(s, n, t, teacher)"), ("    valid = Buckets", "    train.pairs = [(drop_words(s, args.word_drop), t) for s, t in train.pairs]\n    valid = Buckets")),
    fault("last states read at the padded end", "phrases", ("        return pad_packed_sequence(out, batch_first=True)[0], torch.cat([h[0], h[1]], 1)\n", "        out = pad_packed_sequence(out, batch_first=True)[0]\n        return out, out[:, -1]\n")),
    fault("padding smoothed as well", "phrases", ("    return ((1 - epsilon) * nll + epsilon * uniform)[keep].sum(), keep.sum()\n", "    return (1 - epsilon) * nll[keep].sum() + epsilon * uniform.sum(), keep.sum()\n")),
    fault("all checkpoints averaged", "phrases", ("\"checkpoint*.pt\")))[-args.keep :]", "\"checkpoint*.pt\")))")),
    fault("open windows carried into the next epoch", "phrases", ("        waiting = []\n        for source", "        for source"), ("    updates = 0\n    for epoch", "    updates = 0\n    waiting = []\n    for epoch")),
    hidden("each batch by its own tokens", "phrases", ("                loss, _ = smoothed(", "                loss, own = smoothed("), ("(loss / tokens).backward()", "(loss / own / args.accumulate).backward()")),
    sound("keys of the memory worked out once", "phrases", ("        score = (memory @ self.ask(h)[:, :, None])", "        score = (keys @ h[:, :, None])"), ("    def step(self, word, h, context, memory, mask):", "    def step(self, word, h, context, memory, keys, mask):"), ("            logits, h, context = self.decoder.step(word, h, context, memory, mask)\n            outputs", "            logits, h, context = self.decoder.step(word, h, context, memory, keys, mask)\n            outputs"), ("            logits, h, context = self.decoder.step(word, h, context, memory, mask)\n            word", "            logits, h, context = self.decoder.step(word, h, context, memory, keys, mask)\n            word"), ("        outputs = []\n        for t", "        keys = memory @ self.decoder.ask.weight\n        outputs = []\n        for t"), ("        over = torch.zeros", "        keys = memory @ self.decoder.ask.weight\n        over = torch.zeros")),
    sound("loss of the library", "phrases", ("    logp = F.log_softmax(logits, 2)\n    keep = target != PAD\n    nll = -logp.gather(2, target[:, :, None]).squeeze(2)\n    uniform = -logp.mean(2)\n    return ((1 - epsilon) * nll + epsilon * uniform)[keep].sum(), keep.sum()\n", "    loss = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=PAD, label_smoothing=epsilon, reduction=\"sum\")\n    return loss, (target != PAD).sum()\n")),
    sound("losses read once an epoch", "phrases", ("                epoch_loss += loss.item()\n", "                epoch_loss += loss.detach().double()\n"), ("            tokens = sum((t != PAD).sum().item() for _, _, t in waiting)\n", "            tokens = sum(int(t.count_nonzero()) for _, _, t in waiting)\n")),
    sound("held batches made once, fused optimizer", "phrases", ("    valid = Buckets(speak(150, 2), 800, shuffle=False)\n", "    valid = list(Buckets(speak(150, 2), 800, shuffle=False))\n"), ("betas=(0.9, 0.98))", "betas=(0.9, 0.98), fused=True)")),
    sound("teachers drawn at once", "phrases", ("            told = torch.rand(len(source)) < teacher\n            word = torch.where(told, target", "            word = torch.where(told[t], target"), ("        outputs = []\n        for t", "        told = torch.rand(target.shape[1], len(source)) < teacher\n        outputs = []\n        for t")),
    others("phrases"),
    # -------------------------------------------------------------------------------- a detector
    fault("boxes not turned with the picture", "spots", ("                boxes[:, [1, 3]] = SIZE - boxes[:, [3, 1]]\n", "")),
    fault("rare kinds no longer drawn more often", "spots", ("sampler=sampler, collate_fn", "shuffle=True, collate_fn")),
    fault("one size for all", "spots", ("size = random.choice([24, 32, 40])", "size = SIZE")),
    fault("norms of the frozen stem move", "spots", ("        self.stem.eval()\n", "")),
    fault("positives counted by the picture", "spots", ("        kind_loss = kind_loss + focal(logits[i], target).sum()\n        box_loss = box_loss + (1 - overlap(predicted[i][hit], boxes[i][which[hit]])[1]).sum()\n        positives += int(hit.sum())\n    positives = max(positives, 1)\n    return kind_loss / positives, box_loss / positives\n", "        positives = max(int(hit.sum()), 1)\n        kind_loss = kind_loss + focal(logits[i], target).sum() / positives\n        box_loss = box_loss + (1 - overlap(predicted[i][hit], boxes[i][which[hit]])[1]).sum() / positives\n    return kind_loss / len(boxes), box_loss / len(boxes)\n")),
    fault("statistics of the slow copy stale", "spots", ("        state = model.state_dict()\n        for k, v in self.model.state_dict().items():\n            if v.dtype.is_floating_point:\n                v *= d\n                v += (1 - d) * state[k].detach()\n", "        for v, p in zip(self.model.parameters(), model.parameters()):\n            v.lerp_(p, 1 - d)\n")),
    fault("slow copy follows each fifth step", "spots", ("            slow.update(model)\n", "            if n % 5 == 4:\n                slow.update(model)\n")),
    fault("groups clipped one by one", "spots", ("            nn.utils.clip_grad_norm_([p for g in groups.values() for p in g], opt.clip)\n", "            for g in groups.values():\n                nn.utils.clip_grad_norm_(g, opt.clip)\n")),
    fault("the fast model saved as the best", "spots", ("{\"model\": slow.model.state_dict(), \"updates\"", "{\"model\": model.state_dict(), \"updates\"")),
    fault("rate set once an epoch", "spots", ("            part = n / opt.warmup if n < opt.warmup else 0.5 * (1 + math.cos(math.pi * (n - opt.warmup) / (total - opt.warmup)))\n            for group, lr in zip(optimizer.param_groups, base):\n                group[\"lr\"] = lr * part\n", ""), ("        sums = np.zeros(2)\n", "        sums = np.zeros(2)\n        part = max(n, 1) / opt.warmup if n < opt.warmup else 0.5 * (1 + math.cos(math.pi * (n - opt.warmup) / (total - opt.warmup)))\n        for group, lr in zip(optimizer.param_groups, base):\n            group[\"lr\"] = lr * part\n")),
    fault("workers all alike, every epoch", "spots", ("collate_fn=collate, drop_last=True)", "collate_fn=collate, drop_last=True, num_workers=2, worker_init_fn=lambda w: (random.seed(opt.seed), np.random.seed(opt.seed)))")),
    fault("pictures changed once", "spots", ("    train = DataLoader(train_set, ", "    changed = [train_set[i] for i in range(len(train_set))]\n    train = DataLoader(changed, ")),
    hidden("norms of the frozen stem move", "spots", ("        self.stem.eval()\n", "")),
    hidden("plain weights decay as well", "spots", ("\"lr\": opt.lr, \"weight_decay\": 0.0}", "\"lr\": opt.lr, \"weight_decay\": 5e-4}")),
    sound("two workers", "spots", ("collate_fn=collate, drop_last=True)", "collate_fn=collate, drop_last=True, num_workers=2, persistent_workers=True)")),
    sound("slow copy by lists, its names looked up once", "spots", ("        state = model.state_dict()\n        for k, v in self.model.state_dict().items():\n            if v.dtype.is_floating_point:\n                v *= d\n                v += (1 - d) * state[k].detach()\n", "        if not self.pairs:\n            state = model.state_dict()\n            self.pairs = [(v, state[k]) for k, v in self.model.state_dict().items() if v.dtype.is_floating_point]\n        mine, its = map(list, zip(*self.pairs))\n        torch._foreach_mul_(mine, d)\n        torch._foreach_add_(mine, its, alpha=1 - d)\n"), ("        self.decay, self.ramp, self.updates = decay, ramp, 0\n", "        self.decay, self.ramp, self.updates = decay, ramp, 0\n        self.pairs = []\n")),
    sound("one loss of the kinds for the batch", "spots", ("        target = torch.zeros_like(logits[i])\n        target[hit, kinds[i][which[hit]]] = 1.0\n        kind_loss = kind_loss + focal(logits[i], target).sum()\n", "        target[i, hit, kinds[i][which[hit]]] = 1.0\n"), ("    kind_loss, box_loss, positives = 0.0, 0.0, 0\n", "    box_loss, positives = 0.0, 0\n    target = torch.zeros_like(logits)\n"), ("    positives = max(positives, 1)\n", "    kind_loss = focal(logits, target).sum()\n    positives = max(positives, 1)\n")),
    sound("middles kept by size, frozen stem without a graph", "spots", ("        h = self.neck(self.backbone(self.stem(x)))\n        n, _, rows, columns = h.shape\n        y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing=\"ij\")\n        centers = (torch.stack([x, y], -1).reshape(-1, 2) + 0.5) * self.stride\n", "        with torch.no_grad():\n            x = self.stem(x)\n        h = self.neck(self.backbone(x))\n        n, _, rows, columns = h.shape\n        if (rows, columns) not in MIDDLES:\n            y, x = torch.meshgrid(torch.arange(rows), torch.arange(columns), indexing=\"ij\")\n            MIDDLES[rows, columns] = (torch.stack([x, y], -1).reshape(-1, 2) + 0.5) * self.stride\n        centers = MIDDLES[rows, columns]\n"), ("SIZE = 32\n", "SIZE = 32\nMIDDLES = {}\n")),
    sound("fused optimizer, held pictures at once, overlaps at once", "spots", ("nesterov=True)", "nesterov=True, fused=True)"), ("DataLoader(held_set, 30, collate_fn=collate)", "DataLoader(held_set, 90, collate_fn=collate)"), ("                for j in keep.tolist():\n                    if kept and overlap(predicted[i][kept], predicted[i][j])[0].max() > 0.5:\n", "                found = predicted[i][keep]\n                close = (overlap(found[:, None], found[None])[0] > 0.5).tolist()\n                numbers = []\n                for a, j in enumerate(keep.tolist()):\n                    if any(close[b][a] for b in numbers):\n"), ("                    kept.append(j)\n", "                    kept.append(j)\n                    numbers.append(a)\n")),
    others("spots"),
    # -------------------------------------------------------------------------------- a stream of sensors, in a package
    fault("state forgotten at every window", "vintage", ("        state = state.detach()\n", "        state = model.start(len(x))\n")),
    fault("state not forgotten where a story starts", "vintage", ("model(inputs, state, fresh[:, a:b])", "model(inputs, state, torch.zeros_like(fresh[:, a:b]))")),
    fault("windows of one size", "vintage", ("args.window, vary=True)", "args.window, vary=False)")),
    fault("short windows weigh as much as long ones", "vintage", ("((loss + penalty) * share / args.accumulate)", "((loss + penalty) / args.accumulate)")),
    fault("last open window never stepped", "vintage", ("        if pending == args.accumulate or b == len(barrels):\n", "        if pending == args.accumulate:\n")),
    fault("penalties lost", "vintage", ("((loss + penalty) * share", "(loss * share")),
    fault("averages judged with the statistics of the held barrels", "vintage", ("refresh_norms(final, train, normal, 60)", "refresh_norms(final, valid, normal, 60)")),
    fault("statistics of the averages not taken anew", "vintage", ("    refresh_norms(final, train, normal, 60)\n", "")),
    fault("averaged from the first epoch on", "vintage", ("        if epoch >= args.average_from:\n            averaged", "        if True:\n            averaged")),
    fault("plateau of the training loss", "vintage", ("scheduler.step(held)", "scheduler.step(loss)")),
    fault("scaled by the window at hand", "vintage", ("        inputs = normal(x[:, a:b])\n", "        inputs = Normalizer(x[:, a:b])(x[:, a:b])\n")),
    fault("training mode set once", "vintage", ("    model.train()\n    return total", "    return total"), ("    model.train()\n    order", "    order")),
    hidden("state forgotten at every window", "vintage", ("        state = state.detach()\n", "        state = model.start(len(x))\n")),
    hidden("noise lost", "vintage", ("        inputs = inputs + args.noise * torch.randn_like(inputs)\n", "")),
    sound("sums read once an epoch", "vintage", ("        sums += torch.tensor([loss.item(), penalty.item()]) * (b - a)\n", "        sums += torch.stack([loss.detach(), penalty.detach()]) * (b - a)\n")),
    sound("scaled once, fused optimizer", "vintage", ("        inputs = normal(x[:, a:b])\n", "        inputs = x[:, a:b]\n"), ("    x, y, fresh = barrels.x[order], ", "    x, y, fresh = normal(barrels.x)[order], "), ("lr=args.lr)\n", "lr=args.lr, fused=True)\n")),
    sound("judged in longer windows", "vintage", ("    for a, b in windows(len(barrels), window, vary=False):\n        logits", "    for a, b in windows(len(barrels), 2 * window, vary=False):\n        logits")),
    sound("rows left in their places", "vintage", ("    order = torch.randperm(len(barrels.x))\n    x, y, fresh = barrels.x[order], barrels.y[order], barrels.fresh[order]\n", "    x, y, fresh = barrels.x, barrels.y, barrels.fresh\n")),
    sound("inputs of the cell worked out for all times at once", "vintage", ("def main():\n", "class Quick(Recurrence):\n    def forward(self, x, h, fresh):\n        cell, outputs = self.cell, []\n        given = F.linear(x, cell.weight_ih, cell.bias_ih)\n        kept = (~fresh[:, :, None]).to(x.dtype)\n        for t in range(x.size(1)):\n            h = h * kept[:, t]\n            ir, iz, inew = given[:, t].chunk(3, 1)\n            hr, hz, hnew = F.linear(h, cell.weight_hh, cell.bias_hh).chunk(3, 1)\n            z = torch.sigmoid(iz + hz)\n            new = torch.tanh(inew + torch.sigmoid(ir + hr) * hnew)\n            h = new + z * (h - new)\n            outputs.append(h)\n        return torch.stack(outputs, 1), h\n\n\ndef main():\n"), ("    model = Watcher()\n", "    model = Watcher()\n    model.recurrence.__class__ = Quick\n"), ("Watcher, windows\n", "Watcher, windows\nfrom cellar.layers import Recurrence\n")),
    others("vintage"),
]
