"""apex-amp: what is refused; that torch.amp trains the same is shown by the fixtures ``apex_*``."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.rule import Effect
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
