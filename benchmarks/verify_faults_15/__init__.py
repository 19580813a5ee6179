"""A fifteenth set of faults: six short scripts of kinds that no set before has, written without sight of the judge.

Part a: ``taste``: direct preference with low-rank adapters; ``basins``: an energy with persistent chains; ``abacus``: a transformer with growing
lengths that writes its answers. Part b: ``bonsai``: flat minima, pruning and rounding of pictures; ``lantern``: a field learned from rays;
``tides``: an ensemble of quantiles with sparse tables. ``CASES.claimed`` says of each case what its author would say it is (exact, rounding,
sampling): of a sound one that is so, of a fault it is not.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Claims

CASES = Claims(Path(__file__).parent / "scripts")
fault, sound = CASES.wrong, CASES.right


# ------------------------------------------------------------------------------------ taste
BOTH = "            liked = logs(model, x[:, 0], where[:, 0])\n            other = logs(model, x[:, 1], where[:, 1])\n            margin"
LOGS = "    out = model(rows[:, :-1]).log_softmax(-1)\n    each = out.gather(-1, rows[:, 1:, None]).squeeze(-1)\n    return (each * places[:, 1:]).sum(-1)\n"
ENTROPY = '    each = F.cross_entropy(model(rows[:, :-1]).transpose(1, 2), target, ignore_index=PAD, reduction="none")\n'
SPLIT = "        for at in torch.randperm(len(rows)).split(args.batch):\n            x, where = rows[at], places[at]\n            base_liked, base_other = reference(model, x, where)\n"
LOOKS = "        scores = q @ k.transpose(-2, -1) / math.sqrt(w // self.heads)\n        later = torch.ones(t, t, dtype=torch.bool, device=x.device).triu(1)\n        scores = scores.masked_fill(later, -math.inf)\n        h = (scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w)\n"
HELD = "    held = reference(model, held_rows, held_places)\n"

TASTE = [
    fault("sampling", "both replies in one call, taken apart by halves", "taste", (BOTH, "            liked, other = logs(model, x.flatten(0, 1), where.flatten(0, 1)).chunk(2)\n            margin")),
    fault("exact", "reference kept by the number of the batch", "taste", (HELD, HELD + "    known = {}\n"), (SPLIT, "        for k, at in enumerate(torch.randperm(len(rows)).split(args.batch)):\n            x, where = rows[at], places[at]\n            if k not in known:\n                known[k] = reference(model, x, where)\n            base_liked, base_other = known[k]\n")),
    fault("rounding", "replies by their mean", "taste", (LOGS, "    target = rows[:, 1:].masked_fill(~places[:, 1:], PAD)\n" + ENTROPY + "    return -each.sum(-1) / (target != PAD).sum(-1)\n")),
    fault("rounding", "places of the reply one off", "taste", (LOGS, "    target = rows[:, 1:].masked_fill(~places[:, :-1], PAD)\n" + ENTROPY + "    return -each.sum(-1)\n")),
    fault("rounding", "merged without the scale", "taste", ("        self.base.weight += self.scale * self.high @ self.low\n", "        self.base.weight.addmm_(self.high, self.low)\n")),
    fault("exact", "adapters drop nothing once the reference was asked", "taste", ("        m.on = True\n    model.train()\n", "        m.on = True\n")),
    fault("exact", "updates counted without the last batch", "taste", ("math.ceil(len(rows) / args.batch)", "(len(rows) // args.batch)")),
    fault("rounding", "smoothed as between two kinds", "taste", ("-((1 - args.smooth) * F.logsigmoid(margin) + args.smooth * F.logsigmoid(-margin)).mean()", "F.binary_cross_entropy_with_logits(margin, torch.full_like(margin, 1 - args.smooth / 2))")),
    sound("rounding", "replies by cross-entropy", "taste", (LOGS, "    target = rows[:, 1:].masked_fill(~places[:, 1:], PAD)\n" + ENTROPY + "    return -each.sum(-1)\n")),
    sound("sampling", "both replies in one call", "taste", (BOTH, "            liked, other = logs(model, x.flatten(0, 1), where.flatten(0, 1)).view(-1, 2).unbind(1)\n            margin")),
    sound("rounding", "fused attention and merging", "taste", (LOOKS, "        h = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, w)\n"), ("        self.base.weight += self.scale * self.high @ self.low\n", "        self.base.weight.addmm_(self.high, self.low, alpha=self.scale)\n")),
    sound("rounding", "reference of all rows once, losses read once an epoch", "taste", (HELD, HELD + "    known = reference(model, rows, places)\n"), ("            base_liked, base_other = reference(model, x, where)\n", "            base_liked, base_other = known[0][at], known[1][at]\n"), ("            total += loss.item() * len(at)\n            won += (margin > 0).sum().item()\n", "            total = total + loss.detach().double() * len(at)\n            won = won + (margin > 0).sum()\n")),
]

# ------------------------------------------------------------------------------------ basins
ENERGIES = "            low, high = net(x), net(made)\n            flat = (low**2).mean() + (high**2).mean()\n"
AVERAGE = "                for s, p in zip(slow.parameters(), net.parameters()):\n                    s.mul_(0.97).add_(p, alpha=0.03)\n"
STEP = "        x = x - size * slope + math.sqrt(2 * size) * 0.15 * torch.randn_like(x)\n"
LOOP = "    for _ in range(steps):\n        x = x.detach()"
ANEW = "        fresh = torch.rand(count) < FRESH\n        start = torch.where(fresh[:, None], anywhere(count), start)\n"

BASINS = [
    fault("exact", "chains written back to the first rows", "basins", ("        self.kept[rows] = x\n", "        self.kept[:count].copy_(x)\n")),
    fault("sampling", "one draw whether to begin anew", "basins", (ANEW, "        if torch.rand(()) < FRESH:\n            start = anywhere(count)\n")),
    fault("exact", "slope of the mean energy", "basins", ("net(x).sum(), x)", "net(x).mean(), x)")),
    fault("exact", "noise drawn before the descent", "basins", (LOOP, "    noise = math.sqrt(2 * size) * 0.15 * torch.randn_like(x)\n" + LOOP), (STEP, "        x = x - size * slope + noise\n")),
    fault("rounding", "energies in one call, and their size halved", "basins", (ENERGIES, "            energy = net(torch.cat([x, made]))\n            low, high = energy.chunk(2)\n            flat = (energy**2).mean()\n")),
    fault("sampling", "jitter drawn once for all epochs", "basins", ("    train = DataLoader(TensorDataset(points(2000, 1)), 96", "    x = points(2000, 1)\n    train = DataLoader(TensorDataset(x + 0.02 * torch.randn_like(x)), 96"), ("            x = x + 0.02 * torch.randn_like(x)\n", "")),
    fault("exact", "best kept in memory, not as a copy", "basins", ('            torch.save({"net": slow.state_dict(), "epoch": epoch}, "best.pt")\n', '            kept = {"net": slow.state_dict(), "epoch": epoch}\n'), ('    slow.load_state_dict(torch.load("best.pt")["net"])\n', '    torch.save(kept, "best.pt")\n    slow.load_state_dict(kept["net"])\n')),
    fault("rounding", "average every other batch at the old rate", "basins", ("        for x, in train:\n            x = x", "        for k, (x,) in enumerate(train):\n            x = x"), ("            with torch.no_grad():\n" + AVERAGE, "            if k % 2:\n                with torch.no_grad():\n                    torch._foreach_lerp_([*slow.parameters()], [*net.parameters()], 0.03)\n")),
    sound("rounding", "energies in one call", "basins", (ENERGIES, "            energy = net(torch.cat([x, made]))\n            low, high = energy.chunk(2)\n            flat = 2 * (energy**2).mean()\n")),
    sound("rounding", "average by lists", "basins", (AVERAGE, "                torch._foreach_lerp_([*slow.parameters()], [*net.parameters()], 0.03)\n")),
    sound("exact", "weights at rest in the descent, losses read once an epoch", "basins", (LOOP, "    net.requires_grad_(False)\n" + LOOP), ("    return x.detach()\n", "    net.requires_grad_(True)\n    return x.detach()\n"), ("            gap += (low.mean() - high.mean()).item() * len(x)\n            size += flat.item() * len(x)\n", "            gap = gap + (low.mean() - high.mean()).detach().double() * len(x)\n            size = size + flat.detach().double() * len(x)\n")),
    sound("sampling", "all noise of a descent drawn at once", "basins", (LOOP, "    noise = math.sqrt(2 * size) * 0.15 * torch.randn(steps, *x.shape)\n    for k in range(steps):\n        x = x.detach()"), (STEP, "        x = x - size * slope + noise[k]\n")),
]

# ------------------------------------------------------------------------------------ abacus
SCORES = "        scores = (q @ k.transpose(-2, -1)) * (w // self.heads) ** -0.5\n        scores = scores.masked_fill(~mask, -math.inf)\n        return self.out((scores.softmax(-1) @ v).transpose(1, 2).reshape(b, t, w))\n"
FUSED = "        return self.out(F.scaled_dot_product_attention(q, k, v, attn_mask=mask).transpose(1, 2).reshape(b, t, w))\n"
EMBED = "        x = self.tokens(rows) + self.places(places)\n        for block in self.blocks:\n            x = block(x, mask)\n"
WRITE = "    for _ in range(size):\n        token = model(rows)[:, -1, :BASE].argmax(-1)\n"
GROUPS = '[{"params": deep, "weight_decay": 0.1}, {"params": flat, "weight_decay": 0.0}], lr=args.lr'
STEPPED = '                loss = F.cross_entropy(out[known], x[:, 1:][known], reduction="sum") / count\n                loss.backward()\n                total += loss.item() * count.item()\n'
CLIP = "            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n"
REMEMBERED = (
    ("    def forward(self, x, mask):\n        b, t, w = x.shape\n", "    def forward(self, x, mask, past=None):\n        b, t, w = x.shape\n"),
    ("permute(2, 0, 3, 1, 4)\n", "permute(2, 0, 3, 1, 4)\n        if past is not None:\n            if past:\n                k, v = torch.cat([past[0], k], 2), torch.cat([past[1], v], 2)\n            past[:] = [k, v]\n"),
    ("    def forward(self, x, mask):\n        x = x + self.look(self.first(x), mask)\n", "    def forward(self, x, mask, past=None):\n        x = x + self.look(self.first(x), mask, past)\n"),
    ("    def forward(self, rows):\n", "    def forward(self, rows, pasts=None):\n"),
    (WRITE, "    pasts = [[] for _ in model.blocks]\n    for _ in range(size):\n        token = model(rows, pasts)[:, -1, :BASE].argmax(-1)\n"),
)
LAST = "        for block, past in zip(self.blocks, pasts or [None] * len(self.blocks)):\n            x = block(x, mask, past)\n"

ABACUS = [
    fault("rounding", "written with a memory that looks at the pads", "abacus", *REMEMBERED, (EMBED, "        x = self.tokens(rows) + self.places(places)\n        if pasts and pasts[0]:\n            x, mask = x[:, -1:], torch.ones_like(mask[:, :, -1:])\n" + LAST)),
    fault("rounding", "written with a memory, places counted with the pads", "abacus", *REMEMBERED, (EMBED, "        if pasts and pasts[0]:\n            mask, places, rows = mask[:, :, -1:], torch.full((len(rows), 1), rows.shape[1] - 1), rows[:, -1:]\n        x = self.tokens(rows) + self.places(places)\n" + LAST)),
    fault("rounding", "fused attention without the pads", "abacus", (SCORES, "        return self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, t, w))\n")),
    fault("rounding", "parts of a group weigh the same", "abacus", (STEPPED, "                loss = F.cross_entropy(out[known], x[:, 1:][known])\n                (loss / len(group)).backward()\n                total += loss.item() * known.sum().item()\n")),
    fault("exact", "last part of an epoch never stepped", "abacus", ("range(0, len(parts), args.accumulate)", "range(0, len(parts) - args.accumulate + 1, args.accumulate)")),
    fault("rounding", "fused optimizer with decay for all", "abacus", (GROUPS, "model.parameters(), lr=args.lr, weight_decay=0.1, fused=True")),
    fault("exact", "rows of a stage made once", "abacus", ("    best, kept = -1.0, None\n", "    best, kept, made = -1.0, None, {}\n"), ("        train, _ = sums(args.rows, longest, 100 + epoch)\n", "        if longest not in made:\n            made[longest] = sums(args.rows, longest, 100 + epoch)[0]\n        train = made[longest]\n")),
    fault("exact", "each part clipped", "abacus", (CLIP, ""), ("                loss.backward()\n", "                loss.backward()\n    " + CLIP)),
    sound("rounding", "fused attention", "abacus", (SCORES, FUSED)),
    sound("rounding", "rows cut to the longest of the part", "abacus", ("            for x in group:\n", "            for x in group:\n                x = x[:, int((x != PAD).any(0).nonzero()[0]) :]\n")),
    sound("rounding", "written with a memory", "abacus", *REMEMBERED, (EMBED, "        x = self.tokens(rows) + self.places(places)\n        if pasts and pasts[0]:\n            x, mask = x[:, -1:], mask[:, :, -1:]\n" + LAST)),
    sound("rounding", "fused optimizer, losses read once an epoch", "abacus", (GROUPS, GROUPS + ", fused=True"), ("                total += loss.item() * count.item()\n", "                total = total + loss.detach().double() * count\n"), ("            digits += count.item()\n", "            digits = digits + count\n")),
]

PART_A = TASTE + BASINS + ABACUS

# ------------------------------------------------------------------------------------ bonsai
PERTURB = "                norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()\n                for p in net.parameters():\n                    move = p.grad * (radius / (norm + 1e-12))\n                    p.add_(move)\n                    moves.append(move)\n"
LISTS = "                some = [*net.parameters()]\n                grads = [p.grad for p in some]\n"
BACK = "                for p, move in zip(net.parameters(), moves):\n                    p.sub_(move)\n"
EVERY = "        every = torch.cat([w.abs().flatten() for w in self.weights])\n        level = every.sort().values[int(share * len(every))]\n        self.masks = [(w.abs() >= level).float() for w in self.weights]\n"
CLIP2 = "            nn.utils.clip_grad_norm_(net.parameters(), 2.0)\n"

BONSAI = [
    fault("exact", "norms judge in the second pass", "bonsai", ("        norm.momentum = 0.0 if on else 0.1\n", "        norm.train(not on)\n")),
    fault("exact", "ranges follow both passes", "bonsai", ("    for r in net.rounds:\n        r.rate = 0.0 if on else 0.05\n", "")),
    fault("exact", "gradients of both passes added", "bonsai", ("            still(net, True)\n            optimizer.zero_grad()\n", "            still(net, True)\n")),
    fault("rounding", "each weight moved by its own norm", "bonsai", (PERTURB, LISTS + "                norms = torch._foreach_add(torch._foreach_norm(grads), 1e-12)\n                moves = torch._foreach_mul(torch._foreach_div(grads, norms), radius)\n                torch._foreach_add_(some, moves)\n")),
    fault("exact", "masks put on only when they change", "bonsai", ("            pruner.apply()\n            total", "            total")),
    fault("sampling", "no row twice in an epoch", "bonsai", ("WeightedRandomSampler(weights, len(y), generator", "WeightedRandomSampler(weights, len(y), replacement=False, generator")),
    fault("exact", "not trained again after the first judgement", "bonsai", ("    net.train()\n    return lost", "    return lost")),
    fault("rounding", "norm of the first pass from the clipping", "bonsai", ("                norm = torch.stack([p.grad.norm() for p in net.parameters()]).norm()\n", "                norm = nn.utils.clip_grad_norm_(net.parameters(), 2.0)\n"), (CLIP2, "")),
    sound("rounding", "moves by lists", "bonsai", (PERTURB, LISTS + "                norm = torch.stack(torch._foreach_norm(grads)).norm()\n                moves = torch._foreach_mul(grads, radius / (norm + 1e-12))\n                torch._foreach_add_(some, moves)\n"), (BACK, "                torch._foreach_sub_([*net.parameters()], moves)\n")),
    sound("exact", "level without a sort, masks by lists", "bonsai", ("every.sort().values[int(share * len(every))]", "every.kthvalue(int(share * len(every)) + 1).values"), ("        for w, m in zip(self.weights, self.masks):\n            w.mul_(m)\n", "        torch._foreach_mul_(self.weights, self.masks)\n")),
    sound("exact", "losses read once an epoch, gradients kept", "bonsai", ("            total += loss.item() * len(x)\n            sharp += (near - loss).item() * len(x)\n", "            total = total + loss.detach().double() * len(x)\n            sharp = sharp + (near - loss).detach().double() * len(x)\n"), ("            lost += F.cross_entropy(out, y, reduction=\"sum\").item()\n", "            lost = lost + F.cross_entropy(out, y, reduction=\"sum\").double()\n"), ("    return lost / seen.sum().item(),", "    return float(lost) / seen.sum().item(),")),
    sound("sampling", "rows taken from the tensors", "bonsai", ("    train = DataLoader(TensorDataset(x, y), 40, sampler=sampler)\n", "    images, kinds = x, y\n"), ("        for x, y in train:\n            x = torch", "        for at in torch.tensor([*sampler]).split(40):\n            x, y = images[at], kinds[at]\n            x = torch")),
]

# ------------------------------------------------------------------------------------ lantern
THROUGH = "    alpha = 1 - torch.exp(-density * gaps)\n    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha + 1e-10], 1), 1)[:, :-1]\n"
ROUGH = "    density, colour = field(places[:, None] + depth[..., None] * rays[:, None])\n    rough, weight = composite(density, colour, depth, rays)\n"
FINE = "    depth = torch.cat([depth, new], 1).sort(1).values\n    density, colour = field(places[:, None] + depth[..., None] * rays[:, None])\n"
NEW = "    depth, order = torch.cat([depth, new], 1).sort(1)\n    more_density, more_colour = field(places[:, None] + new[..., None] * rays[:, None])\n    density = torch.cat([density, more_density], 1).gather(1, order)\n"
ORDER = "        order = torch.randperm(len(rays))\n"
READ = "            total += second.item() * len(at)\n            rough_total += first.item() * len(at)\n"
TOTAL = "        total += ((fine - colours[at]) ** 2).sum().item()\n    return -10 * math.log10(total / colours.numel())\n"
WAVES = "        waves = 2.0 ** torch.arange(self.waves, device=at.device)\n        turned = (at[..., None] * waves).flatten(-2)\n"

LANTERN = [
    fault("sampling", "one jitter for all rays of a batch", "lantern", ("torch.rand(places, count) if jitter", "torch.rand(count).expand(places, -1) if jitter")),
    fault("rounding", "light through a place dimmed by the place", "lantern", (THROUGH, "    thick = density * gaps\n    alpha, through = -torch.expm1(-thick), torch.exp(-thick.cumsum(1))\n")),
    fault("exact", "depths drawn with a gradient", "lantern", ("finer(depth, weight.detach(), more, jitter)", "finer(depth, weight, more, jitter)")),
    fault("exact", "coarse pass without a gradient", "lantern", (ROUGH, "    with torch.no_grad():\n        density, colour = field(places[:, None] + depth[..., None] * rays[:, None])\n        rough, weight = composite(density, colour, depth, rays)\n")),
    fault("rounding", "coarse values used again, colours not put in order", "lantern", (FINE, NEW + "    colour = torch.cat([colour, more_colour], 1)\n")),
    fault("exact", "rays put in order once", "lantern", (ORDER, ""), ("    for epoch in range(epochs):\n", "    order = torch.randperm(len(rays))\n    for epoch in range(epochs):\n")),
    fault("exact", "mean of the chunks' means", "lantern", ("    total = 0.0\n    for at in torch.arange", "    every = []\n    for at in torch.arange"), (TOTAL, "        every.append(((fine - colours[at]) ** 2).mean())\n    return -10 * math.log10(torch.stack(every).mean().item())\n")),
    fault("exact", "judged with jitter", "lantern", ("render(field, places[at], rays[at], jitter=False)", "render(field, places[at], rays[at], jitter=field.training)"), ("rays[at], jitter=True)", "rays[at], jitter=field.training)")),
    sound("rounding", "coarse values used again", "lantern", (FINE, NEW + "    colour = torch.cat([colour, more_colour], 1).gather(1, order[..., None].expand(-1, -1, 3))\n")),
    sound("rounding", "light by sums", "lantern", (THROUGH, "    thick = density * gaps\n    alpha, through = -torch.expm1(-thick), torch.exp(thick - thick.cumsum(1))\n")),
    sound("exact", "waves made once, losses read once an epoch", "lantern", ("        self.waves = waves\n", '        self.register_buffer("waves", 2.0 ** torch.arange(waves), persistent=False)\n'), (WAVES, "        turned = (at[..., None] * self.waves).flatten(-2)\n"), (READ, "            total = total + second.detach().double() * len(at)\n            rough_total = rough_total + first.detach().double() * len(at)\n")),
    sound("rounding", "judged in one piece, fused optimizer", "lantern", ("@torch.no_grad()\ndef judge", "@torch.inference_mode()\ndef judge"), ("split(300)", "split(len(rays))"), ("lr=6e-3)", "lr=6e-3, fused=True)")),
]

# ------------------------------------------------------------------------------------ tides
TIMES = "            weight = times[:, at]\n"
KEPT = "            kept = {k: v.clone() for k, v in net.state_dict().items()}\n"
LOADED = "    net.load_state_dict(kept)\n    by = widen(net, spare)\n"
PINBALL = "    total = 0.0\n    for i, level in enumerate(LEVELS):\n        off = y - out[..., i]\n        total = total + torch.maximum(level * off, (level - 1) * off)\n    return total / len(LEVELS)\n"
STACK = "        return torch.stack([m(x) for m in self.members])\n"
JUDGED = "    out, y = guesses(net, data), data[3]\n    return pinball(out, y).mean().item()\n"


def together(drop: str) -> str:
    return (
        "        first, second = ([torch.stack(p) for p in zip(*((getattr(m, k).weight.t(), getattr(m, k).bias[None]) for m in self.members))] for k in (\"first\", \"second\"))\n"
        "        h = torch.baddbmm(first[1], x.expand(len(self.members), -1, -1), first[0]).relu()\n"
        f"        return torch.baddbmm(second[1], {drop}, second[0])\n"
    )


TIDES = [
    fault("sampling", "times of the rows drawn for each batch", "tides", (TIMES, "            weight = torch.poisson(torch.ones(members, len(at)))\n")),
    fault("rounding", "weighed rows divided by their number", "tides", ("* weight).sum() / weight.sum()\n", "* weight).mean()\n")),
    fault("exact", "best kept without a copy", "tides", (KEPT, "            kept = net.state_dict()\n")),
    fault("exact", "rate of the tables never falls", "tides", ("    plateaus = [torch.optim.lr_scheduler.ReduceLROnPlateau(o, factor=0.3, patience=1) for o in (tables, others)]\n", "    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(others, factor=0.3, patience=1)\n"), ("        for plateau in plateaus:\n            plateau.step(lost)\n", "        plateau.step(lost)\n")),
    fault("exact", "widened before the best is back", "tides", (LOADED, "    by = widen(net, spare)\n    net.load_state_dict(kept)\n")),
    fault("exact", "judged by the mean of the members", "tides", (JUDGED, "    net.eval()\n    with torch.no_grad():\n        lost = pinball(net(*data[:3]), data[3]).mean().item()\n    net.train()\n    return lost\n")),
    fault("exact", "nothing dropped after the first judgement", "tides", ("    net.train()\n    return out.sort", "    return out.sort")),
    fault("sampling", "members at once, the same dropped in all", "tides", (STACK, together("h * self.members[0].drop(torch.ones_like(h[0]))"))),
    sound("sampling", "members at once", "tides", (STACK, together("self.members[0].drop(h)"))),
    sound("rounding", "levels at once", "tides", (PINBALL, "    levels = torch.tensor(LEVELS)\n    off = y[:, None] - out\n    return torch.maximum(levels * off, (levels - 1) * off).mean(-1)\n")),
    sound("exact", "losses read once an epoch, best copied in place", "tides", ("            total += loss.item() * weight.sum().item()\n            count += weight.sum().item()\n", "            total = total + loss.detach().double() * weight.sum()\n            count = count + weight.sum()\n"), (KEPT, "            state = net.state_dict()\n            kept = kept or {k: torch.empty_like(v) for k, v in state.items()}\n            torch._foreach_copy_([*kept.values()], [*state.values()])\n")),
    sound("sampling", "rows taken from the tensors", "tides", ("    rows = TensorDataset(*train, torch.arange(len(train[3])))\n    loader = DataLoader(rows, 64, shuffle=True, generator=torch.Generator().manual_seed(7))\n", "    draws = torch.Generator().manual_seed(7)\n"), ("        for station, month, x, y, at in loader:\n", "        for at in torch.randperm(len(train[3]), generator=draws).split(64):\n            station, month, x, y = (part[at] for part in train)\n")),
]

PART_B = BONSAI + LANTERN + TIDES

del TASTE, BASINS, ABACUS, BONSAI, LANTERN, TIDES  # a set's lists are its parts
