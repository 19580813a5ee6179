"""apex-amp: what is refused; that torch.amp trains the same is shown by the fixtures ``apex_*``."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from autofast.edit.plan import Plan
from autofast.read import read_script
from autofast.rule import Effect, Finding, Options, Rule
from tests.harness import HALF, HARNESS, Job, compare
from tests.onerule import apply

PRETEND = str(Path(__file__).with_name("pretend") / "apex.py")
SCRIPT = """\
import torch
import torch.nn.functional as F
from apex import amp
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
loader = DataLoader(TensorDataset(torch.randn(48, 6), torch.randint(0, 3, (48,))), batch_size=8)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).to(device)
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
model, optimizer = amp.initialize(model, optimizer, opt_level="O1")
for epoch in range(2):
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        optimizer.zero_grad()
        with amp.scale_loss(loss, optimizer) as scaled_loss:
            scaled_loss.backward()
        optimizer.step()
    print("epoch", epoch, "loss %.2f" % loss.item())
"""
INITIALIZE = 'model, optimizer = amp.initialize(model, optimizer, opt_level="O1")'


def trains_the_same(tmp_path: Path, text: str, made: str, *, fake: bool) -> list[str]:
    (tmp_path / "train.py").write_text(text)
    original = Job(tmp_path, before=PRETEND)
    before, after = HARNESS.run_many(
        [original, Job(tmp_path, files={"train.py": made.encode()}, fake_cuda_amp=fake)]
    )
    assert before.ok, before.traceback
    return compare(before, after, Effect.ROUNDING if fake else Effect.EXACT, HALF)


@pytest.mark.parametrize("fake", [False, True])
def test_it_runs_without_apex_and_trains_the_same(tmp_path: Path, fake: bool) -> None:
    made = apply("apex-amp", SCRIPT).text
    assert "apex" not in made  # so it runs where apex is not there
    assert trains_the_same(tmp_path, SCRIPT, made, fake=fake) == []


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        (', opt_level="O1"', "", "scaler.scale(loss).backward()"),
        (
            ', opt_level="O1"',
            ', opt_level="O1", verbosity=0, loss_scale="dynamic"',
            "scaler.scale(loss).backward()",
        ),
        (
            "scale_loss(loss, optimizer)",
            "scale_loss(loss / 2, [optimizer], delay_unscale=False)",
            "scaler.scale(loss / 2).backward()",
        ),
        ("model, optimizer = amp.init", "amp.init", "scaler.scale(loss).backward()"),
    ],
)
def test_spellings(tmp_path: Path, old: str, new: str, line: str) -> None:
    text = SCRIPT.replace(old, new)
    done = apply("apex-amp", text)
    assert line in done.text and "amp.initialize" not in done.text
    assert trains_the_same(tmp_path, text, done.text, fake=False) == []


def test_a_model_without_its_optimizer_keeps_the_name_it_is_given(tmp_path: Path) -> None:
    text = SCRIPT.replace(INITIALIZE, "net = amp.initialize(model, opt_level='O1')").replace(
        "(model(x", "(net(x"
    )
    done = apply("apex-amp", text)
    assert "net = model\n" in done.text
    assert (
        trains_the_same(
            tmp_path,
            text.replace("initialize(model,", "initialize(model, None,"),
            done.text,
            fake=False,
        )
        == []
    )


def test_with_the_rules_that_apex_stood_in_the_way_of(tmp_path: Path) -> None:
    at_once = apply("apex-amp fused-optimizer autocast grad-scaler", SCRIPT).text
    staged = apply("fused-optimizer autocast grad-scaler", apply("apex-amp", SCRIPT).text).text
    assert at_once == staged and "fused=True" in at_once
    assert "fused=True" not in apply("fused-optimizer", SCRIPT).text


def test_compiled_where_apex_goes() -> None:
    at_once = apply("apex-amp compile", SCRIPT).text
    assert (
        at_once == apply("compile", apply("apex-amp", SCRIPT).text).text and "compile(" in at_once
    )
    kept = apply("apex-amp compile", SCRIPT.replace('"O1"', '"O1", loss_scale=128.0'))
    assert not kept.fixes and "unless apex-amp puts torch.amp in its place" in kept.refusals
    for rule in ("compile", "ddp"):
        assert not apply(rule, SCRIPT).fixes and "apex-amp" in apply(rule, SCRIPT).refusals


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"O1"', '"O2"', "O2 keeps the model itself in another type"),
        ('"O1"', '"O3"', "O3 keeps the model itself in another type"),
        ('"O1"', "level", "opt_level is not certain"),
        ('"O1"', '"O1", keep_batchnorm_fp32=True', "keep_batchnorm_fp32="),
        ('"O1"', '"O1", loss_scale=128.0', "loss_scale="),
        (INITIALIZE, f"if len(sys.argv) > 0:\n    {INITIALIZE}", "under a condition"),
        (INITIALIZE, f"{INITIALIZE}\n{INITIALIZE}", "in several places"),
        (INITIALIZE, "model, optimizer = amp.initialize(*(model, optimizer))", "not"),
        ("(loss, optimizer)", "(loss, optimizer, loss_id=0)", "more than a loss and an optimizer"),
        (
            "scaled_loss.backward()",
            "scaled_loss.backward()\n            print(scaled_loss.item())",
            "used for more than its backward",
        ),
        (
            "for epoch",
            "torch.save({'amp': amp.state_dict()}, 'c.pt')\nfor epoch",
            "checkpoints hold the state of apex",
        ),
        (
            "for epoch",
            "amp.register_float_function(torch, 'sigmoid')\nfor epoch",
            "register_float_function",
        ),
        (
            "optimizer = torch.optim.Adam(",
            "optimizer = apex.optimizers.FusedAdam(",
            "belongs to apex",
        ),
    ],
)
def test_what_is_refused(old: str, new: str, reason: str) -> None:
    text = SCRIPT.replace(old, new, 1).replace(
        "import torch\n", "import sys\nimport apex\nimport torch\nlevel = sys.argv[-1]\n", 1
    )
    done = apply("apex-amp", text)
    assert not done.fixes
    assert reason in done.refusals, done.refusals


def test_what_to_take_instead_of_its_optimizers() -> None:
    text = SCRIPT.replace("torch.optim.Adam(", "apex.optimizers.FusedAdam(").replace(
        "import torch\n", "import apex\nimport torch\n", 1
    )
    assert "torch.optim.AdamW(..., fused=True)" in apply("apex-amp", text).advice


def test_a_comment_keeps_all_of_it() -> None:
    text = SCRIPT.replace("as scaled_loss:", "as scaled_loss:  # autofast: ignore[apex-amp]")
    assert not apply("apex-amp", text).fixes


def test_on_the_cpu_there_is_no_apex() -> None:
    assert not apply("apex-amp", SCRIPT, target="cpu").findings


def test_an_import_that_is_tried_stays() -> None:
    text = SCRIPT.replace(
        "from apex import amp",
        "try:\n    from apex import amp\nexcept ImportError:\n    amp = None",
    )
    done = apply("apex-amp", text)
    assert "amp = None" in done.text or not done.fixes


def test_the_names_of_a_comprehension_are_free_ones() -> None:
    text = SCRIPT.replace(
        "        optimizer.step()",
        "        torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 1.0)\n        optimizer.step()",
    )
    made = apply("apex-amp", "p = param = p_ = 0\n" + text)
    assert '[p_2 for group in optimizer.param_groups for p_2 in group["params"]]' in made.text


# ------------------------------------------------------------------------------------------------ behind an option
OPTIONAL = """\
import argparse

import torch
from torch import nn

try:
    from apex import amp
except ImportError:
    amp = None


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Conv2d(3, 64, 3, padding=1)
        self.head = nn.Linear(64 * 64, 10)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)).flatten(1))


def train(args, model, batches, optimizer, device):
    criterion = nn.CrossEntropyLoss()
    for step, (x, y) in enumerate(batches):
        loss = criterion(model(x.to(device)), y.to(device))
        if args.half:
            with amp.scale_loss(loss, optimizer) as scaled:
                scaled.backward()
            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.5)
        else:
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        optimizer.zero_grad()
        print("step", step, "loss %.1f" % loss.item())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--half", action="store_true")
    parser.add_argument("--level", default="O1")
    args = parser.parse_args()
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    model = Tagger().to(device)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    if args.half:
        model, optimizer = amp.initialize(model, optimizer, opt_level=args.level)
    batches = [(torch.randn(8, 3, 8, 8), torch.randint(0, 10, (8,))) for _ in range(4)]
    train(args, model, batches, optimizer, device)


if __name__ == "__main__":
    main()
"""
MIXED = "autocast grad-scaler unscale-before-clip"


def test_the_way_without_apex_is_rewritten(tmp_path: Path) -> None:
    """What runs by default gets autocast and a scaler; with the option, both are off, and apex does what it did."""
    done = apply(MIXED, OPTIONAL)
    text = " ".join(done.text.split())
    assert 'dtype=amp_dtype, enabled=device.type == "cuda" and not args.half' in text
    assert "and amp_dtype == torch.float16 and not args.half" in text
    assert "scaled.backward()" in done.text and "amp.scale_loss(loss, optimizer)" in done.text
    clip = (
        "            scaler.unscale_(optimizer)\n            torch.nn.utils.clip_grad_norm_(model"
    )
    assert clip in done.text  # in the arm that it belongs to
    (tmp_path / "train.py").write_text(OPTIONAL)
    files = {"train.py": done.text.encode()}
    plain, faked, given, kept = HARNESS.run_many(
        [
            Job(tmp_path),
            Job(tmp_path, files=files, fake_cuda_amp=True),
            Job(tmp_path, args=("--half",), before=PRETEND),
            Job(tmp_path, args=("--half",), before=PRETEND, files=files),
        ]
    )
    assert plain.ok and given.ok, plain.traceback + given.traceback
    assert compare(plain, faked, Effect.ROUNDING, HALF) == []
    assert compare(given, kept, Effect.EXACT, HALF) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('action="store_true"', "type=int, default=0"),
        (
            "        if args.half:\n            with amp.scale_loss(loss, optimizer) as scaled:\n                scaled.backward()\n"
            "            torch.nn.utils.clip_grad_norm_(amp.master_params(optimizer), 0.5)\n        else:\n            loss.backward()\n"
            "            torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n",
            "        if not args.half:\n            loss.backward()\n        else:\n            with amp.scale_loss(loss, optimizer) as scaled:\n"
            "                scaled.backward()\n        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n",
        ),
        ("def main():\n", "def main():\n    global args\n"),
    ],
)
def test_options_in_other_words(old: str, new: str) -> None:
    assert old in OPTIONAL
    done = apply(MIXED, OPTIONAL.replace(old, new))
    assert "and not args.half" in done.text and "scaler.step(optimizer)" in done.text


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ('"store_true"', '"store_false"', "apex.amp decides about precision here"),
        ("    if args.half:\n        model,", "    if amp:\n        model,", "apex.amp decides"),
        (
            "parser.parse_args()\n",
            "parser.parse_args()\n    args = args\n",
            "which cannot be asked on line",
        ),
        (
            "    for step, (x, y)",
            "    args = argparse.Namespace(**vars(args))\n    for step, (x, y)",
            "which cannot be asked on line",
        ),
    ],
)
def test_options_that_do_not_tell(old: str, new: str, reason: str) -> None:
    assert old in OPTIONAL
    done = apply(MIXED, OPTIONAL.replace(old, new))
    assert not done.fixes
    assert reason in done.refusals, done.refusals


def test_without_a_scaler_where_the_option_changes_the_optimizer() -> None:
    """O2 gives another model back: what is stepped is not certain, and bf16 needs no scaler."""
    done = apply(MIXED, OPTIONAL.replace('"O1"', '"O2"'))
    assert "enabled=has_bf16 and not args.half" in done.text and "GradScaler" not in done.text


def test_told_where_nobody_asks():
    """Plain `check` says that something is to be gained, and what asks for it."""
    from autofast.registry import select

    assert {rule.name for rule in select()} >= {"apex-amp", "dataparallel-to-ddp"}
    assert not {rule.name for rule in select(["loader"])} & {"apex-amp", "dataparallel-to-ddp"}
    told = next(rule for rule in select() if rule.name == "apex-amp")
    found = apply_rule(told, SCRIPT)
    assert [f.advice for f in found] == [
        "ask for it: `autofast rewrite --select apex-amp` writes it"
    ]
    off = SCRIPT.replace(
        "amp.initialize(model, optimizer", "(lambda m, o, **k: (m, o))(model, optimizer"
    )
    assert not apply_rule(
        told,
        off.replace("with amp.scale_loss(loss, optimizer) as scaled_loss:", "if True:").replace(
            "scaled_loss", "loss"
        ),
    )


def apply_rule(rule: Rule, text: str) -> list[Finding]:
    with tempfile.TemporaryDirectory() as folder:
        entry = Path(folder).resolve() / "train.py"
        entry.write_text(text)
        script = read_script(entry, entry.parent)
        return list(Plan.make(script, Options(), [rule], Effect.RECIPE).findings)
