"""tf32 and cudnn-benchmark: one statement in the right place, or a reason."""

from __future__ import annotations

import ast
import json
import textwrap
import warnings
from pathlib import Path

import pytest

from tests.onerule import apply, run

HEAD = """\
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset
"""
BODY = """\
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))
for x, y in DataLoader(data, batch_size=4):
    optimizer.zero_grad()
    loss = nn.functional.cross_entropy(model(x.to(device)), y.to(device))
    loss.backward()
    optimizer.step()
"""
TF32 = ['torch.set_float32_matmul_precision("high")']


def after(text: str, first: str) -> str:
    """The line that follows ``first``."""
    lines = [line.strip() for line in text.splitlines()]
    return lines[lines.index(first) + 1]


def above(text: str, second: str) -> str:
    """The line that ``second`` follows; empty for a blank one."""
    lines = [line.strip() for line in text.splitlines()]
    return lines[lines.index(second) - 1]


def test_tf32_stands_between_the_device_and_the_model() -> None:
    done = apply("tf32", HEAD + BODY)
    assert done.lines == TF32
    assert above(done.text, TF32[0]).startswith("device = ")
    assert after(done.text, TF32[0]).startswith("model = ")


@pytest.mark.parametrize("led", ["# the network", "print('a network')"])
def test_tf32_stands_above_the_lines_that_stand_with_the_model(led: str) -> None:
    """Where nothing is set up: not between a path and the network that is loaded from it, nor
    between a message and what it announces.
    """
    bare = BODY.replace(BODY.split("\n")[0], "epochs = 1").replace("device", '"cuda"')
    lines = f"\n\n{led}\nsizes = (72, 2)\nmodel = "
    done = apply("tf32", HEAD + bare.replace("\nmodel = ", lines).replace("(72, 2)).", "*sizes)."))
    assert f"epochs = 1\n\n{TF32[0]}\n" in done.text
    assert done.text.split(TF32[0])[1].strip().startswith(led)


SETTING_UP = """\
import random, argparse
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

def set_seed(seed):
    random.seed(seed)
    torch.manual_seed(seed)
    if torch.cuda.is_available():
        torch.cuda.manual_seed_all(seed)

def fix_everything(seed):
    torch.manual_seed(seed)
    torch.backends.cudnn.enabled = True

def train(args):
    data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for x, y in DataLoader(data, batch_size=4):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
        loss.backward()
        optimizer.step()

def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    {set_up}
    print(args)

    train(args)

if __name__ == "__main__":
    main()
"""


def set_up(*lines: str) -> str:
    return SETTING_UP.replace("{set_up}", "\n    ".join(lines))


@pytest.mark.parametrize("rule", ["tf32", "cudnn-benchmark"])
@pytest.mark.parametrize(
    ("lines", "last"),
    [
        # seeds come before devices, and what stands with them stays together
        (("torch.manual_seed(args.seed)", "print(1)", "args.cuda = torch.cuda.is_available()"), 0),
        (("torch.cuda.set_device(0)", "print(1)", "random.seed(1)", "torch.manual_seed(1)"), 3),
        (("torch.manual_seed(1)", "args.cuda = torch.cuda.is_available()", "args.n = 2"), 1),
        (("set_seed(args.seed)", "print(1)"), 0),
        (("if args.seed:", "    set_seed(args.seed)", "print(1)"), 1),
        # a device and its condition
        (
            (
                "if torch.cuda.is_available():",
                "    d = 'cuda'",
                "else:",
                "    d = 'cpu'",
                "print(1)",
            ),
            3,
        ),
        (("d = torch.device('cuda')", "print(d)", "print(args)"), 1),
        (("d = 'cuda'", "if d == 'cuda':", "    assert torch.cuda.is_available()", "print(1)"), 2),
        (("args.cuda = torch.cuda.is_available()", "print(1)"), 0),
        # other settings come before seeds
        (("torch.backends.cudnn.enabled = True", "print(1)", "torch.manual_seed(1)"), 0),
        (("torch.backends.cudnn.enabled = True", "torch.manual_seed(1)", "print(1)"), 0),
        # not above what sets a backend, nor beside a helper that does so
        (("torch.manual_seed(1)", "torch.backends.cudnn.enabled = True", "print(1)"), 1),
        (("fix_everything(1)", "print(1)", "d = torch.device('cuda')", "print(1)"), 2),
    ],
)
def test_flags_stand_where_a_reader_looks_for_them(
    rule: str, lines: tuple[str, ...], last: int
) -> None:
    done = apply(rule, set_up(*lines))
    (line,) = done.lines
    assert above(done.text, line) == lines[last].strip()
    at = done.text.split("\n").index(f"    {line}")  # in main, below no condition
    assert done.text.split("\n")[at - 1 - last].strip() == lines[0]


@pytest.mark.parametrize(
    ("lines", "changes"),
    [
        (("fix_everything(1)", "print(1)"), {}),
        (("if args.seed:", "    print(1)", "    torch.manual_seed(1)", "    args.n = 1"), {}),
        (("for _ in range(2):", "    torch.manual_seed(1)"), {}),
        (("torch.manual_seed(1)",), {"    train(args)\n": "    if args.seed: train(args)\n"}),
        (("torch.manual_seed(1)",), {"    train(args)\n": "    train(args)\n    train(args)\n"}),
        (("torch.manual_seed(1)",), {"def train(": "@print_it\ndef train("}),
        (
            ("torch.manual_seed(1)",),
            {
                "    train(args)\n": "    for n in range(2):\n        fix_everything(n)\n        train(args)\n"
            },
        ),
        (("torch.manual_seed(1)", "import torch"), {}),
        (
            ("torch.manual_seed(1)", "nn.Conv2d(1, 1, 1)(torch.ones(1, 1, 9, 9)).sum().backward()"),
            {},
        ),
    ],
)
def test_flags_stay_by_the_model_where_no_such_place_leads_to_all(
    lines: tuple[str, ...], changes: dict[str, str]
) -> None:
    """The helper sets a backend; the seeds are under a condition beside other things, or in a loop;
    the training is called under a condition, twice, by a decorator, or below a helper in a loop;
    torch is imported anew, which makes it a variable of the function; a network runs in between.
    """
    text = set_up(*lines)
    text = text.replace("def set_seed", "def print_it(f):\n    return f\n\ndef set_seed")
    for old, new in changes.items():
        text = text.replace(old, new)
    assert above(apply("tf32", text).text, TF32[0]) == "def train(args):"


def test_flags_stand_below_seeds_of_the_module() -> None:
    """Above the functions, but below the import of torch."""
    text = set_up("args.n = 2").replace("\ndef set_seed", "\nrandom.seed(1)\n\ndef set_seed", 1)
    assert above(apply("tf32", text).text, TF32[0]) == "random.seed(1)"
    early = text.replace("import random, argparse\n", "import random, argparse\nrandom.seed(1)\n")
    early = early.replace("\nrandom.seed(1)\n\ndef", "\ndef")
    assert after(apply("tf32", early).text, TF32[0]) != "import torch"


def test_flags_stand_below_the_seeds_of_a_spawned_process() -> None:
    text = set_up("args.n = 2").replace(
        "import torch\n", "import torch\nimport torch.multiprocessing as mp\n"
    )
    text = text.replace(
        "def train(args):\n", "def train(rank, args):\n    torch.manual_seed(rank)\n"
    )
    text = text.replace(
        "    train(args)\n", "    torch.manual_seed(2)\n    mp.spawn(train, (args,))\n"
    )
    assert above(apply("tf32", text).text, TF32[0]) == "torch.manual_seed(rank)"


def test_the_finding_is_where_the_flag_goes() -> None:
    (fix,) = apply("tf32", set_up("torch.manual_seed(args.seed)", "print(1)")).fixes
    assert ast.unparse(fix.node) == "torch.manual_seed(args.seed)"


LEARNER = """\
class Learner:
    def train(self, data):
        model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)).cuda()
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for x, y in DataLoader(data, batch_size=4):
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x.cuda()), y.cuda())
            loss.backward()
            optimizer.step()

def main():
    learner = Learner()
    data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))
    if len(data):
        learner.train(data)

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("rule", ["tf32", "cudnn-benchmark"])
def test_flags_stand_above_the_call_of_a_method(rule: str) -> None:
    done = apply(rule, HEAD + LEARNER)
    assert above(done.text, done.lines[0]) == "def main():"
    twice = apply(
        rule,
        HEAD
        + LEARNER.replace(
            "        learner.train(data)", "        learner.train(data)\n    learner.train(data)"
        ),
    )
    assert after(twice.text, done.lines[0]).startswith("model = ")  # no statement leads to all


JOBS = """\
import sys
from jobs import Job

def main():
    job = Job()
    if len(sys.argv) > 99:
        sys.exit(1)
    job.run()

if __name__ == "__main__":
    main()
"""


@pytest.mark.parametrize("rule", ["tf32", "cudnn-benchmark"])
def test_flags_stand_above_the_call_that_makes_the_model_and_trains_it(rule: str) -> None:
    """Both happen in a file that is imported."""
    body = textwrap.indent(BODY, "        ")
    files = {"jobs.py": f"{HEAD}\nclass Job:\n    def run(self):\n{body}"}
    done = apply(rule, JOBS, files=files)
    assert done.lines[0] == "import torch" and len(done.lines) == 2
    assert above(done.text, done.lines[1]) == "def main():"
    twice = apply(rule, JOBS.replace("    job.run()", "    job.run()\n    job.run()"), files=files)
    assert above(twice.text, done.lines[1]) == "def main():"


@pytest.mark.parametrize(
    ("network", "reason"),
    [
        ("nn.Sequential(SharedMLP(1, 2), nn.Flatten())", "layers.SharedMLP is not in this project"),
        ("nn.DataParallel(eval(sys.argv[1])())", "which network trains in the loop on line 10 of"),
        ("nn.Sequential(nn.Flatten(), nn.Linear(64, 2))", ""),
    ],
)
def test_networks_that_may_convolve_are_no_reason_for_silence(network: str, reason: str) -> None:
    made = "nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2))"
    head = "import sys\nfrom layers import SharedMLP\n"
    done = apply("cudnn-benchmark", head + HEAD + BODY.replace(made, network))
    assert not done.fixes and bool(done.refusals) is bool(reason) and reason in done.refusals


ATTACK = """
def attack(net, x, y):
    delta = torch.zeros_like(x, requires_grad=True)
    loss = nn.functional.cross_entropy(net(x + delta), y)
    loss.backward()
    return delta.grad.sign()

best = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)).to(device)
for x, y in DataLoader(data, batch_size=4):
    attack(best, x.to(device), y.to(device))
"""


def test_flags_stand_above_the_training_where_another_model_is_made_below_it() -> None:
    """What ``wrap()`` gives is not known, so that the only model with a known pass and gradients is
    the last one.
    """
    wrapped = BODY.replace(
        "data = Tensor", "model, optimizer = wrap(model, optimizer)\ndata = Tensor"
    )
    done = apply("cudnn-benchmark", f"{HEAD}from elsewhere import wrap\n{wrapped}{ATTACK}").text
    assert above(done, "torch.backends.cudnn.benchmark = True").startswith("device = ")


def test_tf32_keeps_a_run_on_the_cpu_within_rounding() -> None:
    import torch

    text = HEAD + "torch.manual_seed(0)\n" + BODY
    before = torch.get_float32_matmul_precision()
    try:
        losses = [run(version)["loss"].item() for version in (text, apply("tf32", text).text)]
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    assert losses[0] == pytest.approx(losses[1], rel=1e-2)


@pytest.mark.parametrize(
    "line",
    [
        'torch.set_float32_matmul_precision("highest")',
        "torch.backends.cuda.matmul.allow_tf32 = False",
        'torch.backends.cuda.matmul.fp32_precision = "ieee"',
        'import os\nos.environ["NVIDIA_TF32_OVERRIDE"] = "0"',
    ],
)
def test_tf32_leaves_a_decision_of_the_user_alone(line: str) -> None:
    assert not apply("tf32", HEAD + line + "\n" + BODY).findings


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("nn.Linear(72, 2)).to(device)", "nn.Linear(72, 2)).to(device).double()"), "float64"),
        (
            (
                "    loss.backward()",
                "    loss = loss + torch.linalg.inv(torch.eye(2)).sum()\n    loss.backward()",
            ),
            "linear algebra",
        ),
        (
            (
                "    loss.backward()",
                "    loss = loss + torch.cholesky_inverse(torch.eye(2)).sum()\n    loss.backward()",
            ),
            "linear algebra",
        ),
        (  # as of the square root of a product of covariances, in a distance between distributions
            (
                "    loss.backward()",
                "    loss = loss + torch.trace(torch.eye(2)) - 2\n    loss.backward()",
            ),
            "linear algebra",
        ),
    ],
)
def test_tf32_refuses_where_digits_matter(change: tuple[str, str], reason: str) -> None:
    assert change[0] in BODY
    done = apply("tf32", HEAD + BODY.replace(*change))
    assert not done.fixes and reason in done.refusals


def test_tf32_is_no_matter_of_comments_and_inverses_of_networks() -> None:
    comment = "#    torch.backends.cuda.matmul.allow_tf32 = False\n"
    assert apply("tf32", HEAD + comment + BODY).fixes
    hub = (
        "codec = torch.hub.load('some/where', 'codec')\nwave = codec.inverse(torch.randn(2, 72))\n"
    )
    assert apply("tf32", HEAD + BODY + hub).fixes
    unknown = hub.replace("codec.inverse(torch.randn(2, 72))", "codec.inverse()")
    assert "linear algebra" in apply("tf32", HEAD + BODY + unknown).refusals


def test_tf32_needs_a_gpu() -> None:
    assert not apply(
        "tf32", HEAD + BODY.replace('"cuda" if torch.cuda.is_available() else "cpu"', '"cpu"')
    ).findings
    assert not apply("tf32", HEAD + BODY, target="cpu").findings


def test_flags_go_to_the_process_that_trains() -> None:
    body = textwrap.indent(BODY, "    ")
    text = (
        HEAD.replace("import torch\n", "import torch\nimport torch.multiprocessing as mp\n")
        + "\n\ndef worker(rank, count):\n"
        + body
        + "\n\nif __name__ == '__main__':\n    mp.spawn(worker, args=(2,), nprocs=2)\n"
    )
    for rule in ("tf32", "cudnn-benchmark"):
        done = apply(rule, text)
        assert len(done.fixes) == 1
        first = done.text.index("def worker")
        assert done.text.index("set_float32" if rule == "tf32" else "cudnn.benchmark") > first


def test_a_model_made_under_a_condition_and_in_a_helper() -> None:
    text = (
        HEAD
        + """

def build(deep):
    if deep:
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(72, 2))
    else:
        net = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2))
    return net


def main(deep):
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    for fold in range(2):
        model = build(deep).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))
        for x, y in DataLoader(data, batch_size=4):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()


if __name__ == "__main__":
    import sys

    main(len(sys.argv) > 99)
"""
    )
    done = apply("tf32", text)
    assert done.lines == TF32
    assert after(done.text, TF32[0]) == "for fold in range(2):"
    run(done.text)


def test_benchmark_for_images_of_one_size() -> None:
    done = apply("cudnn-benchmark", HEAD + BODY)
    assert done.lines == ["torch.backends.cudnn.benchmark = True"]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        run(done.text)


@pytest.mark.parametrize(
    ("lines", "answer"),
    [
        (["benchmark = True"], ""),
        (["benchmark = False"], "`benchmark = False` is written out (line 4 of train.py)"),
        (["deterministic = True"], "determinism is asked for on line 4"),
        (["benchmark = False", "deterministic = True"], "`benchmark = False` is written out"),
        (
            ["benchmark = True", "deterministic = True"],
            "line 5 of train.py leaves it deterministic",
        ),
        (["use_deterministic_algorithms(True)"], "determinism is asked for on line 4"),
    ],
)
def test_benchmark_and_determinism(lines: list[str], answer: str) -> None:
    text = "".join(f"torch.{'' if '(' in s else 'backends.cudnn.'}{s}\n" for s in lines)
    done = apply("cudnn-benchmark", HEAD + text + BODY)
    assert not done.fixes and len(done.findings) == bool(answer)
    assert answer in done.refusals + done.advice


@pytest.mark.parametrize(
    ("cut", "varies"),
    [
        ("x[..., : int(torch.randint(4, 8, ()))]", True),
        ("x[:, :, : 4 + epoch]", True),
        ("x[:, :, epoch : epoch + 4]", False),
        ("x[:, :, :SIDE]", False),
        ("x[: 1 + epoch]", False),  # fewer samples
    ],
)
def test_batches_that_are_cut(cut: str, varies: bool) -> None:
    head, _, loop = BODY.partition("for x, y")
    loop = f"for x, y{loop}".replace("model(x", f"model({cut}")
    body = head + "SIDE = 8\nfor epoch in range(3):\n" + textwrap.indent(loop, "    ")
    done = apply("cudnn-benchmark", HEAD + body)
    assert bool(done.fixes) is not varies
    assert ("to a size that may change" in done.advice) is varies


@pytest.mark.parametrize(
    ("head", "deterministic"),
    [
        ("from monai.utils import set_determinism\nset_determinism(0)", True),
        ("from transformers import enable_full_determinism\nenable_full_determinism(0)", True),
        ("from accelerate.utils import set_seed\nset_seed(0, deterministic=True)", True),
        ("from accelerate.utils import set_seed\nset_seed(0, deterministic=False)", False),
        ("from accelerate.utils import set_seed\nset_seed(0)", False),
        ("torch.set_deterministic_debug_mode('warn')", True),
        ("torch.set_deterministic_debug_mode(0)", False),
        ("from agents import evaluate\nevaluate(None, deterministic=True)", False),
    ],
)
def test_determinism_by_a_helper_of_a_library(head: str, deterministic: bool) -> None:
    done = apply("cudnn-benchmark", HEAD + head + "\n" + BODY)
    assert bool(done.fixes) is not deterministic, done.refusals
    assert ("determinism is asked for on line" in done.refusals) is deterministic


@pytest.mark.parametrize(("value", "off"), [("False", True), ("torch.cuda.is_available()", False)])
def test_cudnn_that_a_file_switches_off_at_import(value: str, off: bool) -> None:
    files = {"judge.py": f"import torch\n\ntorch.backends.cudnn.enabled = {value}\n"}
    done = apply("cudnn-benchmark", HEAD + "import judge\n" + BODY, files=files)
    assert ("take it out" in done.advice) is off and bool(done.fixes) is not off


def test_nothing_is_said_without_convolutions() -> None:
    body = BODY.replace(
        "nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)", "nn.Flatten(), nn.Linear(64, 2)"
    )
    assert body != BODY
    for flag in ("", "torch.backends.cudnn.benchmark = False\n"):
        assert not apply("cudnn-benchmark", HEAD + flag + body).findings


def test_convolutions_with_weights_of_their_own() -> None:
    body = BODY.replace(
        "model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2))",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        "        self.w = nn.Parameter(torch.randn(2, 1, 3, 3))\n\n    def forward(self, x):\n"
        "        return nn.functional.conv2d(x, self.w).mean((2, 3))\n\nmodel = Net()",
    )
    assert "Net()" in body
    done = apply("cudnn-benchmark", HEAD + body)
    assert done.lines == ["torch.backends.cudnn.benchmark = True"]
    run(done.text)


IMAGES = """\
from torchvision import datasets, transforms
data = datasets.ImageFolder("images", transforms.Compose([{steps}, transforms.ToTensor()]))
"""


@pytest.mark.parametrize(
    ("steps", "fixed"),
    [
        ("transforms.RandomResizedCrop(224)", True),
        ("transforms.Resize(256), transforms.CenterCrop(224)", True),
        ("transforms.Resize((64, 64)), transforms.RandomHorizontalFlip()", True),
        ("transforms.Resize(256)", False),
        ("transforms.CenterCrop(224), transforms.Pad(4)", True),  # as much for each
        ("transforms.Pad(4)", False),
        ("transforms.CenterCrop(224), transforms.RandomApply([transforms.Pad(4)])", False),
        ("transforms.RandomHorizontalFlip()", False),
    ],
)
def test_benchmark_asks_for_the_last_word_about_the_size(steps: str, fixed: bool) -> None:
    data = "data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))\n"
    done = apply("cudnn-benchmark", HEAD + BODY.replace(data, IMAGES.replace("{steps}", steps)))
    assert bool(done.fixes) is fixed
    assert fixed or "one size" in done.advice


@pytest.mark.parametrize("getitem", [False, True])
def test_transforms_that_a_class_hands_on_to_a_folder_of_images(getitem: bool) -> None:
    """What a ``__getitem__`` of its own makes of them is not known."""
    made = IMAGES.replace("{steps}", "transforms.RandomCrop(8)").replace(".ImageFolder", ".Birds")
    own = "    def __getitem__(self, i):\n        return super().__getitem__(i)[0][:, i:], 0\n"
    birds = (
        "from torchvision import datasets\n\nclass Birds(datasets.ImageFolder):\n"
        "    def __init__(self, root, transform):\n        super().__init__(root + '/birds', transform)\n"
    )
    made = made.replace("data = datasets.Birds", f"{birds}{own * getitem}\ndata = Birds")
    data = "data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))\n"
    done = apply("cudnn-benchmark", HEAD + BODY.replace(data, made))
    assert bool(done.fixes) is not getitem


ROWS = """\
class Rows(torch.utils.data.Dataset):
    def __init__(self):
        self.x = torch.randn(8, 1, 8, 8)
    def __len__(self):
        return 8
    def __getitem__(self, index):
        return {item}
data = Rows()
"""
BATCHES = "batch_size=None, sampler=torch.utils.data.BatchSampler(torch.utils.data.RandomSampler(data), batch_size=4, drop_last=False))"


@pytest.mark.parametrize("loader", ["batch_size=4)", "batch_size=4, shuffle=True)", BATCHES])
def test_benchmark_knows_that_rows_of_a_tensor_have_one_shape(loader: str) -> None:
    body = BODY.replace(
        "data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))\n", ""
    ).replace("batch_size=4)", loader)
    done = apply(
        "cudnn-benchmark",
        HEAD + ROWS.format(item="self.x[index].float() / 2, 0 * self.x[index]") + body,
    )
    assert done.fixes
    cut = apply(
        "cudnn-benchmark", HEAD + ROWS.format(item="self.x[index][..., : 4 + index], 0") + body
    )
    assert bool(cut.fixes) is (
        "shuffle" in loader
    )  # the default collate function would not stack other shapes


@pytest.mark.parametrize(
    ("size", "said", "fixed"),
    [('cfg["size"]', 8, True), ('cfg["size"] or choose()', 8, True), ('cfg["size"]', 1, False)],
)
def test_batches_whose_size_a_file_says_are_stacked(
    size: str, said: int, fixed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    head = 'import json\nfrom os import getpid as choose\ncfg = json.load(open("cfg.json"))\n'
    body = BODY.replace(
        "data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))\n", ""
    ).replace("batch_size=4)", f"batch_size={size}, shuffle=True)")
    rows = ROWS.format(item="self.x[index][..., : 8 * len(self.x)], 0")
    files = {"cfg.json": json.dumps({"size": said})}
    done = apply("cudnn-benchmark", head + HEAD + rows + body, files=files)
    assert bool(done.fixes) is fixed, done.advice
    (tmp_path / "cfg.json").write_text(files["cfg.json"])
    monkeypatch.chdir(tmp_path)
    assert run(done.before)["x"].shape == run(done.text)["x"].shape


@pytest.mark.parametrize(
    ("size", "fixed"),
    [
        ("(8, 8)", True),
        ("[WIDE, 8]", True),
        ("x.shape[2:]", True),
        ("size=x.size()[2:]", True),
        ("scale_factor=1.0", True),
        ("size=SIZES[step % 2]", False),
        ("(8, WIDE + step)", False),
        ("size=random.choice(SIZES)", False),
        ("scale_factor=1 / (step + 1)", False),
    ],
)
def test_benchmark_where_images_get_one_size(size: str, fixed: bool) -> None:
    resized = f"    x = nn.functional.interpolate(x, {size})\n    optimizer.zero_grad()"
    head = "import random\n" + HEAD + "WIDE, SIZES, step = 8, [8, 16], 0\n"
    body = BODY.replace("    optimizer.zero_grad()", resized + "; step += 1")
    done = apply("cudnn-benchmark", head + body)
    assert bool(done.fixes) is fixed, done.advice
    assert fixed or "resized on line" in done.advice


def test_benchmark_leaves_other_shapes_alone() -> None:
    resized = BODY.replace(
        "    optimizer.zero_grad()",
        "    x = nn.functional.interpolate(x, size=int(8 + loss_size))\n    optimizer.zero_grad()",
    )
    assert "resized on line" in apply("cudnn-benchmark", HEAD + "loss_size = 0\n" + resized).advice
    collate = BODY.replace(
        "batch_size=4)", "batch_size=4, collate_fn=lambda b: torch.utils.data.default_collate(b))"
    )
    assert "collate_fn" in apply("cudnn-benchmark", HEAD + collate).advice
    linear = BODY.replace(
        "nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)", "nn.Flatten(), nn.Linear(64, 2)"
    )
    assert not apply("cudnn-benchmark", HEAD + linear).findings


# -------------------------------------------------------------------- determinism under a condition
SEEDED = "import sys\nif len(sys.argv) > 99:\n    torch.manual_seed(0)\n    {asks}\n"


@pytest.mark.parametrize(
    ("asks", "value"),
    [
        ("torch.backends.cudnn.deterministic = True", "not torch.backends.cudnn.deterministic"),
        (
            "torch.backends.cudnn.deterministic = True\n    torch.backends.cudnn.benchmark = False",
            "not torch.backends.cudnn.deterministic",
        ),
        (
            "torch.use_deterministic_algorithms(True)",
            "not torch.are_deterministic_algorithms_enabled()",
        ),
        ("torch.backends.cudnn.benchmark = False", None),
        (
            "torch.backends.cudnn.deterministic = True\n    torch.backends.cudnn.benchmark = True",
            None,
        ),
    ],
)
def test_determinism_under_a_condition_is_asked_for_at_run_time(
    asks: str, value: str | None
) -> None:
    done = apply("cudnn-benchmark", HEAD + SEEDED.format(asks=asks) + BODY)
    assert done.lines == ([] if value is None else [f"torch.backends.cudnn.benchmark = {value}"])


HELPER = """
def seed_everything(seed):
    torch.manual_seed(seed)
    torch.backends.cudnn.deterministic = True
    torch.backends.cudnn.benchmark = False

"""


def test_determinism_that_a_helper_asks_for() -> None:
    """It stands by itself in the helper, which is called under a condition, or always."""
    asks = "import sys\nif len(sys.argv) > 99:\n    seed_everything(0)\n"
    done = apply("cudnn-benchmark", HEAD + HELPER + asks + BODY)
    assert done.lines == ["torch.backends.cudnn.benchmark = not torch.backends.cudnn.deterministic"]
    assert run(done.text)["torch"].backends.cudnn.benchmark
    run("import torch\ntorch.backends.cudnn.benchmark = False")
    made = BODY.replace("\nmodel = ", "\ndef made():\n    return ")
    made = made.replace("\noptimizer = ", "\nmodel = made()\noptimizer = ", 1)
    made = apply("cudnn-benchmark", HEAD + HELPER + asks + made).text
    assert above(made, done.lines[0]).startswith("device = ")
    assert made.index("\n    seed_everything(0)") < made.index(done.lines[0])
    always = apply("cudnn-benchmark", HEAD + HELPER + "seed_everything(0)\n" + BODY)
    assert not always.fixes and "determinism is asked for" in always.refusals
    alone = HELPER.replace("    torch.backends.cudnn.deterministic = True\n", "")
    alone = apply("cudnn-benchmark", HEAD + alone + asks + BODY)
    assert not alone.fixes and "`benchmark = False` is written out" in alone.refusals


def test_determinism_that_is_asked_for_later() -> None:
    late = (
        BODY + "import sys\nif len(sys.argv) > 99:\n    torch.backends.cudnn.deterministic = True\n"
    )
    assert not apply("cudnn-benchmark", HEAD + late).fixes


# --------------------------------------------------------------------------- items that are stacked
ITEMS = """
class Items(torch.utils.data.Dataset):
    def __len__(self):
        return 8

    def __getitem__(self, i):
        return torch.randn(1, 8, 8), 0

data = Items()
"""


@pytest.mark.parametrize(
    ("loader", "fixed"),
    [
        ("batch_size=4, shuffle=True", True),
        ("batch_size=4, sampler=torch.utils.data.RandomSampler(data)", True),
        ("batch_size=4", False),  # only neighbours meet
        ("batch_size=1, shuffle=True", False),
        ("shuffle=True", False),
    ],
)
def test_items_that_the_default_collate_function_stacks(loader: str, fixed: bool) -> None:
    data = "data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))\n"
    done = apply(
        "cudnn-benchmark", HEAD + BODY.replace(data, ITEMS).replace("batch_size=4", loader)
    )
    assert bool(done.fixes) is fixed


@pytest.mark.parametrize(
    ("more", "shuffled", "fixed"),
    [
        ("random.shuffle(self.files)", "", True),
        ("", "random.shuffle(files)", True),
        ("", "files = os.listdir()\nrandom.shuffle(files)", True),
        ("random.shuffle(self.colours)", "", False),
        ("", "random.shuffle([1, 2])", False),
    ],
)
def test_items_that_are_shuffled_once(more: str, shuffled: str, fixed: bool) -> None:
    """Any of them meet in a batch, though the loader does not shuffle them."""
    items = """
import os, random
files = list("abcdefgh")
{shuffled}

class Items(torch.utils.data.Dataset):
    def __init__(self, files):
        self.files, self.colours = files, ["red", "blue"]
        {more}

    def __len__(self):
        return len(self.files)

    def __getitem__(self, i):
        return torch.full((1, 8, 8), float(len(self.files[i]))), 0

data = Items(files)
"""
    items = items.replace("{shuffled}", shuffled).replace("{more}", more)
    data = "data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))\n"
    done = apply("cudnn-benchmark", HEAD + BODY.replace(data, items))
    assert bool(done.fixes) is fixed
    assert run(done.text)["x"].shape[1:] == (1, 8, 8)


@pytest.mark.parametrize(
    ("made", "fixed"),
    [
        ("Items(), batch_size=1", False),
        ("Items()", False),
        ("Items(), batch_size=4", True),  # most would fail, were there several sizes
        ("data", True),  # whose images the training has stacked
        ("torch.utils.data.Subset(data, [0, 1])", True),
        ("TensorDataset(torch.randn(8, 1, 8, 8))", True),
    ],
)
def test_images_of_an_evaluation_that_come_one_by_one(made: str, fixed: bool) -> None:
    """They may have any size, and cuDNN would measure each."""
    data = "data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))\n"
    body = BODY.replace(data, ITEMS).replace("batch_size=4", "batch_size=4, shuffle=True")
    test = f"for batch in DataLoader({made}):\n    with torch.no_grad():\n        model(batch[0].to(device))\n"
    done = apply("cudnn-benchmark", HEAD + body + test)
    assert bool(done.fixes) is fixed
    assert fixed or "in an evaluation" in done.advice


DEFAULT = "return torch.utils.data.dataloader.default_collate"
COLLATE = """
import numpy as np

def collate(batch):
    {body}

data = Items()
"""
ZIPPED = "images, labels = zip(*batch)\n    images = torch.stack(images, 0)\n    return "
BOXES = "most = max(item[1] for item in batch)\n    boxes = torch.ones((len(batch), most + 1, 5)) * -1\n    "
IN_ROWS = (
    "images = []\n    for x, y in batch:\n        images.append([x.numpy()])\n"
    "    images = np.concatenate(images, axis=0)\n    images = torch.from_numpy(images).div(255.0)\n"
    "    return images, torch.zeros(len(batch)).long()"
)
JOINED = "return torch.cat([item[0][None] for item in batch], 0), torch.zeros(len(batch)).long()"
WORDS = "lengths = [len(v) for v in batch]\n    words = torch.zeros(len(batch), max(lengths)).long()\n    "


@pytest.mark.parametrize(
    ("body", "fixed"),
    [
        (ZIPPED + "images, torch.LongTensor(labels)", True),
        (ZIPPED + "images, torch.tensor([v / 2 for v in labels])", True),  # no Conv2d takes it
        (BOXES + ZIPPED + "images, boxes", True),
        (BOXES + ZIPPED + "images, boxes[:, None, :, None]", False),  # nor is it known to be none
        (ZIPPED + "images, [torch.zeros(v + 1, 5) for v in labels]", True),  # a list
        (ZIPPED + "images, torch.nn.functional.pad(images, (0, max(labels)))", False),
        (WORDS + ZIPPED + "images, words[:, 0]", True),
        (f"batch = [item for item in batch if item is not None]\n    {DEFAULT}(batch)", True),
        (f"{DEFAULT}(list(filter(lambda item: item[1] > 0, batch)))", True),
        (f"{DEFAULT}([(x[..., : 2 + len(batch)], y) for x, y in batch])", False),
        (f"batch = [(x[:, :size(batch)], y) for x, y in batch]\n    {DEFAULT}(batch)", False),
        (
            "images = [item[0].numpy().transpose(1, 2, 0) for item in batch]\n"
            "    images = torch.from_numpy(np.stack(images, axis=0))\n"
            "    images = images.permute(0, 3, 1, 2).contiguous()\n"
            "    return images, torch.LongTensor([item[1] for item in batch])",
            True,
        ),
        (
            "wide = max(len(batch), 8)\n"
            "    images = [nn.functional.pad(item[0], (0, wide - 8)) for item in batch]\n"
            "    return torch.stack(images), torch.LongTensor([item[1] for item in batch])",
            False,
        ),
        (
            "wide, found = len(batch), []\n    for x, y in batch:\n"
            "        found.append(nn.functional.pad(x, (0, wide)))\n"
            "    return torch.stack(found), torch.LongTensor([item[1] for item in batch])",
            False,
        ),
        (
            "images = torch.from_numpy(np.stack([item[0] for item in batch]))\n"
            "    return images[..., : len(batch)], torch.LongTensor([item[1] for item in batch])",
            False,
        ),
        (
            "return torch.stack([item[0] for item in batch]), torch.LongTensor([item[1] for item in batch])",
            True,
        ),
        (
            "found = []\n    for item in batch:\n        found.append(item[0])\n    return torch.stack(found), torch.zeros(len(batch)).long()",
            True,
        ),
        (
            "return torch.stack([item[0] for item in batch if item[1] >= 0]), torch.zeros(len(batch)).long()",
            False,
        ),
        (ZIPPED + "x[..., : len(batch) * 2], torch.LongTensor(labels)", False),
        (
            ZIPPED.replace("torch.stack(images, 0)", "torch.stack([x[0][0], x[0][0]])")
            + "images, torch.LongTensor(labels)",
            False,
        ),
        (ZIPPED + "images, torch.zeros(len(batch))", True),
        (IN_ROWS, True),
        (IN_ROWS.replace("[x.numpy()]", "x.numpy()[:, None]"), False),  # any number of rows
        (IN_ROWS.replace("axis=0", "axis=-1"), False),  # widths may differ
        (IN_ROWS.replace("x, y in batch", "x, y in [*batch, batch[0]]"), False),
        (JOINED, True),
        (JOINED.replace("[None]", ".unsqueeze(0)"), True),
        (JOINED.replace("[None]", ".unsqueeze(1)"), False),
        (JOINED.replace("], 0)", "], dim=2)"), False),
        (ZIPPED + "images, torch.zeros(len(batch), 1, 8, 8)", False),  # may be convolved
        (
            "images = nn.utils.rnn.pad_sequence([item[0] for item in batch])\n    return images, torch.zeros(len(batch)).long()",
            False,
        ),
    ],
)
def test_collate_functions_that_stack(body: str, fixed: bool) -> None:
    data = "data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))\n"
    made = ITEMS.replace("data = Items()\n", COLLATE.format(body=body).lstrip("\n"))
    for loader in ("batch_size=4, shuffle=True", "batch_size=4"):
        done = apply(
            "cudnn-benchmark",
            HEAD
            + BODY.replace(data, made).replace("batch_size=4", f"{loader}, collate_fn=collate"),
        )
        assert bool(done.fixes) is (fixed and "shuffle" in loader)
        assert done.fixes or "collate_fn" in done.advice


@pytest.mark.parametrize(
    ("given", "fixed"), [("x.to(device)", True), ("x.to(device), [t.to(device) for t in y]", False)]
)
def test_lists_in_a_batch_that_a_network_is_given(given: str, fixed: bool) -> None:
    """It could convolve each of them."""
    network = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.flat, self.linear = nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)

    def forward(self, x, more=()):
        for y in more:
            self.conv(y[None])
        return self.linear(self.flat(self.conv(x)))

class Collate:
    def __call__(self, batch):
        images, labels = zip(*batch)
        return torch.stack(images), [torch.zeros(1, 8 + v, 8) for v in labels]

"""
    made = "nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2))"
    data = "data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))\n"
    loss = "nn.functional.cross_entropy(model(x.to(device)), y.to(device))"
    body = BODY.replace(made, "Net()").replace(data, ITEMS)
    body = body.replace("batch_size=4", "batch_size=4, shuffle=True, collate_fn=Collate()")
    body = body.replace(loss, f"model({given}).sum()")
    done = apply("cudnn-benchmark", HEAD + network + body)
    assert bool(done.fixes) is fixed and ("collate_fn" in done.advice) is not fixed
    assert run(done.text)["loss"].ndim == 0


@pytest.mark.parametrize(
    ("given", "used", "fixed"),
    [
        ("images", "0", True),
        ("images, boxes", "self.loss(x, boxes)", True),
        ("images, boxes", "self.conv(boxes[:, None]).sum()", False),
        ("images, boxes", "self.loss(x, boxes) + boxes.sum()", False),  # who knows
        ("boxes[:, None]", "0", False),
    ],
)
def test_padded_parts_of_a_batch_that_are_not_convolved(given: str, used: str, fixed: bool) -> None:
    text = """
from tqdm import tqdm

def collate(batch):
    images = torch.stack([item[0] for item in batch])
    most = max(item[1] for item in batch)
    return {"images": images, "boxes": torch.ones((len(batch), most + 4, 5)) * -1}

class Loss(nn.Module):
    def forward(self, x, boxes):
        return x.mean() + boxes.mean()

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.loss = nn.Conv2d(1, 2, 3), Loss()

    def forward(self, x, boxes=None):
        x = self.conv(x)
        return x.mean() + {used}

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
{items}
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
bar = tqdm(DataLoader(data, batch_size=4, shuffle=True, collate_fn=collate), disable=True)
for step, batch in enumerate(bar):
    images, boxes = batch["images"].to(device), batch["boxes"]
    boxes = boxes.to(device)
    optimizer.zero_grad()
    loss = model({given})
    loss.backward()
    optimizer.step()
"""
    for name, code in (("{used}", used), ("{items}", ITEMS), ("{given}", given)):
        text = text.replace(name, code)
    done = apply("cudnn-benchmark", HEAD + text)
    assert bool(done.fixes) is fixed and ("collate_fn" in done.advice) is not fixed
    assert run(done.text)["loss"].ndim == 0


SIZED = """\
from random import choice

class Base(torch.utils.data.Dataset):
    def __init__(self, size=8):
        self.size, self.file, self.kept, self.count = size, None, {}, 0
        self.items = [torch.randn(1, 8, 8) for _ in range(8)]
    def __len__(self):
        return 8

class Items(Base):
    def __getitem__(self, i):
        {first}
        return self.items[i][:, : self.size], 0

data = Items()
"""


@pytest.mark.parametrize(
    ("first", "made", "later", "fixed"),
    [
        ("pass", "", "", True),
        ("pass", "data.size = 8", "", True),  # before anything asks for items
        ("pass", "", "data.size = choice([8])", False),
        ("pass", "", "data.count += 1", True),  # no item reads it
        ("self.size -= self.size % 2", "", "", False),
        ("if self.file is None: self.file = open(__file__)", "", "", True),
        ("self.kept[i] = self.items[i]", "", "", True),
    ],
)
def test_items_that_change_their_size(first: str, made: str, later: str, fixed: bool) -> None:
    """They are stacked in each batch, and another batch may have another size."""
    data, loop = BODY.splitlines(keepends=True)[3:5]
    body = BODY.replace(data, SIZED.replace("{first}", first) + made + "\n")
    assert loop in body
    body, rest = body.split(loop)
    loop = loop.replace("batch_size=4", "batch_size=4, shuffle=True")
    epochs = textwrap.indent(f"{loop}{rest}{later}\n", "    ")
    done = apply("cudnn-benchmark", f"{HEAD}{body}for epoch in range(3):\n{epochs}")
    assert bool(done.fixes) is fixed
    assert run(done.text, __file__=__file__)["x"].shape == (4, 1, 8, 8)


@pytest.mark.parametrize(
    ("size", "fixed"),
    [
        ("2 * torch.cuda.device_count()", True),  # one at the least, or there are no batches
        ("args.size * args.processes", True),
        ("size", True),
        ("args.one * args.processes", False),
        ("args.size // args.processes", False),
        ("torch.cuda.device_count()", False),
    ],
)
def test_the_size_of_batches_is_computed(size: str, fixed: bool) -> None:
    options = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--size", type=int, default=4)
parser.add_argument("--one", type=int, default=1)
parser.add_argument("--processes", type=int, default=-1)
args = parser.parse_args([])
if args.processes < 0:
    args.processes = len([0])
size = args.size
size *= args.processes
"""
    data = "data = TensorDataset(torch.randn(8, 1, 8, 8), torch.zeros(8, dtype=torch.long))\n"
    body = BODY.replace(data, ITEMS).replace("batch_size=4", f"batch_size={size}, shuffle=True")
    done = apply("cudnn-benchmark", HEAD + options + body)
    assert bool(done.fixes) is fixed
    if "device_count" not in size:
        assert run(done.text)["x"].shape == run(done.before)["x"].shape


# --------------------------------------------------------------------------------------------- tf32
@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("torch.set_default_dtype(torch.float64)", "float64"),
        ("torch.set_default_dtype(torch.double)", "float64"),
        ("print(torch.cdist(torch.ones(2, 2), torch.ones(2, 2)))", "cdist"),
        ("print(torch.cdist(torch.ones(2, 2), torch.ones(2, 2), p=2.0))", "cdist"),
        (
            "x = torch.ones(2, 2)\nsquares = torch.sum(x**2, dim=1, keepdim=True)\n"
            "print((2 * torch.mm(x, x.t()) - squares - squares.t()).topk(1)[1])",
            "computes distances by way of a matrix product",
        ),
        (
            "x = torch.ones(2, 2)\ndist = -2 * torch.matmul(x, x.permute(1, 0))\n"
            "dist += torch.sum(x**2, -1).view(2, 1)\ndist += torch.sum(x**2, -1).view(1, 2)\nprint(dist)",
            "computes distances by way of a matrix product",
        ),
        (
            "x = torch.ones(2, 2)\ndist = torch.sum(x**2, -1, keepdim=True)\ndist -= 2 * x.mm(x.t())\nprint(dist)",
            "computes distances by way of a matrix product",
        ),
        (
            "x = torch.ones(2, 2)\nangles = 2 * (x @ x.t())\nprint(angles.sin(), angles.cos())",
            "sine or cosine of a product",
        ),
        (
            "grid = torch.nn.functional.affine_grid(torch.ones(1, 2, 3), (1, 3, 8, 8))\n"
            "print(torch.nn.functional.grid_sample(torch.ones(1, 3, 8, 8), grid))",
            "grid_sample",
        ),
    ],
)
def test_tf32_and_what_needs_digits(line: str, reason: str) -> None:
    done = apply("tf32", HEAD + line + "\n" + BODY)
    assert not done.fixes and reason in done.refusals
    assert apply(
        "tf32", HEAD + "print(torch.cdist(torch.ones(2, 2), torch.ones(2, 2), p=1))\n" + BODY
    ).fixes
    waves = "x = torch.ones(2, 2)\nprint(torch.sin(x * 100) + (x @ x).relu())\n"
    assert apply("tf32", HEAD + waves + BODY).fixes


def test_tf32_for_a_network_of_a_module_that_is_named_by_an_option() -> None:
    made = "model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Flatten(), nn.Linear(72, 2)).to(device)"
    assert made in BODY
    chosen = BODY.replace(made, "model = importlib.import_module(sys.argv[1]).Net().to(device)")
    found = apply("tf32", "import importlib\nimport sys\n" + HEAD + chosen)
    assert not found.fixes and "finds something by a name" in found.refusals
    beside = HEAD + "importlib.import_module(sys.argv[1])\n" + BODY
    assert apply("tf32", "import importlib\nimport sys\n" + beside).fixes


def test_tf32_asks_nothing_of_cuda() -> None:
    """So it may stand before the devices are chosen."""
    choose = 'def choose():\n    os.environ["CUDA_VISIBLE_DEVICES"] = "1"\n'
    text = "import os\n" + HEAD + choose + BODY.replace("device = torch.device(", "device = str(")
    assert apply("tf32", text).lines == TF32


def test_another_memory_format_is_no_move_to_a_gpu() -> None:
    """What channels-last writes tells nothing about where the program starts: without it there is
    no place here, and so with it.
    """
    text = """
    import torch
    from torch import nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3)

        def forward(self, x):
            return self.conv(x)

    def try_it():
        net = Net()
        loss = net(torch.randn(2, 3, 8, 8).cuda()).sum()
        loss.backward()
    """
    assert apply("channels-last", text).fixes
    for made in ("Net()", "Net().to(memory_format=torch.channels_last)", "Net().to(torch.float32)"):
        assert not apply("tf32", text.replace("net = Net()", f"net = {made}")).fixes
    assert apply(
        "tf32",
        text.replace("net = Net()", "net = Net().to('cuda', memory_format=torch.channels_last)"),
    ).fixes


def test_a_batch_sampler_says_nothing_about_sizes() -> None:
    """Rows of one tensor are alike whichever of them a batch holds; images of files may be grouped
    by their size.
    """
    batches = "DataLoader(data, batch_sampler=[[0, 1], [5, 3]])"
    rows = HEAD + BODY.replace("DataLoader(data, batch_size=4)", batches)
    assert "torch.backends.cudnn.benchmark = True" in apply("cudnn-benchmark", rows).lines
    files = BODY.replace("TensorDataset(", "Files(").replace(
        "data = ",
        "class Files(TensorDataset):\n    def __getitem__(self, i):\n"
        "        x, y = super().__getitem__(i)\n        return x[:, : 5 + i % 2], y\n\ndata = ",
    )
    files = HEAD + files.replace("DataLoader(data, batch_size=4)", batches)
    assert "its own batch_sampler" in apply("cudnn-benchmark", files).advice


@pytest.mark.parametrize("kind", ["threading.Thread", "multiprocessing.Process"])
def test_what_loads_data_beside_the_training_is_no_matter(kind: str) -> None:
    fill = (
        "import multiprocessing, threading\n\ndef fill(queue):\n    queue.append(1)\n\n"
        f"worker = {kind}(target=fill, args=([],))\nworker.start()\nworker.join()\n"
    )
    assert apply("tf32", HEAD + fill + BODY).lines == TF32


# A class of the project that gives the index of an image of torchvision's, too.
INDEXED = """\
from PIL import Image
from torchvision import datasets, transforms

class Indexed(datasets.MNIST):
    def __getitem__(self, index):
        image, target = self.data[index], int(self.targets[index])
        image = Image.fromarray(image.numpy(), mode="L")
        if self.transform is not None:
            image = self.transform(image)
        return image, target, index

{more}
data = Indexed("data", transform={transform})
"""


@pytest.mark.parametrize(
    ("transform", "change", "fixed"),
    [
        ("transforms.ToTensor()", ("", ""), True),
        (
            "transforms.Compose([transforms.RandomCrop(28, 4), transforms.ToTensor()])",
            ("", ""),
            True,
        ),
        ("transforms.Compose([transforms.Pad((0, side)), transforms.ToTensor()])", ("", ""), True),
        ("transforms.RandomApply([transforms.Pad((0, side))])", ("", ""), False),
        ("transforms.ToTensor()", ("[index], int", "[index][:, :index], int"), False),
        ("transforms.ToTensor()", ("image.numpy()", "shrink(image, index)"), False),
        ("transforms.ToTensor()", ("datasets.MNIST", "datasets.ImageFolder"), False),
    ],
)
def test_images_of_one_size_with_more_beside_them(
    transform: str, change: tuple[str, str], fixed: bool
) -> None:
    more = "import sys\nside = int(sys.argv[1])\nfrom secret import shrink\n"
    made = INDEXED.replace(*change) if change[0] else INDEXED
    body = BODY.replace("for x, y in", "for x, y, _ in")
    body = body.replace(
        BODY.splitlines(keepends=True)[3], made.format(more=more, transform=transform)
    )
    done = apply("cudnn-benchmark", HEAD + body)
    assert bool(done.fixes) is fixed and ("nothing shows" in done.advice) is not fixed


SENT = """\
{first}
{decorator}
def training(rank):
{body}

{call}
"""


@pytest.mark.parametrize(
    ("first", "decorator", "call", "written"),
    [
        ("import horovod", "", "horovod.run(training, args=(0,), np=2)", False),
        ("import functools\nimport horovod", "", "horovod.run(functools.partial(training, 0), np=2)", False),
        ("import horovod", "", "horovod.run(lambda: training(0), np=2)", False),
        ("import horovod", "", "def main():\n    training(0)\n\n\nhorovod.run(main, np=2)", False),
        ("import ray", "@ray.remote(num_gpus=1)", "ray.get(training.remote(0))", False),
        ("import ignite.distributed as idist", "", "with idist.Parallel() as p:\n    p.run(training)", False),
        ("from launch import launch", "", "launch(training)", False),
        ("import torch.multiprocessing as mp", "", "mp.spawn(training, nprocs=2)", True),
        ("import horovod", "", "training(0)", True),
    ],
)  # fmt: skip
def test_functions_that_are_sent_by_value(
    first: str, decorator: str, call: str, written: bool
) -> None:
    """cloudpickle packs the modules that a function names, and torch.backends is none it can."""
    files = {
        "launch.py": "import horovod\n\n\ndef launch(function):\n    horovod.run(function)\n",
        "requirements.txt": "torch==1.8\n",
    }
    body = textwrap.indent(BODY, "    ")
    text = HEAD + SENT.format(first=first, decorator=decorator, body=body, call=call)
    for rule in ("cudnn-benchmark", "tf32"):
        done = apply(rule, text, files=files)
        assert bool(done.fixes) is written
        assert written or "to other processes by value" in done.refusals
