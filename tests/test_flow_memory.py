"""Which tensors may share memory, which are memory of their own, and what is written to."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from autofast.flow.callgraph import CallGraph
from autofast.flow.memory import Memory, base_of, is_in_place_layer, passes_on, views_around
from autofast.model.script import Script
from autofast.model.values import Ext
from tests.reading import read

SCRIPT = """
import torch
import torch.nn as nn
import torch.nn.functional as F


def fill(x, y, value=1):
    flat = x.view(-1)
    flat[0] = value
    y = y + 1
    y.add_(1)
    return y


def shares(a, b, c):
    v = a.view(-1)
    w = v[2:].t()
    n = a.clone()
    m = w if c else b
    a2 = a + 1
    a2 += 1
    first, second = w.chunk(2)
    return use(a, b, v, w, n, m, a2, first)


def use(*found):
    return found


t = torch.randn(3, 4)
u = torch.randn(3, 4)
t += 1
t[0] = 2
t.add_(u)
torch.add(t, u, out=u)
F.relu(t, inplace=True)
F.relu(u, True)
F.relu(t)
torch.relu_(u)
nn.ReLU(True)(t)
nn.ReLU()(t)
fill(t, u)
t.mean()
shares(t, u, True)
"""


@pytest.fixture
def script(tmp_path: Path) -> Script:
    return read(tmp_path, SCRIPT)


def test_what_may_share_memory(script: Script):
    memory = script.analysis(Memory)
    call = next(
        n
        for n in ast.walk(script.entry.tree)
        if isinstance(n, ast.Call) and ast.unparse(n.func) == "use"
    )
    names = {n.id: n for n in call.args if isinstance(n, ast.Name)}
    pairs = {a + b for a in names for b in names if a < b and memory.may_share(names[a], names[b])}
    views = ["a", "first", "m", "v", "w"]
    assert pairs == {a + b for a in views for b in views if a < b} | {"bm"}


@pytest.mark.parametrize(
    ("code", "fresh"),
    [
        ("torch.zeros(3)", True),
        ("torch.zeros(3, out=t)", False),
        ("t.clone()", True),
        ("t.clone().view(-1)[0]", True),
        ("t.view(-1)", False),
        ("t + 1", True),
        ("(t + 1).T", True),
        ("t", False),
        ("t[0]", False),
        ("use(t)", False),
        ("t.clamp(-1, 1)", True),
        ("torch.clip(t, 0, 1)", True),
        ("t > 0", True),
        ("(t[0] > 0).long()", True),
        ("-t", True),
        ("+t", False),
        ("t.float()", False),
        ("torch.dropout(t, 0.0, False)", False),
        ("F.dropout(t, training=False)", False),
        ("F.relu(t, inplace=True)", False),
    ],
)
def test_what_is_memory_of_its_own(tmp_path: Path, code: str, fresh: bool):
    script = read(tmp_path, SCRIPT + f"kept = {code}\n")
    statement = script.entry.tree.body[-1]
    assert isinstance(statement, ast.Assign)
    assert script.analysis(Memory).is_fresh(statement.value) is fresh


def test_what_is_written_to(script: Script):
    memory = script.analysis(Memory)
    found = {}
    for statement in script.entry.tree.body[8:]:
        written = [e for n in ast.walk(statement) for e in memory.written(n)]
        found[ast.unparse(statement)] = [ast.unparse(e) for e in written]
    assert found == {
        "t += 1": ["t"],
        "t[0] = 2": ["t"],
        "t.add_(u)": ["t"],
        "torch.add(t, u, out=u)": ["u"],
        "F.relu(t, inplace=True)": ["t"],
        "F.relu(u, True)": ["u"],
        "F.relu(t)": [],
        "torch.relu_(u)": ["u"],
        "nn.ReLU(True)(t)": ["t"],
        "nn.ReLU()(t)": [],
        "fill(t, u)": ["t"],
        "t.mean()": [],
        "shares(t, u, True)": [],
    }


def test_the_parameters_that_a_function_writes_to(script: Script):
    call = next(
        n
        for n in ast.walk(script.entry.tree)
        if isinstance(n, ast.Call) and ast.unparse(n.func) == "fill"
    )
    callee = script.analysis(CallGraph).callees(call)[0]
    assert script.analysis(Memory).written_parameters(callee.function) == {"x"}


def test_chains_of_views():
    tree = ast.parse("h.view(-1)[2:].T.clone()", mode="eval")
    for node in ast.walk(tree):
        for child in ast.iter_child_nodes(node):
            child._af_parent = node  # type: ignore[attr-defined]
    clone = tree.body
    assert isinstance(clone, ast.Call) and isinstance(clone.func, ast.Attribute)
    name = next(n for n in ast.walk(tree) if isinstance(n, ast.Name))
    assert base_of(clone.func.value) is name and base_of(clone) is clone
    assert views_around(name) is clone.func.value


@pytest.mark.parametrize(
    ("view", "shares"),
    [
        ("torch.movedim(t, 0, 1)", True),
        ("t.movedim(0, 1)", True),
        ("t.view_as(u)", True),
        ("t.unfold(0, 2, 1)", True),
        ("torch.flatten(input=t)", True),
        ("torch.view_as_real(t)", True),
        ("torch.split(t, 1)[0]", True),
        ("u.view_as(t)", False),
        ("torch.add(t, 1)", False),
    ],
)
def test_methods_and_functions_that_give_views(tmp_path: Path, view: str, shares: bool):
    script = read(
        tmp_path, f"import torch\nt, u = torch.rand(3, 4), torch.rand(3, 4)\nv = {view}\n(t, v)\n"
    )
    pair = script.entry.tree.body[-1].value  # type: ignore[attr-defined]
    assert script.analysis(Memory).may_share(*pair.elts) is shares


@pytest.mark.parametrize(
    ("body", "known"),
    [
        ("return torch.add(t, 1)", True),
        ("u = torch.zeros(3)\n    u[0] = 1\n    return u[1:]", True),
        ("return t[1:] if len(t) else torch.zeros(3)", False),  # of whoever calls it
        ("return rows", False),  # what a method has changed since
    ],
)
def test_what_functions_make(tmp_path: Path, body: str, known: bool) -> None:
    head = "import torch\nrows = [torch.rand(3)]\n"
    script = read(tmp_path, f"{head}def f(t):\n    {body}\nv = f(torch.rand(3))\nv\n")
    value = script.entry.tree.body[-1].value  # type: ignore[attr-defined]
    assert (script.analysis(Memory).made_by(value) is not None) is known


def test_what_an_arm_makes_that_never_runs(tmp_path: Path):
    code = """
def change(x, keep=False):
    if keep:
        made = x
    else:
        made = x.clone()
    made[0] = 1
    return made


change(t)
"""
    for call, apart in (("", True), ("change(t, True)\n", False)):
        script = read(tmp_path, SCRIPT + code + call)
        store = next(
            n.value
            for n in script.each(ast.Subscript)
            if isinstance(n.value, ast.Name) and n.value.id == "made"
        )
        assert script.analysis(Memory).is_apart(store) is apart


@pytest.mark.parametrize(("act", "passes"), [("inplace=True", True), ("", False)])
def test_a_network_that_is_made_around_itself(tmp_path: Path, act: str, passes: bool) -> None:
    """What a loop puts into a new Sequential is, from its second turn on, one of the same place."""
    text = f"""
    import torch
    from torch import nn

    net = nn.Linear(4, 4)
    for _ in range(3):
        net = nn.Sequential(nn.Sequential(net, nn.ReLU({act})), nn.Dropout())
    outer = nn.Sequential(nn.ReLU({act}), nn.Linear(4, 4))
    loss = net(outer(torch.randn(2, 4)))
    """
    script = read(tmp_path, text)
    nets = [t for call in script.each(ast.Call) for t in script.values(call) if type(t) is Ext]
    layers = [t for t in nets if t.name == "torch.nn.Sequential"]
    assert len(layers) >= 3
    assert any(is_in_place_layer(layer) for layer in layers) is passes
    assert not any(map(passes_on, layers))  # each has a linear layer, whose result is its own
