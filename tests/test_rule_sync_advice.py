"""loss-item-sync and per-step-io: waiting in every step that nothing spells out, moved where that
is safe, else reported.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.onerule import Applied, apply, run

SCRIPT = """
import math
import sys
from pathlib import Path
import numpy as np
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.tensorboard import SummaryWriter
from tqdm import tqdm
import matplotlib.pyplot as plt

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
writer = SummaryWriter()
log = Path("log.txt").open("w") if len(sys.argv) < 9 else None
found, shown = [], []
for epoch in range(2):
    bar = tqdm(loader, disable=True)
    for i, (x, y) in enumerate(bar):
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss = nn.functional.cross_entropy(out, y)
        optimizer.zero_grad()
        loss.backward()
        {body}
        optimizer.step()
    {end}
"""
ITEM, IO = "loss-item-sync", "per-step-io"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Scripts that are run write files where they stand."""
    monkeypatch.chdir(tmp_path)


def made(rule: str, body: str = "pass", end: str = "pass") -> Applied:
    parts = {"body": body.replace("\n", "\n        "), "end": end.replace("\n", "\n    ")}
    return apply(rule, SCRIPT.format(**parts))


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        ("if (out < 0).any():\n    found.append(i)", "in few steps only"),
        ("if out is not None and (out < 0).any():\n    found.append(i)", "in few steps only"),
        ("if torch.isnan(loss) and epoch:\n    raise ValueError", "in few steps only"),
        ("assert not torch.isnan(out).any()", "in few steps only"),
        ("wide = 2 if epoch < 9 else 3\nif wide == 2:\n    assert y.min() >= 0\nelse:\n    assert y.max() < 9", "in few steps only"),
        ("for name, p in model.named_parameters():\n    if 'weight' in name:\n        writer.add_scalar(name, p.grad.norm(), i)", "show them in few steps"),
        ("found.append(1 if loss > 2 else 0)", "in few steps only"),
        ("print('%.3f' % loss)", "show them in few steps"),
        ("print('%d: %.3f' % (i, loss))", "show them in few steps"),
        ("print(f'{i}: {loss:.3f}')", "show them in few steps"),
        ("print('loss {:.3f}'.format(loss))", "show them in few steps"),
        ("bar.set_postfix(loss=loss)", "show them in few steps"),
        ("bar.set_postfix({'loss': loss.item()})", "show them in few steps"),
        ("bar.set_description(f'loss {loss:.3f}')", "show them in few steps"),
        ("writer.add_scalar('loss', loss, i)", "show them in few steps"),
        ("found.append(math.exp(loss))", "torch's function"),
        ("found.append(max([p.grad.max() for p in model.parameters()]))", "torch's function"),
        ("assert torch.isfinite(model.weight.grad).all()", "in few steps only"),
        ("writer.add_scalar('norm', model.weight.grad.norm(), i)", "show them in few steps"),
        ("found.extend(out.argmax(1).tolist())", "copy them once after the loop"),
        ("found.append((out > 0).cpu().numpy().sum())", "copy them once after the loop"),
        ("found.append(out.detach().cpu())", "copy them once after the loop"),
        ("found.append(data.tensors[0][y.cpu()])", "keep what the host has under a name"),
        ("found.append(data.tensors[1].gather(0, y.cpu()))", "keep what the host has under a name"),
        ("found.append(out.detach().to('cpu'))", "copy them once after the loop"),
        ("found.append(loss.detach().cpu())", "keep the tensor, detached"),
        (
            "if x.shape[0] == 1:\n    pass\nelse:\n    found.append(out.detach().cpu())",
            "copy them once after the loop",
        ),
        ("mask = y > 0\nfound.append(out[mask].detach().mean())", "multiply by the mask"),
        ("found.append((out > 0).nonzero().size(0))", "multiply by the mask"),
    ],
)
def test_waiting_that_is_reported(body: str, advice: str) -> None:
    found = made(ITEM, body)
    assert not found.fixes and advice in found.advice


def test_a_number_that_is_read_already_is_no_further_wait() -> None:
    found = made(ITEM, "value = loss.item()\nfound.append(max(value, i))\nfound.append(value)")
    assert found.findings and "torch's function" not in found.advice


@pytest.mark.parametrize("norm", ["math.pow(p.grad.norm(), 2)", "p.grad.norm(dim=0).max().item()"])
def test_norms_one_by_one_get_one_answer(norm: str) -> None:
    body = f"norm = 0\nfor p in model.parameters():\n    norm += {norm}\nfound.append(norm)"
    found = made(f"{ITEM} foreach-update", body)
    assert not found.fixes and len(found.findings) == 1


@pytest.mark.parametrize(
    ("body", "end"),
    [
        ("if i % 4 == 0:\n    print(f'{loss:.3f}')", "pass"),
        ("if i % 4 == 0 and (out < 0).any():\n    print(i)", "pass"),
        ("pass", "print(f'{loss:.3f}', out.tolist())"),
        ("if epoch > 1:\n    print(i)", "pass"),
        ("found.append(torch.zeros(3).cpu())", "pass"),
        ("found.append(out.detach().to('cpu', non_blocking=True))", "pass"),
        ("if x.shape[0] == 1:\n    found.append(out.detach().cpu())", "pass"),
        ("found.append(out[y].detach().mean())", "pass"),
        ("found.append(data.tensors[0][data.tensors[1] > 0].mean())", "pass"),
        ("print(f'{i}: {x.size(0)}')", "pass"),
        ("for name, p in model.named_parameters():\n    if p.grad is None:\n        print(p.mean())", "pass"),
        ("for name, p in model.named_parameters():\n    if name in shown and i > 3:\n        print(p.mean())", "pass"),
        ("if len(y) < 8:\n    assert y.min() >= 0", "pass"),
        ("if torch.is_tensor(out):\n    found.append(i)", "pass"),
        (
            "def wider(t):\n    return nn.functional.interpolate(t[None], scale_factor=2)\n"
            "found.append(wider(out).mean() + wider(x).mean())",
            "pass",
        ),
    ],
)
def test_what_costs_little(body: str, end: str) -> None:
    assert not made(ITEM, body, end).findings


COUNTS = """
class Hits:
    number = 0

    def any(self):
        self.number += 1
        return self.number

    max = any


hits = Hits()
"""


def test_every_statement_that_waits_is_named_once() -> None:
    """Also where a loop has several of one kind, and of a number that is read to be shown what is
    shown.
    """
    found = made(
        ITEM,
        "writer.add_scalar('loss', loss, i)\nwriter.add_scalar('top', out.max().item(), i)\nfound.append(str(out.tolist()))",
    )
    assert [f.node.lineno for f in found.findings] == [29, 30, 31] and not found.fixes
    told = [(f.advice or f.refusal)[:14] for f in found.findings]
    assert told == ["show them in f", "it is recorded", "keep them on t"]


HELPER = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def score(out, y):
    right = 0
    for part, wanted in zip(out.chunk(2), y.chunk(2)):
        right += (part.argmax(1) == wanted).sum().item()
    return right

model = nn.Linear(4, 2).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
batches = iter(DataLoader(data, batch_size=8, sampler=range(8)))
test = DataLoader(data, batch_size=8)
for i in range(8):
    x, y = (t.cuda() for t in next(batches))
    out = model(x)
    loss = nn.functional.cross_entropy(out, y)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    known = score(out, y)
    if i % 4 == 0:
        for x, y in test:
            print(model(x.cuda()).sum().item())
"""


def test_numbers_read_in_helpers_of_a_loop_that_asks_for_batches() -> None:
    """A loop that takes its batches by ``next``, with an evaluation inside, is a training loop like
    any other.
    """
    found = apply(ITEM, HELPER)
    line = (
        HELPER.lstrip("\n")
        .splitlines()
        .index("        right += (part.argmax(1) == wanted).sum().item()")
    )
    assert any(f.node.lineno == line + 1 and f.status == "fix" for f in found.findings)


def without_libraries(text: str) -> str:
    lines = [
        t for t in text.splitlines() if not any(n in t for n in ("import tqdm", "plt", "Writer"))
    ]
    return "\n".join(lines).replace("tqdm(loader, disable=True)", "loader")


@pytest.mark.parametrize(
    ("body", "advice"),
    [
        ("sys.stdout.flush()", "flush once an epoch"),
        ("print(i, flush=True)", "flush once an epoch"),
        ("writer.flush()", "flush once an epoch"),
        ("writer.add_histogram('weight', model.weight, i)", "do it in few steps"),
        ("plt.plot(found)\nplt.savefig('loss.png')", "draw after the epoch"),
        ("torch.save({'model': model.state_dict()}, 'last.pt')", "save once an epoch"),
        ("with open('log.txt', 'a') as file:\n    file.write(str(i))", "in front of the loop"),
        ("state = model.state_dict()", "where it is saved or loaded"),
        ("if log is not None:\n    log.flush()", "flush once an epoch"),
        ("print(i)", "write it in few steps"),
        ("bar.set_postfix(step=i)", "refresh=False"),
        ("writer.add_scalar('step', i, i)", "a curve needs few"),
    ],
)
def test_files_and_pictures_of_every_step(body: str, advice: str) -> None:
    found = made(IO, body)
    assert [f.status for f in found.findings] == ["advice"] and advice in found.advice
    few = "if i % 100 == 0:\n    " + body.replace("\n", "\n    ")
    assert not made(IO, few, end=body).findings


def test_a_bar_that_draws_itself_is_left() -> None:
    assert not made(IO, "bar.set_postfix(step=i, refresh=False)").findings


def test_epochs_are_no_steps() -> None:
    """A loop over epochs that takes all data at once may show and save in each."""
    text = """
    import torch
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    x = torch.randn(8, 4).cuda()
    for epoch in range(100):
        loss = model(x).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(f"{epoch}: {loss:.4f}", flush=True)
        torch.save(model.state_dict(), "last.pt")
    """
    assert not apply(f"{ITEM} {IO}", text).findings


def test_a_function_that_returns_a_number_made_of_a_tensor() -> None:
    """What it gives is needed where it is shown, not where it is read."""
    text = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    class Mean:
        def __init__(self):
            self.total, self.count = 0.0, 0

        def update(self, value):
            self.total += value
            self.count += 1

    def share(out, y):
        right = (out.argmax(1) == y).float().sum()
        return right.item() * (100 / len(y))

    data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
    model = torch.nn.Linear(4, 2).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    mean = Mean()
    for x, y in DataLoader(data, batch_size=8):
        x, y = x.cuda(), y.cuda()
        out = model(x)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(out, y).backward()
        optimizer.step()
        mean.update(share(out, y))
    print(mean.total / mean.count)
    """
    assert "share() returns a number that is computed with it" in apply(ITEM, text).refusals


METERS = """
import argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

parser = argparse.ArgumentParser()
parser.add_argument("--show", action="store_true")
args = parser.parse_args([])
torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(64, 4), torch.randint(0, 2, (64,)))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(4, 2).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
totals, kept = {{}}, []
def meter(**values):
    for name, value in values.items():
        if isinstance(value, torch.Tensor):
            value = value.item()
        totals[name] = totals.get(name, 0.0) + value
def pick(rows, mask):
    return rows[~mask]
def ranks(model, users):
    for user in users:
        scores = model(user.to(device))
        {user}
def keep(loss):
    kept.append(loss.item())
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        loss = nn.functional.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        {body}
    with torch.no_grad():
        ranks(model, [torch.randn(4), torch.randn(4)])
"""


@pytest.mark.parametrize(
    ("body", "user", "line", "advice"),
    [
        ("meter(loss=loss, lr=0.1)", "pass", "value = value.item()", "keep the tensor"),
        ("if args.show:\n            print(loss.item())", "pass", "print(loss.item())", "few steps"),
        ("chosen = pick(x, (y > 0).to(torch.bool))", "pass", "return rows[~mask]", "multiply by the mask"),
        ("pass", "totals['rank'] = totals.get('rank', 0) + scores.argsort()[0].item()", "scores.argsort", "puts something else there"),
    ],
)  # fmt: skip
def test_reads_that_a_setting_or_a_kind_decides_about(
    body: str, user: str, line: str, advice: str
) -> None:
    """Below an option, behind `isinstance`, by a mask that comes in, for one user after another:
    each gets an answer.
    """
    text = METERS.format(body=body, user=user).lstrip("\n")
    run(text)
    found = apply(ITEM, text).findings
    mine = [f for f in found if line in text.splitlines()[f.node.lineno - 1]]
    assert len(mine) == 1 and advice in mine[0].advice + mine[0].refusal


def test_numbers_of_a_list_can_be_read_together() -> None:
    found = apply(ITEM, METERS.format(body="keep(loss)", user="pass"))
    assert "torch.stack" in found.refusals + found.advice or found.fixes
    few = "if i % 100 == 0:\n            print(loss.item())"
    assert not apply(ITEM, METERS.format(body=few, user="pass")).findings


# ------------------------------------------------------------------ elements that a mask takes over
PICKING = """\
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(12, 6, 3), torch.randn(12, 1)), batch_size=4)
model = nn.Linear(3, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses, kept = [], []


def nearest(xyz, n):
    distance = torch.ones(xyz.shape[0], xyz.shape[1]).to(device) * 1e10
    far, found = torch.zeros(xyz.shape[0], dtype=torch.long, device=device), []
    for _ in range(n):
        found.append(far)
        centre = xyz[torch.arange(len(xyz), device=device), far][:, None]
        dist = ((xyz - centre) ** 2).sum(-1)
        mask = dist < distance
        distance[mask] = dist[mask]
        far = distance.max(-1)[1]
    return torch.stack(found, 1), distance


def grouped(out):
    order = (out * 3).round().sort(dim=1)[0][:, :5]
    first = order[:, :1].repeat(1, order.shape[1])
    mask = order == 0
    order[mask] = first[mask]
    return order


for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x).squeeze(-1)
        found, distance = nearest(x * model.weight, 3)
        loss = (out.gather(1, found).sum(1) - y[:, 0]).pow(2).mean() + distance.mean()
        optimizer.zero_grad()
        (loss + grouped(out).pow(2).mean()).backward()
        optimizer.step()
        losses.append(loss.item())
"""
TAKEN = "distance[mask] = dist[mask]"


def test_elements_that_a_mask_takes_over() -> None:
    done = apply("loss-item-sync", PICKING)
    assert "        distance.copy_(torch.where(mask, dist, distance))\n" in done.text
    assert "    order.copy_(torch.where(mask, first, order))\n" in done.text
    assert run(done.text)["losses"] == run(PICKING)["losses"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # of another shape: a mask of the first dimension alone
        ("mask = dist < distance", "mask = dist[:, 0] < distance[:, 0]"),
        # compared with a third tensor, which may be of a larger shape
        ("mask = dist < distance", "mask = dist < distance.detach()"),
        ("mask = dist < distance", "mask = (dist < distance) & (dist > 0)"),
        # spread over one memory
        ("distance = torch.ones(xyz.shape[0], xyz.shape[1]).to(device) * 1e10",
         "distance = torch.ones(1, 1).to(device).expand(*xyz.shape[:2]).clone().expand_as(xyz[..., 0])"),
        # given by callers
        ("def nearest(xyz, n):\n    distance =", "def nearest(xyz, n, distance=None):\n    distance = distance if distance is not None else"),
        # another tensor by then
        (TAKEN, f"dist = dist.clamp(min=1)\n        {TAKEN}"),
        (TAKEN, f"distance = distance[:, :]\n        {TAKEN}"),
        # other elements
        (TAKEN, "distance[mask] = dist[dist < distance]"),
        (TAKEN, "distance[mask] += dist[mask]"),
        (TAKEN, "distance[mask] = dist[mask] * 1.0"),
    ],
)  # fmt: skip
def test_elements_whose_shapes_do_not_show(old: str, new: str) -> None:
    assert old in PICKING
    done = apply("loss-item-sync", PICKING.replace(old, new))
    assert "distance.copy_(" not in done.text
    assert "order.copy_(" in done.text


ARCHIVE = """
import h5py
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

names = [f"{{i}}.h5" for i in range(8)]


class Patches(Dataset):
    def __init__(self, path, paths=names):
        self.path, self.paths, self.file = path, paths, None

    def __len__(self):
        return 64

    def __getitem__(self, index):
        {opened}
        return torch.from_numpy(file["x"][index])


model = nn.Linear(8, 1).cuda()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(4):
    for x in DataLoader(Patches("train.h5"), batch_size=16):
        loss = model(x.cuda()).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("opened", "said"),
    [
        ('file = h5py.File(self.path, "r")', True),
        ('with h5py.File(self.path, "r") as file:\n            return torch.from_numpy(file["x"][index])', True),
        ('file = h5py.File(names[0], "r")', True),
        ('file = h5py.File(self.paths[index], "r")', False),
        ('path = self.paths[index]\n        file = h5py.File(path, "r")', False),
        ('if self.file is None:\n            self.file = h5py.File(self.path, "r")\n        file = self.file', False),
    ],
)  # fmt: skip
def test_an_archive_that_every_item_opens(opened: str, said: bool) -> None:
    done = apply(IO, ARCHIVE.format(opened=opened))
    assert ("with the first item" in done.advice) is said
    assert done.text == done.before
