"""What a project says of the age of its torch: one fact, held against the form of every fix."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest

from autofast.edit.passes import fixed_point
from autofast.edit.plan import Plan
from autofast.model.script import Script
from autofast.model.source import Source
from autofast.model.torch_age import TorchAge
from autofast.read import read_script
from autofast.registry import all_rules
from autofast.rule import Effect, Options
from tests.onerule import apply, run
from tests.reading import read


def age(folder: Path, code: str, files: dict[str, str] | None = None) -> TorchAge:
    return read(folder, code, files).torch


@pytest.mark.parametrize(
    ("code", "newest", "words"),
    [
        (
            "from torch._six import inf",
            (1, 13),
            "train.py:1 uses torch._six, which is gone in torch 2.0",
        ),
        ("from torch._utils import _accumulate", (2, 2), "torch._utils._accumulate"),
        ("from scipy.misc import imread, imresize", (1, 13), "older ones want Python 3.7"),
        (
            "import scipy.misc\nx = scipy.misc.imread('a.png')",
            (1, 13),
            "train.py:2 uses scipy.misc.imread",
        ),
        ("import time\nt = time.clock()", (1, 13), "time.clock"),
        ("import tensorflow as tf\ns = tf.Summary()", (1, 13), "tensorflow.Summary"),
        (
            "import torchtext\nv = torchtext.vocab.Vectors('x')",
            (2, 3),
            "train.py:1 imports torchtext, whose last release goes with torch 2.3",
        ),
        ("from allennlp.nn import util", (1, 12), "imports allennlp"),
        ("import torch\nx = torch.rfft(torch.zeros(3), 1)", (1, 7), "torch.rfft"),
        (
            "from torchvision import transforms\nt = transforms.Scale(3)",
            (1, 11),
            "torchvision.transforms.Scale",
        ),
        (
            "from torch.nn.utils.rnn import pack_padded_sequence as pack\ndata, sizes = pack(x, n)",
            (1, 0),
            "four since torch 1.1",
        ),
        (
            "import torch\nclass F(torch.autograd.Function):\n    def forward(self, x):\n        return x",
            (1, 4),
            "not static",
        ),
        (
            "import torch\ns = torch.stft(torch.zeros(99), n_fft=8, center=False)",
            (1, 13),
            "train.py:2 calls torch.stft without return_complex",
        ),
    ],
)
def test_what_is_gone_says_how_old_torch_is(
    tmp_path: Path, code: str, newest: tuple[int, int], words: str
) -> None:
    found = age(tmp_path, code)
    assert words in "; ".join(n.words for n in found.in_the_way((newest[0], newest[1] + 1)))
    assert not list(found.in_the_way(newest))


@pytest.mark.parametrize(
    ("asked", "newest"), [("torch", 8), ("torch>=1.9", 9), ("torch==1.10", 10)]
)
def test_what_few_versions_have_is_used_with_the_first_of_them(
    tmp_path: Path, asked: str, newest: int
) -> None:
    """Which of them it is may be said elsewhere."""
    legacy = "from torchtext.legacy import data"
    found = age(tmp_path, legacy, {"requirements.txt": asked})
    above = [n.words for n in found.in_the_way((1, newest + 1))]
    assert any("was new in that of 1.8" in words for words in above)
    assert not list(found.in_the_way((1, newest)))


@pytest.mark.parametrize(
    "code",
    [
        "import scipy.misc\nscipy.misc.derivative(abs, 1.0)",
        "from torchtext.data import BucketIterator\nfrom torchtext import datasets",
        "import torch\ns = torch.stft(torch.zeros(99), 8, return_complex=True)",
        "import torch\nx = torch.zeros(99)\ntry:\n    s = torch.stft(x, 8, return_complex=True)\nexcept TypeError:\n    s = torch.stft(x, 8)",
        "import torch\nkwargs = {'return_complex': True}\ns = torch.stft(torch.zeros(99), 8, **kwargs)",
        "import torch\nimport torch.fft\ntorch.fft.rfft(torch.zeros(3))",
        "try:\n    from torch._six import inf\nexcept ImportError:\n    from torch import inf",
        "import tensorflow.compat.v1 as tf\ns = tf.Summary()",
        "from torch.nn.utils.rnn import pack_padded_sequence as pack\ndata, *rest = pack(x, n)",
        "import torch\nclass F(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n        return x",
    ],
)
def test_what_is_still_there_says_nothing(tmp_path: Path, code: str) -> None:
    assert not age(tmp_path, code).newest


@pytest.mark.parametrize(
    ("files", "newest"),
    [
        ({"docker/requirements.txt": "torch==1.4.0"}, (1, 4)),
        ({"installation/requirements.txt": "torch==1.4.0"}, (1, 4)),
        ({"requirement.txt": "torch==1.4.0"}, (1, 4)),
        ({"requirments.txt": "python=3.7.3\npytorch=1.2.0"}, (1, 2)),
        ({"Reqs.txt": "torch==1.4.0"}, (1, 4)),
        ({"docs/requirements.txt": "torch==1.4.0"}, None),  # what builds the pages
        ({"cog.yaml": 'build:\n  python_packages:\n    - "torch==1.9.1"'}, (1, 9)),
        ({"requirements.txt": "torchvision==0.14.1"}, (1, 13)),
        ({"requirements.txt": "torchvision<0.17"}, (2, 1)),
        ({"requirements.txt": "torchvision==0.2.1"}, (0, 4)),  # of its time
        ({"requirements.txt": "torchtext==0.9.1"}, (1, 8)),
        ({"requirements.txt": "torchtext==0.6.0"}, None),
        ({"requirements.txt": "torchaudio==0.13.1+cu117"}, (1, 13)),
        ({"requirements.txt": "torchaudio==2.0.2"}, (2, 0)),
        ({"requirements.txt": "pytorch-lightning==1.5.6"}, (1, 10)),
        ({"docs/INSTALL.md": "Tested with PyTorch 1.4."}, (1, 4)),
        ({"get_started.md": "conda install pytorch==1.8.0"}, (1, 8)),
        ({"environment.yml": "dependencies:\n  - python=3.8.5"}, (2, 4)),
        ({"environment.yml": "dependencies:\n  - python<3.8"}, (1, 13)),
        ({"saint_environment.yml": "dependencies:\n  - pytorch=1.8.1=py3.8_cuda11.1"}, (1, 8)),
        ({"conda_gpu.yaml": "dependencies:\n  - pytorch=1.8.1"}, (1, 8)),
        ({"environment.yml": "dependencies:\n  - python=3"}, None),
        ({"setup.py": "setup(python_requires='>=3.6')"}, None),
        ({"requirements.txt": "transformers==4.2.1\nnumpy==1.19.5\ntqdm==4.56.0"}, (1, 7)),
        (
            {"requirements.txt": "numpy==1.19.5\ntransformers==4.19.2"},
            (1, 11),
        ),  # the newest of them
        ({"requirements.txt": "numpy==1.19.5\ntransformers==4.44.0"}, None),
        ({"requirements.txt": "timm==0.4.12\nnumpy==1.26.4"}, None),
        ({"requirements.txt": "transformers>=4.2.1\ntimm<0.5\nnumpy==1.23.5"}, None),
        ({"env.yml": "- pip:\n  - transformers~=4.10.2"}, (1, 9)),
        ({"env.yml": "- pip:\n  - transformers~=4.10"}, None),
        ({"requirements.txt": "timm==0.4.12", "README.md": "PyTorch 2.1"}, (2, 1)),
        ({"environment.yml": "- pandas=1.1\n- pip:\n  - torchmetrics==0.2.0"}, (1, 8)),
        ({"requirements.txt": "torch>=1.4\n", "environment.yml": "- pytorch=1.10"}, (1, 10)),
    ],
)
def test_pins_of_what_goes_with_torch(
    tmp_path: Path, files: dict[str, str], newest: tuple[int, int] | None
) -> None:
    found = age(tmp_path, "import torch", files)
    if newest is None:
        assert not found.newest
    else:
        assert found.rules_out((newest[0], newest[1] + 1)) and not found.rules_out(newest)


TRAINING = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(64, 8), torch.zeros(64).long()), batch_size=8)
model = nn.Linear(8, 3).to(device)
optimizer = torch.optim.Adam(model.parameters())
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(model(x), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.eval()
    for x, y in loader:
        print(model(x.to(device)).argmax(1).eq(y.to(device)).sum())
"""


@pytest.mark.parametrize(
    ("torch", "rule", "written"),
    [
        ("1.13", "no-grad-eval", "torch.inference_mode()"),
        ("1.8", "no-grad-eval", "torch.no_grad()"),
        ("1.13", "tf32", "set_float32_matmul_precision"),
        ("1.11", "tf32", "allow_tf32 = True"),
        ("1.6", "tf32", ""),
        ("2.4", "fused-optimizer", "fused=True"),
        ("2.3", "fused-optimizer", ""),
        ("1.2", "batched-dataset", "batch_size=None"),
        ("1.1", "batched-dataset", ""),
    ],
)
def test_no_form_is_newer_than_torch(torch: str, rule: str, written: str) -> None:
    """The form that this torch knows, or a refusal with the place that says which it is."""
    done = apply(rule, TRAINING, files={"requirements.txt": f"torch=={torch}\n"})
    if written:
        assert written in done.text
    else:
        assert not done.fixes
        assert f"requirements.txt:1 asks for torch =={torch}, and what would be" in done.refusals


@pytest.mark.parametrize(("pin", "worth"), [("==1.11", False), (">=1.11", True), ("==1.13", True)])
def test_tf32_is_the_default_of_an_old_torch(pin: str, worth: bool) -> None:
    layers = "nn.Sequential(nn.Linear(8, 3000), nn.Linear(3000, 3000), nn.Linear(3000, 3))"
    text = TRAINING.replace("nn.Linear(8, 3)", layers).replace("batch_size=8", "batch_size=4096")
    done = apply("tf32", text, min_gain=0.01, files={"requirements.txt": f"torch{pin}\n"})
    assert bool(done.fixes) is worth


def test_what_is_called_behind_an_option_alone_says_nothing(tmp_path: Path) -> None:
    code = """
    import argparse
    import tensorflow as tf

    args = argparse.ArgumentParser().parse_args()
    if args.board:
        tf.Summary()
    """
    assert not age(tmp_path, code).rules_out((2, 4))


@pytest.mark.parametrize(
    ("name", "line", "newest"),
    [
        ("Dockerfile", "RUN pip install torch==1.4.0 torchvision", (1, 4)),
        ("Dockerfile.gpu", "FROM pytorch/pytorch:1.4-cuda10.1-cudnn7-runtime", (1, 4)),
        ("docker/Dockerfile", "RUN pip3 install https://a.b/cu100/torch-1.1.0-cp36-cp36m-linux_x86_64.whl", (1, 1)),
        ("requirements.txt", "https://a.b/cu110/torch-1.7.1%2Bcu110-cp38-cp38-linux_x86_64.whl", (1, 7)),
    ],
)  # fmt: skip
def test_what_a_project_installs(
    tmp_path: Path, name: str, line: str, newest: tuple[int, int]
) -> None:
    found = age(tmp_path, "import torch", {name: f"# torch==0.4\nFROM ubuntu:18.04\n{line}\n"})
    assert found.rules_out((newest[0], newest[1] + 1)).startswith(
        f"{Path(name).name}:3 asks for torch =="
    )
    assert not found.rules_out(newest)


@pytest.mark.parametrize(
    "line", ["FROM pytorch/pytorch:latest", "RUN pip install torchvision", "COPY torch-1.1.0.txt ."]
)
def test_what_a_project_installs_of_any_version(tmp_path: Path, line: str) -> None:
    found = age(tmp_path, "import torch", {"Dockerfile": line + "\n"})
    assert not (found.newest or found.oldest)


# ------------------------------------------------------------------------------------- the interval
ACCURACY = """
import torch

output, target = torch.randn(8, 10), torch.randint(10, (8,))


def accuracy(output, target, topk=(1,)):
    _, pred = output.topk(max(topk), 1, True, True)
    pred = pred.t()
    correct = pred.eq(target.view(1, -1).expand_as(pred))
    found = []
    for k in topk:
        correct_k = correct[:k].view(-1).float().sum(0)
        found.append(correct_k.mul_(100.0 / target.size(0)))
    return found


found = accuracy(output, target, topk=(1, 5))
"""


@pytest.mark.parametrize(
    ("code", "newest", "anew", "words"),
    [
        (ACCURACY, (1, 6), "reshape", "`correct[:k].view(-1)`, an error since torch 1.7"),
        (
            "import torch\nx = torch.zeros(3)\nmask = x.eq(0)\ny = 1 - mask",
            (1, 1),
            "",
            "train.py:4 subtracts the comparison in `1 - mask`",
        ),
        (
            "import torch\nx = torch.zeros(3)\ny = 1 - (x > 0)",
            (1, 1),
            "",
            "an error since torch 1.2",
        ),
        (
            "import torch\nw = torch.nn.Linear(3, 1)\nw(torch.zeros(3)).sum().backward(retain_variables=True)",
            (0, 4),
            "retain_variables=retain_graph",
            "gives backward() `retain_variables`, which is gone in torch 1.0",
        ),
        (
            "import torch\no = torch.optim.SGD(torch.nn.Linear(3, 1).parameters(), 0.1)\n"
            "s = torch.optim.lr_scheduler.ReduceLROnPlateau(o, verbose=True)",
            (2, 6),
            "",
            "gives ReduceLROnPlateau() `verbose`",
        ),
        (
            "import pytorch_lightning as pl\npl.Trainer(accelerator='auto', progress_bar_refresh_rate=50)",
            (1, 13),
            "",
            "gives Trainer() `progress_bar_refresh_rate`, which is gone in Lightning 1.7",
        ),
        ("import torch\ntorch.zeros(3, 3).symeig()", (1, 13), "", "uses torch.symeig"),
        (
            "import torch\nfrom torch.utils.data import DataLoader\n"
            "it = iter(DataLoader(torch.zeros(9, 3)))\nfor i in range(9):\n    x = it.next()",
            (1, 12),
            "",
            "asks a loader's iterator for next()",
        ),
        ("import torch\ntorch.solve(torch.zeros(3, 3), torch.zeros(3, 3))", (1, 12), "", "torch.solve"),
        ("from torch._six import container_abcs, inf", (1, 13), "import collections.abc", "torch._six"),
        ("from torch._six import string_classes, inf", (1, 13), "", "torch._six"),
        ("import time\nt = time.clock()", (1, 13), "process_time", "time.clock"),
        (
            "import torch\nx = torch.zeros(3)\nm = (x == 0).byte()\ny = x.masked_fill(m.unsqueeze(0), 1)",
            (2, 0),
            "",
            "train.py:4 masks by bytes",
        ),
        (
            "import torch\nx = torch.zeros(3)\ny = x.masked_fill((x == 0).byte(), 1)",
            (2, 0),
            "bool",
            "an error since torch 2.1",
        ),
        (
            "import torch\nloss = torch.nn.functional.mse_loss(torch.zeros(3), torch.ones(3))\n"
            "for i in range(100):\n    if i % 10 == 0:\n        print(loss.data[0])",
            (0, 4),
            "item",
            "train.py:5 reads `loss.data[0]`, an IndexError since torch 0.5",
        ),
    ],
)  # fmt: skip
def test_what_rules_newer_versions_out(
    tmp_path: Path, code: str, newest: tuple[int, int], anew: str, words: str
) -> None:
    found = age(tmp_path, code)
    above = list(found.in_the_way((newest[0], newest[1] + 1)))
    assert len(above) == 1 and words in above[0].words and above[0].anew.startswith(anew)
    assert bool(found.rules_out((newest[0], newest[1] + 1))) is not bool(anew)
    assert not list(found.in_the_way(newest))


@pytest.mark.parametrize(
    "code",
    [
        ACCURACY.replace("topk=(1, 5)", "topk=(1,)"),
        ACCURACY.replace("correct[:k].view", "correct[:k].contiguous().view"),
        ACCURACY.replace("pred = pred.t()", "pred = pred.t().contiguous()"),
        ACCURACY.replace("    pred = pred.t()\n", "").replace("view(1, -1)", "view(-1, 1)"),
        "import torch\nx = torch.zeros(3)\nmask = x.eq(0).float()\ny = 1 - mask",
        "import numpy as np\nx = np.zeros(3)\ny = 1 - (x > 0)",
        "import torch\ntry:\n    torch.solve(torch.zeros(3, 3), torch.zeros(3, 3))\nexcept RuntimeError:\n    pass",
        "import torch\nfrom torchtext import data\nfield = data.Field()",
        "import numpy as np\nx = np.float(3)",
        "import torch\nx = torch.zeros(3)\ny = x.masked_fill((x == 0).byte().to(torch.bool), 1)",
        "import torch\nx = torch.zeros(3)\nx.addcmul_(0.5, x, x)\ntorch.nn.functional.upsample(x)",
    ],
)
def test_what_any_torch_still_runs(tmp_path: Path, code: str) -> None:
    assert not age(tmp_path, code).newest


@pytest.mark.parametrize(
    ("code", "oldest"),
    [
        ("import torch\nwith torch.inference_mode():\n    pass", (1, 9)),
        ("from torch.cuda.amp import GradScaler, autocast", (1, 6)),
        (
            "from torch.utils.data import DataLoader\nl = DataLoader([1], persistent_workers=True)",
            (1, 7),
        ),
        ("import torch\nm = torch.compile(torch.nn.Linear(3, 3))", (2, 0)),
        (
            "import torch\nif hasattr(torch, 'compile'):\n    m = torch.compile(torch.nn.Linear(3, 3))",
            (),
        ),
        (
            "import torch\ntry:\n    m = torch.compile(torch.nn.Linear(3, 3))\nexcept AttributeError:\n    pass",
            (),
        ),
    ],
)
def test_what_rules_older_versions_out(tmp_path: Path, code: str, oldest: tuple[int, ...]) -> None:
    found = age(tmp_path, code)
    assert found.least == oldest
    assert not oldest or (found.is_at_least(oldest) and not found.is_at_least((2, 9)))


def test_a_pin_that_the_code_contradicts_says_nothing(tmp_path: Path) -> None:
    old = {"requirements.txt": "torch==1.4\n"}
    found = age(tmp_path, "import torch\nwith torch.inference_mode():\n    pass", old)
    assert not found.rules_out((2, 4)) and found.clash
    assert age(tmp_path, "import torch", old).rules_out((2, 4))


EXTENSION = {
    "ops/setup.py": "setup(ext_modules=[CUDAExtension(name='ops._ext', sources=['src/a.cpp'])])",
    "ops/__init__.py": "",
    "ops/use.py": "try:\n    import ops._ext as _ext\nexcept ImportError:\n    raise ImportError('build it')\n",
}


@pytest.mark.parametrize(
    ("cpp", "newest"),
    [
        ("void f() {\n  AT_CHECK(x.is_contiguous());\n}\n", (1, 4)),
        ("#include <THC/THC.h>\n", (1, 10)),
        ("#include <torch/extension.h>\nTORCH_CHECK(true);\n", None),
        (
            "#ifndef AT_CHECK\n#define AT_CHECK TORCH_CHECK\n#endif\nvoid f() { AT_CHECK(true); }\n",
            None,
        ),
    ],
)
def test_extensions(tmp_path: Path, cpp: str, newest: tuple[int, int] | None) -> None:
    found = age(tmp_path, "import ops.use", {**EXTENSION, "ops/src/a.cpp": cpp})
    assert bool(found.newest) is (newest is not None)
    if newest:
        said = found.rules_out((newest[0], newest[1] + 1))
        assert said.startswith("ops/src/a.cpp:") and not found.rules_out(newest)


def test_an_extension_that_the_script_does_not_use_says_nothing(tmp_path: Path) -> None:
    cpp = {**EXTENSION, "ops/src/a.cpp": "AT_CHECK(true);", "ops/use.py": "x = 1\n"}
    assert not age(tmp_path, "import ops.use", cpp).newest


# ------------------------------------------------------------------------------------- and the plan
OLD = TRAINING.replace(
    "        optimizer.step()\n",
    "        optimizer.step()\n    print(loss.data[0])\n    print(accuracy(model(x.to(device)), y.to(device), topk=(1, 2)))\n",
).replace("loader = ", ACCURACY.split("\n\n\n")[1] + "\n\nloader = ", 1)  # fmt: skip
NEEDING = "tf32 no-grad-eval persistent-workers"


def test_what_is_written_anew_comes_with_what_needs_it() -> None:
    done = apply(f"variable-api {NEEDING}", OLD)
    assert "print(loss.item())" in done.text and "correct[:k].reshape(-1)" in done.text
    assert "set_float32_matmul_precision" in done.text and "torch.inference_mode()" in done.text
    assert not done.refusals


def test_a_mask_of_bytes() -> None:
    text = "import torch\nx = torch.arange(3.0)\ny = x.masked_fill((x == 1).byte(), 7)\n"
    with pytest.raises(RuntimeError, match="boolean masks"):
        run(text)
    assert run(apply("variable-api", text).text)["y"].tolist() == [0.0, 7.0, 2.0]


def test_the_old_text_stops_and_the_new_one_runs() -> None:
    with pytest.raises(RuntimeError, match="view size"):
        run(ACCURACY)
    found = run(apply("variable-api", ACCURACY).text)
    top5 = found["output"].topk(5, 1).indices.eq(found["target"][:, None]).any(1)
    assert found["found"][1].item() == 100.0 * top5.float().mean().item()


@pytest.mark.parametrize(
    ("text", "rules"),
    [
        (OLD, NEEDING),  # nobody writes it anew
        (
            OLD.replace("print(loss.data[0])", "print(loss.data[0])  # autofast: ignore"),
            f"variable-api {NEEDING}",
        ),
    ],
)
def test_without_it_what_needs_it_is_refused(text: str, rules: str) -> None:
    done = apply(rules, text)
    assert "reads `loss.data[0]`, an IndexError since torch 0.5" in done.refusals
    assert "what would be written needs torch 1.12" in done.refusals
    assert "set_float32_matmul_precision" not in done.text


def test_what_cannot_be_written_anew_is_named() -> None:
    old = TRAINING + "print(torch.symeig(model.weight[:, :3]))\n"
    done = apply("fused-optimizer tf32", old)
    assert "uses torch.symeig, which is gone in torch 2.0, and what would be written needs torch 2.4" in done.refusals  # fmt: skip
    assert "fused=True" not in done.text


def test_a_rule_that_does_not_say_what_it_needs(tmp_path: Path) -> None:
    """The second reading finds out that no torch runs both, and the fix is refused."""
    silent = replace(all_rules()["fused-optimizer"], torch=(0, 4))
    script = read(tmp_path, TRAINING + "print(1 - (x > 0))\n")
    plan = Plan.make(
        script, Options(selected=frozenset({"fused-optimizer"})), [silent], Effect.ROUNDING
    )
    assert plan.fixes

    def reread(texts: Mapping[Source, str]) -> Script:
        overlay = {s.path: s.encode(t) for s, t in texts.items()}
        return read_script(script.entry.path, tmp_path, overlay=overlay)

    passes = fixed_point(plan, reread)
    assert not passes.first.fixes
    assert "and what would be written needs torch 2.0" in passes.first.findings[0].refusal


# ------------------------------------------------------------------------------------ lower bounds
@pytest.mark.parametrize(
    ("files", "bound"),
    [
        ({"requirements.txt": "torch>=1.7\n"}, (1, 7)),
        ({"requirements.txt": "torch>=1.4\n"}, (1, 7)),  # what a Python of these years installs
        ({"README.md": "Python 3.7, PyTorch 1.x"}, (1, 7)),
        ({"setup.py": "setup(install_requires=['torch>=1.4'])"}, (1, 4)),  # whoever installs it
        ({"requirements.txt": "torch>=2\n"}, (2, 0)),
        ({"README.md": "Needs [PyTorch](https://pytorch.org) **1.10+** and NumPy"}, (1, 10)),
        ({"README.md": "1. Install PyTorch 1.13 or later"}, (1, 13)),
        ({"README.md": "requires ```torch >= 1.8``` and Python 3"}, (1, 8)),
        ({"README.md": "at least PyTorch 1.8, tested with PyTorch 2.9"}, (1, 8)),
        ({"README.md": "![torch](https://img.shields.io/badge/PyTorch-v1.13%2B-red)"}, (1, 13)),
        ({"requirements.txt": "torch>=1.8\n", "setup.py": "setup(python_requires='>=3.12')"}, (2, 2)),
        ({"setup.py": "setup(python_requires='>=3.12')"}, None),
        (
            {"pyproject.toml": "x = [\n\"torch>=1.13.0;python_version<'3.11'\",\n\"torch>=2.9.0;python_version>='3.14'\"\n]"},
            (1, 13),
        ),
    ],
)  # fmt: skip
def test_lower_bounds(tmp_path: Path, files: dict[str, str], bound: tuple[int, int] | None) -> None:
    """What a project says it runs with; none that hardly anybody installs any more."""
    found = age(tmp_path, "import torch", files)
    if bound is None:
        assert not found.rules_out((9, 9))
    else:
        assert found.rules_out((bound[0], bound[1] + 1)) and not found.rules_out(bound)


@pytest.mark.parametrize(
    ("files", "newest"),
    [
        ({"README.md": "pip install torch==1.4.0 torchvision==0.5.0"}, (1, 4)),
        ({"README.md": "* [PyTorch==0.3.1](https://pytorch.org/previous)"}, (0, 3)),
        ({"README.md": "conda install -y pytorch=1.5.1 cudatoolkit=10.1 -c pytorch"}, (1, 5)),
        ({"README.md": "pip install torch==1.4.0", "requirements.txt": "torch>=1.9\n"}, None),
        ({"README.md": "tested with PyTorch 1.4.0 and its torchvision"}, (1, 4)),
        ({"README.md": "does not work with PyTorch 0.4.1"}, None),
        ({"README.md": "PyTorch < 1.8 is not supported"}, None),
        ({"README.md": "any torch!=1.12.0"}, None),
        ({"README.md": "python2 is not supported"}, None),
        ({"README.md": "works not only with PyTorch 1.4.0"}, (1, 4)),
        ({"README.md": "not tested with any other than PyTorch 1.4.0"}, (1, 4)),
        ({"README.md": "tested with PyTorch 1.4.0", "requirements.txt": "torch\nnumpy==1.18"}, (1, 4)),
        ({"README.md": "* **Pytorch**: 0.4.1\n* Python 3.6"}, (0, 4)),
        ({"README.md": "| PyTorch | 1.6.0 |"}, (1, 6)),
        ({"README.md": "![torch](https://img.shields.io/badge/pytorch-1.6-green.svg)"}, (1, 6)),
        ({"README.md": "PyTorch (code tested with 1.5)"}, (1, 5)),
        ({"README.md": "Install [PyTorch](http://pytorch.org) version 1.0."}, (1, 0)),
        ({"README.md": "pip install http://a.b/whl/cu90/torch-0.4.0-cp27-cp27mu-linux_x86_64.whl"}, (0, 4)),
        ({"README.md": "pytorch1.6.0+cu101, needs PyTorch 1.4 + CUDA"}, (1, 6)),
        ({"README.md": "PyTorch 0.4 / 1.0 and Python 3.6"}, (1, 0)),
        ({"README.md": "PyTorch 1.0\n\nNews: supports PyTorch 1.6."}, (1, 6)),
        ({"README.md": "[PyTorch](http://pytorch.org/) (<1.5)"}, (1, 4)),
        ({"README.md": "PyTorch 1.0, newer versions should work as well"}, None),
        ({"README.md": "PyTorch 1.0 (or above)"}, None),
        ({"README.md": "with a minimum of PyTorch 1.1; tested with PyTorch 1.2"}, None),
        ({"README.md": "needs pytorch_transformers==1.2"}, None),
        ({"README.md": "efficientnet-pytorch 0.7.1, PyTorch Lightning 0.9, torchvision 0.5"}, None),
        ({"README.md": "mAP of PyTorch: 94.82 %, of ours 95.4"}, None),
        ({"README.md": "Runs with Python 2.7."}, (1, 4)),
        ({"README.md": "Python 2.7 or 3.6"}, (1, 10)),
        ({"README.md": "conda create -n net python=3.6"}, (1, 10)),
        ({"README.md": "Python 3.6+"}, None),
        ({"README.md": "Python 3.6 and above; made with Python 3.7"}, None),
        ({"README.md": "Python 3.7", "setup.py": "'Programming Language :: Python :: 3.10'"}, None),
        ({"README.md": "Python 2.7+"}, None),
        ({"setup.py": "setup(classifiers=['Programming Language :: Python :: 2.7'])"}, (1, 4)),
        ({"README.md": "conda install pytorch cuda90 -c pytorch"}, (1, 1)),
        ({"environment.yml": "- cudatoolkit=9.0\n- pytorch"}, (1, 1)),
        ({"README.md": "pip install torch --extra-index-url https://a.b/whl/cu118"}, None),
    ],
)  # fmt: skip
def test_one_version_in_a_readme(
    tmp_path: Path, files: dict[str, str], newest: tuple[int, int] | None
) -> None:
    """As a pin in a file for installing, where none says anything."""
    found = age(tmp_path, "import torch", files)
    if newest is None:
        assert not found.newest
    else:
        assert found.rules_out((newest[0], newest[1] + 1)) and not found.rules_out(newest)


@pytest.mark.parametrize(
    ("code", "newest"),
    [
        ("x = 1\n# PyTorch 1.8 has SiLU, but we support PyTorch 1.7.\n", (1, 7)),
        ('def f():\n    """We still support torch 1.9 and 1.10."""\n', (1, 9)),
        ("x = 1  # we support PyTorch 1.4\n", (1, 4)),
        ("# Tested with PyTorch 1.1.\n", (1, 1)),
        ('"""Trains a model.\n\nThis code was tested on PyTorch 1.4.\n"""\n', (1, 4)),
        ('"""Trains a model; requires torch >= 1.8."""\n', (1, 8)),
        ('"""A GAN.\n\nDependencies:\ntorch: 0.4\nnumpy\n"""\n', (0, 4)),
        ("# torch == 1.1\nx = 1\n", (1, 1)),
        ("x = 1\n# torch == 1.1\n", None),
        ('x = 1\n\n\ndef f():\n    """Requires torch >= 1.8."""\n', None),  # that function alone
        ("# since PyTorch 1.1 the scheduler comes after the optimizer\n", None),
        ("# PyTorch 1.4 has no such layer\n", None),
        ("# not tested with PyTorch 1.4\n", None),
        ("print('tested with PyTorch 1.4')\n", None),
    ],
)
def test_remarks_in_the_code(tmp_path: Path, code: str, newest: tuple[int, int] | None) -> None:
    found = age(tmp_path, "import torch\nimport layers", {"layers.py": code})
    if newest is None:
        assert not found.rules_out((9, 9))
    else:
        assert found.rules_out((newest[0], newest[1] + 1)).startswith("layers.py:")
        assert not found.rules_out(newest)


def test_remarks_say_nothing_beside_what_is_installed(tmp_path: Path) -> None:
    code = "# we support PyTorch 1.7\nimport torch"
    assert not age(tmp_path, code, {"requirements.txt": "torch==2.4\n"}).rules_out((2, 4))


def test_what_a_readme_says_is_left_out(tmp_path: Path) -> None:
    """The older form or a refusal that names the line, and what to give."""
    words = {"README.md": "# Net\n\n- PyTorch 1.8\n"}
    done = apply("no-grad-eval fused-optimizer", TRAINING, files=words)
    assert "torch.no_grad()" in done.text and "fused=True" not in done.text
    said = "README.md:3 says PyTorch 1.8, and what would be written needs torch 2.4 (--torch 2.4"
    assert said in done.refusals
    python3 = "import torch\nprint(f'{1}')"
    assert not age(tmp_path, python3, {"README.md": "Runs with Python 2.7."}).newest


def test_the_code_and_the_user_outweigh_a_lower_bound(tmp_path: Path) -> None:
    files = {"requirements.txt": "torch>=1.7\n"}
    code = "import torch\nm = torch.compile(torch.nn.Linear(3, 3))"
    found = age(tmp_path, code, files)
    assert not found.rules_out((2, 4))
    found = replace(age(tmp_path, "import torch", files), given=(2, 4))
    assert not found.rules_out((2, 4))


@pytest.mark.parametrize(
    ("asked", "written", "left"),
    [
        ("torch>=1.8", "torch.no_grad() torch.backends.cuda.matmul.allow_tf32", "fused=True"),
        ("torch>=1.12", "torch.inference_mode() set_float32_matmul_precision", "fused=True"),
        ("torch>=2.4", "torch.inference_mode() set_float32_matmul_precision fused=True", "no_grad"),
        ("torch>=1.4", "torch.no_grad() torch.backends.cuda.matmul.allow_tf32", "fused=True"),
    ],
)
def test_what_is_written_runs_with_the_oldest(asked: str, written: str, left: str) -> None:
    rules = "no-grad-eval tf32 fused-optimizer"
    done = apply(rules, TRAINING, files={"requirements.txt": f"{asked}\n"})
    assert all(word in done.text for word in written.split()) and left not in done.text
    if left == "fused=True":
        bound = f"requirements.txt:1 asks for torch {asked.removeprefix('torch')}"
        hint = "what would be written needs torch 2.4 (--torch 2.4, if that is yours)"
        assert f"{bound}, and {hint}" in done.refusals


BATCHES = """
from torch.utils.data import DataLoader, TensorDataset

def batches(x):
    data = TensorDataset(x)
    return DataLoader(data, batch_size=8)
"""
SHARES = """
import torch
from batches import batches

model = torch.nn.Linear(3, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for (x,) in batches(torch.rand(64, 3)):
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            SHARES + "    print(loss.data[0])\n",
            "other.py:11, which shares batches.py, reads `loss.d",
        ),
        ("from torch._six import inf\nimport batches\n", ""),  # 1.13 has it
        ("from torch.autograd.function import traceable\nimport batches\n", ""),
        (
            "import batches\nfrom torch.legacy import nn\n",
            "other.py:2, which shares batches.py, uses",
        ),
        (SHARES + "    print(weights.data[0])\n", ""),
        (SHARES.replace("from batches", "from others") + "    print(loss.data[0])\n", ""),
    ],
)
def test_scripts_that_share_a_file_keep_their_torch(other: str, said: str) -> None:
    """What is written in a file has to run for all that import it; in the script itself it need
    not.
    """
    done = apply(
        "batched-dataset set-to-none", SHARES, files={"batches.py": BATCHES, "other.py": other}
    )
    assert any(f.rule == "batched-dataset" for f in done.fixes) == (not said)
    assert said in done.refusals
