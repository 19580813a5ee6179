"""autocast: the smallest block that holds the products, where all that leaves it is fp32."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.amp import AMP, HEAD as BASE, LOOP, amp, close, faked, trained
from tests.onerule import Applied

HEAD = BASE.replace("lr=0.1", "lr=0.01")
RENDERS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--chunk", type=int, default=8)
parser.add_argument("--freqs", type=int, default=-1)
args = parser.parse_args([])


def embedder():
    if args.freqs == -1:
        return nn.Identity()
    return lambda x: torch.cat([x.sin(), x.cos()], -1)


def batchify(fn, chunk):
    if chunk is None:
        return fn

    def ret(inputs):
        {returns}

    return ret


def render(x):
    out = batchify(model, args.chunk)(embed(x))
    weights = torch.exp(-torch.relu(out - 1).cumsum(-1))
    return (weights * out).sum(-1)


embed = embedder()
for i in range(6):
    x, y = X[i].to(device), Y[i].to(device)
    optimizer.zero_grad()
    found = render(x)
    loss = (found - y).square().mean()
    psnr = -10 * torch.log10(loss)
    if i % 2:
        loss = loss + 0.1 * (found - 1).square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""
PARTS = "range(0, len(inputs), chunk)"
JOINED = f"return torch.cat([fn(inputs[i : i + chunk]) for i in {PARTS}], 0)"


def rewritten(text: str, tolerance: float = 0.02) -> Applied:
    """The form for CUDA; this and the form for a CPU train as the script does."""
    on_cpu, done = amp(text, rules="autocast", target="cpu"), amp(text, rules="autocast")
    old = trained(text)["losses"]
    assert close(old, trained(on_cpu.text)["losses"], tolerance)
    assert trained(done.text)["losses"] == old
    return done


@pytest.mark.parametrize(
    ("returns", "line"),
    [
        (JOINED, JOINED.replace("chunk])", "chunk]).float()")),
        (
            f"found = [fn(inputs[i : i + chunk]) for i in {PARTS}]\n        return torch.cat(found)",
            f"found = [fn(inputs[i : i + chunk]).float() for i in {PARTS}]",
        ),
        ("return fn(inputs) if len(inputs) < 99 else None", ""),
    ],
)
def test_a_network_that_parts_go_through(returns: str, line: str) -> None:
    """One block around the only call of the network: neither the rendering nor the loss. What may
    be no list of the statement's own keeps the block around all of it.
    """
    done = rewritten(HEAD + RENDERS.replace("{returns}", returns))
    assert sum("autocast(" in new for new in done.lines) == 1
    assert sum(".float()" in new for new in done.lines) == 1
    assert not line or [x for x in done.lines if "has_bf16" not in x] == [line]


@pytest.mark.parametrize(
    "returns",
    [
        f"return torch.cat(list(fn(inputs[i : i + chunk]) for i in {PARTS}))",
        f"return torch.cat([part() for part in [lambda i=i: fn(inputs[i : i + chunk]) for i in {PARTS}]])",
    ],
)
def test_what_may_run_when_the_statement_has_ended(returns: str) -> None:
    """The block goes around what makes the list of what the generator gives."""
    done = rewritten(HEAD + RENDERS.replace("{returns}", returns))
    assert "found = render(x)" in done.lines


def test_a_list_in_a_generator_is_one_for_each_turn() -> None:
    """Autocast would stay on in whoever asks for the next one."""
    returns = f"yield [fn(inputs[i : i + chunk]) for i in {PARTS}]"
    text = HEAD + RENDERS.replace("{returns}", returns).replace(
        "(embed(x))\n", "(embed(x))\n    out = torch.cat([p for ps in out for p in ps])\n"
    )
    done = rewritten(text)
    assert done.fixes and "found = render(x)" in done.lines


@pytest.mark.parametrize(
    "also", [" @ W", ".matmul(W)", " + helper(inputs)", " + F.linear(inputs, V)"]
)
def test_a_list_beside_other_products_stays_with_what_takes_them(also: str) -> None:
    """They would leave the smaller block in 16 bits."""
    head = """
W, V = torch.eye(4), torch.zeros(4, 8)


def helper(x):
    return x @ V.t()
"""
    done = rewritten(HEAD + head + RENDERS.replace("{returns}", JOINED + also))
    assert "found = render(x)" in done.lines


def test_a_scaler_goes_with_it() -> None:
    done = amp(HEAD + RENDERS.replace("{returns}", JOINED), rules=AMP)
    assert "scaler.scale(loss).backward()" in done.lines
    assert "found = render(x)" not in done.lines


SETTINGS = """
import json


def plain(found):
    if isinstance(found, dict):
        new = dict()
        for key, inner in found.items():
            new[key] = plain(inner)
        return new
    elif isinstance(found, list):
        return [plain(inner) for inner in found]
    return found


options = plain(json.loads(open(PATH).read()))


class Net(nn.Module):
    def __init__(self, drop, widths):
        super().__init__()
        self.a = nn.Linear(8, widths[0])
        self.register_buffer("scale", torch.linspace(options["first"], options["last"], 4))
        self.b = nn.Sequential(nn.Dropout(drop), nn.Linear(widths[0], {out}))

    def forward(self, x):
        return self.b(torch.relu(self.a(x)))


model = Net(options["drop"], options["net"]["widths"])
"""


def test_numbers_of_layers_need_not_be_known(tmp_path: Path) -> None:
    """What a file says of a Linear or a Dropout is no layer; of what a list of layers holds, one is
    not known.
    """
    file = tmp_path / "settings.txt"
    file.write_text('{"drop": 0.0, "first": 1, "last": 2, "net": {"widths": [64, 4]}}')
    head = SETTINGS.replace("PATH", repr(str(file)))
    start, end = HEAD.index("class Net"), HEAD.index("criterion = ")

    def text(made: str) -> str:
        return HEAD[:start] + made + HEAD[end:] + LOOP

    done = rewritten(text(head.replace("{out}", "widths[1]")))
    assert "loss = criterion(model(x), y)" in done.lines
    held = head.replace("nn.Dropout(drop)", 'options["layer"]').replace("{out}", "widths[1]")
    other = amp(text(held), rules="autocast")
    assert not other.fixes and "what json.loads() returns" in other.refusals


PRODUCTS = """
import numpy as np

W = torch.randn(4, 4, requires_grad=True)
V = nn.Parameter(torch.eye(4))


def helper(x):
    return (model(x) - 1) @ W
"""


@pytest.mark.parametrize(
    ("made", "use", "casts"),
    [
        ("helper(x)", "sim.detach().cpu().numpy()", 1),
        ("F.linear(helper(x), V)", "np.asarray(sim.detach().cpu())", 1),
        ("helper(x) / 2 + 1", "kept = [sim.detach()]\n    kept[0].cpu().numpy()", 1),
        ("torch.einsum('ij,jk->ik', model(x) - 1, W)", "sim.detach().numpy()", 1),
        ("(model(x) - 1).mm(W).relu()", "table = {'sim': sim.detach().numpy()}", 1),
        ("helper(x)", "total = (sim.detach() * 2 + 1).sum().item()\n    print(sim.shape)", 0),
        ("helper(x)", "best = sim.argmax(1).numpy()", 0),
        ("helper(x)", "sim.detach().float().numpy()", 0),
        ("helper(x)", "counts = y[None].expand(2, -1) @ y\n    counts.cpu().numpy()", 0),
    ],
)
def test_products_that_leave_the_block(made: str, use: str, casts: int) -> None:
    """What a product gives of fp32 is 16-bit all the same, which NumPy does not take."""
    loss = f"sim = {made}\n    loss = F.mse_loss(sim, F.one_hot(y, 4).float())"
    loop = LOOP.replace("loss = criterion(model(x), y)", loss).replace(
        "losses.append", f"{use}\n    losses.append"
    )
    done = rewritten(HEAD + PRODUCTS + loop, 0.05)
    of_products = [x for x in done.lines if ".float()" in x.replace("model(x).float()", "")]
    assert len([x for x in of_products if "one_hot" not in x and "detach" not in x]) == casts, (
        done.lines
    )


def test_a_function_that_also_takes_parts_through_a_network_in_float64() -> None:
    head = """
teacher = Net().to(device).double()


def chunked(fn, x, n=4):
    return torch.cat([fn(part) for part in x.split(n)], dim=0)
"""
    loss = "out = chunked(model, x)\n    loss = ((out - 1) ** 2).mean() + criterion(out, y)"
    text = HEAD + head + LOOP.replace("loss = criterion(model(x), y)", loss)
    assert "return torch.cat([fn(part).float() for part in x.split(n)], dim=0)" in amp(text).lines
    done = amp(text + "\nwith torch.no_grad():\n    chunked(teacher, X[0].double().to(device))\n")
    assert not done.fixes and "no plain tensor" in done.refusals


def test_a_product_that_goes_to_other_code_is_fp32_there() -> None:
    loss = "sim = helper(x)\n    loss = F.mse_loss(sim, F.one_hot(y, 4).float())"
    loop = LOOP.replace("loss = criterion(model(x), y)", loss).replace(
        "losses.append", "plot(sim)\n    losses.append"
    )
    done = amp("from elsewhere import plot\n" + HEAD + PRODUCTS + loop, rules="autocast")
    assert "return ((model(x).float() - 1) @ W).float()" in done.lines


HELD = """
memory = []


def fill(self, x, out):
    out[:] = [self.a(x), self.b(x)]
    return out


class Two(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 1)

    def forward(self, x):
        {gives}


model = Two().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for i in range(6):
    x, y = X[i].to(device), Y[i].to(device)
    optimizer.zero_grad()
    out = model(x)
    out[1] = out[1].squeeze(1) * 2
    loss = criterion(out[0], y) + {uses}.cumsum(0).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


@pytest.mark.parametrize(
    ("gives", "uses", "cast"),
    [
        ("return [self.a(x), self.b(x)]", "out[1]", True),
        ("out = [self.a(x)]\n        out.append(self.b(x))\n        return out", "out[1]", True),
        ("out = [self.a(x), self.b(x)]\n        memory.append(out)\n        return out", "memory[-1][1]", False),
        ("self.out = [self.a(x), self.b(x)]\n        return self.out", "model.out[1]", False),
        ("out = [self.a(x), self.b(x)]\n        self.out = out\n        return out", "model.out[1]", False),
        ("out = [self.a(x), self.b(x)]\n        self.look = lambda: out[1]\n        return out", "model.look()", False),
        ("out = [self.a(x), self.b(x)]\n        def look():\n            return out\n        self.look = look\n        return out", "model.look()[1]", False),
        ("out = [self.a(x), self.b(x)]\n        self.parts = (part for part in out)\n        return out", "[*model.parts][1]", False),
        ("out = [self.a(x), self.b(x)]\n        self.parts = reversed(out)\n        return out", "next(model.parts)", False),
        ("out = [self.a(x), self.b(x)]\n        self.parts = zip(out)\n        return out", "[*model.parts][1][0]", False),
        ("return sum([[part] for part in (self.a(x), self.b(x))], [])", "out[1]", False),
        ("return fill(self, x, memory)", "memory[-1]", False),
        ("global memory\n        memory = [self.a(x), self.b(x)]\n        return memory", "memory[1]", False),
        ("out = []\n        for part in (self.a(x), self.b(x)):\n            self.last = part\n            out.append(part)\n        return out", "out[1]", True),
    ],
)  # fmt: skip
def test_a_list_that_others_hold_is_not_made_anew(gives: str, uses: str, cast: bool) -> None:
    """What the caller puts into it would be missing there."""
    done = amp(HEAD + HELD.format(gives=gives, uses=uses))
    assert ("part.float() for part in" in done.text) is cast
    assert trained(done.text)["losses"] == trained(done.before)["losses"]


CAPTIONS = BASE.replace("model = Net().to(device)", """

class Decoder(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed = nn.Embedding(10, 4)
        self.lstm = nn.LSTM(4, 16, batch_first=True)
        self.out = nn.Linear(16, 10)

    def forward(self, features, captions):
        rows = torch.cat((features.unsqueeze(1), self.embed(captions)), 1)
        hidden, _ = self.lstm(rows)
        return self.out(hidden[:, :-1]).flatten(0, 1)


model, decoder = Net().to(device), Decoder().to(device)
""").replace("model.parameters()", "[*model.parameters(), *decoder.parameters()]") + """
for i in range(6):
    x, y = X[i].to(device), Y[i].to(device)
    captions = y.unsqueeze(1).expand(-1, 5)
    optimizer.zero_grad()
    PASSES
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""  # fmt: skip
TWO = """features = model(x)
    outputs = decoder(features, captions)
    loss = criterion(outputs, captions.reshape(-1))"""


@pytest.mark.parametrize(
    ("passes", "line"),
    [
        (TWO, "features = model(x).float()"),
        (TWO.replace("criterion(", "features.square().mean() + criterion("), "features = model(x).float()"),
        (TWO.replace("(features, ", "(features.exp(), "), "features = model(x).float()"),
        (TWO.replace("features = model(x)", "features = torch.relu(model(x))"), "x1 = model(x).float()"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("precision", ["auto", "bf16"])
def test_a_network_beside_a_recurrent_one(passes: str, line: str, precision: str) -> None:
    """The decoder, in which an LSTM would compute in fp16, stays in fp32, and gets that."""
    text = CAPTIONS.replace("PASSES", passes)
    done = amp(text, rules="autocast", precision=precision)
    assert sum("autocast(" in new for new in done.lines) == 1, done.refusals
    block = done.text.split("autocast(")[1].splitlines()
    assert "model(x).float()" in block[1] and "decoder" in block[2] + block[3], done.text
    assert trained(done.text)["losses"] == trained(text)["losses"]
    assert not faked(done)


def test_a_pass_within_that_of_a_recurrent_network() -> None:
    passes = TWO.replace("features = model(x)\n    ", "").replace("(features", "(model(x)")
    done = amp(CAPTIONS.replace("PASSES", passes), rules="autocast", precision="auto")
    assert "whatever it is set to" in done.refusals and done.text == done.before


SPREAD = BASE.replace("model = Net().to(device)", """

class Spread(nn.Module):
    def __init__(self):
        super().__init__()
        self.pool = nn.AvgPool1d(2)
        self.weight = nn.Parameter(torch.tensor([[[-1.0, 1.0]]]), requires_grad=TRAINED)

    def forward(self, x):
        return F.conv1d(self.pool(x.unsqueeze(1)), self.weight).square()


model, spread = Net().to(device), Spread().to(device)
""") + """
for i in range(6):
    x, y = X[i].to(device), Y[i].to(device)
    optimizer.zero_grad()
    out = model(x)
    loss = criterion(out, y) + spread(out).mean() + out.square().mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""  # fmt: skip


def test_a_loss_with_pools_and_kernels_that_nothing_trains_stays_in_fp32() -> None:
    """Differences of means that are nearly equal, of which 16 bits leave nothing."""
    done = amp(SPREAD.replace("TRAINED", "False"), rules="autocast")
    block = done.text.split("autocast(")[1].splitlines()
    assert block[1].strip() == "out = model(x).float()" and "loss = " in block[2], done.text
    assert not block[2].startswith("        ")
    both = "[*model.parameters(), *spread.parameters()]"
    trained = SPREAD.replace("TRAINED", "True").replace("model.parameters()", both)
    inside = amp(trained, rules="autocast").text.split("autocast(")[1].splitlines()
    assert any("spread(out)" in line and line.startswith("        ") for line in inside)
