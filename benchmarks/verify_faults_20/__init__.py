"""A twentieth set of faults: six short scripts in the manner of ordinary users, written without sight of the judge.

Part a: ``moss``: a neural cellular automaton with a pool of states; ``frost``: survival by Cox's likelihood with a group lasso by proximal steps;
``atlas``: facts embedded by rotations with self-adversarial negatives. Part b: ``quay``: domain adversarial training with norms by domain;
``almanac``: seasons learned one after the other with Fisher information and a reservoir; ``cricket``: a spiking net, cyclic rates and averaged weights.
``CASES.claimed`` says of each case what its author would say it is (exact, rounding, sampling): of a sound one that is so, of a fault it is not.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Claims

CASES = Claims(Path(__file__).parent / "scripts")
fault, sound = CASES.wrong, CASES.right


# ------------------------------------------------------------------------------------ moss
LOOP = "        for _ in range(steps):\n            before = alive(x)\n"
SEEN = "            seen = F.conv2d(x, self.filters.repeat(CHANNELS, 1, 1).unsqueeze(1), padding=1, groups=CHANNELS)\n"
HIDDEN = "            hidden = self.hidden(seen).relu()\n"
FIRES = "            fires = torch.rand(len(x), 1, SIDE, SIDE, generator=g) < FIRE\n"
LIFE = "            x = x * (before & alive(x))\n"
SCALED = "        for p in model.parameters():\n            p.grad /= p.grad.norm() + 1e-8\n"
KERNEL = '        kernel = torch.einsum("hcf,fij->hcij", self.hidden.weight.view(HIDDEN, CHANNELS, 3), self.filters)\n'
MISFITS = "        total += fit.item()\n        total_over += over.item()\n"

MOSS = [
    fault("rounding", "first half of the steps without a graph", "moss", ("        x = model(x, steps)\n", "        with torch.no_grad():\n            x = model(x, steps // 2)\n        x = model(x, steps - steps // 2)\n")),
    fault("sampling", "cells that fire drawn once a roll-out", "moss", (FIRES, ""), (LOOP, FIRES[4:] + LOOP)),
    fault("exact", "pool written through a copy", "moss", ("        pool[idx] = x.detach()\n", "        pool[idx].copy_(x.detach())\n")),
    fault("exact", "life looked at once a step", "moss", (LOOP, "        before = alive(x)\n        for _ in range(steps):\n"), (LIFE, "            after = alive(x)\n            x = x * (before & after)\n            before = after\n")),
    fault("rounding", "all gradients scaled by one length", "moss", (SCALED, "        grads = [p.grad for p in model.parameters()]\n        torch._foreach_div_(grads, nn.utils.get_total_norm(grads) + 1e-8)\n")),
    sound("sampling", "cells that fire drawn for all steps at once, misfits read when printed", "moss", (LOOP, "        firing = torch.empty(steps, len(x), 1, SIDE, SIDE).bernoulli_(FIRE, generator=g)\n" + LOOP.replace("_", "k", 1)), (FIRES, "            fires = firing[k]\n"), (MISFITS, "        total = total + fit.detach().double()\n        total_over = total_over + over.detach().double()\n")),
    sound("rounding", "filters folded into the hidden layer, gradients scaled by lists", "moss", (LOOP, KERNEL + LOOP), (SEEN, ""), (HIDDEN, "            hidden = F.conv2d(x, kernel, self.hidden.bias, padding=1).relu()\n"), (SCALED, "        grads = [p.grad for p in model.parameters()]\n        lengths = torch._foreach_norm(grads)\n        torch._foreach_add_(lengths, 1e-8)\n        torch._foreach_div_(grads, lengths)\n")),
]

# ------------------------------------------------------------------------------------ frost
LIKELIHOOD = """    total = 0.0
    for s in range(SITES):
        own = site == s
        r, d, e = risk[own], day[own], dead[own]
        under = d.unsqueeze(0) >= d.unsqueeze(1)
        logs = r.unsqueeze(0).expand(len(r), -1).masked_fill(~under, -math.inf).logsumexp(1)
        total = total + ((logs - r) * e).sum()
    return total / dead.sum().clamp(min=1)
"""
SORTED = """    total = 0.0
    for s in range(SITES):
        own = site == s
        d, order = day[own].sort(descending=True)
        r, e = risk[own][order], dead[own][order]
        logs = r.logcumsumexp(0)
        total = total + ((logs - r) * e).sum()
    return total / dead.sum().clamp(min=1)
"""
TIES = "        logs = r.logcumsumexp(0)[torch.searchsorted(-d, -d, right=True) - 1]\n"
ONE_SET = """    under = day.unsqueeze(0) >= day.unsqueeze(1)
    logs = risk.unsqueeze(0).expand(len(risk), -1).masked_fill(~under, -math.inf).logsumexp(1)
    return ((logs - risk) * dead).sum() / dead.sum().clamp(min=1)
"""
ALL_SITES = ONE_SET.replace(">= day.unsqueeze(1)\n", ">= day.unsqueeze(1)\n    under &= site.unsqueeze(0) == site.unsqueeze(1)\n")
THRESHOLD = "        shrink(model.first.weight, scheduler.get_last_lr()[0] * strength)\n"
PENALTY = "            loss = partial_likelihood(model(x), day, dead, site)\n            optimizer.zero_grad()\n            loss.backward()\n"
PAIRS = """    good, pairs = 0.0, 0
    for i in dead.nonzero().flatten().tolist():
        other = risk[(site == site[i]) & (day > day[i])]
        good += (other < risk[i]).sum().item() + 0.5 * (other == risk[i]).sum().item()
        pairs += len(other)
"""
IN_A_TABLE = """    asked = dead.unsqueeze(1) & (site.unsqueeze(1) == site.unsqueeze(0)) & (day.unsqueeze(0) > day.unsqueeze(1))
    own, other = risk.unsqueeze(1), risk.unsqueeze(0)
    good = (asked & (other < own)).sum().item() + 0.5 * (asked & (other == own)).sum().item()
    pairs = asked.sum().item()
"""
TABLE = "    table = hazards(model, *train)\n"
LOAD_TREES = "    model.load_state_dict(kept)\n"
BATCHES = "        for idx in torch.randperm(len(train[0])).split(BATCH):\n            x, day, dead, site = (part[idx] for part in train)\n"
SHRUNK = """    for k in range(GROUPS):
        part = weight[:, k * SIZE : (k + 1) * SIZE]
        part.mul_((1 - by / part.norm().clamp(min=1e-9)).clamp(min=0))
"""

FROST = [
    fault("rounding", "risk sets by one sorted pass, ties forgotten", "frost", (LIKELIHOOD, SORTED)),
    fault("rounding", "one table of who is under risk", "frost", (LIKELIHOOD, ONE_SET)),
    fault("exact", "threshold of the first rate", "frost", (THRESHOLD, THRESHOLD.replace("scheduler.get_last_lr()[0]", "LR"))),
    fault("rounding", "group lasso as a penalty in the loss", "frost", (THRESHOLD, ""), (PENALTY, PENALTY.replace("loss.backward()", "lasso = model.first.weight.view(-1, GROUPS, SIZE).transpose(0, 1).flatten(1).norm(dim=1).sum()\n            (loss + 0.1 * strength * BATCH / len(train[0]) * lasso).backward()"))),
    fault("exact", "hazards by the last weights", "frost", (TABLE, ""), (LOAD_TREES, TABLE + LOAD_TREES)),
    sound("rounding", "risk sets by one sorted pass, ties kept, all pairs in a table", "frost", (LIKELIHOOD, SORTED.replace("        logs = r.logcumsumexp(0)\n", TIES)), (PAIRS, IN_A_TABLE)),
    sound("rounding", "sites told apart in one table, groups shrunk at once, trees shuffled once an epoch, losses read then", "frost", (LIKELIHOOD, ALL_SITES), (SHRUNK, "    groups = weight.view(-1, GROUPS, SIZE)\n    groups.mul_((1 - by / groups.norm(dim=(0, 2), keepdim=True).clamp(min=1e-9)).clamp(min=0))\n"), (BATCHES, "        order = torch.randperm(len(train[0]))\n        for x, day, dead, site in zip(*(part[order].split(BATCH) for part in train)):\n"), ("            total += loss.item() * len(idx)\n", "            total = total + loss.detach().double() * len(x)\n")),
]

# ------------------------------------------------------------------------------------ atlas
DETACHED = ".softmax(1).detach()"
CORRUPT = "            corrupt = torch.randint(0, ENTITIES, (len(idx), NEGATIVES))\n"
ROTATED = "    model = Rotations()\n"
WEIGHED = "    fit, against = (weight * fit).sum() / weight.sum(), (weight * against).sum() / weight.sum()\n"
STARTED = """        if epoch in (0, 12):
            optimizer = torch.optim.Adam(model.parameters(), lr=LR if epoch == 0 else LR / 5)
"""
FORWARD = "        return GAMMA - (self.vectors(head) * turn - self.vectors(tail)).abs().sum(-1)\n"
TURNED_BACK = """        if head.shape[1] > tail.shape[1]:
            return GAMMA - (self.vectors(head) - self.vectors(tail) * turn.conj()).abs().sum(-1)
"""
FACT_SUMS = "            sum_fit += fit.item() * len(idx)\n            sum_against += against.item() * len(idx)\n"
PASSED = "        for idx in torch.randperm(len(train)).split(BATCH):\n"
TRUE = "    true = known[corrupt, r, t] if heads else known[h, r, corrupt]\n"
POLAR = "        phase = self.relation(relation) / SPAN * math.pi\n        turn = torch.polar(torch.ones_like(phase), phase)\n"
OWN = "            own = scores.gather(1, true)\n"

ATLAS = [
    fault("exact", "hardness kept in the graph", "atlas", (DETACHED, ".softmax(1)")),
    fault("sampling", "negatives of a fact drawn once", "atlas", (ROTATED, ROTATED + "    negatives = torch.randint(0, ENTITIES, (len(train), NEGATIVES))\n"), (CORRUPT, "            corrupt = negatives[idx]\n")),
    fault("rounding", "negatives of all facts weigh the same", "atlas", (WEIGHED, "    fit, against = (weight * fit).sum() / weight.sum(), against.mean()\n")),
    fault("rounding", "tables touched where a batch is", "atlas", ("nn.Embedding(ENTITIES, 2 * DIM)", "nn.Embedding(ENTITIES, 2 * DIM, sparse=True)"), ("nn.Embedding(RELATIONS, DIM)", "nn.Embedding(RELATIONS, DIM, sparse=True)"), ("torch.optim.Adam(", "torch.optim.SparseAdam(")),
    fault("exact", "ranks among all that was not trained on", "atlas", ("ranks(model, held, all_known)", "ranks(model, held, known)"), ("ranks(model, test, all_known)", "ranks(model, test, known)"), (", all_known = fact_weights(train), known_table(train), known_table(torch.cat([train, held, test]))", " = fact_weights(train), known_table(train)"), (OWN, OWN + "            other = other.scatter(1, true, False)\n")),
    sound("rounding", "tails turned back where heads are many, ranked in one batch", "atlas", (FORWARD, TURNED_BACK + FORWARD), ("def ranks(model, facts, known, batch=30)", "def ranks(model, facts, known, batch=150)")),
    sound("sampling", "negatives of an epoch in one draw, losses read after it", "atlas", (PASSED, "        negatives = torch.randint(0, ENTITIES, (len(train), NEGATIVES), dtype=torch.int32).long()\n" + PASSED), (CORRUPT, "            corrupt = negatives[idx]\n"), (FACT_SUMS, "            sum_fit = sum_fit + fit.detach().double() * len(idx)\n            sum_against = sum_against + against.detach().double() * len(idx)\n")),
]

PART_A = MOSS + FROST + ATLAS

del MOSS, FROST, ATLAS  # a set's lists are its parts

# ------------------------------------------------------------------------------------ quay
FEATURES = "            by_day, by_night = model.features(day[rows], DAY), model.features(night[others], NIGHT)\n"
TOLD = "            told_day, told_night = model.judge(Reverse.apply(by_day, strength)), model.judge(Reverse.apply(by_night, strength))\n"
WHOLE = "            (label_loss + 0.25 * judge_loss + SURE * strength * unsure).backward()\n"
ROWS = "        for rows, others in zip(day_rows.split(BATCH), night_rows.split(BATCH)):\n"
RATES = '            for group in optimizer.param_groups:\n                group["lr"] = LR * group["times"] / (1 + 10 * done) ** 0.75\n'
JUDGED = "            judge_loss = -F.logsigmoid(told_day).mean() - F.logsigmoid(-told_night).mean()\n"
QUAY_SUMS = """            sums["label"] += label_loss.item()
            sums["judge"] += judge_loss.item()
            sums["sure"] += unsure.item()
"""
QUAY_LATER = """            sums["label"] = sums["label"] + label_loss.detach().double()
            sums["judge"] = sums["judge"] + judge_loss.detach().double()
            sums["sure"] = sums["sure"] + unsure.detach().double()
"""
HOOKED = """            for_judge = [h.view_as(h) for h in (by_day, by_night)]
            for h in for_judge:
                h.register_hook(lambda grad: -strength * grad)
            told_day, told_night = (model.judge(h) for h in for_judge)
"""

QUAY = [
    fault("exact", "judge's loss taken away in place of the reversal", "quay", (TOLD, "            told_day, told_night = model.judge(by_day), model.judge(by_night)\n"), (WHOLE, WHOLE.replace("+ 0.25 * judge_loss", "- 0.25 * strength * judge_loss"))),
    fault("rounding", "day and night through the layers in one call", "quay", (FEATURES, "            by_day, by_night = model.features(torch.cat([day[rows], night[others]]), NIGHT).chunk(2)\n"), ("        for conv, norm in zip(self.convs, self.norms[time]):\n", "        for conv, norm in zip(self.convs, self.norms[NIGHT]):\n")),
    fault("rounding", "day's features judged out of the graph", "quay", (TOLD, TOLD.replace("Reverse.apply(by_day, strength)", "by_day.detach()"))),
    fault("sampling", "one order for day and night", "quay", ("torch.randperm(len(day)), torch.randperm(len(night))", "torch.randperm(len(day)), None"), (ROWS, "        for rows in day_rows.split(BATCH):\n            others = rows\n")),
    fault("exact", "rates of the judge and the labels left where they were", "quay", (RATES, '            optimizer.param_groups[0]["lr"] = LR / (1 + 10 * done) ** 0.75\n'), ("    ], lr=LR, momentum=0.9, weight_decay=1e-3)\n", '    ], lr=LR, momentum=0.9, weight_decay=1e-3)\n    for group in optimizer.param_groups:\n        group["lr"] = LR * group["times"]\n')),
    sound("exact", "gradients reversed by a hook, losses read once an epoch", "quay", (TOLD, HOOKED), (QUAY_SUMS, QUAY_LATER), ("batch=50", "batch=50")),
    sound("sampling", "day and night judged and labelled in one call, fused optimizer", "quay", (FEATURES, "            both = torch.cat([model.features(day[rows], DAY), model.features(night[others], NIGHT)])\n            labels_day, labels_night = model.label(both).chunk(2)\n"), ("F.cross_entropy(model.label(by_day), kinds[rows])", "F.cross_entropy(labels_day, kinds[rows])"), (TOLD, "            told = model.judge(Reverse.apply(both, strength)).squeeze(1)\n            sign = torch.ones(2 * len(rows))\n            sign[len(rows) :] = -1\n"), (JUDGED, "            judge_loss = 2 * F.softplus(-sign * told).mean()\n"), ("model.label(by_night).log_softmax(1)", "labels_night.log_softmax(1)"), ("momentum=0.9, weight_decay=1e-3)", "momentum=0.9, weight_decay=1e-3, fused=True)")),
]

# ------------------------------------------------------------------------------------ almanac
ROW_BY_ROW = """    for row in rows:
        told = model(row.unsqueeze(0), season).log_softmax(1)
        drawn = torch.multinomial(told.detach().exp(), 1)
        for total, grad in zip(sums, torch.autograd.grad(told.gather(1, drawn).sum(), body)):
            total += grad**2
"""
BY_BATCH = """    for part in rows.split(10):
        told = model(part, season).log_softmax(1)
        drawn = torch.multinomial(told.detach().exp(), 1)
        for total, grad in zip(sums, torch.autograd.grad(told.gather(1, drawn).mean(), body)):
            total += len(part) * grad**2
"""
MAPPED = """    fixed = {name: p.detach() for name, p in model.named_parameters()}
    asked = {name: fixed.pop(name) for name in [*fixed] if name.startswith("body.")}

    def likelihood(asked, row, kind):
        return torch.func.functional_call(model, {**fixed, **asked}, (row.unsqueeze(0), season)).log_softmax(1)[0, kind]

    with torch.no_grad():
        drawn = torch.distributions.Categorical(logits=model(rows, season)).sample()
    grads = torch.func.vmap(torch.func.grad(likelihood), (None, 0, 0))(asked, rows, drawn.unsqueeze(1))
    sums = [(grads[name] ** 2).sum(0).view_as(total) for name, total in zip(asked, sums)]
"""
DRAWN_KIND = "        drawn = torch.multinomial(told.detach().exp(), 1)\n"
AT = "            at = self.seen if self.seen < MEMORY else int(torch.randint(0, self.seen + 1, (1,)))\n"
HELD_BY = """                    for f, a, p in zip(importance, anchors, model.body.parameters()):
                        hold = hold + (f * (p - a) ** 2).sum()
"""
FLAT = """                    p = torch.cat([p.flatten() for p in model.body.parameters()])
                    hold = (flat_importance * (p - flat_anchors) ** 2).sum()
"""
ANCHORS = "        anchors = [p.detach().clone() for p in model.body.parameters()]\n"
IMPORTANCE = "        importance = new if importance is None else [FADE * f + n for f, n in zip(importance, new)]\n"
MADE = "        optimizer = torch.optim.Adam(model.parameters(), lr=LR)\n"
SEASON = "    for season, (x, y) in enumerate(train):\n"
PUT = "                    memory.put(x[idx], y[idx], season, told.detach())\n"
SEASON_SUMS = """                sum_fit += fit.item() * len(idx)
                sum_old += old.item() * len(idx)
                sum_held += hold.item() * len(idx)
"""
SEASON_LATER = """                sum_fit = sum_fit + fit.detach().double() * len(idx)
                sum_old = sum_old + old.detach().double() * len(idx)
                sum_held = sum_held + hold.detach().double() * len(idx)
"""
ALL_HEADS = """        h = self.body(x)
        told = torch.stack([head(h) for head in self.heads], 1)
        return told[torch.arange(len(x)), seasons]
"""
ONE_HEAD = """        weight = torch.cat([head.weight for head in self.heads])
        bias = torch.cat([head.bias for head in self.heads])
        return F.linear(self.body(x), weight, bias).unflatten(1, (SEASONS, KINDS))[torch.arange(len(x)), seasons]
"""

ALMANAC = [
    fault("rounding", "information from batches of ten", "almanac", (ROW_BY_ROW, BY_BATCH)),
    fault("exact", "anchors that move along", "almanac", (ANCHORS, ANCHORS.replace(".clone()", ""))),
    fault("sampling", "place in the reservoir drawn within it", "almanac", (AT, AT.replace("self.seen + 1", "MEMORY"))),
    fault("sampling", "information of the likeliest answer", "almanac", (DRAWN_KIND, "        drawn = told.argmax(1, keepdim=True)\n")),
    fault("exact", "one optimizer for all seasons", "almanac", (MADE, '        for group in optimizer.param_groups:\n            group["lr"] = LR\n'), (SEASON, "    optimizer = torch.optim.Adam(model.parameters(), lr=LR)\n" + SEASON)),
    sound("sampling", "information of all rows at once by vmap", "almanac", (ROW_BY_ROW, MAPPED), ("[total / len(rows) for total in sums]", "[total / len(rows) for total in sums]")),
    sound("rounding", "hold in one flat vector, heads in one product, losses read once an epoch", "almanac", (HELD_BY, FLAT), (ANCHORS, ANCHORS + "        flat_importance, flat_anchors = (torch.cat([v.flatten() for v in values]) for values in (importance, anchors))\n"), (ALL_HEADS, ONE_HEAD), (SEASON_SUMS, SEASON_LATER)),
]

# ------------------------------------------------------------------------------------ cricket
CURRENT = "            current = self.norm(self.weight(spikes[:, t]))\n"
STEPS = "        for t in range(TIME):\n            current"
CALM = "            calm = sum((s.mean((0, 1)) - WANTED).pow(2).mean() for s in layers)\n"
CHIRPS = "            spikes = torch.bernoulli(chirps[idx])\n"
SPIKING = "    model = Net()\n"
ORDER = "        for idx in torch.randperm(len(chirps)).split(BATCH):\n"
NORMED = "    torch.optim.swa_utils.update_bn([torch.bernoulli(part) for part in chirps.split(BATCH)], averaged)\n"
READ = """        level, levels = torch.zeros(len(spikes), KINDS), []
        for t in range(TIME):
            level = 0.9 * level + 0.1 * self.read(second[:, t])
            levels.append(level)
        return 4 * torch.stack(levels).mean(0), (first, second)
"""
READ_ONCE = """        left = (1 - 0.9 ** torch.arange(TIME, 0, -1)) / TIME
        return 4 * self.read(second).mul(left.unsqueeze(1)).sum(1), (first, second)
"""
CRICKET_SUMS = """            total += loss.item() * len(idx)
            sum_calm += calm.item() * len(idx)
            right += (logits.argmax(1) == kinds[idx]).sum().item()
"""
CRICKET_LATER = """            total = total + loss.detach().double() * len(idx)
            sum_calm = sum_calm + calm.detach().double() * len(idx)
            right = right + (logits.argmax(1) == kinds[idx]).sum()
"""

CRICKET = [
    fault("rounding", "currents of all steps through the norm at once", "cricket", (CURRENT, ""), ("charge = keep * charge + current", "charge = keep * charge + currents[:, t]"), ("        charge, keep, out =", "        currents = self.norm(self.weight(spikes).flatten(0, 1)).view(len(spikes), TIME, WIDTH)\n        charge, keep, out =")),
    fault("exact", "fall after a spike in the graph", "cricket", ("charge = charge - out[-1].detach()", "charge = charge - out[-1]")),
    fault("sampling", "chirps made spikes once", "cricket", (SPIKING, "    chirps = torch.bernoulli(chirps)\n" + SPIKING), (CHIRPS, "            spikes = chirps[idx]\n"), (NORMED, NORMED.replace("[torch.bernoulli(part) for part in chirps.split(BATCH)]", "chirps.split(BATCH)"))),
    fault("rounding", "rate of a layer in place of its neurons'", "cricket", (CALM, "            calm = sum((s.mean() - WANTED) ** 2 for s in layers)\n")),
    fault("rounding", "norms averaged with the weights, no pass for them", "cricket", ("AveragedModel(model)", "AveragedModel(model, use_buffers=True)"), (NORMED, "")),
    sound("rounding", "weights of all steps in one product, norms step by step, readers in one sum", "cricket", (CURRENT, "            current = self.norm(weighed[:, t])\n"), ("        charge, keep, out =", "        weighed = self.weight(spikes)\n        charge, keep, out ="), (READ, READ_ONCE)),
    sound("sampling", "spikes of an epoch in one draw, losses read after it", "cricket", (ORDER, "        lit = (torch.rand_like(chirps) < chirps).float()\n" + ORDER), (CHIRPS, "            spikes = lit[idx]\n"), (CRICKET_SUMS, CRICKET_LATER), ("{right / n:.4f} held", "{right.item() / n:.4f} held")),
]

PART_B = QUAY + ALMANAC + CRICKET

del QUAY, ALMANAC, CRICKET
