"""autocast: what a model returns, and which of it becomes fp32 where it is used by hand."""

from __future__ import annotations

import pytest
import torch

from tests.amp import HEAD, LOOP, amp, close, faked, script, trained
from tests.onerule import Applied, apply

RETURN = "return self.b(torch.relu(self.a(x)))"
LOSS = "loss = criterion(model(x), y)"
KNOWN_LATER = "losses = []\nimport sys\nwith_h, n = len(sys.argv) > 0, min(len(sys.path), 2)\n"


def rewritten(
    returns: str, loss: str, layer: str = "nn.Linear(32, 4)", before: str = ""
) -> Applied:
    """The script with this model and loss, in the form for CUDA; this and the form for a CPU train
    as the script does.
    """
    head = HEAD.replace(RETURN, f"h = torch.relu(self.a(x))\n        {returns}")
    head = head.replace("nn.Linear(32, 4)", layer).replace("losses = []\n", KNOWN_LATER)
    text = head + before + LOOP.replace(LOSS, loss)
    on_cpu, done = amp(text, rules="autocast", target="cpu"), amp(text, rules="autocast")
    old, new = trained(text)["losses"], trained(on_cpu.text)["losses"]
    assert on_cpu.fixes and old != new and close(old, new), (old, new)
    assert trained(done.text)["losses"] == old
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
        (
            'import collections\n        Both = collections.namedtuple("Both", "out h")\n        return Both(self.b(h), h)',
            "found = model(x)\n    loss = criterion(found.out, y) + (found.h - 1).pow(2).mean()",
            "found = found._make(part.float() for part in found)",
        ),
    ],
)
def test_what_holds_tensors_becomes_fp32_part_by_part(returns: str, loss: str, line: str):
    assert line in rewritten(returns, loss).lines


@pytest.mark.parametrize(
    "returns",
    [
        'found = {"out": self.b(h)}\n        found.update(extra(1))\n        return found',
        "return [self.b(h), extra(1)]",
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


NESTED = """found = model(x)
    loss = ((found["out"] - 1) ** 2).mean()
    for part in found["more"]:
        loss = loss + 0.1 * (part["h"] - 1).pow(2).mean()"""


@pytest.mark.parametrize(
    ("returns", "loss"),
    [
        ('return {"out": self.b(h), "more": [{"h": h}, {"h": h * 2}]}', NESTED),
        ('return {"out": self.b(h), "more": ({"h": h, "n": h.argmax(1)},), "sizes": 3}', NESTED),
        (
            'found = {"out": self.b(h), "more": [], "none": None}\n        if with_h:\n'
            '            found["more"] = [{"h": a} for a in (h, h + 1)]\n        return found',
            NESTED,
        ),
        (
            "return self.b(h), [h, h * 2]",
            "out, more = model(x)\n    loss = criterion(out, y) + sum((a - 1).pow(2).mean() for a in more)",
        ),
        (
            "return [self.b(h), h.argmax(1)]",
            "out, order = model(x)\n    loss = criterion(out * 2 - 1, y)\n    order % 2",
        ),
    ],
)
def test_what_holds_tensors_at_any_depth(returns: str, loss: str) -> None:
    """Dicts of lists of dicts, and what has integers beside: 16-bit tensors alone change."""
    done = rewritten(returns, loss)
    text = done.text
    assert text.count("def as_fp32(") == text.count(" = as_fp32(model(x))") or ".float()" in text
    scope = trained(text)
    if "as_fp32" in scope:
        half = torch.ones(2, dtype=torch.bfloat16)
        got = scope["as_fp32"]({"a": [half, (half, None)], "b": torch.ones(2).long(), "c": "x"})
        assert got["a"][0].dtype == got["a"][1][0].dtype == torch.float32
        assert got["b"].dtype == torch.int64 and got["a"][1][1] is None and got["c"] == "x"


def test_a_loss_in_the_form_of_a_module_stays_outside_with_what_it_calls() -> None:
    """A matcher gives NumPy what it computes: the network alone runs under autocast."""
    criterion = """


class Matcher(nn.Module):
    @torch.no_grad()
    def forward(self, out, y):
        cost = torch.cdist(out["logits"].softmax(-1), F.one_hot(y, 4).float(), p=1)
        cost = cost * 2 + (out["logits"][:, None] - 1).abs().mean(-1)
        return torch.as_tensor(cost.cpu().numpy().argmin(0))


class Criterion(nn.Module):
    def __init__(self):
        super().__init__()
        self.matcher = Matcher()

    def forward(self, out, y):
        rows = self.matcher(out, y)
        loss = F.cross_entropy(out["logits"][rows], y)
        for more in out["more"]:
            loss = loss + 0.01 * (more["h"] - 1).abs().mean()
        return loss


criterion = Criterion()
"""
    returns = 'return {"logits": self.b(h), "more": [{"h": h}]}'
    done = rewritten(returns, LOSS, before=criterion)
    assert "found = as_fp32(model(x))" in done.text or "output = as_fp32(model(x))" in done.lines
    assert "loss = criterion(output, y)" in done.lines


def test_what_a_wrapper_of_the_projects_own_gathers_is_not_known():
    """``gather`` of a DataParallel of one's own may give a dict, which has no ``.float()``."""
    own = (
        "class Split(nn.DataParallel):\n    def gather(self, outputs, output_device):\n"
        "        return {'out': torch.cat(outputs)}\n\nmodel = Split(model)\n"
    )
    loss = "found = model(x)\n    loss = sum((part * part).mean() for part in found.values())"
    done = amp(HEAD + own + LOOP.replace(LOSS, loss))
    assert not done.fixes and "no plain tensor" in done.refusals


# what training never asks for (`"sum"`) says nothing of what it gets; a variable that is set anew
# holds something else
HELPERS = """
def reduced(x, reduction):
    found = F.log_softmax(x, dim=1)
    if reduction == "none":
        return found
    elif reduction == "sum":
        return F.linear(found, found)


def unit(x):
    x = F.normalize(x, dim=1)
    return x * x.sum()


"""
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
        ("return F.normalize(self.b(h), dim=1)", BY_HAND, ""),
        ("return torch.clamp(-self.b(h).log_softmax(1), min=0)", BY_HAND, ""),
        ("return reduced(self.b(h), 'none')", BY_HAND, ""),
        ("return self.b(h)", f"{BY_HAND.replace('model(x)', 'unit(model(x))')}", ""),
    ],
)
def test_what_a_softmax_gives_is_fp32_already(returns: str, loss: str, layer: str):
    """On CUDA; the form for a CPU, whose autocast computes other things in fp32, says it."""
    done = rewritten(returns, loss, layer or "nn.Linear(32, 4)", HELPERS)
    assert done.fixes and ".float()" not in "".join(done.lines)


@pytest.mark.parametrize(
    "returns",
    [
        "return F.log_softmax(self.b(h), dim=1) if with_h else self.b(h)",
        "return F.log_softmax(self.b(h), dim=1) @ torch.eye(4).to(x.device)",
        "return torch.clamp(-self.b(h), min=0)",
    ],
)
def test_what_may_be_16_bits_is_cast(returns: str):
    assert "out = model(x).float()" in rewritten(returns, BY_HAND).lines


SOME = "return [self.b(h), h] if self.training else self.b(h)"


def test_a_tensor_or_several():
    loss = (
        "found = model(x)\n    loss = criterion(found[0] * 1.5, y) + (found[1] - 1).pow(2).mean()"
    )
    line = "found = [part.float() for part in found] if isinstance(found, list) else found.float()"
    assert line in rewritten(SOME, loss, before="if not losses:\n    model.train()\n").lines


@pytest.mark.parametrize(
    ("returns", "switch", "line"),
    [
        (
            "if self.training and self.b is not None:\n            return [self.b(h), h]\n        return self.b(h)",
            "",
            "isinstance(found, list)",
        ),
        (
            "if not self.training:\n            return self.b(h)\n        return [self.b(h), h]",
            "",
            "[part.float() for part in model(x)]",
        ),
        (SOME, "print(model.eval())\nmodel.train()\n", "[part.float() for part in model(x)]"),
        (SOME, "if n > 1:\n    model.train()\n", "isinstance(found, list)"),
    ],
)
def test_a_tensor_or_several_by_the_mode_of_the_model(returns: str, switch: str, line: str):
    loss = (
        "found = model(x)\n    loss = criterion(found[0] * 1.5, y) + (found[1] - 1).pow(2).mean()"
    )
    done = rewritten(returns, loss, before=switch)
    assert line in done.text and ("isinstance(" in line or "isinstance(" not in done.text)


def test_the_mode_may_be_another_in_the_next_turn():
    loss = (
        "found = model(x)\n    found = found if len(found) == 2 else (found, found)\n"
        "    loss = criterion(found[0] * 1.5, y) + (found[1] - 1).pow(2).mean()\n    model.eval()"
    )
    done = rewritten(SOME, loss, before="model.train()\n")
    assert not done.fixes or "isinstance(found, list)" in done.text


# ----------------------------------------------------------------------------------- off by default
OPTIONS = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--weight", type=float, default=0)
parser.add_argument("--loss", default="mse")
parser.add_argument("--warp", action="store_true")
parser.add_argument("--kind", required=True)
parser.add_argument("--no-mse", action="store_false", dest="mse")
args = parser.parse_args()
"""
PROBABILITIES = "return torch.sigmoid(self.b(h))"
WARPS = """if args.warp:
            grid = F.affine_grid(torch.eye(2, 3)[None], (1, 1, *h.shape), align_corners=False)
            h = F.grid_sample(h[None, None], grid, align_corners=False)[0, 0]
        return torch.sigmoid(self.b(h))"""
MSE, BCE = "F.mse_loss(p, wanted)", "F.binary_cross_entropy(p * 0.9, wanted)"
WEIGHED = f"if args.weight > 0:\n        loss = loss + args.weight * {BCE}"


def optional(more: str, returns: str = PROBABILITIES, before: str = "") -> str:
    head = HEAD.replace("class Net", OPTIONS + "\n\nclass Net", 1)
    head = head.replace(RETURN, f"h = torch.relu(self.a(x))\n        {returns}")
    head = head.replace("losses = []\n", f"losses = []\n{before}\n")
    loss = f"p, wanted = model(x), F.one_hot(y, 4).float()\n    loss = {MSE}\n    {more}"
    return head + LOOP.replace(LOSS, loss)


@pytest.mark.parametrize(
    ("text", "given", "enabled"),
    [
        (optional(WEIGHED), ["--weight", "1"], "not args.weight > 0"),
        (
            optional(WEIGHED.replace("args.weight", "w"), before="w = args.weight"),
            ["--weight", "1"],
            "not w > 0",
        ),
        (
            optional(f'if args.loss != "mse":\n        loss = {BCE}'),
            ["--loss", "bce"],
            'args.loss == "mse"',
        ),
        (
            optional(
                f'loss = {MSE} if "mse" == args.loss else {BCE}'.replace(
                    '"mse" == args.loss', "args.mse"
                )
            ),
            ["--no-mse"],
            "args.mse",
        ),
        (
            optional(f"if args.mse:\n        loss = 2 * {MSE}\n    else:\n        loss = {BCE}"),
            ["--no-mse"],
            "args.mse",
        ),
        (optional("", WARPS), ["--warp"], "not args.warp"),
    ],
)
def test_what_is_off_by_default_stays_as_it_is_where_it_is_on(
    text: str, given: list[str], enabled: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr("sys.argv", ["train.py", "--kind", "any"])
    done = amp(text, rules="autocast", target="cpu")
    assert f"enabled={enabled}):" in done.text, (done.lines, done.refusals)
    before, after = trained(text)["losses"], trained(done.text)["losses"]
    assert before != after and close(before, after)
    monkeypatch.setattr("sys.argv", ["train.py", "--kind", "any", *given])
    assert trained(text)["losses"] == trained(done.text)["losses"] != before


@pytest.mark.parametrize(
    "text",
    [
        optional(f"if not args.warp:\n        loss = {BCE}"),  # on by default
        optional(f"if args.weight > float(args.loss == 'bce'):\n        loss = {BCE}"),
        optional(f"if args.kind == 'bce':\n        loss = {BCE}"),
        optional(f"if args.weight > 0 or losses:\n        loss = {BCE}"),
        optional(WEIGHED + f"\n    if args.warp:\n        loss = loss + {BCE}"),
        optional(WEIGHED, before="args.weight = float(len(losses))"),
    ],
)
def test_what_the_default_of_one_option_does_not_decide_is_refused(text: str):
    done = amp(text, rules="autocast", target="cpu")
    assert not done.fixes and "binary_cross_entropy" in done.refusals


HANDED = """
import json
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rows = json.loads("[" + ",".join(str(i % 4) for i in range(96)) + "]")


class Rows(Dataset):
    def __len__(self):
        return len(rows)

    def __getitem__(self, i):
        return torch.randn(8), torch.as_tensor(rows[i])


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(8, 3200)
        self.b = nn.Linear(3200, 4)

    def forward(self, x, y):
        order = x[:, 0].sort()[1]
        h = self.b(torch.relu(self.a(x[order])))
        {returns}


model = Net().to(device)
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for x, y in DataLoader(Rows(), batch_size=16):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    {use}
    table = out.detach().cpu().numpy()
    loss = criterion(out, y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


@pytest.mark.parametrize(
    ("returns", "use"),
    [
        ("return h, y[order]", "out, y = model(x, y)"),
        ("return [h, y[order]]", "found = model(x, y)\n    out, y = found"),
        ('return {"h": h, "y": y}', 'found = model(x, y)\n    out, y = found["h"], found["y"]'),
    ],
)
def test_what_a_model_hands_through_is_never_cast(returns: str, use: str):
    """Labels that come back in another order are still integers, which the loss asks for."""
    text = HANDED.replace("{returns}", returns).replace("{use}", use)
    for target in ("cuda", "cpu"):
        done = amp(text, rules="autocast", target=target)
        assert "y = y.float()" not in done.text and "part.float()" not in done.text
        assert len(trained(done.text)["losses"]) == 6


RESTORES = """
import json
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
rows = json.loads(str(torch.randn(96, 8).tolist()))


class Rows(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        return torch.as_tensor(rows[i]), torch.randn(8)


class First(nn.Module):
    def forward(self, x):
        return x.argmax(1, keepdim=True)


class Twice(nn.Module):
    def __init__(self):
        super().__init__()
        self.c = nn.Sequential(nn.Linear(8, 512), nn.ReLU(), nn.Linear(512, 8))

    def forward(self, x):
        h = self.c(x)
        return self.c(h) + x


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Sequential(nn.Linear(8, 3200), nn.ReLU(), nn.Linear(3200, 8))
        self.twice = Twice()
        self.first = nn.Sequential(nn.Linear(8, 8), First())

    def forward(self, x):
        h = self.a(x)
        {returns}


def charbonnier(x, y):
    diff = x - y
    return torch.sqrt(diff * diff + 1e-6).mean()


model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for x, y in DataLoader(Rows(), batch_size=16):
    x, y = x.to(device), y.to(device)
    optimizer.zero_grad()
    out = model(x)
    loss = sum([charbonnier(out[j], y) for j in range(len(out))])
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
model.eval()
for x, y in DataLoader(Rows(), batch_size=16):
    x, y = x.to(device), y.to(device)
    with torch.no_grad():
        out = model(x)
    losses.append((out[0] - y).square().mean().item())
"""


@pytest.mark.parametrize(
    "returns",
    [
        "return [x + self.a(x), h]",
        "return [x - h, h]",
        "return [self.twice(x), h * x]",
        "g = h\n        g = x * g\n        return [g, h]",
    ],
)
def test_arithmetic_with_a_layers_output_is_floats(returns: str) -> None:
    """Images plus what a network adds to them become fp32 part by part, and the loss is computed
    from that, also where an evaluation makes no gradients of them.
    """
    text = RESTORES.replace("{returns}", returns)
    old = trained(text)["losses"]
    for target in ("cuda", "cpu"):
        done = amp(text, rules="autocast", target=target)
        assert "out = [part.float() for part in model(x)]" in done.lines, done.refusals
        assert "charbonnier" not in "".join(done.lines)
        assert close(old, trained(done.text)["losses"])


@pytest.mark.parametrize(
    "returns",
    [
        "return [x, h]",
        "return [x + 1, h]",
        "return [x + self.first(x), h]",
        "return [x + h.argmax(1, keepdim=True), h]",
        "return [x + h.to(x.dtype), h]",
        "if len(x) > 99:\n            h = x\n        return [x + h, h]",
        "return [x // h, h]",
    ],
)
def test_what_may_be_integers_all_the_same_is_not_cast(returns: str) -> None:
    done = amp(RESTORES.replace("{returns}", returns), rules="autocast")
    assert "part.float()" not in done.text


APART = """
def apart(e):
    squares = (e * e).sum(1)
    {product}
    gram = squares.unsqueeze(1) + squares.unsqueeze(0) - {away}
    return gram.clamp(min=1e-6).sqrt().mean()

"""


@pytest.mark.parametrize(
    ("product", "away"),
    [
        ("product = e @ e.t()", "2 * product"),
        ("", "2.0 * torch.mm(e, e.t())"),
        ("", "e.matmul(e.t()) * 2"),
    ],
)
def test_distances_that_are_left_of_a_product_stay_in_fp32(product: str, away: str) -> None:
    """Of near points, a product of 16 bits leaves only its rounding: the model alone runs under
    autocast.
    """
    before = APART.format(product=product or "pass", away=away)
    done = rewritten("return self.b(h)", "loss = apart(model(x))", before=before)
    assert "loss = apart(model(x).float())" in done.text or ".float()" in done.text
    blocks = [line for line in done.text.splitlines() if "autocast(" in line]
    after = done.text.split(blocks[0])[1].splitlines()[1]
    assert "apart(" not in after, done.text
    sums = APART.format(product="product = e @ e.t()", away="squares.sum() * 0")
    joined = rewritten("return self.b(h)", "loss = apart(model(x))", before=sums)
    inside = joined.text.split(blocks[0])[1].splitlines()[1]
    assert "apart(" in inside, joined.text


def test_what_a_file_with_numbers_gives_is_no_tensor(tmp_path):
    """``ids[mask] = words["unknown"]``: what ``json`` reads is written into any dtype."""
    (tmp_path / "words.json").write_text('{"unknown": 1}')
    head = HEAD.replace("import torch ", "import json\nimport torch ", 1).replace(
        "class Net(nn.Module):",
        f"WORDS = json.load(open({str(tmp_path / 'words.json')!r}))\n\n\nclass Net(nn.Module):",
    )
    forward = "        x = x.clone()\n        x[x > 2] = WORDS['unknown']\n        return self.b("
    done = amp(script(head=head.replace("        return self.b(", forward)))
    assert done.fixes and not done.refusals
    assert not faked(done)


def test_two_passes_beside_each_other_share_a_block() -> None:
    """What is made of their outputs has to stay in fp32: each gets ``.float()``, both one block."""
    passes = "one = model(x)\n    two = model(x + 1)\n    loss = criterion(one, y)\n    "
    apart = passes + "loss = loss + torch.linalg.qr(one - two)[1].pow(2).mean()"
    done = rewritten("return self.b(h)", apart)
    assert done.text.count("with torch.autocast(") == 1
    at = done.text.index("with torch.autocast(")
    assert [s.strip() for s in done.text[at:].split("\n")[1:4]] == [
        "one = model(x).float()",
        "two = model(x + 1).float()",
        "loss = criterion(one, y)",
    ]


def test_a_block_for_each_of_many_lines_is_not_written() -> None:
    lines = "".join(
        f"h{n} = torch.linalg.qr(model(x + {n}))[0]\n    parts = parts + h{n}.sum()\n    "
        for n in range(8)
    )
    loss = f"parts = criterion(model(x), y)\n    {lines}loss = parts"
    text = HEAD + LOOP.replace(LOSS, loss)
    done = amp(text, rules="autocast")
    assert not done.fixes and "blocks would be needed" in done.refusals


def test_a_pass_without_gradients_gets_a_block_of_its_own() -> None:
    """Weights that are cast without gradients stay so until the block ends (pytorch#65766)."""
    passes = "one = model(x)\n    with torch.no_grad():\n        two = model(x + 1)\n    loss = criterion(one, y)\n    "
    apart = passes + "loss = loss + torch.linalg.qr(one - two)[1].pow(2).mean()"
    done = rewritten("return self.b(h)", apart)
    assert (
        "one = model(x).float()\n    with torch.no_grad():\n        two = model(x + 1)\n"
        in done.text
    )


WRITES = {
    "by indices": "bank[y] = h.detach()",
    "added by indices": "bank.index_add_(0, y, h.detach())",
    "read by NumPy": "seen.append(h.detach().cpu().numpy().sum())",
}


@pytest.mark.parametrize("kind", WRITES)
def test_what_a_method_of_the_network_gives_becomes_fp32_too(kind: str):
    method = "def encode(self, x):\n        return torch.relu(self.a(x))\n\n    def forward"
    head = HEAD.replace("def forward", method) + "bank, seen = torch.zeros(4, 32), []\n"
    loss = f"h = model.encode(x)\n    loss = criterion(model.b(h), y)\n    {WRITES[kind]}"
    text = head + LOOP.replace(LOSS, loss)
    done = amp(text, rules="autocast", target="cpu")
    assert "h = model.encode(x).float()" in done.lines, (done.lines, done.refusals)
    assert close(trained(text)["losses"], trained(done.text)["losses"])


FIELDS = """import dataclasses


@dataclasses.dataclass
class Output:
    logits: torch.Tensor
    h: torch.Tensor


"""


@pytest.mark.parametrize(
    ("use", "is_refused"),
    [
        ("", False),
        ("\n    print(out.logits.detach().cpu().numpy().sum())", True),
        ("\n    print(out.h.detach().numpy().sum())", True),
        ("\n    print(out.h.shape, out.logits.float().sum())", False),
    ],
)
def test_fields_of_what_a_model_returns(use: str, is_refused: bool) -> None:
    head = HEAD.replace(RETURN, "h = torch.relu(self.a(x))\n        return Output(self.b(h), h=h)")
    head = head.replace("class Net", f"{FIELDS}class Net", 1)
    assert head != HEAD
    text = head + LOOP.replace(LOSS, f"out = model(x)\n    loss = criterion(out.logits, y){use}")
    done = amp(text)
    assert ("with torch.autocast(" in done.text) is not is_refused, done.refusals
    assert not is_refused or "would be a 16-bit number" in done.refusals


@pytest.mark.parametrize(
    "use",
    [
        "h.retain_grad()",
        "h.register_hook(lambda g: g * 0)",
        "torch.autograd.grad(h.sum(), h, retain_graph=True)",
        "torch.autograd.grad(h.sum(), [x, h], retain_graph=True, allow_unused=True)",
        "print(h.grad)",
    ],
)
def test_gradients_of_outputs(use: str) -> None:
    """A cast behind the pass would part them from what the loss is computed of."""
    head = HEAD.replace(RETURN, "h = torch.relu(self.a(x))\n        return self.b(h), h")
    text = head + LOOP.replace(
        LOSS, f"out, h = model(x)\n    {use}\n    loss = criterion(out, y) + (h * h - 1).mean()"
    )
    done = amp(text)
    assert not done.fixes and "asks for the gradient of what a network gives" in done.refusals
    other = text.replace(f"    {use}\n", "    print(model.a.weight.grad)\n")
    assert amp(other).fixes


# ---------------------------------------------- sigmoids that a binary cross entropy is taken of
def probable(returns: str, loss: str, init: str = "") -> str:
    head = HEAD.replace(RETURN, returns)
    head = head.replace(
        "        self.b = nn.Linear(32, 4)\n", f"        self.b = nn.Linear(32, 4)\n{init}"
    )
    return head + LOOP.replace(LOSS, f"wanted = F.one_hot(y, 4).float()\n    {loss}")


PRODUCTS = "self.b(torch.relu(self.a(x)))"
LAYER = "        self.act = nn.Sigmoid()\n"
TAKEN = "loss = F.binary_cross_entropy(model(x), wanted)"


@pytest.mark.parametrize(
    ("returns", "full", "loss", "init"),
    [
        (f"return torch.sigmoid({PRODUCTS})", f"torch.sigmoid({PRODUCTS}.float())", TAKEN, ""),
        (f"return {PRODUCTS}.sigmoid()", f"{PRODUCTS}.float().sigmoid()", TAKEN, ""),
        (f"return self.act({PRODUCTS})", f"self.act({PRODUCTS}.float())", TAKEN, LAYER),
        (
            f"h = {PRODUCTS}\n        return F.sigmoid(h), torch.sigmoid(h * 2)",
            "return F.sigmoid(h.float()), torch.sigmoid((h * 2).float())",
            "p, q = model(x)\n    loss = nn.BCELoss()(p, wanted) + nn.BCELoss()(q, wanted)",
            "",
        ),
    ],
)
def test_a_sigmoid_in_a_network_computes_in_fp32(
    returns: str, full: str, loss: str, init: str
) -> None:
    """As a loss of logits does: in 16 bits it would be 1 for what is nearly 1."""
    done = amp(probable(returns, loss, init), precision="fp16", asked=True)
    assert full in done.text, done.refusals
    assert ".float()" not in done.text.split("for i in range")[1].split("autocast")[1]
    assert not faked(done)
    assert not amp(done.text, precision="fp16", asked=True).fixes


def test_an_evaluation_beside_it_has_the_same_sigmoid() -> None:
    text = probable(f"return torch.sigmoid({PRODUCTS})", TAKEN)
    text += "with torch.no_grad():\n    for i in range(6):\n        losses.append(F.mse_loss(model(X[i].to(device)), torch.zeros(16, 4)).item())\n"
    done = amp(text, precision="fp16", asked=True)
    assert done.text.count("with torch.autocast") == 2 and done.text.count("torch.sigmoid") == 1
    assert done.text.count(f"{PRODUCTS}.float())") == 1 and not faked(done)


@pytest.mark.parametrize(
    ("returns", "loss", "init"),
    [
        # called by a container, and what is not, or not always, its very result
        (f"return self.act({PRODUCTS})", TAKEN, LAYER.replace("nn.S", "nn.Sequential(nn.S") .replace("()", "())")),
        (f"return torch.sigmoid({PRODUCTS}) * 0.9", TAKEN, ""),
        (f"return torch.sigmoid({PRODUCTS})", TAKEN.replace("model(x)", "model(x).clamp(1e-4, 1 - 1e-4)"), ""),
    ],
)  # fmt: skip
def test_other_probabilities_are_refused(returns: str, loss: str, init: str) -> None:
    done = amp(probable(returns, loss, init), asked=True)
    assert not done.fixes and "binary_cross_entropy" in done.refusals


def test_a_sigmoid_of_fp32_stays_as_it_is() -> None:
    done = amp(
        probable(f"return torch.sigmoid({PRODUCTS}.float())", TAKEN), precision="fp16", asked=True
    )
    assert "float().float()" not in done.text and done.fixes and not faked(done)


def test_a_network_changes_only_where_16_bits_are_known_to_pay() -> None:
    text = probable(f"return torch.sigmoid({PRODUCTS})", TAKEN)
    done = apply("autocast", text, min_gain=0.01)
    assert not done.fixes and "--select autocast writes both" in done.refusals
    large = text.replace("(8, 32)", "(8, 8192)").replace("(32, 4)", "(8192, 4)")
    large = large.replace("torch.randn(6, 16, 8)", "torch.randn(6, 4096, 8)")
    large = large.replace("(6, 16))", "(6, 4096))")
    assert apply("autocast", large, min_gain=0.01).fixes
    assert not apply("autocast", text).fixes and apply("autocast", text, asked=True).fixes
