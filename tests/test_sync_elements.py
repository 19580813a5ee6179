"""loss-item-sync: tensors whose elements a loop of the host looks at one by one are copied there
once, where nothing else is done with them.
"""

from __future__ import annotations

import contextlib
import io
import textwrap

import pytest

from tests.onerule import apply, run

SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
words = ["a", "b", "c"]
data = TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


class Meter:
    def __init__(self):
        self.table = [[0] * 3 for _ in range(3)]

    def add(self, out, target):
        guess = out.argmax(dim=1)
        for k in range(target.size(0)):
            self.table[int(target[k])][guess[k].item()] += 1


def hits(guess, target):
    return sum(1 for p, t in zip(guess, target) if p == t)


def run_epoch():
    right, total, table, texts, kept = [0.0] * 3, 0, torch.zeros(3, 3), [], []
    meter, last = Meter(), None
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        pred = out.argmax(1)
        loss = F.cross_entropy(out, y)
{step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    print(right, total, table, texts, kept, meter.table, last)


for epoch in range(2):
    run_epoch()
"""


def script(step: str) -> str:
    return SCRIPT.replace("{step}", textwrap.indent(step, " " * 8))


def output(text: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        run(text)
    return out.getvalue()


LOOKED_AT = [
    (
        "c = (pred == y).squeeze()\nfor i in range(len(y)):\n    label = y[i]\n    right[label] += c[i].item()\n    total += 1",
        ["y, c = y.cpu(), c.cpu()"],
    ),
    (
        "for t, p in zip(y.view(-1), pred):\n    table[t.long(), p.long()] += 1",
        ["for t, p in zip(y.view(-1).cpu(), pred.cpu()):"],
    ),
    ("for p in model(x).argmax(1):\n    texts.append(words[p])", ["for p in model(x).argmax(1).cpu():"]),
    (
        "for i, p in enumerate(pred):\n    if p == y[i]:\n        total += 1",
        ["y = y.cpu()", "for i, p in enumerate(pred.cpu()):"],
    ),
    ("texts += [words[k] for k in pred]", ["texts += [words[k] for k in pred.cpu()]"]),
    (
        "texts.append({i: 1 if pred[i] == y[i] else 0 for i in range(len(y))})",
        ["pred, y = pred.cpu(), y.cpu()"],
    ),
    (
        "top, idx = out.softmax(1).topk(2, dim=1)\n"
        "texts += [f'{words[j.item()]} {p:.3f}' for i in range(2) for p, j in zip(top[i], idx[i])]",
        ["top, idx = top.cpu(), idx.cpu()"],
    ),
    (
        "for i in range(y.size(0)):\n    texts.append(words[y[i]:pred[i] + 1])",
        ["y, pred = y.cpu(), pred.cpu()"],
    ),
    (
        "for r in range(out.size(0)):\n    for k in range(3):\n        if out[r, k] > 0 and k != y[r]:\n            total += 1",
        ["out, y = out.cpu(), y.cpu()"],
    ),
    ("meter.add(out, y)", ["target, guess = target.cpu(), guess.cpu()"]),
    (
        "total += hits(pred, y)",
        ["return sum(1 for p, t in zip(guess.cpu(), target.cpu()) if p == t)"],
    ),
    # used behind the loop, or beside it in the statement: under another name
    (
        "for i in range(len(y)):\n    total += int(pred[i])\nloss = loss + 0 * pred.sum()",
        ["pred_host = pred.cpu()", "total += int(pred_host[i])"],
    ),
    (
        "total += len(pred.unique()) + sum(1 for i in range(3) if pred[i])",
        ["pred_host = pred.cpu()", "total += len(pred.unique()) + sum(1 for i in range(3) if pred_host[i])"],
    ),
    # in a loop inside of the step: before that one
    (
        "for b in range(2):\n    gold = [words[y[k].item()] for k in range(b, 3)]\n    texts.append(gold)",
        ["y = y.cpu()"],
    ),
    # what is computed with stays, what only says which is copied
    (
        "loss = 0\nfor i in range(len(y)):\n    loss = loss - F.log_softmax(out[i], 0)[y[i].item()]",
        ["y = y.cpu()"],
    ),
    (
        "for i in range(len(y)):\n    loss = loss + out[i, : y[i]].sum()",
        ["y = y.cpu()"],
    ),
    (
        "for i in range(len(y)):\n    if pred[i].item() > 0:\n        kept.append(pred[i])\n        total += y[i].item()",
        ["y = y.cpu()"],
    ),
]  # fmt: skip


@pytest.mark.parametrize(("step", "lines"), LOOKED_AT)
def test_what_is_only_looked_at_is_copied_once(step: str, lines: list[str]) -> None:
    text = script(step)
    done = apply("loss-item-sync", text)
    assert [line for line in done.lines if ".cpu()" in line or "_host" in line] == lines
    assert output(done.text) == output(text)


@pytest.mark.parametrize(
    ("inner", "first"),
    [
        ("", True),
        ("    pred[b] = 0\n", False),
        ("    pred.view(-1)[b] = 0\n", False),
        ("    same = pred\n    same += b\n", True),
        ("    pred = pred + b\n", False),
        ("    change(pred)\n", False),
        ("    look(pred)\n", True),
    ],
)
def test_an_inner_loop_copies_nothing_again(inner: str, first: bool) -> None:
    loop = "        for b in range(2):\n"
    read = "gold = [words[pred[k].item() % 3] for k in range(b, 3)]"
    text = script(f"{loop.strip()}\n    {read}\n{inner}    texts.append(gold)")
    helpers = "def change(row):\n    row[0] = 1\n\n\ndef look(row):\n    return row + 1\n\n\n"
    text = text.replace("class Meter", helpers + "class Meter")
    done = apply("loss-item-sync", text)
    assert (done.text.index("pred.cpu()") < done.text.index(loop)) is first
    assert output(done.text) == output(text)


@pytest.mark.parametrize(
    "step",
    [
        "for i in range(len(y)):\n    if pred[i].item() > 0:\n        kept.append(pred[i])",
        "for i in range(len(y)):\n    if pred[i].item() > 0:\n        pred[i] = 0\nkept.append(pred.sum().item())",
        "for i in range(len(y)):\n    last = pred[i]\n    if last.item() == 1:\n        break",
        "seen = torch.zeros(3, device=device)\nfor p in range(3):\n    seen[pred[p]] += 1\nkept.append(seen)",
        "for i in range(len(y)):\n    if out[i].sum().item() > 0:\n        kept.append(i)",
        "for i in range(len(y)):\n    pred[i].add_(1)\n    total += pred[i].item()",
        "for i in range(len(y)):\n    loss = loss + out[i][y[i]] / out[i][0].item()",
        "for i in range(len(y)):\n    row = out[i].detach().cpu().numpy()\n    row[0] = 1\n    total += int(out[i][0])",
        "for i in range(2):\n    total += pred[i].item()\n    for part in pred.split(4):\n        kept.append(part)",
        "late = (words[p] for p in pred)\ntexts.append(next(late))",
        "if len(texts) % 100 == 99:\n    for p in pred:\n        print(words[p])",
        "show = lambda row: [int(row[i]) for i in range(3)]\ntexts.append(show(pred))",
        "for c in range(3):\n    right[c] += ((pred == c) & (y == c)).sum().item()",
    ],
)
def test_what_is_kept_changed_or_computed_with_stays(step: str) -> None:
    text = script(step)
    done = apply("loss-item-sync", text)
    assert ".cpu()" not in "".join(done.lines), done.lines
    assert output(done.text) == output(text)


def test_what_others_may_give_as_something_else_stays() -> None:
    text = script("total += hits(pred, y)") + "print(hits([1, 2], [1, 3]))\n"
    assert not apply("loss-item-sync", text).fixes


def test_a_call_in_the_loop_may_change_what_it_looks_at() -> None:
    change = (
        "\ndef change(where):\n    where.fill_(0)\n\n\nmodel.seen = torch.ones(8, device=device)\n"
    )
    step = "seen = model.seen\nfor i in range(len(y)):\n    total += seen[i].item()\n    change(model.seen)"
    text = script(step).replace("\nclass Meter", change + "\nclass Meter")
    done = apply("loss-item-sync", text)
    assert ".cpu()" not in "".join(done.lines), done.lines
    assert output(done.text) == output(text)
