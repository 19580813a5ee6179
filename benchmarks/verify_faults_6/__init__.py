"""A sixth set of faults, for four scripts: a small language model, temporal differences with a target network, an average of the weights, training in stages.

``python -m benchmarks.verify_faults --set 6``. Not blind: it was written by somebody who had read parts of verify. Run once, as it is.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

HERE = Path(__file__).parent / "scripts"
CASES = Cases(HERE)
fault, sound = CASES.fault, CASES.sound


SEVENTH = [
    # ---------------------------------------------------------------------------------------------- a small language model
    fault("accumulation not divided, under clipping that always acts", "letters", ("(loss / 2).backward()", "loss.backward()")),
    fault("decay of a norm's weight and of biases, too", "letters", ("p.ndim >= 2]", "p.ndim >= 1]"), ("p.ndim < 2]", "p.ndim < 1]")),
    fault("labels of two letters on in the evaluation", "letters", ("lost += F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten()", "lost += F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].roll(-1, 1).flatten()")),
    # ---------------------------------------------------------------------------------------------- a target network
    fault("the target is copied before the step", "target", ("        optimizer.zero_grad()\n", "        if (step + 1) % 10 == 0:\n            target.load_state_dict(model.state_dict())\n        optimizer.zero_grad()\n"), ("        total += loss.item()\n        if (step + 1) % 10 == 0:\n            target.load_state_dict(model.state_dict())\n", "        total += loss.item()\n")),
    fault("what is chosen is judged by the same network", "target", ("best = model(after[rows])", "best = target(after[rows])")),
    fault("rows of the first half alone", "target", ("torch.randint(0, len(state), (32,))", "torch.randint(0, len(state), (32,)) // 2")),
    # ---------------------------------------------------------------------------------------------- an average
    fault("the average's warm-up one update late", "averaged", ("            updates += 1\n            keep = min(0.95, (1 + updates) / (10 + updates))\n", "            keep = min(0.95, (1 + updates) / (10 + updates))\n            updates += 1\n")),
    fault("BatchNorm forgets more slowly", "averaged", ("nn.BatchNorm2d(12)", "nn.BatchNorm2d(12, momentum=0.05)")),
    fault("labels are not mixed", "averaged", ("F.cross_entropy(out, y[order])", "F.cross_entropy(out, y)")),
    # ---------------------------------------------------------------------------------------------- stages
    fault("the body stays frozen in the optimizer", "stages", ("run(model, model.parameters(), train, 4, 1e-2)", "run(model, model[1].parameters(), train, 4, 1e-2)")),
    fault("the rate falls before the first epoch", "stages", ("        scheduler.step()\n", ""), ("        model.train()\n        total", "        scheduler.step()\n        model.train()\n        total")),
    fault("workers draw the same noise", "stages", ("num_workers=2)", "num_workers=2, worker_init_fn=lambda worker: torch.manual_seed(5))")),
    # ---------------------------------------------------------------------------------------------- sound
    sound("fused AdamW", "letters", ("lr=1e-2)", "lr=1e-2, fused=True)")),
    sound("the loss summed as a tensor", "letters", ("total += loss.item()", "total += loss.detach()")),
    sound("the target by copy_", "target", ("            target.load_state_dict(model.state_dict())\n", "            with torch.no_grad():\n                for mine, theirs in zip(target.parameters(), model.parameters()):\n                    mine.copy_(theirs)\n")),
    sound("the average by lerp", "averaged", ("mine.mul_(keep).add_(theirs, alpha=1 - keep)", "mine.lerp_(theirs, 1 - keep)")),
    sound("channels_last", "averaged", ("    average = copy", "    model = model.to(memory_format=torch.channels_last)\n    average = copy")),
    sound("persistent workers", "stages", ("num_workers=2)", "num_workers=2, persistent_workers=True)")),
]
