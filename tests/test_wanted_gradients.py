"""A model that a backward reaches by a way that is hard to follow is trained, never evaluated; what
certainly ends in numbers is an evaluation also in the middle of a training step.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.onerule import apply, run

SCRIPT = """\
import collections
import functools
import itertools
import queue
from types import SimpleNamespace

import elsewhere
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 4)
        self.kept = []

    def forward(self, x):
        self.last = self.net(x)
        {inner}
        return self.last


Pair = collections.namedtuple("Pair", "z n")


class Named(dict):
    def __getattr__(self, name):
        return self[name]


def fill(w, z):
    w.copy_(z)


def bank(encoder, loader):
    w = torch.zeros(8, 4)
    for x, y in loader:
        torch._foreach_add_([w], [encoder(x)])
    return w


def last(encoder, loader):
    found = None

    def keep(z):
        nonlocal found
        found = z

    for x, y in loader:
        keep(encoder(x))
    return found


data = TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
encoder, head = Encoder(), nn.Linear(4, 3)
optimizer = torch.optim.SGD([*encoder.parameters(), *head.parameters()], lr=0.1)
losses = []
box, waiting = elsewhere.Box(), queue.Queue()
for epoch in range(2):
    for x, y in loader:
        w = torch.zeros_like(x)
{body}
        loss = F.cross_entropy(head(w), y)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""

TRAINED = {
    "an item": "w[:] = encoder(x)",
    "items one by one": "z = encoder(x)\nfor i in range(len(x)):\n    w[i] = z[i]",
    "a method that writes": "w.copy_(encoder(x))",
    "a sum in place": "w.index_add_(0, torch.arange(len(x)), encoder(x))",
    "a view": "row = w[:4]\nrow.copy_(encoder(x[:4]))",
    "many at once": "torch._foreach_add_([w], [encoder(x)])",
    "a function that writes": "fill(w, encoder(x))",
    "a special method": "w.__setitem__(slice(None), encoder(x))",
    "a queue": "waiting.put(encoder(x))\nw = waiting.get()",
    "a named tuple": "w = Pair(encoder(x), 3)._replace(n=4).z",
    "running sums": "w = list(itertools.accumulate([encoder(x), x]))[-1]",
    "a partial": "w = functools.partial(torch.add, encoder(x))(x)",
    "an array of objects": "a = np.empty(1, dtype=object)\na[0] = encoder(x)\nw = a[0]",
    "a dict with attributes": "d = Named()\nd['z'] = encoder(x)\nw = d.z",
    "an attribute of a library's": "box.z = encoder(x)\nw = box.get()",
    "an item of a library's": "box['z'] = encoder(x)\nw = box['z']",
    "a method of a library's": "box.add(encoder(x))\nw = box.get()",
    "code in a text": "d = {'z': encoder(x)}\nexec('w = z * 2', d)\nw = d['w']",
    "an attribute of the module": "encoder(x)\nw = encoder.last",
    "a list of the module": "encoder.kept.clear()\nencoder(x)\nw = encoder.kept[0]",
    "a write by the class": "torch.Tensor.copy_(w, encoder(x))",
    "a backward by the class": "torch.Tensor.backward(encoder(x).mean())\nw = x",
    "a variable of another function": "w = last(encoder, loader)",
    "a pass over the data": "w = bank(encoder, loader)",
    "a function that calls itself": """\
def put(n, a, b, c):
    put(n - 1, b, c, a) if n else w.copy_(c)
put(1, encoder(x), x, x)""",
}


@pytest.mark.parametrize("way", TRAINED)
def test_what_a_backward_may_want_keeps_its_gradient(way: str) -> None:
    inner = "self.kept.append(self.last)" if way == "a list of the module" else "pass"
    body = textwrap.indent(TRAINED[way], " " * 8)
    done = apply("no-grad-eval", SCRIPT.format(inner=inner, body=body))
    assert not done.lines


def keeping_nothing(body: str) -> str:
    text = SCRIPT.format(inner="pass", body=textwrap.indent(body, " " * 8))
    text = text.replace("self.last = self.net(x)", "last = self.net(x)")
    return text.replace("return self.last", "return last")


def test_what_a_coroutine_gives_is_not_followed() -> None:
    body = """\
async def later():
    return encoder(x)
go = later()
try:
    go.send(None)
except StopIteration as end:
    w = end.value"""
    assert not apply("no-grad-eval", keeping_nothing(body)).lines


def test_what_a_hook_of_all_modules_gets_is_not_followed() -> None:
    hook = "torch.nn.modules.module.register_module_forward_hook(lambda m, x, z: losses.append(z))"
    text = keeping_nothing("encoder(x).argmax(1)").replace("losses = []", f"losses = []\n{hook}")
    assert not apply("no-grad-eval", text).lines


@pytest.mark.parametrize(
    "numbers",
    [
        "hits = encoder(x).argmax(1)",
        "z = encoder(x)\nprint(z.mean().item())",
        "hits = (encoder(x) > 0).float().mean()",
        """\
def cut(h):
    return h.detach() if isinstance(h, torch.Tensor) else tuple(cut(v) for v in h)
z, n = cut((encoder(x), encoder(x)))
print(z.mean())""",
        """\
from torchvision.utils import make_grid, save_image
grid = make_grid(encoder(x).view(-1, 1, 2, 2))
save_image(grid, "z.png")""",
    ],
)
def test_what_ends_in_numbers_is_an_evaluation(numbers: str) -> None:
    done = apply("no-grad-eval", keeping_nothing(numbers))
    assert any("no_grad" in line or "inference_mode" in line for line in done.lines)


SUMMED = '''
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
shown = []


def distance(features, x, y):
    return (features(x) - features(y)).pow(2).mean()


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.generator, self.features = nn.Linear(8, 8), nn.Linear(8, 4)
        self.optimizer = torch.optim.Adam(self.generator.parameters(), 1e-2)

    def process(self, x):
        self.optimizer.zero_grad()
        outputs = self.generator(x)
        loss = 0
        loss += (outputs - x).abs().mean()
        {terms}
        return outputs, loss

    def backward(self, loss):
        loss.backward()
        self.optimizer.step()


loader = DataLoader(TensorDataset(torch.randn(64, 8)), batch_size=8)
model = Model()


def evaluate():
    for (x,) in loader:
        outputs, loss = model.process(x)
        shown.append(loss.item())


for epoch in range(3):
    for (x,) in loader:
        if epoch == 1:
            outputs, loss = model.process(x)
            model.backward(loss)
        else:
            outputs, loss = model.process(x + 0.1)
            model.backward(loss)
        shown.append(loss.item())
    evaluate()
'''


@pytest.mark.parametrize(
    "terms",
    [
        "term = distance(self.features, outputs, x)\nterm = 0.1 * term\nloss += term\nloss += outputs.mean()",
        "loss += distance(self.features, outputs, x)\nloss += 1\nloss *= 2",
        "term = distance(self.features, outputs, x)\nloss -= -term\nloss /= 2\nloss **= 1",
        "term = 0\nterm += distance(self.features, outputs, x)\nterm += 1\nloss = loss + term",
        "parts = {'a': loss}\nparts['a'] += distance(self.features, outputs, x)\nloss = parts['a']",
    ],
)
def test_what_is_added_to_several_times_is_followed(terms: str) -> None:
    """A perceptual loss, from a helper that an evaluation runs as well, is one term of several."""
    text = SUMMED.replace("{terms}", textwrap.indent(terms, " " * 8).strip())
    done = apply("no-grad-eval", text)
    assert done.fixes and "        with torch" not in done.text  # the evaluation alone
    assert run(text)["shown"] == run(done.text)["shown"]
