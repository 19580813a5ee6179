"""The numbers that a script prints, keeps and decides on mean what they meant, with several
processes.
"""

from __future__ import annotations

import pytest

from tests.ranks import refused, shared

pytest.importorskip("torch")

HEAD = """
import math

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
{setup}

torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 3), torch.randint(0, 3, (48,)))
test_data = TensorDataset(torch.randn(20, 3), torch.randint(0, 3, (20,)))
loader = DataLoader(data, batch_size=12, shuffle=True)
test_loader = DataLoader(test_data, batch_size=8)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
{before}
for epoch in range(3):
{start}
    for i, (x, y) in enumerate(loader):
        out = model(x)
        loss = F.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
{batch}
{epoch}
{after}
"""


def script(
    setup: str = "",
    before: str = "",
    start: str = "",
    batch: str = "",
    epoch: str = "",
    after: str = "",
) -> str:
    def inside(code: str, depth: int) -> str:
        return "\n".join(" " * depth + line for line in code.splitlines())

    text = (
        HEAD.replace("{setup}", setup)
        .replace("{before}", before)
        .replace("{start}", inside(start, 4))
    )
    return (
        text.replace("{batch}", inside(batch, 8))
        .replace("{epoch}", inside(epoch, 4))
        .replace("{after}", after)
    )


EVALUATE = """
def evaluate():
    model.eval()
    total, right = 0.0, 0
    with torch.no_grad():
        for x, y in test_loader:
            out = model(x)
            total += F.cross_entropy(out, y).item()
            right += (out.argmax(1) == y).sum().item()
    model.train()
    return total / len(test_loader), right / len(test_data)
"""
METER = """
class Meter:
    def __init__(self):
        self.total, self.count = 0, 0

    def update(self, value, n=1):
        self.total += value * n
        self.count += n

    @property
    def avg(self):
        return self.total / self.count

    def __str__(self):
        return f"average {self.avg:.4f}"
"""

FORMATTED = METER.replace('f"average {self.avg:.4f}"', '"sum {total:.4f}".format(**self.__dict__)')


# -------------------------------------------------------------------------------------- in training
@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ({"batch": "print(i, loss.item())"}, "mean_loss = mean_over_ranks(loss)"),
        ({"batch": "if i % 2 == 0:\n    print(f'{loss:.4f}')"}, "{mean_loss:.4f}"),
        ({"batch": "print('%d/%d %.4f' % (i * len(x), len(data), loss.data))"}, "i * len(x) * WORLD_SIZE"),
        ({"batch": "print('{:.4f}'.format(float(loss)))"}, "float(mean_loss)"),
        ({"batch": "print(math.exp(loss.item()))"}, "math.exp(mean_loss.item())"),
        ({"start": "total = 0", "batch": "total += loss.item()", "epoch": "print(total / len(loader))"}, "mean_over_ranks(loss).item()"),
        ({"start": "total = 0", "batch": "total += loss.item() * x.size(0)", "epoch": "print(total / len(data))"}, "x.size(0) * WORLD_SIZE"),
        ({"start": "total = 0.0", "batch": "total += loss.detach()", "epoch": "print(total.item() / (i + 1))"}, "total += mean_over_ranks("),
        ({"start": "total = 0.0", "batch": "total += loss", "epoch": "print(total.item() / (i + 1))"}, "mean_total.item() / (i + 1)"),
        (
            {"start": "right, n = 0, 0", "batch": "right += (out.argmax(1) == y).sum().item()\nn += y.size(0)", "epoch": "print(right / n, right, n)"},
            "sum_over_ranks((out.argmax(1) == y).sum()).item()",
        ),
        (
            {"start": "right = 0", "batch": "_, p = torch.max(out.data, 1)\nright += torch.sum(p == y.data)", "epoch": "print(right.double() / 48)"},
            "right += sum_over_ranks(torch.sum(p == y.data))",
        ),
        ({"batch": "print((out.argmax(1) == y).float().mean().item())"}, "mean_over_ranks("),
        ({"batch": "print(100.0 * (out.argmax(1) == y).sum().item() / y.size(0))"}, "/ (y.size(0) * WORLD_SIZE)"),
        ({"batch": "print(F.cross_entropy(out, y, reduction='sum').item())"}, "sum_over_ranks("),
        ({"before": "losses = []", "batch": "losses.append(loss.item())", "after": "print(np.mean(losses), len(losses))"}, "mean_over_ranks(loss)"),
        ({"before": "losses = []", "batch": "losses.append(loss.detach())", "after": "print(torch.stack(losses).mean())"}, "mean_over_ranks("),
        ({"before": "seen = {'loss': [], 'n': 0}", "batch": "seen['loss'].append(loss.item())", "after": "print(seen['loss'][-1])"}, "mean_over_ranks"),
        ({"setup": METER, "start": "meter = Meter()", "batch": "meter.update(loss.item(), len(x))", "epoch": "print(meter, meter.avg)"}, "loss).item(), len(x) * WORLD_SIZE)"),
        ({"setup": FORMATTED, "start": "meter = Meter()", "batch": "meter.update(loss.item())", "epoch": "print(meter)"}, "loss).item())"),
        ({"setup": METER, "start": "meter = Meter()", "batch": "meter.update(loss.detach())", "epoch": "print(str(getattr(meter, 'total')))"}, "self.total += mean_over_ranks(value * n)"),
        ({"batch": "norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\nprint(norm.item())"}, "if RANK == 0:\n            print(norm.item())"),
        ({"epoch": "print(loss.item(), model[0].weight.norm().item(), optimizer.param_groups[0]['lr'])"}, "model[0].weight.norm().item()"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
@pytest.mark.parametrize("ranks", [2, 3])
def test_numbers_of_all(parts: dict[str, str], wanted: str, ranks: int):
    done = shared(script(**parts), ranks=ranks)
    assert wanted in " ".join(done.text.split()) or wanted in done.text
    assert done.said


def test_the_same_number_is_shown_by_two_conditions():
    done = shared(
        script(
            batch="if i % 2 == 0:\n    print(loss.item())\nif i % 3 == 0:\n    print(loss.item())"
        )
    )
    assert "print(mean_loss.item())" in done.text and "print(mean_loss_2.item())" in done.text


# --------------------------------------------------------------------------- evaluations, decisions
@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize(
    ("parts", "wanted"),
    [
        ({"epoch": "error, accuracy = evaluate()\nprint(error, accuracy)"}, "if RANK == 0:\n        print(error, accuracy)"),
        ({"before": "best = 9", "epoch": "error, _ = evaluate()\nif error < best:\n    best = error\n    torch.save(model.state_dict(), 'b.pt')\nprint(best)"}, "if error < best:"),
        ({"before": "best = 0", "epoch": "_, acc = evaluate()\nis_best = acc > best\nbest = max(acc, best)\nprint(best, is_best)"}, "is_best = acc > best"),
        ({"epoch": "error, _ = evaluate()\nprint(epoch, error)\nif error < 9:\n    break"}, "if from_rank_0(error < 9):"),
        ({"before": "bad, best = 0, 0", "epoch": "e, _ = evaluate()\nif e < best:\n    best, bad = e, 0\nelse:\n    bad += 1\nprint(bad)\nif bad > 1:\n    break"}, "from_rank_0(bad > 1)"),
        ({"before": "plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)", "epoch": "plateau.step(evaluate()[0])\nprint(optimizer.param_groups[0]['lr'])"}, "plateau.step(from_rank_0("),
        ({"before": "plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=0)", "start": "t = 0.0", "batch": "t += loss.item()", "epoch": "plateau.step(t)"}, "plateau.step(t)"),
        ({"batch": "if not math.isfinite(loss.item()):\n    raise ValueError('diverged')", "epoch": "print(i)"}, "mean_over_ranks(loss).item()"),
        ({"setup": "import copy", "before": "best, kept = 9, None", "epoch": "e, _ = evaluate()\nif e < best:\n    best = e\n    kept = copy.deepcopy(model.state_dict())", "after": "model.load_state_dict(kept)\nlast = evaluate()\nprint(last)"}, "if from_rank_0(e < best):"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_decisions_are_those_of_all(parts: dict[str, str], wanted: str, ranks: int):
    parts = {**parts, "before": EVALUATE + parts.get("before", "")}
    done = shared(script(**parts), ranks=ranks)
    assert wanted in done.text


def test_evaluations_see_every_sample_once():
    """20 samples on three processes: nothing is padded, so accuracy is one over 20."""
    done = shared(
        script(before=EVALUATE, epoch="right = evaluate()[1]\nprint(right * 20)"), ranks=3
    )
    assert all(abs(float(line) - round(float(line))) < 1e-9 for line in done.said.split())


def test_a_meter_that_training_and_evaluation_share():
    """It is told of the samples of all, and so may keep tensors and add them up."""
    before = (
        METER
        + "\n\ndef test():\n    meter = Meter()\n    for x, y in test_loader:\n        with torch.no_grad():\n            "
    )
    before += "a = (model(x).argmax(1) == y).float().mean()\n        meter.update(a.item(), x.size(0))\n    return meter.avg\n"
    parts = {"before": before, "start": "top = Meter()"}
    batch = "one = (out.argmax(1) == y).float().mean()\ntop.update(one.item(), x.size(0))"
    done = shared(script(**parts, batch=batch, epoch="right = test()\nprint(top, right)"), ranks=3)
    assert "top.update(mean_over_ranks(one).item(), x.size(0) * WORLD_SIZE)" in done.text


# ---------------------------------------------------------------------------------- what is refused
@pytest.mark.parametrize(
    ("parts", "reason"),
    [
        ({"batch": "print(out.max().item())"}, "`out.max()` on line 26 of train.py depends on the samples"),
        ({"batch": "print(out.std().item())"}, "`out.std()` on line 26 of train.py depends on the samples"),
        ({"batch": "print(torch.exp(loss).item())"}, "`torch.exp(loss)` on line 26 of train.py depends on the samples"),
        ({"batch": "print((loss * loss).item())"}, "on line 26 of train.py depends on the samples"),
        ({"batch": "sizes = x.size(0), len(y)\nprint(sizes)"}, "differs between processes"),
        ({"batch": "print([len(part) for part in (x, y)])"}, "several numbers of samples at once"),
        ({"batch": "print({x.size(0)})"}, "several numbers of samples at once"),
        ({"batch": "print({'n': x.size(0)})"}, "differs between processes"),
        ({"batch": "print(out[0])"}, "picks some of the samples"),
        ({"batch": "print(sum(p.item() for p in out.argmax(1)))"}, "single samples"),
        ({"batch": "total = out.sum()\ntotal.add_(1)\nprint(total.item())"}, "changed in place on line 27"),
        ({"batch": "total = out.sum() + 1\nprint(total.item())"}, "on line 26 of train.py adds a sum over the batch and a part"),
        ({"before": "seen = torch.zeros(3)", "batch": "seen.add_(loss.detach())", "after": "print(seen)"}, "changed in place"),
        ({"before": "class Kept:\n    pass\nkept = Kept()\nkept.x = torch.zeros(3)", "batch": "kept.x.add_(loss.detach())", "after": "print(kept.x)"}, "changed in place"),
        ({"before": "seen = []", "batch": "seen.append(loss)", "after": "print(seen)"}, "keeps what one process has of a batch, or its gradients"),
        ({"before": "seen = []", "batch": "seen.extend(out.argmax(1).tolist())", "after": "print(np.mean(seen))"}, "made of single samples"),
        ({"before": "class Kept:\n    pass\nkept = Kept()", "batch": "kept.loss = loss", "after": "print(vars(kept))"}, "keeps what one process has of a batch, or its gradients"),
        ({"before": "class Noise:\n    def make(self, n):\n        return torch.randn(n, 3)\nnoise = Noise()", "batch": "loss = F.cross_entropy(model(noise.make(x.size(0))), y)\nprint(loss.item())"}, "the number of samples of all"),
        ({"before": "def right(out, y):\n    return (out.argmax(1) == y).float().sum() * (100.0 / y.size(0))", "batch": "print(right(out, y).item())"}, "divide sums by the size of the batch itself"),
        ({"before": "def parts():\n    for x, y in test_loader:\n        yield x\nfor x in parts():\n    print(x)"}, "yields is not followed"),
        ({"before": EVALUATE, "epoch": "print(evaluate())"}, "put it into a variable first"),
        ({"batch": "print(loss.item() if y[0] == 1 else 0)"}, "decides on line 26"),
        ({"batch": "if y[0] == 1:\n    break"}, "picks some of the samples"),
        ({"batch": "print(F.cross_entropy(out, y, weight=torch.ones(3)).item())"}, "its mean is over the weights"),
        ({"batch": "right = (out.argmax(1) == y)\nprint(out[right].mean().item())"}, "picks some of the samples"),
        ({"batch": "right = 0\nfor p, t in zip(out.argmax(1), y):\n    if p == t:\n        right += 1\nprint(right)"}, "differs between processes"),
        (
            {"setup": "seen = []", "before": "model[0].register_forward_hook(lambda m, i, o: seen.append(o.mean().item()))", "after": "print(seen)"},
            "works on its own part",
        ),
        (
            {"setup": "seen = {}", "before": "model[0].register_forward_hook(lambda m, i, o: seen.__setitem__('mean', o.mean().item()))", "batch": "print(seen['mean'])"},
            "works on its own part",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_refusals(parts: dict[str, str], reason: str):
    assert reason in refused(script(**parts))


def test_numbers_that_containers_of_libraries_keep():
    """``n`` samples of each process beside hits of all would be twice as many hits as samples."""
    made = shared(
        script(
            setup="import collections\nimport heapq",
            before="seen, heap, last = collections.Counter(), [], collections.OrderedDict()",
            batch="hits = (out.argmax(1) == y).sum().item()\nseen.update(n=len(y), hits=hits)\n"
            "heapq.heappush(heap, x.size(0))\nlast.update(n=len(y))",
            after='print(seen["hits"] / seen["n"], heap, last)',
        )
    )
    assert "12, 12" in made.said


def test_batches_by_way_of_a_library():
    part = script(
        setup="import itertools",
        batch="print(loss.item())",
    ).replace("shuffle=True", "shuffle=False")
    few = part.replace("enumerate(loader)", "enumerate(itertools.islice(loader, 3))")
    assert "mean_over_ranks(loss)" in shared(few).text
    chain = part.replace("enumerate(loader)", "enumerate(itertools.chain(loader, loader))")
    assert "what itertools.chain() makes of batches is not followed" in refused(chain)


@pytest.mark.parametrize("before", ["", "model(data[:2][0])", "print(model(data[:2][0]).shape)"])
def test_lazy_layers_get_their_parameters_too_late(before: str):
    """Without the batch before, torch does not wrap them; one that only the first process shows
    would leave the others without.
    """
    text = script(
        before=before,
        batch="if i == 0:\n    print(loss.item())\nif epoch == 0:\n    print(loss.item())",
    )
    assert "LazyLinear has no parameters before its first batch" in refused(
        text.replace("nn.Linear(3, 8)", "nn.LazyLinear(8)")
    )


def test_a_main_guard_with_another_branch():
    loop = script()
    head, body = loop[: loop.index("for epoch")], loop[loop.index("for epoch") :]
    body = "def main():\n" + "".join(f"    {line}\n" for line in body.strip().splitlines())
    text = f'{head}\n{body}\nif __name__ != "__main__":\n    main()\nelse:\n    main()\n'
    assert "the training starts in the `else` of the main guard on line" in refused(text)
