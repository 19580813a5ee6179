"""gpu-data: the same batches to the last bit, in the same order, with the same random numbers; and what is left alone."""

from __future__ import annotations

from typing import Any

import pytest

from tests.onerule import Applied, apply

torch = pytest.importorskip("torch")
RULE = "gpu-data"
HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, RandomSampler, Subset, TensorDataset, WeightedRandomSampler, random_split
"""
TENSORS = "a = torch.randn(30, 4)\nb = (a.sum(1) > 0).long()\ndata = TensorDataset(a, b)"
PLAIN = "loader = DataLoader(data, batch_size=8, shuffle=True)"
TRAIN = """
def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    {setup}
    model = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
        {loop}
            {body}
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.reshape(len(x), -1)[:, :4].float()), y.long())
            loss.backward()
            optimizer.step()
            seen.append((x, y, torch.rand(1), torch.get_rng_state()))
            losses.append(loss.item())

if __name__ == "__main__":
    seen, losses = [], []
    main()
"""
LOOP = "for x, y in loader:"
BODY = "x, y = x.to(device), y.to(device)"


def text_of(setup: str, before: str = "", loop: str = LOOP, body: str = BODY) -> str:
    return (
        HEAD
        + before
        + TRAIN.format(
            setup=setup.replace("\n", "\n    "), loop=loop, body=body.replace("\n", "\n            ")
        )
    )


def checked(
    setup: str, before: str = "", loop: str = LOOP, body: str = BODY, extra: str = ""
) -> Applied:
    """What becomes of a script with this loader; asserts that it is the same training, batch by batch and bit by bit."""
    text = text_of(setup, before, loop, body)
    found = apply(f"{RULE} {extra}", text)
    assert any(f.rule == RULE for f in found.fixes), (found.refusals, found.advice)
    runs = []
    for source in (text, found.text):
        scope: dict[str, Any] = {"__name__": "__main__"}
        exec(compile(source, "train.py", "exec"), scope)
        runs.append(scope)
    assert runs[0]["losses"] == runs[1]["losses"]
    assert len(runs[0]["seen"]) == len(runs[1]["seen"]) > 0
    for before_, after in zip(runs[0]["seen"], runs[1]["seen"], strict=True):
        for one, other in zip(before_, after, strict=True):
            assert one.dtype == other.dtype and one.stride() == other.stride()
            assert torch.equal(one, other)
    return found


# ------------------------------------------------------------------------------------------------ tensors
@pytest.mark.parametrize(
    "loader",
    [
        "DataLoader(data, batch_size=8, shuffle=True)",
        "DataLoader(data, batch_size=8)",
        "DataLoader(data, 8, True, drop_last=True)",
        "DataLoader(dataset=data, batch_size=2 * 4, shuffle=False)",
        "DataLoader(data, batch_size=8, sampler=RandomSampler(data))",
        "DataLoader(data, batch_size=8, sampler=RandomSampler(data, replacement=True, num_samples=50))",
        "DataLoader(data, batch_size=8, sampler=WeightedRandomSampler(torch.ones(30), 30))",
        "DataLoader(data, batch_size=8, shuffle=True, pin_memory=torch.cuda.is_available())",
        "DataLoader(data, batch_size=40, shuffle=True)",
    ],
)
def test_tensors(loader: str) -> None:
    found = checked(f"{TENSORS}\nloader = {loader}")
    assert "loader = DeviceLoader(" in " ".join(found.text.split())
    assert found.text.count("device=device") == 1


def test_a_dataset_without_a_name_and_dict_of_arguments() -> None:
    setup = "options = {'batch_size': 8, 'shuffle': True}\nx = torch.randn(30, 4)\n"
    setup += "loader = DataLoader(TensorDataset(x, (x.sum(1) > 0).long()), **options)"
    assert "device=device, **options)" in checked(setup).text


def test_parts_of_data() -> None:
    setup = f"{TENSORS}\ntrain, test = random_split(data, [20, 10])\nloader = DataLoader(train, batch_size=8, shuffle=True)"
    checked(setup)
    checked(f"{TENSORS}\n{PLAIN.replace('data,', 'Subset(data, range(3, 25)),')}")


def test_a_dataset_of_the_project() -> None:
    before = """
class Rows(Dataset):
    def __init__(self, count):
        self.x = (torch.rand(count, 4) * 255).byte()
        self.y = torch.randint(0, 2, (count,))

    def __len__(self):
        return len(self.x)

    def __getitem__(self, index):
        x = self.x[index].float() / 255
        return (x - 0.5) / 0.3, self.y[index]

"""
    found = checked(f"data = Rows(30)\n{PLAIN}", before)
    assert "tensors = self.dataset[:]" in found.text


def test_batches_can_be_changed_in_place() -> None:
    loader = "loader = DataLoader(data, batch_size=8)"
    checked(f"{TENSORS}\n{loader}", body=f"{BODY}\nx -= 1")


def test_tensors_in_another_order_of_memory() -> None:
    checked(f"a = torch.randn(4, 30).t()\ndata = TensorDataset(a, torch.zeros(30))\n{PLAIN}")


@pytest.mark.parametrize(
    "loop",
    [
        "for i, (x, y) in enumerate(loader):",
        "for (x, y), (z, _) in zip(loader, loader):",
        "for x, y in iter(loader):",
    ],
)
def test_loops(loop: str) -> None:
    checked(f"{TENSORS}\n{PLAIN}", loop=loop, body=BODY)


@pytest.mark.parametrize(
    "body",
    [
        "x = x.to(device)\ny = y.to(device=device)",
        "x, y = (t.to(device) for t in (x, y))",
        "n = x.size(0)\nx, y = x.float().to(device), y.view(-1).to(device)",
        "if torch.cuda.is_available():\n    x, y = x.cuda(), y.cuda()",
    ],
)
def test_ways_to_the_device(body: str) -> None:
    checked(f"{TENSORS}\n{PLAIN}", body=body)


def test_a_single_batch_by_hand() -> None:
    checked(f"{TENSORS}\n{PLAIN}", loop="for _ in range(2):", body=f"x, y = next(iter(loader))\n{BODY}")


def test_too_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    found = checked(f"{TENSORS}\n{PLAIN}")
    scope: dict[str, Any] = {"__name__": "other"}
    exec(compile(found.text, "train.py", "exec"), scope)
    asked = []
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda d: asked.append(d) or (0, 0))
    data = torch.utils.data.TensorDataset(torch.arange(30))
    loader = scope["DeviceLoader"](data, batch_size=8, shuffle=True, device="cuda")
    torch.manual_seed(3)
    batches = list(loader)
    torch.manual_seed(3)
    others = list(torch.utils.data.DataLoader(data, batch_size=8, shuffle=True))
    assert asked and all(torch.equal(a, b) for (a,), (b,) in zip(batches, others, strict=True))


def test_nothing_is_left_for_other_rules() -> None:
    others = "batched-dataset num-workers persistent-workers pin-memory non-blocking prefetch-factor"
    found = checked(f"{TENSORS}\n{PLAIN}", extra=others)
    assert {f.rule for f in found.findings} == {RULE}


def test_on_a_cpu_it_has_nothing_to_do() -> None:
    assert not apply(RULE, text_of(f"{TENSORS}\n{PLAIN}"), target="cpu").findings


# ------------------------------------------------------------------------------------------------ left alone
@pytest.mark.parametrize(
    ("setup", "reason"),
    [
        (PLAIN.replace("True)", "True, collate_fn=lambda items: items)"), "has a collate_fn of its own"),
        (PLAIN.replace("True)", "True, generator=torch.Generator())"), "has a generator of its own"),
        (PLAIN.replace("batch_size=8", "batch_size=1"), "its batches are single items"),
        (f"{PLAIN}\na.add_(1)", "may write to it"),
        (f"{PLAIN}\ndata.tensors = (a, a)", "changes"),
        (f"{PLAIN}\nmake = loader._get_iterator", "uses its `_get_iterator`"),
        (f"{PLAIN}\nbatches = list(loader)", "hands it to code that is not known"),
        (f"torch.set_default_dtype(torch.float64)\n{PLAIN}", "changes where new tensors are"),
        (f"for k in range(3):\n    {PLAIN}", "made anew in a loop"),
    ],
)  # fmt: skip
def test_loaders_that_stay(setup: str, reason: str) -> None:
    found = apply(RULE, text_of(f"{TENSORS}\n{setup}"))
    assert not found.fixes and reason in found.refusals, found.refusals


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (f"z = y.numpy()\n{BODY}", "uses `y` in host memory"),
        (f"x = x + torch.randn(x.shape)\n{BODY}", "computes with `x`"),
        (f"x = x / 3\n{BODY}", "computes with `x`"),
        (f"z = torch.rand_like(x)\n{BODY}", "hands on `x`"),
        (f"x.sub_(1)\n{BODY}", "uses `x`"),
        (f"x[0] = 1\n{BODY}", "writes to `x`"),
        ("w = x.to(device)\nw += 1\nx, y = x.to(device), y.to(device)", "a second time"),
        ("x = x.to(device)\nprint(y)", "hands on `y`"),
        ("x, y = x.to(device), y.to('cuda:1')", "may go to several devices"),
        (f"z = torch.zeros(3, device=x.device)\n{BODY}", "asks for `.device`"),
    ],
)
def test_batches_that_are_needed_on_the_host(body: str, reason: str) -> None:
    found = apply(RULE, text_of(f"{TENSORS}\n{PLAIN}", body=body))
    assert not found.fixes and reason in found.refusals, found.refusals
