"""trainer-args: what is written for each framework, what decides against it, and that the arguments
work where they are made.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

from autofast.edit.plan import Plan
from autofast.model.source import source_of
from autofast.rule import Effect
from tests.fixture import ALL, Fixture
from tests.harness import STANDINS
from tests.onerule import Applied, apply, run
from tests.test_fixtures import contents, plan_of

torch = pytest.importorskip("torch")

RULE = "trainer-args"
BF16 = 'precision="bf16-mixed" if has_bf16 else "32-true"'

LIGHTNING = """
import torch
import torch.nn.functional as F
import lightning.pytorch as pl
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 2))

    def training_step(self, batch, batch_idx):
        x, y = batch
        return F.cross_entropy(self.layer(x), y)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

loader = DataLoader(TensorDataset(torch.randn(32, 64), torch.randint(0, 2, (32,))), batch_size=8, shuffle=True)
trainer = pl.Trainer(max_epochs=1)
trainer.fit(Net(), loader)
"""
HF = """
import torch
from torch import nn
from torch.utils.data import Dataset
from transformers import Trainer, TrainingArguments

class Rows(Dataset):
    def __init__(self):
        self.x = torch.randn(32, 64)

    def __len__(self):
        return 32

    def __getitem__(self, i):
        return {"x": self.x[i]}

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 64))

    def forward(self, x):
        return {"loss": nn.functional.mse_loss(self.layers(x), x)}

args = TrainingArguments(output_dir="out", optim="adamw_torch", num_train_epochs=2)
trainer = Trainer(model=Net(), args=args, train_dataset=Rows())
trainer.train()
"""
ACCELERATE = """
import torch
from accelerate import Accelerator
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

model = nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 64))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
loader = DataLoader(TensorDataset(torch.randn(32, 64)), batch_size=8, shuffle=True)
accelerator = Accelerator()
model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
for epoch in range(2):
    for (x,) in loader:
        loss = nn.functional.mse_loss(model(x), x)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
"""
FILES = """
import numpy as np

class Rows(Dataset):
    def __init__(self):
        self.paths = [f"{n}.npy" for n in range(32)]

    def __len__(self):
        return 32

    def __getitem__(self, i):
        return {"x": torch.from_numpy(np.load(self.paths[i]))}
"""
MADE = "pl.Trainer(max_epochs=1)"


def changed(text: str, *pairs: tuple[str, str]) -> str:
    for old, new in pairs:
        assert old in text, old
        text = text.replace(old, new)
    return text


def lightning(call: str, *pairs: tuple[str, str], **files: str) -> Applied:
    return apply(RULE, changed(LIGHTNING, (MADE, call), *pairs), files=files)


def hugging_face(call: str, *pairs: tuple[str, str], **files: str) -> Applied:
    made = 'TrainingArguments(output_dir="out", optim="adamw_torch", num_train_epochs=2)'
    return apply(RULE, changed(HF, (made, call), *pairs), files=files)


def accelerated(call: str, *pairs: tuple[str, str], **files: str) -> Applied:
    return apply(RULE, changed(ACCELERATE, ("Accelerator()", call), *pairs), files=files)


def one_line(done: Applied) -> str:
    """The code without its layout: every statement on one line, and one kind of quotes."""
    return ast.unparse(ast.parse(done.text)).replace("'", '"')


# ---------------------------------------------------------------------------------------- Lightning
@pytest.mark.parametrize(
    ("call", "wanted"),
    [
        ("pl.Trainer()", f"pl.Trainer({BF16})"),
        ("pl.Trainer(precision=None)", ""),
        (
            "pl.Trainer(strategy='ddp', accelerator='gpu')",
            f"pl.Trainer(strategy='ddp', accelerator='gpu', {BF16})",
        ),
        ("pl.Trainer(gradient_clip_val=1.0)", f"pl.Trainer(gradient_clip_val=1.0, {BF16})"),
        ("pl.Trainer(**dict(max_epochs=1))", f"dict(max_epochs=1, {BF16})"),
        (
            "pl.Trainer(**{'max_epochs': 1})",
            '"precision": "bf16-mixed" if has_bf16 else "32-true"',
        ),
        (
            "pl.Trainer(max_epochs=1, gpus=1, strategy='ddp')",
            'precision="bf16" if has_bf16 else 32',
        ),
    ],
)
def test_lightning_is_asked_for_bfloat16(call: str, wanted: str) -> None:
    done = lightning(call)
    assert (wanted.replace("'", '"') in one_line(done)) if wanted else not done.fixes, done.text
    assert all(f.effect in (None, Effect.ROUNDING) for f in done.fixes)


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("pl.Trainer(precision=32)", ""),
        ("pl.Trainer(precision='16-mixed')", ""),
        ("pl.Trainer(precision=64)", ""),
        ("pl.Trainer(amp_backend='apex')", ""),
        ("pl.Trainer(plugins=[object()])", "plugins="),
        ("pl.Trainer(strategy=pl.strategies.FSDPStrategy())", "the strategy is an object"),
        ("pl.Trainer(strategy='deepspeed_stage_2')", "deepspeed_stage_2 decides"),
        ("pl.Trainer(accelerator='cpu')", "it trains on the CPU"),
        ("pl.Trainer(strategy='ddp_fork')", "its processes are forked"),
        ("pl.Trainer(strategy='ddp_notebook', devices=2)", "its processes are forked"),
        ("pl.Trainer(accelerator='tpu')", "another accelerator"),
        ("pl.Trainer(**options)", "it may be given already"),
        ("pl.Trainer(gpus=1)", "name its version"),
    ],
)
def test_lightning_is_left_alone(call: str, reason: str) -> None:
    done = lightning(
        call,
        (
            "loader = ",
            "import json\noptions = json.load(open('options.json')) if '**' in "
            + repr(call)
            + " else None\nloader = ",
        ),
    )
    assert not done.fixes, done.text
    assert reason in done.refusals and bool(reason) is bool(done.refusals)


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (
            (
                "F.cross_entropy(self.layer(x), y)",
                "nn.BCELoss()(torch.sigmoid(self.layer(x)), y.float())",
            ),
            "BCELoss",
        ),
        (
            (
                "        super().__init__()\n",
                "        super().__init__()\n        self.automatic_optimization = False\n",
            ),
            "it steps its optimizers itself (line",
        ),
        (
            (
                "return F.cross_entropy(self.layer(x), y)",
                "return F.cross_entropy(self.layer(torch.linalg.inv(x)), y)",
            ),
            "linear algebra",
        ),
        (
            (
                "        super().__init__()\n",
                "        super().__init__()\n        self.memory = nn.GRU(8, 8)\n",
            ),
            "the GRU of Net in fp16",
        ),
        (("self.layer = nn.Sequential(", "self.layer = unknown_layers("), "is not known"),
        (
            (
                "self.layer = nn.Sequential(",
                "import pointops\n        self.layer = pointops.Encoder(",
            ),
            "gives tensors to pointops.Encoder",
        ),
        (("F.cross_entropy(self.layer(x), y)", "foreign(self.layer(x), y)"), "is not known"),
        (
            ("trainer.fit(Net(), loader)", "trainer.fit(Net().double(), loader)"),
            "float64 by choice",
        ),
        (
            (
                "return F.cross",
                "with torch.no_grad():\n            self.layer(x)\n        return F.cross",
            ),
            "with and without gradients",
        ),
    ],
)
def test_code_that_must_stay_in_fp32(pair: tuple[str, str], reason: str) -> None:
    done = lightning(MADE, pair)
    assert not done.fixes and reason in done.refusals, (done.refusals, done.text)


def test_one_place_in_several_ways() -> None:
    """A call that is reached with and without the argument must not get it twice."""
    made = "def make(**options):\n    return pl.Trainer(**options)\n\nloader = "
    done = lightning(
        "make(max_epochs=1)",
        ("loader = ", made),
        ("trainer.fit(", "make(precision='16-mixed')\ntrainer.fit("),
    )
    assert not done.fixes
    assert "precision" in lightning("make(max_epochs=1)", ("loader = ", made)).text


@pytest.mark.parametrize(
    ("kept", "refused"),
    [
        ("self.kept.append(logits.cpu().numpy())", True),
        ("self.kept.append(logits.float().cpu().numpy())", False),
        ("self.kept.append(logits.argmax(1).cpu().numpy())", False),
        (
            "self.kept.append(logits)\n\n    def on_validation_epoch_end(self):\n        torch.cat(self.kept).cpu().numpy()",
            True,
        ),
    ],
)
def test_numpy_has_no_bfloat16(kept: str, refused: bool) -> None:
    step = f"    def validation_step(self, batch, batch_idx):\n        logits = self.layer(batch[0])\n        {kept}\n\n    def configure_optimizers"
    done = lightning(
        MADE,
        ("    def configure_optimizers", step),
        ("        self.layer", "        self.kept = []\n        self.layer"),
    )
    assert ("NumPy" in done.refusals) is refused and bool(done.fixes) is not refused, (
        done.refusals,
        done.text,
    )


def test_arguments_of_the_old_command_line() -> None:
    parser = "import argparse\nparser = pl.Trainer.add_argparse_args(argparse.ArgumentParser())\nloader = "
    done = lightning(
        "pl.Trainer.from_argparse_args(parser.parse_args())", PL, ("loader = ", parser)
    )
    assert not done.fixes and "run it with --precision bf16" in done.advice
    where = (PL[0], "import pytorch_lightning as pl\nfrom pytorch_lightning.trainer import Trainer")
    call = "Trainer.from_argparse_args(parser.parse_args(), max_epochs=2)"
    done = lightning(call, where, ("loader = ", parser))
    assert not done.fixes and "run it with --precision bf16" in done.advice


PL = ("import lightning.pytorch as pl", "import pytorch_lightning as pl")


@pytest.mark.parametrize(
    ("requirement", "call", "wanted"),
    [
        ("", MADE, "pytorch_lightning may be 1.x"),
        ("pytorch-lightning>=2.1", MADE, '"bf16-mixed" if'),
        ("pytorch_lightning==1.9.5", MADE, '"bf16" if'),
        ("pytorch-lightning<1.5", "pl.Trainer(max_epochs=1)", "whether this Lightning 1.x"),
        ("", "pl.Trainer(max_epochs=1, use_distributed_sampler=True)", '"bf16-mixed" if'),
        ("", "pl.Trainer(max_epochs=1, gpus=1, enable_progress_bar=False)", '"bf16" if'),
    ],
)
def test_the_spelling_is_that_of_the_version(requirement: str, call: str, wanted: str) -> None:
    done = lightning(call, PL, **{"requirements.txt": f"torch>=2.4\n{requirement}\n"})
    assert wanted in done.refusals + "".join(done.lines), (done.refusals, done.lines)


def test_old_hooks_tell_the_version() -> None:
    hook = (
        "    def configure_optimizers",
        "    def validation_epoch_end(self, outputs):\n        pass\n\n    def configure_optimizers",
    )
    done = lightning("pl.Trainer(max_epochs=1, enable_progress_bar=False)", PL, hook)
    assert 'precision="bf16" if has_bf16 else 32' in one_line(done)


@pytest.mark.parametrize(
    ("declared", "advice"),
    [
        (
            "'--precision', default='32'",
            "run it with --precision bf16-mixed where the GPU has bfloat16",
        ),
        ("'-p', '--precision', default=None", "run it with --precision bf16-mixed"),
        ("'--precision', type=int, default=32", "let --precision take bf16-mixed"),
        ("'--precision', choices=['32', '16'], default='32'", "let --precision take bf16-mixed"),
        ("'--precision', default='16-mixed'", ""),
    ],
)
def test_lightning_on_the_command_line(declared: str, advice: str) -> None:
    parser = f"import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument({declared})\nargs = parser.parse_args()\nloader = "
    done = lightning("pl.Trainer(precision=args.precision)", ("loader = ", parser))
    assert not done.fixes
    assert advice in done.advice and bool(advice) is bool(done.advice)


@pytest.mark.parametrize(
    ("call", "more", "found"),
    [
        (MADE, (), True),
        ("pl.Trainer(accelerator='cpu')", (), False),
        ("pl.Trainer(strategy='ddp_fork')", (), False),
        (MADE, (("loader = ", "torch.set_float32_matmul_precision('medium')\nloader = "),), False),
        (MADE, (("self.layer(x), y", "self.layer(torch.linalg.inv(x)), y"),), False),
    ],
)
def test_lightning_and_tf32(call: str, more: tuple[tuple[str, str], ...], found: bool) -> None:
    """Lightning has no option for it."""
    done = apply("tf32 trainer-args", changed(LIGHTNING, (MADE, call), *more))
    assert ('torch.set_float32_matmul_precision("high")' in done.text) is found
    if found:
        assert done.text.index("set_float32") < done.text.index("pl.Trainer(")
        seeded = changed(LIGHTNING, ("loader = ", "pl.seed_everything(1)\n\nloader = "))
        lines = apply("tf32", seeded).text.splitlines()
        assert "set_float32" in lines[lines.index("pl.seed_everything(1)") + 1]


CONV = (
    "nn.Sequential(nn.Linear(64, 2048), nn.ReLU(), nn.Linear(2048, 2))",
    "nn.Sequential(nn.Conv2d(1, 8, 3), nn.Flatten(), nn.Linear(288, 2))",
)
IMAGES = ("torch.randn(32, 64)", "torch.randn(32, 1, 8, 8)")


@pytest.mark.parametrize(
    ("call", "more", "status"),
    [
        (MADE, (), "fix"),
        ("pl.Trainer(deterministic=True)", (), "refused"),
        ("pl.Trainer(benchmark=False)", (), ""),
        ("pl.Trainer(accelerator='cpu')", (), ""),
        (MADE, (("loader = ", "torch.backends.cudnn.benchmark = True\nloader = "),), ""),
        (MADE, (("loader = ", "torch.use_deterministic_algorithms(True)\nloader = "),), "refused"),
        (MADE, (("shuffle=True)", "shuffle=True, collate_fn=lambda items: items)"),), "advice"),
    ],
)
def test_lightning_and_benchmark(call: str, more: tuple[tuple[str, str], ...], status: str) -> None:
    done = lightning(call, CONV, IMAGES, *more)
    assert [f.status for f in done.findings if "rule of thumb" in f.message] == [status] * bool(
        status
    )
    assert ("benchmark=True" in done.text.partition("pl.Trainer(")[2]) is (status == "fix")
    assert "benchmark" not in "".join(lightning(MADE).lines), "there are no convolutions"


CLI = """
import torch
import torch.nn.functional as F
from lightning.pytorch import LightningModule
from lightning.pytorch.cli import LightningCLI
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = nn.Conv2d(1, 8, 3)

    def training_step(self, batch, batch_idx):
        return self.layer(batch[0]).square().mean()

    def train_dataloader(self):
        return DataLoader(TensorDataset(torch.randn(32, 1, 8, 8)), batch_size=8, shuffle=True)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)

class CLI(LightningCLI):
    def add_arguments_to_parser(self, parser):
        pass

CLI(Net)
"""


@pytest.mark.parametrize(
    ("pairs", "advice"),
    [
        ((), ["--trainer.precision bf16-mixed", "--trainer.benchmark true"]),
        (
            (("CLI(Net)", "CLI(Net, trainer_defaults={'precision': 32})"),),
            ["--trainer.benchmark true"],
        ),
        (
            (("CLI(Net)", "CLI(Net, trainer_defaults=dict(benchmark=True))"),),
            ["--trainer.precision bf16-mixed"],
        ),
        (
            (
                (
                    "pass",
                    "parser.set_defaults({'trainer.precision': 32, 'trainer.benchmark': False})",
                ),
            ),
            [],
        ),
        (
            (("shuffle=True", "shuffle=True, collate_fn=lambda items: items"),),
            ["--trainer.precision bf16-mixed", "--trainer.benchmark true if all batches"],
        ),
    ],
)
def test_the_command_line_of_the_lightning_cli(
    pairs: tuple[tuple[str, str], ...], advice: list[str]
) -> None:
    done = apply(RULE, changed(CLI, *pairs))
    given = [f.advice for f in done.findings if f.advice]
    assert not done.fixes and len(given) == len(advice), given
    assert all(words in one for words, one in zip(advice, given, strict=True)), given


SAMPLES = """    def on_train_epoch_end(self):
        shown = self.layer(self.example).softmax(1)
        print(shown.mean().item())

    def configure_optimizers"""


@pytest.mark.parametrize(
    ("pair", "wanted"),
    [
        (("print(", "print("), "@torch.inference_mode()"),
        (("        print(shown.mean().item())", "        self.kept = shown"), "@torch.no_grad()"),
        (("on_train_epoch_end", "on_validation_epoch_end"), ""),
        (("on_train_epoch_end", "on_before_zero_grad"), ""),
        (("        print(", "        shown.sum().backward()\n        print("), ""),
        (
            (
                "        print(",
                "        torch.autograd.grad(shown.sum(), self.example)\n        print(",
            ),
            "",
        ),
    ],
)
def test_hooks_that_run_with_gradients_on(pair: tuple[str, str], wanted: str) -> None:
    hook = changed(SAMPLES, pair)
    example = "        self.example = torch.randn(4, 64)\n        self.layer"
    done = apply(
        "no-grad-eval",
        changed(LIGHTNING, ("    def configure_optimizers", hook), ("        self.layer", example)),
    )
    assert (wanted in done.lines) if wanted else not done.fixes, done.text


def test_fabric_is_told_what_to_do() -> None:
    text = "from lightning.fabric import Fabric\nfabric = Fabric(accelerator='auto'{})\nfabric.launch()\n"
    done = apply(RULE, text.format(""))
    assert not done.fixes and 'pass precision="bf16-mixed"' in done.advice
    assert not apply(RULE, text.format(", precision='16-mixed'")).findings


# ------------------------------------------------------------------------------------- Hugging Face
def test_the_trainer_of_hugging_face() -> None:
    done = hugging_face("TrainingArguments(output_dir='out', optim='adamw_torch')")
    assert "bf16=has_bf16" in one_line(done) and "tf32=is_torch_tf32_available()" in one_line(done)
    assert (
        'optim="adamw_torch_fused"' in one_line(done)
        and "from transformers.utils import is_torch_tf32_available" in done.lines
    )
    assert len({f.message for f in done.fixes}) == 3 and "read out of memory" in done.refusals


@pytest.mark.parametrize("half", [True, False])
def test_tf32_beside_bf16_is_not_worth_its_lines(half: bool) -> None:
    """What has TF32 has bfloat16."""
    made = 'TrainingArguments(output_dir="out", optim="adamw_torch", num_train_epochs=2)'
    call = made if half else made.replace(")", ", fp16=True)")
    done = apply(RULE, changed(HF, (made, call)), min_gain=0.01)
    assert ("bf16=has_bf16" in one_line(done)) is half
    assert ("tf32=is_torch_tf32_available()" in one_line(done)) is not half


def test_where_a_class_of_the_project_stands_in_for_accelerate() -> None:
    """It need not take what the library's takes, nor is there anything else of the library."""
    stand_in = """
try:
    from accelerate import Accelerator
except ImportError:
    class Accelerator:
        def __init__(self, **options):
            self.device = torch.device("cpu")
        def prepare(self, *objects):
            return objects
        def backward(self, loss):
            loss.backward()
"""
    done = accelerated("Accelerator()", ("from accelerate import Accelerator\n", stand_in))
    assert not done.fixes and "stands in for another" in done.refusals


@pytest.mark.parametrize(
    ("call", "absent", "reason"),
    [
        ("TrainingArguments('out', fp16=True)", "bf16=", ""),
        ("TrainingArguments('out', bf16=False)", "bf16=has", ""),
        ("TrainingArguments('out', tf32=False)", "tf32=is", ""),
        ("TrainingArguments('out', use_cpu=True)", "has_bf16", "it trains on the CPU"),
        (
            "TrainingArguments('out', deepspeed='zero.json', optim='adamw_torch')",
            "has_bf16",
            "deepspeed= is given",
        ),
        (
            "TrainingArguments('out', deepspeed='zero.json', optim='adamw_torch')",
            "fused",
            "deepspeed= is given",
        ),
        ("TrainingArguments('out', optim='adafactor')", "fused", ""),
        ("TrainingArguments('out')", "optim", ""),
        ("TrainingArguments(**options)", "has_bf16", "options may be given already"),
    ],
)
def test_what_the_arguments_say_already(call: str, absent: str, reason: str) -> None:
    done = hugging_face(
        call,
        (
            "args = ",
            "import json\noptions = json.load(open('options.json')) if '**' in "
            + repr(call)
            + " else {}\nargs = ",
        ),
    )
    assert absent not in "".join(done.lines), done.text
    assert reason in done.refusals


@pytest.mark.parametrize(
    ("requirement", "wanted"),
    [
        ("transformers>=4.30,<4.50", True),
        ("transformers==4.26.0", False),
        ("transformers>=5", False),
        ("transformers>=4.30,<4.50\ntorch<2.2", False),
    ],
)
def test_the_default_optimizer_depends_on_the_version(requirement: str, wanted: bool) -> None:
    done = hugging_face("TrainingArguments('out')", **{"requirements.txt": requirement})
    assert ('optim="adamw_torch_fused"' in one_line(done)) is wanted


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (
            (
                "model=Net(), args=args",
                "model=Net(), args=args, optimizers=(torch.optim.SGD([], 1), None)",
            ),
            "an optimizer of its own",
        ),
        (("model=Net()", "model_init=Net"), "model_init"),
        (("model=Net()", "model=load('net')"), "what it trains is not known"),
        (
            (
                "nn.functional.mse_loss(self.layers(x), x)",
                "nn.functional.binary_cross_entropy(self.layers(x), x)",
            ),
            "binary_cross_entropy",
        ),
        (
            ("nn.functional.mse_loss(self.layers(x), x)", "load(self.layers(x), x)"),
            "gives tensors to",
        ),
        (("args=args, ", ""), "no TrainingArguments"),
    ],
)
def test_what_the_trainer_is_given(pair: tuple[str, str], reason: str) -> None:
    head = "import torch\n" if "load(" not in pair[1] else "import torch\nfrom zoo import load\n"
    done = hugging_face(
        "TrainingArguments(output_dir='out', optim='adamw_torch')", pair, ("import torch\n", head)
    )
    assert reason in done.refusals, done.refusals


@pytest.mark.parametrize(
    ("loaded", "reason"),
    [
        ("'net'", ""),
        ("'net', load_in_8bit=True", "loaded with load_in_8bit="),
        ("'net', torch_dtype=torch.bfloat16", "loaded with torch_dtype="),
    ],
)
def test_models_with_adapters(loaded: str, reason: str) -> None:
    head = "import torch\nfrom peft import LoraConfig, get_peft_model\nfrom transformers import AutoModelForCausalLM\n"
    made = f"model=get_peft_model(AutoModelForCausalLM.from_pretrained({loaded}), LoraConfig(r=8))"
    done = hugging_face("TrainingArguments('out')", ("import torch\n", head), ("model=Net()", made))
    assert ("bf16=has_bf16" in one_line(done)) is not bool(reason) and reason in done.refusals, (
        done.refusals
    )


def test_workers_of_the_trainer() -> None:
    rows = changed(HF, (HF[HF.index("\nclass Rows") : HF.index("\nclass Net")], FILES))
    done = apply(RULE, rows)
    words = one_line(done)
    assert (
        "dataloader_num_workers=workers" in words  # none where processes are not forked
        and "dataloader_persistent_workers=workers > 0" in words
    )
    effects = {f.message: f.effect for f in done.fixes}
    assert sorted(e for m, e in effects.items() if "batches" in m or "worker" in m) == [
        Effect.EXACT,
        Effect.SAMPLING,
    ]
    once = apply(RULE, changed(rows, ("num_train_epochs=2", "num_train_epochs=1")))
    assert "dataloader_num_workers" in once.text and "persistent" not in once.text
    given = apply(RULE, changed(rows, ("num_train_epochs=2", "dataloader_num_workers=4")))
    assert "dataloader_persistent_workers=True" in given.text and "workers = " not in given.text
    old = apply(RULE, rows, files={"requirements.txt": "transformers<4.36"})
    assert (
        "persistent" not in old.text
        and "dataloader_persistent_workers is there since 4.36" in old.refusals
    )
    former = apply(
        RULE,
        changed(rows, ("num_train_epochs=2", "num_train_epochs=2, evaluation_strategy='epoch'")),
    )
    assert "persistent" not in former.text
    assert "evaluation_strategy is gone since 4.46" in former.refusals
    own = apply(
        RULE,
        changed(
            rows,
            (
                "trainer = Trainer(",
                "class Own(Trainer):\n    def get_train_dataloader(self):\n        pass\n\ntrainer = Own(",
            ),
        ),
    )
    assert (
        "dataloader_num_workers" not in own.text
        and "get_train_dataloader() is the project's own" in own.refusals
    )


def test_datasets_and_models_of_other_files_are_read() -> None:
    head, rest = HF[: HF.index("\nclass Rows")], HF[HF.index("\nclass Rows") :]
    classes, main = rest[: rest.index("\nargs = ")], rest[rest.index("\nargs = ") :]
    data = head + changed(
        classes, (classes[classes.index("\nclass Rows") : classes.index("\nclass Net")], FILES)
    )
    drawn = data.replace("return {", "torch.rand(1)\n        return {")
    text = head + "from parts import Net, Rows\n" + main
    assert [
        f.effect
        for f in apply(RULE, text, files={"parts.py": data}).fixes
        if "main process" in f.message
    ] == [Effect.EXACT]
    assert [
        f.effect
        for f in apply(RULE, text, files={"parts.py": drawn}).fixes
        if "main process" in f.message
    ] == [Effect.SAMPLING]
    banned = data.replace("mse_loss(", "binary_cross_entropy(")
    assert "binary_cross_entropy" in apply(RULE, text, files={"parts.py": banned}).refusals


DATACLASS = """
from dataclasses import dataclass, field
import transformers

@dataclass
class Arguments(transformers.TrainingArguments):
    width: int = field(default=8)
    optim: str = "adamw_torch"

parser = transformers.HfArgumentParser(Arguments)
(args,) = parser.parse_args_into_dataclasses()
"""


HF_ARGUMENTS = (
    'args = TrainingArguments(output_dir="out", optim="adamw_torch", num_train_epochs=2)\n'
)


def parsed(*pairs: tuple[str, str]) -> Applied:
    return apply(RULE, changed(HF, (HF_ARGUMENTS, DATACLASS), *pairs))


def test_fields_of_the_projects_own_arguments() -> None:
    done = parsed()
    assert (
        'optim: str = "adamw_torch_fused"' in done.lines
        and "tf32: bool = field(default=is_torch_tf32_available())" in done.lines
    )
    assert (
        "run it with --bf16 True where the GPU has bfloat16" in done.advice
        and "bf16" not in "".join(done.lines)
    )
    assert not [
        line
        for line in parsed(("    width: int", "    tf32: bool = False\n    width: int")).lines
        if "tf32" in line
    ]
    assert "bf16" not in parsed(("    width: int", "    fp16: bool = True\n    width: int")).advice


def test_a_file_that_imports_the_script_is_no_part_of_it() -> None:
    """It is looked at where a module has no training of its own; a Trainer is one."""
    other = DATACLASS.replace("Arguments(", "Others(").replace("(Arguments)", "(Others)")
    done = apply(
        RULE,
        changed(HF, (HF_ARGUMENTS, DATACLASS)),
        files={"lora.py": f"from train import x\n{other}"},
    )
    places = {source_of(f.node).path.name for f in done.findings}
    assert done.fixes and places == {"train.py"} and done.texts.keys() == {"train.py"}


def test_only_the_command_line() -> None:
    done = parsed(
        (DATACLASS[DATACLASS.index("\n@dataclass") : DATACLASS.index("\nparser")], "\n"),
        ("HfArgumentParser(Arguments)", "HfArgumentParser((transformers.TrainingArguments,))"),
    )
    assert not done.fixes and "run it with --bf16 True --tf32 True" in done.advice


# --------------------------------------------------------------------------------------- Accelerate
LAUNCHED = (
    'mixed_precision=os.environ.get("ACCELERATE_MIXED_PRECISION", "bf16" if has_bf16 else "no")'
)


def test_accelerate_is_asked_for_bfloat16() -> None:
    done = accelerated("Accelerator()")
    assert LAUNCHED in one_line(done)
    assert "dataloader_config=DataLoaderConfiguration(non_blocking=True)" in one_line(done)
    assert [f.effect for f in done.fixes if "copies" in f.message] == [Effect.EXACT]


@pytest.mark.parametrize(
    ("call", "absent", "reason"),
    [
        ("Accelerator(mixed_precision='fp16')", "has_bf16", ""),
        ("Accelerator(mixed_precision='no')", "has_bf16", ""),
        ("Accelerator(mixed_precision=None)", "has_bf16", "the launcher decides"),
        ("Accelerator(cpu=True)", "has_bf16", "it trains on the CPU"),
        ("Accelerator(fsdp_plugin=object())", "has_bf16", "fsdp_plugin="),
        ("Accelerator(kwargs_handlers=[object()])", "has_bf16", "kwargs_handlers="),
        ("Accelerator(True, False)", "has_bf16", "by position"),
        ("Accelerator(dataloader_config=None)", "DataLoaderConfiguration", ""),
        ("Accelerator(device_placement=False)", "DataLoaderConfiguration", ""),
    ],
)
def test_accelerate_is_left_alone(call: str, absent: str, reason: str) -> None:
    done = accelerated(call)
    assert absent not in "".join(done.lines), done.text
    assert reason in done.refusals and (reason or not done.refusals)


def test_a_configuration_that_is_there() -> None:
    head = (
        "from accelerate import Accelerator",
        "from accelerate import Accelerator, DataLoaderConfiguration",
    )
    done = accelerated(
        "Accelerator(mixed_precision='no', dataloader_config=DataLoaderConfiguration(even_batches=False))",
        head,
    )
    assert "DataLoaderConfiguration(even_batches=False, non_blocking=True)" in one_line(done)
    assert not accelerated(
        "Accelerator(mixed_precision='no', dataloader_config=DataLoaderConfiguration(non_blocking=False))",
        head,
    ).fixes
    assert (
        "DataLoaderConfiguration"
        not in accelerated("Accelerator()", **{"requirements.txt": "accelerate==0.27.2"}).text
    )


@pytest.mark.parametrize(
    ("default", "wanted"),
    [
        ("None", "mixed_precision=args.mixed_precision or os.environ.get"),
        ("'no'", "advice"),
        ("'fp16'", ""),
    ],
)
def test_accelerate_on_the_command_line(default: str, wanted: str) -> None:
    parser = "import argparse\nparser = argparse.ArgumentParser()\n"
    parser += f"parser.add_argument('--mixed_precision', default={default}, choices=['no', 'fp16', 'bf16'])\nargs = parser.parse_args()\nmodel = nn"
    done = accelerated("Accelerator(mixed_precision=args.mixed_precision)", ("model = nn", parser))
    if wanted == "advice":
        assert "run it with --mixed_precision bf16 where the GPU has bfloat16" in done.advice
    else:
        assert wanted in one_line(done)
    assert ("has_bf16" in done.text) is (default == "None")


@pytest.mark.parametrize(
    ("pair", "reason"),
    [
        (("nn.Sequential(nn.Linear", "unknown(nn.Linear"), "not known"),
        (
            (
                "accelerator.backward(loss)",
                "accelerator.backward(torch.autograd.grad(loss, x, create_graph=True)[0].sum())",
            ),
            "differentiates gradients",
        ),
    ],
)
def test_a_loop_that_must_stay_in_fp32(pair: tuple[str, str], reason: str) -> None:
    done = accelerated("Accelerator()", pair)
    assert "has_bf16" not in done.text and reason in done.refusals, (done.refusals, done.text)


# ------------------------------------------------------------------------ options of a script's own
OWN = """
import argparse
import torch
from torch import nn

parser = argparse.ArgumentParser()
parser.add_argument("--amp", action="store_true")
parser.add_argument("--channels-last", action="store_true")
args = parser.parse_args()
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = nn.Conv2d(1, 4, 3).to(device)
if args.channels_last:
    model = model.to(memory_format=torch.channels_last)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
scaler = None
if args.amp and device.type == "cuda":
    scaler = torch.amp.GradScaler("cuda")
for _ in range(3):
    loss = model(torch.randn(2, 1, 8, 8, device=device)).mean()
    (scaler.scale(loss) if scaler else loss).backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.parametrize(
    ("pair", "advice"),
    [
        (
            ("", ""),
            ["run it with --amp where the GPU has tensor cores", "run it with --channels-last"],
        ),
        (
            ('"--amp", action="store_true"', '"--amp", action="store_true", default=True'),
            ["run it with --channels-last"],
        ),
        (
            ("scaler = None\n", "scaler = torch.amp.GradScaler('cuda')\n"),
            ["run it with --channels-last"],
        ),
        (
            ("if args.channels_last:\n    ", ""),
            ["run it with --amp where the GPU has tensor cores"],
        ),
        (
            ("if args.channels_last:", "if not args.channels_last:"),
            ["run it with --amp where the GPU has tensor cores"],
        ),
    ],
)
def test_techniques_that_are_options(pair: tuple[str, str], advice: list[str]) -> None:
    done = apply(RULE, changed(OWN, pair) if pair[0] else OWN)
    assert not done.fixes and [f.advice for f in done.findings] == advice


# ---------------------------------------------------------------------------- what is written works
@pytest.fixture
def standins(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    """The stand-ins are importable, under names that nothing keeps afterwards."""
    roots = ("lightning", "transformers", "accelerate")
    kept = {name: module for name, module in sys.modules.items() if name.split(".")[0] in roots}
    for name in kept:
        del sys.modules[name]
    monkeypatch.syspath_prepend(str(STANDINS))
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION", raising=False)
    yield
    for name in [name for name in sys.modules if name.split(".")[0] in roots]:
        del sys.modules[name]
    sys.modules.update(kept)


def pretend(monkeypatch: pytest.MonkeyPatch, major: int) -> None:
    """A GPU of this generation; 0 for none."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: major > 0)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda *device: (major, 0))
    monkeypatch.setattr(
        torch.cuda, "is_bf16_supported", lambda including_emulation=True: major >= 8
    )


@pytest.mark.parametrize(
    ("major", "precision"), [(0, "32-true"), (7, "32-true"), (8, "bf16-mixed"), (9, "bf16-mixed")]
)
def test_lightning_gets_what_the_hardware_has(
    standins: None, monkeypatch: pytest.MonkeyPatch, major: int, precision: str
) -> None:
    text = lightning(MADE).text
    pretend(monkeypatch, major)
    assert run(text)["trainer"].precision == precision


@pytest.mark.parametrize(("major", "half"), [(0, False), (7, False), (8, True)])
def test_hugging_face_gets_what_the_hardware_has(
    standins: None, monkeypatch: pytest.MonkeyPatch, major: int, half: bool
) -> None:
    text = hugging_face("TrainingArguments(output_dir='out', optim='adamw_torch')").text
    pretend(monkeypatch, major)
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    monkeypatch.setattr(
        torch.cuda, "get_device_properties", lambda device: type("Properties", (), {"major": major})
    )
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)
    args = run(text)["args"]
    assert args.bf16 is half and args.tf32 is half and args.optim == "adamw_torch_fused"


@pytest.mark.parametrize(
    ("major", "launched", "precision"),
    [(0, "", "no"), (7, "", "no"), (8, "", "bf16"), (8, "no", "no"), (8, "fp16", "fp16")],
)
def test_the_launcher_wins(
    standins: None, monkeypatch: pytest.MonkeyPatch, major: int, launched: str, precision: str
) -> None:
    text = accelerated("Accelerator()").text
    if launched:
        monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launched)
    pretend(monkeypatch, major)
    assert run(text)["accelerator"].mixed_precision == precision


@pytest.mark.parametrize(
    ("target", "wanted"), [("cuda", "has_bf16"), ("cpu", 'precision="bf16-mixed"')]
)
def test_on_the_cpu_there_is_nothing_to_ask(target: str, wanted: str) -> None:
    done = apply(RULE, LIGHTNING, target=target)
    assert wanted in done.text and ("has_bf16" in done.text) is (target == "cuda")
    assert not apply(RULE, HF, target="cpu").text.count("bf16=")


def test_precision_on_request() -> None:
    assert 'precision="bf16-mixed")' in apply(RULE, LIGHTNING, precision="bf16").text
    assert "ask for bf16" in apply(RULE, LIGHTNING, precision="fp16").refusals


# -------------------------------------------------------------------------------- the real packages
MINE = [f for f in ALL if f.name.split("_")[0] in ("lightning", "hf", "accelerate")]
PACKAGE = {"lightning": "lightning", "hf": "transformers", "accelerate": "accelerate"}


def really(fixture: Fixture, folder: Path, plan: Plan | None) -> subprocess.CompletedProcess[str]:
    shutil.copytree(fixture.folder, folder)
    for name, raw in (contents(plan) if plan is not None else {}).items():
        (folder / name).write_bytes(raw)
    words = ["fit"] if fixture.name == "lightning_cli" else []
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    return subprocess.run(
        [sys.executable, "train.py", *words, *fixture.args],
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        timeout=300,
    )


@pytest.mark.slow
@pytest.mark.parametrize("fixture", MINE, ids=lambda fixture: fixture.name)
def test_with_the_real_package(fixture: Fixture, tmp_path: Path) -> None:
    package = PACKAGE[fixture.name.split("_")[0]]
    if find_spec(package) is None:
        pytest.skip(f"{package} is not installed")
    before, after = (
        really(fixture, tmp_path / name, plan)
        for name, plan in (("before", None), ("after", plan_of(fixture, "cuda")))
    )
    assert before.returncode == after.returncode == 0, after.stderr[-2000:]
    steps = [
        [line for line in ran.stdout.splitlines() if line.startswith(("done", "steps:"))]
        for ran in (before, after)
    ]
    assert steps[0] == steps[1]
