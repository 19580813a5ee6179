"""A twelfth set of faults, small: three scripts of kinds that no set before has, each with four faults and four sound rewrites, written when the
judge was done and run once.

``painter``: diffusion with guidance; ``experts``: a mixture of experts with a noisy choice; ``harbour``: losses that weigh each other, mixed rows.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

HERE = Path(__file__).parent / "scripts"

OTHERWISE = {
    "painter": ("    best = math.inf\n", "    best = math.inf\n    torch.rand(1)\n"),
    "experts": ("    best, log = math.inf, []\n", "    best, log = math.inf, []\n    torch.rand(1)\n    rng.random()\n"),
    "harbour": ("    best = 0.0\n", "    best = 0.0\n    torch.rand(1)\n    np.random.rand(1)\n"),
}

CASES = Cases(HERE, OTHERWISE)
fault, sound, hidden, others = CASES.fault, CASES.sound, CASES.hidden, CASES.others

SIXTEENTH = [
    # -------------------------------------------------------------------------------- diffusion with guidance
    fault("average before the step", "painter", ("            optimizer.step()\n            scheduler.step()\n            average.update(net)\n", "            average.update(net)\n            optimizer.step()\n            scheduler.step()\n")),
    fault("one kind dropped for the batch", "painter", ("torch.rand(len(x)) < args.drop", "torch.rand(()) < args.drop")),
    fault("judged by the fast net", "painter", ("judge(average.net, held, args)", "judge(net.eval(), held, args)")),
    hidden("losses weighed a little otherwise", "painter", (".clamp(max=5.0)", ".clamp(max=8.0)")),
    hidden("average without its warm-up", "painter", ("min(self.most, (1 + self.count) / (10 + self.count))", "self.most")),
    sound("both judgements of guidance in one call", "painter", ("        with_kind, without = net(x, t, kinds), net(x, t, nothing)\n", "        with_kind, without = net(torch.cat([x, x]), torch.cat([t, t]), torch.cat([kinds, nothing])).chunk(2)\n")),
    sound("average by lists", "painter", ("        for slow, fast in zip(self.net.parameters(), net.parameters()):\n            slow.mul_(decay).add_(fast, alpha=1 - decay)\n", "        torch._foreach_lerp_(list(self.net.parameters()), list(net.parameters()), 1 - decay)\n")),
    sound("losses read once an epoch", "painter", ("            total += loss.item()\n        found", "            total = total + loss.detach().double()\n        found")),
    others("painter"),
    # -------------------------------------------------------------------------------- a mixture of experts
    fault("balance without a gradient", "experts", ("len(load) * (load * share).sum()", "len(load) * (load * share.detach()).sum()")),
    fault("each small batch clipped", "experts", ("            seen += loss.item() / args.accumulate\n        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", "            seen += loss.item() / args.accumulate\n            norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n")),
    fault("a choice without noise", "experts", ("        if self.training:\n            scores = scores", "        if False:\n            scores = scores")),
    hidden("chosen experts weighed among all", "experts", ("scatter(-1, which, top.softmax(-1))", "scatter(-1, which, scores.softmax(-1).gather(-1, which))")),
    sound("experts one by one", "experts", ("        hidden = F.gelu(torch.einsum(\"bti,eio->bteo\", x, self.up))\n        return torch.einsum(\"bteo,eoi,bte->bti\", hidden, self.down, weight)\n", "        return sum((F.gelu(x @ up) * weight[..., e : e + 1]) @ down for e, (up, down) in enumerate(zip(self.up, self.down)))\n")),
    sound("rows from a view of all windows", "experts", ("    rows = torch.stack([data[i : i + args.window + 1] for i in at])\n", "    rows = data.unfold(0, args.window + 1, 1)[torch.from_numpy(at)]\n")),
    sound("losses read once an update", "experts", ("            seen += loss.item() / args.accumulate\n", "            seen = seen + loss.detach().double() / args.accumulate\n"), ("\"loss\": seen,", "\"loss\": float(seen),")),
    others("experts"),
    # -------------------------------------------------------------------------------- losses that weigh each other
    fault("turns mixed in another order", "harbour", ("delay[order], turns[order])", "delay[order], turns)")),
    fault("statistics of the average not taken anew", "harbour", ("    update_bn(DataLoader(train, 100), averaged)\n", "")),
    hidden("labels no longer smoothed", "harbour", (", label_smoothing=0.05", "")),
    sound("two workers", "harbour", ("args.seed))\n    judge", "args.seed), num_workers=2)\n    judge")),
    sound("rows mixed by lerp", "harbour", ("model(share * x + (1 - share) * x[order])", "model(torch.lerp(x[order], x, share))")),
    sound("fused optimizer, held ships at once", "harbour", ("weight_decay=1e-4)", "weight_decay=1e-4, fused=True)"), ("DataLoader(held, 64)", "DataLoader(held, 300)")),
    others("harbour"),
]
