"""compile: where the statement goes, in which form, what is left alone and why, and that compiled
scripts train the same.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from autofast.cli import cli
from autofast.registry import select
from autofast.rule import Effect
from tests.harness import HARNESS, HAVE_TORCH, ROUNDING, Job, compare
from tests.onerule import Applied, apply
from tests.zygote import PROGRAM, QUIET, ZYGOTE

needs_torch = pytest.mark.skipif(not HAVE_TORCH, reason="needs torch")

HEAD = """
import copy
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(32, 4), torch.zeros(32, dtype=torch.long)), batch_size=8, shuffle=True)
"""
NET = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(4, 8)
        self.b = nn.Linear(8, 2)

    def forward(self, x):
        x = self.a(x)
        return self.b(torch.relu(x))
"""
MAKE = """
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAIN = """
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
"""
SCRIPT = HEAD + NET + MAKE + TRAIN


def done(text: str, **given: str) -> Applied:
    return apply("compile", text, **given)


def refused(text: str, *words: str) -> None:
    result = done(text)
    assert not result.fixes, result.lines
    assert all(word in result.refusals for word in words), result.refusals


def with_(*changes: tuple[str, str], text: str = SCRIPT) -> str:
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def forked(folder: Path, script: str) -> str:
    """What a script prints."""
    out, err = folder / "stdout", folder / "stderr"
    code = ZYGOTE.run(
        PROGRAM, [script], limit=60, cwd=folder, environment=QUIET, stdout=out, stderr=err
    )
    assert code == 0, err.read_text()
    return out.read_text()


def fresh(folder: Path, script: str, **environment: str) -> str:
    """What a script prints that must have a process of its own."""
    done = subprocess.run(
        [sys.executable, script],
        cwd=folder,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout


def follows(result: Applied, statement: str, before: str) -> bool:
    """``statement`` stands in the line behind ``before``."""
    lines = [line.strip() for line in result.text.splitlines()]
    return lines[lines.index(statement) - 1] == before


# ----------------------------------------------------------------------------- off unless asked for
def test_off_unless_asked_for() -> None:
    assert "compile" not in {rule.name for rule in select()}
    assert "compile" in {rule.name for rule in select(["all"])} & {
        rule.name for rule in select(given=["--compile"])
    }
    assert {rule.name for rule in select(["loader"], given=["--compile"])} == {
        rule.name for rule in select(["loader"])
    } | {"compile"}


@pytest.mark.parametrize("command", ["check", "rewrite"])
def test_the_option(tmp_path: Path, command: str) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)

    def said(*options: str) -> str:
        call = [command, "--root", str(tmp_path), str(tmp_path / "train.py"), *options]
        return CliRunner().invoke(cli, call).stdout

    mark = "compiling takes minutes" if command == "check" else "+model.compile()"
    assert mark not in said() and mark in said("--compile")
    (tmp_path / "pyproject.toml").write_text("[tool.autofast]\ncompile = true\n")
    assert mark in said()
    assert "num-workers" not in said("--select", "tf32", "--compile") and mark in said(
        "--select", "tf32", "--compile"
    )
    assert mark not in said("--ignore", "compile")


# ----------------------------------------------------------------------------------------- the form
def test_in_place() -> None:
    result = done(SCRIPT)
    assert result.lines == ["model.compile()"]
    assert follows(result, "model.compile()", "model = Net().to(device)")
    assert "autofast verify" in result.fixes[0].message and "long runs" in result.fixes[0].message


@pytest.mark.parametrize(
    "made",
    [
        "nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))",
        "Stack(nn.Linear(4, 8), nn.Linear(8, 2))",
    ],
)
def test_containers_of_torch(made: str) -> None:
    text = with_(
        ("Net().to", f"{made}.to"),
        ("class Net", "class Stack(nn.Sequential):\n    pass\n\n\nclass Net"),
    )
    assert done(text).lines == ["model.forward = torch.compile(model.forward)"]


def test_sequential_with_a_forward_of_its_own() -> None:
    net = "class Net(nn.Sequential):\n    def forward(self, x):\n        return super().forward(x) * 2\n"
    text = HEAD + net + MAKE.replace("Net()", "Net(nn.Linear(4, 8), nn.Linear(8, 2))") + TRAIN
    assert done(text).lines == ["model.compile()"]


def test_torch_by_another_name() -> None:
    text = with_(
        ("import torch\n", "import torch as t\n"),
        ("torch.", "t."),
        ("from t.", "from torch."),
        ("import t.", "import torch."),
        ("Net()", "nn.Sequential(nn.Linear(4, 2), nn.ReLU())"),
    )
    assert done(text).lines == ["model.forward = t.compile(model.forward)"]


def test_torch_that_comes_through_a_star() -> None:
    text = "from nets import *\n" + with_(
        ("import torch\nimport torch.nn as nn\n", ""),
        ("Net().to(device)", "nn.DataParallel(Net()).to(device)"),
    )
    lines = done(text, files={"nets.py": "import torch\nimport torch.nn as nn\n"}).lines
    assert lines == ["if torch.cuda.device_count() < 2:", "model.module.compile()"]


@pytest.mark.parametrize(
    "does",
    [
        'torch.save(model, "m.pt")',
        'torch.save({"model": model, "epoch": 2}, "m.pt")',
        "best = copy.deepcopy(model)",
    ],
)
def test_written_or_copied_as_an_object(does: str) -> None:
    assert done(SCRIPT + does).lines == ["model.compile()"], "in place this stays as it was"
    refused(
        with_(("Net()", "nn.Sequential(nn.Linear(4, 2), nn.ReLU())")) + does, "the module itself"
    )


@pytest.mark.parametrize(
    "does",
    [
        "torch.save(model, 'm.pt')",
        "torch.save({'model': model}, 'm.pt')",
        "best = copy.deepcopy(model)",
    ],
)
def test_a_state_of_its_own_would_hold_the_compiled_call(does: str) -> None:
    own = NET + "\n    def __getstate__(self):\n        return dict(self.__dict__, version=2)\n"
    refused(
        HEAD + own + MAKE + TRAIN + does, "Net.__getstate__() gives would hold its compiled call"
    )
    assert done(HEAD + own + MAKE + TRAIN).fixes and done(SCRIPT + does).fixes


LOADS = """
import sys, torch
for name in ("whole", "old", "part"):
    net = torch.load(f"{name}.pt", weights_only=False)
    net = net["model"] if isinstance(net, dict) else net
    print(type(net).__name__, sorted(net.state_dict()), net(torch.ones(1, 4)).tolist(), "torch._dynamo" in sys.modules)
"""


@needs_torch
def test_a_compiled_model_is_pickled_as_it_was(tmp_path: Path) -> None:
    """Written whole, in a dict and in the older format, and read where nothing was compiled: the
    object that the original writes.
    """
    saves = "torch.save(model, 'whole.pt')\ntorch.save({'model': model}, 'part.pt')\n"
    saves += "torch.save(model, 'old.pt', _use_new_zipfile_serialization=False)\n"
    text = (
        "import torch\ntorch.manual_seed(0)\n"
        + HEAD
        + "from nets import Net\n"
        + MAKE
        + TRAIN
        + saves
    )
    files = {"nets.py": "import torch\nimport torch.nn as nn\n" + NET}
    made = done(text, files=files).text
    assert "\nmodel.compile()\n" in made
    said = []
    for name, content in (
        ("before", text),
        ("after", made.replace("model.compile()", "model.compile(backend='eager')")),
    ):
        folder = tmp_path / name
        folder.mkdir()
        for path, code in {**files, "train.py": content, "load.py": LOADS}.items():
            (folder / path).write_text(code, "utf-8")
        forked(folder, "train.py")
        said.append(fresh(folder, "load.py"))  # which must not import the compiler
    assert said[0] == said[1] and said[0].count("Net") == 3 and "True" not in said[0]


def test_layer_norms_are_said() -> None:
    text = with_(("nn.Linear(4, 8)", "nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8))"))
    assert "2.10 to 2.13" in done(text).fixes[0].message
    assert "2.10" not in done(SCRIPT).fixes[0].message
    pinned = done(text, files={"requirements.txt": "torch==2.11.0\n"})  # type: ignore[arg-type]
    assert "pytorch#193061" in pinned.refusals and not pinned.fixes


def test_old_torch() -> None:
    result = done(SCRIPT, files={"requirements.txt": "torch<2.2\n"})  # type: ignore[arg-type]
    assert not result.fixes and "2.3" in result.refusals


def test_dropout_draws_other_numbers() -> None:
    assert (
        done(with_(("nn.Linear(8, 2)", "nn.Sequential(nn.Dropout(), nn.Linear(8, 2))")))
        .fixes[0]
        .effect
        is Effect.SAMPLING
    )
    assert done(SCRIPT).fixes[0].effect is None


# ---------------------------------------------------------------------------------------- the place
@pytest.mark.parametrize(
    "set_up",
    [
        "model = Net()\nmodel = model.to(device)",
        "model = Net()\nmodel.cuda()",
        "model = Net()\nif torch.cuda.is_available():\n    model.cuda()",
        "model = Net().to(device)\nmodel.apply(print)",
        'model = Net().to(device)\nmodel.load_state_dict(torch.load("m.pt"))',
        'model = Net().to(device)\nimport os\nif os.path.exists("m.pt"):\n    model.load_state_dict(torch.load("m.pt"))',
        "model = Net().to(device)\nmodel.to(memory_format=torch.channels_last)",
        "if device.type == 'cuda':\n    model = Net()\nelse:\n    model = Net()\nmodel.to(device)",
        "model: nn.Module = Net().to(device)",
        "other, model = 1, Net().to(device)",
    ],
)
def test_behind_the_set_up(set_up: str) -> None:
    result = done(with_(("model = Net().to(device)", set_up)))
    assert result.lines == ["model.compile()"]
    assert (
        follows(result, "model.compile()", set_up.splitlines()[-1].strip())
        and "\nmodel.compile()" in result.text
    )


@pytest.mark.parametrize(
    "wrap", ["nn.parallel.DistributedDataParallel(model)", "torch.nn.DataParallel(model)"]
)
def test_before_it_is_wrapped(wrap: str) -> None:
    result = done(with_(("optimizer =", f"model = {wrap}\noptimizer =")))
    if "DataParallel(model)" in wrap and "Distributed" not in wrap:
        assert result.lines == ["if torch.cuda.device_count() < 2:", "model.compile()"]
    else:
        assert result.lines == ["model.compile()"]
    assert result.text.index("model.compile()") < result.text.index(wrap)


def test_wrapped_at_once() -> None:
    assert done(
        with_(("Net().to(device)", "nn.parallel.DistributedDataParallel(Net().to(device))"))
    ).lines == ["model.module.compile()"]


def test_wrapped_in_dataparallel_at_once() -> None:
    result = done(with_(("Net().to(device)", "nn.DataParallel(Net()).to(device)")))
    assert result.lines == ["if torch.cuda.device_count() < 2:", "model.module.compile()"]


def test_wrapped_at_once_in_one_arm() -> None:
    arms = "if device.type == 'cuda':\n    model = nn.parallel.DistributedDataParallel(Net())\nelse:\n    model = Net()"
    result = done(with_(("model = Net().to(device)", arms)))
    assert (
        "\n    model.module.compile()\nelse:" in result.text or not result.fixes
    )  # the other arm has no model.module


def test_wrapped_at_once_and_then_another() -> None:
    made = "model = nn.parallel.DistributedDataParallel(Net().to(device))\nmodel = Net()\nmodel.to(device)"
    result = done(with_(("model = Net().to(device)", made)))
    assert "model = Net()\nmodel.to(device)\nmodel.module" not in result.text


def test_wrapped_in_one_arm() -> None:
    arms = "model = Net()\nif device.type == 'cuda':\n    model = nn.DataParallel(model).cuda()\nelse:\n    model.to(device)"
    result = done(with_(("model = Net().to(device)", arms)))
    assert result.lines == ["if torch.cuda.device_count() < 2:", "model.compile()"]
    assert follows(result, "if torch.cuda.device_count() < 2:", "model = Net()")


@pytest.mark.parametrize(
    "set_up",
    [
        "model = None\nif len(loader):\n    model = Net().to(device)",  # None has no compile()
        "if len(loader):\n    model = Net().to(device)\nelse:\n    model = torch.load('m.pt')",
    ],
)
def test_other_things_by_the_same_name(set_up: str) -> None:
    result = done(with_(("model = Net().to(device)", set_up)))
    assert not result.fixes or "\n    model.compile()" in result.text


def test_wrapped_before_it_is_traced() -> None:
    late = "model = nn.DataParallel(model)\nfrom torch.utils.tensorboard import SummaryWriter\nSummaryWriter().add_graph(model, torch.randn(1, 4))"
    refused(with_(("optimizer =", f"{late}\noptimizer =")), "traces the model")


def test_moved_below_the_main_guard() -> None:
    text = with_(("model = Net().to(device)", "model = Net()")).replace(
        "optimizer = ", "if __name__ == '__main__':\n  model.to(device)\n  optimizer = "
    )
    head, loop = text.split("\nfor epoch")
    result = done(head + ("\nfor epoch" + loop).replace("\n", "\n  "))
    assert follows(result, "model.compile()", "model.to(device)")


def test_the_same_function_for_another_model() -> None:
    ready = "def ready(net):\n    net = net.to(device)\n    return net\n\n\nteacher = ready(Net())\nmodel = ready(Net())"
    text = with_(
        ("model = Net().to(device)", ready), ("model(x), y)", "model(x), y) + teacher(x).mean()")
    )
    refused(text, "does not train")


def test_returned_by_a_function() -> None:
    build = "def build():\n    return Net().to(device)\n\n\nmodel = build()"
    result = done(with_(("model = Net().to(device)", build)))
    assert follows(result, "model.compile()", "model = build()")
    build = "def build():\n    net = Net()\n    return net\n\n\nmodel = build()"
    assert done(with_(("model = Net().to(device)", build))).lines == ["net.compile()"]


def test_attribute_of_a_trainer() -> None:
    trainer = """
class Trainer:
    def __init__(self, model):
        self.model = model.to(device)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1)

    def run(self):
        for x, y in loader:
            F.cross_entropy(self.model(x.to(device)), y.to(device)).backward()
            self.optimizer.step()
            self.optimizer.zero_grad(set_to_none=False)

Trainer(Net()).run()
"""
    assert follows(
        done(HEAD + NET + trainer), "self.model.compile()", "self.model = model.to(device)"
    )


def test_behind_what_traces_it() -> None:
    writer = "from torch.utils.tensorboard import SummaryWriter\nwriter = SummaryWriter()\nwriter.add_graph(model, torch.randn(1, 4))"
    assert follows(
        done(with_(("optimizer =", f"{writer}\noptimizer ="))),
        "model.compile()",
        "writer.add_graph(model, torch.randn(1, 4))",
    )
    assert follows(
        done(with_((TRAIN, f"\n{writer}\n{TRAIN}"))),
        "model.compile()",
        "writer.add_graph(model, torch.randn(1, 4))",
    )
    refused(SCRIPT + writer, "traces the model")


def test_one_of_several_models() -> None:
    choice = "model = (Net if device.type == 'cpu' else Other)().to(device)"
    other = NET.replace("class Net", "class Other")
    assert done(with_(("model = Net().to(device)", other + choice))).lines == ["model.compile()"]
    reads = other.replace("x = self.a(x)", "x = self.a(x) * x.mean().item()")
    refused(with_(("model = Net().to(device)", reads + choice)), "reads a value")


NETS = """
import torch
import torch.nn as nn

class Apply(nn.Module):
    def __init__(self, func):
        super().__init__()
        self.func = func

    def forward(self, x):
        return self.func(x)

class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.a = nn.Linear(4, width)
        self.b = Apply(lambda x: x[:, :2])

    def forward(self, x):
        return self.b(self.a(x))

def weights(m):
    return m.weight

def narrow():
    net = Block(8)
    return net
"""


def test_one_by_its_name_among_functions_and_layers() -> None:
    text = with_(
        ("Net().to(device)", "nets.__dict__[sys.argv[1]]().to(device)"),
        ("import copy", "import sys\nimport nets"),
    )
    result = done(text, files={"nets.py": NETS})
    assert not result.refusals and result.lines == ["model.compile()"]


def test_no_name() -> None:
    train = (
        "def run(model):\n    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)"
        + TRAIN.replace("\n", "\n    ")
        + "\nrun(Net())"
    )
    refused(HEAD + NET + train, "not kept in a variable")


# ------------------------------------------------------------------------------------ nothing to do
@pytest.mark.parametrize(
    "line",
    [
        "model = torch.compile(model)",
        "model.compile()",
        "step = torch.compile(lambda x: x + 1)",
        "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--compile', action='store_true')",
        "import types\nargs = types.SimpleNamespace(compile=True)\nif args.compile:\n    pass",
        "import torch._dynamo",
        "from torch import compile as fast",
        "@torch.compile\ndef double(x):\n    return x * 2",
        "torch.compiler.reset()\nimport torch._dynamo as dynamo",
    ],
)
def test_knows_it_already(line: str) -> None:
    result = done(with_(("optimizer =", f"{line}\noptimizer =")))
    assert not result.findings


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("model = torch.compile(model)", "the script knows torch.compile already"),
        (
            "model = lambda x: x @ weight",
            "no module with weights that an optimizer gets is seen to train",
        ),
    ],
)
def test_says_why_nothing_is_done_where_it_was_asked_for(line: str, said: str) -> None:
    text = f"""
        import torch
        from torch import nn

        weight = torch.zeros(4, 1, requires_grad=True)
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))
        {line}
        optimizer = torch.optim.SGD([weight, *getattr(model, "parameters", list)()], lr=0.1)
        for _ in range(3):
            loss = (model(torch.ones(2, 4)) * weight.sum()).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        """
    (found,) = apply("compile", text, asked=True).findings
    assert not found.edits and said in found.refusal
    assert not apply("compile", text).findings


def test_other_compilers_are_no_matter() -> None:
    text = with_(("import copy\n", "import copy\nimport re\nPATTERN = re.compile('a')\n"))
    assert done(text).lines == ["model.compile()"]


def test_frozen_models_and_losses() -> None:
    loss = "class Loss(nn.Module):\n    def forward(self, a, b):\n        return F.cross_entropy(a, b)\n\n\ncriterion = Loss()\n"
    text = with_(
        ("\nmodel =", f"\n{loss}\nteacher = Net().to(device)\nmodel ="),
        (
            "F.cross_entropy(model(x), y)",
            "criterion(model(x), y) + F.mse_loss(model(x), teacher(x).detach())",
        ),
    )
    assert done(text).lines == ["model.compile()"]


# ----------------------------------------------------------------------------------------- refusals
BODY = {
    "reads a value": "x = self.a(x) * x.mean().item()",
    "decides by the values": "x = self.a(x)\n        if x.mean() > 0:\n            x = x * 2",
    "sets `self.calls`": "self.calls = self.calls + 1\n        x = self.a(x)",
    "sets `self.last`": "x = self.last = self.a(x)",
    "keeps values in a list": "x = self.a(x)\n        self.kept.append(x)",
    "calls print()": "print(x.shape)\n        x = self.a(x)",
    "calls random.random()": "import random\n        x = self.a(x) * random.random()",
    "calls time.time()": "import time\n        self_time = time.time()\n        x = self.a(x)",
    "makes a layer": "x = self.a(nn.Linear(4, 4, device=x.device)(x))",
    "while loop": "n = 0\n        while n < 2:\n            n += 1\n        x = self.a(x)",
    "loops over a tensor": "x = torch.stack([self.a(row) for row in x.unbind(0)])",
    "TorchScript": "x = torch.jit.fork(self.a, x).wait()",
    "complex numbers": "x = self.a(torch.fft.fft(x).real)",
    "registers a hook": "x = self.a(x)\n        x.register_hook(lambda g: g * 2)",
}


@pytest.mark.parametrize("why", BODY)
def test_forward(why: str) -> None:
    refused(
        with_(
            ("x = self.a(x)", BODY[why]),
            ("super().__init__()", "super().__init__()\n        self.calls, self.kept = 0, []"),
        ),
        why,
    )


@pytest.mark.parametrize(
    "body",
    [
        "x = self.a(x)\n        if x.shape[0] > 2:\n            x = x * 2",
        "x = self.a(x) if self.training else self.a(x)",
        "x = self.a(x)\n        if x is not None:\n            x = x + 1",
        "parts = []\n        for layer in (self.a,):\n            parts.append(layer(x))\n        x = parts[0]",
    ],
)
def test_forward_that_is_fine(body: str) -> None:
    assert done(with_(("x = self.a(x)", body))).lines == ["model.compile()"]


USE = {
    "sets `momentum`": [
        ("self.b =", "self.norm = nn.BatchNorm1d(4)\n        self.b ="),
        ("x = self.a(x)", "x = self.a(self.norm(x))"),
        ("    for x, y in", "    model.norm.momentum = 0.1 / (epoch + 1)\n    for x, y in"),
    ],
    "gradients of gradients": [("loss.backward()", "loss.backward(create_graph=True)")],
    "differentiates by torch.func": [
        ("model(x), y)", "model(x), y) + torch.func.grad(torch.sum)(x).sum()")
    ],
    "keeps the graph": [("loss.backward()", "loss.backward(retain_graph=True)")],
    "go back through the forward pass": [
        (
            "F.cross_entropy(model(x), y)\n",
            "F.cross_entropy(out := model(x), y)\n        out.mean().backward()\n",
        )
    ],
    "through Net.forward()": [("model(x)", "model.forward(x)")],
    "through Net.loss()": [
        ("model(x)", "model.loss(x)"),
        (
            "    def forward(self",
            "    def loss(self, x):\n        return self.b(self.a(x))\n\n    def forward(self",
        ),
    ],
    "gives it a number": [
        ("model(x)", "model(x, epoch)"),
        ("forward(self, x)", "forward(self, x, epoch)"),
    ],
    "registers a hook": [
        ("optimizer =", "model.a.register_full_backward_hook(print)\noptimizer =")
    ],
    "works by hooks": [("nn.Linear(4, 8)", "nn.utils.spectral_norm(nn.Linear(4, 8))")],
    "shared memory": [("optimizer =", "model.share_memory()\noptimizer =")],
    "another process or thread": [
        (
            "optimizer =",
            "import threading\nthreading.Thread(target=print, args=(model,)).start()\noptimizer =",
        )
    ],
    "puts other weights": [
        (
            "optimizer.step()",
            "optimizer.step()\n        for p in model.parameters():\n            p.data = p.data * 0.9",
        )
    ],
    "a list of the model": [
        ("optimizer.step()", "optimizer.step()\n        model.kept.append(loss)"),
        ("super().__init__()", "super().__init__()\n        self.kept = []"),
    ],
    "leaves LSTM out": [
        ("self.a = nn.Linear(4, 8)", "self.a = nn.Linear(4, 8)\n        self.c = nn.LSTM(8, 8)")
    ],
    "sparse gradients": [
        (
            "self.a = nn.Linear(4, 8)",
            "self.a = nn.Linear(4, 8)\n        self.c = nn.Embedding(8, 8, sparse=True)",
        )
    ],
    "single Linear": [("Net().to", "nn.Linear(4, 2).to")],
    "resizes the batches": [
        (
            "optimizer.zero_grad()",
            "optimizer.zero_grad()\n        import random\n        x = F.interpolate(x, size=random.choice([4, 8]))",
        )
    ],
    "deterministic": [("device =", "torch.use_deterministic_algorithms(True)\ndevice =")],
    "autograd Function": [
        ("x = self.a(x)", "x = Double.apply(self.a(x))"),
        (
            "class Net",
            "class Double(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x * 2\n\n    @staticmethod\n    def backward(ctx, g):\n        return g * 2\n\n\nclass Net",
        ),
    ],
    "in each turn of a loop": [
        ("\nmodel = Net().to(device)\n", "\nfor fold in range(3):\n  model = Net().to(device)\n"),
        ("\noptimizer =", "\n  optimizer ="),
        (TRAIN, TRAIN.replace("\n", "\n  ")),
    ],
}


@pytest.mark.parametrize("why", USE)
def test_use(why: str) -> None:
    refused(with_(*USE[why]), why)


def test_a_method_that_calls_the_model_itself() -> None:
    loss = "    def loss(self, x, y):\n        return F.cross_entropy(self(x), y)\n\n    def forward(self"
    assert done(
        with_(("F.cross_entropy(model(x), y)", "model.loss(x, y)"), ("    def forward(self", loss))
    ).lines == ["model.compile()"]


def test_exclusive_backwards_are_fine() -> None:
    text = with_(
        (
            "loss.backward()",
            "if epoch:\n            (loss * 2).backward()\n        else:\n            loss.backward()",
        )
    )
    assert done(text).lines == ["model.compile()"]


def test_frameworks() -> None:
    text = with_(
        ("import copy\n", "from accelerate import Accelerator\naccelerator = Accelerator()\n"),
        ("loss.backward()", "accelerator.backward(loss)"),
    )
    refused(text, "dynamo_backend")


# ----------------------------------------------------------------------------- together with others
ALL = "compile autocast grad-scaler channels-last fused-optimizer tf32 cudnn-benchmark no-grad-eval loss-item-sync non-blocking set-to-none"
IMAGES = (
    ("randn(32, 4)", "randn(32, 1, 2, 2)"),
    (
        "nn.Linear(4, 8)",
        "nn.Sequential(nn.Conv2d(1, 2, 1), nn.ReLU(), nn.Flatten(), nn.Linear(8, 8))",
    ),
)


def test_composes() -> None:
    evaluate = "\nwith torch.no_grad():\n    right = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in loader)\n"
    text = with_(*IMAGES) + evaluate
    result = done(text)
    whole = apply(ALL, text)
    assert {f.rule for f in whole.fixes} > {
        "compile",
        "autocast",
        "channels-last",
        "fused-optimizer",
    }
    assert result.lines[0] in whole.lines
    staged = apply("compile", apply(ALL.removeprefix("compile "), text).text).text
    assert staged == whole.text == apply(ALL.removeprefix("compile "), result.text).text


@pytest.mark.parametrize(
    "net", ["Net()", "nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))"]
)
def test_evaluation_in_either_order(net: str) -> None:
    evaluate = "\nwith torch.no_grad():\n    right = sum((model(x.to(device)).argmax(1).cpu() == y).sum().item() for x, y in loader)\n"
    text = with_(("Net()", net)) + evaluate
    whole = apply("compile no-grad-eval", text).text
    assert "with torch.inference_mode():" in whole
    assert (
        apply("no-grad-eval", done(text).text).text
        == whole
        == done(apply("no-grad-eval", text).text).text
    )


@needs_torch
class TestExecution:
    """What the rewritten script does: with ``aot_eager`` in the harness, and once with the real
    compiler.
    """

    def test_state_type_and_pickle_stay(self, tmp_path: Path) -> None:
        checks = """
import io
assert type(model) is Net and isinstance(model, Net)
print(list(model.state_dict()))
file = io.BytesIO()
torch.save(model, file)
file.seek(0)
again = torch.load(file, weights_only=False)
assert type(again) is Net and again._compiled_call_impl is None
assert copy.deepcopy(model)._compiled_call_impl is None
torch.save(model.state_dict(), "state.pth")
"""
        text = "import torch\ntorch.manual_seed(0)\n" + SCRIPT + checks
        self.same(tmp_path, text, "print(model._compiled_call_impl is not None)", "True")

    def test_containers_are_really_compiled(self, tmp_path: Path) -> None:
        text = "import torch\ntorch.manual_seed(0)\n" + with_(
            ("Net()", "nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))")
        )
        self.same(
            tmp_path,
            text,
            "import torch._dynamo.utils\nprint(len(torch._dynamo.utils.counters['stats']) > 0)",
            "True",
        )

    def same(self, tmp_path: Path, text: str, asks: str, says: str) -> None:
        """Both train the same, and what is asked of the rewritten script alone gives the right
        answer.
        """
        (tmp_path / "train.py").write_text(text)
        rewritten = done(text).text
        before, after = HARNESS.run_many(
            [Job(tmp_path), Job(tmp_path, files={"train.py": rewritten.encode()})]
        )
        assert before.ok, before.traceback
        assert compare(before, after, Effect.ROUNDING, ROUNDING) == []
        asked = HARNESS.run(Job(tmp_path, files={"train.py": f"{rewritten}\n{asks}\n".encode()}))
        assert asked.stdout.split()[-1] == says, asked.traceback + asked.stdout

    @pytest.mark.slow
    @pytest.mark.skipif(
        not any(map(shutil.which, ("g++", "clang++", "c++"))), reason="needs a C++ compiler"
    )
    def test_with_the_real_compiler(self, tmp_path: Path) -> None:
        """Gradients and weights of some steps, evaluation under inference_mode between them:
        inductor against eager.
        """
        evaluate = "    with torch.inference_mode():\n        print(f'{model(torch.ones(3, 4, device=device)).sum().item():.4f}')\n"
        text = (
            "import torch\ntorch.manual_seed(0)\n"
            + SCRIPT
            + evaluate
            + "print([round(p.sum().item(), 4) for p in model.parameters()])\n"
        )
        (tmp_path / "before.py").write_text(text)
        (tmp_path / "after.py").write_text(done(text).text)
        compiler = {
            "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
            "TORCHINDUCTOR_COMPILE_THREADS": "1",
        }
        outputs = [
            [float(number) for number in re.findall(r"-?\d+\.\d+", printed)]
            for printed in (
                forked(tmp_path, "before.py"),
                fresh(tmp_path, "after.py", **compiler),
            )
        ]
        assert len(outputs[0]) == 6 and outputs[1] == pytest.approx(outputs[0], abs=2e-4)
        assert list(tmp_path.rglob("*.cpp")), "kernels were made"
