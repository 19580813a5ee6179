"""Behind other draws two scripts are compared with common random numbers: step for step, as if both
had drawn alike.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from autofast.verify.judging import driven
from autofast.verify.judging.parity import COMMON
from autofast.verify.result import Parity, Sameness
from tests.faults import Case
from tests.test_verify_faults import FINE, Bench

SCRIPT = """
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
rng = np.random.default_rng(3)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.2), nn.Linear(16, 3))
slow = [p.detach().clone() for p in model.parameters()]
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
x = torch.randn(96, 6)
y = x[:, :3].argmax(1)
for epoch in range(4):
    model.train()
    total = 0.0
    order = torch.randperm(96)
    for rows in order.split(16):
        noise = torch.from_numpy(rng.normal(size=(len(rows), 6))).float()
        out = model(x[rows] + 0.1 * noise)
        loss = F.cross_entropy(out, y[rows]) + 0.01 * out.pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for s, p in zip(slow, model.parameters()):
                s.lerp_(p, 0.1)
        total += loss.item()
    print(f"epoch {epoch} loss {total / 6:.5f}")
torch.save({"slow": slow, "model": model.state_dict()}, "last.pt")
"""
OTHERWISE = ("for epoch", "torch.rand(1)\nrng.random()\nfor epoch")
Judge = Callable[..., Parity]


@pytest.fixture(scope="module")
def judge(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Judge]:
    folder = tmp_path_factory.mktemp("project")
    (folder / "train.py").write_text(SCRIPT)
    bench = Bench(tmp_path_factory.mktemp("runs"), folder)

    def judged(*edits: tuple[str, str]) -> Parity:
        case = Case(str(edits), "train", "unknown", (OTHERWISE, *edits), folder=folder)
        return bench.judge(case)

    yield judged
    bench.close()


@pytest.mark.parametrize(
    "edits",
    [
        [],
        [("lr=0.01)", "lr=0.01, fused=True)")],
        [("        total += loss.item()\n", "        total = total + loss.detach().double()\n")],
    ],
    ids=["no more", "fused", "read once"],
)
def test_the_same_training(judge: Judge, edits: list[tuple[str, str]]) -> None:
    found = judge(*edits)
    assert found.verdict is Sameness.EQUIVALENT and found.summary.startswith(COMMON), found


@pytest.mark.parametrize(
    ("edits", "said"),
    [
        ([("0.01 * out.pow(2)", "0.02 * out.pow(2)")], "loss differs"),
        ([("s.lerp_(p, 0.1)", "s.lerp_(p, 0.11)")], "averages"),
        ([("total / 6", "total / 5.98")], "printed"),
    ],
    ids=["a weight of the loss", "a rate of the average", "what is printed"],
)
def test_faults_behind_other_draws(judge: Judge, edits: list[tuple[str, str]], said: str) -> None:
    found = judge(*edits)
    assert found.verdict is Sameness.DIFFERENT, found
    assert found.summary.startswith(COMMON) and said in found.summary, found


@pytest.mark.parametrize(
    "edits",
    [
        [("    model.train()\n", "    model.train()\n    torch.manual_seed(0)\n")],
        [("    total = 0.0\n", "    total = 0.0\n    rng = np.random.default_rng(3)\n")],
    ],
    ids=["one order and mask for all epochs", "one noise for all epochs"],
)
def test_common_numbers_hide_no_seeds(judge: Judge, edits: list[tuple[str, str]]) -> None:
    """What a script seeds again by itself draws the same again there, too."""
    found = judge(*edits)
    assert not found.summary.startswith(COMMON), found
    assert found.verdict not in FINE, found


ITEMS = (
    (
        """x = torch.randn(96, 6)
""",
        """x = torch.randn(96, 6)


class Rows(torch.utils.data.Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        return x[i] * (0.8 + 0.4 * torch.rand(())) + 0.2 * torch.from_numpy(np.random.randn(6)).float(), y[i]


loader = torch.utils.data.DataLoader(Rows(), batch_size=16, shuffle=True)
""",
    ),
    ("    for rows in order.split(16):\n", "    for given, goal in loader:\n"),
    ("    order = torch.randperm(96)\n", ""),
    ("(len(rows), 6)", "(len(given), 6)"),
    ("x[rows] + 0.1", "given + 0.1"),
    ("y[rows]", "goal"),
)
WORKERS = ("shuffle=True)", "shuffle=True, num_workers=2)")


def with_items(
    folder: Path, *edits: tuple[str, str], made: tuple[tuple[str, str], ...] = ITEMS
) -> Parity:
    """SCRIPT with a data set whose items are drawn, and an edit of it, judged."""
    text = SCRIPT
    for old, new in made:
        assert text.count(old) == 1
        text = text.replace(old, new)
    (project := folder / "project").mkdir()
    (project / "train.py").write_text(text)
    bench = Bench(folder, project)
    found = bench.judge(Case("workers", "train", "unknown", edits, folder=project))
    bench.close()
    return found


@pytest.mark.parametrize(
    ("edits", "same"),
    [
        ([], True),
        ([("0.01 * out.pow(2)", "0.02 * out.pow(2)")], False),
        ([("s.lerp_(p, 0.1)", "s.lerp_(p, 0.11)")], False),
    ],
    ids=["no more", "a weight of the loss", "a rate of the average"],
)
def test_items_that_workers_make(tmp_path: Path, edits: list[tuple[str, str]], same: bool) -> None:
    """The items are those that the main process makes; how workers draw is asked beside."""
    found = with_items(tmp_path, WORKERS, *edits)
    assert found.summary.startswith(COMMON), found
    assert found.verdict is (Sameness.EQUIVALENT if same else Sameness.DIFFERENT), found


def test_workers_that_draw_alike_are_seen_under_their_own_seeds(tmp_path: Path) -> None:
    alike = "num_workers=2, worker_init_fn=lambda i: (np.random.seed(0), torch.manual_seed(0)))"
    found = with_items(tmp_path, (WORKERS[0], f"shuffle=True, {alike}"))
    assert found.verdict is Sameness.DIFFERENT and not found.summary.startswith(COMMON), found


@pytest.mark.parametrize(
    ("edits", "same"),
    [([], True), ([("0.01 * out.pow(2)", "0.02 * out.pow(2)")], False)],
    ids=["no more", "a weight of the loss"],
)
def test_before_the_first_step_each_draw_follows_from_itself(
    tmp_path: Path, edits: list[tuple[str, str]], same: bool
) -> None:
    """The first weights, order and noise are drawn after others, and nothing stands between."""
    chosen = ("x = torch.randn(96, 6)\n", "x = torch.randn(96, 6) + float(rng.choice([0.1, 0.2]))\n")  # fmt: skip
    early = ("model = nn.Seq", "torch.rand(1)\nrng.random()\nmodel = nn.Seq")
    found = with_items(tmp_path, early, *edits, made=(("    model.train()\n", ""), chosen))
    assert found.summary.startswith(COMMON), found
    assert found.verdict is (Sameness.EQUIVALENT if same else Sameness.DIFFERENT), found


def test_two_nets_of_one_seed_are_not_two(tmp_path: Path) -> None:
    twice = ("model = nn.Seq", "other = nn.Linear(6, 16)\nmodel = nn.Seq")
    alike = ("other = nn.Lin", "torch.rand(1)\ntorch.manual_seed(5)\nother = nn.Lin")
    again = ("model = nn.Seq", "torch.manual_seed(5)\nmodel = nn.Seq")
    use = ("out = model(x[rows] + 0.1 * noise)", "out = model(x[rows] + 0.1 * noise) + 0.1 * other(x[rows])[:, :3]")  # fmt: skip
    held = ("optimizer = torch.optim.Adam(model.parameters()", "optimizer = torch.optim.Adam([*model.parameters(), *other.parameters()]")  # fmt: skip
    found = with_items(tmp_path, alike, again, made=(twice, use, held))
    assert not found.summary.startswith(COMMON), found


PORTIONS = """
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.1), nn.Linear(16, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=0.02)
x = torch.randn(96, 6)
y = x[:, :3].argmax(1)
for epoch in range(4):
    for rows in torch.randperm(96).split(16):
        optimizer.zero_grad()
        whole = 0.0
        for piece in rows.split(8):
            noise = torch.rand(8, 3)
            loss = F.cross_entropy(model(x[piece]) + 0.1 * noise, y[piece])
            (loss / 2).backward()
        optimizer.step()
"""
SUMMED = ("            (loss / 2).backward()\n", "            whole = whole + loss / 2\n        whole.backward()\n")  # fmt: skip
DRAWN = (
    "for piece in rows.split(8)",
    "for piece, noise in zip(rows.split(8), torch.rand(2, 8, 3))",
)


@pytest.mark.parametrize(
    ("edits", "verdict"),
    [
        ([SUMMED], Sameness.EQUIVALENT),
        ([SUMMED, ("whole + loss / 2", "whole + loss")], Sameness.DIFFERENT),
        ([SUMMED, ("in rows.split(8)", "in rows.split(8)[:1]")], Sameness.BROKEN),
        # as many numbers, and others in each place: the masks of dropout are drawn between
        ([DRAWN, ("            noise = torch.rand(8, 3)\n", "")], None),
    ],
    ids=["summed before", "not halved", "a piece lost", "drawn at once"],
)
def test_what_a_step_is_made_of(
    tmp_path: Path, edits: list[tuple[str, str]], verdict: Sameness | None
) -> None:
    (tmp_path / "project").mkdir()
    (tmp_path / "project" / "train.py").write_text(PORTIONS)
    bench = Bench(tmp_path, tmp_path / "project")
    found = bench.judge(Case("", "train", "unknown", tuple(edits), folder=tmp_path / "project"))
    bench.close()
    if verdict is None:
        assert found.verdict in (*FINE, Sameness.UNCLEAR), found
    else:
        assert found.verdict is verdict, found


KINDS = {
    "RandomState": ("np.random.RandomState(3)", "rng.random_sample()", "rng.normal(size=(len(rows), 6))"),
    "Random": ("random.Random(3)", "rng.random()", "np.array([rng.gauss(0, 1) for _ in range(6 * len(rows))]).reshape(-1, 6)"),
    "Generator": ("torch.Generator().manual_seed(3)", "torch.rand(1, generator=rng)", "torch.randn(len(rows), 6, generator=rng).numpy()"),
}  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("edits", "same"),
    [([], True), ([("0.01 * out.pow(2)", "0.02 * out.pow(2)")], False)],
    ids=["no more", "a weight of the loss"],
)
def test_generators_of_its_own(
    tmp_path: Path, kind: str, edits: list[tuple[str, str]], same: bool
) -> None:
    """Of which one number more is drawn, before the first weights."""
    made, more, noise = KINDS[kind]
    own = (
        ("import numpy", "import random\nimport numpy"),
        ("np.random.default_rng(3)", made),
        ("rng.normal(size=(len(rows), 6))", noise),
    )
    early = ("model = nn.Seq", f"{more}\ntorch.rand(1)\nmodel = nn.Seq")
    found = with_items(tmp_path, early, *edits, made=own)
    assert found.summary.startswith(COMMON), found
    assert found.verdict is (Sameness.EQUIVALENT if same else Sameness.DIFFERENT), found


@pytest.mark.parametrize(
    ("edits", "same"),
    [([], True), ([("total / 6", "total / 5.98")], False)],
    ids=["no more", "what is printed"],
)
def test_every_pass_of_persistent_workers(
    tmp_path: Path, edits: list[tuple[str, str]], same: bool
) -> None:
    persistent = (WORKERS[0], f"{WORKERS[1][:-1]}, persistent_workers=True)")
    found = with_items(tmp_path, persistent, *edits)
    assert found.summary.startswith(COMMON), found
    assert found.verdict is (Sameness.EQUIVALENT if same else Sameness.DIFFERENT), found


def seen(folder: Path, text: str, *edits: tuple[str, str]) -> Parity:
    (folder / "project").mkdir()
    (folder / "project" / "train.py").write_text(text)
    bench = Bench(folder, folder / "project")
    found = bench.judge(Case("", "train", "unknown", edits, folder=folder / "project"))
    bench.close()
    return found


def test_one_draw_for_the_batch_by_a_generator_of_its_own(tmp_path: Path) -> None:
    found = seen(tmp_path, SCRIPT, ("size=(len(rows), 6)", "size=(1, 6)"))
    assert found.verdict is Sameness.DIFFERENT and "draws of 96 numbers less" in found.summary


FOLLOWING = """
import copy
import numpy as np
import torch
from torch import nn
import torch.nn.functional as F

torch.manual_seed(0)
np.random.seed(0)
model = nn.Sequential(nn.Linear(6, 16), nn.Tanh(), nn.Linear(16, 3))
teacher = copy.deepcopy(model)
gain = torch.ones(1, requires_grad=True)  # of no module
optimizer = torch.optim.Adam([*model.parameters(), gain], lr=0.01)
x = torch.randn(96, 6)
y = x[:, :3].argmax(1)
kept = np.arange(96)


def target(rows):
    with torch.no_grad():
        return teacher(x[rows] + 0.1 * torch.randn(len(rows), 6)).softmax(1)


waiting = []
for step in range(60):
    rows = torch.from_numpy(np.random.choice(kept, 16, p=np.full(len(kept), 1 / len(kept))))
    waiting.append((rows, target(rows)))
    for rows, goal in waiting:
        out = gain * model(x[rows] + 0.1 * torch.randn(len(rows), 6))
        loss = F.cross_entropy(out, y[rows]) + 0.1 * F.cross_entropy(out, goal)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        with torch.no_grad():
            for s, p in zip(teacher.parameters(), model.parameters()):
                s.lerp_(p, 0.1)
    waiting.clear()
"""


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (
            ("    for rows, goal in waiting:\n", "    if step % 6 < 5:\n        continue\n    for rows, goal in waiting:\n"),
            "without gradients before",
        ),
        (("kept = np.arange(96)", "kept = np.arange(94)"), "drawn among others"),
    ],
    ids=["targets ahead of the steps", "rows of fewer"],
)  # fmt: skip
def test_what_seeds_do_not_tell(tmp_path: Path, edit: tuple[str, str], said: str) -> None:
    found = seen(tmp_path, FOLLOWING, edit)
    assert found.verdict is Sameness.DIFFERENT and said in found.summary, found


SAMPLED = (
    ("x = torch.randn(96, 6)\n", "x = torch.randn(96, 6)\nrare = torch.ones(96)\nrare[::2] = 3\n"),
    ("    order = torch.randperm(96)\n", ""),
    ("    for rows in order.split(16):\n", "    for rows in DataLoader(Rows(), 16, sampler=WeightedRandomSampler(rare, 96)):\n"),
    ("for epoch in range(4):", """from torch.utils.data import DataLoader, Dataset, WeightedRandomSampler


class Rows(Dataset):
    def __len__(self):
        return 96

    def __getitem__(self, i):
        return torch.tensor([i, i])


for epoch in range(4):"""),
    ("    model.train()\n", "    model.train()\n"),
    ("        noise = torch", "        rows = rows[:, 0]\n        noise = torch"),
)  # fmt: skip


@pytest.mark.parametrize(
    ("edit", "said"),
    [
        (("sampler=WeightedRandomSampler(rare, 96)", "shuffle=True"), "more or less often"),
        (("(rare, 96)", "(rare * 0 + 1, 96)"), "more or less often"),
        (("(rare, 96)", "(rare * 2, 96)"), ""),
    ],
    ids=["shuffled", "all alike", "the same"],
)
def test_items_that_are_drawn_more_often(tmp_path: Path, edit: tuple[str, str], said: str) -> None:
    text = SCRIPT
    for old, new in SAMPLED:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    found = seen(tmp_path, text, edit)
    if said:
        assert found.verdict is Sameness.DIFFERENT and said in found.summary, found
    else:
        assert found.verdict in FINE, found


JUDGED = """    model.eval()
    with torch.no_grad():
        held = F.cross_entropy(model(x[80:]), y[80:])
    print(f"epoch {epoch} loss {total / 6:.5f} held {held:.2f}")
"""


@pytest.mark.parametrize("beside", [("x[80:]), y[80:]", "x[:16]), y[:16]"), ("80:", "-16:")])
def test_evaluations_of_other_data(tmp_path: Path, beside: tuple[str, str]) -> None:
    """However each step draws, and whatever seeds make of what is printed."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    text = SCRIPT.replace('    print(f"epoch {epoch} loss {total / 6:.5f}")\n', JUDGED)
    text = text.replace("(96, 6)", "(96, 6, generator=torch.Generator().manual_seed(1))")
    (folder / "train.py").write_text(text)
    bench = Bench(tmp_path, folder)
    drawn = ("        noise = ", "        torch.rand(3)\n        noise = ")
    edits = (drawn, (JUDGED, JUDGED.replace(*beside)))
    found = bench.judge(Case("", "train", "unknown", edits, folder=folder), seeds=4)
    bench.close()
    check = next(one for one in found.checks if one.name == driven.NAME)
    assert check.passed is (beside[0] == "80:"), check
    if not check.passed:
        assert found.verdict is Sameness.DIFFERENT and "held" in check.text


NOISY = JUDGED.replace("x[80:]", "x[80:] + 0.01 * torch.randn(16, 6)")
AMONG = JUDGED.replace("x[80:]), y[80:]", "x[rows]), y[rows]").replace(
    "        held", "        rows = 80 + torch.randperm(16)\n        held"
)
TWICE = NOISY.replace("        held", "        torch.rand(3)\n        held")


@pytest.mark.parametrize(
    ("before", "after", "verdict", "told"),
    [
        (JUDGED, NOISY, Sameness.DIFFERENT, True),
        (NOISY, JUDGED, Sameness.DIFFERENT, True),
        (JUDGED, AMONG, Sameness.EQUIVALENT, True),
        (AMONG, JUDGED, Sameness.EQUIVALENT, True),
        (NOISY, TWICE, None, False),  # both draw, and not the same: prints tell nothing
    ],
    ids=["noise", "no noise", "in another order", "in one order", "other noise"],
)
def test_evaluations_that_draw(
    tmp_path: Path, before: str, after: str, verdict: Sameness | None, told: bool
) -> None:
    """Training goes on as if they had drawn nothing."""
    folder = tmp_path / "scripts"
    folder.mkdir()
    before, after = (text.replace("{held:.2f}", "{held:.5f}") for text in (before, after))
    text = SCRIPT.replace('    print(f"epoch {epoch} loss {total / 6:.5f}")\n', before)
    (folder / "train.py").write_text(text)
    bench = Bench(tmp_path, folder)
    found = bench.judge(Case("", "train", "unknown", ((before, after),), folder=folder), seeds=4)
    bench.close()
    assert found.summary.startswith(COMMON) is told, found
    assert found.verdict is verdict or verdict is None and "printed" not in found.summary, found
