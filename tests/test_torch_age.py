"""What a project says of the age of its torch: one fact, held against the form of every fix."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.model.torch_age import TorchAge
from tests.onerule import apply
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
        ("from torchtext.legacy import data", (1, 10), "torchtext.legacy"),
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
    assert words in found.rules_out((newest[0], newest[1] + 1))
    assert not found.rules_out(newest)


@pytest.mark.parametrize(
    "code",
    [
        "import scipy.misc\nscipy.misc.derivative(abs, 1.0)",
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
    assert age(tmp_path, code) == TorchAge()


@pytest.mark.parametrize(
    ("files", "newest"),
    [
        ({"requirements.txt": "torchvision==0.14.1"}, (1, 13)),
        ({"requirements.txt": "torchvision<0.17"}, (2, 1)),
        ({"requirements.txt": "torchvision==0.2.1"}, None),
        ({"environment.yml": "dependencies:\n  - python=3.8.5"}, (2, 4)),
        ({"environment.yml": "dependencies:\n  - python<3.8"}, (1, 13)),
        ({"environment.yml": "dependencies:\n  - python=3"}, None),
        ({"setup.py": "setup(python_requires='>=3.6')"}, None),
        ({"requirements.txt": "torch>=1.4\n", "environment.yml": "- pytorch=1.10"}, (1, 10)),
    ],
)
def test_pins_of_what_goes_with_torch(
    tmp_path: Path, files: dict[str, str], newest: tuple[int, int] | None
) -> None:
    found = age(tmp_path, "import torch", files)
    if newest is None:
        assert not found.limits
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
        ("1.11", "tf32", ""),
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
    assert age(tmp_path, "import torch", {"Dockerfile": line + "\n"}) == TorchAge()
