"""A fifth set of faults, written blind as the third was, for two scripts; run once, as it is.

Graphs of different sizes (functional dropout, a normalised target, early stopping) and forecasts (a decoder that is told the truth now and then, learned
weights of two tasks, a plateau scheduler). ``python -m benchmarks.verify_faults --set 5``.

Two were written as faults and change nothing, as all batches of these data are full: they count as sound. "Other draws" and the last
"two workers" were added after the first run.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

HERE = Path(__file__).parent / "scripts"
CASES = Cases(HERE)
fault, sound = CASES.fault, CASES.sound


SIXTH = [
    # ---------------------------------------------------------------------------------------------- graphs
    fault("one mask of dropout for all nodes", "molecules", ("return F.dropout(h, 0.1, training=self.training)", "return h * F.dropout(torch.ones_like(h[:1]), 0.1, training=self.training)")),
    fault("dropout in the evaluation", "molecules", ("F.dropout(h, 0.1, training=self.training)", "F.dropout(h, 0.1)")),
    fault("dropout lost", "molecules", ("F.dropout(h, 0.1, training=self.training)", "h")),
    fault("messages one way only", "molecules", ("source, target = edges\n", "source, target = edges[:, : edges.shape[1] // 2]\n")),
    fault("places of the edges not moved", "molecules", ("edges.append(edge + start)", "edges.append(edge)")),
    fault("the last epoch's weights in place of the best", "molecules", ("{name: value.clone() for name, value in model.state_dict().items()}", "model.state_dict()")),
    fault("the target not normalised", "molecules", ("F.smooth_l1_loss(out, (value - mean) / std)", "F.smooth_l1_loss(out * std + mean, value)")),
    sound("the mean of the batches in the training figure", "molecules", ("total += loss.item() * len(value)", "total += loss.item() * 16")),
    fault("patience one longer", "molecules", ("if waited >= PATIENCE", "if waited > PATIENCE")),
    fault("patience counts all epochs without a best", "molecules", ("best, waited = found, 0\n            kept", "best = found\n            kept")),
    sound("the validation error of the batches' mean", "molecules", ("        count += len(value)\n", "        count += 20\n")),
    fault("order kept over epochs", "molecules", ("    for epoch in range(14):\n        model.train()\n", "    for epoch in range(14):\n        torch.manual_seed(5)\n        model.train()\n")),
    sound("fused AdamW", "molecules", ("weight_decay=0.02)", "weight_decay=0.02, fused=True)")),
    sound("messages by scatter_add", "molecules", ("torch.zeros_like(h).index_add_(0, target, sent)", "torch.zeros_like(h).scatter_add_(0, target[:, None].expand_as(sent), sent)")),
    sound("the message computed for each edge", "molecules", ("F.relu(self.message(h))[source]", "F.relu(self.message(h[source]))")),
    sound("two workers", "molecules", ("shuffle=True, collate_fn=collate)", "shuffle=True, collate_fn=collate, num_workers=2)")),
    sound("the error summed as a tensor", "molecules", ("total += (out - value).abs().sum().item()", "total += (out - value).abs().sum()"), ("    return total / count\n", "    return float(total) / count\n")),
    # ---------------------------------------------------------------------------------------------- forecasts
    fault("always told the truth", "forecast", ("and random.random() < share", "")),
    fault("the share of truth does not fall", "forecast", ("share = max(0.0, 0.8 - 0.15 * epoch)", "share = 0.8")),
    fault("the truth of the step before", "forecast", ("now = truth[:, step]", "now = truth[:, max(0, step - 1)]")),
    fault("no gradient through what was forecast", "forecast", ("            made.append(now)\n", "            made.append(now)\n            now = now.detach()\n")),
    fault("the weights of the tasks do not learn", "forecast", ("first, second = model.weights\n", "first, second = model.weights.detach()\n")),
    fault("one noise for all windows", "forecast", ("past = past + self.noise * torch.randn(past.shape)", "past = past + self.noise * torch.randn(past.shape, generator=torch.Generator().manual_seed(torch.initial_seed() % 1000))")),
    fault("one dropout for both heads", "forecast", ("            now = now + self.out(self.drop(state))\n", "            now = now + self.out(state * mask)\n"), ("        rises = self.rises(self.drop(state))\n", "        mask = self.drop(torch.ones_like(state))\n        rises = self.rises(state * mask)\n")),
    fault("normalised with all rows", "forecast", ("known = rows[:300]", "known = rows")),
    fault("clipped by norm", "forecast", ("clip_grad_value_(", "clip_grad_norm_(")),
    fault("the plateau of the training loss", "forecast", ("scheduler.step(error)", "scheduler.step((sums[0] / len(loader)).item())")),
    fault("the learned weights at the rate of the others", "forecast", (', "lr": 0.02}', "}")),
    fault("mean of the batches' roots", "forecast", ("squares += ((made - ahead) * scale).pow(2).mean((1, 2)).sum().item()", "squares += ((made - ahead) * scale).pow(2).mean().sqrt().item() ** 2 * 32")),
    fault("validation windows without their past", "forecast", ("rows[300 - PAST :]", "rows[300:]")),
    sound("other draws", "forecast", ("    model = Forecaster()\n", "    torch.rand(1)\n    model = Forecaster()\n")),
    sound("two workers", "forecast", ("batch_size=32, shuffle=True", "batch_size=32, shuffle=True, num_workers=2")),
    sound("fused Adam", "forecast", ("lr=6e-3)", "lr=6e-3, fused=True)")),
    sound("sums read at the end", "forecast", ("        sums = torch.zeros(3)\n", "        kept = []\n"), ("            sums += torch.stack([loss, near, told]).detach()\n", "            kept.append(torch.stack([loss, near, told]).detach())\n"), ("        error, right", "        sums = torch.stack(kept).sum(0)\n        error, right")),
    sound("larger batches in validation", "forecast", ("PAST :]), batch_size=32)", "PAST :]), batch_size=96)")),
    sound("windows as views of one tensor", "forecast", ("        past = self.rows[start : start + PAST]\n", "        past = self.whole[start, :PAST]\n"), ("        ahead = self.rows[start + PAST : start + PAST + AHEAD]\n", "        ahead = self.whole[start, PAST:]\n"), ("        self.rows, self.noise = rows, noise\n", "        self.rows, self.noise = rows, noise\n        self.whole = rows.unfold(0, PAST + AHEAD, 1).transpose(1, 2)\n")),
]  # fmt: skip
