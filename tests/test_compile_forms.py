"""compile: with CUDA graphs, for shapes that vary, block by block; and that each form trains as the
script did.

The harness overwrites what a graph gave with what its next run gives, as CUDA graphs do; no GPU was
there to record one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from autofast.rule import Effect
from tests.harness import HARNESS, HAVE_TORCH, ROUNDING, Job, compare
from tests.onerule import Applied, apply

needs_torch = pytest.mark.skipif(not HAVE_TORCH, reason="needs torch")

SMALL = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 2)

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


def test(model, loader):
    model.eval()
    right = 0
    with torch.no_grad():
        for x, y in loader:
            right += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
    return right


data = TensorDataset(torch.randn(36, 4), torch.randint(2, (36,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
for epoch in range(3):
    model.train()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
    print(test(model, loader))
"""
GRAPHS = 'model.compile(mode="reduce-overhead", dynamic=False)'
STANCE = '@torch.compiler.set_stance("force_eager")'


def changed(*changes: tuple[str, str], text: str = SMALL) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def done(text: str, **given: Any) -> Applied:
    return apply("compile", text, **given)


def runs(folder: Path, *texts: str) -> list[Any]:
    """What the harness saw of scripts, the first of which has to run."""
    (folder / "train.py").write_text(texts[0])
    found = HARNESS.run_many([Job(folder, files={"train.py": t.encode()}) for t in texts])
    assert found[0].ok, found[0].traceback
    return list(found)


def trains_alike(folder: Path, before: str, after: str) -> None:
    one, other = runs(folder, before, after)
    assert compare(one, other, Effect.ROUNDING, ROUNDING) == [], other.traceback


# -------------------------------------------------------------------------------------- CUDA graphs
def test_launches_bound_a_step() -> None:
    result = done(SMALL)
    assert result.lines == [STANCE, GRAPHS]
    assert "launches bound a step" in result.fixes[0].message
    assert f"{STANCE}\ndef test(" in result.text, "evaluation is not compiled once more"


@needs_torch
def test_recorded_it_trains_the_same(tmp_path: Path) -> None:
    trains_alike(tmp_path, SMALL, done(SMALL).text)


@needs_torch
def test_evaluation_stays_eager(tmp_path: Path) -> None:
    asks = """
import torch._dynamo.utils
print(torch._dynamo.utils.counters["stats"]["unique_graphs"])
"""
    without = done(SMALL).text.replace(STANCE, "")
    ran = runs(tmp_path, done(SMALL).text + asks, without + asks)
    graphs = [int(run.stdout.split()[-1]) for run in ran]
    assert graphs == [2, 4]  # of full batches and of the last one; twice of each with evaluation


def test_no_smaller_last_batch() -> None:
    text = changed(("shuffle=True", "shuffle=True, drop_last=True"))
    assert done(text).lines[-1] == 'model.compile(mode="reduce-overhead")'


def test_containers() -> None:
    text = changed(("Net().to", "nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to"))
    given = 'model.forward, mode="reduce-overhead", dynamic=False'
    assert done(text).lines == [STANCE, f"model.forward = torch.compile({given})"]


def test_evaluation_among_other_things() -> None:
    inline = "    with torch.no_grad():\n        for x, y in loader:\n            print(model(x.to(device)).sum().item())\n"
    text = changed(("    print(test(model, loader))\n", inline))
    result = done(text)
    assert (
        'with torch.compiler.set_stance("force_eager"):' in result.lines and GRAPHS in result.text
    )


def test_other_rules_beside() -> None:
    rules = "compile no-grad-eval loss-item-sync autocast grad-scaler fused-optimizer"
    together = apply(rules, SMALL)
    assert {STANCE, GRAPHS, "with torch.inference_mode():"} <= set(together.lines)


HAZARDS = {
    "an output is kept": [("loss.backward()", "loss.backward()\n        kept.append(out.detach())"), ("for epoch", "kept = []\nfor epoch")],
    "gradients are added up": [("optimizer.step()", "if n % 2:\n            optimizer.step()"), ("x, y in loader:\n        x, y", "n, (x, y) in enumerate(loader):\n        x, y"), ("        optimizer.zero_grad()\n", "        if n % 2 == 0:\n            optimizer.zero_grad()\n")],
    "gradients are zeroed in place": [("optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)")],
    "two backwards": [("loss.backward()", "loss.backward()\n        F.cross_entropy(model(x), y).backward()")],
}  # fmt: skip
OTHERS = {
    "an output is needed after the loop": [("    print(test(", "    print(out.sum().item(), test(")],
    "cleared in between": [("        optimizer.zero_grad()\n        out = model(x)\n", "        out = model(x)\n        optimizer.zero_grad()\n")],
    "several losses of one step": [("loss.backward()", "if epoch:\n            loss.backward()")],
    "the loss is made inside": [("forward(self, x)", "forward(self, x, y)"), ("return self.b(torch.relu(self.a(x)))", "return F.cross_entropy(self.b(torch.relu(self.a(x))), y)"), ("out = model(x)\n        loss = F.cross_entropy(out, y)", "loss = model(x, y)"), ("(model(x.to(device)).argmax(1).cpu() == y).sum().item()", "model(x.to(device), y.to(device)).item()")],
    "an output is copied": [("loss.backward()", "loss.backward()\n        print(len(out.tolist()))")],
    "given to what is not known": [("loss.backward()", "loss.backward()\n        meter.update(out)"), ("import torch\n", "import torch\nfrom meters import meter\n")],
    "batches are cut": [("out = model(x)", "out = model(x[: 8 - epoch])"), ("cross_entropy(out, y)", "cross_entropy(out, y[: 8 - epoch])")],
    "no batches of a loader": [("for x, y in loader:\n        x, y =", "for n in range(4):\n        x, y = data[8 * n : 8 * n + 8]\n        x, y =")],
    "evaluated with gradients": [("    print(test(", "    print(model(x).sum())\n    print(test(")],
    "bound by arithmetic": [("nn.Linear(4, 8)", "nn.Linear(4, 16384)"), ("nn.Linear(8, 2)", "nn.Sequential(nn.Linear(16384, 16384), nn.Linear(16384, 2))")],
}  # fmt: skip


@pytest.mark.parametrize("why", [*HAZARDS, *OTHERS])
def test_not_recorded(why: str) -> None:
    text = done(changed(*(HAZARDS | OTHERS)[why])).text
    assert "reduce-overhead" not in text and "set_stance" not in text


@needs_torch
@pytest.mark.parametrize("why", [w for w in HAZARDS if w != "two backwards"])
def test_each_hazard_is_one(why: str, tmp_path: Path) -> None:
    """Recorded all the same, the script would train or print something else."""
    says = "print(sum(t.sum().item() for t in kept) if 'kept' in dir() else 0)\n"
    text = changed(*HAZARDS[why]) + says
    wrong = changed(
        ("model = Net().to(device)\n", f"model = Net().to(device)\n{GRAPHS}\n"), text=text
    )
    one, other = runs(tmp_path, text, wrong)
    assert compare(one, other, Effect.ROUNDING, ROUNDING) or one.stdout != other.stdout


def test_not_with_accumulation_nor_on_a_cpu_nor_in_several_processes() -> None:
    assert "reduce-overhead" not in done(SMALL, accumulate=4).text
    assert done(SMALL, target="cpu").lines == ["model.compile()"]
    begin, end = SMALL.index("def test("), SMALL.index("data = ")
    trained_only = SMALL[:begin] + SMALL[end:].replace("    print(test(model, loader))\n", "")
    in_several = apply("compile ddp", trained_only).text
    assert "DistributedDataParallel" in in_several and "reduce-overhead" not in in_several
    assert "reduce-overhead" in apply("compile ddp", SMALL).text  # what ddp refuses is one process


def test_gradients_of_graphs_are_not_added_up() -> None:
    text = changed(("optimizer =", f"{GRAPHS}\noptimizer ="))
    found = apply("accumulation", text, asked=True, accumulate=2)
    assert not found.fixes and "CUDA graphs" in found.refusals
    assert apply("accumulation", SMALL, asked=True, accumulate=2).fixes


# --------------------------------------------------------------------------------- shapes that vary
PADDED = """
import torch
import torch.nn as nn
from torch.utils.data import DataLoader

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def collate(rows):
    return nn.utils.rnn.pad_sequence(rows, batch_first=True)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(9, 16), nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 9))

    def forward(self, x):
        return self.head(self.embed(x))


rows = [torch.randint(9, (5 + n,)) for n in range(12)]
loader = DataLoader(rows, batch_size=2, collate_fn=collate)
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x in loader:
        x = x.to(device)
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x[:, :-1]).flatten(0, 1), x[:, 1:].flatten())
        loss.backward()
        optimizer.step()
"""


def test_padded_batches() -> None:
    result = done(PADDED)
    assert result.lines == ["model.compile(dynamic=True)"]
    assert "pads each batch" in result.fixes[0].message


@needs_torch
def test_padded_batches_are_compiled_once(tmp_path: Path) -> None:
    asks = "\nimport torch._dynamo.utils\nprint(torch._dynamo.utils.counters['stats']['unique_graphs'])\n"
    after = done(PADDED).text
    trains_alike(tmp_path, PADDED, after)
    (ran,) = runs(tmp_path, after + asks)
    assert int(ran.stdout) == 1


# ------------------------------------------------------------------------------------------- blocks
DEEP = """
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Block(nn.Module):
    def __init__(self, width, wide):
        super().__init__()
        self.norm = nn.LayerNorm(width)
        self.mlp = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))

    def forward(self, x):
        return x + self.mlp(self.norm(x))


class Net(nn.Module):
    def __init__(self, depth):
        super().__init__()
        self.blocks = nn.ModuleList([Block(8, 512) for _ in range(depth)])
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        x = torch.matmul(x, torch.eye(8, device=x.device))
        for block in self.blocks:
            x = block(x)
        return self.head(x)


loader = DataLoader(TensorDataset(torch.randn(20, 8), torch.randint(2, (20,))), batch_size=8)
model = Net(6).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
EACH = "for layer in model.blocks:"


@pytest.mark.parametrize(
    ("spelled", "path"),
    [
        ("nn.ModuleList([Block(8, 512) for _ in range(depth)])", "blocks"),
        ("nn.Sequential(*[Block(8, 512) for _ in range(depth)])", "blocks"),
        ("nn.ModuleList(Block(8, 512) for _ in range(4))", "blocks"),
        ("nn.ModuleDict({'h': nn.ModuleList([Block(8, 512) for _ in range(depth)])})", "blocks.h"),
    ],
)
def test_blocks(spelled: str, path: str) -> None:
    text = changed(("nn.ModuleList([Block(8, 512) for _ in range(depth)])", spelled), text=DEEP)
    text = changed(("in self.blocks", f"in self.{path}"), text=text)
    assert done(text).lines == [f"for layer in model.{path}:", "layer.compile()"]


@pytest.mark.parametrize(
    "change",
    [
        ("Net(6)", "Net(3)"),
        ("Net(6)", "Net(int(input()))"),
        ("512", "256"),
        ("Block(8, 512) for _", "Block(8, 512 + _) for _"),
        ("Block(8, 512) for _ in range(depth)", "(Block if n else Block2)(8, 512) for n in range(depth)"),
        ("self.head =", "for n, block in enumerate(self.blocks):\n            block.index = n\n        self.head ="),
        ("block(x)", "block(x, 1)"),
    ],
)  # fmt: skip
def test_whole_where_blocks_differ(change: tuple[str, str]) -> None:
    text = DEEP.replace("class Net", "class Block2(Block):\n    pass\n\n\nclass Net")
    text = changed(change, text=text)
    if change[0] == "block(x)":
        text = changed(("forward(self, x):\n        return x +", "forward(self, x, n):\n        return n * x +"), text=text)  # fmt: skip
    assert done(text).lines == ["model.compile()"]


def test_blocks_need_a_newer_torch() -> None:
    files: Any = {"requirements.txt": "torch==2.4.1\n"}
    assert done(DEEP, files=files).lines == ["model.compile()"]


@needs_torch
def test_blocks_are_compiled_once_for_all(tmp_path: Path) -> None:
    asks = "\nimport torch._dynamo.utils\nprint(torch._dynamo.utils.counters['stats']['unique_graphs'])\n"
    after = done(DEEP).text
    trains_alike(tmp_path, DEEP, after)
    found = [
        run.stdout
        for run in runs(tmp_path, after + asks, after.replace("Net(6)", "Net(12)") + asks)
    ]
    assert found == ["4\n", "4\n"]  # with and without a gradient of the input, two sizes of batches


@needs_torch
def test_a_recorded_loss_is_copied_where_its_read_is_put_off(tmp_path: Path) -> None:
    inside = OTHERS["the loss is made inside"]
    text = changed(
        *inside,
        ("optimizer =", f"{GRAPHS}\noptimizer ="),
        ("optimizer.step()", "optimizer.step()\n        losses.append(loss.item())"),
        ("for epoch", "losses = []\nfor epoch"),
    )
    found = apply("loss-item-sync", text + "print(losses)\n")
    assert "loss_tensors.append(loss.detach().clone())" in found.lines
    kept = text.replace("losses.append(loss.item())", "losses.append(loss.detach())")
    read_late = kept + "print([x.item() for x in losses])\n"
    one, late, copied = runs(tmp_path, text + "print(losses)\n", read_late, found.text)
    assert late.stdout != one.stdout == copied.stdout
    outside = changed(("optimizer =", f"{GRAPHS}\noptimizer ="), ("optimizer.step()", "optimizer.step()\n        total += loss.item()"), ("for epoch", "total = 0.0\nfor epoch"))  # fmt: skip
    assert apply("loss-item-sync", outside + "print(total)\n").fixes


def test_no_inference_mode_where_graphs_are_recorded() -> None:
    text = changed(("optimizer =", f"{GRAPHS}\noptimizer ="))
    found = apply("no-grad-eval", text)
    assert not found.fixes and "none can be recorded" in found.refusals
    eager = changed(("def test(", f"{STANCE}\ndef test("), text=text)
    assert apply("no-grad-eval", eager).lines == ["with torch.inference_mode():"]


RECURRENT = changed(
    ("self.a = nn.Linear(4, 8)", "self.a = nn.LSTM(4, 8)"),
    ("self.b(torch.relu(self.a(x)))", "self.b(self.a(x)[0])"),
)


def test_graphs_by_hand_where_recurrent_layers_alone_are_in_the_way() -> None:
    assert "make_graphed_callables" in apply("compile", RECURRENT, asked=True).advice
    for old, new in (
        ("return self.b(", "print(len(x))\n        return self.b("),  # would be printed once
        ("loss = F.cross", "kept.append(out)\n        loss = F.cross"),  # is overwritten
    ):
        text = changed((old, new), ("for epoch", "kept = []\nfor epoch"), text=RECURRENT)
        assert not apply("compile", text, asked=True).advice
    assert not apply("compile", RECURRENT, asked=True, target="cpu").advice
