"""checkpoint-state: a training that goes on from a checkpoint goes on with the scale that it
had.
"""

from __future__ import annotations

import pytest

from tests.amp import AMP, LOOP, amp, script, trained
from tests.onerule import apply

RULE = "checkpoint-state"
SCRIPT = """\
import os
import torch
from torch import nn

torch.manual_seed(0)
PATH = "last.pt"
model = nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)
if os.path.exists(PATH):
    checkpoint = torch.load(PATH)
    model.load_state_dict(checkpoint["model"])
    optimizer.load_state_dict(checkpoint["optimizer"])
scales = [scaler.get_scale()]
for step in range(4):
    optimizer.zero_grad()
    loss = model(torch.ones(2, 4)).pow(2).mean()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    scales.append(scaler.get_scale())
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, PATH)
"""
SAVE = """
import io
file = io.BytesIO()
torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict()}, file)
file.seek(0)
checkpoint = torch.load(file)
model.load_state_dict(checkpoint["model"])
optimizer.load_state_dict(checkpoint["optimizer"])
"""
LOADED = 'if checkpoint.get("scaler"):'


def scales(text: str, path: object) -> list[float]:
    names: dict[str, object] = {}
    exec(compile(text.replace('"last.pt"', repr(str(path))), "train.py", "exec"), names)
    return names["scales"]  # type: ignore[return-value]


def changed(old: str, new: str, text: str = SCRIPT) -> str:
    assert old in text
    return text.replace(old, new)


def test_a_resumed_training_keeps_its_scale(tmp_path):
    done = apply(RULE, SCRIPT)
    assert len(done.fixes) == 2 and LOADED in done.text
    assert scales(SCRIPT, tmp_path / "old.pt") == [4, 4, 8, 8, 16]
    assert scales(SCRIPT, tmp_path / "old.pt")[0] == 4  # found anew each time
    assert scales(done.text, tmp_path / "old.pt")[0] == 4  # checkpoints from before still load
    assert scales(done.text, tmp_path / "new.pt") == [4, 4, 8, 8, 16]
    assert scales(done.text, tmp_path / "new.pt") == [16, 16, 32, 32, 64]


def test_the_key_is_named_like_those_beside_it(tmp_path):
    text = SCRIPT
    for key in ("model", "optimizer"):
        text = changed(f'"{key}"', f'"{key}_state_dict"', text)
    done = apply(RULE, text)
    assert '"scaler_state_dict": scaler.state_dict()' in done.text
    assert 'if checkpoint.get("scaler_state_dict"):' in done.text
    assert scales(text, tmp_path / "old.pt")[-1] == scales(done.text, tmp_path / "new.pt")[-1]
    assert scales(done.text, tmp_path / "old.pt")[0] == 4  # checkpoints from before still load
    assert scales(done.text, tmp_path / "new.pt")[0] == 16
    mixed = apply(RULE, changed('"optimizer"', '"optimizer_state"'))
    assert '"scaler": scaler.state_dict()' in mixed.text


def test_what_is_saved_and_never_loaded_stays():
    """Here weights are loaded, the optimizer's state is not: the training does not go on from it,
    and a scaler's state would be no use.
    """
    load = '    optimizer.load_state_dict(checkpoint["optimizer"])\n'
    assert not apply(RULE, changed(load, "")).findings
    alone = changed(load, "").replace('    model.load_state_dict(checkpoint["model"])\n', "")
    assert not apply(RULE, alone).findings


def test_a_disabled_scaler_has_no_state(tmp_path):
    text = changed('GradScaler("cpu", ', 'GradScaler("cpu", enabled=False, ')
    done = apply(RULE, text)
    assert LOADED in done.text
    assert scales(done.text, tmp_path / "new.pt") == scales(done.text, tmp_path / "new.pt")


TRAINER = """\
import torch
from torch import nn

class Trainer:
    def __init__(self, model, optimizer):
        self.model = self.placed(model)
        self.optimizer = optimizer
        self.scaler = torch.amp.GradScaler("cuda")
        self.resume("last.pt")

    def placed(self, model):
        return model.cuda()

    def resume(self, path):
        state = torch.load(path)
        self.model.load_state_dict(state["model"])
        self.optimizer.load_state_dict(state["optimizer"])

    def save(self, path):
        torch.save(dict(model=self.model.state_dict(), optimizer=self.optimizer.state_dict()), path)

    def train(self):
        for step in range(10):
            self.optimizer.zero_grad()
            with torch.autocast("cuda", dtype=torch.float16):
                loss = self.model(torch.randn(8, 4, device="cuda")).pow(2).mean()
            self.scaler.scale(loss).backward()
            self.scaler.step(self.optimizer)
            self.scaler.update()
        self.save("last.pt")

model = nn.Linear(4, 4)
Trainer(model, torch.optim.Adam(model.parameters())).train()
"""


def test_attributes_of_a_trainer():
    done = apply(RULE, TRAINER)
    assert 'if state.get("scaler"):' in done.lines
    assert 'self.scaler.load_state_dict(state["scaler"])' in done.lines
    assert "scaler=self.scaler.state_dict()" in done.text


def test_a_scaler_that_is_given_to_the_function_that_saves():
    text = """\
import torch
from torch import nn

def train(model, optimizer, scaler, device):
    for step in range(10):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(torch.randn(8, 4, device=device)).pow(2).mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save(state, "last.pt")

def main():
    model = nn.Linear(4, 4).cuda()
    optimizer = torch.optim.Adam(model.parameters())
    grad_scaler = torch.amp.GradScaler("cuda")
    state = torch.load("first.pt")
    optimizer.load_state_dict(state["optimizer"])
    train(model, optimizer, grad_scaler, "cuda")

main()
"""
    done = apply(RULE, text)
    assert '"scaler": scaler.state_dict()' in done.text
    assert 'grad_scaler.load_state_dict(state["scaler"])' in done.text


@pytest.mark.parametrize(
    ("old", "new", "why"),
    [
        # the scaler is made after the checkpoint is loaded
        (
            'scaler = torch.amp.GradScaler("cpu", init_scale=4.0, growth_interval=2)\n',
            "",
            "not made on every way",
        ),
        ("scaler = torch", "if len(os.environ):\n    scaler = torch", "not made on every way"),
        (
            "scaler = torch",
            "scaler = None\nif os.environ:\n    scaler = torch",
            "not made on every way",
        ),
        (
            '    model.load_state_dict(checkpoint["model"])',
            "    print(sorted(checkpoint))",
            "may notice another key",
        ),
        ('{"model"', '{"scaler": 1, "model"', "already"),
        # another scaler, for the same loss
        (
            "    scaler.step(optimizer)",
            "    other = torch.amp.GradScaler()\n    other.scale(model(torch.ones(2, 4)).mean()).backward()\n    scaler.step(optimizer)",
            "several GradScalers",
        ),
        # an object that has keys, and no get()
        (
            "    checkpoint = torch.load(PATH)",
            "    class Parts:\n        def __getitem__(self, key):\n            return torch.load(PATH)[key]\n    checkpoint = Parts()",
            "may notice another key",
        ),
    ],
)
def test_refused(old, new, why):
    text = changed(old, new)
    if not new:
        text = text.replace("scales = [", 'scaler = torch.amp.GradScaler("cpu")\nscales = [')
    done = apply(RULE, text)
    assert not done.fixes and why in done.refusals


@pytest.mark.parametrize(
    ("old", "new"),
    [
        (
            '"optimizer": optimizer.state_dict()}',
            '"optimizer": optimizer.state_dict(), "amp": scaler.state_dict()}',
        ),
        (', "optimizer": optimizer.state_dict()}', "}"),  # weights alone: for evaluation
        ("scaler.scale(loss)", "loss"),  # made, and not used
    ],
)
def test_nothing_is_forgotten(old, new):
    text = changed(old, new)
    if new == "loss":
        text = text.replace("scaler.step(optimizer)", "optimizer.step()").replace(
            "scaler.update()", "pass"
        )
    assert not apply(RULE, text).findings


def test_an_attribute_that_is_not_always_a_scaler():
    text = changed(
        "        self.scaler = torch",
        "        if model.training:\n            self.scaler = torch",
        TRAINER,
    )
    assert "not made on every way" in apply(RULE, text).refusals
    text = changed('        self.resume("last.pt")\n', "", TRAINER)
    text = changed(
        "        self.scaler = ", '        self.resume("last.pt")\n        self.scaler = ', text
    )
    assert "not made on every way" in apply(RULE, text).refusals


def test_with_a_new_scaler():
    """The places that grad-scaler brings its own scaler to are named, and go with it."""
    text = script(LOOP + SAVE)
    done = amp(text, rules=f"{AMP} {RULE}", target="cpu", precision="fp16")
    assert len([f for f in done.fixes if f.rule == RULE]) == 2
    assert set(trained(done.text)["checkpoint"]) == {"model", "optimizer", "scaler"}
    assert not apply(RULE, text).findings
