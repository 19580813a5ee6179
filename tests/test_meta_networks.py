"""Networks run without numbers (``facts/cost/meta``): held against torch itself, which runs them on
its device ``meta`` and counts what they multiply.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from autofast.facts.cost import machine
from autofast.facts.cost.meta.networks import Networks
from autofast.facts.cost.meta.tensor import UNKNOWN, Guess, Ledger, Meta
from autofast.facts.cost.step import Cost, Estimate
from autofast.facts.cost.work import Unsized
from autofast.read.recover.build import read_script

HEAD = """
import math
from collections import OrderedDict
from functools import partial

import torch
import torch.nn.functional as F
from torch import nn

"""
NETWORKS = {
    "residual": ("Net(Block, [2, 1, 2])", (4, 3, 32, 32), """
class Block(nn.Module):
    expansion = 2

    def __init__(self, width, out, stride=1):
        super().__init__()
        self.conv1 = nn.Conv2d(width, out, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(out)
        self.conv2 = nn.Conv2d(out, out * self.expansion, kernel_size=1)
        self.shortcut = nn.Sequential()
        if stride != 1 or width != out * Block.expansion:
            self.shortcut = nn.Sequential(
                OrderedDict(conv=nn.Conv2d(width, out * self.expansion, 1, stride), bn=nn.BatchNorm2d(2 * out)))

    def forward(self, x):
        y = self.conv2(F.relu(self.bn1(self.conv1(x)), inplace=True))
        y += self.shortcut(x)
        return F.relu(y)


class Net(nn.Module):
    def __init__(self, block, counts, classes=10):
        super(Net, self).__init__()
        self.width = 16
        self.stem = nn.Conv2d(3, self.width, 7, padding=3)
        for n, count in enumerate(counts):
            setattr(self, f"layer{n}", self._make(block, 16 * 2 ** n, count, stride=1 if n == 0 else 2))
        self.pool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(64 * block.expansion, classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight)

    def _make(self, block, out, count, stride):
        layers = []
        for s in [stride] + [1] * (count - 1):
            layers.append(block(self.width, out, s))
            self.width = out * block.expansion
        return nn.Sequential(*layers)

    def forward(self, x):
        x = F.max_pool2d(self.stem(x), 3, stride=2, padding=1)
        x = self.layer2(self.layer1(self.layer0(x)))
        return self.fc(torch.flatten(self.pool(x), 1))
"""),
    "u-net": ("UNet(1, 2)", (2, 1, 64, 48), """
class Double(nn.Sequential):
    def __init__(self, a, b):
        super().__init__(nn.Conv2d(a, b, 3, padding=1), nn.ReLU(inplace=True), nn.Conv2d(b, b, 3, padding=1))


class Up(nn.Module):
    def __init__(self, a, b, bilinear=False):
        super().__init__()
        self.up = nn.Upsample(scale_factor=2) if bilinear else nn.ConvTranspose2d(a, a // 2, 2, stride=2)
        self.conv = Double(a, b)

    def forward(self, x, skip):
        x = self.up(x)
        dy, dx = skip.size()[2] - x.size()[2], skip.size()[3] - x.size()[3]
        x = F.pad(x, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
        return self.conv(torch.cat([skip, x], dim=1))


class UNet(nn.Module):
    def __init__(self, channels, classes, depth=3):
        super().__init__()
        widths = [8 * 2 ** i for i in range(depth + 1)]
        self.first = Double(channels, widths[0])
        self.down = nn.ModuleList([Double(a, b) for a, b in zip(widths[:-1], widths[1:])])
        self.up = nn.ModuleList(Up(b, a) for a, b in reversed(list(zip(widths[:-1], widths[1:]))))
        self.last = nn.Conv2d(widths[0], classes, kernel_size=1)

    def forward(self, x):
        kept = [self.first(x)]
        for down in self.down:
            kept.append(down(F.max_pool2d(kept[-1], 2)))
        x = kept.pop()
        for up in self.up:
            x = up(x, kept.pop())
        return self.last(x)
"""),
    "transformer": ("GPT(Config())", "texts", """
class Config:
    block = 24
    words = 65
    layers = 2
    heads = 4
    width = 32


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.width % config.heads == 0
        self.qkv = nn.Linear(config.width, 3 * config.width)
        self.out = nn.Linear(config.width, config.width)
        self.register_buffer("mask", torch.tril(torch.ones(config.block, config.block)).view(1, 1, config.block, config.block))
        self.heads = config.heads

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.qkv(x).split(C, dim=2)
        k = k.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        q = q.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = v.view(B, T, self.heads, C // self.heads).transpose(1, 2)
        att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        att = att.masked_fill(self.mask[:, :, :T, :T] == 0, float("-inf"))
        y = F.softmax(att, dim=-1) @ v
        return self.out(y.transpose(1, 2).contiguous().view(B, T, C))


class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.wte = nn.Embedding(config.words, config.width)
        self.pos = nn.Parameter(torch.zeros(1, config.block, config.width))
        self.blocks = nn.ModuleList([nn.ModuleDict(dict(norm=nn.LayerNorm(config.width), attn=Attention(config))) for _ in range(config.layers)])
        self.head = nn.Linear(config.width, config.words, bias=False)

    def forward(self, idx, targets=None):
        b, t = idx.shape
        x = self.wte(idx) + self.pos[:, :t]
        for block in self.blocks:
            x = x + block["attn"](block["norm"](x))
        logits = self.head(x)
        loss = None
        if targets is not None:
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
        return logits
"""),
    "generator": ("Generator(100, 8)", (5, 100, 1, 1), """
def block(a, b, stride=2, padding=1, last=False):
    layers = [nn.ConvTranspose2d(a, b, 4, stride, padding, bias=False)]
    layers += [nn.Tanh()] if last else [nn.BatchNorm2d(b), nn.ReLU(True)]
    return layers


class Generator(nn.Module):
    def __init__(self, noise, width):
        super().__init__()
        self.main = nn.Sequential(*block(noise, width * 4, 1, 0), *block(width * 4, width * 2), *block(width * 2, 3, last=True))

    def forward(self, z):
        return self.main(z)
"""),
    "patches": ("Mixer(side=16, patch=4, width=24)", (3, 3, 16, 16), """
class Residual(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn, self.norm = fn, nn.LayerNorm(24)

    def forward(self, x, **kwargs):
        return self.fn(self.norm(x), **kwargs) + x


class Mixer(nn.Module):
    def __init__(self, side=32, patch=8, width=64, depth=2):
        super().__init__()
        many = (side // patch) ** 2
        dense = partial(nn.Conv1d, kernel_size=1)
        self.embed = nn.Conv2d(3, width, patch, stride=patch)
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            self.layers.append(nn.ModuleList([Residual(dense(many, many * 2)), Residual(dense(many * 2, many))]))
        self.head = nn.Linear(width, 10)

    def forward(self, x):
        x = self.embed(x).flatten(2).transpose(1, 2)
        for first, second in self.layers:
            h = first.fn(first.norm(x))
            x = second.fn(second.norm(F.gelu(h))) + x
        return self.head(x.mean(dim=1))
"""),
    "volumes": ("Volumes()", (1, 1, 16, 16, 16), """
class Volumes(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential()
        for n, (a, b) in enumerate([(1, 8), (8, 16)]):
            self.layers.add_module("conv%d" % n, nn.Conv3d(a, b, 3, padding="same"))
            self.layers.add_module("pool%d" % n, nn.MaxPool3d(2))
        self.fc = nn.Linear(16 * 4 ** 3, 4)

    def forward(self, x):
        out = self.layers(x)
        return self.fc(out.reshape(out.shape[0], -1))
"""),
    "sounds": ("Sounds()", (4, 1, 400), """
class Sounds(nn.Module):
    def __init__(self, widths=(16, 32)):
        super().__init__()
        convs, last = [], 1
        for w in widths:
            convs += [nn.Conv1d(last, w, 5, stride=2, dilation=2), nn.PReLU()]
            last = w
        self.convs = nn.Sequential(*convs)
        self.weight = nn.Parameter(torch.empty(last, 12))

    def forward(self, x):
        x = self.convs(x)
        x = torch.einsum("bcl,cd->bld", x, self.weight)
        a, b = x.chunk(2, dim=-1)
        return torch.bmm(a, b.permute(0, 2, 1))
"""),
}  # fmt: skip
SCRIPT = """

model = {made}
optimizer = torch.optim.Adam(model.parameters())
for x in batches:
    loss = model(x).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


def networks(folder: Path, text: str) -> Any:
    """The script's network, and what runs it."""
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    script = read_script(path, folder)
    return script, Networks(script, Ledger(Guess(batch=4)))


def cost(folder: Path, text: str) -> Estimate:
    path = folder / "train.py"
    path.write_text(text, encoding="utf-8")
    return Cost(read_script(path, folder)).estimate()


def executed(text: str) -> dict[str, Any]:
    """What a text defines, run by Python."""
    scope: dict[str, Any] = {}
    exec(compile(text, "model", "exec"), scope)
    return scope


def flops(run: Callable[[], torch.Tensor]) -> tuple[int, torch.Tensor]:
    """What torch counts of forward passes, and what they give."""
    with FlopCounterMode(display=False) as counter, torch.no_grad():
        out = run()
    return counter.get_total_flops(), out


@pytest.mark.parametrize("name", NETWORKS)
def test_as_torch_counts_it(name: str, tmp_path: Path) -> None:
    made, shape, code = NETWORKS[name]
    text = HEAD + code + SCRIPT.format(made=made)
    script, runs = networks(tmp_path, text)
    given = Meta((2, 20), whole=True) if shape == "texts" else Meta(shape)
    result = runs.run(script.models[0].thing, [given])

    model: nn.Module = executed(HEAD + code + f"\nmodel = {made}")["model"]
    real = torch.randint(9, (2, 20)) if shape == "texts" else torch.zeros(*shape)
    with FlopCounterMode(display=False) as counter:
        model(real).mean().backward()
    forwards, out = flops(lambda: model(real))

    assert result.dims == tuple(out.shape)
    work = runs.ledger.work
    assert work.convolutions + work.products == 3 * forwards
    # torch leaves out the gradient of a network's own input
    assert counter.get_total_flops() <= work.convolutions + work.products
    assert runs.ledger.parameters == sum(p.numel() for p in model.parameters())
    assert not runs.ledger.guessed


def test_a_batch_that_nobody_knows_takes_the_shape_that_the_first_layer_asks_for(
    tmp_path: Path,
) -> None:
    made, _, code = NETWORKS["u-net"]
    script, runs = networks(tmp_path, HEAD + code + SCRIPT.format(made=made))
    assert runs.run(script.models[0].thing, [UNKNOWN]) is UNKNOWN or runs.ledger.guessed
    assert runs.ledger.taken == Meta((4, 1, 64, 64))


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        ("nn.Linear(16 * 4 ** 3, 4)", "nn.Linear(100, 4)", "a layer of 100 features"),
        ("(8, 16)]", "(9, 16)]", "a convolution of 9 channels"),
        ("nn.MaxPool3d(2))", "nn.MaxPool3d(64))", "its images are too small"),
        ("out = self.layers(x)", "raise ValueError(x)", "it raises an error"),
        ("out = self.layers(x)", "out = self.forward(x)", "it is too deep"),
        (
            "out = self.layers(x)",
            "out = x\n        while True:\n            out = out + 1",
            "it takes too long to follow",
        ),
    ],
)
def test_what_does_not_run_is_refused(old: str, new: str, why: str, tmp_path: Path) -> None:
    made, shape, code = NETWORKS["volumes"]
    assert old in code
    script, runs = networks(tmp_path, HEAD + code.replace(old, new) + SCRIPT.format(made=made))
    with pytest.raises(Unsized, match=why):
        runs.run(script.models[0].thing, [Meta(shape)])


@pytest.mark.parametrize(
    "line",
    [
        "self.n = 10 ** 10 ** 10",
        "self.n = [0] * 10 ** 12",
        "self.n = 'a' * 10 ** 12",
        "self.n = 1 << 10 ** 9",
        "self.n = sum(range(10 ** 12))",
        "self.n = list(range(10 ** 12))",
        "self.n = math.factorial(10 ** 9)",
        "self.n = pow(10, 10 ** 10)",
        "self.n = '%1000000000d' % 3",
        "self.n = '{:>1000000000}'.format(3)",
        "self.n = f'{3:>1000000000}'",
        "self.n = 'a'.ljust(10 ** 10)",
        "self.n = [1] + self.n if hasattr(self, 'n') else [1]",
        "self.n = open('secret').read()",
        "self.n = __import__('os').system('touch pwned')",
        "self.n = eval('1 + 1')",
        "self.n = ''.__class__.__mro__[1].__subclasses__()",
        "self.n = [x for x in range(4000) for y in range(4000)]",
    ],
)
def test_nothing_is_executed_and_nothing_grows_without_end(line: str, tmp_path: Path) -> None:
    made, shape, code = NETWORKS["volumes"]
    code = code.replace("        self.fc =", f"        {line}\n        self.fc =")
    script, runs = networks(tmp_path, HEAD + code + SCRIPT.format(made=made))
    before = sorted(tmp_path.iterdir())
    try:
        assert runs.run(script.models[0].thing, [Meta(shape)]).dims == (1, 4)
    except Unsized as why:
        assert "too long" in str(why)
    assert sorted(tmp_path.iterdir()) == before


def test_the_cost_of_a_step_is_that_of_all_its_networks(tmp_path: Path) -> None:
    """The noise, and what the generator makes of it, have the sizes that the script gives them."""
    text = "import argparse\n" + HEAD + NETWORKS["generator"][2] + '''
class Critic(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.main = nn.Sequential(nn.Conv2d(3, width, 4, 2, 1), nn.LeakyReLU(0.2), nn.Conv2d(width, 1, 8))

    def forward(self, x):
        return self.main(x).view(-1)


parser = argparse.ArgumentParser()
parser.add_argument("--noise", type=int, default=100)
opt = parser.parse_args()
noise = int(opt.noise)
net, critic = Generator(noise, 8), Critic(8)
optimizer = torch.optim.Adam(net.parameters())
for images in loader:
    z = torch.randn(images.size(0), noise, 1, 1)
    loss = critic(net(z)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
'''  # fmt: skip
    found = cost(tmp_path, text)
    scope = executed(text[: text.index("parser =")])
    critic, generator = scope["Critic"](8), scope["Generator"](100, 8)
    forwards, _ = flops(lambda: critic(generator(torch.zeros(16, 100, 1, 1))))
    flop = found.convolutions * machine.GPU.convolutions
    assert flop == pytest.approx(3 * forwards) and not found.why


PLANS = """
class Plans(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.when = nn.Embedding(100, width)
        self.state, self.goal = nn.Linear(11, width), nn.Linear(1, width)
        self.mix, self.head = nn.Linear(width, width), nn.Linear(width, 3)

    def forward(self, states, goals, steps):
        b, t = steps.shape
        when = self.when(steps)
        x = torch.stack([self.goal(goals) + when, self.state(states) + when], dim=2)
        x = self.mix(x.reshape(b, 2 * t, -1))
        x = x @ x.transpose(1, 2) @ x
        return self.head(x.view(b, t, 2, -1)[:, :, 1])
"""


@pytest.mark.parametrize(
    "given", ["states, goals, steps", "goals=goals, states=states, steps=steps"]
)
def test_inputs_of_unknown_shapes_fit_each_other(given: str, tmp_path: Path) -> None:
    """The table says that steps are those of sequences; states come in as many rows."""
    text = HEAD + PLANS + """
net = Plans(64)
optimizer = torch.optim.Adam(net.parameters())
for states, goals, steps, actions in draw():
    loss = F.mse_loss(net(states, goals, steps), actions)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""  # fmt: skip
    found = cost(tmp_path, text.replace("net(states, goals, steps)", f"net({given})"))
    net = executed(HEAD + PLANS)["Plans"](64)
    real = torch.zeros(16, 64, 11), torch.zeros(16, 64, 1), torch.zeros(16, 64, dtype=torch.long)
    forwards, _ = flops(lambda: net(*real))
    assert found.narrow and found.products * machine.GPU.products >= 3 * forwards


def test_sizes_are_taken_out_of_a_tuple_that_is_written_out(tmp_path: Path) -> None:
    """What a world shows is as large as its grid, which an option says."""
    head = "import argparse\n" + HEAD + """
class World:
    def __init__(self, grid, scale=7):
        self.shape = (4, grid * scale, grid * scale)


class Policy(nn.Module):
    def __init__(self, channels, side):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(channels, 32, 8, 4), nn.ReLU(), nn.Conv2d(32, 64, 4, 2))
        many = self.conv(torch.zeros(1, channels, side, side)).numel()
        self.head = nn.Sequential(nn.ReLU(), nn.Flatten(), nn.Linear(many, 5))

    def forward(self, x):
        return self.head(self.conv(x))


class Agent:
    def __init__(self, shape):
        self.net = Policy(shape[0], shape[1])
"""  # fmt: skip
    text = (
        head
        + """
parser = argparse.ArgumentParser()
parser.add_argument("--grid", type=int, default=12)
world = World(parser.parse_args().grid)
agent = Agent(world.shape)
optimizer = torch.optim.Adam(agent.net.parameters())
for seen, wanted in draw():
    loss = F.mse_loss(agent.net(seen), wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
    )
    found = cost(tmp_path, text)
    net = executed(head)["Policy"](4, 84)
    forwards, _ = flops(lambda: net(torch.zeros(16, 4, 84, 84)))
    done = found.convolutions * machine.GPU.convolutions + found.products * machine.GPU.products
    assert 3 * forwards <= done < 3.3 * forwards  # a few pixels more would fit as well


def test_what_other_functions_are_given_is_followed(tmp_path: Path) -> None:
    """Noise of NumPy behind an alias for a type, images by way of a parameter, and what is computed
    of both.
    """
    text = "import argparse\nimport numpy as np\nfrom torch.utils.data import DataLoader, TensorDataset\n" + HEAD + '''
Tensor = torch.cuda.FloatTensor if torch.cuda.is_available() else torch.FloatTensor
generator = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 48))
critic = nn.Sequential(nn.Linear(48, 24), nn.LeakyReLU(0.2), nn.Linear(24, 1))
loader = DataLoader(TensorDataset(torch.randn(640, 48)), batch_size=64, shuffle=True)
optimizer = torch.optim.Adam(critic.parameters())


def penalty(critic, real, fake):
    alpha = Tensor(np.random.random((real.size(0), 1)))
    between = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
    return (critic(between) ** 2).mean()


for epoch in range(100):
    for (images,) in loader:
        z = Tensor(np.random.normal(0, 1, (images.shape[0], 16)))
        fake = generator(z)
        loss = critic(fake).mean() - critic(images).mean() + penalty(critic, images.data, fake.data)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
'''  # fmt: skip
    found = cost(tmp_path, text)
    weights = 16 * 32 + 32 * 48 + 3 * (48 * 24 + 24)
    assert found.products * machine.GPU.products == pytest.approx(3 * 2 * 64 * weights)


@pytest.mark.parametrize(
    "line",
    [
        "self.n = max(range(10 ** 10))",
        "self.n = 0.5 in range(10 ** 10)",
        "self.n = [0]\n        for _ in range(40):\n            self.n = [self.n, self.n]\n        self.m = f'{self.n}' == str(self.n)",
        "self.n = [0]\n        self.n[0] = self.n\n        self.m = torch.tensor(self.n)",
        "s = nn.ReLU()\n        for _ in range(40):\n            s = nn.Sequential(s, s)\n        self.layers.add_module('more', s)",
        "self.n = nn.ModuleList([nn.ReLU()])\n        for _ in range(60):\n            self.n.extend(self.n)",
        "self.n = nn.TransformerEncoder(nn.TransformerEncoderLayer(8, 2), 10 ** 9)",
        "self.n = torch.zeros(10 ** 9).split(1)",
        "y = torch.zeros(9)\n        for _ in range(60):\n            y = y.repeat(y.numel())",
        "self.n = round(1, -10 ** 8)",
        "self.n = '%*d' % (10 ** 9, 1)",
        "self.n = '{:{}}'.format(1, 10 ** 9)",
        "import copy\n        a = [0]\n        for _ in range(40):\n            a = [a, a]\n        self.n = copy.deepcopy(a)",
        "self.n = torch.einsum('bi,oi->bo', unknown, unknown)",
        "self.n = nn.LayerNorm([8, unknown])",
        "self.n = torch.eye(8, unknown)",
        "self.layers.append(self.layers)",
    ],
)
def test_odd_code_ends_soon_and_is_no_error(line: str, tmp_path: Path) -> None:
    """What the rules ask comes to an answer, and to none of their own errors."""
    made, _, code = NETWORKS["volumes"]
    code = code.replace("        self.fc =", f"        {line}\n        self.fc =")
    found = cost(tmp_path, HEAD + code + SCRIPT.format(made=made))
    assert found.host > 0


COUNTED = {
    "values": "x = x.max(dim=2).values",
    "both": "v, i = x.topk(2, dim=2)\n        x = v.sum(2)",
    "new axis": "x = x[:, np.newaxis].squeeze(1).mean(2)",
    "a set": "x = x.mean(2) if 'a' in {'a', 'b'} else x[:, :, 0]",
    "length": "x = x.mean(2) * len(x)",
    "pool": "x = nn.AvgPool1d(3, 2, 1, True)(x).mean(2)",
    "halves": "x = F.glu(torch.cat([x, x], 1), 1).mean(2)",
    "copies": "x = x.mean(2)\n        for layer in self.copies:\n            x = layer(x)",
    "an empty list": "x = x.mean(2) if not self.empty else x",
    "a count": "n = 0\n        def add():\n            nonlocal n\n            n += 1\n        add()\n        x = x.mean(2)\n        for _ in range(n):\n            x = self.copies[0](x)",
}


@pytest.mark.parametrize("name", COUNTED)
def test_small_things_that_code_does(name: str, tmp_path: Path) -> None:
    code = f"""
import copy
import numpy as np

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv1d(3, 8, 3)
        self.copies = nn.ModuleList([copy.deepcopy(nn.Linear(8, 8)) for _ in range(3)])
        self.empty = nn.ModuleList()
        self.fc = nn.Linear(8, 2)

    def forward(self, x):
        x = self.conv(x)
        {COUNTED[name]}
        return self.fc(x)
"""
    script, runs = networks(tmp_path, HEAD + code + SCRIPT.format(made="Net()"))
    result = runs.run(script.models[0].thing, [Meta((4, 3, 20))])
    model = executed(HEAD + code)["Net"]()
    forwards, out = flops(lambda: model(torch.zeros(4, 3, 20)))
    work = runs.ledger.work
    assert result.dims == tuple(out.shape) and not runs.ledger.guessed
    assert work.convolutions + work.products == 3 * forwards
