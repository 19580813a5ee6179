"""A fourteenth set of faults: one short script with two groups of parameters, an average of the weights and notes of uneven lengths; six faults and four sound rewrites, small and not blind, run once.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

CASES = Cases(Path(__file__).parent / "scripts")
fault, sound = CASES.fault, CASES.sound

EIGHTEENTH = [
    fault("rates of the groups exchanged", "parcels", ('net.words.parameters(), "lr": 0.01','net.words.parameters(), "lr": 0.003'), ('net.head.parameters()], "lr": 0.003','net.head.parameters()], "lr": 0.01')),
    fault("each note weighs the same, however long", "parcels", ('            loss = F.cross_entropy(net(x).flatten(0, 1), y.flatten(), ignore_index=IGNORED, label_smoothing=0.05)\n','            each = F.cross_entropy(net(x).transpose(1, 2), y, ignore_index=IGNORED, label_smoothing=0.05, reduction="none")\n            loss = (each.sum(1) / (y != IGNORED).sum(1)).mean()\n')),
    fault("warm-up begins a step late", "parcels", ("(k + 1) / warm","k / warm")),
    fault("the plain weights kept as the best", "parcels", ('{"net": slow.state_dict()','{"net": net.state_dict()')),
    fault("smoothed in the judgement", "parcels", ('ignore_index=IGNORED, reduction="sum")','ignore_index=IGNORED, reduction="sum", label_smoothing=0.05)')),
    fault("average of the weights before the step", "parcels", ("            optimizer.step()\n            schedule.step()\n            with torch.no_grad():\n                for s, p in zip(slow.parameters(), net.parameters()):\n                    s.lerp_(p, 0.05)\n","            with torch.no_grad():\n                for s, p in zip(slow.parameters(), net.parameters()):\n                    s.lerp_(p, 0.05)\n            optimizer.step()\n            schedule.step()\n")),
    sound("losses read once an epoch", "parcels", ("shown.append(loss.item())","shown.append(loss.detach())"),("sum(shown) / len(shown):.4f","torch.stack(shown).mean().item():.4f")),
    sound("average by lists", "parcels", ("                for s, p in zip(slow.parameters(), net.parameters()):\n                    s.lerp_(p, 0.05)\n","                torch._foreach_lerp_([*slow.parameters()], [*net.parameters()], 0.05)\n")),
    sound("fused optimizer, gradients kept", "parcels", ("torch.optim.AdamW(groups)","torch.optim.AdamW(groups, fused=True)"),("optimizer.zero_grad()","optimizer.zero_grad(set_to_none=False)")),
    sound("summed and divided by the words", "parcels", ('ignore_index=IGNORED, label_smoothing=0.05)','ignore_index=IGNORED, label_smoothing=0.05, reduction="sum") / (y != IGNORED).sum()')),
]
