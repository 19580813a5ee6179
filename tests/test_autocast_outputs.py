"""autocast: what a model returns, and which of it becomes fp32 where it is used by hand."""

from __future__ import annotations

import pytest

from tests.amp import HEAD, LOOP, amp, close, trained
from tests.onerule import Applied

RETURN = "return self.b(torch.relu(self.a(x)))"
LOSS = "loss = criterion(model(x), y)"
KNOWN_LATER = "losses = []\nimport sys\nwith_h, n = len(sys.argv) > 0, min(len(sys.path), 2)\n"


def rewritten(returns: str, loss: str, layer: str = "nn.Linear(32, 4)") -> Applied:
    """The script with this model and loss, in the form for CUDA; this and the form for a CPU train as the script does."""
    head = HEAD.replace(RETURN, f"h = torch.relu(self.a(x))\n        {returns}")
    head = head.replace("nn.Linear(32, 4)", layer).replace("losses = []\n", KNOWN_LATER)
    text = head + LOOP.replace(LOSS, loss)
    on_cpu, done = amp(text, rules="autocast", target="cpu"), amp(text, rules="autocast")
    before, after = trained(text)["losses"], trained(on_cpu.text)["losses"]
    assert on_cpu.fixes and before != after and close(before, after), (before, after)
    assert trained(done.text)["losses"] == before
    return done


TWO = """out, h = model(x)
    loss = criterion(out, y)
    if h is not None:
        loss = loss + 0.1 * (h * h - 1).pow(2).mean()"""


@pytest.mark.parametrize(
    ("returns", "loss", "line"),
    [
        (
            "return self.b(h), h if with_h else None",
            TWO,
            "h = h.float()",
        ),
        (
            "g = None\n        if with_h:\n            g = h\n        return self.b(h), g",
            TWO,
            "h = h.float()",
        ),
        (
            "return self.b(h), h if with_h else None",
            f"found = model(x)\n    {TWO.replace('model(x)', 'found')}",
            "found = tuple(part if part is None else part.float() for part in model(x))",
        ),
        (
            "return [self.b(h), h]",
            "loss = 0\n    for out in model(x):\n        loss = loss + (out - 1).pow(2).mean()",
            "for out in [part.float() for part in model(x)]:",
        ),
        (
            "found = []\n        for _ in range(n):\n            found.append(self.b(h))\n        return found",
            "found = model(x)\n    loss = sum((out - 1).pow(2).mean() for out in found)",
            "found = [part.float() for part in model(x)]",
        ),
        (
            'return {"out": self.b(h), "h": h}',
            'found = model(x)\n    loss = criterion(found["out"], y) + (found["h"] - 1).pow(2).mean()',
            "found = dict((name, part.float()) for name, part in model(x).items())",
        ),
    ],
)
def test_what_holds_tensors_becomes_fp32_part_by_part(returns: str, loss: str, line: str):
    assert line in rewritten(returns, loss).lines


@pytest.mark.parametrize(
    "returns",
    [
        'return {"out": self.b(h), "order": h.argmax(1)}',
        'found = {"out": self.b(h)}\n        found.update(extra(1))\n        return found',
        "return [self.b(h), h.argmax(1)]",
    ],
)
def test_what_holds_other_things_is_refused(returns: str):
    head = HEAD.replace(RETURN, f"h = torch.relu(self.a(x))\n        {returns}")
    loss = "found = model(x)\n    for out in found:\n        loss = (found[out] * 2 - y[:, None]).pow(2).mean()"
    done = amp(
        head.replace("torch.manual", "from elsewhere import extra\ntorch.manual", 1)
        + LOOP.replace(LOSS, loss)
    )
    assert not done.fixes and "no plain tensor" in done.refusals


BY_HAND = "out = model(x)\n    loss = -(out * F.one_hot(y, 4)).sum(1).mean()"
PAIR = BY_HAND.replace("out =", "out, _ =")


@pytest.mark.parametrize(
    ("returns", "loss", "layer"),
    [
        ("return F.log_softmax(self.b(h), dim=1)", BY_HAND, ""),
        ("return self.b(h).log_softmax(-1).view(-1, 4)", BY_HAND, ""),
        ("h = self.b(h)\n        h = torch.log_softmax(h, 1)\n        return h", BY_HAND, ""),
        ("return self.b(h)", BY_HAND, "nn.Sequential(nn.Linear(32, 4), nn.LogSoftmax(dim=1))"),
        ("return self.b(h).float()", BY_HAND, ""),
        ("return F.log_softmax(self.b(h), dim=1), h", PAIR, ""),
        ("out = F.log_softmax(self.b(h), dim=1)\n        return out, h", PAIR, ""),
    ],
)
def test_what_a_softmax_gives_is_fp32_already(returns: str, loss: str, layer: str):
    """On CUDA; the form for a CPU, whose autocast computes other things in fp32, says it."""
    done = rewritten(returns, loss, layer or "nn.Linear(32, 4)")
    assert done.fixes and ".float()" not in "".join(done.lines)


@pytest.mark.parametrize(
    "returns",
    [
        "return F.log_softmax(self.b(h), dim=1) if with_h else self.b(h)",
        "return F.log_softmax(self.b(h), dim=1) @ torch.eye(4).to(x.device)",
    ],
)
def test_what_may_be_16_bits_is_cast(returns: str):
    assert "out = model(x).float()" in rewritten(returns, BY_HAND).lines
