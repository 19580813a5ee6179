"""channels-last: which networks and images it converts, where, and what of their code has to
change.
"""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from autofast.commands.rewriting import rewrite
from autofast.config import Config
from autofast.rule import Effect
from tests.onerule import Applied, apply, run

RULE = "channels-last"
HEAD = """
import torch  # one line that is longer than 88 characters says that the author does not mind lines of up to 120
from torch import nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(24, 3, 8, 8), torch.randint(0, 4, (24,)))
loader = DataLoader(data, batch_size=8)


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3)
        self.b = nn.Conv2d(8, 8, 3)
        self.c = nn.Linear(8 * 4 * 4, 4)

    def forward(self, x):
        x = self.b(torch.relu(self.a(x)))
        return self.c(torch.flatten(x, 1))


"""
LOOP = """
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
losses = []
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
TEXT = HEAD + LOOP
MODEL = "model = Net().to(device, memory_format=torch.channels_last)"
IMAGES = "x, y = x.to(device, memory_format=torch.channels_last), y.to(device)"


CHOSEN = TEXT.replace(
    "model = Net().to(device)",
    """
class Viewed(Net):
    def forward(self, x):
        x = self.b(torch.relu(self.a(x)))
        return self.c(x.view(len(x), -1))


import sys
model = Net() if len(sys.argv) > 99 else eval("".join(["View", "ed"]))()
model = model.to(device)
""",
)


def changed(old: str, new: str, text: str = TEXT) -> str:
    assert old in text
    return text.replace(old, new)


def trained(text: str) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        return run(text)


def same(text: str, **kwargs: str) -> Applied:
    """Both versions train the same but for the last digits, and the weights really are in the other
    layout.
    """
    done = apply(RULE, text, **kwargs)
    before, after = trained(done.before), trained(done.text)
    assert after["losses"] == pytest.approx(before["losses"], rel=1e-4)
    kernels = [p for p in after["model"].parameters() if p.dim() == 4]
    assert all(p.is_contiguous(memory_format=torch.channels_last) for p in kernels)
    return done


def test_network_and_images():
    assert same(TEXT).lines == [MODEL, IMAGES]


GROUPED = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, {kernel})
        self.c = nn.Linear(8, 4)

    def forward(self, x):
        rows = x.permute(0, 2, 1)
        near = rows[:, torch.arange(6).view(3, 2), :]
        h = self.a({given})
        return self.c(h.flatten(2).amax(2))


"""


@pytest.mark.parametrize("given", ["near.permute(0, 3, 2, 1)", "x[:, :, :6].reshape(8, 3, 3, 2)"])
def test_points_that_are_gathered_into_images_come_with_three_dimensions(given: str) -> None:
    text = HEAD[: HEAD.index("class Net")] + GROUPED.format(kernel=2, given=given) + LOOP
    text = text.replace("torch.randn(24, 3, 8, 8)", "torch.randn(24, 3, 8)")
    assert same(text).lines == [MODEL]


@pytest.mark.parametrize(
    ("given", "images"),
    [("x", True), ("x * 2", True), ("x[:, 0].unsqueeze(1)", False), ("self.flip(x)", False)],
)
def test_what_a_method_of_the_network_is_given(given: str, images: bool) -> None:
    text = changed(
        "    def forward(self, x):\n",
        f"    def forward(self, x):\n        return self.go({given})\n\n    def go(self, x):\n",
    )
    flip = "    def flip(self, x):\n        return x[:, 0].unsqueeze(1)\n\n"
    text = text.replace("    def go(", flip + "    def go(")
    text = text if images else text.replace("nn.Conv2d(3, 8, 3)", "nn.Conv2d(1, 8, 3)")
    assert same(text).lines == ([MODEL, IMAGES] if images else [MODEL])


def test_what_is_joined_padded_or_scaled_has_as_many_dimensions() -> None:
    for given in (
        "torch.cat([x * 2])",
        "F.pad(x, (0, 0, 0, 0))",
        "(x - 0.5).clamp(min=-1)",
    ):
        text = changed("        x = self.b(", f"        x = {given}\n        x = self.b(")
        assert same(text).lines == [MODEL, IMAGES], given


def test_on_a_cpu():
    assert same(TEXT, target="cpu").lines == [MODEL, IMAGES]
    assert (
        MODEL.replace("device, ", "")
        in same(changed("Net().to(device)", "Net()"), target="cpu").lines
    )


def test_cuda_takes_a_call_of_its_own():
    text = changed(
        "model = Net().to(device)",
        "model = Net()\nif torch.cuda.is_available():\n    model = model.cuda()",
    )
    assert "model = model.cuda().to(memory_format=torch.channels_last)" in apply(RULE, text).lines
    images = changed(
        "x, y = x.to(device), y.to(device)",
        "if torch.cuda.is_available():\n            x, y = x.cuda(), y.cuda()",
        text,
    )
    assert "x, y = x.cuda(memory_format=torch.channels_last), y.cuda()" in apply(RULE, images).lines


def test_before_it_is_wrapped():
    done = same(changed("model = Net().to(device)", "model = nn.DataParallel(Net()).to(device)"))
    assert (
        "model = nn.DataParallel(Net().to(memory_format=torch.channels_last)).to(device)"
        in done.lines
    )


def test_what_is_moved_in_several_places_is_converted_where_it_is_made():
    text = changed(
        "model = Net().to(device)",
        'model = Net()\nif device.type == "cuda":\n    model.to(device)\nelse:\n    model.to("cpu")',
    )
    assert "model = Net().to(memory_format=torch.channels_last)" in same(text).lines
    text = changed("model = Net().to(device)", "model = Net().to(device)\nmodel.to(device)")
    assert MODEL in same(text).lines  # at the one right behind it


def test_only_the_first_argument_is_an_image():
    text = changed("def forward(self, x):", "def forward(self, x, label):").replace(
        "model(x)", "model(x, y)"
    )
    assert IMAGES in same(text).lines


def test_no_image_where_it_gets_another_shape_before_the_network():
    rows = changed("torch.randn(24, 3, 8, 8)", "torch.randn(24, 192)").replace(
        "        optimizer.zero_grad()",
        "        x = x.view(-1, 3, 8, 8)\n        optimizer.zero_grad()",
    )
    found = same(rows)
    assert MODEL in found.text and "x, y = x.to(device), y.to(device)" in found.text


def test_an_image_that_is_only_copied_where_there_is_a_gpu():
    asked = changed(
        "        x, y = x.to(device), y.to(device)",
        "        if torch.cuda.is_available():\n            x, y = x.cuda(), y.cuda()",
    )
    assert "x.cuda(memory_format=torch.channels_last)" in same(asked).text


def test_no_image_where_the_first_layer_takes_none():
    text = changed(
        "x = self.b(torch.relu(self.a(x)))",
        "x = self.b(torch.relu(self.a(self.first(x.flatten(1)).view(-1, 3, 8, 8))))",
    ).replace("self.c =", "self.first = nn.Linear(192, 192)\n        self.c =")
    done = same(text)
    assert MODEL in done.lines and IMAGES not in done.lines


def test_a_view_of_what_dense_layers_give_stays():
    text = changed(
        "x = self.b(torch.relu(self.a(x)))",
        "x = self.b(torch.relu(self.a(self.first(x.flatten(1)).view(-1, 3, 8, 8))))",
    ).replace(
        "self.c =",
        "self.first = nn.Sequential(nn.Linear(192, 192), nn.BatchNorm1d(192), nn.SiLU())\n        self.c =",
    )
    assert ".reshape(" not in same(text).text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("x.view(x.size(0), -1)", "x.reshape(x.size(0), -1)"),
        ("x.view(-1, 128)", "x.reshape(-1, 128)"),
        ("x.view_as(torch.zeros(len(x), 128))", "x.reshape_as(torch.zeros(len(x), 128))"),
    ],
)
def test_views_become_reshapes(old: str, new: str):
    assert f"return self.c({new})" in same(changed("torch.flatten(x, 1)", old)).lines


OFF_DIAGONAL = """
def off_diagonal(x):
    n, m = x.shape
    return x.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten()


class Net"""


@pytest.mark.parametrize(("products", "fixed"), [("x.T @ x", True), ("images", False)])
def test_views_of_products_may_be_written_through(products: str, fixed: bool):
    """Their rows lie in the same order in both layouts, also in a function that is given them."""
    body = f"images, x = x, torch.flatten(x, 1)\n        c = {products}"
    write = "torch.diagonal(c).add_(-1).pow_(2).mean() + off_diagonal(c).pow_(2).mean()"
    text = changed(
        "return self.c(torch.flatten(x, 1))",
        f"{body}\n        spread = {write}\n        return self.c(x) + spread",
    ).replace("class Net", OFF_DIAGONAL.lstrip("\n"))
    if fixed:
        assert same(text).lines == [MODEL, IMAGES]
    else:
        assert "write through a view" in apply("channels-last", text).refusals


@pytest.mark.parametrize(
    "body",
    [
        "b, c, h, w = x.size()\n        x = x.view(b, c, h * w)",
        "b, c = x.size(0), x.size(1)\n        x = x.view(b, c, -1)",
        "x = x.view(x.shape[0], x.shape[1], -1)",
        "x = x.view(x.size(0), x.size(1), x.size(2) // 2, 2, -1)",
    ],
)
def test_views_that_leave_the_channels_alone_stay(body: str):
    text = changed(
        "return self.c(torch.flatten(x, 1))",
        f"{body}\n        return self.c(x.reshape(x.size(0), -1))",
    )
    assert same(text).lines == [MODEL, IMAGES]


@pytest.mark.parametrize(
    "body",
    [
        "x = x.mean(3).mean(2)\n        x = x.view(x.size(0), 4, 2).view(-1, 8)",
        "x = x.mean([2, 3])\n        x = x.view(-1, 2, 4)",
        "x = x.flatten()[:-960].view(8, 8)",
        "x = F.normalize(x.flatten(2), dim=2)\n        x = x.bmm(x.transpose(1, 2)).view(-1, 64)[:, :8]",
        "x = F.normalize(x.flatten(2), dim=2)\n        x = (x @ x.transpose(1, 2)).view(-1, 64)[:, :8]",
    ],
)
def test_views_of_what_lies_in_order_in_both_layouts_stay(body: str):
    text = changed(
        "return self.c(torch.flatten(x, 1))",
        f"{body}\n        return self.c(x.reshape(-1, 8))",
    ).replace("8 * 4 * 4", "8")
    assert same(text).lines == [MODEL, IMAGES]


@pytest.mark.parametrize(
    "body",
    [
        "b, c, h, w = x.size()\n        x = x.view(b, c * h * w)",
        "c, b, h, w = x.size()\n        x = x.view(8, 2, -1)",
        "x = x.mean(2)\n        x = x.view(x.size(0), -1)",
    ],
)
def test_views_that_merge_channels_and_rows_do_not(body: str):
    text = changed(
        "return self.c(torch.flatten(x, 1))",
        f"{body}\n        return self.c(x.reshape(-1, 8))",
    ).replace("8 * 4 * 4", "8")
    assert ".reshape(" in " ".join(apply("channels-last", text).lines)


def test_views_of_a_pixel_or_of_a_copy_stay():
    pooled = changed(
        "return self.c(torch.flatten(x, 1))",
        "x = self.pool(x)\n        return self.c(x.view(x.size(0), -1))",
    )
    pooled = pooled.replace("8 * 4 * 4", "8").replace(
        "self.c =", "self.pool = nn.AdaptiveAvgPool2d((1, 1))\n        self.c ="
    )
    assert same(pooled).lines == [MODEL, IMAGES]
    assert same(changed("torch.flatten(x, 1)", "x.contiguous().view(len(x), -1)")).lines == [
        MODEL,
        IMAGES,
    ]


def test_views_of_outputs_outside_the_network():
    text = changed("return self.c(torch.flatten(x, 1))", "return x").replace(
        "F.cross_entropy(model(x), y)", "out.view(len(out), -1).pow(2).mean()"
    )
    text = text.replace("        loss = ", "        out = model(x)\n        loss = ")
    assert "loss = out.reshape(len(out), -1).pow(2).mean()" in same(text).lines
    wrapped = changed("model = Net()", "model = nn.DataParallel(Net())", text)
    assert "loss = out.reshape(len(out), -1).pow(2).mean()" in same(wrapped).lines


def test_views_of_gradients():
    """A convolution gives the gradient of its input in the layout of its weights: the penalty
    raised.
    """
    penalty = """
def penalty(out, x):
    grad = torch.autograd.grad(outputs=out.sum(), inputs=x, create_graph=True)[0]
    squares = grad.pow(2)
    return squares.view(x.size(0), -1).sum(1).mean()


model = """
    text = changed("model = ", penalty)
    text = text.replace(
        "        loss = F", "        x.requires_grad_()\n        out = model(x)\n        loss = F"
    )
    text = text.replace("cross_entropy(model(x), y)", "cross_entropy(out, y) + penalty(out, x)")
    assert "return squares.reshape(x.size(0), -1).sum(1).mean()" in same(text).lines


@pytest.mark.parametrize(
    ("text", "effect"),
    [
        (TEXT, None),
        (
            changed("torch.flatten(x, 1)", "self.d(torch.flatten(x, 1))").replace(
                "self.c =", "self.d = nn.Dropout(0.1)\n        self.c ="
            ),
            Effect.SAMPLING,
        ),
        (
            changed(
                "optimizer =",
                "def fill(m):\n    if isinstance(m, nn.Conv2d):\n        nn.init.normal_(m.weight)\n\nmodel.apply(fill)\noptimizer =",
            ),
            Effect.SAMPLING,
        ),
    ],
)
def test_random_draws_in_another_order(text: str, effect: Effect | None):
    assert [f.effect for f in apply(RULE, text).fixes if "network of" in f.message] == [effect]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            changed("torch.flatten(x, 1)", "x.as_strided((len(x), 128), (128, 1))"),
            "laid out in memory",
        ),
        (changed("x = self.b(", "print(x.stride())\n        x = self.b("), "laid out in memory"),
        (
            changed("x = self.b(", "print(x.detach().numpy())\n        x = self.b("),
            "laid out in memory",
        ),
        (changed("torch.flatten(x, 1)", "x.view(len(x), -1).relu_()"), "write through a view"),
        (changed("optimizer =", "model.share_memory()\noptimizer ="), "shared memory"),
        (
            changed(
                "losses = []",
                "losses = []\nflat = nn.utils.parameters_to_vector(model.parameters())",
            ),
            "flattens the weights",
        ),
        (
            changed(
                "losses = []",
                "losses = []\nfrom torch.nn.utils import prune\nprune.l1_unstructured(model.a, 'weight', amount=0.3)",
            ),
            "flattens the weights",
        ),
        (
            changed("losses = []", "losses = []\nnn.init.orthogonal_(model.a.weight)"),
            "flattens the weights",
        ),
        (
            changed(
                "from torch import nn\n", "from torch import nn\nfrom .ops import act\n"
            ).replace("torch.relu(", "act("),
            "not known",
        ),
        (changed("Net().to(device)", "torch.jit.script(Net().to(device))"), "TorchScript"),
        (changed("nn.Conv2d(8, 8, 3)", "nn.LazyConv2d(8, 3)"), "LazyConv2d has no weights"),
        (
            changed(
                "self.b = nn.Conv2d(8, 8, 3)",
                "norm = partial(nn.InstanceNorm2d, affine=False)\n"
                "        self.b = nn.Sequential(nn.Conv2d(8, 8, 3), norm(8))",
            ).replace("import torch  #", "from functools import partial\nimport torch  #"),
            "InstanceNorm2d gives NCHW",
        ),
        (
            changed("torch.relu(self.a(x))", "F.instance_norm(self.a(x))"),
            "InstanceNorm2d gives NCHW",
        ),
        (CHOSEN, "chosen when it runs"),
        *(
            (
                changed("torch.relu(self.a(x))", call).replace(
                    "import torch  #", f"{head}\nimport torch  #"
                ),
                "count on the usual layout",
            )
            for head, call in [
                ("import warps", "warps.forward(self.a(x))"),
                ("from warps import forward", "forward(self.a(x))"),
                (
                    "from torch.utils.cpp_extension import load\nWARP = load(name='w', sources=['w.cu'])",
                    "WARP.forward(self.a(x))",
                ),
                ("import warps\nwarp = warps.Warp(3)", "warp(self.a(x))"),
                ("", "torch.ops.warps.forward(self.a(x))"),
            ]
        ),
        *(
            (changed("self.c =", f"{kept}\n        self.c ="), "five dimensions")
            for kept in [
                "self.register_buffer('grid', torch.zeros(1, 1, 2, 2, 2))",
                "self.bias = nn.Parameter(torch.randn(1, 1, 2, 2, 2))",
            ]
        ),
        (
            changed(
                "model = Net()", "import timm\nmodel = (Net() if data else timm.create_model(N))"
            ),
            "it may be timm.create_model",
        ),
    ],
)
def test_refused(text: str, why: str):
    done = apply(RULE, text)
    assert not done.fixes
    assert why in done.refusals, done.refusals


@pytest.mark.parametrize("sizes", ["1, 8, 1, 1", "1, 2, 2, 2, 2, 2"])
def test_tensors_of_other_dimensions_that_a_network_keeps(sizes: str):
    text = changed(
        "self.c =", f"self.register_buffer('grid', torch.zeros({sizes}))\n        self.c ="
    )
    same(text)


def test_operators_of_torch_take_any_layout():
    text = changed("torch.relu(self.a(x))", "torch.ops.aten.relu(self.a(x))")
    same(text)


@pytest.mark.parametrize(
    "text",
    [
        changed("nn.Conv2d(8, 8, 3)", "nn.Conv3d(8, 8, 3)"),
        changed("self.c =", "self.d = nn.LSTM(4, 4)\n        self.c ="),
        changed("Net().to(device)", "nn.Sequential(nn.Flatten(), nn.Linear(192, 4)).to(device)"),
        changed("Net().to(device)", "Net().to(device, memory_format=torch.channels_last)"),
        changed(
            "losses = []",
            "losses = []\nuse = False\nif use:\n    model = model.to(memory_format=torch.channels_last)",
        ),
        changed('torch.device("cuda" if torch.cuda.is_available() else "cpu")', '"cpu"'),
        HEAD + "model = Net().to(device)\n",
    ],
)
def test_left_alone(text: str):
    assert not apply(RULE, text).findings


# ------------------------------------------------------------------- views that are written through
PLAIN = "        return self.c(torch.flatten(x, 1))\n"
WRITES = "write through a view"


@pytest.mark.parametrize(
    "body",
    [
        "flat = x.view(x.size(0), -1)\nflat[:, ::10] = 0\nreturn self.c(torch.flatten(x, 1))",
        "flat = x.view(x.size(0), -1)\nflat *= 0.5\nreturn self.c(torch.flatten(x, 1))",
        "flat = x.view(x.size(0), -1)\nflat[0].mul_(2)\nreturn self.c(torch.flatten(x, 1))",
        "flat = x.view(x.size(0), -1)\nF.dropout(flat, 0.5, True, inplace=True)\nreturn self.c(torch.flatten(x, 1))",
        "flat = x.view(x.size(0), -1)\nF.relu_(flat)\nreturn self.c(torch.flatten(x, 1))",
        "flat = x.view(x.size(0), -1)\nnn.ReLU(True)(flat)\nreturn self.c(torch.flatten(x, 1))",
        "flat = x.view(x.size(0), -1)\ntorch.mul(flat.detach(), 2, out=flat.detach())\nreturn self.c(torch.flatten(x, 1))",
        "flat = x.view(x.size(0), -1)\nhalf(flat)\nreturn self.c(torch.flatten(x, 1))",
        "part = x.view(x.size(0), -1)[:, 3:]\npart[:] = 1\nreturn self.c(torch.flatten(x, 1))",
        "half(x.view(x.size(0), -1))\nreturn self.c(torch.flatten(x, 1))",
        "x.view(x.size(0), -1).mul_(0.5)\nreturn self.c(torch.flatten(x, 1))",
        "x.view(x.size(0), -1)[:, 0] = 1\nreturn self.c(torch.flatten(x, 1))",
        "self.flat = x.view(x.size(0), -1)\nself.flat[:, 0] = 1\nreturn self.c(torch.flatten(x, 1))",
        "flat = x.view(x.size(0), -1)\nx.mul_(0.5)\nreturn self.c(flat)",
        "flat = x.reshape(x.size(0), -1)\nflat[:, 0] = 1\nreturn self.c(torch.flatten(x, 1))",
        "flat = torch.flatten(x, 1)\nflat[:, 0] = 1\nreturn self.c(torch.flatten(x, 1))",
        "flat = x.contiguous()\nflat[:, 0] = 1\nreturn self.c(torch.flatten(x, 1))",
        "y = x\nx = x.view(x.size(0), -1)\nx[:, 0] = 1\nreturn self.c(torch.flatten(y, 1))",
        "flat = x.view(x.size(0), -1)\nfirst = flat[:, 0]\nfirst += 1\nreturn self.c(torch.flatten(x, 1))",
        "y = x\nflat = x.view(x.size(0), -1)\ny.mul_(0.5)\nreturn self.c(flat)",
        "x = x.view(x.size(0), -1)\nx[:, ::10] = 0\nreturn self.c(x)",  # who else has it is not asked
        "rows = []\nrows.append(x.view(x.size(0), -1))\nrows[0][:, ::3] = 0\nreturn self.c(torch.flatten(x, 1))",
        "rows = {}\nrows[0] = x.view(x.size(0), -1)\nrows[0].mul_(0.5)\nreturn self.c(torch.flatten(x, 1))",
        "setattr(self, 'flat', x.view(x.size(0), -1))\nself.flat[:, ::3] = 0\nreturn self.c(torch.flatten(x, 1))",
        "self.flat, n = x.view(x.size(0), -1), 1\nself.flat[:, ::3] = 0\nreturn self.c(torch.flatten(x, 1))",
        "flat = x.view(x.size(0), -1)\ndef cut():\n    flat[:, ::3] = 0\ncut()\nreturn self.c(torch.flatten(x, 1))",
        "def cut(flat=x.view(x.size(0), -1)):\n    flat[:, ::3] = 0\ncut()\nreturn self.c(torch.flatten(x, 1))",
        "class Flat:\n    rows = x.view(x.size(0), -1)\nFlat.rows.mul_(0.5)\nreturn self.c(torch.flatten(x, 1))",
        "for part in [x.view(x.size(0), -1)]:\n    part.mul_(0.5)\nreturn self.c(torch.flatten(x, 1))",
        "for part in parts(x):\n    part.mul_(0.5)\nreturn self.c(torch.flatten(x, 1))",
        "flat = same(x.view(x.size(0), -1))\nflat.mul_(0.5)\nreturn self.c(torch.flatten(x, 1))",
        "list(map(torch.Tensor.neg_, [x.view(x.size(0), -1)]))\nreturn self.c(torch.flatten(x, 1))",
        "row = Row(x.view(x.size(0), -1))\nrow.part.mul_(0.5)\nreturn self.c(torch.flatten(x, 1))",
        "with nullcontext(x.view(x.size(0), -1)) as flat:\n    flat.mul_(0.5)\nreturn self.c(torch.flatten(x, 1))",
        "match x.view(x.size(0), -1):\n    case flat:\n        flat.mul_(0.5)\nreturn self.c(torch.flatten(x, 1))",
        "flat = x.view(x.size(0), -1)\ngetattr(flat, 'mul_')(0.5)\nreturn self.c(torch.flatten(x, 1))",
        "self.x = x\nflat = x.view(x.size(0), -1)\nself.x.mul_(0.5)\nreturn self.c(flat)",
    ],
)
def test_a_view_that_is_written_through_keeps_the_layout(body: str) -> None:
    text = changed(PLAIN, "        " + body.replace("\n", "\n        ") + "\n")
    helpers = (
        "from collections import namedtuple\nfrom contextlib import nullcontext\n\n"
        'Row = namedtuple("Row", "part")\n\n\ndef half(t):\n    t *= 0.5\n\n\n'
        "def parts(t):\n    yield t.view(t.size(0), -1)\n\n\ndef same(t):\n    return t\n\n\n"
    )
    text = changed("class Net", helpers + "class Net", text)
    found = apply(RULE, text)
    assert not found.fixes and WRITES in found.refusals
    trained(text)


@pytest.mark.parametrize(
    "body",
    [
        "x = F.relu(x, inplace=True)\nx = x.view(x.size(0), -1)\nx = self.c(x)\nreturn x",
        "flat = x.view(x.size(0), -1)\nout = self.c(flat)\nout *= 0.5\nreturn out",
        "flat = x.view(x.size(0), -1)\nflat = self.c(flat)\nflat *= 0.5\nreturn flat",
        "flat = x.view(x.size(0), -1)\nx = x + 1\nx *= 2\nreturn self.c(flat)",
    ],
)
def test_writes_that_nobody_else_sees_are_no_matter(body: str) -> None:
    text = changed(PLAIN, "        " + body.replace("\n", "\n        ") + "\n")
    found = same(text)
    assert ".reshape(x.size(0), -1)" in found.text


@pytest.mark.parametrize(
    "flat",
    [
        "torch.Tensor.view(x, x.size(0), -1)",
        "flatten(x)",
        "bound(x.size(0), -1)",
        'getattr(x, "view")(x.size(0), -1)',
        'methodcaller("view", x.size(0), -1)(x)',
        "partial(torch.Tensor.view, x)(x.size(0), -1)",
    ],
)
def test_a_view_that_is_not_called_on_the_tensor_keeps_the_layout(flat: str) -> None:
    text = changed(
        PLAIN,
        f"        bound = {'x.view' if 'bound' in flat else 'None'}\n        return self.c({flat})\n",
    )
    head = "from functools import partial\nfrom operator import methodcaller\nfrom torch import Tensor\n\n\nclass Net"
    text = changed(
        "class Net",
        head.replace("\n\n\n", "\n\nflatten = lambda t: Tensor.view(t, t.size(0), -1)\n\n\n")
        if "flatten(" in flat
        else head,
        text,
    )
    found = apply(RULE, text)
    assert not found.fixes and ("as a function" in found.refusals or "methodcaller" in flat)
    trained(text)


@pytest.mark.parametrize(
    "regular",
    [
        "sum(p.view(-1).norm() for p in model.parameters())",
        "sum(p.data.view(-1).norm() for p in model.parameters())",
        "model.a.weight.view(8, -1).norm()",
        "sum(p.grad.view(-1).norm() for p in model.parameters() if p.grad is not None)",
    ],
)
def test_weights_and_gradients_that_are_flattened_are_in_the_other_layout_too(regular: str) -> None:
    found = same(
        changed(
            "        loss.backward()",
            f"        loss = loss + 1e-3 * {regular}\n        loss.backward()",
        )
    )
    assert ".reshape(" in found.text and ".view(" not in found.text


# ------------------------------------------------------------------------------ ways to the network
def test_a_network_that_a_function_makes_is_converted_where_its_wrapper_is_moved():
    text = changed(
        "model = Net().to(device)", "model = nn.DataParallel(make())\nmodel.to(device)"
    ).replace(LOOP[:1], "", 1)
    text = text.replace("class Net", "def make():\n    return Net()\n\n\nclass Net", 1)
    done = same(text)
    assert (
        "model.to(device, memory_format=torch.channels_last)" in done.lines and IMAGES in done.lines
    )


def test_one_of_several_networks_is_converted_in_one_place():
    more = "class Wide(Net):\n    pass\n\n\ndef small():\n    return Net()\n\n\ndef large():\n    return Wide()\n\n\nMAKERS = {'small': small, 'large': large}\n"
    text = TEXT.replace(
        "model = Net().to(device)",
        more
        + "import sys\nmodel = nn.DataParallel(MAKERS[sys.argv[-1] if len(sys.argv) > 99 else 'small']())\nmodel.to(device)",
    )
    done = same(text)
    assert [line for line in done.lines if "channels_last" in line] == [
        "model.to(device, memory_format=torch.channels_last)",
        IMAGES,
    ]


def test_where_one_of_several_networks_is_refused_the_others_are_converted_where_they_are_made():
    odd = "class Odd(Net):\n    def forward(self, x):\n        print(self.a(x).stride())\n        return super().forward(x)\n\n\n"
    more = (
        odd
        + "def small():\n    return Net()\n\n\ndef large():\n    return Odd()\n\n\nMAKERS = {'small': small, 'large': large}\n"
    )
    made = "model = nn.DataParallel(MAKERS[sys.argv[-1] if len(sys.argv) > 99 else 'small']())\nmodel.to(device)"
    done = same("import sys\n" + TEXT.replace("model = Net().to(device)", more + made))
    assert "    return Net().to(memory_format=torch.channels_last)" in done.text
    assert "looks at how values are laid out" in done.refusals


@pytest.mark.parametrize(
    ("move", "call", "line"),
    [
        (
            "x = Variable(x.to(device))",
            "model(x)",
            "x = Variable(x.to(device, memory_format=torch.channels_last))",
        ),
        (
            "x = x.to(device).float()",
            "model(x)",
            "x = x.to(device, memory_format=torch.channels_last).float()",
        ),
        (
            "x = x.to(device)",
            "model(Variable(x))",
            "x = x.to(device, memory_format=torch.channels_last)",
        ),
        (
            "pass",
            "model(x.to(device).detach())",
            "loss = F.cross_entropy(model(x.to(device, memory_format=torch.channels_last).detach()), y)",
        ),
        (
            "x = x.to(device).float() / 255 - 0.5",
            "model(x)",
            "x = x.to(device, memory_format=torch.channels_last).float() / 255 - 0.5",
        ),
        (
            "x = x.to(device)\n        x = (x.float() - 0.5) * 2",
            "model(x)",
            "x = x.to(device, memory_format=torch.channels_last)",
        ),
        ("x = x.to(device).flatten(1).view(-1, 3, 8, 8)", "model(x)", ""),
        ("x = x.to(device)\n        x = x / torch.ones(8)", "model(x)", ""),
    ],
)
def test_images_that_are_wrapped_on_their_way(move: str, call: str, line: str):
    text = changed(
        "x, y = x.to(device), y.to(device)", move + "\n        y = y.to(device)"
    ).replace("model(x)", call)
    done = same(
        text.replace(
            "from torch import nn", "from torch import nn\nfrom torch.autograd import Variable"
        )
    )
    assert [x for x in done.lines if "channels_last" in x] == [MODEL, *([line] if line else [])]


def test_images_into_a_network_that_is_made_of_a_list_of_layers():
    layers = "layers = [nn.Conv2d(3, 8, 3), nn.LeakyReLU(0.1)]\n        for _ in range(1):\n            layers.append(nn.Conv2d(8, 8, 3))\n        self.main = nn.Sequential(*layers)"
    text = changed("self.a = nn.Conv2d(3, 8, 3)\n        self.b = nn.Conv2d(8, 8, 3)", layers)
    text = text.replace("x = self.b(torch.relu(self.a(x)))", "x = self.main(x)")
    assert same(text).lines == [MODEL, IMAGES]
    flat = text.replace("layers = [", "layers = [nn.Flatten(), nn.Unflatten(1, (3, 8, 8)), ")
    assert same(flat).lines == [MODEL]


AVERAGED = """
def made(average=False):
    net = Net().to(device)
    if average:
        for p in net.parameters():
            p.detach_()
    return net


model, slow = made(), made(average=True)
"""


def test_an_average_of_the_weights_that_is_made_at_the_same_place():
    measure = """def measure(net):
    net.eval()
    with torch.no_grad():
        return sum(net(x.to(device)).mean().item() for x, y in loader)


def made"""
    text = TEXT.replace("model = Net().to(device)\n", AVERAGED).replace("def made", measure)
    text = text.replace(
        "        losses.append(loss.item())\n",
        "        for p, q in zip(slow.parameters(), model.parameters()):\n"
        "            p.data.mul_(0.9).add_(q.data, alpha=0.1)\n"
        "        losses.append(loss.item())\n"
        "    losses.append(measure(slow))\n",
    )
    done = same(text)
    assert "    net = Net().to(device, memory_format=torch.channels_last)" in done.text
    odd = text.replace(
        "    net = Net().to(device)\n",
        "    net = (Odd() if average else Net()).to(device)\n",
    ).replace("def made", "class Odd(Net):\n    extra = 1\n\n\ndef made")
    assert "may be Odd" in apply(RULE, odd).refusals


def test_a_target_that_every_step_calls_is_converted_too():
    """Made at another place, and never trained: else it would convert each image, and its update
    read two layouts at once.
    """
    text = changed(
        "model = Net().to(device)\n",
        "model = Net().to(device)\nslow = Net().to(device)\nslow.load_state_dict(model.state_dict())\n",
    ).replace(
        "        losses.append(loss.item())\n",
        "        with torch.no_grad():\n"
        "            losses.append(slow(x).mean().item())\n"
        "            for p, q in zip(slow.parameters(), model.parameters()):\n"
        "                p.data.mul_(0.9).add_(q.data, alpha=0.1)\n"
        "        losses.append(loss.item())\n",
    )
    assert same(text).lines == [MODEL, MODEL.replace("model", "slow", 1), IMAGES]
    seldom = text.replace("            losses.append(slow(x)", "            losses.append(model(x)")
    assert same(seldom).lines == [MODEL, IMAGES]


# ------------------------------------------------------------------------------------ several files
def test_images_stay_where_the_network_may_not_be_converted(tmp_path: Path) -> None:
    """With ``-o FILE`` only the script may change: not half of it, where the network is written to
    in another file.
    """
    (tmp_path / "net.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.conv = nn.Conv2d(3, 64, 3)\n"
        "        self.out = nn.Linear(64 * 30 * 30, 10)\n"
        "    def forward(self, x):\n"
        "        x = self.conv(x)\n"
        "        return self.out(x.view(x.size(0), -1))\n"
    )
    (tmp_path / "train.py").write_text(
        "import torch\n"
        "from torch.nn import functional as F\n"
        "from torch.utils.data import DataLoader, TensorDataset\n"
        "from net import Net\n"
        "model = Net().cuda()\n"
        "optimizer = torch.optim.Adam(model.parameters())\n"
        "data = TensorDataset(torch.randn(64, 3, 32, 32), torch.zeros(64).long())\n"
        "for x, y in DataLoader(data, 8):\n"
        "    optimizer.zero_grad()\n"
        "    F.cross_entropy(model(x.cuda()), y.cuda()).backward()\n"
        "    optimizer.step()\n"
    )
    config = Config(select=(RULE,), exhaustive=True)
    whole = rewrite(tmp_path / "train.py", tmp_path, config)
    assert "reshape" in str(whole.texts) and str(whole.texts).count("channels_last") == 2
    alone = rewrite(tmp_path / "train.py", tmp_path, config, alone=True)
    assert "channels_last" not in str(alone.texts)
    assert len(alone.elsewhere) == 2


WHOLE = """
class Odd(Net):
    def forward(self, x):
        print(self.a(x).stride())
        return super().forward(x)


class Pair(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = Net(), Odd()

    def score(self, x, y):
        return F.cross_entropy(self.one(x) + self.other(x), y)


"""


def test_a_part_of_a_network_is_not_converted_alone() -> None:
    """What has no forward() is none of the networks that are called, its parts are."""
    text = HEAD + WHOLE + changed("F.cross_entropy(model(x), y)", "model.score(x, y)", LOOP)
    found = apply(RULE, text.replace("Net().to", "Pair().to"))
    assert not found.fixes
    assert "it is a part of Pair, the rest of which is not converted" in found.refusals
    assert apply(RULE, text.replace("Net().to", "Pair().to").replace(", Odd()", ", Net()")).fixes


def test_what_a_network_gives_that_ends_in_a_linear_is_viewed():
    ends = changed(
        "return self.c(torch.flatten(x, 1))",
        "x = self.c(torch.flatten(x, 1))\n        return torch.sigmoid(x)",
    )
    done = apply(RULE, ends.replace("model(x), y)", "model(x).view(-1, 4), y)"))
    assert MODEL in done.text and "model(x).view(-1, 4)" in done.text
    assert run(done.text)["losses"] == pytest.approx(run(done.before)["losses"], rel=1e-4)
    maps = changed("return self.c(torch.flatten(x, 1))", "return x").replace(
        "model(x), y)", "model(x).view(len(x), -1), y)"
    )
    assert "model(x).reshape(len(x), -1)" in apply(RULE, maps).text


def test_a_network_behind_one_that_stays_is_not_converted_alone() -> None:
    """The layout of what it is given begins in the other; a network that is given images as well is
    converted.
    """
    behind = """
class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x):
        out = self.a(x)
        print(out.stride())
        return out


class Head(nn.Module):
    def __init__(self):
        super().__init__()
        self.b = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        return self.b(x).mean((2, 3))


"""
    text = HEAD + behind + changed("model(x)", "model(encoder(x))", LOOP)
    text = text.replace("Net().to", "Head().to").replace(
        "model =", "encoder = Encoder().to(device)\nmodel =", 1
    )
    found = apply(RULE, text)
    assert not found.fixes
    assert "it goes on with what Encoder gives, which is not converted" in found.refusals
    plain = text.replace("        print(out.stride())\n", "")
    assert len(apply(RULE, plain).fixes) > 1


def test_a_part_that_is_called_alone_too_is_converted_with_the_whole() -> None:
    parts = """
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1))
        self.b = nn.Conv2d(8, 8, 3, padding=1)

    def forward(self, x):
        return self.b(self.a(x)).mean((2, 3))


"""
    text = HEAD + parts + LOOP.replace("model(x)", "model(x) + 0 * model.a(x).mean()", 1)
    found = apply(RULE, text.replace("Net().to", "Both().to"))
    model = [line for line in found.lines if "model = Both()" in line]
    assert model and "channels_last" in model[0]
    assert not any("Conv2d" in line for line in found.lines)


def test_what_a_mask_of_its_shape_picks_stays_a_view() -> None:
    maps = "self.maps = x[x.mean((1, 2, 3)) > 0].view(-1, 1)\n        return "
    text = HEAD.replace("return self.c", f"{maps}self.c") + LOOP.replace(
        "loss = F.cross_entropy(model(x), y)",
        "out = model(x)\n        pos = (y > 0).unsqueeze(1).expand_as(out)\n"
        "        neg = (y == 0).unsqueeze(1).expand_as(out)\n"
        "        picked = out[pos].view(-1, 1)\n"
        "        both = out[(pos + neg).gt(0)].view(-1, 1)\n"
        "        rows = out[y > 0].view(-1, 1)\n"
        "        loss = F.cross_entropy(out, y) + 0 * (picked.sum() + both.sum() + rows.sum())",
    )
    found = apply(RULE, text)
    assert found.fixes and "out[pos].view(-1, 1)" in found.text
    assert "out[(pos + neg).gt(0)].view(-1, 1)" in found.text
    assert "out[y > 0].view(-1, 1)" in found.text  # rows of what a Linear gives
    assert "x[x.mean((1, 2, 3)) > 0].reshape(-1, 1)" in found.text
    assert run(found.text)["losses"] == pytest.approx(run(text)["losses"], rel=1e-4)


ONE = "nn.Conv2d(8, 1, 4)"


@pytest.mark.parametrize(
    ("layer", "flat", "stays"),
    [
        (ONE, "self.d(x).view(n)", True),
        ("nn.Conv2d(8, 2, 4)", "self.d(x).view(n, -1).sum(1)", False),
        (ONE, "self.d(x).view(n, -1).sum(1)", True),
        (f"nn.Sequential({ONE}, nn.Sigmoid())", "self.d(x).view(-1)", True),
        (f"nn.Sequential({ONE}, nn.Conv2d(1, 4, 1))", "self.d(x).view(n, -1).sum(1)", False),
        ("nn.Conv2d(8, 1, 3, padding=1)", "self.d(x).view(n, -1).sum(1)", True),
    ],
)
def test_one_number_or_channel_for_each_sample_lies_in_order(
    layer: str, flat: str, stays: bool
) -> None:
    text = TEXT.replace(
        "        return self.c(torch.flatten(x, 1))",
        f"        n = x.size(0)\n        one = {flat}\n        return self.c(torch.flatten(x, 1)) * one.view(n, 1)",
    ).replace("self.c = ", f"self.d = {layer}\n        self.c = ")
    found = apply(RULE, text)
    assert ("self.d(x).view(" in found.text) is stays and found.fixes
    assert run(found.text)["losses"] == pytest.approx(run(text)["losses"], rel=1e-4)


@pytest.mark.parametrize("first", ["x.to(device, non_blocking=True)", "x.cuda()"])
def test_images_that_are_copied_in_either_arm(first: str):
    arms = f"if device.type == 'cuda':\n            x = {first}\n        else:\n            x = x.to(device)\n        y = y.to(device)"
    lines = same(changed("x, y = x.to(device), y.to(device)", arms)).lines
    assert len(lines) == 3
    assert all("memory_format=torch.channels_last" in line for line in lines)


def test_images_that_are_made_anew_in_one_arm_stay():
    arms = "if epoch:\n            x = torch.flip(x, [3])\n        else:\n            x = x.to(device)\n        y = y.to(device)"
    assert same(changed("x, y = x.to(device), y.to(device)", arms)).lines == [MODEL]


BLOCKS = """
class Block(nn.Module):
    def __init__(self):
        SUPER
        self.conv = nn.Conv2d(4, 4, 1)

    def forward(self, x):
        return x + ACT(self.conv(x)) / 60


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Conv2d(3, 4, 3)
        MADE
        self.c = nn.Linear(4 * 6 * 6, 4)

    def forward(self, x):
        x = self.a(x)
        for block in self.blocks:
            x = block(x)
        return self.c(torch.flatten(x, 1))


"""
DEEP = [f"b{n} = Block()" for n in range(60)]
LISTED = "self.blocks = [{}]".format(", ".join(f"b{n}" for n in range(60)))


@pytest.mark.parametrize("base", ["super().__init__()", "super(Block, self).__init__()"])
@pytest.mark.parametrize("act", ["torch.relu", "(lambda y: torch.relu(y + 0 * x))"])
def test_a_deep_network_is_known(base: str, act: str):
    """More blocks than there may be possibilities, which differ in the object alone."""
    listed = LISTED.replace("[", "nn.ModuleList([").replace("]", "])")
    made = "\n        ".join([*DEEP, listed])
    blocks = BLOCKS.replace("SUPER", base).replace("ACT", act).replace("MADE", made)
    start = TEXT.index("class Net")
    text = TEXT[:start] + blocks.lstrip() + TEXT[TEXT.index("model = Net()") :]
    assert MODEL in same(text).lines


@pytest.mark.parametrize(
    ("norm", "said", "applied"),
    [
        ("SyncBatchNorm", "torch==1.9.0\n", False),
        ("SyncBatchNorm", "torch==1.10.0\n", True),
        ("BatchNorm2d", "torch==1.9.0\n", True),
    ],
)
def test_synchronised_norms_of_old_versions(norm: str, said: str, applied: bool) -> None:
    text = TEXT.replace(
        "        self.b = nn", f"        self.norm = nn.{norm}(8)\n        self.b = nn"
    ).replace("torch.relu(self.a(x))", "self.norm(self.a(x))")
    done = apply(RULE, text, files={"requirements.txt": said})
    assert bool(done.fixes) is applied, done.refusals
    assert applied or "needs torch 1.10" in done.refusals
