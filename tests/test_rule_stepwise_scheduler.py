"""stepwise-scheduler: the rates at the ends of epochs stay, the steps move to the updates, and what
cannot be is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from autofast.edit.plan import Plan
from autofast.read import read_script
from autofast.registry import select
from autofast.rule import Effect
from tests import metamorphic
from tests.fixture import ALL, Fixture
from tests.onerule import Applied, apply
from tests.schedules import difference, rates_in, rates_of
from tests.test_fixtures import (
    _with_needs,
    contents,
    difference as text_difference,
    planned,
    reread,
    script_of,
)

torch = pytest.importorskip("torch")

RULE = "stepwise-scheduler"
HEAD = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import lr_scheduler
from torch.optim.lr_scheduler import ChainedScheduler, ConstantLR, CosineAnnealingLR, CosineAnnealingWarmRestarts, ExponentialLR
from torch.optim.lr_scheduler import LambdaLR, LinearLR, MultiplicativeLR, MultiStepLR, PolynomialLR, SequentialLR, StepLR
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
EPOCHS = 6
data = TensorDataset(torch.randn(52, 3), torch.randint(0, 2, (52,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Linear(3, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
MADE = "scheduler = CosineAnnealingLR(optimizer, T_max=EPOCHS)\n"
LOOP = """
for epoch in range(EPOCHS):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
    scheduler.step()
"""


def script(made: str = MADE, loop: str = LOOP, head: str = HEAD) -> str:
    return head + made.replace("torch.optim.lr_scheduler.", "") + loop


def done(text: str, epochs: int = 6, identical: bool = False, **files: str) -> Applied:
    """The rewritten script, whose rates at the ends of epochs are those of the original, and others
    between.
    """
    made = apply(RULE, text, files={f"{name}.py": content for name, content in files.items()})
    assert made.fixes, [(f.refusal, f.advice) for f in made.findings]
    if not files:
        before, after = rates_of(made.before), rates_of(made.text)
        assert difference(before, after, epochs) == "", made.text
        assert (before == after) == identical
    return made


def refused(text: str, **files: str) -> str:
    made = apply(RULE, text, files={f"{name}.py": content for name, content in files.items()})
    assert not made.fixes, made.text
    assert made.text == made.before
    return made.refusals


# ----------------------------------------------------------------------------------- the schedulers
@pytest.mark.parametrize(
    ("made", "wanted"),
    [
        ("CosineAnnealingLR(optimizer, EPOCHS)", "CosineAnnealingLR(optimizer, EPOCHS * len(loader))"),
        ("CosineAnnealingLR(optimizer, T_max=EPOCHS - 2, eta_min=1e-3)", "T_max=(EPOCHS - 2) * len(loader), eta_min=1e-3"),
        ("CosineAnnealingLR(optimizer, 2)", "CosineAnnealingLR(optimizer, 2 * len(loader))"),
        ("ExponentialLR(optimizer, gamma=0.9)", "gamma=0.9 ** (1 / len(loader))"),
        ("LinearLR(optimizer)", "LinearLR(optimizer, total_iters=5 * len(loader))"),
        ("LinearLR(optimizer, 0.1, 0.9, 3)", "LinearLR(optimizer, 0.1, 0.9, 3 * len(loader))"),
        ("PolynomialLR(optimizer, total_iters=EPOCHS, power=0.9)", "total_iters=EPOCHS * len(loader), power=0.9"),
        ("PolynomialLR(optimizer)", "PolynomialLR(optimizer, total_iters=5 * len(loader))"),
        ("CosineAnnealingWarmRestarts(optimizer, T_0=2)", "T_0=2 * len(loader)"),
        ("CosineAnnealingWarmRestarts(optimizer, 1, T_mult=2, eta_min=1e-4)", "1 * len(loader), T_mult=2"),
    ],
)  # fmt: skip
def test_schedulers(made: str, wanted: str):
    text = done(script(f"scheduler = {made}\n")).text
    assert wanted.replace(" ", "") in "".join(text.split()).replace(",)", ")").replace(",]", "]"), (
        text
    )


def test_past_the_end_of_the_cosine():
    done(
        script("scheduler = CosineAnnealingLR(optimizer, 4)\n").replace(
            "EPOCHS = 6", "EPOCHS = 11"
        ),
        epochs=11,
    )


def test_groups_with_rates_of_their_own():
    head = HEAD.replace(
        "model.parameters()", '[{"params": [model.weight]}, {"params": [model.bias], "lr": 0.01}]'
    )
    done(script("scheduler = CosineAnnealingLR(optimizer, EPOCHS)\n", head=head))


@pytest.mark.parametrize(
    "made",
    [
        "StepLR(optimizer, 2)",
        "MultiStepLR(optimizer, milestones=[2, 4])",
        "ConstantLR(optimizer)",
    ],
)
def test_pointless(made: str):
    assert "would give the same learning rates" in refused(script(f"scheduler = {made}\n"))


# --------------------------------------------------------------------------------- how many updates
def test_after_the_update_of_a_scaler():
    loop = LOOP.replace("loss.backward()", "scaler.scale(loss).backward()").replace(
        "optimizer.step()", "scaler.step(optimizer)\n        scaler.update()  # once"
    )
    text = done(script(MADE + 'scaler = torch.amp.GradScaler("cpu", init_scale=16.0)\n', loop)).text
    assert "        scaler.update()  # once\n        scheduler.step()\n" in text


def test_batches_through_a_progress_bar():
    loop = "from tqdm import tqdm\n" + LOOP.replace(
        "in loader", "in (bar := tqdm(loader))"
    ).replace("(bar := tqdm(loader))", "bar").replace(
        "    for x",
        "    bar = tqdm(enumerate(loader), total=len(loader), disable=True)\n    for _, (x",
    ).replace(", y in", ", y) in")
    assert "T_max=EPOCHS * len(loader)" in done(script(loop=loop)).text


# ---------------------------------------------------------------------------------- where it stands
FUNCTIONS = """
def train(model, batches, optimizer):
    model.train()
    for x, y in batches:
        optimizer.zero_grad()
        update(F.cross_entropy(model(x), y), optimizer)

def update(loss, optimizer):
    loss.backward()
    optimizer.step()

def main(epochs):
    net = nn.Linear(3, 2)
    opt = torch.optim.AdamW(net.parameters(), lr=0.1)
    train_loader = DataLoader(data, batch_size=8)
    sched = lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)
    for epoch in range(epochs):
        train(net, train_loader, opt)
        sched.step()

main(EPOCHS)
"""


TRAINER = """
class Trainer:
    def __init__(self, epochs):
        self.epochs = epochs
        self.net = nn.Linear(3, 2)
        self._data()
        self.opt = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.scheduler = lr_scheduler.CosineAnnealingLR(self.opt, T_max=self.epochs)

    def _data(self):
        self.loader = DataLoader(data, batch_size=8)

    def _update(self, loss):
        loss.backward()
        self.opt.step()

    def _epoch(self):
        for x, y in self.loader:
            self.opt.zero_grad()
            self._update(F.cross_entropy(self.net(x), y))
        if self.scheduler is not None:
            self.scheduler.step()

    def fit(self):
        for epoch in range(self.epochs):
            self._epoch()
            print(epoch, self.scheduler.get_last_lr()[0])

Trainer(EPOCHS).fit()
"""


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (FUNCTIONS, "in another loop or function"),
        (TRAINER, "in another function"),
        (
            FUNCTIONS.replace("lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)", "schedule(opt)").replace(
                "def main",
                "def schedule(optimizer):\n    return CosineAnnealingLR(optimizer, T_max=9)\n\ndef main",
            ),
            "it is made in another function",
        ),
    ],
)  # fmt: skip
def test_what_stands_in_several_functions_is_left_to_the_user(text: str, why: str):
    assert why in refused(script("", text))


def test_one_of_several_schedulers():
    made = MADE + "import sys\nif sys.argv[9:]:\n    scheduler = ExponentialLR(optimizer, 0.9)\n"
    assert "one of several schedulers" in refused(script(made))


def test_two_optimizers_with_a_scheduler_each():
    made = """
other = nn.Linear(3, 2)
opt2 = torch.optim.SGD(other.parameters(), lr=0.01)
scheduler = CosineAnnealingLR(optimizer, T_max=EPOCHS)
sched2 = ExponentialLR(opt2, gamma=0.8)
"""
    loop = LOOP.replace(
        "        optimizer.step()\n",
        "        optimizer.step()\n        opt2.zero_grad()\n        F.cross_entropy(other(x), y).backward()\n        opt2.step()\n",
    )
    text = done(script(made, loop + "    sched2.step()\n")).text
    assert (
        "        optimizer.step()\n        scheduler.step()\n" in text
        and "        opt2.step()\n        sched2.step()\n" in text
    )


def test_folds():
    loop = """
for fold in range(2):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    batches = DataLoader(data, batch_size=8)
    scheduler = CosineAnnealingLR(optimizer, T_max=3)
    for epoch in range(3):
        for x, y in batches:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
        scheduler.step()
"""
    made = done(script("", loop), epochs=3)
    assert "CosineAnnealingLR(optimizer, T_max=3 * len(batches))" in made.text


# ----------------------------------------------------------------------------------------- refusals
def changed(old: str, new: str, text: str = "") -> str:
    text = text or script()
    assert old in text
    return text.replace(old, new)


EACH = "    scheduler.step()"


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (changed(EACH, "        scheduler.step()"), "already"),
        (changed(EACH, "    scheduler.step(epoch)"), "metric or an epoch"),
        (changed(LOOP, LOOP.replace("in loader", "in loader").replace("optimizer.step()\n    ", "optimizer.step()\n        ").replace("scheduler.step()", "scheduler.step(epoch + 0.5)")), "parts of epochs"),
        (changed("CosineAnnealingLR(optimizer, T_max=EPOCHS)", "lr_scheduler.ReduceLROnPlateau(optimizer)").replace("scheduler.step()", "scheduler.step(loss)"), "follows a metric"),
        (changed("CosineAnnealingLR(optimizer, T_max=EPOCHS)", "lr_scheduler.CyclicLR(optimizer, 0.01, 0.1)"), "counts updates already"),
        (changed("T_max=EPOCHS)", "T_max=EPOCHS, last_epoch=3)"), "to go on from"),
        (changed("T_max=EPOCHS)", "**{'T_max': EPOCHS})"), "does not stand in its call"),
        (changed("for x, y in loader:", "for i, (x, y) in enumerate(loader):\n        if i > 3:\n            break"), "end the loop over batches early"),
        (changed("        loss.backward()", "        if loss.isnan():\n            continue\n        loss.backward()"), "leaves before it"),
        (changed("        optimizer.step()", "        if loss < 9:\n            optimizer.step()"), "under a condition"),
        (changed("for x, y in loader:", "for i, (x, y) in enumerate(loader):").replace("        optimizer.step()", "        if (i + 1) % 3 == 0:\n            optimizer.step()"), "under a condition"),
        (changed("        optimizer.step()", "        try:\n            optimizer.step()\n        except RuntimeError:\n            pass"), "under a condition"),
        (changed("        optimizer.step()", "        for _ in range(2):\n            optimizer.step()"), "in another loop"),
        (changed("        optimizer.step()", "        optimizer.step()\n        loss.backward()\n        optimizer.step()"), "in several places"),
        (changed(EACH, "    if epoch > 2:\n        scheduler.step()"), "its step is under a condition"),
        (changed(EACH, "    if epoch == 2:\n        continue\n    scheduler.step()"), "leaves before it"),
        (changed(EACH, "    scheduler.step()\n    scheduler.step()"), "also stepped on"),
        (changed(EACH, "    for _ in range(2):\n        scheduler.step()"), "loop"),
        (changed("    for x, y in loader:", "    scheduler.step()\n    for x, y in loader:").replace("\n    scheduler.step()\n", "\n", 2).replace("for epoch in range(EPOCHS):", "for epoch in range(EPOCHS):\n    scheduler.step()"), "before the updates"),
        (changed(EACH, "    scheduler.step()\n    if scheduler.last_epoch > 4:\n        break"), "counts epochs"),
        (changed(EACH, "    scheduler.step()\n    if scheduler.get_last_lr()[0] < 1e-3:\n        break"), "decides by the learning rate"),
        (changed(EACH, "    scheduler.step()\n    lr = optimizer.param_groups[0]['lr']\n    if lr < 1e-3:\n        break"), "decides by the learning rate"),
        (changed(EACH, "    scheduler.step()\n    for group in optimizer.param_groups:\n        group['lr'] *= 0.99"), "set by hand"),
        (changed(MADE, MADE + "state = scheduler.state_dict()\nscheduler.load_state_dict(state)\n"), "its state is loaded"),
        (changed(MADE, MADE + "torch.save(scheduler, 's.pt')\n"), "is given to"),
        (changed(MADE, MADE + "second = ExponentialLR(optimizer, 0.9)\n") + "    second.step()\n", "another scheduler"),
        (changed("    for x, y in loader:", "    loader = DataLoader(data, batch_size=8)\n    for x, y in loader:"), "loader"),
        (changed("loader = Data", "class Stream(torch.utils.data.IterableDataset):\n    def __iter__(self):\n        return iter(data)\n\nloader = Data").replace("DataLoader(data, batch_size=8, shuffle=True)", "DataLoader(Stream(), batch_size=8)"), "IterableDataset"),
        (changed("in loader:", "in zip(loader, loader):").replace("x, y in", "(x, y), _ in"), "how many batches"),
        (changed("for x, y in loader:", "for i in range(3):\n        x, y = next(iter(loader))"), "how many batches"),
        (changed("    for x, y in loader:", "    for _ in range(2):\n     for x, y in loader:").replace("        optimizer.zero", "         optimizer.zero").replace("        loss", "         loss").replace("        optimizer.step", "         optimizer.step"), "in another loop"),
        (changed(MADE, MADE + "optimizer.step()\n"), "in several places"),
        (changed("LinearLR(optimizer, 3)", "x", script("scheduler = LinearLR(optimizer, 3)\n").replace("LinearLR(optimizer, 3)", "LinearLR(optimizer, 0.1, total_iters=0.5 * EPOCHS)").replace("0.1, total", "0.1, total") + "# LinearLR(optimizer, 3)"), "whole number"),
        (script("scheduler = LambdaLR(optimizer, lambda epoch: 0.9 ** epoch)\n"), "of whole epochs"),
        (script("scheduler = SequentialLR(optimizer, [LinearLR(optimizer), CosineAnnealingLR(optimizer, 4)], [2])\n"), "of whole epochs"),
        (script("scheduler = ChainedScheduler([StepLR(optimizer, 2), ExponentialLR(optimizer, 0.9)])\n"), "of whole epochs"),
        (script("class Own(lr_scheduler.LRScheduler):\n    def get_lr(self):\n        return [0.1 * 0.9 ** self.last_epoch]\nscheduler = Own(optimizer)\n"), "class of this project"),
        (script("scheduler = ExponentialLR(optimizer, -0.5)\n"), "no root"),
    ],
)  # fmt: skip
def test_refused(text: str, why: str):
    assert why in refused(text), refused(text)


def test_by_hand():
    loop = LOOP.replace(
        "    scheduler.step()",
        "    for group in optimizer.param_groups:\n        group['lr'] = 0.1 * 0.9 ** epoch",
    )
    assert "set by hand here" in refused(script("", loop))


# -------------------------------------------------------------------------------------------- units
def advice(text: str) -> str:
    made = apply(RULE, text)
    assert not made.fixes
    return made.advice


def test_epochs_that_are_counted_in_batches():
    text = script(loop=LOOP.replace(EACH, "        scheduler.step()"))
    assert (
        "`T_max=EPOCHS` is the number of epochs, but the step on line 24 of train.py is made in every iteration"
        in advice(text)
    )
    assert advice(text.replace("T_max=EPOCHS", "T_max=EPOCHS * len(loader)")) == ""


def test_batches_that_are_counted_in_epochs():
    one = "scheduler = lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, steps_per_epoch=len(loader), epochs=EPOCHS)\n"
    assert "once an epoch" in advice(script(one))
    assert advice(script(one).replace("    scheduler.step()", "        scheduler.step()")) == ""
    assert "once an epoch" in advice(
        script(
            one.replace(
                "steps_per_epoch=len(loader), epochs=EPOCHS", "total_steps=len(loader) * EPOCHS"
            )
        )
    )
    assert (
        advice(
            script(one.replace("steps_per_epoch=len(loader), epochs=EPOCHS", "total_steps=EPOCHS"))
        )
        == ""
    )


def test_a_horizon_in_batches_that_is_stepped_once_an_epoch():
    text = script("total = EPOCHS * len(loader)\n" + MADE.replace("T_max=EPOCHS", "T_max=total"))
    assert "`T_max=total` counts batches" in advice(text) and "counts batches already" in refused(
        text
    )


def test_the_plot_is_up_to_date():
    from scripts.schedule_plot import OUT, drawing

    assert OUT.read_text(encoding="utf-8") == drawing(), "run scripts/schedule_plot.py"


# ----------------------------------------------------------------- fixtures, beside all other rules
EPOCHS = {"cosine_schedule": 5}
MINE = [f for f in ALL if f.name in EPOCHS]
each_fixture = pytest.mark.parametrize("fixture", MINE, ids=lambda fixture: fixture.name)


def plan_for(fixture: Fixture, target: str = "cuda", names: tuple[str, ...] = ()) -> Plan:
    """With these rules, or with all that are on by default and this one."""
    return planned(
        script_of(fixture),
        target,
        Effect.RECIPE,
        names or [*(rule.name for rule in select()), RULE],
    )


@each_fixture
def test_a_fixture_has_the_rates_of_the_original_at_the_ends_of_epochs(fixture: Fixture):
    plan = plan_for(fixture, names=(RULE,))
    before, after = (
        rates_in(fixture.folder, {}, fixture.args),
        rates_in(fixture.folder, contents(plan), fixture.args),
    )
    assert difference(before, after, EPOCHS[fixture.name]) == "" and before != after


@each_fixture
@pytest.mark.parametrize("target", ["cuda", "cpu"])
def test_beside_all_other_rules(fixture: Fixture, target: str):
    """With all rules the rates are those of this rule alone, it comes to the same text in two
    steps, and a second time there is nothing to do.
    """
    whole = plan_for(fixture, target)
    assert RULE in whole.applied and len(whole.applied) > 2
    whole.check(lambda texts: reread(fixture, texts))
    others = sorted(whole.applied - {RULE})
    for first in ([RULE], others):
        start = whole.subset(_with_needs(whole, frozenset(first)))
        start.check(lambda texts: reread(fixture, texts))
        rest = sorted(whole.applied - start.applied)
        then = planned(reread(fixture, start.texts()), target, Effect.RECIPE, rest)
        assert text_difference(contents(whole), {**contents(start), **contents(then)}) == "", first
    alone = rates_in(fixture.folder, contents(whole.subset([RULE])), fixture.args)
    assert alone == rates_in(fixture.folder, contents(whole), fixture.args)


@pytest.mark.parametrize(
    "fixture",
    [f for f in ALL if f.name in EPOCHS or f.name == "scheduler_resume"],
    ids=lambda fixture: fixture.name,
)
@pytest.mark.parametrize("change", metamorphic.CHANGES, ids=lambda change: change.__name__)
def test_spelling_does_not_matter(fixture: Fixture, change: metamorphic.Change):
    sources = script_of(fixture).sources
    before, after = metamorphic.apply(change, {source.path: source.text for source in sources})

    def found(texts: Mapping[object, str]) -> list[tuple[str, str]]:
        overlay = {source.path: source.encode(texts[source.path]) for source in sources}
        plan = planned(
            read_script(fixture.entry, fixture.folder, overlay=overlay),
            "cuda",
            Effect.RECIPE,
            (RULE,),
        )
        return sorted((f.status, metamorphic.place(f.node)) for f in plan.findings)

    assert found(before) == found(after) != []
