"""apex-amp: what it says; and scripts in which an option, off by default, brings apex."""

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


def test_what_to_take_instead() -> None:
    done = apply("apex-amp", SCRIPT)
    assert "torch.autocast" in done.advice and done.text == SCRIPT
    for rule in ("fused-optimizer", "autocast", "compile", "ddp"):
        assert not apply(rule, SCRIPT).fixes and "apex" in apply(rule, SCRIPT).refusals


def test_what_to_take_instead_of_its_optimizers() -> None:
    text = SCRIPT.replace("torch.optim.Adam(", "apex.optimizers.FusedAdam(").replace(
        "import torch\n", "import apex\nimport torch\n", 1
    )
    assert "torch.optim.AdamW(..., fused=True)" in apply("apex-amp", text).advice


def test_on_the_cpu_there_is_no_apex() -> None:
    assert not apply("apex-amp", SCRIPT, target="cpu").findings


# --------------------------------------------------------------------------------- behind an option
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
    """What runs by default gets autocast and a scaler; with the option, both are off, and apex does
    what it did.
    """
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
        ("parser.parse_args()\n", "parser.parse_args()\n    args = args\n"),
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
