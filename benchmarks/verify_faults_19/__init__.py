"""A nineteenth set of faults: six short scripts in the manner of ordinary users, written without sight of the judge.

Part a: ``lantern``: a variational auto-encoder with KL warm-up and free bits; ``herald``: a tagger with packed sentences and a conditional random field; ``dune``: a
GAN with gradient penalty and averaged generator. Part b: ``shell``: metric learning with hardest triplets and a memory bank; ``buoy``: detection with focal loss and
box regression; ``canal``: a forecaster with scheduled sampling, trained in two sittings.
``CASES.claimed`` says of each case what its author would say it is (exact, rounding, sampling): of a sound one that is so, of a fault it is not.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Claims

CASES = Claims(Path(__file__).parent / "scripts")
fault, sound = CASES.wrong, CASES.right


# ------------------------------------------------------------------------------------ lantern
BETA = "            beta = min(1.0, step / WARM)\n"
PASS = "        sum_loss, sum_recon, sum_kl = 0.0, 0.0, 0.0\n"
LIT = "            x = torch.bernoulli(train[idx])\n"
HELD_LIT = "    held, test = torch.bernoulli(held), torch.bernoulli(test)\n"
WEIGHTS = """        weights = []
        for _ in range(SAMPLES):
            noise = torch.randn_like(std)
            z = mean + std * noise
            weights.append(-surprise(model.decode(z), part) - 0.5 * (z**2 - noise**2 - logvar).sum(1))
        total += (torch.stack(weights).logsumexp(0) - math.log(SAMPLES)).sum().item()
"""
BY_FOURS = """        few, bounds = SAMPLES // 4, []
        for _ in range(4):
            noise = torch.randn(few, *std.shape)
            z = mean + std * noise
            weights = -surprise(model.decode(z.flatten(0, 1)), part.repeat(few, 1, 1, 1)).view(few, -1) - 0.5 * (z**2 - noise**2 - logvar).sum(2)
            bounds.append(weights.logsumexp(0) - math.log(few))
        total += torch.stack(bounds).mean(0).sum().item()
"""
ALL_SAMPLES = """        noise = torch.randn(SAMPLES, *std.shape)
        z = mean + std * noise
        weights = -surprise(model.decode(z.flatten(0, 1)), part.repeat(SAMPLES, 1, 1, 1)).view(SAMPLES, -1) - 0.5 * (z**2 - noise**2 - logvar).sum(2)
        total += (weights.logsumexp(0) - math.log(SAMPLES)).sum().item()
"""

LANTERN = [
    fault("exact", "KL weight of the epoch's first step", "lantern", (BETA, ""), (PASS, PASS + BETA[4:])),
    fault("rounding", "free bits picture by picture", "lantern", ("kl.mean(0).clamp(min=FREE).sum()", "kl.clamp(min=FREE).sum(1).mean()")),
    fault("sampling", "pictures lit once", "lantern", (HELD_LIT, "    train, held, test = torch.bernoulli(train), torch.bernoulli(held), torch.bernoulli(test)\n"), (LIT, "            x = train[idx]\n")),
    fault("rounding", "bound of four samples, four times", "lantern", (WEIGHTS, BY_FOURS)),
    fault("exact", "best weights by the objective in force", "lantern", ("        score = recon + kl\n", "        score = recon + beta * kl\n")),
    sound("rounding", "all samples of the bound in one call, judged in one batch", "lantern", (WEIGHTS, ALL_SAMPLES), ("def evaluate(model, x, batch=50)", "def evaluate(model, x, batch=200)")),
    sound("sampling", "lit for a whole pass at once, losses read once an epoch", "lantern", (PASS, PASS + "        lit = torch.bernoulli(train)\n"), (LIT, "            x = lit[idx]\n"), ("            sum_loss += loss.item() * len(idx)\n            sum_recon += recon.sum().item()\n            sum_kl += kl.sum().item()\n", "            sum_loss = sum_loss + loss.detach().double() * len(idx)\n            sum_recon = sum_recon + recon.detach().sum().double()\n            sum_kl = sum_kl + kl.detach().sum().double()\n")),
]

# ------------------------------------------------------------------------------------ herald
PACKED = "        packed = pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)\n"
ALPHA = "            new = torch.logsumexp(alpha.unsqueeze(2) + self.trans, 1) + emit[:, t]\n"
BY_PRODUCT = "            top = alpha.amax(1, keepdim=True)\n            new = ((alpha - top).exp() @ table).log() + top + emit[:, t]\n"
FIRST = "        alpha = self.start + emit[:, 0]\n"
LOCKED = "        if not self.training:\n            return x\n        mask = torch.bernoulli(torch.full((x.size(0), 1, x.size(2)), 1 - self.p)) / (1 - self.p)\n        return x * mask\n"
GOLD = """        score = self.start[tags[:, 0]] + emit[:, 0].gather(1, tags[:, :1]).squeeze(1)
        for t in range(1, tags.size(1)):
            more = self.trans[tags[:, t - 1], tags[:, t]] + emit[:, t].gather(1, tags[:, t : t + 1]).squeeze(1)
            score = score + more * there[:, t]
"""
GATHERED = """        own = emit.gather(2, tags.unsqueeze(2)).squeeze(2)
        score = self.start[tags[:, 0]] + (own * there).sum(1) + (self.trans[tags[:, :-1], tags[:, 1:]] * there[:, 1:]).sum(1)
"""
COLLATE = """def collate(texts, tags, idx):
    words = [torch.tensor(texts[i]) for i in idx]
    marks = [torch.tensor(tags[i]) for i in idx]
    return pad_sequence(words, True, PAD), pad_sequence(marks, True, 0), torch.tensor([len(w) for w in words])
"""
PADDED = """def padded(texts, tags):
    words, marks = [torch.tensor(w) for w in texts], [torch.tensor(m) for m in tags]
    return pad_sequence(words, True, PAD), pad_sequence(marks, True, 0), torch.tensor([len(w) for w in words])


def collate(words, marks, lengths, idx):
    n = lengths[idx]
    top = int(n.max())
    return words[idx, :top], marks[idx, :top], n
"""
ROLLS = "    train, dev, test = make_sentences(320, 1), make_sentences(100, 2), make_sentences(150, 3)\n"

HERALD = [
    fault("rounding", "packed in training only", "herald", (PACKED, "        if not self.training:\n            return self.out(self.lstm(x)[0])\n" + PACKED)),
    fault("exact", "partition run on to the padded end", "herald", (ALPHA + "            alpha = torch.where(there[:, t, None], new, alpha)\n", ALPHA.replace("new", "alpha", 1))),
    fault("exact", "plateau told the loss", "herald", ("plateau.step(f1)", "plateau.step(dev_loss)")),
    fault("sampling", "held mask by dropout1d, axes not turned", "herald", (LOCKED, "        return nn.functional.dropout1d(x, self.p, self.training)\n")),
    fault("rounding", "partition by products with a table out of the graph", "herald", (FIRST, "        table = self.trans.detach().exp()\n" + FIRST), (ALPHA, BY_PRODUCT)),
    sound("rounding", "partition by products, gold score gathered, judged in large batches", "herald", (FIRST, "        table = self.trans.exp()\n" + FIRST), (ALPHA, BY_PRODUCT), (GOLD, GATHERED), ("def evaluate(model, data, batch=25)", "def evaluate(model, data, batch=75)")),
    sound("exact", "rolls padded once, losses read once an epoch", "herald", (COLLATE, PADDED), (ROLLS, "    train, dev, test = (padded(*make_sentences(n, seed)) for n, seed in ((320, 1), (100, 2), (150, 3)))\n"), ("collate(*train, idx.tolist())", "collate(*train, idx)"), ("collate(*data, idx.tolist())", "collate(*data, idx)"), ("            total += loss.item() * len(idx)\n", "            total = total + loss.detach().double() * len(idx)\n")),
]

# ------------------------------------------------------------------------------------ dune
DRAWN = "            idx = torch.randint(0, len(x), (BATCH,))\n            real, kind = x[idx], kinds[idx]\n            fake = generator(torch.randn(BATCH, NOISE), kind).detach()\n"
CRITIC_LOOP = "        for _ in range(CRITIC):\n"
GAP = "            gap = critic(fake, kind).mean() - critic(real, kind).mean()\n"
CLEARED = "            opt_c.zero_grad()\n            (gap + PENALTY * slope).backward()\n            opt_c.step()\n"
AVERAGED = "    for a, p in zip(average.parameters(), generator.parameters()):\n        a.lerp_(p, 1 - DECAY)\n    for a, b in zip(average.buffers(), generator.buffers()):\n        a.copy_(b)\n"
BY_LISTS = "    torch._foreach_lerp_([*average.parameters()], [*generator.parameters()], 1 - DECAY)\n"
SLICED = """    sliced = 0.0
    for _ in range(directions):
        way = torch.randn(POINTS, generator=g)
        way = way / way.norm()
        a, b = (x @ way).sort()[0], (fake @ way).sort()[0]
        sliced += (a - b).abs().mean().item()
"""
IN_ONE = """    ways = torch.randn(directions, POINTS, generator=g)
    ways = (ways / ways.norm(dim=1, keepdim=True)).T
    sliced = ((x @ ways).sort(0)[0] - (fake @ ways).sort(0)[0]).abs().mean(0).sum().item()
"""
MOVE = "        loss = -critic(generator(torch.randn(BATCH, NOISE), kind), kind).mean()\n"

DUNE = [
    fault("exact", "penalty without its second graph", "dune", ("create_graph=True", "retain_graph=True")),
    fault("sampling", "one batch for the critic's three steps", "dune", (CRITIC_LOOP + DRAWN, "".join(line[4:] for line in DRAWN.splitlines(True)) + CRITIC_LOOP)),
    fault("rounding", "real and made judged in one call", "dune", (GAP, "            made, true = critic(torch.cat([fake, real]), kind.repeat(2)).chunk(2)\n            gap = made.mean() - true.mean()\n")),
    fault("rounding", "average by lists, buffers forgotten", "dune", (AVERAGED, BY_LISTS)),
    fault("exact", "critic's gradients cleared after its step", "dune", (CLEARED, "".join(CLEARED.splitlines(True)[i] for i in (1, 2, 0)))),
    sound("exact", "critic frozen in the generator's step, losses read when printed", "dune", (MOVE, "        critic.requires_grad_(False)\n" + MOVE), ("        opt_g.step()\n", "        opt_g.step()\n        critic.requires_grad_(True)\n"), (DRAWN, DRAWN.replace("            fake = generator(torch.randn(BATCH, NOISE), kind).detach()\n", "            with torch.no_grad():\n                fake = generator(torch.randn(BATCH, NOISE), kind)\n")), ('            sums["critic"] += gap.item()\n            sums["penalty"] += slope.item()\n', '            sums["critic"] = sums["critic"] + gap.detach().double()\n            sums["penalty"] = sums["penalty"] + slope.detach().double()\n'), ('        sums["generator"] += loss.item()\n', '        sums["generator"] = sums["generator"] + loss.detach().double()\n')),
    sound("rounding", "average by lists, all directions in one product", "dune", (AVERAGED, BY_LISTS + "    torch._foreach_copy_([*average.buffers()], [*generator.buffers()])\n"), (SLICED, IN_ONE), ("kind.split(100)", "(kind,)")),
]

PART_A = LANTERN + HERALD + DUNE

del LANTERN, HERALD, DUNE  # a set's lists are its parts

# ------------------------------------------------------------------------------------ shell
NEAR = "    near = d.masked_fill(same, 9.0).amin(1)\n    if others is not None:\n        d = distances(emb, others)\n        barred = (labels.unsqueeze(1) == other_labels.unsqueeze(0)) | (other_labels < 0).unsqueeze(0)\n        near = torch.minimum(near, d.masked_fill(barred, 9.0).amin(1))\n"
ONE_TABLE = """    if others is not None:
        emb_to, labels_to = others, other_labels
    else:
        emb_to, labels_to = emb, labels
    d = distances(emb, emb_to)
    same = labels.unsqueeze(1) == labels_to.unsqueeze(0)
    far = d.masked_fill(~same, -1.0).amax(1)
    near = d.masked_fill(same | (labels_to < 0), 9.0).amin(1)
"""
OWN_TABLE = "    d = distances(emb, emb)\n    same = labels.unsqueeze(1) == labels.unsqueeze(0)\n    far = d.masked_fill(~same, -1.0).amax(1)\n"
PUT = "        bank.put(emb, labels[idx])\n"
EMBEDDED = "        emb = model(outline)\n"
ACTIVE = "        loss = losses.sum() / alive\n"
RANKED = """    recall, precision = 0.0, 0.0
    for i in range(len(x)):
        order = d[i].argsort()
        good = (labels[order] == labels[i]).float()
        r = int((labels == labels[i]).sum()) - 1
        recall += good[0].item()
        rank = torch.arange(1, r + 1)
        precision += ((good[:r].cumsum(0) / rank) * good[:r]).sum().item() / r
    return recall / len(x), precision / len(x)
"""
ONE_R = """    r = len(x) // int(labels.max() + 1) - 1
    good = (labels[d.argsort(1)[:, :r]] == labels.unsqueeze(1)).float()
    precision = (good.cumsum(1) / torch.arange(1, r + 1) * good).sum(1) / r
    return good[:, 0].mean().item(), precision.mean().item()
"""
OWN_R = """    r = (labels.bincount()[labels] - 1).unsqueeze(1)
    rank = torch.arange(1, int(r.max()) + 1)
    good = (labels[d.argsort(1)[:, : len(rank)]] == labels.unsqueeze(1)) & (rank <= r)
    precision = ((good.cumsum(1) / rank * good).sum(1) / r.squeeze(1)).double().mean().item()
    return good[:, 0].double().mean().item(), precision
"""
APART = "    return (a.unsqueeze(1) - b.unsqueeze(0)).pow(2).sum(2).clamp(min=1e-8).sqrt()\n"
OWN_ROWS = "        own = (labels == kind).nonzero().squeeze(1)\n"

SHELL = [
    fault("rounding", "one table of distances, to the bank with the batch in it", "shell", (OWN_TABLE + NEAR, ONE_TABLE), (PUT, ""), (EMBEDDED, EMBEDDED + PUT)),
    fault("sampling", "shells of a kind drawn with repeats", "shell", ("own[torch.randperm(len(own))[:K]]", "own[torch.randint(len(own), (K,))]")),
    fault("rounding", "idle triplets in the mean", "shell", (ACTIVE, "        loss = losses.mean()\n")),
    fault("rounding", "precision ranked in one go, to one R for all", "shell", (RANKED, ONE_R)),
    fault("exact", "nearest found and read out of the graph", "shell", (NEAR, "    with torch.no_grad():\n" + "".join("    " + line for line in NEAR.splitlines(True)))),
    sound("rounding", "distances by a product, precision ranked in one go", "shell", (APART, "    return (2 - 2 * a @ b.T).clamp(min=1e-8).sqrt()\n"), (RANKED, OWN_R)),
    sound("exact", "rows of each kind found once, losses read when printed", "shell", (OWN_ROWS, "        own = where[kind]\n"), ("def draw_batch(labels):\n", "def draw_batch(where):\n"), ("draw_batch(labels)\n", "draw_batch(where)\n"), ("    model, bank = Embedder(), Bank()\n", "    where = [(labels == kind).nonzero().squeeze(1) for kind in range(SEEN)]\n    model, bank = Embedder(), Bank()\n"), ("        total += loss.item()\n        active += alive.item() / len(idx)\n", "        total = total + loss.detach().double()\n        active = active + alive.double() / len(idx)\n"), ("@torch.no_grad()\n", "@torch.inference_mode()\n")),
]

# ------------------------------------------------------------------------------------ buoy
SUMMED = "    return (alpha * (1 - right) ** GAMMA * ce * asked).sum()\n"
PER_COUNT = "    return focal(logits, kind) / count, boxes.sum() / count\n"
ASKED = "    asked = (kind >= 0).unsqueeze(1)\n"
TRUTH = "F.one_hot(kind.clamp(min=0), KINDS + 1)"
MADE = "    model = Detector()\n"
TARGETS = """                picture, own = x[i], boxes[i]
                if torch.rand(1) < 0.5:
                    picture, own = mirrored(picture, own)
                k, s = make_targets(own, kinds[i])
"""
CACHED = """                picture, (k, s) = x[i], targets[i]
                if torch.rand(1) < 0.5:
                    picture, k, s = picture.flip(-1), k.flip(-1), s.flip(-1)
"""
MADE_ONCE = "    targets = [make_targets(b, k) for b, k in zip(boxes, kinds)]\n"
BOTH_ONCE = """    straight = [(p, *make_targets(b, k)) for p, b, k in zip(x, boxes, kinds)]
    turned = [(p, *make_targets(b, k)) for (p, b), k in zip(map(mirrored, x, boxes), kinds)]
"""
BOTH = "                picture, k, s = (turned if torch.rand(1) < 0.5 else straight)[i]\n"
PER_KIND = """            row = []
            for k in range(KINDS):
                likely = scores[k] > floor
                b, s = own[likely], scores[k][likely]
                keep = suppress(b, s)
                row.append((b[keep], s[keep]))
            found.append(row)
"""
ACROSS = """            k, cell = (scores > floor).nonzero(as_tuple=True)
            b, s = own[cell], scores[k, cell]
            keep = torch.tensor(suppress(b, s), dtype=torch.long)
            k, b, s = k[keep], b[keep], s[keep]
            found.append([(b[k == j], s[k == j]) for j in range(KINDS)])
"""
SUPPRESS = """    order, keep = scores.argsort(descending=True), []
    while len(order):
        first, order = order[0], order[1:]
        keep.append(first.item())
        if len(order):
            order = order[iou(boxes[first][None], boxes[order])[0] <= over]
    return keep
"""
BY_TABLE = """    clash, gone, keep = (iou(boxes, boxes) > over).tolist(), set(), []
    for i in scores.argsort(descending=True).tolist():
        if i not in gone:
            keep.append(i)
            gone.update(j for j, c in enumerate(clash[i]) if c)
    return keep
"""

BUOY = [
    fault("rounding", "each picture's focal loss by its own count", "buoy", (SUMMED, SUMMED.replace(".sum()", ".flatten(1).sum(1)")), (PER_COUNT, "    return (focal(logits, kind) / there.flatten(1).sum(1).clamp(min=1)).mean(), boxes.sum() / count\n")),
    fault("exact", "targets made once, mirrored without their sides", "buoy", (MADE, MADE_ONCE + MADE), (TARGETS, CACHED)),
    fault("rounding", "focal weight out of the graph", "buoy", (SUMMED, "    with torch.no_grad():\n        weight = alpha * (1 - right) ** GAMMA * asked\n    return (weight * ce).sum()\n")),
    fault("exact", "suppressed over all kinds at once", "buoy", (PER_KIND, ACROSS)),
    fault("exact", "cells beside a buoy asked after all", "buoy", (ASKED, ""), (TRUTH, "F.one_hot(torch.where(kind < 0, KINDS, kind), KINDS + 1)"), (SUMMED, SUMMED.replace(" * asked", ""))),
    sound("exact", "targets made once, as they are and mirrored", "buoy", (MADE, BOTH_ONCE + MADE), (TARGETS, BOTH)),
    sound("rounding", "suppression from one table, judged in one batch, losses read once an epoch", "buoy", (SUPPRESS, BY_TABLE), ("x.split(20)", "x.split(60)"), ("            sum_kind += by_kind.item()\n            sum_box += by_box.item()\n", "            sum_kind = sum_kind + by_kind.detach().double()\n            sum_box = sum_box + by_box.detach().double()\n")),
]

# ------------------------------------------------------------------------------------ canal
WINDOWS = """    past, future, canal, scale = [], [], [], []
    for c, row in enumerate(levels):
        for stop in range(max(begin, PAST + AHEAD), end):
            window = row[stop - PAST - AHEAD : stop].clone()
            spread = window[:PAST].std()
            window -= window[PAST - 1].clone()
            window /= spread
            past.append(window[:PAST])
            future.append(window[PAST:])
            canal.append(c)
            scale.append(spread)
    return torch.stack(past), torch.stack(future), torch.tensor(canal), torch.stack(scale)
"""
UNFOLDED = """    stops = torch.arange(max(begin, PAST + AHEAD), end)
    windows = levels.unfold(1, PAST + AHEAD, 1)[:, stops - PAST - AHEAD].flatten(0, 1)
    spread = windows[:, :PAST].std(1)
    windows = (windows - windows[:, PAST - 1 : PAST]) / spread.unsqueeze(1)
    return windows[:, :PAST], windows[:, PAST:], torch.arange(CANALS).repeat_interleave(len(stops)), spread
"""
STEP_BY_STEP = "        fed, told = past[:, -1:], []\n"
TWO_PASSES = """        if future is not None:
            weights, first = [*self.cell.parameters()], past[:, -1:]

            def run(fed):
                return self.out(self.drop(torch.gru(fed.unsqueeze(2), h.unsqueeze(0), weights, True, 1, 0.0, self.training, False, True)[0]))

            with torch.no_grad():
                guess = run(torch.cat([first, future[:, :-1]], 1))[:, :-1, 1]
            coin = torch.rand(guess.shape) < truth
            return run(torch.cat([first, torch.where(coin, future[:, :-1], guess)], 1))
"""
LOADED = '        optimizer.load_state_dict(state["optimizer"])\n'
READ_LOSS = "            total += loss.item() * len(idx)\n"
COIN = "                coin = torch.rand(len(past), 1) < truth\n                fed = torch.where(coin, future"
MASE = "(errors / windows[2].bincount() / naive).mean().item()"

CANAL = [
    fault("exact", "guesses fed back with their gradient", "canal", ("fed = told[-1][:, 1:2].detach()", "fed = told[-1][:, 1:2]")),
    fault("sampling", "guesses of a first pass for those of the steps before", "canal", (STEP_BY_STEP, TWO_PASSES + STEP_BY_STEP)),
    fault("exact", "file without the optimizer's state", "canal", (LOADED, ""), ('"optimizer": optimizer.state_dict(), ', "")),
    fault("exact", "windows scaled where they lie", "canal", ("window = row[stop - PAST - AHEAD : stop].clone()", "window = row[stop - PAST - AHEAD : stop]")),
    fault("rounding", "one scale of error for all canals", "canal", (MASE, "(errors.sum() / n / naive.mean()).item()")),
    sound("sampling", "coins of all steps in one draw, losses read once an epoch", "canal", (STEP_BY_STEP, STEP_BY_STEP + "        coins = None if future is None else torch.rand(AHEAD, len(past), 1) < truth\n"), (COIN, "                fed = torch.where(coins[k], future"), (READ_LOSS, "            total = total + loss.detach().double() * len(idx)\n")),
    sound("rounding", "windows unfolded, judged in one batch, fused optimizer", "canal", (WINDOWS, UNFOLDED), ("def evaluate(model, windows, naive, batch=60)", "def evaluate(model, windows, naive, batch=400)"), ("torch.optim.Adam(model.parameters(), lr=LR)", "torch.optim.Adam(model.parameters(), lr=LR, fused=True)")),
]

PART_B = SHELL + BUOY + CANAL

del SHELL, BUOY, CANAL
