"""Loops written by hand around models, optimizers and schedules of transformers, which stand in for
it here.
"""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

import pytest
import torch
from torch import nn

from tests.amp import amp, close, trained
from tests.onerule import apply

SCRIPT = """
import torch
from transformers import AdamW, TinyLMHeadModel, get_linear_schedule_with_warmup

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
model = TinyLMHeadModel(8).to(device)
optimizer = AdamW(model.parameters(), lr=0.1)
schedule = get_linear_schedule_with_warmup(optimizer, 0, 12)
X = torch.randint(0, 8, (6, 4, 16))
losses = []
for i in range(6):
    ids = X[i].to(device)
    model.zero_grad()
    outputs = model(ids, labels=ids)
    loss = outputs[0]
    loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    optimizer.step()
    schedule.step()
    losses.append(loss.item())
"""
UNPACKED = SCRIPT.replace("    loss = outputs[0]\n", "    loss, logits = outputs[:2]\n")
NAMED = SCRIPT.replace("outputs[0]", 'outputs["loss"]')


class Output(tuple):  # type: ignore[type-arg]
    def __getitem__(self, key: Any) -> Any:
        return super().__getitem__(0 if key == "loss" else key)


class TinyLMHeadModel(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.table, self.head = nn.Embedding(size, 16), nn.Linear(16, size)

    def forward(self, ids: Any, labels: Any = None) -> Output:
        logits = self.head(self.table(ids))
        loss = nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())
        return Output((loss, logits))


def schedule(optimizer: Any, warmup: int, steps: int) -> Any:
    return torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: 1 - step / steps)


@pytest.fixture(autouse=True)
def _stand_in(monkeypatch: pytest.MonkeyPatch) -> None:
    module: Any = ModuleType("transformers")
    module.AdamW = type("AdamW", (torch.optim.AdamW,), {})
    module.TinyLMHeadModel = TinyLMHeadModel
    module.get_linear_schedule_with_warmup = schedule
    monkeypatch.setitem(sys.modules, "transformers", module)


@pytest.mark.parametrize("text", [SCRIPT, UNPACKED, NAMED])
def test_mixed_precision_with_a_scaler(text: str) -> None:
    """The loss comes first where labels are given, and torch computes it in fp32."""
    done = amp(text, target="cpu", precision="fp16")
    assert {f.rule for f in done.fixes} == {"autocast", "grad-scaler", "unscale-before-clip"}
    before, after = trained(done.before)["losses"], trained(done.text)["losses"]
    assert before != after and close(before, after, 0.02)


def test_without_labels_the_first_part_are_logits() -> None:
    text = SCRIPT.replace("model(ids, labels=ids)", "model(ids)").replace(
        "outputs[0]", "outputs[0].pow(2).mean()"
    )
    assert "would be a 16-bit number" in amp(text, target="cpu").refusals


def test_its_optimizer_is_named_as_the_slower_one() -> None:
    found = apply("fused-optimizer", SCRIPT)
    assert not found.fixes and "torch.optim.AdamW" in found.advice


TUTORIAL = """
import torch
from datasets import load_dataset
from torch.utils.data import DataLoader
from transformers import AutoModelForSequenceClassification, AutoTokenizer, DataCollatorWithPadding

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
tokenizer = AutoTokenizer.from_pretrained("bert-base-uncased")
data = load_dataset("glue", "mrpc").map(lambda e: tokenizer(e["sentence1"]), batched=True)
data = data.remove_columns(["sentence1", "idx"])
data.set_format("torch")
collator = DataCollatorWithPadding(tokenizer=tokenizer)
loader = DataLoader(data["train"], shuffle=True, batch_size=8, collate_fn=collator)
model = AutoModelForSequenceClassification.from_pretrained("bert-base-uncased").to(device)
optimizer = torch.optim.AdamW(model.parameters(), lr=5e-5)
for epoch in range(3):
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        loss = model(**batch).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    model.eval()
    for batch in DataLoader(data["validation"], batch_size=8, collate_fn=collator):
        with torch.no_grad():
            print(model(**{k: v.to(device) for k, v in batch.items()}).logits.argmax(-1).sum())
"""


@pytest.mark.parametrize(
    ("dtype", "applied"),
    [
        ("torch_dtype=torch.bfloat16", False),
        ("dtype=torch.float16", False),
        ("quantization_config=settings", False),
        ("torch_dtype=torch.float32", True),
    ],
)
def test_a_model_that_is_loaded_in_16_bits(dtype: str, applied: bool) -> None:
    """What it was loaded with is somebody's decision, and fp16 gradients cannot be unscaled."""
    text = TUTORIAL.replace('cased").to', f'cased", {dtype}).to').replace(
        "data = load", "settings = object()\ndata = load", 1
    )
    found = apply("autocast grad-scaler", text)
    assert bool(found.fixes) is applied
    assert applied or "decides about precision" in found.refusals


def test_workers_for_a_dataset_of_hugging_face() -> None:
    found = apply("num-workers persistent-workers", TUTORIAL)
    assert {f.rule for f in found.fixes} == {"num-workers", "persistent-workers"}
    streamed = TUTORIAL.replace('"mrpc")', '"mrpc", streaming=True)')
    assert not apply("num-workers", streamed).fixes


@pytest.mark.parametrize(
    ("name", "fits"), [("bert-base-uncased", True), ("EleutherAI/gpt-neox-20b", False)]
)
def test_a_checkpoint_names_the_model(name: str, fits: bool) -> None:
    found = apply(
        "no-grad-eval",
        TUTORIAL.replace('pretrained("bert-base-uncased").to', f'pretrained("{name}").to'),
    )
    assert bool(found.fixes) is fits


OWN = (
    SCRIPT.replace(
        "torch.manual_seed(0)\n",
        """
torch.manual_seed(0)


class Tagger(TinyPreTrainedModel):
    def __init__(self, config, args):
        super().__init__(config)
        self.tiny = TinyModel(config)
        self.head = torch.nn.Linear(16, args)

    def forward(self, ids, labels=None):
        outputs = self.tiny(ids)
        logits = self.head(outputs[0])
        outputs = (logits,) + outputs[2:]
        if labels is not None:
            loss = torch.nn.CrossEntropyLoss()(logits.view(-1, 8), labels.view(-1))
            outputs = (loss,) + outputs
        return outputs


""",
        1,
    )
    .replace("TinyLMHeadModel(8)", 'Tagger.from_pretrained("tiny", config=8, args=8)')
    .replace("import AdamW, TinyLMHeadModel", "import AdamW, TinyPreTrainedModel, TinyModel")
)


class TinyPreTrainedModel(nn.Module):
    def __init__(self, config: int) -> None:
        super().__init__()

    @classmethod
    def from_pretrained(cls, name: str, *args: Any, config: int, **kwargs: Any) -> Any:
        return cls(config, *args, **kwargs)


class TinyModel(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.table = nn.Embedding(size, 16)

    def forward(self, ids: Any) -> tuple[Any, ...]:
        found = self.table(ids)
        return found, found[:, 0]


@pytest.mark.parametrize(
    "text", [OWN, OWN.replace("loss = outputs[0]", "loss, logits = outputs[:2]")]
)
def test_a_model_of_the_project_that_extends_one_of_the_library(
    text: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is made with weights of a file, and gives a loss before others of which no more is
    known.
    """
    monkeypatch.setattr(
        sys.modules["transformers"], "TinyPreTrainedModel", TinyPreTrainedModel, False
    )
    monkeypatch.setattr(sys.modules["transformers"], "TinyModel", TinyModel, False)
    done = amp(text, target="cpu", precision="fp16")
    assert {f.rule for f in done.fixes} == {"autocast", "grad-scaler", "unscale-before-clip"}
    before, after = trained(done.before)["losses"], trained(done.text)["losses"]
    assert before != after and close(before, after, 0.02)
    odd = text.replace("config=8, args=8", "config=8, args=8, torch_dtype=torch.float16")
    assert not amp(odd, target="cpu", precision="fp16").fixes


@pytest.mark.parametrize(
    ("loss", "kept"),
    [
        ("output.loss", "loss.detach()"),
        ("output.loss / 2", "loss.detach()"),
        ("output.logits[0, 0]", "loss.detach().clone()"),
        ("output.loss\n        output.loss /= 2", "loss.detach().clone()"),
    ],
)
def test_each_pass_has_a_loss_of_its_own(loss: str, kept: str) -> None:
    before = "        loss = model(**batch).loss\n"
    assert before in TUTORIAL
    text = TUTORIAL.replace(before, f"        output = model(**batch)\n        loss = {loss}\n")
    text = text.replace("for epoch in range(3):\n", "for epoch in range(3):\n    losses = []\n")
    text = text.replace(
        "optimizer.zero_grad()\n", "optimizer.zero_grad()\n        losses.append(loss.item())\n"
    )
    text = text.replace("    model.eval()\n", "    print(losses)\n    model.eval()\n", 1)
    assert f"losses.append({kept})" in apply("loss-item-sync", text).text
