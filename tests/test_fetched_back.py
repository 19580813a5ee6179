"""loss-item-sync: lengths that go to the device only to be fetched back stay on the host."""

from __future__ import annotations

import textwrap

import pytest

from tests.onerule import Applied, apply
from tests.two_devices import run_on_both

SCRIPT = """
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from torch.utils.data import DataLoader

torch.manual_seed(0)
device = torch.device("cuda")
rows = [(torch.randn(n, 4), n % 3) for n in (5, 3, 4, 6, 2, 5, 7, 1)]


def collate(items):
    items = sorted(items, key=lambda item: -len(item[0]))
    lengths = torch.tensor([len(x) for x, _ in items])
    x = nn.utils.rnn.pad_sequence([x for x, _ in items], batch_first=True)
    return {give}


class Tagger(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.GRU(4, 6, batch_first=True)
        self.out = nn.Linear(6, 3)

    def mask(self, lengths, width, device):
        mask = torch.zeros(len(lengths), width).to(device)
        for i, n in enumerate(lengths):
            mask[i, :n] = 1.0
        return mask

    def forward(self, {given}):
{forward}
        packed = pack_padded_sequence(x, lengths.cpu(), batch_first=True)
        out, _ = pad_packed_sequence(self.rnn(packed)[0], batch_first=True)
        return self.out((out * mask[:, :out.size(1), None]).sum(1)), lengths


model = Tagger().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(rows, batch_size=4, collate_fn=collate)
losses, counts = [], []
for epoch in range(2):
    for {batch} in loader:
{step}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
"""
MASKED = "mask = self.mask(lengths, x.size(1), x.device)"
STEP = "out, _ = model(x, lengths)\nloss = F.cross_entropy(out, y)"


def script(
    step: str,
    forward: str = MASKED,
    *,
    batch: str = "x, lengths, y",
    given: str = "x, lengths",
    give: str = "x, lengths, torch.tensor([y for _, y in items])",
) -> str:
    text = SCRIPT.replace("{give}", give).replace("{given}", given).replace("{batch}", batch)
    text = text.replace("{forward}", textwrap.indent(forward, " " * 8))
    return text.replace("{step}", textwrap.indent(step, " " * 8))


def same(text: str, *expected: str) -> Applied:
    done = apply("loss-item-sync", text)
    assert done.lines == [*expected], (done.lines, done.refusals)
    (one, before), (other, after) = run_on_both(text), run_on_both(done.text)
    assert list(map(float, one["losses"])) == list(map(float, other["losses"]))
    assert one["losses"] and after < before
    assert one["counts"] == other["counts"]
    return done


MOVED = "x, lengths, y = x.to(device), lengths.to(device), y.to(device)"
DICT = "batch = {k: v.to(device) for k, v in batch.items()}\n" + STEP.replace("y)", 'batch["y"])')
KEYS = {
    "batch": "batch",
    "give": '{"x": x, "lengths": lengths, "y": torch.tensor([y for _, y in items])}',
}
DICTS = KEYS | {"given": "batch", "forward": 'x, lengths = batch["x"], batch["lengths"]\n' + MASKED}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (script(f"{MOVED}\n{STEP}"), ["x, y = x.to(device), y.to(device)"]),
        (
            script(f"x, y = x.to(device), y.to(device)\nlengths = lengths.to(device)\n{STEP}"),
            [],
        ),
        (
            script(
                "x, y = x.to(device), y.to(device)\n" + STEP.replace("lengths)", "lengths.cuda())")
            ),
            ["out, _ = model(x, lengths)"],
        ),
        (
            script(DICT.replace("(x, lengths)", "(batch)"), **DICTS),
            ['batch = {k: v if k == "lengths" else v.to(device) for k, v in batch.items()}'],
        ),
        (
            script(
                DICT.replace("(x, lengths)", "(batch)").replace(
                    "v.to(device)", "v.to(device) if torch.is_tensor(v) else v"
                ),
                **DICTS,
            ),
            [
                "batch = {",
                'k: v.to(device) if k != "lengths" and torch.is_tensor(v) else v',
                "for k, v in batch.items()",
                "}",
            ],
        ),
        # integers, computed with on the way
        (
            script(f"{MOVED}\n{STEP}", f"x, lengths = x[:, :6], (lengths - 1) // 2 + 1\n{MASKED}"),
            ["x, y = x.to(device), y.to(device)"],
        ),
        # handed back, counted, and copied to the device where it is needed there
        (
            script(
                f"{MOVED}\n{STEP}\ncounts.append(int(lengths.sum()))".replace("_ =", "lengths ="),
                "mask = (torch.arange(x.size(1)).to(x.device)[None] < lengths.to(x.device)[:, None]).float()",
            ),
            ["x, y = x.to(device), y.to(device)"],
        ),
        (
            script(f"{MOVED}\n{STEP}\ncounts += [n.item() for n in lengths]\ncounts += lengths.tolist()"),
            ["x, y = x.to(device), y.to(device)"],
        ),
    ],
)  # fmt: skip
def test_lengths_stay_on_the_host(text: str, expected: list[str]) -> None:
    same(text, *expected)


@pytest.mark.parametrize(
    ("step", "forward"),
    [
        # used on the device, too
        (STEP, f"{MASKED}\nx = x * (lengths > 1)[:, None, None]"),
        (STEP, f"{MASKED}\nx = x / lengths[:, None, None]"),
        (f"{STEP}\nloss = loss + lengths.float().mean() * 0", MASKED),
        (f"{STEP}\nprint(lengths)", MASKED),
        # written to, or kept
        (f"lengths -= 1\nlengths += 1\n{STEP}", MASKED),
        (f"lengths[0] = lengths[0]\n{STEP}", MASKED),
        (f"{STEP}\ncounts.append(lengths)", MASKED),
        (STEP, f"self.lengths = lengths\n{MASKED}"),
        (f"{STEP}\nrest = lengths.cpu().numpy()\nrest[0] = 1", MASKED),
    ],
)
def test_what_is_used_there_goes_there(step: str, forward: str) -> None:
    assert "lengths.to(device)" in apply("loss-item-sync", script(f"{MOVED}\n{step}", forward)).text


WRAPPED = [
    "model = nn.DataParallel(Tagger()).to(device)",
    "model = torch.compile(Tagger().to(device))",
    "model = Tagger().to(device)\nmodel.register_forward_pre_hook(lambda m, given: print(given[1] * 2))",
]


@pytest.mark.parametrize("made", WRAPPED)
def test_a_model_that_others_hand_it_to(made: str) -> None:
    text = script(f"{MOVED}\n{STEP}").replace("model = Tagger().to(device)", made)
    assert "lengths.to(device)" in apply("loss-item-sync", text).text


def test_it_stays_on_all_ways_or_on_none() -> None:
    """The evaluation shows what the model gives back, from the device."""
    evaluation = f"""
    with torch.no_grad():
        for x, lengths, y in loader:
            {MOVED}
            out, n = model(x, lengths)
            print(n)
"""
    text = script(f"{MOVED}\n{STEP}") + evaluation
    assert "x, y = " not in apply("loss-item-sync", text).text
    shown = text.replace("print(n)", "counts.append(n.sum().item())")
    assert apply("loss-item-sync", shown).text.count("x, y = x.to(device), y.to(device)") == 2


CTC = """out, n = model(x, lengths)
scores = F.log_softmax(out, -1).repeat(8, 1, 1)
loss = {call}(scores, y[:, None].clamp(min=1), n, torch.ones_like(y))
"""


@pytest.mark.parametrize("call", ["F.ctc_loss", "nn.CTCLoss()"])
def test_a_loss_that_takes_lengths_from_the_host(call: str) -> None:
    text = script(f"{MOVED}\n{CTC.replace('{call}', call)}")
    same(text, "x, y = x.to(device), y.to(device)")
    elsewhere = text.replace("n, torch.ones_like(y))", "torch.full_like(y, 6), n)")
    assert "lengths.to(device)" not in apply("loss-item-sync", elsewhere).text
    computed = text.replace("torch.ones_like(y))", "torch.ones_like(y), blank=n)")
    assert "lengths.to(device)" in apply("loss-item-sync", computed).text


LOADERS = """
class Moved:
    def __init__(self, loader):
        self.loader = loader

    def __iter__(self):
        for batch in self.loader:
            yield {k: v.to(device) for k, v in batch.items()}


def moved(loader):
    for x, lengths, y in loader:
        yield x.to(device), lengths.to(device), y.to(device)


model ="""
OF_DICTS = script(STEP.replace("(x, lengths)", "(batch)").replace("y)", 'batch["y"])'), **DICTS)
OF_DICTS = OF_DICTS.replace("\nmodel =", LOADERS)
OF_DICTS = OF_DICTS.replace("\nlosses,", "\nloader = Moved(loader)\nlosses,")
OF_TUPLES = (
    script(STEP)
    .replace("\nmodel =", LOADERS)
    .replace("in loader:\n        out", "in moved(loader):\n        out")
)


def test_lengths_that_a_generator_hands_out() -> None:
    leaves = 'yield {k: v if k == "lengths" else v.to(device) for k, v in batch.items()}'
    same(OF_DICTS, leaves)
    bar = OF_DICTS.replace("batch in loader:\n        out", "batch in tqdm(loader):\n        out")
    assert apply("loss-item-sync", f"from tqdm import tqdm\n{bar}").lines == [leaves]
    same(OF_TUPLES, "yield x.to(device), lengths, y.to(device)")
    numbered = OF_TUPLES.replace(
        "for x, lengths, y in moved(loader)", "for n, (x, lengths, y) in enumerate(moved(loader))"
    )
    same(numbered, "yield x.to(device), lengths, y.to(device)")


@pytest.mark.parametrize(
    "text",
    [
        OF_DICTS.replace("losses, counts", "first = list(loader)\nlosses, counts"),
        OF_DICTS + '\nprint(next(iter(loader))["lengths"])',
        OF_DICTS + '\nfor batch in loader:\n    print(batch["lengths"])',
        OF_DICTS.replace("    for batch in loader:\n        out", "    for batch, _ in zip(loader, rows):\n        out"),
        OF_TUPLES + "\nseveral = moved\n",
        OF_TUPLES + "\nx, lengths, y = next(moved(loader))\nprint(lengths)",
    ],
)  # fmt: skip
def test_what_else_a_generator_hands_out_to(text: str) -> None:
    assert text != OF_DICTS and apply("loss-item-sync", text).text.count("lengths") == text.count(
        "lengths"
    )
    assert " else v.to(device)" not in apply("loss-item-sync", text).text


def test_what_the_device_needs_too_is_kept_beside_it() -> None:
    """The host keeps what it has: that is said once, at what fetches it back."""
    metric = f"{MOVED}\n{STEP}\ncounts += y.cpu().tolist()"
    done = apply("loss-item-sync", script(metric))
    assert "take that here: line 46 of train.py uses the copy" in done.advice
    assert done.advice.count("keep what the host has") == 1
    changed = f"{MOVED}\n{STEP}\ny[0] = 1\ncounts += y.cpu().tolist()"
    assert "keep what the host has" not in apply("loss-item-sync", script(changed)).advice


@pytest.mark.parametrize(
    ("mask", "written"),
    [
        (MASKED, "lengths.to(device, non_blocking=True)"),
        (
            "mask = torch.zeros(x.size(0), x.size(1))\nfor i in range(x.size(0)):\n"
            "    mask[i, :lengths[i]] = 1\nmask = mask.to(x.device)",
            "lengths.to(x.device, non_blocking=True)",
        ),
    ],
)
def test_lengths_that_a_mask_needs_on_the_device(mask: str, written: str) -> None:
    """They stay on the host, and what python-loop writes takes them to the device."""
    text = script(f"{MOVED}\n{STEP}", mask)
    done = apply("loss-item-sync python-loop", text)
    assert {f.rule for f in done.fixes} == {"loss-item-sync", "python-loop"}
    assert "x, y = x.to(device), y.to(device)" in done.text and written in done.text
    (one, before), (other, after) = run_on_both(text), run_on_both(done.text)
    assert list(map(float, one["losses"])) == list(map(float, other["losses"]))
    assert one["losses"] and after == 0 < before


def test_all_that_an_if_moves() -> None:
    moved = "x, y = x.to(device), y.to(device)\nif torch.cuda.is_available():\n    lengths = lengths.cuda()\n"
    done = apply("loss-item-sync", script(moved + STEP))
    assert not done.lines and "is_available" not in done.text and "lengths.cuda" not in done.text


def test_another_wait_for_data_or_seldom_is_not_worth_it() -> None:
    """Lengths that only one step in a hundred reads may go there."""
    seldom = f"{MOVED}\nout = model.out(x).mean(1)\nloss = F.cross_entropy(out, y)\nif epoch % 100 == 0:\n    print(lengths.tolist())"
    assert "lengths.to(device)" in apply("loss-item-sync", script(seldom)).text
