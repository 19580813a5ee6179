"""python-loop: loops over the rows of tensors become operations on whole tensors, where that gives
the same.
"""

from __future__ import annotations

import contextlib
import io
import textwrap

import pytest

from autofast.rule import Effect
from tests.onerule import apply, run

HEAD = """
import random
import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader, Dataset, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
"""
UPDATE = """\
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


def script_of(text: str) -> str:
    """``text`` behind what all scripts begin with, and with what updates the weights."""
    return HEAD + text.replace("        {update}\n", UPDATE)


SCRIPT = script_of("""\
use_cuda = torch.cuda.is_available()


class Words(Dataset):
    def __init__(self, n):
        self.items = [(torch.randint(1, 9, (3 + i % 5,)), i % 3) for i in range(n)]

    def __len__(self):
        return len(self.items)

    def __getitem__(self, i):
        return self.items[i]


def collate(batch):
    batch.sort(key=lambda b: -len(b[0]))
    lengths = {lengths}
    ids = torch.zeros(len(batch), max(len(b[0]) for b in batch)).long()
    for i, (words, _) in enumerate(batch):
        ids[i, : len(words)] = words
    return ids, lengths, torch.tensor([b[1] for b in batch])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(9, 4)
        self.rnn = nn.GRU(4, 4, batch_first=True)
        self.out = nn.Linear(4, 3)

    def forward(self, ids, lengths):
        h = self.embed(ids)
        B, T = ids.shape
{mask}
        shown = mask.float().view(B, T, 1)
        seen.append(shown.sum(0).tolist())
        return self.out((h * shown).sum(1))


seen = []
loader = DataLoader(Words(22), batch_size=4, collate_fn=collate)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
confusion, hits, table = torch.zeros(3, 3), torch.zeros(3), np.zeros((3, 3), dtype=int)
right = total = 0
classes = [0, 0, 0]
for epoch in range(2):
    for ids, lengths, y in loader:
        ids, lengths, y = ids.to(device), lengths.to(device), y.to(device)
        logits = model(ids, lengths)
        loss = F.cross_entropy(logits, y)
        {update}
        pred = logits.argmax(1)
{count}
print(seen, confusion, hits, table, right, total, classes, float(loss))
""")
COUNTED = "for t, p in zip(y, pred):\n    "
MASK = "mask = (ids > 0).float()"
FIXED = "torch.tensor([len(b[0]) for b in batch])"


def script(mask: str = MASK, count: str = "pass", lengths: str = FIXED) -> str:
    text = SCRIPT.replace("{lengths}", lengths).replace("{mask}", textwrap.indent(mask, " " * 8))
    return text.replace("{count}", textwrap.indent(count, " " * 8))


def output(text: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as out:
        run(text)
    return out.getvalue()


MASKS = [
    (
        "mask = torch.zeros(B, T, device=ids.device)\nfor i, n in enumerate(lengths):\n    mask[i, :n] = 1",
        "mask = (torch.arange(T, device=ids.device) < lengths.view(-1, 1)).float()",
    ),
    (
        "mask = torch.ones(B, T).to(ids.device)\nfor i in range(B):\n    mask[i, lengths[i]:] = 0",
        "mask = (torch.arange(T, device=ids.device) < lengths.view(-1, 1)).float()",
    ),
    (
        "mask = torch.zeros(ids.size(0), ids.size(1), dtype=torch.bool, device=device)\nfor i in range(ids.size(0)):\n"
        "    mask[i, lengths[i].item():] = True",
        "mask = torch.arange(ids.size(1), device=device) >= lengths.view(-1, 1)",
    ),
    (
        "mask = torch.zeros((B, T)).long().to(device)\nfor i in range(len(lengths)):\n    n = lengths[i]\n    mask[i][:n] = 1",
        "mask = (torch.arange(T, device=device) < lengths.view(-1, 1)).long()",
    ),
    (
        "mask = h.new_zeros(B, T)\nfor i in range(B):\n    mask[i, 1:lengths[i] + 1] = 1",
        "positions = torch.arange(T, device=h.device)\n"
        "mask = ((positions >= 1) & (positions < (lengths + 1).view(-1, 1))).to(h.dtype)",
    ),
    (
        "mask = torch.ones(B, 1, T).to(ids.device)\nfor i, n in enumerate(lengths):\n    mask[i, :, n:] = 0",
        "mask = (torch.arange(T, device=ids.device) < lengths.view(-1, 1, 1)).float()",
    ),
    (
        "mask = torch.ones(B, T, 1).to(ids.device)\nfor i, n in enumerate(lengths):\n    mask[i, n:] = 0",
        "mask = (torch.arange(T, device=ids.device).view(-1, 1) < lengths.view(-1, 1, 1)).float()",
    ),
    (
        "mask = torch.zeros(ids.shape[:2], device=device)\nfor i, n in enumerate(lengths):\n    mask[i, n:] = -1e4",
        "mask.masked_fill_(torch.arange(ids.shape[1], device=device) >= lengths.view(-1, 1), -1e4)",
    ),
    (  # of a list
        "lens = [int(n) for n in (ids > 0).sum(1)]\nmask = torch.zeros(len(lens), T, device=device)\n"
        "for i, n in enumerate(lens):\n    mask[i, :n] = 1",
        "mask = (torch.arange(T, device=device) < torch.tensor(lens).to(device).view(-1, 1)).float()",
    ),
    (  # on the host: read once
        "mask = torch.zeros(B, T)\nfor i in range(B):\n    mask[i, :lengths[i]] = 1\nk = mask[0]\nmask = mask.to(device)",
        "mask = (torch.arange(T) < lengths.cpu().view(-1, 1)).float()",
    ),
    (  # ... or made where it goes
        "mask = torch.zeros(B, T)\nfor i in range(B):\n    mask[i, :lengths[i]] = 1\nif use_cuda:\n    mask = mask.cuda()",
        "mask = (torch.arange(T, device=lengths.device) < lengths.view(-1, 1)).float()",
    ),
    (
        "packed = pack_padded_sequence(h, lengths.cpu(), batch_first=True)\nh, _ = self.rnn(packed)\n"
        "h, _ = pad_packed_sequence(h, batch_first=True)\nmask = torch.zeros(h.size(0), h.size(1), device=device)\n"
        "for i in range(h.size(0)):\n    mask[i, :lengths[i]] = 1",
        "mask = (\ntorch.arange(h.size(1), device=device)\n"
        "< lengths.to(device, non_blocking=True).view(-1, 1)\n).float()",
    ),
]


COUNTS = [
    (
        "for t, p in zip(y.view(-1), pred.view(-1)):\n    confusion[t.long(), p.long()] += 1",
        "confusion.index_put_((y.view(-1).long().cpu(), pred.view(-1).long().cpu()), "
        "confusion.new_tensor(1), accumulate=True)",
    ),
    (
        "for i in range(y.size(0)):\n    table[int(y[i]), int(pred[i])] += 1\n    if pred[i] == y[i]:\n        right += 1",
        "np.add.at(table, (y.long().cpu().numpy(), pred.cpu().numpy()), 1)\nright += (pred == y).sum().item()",
    ),
    (
        "for t, p in zip(y, pred):\n    confusion[t][p] += 1\n    hits[t] += int(t == p)\n    total += 1",
        "",
    ),
    (
        "for t, p in zip(y, pred):\n    hits[t] += int(t == p)\n    total += 1",
        "hits.index_put_((y.long().cpu(),), (y == pred).to(hits), accumulate=True)\ntotal += len(y)",
    ),
    (
        "for i, t in enumerate(y):\n    label = t.item()\n    if label == pred[i].item():\n        hits[label] += 1\n    else:\n        total += 2",
        "hits.index_put_((y.long()[y == pred].cpu(),), hits.new_tensor(1), accumulate=True)\ntotal += 2 * (~(y == pred)).sum().item()",
    ),
    (
        "for t, p in zip(y, pred):\n    if t.item() != 2:\n        confusion[t.item(), p.item()] += 1",
        "kept = y.long() != 2\nconfusion.index_put_((y.long()[kept].cpu(), pred[kept].cpu()), confusion.new_tensor(1), accumulate=True)",
    ),
    (
        "for i in range(len(pred)):\n    right += (pred[i] == y[i]).item()\n    hits[y[i].item()] += (pred[i] == y[i]).item()",
        "right += (pred == y).sum().item()\nhits.index_put_((y.long().cpu(),), (pred == y).to(hits), accumulate=True)",
    ),
]


@pytest.mark.parametrize(("mask", "written"), MASKS)
def test_masks_are_made_at_once(mask: str, written: str) -> None:
    check(script(mask), written)


PLAIN = script_of("""\
model = nn.Linear(4, 3).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(22, 4), torch.arange(22) % 3), batch_size=4)
hits, total, seen = torch.zeros(3), 0, {}
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        logits = model(x)
        loss = F.cross_entropy(logits, y)
        {update}
        pred = logits.argmax(1)
        for t, p in zip(y, pred):
            COUNT
    print(hits, repr(total), seen)
""")
TRUTHS = [
    ("hits[t.item()] += int(t == p) + int(t != 0)", "(y == pred).long() + (y != 0).long()"),
    ("hits[t.item()] += int(t == p) - int(t != 0)", "(y == pred).long() - (y != 0).long()"),
    ("total += 200 * t.item()", "total += (200 * y.long()).sum().item()"),
    ("total += (t == p).item() + (t == 0).item()", "(y == pred).long() + (y == 0).long()"),
    ("total += float(t == p)", ""),
    ("total += int(float(t) > 0.1)", ""),
    ("if t == 7:\n                seen['n'] += 1", ""),
    ("total += int(t == p) + 1", ".sum().item()"),
]
LABELS = [("torch.arange(22) % 3", "y.long()"), ("(torch.arange(22) % 2).float()", "y.long()"),
          ("torch.arange(22) % 2 == 0", "y.long()"),
          ("torch.from_numpy(np.arange(22, dtype='B') % 3)", "y")]  # fmt: skip


@pytest.mark.parametrize(("labels", "given"), LABELS)
def test_labels_of_other_types(labels: str, given: str) -> None:
    text = PLAIN.replace("torch.arange(22) % 3", labels).replace(
        "(logits, y)", f"(logits, {given})"
    )
    text = text.replace("COUNT", "hits[int(t)] += 1")
    found = apply("python-loop", text)
    assert found.fixes and output(text) == output(found.text)


@pytest.mark.parametrize(("count", "written"), TRUTHS)
def test_truths_are_added_as_numbers(count: str, written: str) -> None:
    text = PLAIN.replace("COUNT", count)
    found = apply("python-loop", text)
    assert bool(found.fixes) is bool(written) and written in found.text
    assert output(text) == output(found.text)


def test_a_span_of_zeros_in_ones() -> None:
    fill = "for i, n in enumerate(lengths):\n    mask[i, n:n + 1] = 0"
    text = script("mask = torch.ones(B, T, device=ids.device)\n" + fill)
    found = apply("python-loop", text)
    assert found.fixes and output(text) == output(found.text)


@pytest.mark.parametrize(("count", "written"), COUNTS)
def test_rows_are_counted_at_once(count: str, written: str) -> None:
    check(script(count=count), written)


def check(text: str, written: str) -> None:
    found = apply("python-loop", text)
    assert "".join("".join(found.lines).split()) == "".join(written.split())
    assert bool(found.fixes) == bool(written)
    assert output(found.text) == output(text)


SPANS = [
    (
        "f0_spans, t0_spans = [], []\n",
        "for i in range(x.size(0)):\n    f = random.randint(0, 2)\n    f0 = random.randint(0, x.size(1) - f)\n"
        "    x[i, f0:f0 + f, :] = 0\n    t0 = np.random.randint(0, 4)\n    x[i, :, t0:t0 + 2] = 0",
    ),
    (
        "f_spans, t_spans = [], []\n",
        "for i in range(len(x)):\n    for _ in range(2):\n        w = random.randint(0, 1)\n        f = random.randint(0, x.shape[1] - w)\n"
        "        x[i, f:f + w] = 0\n        w = random.randint(0, 2)\n        t = random.randint(0, x.shape[2] - w)\n        x[i, :, t:t + w] = 0",
    ),
    (
        "spans = []\n",
        "for i in range(x.size(0)):\n    x[i, :, :random.randint(0, 3)] = 1.5",
    ),
    (
        "a_spans = []\n",
        "n = x.size(0)\nfor i in range(n):\n    a, b = random.randint(0, 3), random.randint(0, 5)\n    x[i, a:] = -2",
    ),
]
SPANNED = script_of("""\
random.seed(0), np.random.seed(0)


def augment(x):
{body}
    return x


model = nn.Linear(30, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for (x,) in DataLoader(TensorDataset(torch.randn(10, 5, 6)), batch_size=4):
        x = augment(x.to(device))
        loss = model(x.flatten(1)).pow(2).mean()
        {update}
        print(x, loss, random.random(), np.random.rand())
""")


def spanned(body: str) -> str:
    return SPANNED.replace("{body}", textwrap.indent(body, "    "))


@pytest.mark.parametrize(("lists", "loop"), SPANS)
def test_spans_are_filled_at_once(lists: str, loop: str) -> None:
    text = spanned(loop)
    found = apply("python-loop", text)
    assert len(found.fixes) == 1 and lists in found.text
    assert output(found.text) == output(text)


DRAWN = "for i in range(x.size(0)):\n    a = random.randint(0, 3)\n    "
KEPT_SPANS = [
    (DRAWN + "x[i, a - 1:a + 1] = 0", "`a - 1` is never negative"),
    (DRAWN.replace("x.size(0)", "4") + "x[i, a:a + 1] = 0", "goes over all rows of `x`"),
    (DRAWN + "x[i, a:a + 1] = x[i].mean().item()", ""),
    (DRAWN + "x[i, a:a + 1] = 0\n    x[i, a + 1:] = 1", ""),
    (DRAWN + "if a:\n        x[i, :a] = 0", ""),
    (DRAWN + "x[i, a:a + 1] = 0\n    x = x * 1", ""),
    (DRAWN + "x[i, a:a + 1, 2] = 0", ""),
    (DRAWN + "a = int(x[i, 0, 0] > 0)\n    x[i, a:a + 1] = 0", ""),
    (DRAWN + "for _ in range(a):\n        x[i, :a] = 0", ""),
]


@pytest.mark.parametrize(("loop", "why"), KEPT_SPANS)
def test_spans_that_stay(loop: str, why: str) -> None:
    found = apply("python-loop", spanned(loop))
    assert not found.fixes and bool(found.refusals) == bool(why) and why in found.refusals


ROWS = "for i, n in enumerate(lengths):\n    mask[i, :n] = 1"
ZEROS = "mask = torch.zeros(B, T, device=ids.device)\n"
REFUSED = [
    (script(ZEROS + ROWS, lengths="torch.tensor([b[1] - 1 for b in batch])"), "never negative"),
    (
        script(ZEROS + ROWS, lengths="torch.tensor([min(len(b[0]), b[1] - 2) for b in batch])"),
        "never negative",
    ),
    (script(ZEROS + ROWS, lengths=f"{FIXED}.clamp(max=-1)"), "never negative"),
    (script(ZEROS + ROWS, lengths="torch.arange(2, 2 - len(batch), -1)"), "never negative"),
    (script(ZEROS + "lengths.sub_(6)\n" + ROWS), "never negative"),
    (script(ZEROS + "lengths[0] = -1\n" + ROWS), "never negative"),
    (script(ZEROS + ROWS, lengths=f"{FIXED}\n    v = lengths[1:]\n    v -= 6"), "never negative"),
    (script(ZEROS + "def cut(t):\n    t.sub_(6)\ncut(lengths)\n" + ROWS), "never negative"),
    (script(ZEROS + "T = T // 2\n" + ROWS), "`T` gets another value"),
    (script(ZEROS + ROWS, lengths=f"{FIXED}[:2]"), "as many rows"),
    (
        script(ZEROS + ROWS, lengths="torch.tensor([len(b[0]) for b in batch if b[1]])"),
        "as many rows",
    ),
    (
        script(count="for t, n in zip(y, lengths):\n    hits[t] += n", lengths=f"{FIXED}[:2]")
        .replace("import numpy", "from functools import partial\nimport numpy")
        .replace("collate_fn=collate", "collate_fn=partial(collate)"),
        "`y` and `lengths` have as many rows",
    ),
    (script(ZEROS + "k = mask.sum()\n" + ROWS), "is used before it is filled"),
    (
        script(ZEROS + "if B > 1:\n    for i in range(B):\n        mask[i, :lengths[i]] = 1"),
        "under another condition",
    ),
    (script(ZEROS + ROWS + "\nmask[0] += n * 0"), "`n` of its last turn"),
    (
        script("mask = torch.zeros(B + 0, T, device=ids.device)\n" + ROWS),
        "as many rows as the loop turns",
    ),
    (
        script(
            "z = torch.zeros(9, T, device=ids.device)\nmask = torch.zeros(len(z), T, device=ids.device)\n"
            + ROWS
            + "\nmask = mask[:B]"
        ),
        "`lengths` and `z` have as many rows",
    ),
    (script(count=COUNTED + "classes[t] += int(t == p)"), "`classes` is no tensor or array"),
    (script(count=COUNTED + "hits[t] += 1"), "one number in each row"),
    (
        script(
            count="few = torch.zeros(2).long()\nfor t, p in zip(y, few):\n    confusion[t.item(), p.item()] += 1"
        ),
        "`y` and `few` have as many rows",
    ),
    (script(count="for i in range(3):\n    hits[y[i].item()] += 1"), "goes over all rows"),
    (
        script(count=COUNTED + "confusion[t.item(), p.item()] += 1\ntotal += int(t)"),
        "`t` of its last turn",
    ),
]
UNLIKE = [
    script(ZEROS + ROWS + "\n    mask[i, 0] = mask[i, 0] * 2"),
    script("mask = torch.zeros(B, T).to(device=device, non_blocking=True)\n" + ROWS),
    script(ZEROS + ROWS + "\n    if n == 3:\n        break"),
    script("mask = torch.zeros(B, T, requires_grad=True)\n" + ROWS.replace("mask[", "mask.data[")),
    "import torch\ntorch.set_default_dtype(torch.float64)\n" + script(ZEROS + ROWS),
    script(count=COUNTED + "if hits[t] < 5:\n        hits[t] += int(t == p)"),
    script(count=COUNTED + "hits[t] += 0.1 * int(t == p)"),
    script(count=COUNTED + "hits[t] += float(logits[0, 0] * int(t == p))"),
    script(count=COUNTED + "total += float(t == p)"),
    script(count=COUNTED + "if t == p:\n        total += 1.0"),
    script(count="del total\n" + COUNTED + "if t == 7:\n        total += 1"),
    script(count="seen = {}\n" + COUNTED + "if t == 7:\n        seen['n'] += 1"),
    script(count="for z in logits.exp().sum(1):\n    if z.item() > 0.1:\n        total += 1"),
    script(count="small = torch.zeros(3).half()\n" + COUNTED + "small[t] += int(t == p)"),
    script(count=COUNTED + "hits[hits[t].long()] += int(t == p)"),
    script(count=COUNTED + "confusion[t.item(), np.random.randint(3)] += 1"),
    script(count=COUNTED + "model.n += 1\n    confusion[t.item(), model.n % 3] += 1").replace(
        "right = total", "model.n = right = total"
    ),
    script(ZEROS + "for i in range(B):\n    mask[i, np.random.randint(2):lengths[i]] = 1"),
    script(count="y, pred = y.cpu(), pred.cpu()\n" + COUNTED + "hits[t] += int(t == p)"),
]


@pytest.mark.parametrize(("text", "why"), REFUSED)
def test_loops_that_stay(text: str, why: str) -> None:
    found = apply("python-loop", text)
    assert not found.fixes and why in found.refusals


@pytest.mark.parametrize("text", UNLIKE)
def test_other_loops(text: str) -> None:
    found = apply("python-loop", text)
    assert not found.fixes and not found.refusals


ROW_BY_ROW = [
    "parts = []\nfor g in range(int(y.max()) + 1):\n    parts.append(h[y == g].max(0)[0])\nh = torch.stack(parts)[y]",
    "for i in range(B):\n    h[i] = h[i] / (h[i].norm() + 1)",
    "out = torch.zeros(B, device=ids.device)\nfor i in range(B):\n    for t in range(T):\n        out[i] = out[i] + h[i, t].sum()",
    "h = torch.stack([h[i] * h[i].sum() for i in range(B)])",
    "def total(row):\n    return (row * row).sum()\nsizes = [total(row) for row in h]",
    "for start in range(0, T - 1):\n    h[:, start] = h[:, start : start + 2].mean(1)".replace(
        "h[:, start] =", "self.seen[:B, start] ="
    ),
]
IN_ORDER = [
    "for t in range(1, T):\n    h[:, t] = h[:, t] + h[:, t - 1] / 2",  # each needs the one before
    "s = h[:, 0]\nfor t in range(T):\n    s = torch.tanh(s + h[:, t])",
    "last = None\nfor t in range(T):\n    last = h[:, t] if last is None else h[:, t] * last",
    "for row in h:\n    self.keep(row * 2)",
    "for i in range(B):\n    self.sums.append(h[i].sum() + len(self.sums))",
    "for i in range(4):\n    h[:, i % T] = h[:, i % T] * 2",  # too few
    "for part in h.chunk(4):\n    part.sum()",  # as many at once as there is memory for
    "for w in self.parameters():\n    h = h + (w * w).sum()",
    "names = [str(i) for i in range(B)]",
    "for layer in [self.rnn]:\n    h, _ = layer(h)",
]
KEEPS = """        self.seen, self.sums, self.last = torch.zeros(99, 99, 4), [], 0

    def keep(self, row):
        self.last = row + self.last

    def forward("""


@pytest.mark.parametrize(
    ("code", "advised"), [*((c, True) for c in ROW_BY_ROW), *((c, False) for c in IN_ORDER)]
)
def test_advice(code: str, advised: bool) -> None:
    """Loops over rows that have no form, but whose turns do not depend on each other."""
    text = script(f"{MASK}\n{code}").replace("    def forward(", KEEPS.lstrip(), 1)
    text = text.replace("self.out = nn.Linear(4, 3)\n\n", "self.out = nn.Linear(4, 3)\n        ", 1)
    found = apply("python-loop", text)
    assert not found.fixes and bool(found.advice) is advised
    assert found.advice.count("no turn needs") == advised


@pytest.mark.parametrize(
    ("count", "why"),
    [
        ("pass", ""),
        ("for t, n in zip(y, joined):\n    hits[t] += n", "`y` and `joined` have as many"),
    ],
)
def test_parts_of_a_batch_that_are_joined(count: str, why: str) -> None:
    """Targets of all samples in one row say nothing of the other parts of the batch."""
    text = script(ZEROS + ROWS, count).replace(
        "for ids, lengths, y in", "for ids, lengths, y, joined in"
    )
    labels = "torch.tensor([b[1] for b in batch])"
    text = text.replace(
        f"lengths, {labels}", f"lengths, {labels}, torch.cat([b[0] for b in batch])"
    )
    found = apply("python-loop", text)
    assert "torch.arange(T" in found.text and why in found.refusals
    assert output(text) == output(found.text)


def test_what_is_gone_needs_no_copies() -> None:
    """loss-item-sync copies to the host what a loop looks at, but for one that goes."""
    text = script(count=COUNTED + "hits[t] += int(t == p)")
    assert [f.rule for f in apply("loss-item-sync", text).fixes] == ["loss-item-sync"]
    both = apply("loss-item-sync python-loop", text)
    assert [f.rule for f in both.fixes] == ["python-loop"]
    kept = apply("loss-item-sync python-loop", script(count=COUNTED + "classes[t] += int(t == p)"))
    assert [f.rule for f in kept.fixes] == ["loss-item-sync"]


def test_lengths_stay_where_the_mask_is_made() -> None:
    """loss-item-sync leaves lengths on the host that are only fetched back, as a loop does; what
    takes the place of the loop copies them.
    """
    packed = "packed = pack_padded_sequence(h, lengths.cpu(), batch_first=True)\n"
    text = script(packed + ZEROS + ROWS)
    assert "lengths.to(device)" not in apply("loss-item-sync", text).text
    both = apply("loss-item-sync python-loop", text)
    assert {f.rule for f in both.fixes} == {"loss-item-sync", "python-loop"}
    assert "lengths.to(device)" not in both.text and "lengths.to(ids.device, " in both.text


DICE = script_of("""

def criterion(logits, target):
    probs, n = torch.sigmoid(logits), logits.size(0)
    total = 0
{body}
    return total / n


data = TensorDataset(torch.randn(10, 3, 4, 4), torch.randint(0, 2, (10, 2, 4, 4)).float())
model = nn.Conv2d(3, 2, 3, padding=1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=4):
        loss = criterion(model(x.to(device)), y.to(device))
        {update}
        print("loss", loss.item())
""")
EACH = "for i in range(probs.size(0)):\n    "
LOSSES = [
    (
        EACH + "p = probs[i].mean()\n    total = total + (2**p) ** 2",
        "p = probs.flatten(1).mean(1)\ntotal = total + ((2**p) ** 2).sum()",
    ),
    (
        EACH + "p = probs[i].view(-1)\n    t = target[i].view(-1)\n"
        "    total = total + ((p > 0.5) == (t > 0.5)).float().mean() + p.mean()",
        "p = probs.flatten(1)\nt = target.reshape(len(target), -1)\n"
        "total = total + (((p > 0.5) == (t > 0.5)).float().mean(1) + p.mean(1)).sum()",
    ),
    (
        "for i in range(logits.size(0)):\n    p = probs[i].view(-1)\n    t = target[i].view(-1)\n    inter = (p * t).sum()\n"
        "    total = total + 1 - (2 * inter + 1) / (p.sum() + t.sum() + 1)",
        "p = probs.flatten(1)\nt = target.reshape(len(target), -1)\ninter = (p * t).sum(1)\n"
        "total = total + (1 - (2 * inter + 1) / (p.sum(1) + t.sum(1) + 1)).sum()",
    ),
    (
        "for i, p in enumerate(probs):\n    total += -p.log().mean()",
        "total += (-probs.log().flatten(1).mean(1)).sum()",
    ),
    (
        "like = torch.zeros(probs.shape).to(device)\nfor b in range(probs.shape[0]):\n    for c in range(1, 2):\n"
        "        total += (probs[b, c] - like[b, c]).pow(2).sum() - 0.5",
        "for c in range(1, 2):\n"
        "total += ((probs[:, c] - like[:, c]).pow(2).reshape(len(probs), -1).sum(1) - 0.5).sum()",
    ),
    (
        EACH + "p, t = probs[i].reshape(-1), target[i].reshape(-1)\n    inter = (p * t).sum()\n"
        "    total = total + 1.0 - (2.0 * inter + 1) / (p.sum() + t.sum() + 1)",
        "p = probs.flatten(1)\nt = target.reshape(len(target), -1)\ninter = (p * t).sum(1)\n"
        "total = total + (1.0 - (2.0 * inter + 1) / (p.sum(1) + t.sum(1) + 1)).sum()",
    ),
    (
        EACH + "p = probs[i].flatten()\n    a, b = p.sum(), p.max()\n    total = total + a / b",
        "p = probs.flatten(1)\na = p.sum(1)\nb = p.amax(1)\ntotal = total + (a / b).sum()",
    ),
    (
        EACH
        + "p, t = probs[i].flatten(), target[i].flatten()\n    p, t = t, p\n    total = total + t.max()",
        "",
    ),
    (EACH + "total = total * 2 + probs[i].sum()", ""),
    (EACH + "total = total + (probs[i] * target[i]).sum()", ""),  # one may be spread over the other
    (EACH + "p = probs[i].sum()\n    total = total + p\ntotal = total + 0 * p", ""),
    (EACH + "total = total + probs[i].view(-1)[0]", ""),
    (EACH + "total = total + F.mse_loss(probs[i], target[i])", ""),
    (EACH + "total = total + probs[i].sum() * torch.rand(1).item()", ""),
    (EACH + "k = int(torch.randint(2, (1,)))\n    total = total + probs[i, k].sum()", ""),
    (EACH + "m = total\n    total = total + probs[i].sum() + 0 * m", ""),
    ("for i in range(2):\n    total = total + probs[i].sum()", ""),
]


@pytest.mark.parametrize(("body", "written"), LOSSES)
def test_losses_of_single_samples(body: str, written: str) -> None:
    text = DICE.replace("{body}", textwrap.indent(body, "    "))
    found = apply("python-loop", text)
    assert "".join("".join(found.lines).split()) == "".join(written.split())
    assert [f.effect for f in found.fixes] == [Effect.ROUNDING] * bool(written)
    same_but_rounding(found.text, text)


def same_but_rounding(one: str, other: str) -> None:
    both = (
        [float(w) for w in output(t).split() if w[0].isdigit() or w[0] == "-"] for t in (one, other)
    )
    for a, b in zip(*both, strict=True):
        assert a == pytest.approx(b, rel=1e-5)


TRIPLET = script_of("""

def hardest(inputs, targets):
    n = inputs.size(0)
    dist = torch.pow(inputs, 2).sum(dim=1, keepdim=True).expand(n, n)
    dist = dist + dist.t()
    dist = torch.addmm(dist, inputs, inputs.t(), beta=1, alpha=-2)
    dist = dist.clamp(min=1e-12).sqrt()
    mask = targets.expand(n, n).eq(targets.expand(n, n).t())
    ap, an = [], []
    for i in range(n):
{body}
{joined}
    return torch.relu(ap - an + 0.3).mean()


data = TensorDataset(torch.randn(24, 5), torch.arange(24) % 3)
model = nn.Linear(5, 4).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=8):
        loss = hardest(model(x.to(device)), y.to(device))
        {update}
        print(loss.item(), [p.tolist() for p in model.parameters()])
""")
MINED = "ap.append(dist[i][mask[i]].max(){one})\nan.append(dist[i][mask[i] == 0].min(){one})"
JOINED = "ap = torch.cat(ap)\nan = torch.cat(an)"


def triplet(body: str, joined: str) -> str:
    text = TRIPLET.replace("{body}", textwrap.indent(body, " " * 8))
    return text.replace("{joined}", textwrap.indent(joined, " " * 4))


@pytest.mark.parametrize(
    ("one", "joined"),
    [(".unsqueeze(0)", JOINED), ("", "ap, an = torch.stack(ap), torch.stack(an, dim=0)")],
)
def test_hardest_examples(one: str, joined: str) -> None:
    text = triplet(MINED.replace("{one}", one), joined)
    found = apply("python-loop", text)
    assert [f.effect for f in found.fixes] == [Effect.EXACT]
    assert 'dist.masked_fill(~mask, float("-inf")).amax(1)' in found.text
    assert (
        'dist.masked_fill(mask, float("inf")).amin(1)' in found.text and "for i" not in found.text
    )
    assert output(found.text) == output(text)


@pytest.mark.parametrize(
    ("body", "joined"),
    [
        (MINED.replace("{one}", ""), JOINED.replace("cat(ap)", "stack(ap)") + "\nprint(len(ap))"),
        (MINED.replace("{one}", ""), "dist.mul_(2)\n" + JOINED.replace("cat", "stack")),
        (MINED.replace("{one}", ""), "first = ap[0]\n" + JOINED.replace("cat", "stack")),
        (MINED.replace("{one}", "") + "\nif i == 2:\n    break", JOINED.replace("cat", "stack")),
        (
            "ap.append(dist[i][targets[i]])\nan.append(dist[i].min())",
            JOINED.replace("cat", "stack"),
        ),
        (
            "ap.append(dist[i][dist[i] > 0].max())\nan.append(dist[i][mask[i] == 0].min())",
            JOINED.replace("cat", "stack"),
        ),
    ],
)
def test_collected_numbers_that_stay(body: str, joined: str) -> None:
    text = triplet(body, joined)
    found = apply("python-loop", text)
    if found.fixes:
        assert output(found.text) == output(text)
    else:
        assert found.text == found.before


FIELDS = script_of("""

class Machine(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.out = nn.Embedding(20, 3), nn.Linear({features}, 1)

    def forward(self, x):
        v = self.embed(x)
        f = v.size(1)
{body}
        return self.out(out)


data = TensorDataset(torch.randint(0, 20, (12, 4)), torch.randn(12, 1))
model = Machine().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(2):
    for x, y in DataLoader(data, batch_size=5):
        loss = nn.functional.mse_loss(model(x.to(device)), y.to(device))
        {update}
        print("loss", loss.item())
""")
TWO = "for i in range(f):\n    for j in range(i + 1, f):\n        "
INDICES = "i, j = torch.triu_indices(f, f, 1, device=v.device)\n"
PAIRS = [
    (
        6,
        "dots = []\n"
        + TWO
        + "dots.append((v[:, i] * v[:, j]).sum(1))\nout = torch.stack(dots, dim=1)",
        INDICES + "out = (v[:, i] * v[:, j]).sum(2)",
    ),
    (
        6,
        "dots = []\n"
        + TWO.replace("range(f)", "range(f - 1)")
        + "dots.append((v[:, i] * v[:, j]).sum(dim=1, keepdim=True))\nout = torch.cat(dots, 1)",
        INDICES + "out = (v[:, i] * v[:, j]).sum(2)",
    ),
    (
        18,
        "dots = []\n"
        + TWO
        + "dots.append(v[:, i] - v[:, j])\nout = torch.stack(dots, 1).flatten(1)",
        INDICES + "out = (v[:, i] - v[:, j]).flatten(1)",
    ),
    (
        1,
        "out = 0\n" + TWO + "out = out + (v[:, i] * v[:, j]).sum(dim=1, keepdim=True)",
        INDICES + "out = out + (v[:, i] * v[:, j]).sum(2).sum(1, keepdim=True)",
    ),
    (
        4,
        "dots = []\n"
        + TWO
        + "dots.append((v[:, i] * v[:, j]).sum(1))\nout = torch.stack(dots)[:4].t()",
        "",
    ),
    (
        6,
        "dots = []\n" + TWO + "dots.append((v[:, j] * v[:, j]).sum(1))\nout = torch.stack(dots, 1)",
        "",
    ),
    (
        6,
        "dots = []\n"
        + TWO
        + "dots.append((v[:, i] * v[:, j]).sum(1) + i)\nout = torch.stack(dots, 1)",
        "",
    ),
    (
        6,
        "dots = []\n"
        + TWO
        + "dots.append((v[:, i] * v[:, j]).sum(1))\nout = torch.stack(dots, 1) * len(dots)",
        "",
    ),
    (
        6,
        "dots = []\n"
        + TWO
        + "dots.append((v[:, i] * v[:, j]).sum(1))\nout = torch.stack(dots, 1) * j",
        "",
    ),
    (
        6,
        "dots = []\n"
        + TWO
        + "dots.append((v[:, i] * v[:, j]).sum(1))\nv = v * 2\nout = torch.stack(dots, 1)",
        "",
    ),
    (
        10,
        "dots = []\n"
        + TWO.replace("i + 1", "i")
        + "dots.append((v[:, i] * v[:, j]).sum(1))\nout = torch.stack(dots, 1)",
        "",
    ),
]


@pytest.mark.parametrize(("features", "body", "written"), PAIRS)
def test_pairs_of_columns(features: int, body: str, written: str) -> None:
    text = FIELDS.replace("{features}", str(features))
    text = text.replace("{body}", textwrap.indent(body, " " * 8))
    found = apply("python-loop", text)
    assert "".join("".join(found.lines).split()) == "".join(written.split())
    same_but_rounding(found.text, text)


HEADS = """
import torch
from torch import nn

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Head(nn.Module):
    def __init__(self, size):
        super().__init__()
        self.key = nn.Linear(8, size)

    def forward(self, x):
        return torch.relu(self.key(x))


class Heads(nn.Module):
    def __init__(self):
        super().__init__()
        self.heads = nn.ModuleList(LIST)
        self.out = nn.Linear(8, 1)

    def forward(self, x):
        return self.out(torch.cat(PARTS, dim=-1))


model = Heads().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(16, 8)), 4):
    loss = model(x.to(device)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("heads", "parts", "advised"),
    [
        ("[Head(2) for _ in range(4)]", "[head(x) for head in self.heads]", True),
        ("[nn.Linear(8, 1) for _ in range(8)]", "[layer(x).relu() for layer in self.heads]", True),
        ("[nn.Linear(8, 4), Head(4)]", "[head(x) for head in self.heads]", False),
        ("[Head(2) for _ in range(4)]", "[head(c) for head, c in zip(self.heads, [x] * 4)]", False),
        ("[Head(8)]", "[self.heads[0](r) for r in x[None]]", False),
    ],
)
def test_parts_of_one_class(heads: str, parts: str, advised: bool) -> None:
    found = apply("python-loop", HEADS.replace("LIST", heads).replace("PARTS", parts))
    assert not found.fixes and ("let one layer" in found.advice) is advised
