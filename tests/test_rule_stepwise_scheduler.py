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
from tests.test_fixtures import _with_needs, contents, planned, reread, script_of
from tests.test_fixtures import difference as text_difference

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
        (
            "SequentialLR(optimizer, [LinearLR(optimizer, 0.1, total_iters=2), CosineAnnealingLR(optimizer, EPOCHS - 2)], milestones=[2])",
            "milestones=[2 * steps_per_epoch]",
        ),
        (
            "SequentialLR(optimizer, schedulers=[ConstantLR(optimizer, 0.1, 2), ExponentialLR(optimizer, 0.8), StepLR(optimizer, 1, 0.5)], milestones=[2, 4])",
            "milestones=[2 * steps_per_epoch, 4 * steps_per_epoch]",
        ),
        (
            "SequentialLR(optimizer, [LinearLR(optimizer), CosineAnnealingWarmRestarts(optimizer, 2)], [2])",
            "CosineAnnealingWarmRestarts(optimizer, 2 * steps_per_epoch)",
        ),
        (
            "SequentialLR(optimizer, [ExponentialLR(optimizer, 0.8), MultiStepLR(optimizer, [1, 2]), PolynomialLR(optimizer, 4)], [2, 4])",
            "MultiStepLR(optimizer, [1 * steps_per_epoch, 2 * steps_per_epoch])",
        ),
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


def test_children_in_variables():
    made = """
warmup = LinearLR(optimizer, start_factor=0.1, total_iters=2)
main = CosineAnnealingLR(optimizer, T_max=EPOCHS - 2)
scheduler = SequentialLR(optimizer, schedulers=[warmup, main], milestones=[2])
"""
    text = done(script(made)).text
    assert (
        "steps_per_epoch = len(loader)\nwarmup = LinearLR(optimizer, start_factor=0.1, total_iters=2 * steps_per_epoch)"
        in text
    )


def test_milestones_in_a_variable():
    made = "ends = [2, 4]\nscheduler = SequentialLR(optimizer, [ExponentialLR(optimizer, 0.9), LinearLR(optimizer), ConstantLR(optimizer)], ends)\n"
    assert "[epoch * steps_per_epoch for epoch in ends]" in done(script(made)).text


@pytest.mark.parametrize(
    "made",
    [
        "StepLR(optimizer, 2)",
        "MultiStepLR(optimizer, milestones=[2, 4])",
        "ConstantLR(optimizer)",
        "SequentialLR(optimizer, [ConstantLR(optimizer), StepLR(optimizer, 2)], [2])",
    ],
)
def test_pointless(made: str):
    assert "would give the same learning rates" in refused(script(f"scheduler = {made}\n"))


# --------------------------------------------------------------------------------- how many updates
def test_arms_of_a_condition():
    loop = LOOP.replace(
        "        loss.backward()\n        optimizer.step()",
        """        if scaler.is_enabled():
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()""",
    )
    text = done(script(MADE + 'scaler = torch.amp.GradScaler("cpu", enabled=False)\n', loop)).text
    assert "            optimizer.step()\n        scheduler.step()\n" in text


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


def test_through_functions():
    text = done(script("", FUNCTIONS)).text
    assert "def train(model, batches, optimizer, sched=None):" in text
    assert (
        "def update(loss, optimizer, sched=None):\n    loss.backward()\n    optimizer.step()\n    if sched is not None:\n        sched.step()\n"
        in text
    )
    assert "update(F.cross_entropy(model(x), y), optimizer, sched=sched)" in text
    assert "CosineAnnealingLR(opt, T_max=epochs * len(train_loader))" in text


def test_a_parameter_that_is_there():
    text = (
        FUNCTIONS.replace(
            "def update(loss, optimizer):", "def update(loss, optimizer, schedule=None):"
        )
        .replace("y), optimizer)", "y), optimizer, schedule)")
        .replace("batches, optimizer):", "batches, optimizer, schedule):")
        .replace("train_loader, opt)", "train_loader, opt, sched)")
    )
    made = done(script("", text))
    assert (
        "    optimizer.step()\n    schedule.step()\n" in made.text
        and "schedule=schedule" not in made.text
    )


def test_made_in_a_function_that_has_no_loader():
    text = FUNCTIONS.replace(
        "lr_scheduler.CosineAnnealingLR(opt, T_max=epochs)", "schedule(opt, epochs)"
    ).replace(
        "def main",
        "def schedule(optimizer, epochs):\n    return lr_scheduler.CosineAnnealingLR(optimizer, T_max=epochs)\n\ndef main",
    )
    text = done(script("", text)).text
    assert (
        "def schedule(optimizer, epochs, train_loader=None):" in text
        and "sched = schedule(opt, epochs, train_loader=train_loader)" in text
    )
    assert "CosineAnnealingLR(optimizer, T_max=epochs * len(train_loader))" in text


def test_globals():
    text = """
def train():
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

for epoch in range(EPOCHS):
    train()
    scheduler.step()
"""
    assert "        optimizer.step()\n        scheduler.step()\n" in done(script(loop=text)).text


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


def test_a_class():
    text = done(script("", TRAINER)).text
    assert "T_max=self.epochs * len(self.loader)" in text
    assert (
        "        self.opt.step()\n        if self.scheduler is not None:\n            self.scheduler.step()\n"
        in text
    )
    assert text.count("self.scheduler is not None") == 1


def test_a_class_that_makes_its_loader_later():
    text = script(
        "",
        TRAINER.replace("        self._data()\n", "").replace(
            "T_max=self.epochs)\n", "T_max=self.epochs)\n        self._data()\n"
        ),
    )
    assert "make it first" in refused(text)


def test_a_scheduler_made_in_another_method():
    text = TRAINER.replace(
        "        self.scheduler = lr_scheduler.CosineAnnealingLR(self.opt, T_max=self.epochs)\n",
        "        self.configure()\n\n    def configure(self):\n        self.scheduler = lr_scheduler.CosineAnnealingLR(self.opt, T_max=self.epochs)\n",
    )
    assert "T_max=self.epochs * len(self.loader)" in done(script("", text)).text


def test_one_loop_for_both_phases():
    loop = """
loaders = {"train": loader, "val": DataLoader(data, batch_size=4)}
scheduler = CosineAnnealingLR(optimizer, T_max=EPOCHS)
for epoch in range(EPOCHS):
    for phase in ["train", "val"]:
        for x, y in loaders[phase]:
            optimizer.zero_grad()
            with torch.set_grad_enabled(phase == "train"):
                loss = F.cross_entropy(model(x), y)
                if phase == "train":
                    loss.backward()
                    optimizer.step()
        if phase == "train":
            scheduler.step()
"""
    text = done(script("", loop)).text
    assert 'T_max=EPOCHS * len(loaders["train"])' in text


def test_one_of_several_schedulers():
    made = """
import sys
kind = sys.argv[-1]
if kind == "steps":
    scheduler = StepLR(optimizer, step_size=2)
else:
    scheduler = CosineAnnealingLR(optimizer, T_max=EPOCHS)
"""
    text = done(script(made)).text
    assert (
        "StepLR(optimizer, step_size=2 * steps_per_epoch)" in text
        and "T_max=EPOCHS * steps_per_epoch" in text
    )
    assert "steps_per_epoch = len(loader)\nif kind" in text


def test_none_of_several_schedulers():
    made = """
import sys
kind = sys.argv[-1]
if kind == "none":
    scheduler = None
elif kind == "powers":
    scheduler = ExponentialLR(optimizer, 0.9)
else:
    scheduler = CosineAnnealingLR(optimizer, T_max=EPOCHS)
"""
    loop = LOOP.replace("    scheduler.step()", "    if scheduler:\n        scheduler.step()")
    text = done(script(made, loop)).text
    assert (
        "steps_per_epoch = len(loader)\nif kind" in text
        and "        if scheduler is not None:\n            scheduler.step()" in text
    )


REFERENCE = """
import sys

def train(model, optimizer, lr_schedule=None):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x), y).backward()
        optimizer.step()

def main(kind, warm):
    if kind == "steps":
        main = StepLR(optimizer, 2, 0.5)
    elif kind == "cosine":
        main = CosineAnnealingLR(optimizer, T_max=EPOCHS - warm, eta_min=1e-3)
    else:
        main = ExponentialLR(optimizer, 0.8)
    if warm:
        if kind == "steps":
            first = LinearLR(optimizer, 0.1, total_iters=warm)
        else:
            first = ConstantLR(optimizer, 0.1, total_iters=warm)
        lr_schedule = SequentialLR(optimizer, [first, main], milestones=[warm])
    else:
        lr_schedule = main
    for epoch in range(EPOCHS):
        train(model, optimizer)
        lr_schedule.step()

main(KIND, WARM)
"""


@pytest.mark.parametrize(
    ("kind", "warm"), [("steps", 2), ("cosine", 2), ("power", 3), ("cosine", 0), ("power", 0)]
)
def test_a_choice_of_schedulers_alone_or_after_a_warm_up(kind: str, warm: int):
    """As in torchvision's reference scripts; the training function has something else under the
    name of the scheduler.
    """
    made = apply(
        RULE,
        script("", REFERENCE.replace("KIND", "sys.argv[1]").replace("WARM", "int(sys.argv[2])")),
    )
    old, new = (
        t.replace("sys.argv[1]", repr(kind)).replace("int(sys.argv[2])", str(warm))
        for t in (made.before, made.text)
    )
    assert (
        made.fixes and "def train(model, optimizer, lr_schedule=None, scheduler=None):" in made.text
    )
    before, after = rates_of(old), rates_of(new)
    assert difference(before, after, 6) == "" and before != after


def test_two_schedulers_on_one_way():
    text = """
def train(net, loader, a, b):
    for x, y in loader:
        for optimizer in (a, b):
            optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        a.step()
        b.step()

def schedule(optimizer, epochs):
    return CosineAnnealingLR(optimizer, T_max=epochs)

def main(epochs):
    batches = DataLoader(data, batch_size=8)
    a = torch.optim.SGD([model.weight], lr=0.1)
    b = torch.optim.SGD([model.bias], lr=0.2)
    first = schedule(a, epochs)
    second = CosineAnnealingLR(b, T_max=epochs)
    for epoch in range(epochs):
        train(model, batches, a, b)
        first.step()
        second.step()

main(EPOCHS)
"""
    made = done(script("", text))
    assert "def train(net, loader, a, b, first=None, second=None):" in made.text
    assert (
        "        a.step()\n        if first is not None:\n            first.step()\n        b.step()\n        if second is not None:\n            second.step()\n"
        in made.text
    )


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


def test_in_other_files():
    engine = """
    import torch.nn.functional as F

    def train(model, loader, optimizer):
        for x, y in loader:
            optimizer.zero_grad()
            F.cross_entropy(model(x), y).backward()
            optimizer.step()
    """
    build = """
    from torch.optim.lr_scheduler import CosineAnnealingLR

    def make(optimizer, epochs):
        return CosineAnnealingLR(optimizer, T_max=epochs)
    """
    loop = (
        "\nfor epoch in range(EPOCHS):\n    train(model, loader, optimizer)\n    scheduler.step()\n"
    )
    made = done(
        script(
            "from engine import train\nfrom build import make\nscheduler = make(optimizer, EPOCHS)\n",
            loop,
        ),
        engine=engine,
        build=build,
    )
    assert "def train(model, loader, optimizer, scheduler=None):" in made.texts["engine.py"]
    assert "scheduler.step()" in made.texts["engine.py"] and "scheduler.step()" not in made.text
    assert (
        "T_max=epochs * len(loader)" in made.texts["build.py"]
        and "make(optimizer, EPOCHS, loader=loader)" in made.text
    )


def test_what_is_shown_before_the_step():
    text = script(
        loop=LOOP.replace(
            "    scheduler.step()",
            "    print(optimizer.param_groups[0]['lr'])\n    scheduler.step()\n    print(scheduler.get_last_lr())",
        )
    )
    assert "shows is then the next epoch's" in done(text).fixes[0].message


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
        (changed("        optimizer.step()", "        if loss < 9:\n            optimizer.step()"), "condition"),
        (changed("for x, y in loader:", "for i, (x, y) in enumerate(loader):").replace("        optimizer.step()", "        if (i + 1) % 3 == 0:\n            optimizer.step()"), "not after every batch"),
        (changed("        optimizer.step()", "        try:\n            optimizer.step()\n        except RuntimeError:\n            pass"), "how often"),
        (changed("        optimizer.step()", "        for _ in range(2):\n            optimizer.step()"), "batch"),
        (changed("        optimizer.step()", "        optimizer.step()\n        loss.backward()\n        optimizer.step()"), "several times"),
        (changed(EACH, "    if epoch > 2:\n        scheduler.step()"), "depends on a condition"),
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
        (changed("    for x, y in loader:", "    for _ in range(2):\n     for x, y in loader:").replace("        optimizer.zero", "         optimizer.zero").replace("        loss", "         loss").replace("        optimizer.step", "         optimizer.step"), "is repeated"),
        (changed(MADE, MADE + "optimizer.step()\n"), "outside the epochs"),
        (changed("LinearLR(optimizer, 3)", "x", script("scheduler = LinearLR(optimizer, 3)\n").replace("LinearLR(optimizer, 3)", "LinearLR(optimizer, 0.1, total_iters=0.5 * EPOCHS)").replace("0.1, total", "0.1, total") + "# LinearLR(optimizer, 3)"), "whole number"),
        (script("scheduler = LambdaLR(optimizer, lambda epoch: 0.9 ** epoch)\n"), "made for whole epochs"),
        (script("scheduler = SequentialLR(optimizer, [LinearLR(optimizer), MultiplicativeLR(optimizer, lambda e: 0.9)], [2])\n"), "made for whole epochs"),
        (script("scheduler = ChainedScheduler([StepLR(optimizer, 2), ExponentialLR(optimizer, 0.9)])\n"), "combine to other rates"),
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
EPOCHS = {"warmup_cosine": 5, "scheduled_trainer": 3, "scheduled_files": 4}
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


@pytest.mark.parametrize("choice", ["restarts", "steps"])
def test_every_choice_of_a_schedule(choice: str):
    fixture = next(f for f in MINE if f.name == "scheduled_files")
    args = ("--schedule", choice)
    before, after = (
        rates_in(fixture.folder, {}, args),
        rates_in(fixture.folder, contents(plan_for(fixture, names=(RULE,))), args),
    )
    assert difference(before, after, 4) == "" and (before == after) == (choice == "steps")


def test_no_schedule():
    fixture = next(f for f in MINE if f.name == "scheduled_trainer")
    args = ("--gamma", "1")
    assert rates_in(fixture.folder, {}, args) == rates_in(
        fixture.folder, contents(plan_for(fixture, names=(RULE,))), args
    )


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
