"""loss-item-sync: numbers that steps put into dicts, lists and attributes, in whatever function,
and that the host looks at in few of them.
"""

from __future__ import annotations

import textwrap

import pytest

from tests.onerule import Applied, apply
from tests.test_rule_loss_item_sync import HEAD, output

TRAINER = """
import copy, json, pickle
from collections import OrderedDict, defaultdict

class Trainer:
    def __init__(self):
        self.steps = 0
INIT

    def step(self, x, y):
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        hits = (out.argmax(1) == y).sum()
STEP
        loss.backward()
        optimizer.step()
        self.steps += 1

    def check(self):
        if WHEN:
LOOK

METHODS

    def epoch(self):
        for x, y in loader:
            self.step(x, y)
            self.check()

trainer = Trainer()
for epoch in range(3):
    trainer.epoch()
END
"""
TOTAL = "self.total = defaultdict(float)"
ADD = "self.total['loss'] += loss.item()"
RETURNS = "def current(self):\n    return self.log"


def trainer(
    init: str,
    step: str,
    look: str,
    methods: str = "pass",
    end: str = "",
    when: str = "self.steps % 3 == 0",
) -> str:
    parts = {"INIT": (init, 8), "STEP": (step, 8), "LOOK": (look, 12), "METHODS": (methods, 4)}
    text = TRAINER.replace("WHEN", when).replace("END", end)
    for name, (code, depth) in parts.items():
        text = text.replace(name, textwrap.indent(code, " " * depth))
    return HEAD + text


def done(text: str) -> Applied:
    found = apply("loss-item-sync", text)
    assert output(found.text) == output(text)
    return found


FORMS = [
    (
        TOTAL,
        f"{ADD}\nself.total['hits'] += hits.item() * 0.5",
        "for key in self.total:\n    self.total[key] /= 3\n    print(key, self.total[key])\n"
        "self.total = defaultdict(float)",
        [
            "self.total['loss'] += loss.detach().double()",
            "self.total['hits'] += hits.double() * 0.5",
            "for name, value in self.total.items():",
            "self.total[name] = float(value)",
        ],
    ),
    (
        TOTAL,
        ADD,
        "print(repr(self.total['loss']))",
        ["self.total['loss'] += loss.detach().double()", "print(repr(float(self.total['loss'])))"],
    ),
    (
        "self.total = {'loss': 0.0, 'n': 0}",
        f"{ADD}\nself.total['n'] += len(y)",
        "print(self.total)",
        [
            "self.total['loss'] += loss.detach().double()",
            "for key, value in self.total.items():",
            "self.total[key] = value.item() if torch.is_tensor(value) else value",
        ],
    ),
    (
        "self.total = {'hits': 0}",
        "self.total['hits'] += hits.item()",
        "print(json.dumps(self.total))",
        [
            "self.total['hits'] += hits",
            "for key, value in self.total.items():",
            "self.total[key] = int(value)",
        ],
    ),
    (
        "self.log = OrderedDict()",
        "self.log['loss'] = loss.item()\nself.log['lr'] = optimizer.param_groups[0]['lr']\nloss += 1",
        "print(copy.deepcopy(self.log))",
        [
            "self.log['loss'] = loss.detach().clone()",
            "for key, value in self.log.items():",
            "self.log[key] = value.item() if torch.is_tensor(value) else value",
        ],
    ),
    (
        "self.losses = []",
        "self.losses.append(loss.item())",
        "print(max(self.losses), len(self.losses))",
        [
            "self.losses.append(loss.detach())",
            "self.losses[:] = [float(value) for value in self.losses]",
        ],
    ),
    (
        "self.run = 0.0",
        "self.run = 0.9 * self.run + 0.1 * loss.item()",
        "print(repr(self.run))",
        [
            "self.run = 0.9 * self.run + 0.1 * loss.detach().double()",
            "print(repr(float(self.run)))",
        ],
    ),
]


@pytest.mark.parametrize(("init", "step", "look", "lines"), FORMS)
def test_what_a_store_holds(init: str, step: str, look: str, lines: list[str]) -> None:
    assert done(trainer(init, step, look)).lines == lines


def test_a_quotient_is_rounding() -> None:
    found = apply(
        "loss-item-sync",
        trainer("self.run = 0.0", "self.run += loss.item() / 3", "print(round(self.run, 6))"),
    )
    assert [f.effect.name for f in found.fixes] == ["ROUNDING"]
    assert output(found.text) == output(found.before)


def test_a_store_under_another_name() -> None:
    look = "logs = self.current()\nfor k, v in logs.items():\n    print(k, repr(v))"
    found = done(trainer("self.log = {}", "self.log['loss'] = loss.item()", look, RETURNS))
    assert "for key, value in logs.items():" in found.lines


def test_a_dict_that_a_function_returns() -> None:
    numbers = "def numbers(self, loss):\n    return loss, {'loss': loss.item()}"
    step = "loss, self.log = self.numbers(loss)"
    found = done(trainer("self.log = {}", step, "print(self.log)", numbers))
    assert "return loss, {'loss': loss.detach().clone()}" in found.lines


def test_what_is_given_to_a_function_is_read_before() -> None:
    show = "def show(self, total, n):\n    print(total['loss'] / n)"
    found = done(trainer(TOTAL, ADD, "self.show(self.total, 3)", show))
    assert found.lines[1:] == [
        "for key, value in self.total.items():",
        "self.total[key] = float(value)",
    ]


def test_an_exception_leaves_nothing_behind() -> None:
    text = trainer(TOTAL, f"{ADD}\nif self.steps == 7:\n    raise KeyError", "print(self.total)")
    text = text.replace(
        "    trainer.epoch()",
        "    try:\n        trainer.epoch()\n    except KeyError:\n        print(dict(trainer.total))\n        trainer.steps += 1",
    )
    assert done(text).fixes


LEFT = [
    ("print(self.total)", "pass", "", "True"),  # in every step
    ("print(vars(self))", "pass", "", ""),
    ("print(len(pickle.dumps([self, 1])))", "pass", "", ""),
    ("kept = {'total': self.total}\nprint(kept)", "pass", "", ""),
    ("self.view = self.total.items()\nprint(list(self.view))", "pass", "", ""),
    ("print(getattr(self, 'to' + 'tal'))", "pass", "", ""),
    ("print(self.keeper(self.total))", "keeper = torch.no_grad()(lambda self, d: d)", "", ""),
    (
        "print(1)",
        "pass",
        "class Other(Trainer):\n    def last(self):\n        return self.total",
        "",
    ),
    ("self.total['loss'] = torch.zeros(2)\nprint(self.total)", "pass", "", ""),
]


@pytest.mark.parametrize(("look", "methods", "end", "when"), LEFT)
def test_stores_that_are_left(look: str, methods: str, end: str, when: str) -> None:
    text = trainer(TOTAL, ADD, look, methods, end, when or "self.steps % 3 == 0")
    assert not apply("loss-item-sync", text).fixes


@pytest.mark.parametrize(
    "step",
    [
        "try:\n    self.total['loss'] += loss.item()\nexcept RuntimeError:\n    pass",
        f"{ADD}\nif self.total['loss'] > 3:\n    print('much')",
        f"{ADD}\nself.total['loss'] *= 0.5",
        "self.total['loss'] = loss.item()\nself.total['loss'] += 1",
        "self.total['loss'] += 1 / loss.item()",
        "self.total['loss'] += round(loss.item(), 3)",
    ],
)
def test_steps_that_look(step: str) -> None:
    assert not apply("loss-item-sync", trainer(TOTAL, step, "print(self.total)")).fixes


def test_another_script_looks_at_it() -> None:
    text = trainer(TOTAL, ADD, "print(self.total)")
    other = "from train import Trainer\n\nprint(Trainer().total['loss'])\n"
    assert apply("loss-item-sync", text).fixes
    assert not apply("loss-item-sync", text, files={"other.py": other}).fixes
