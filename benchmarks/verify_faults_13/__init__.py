"""A thirteenth set of faults: three short scripts of kinds that no set before has, each with eight faults and four sound rewrites, run once.

``wordlist``: skip-grams with negatives and sparse gradients; ``armour``: training against an attacker, each step from the sharpest point nearby;
``discreet``: gradients of single records, clipped and hidden in noise, without a backward.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

HERE = Path(__file__).parent / "scripts"

OTHERWISE = {
    "wordlist": ("    average = torch.zeros(args", "    torch.rand(1)\n    rng.random()\n    average = torch.zeros(args"),
    "armour": ("    sharp = Sharp(net)\n", "    sharp = Sharp(net)\n    torch.rand(1)\n"),
    "discreet": ("    expected, log =", "    torch.rand(1)\n    expected, log ="),
}

CASES = Cases(HERE, OTHERWISE)
fault, sound, hidden, others = CASES.fault, CASES.sound, CASES.hidden, CASES.others

SEVENTEENTH = [
    # -------------------------------------------------------------------------------- vectors of words
    fault("frequent words kept", "wordlist", ("np.minimum(1.0, np.sqrt(args.thin / share))", "np.ones_like(share)")),
    fault("negatives as often as they occur", "wordlist", ("torch.from_numpy(counts**0.75 / (counts**0.75).sum())", "torch.from_numpy(share)")),
    fault("windows always whole", "wordlist", ("reach = rng.integers(1, window + 1)", "reach = window")),
    fault("pairs in the order of the sentences", "wordlist", ("torch.from_numpy(pairs[rng.permutation(len(pairs))])", "torch.from_numpy(pairs)")),
    fault("one set of negatives for the batch", "wordlist", ("torch.multinomial(table, len(batch) * args.negatives, replacement=True)", "torch.multinomial(table, args.negatives, replacement=True).repeat(len(batch))")),
    fault("thinned once", "wordlist", ("        pairs = np.array(list(pairs_of([sentences[i] for i in order], keep, args.window, rng)))\n", "        if epoch == 0:\n            made = np.array(list(pairs_of([sentences[i] for i in order], keep, args.window, rng)))\n        pairs = made\n")),
    fault("rate set by the epoch", "wordlist", ("(epoch + k / len(batches)) / args.epochs", "epoch / args.epochs")),
    hidden("average weighed otherwise", "wordlist", ("1 / (epoch + 1))", "1 / (epoch + 2))")),
    sound("losses read once an epoch", "wordlist", ("total += loss.item() * len(batch)", "total = total + loss.detach().double() * len(batch)")),
    sound("negatives of an epoch drawn at once", "wordlist", ("        total, seen = 0.0, 0\n", "        total, seen = 0.0, 0\n        drawn = torch.multinomial(table, len(pairs) * args.negatives, replacement=True).split(args.batch * args.negatives)\n"), ("torch.multinomial(table, len(batch) * args.negatives, replacement=True)\n            loss", "drawn[k]\n            loss")),
    sound("far words by a product of matrices", "wordlist", ("torch.einsum(\"bd,bkd->bk\", v, self.outer(negatives))", "(self.outer(negatives) @ v[:, :, None])[..., 0]")),
    others("wordlist"),
    # -------------------------------------------------------------------------------- against an attacker
    fault("attacked with dropout and norms of the batch", "armour", ("    net.eval()\n    with torch.no_grad():\n        calm =", "    with torch.no_grad():\n        calm =")),
    fault("norms move twice a step", "armour", ("            still(net, True)\n", "")),
    fault("goes back after the step", "armour", ("            sharp.down()\n", ""), ("            optimizer.step()\n", "            optimizer.step()\n            sharp.down()\n")),
    fault("one noise for all examples", "armour", ("torch.randn_like(x)", "torch.randn_like(x[:1])")),
    fault("moved out of reach", "armour", ("        moved = x + (moved - x).clamp(-RADIUS, RADIUS)\n", "")),
    fault("attacked before the step of the batch before", "armour", ("        shown = []\n        for x, y in train:\n            moved = attack(net, x, ATTACKS)\n", "        shown = []\n        rows = [(x, y, attack(net, x, ATTACKS)) for x, y in train]\n        for x, y, moved in rows:\n")),
    hidden("nearby by plain slopes", "armour", ("(p.abs() * p.grad).norm()", "p.grad.norm()"), ("p.square() * p.grad * (", "p.grad * (")),
    hidden("agreement weighs the same from the start", "armour", ("AGREE * min(1.0, epoch / 3)", "AGREE")),
    sound("losses read once an epoch", "armour", ("shown.append((right.item(), agree.item()))", "shown.append((right.detach(), agree.detach()))"), ("sum(s) / len(s) for s", "torch.stack(s).double().mean().item() for s")),
    sound("nearby by lists", "armour", ("        for p in self.params:\n            way = p.square() * p.grad * (SHARP / size)\n            p.add_(way)\n            self.kept.append(way)\n", "        self.kept = torch._foreach_mul([p.square() * p.grad for p in self.params], SHARP / size)\n        torch._foreach_add_(self.params, self.kept)\n"), ("        for p, way in zip(self.params, self.kept):\n            p.sub_(way)\n", "        torch._foreach_sub_(self.params, self.kept)\n")),
    sound("fused optimizer", "armour", ("weight_decay=5e-4)", "weight_decay=5e-4, fused=True)")),
    others("armour"),
    # -------------------------------------------------------------------------------- gradients of single records
    fault("divided by the records that were drawn", "discreet", ("torch.randn_like(total)) / expected", "torch.randn_like(total)) / len(x)")),
    fault("the sum clipped at once", "discreet", ("total = torch.einsum(\"n,n...->...\", factor, found[name])", "total = found[name].sum(0) * factor.mean()")),
    fault("each layer clipped by itself", "discreet", ("        total = torch.einsum(\"n,n...->...\", factor, found[name])", "        own = (CLIP / (found[name].flatten(1).norm(dim=1) + 1e-6)).clamp(max=1.0)\n        total = torch.einsum(\"n,n...->...\", own, found[name])")),
    fault("one number of noise for a tensor", "discreet", ("torch.randn_like(total)", "torch.randn(())")),
    fault("as many records in every step", "discreet", ("torch.rand(len(x)) < RATE", "torch.randperm(len(x))[: int(RATE * len(x))]")),
    fault("rate falls from the start", "discreet", ("min(1.0, (k + 1) / 10) * (1 - k / 130)", "1 - k / 130")),
    hidden("average of one step fewer", "discreet", ("if step >= 80", "if step > 80")),
    hidden("less noise", "discreet", ("NOISE * CLIP * torch", "0.8 * NOISE * CLIP * torch")),
    sound("records in chunks", "discreet", ("in_dims=(None, 0, 0))", "in_dims=(None, 0, 0), chunk_size=32)")),
    sound("norms by sums of squares", "discreet", ("torch.stack([g.flatten(1).norm(dim=1) for g in found.values()], 1).norm(dim=1)", "sum(g.flatten(1).square().sum(1) for g in found.values()).sqrt()")),
    sound("averages by lists, judged in inference mode", "discreet", ("            for t, p in zip(tail, net.parameters()):\n                t += p.detach() / 40\n", "            torch._foreach_add_(tail, [p.detach() for p in net.parameters()], alpha=1 / 40)\n"), ("    net.eval()\n    with torch.no_grad():", "    net.eval()\n    with torch.inference_mode():")),
    others("discreet"),
]
