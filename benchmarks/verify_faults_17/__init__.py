"""A seventeenth set of faults, not blind: whoever had mended the judge that day thought of what no set before holds, mostly of what is drawn otherwise.

Four short scripts: ``cellar``: a variational autoencoder on rows in memory; ``stall``: pictures shifted, noised and erased one by one, mixed, with an
average of the weights; ``weir``: deep Q-learning with a store; ``letters``: two recurrent members on windows drawn anywhere.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

CASES = Cases(Path(__file__).parent / "scripts")

ORD = "        order = torch.randperm(ROWS)\n"
PIX = "            x = torch.roll(x, (dy, dx), (1, 2))\n            x = x + 0.1 * torch.randn_like(x)\n"
GET = "        x = self.x[i].float() / 255\n"
DRAWN = [
    CASES.fault("batches drawn once, in new order in each epoch", "cellar", ("    for epoch in range(EPOCHS):\n        model.train()\n", "    fixed = torch.randperm(ROWS).view(-1, BATCH)\n    for epoch in range(EPOCHS):\n        model.train()\n"), (ORD, "        order = fixed[torch.randperm(ROWS // BATCH)].flatten()\n")),
    CASES.fault("one order, begun anywhere", "cellar", ("    for epoch in range(EPOCHS):\n        model.train()\n", "    fixed = torch.randperm(ROWS)\n    for epoch in range(EPOCHS):\n        model.train()\n"), (ORD, "        order = fixed.roll(int(torch.randint(ROWS, ())))\n")),
    CASES.fault("an order for every two epochs", "cellar", (ORD, "        if epoch % 2 == 0:\n            order = torch.randperm(ROWS)\n")),
    CASES.fault("one order, turned round in each second epoch", "cellar", ("    for epoch in range(EPOCHS):\n        model.train()\n", "    fixed = torch.randperm(ROWS)\n    for epoch in range(EPOCHS):\n        model.train()\n"), (ORD, "        order = fixed if epoch % 2 else fixed.flip(0)\n")),
    CASES.fault("rows mixed among 64 neighbours only", "cellar", (ORD, "        order = (torch.rand(ROWS // 64, 64).argsort(1) + 64 * torch.arange(ROWS // 64)[:, None]).flatten()\n")),
    CASES.fault("one order of the rows", "cellar", ("    for epoch in range(EPOCHS):\n        model.train()\n", "    order = torch.randperm(ROWS)\n    for epoch in range(EPOCHS):\n        model.train()\n"), (ORD, "")),
    CASES.fault("one noise for both parts", "cellar", ("        e2 = torch.randn_like(m2)\n", "        e2 = e1\n")),
    CASES.fault("noise of the code uniform", "cellar", ("        e1 = torch.randn_like(m1)\n        e2 = torch.randn_like(m2)\n", "        e1, e2 = ((torch.rand(2, *m1.shape) - 0.5) * 12**0.5)\n")),
    CASES.fault("noise of the rows drawn once for each row", "cellar", ("    for epoch in range(EPOCHS):\n        model.train()\n", "    shake = 0.1 * torch.randn(ROWS, DIM)\n    for epoch in range(EPOCHS):\n        model.train()\n"), ("0.1 * torch.randn_like(x)\n", "shake[order[i : i + BATCH]]\n")),
    CASES.fault("noise of the rows uniform", "cellar", ("0.1 * torch.randn_like(x)\n", "0.1 * 12**0.5 * (torch.rand_like(x) - 0.5)\n")),
    CASES.fault("noise of the rows mirrored by halves", "cellar", ("noise = 0.1 * torch.randn_like(x)\n", "noise = 0.1 * torch.randn(BATCH // 2, DIM)\n            noise = torch.cat([noise, -noise])\n")),
    CASES.fault("weights drawn normal in place of orthogonal", "cellar", ("        nn.init.orthogonal_(self.dec[0].weight)\n", "        nn.init.normal_(self.dec[0].weight, std=32**-0.5)\n")),
    CASES.fault("weights drawn uniform in place of normal", "cellar", ("nn.init.normal_(self.dec[2].weight, std=0.1)", "nn.init.uniform_(self.dec[2].weight, -0.1 * 3**0.5, 0.1 * 3**0.5)")),
    CASES.fault("mean of the code at evaluation", "cellar", ("        e1 = torch.randn_like(m1)\n        e2 = torch.randn_like(m2)\n", "        e1, e2 = torch.randn(2, *m1.shape) * float(self.training)\n")),
    CASES.fault("pictures scaled by 256, noise beside", "stall", (GET, "        x = self.x[i].float() / 256\n"), (PIX, PIX.replace("torch.randn_like(x)", "torch.empty_like(x).normal_()"))),
    CASES.fault("shift one short", "stall", ("torch.randint(-2, 3, (2,))", "torch.randint(-2, 2, (2,))")),
    CASES.fault("noise uniform", "stall", ("0.1 * torch.randn_like(x)", "0.1 * 12**0.5 * (torch.rand_like(x) - 0.5)")),
    CASES.fault("noise one number for both colours", "stall", ("0.1 * torch.randn_like(x)", "0.1 * torch.randn(1, SIZE, SIZE)")),
    CASES.fault("erased squares only", "stall", ("                w = int(torch.randint(2, 6, ()))\n", "                w = h\n")),
    CASES.fault("erased with the mean", "stall", ("r : r + h, c : c + w] = 0.0", "r : r + h, c : c + w] = x.mean() + 0 * torch.rand(1)")),
    CASES.fault("shares not turned to the larger", "stall", ("            lam = max(lam, 1 - lam)\n", "            lam = lam if torch.rand(()) < 2 else 0\n")),
    CASES.fault("shares drawn even", "stall", ("torch.distributions.Beta(0.4, 0.4)", "torch.distributions.Uniform(0.0, 1.0)")),
    CASES.fault("one coin a batch for the branch", "stall", ("torch.rand(len(h), 1, 1, 1) < 0.9", "torch.rand(1, 1, 1, 1) < 0.9")),
    CASES.fault("branch kept by number, the same share in each batch", "stall", ("keep = (torch.rand(len(h), 1, 1, 1) < 0.9).float()", "keep = (torch.rand(len(h)).argsort() < 0.9 * len(h)).float().view(-1, 1, 1, 1)")),
    CASES.fault("stops by what is right, drawn ahead", "stall", ("        if val < best:\n            best, bad = val, 0\n", "        if -acc < best:\n            best, bad = -acc, 0\n"), ("            perm = torch.randperm(len(x))\n", "            perm = torch.rand(len(x)).argsort()\n")),
    CASES.fault("average follows every second step, drawn otherwise", "stall", ("            d = min(0.95, (1 + step) / (10 + step))\n            with torch.no_grad():\n", "            d = min(0.95, (1 + step) / (10 + step)) ** 2\n            with torch.no_grad():\n                if step % 2:\n                    continue\n"), ("            perm = torch.randperm(len(x))\n", "            perm = torch.rand(len(x)).argsort()\n            seen += len(x)\n"), ("            total += loss.item() * len(x)\n            seen += len(x)\n", ""), ("            loss.backward()\n", "            loss.backward()\n            total += loss.item() * len(x)\n")),
    CASES.fault("average saved rounded to 16 bits", "stall", ('{"model": slow.state_dict()', '{"model": {k: v.bfloat16().float() if v.is_floating_point() else v for k, v in slow.state_dict().items()}')),
    CASES.fault("average saved rounded to 16 bits, drawn otherwise", "stall", ('{"model": slow.state_dict()', '{"model": {k: v.bfloat16().float() if v.is_floating_point() else v for k, v in slow.state_dict().items()}'), ("            perm = torch.randperm(len(x))\n", "            perm = torch.rand(len(x)).argsort()\n")),
    CASES.fault("partners drawn with replacement", "stall", ("perm = torch.randperm(len(x))", "perm = torch.randint(0, len(x), (len(x),))")),
    CASES.fault("last batch left out of the mean, drawn otherwise", "stall", ("            total += loss.item() * len(x)\n            seen += len(x)\n", "            if len(x) == 32:\n                total += loss.item() * len(x)\n                seen += len(x)\n"), ("            perm = torch.randperm(len(x))\n", "            perm = torch.rand(len(x)).argsort()\n")),
    CASES.fault("rate falls by the batch with milestones nine times as far", "stall", ("[3, 5], 0.3", "[27, 45], 0.3"), ("        sched.step()\n", ""), ("            step += 1\n", "            step += 1\n            sched.step()\n")),
    CASES.fault("judged without the last, drawn otherwise", "stall", ("Stall(100, 1, False)", "torch.utils.data.Subset(Stall(100, 1, False), range(96))"), ("            perm = torch.randperm(len(x))\n", "            perm = torch.rand(len(x)).argsort()\n")),
    CASES.fault("one coin for all boats", "weir", ("coin = torch.rand(BOATS) < eps", "coin = (torch.rand(1) < eps).expand(BOATS)")),
    CASES.fault("one wandering order for all boats", "weir", ("torch.randint(0, 2, (BOATS,))", "torch.randint(0, 2, (1,)).expand(BOATS)")),
    CASES.fault("a stretch of the store in place of rows", "weir", ("idx = torch.randint(0, full, (BATCH,))", "idx = (torch.randint(0, full, (1,)) + torch.arange(BATCH)) % full")),
    CASES.fault("the newest never drawn", "weir", ("torch.randint(0, full, (BATCH,))", "torch.randint(0, max(1, full - 64), (BATCH,))")),
    CASES.fault("the newest drawn more often", "weir", ("torch.randint(0, full, (BATCH,))", "(full * torch.rand(BATCH).sqrt()).long()")),
    CASES.fault("chosen by the slow net, drawn otherwise", "weir", ("nxt = q(s2)", "nxt = slow(s2)"), ("idx = torch.randint(0, full, (BATCH,))", "idx = (torch.rand(BATCH) * full).long()")),
    CASES.fault("acts by the slow net, coins ahead", "weir", ("act = q(obs).argmax(1)", "act = slow(obs).argmax(1)"), ("coin = torch.rand(BOATS) < eps", "coin = torch.rand(2, BOATS)[0] < eps")),
    CASES.fault("slips less often", "weir", ("slip = torch.rand(self.n) < 0.1", "slip = torch.rand(self.n) < 0.08")),
    CASES.fault("windows one after the other", "letters", ("        at = torch.randint(0, len(train) - LONG - 1, (BATCH,))\n", "        at = torch.randint(0, len(train) - LONG * BATCH - 1, (1,)) + LONG * torch.arange(BATCH)\n")),
    CASES.fault("windows begin at whole windows", "letters", ("torch.randint(0, len(train) - LONG - 1, (BATCH,))", "torch.randint(0, len(train) // LONG - 1, (BATCH,)) * LONG")),
    CASES.fault("hidden in the first place never", "letters", ("hide = torch.rand(x.shape) < 0.1", "hide = torch.nn.functional.pad(torch.rand(x.shape[0], LONG - 1) < 0.1, (1, 0))")),
    CASES.fault("whole columns hidden", "letters", ("torch.rand(x.shape) < 0.1", "(torch.rand(1, LONG) < 0.1).expand_as(x)")),
    CASES.fault("hidden by a number, two in each", "letters", ("torch.rand(x.shape) < 0.1", "torch.rand(x.shape).argsort(1) < 2.4")),
    CASES.fault("members alike at the start", "letters", ("nn.ModuleList(Member() for _ in range(2))", "nn.ModuleList([Member(), Member()])\n    members[1].load_state_dict(members[0].state_dict())")),
    CASES.fault("judged by the mean of the scores, drawn otherwise", "letters", ("chance = sum(m(x)[0].softmax(1) for m in members) / 2", "chance = (sum(m(x)[0] for m in members) / 2).softmax(1)"), ("hide = torch.rand(x.shape) < 0.1", "hide = torch.empty(x.shape).bernoulli_(0.1).bool()")),
    CASES.fault("judged by halves, drawn otherwise", "letters", ("x, y = test[:-1].view(1, -1), test[1:]", "x, y = test[:1000].view(2, -1), test[1:1001]"), ("m(x)[0].softmax(1)", "m(x).flatten(0, 1).softmax(1)"), ("hide = torch.rand(x.shape) < 0.1", "hide = torch.empty(x.shape).bernoulli_(0.1).bool()")),
    CASES.sound("order by random keys", "cellar", (ORD, "        order = torch.rand(ROWS).argsort()\n")),
    CASES.sound("noise of an epoch at once", "cellar", ("            noise = 0.1 * torch.randn_like(x)\n", "            noise = shake[i : i + BATCH]\n"), (ORD, ORD + "        shake = 0.1 * torch.randn(ROWS, DIM)\n")),
    CASES.sound("rows gathered once an epoch, sorted within batches", "cellar", (ORD, "        order = torch.randperm(ROWS).view(-1, BATCH).sort(1)[0].flatten()\n")),
    CASES.sound("both noises in one draw", "cellar", ("        e1 = torch.randn_like(m1)\n        e2 = torch.randn_like(m2)\n", "        e1, e2 = torch.randn(2, *m1.shape)\n")),
    CASES.sound("draws of a picture in one call", "stall", ("            dy, dx = torch.randint(-2, 3, (2,)).tolist()\n", "            dy, dx = ((torch.rand(2) * 5).long() - 2).tolist()\n")),
    CASES.sound("partners by random keys", "stall", ("perm = torch.randperm(len(x))", "perm = torch.rand(len(x)).argsort()")),
    CASES.sound("shares drawn ahead for an epoch", "stall", ("            lam = float(beta.sample())\n", "            lam = float(shares[int(seen) // 32])\n"), ("        total = seen = 0.0\n        for x, y in loader", "        total = seen = 0.0\n        shares = beta.sample((len(loader),))\n        for x, y in loader")),
    CASES.sound("rows of the store by floats", "weir", ("idx = torch.randint(0, full, (BATCH,))", "idx = (torch.rand(BATCH) * full).long()")),
    CASES.sound("coins and orders in one draw", "weir", ("        coin = torch.rand(BOATS) < eps\n        act = torch.where(coin, torch.randint(0, 2, (BOATS,)), act)\n", "        coin, way = torch.rand(2, BOATS)\n        act = torch.where(coin < eps, (way < 0.5).long(), act)\n")),
    CASES.sound("hidden by bernoulli", "letters", ("hide = torch.rand(x.shape) < 0.1", "hide = torch.empty(x.shape).bernoulli_(0.1).bool()")),
    CASES.sound("members at once, each its own mask", "letters", ("        loss = sum(F.cross_entropy(m(x).flatten(0, 1), y.flatten()) for m in members)\n", "        masks = (torch.rand(2, BATCH, LONG, 16) < 0.7) / 0.7\n        loss = sum(F.cross_entropy(m.out(m.rnn(m.emb(x) * mask)[0]).flatten(0, 1), y.flatten()) for m, mask in zip(members, masks))\n")),
    CASES.sound("losses read at the reports, fused", "letters", ("weight_decay=0.01)", "weight_decay=0.01, fused=True)"), ("        total += loss.item()\n", "        total = total + loss.detach()\n")),
]
