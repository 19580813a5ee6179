"""foreach-update: loops over parameters as operations on lists, with the same numbers, and where a
loop stays.
"""

from __future__ import annotations

import ast

import pytest
import torch

from autofast.rule import Effect
from tests.onerule import Applied, apply, run

RULE = "foreach-update"
SCRIPT = """
import copy
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(4, width), nn.BatchNorm1d(width), nn.ReLU())
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        return self.head(self.body(x))


torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = Net(8).to(device)
{target}
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
tau, losses = 0.05, []
for step in range(5):
    x, y = torch.randn(6, 4).to(device), torch.randn(6, 2).to(device)
    loss = (net(x) - y - target(x).detach()).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    {before}
    optimizer.step()
    {after}
    losses.append(loss.item())
end = [p.detach().clone() for p in target.parameters()]
"""
COPIED = "target = copy.deepcopy(net)"
ZIP = "for p, t in zip(net.parameters(), target.parameters()):\n    "
T, P = "[t.data for t in target.parameters()]", "[p.data for p in net.parameters()]"
TT, PP = "list(target.parameters())", "list(net.parameters())"


def script(after: str = "pass", before: str = "pass", target: str = COPIED) -> str:
    parts = {"after": after.replace("\n", "\n    "), "before": before.replace("\n", "\n    ")}
    return SCRIPT.format(target=target, **parts)


def made(after: str = "pass", before: str = "pass", target: str = COPIED) -> Applied:
    return apply(RULE, script(after, before, target))


def same(found: Applied, exact: bool) -> None:
    """Both scripts compute the same."""
    old, new = run(found.before), run(found.text)
    if exact:
        assert old["losses"] == new["losses"]
        assert all(map(torch.equal, old["end"], new["end"]))
    else:
        assert old["losses"] == pytest.approx(new["losses"], rel=1e-5)
        assert all(map(torch.allclose, old["end"], new["end"]))


LERP = f"torch._foreach_lerp_({T}, {P}, tau)"
MUL_ADD = (
    f"targets = {T}; torch._foreach_mul_(targets, 1 - tau); "
    f"torch._foreach_add_(targets, {P}, alpha=tau)"
)
EXACT = {  # a loop -> what stands in its place
    "t.data.mul_(1 - tau).add_(p.data, alpha=tau)": MUL_ADD,
    "t.data.lerp_(p.data, tau)": LERP,
    "t.data.lerp_(p, tau)": LERP,
    "t.data.copy_(torch.lerp(t.data, p.data, tau))": LERP,
    "t.data.copy_(p.data)": f"torch._foreach_copy_({T}, {P})",
    "t.data += p.data; t.data /= 2": f"targets = {T}; torch._foreach_add_(targets, {P}); torch._foreach_div_(targets, 2)",
}
ROUNDING = {
    "t.data *= 1 - tau; t.data += p.data * tau": MUL_ADD,
    "t.data.copy_(tau * p.data + (1 - tau) * t.data)": LERP,
    "t.data.copy_(t.data * (1.0 - tau) + p.data * tau)": LERP,
    "t.data = t.data * (1.0 - tau) + p.data * tau": LERP,
    "t.data = torch.lerp(p.data, t.data, 1 - tau)": LERP.replace("tau", "1 - (1 - tau)"),
    "t.data = torch.lerp(p.data, t.data, 0.9)": LERP.replace("tau", "1 - 0.9"),
    "t.data.add_(tau * (p.data - t.data))": LERP,
    "t.data -= tau * (t.data - p.data)": LERP,
    "t.data.copy_(0.99 * t.data + 0.01 * p.data)": LERP.replace("tau", "0.01"),
}
PLAIN = {
    "t.mul_(1 - tau).add_(p, alpha=tau)": f"targets = {TT}; torch._foreach_mul_(targets, 1 - tau); torch._foreach_add_(targets, {PP}, alpha=tau)",
    "t.lerp_(p, tau)": f"torch._foreach_lerp_({TT}, {PP}, tau)",
}


@pytest.mark.parametrize(
    ("loops", "under", "effect"),
    [
        (EXACT, "if True:", Effect.EXACT),
        (ROUNDING, "if True:", Effect.ROUNDING),
        (PLAIN, "with torch.no_grad():", Effect.EXACT),
    ],
)
def test_lists(loops: dict[str, str], under: str, effect: Effect) -> None:
    """Each loop in a function of its own, which all run in each step."""
    functions = [
        f"def f{n}(net, target):\n    {under}\n        for p, t in zip(net.parameters(), target.parameters()):\n            {loop}\n"
        for n, loop in enumerate(loops)
    ]
    calls = "\n".join(f"f{n}(net, target)" for n in range(len(loops)))
    found = made(calls, target=COPIED + "\n" + "\n".join(functions))
    written = [ast.unparse(f) for f in ast.parse(found.text).body if isinstance(f, ast.FunctionDef)]
    expected = [
        f"def f{n}(net, target):\n    {under}\n        " + text.replace("; ", "\n        ")
        for n, text in enumerate(loops.values())
    ]
    assert written == expected
    assert {fix.effect or Effect.EXACT for fix in found.fixes} == {effect}
    same(found, effect == Effect.EXACT)


def test_names() -> None:
    loop = "for (n, p), (_, t) in zip(net.named_parameters(), target.named_parameters(), strict=True):\n    t.data.lerp_(p, tau)"
    assert " ".join(made(loop).text.split()).count("for p in net.parameters()") == 1


STATE = "src = net.state_dict()\nfor k, v in target.state_dict().items():\n    "
FLOATING = STATE + "if v.dtype.is_floating_point:\n        {}\n    else:\n        v.copy_(src[k])"
STATES = {  # whether the numbers are the same
    FLOATING.format("v.copy_(v * (1 - tau) + src[k] * tau)"): False,
    FLOATING.format("v.mul_(1 - tau).add_(src[k], alpha=tau)"): True,
    FLOATING.format("v.lerp_(src[k].detach(), tau)").replace("dtype.is_floating_point", "is_floating_point()"): True,
    STATE + "if torch.is_floating_point(v):\n        v *= 1 - tau\n        v += tau * src[k].detach()": False,
    STATE + "v.copy_(v * (1.0 - tau) + src[k] * tau)": False,
    "for k, v in target.state_dict().items():\n    v.copy_(v * 0.9 + net.state_dict()[k] * 0.1)": False,
}  # fmt: skip


@pytest.mark.parametrize("after", STATES)
def test_averages_of_all_that_a_state_has(after: str) -> None:
    """Integers (batches that a norm has seen) are treated as before."""
    found = made(after)
    assert "torch._foreach_" in found.text and "targets, sources = [], []" in found.text
    assert {fix.effect for fix in found.fixes} == {None if STATES[after] else Effect.ROUNDING}
    same(found, exact=STATES[after])
    old, new = (run(text)["target"].state_dict() for text in (found.before, found.text))
    for name, tensor in old.items():
        assert torch.allclose(tensor, new[name], rtol=1e-5), name
    again = apply(RULE, found.text)
    assert not again.fixes and not again.advice


NAMED = "others = dict(net.named_parameters())\nwith torch.no_grad():\n    for name, t in target.named_parameters():\n        "
BY_NAME = {  # whether the numbers are the same
    NAMED + "p = others[name]\n        assert p is not t\n        t.copy_(0.9 * t + (1.0 - 0.9) * p)": False,
    NAMED + "p = others[name]\n        t.mul_(1 - tau)\n        t.add_(p, alpha=tau)": True,
    NAMED + "q = others[name]\n        t.data.lerp_(q.data, tau)": True,
    NAMED.replace("with torch.no_grad():", "if True:") + "q = others[name]\n        t.data.lerp_(q.data, tau)": True,
}  # fmt: skip
CHOSEN = """sort = Net if str(input)[:0] == "" else nn.Identity
net = nn.DataParallel(sort(8)).to(device)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
target = copy.deepcopy(net)"""


@pytest.mark.parametrize("target", [COPIED, CHOSEN])
@pytest.mark.parametrize("after", BY_NAME)
def test_parameters_that_are_taken_by_their_names(after: str, target: str) -> None:
    """The loop fills lists, and asserts what it did."""
    found = made(after, target=target)
    assert "torch._foreach_" in found.text and "targets, sources = [], []" in found.text
    assert found.text.count("assert") == after.count("assert")
    assert {fix.effect for fix in found.fixes} == {None if BY_NAME[after] else Effect.ROUNDING}
    same(found, exact=BY_NAME[after])
    assert not apply(RULE, found.text).fixes


@pytest.mark.parametrize(
    "after",
    [
        NAMED + "p = others[name]\n        t.copy_(0.9 * t + 0.1 * p)\n        print(p.norm())",
        NAMED + "p = others[name]\n        p = p * 2\n        t.copy_(0.9 * t + 0.1 * p)",
        NAMED + "p = others.pop(name)\n        t.copy_(0.9 * t + 0.1 * p)",
        NAMED + "p = others[name]\n        others[name] = t\n        t.copy_(0.9 * t + 0.1 * p)",
        NAMED + "p = others[name]\n        t.copy_(0.9 * t + 0.1 * p)\nprint(len(others))",
        NAMED + "p = others['head.bias']\n        t.data.copy_(0.9 * t + 0.1 * p.sum())",
        NAMED + "p = others[name]\n        assert p.norm() > 0\n        t.copy_(0.9 * t + 0.1 * p)",
        NAMED + "p = others[name]\n        q = others[name]\n        t.copy_(0.9 * t + 0.1 * q)",
        NAMED.replace("others = ", "others = others_too = ") + "p = others[name]\n        t.copy_(0.9 * t + 0.1 * p)\nothers_too.clear()",
        NAMED + "t.copy_(0.9 * t + 0.1 * p)\n        p = others[name]",
        NAMED + "if t.dim() > 1:\n            p = others[name]\n            t.copy_(0.9 * t + 0.1 * p)",
    ],
)  # fmt: skip
def test_names_that_do_more(after: str) -> None:
    before = "p = next(net.parameters())"
    assert "_foreach_" not in made(after, before).text


AVERAGE = FLOATING.format("v.copy_(v * (1 - tau) + src[k] * tau)")
TIED = {
    "a layer that is there twice": "net.other = net.head\n",
    "in a list": "net.more = nn.ModuleList([net.head for _ in range(3)])\n",
    "a weight of two layers": "net.other = nn.Linear(8, 2)\nnet.other.weight = net.head.weight\n",
    "a parameter of another's memory": "net.scale = nn.Parameter(net.head.weight)\n",
    "a buffer that is not spelled out": "pair = ('a', torch.ones(3))\nnet.register_buffer(*pair)\n",
    "two buffers": "w = torch.ones(3)\nnet.register_buffer('a', w)\nnet.register_buffer('b', w)\n",
}


@pytest.mark.parametrize("tied", TIED.values(), ids=TIED)
def test_a_tensor_with_two_names_in_a_state(tied: str) -> None:
    """It is averaged twice by the loop, and once by an operation on lists."""
    found = made(AVERAGE, target=tied + COPIED)
    assert not found.fixes and "two names" in found.refusals


@pytest.mark.parametrize(
    "after",
    [
        AVERAGE + "\nsrc.clear()",
        AVERAGE.replace("v.copy_(src[k])", "losses.append(float(v))"),
        AVERAGE.replace("if v.dtype.is_floating_point", "if 'head' in k"),
        AVERAGE.replace("src[k] * tau", "src['head.bias'].mean() * tau"),
        AVERAGE.replace("net.state_dict()", "torch.load('other.pt')"),
        STATE + "v.data = v * (1 - tau) + src[k] * tau",
        STATE + "tau *= 0.9\n    v.lerp_(src[k], tau)",
        STATE + "print(v)\n    v.lerp_(src[k], tau)",
    ],
)
def test_other_loops_over_states(after: str) -> None:
    assert not made(after).fixes


@pytest.mark.parametrize("target", ["target = Net(9).to(device)", COPIED + ".half().float()"])
def test_states_of_other_shapes_or_types(target: str) -> None:
    assert not made(AVERAGE, target=target).fixes


CLIP = "torch.nn.utils.clip_grad_value_(net.parameters(), 0.1)"


@pytest.mark.parametrize(
    "before",
    [
        "for p in net.parameters():\n    p.grad.data.clamp_(-0.1, 0.1)",
        "for p in net.parameters():\n    if p.grad is not None:\n        p.grad.clamp_(min=-0.1, max=0.1)",
        "for name, p in net.named_parameters():\n    if p.grad is None:\n        continue\n    p.grad.data.clamp_(-0.1, 0.1)",
    ],
)
def test_gradients(before: str) -> None:
    found = made(before=before)
    assert CLIP in found.lines
    same(found, exact=True)


SAME = (
    "target = Net(8).to(device)",
    "target = Net(8).to(device)\ntarget.load_state_dict(net.state_dict())",
)


@pytest.mark.parametrize("target", SAME)
def test_models_that_are_made_alike(target: str) -> None:
    found = made(ZIP + "t.data.lerp_(p.data, tau)", target=target)
    assert found.fixes
    same(found, exact=True)


LOADED = 'import json\nsizes = json.loads("{\\"width\\": 8}")\n'
UNKNOWN = (
    LOADED + "net = Net(**sizes).to(device)\noptimizer = torch.optim.SGD(net.parameters(), 0.1)\n"
)
IN_TURN = (
    LOADED + "nets = []\nfor n in range(5, 9):\n    nets.append(Net(**{**sizes, 'width': n}))\n"
)


def test_a_copy_of_a_model_whose_sizes_are_not_known() -> None:
    found = made(ZIP + "t.data.lerp_(p.data, tau)", target=UNKNOWN + COPIED)
    assert found.fixes
    same(found, exact=True)


@pytest.mark.parametrize(
    "target",
    [
        UNKNOWN + "target = Net(**sizes).to(device)",
        UNKNOWN + COPIED + "\nnet.head = nn.Linear(8, 3)",
        IN_TURN + "net, target = nets[-1].to(device), copy.deepcopy(nets[0]).to(device)",
    ],
)
def test_models_of_unknown_sizes_that_may_differ(target: str) -> None:
    found = made(ZIP + "t.data.lerp_(p.data, tau)", target=target)
    assert not found.fixes and "the same parameters" in found.refusals


def test_a_shared_layer_keeps_its_values() -> None:
    """What is in both models stands at the same place of both lists: its average with itself is
    itself.
    """
    shared = COPIED + "\ntarget.body = net.body"
    same(made(ZIP + "t.data.copy_(tau * p.data + (1 - tau) * t.data)", target=shared), exact=False)


@pytest.mark.parametrize(
    ("after", "before", "target", "reason"),
    [
        (
            ZIP + "t.data.lerp_(p.data, tau)",
            "pass",
            "target = Net(9).to(device)",
            "same parameters",
        ),
        (
            ZIP + "t.data.copy_(tau * p.data + (1 - tau) * t.data)",
            "pass",
            COPIED + ".half().float()",
            "casts a model",
        ),
        *(
            (
                ZIP + "t.data = tau * p.data + (1 - tau) * t.data",
                "pass",
                COPIED + "\n" + keeps,
                "may keep the old one",
            )
            for keeps in (
                "best = target.state_dict()",
                "def kept():\n    best = target.state_dict()\n    return best\nbest = kept()",
                "def kept(found):\n    found[0] = target.state_dict()\nbest = {}\nkept(best)",
                "def kept():\n    best = {}\n    best[0] = target.state_dict()\n    return best\nbest = kept()",
                "def kept():\n    best = target.state_dict()\n    return best['a.weight']\nbest = kept()",
            )
        ),
        (
            ZIP + "t.data = tau * p.data + (1 - tau) * t.data",
            "pass",
            COPIED
            + "\nfor p, t in zip(net.parameters(), target.parameters()):\n    t.data = p.data",
            "may keep the old one",
        ),
        *(
            (
                ZIP + "t.data.mul_(1 - tau).add_(p.data, alpha=tau)",
                "pass",
                COPIED + f"\ntarget.body[1].bias.data = target.body[1].weight.data{view}",
                "may be one memory",
            )
            for view in ("[:]", ".view(-1)", "")
        ),
        (
            "pass",
            "for p in target.parameters():\n    p.grad.clamp_(-1, 1)",
            COPIED.replace("copy.deepcopy(net)", "Net(8).to(device)"),
            "gives these parameters gradients",
        ),
    ],
)
def test_left_alone(after: str, before: str, target: str, reason: str) -> None:
    found = made(after, before, target)
    assert not found.fixes and reason in found.refusals, found.findings


COUNTING = """class Decay:
    asked = 0

    @property
    def tau(self):
        self.asked += 1
        return 1 / (1 + self.asked)

    def __getattr__(self, name):
        Decay.asked += 1
        return 1 / (1 + Decay.asked)

    plain = property(lambda self: 0.5)

decay = Decay()
"""


@pytest.mark.parametrize(("asked", "taken"), [("tau", False), ("any", False), ("plain", True)])
def test_what_a_property_counts(asked: str, taken: bool) -> None:
    """A decay that warms up each time that it is asked for is another number in each turn."""
    after = ZIP + f"t.data.lerp_(p.data, decay.{asked})"
    found = made(after, target=COUNTING + COPIED)
    assert bool(found.fixes) is taken
    same(found, exact=True)


def test_modules_without_parameters_of_others() -> None:
    """A list must not be empty: a test of the project may average what has no parameters."""
    average = COPIED + "\ndef average(a, b):\n    " + ZIP.replace("net.", "a.").replace("target.", "b.").replace("\n", "\n    ") + "t.data.lerp_(p.data, tau)"  # fmt: skip
    assert made("average(net, target)", target=average).fixes
    tested = "from train import average\n\ndef test_it():\n    average(nn.ReLU(), nn.ReLU())\n"
    found = apply(
        RULE, script("average(net, target)", target=average), files={"test_it.py": tested}
    )
    assert not found.fixes and "must not be empty" in found.refusals


@pytest.mark.parametrize(
    "layers", ["nn.Tanh()", "nn.Sequential(nn.InstanceNorm1d(4), nn.ReLU())", "Distance()"]
)
def test_a_model_that_has_none(layers: str) -> None:
    """It is trained, in so far as its passes are in a training step."""
    text = """
        import torch
        import torch.nn as nn

        class Distance(nn.Module):
            def forward(self, a, b=0.0):
                return (a - b).pow(2)

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        net, other = nn.Linear(4, 4).to(device), LAYERS.to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(3):
            loss = other(net(torch.randn(2, 4, device=device))).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            with torch.no_grad():
                for p in other.parameters():
                    p.mul_(0.99)
        """
    found = apply(RULE, text.replace("LAYERS", layers))
    assert not found.fixes and "must not be empty" in found.refusals
    assert apply(RULE, text.replace("LAYERS", "nn.Linear(4, 4)")).fixes


@pytest.mark.parametrize("by", ["self", "a method"])
def test_a_model_that_is_being_made_has_none_yet(by: str) -> None:
    loop = "for p in self.parameters():\n                    p.data.mul_(0.5)"
    text = f"""
        import torch
        import torch.nn as nn

        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                {loop if by == "self" else "self.halve()"}
                self.a = nn.Linear(4, 4)

            def halve(self):
                {loop}

            def forward(self, x):
                return self.a(x)

        device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        net = Net().to(device)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        for step in range(3):
            loss = net(torch.randn(2, 4, device=device)).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            net.halve()
        """
    found = apply(RULE, text)
    wanted = by == "self"  # the method is only called when all is there
    assert len(found.fixes) == wanted and "must not be empty" in found.refusals
    run(found.text)


OTHER = [
    "for p, t in zip(net.parameters(), target.parameters()):\n    t.data.mul_(p.data.mean()).add_(p.data)",
    "for p, t in zip(net.parameters(), target.parameters()):\n    t.data.copy_(tau * p.data + tau * t.data)",
    "for p, t in zip(net.parameters(), target.buffers()):\n    t.data.copy_(p.data)",
    "for p in net.parameters():\n    p.data.sub_(0.1 * p.grad)",
    "for p in net.parameters():\n    p.grad.data.clamp_(-1, 2)",
    "for p in net.parameters():\n    p.data.clamp_(-1, 1)\nprint(p)",
    "for p in net.parameters():\n    tau *= 0.9\n    p.data.mul_(tau)",
    "for i, p in enumerate(net.parameters()):\n    p.data.mul_(1 - i)",
]


def test_other_loops() -> None:
    """What is done to each parameter is none of the operations on lists, or is not known."""
    found = made("\n".join(OTHER))
    assert not found.fixes and not found.refusals


def test_not_on_the_cpu() -> None:
    text = script(ZIP + "t.data.lerp_(p.data, tau)")
    assert not apply(RULE, text, target="cpu").findings


HELPERS = """
def average(old, new):
    return old * 0.9 + new * 0.1
shadow = {n: p.data.clone() for n, p in net.named_parameters()}
"""


@pytest.mark.parametrize(
    "step",
    [
        "for t in target.parameters():\n    t.data.clamp_(-0.1, 0.2)",
        "for a, b in zip(target.state_dict().values(), net.state_dict().values()):\n    a.copy_(a * 0.9 + b * 0.1)",
        "for k in target.state_dict():\n    target.state_dict()[k].copy_(net.state_dict()[k] * 0.1)",
        "for p, t in zip(net.parameters(), target.parameters()):\n    old, new = t.data, p.data\n    t.data = average(old, new)",
        "for p in net.parameters():\n    p.grad = None",
    ],
)
def test_what_no_word_is_said_about(step: str) -> None:
    assert not made(step, target=COPIED + HELPERS).findings


KEPT = f"{COPIED}\n{HELPERS}\nstates = {{k: v.clone() for k, v in net.state_dict().items()}}"
LISTS = """\
averages = torch._foreach_mul([{0}[{1}] for {1} in names], {2})
torch._foreach_add_(averages, torch._foreach_mul(sources, {3}))
{0}.update(zip(names, averages))"""
LOOKED_AT = "\nlosses += [v.double().sum().item() for d in (shadow, states) for v in d.values()]"


@pytest.mark.parametrize(
    ("loop", "lists"),
    [
        ("for n, p in net.named_parameters():\n    shadow[n] = 0.9 * shadow[n] + 0.1 * p.data", LISTS.format("shadow", "n", 0.9, 0.1)),
        (
            "for n, p in net.named_parameters():\n    if p.requires_grad:\n        assert n in shadow\n"
            "        new = (1.0 - tau) * p.detach() + tau * shadow[n]\n        shadow[n] = new.clone()",
            "if names:\n    " + LISTS.format("shadow", "n", "tau", "1.0 - tau").replace("\n", "\n    "),
        ),
        ("with torch.no_grad():\n    for n, p in net.named_parameters():\n        shadow[n] = shadow[n] * 0.9 + p * 0.1", LISTS.format("shadow", "n", 0.9, 0.1)),
        (
            "for k, v in net.state_dict().items():\n    if v.dtype.is_floating_point:\n        states[k] = tau * states[k] + (1 - tau) * v\n"
            "    else:\n        states[k] = v.clone()",
            LISTS.format("states", "k", "tau", "1 - tau"),
        ),
        ("for k, v in net.state_dict().items():\n    states[k] = tau * states[k] + (1 - tau) * v", LISTS.format("states", "k", "tau", "1 - tau")),
    ],
)  # fmt: skip
def test_averages_that_a_dict_has_by_their_names(loop: str, lists: str) -> None:
    found = made(loop + LOOKED_AT, target=KEPT)
    assert [line.strip() for line in lists.splitlines()] == [
        line for line in found.lines if "names" in line or "averages" in line
        if not line.startswith("names")
    ]  # fmt: skip
    same(found, True)


@pytest.mark.parametrize(
    "loop",
    [
        # autograd records it
        "for n, p in net.named_parameters():\n    shadow[n] = (0.9 * shadow[n] + 0.1 * p)",
        # the memory stays
        "for n, p in net.named_parameters():\n    shadow[n].mul_(0.9).add_(p.data, alpha=0.1)",
        # the one before has a part in it
        "last = 0\nfor n, p in net.named_parameters():\n    shadow[n] = 0.9 * shadow[n] + 0.1 * p.data\n    last = shadow[n]",
        "for n, p in net.named_parameters():\n    new = 0.9 * shadow[n] + 0.1 * p.data\n    shadow[n] = new\nprint(new.sum())",
        "for n, p in net.named_parameters():\n    m = n\n    shadow[n] = 0.9 * shadow[m] + 0.1 * p.data",
        # a dict that does more
        "for n, p in net.named_parameters():\n    counted[n] = 0.9 * counted[n] + 0.1 * p.data",
    ],
)
def test_averages_that_stay(loop: str) -> None:
    counted = "\nclass Counted(dict):\n    def __setitem__(self, key, value):\n        super().__setitem__(key, value.detach())\ncounted = Counted(shadow)"
    found = made(loop, target=KEPT + counted)
    assert not found.fixes
    run(found.before.replace("0.1 * p)", "0.1 * p).detach()"))


def test_a_network_without_parameters_has_no_averages() -> None:
    loop = "for n, p in empty.named_parameters():\n    shadow[n] = 0.9 * shadow[n] + 0.1 * p.data"
    found = made(loop, target=f"{KEPT}\nempty = nn.Identity()")
    assert "if names:" in found.lines or not found.fixes
    same(found, True)


def test_states_that_are_loaded_or_saved_keep_no_memory() -> None:
    """``t.data = ...`` gives new memory, which only who holds the old one would notice."""
    used = """
def load(model, more):
    state = model.state_dict()
    state.update({k: v for k, v in more.items() if k in state})
    model.load_state_dict(state)
    own = model.state_dict()
    for name, value in more.items():
        if name in own:
            own[name].copy_(value)


def save(**models):
    out = {}
    for name, model in models.items():
        out[name] = model.state_dict()
    torch.save(out, io.BytesIO())


load(target, copy.deepcopy(net.state_dict()))
save(net=net, target=target)
"""
    loop = ZIP + "t.data = torch.lerp(p.data, t.data, 1 - tau)"
    found = made(loop, target=f"import io\n{COPIED}\n{used}")
    assert "torch._foreach_lerp_(" in found.text
    same(found, False)


def test_two_averages_in_one_loop_have_a_list_each() -> None:
    loop = (
        "with torch.no_grad():\n    for p, a, b in zip(net.parameters(), target.parameters(), slow.parameters()):\n"
        "        a.mul_(0.9).add_(p, alpha=0.1)\n        b.mul_(0.9).add_(a, alpha=0.1)"
    )
    found = made(
        f"{loop}\nlosses.append(sum(p.sum().item() for p in slow.parameters()))",
        target=f"{COPIED}\nslow = copy.deepcopy(net)",
    )
    assert "torch._foreach_mul_(targets_list, 0.9)" in found.text
    same(found, True)


HOLDING = {  # what keeps the memory of parameters -> how it is looked at
    "class History:\n    def __init__(self):\n        self.all = []\n    def save(self, state):\n        self.all.append(state)\nhistory = History()\nhistory.save(target.state_dict())": "history.all[0]",
    "class Mean:\n    def load_state_dict(self, state):\n        self.state = state\nmean = Mean()\nmean.load_state_dict(target.state_dict())": "mean.state",
    "def keep():\n    state = target.state_dict()\n    return lambda: state\nlook = keep()": "look()",
    "def look(state=target.state_dict()):\n    return state": "look()",
    "class Box:\n    pass\nbox = Box()\ndef keep():\n    setattr(box, 'state', target.state_dict())\nkeep()": "box.state",
    "kept = {n: p.data for n, p in target.named_parameters()}": "kept",
    "kept = {n: p.detach().view(-1) for n, p in target.named_parameters()}": "kept",
    "kept = {0: target.head.weight[0]}": "kept",
    "kept = {0: torch.from_numpy(target.head.weight.detach().numpy())}": "kept",
}


@pytest.mark.parametrize("keeps", HOLDING)
def test_what_holds_the_memory_of_parameters_keeps_its_numbers(keeps: str) -> None:
    """``t.data = ...`` leaves them to whoever holds them; a list would write to them."""
    after = f"{ZIP}t.data = tau * p.data + (1 - tau) * t.data"
    weights = f"for k, v in {HOLDING[keeps]}.items() if not str(k).startswith('body.1')"
    shown = f"losses.append(sum(float(v.detach().abs().sum()) {weights}))"
    found = made(f"{after}\n{shown}", target=f"{COPIED}\n{keeps}")
    assert not found.fixes and "may keep the old one" in found.refusals
    assert len(set(run(found.before)["losses"][::2])) == 1


def test_memory_that_is_copied_or_looked_at_is_not_kept() -> None:
    looks = (
        "kept = {n: p.data.clone() for n, p in target.named_parameters()}\n"
        "def size(model):\n    return sum(p.data.view(-1).norm() for p in model.parameters())\n"
        "losses_of = [size(target)]"
    )
    found = made(f"{ZIP}t.data = torch.lerp(p.data, t.data, 1 - tau)", target=f"{COPIED}\n{looks}")
    assert "torch._foreach_lerp_(" in found.text
    same(found, False)
