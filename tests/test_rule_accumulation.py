"""accumulation: the gradients of every update are those of one batch with all samples of the
window, and all that goes with an update goes with it.

Gradients and learning rates of every single update are compared, in double precision, with those of
the original: with batches N times as large, or, with ``--keep-batch``, with the very same ones.
"""

from __future__ import annotations

import ast
import tempfile
import textwrap
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from autofast.edit.plan import Plan
from autofast.read import read_script
from autofast.registry import all_rules
from autofast.rule import Effect, Options
from tests import metamorphic
from tests.fixture import ALL, Fixture
from tests.harness import HARNESS, HAVE_TORCH, Job
from tests.onerule import Applied
from tests.torchrun import torchrun
from tests.updates import difference, updates_of

pytestmark = pytest.mark.skipif(not HAVE_TORCH, reason="the scripts are executed")

RULE = "accumulation"
HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.optim import lr_scheduler
from torch.utils.data import DataLoader, TensorDataset

torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
EPOCHS = 2
BATCH = 4
data = TensorDataset(torch.randn(22, 3), torch.randint(0, 2, (22,)))
loader = DataLoader(data, batch_size=BATCH, shuffle=True)
model = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
criterion = nn.CrossEntropyLoss()
torch.manual_seed(1)
"""
LOOP = """
for epoch in range(EPOCHS):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
"""


def apply(
    text: str,
    steps: int = 3,
    *,
    keep: bool = False,
    rules: str = RULE,
    files: Mapping[str, str] | None = None,
) -> Applied:
    """What ``rules`` do to ``text`` beside ``files``, held to the post-conditions: the output gives
    no further fix.
    """
    names = rules.split()
    chosen = [all_rules()[name] for name in names]
    options = Options(accumulate=steps, keep_batch=keep, asked=frozenset(names))
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, content in {**(files or {}), "train.py": text}.items():
            (root / name).write_text(textwrap.dedent(content).lstrip("\n"), "utf-8")
        text = (root / "train.py").read_text("utf-8")
        entry = root / "train.py"
        plan = Plan.make(read_script(entry, root), options, chosen, Effect.RECIPE)
        plan.check(
            reread=lambda texts: read_script(
                entry, root, overlay={s.path: s.encode(t) for s, t in texts.items()}
            )
        )
        new = {source.rel: made for source, made in plan.texts().items()}
        return Applied(tuple(plan.findings), {"train.py": text, **new}, text)


def larger(text: str, steps: int) -> str:
    """The same script with batches ``steps`` times as large."""
    assert "BATCH = 4" in text
    return text.replace("BATCH = 4", f"BATCH = {4 * steps}")


def done(
    loop: str,
    *,
    head: str = HEAD,
    steps: tuple[int, ...] = (3,),
    grow: bool = True,
    keep: bool = True,
) -> str:
    """Every update is that of the large batch, without and with ``--keep-batch``; the text for two
    batches.
    """
    text = head + loop
    shown = ""
    for number in steps if grow else ():
        made = apply(text, number)
        assert [f.status for f in made.findings] == ["fix"] * len(made.findings) and made.fixes, (
            made.refusals
        )
        assert difference(updates_of(larger(text, number))[0], updates_of(made.text)[0]) == "", (
            made.text
        )
        shown = shown or made.text
    for number in (2,) if keep else ():
        made = apply(text, number, keep=True)
        assert made.fixes and not made.refusals, made.refusals
        assert difference(updates_of(text)[0], updates_of(made.text)[0]) == "", made.text
        shown = shown or made.text
    return shown


def refused(loop: str, *, head: str = HEAD, keep: bool = False, steps: int = 2) -> str:
    made = apply(head + loop, steps, keep=keep)
    assert not made.fixes and made.text == made.before, made.text
    return made.refusals


# ----------------------------------------------------------------------------------- the plain loop
def test_a_loop():
    text = done(LOOP, steps=(2, 3, 5, 9))
    assert "ACCUMULATION_STEPS = 2\n" in text
    wanted = """
    optimizer.zero_grad()
    for step, (x, y) in enumerate(loader):
        loss = criterion(model(x), y)
        (loss * share_of_window(loader, step, ACCUMULATION_STEPS)).backward()
        if (step + 1) % ACCUMULATION_STEPS == 0 or step + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
"""
    assert wanted in text, text


def test_a_window_is_no_mean_of_means():
    """The comparison above can fail: without the share of the last batch, or with the full divisor
    in a short window, it does.
    """
    text = HEAD + LOOP
    made = apply(text, 3).text
    for wrong in ("(loss / ACCUMULATION_STEPS)", "(loss / min(3, len(loader) - step + step % 3))"):
        other = made.replace("(loss * share_of_window(loader, step, ACCUMULATION_STEPS))", wrong)
        assert other != made
        assert "gradients of update" in difference(
            updates_of(larger(text, 3))[0], updates_of(other)[0]
        )


@pytest.mark.parametrize("size", [1, 3, 4, 5, 8, 11, 12, 13, 22])
def test_every_size(size: int):
    """Last batches and last windows of every kind, also a data set that is smaller than a batch."""
    done(LOOP, head=HEAD.replace("22", str(size)), steps=(2, 3, 4))


@pytest.mark.parametrize("size", [4, 7, 8, 19, 20, 21, 23])
def test_keep_batch_leaves_out_what_the_loader_left_out(size: int):
    head = HEAD.replace("22", str(size)).replace("shuffle=True", "shuffle=True, drop_last=True")
    text = done(LOOP, head=head, grow=False)
    assert "== len(loader)" not in text
    after = LOOP.replace("        optimizer.zero_grad()\n", "") + "        optimizer.zero_grad()\n"
    text = done(after, head=head, grow=False)
    assert "    optimizer.zero_grad()\n    for step, (x, y) in enumerate(loader):" in text


@pytest.mark.parametrize("size", [19, 20, 23])
def test_drop_last_with_larger_windows(size: int):
    """The windows go over the batches that the loader has: 4 or 5 of 4 samples."""
    kept = size // 4 * 4
    head = HEAD.replace("22", str(size)).replace("shuffle=True", "drop_last=True")
    made = apply(head + LOOP, 3)
    whole = head.replace(", drop_last=True", "").replace(
        "DataLoader(data", f"DataLoader(torch.utils.data.Subset(data, range({kept}))"
    )
    assert difference(updates_of(larger(whole + LOOP, 3))[0], updates_of(made.text)[0]) == "", (
        made.text
    )


@pytest.mark.parametrize(
    "sampler",
    [
        "torch.utils.data.WeightedRandomSampler(torch.ones(22), 18)",
        "torch.utils.data.RandomSampler(data, replacement=True, num_samples=30)",
        "torch.utils.data.SubsetRandomSampler(range(13))",
        "torch.utils.data.DistributedSampler(data, 2, 0)",
    ],
)
def test_samplers_of_torch(sampler: str):
    done(LOOP, head=HEAD.replace("shuffle=True", f"sampler={sampler}"))


def test_batches_made_by_a_sampler_of_batches():
    made = "batch_size=None, sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), BATCH, False)"
    done(LOOP, head=HEAD.replace("batch_size=BATCH, shuffle=True", made))
    made = "batch_sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), BATCH, False)"
    done(LOOP, head=HEAD.replace("batch_size=BATCH, shuffle=True", made), keep=False)


@pytest.mark.parametrize(
    ("head", "counter"),
    [
        ("for i, (x, y) in enumerate(loader):", "i + 1"),
        ("for i, (x, y) in enumerate(loader, 1):", "i"),
        ("for number, (x, y) in enumerate(loader, start=1):", "number"),
        ("for i, (x, y) in enumerate(tqdm(loader, disable=True)):", "i + 1"),
        ("for x, y in tqdm(loader, disable=True):", "step + 1"),
        ("for step, (x, y) in tqdm(enumerate(loader), disable=True):", "step + 1"),
        ("for _, (x, y) in enumerate(loader):", "step + 1"),
    ],
)
def test_heads(head: str, counter: str):
    text = done("from tqdm import tqdm\n" + LOOP.replace("for x, y in loader:", head))
    assert f"{counter} == len(loader):" in text


def test_a_progress_bar_in_a_variable():
    loop = LOOP.replace(
        "    for x, y in loader:", "    bar = tqdm(loader, disable=True)\n    for x, y in bar:"
    )
    text = done("from tqdm import tqdm\n" + loop + "        bar.set_postfix(loss=loss.item())\n")
    assert "enumerate(bar)" in text and "bar.set_postfix(loss=loss.item())" in text


def test_a_counter_that_is_used_for_something_else():
    loop = LOOP.replace(
        "for x, y in loader:", "for i, (x, y) in enumerate(loader):\n        i = 2 * i"
    )
    assert "for step, (i, (x, y)) in enumerate(enumerate(loader)):" in done(loop)


def test_a_counter_whose_name_the_batch_takes():
    loop = LOOP.replace("for x, y in loader:", "for y, (x, y) in enumerate(loader):")
    assert "for step, (y, (x, y)) in enumerate(enumerate(loader)):" in done(loop)


def test_what_is_logged_stays_what_it_was():
    loop = LOOP + "        print(loss.item(), len(x))\n    print(epoch)\n"
    text = done(loop)
    assert "print(loss.item(), len(x))" in text


# ------------------------------------------------------------------------ what goes with the update
def test_cleared_after_the_update():
    loop = (
        LOOP.replace("        optimizer.zero_grad()\n", "")
        + "        print(loss.item())\n        optimizer.zero_grad(set_to_none=False)\n"
    )
    text = done(loop)
    assert text.count("if (step + 1) % ACCUMULATION_STEPS == 0 or step + 1 == len(loader):") == 2
    assert text.count("optimizer.zero_grad") == 1


def test_cleared_through_the_model_between_forward_and_backward():
    loop = LOOP.replace("        optimizer.zero_grad()\n", "").replace(
        "        loss.backward()", "        model.zero_grad()\n        loss.backward()"
    )
    assert "optimizer.step()\n            model.zero_grad()" in done(loop)


def test_clipping():
    loop = LOOP.replace(
        "        optimizer.step()",
        "        nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n        optimizer.step()",
    )
    assert "            nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n" in done(loop)


@pytest.mark.parametrize("keep", [False, True])
@pytest.mark.parametrize(
    "made",
    [
        "lr_scheduler.StepLR(optimizer, 3)",
        "lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS * len(loader))",
        "lr_scheduler.LambdaLR(optimizer, lambda step: min(1, (step + 1) / 4))",
    ],
)
def test_schedulers_that_count_batches(made: str, keep: bool):
    loop = f"scheduler = {made}\n" + LOOP + "        scheduler.step()\n"
    assert "counts batches" in refused(loop, keep=keep)


def test_schedulers_of_epochs():
    done("scheduler = lr_scheduler.StepLR(optimizer, 1)\n" + LOOP + "    scheduler.step()\n")


def test_a_scheduler_that_is_told_where_it_is():
    loop = LOOP.replace("for x, y in loader:", "for i, (x, y) in enumerate(loader):")
    loop = (
        "scheduler = lr_scheduler.CosineAnnealingWarmRestarts(optimizer, 1)\n"
        + loop
        + "        scheduler.step(epoch + i / len(loader))\n"
    )
    assert "            scheduler.step(epoch + i / len(loader))" in apply(HEAD + loop, 2).text


AMP = """
scaler = torch.amp.GradScaler("cuda", enabled=False)
for epoch in range(EPOCHS):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", enabled=False):
            loss = criterion(model(x), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        nn.utils.clip_grad_norm_(model.parameters(), 0.1)
        scaler.step(optimizer)
        scaler.update()
"""


def test_a_scaler():
    text = done(AMP)
    assert (
        "scaler.scale(loss*share_of_window(loader,step,ACCUMULATION_STEPS)).backward()"
        in "".join(text.split())
    )
    body = text[text.index("if (step + 1)") :].splitlines()[1:]
    assert [line.strip() for line in body] == [
        "scaler.unscale_(optimizer)",
        "nn.utils.clip_grad_norm_(model.parameters(), 0.1)",
        "scaler.step(optimizer)",
        "scaler.update()",
        "optimizer.zero_grad()",
    ]


def test_two_ways_by_an_option():
    loop = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
args = parser.parse_args(ARGS)
scaler = torch.amp.GradScaler("cuda", enabled=False)
for epoch in range(EPOCHS):
    for x, y in loader:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        if args.amp:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        else:
            loss.backward()
            optimizer.step()
"""
    for given in ("[]", '["--amp"]'):
        done(loop.replace("ARGS", given))


def test_averages_of_the_weights():
    loop = """
import copy
average = copy.deepcopy(model)
swa = torch.optim.swa_utils.AveragedModel(model)
class EMA:
    def __init__(self, model):
        self.module = copy.deepcopy(model)
    def update(self, model):
        with torch.no_grad():
            for e, p in zip(self.module.parameters(), model.parameters()):
                e.copy_(0.9 * e + 0.1 * p)
ema = EMA(model)
"""
    loop += (
        LOOP
        + "        ema.update(model)\n        swa.update_parameters(model)\n        with torch.no_grad():\n"
    )
    loop += "            for a, p in zip(average.parameters(), model.parameters()):\n                a.mul_(0.9).add_(p, alpha=0.1)\n"
    done(loop)
    _, old = updates_of(HEAD + loop)
    _, new = updates_of(apply(HEAD + loop, 2, keep=True).text)
    for name in ("average", "swa"):
        for a, b in zip(old[name].parameters(), new[name].parameters(), strict=True):
            assert abs(a - b).max() < 1e-9
    assert old["swa"].n_averaged == new["swa"].n_averaged == 12


SHADOW = """
class Average:
    def __init__(self, model):
        self.model = model
        self.shadow = {n: p.data.clone() for n, p in model.named_parameters()}
    def update(self):
        with torch.no_grad():
            for n, p in self.model.named_parameters():
                UPDATE
average = Average(model)
"""


@pytest.mark.parametrize(
    "update",
    [
        "self.shadow[n] = 0.9 * self.shadow[n] + 0.1 * p.data",
        "new = 0.9 * self.shadow[n] + 0.1 * p.detach(); self.shadow[n] = new.clone()",
        "self.shadow[n].mul_(0.9).add_(p.data, alpha=0.1)",
    ],
)
def test_averages_that_are_kept_beside_the_model(update: str):
    loop = SHADOW.replace("UPDATE", update) + LOOP + "        average.update()\n"
    loop += "shadow = list(average.shadow.values())\n"
    made = apply(HEAD + loop, 2, keep=True)
    assert made.fixes, made.refusals
    old, new = updates_of(HEAD + loop)[1]["shadow"], updates_of(made.text)[1]["shadow"]
    assert all(abs(a - b).max() < 1e-9 for a, b in zip(old, new, strict=True))


def test_an_average_in_a_variable():
    line = "average = [0.9 * a + 0.1 * p.data for a, p in zip(average, model.parameters())]"
    start = "average = [p.data.clone() for p in model.parameters()]\n"
    assert "keeps an average of parameters" in refused(f"{start}{LOOP}        {line}\n")


@pytest.mark.parametrize(
    ("made", "call"),
    [
        (
            "from timm.utils import ModelEmaV2\nema = ModelEmaV2(model, decay=0.9)\n",
            "ema.update(model)",
        ),
        (
            "from torch_ema import ExponentialMovingAverage\nema = ExponentialMovingAverage(model.parameters(), decay=0.9)\n",
            "ema.update()",
        ),
    ],
)
def test_averages_of_libraries(made: str, call: str):
    text = apply(HEAD + made + LOOP + f"        {call}\n", 2).text
    assert (
        f"            optimizer.step()\n            {call}\n            optimizer.zero_grad()"
        in text
    )


def test_what_a_library_does_with_the_model():
    loop = "from somewhere import follow\n" + LOOP + "        follow(model)\n"
    assert "with the model or the optimizer after each batch is not known" in refused(loop)
    apply(HEAD + loop.replace("follow(model)", "follow(loss.item())"), 2)


def test_two_optimizers_of_one_loss():
    loop = """
first, second = nn.Linear(3, 4), nn.Linear(4, 2)
optimizers = [torch.optim.Adam(first.parameters()), torch.optim.SGD(second.parameters(), lr=0.1)]
for epoch in range(EPOCHS):
    for x, y in loader:
        for o in optimizers:
            o.zero_grad()
        criterion(second(first(x)), y).backward()
        for o in optimizers:
            o.step()
"""
    done(loop)


def test_two_trainings_in_one_loop():
    """Each optimizer has a window of its own, with the same ends."""
    loop = """
first, second = nn.Linear(3, 2), nn.Linear(3, 2)
o1, o2 = torch.optim.Adam(first.parameters()), torch.optim.SGD(second.parameters(), lr=0.1)
for epoch in range(EPOCHS):
    for x, y in loader:
        o1.zero_grad()
        loss1 = criterion(first(x), y)
        loss1.backward()
        o1.step()
        o2.zero_grad()
        loss2 = F.mse_loss(second(x)[:, 0], y.double(), reduction="sum")
        loss2.backward()
        o2.step()
"""
    text = done(loop)
    assert "        loss2.backward()" in text


def test_one_optimizer_behind_an_option():
    loop = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--two", action="store_true")
args = parser.parse_args(ARGS)
first, second = nn.Linear(3, 4), nn.Linear(4, 2)
o1, o2 = torch.optim.Adam(first.parameters()), torch.optim.SGD(second.parameters(), lr=0.1)
for epoch in range(EPOCHS):
    for x, y in loader:
        o1.zero_grad()
        if args.two:
            o2.zero_grad()
        criterion(second(first(x)), y).backward()
        o1.step()
        if args.two:
            o2.step()
"""
    for given in ("[]", '["--two"]'):
        done(loop.replace("ARGS", given))


# ------------------------------------------------------------------------ functions, classes, files
STEP = """
def train_step(x, y):
    optimizer.zero_grad()
    loss = criterion(model(x), y)
    loss.backward()
    optimizer.step()
    return loss.item()

def train(epochs):
    for epoch in range(epochs):
        for x, y in loader:
            print(train_step(x, y))

train(EPOCHS)
"""


def test_a_function_that_makes_the_step():
    text = done(STEP)
    assert "def train_step(x, y, is_update=True, share=1.0):" in text
    assert "print(train_step(x, y, is_update=is_update, share=share))" in text
    assert (
        "    (loss * share).backward()\n    if is_update:\n        optimizer.step()\n        optimizer.zero_grad()\n    return loss.item()"
        in text
    )


def test_a_function_that_is_called_elsewhere_too():
    assert "is also called on line" in refused(STEP + "train_step(data[:4][0], data[:4][1])\n")


def test_gradients_that_are_left_before_the_first_window():
    loop = "criterion(model(data[:4][0]), data[:4][1]).backward()\n" + STEP
    assert "may be left when the first window begins" in refused(loop)
    text = HEAD + "criterion(model(data[:4][0]), data[:4][1]).backward()\n" + LOOP
    assert difference(updates_of(larger(text, 2))[0], updates_of(apply(text, 2).text)[0]) == ""


TRAINER = """
class Trainer:
    def __init__(self, net, loader):
        self.net, self.loader = net, loader
        self.optim = torch.optim.AdamW(net.parameters(), lr=1e-2)
        self.sched = lr_scheduler.CosineAnnealingLR(self.optim, EPOCHS)

    def update(self):
        nn.utils.clip_grad_norm_(self.net.parameters(), 1.0)
        self.optim.step()
        self.optim.zero_grad()

    def loss(self, x, y):
        return F.mse_loss(self.net(x)[:, 0], y.double())

    def fit(self):
        for _ in range(EPOCHS):
            self.net.train()
            for batch in self.loader:
                x, y = [t.to("cpu") for t in batch]
                loss = self.loss(x, y)
                loss.backward()
                self.update()
            self.sched.step()

Trainer(model, loader).fit()
"""


def test_a_method_that_does_the_update():
    text = done(TRAINER)
    assert (
        "if (step + 1) % ACCUMULATION_STEPS == 0 or step + 1 == len(self.loader):\n                    self.update()"
        in text
    )
    assert "def update(self):" in text


def test_a_method_that_does_the_update_and_something_else():
    """What it counts is counted for every batch, as it was."""
    text = TRAINER.replace(
        "        self.optim.zero_grad()\n",
        "        self.optim.zero_grad()\n        self.seen += 1\n",
    ).replace("        self.optim = torch", "        self.seen = 0\n        self.optim = torch")
    made = done(text + "seen = 0\n")
    assert "def update(self, is_update=True):" in made and "\n        self.seen += 1" in made


def test_several_files():
    engine = """
    import torch.nn.functional as F

    def fit(model, loader, optimizer, epochs):
        for epoch in range(epochs):
            for x, y in loader:
                optimizer.zero_grad()
                update(F.cross_entropy(model(x), y), optimizer)

    def update(loss, optimizer):
        loss.backward()
        optimizer.step()
    """
    text = HEAD + "from engine import fit\nfit(model, loader, optimizer, EPOCHS)\n"
    made = apply(text, 2, keep=True, files={"engine.py": engine})
    assert "batch_size=BATCH // 2" in made.text and "ACCUMULATION_STEPS" not in made.text
    assert "ACCUMULATION_STEPS = 2" in made.texts["engine.py"]
    with tempfile.TemporaryDirectory() as folder:
        import sys

        results = []
        for content in (textwrap.dedent(engine), made.texts["engine.py"]):
            (Path(folder) / "engine.py").write_text(content)
            sys.path.insert(0, folder)
            sys.dont_write_bytecode, before = True, sys.dont_write_bytecode
            try:
                results.append(
                    updates_of(text if content is not made.texts["engine.py"] else made.text)[0]
                )
            finally:
                sys.path.remove(folder)
                sys.modules.pop("engine", None)
                sys.dont_write_bytecode = before
        assert difference(*results) == ""


def test_a_loop_for_training_and_evaluation():
    loop = """
def run_epoch(model, loader, optimizer=None):
    for x, y in loader:
        loss = criterion(model(x), y)
        if optimizer is not None:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

for epoch in range(EPOCHS):
    run_epoch(model, loader, optimizer)
    run_epoch(model, DataLoader(data, batch_size=8))
"""
    done(loop)


def test_an_option_that_ends_the_loop_early():
    """``--dry-run``: every batch is a window then, so that the one that is trained on makes an
    update.
    """
    loop = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--dry-run", action="store_true")
args = parser.parse_args(ARGS)
""" + LOOP.replace("for x, y in loader:", "for i, (x, y) in enumerate(loader):")
    loop += "        if i % 2 == 0:\n            print(loss.item())\n            if args.dry_run:\n                break\n"
    assert "accumulation_steps = 1 if args.dry_run else ACCUMULATION_STEPS" in done(
        loop.replace("ARGS", "[]")
    )
    dry = HEAD + loop.replace("ARGS", '["--dry-run"]')
    assert difference(updates_of(dry)[0], updates_of(apply(dry, 4).text)[0]) == ""


# ------------------------------------------------------------------------------------------- losses
@pytest.mark.parametrize(
    "loss",
    [
        "F.cross_entropy(model(x), y, reduction='sum')",
        "F.cross_entropy(model(x), y, reduction='sum') / x.size(0)",
        "F.cross_entropy(model(x), y, reduction='sum') / len(y)",
        "F.cross_entropy(model(x), y, reduction='none').mean()",
        "F.cross_entropy(model(x), y, label_smoothing=0.1)",
        "F.nll_loss(F.log_softmax(model(x), dim=1), y)",
        "nn.MSELoss()(model(x)[:, 0], y.double())",
        "nn.BCEWithLogitsLoss(pos_weight=torch.tensor(3.0))(model(x)[:, :1], y.double().unsqueeze(1))",
        "0.5 * criterion(model(x), y) + 0.1 * model(x).pow(2).sum(dim=1).mean()",
        "criterion(model(x), y) + 1e-2 * sum(p.pow(2).sum() for p in model.parameters())",
        "(model(x)[:, 0] - y).abs().mean()",
        "torch.mean((model(x).view(-1, 2)[:, 0] - y.view(-1)) ** 2)",
        "F.smooth_l1_loss(model(x.view(x.shape[0], -1))[:, 0], y.double(), beta=0.5)",
        "sum([criterion(model(x), y), F.mse_loss(model(x)[:, 1], y.double())])",
    ],
)
def test_means_and_sums(loss: str):
    done(LOOP.replace("criterion(model(x), y)", loss), steps=(3,))


def test_a_loss_in_steps():
    loop = LOOP.replace(
        "        loss.backward()",
        "        other = model(x)\n        loss = loss / 2\n        loss += 0.1 * other.pow(2).mean()\n        if EPOCHS > 1:\n"
        "            loss = loss + F.l1_loss(other[:, 0], y.double())\n        loss.backward()",
    )
    done(loop, steps=(3,))


def test_a_model_that_returns_its_loss():
    loop = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.two = nn.Linear(3, 8), nn.Linear(8, 2)
    def forward(self, x, targets=None):
        for layer in (self.one,):
            x = torch.tanh(layer(x))
        logits = self.two(x)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))
net = Net()
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
""" + LOOP.replace("loss = criterion(model(x), y)", "_, loss = net(x, y)")
    done(loop, steps=(3,))


def test_a_variational_autoencoder():
    loop = """
class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.enc, self.mu, self.lv, self.dec = nn.Linear(3, 4), nn.Linear(4, 2), nn.Linear(4, 2), nn.Linear(2, 3)
    def encode(self, x):
        h = F.relu(self.enc(x))
        return self.mu(h), self.lv(h)
    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        return mu + std * 0.1
    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 3))
        return torch.sigmoid(self.dec(self.reparameterize(mu, logvar))), mu, logvar

def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, torch.sigmoid(x).view(-1, 3), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD

vae = VAE()
optimizer = torch.optim.Adam(vae.parameters())
for epoch in range(EPOCHS):
    for i, (x, _) in enumerate(loader):
        optimizer.zero_grad()
        recon, mu, logvar = vae(x)
        loss = loss_function(recon, x, mu, logvar)
        loss.backward()
        optimizer.step()
        if i % 3 == 0:
            print(loss.item() / len(x))
"""
    text = done(loop)
    assert "share_of_window" not in text and "        loss.backward()" in text


@pytest.mark.parametrize(
    ("loss", "why"),
    [
        ("F.cross_entropy(model(x), y, ignore_index=1)", "`ignore_index`"),
        ("F.cross_entropy(model(x), torch.where(y > 0, y, -100))", "targets of -100"),
        ("nn.CrossEntropyLoss(weight=torch.tensor([1.0, 2.0]))(model(x), y)", "`weight`"),
        ("torch.sqrt(F.mse_loss(model(x)[:, 0], y.double()))", "torch.sqrt"),
        ("F.cross_entropy(model(x) @ model(x).t(), torch.arange(len(x)))", "model(x).t()"),
        ("F.mse_loss(model(x)[y > 0], x[y > 0][:, :2])", "model(x)[y > 0]"),
        ("(F.cross_entropy(model(x), y, reduction='none') * y).sum() / y.sum()", "is not known"),
        ("(model(x) - model(x).mean(0)).pow(2).mean()", "goes over the samples"),
        ("(model(x)[:, 0].unsqueeze(1) - model(x)[:, 0]).pow(2).mean()", "is not known"),
        ("(model(x)[:, 0][:, None] - y).pow(2).mean()", "is not known"),
        ("model(x).max()", "is not known"),
        ("torch.logsumexp(model(x), dim=0).sum()", "goes over the samples"),
        ("model(x).softmax(0).sum()", "goes over the samples"),
        (
            "criterion(model(x), y) + F.mse_loss(model(x)[:, 0], y.double(), reduction='sum')",
            "adds a sum",
        ),
        ("F.cross_entropy(model(x), y, reduction='sum') / BATCH", "is divided by a number"),
        ("criterion(model(x), y) * criterion(model(x), y)", "is not known"),
        ("criterion(model(x[torch.randperm(len(x))]), y)", "is not known"),
        ("model(x).view(1, -1).sum(1).mean()", "keeps the samples apart"),
        ("torch.cdist(model(x), model(x)).mean()", "is not known"),
        ("model(x)", "neither a mean nor a sum"),
    ],
)
def test_losses_that_are_neither(loss: str, why: str):
    assert why in refused(LOOP.replace("criterion(model(x), y)", loss))


def test_targets_that_are_left_out():
    assert "targets of -100" in refused("data.tensors[1][3] = -100\n" + LOOP)


def test_a_contrastive_loss_in_a_module():
    loop = """
class InfoNCE(nn.Module):
    def forward(self, f):
        return F.cross_entropy(f @ f.T, torch.arange(f.size(0)))
nce = InfoNCE()
""" + LOOP.replace("criterion(model(x), y)", "nce(model(x))")
    assert "f.T" in refused(loop)


def test_another_enumerate():
    """It need not be called in this function to be another one."""
    head = HEAD + "\n\ndef enumerate(things):\n    return [(thing, thing) for thing in things]\n"
    assert "`enumerate` is something else here" in refused(LOOP, head=head)


def test_what_a_condition_binds_reaches_its_arms():
    """The sum that the test makes of the mean is what is returned: it needs no share of the
    window.
    """
    head = HEAD.replace(
        "torch.set_default",
        """def cost(out, y):
    loss = F.cross_entropy(out, y)
    if (loss := loss * len(y)) is not None:
        return loss

torch.set_default""",
    )
    text = done(
        LOOP.replace("criterion(model(x), y)", "cost(model(x), y)"),
        head=head,
        steps=(3,),
        keep=False,
    )
    assert "share_of_window" not in text


def test_a_factor_under_a_condition():
    """A mean or a sum, depending on the batch: neither rewrite is right for both."""
    loop = LOOP.replace(
        "        loss.backward()",
        "        if x.sum() > 0:\n            loss *= len(x)\n        loss.backward()",
    )
    assert "depends on the samples of a batch is not known" in refused(loop)


def test_a_state_that_is_carried_from_batch_to_batch():
    loop = LOOP.replace("for epoch", "hidden = torch.zeros(2)\nfor epoch", 1).replace(
        "loss = criterion(model(x), y)",
        "out = model(x) + hidden\n        hidden = out[-1].detach()\n        loss = criterion(out, y)",
    )
    assert "carried from batch to batch" in refused(loop)


@pytest.mark.parametrize(
    ("before", "divisor"),
    [
        ("        n.value = len(x)\n", "n.value"),
        ("        count(x)\n", "number"),
        ("        number = 0.5 * number + 1\n", "number"),
        ("        number = (y > 0).sum().item()\n", "number"),
        ("        number = int((y > 0).sum())\n", "number"),
    ],
)
def test_numbers_that_change_from_batch_to_batch(before: str, divisor: str):
    made = "class N:\n    value = 1\nn = N()\nnumber = 1\ndef count(x):\n    global number\n    number = len(x)\n"
    loop = LOOP.replace("        loss =", before + "        loss =").replace(
        "criterion(model(x), y)", f"criterion(model(x), y) / {divisor}"
    )
    for keep in (False, True):
        assert refused(made + loop, keep=keep)


def test_a_weight_that_changes_from_epoch_to_epoch():
    done(LOOP.replace("criterion(model(x), y)", "criterion(model(x), y) * (epoch + 1) / EPOCHS"))


def test_a_collate_fn():
    head = HEAD.replace(
        "shuffle=True", "shuffle=True, collate_fn=lambda b: tuple(map(torch.stack, zip(*b)))"
    )
    assert "collate_fn" in refused(LOOP, head=head)


# ------------------------------------------------------------------------------ what has no windows
@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        (
            "        loss.backward()",
            "        if loss.item() > 9:\n            continue\n        loss.backward()",
            "may end the turn of a batch",
        ),
        (
            "        optimizer.step()",
            "        optimizer.step()\n        if epoch > 3:\n            break",
            "may leave the loop",
        ),
        (
            "        optimizer.step()",
            "        if torch.isfinite(loss):\n            optimizer.step()",
            "depends on a condition",
        ),
        (
            "        optimizer.step()",
            "        try:\n            optimizer.step()\n        except ValueError:\n            pass",
            "may be cut off",
        ),
        ("        optimizer.step()", "        optimizer.step(lambda: loss)", "closure"),
        (
            "        loss.backward()",
            "        for _ in range(2):\n            loss.backward(retain_graph=True)",
            "is repeated",
        ),
        (
            "        loss.backward()",
            "        loss.backward(torch.tensor(1.0))",
            "arguments of its own",
        ),
        (
            "        loss.backward()",
            "        loss.backward(create_graph=True)",
            "gradients of gradients",
        ),
        ("        optimizer.zero_grad()\n", "", "not cleared"),
        (
            "        optimizer.step()",
            "        print(model[0].weight.grad.norm())\n        optimizer.step()",
            "reads or sets gradients",
        ),
        (
            "        optimizer.step()",
            "        norm = nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n        optimizer.step()\n        print(norm)",
            "`norm` is asked for on line",
        ),
        (
            "        loss =",
            "        model[0].weight.data.clamp_(-1, 1)\n        loss =",
            "before the update",
        ),
        ("for x, y in loader:", "for x, y in [data[:4]]:", "not over a DataLoader"),
        ("for x, y in loader:", "for (x, y), _ in zip(loader, loader):", "not over a DataLoader"),
        (
            "for x, y in loader:",
            "for _ in range(4):\n        x, y = next(iter(loader))",
            "not over a DataLoader",
        ),
        ("for x, y in loader:", "for x, y in DataLoader(data, batch_size=2):", "has no name there"),
    ],
)
def test_loops_that_have_no_windows(old: str, new: str, why: str):
    assert old in LOOP
    assert why in refused(LOOP.replace(old, new))


def test_hooks():
    assert "sees the gradients of every batch" in refused(
        "model[0].weight.register_hook(lambda g: g.clamp(-1, 1))\n" + LOOP
    )


KEEPING = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 2)
        self.heat, self.calls = 1.0, 0
        self.register_buffer("mean", torch.zeros(8))

    def forward(self, x):
        h = torch.tanh(self.first(x))
        BODY
        return self.last(h)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    ("body", "kept"),
    [
        ("self.heat *= 0.98\n        h = h / self.heat", "self.heat"),
        ("self.calls += 1\n        h = h * self.calls", "self.calls"),
        ("self.mean = 0.9 * self.mean + 0.1 * h.detach().mean(0)\n        h = h - self.mean",
         "self.mean"),
        ("self.mean.mul_(0.9).add_(h.detach().mean(0), alpha=0.1)\n        h = h - self.mean",
         "self.mean"),
        ("if x.sum() > 0:\n            self.mean = h.detach()[0]\n        h = h - self.mean",
         "self.mean"),
        ("self.seen = h\n        h = self.seen * 2", ""),
        ("self.seen = h", ""),
        ("h = h * self.heat - self.mean", ""),
    ],
)  # fmt: skip
def test_what_forward_keeps_for_the_next_batch(body: str, kept: str):
    """Smaller batches are more of them: it would change more often between two updates."""
    head = HEAD + KEEPING.replace("BODY", body)
    if not kept:
        done(LOOP, head=head, steps=(2,))
        return
    assert f"forward keeps `{kept}` from batch to batch" in refused(LOOP, head=head, keep=True)
    assert apply(head + LOOP, 2).fixes  # as often as before, where batches stay as they are


def test_a_scheduler_that_is_told_the_loss_of_each_batch():
    head = HEAD + "plateau = lr_scheduler.ReduceLROnPlateau(optimizer)\n"
    for told in ("loss.item()", "loss", "loss.detach()"):
        assert "told the loss of one batch" in refused(
            LOOP + f"        plateau.step({told})\n", head=head
        )


def test_a_gan():
    """The generator's backward leaves gradients in the discriminator, which a window would add to
    its own.
    """
    loop = """
G, D = nn.Linear(2, 3), nn.Linear(3, 1)
og, od = torch.optim.Adam(G.parameters()), torch.optim.Adam(D.parameters())
for epoch in range(EPOCHS):
    for x, _ in loader:
        D.zero_grad()
        fake = G(torch.randn(len(x), 2))
        real = F.binary_cross_entropy_with_logits(D(x), torch.ones(len(x), 1))
        real.backward()
        made = F.binary_cross_entropy_with_logits(D(fake.detach()), torch.zeros(len(x), 1))
        made.backward()
        od.step()
        G.zero_grad()
        F.binary_cross_entropy_with_logits(D(fake), torch.ones(len(x), 1)).backward()
        og.step()
"""
    assert "may leave gradients in the parameters of the optimizer" in refused(loop)


def test_iterable_datasets_and_samplers_of_the_project():
    sampler = "\nclass S(torch.utils.data.Sampler):\n    def __iter__(self):\n        return iter(range(5))\n    def __len__(self):\n        return 5\n"
    head = HEAD.replace("loader =", sampler.strip() + "\nloader =").replace(
        "shuffle=True", "sampler=S()"
    )
    assert "sampler of its own" in refused(LOOP, head=head)
    stream = "class D(torch.utils.data.IterableDataset):\n    def __iter__(self):\n        return iter(data)\nloader = DataLoader(D(), batch_size=BATCH)\n"
    assert "IterableDataset" in refused(stream + LOOP)


# --------------------------------------------------------------------------------------- keep-batch
def test_the_size_of_a_batch_stays():
    text = done(LOOP, grow=False)
    assert "batch_size=BATCH // ACCUMULATION_STEPS" in text
    text = done(LOOP, head=HEAD.replace("batch_size=BATCH", "batch_size=4"), grow=False)
    assert "batch_size=4 // ACCUMULATION_STEPS" in text


ARGS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--batch-size", type=int, default=4)
args = parser.parse_args([])
loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)
"""


def test_a_size_from_the_command_line():
    assert "batch_size=args.batch_size // ACCUMULATION_STEPS" in done(ARGS + LOOP, grow=False)
    assert "cannot be divided into 2 equal parts" in refused(
        ARGS.replace("default=4", "default=9") + LOOP, keep=True
    )


def test_a_size_in_a_dictionary():
    made = ARGS.replace(
        "loader = DataLoader(data, batch_size=args.batch_size, shuffle=True)",
        'options = {"batch_size": args.batch_size, "shuffle": True}',
    )
    assert '"batch_size": args.batch_size // ACCUMULATION_STEPS' in done(
        made + "loader = DataLoader(data, **options)\n" + LOOP, grow=False
    )


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            LOOP.replace("loss =", "mask = torch.ones(args.batch_size)\n        loss ="),
            "`args.batch_size` on line",
        ),
        (LOOP + "    print(total / args.batch_size)\n".replace("total", "1"), ""),
        (LOOP.replace("loss =", "print(torch.zeros(4))\n        loss ="), "4 on line"),
        (
            LOOP + "        if loader.batch_size < 3:\n            pass\n",
            "the loader's `batch_size`",
        ),
    ],
)
def test_what_else_goes_by_the_size(text: str, why: str):
    if why:
        assert why in refused(ARGS + text, keep=True)
    else:
        done(ARGS + text, grow=False)


def test_what_is_done_every_so_many_batches():
    loop = "def save(model):\n    torch.save(model.state_dict(), '/dev/null')\n" + LOOP.replace(
        "for x, y in loader:", "for i, (x, y) in enumerate(loader):"
    )
    loop += "        if i % 2 == 0:\n            save(model)\n"
    assert "is done every so many batches, of which there are 2 times as many then" in refused(
        loop, keep=True
    )
    done(loop, keep=False)


SCALED = """
class Scaled(nn.Module):
    def __init__(self, settings):
        super().__init__()
        self.layer, self.settings, self.t = nn.Linear(3, 2), settings, 1.0
        self.act = nn.LeakyReLU(0.5)
        self.register_buffer("b", torch.ones(()))

    def cool(self):
        self.t = max(0.1, self.t * 0.9)

    def forward(self, x):
        return self.act(self.layer(x)) / (self.t * self.b * TAU * self.settings["t"])

class Cooling:
    def __init__(self, model):
        self.model, self.turn = model, 0

    def step(self):
        self.turn += 1
        self.model.t = 1 / self.turn

TAU = 1.0
settings = {"t": 1.0}
model = Scaled(settings)
cooling = Cooling(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ("model.t *= 0.9", "model.t"),
        ("model.cool()", "self.t"),
        ("cooling.step()", "self.turn"),
        ("model.b.mul_(0.9)", "model.b"),
        ("TAU = max(0.1, TAU * 0.9)", "TAU"),
        ('settings["t"] *= 0.9', "settings"),
        ("model.act.negative_slope *= 0.9", "model.act.negative_slope"),
    ],
)
def test_what_forward_goes_by_and_the_loop_changes(change: str, named: str):
    """A temperature falls with every batch: twice as fast where batches are half as large."""
    loop = LOOP + f"        {change}\n"
    assert f"forward goes by `{named}`" in refused(SCALED + loop, keep=True)
    assert apply(HEAD + SCALED + loop, 2).fixes


def test_what_a_batch_brings_along():
    before = "        model.b = x.abs().mean().detach()\n        "
    before += "x = x * 2\n        x[:, 0] = 0\n        settings = {}\n        loss ="
    plain = LOOP.replace("        loss =", before, 1)
    assert apply(HEAD + SCALED + plain + "    model.t *= 0.9\n", 2, keep=True).fixes


def test_another_training_on_the_same_loader():
    """It would get the smaller batches, and make an update of each."""
    islice = "from itertools import islice\n" + LOOP.replace("in loader", "in islice(loader, 2)")
    hard = LOOP.replace(
        "criterion(model(x), y)", "((model(x) - y) ** 2).flatten().topk(2)[0].mean()"
    )
    for other in (islice, hard):
        assert other != LOOP
        why = refused(LOOP + other, keep=True)
        assert "trains on the same loader" in why
        assert apply(HEAD + LOOP + other, 2).fixes
        own = "first = DataLoader(data, batch_size=BATCH)\n" + LOOP.replace("in loader", "in first")
        assert apply(HEAD + own + other, 2, keep=True).fixes
    assert len(apply(HEAD + LOOP + LOOP, 2, keep=True).fixes) == 2


def test_a_place_for_each_batch():
    loop = LOOP.replace("for x, y in loader:", "for i, (x, y) in enumerate(loader):")
    for made, fine in (
        ("[0.0] * 5", False),
        ("torch.zeros(5)", False),
        ("[0.0] * len(loader)", True),
        ("{}", True),
    ):
        text = f"curve = {made}\n{loop}        curve[i] = loss.item()\n"
        if fine:
            assert apply(HEAD + text, 2, keep=True).fixes
        else:
            assert "`curve[i]` on line" in refused(text, keep=True)
        assert apply(HEAD + text, 2).fixes


@pytest.mark.parametrize("batch", [3, 5])
def test_sizes_that_cannot_be_divided(batch: int):
    assert f"batches of {batch}" in refused(
        LOOP, head=HEAD.replace("BATCH = 4", f"BATCH = {batch}"), keep=True
    )


def test_batch_norm_is_pointed_out():
    head = HEAD.replace("nn.Tanh()", "nn.BatchNorm1d(8)")
    made = apply(head + LOOP, 2, keep=True)
    assert "BatchNorm takes its statistics from the single batches" in made.fixes[0].message


def test_squeeze():
    loop = LOOP.replace(
        "criterion(model(x), y)", "F.mse_loss(model(x)[:, :1].squeeze(), y.double())"
    )
    assert "`squeeze()` on line" in refused(loop, keep=True)
    done(loop.replace("squeeze()", "squeeze(1)"))


# --------------------------------------------------------------------------- windows that are there
WINDOWS = """
ACCUM = 2
for epoch in range(EPOCHS):
    optimizer.zero_grad()
    for i, (x, y) in enumerate(loader):
        loss = criterion(model(x), y) / ACCUM
        loss.backward()
        if (i + 1) % ACCUM == 0 or i + 1 == len(loader):
            optimizer.step()
            optimizer.zero_grad()
"""


def test_another_number():
    """Where a script has windows of its own, their number stands in one place, which is named."""
    assert "of 2 batches already (line" in refused(WINDOWS)
    assert "of 2 batches already (line" in refused(WINDOWS, steps=3)
    assert "change that number" in refused(WINDOWS, keep=True, steps=3)


def test_another_number_in_an_option():
    text = WINDOWS.replace(
        "ACCUM = 2\n", ARGS.replace("--batch-size", "--accum").replace("args.batch_size", "BATCH")
    ).replace("ACCUM", "args.accum")
    assert "batches already (line" in refused(text, steps=3)


def test_another_number_of_turns():
    loop = """
from itertools import cycle
batches = cycle(loader)
MICRO = 2
for update in range(4):
    optimizer.zero_grad()
    for _ in range(MICRO):
        x, y = next(batches)
        loss = criterion(model(x), y) / MICRO
        loss.backward()
    optimizer.step()
"""
    assert "of 2 batches already" in refused(loop, steps=3)


@pytest.mark.parametrize("loop", [LOOP, STEP, TRAINER, AMP])
def test_its_own_windows(loop: str):
    """They are found again: what is written is not written twice."""
    again = apply(apply(HEAD + loop, 2).text, 2)
    assert not again.fixes and "of 2 batches already" in again.refusals


# --------------------------------------------------------------------------------- with other rules
def test_schedules_and_updates_change_one_after_the_other():
    made = "scheduler = lr_scheduler.CosineAnnealingLR(optimizer, T_max=EPOCHS)\n"
    text = HEAD + made + LOOP + "    scheduler.step()\n"
    assert apply(text, 2, rules="stepwise-scheduler").fixes
    both = apply(text, 2, rules=f"{RULE} stepwise-scheduler")
    assert {f.rule for f in both.fixes} == {RULE}
    assert "make one change after the other" in both.refusals


def test_no_number():
    made = apply(HEAD + LOOP, 0)
    assert made.refusals == "of how many batches is not said: give --accumulate N"


def test_a_loader_that_becomes_one_of_batches():
    """With batched-dataset the loader has no batch_size of its own; the share of a batch is that of
    its sampler.
    """
    text = HEAD + LOOP
    for keep in (False, True):
        both = apply(text, 2, keep=keep, rules=f"{RULE} batched-dataset")
        wanted = updates_of(text if keep else larger(text, 2))[0]
        assert difference(wanted, updates_of(both.text)[0]) == "", both.text
        first = apply(text, 2, rules="batched-dataset").text
        assert "BatchSampler" in first
        then = apply(first, 2, keep=keep)
        assert then.fixes and difference(wanted, updates_of(then.text)[0]) == "", then.text
        positional = apply(
            text.replace("batch_size=BATCH, ", "BATCH, "),
            2,
            keep=keep,
            rules=f"{RULE} batched-dataset",
        )
        assert difference(wanted, updates_of(positional.text)[0]) == "", positional.text


# -------------------------------------------------------------------------------- several processes
DISTRIBUTED = """
import os
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

BATCH = 4
WORLD = int(os.environ.get("WORLD_SIZE", 1))
torch.manual_seed(0)
if WORLD > 1:
    dist.init_process_group("gloo")
data = TensorDataset(torch.randn(37, 3), torch.randn(37, 1))
sampler = DistributedSampler(data) if WORLD > 1 else None
loader = DataLoader(data, batch_size=BATCH, shuffle=sampler is None, sampler=sampler)
net = nn.Linear(3, 1)
model = DistributedDataParallel(net) if WORLD > 1 else net
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
loss_fn = nn.MSELoss()
for epoch in range(2):
    if sampler is not None:
        sampler.set_epoch(epoch)
    for x, y in loader:
        optimizer.zero_grad()
        loss = loss_fn(model(x), y)
        loss.backward()
        optimizer.step()
print("done", loss.item())
if WORLD > 1:
    dist.barrier()
    dist.destroy_process_group()
"""


@pytest.mark.parametrize("always", [False, True])
def test_ranks_exchange_gradients_once_for_each_window(always: bool, tmp_path: Path):
    text = DISTRIBUTED.lstrip()
    if always:
        text = text.replace(" if WORLD > 1 else net", "").replace(
            "if WORLD > 1:\n    dist.init",
            'os.environ.setdefault("MASTER_ADDR", "127.0.0.1")\nif True:\n    dist.init',
        )
    made = apply(text, 3).text
    assert "from contextlib import nullcontext" in made
    flat = " ".join(made.split())
    condition = "(step + 1) % ACCUMULATION_STEPS == 0 or step + 1 == len(loader)"
    assert (
        f"{condition} else model.no_sync()"
        if always
        else f'{condition} or not hasattr(model, "no_sync") else model.no_sync()'
    ) in flat
    runs = []
    for name, content in (
        ("wanted", larger(text, 3)),
        ("made", made),
        ("unsynced", made.replace("model.no_sync()", "nullcontext()")),
    ):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "train.py").write_text(content, "utf-8")
        world = torchrun(Job(folder), 2)
        assert world.ok, world.errors
        runs.append([run.params for run in world.ranks])
    wanted, with_windows, unsynced = runs
    for a, b, c in zip(wanted, with_windows, unsynced, strict=True):
        for old, new, other in zip(a[0], b[0], c[0], strict=True):
            assert abs(old - new).max() < 1e-6 and abs(other - new).max() < 1e-6
    if not always:
        one = [updates_of(t)[0] for t in (larger(text, 3), made)]
        assert difference(*one, tolerance=1e-6) == ""


@pytest.mark.parametrize("count", [50, 53])
def test_ranks_that_the_same_plan_makes(count: int, tmp_path: Path):
    """``--ddp --accumulate 2`` trains as ``--ddp`` does with batches twice as large, also where the
    samples cannot be divided.
    """
    text = (
        (Path(__file__).parent.parent / "fixtures" / "accumulate_module" / "train.py")
        .read_text("utf-8")
        .replace("50", str(count))
    )
    twice = text.replace("batch_size=8", "batch_size=16")
    both = apply(text, 2, rules=f"{RULE} ddp")
    assert (
        twice != text
        and {f.rule for f in both.fixes} == {RULE, "ddp"}
        and "else ddp_model.no_sync()" in both.text
    )
    worlds = []
    for name, content in (("twice", apply(twice, 2, rules="ddp").text), ("both", both.text)):
        (tmp_path / name).mkdir()
        (tmp_path / name / "train.py").write_text(content, "utf-8")
        worlds.append(torchrun(Job(tmp_path / name), 2))
        assert worlds[-1].ok, worlds[-1].errors
    for one, other in zip(worlds[0].ranks, worlds[1].ranks, strict=True):
        assert one.steps == other.steps == 8
        assert all(
            abs(a - b).max() < 1e-5 for a, b in zip(one.params[0], other.params[0], strict=True)
        )


# ------------------------------------------------------------------------------------- the fixtures
FIXTURES = [fixture for fixture in ALL if fixture.name.startswith("accumulate_")]


def planned(
    fixture: Fixture, steps: int, keep: bool, texts: Mapping[Path, bytes] | None = None
) -> Plan:
    script = read_script(fixture.entry, fixture.folder, overlay=dict(texts) if texts else None)
    options = Options(accumulate=steps, keep_batch=keep, asked=frozenset([RULE]))
    return Plan.make(script, options, [all_rules()[RULE]], Effect.RECIPE)


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
def test_fixtures_train_the_same_with_smaller_batches(fixture: Fixture):
    plan = planned(fixture, 2, True)
    assert len(plan.fixes) == len(plan.findings) == 1
    files = {source.rel: source.encode(text) for source, text in plan.texts().items()}
    larger_steps = {
        source.rel: source.encode(text)
        for source, text in planned(fixture, 2, False).texts().items()
    }
    jobs = [
        Job(fixture.folder),
        Job(fixture.folder, files=files),
        Job(fixture.folder, files=larger_steps),
    ]
    before, after, grown = HARNESS.run_many(jobs)
    assert before.ok and after.ok and grown.ok, after.traceback + grown.traceback
    assert before.steps == after.steps == fixture.spec["steps"] and grown.steps < before.steps
    assert not set(after.warnings) - set(before.warnings)
    for old, new, start in zip(before.params[0], after.params[0], before.start[0], strict=True):
        assert abs(old - new).max() <= 1e-4 * abs(old - start).max() + 1e-7


@pytest.mark.parametrize("fixture", FIXTURES, ids=lambda fixture: fixture.name)
@pytest.mark.parametrize("change", metamorphic.CHANGES, ids=lambda change: change.__name__)
def test_spelling_does_not_matter(fixture: Fixture, change: metamorphic.Change):
    sources = planned(fixture, 2, False).script.sources
    for texts in metamorphic.apply(change, {source.path: source.text for source in sources}):
        plan = planned(
            fixture,
            2,
            False,
            {source.path: source.encode(texts[source.path]) for source in sources},
        )
        assert [f.status for f in plan.findings] == ["fix"], plan.findings[0].refusal


# ------------------------------------------------------------------------------------ old spellings
@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("size_average=False", "criterion(model(x), y) / x.shape[0]"),
        ("size_average=True", "criterion(model(x), y)"),
        ("reduce=False", "criterion(model(x), y).mean()"),
        ("size_average=None, reduction='sum'", "criterion(model(x), y) / len(x)"),
        ("", "F.cross_entropy(model(x), y, size_average=False) / x.size(0)"),
    ],
)
def test_what_a_reduction_was_called_before(made: str, used: str):
    done(
        LOOP.replace("criterion(model(x), y)", used),
        head=HEAD.replace("CrossEntropyLoss()", f"CrossEntropyLoss({made})"),
        steps=(2,),
    )


def test_an_old_reduction_that_is_not_known():
    head = HEAD.replace(
        "CrossEntropyLoss()", "CrossEntropyLoss(size_average=bool(EPOCHS - len(data)))"
    )
    assert "whether the loss on line" in refused(LOOP, head=head)


# ------------------------------------------------------------------------------------------- effort
def test_what_is_mentioned_twice_is_asked_for_once(monkeypatch: pytest.MonkeyPatch):
    """Each line of such a network mentions the one before twice: 2 ** 16 ways from the loss to the
    batch.
    """
    lines = "".join("        x = (x + self.layers[0](torch.relu(x))) / 2\n" for _ in range(16))
    head = HEAD.replace("torch.set_default", f"""class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 3), nn.Linear(3, 2)])

    def forward(self, x):
{lines}        return self.layers[1](x)

torch.set_default""").replace("nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))", "Net()")  # fmt: skip
    from autofast.facts.batch.losses import Losses

    asked = []
    real = Losses.shape

    def shape(self: Losses, expr: ast.expr, scope: Any) -> Any:
        asked.append(expr)
        assert len(asked) < 5000
        return real(self, expr, scope)

    monkeypatch.setattr(Losses, "shape", shape)
    done(LOOP, head=head, steps=(2,))


def test_blocks_of_one_class_one_after_the_other():
    """The argument of the second block is what the first returns: no recursion."""
    head = HEAD.replace("torch.set_default", """class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(3, 3)

    def forward(self, x):
        out = torch.relu(self.layer(x))
        out = out + x
        return out

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = Block()
        self.second = Block()

    def forward(self, x):
        return self.second(self.first(x))

torch.set_default""").replace("nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 2))", "Net()")  # fmt: skip
    done(LOOP.replace("criterion(model(x), y)", "model(x).square().mean()"), head=head, steps=(2,))


def test_a_loop_that_a_test_calls_with_batches_of_its_own() -> None:
    """A list of batches has no sampler to ask for the size of a window, and a test may count on a
    step for each batch.
    """
    loop = """
def train(batches):
    for x, y in batches:
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    train(loader)
"""
    files = {"test_train.py": "from train import train\n\n\ndef test():\n    train([])\n"}
    assert apply(HEAD + loop).fixes
    made = apply(HEAD + loop, files=files)
    assert not made.fixes
    assert "test_train.py:5 calls train()" in made.refusals, made.refusals
