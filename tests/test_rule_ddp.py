"""ddp: one process gives what it gave, several processes train as one process with the same batches
does, and what cannot be is refused.
"""

from __future__ import annotations

import ast
import tempfile
import textwrap
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from autofast.edit.edits import Wrap
from autofast.edit.order import Rank
from autofast.edit.plan import Plan
from autofast.model.script import Script
from autofast.model.source import Source
from autofast.read import read_script
from autofast.registry import all_rules, select
from autofast.rule import Effect, Finding, Options
from tests.fixture import ALL, Fixture
from tests.harness import HARNESS, Job, compare
from tests.onerule import Applied, apply
from tests.test_fixtures import contents, difference, job, reread, script_of
from tests.torchrun import World, real, same_order, torchrun

torch = pytest.importorskip("torch")

HEAD = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
torch.manual_seed(0)
data = TensorDataset(torch.randn(48, 5), torch.randint(0, 3, (48,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
model = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 3))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
LOOP = """
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""


def job_of(folder: Path, texts: Mapping[str, str], before: str = "") -> Job:
    for name, text in texts.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(textwrap.dedent(text).lstrip("\n"), "utf-8")
    return Job(folder, before=before)


def done(
    text: str, ranks: int = 2, *, same: bool = True, first: int = 0, **files: str
) -> tuple[Applied, World]:
    """The rewritten script: in one process bit for bit the original, in ``ranks`` the same training
    to rounding, if ``same``.
    """
    others = {f"{name}.py": content for name, content in files.items()}
    made = apply("ddp", text, files=others)
    assert made.fixes, made.refusals
    with tempfile.TemporaryDirectory() as folder:
        original = job_of(Path(folder) / "a", {**others, "train.py": text})
        rewritten = job_of(Path(folder) / "b", {**others, **made.texts})
        before, alone, ordered = HARNESS.run_many(
            [original, rewritten, replace(original, before=same_order(ranks, first=first))]
        )
        assert before.ok, before.traceback
        assert compare(before, alone, Effect.EXACT) == [], made.text
        world = torchrun(rewritten, ranks)
    assert world.ok, world.errors + made.text
    assert world.equal, made.text
    assert not any(world.left_open)
    if same:
        assert world.ranks[0].steps == ordered.steps
        close(ordered.params, world.ranks[0].params)
    return made, world


def close(wanted: list[list[object]], found: list[list[object]]) -> None:
    assert len(wanted) == len(found)
    for mine, theirs in zip(wanted, found, strict=True):
        for a, b in zip(mine, theirs, strict=True):
            np.testing.assert_allclose(b, a, rtol=2e-4, atol=2e-5)


def refused(text: str, **files: str) -> str:
    made = apply("ddp", text, files={f"{name}.py": content for name, content in files.items()})
    assert not made.fixes, made.text
    assert made.text == made.before
    return made.refusals


def found(text: str, **options: bool) -> Finding:
    """What the rule says of a script; nothing is composed."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder).resolve() / "train.py"
        path.write_text(textwrap.dedent(text), "utf-8")
        (finding,) = all_rules()["ddp"].find(read_script(path, path.parent), Options(**options))
    return finding


def multiplied(text: str) -> str:
    """By what the loss is multiplied."""
    finding = found(text)
    assert finding.edits, finding.refusal
    return next(
        (e.template for e in finding.edits if isinstance(e, Wrap) and e.rank is Rank.LOSS_DIVIDE),
        "",
    )


# ----------------------------------------------------------------------------------- the plain form
def test_module_level():
    made, world = done(HEAD + LOOP + 'torch.save(model.state_dict(), "model.pt")\n')
    assert (
        "DataLoader(\n    data, batch_size=8 // WORLD_SIZE, shuffle=sampler is None, sampler=sampler\n)"
        in made.text
    )
    assert set(world.files["model.pt"]) == {"0.weight", "0.bias", "2.weight", "2.bias"}


PHASES = """
few = TensorDataset(torch.randn(24, 5), torch.randint(0, 3, (24,)))
loaders = {"first": DataLoader(data, batch_size=8, shuffle=True), "second": DataLoader(few, batch_size=4)}
for phase in ["first", "second"]:
    for x, y in loaders[phase]:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
"""


def test_two_loaders_of_one_statement():
    made, _ = done(HEAD + PHASES)
    assert "sampler=first_sampler" in made.text and "sampler=second_sampler" in made.text


@pytest.mark.parametrize(
    ("first", "reason"),
    [
        ("DataLoader(TensorDataset(*data[:]), batch_size=8)", ""),
        ("DataLoader(data, batch_size=8) if len(few) else loader", "inside an expression"),
    ],
)
def test_what_is_made_stays_where_it_is_made(first: str, reason: str):
    text = HEAD + PHASES.replace("DataLoader(data, batch_size=8, shuffle=True)", first)
    second = text.replace("DataLoader(few,", "DataLoader(TensorDataset(*few[:]),")
    assert (reason or "is made after other things in one statement") in refused(second)


# ------------------------------------------------------------------------------- where things stand
FUNCTIONS = """
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(5, 16)
        self.last = nn.Linear(16, 3)

    def forward(self, x):
        x = torch.relu(self.first(x))
        return self.last(x)


def train(model, device, loader, criterion, optimizer, epoch):
    model.train()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        output = model(x)
        loss = criterion(output, y)
        loss.backward()
        optimizer.step()


def main():
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = TensorDataset(torch.randn(48, 5), torch.randint(0, 3, (48,)))
    train_loader = DataLoader(data, batch_size=8, shuffle=True)
    model = Net().to(device)
    criterion = nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(1, 3):
        train(model, device, train_loader, criterion, optimizer, epoch)
    torch.save({"epoch": epoch, "model": model.state_dict()}, "model.pt")


if __name__ == "__main__":
    main()
"""


def test_functions():
    made, world = done(FUNCTIONS, first=1)
    assert "train(ddp_model, device, train_loader, criterion, optimizer, epoch)" in made.text
    assert '"cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"' in made.text
    assert "model.first.weight" in world.files["model.pt"]


def test_a_model_that_is_used_for_more_gets_a_second_parameter():
    text = FUNCTIONS.replace(
        "    model.train()\n", "    model.train()\n    model.first.weight.data.clamp_(-1, 1)\n"
    )
    assert "ddp_model=ddp_model" in done(text, first=1)[0].text


TRAINER = """
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset


class Trainer:
    def __init__(self, width):
        self.data = TensorDataset(torch.randn(48, 5), torch.randn(48, 1))
        self.loader = DataLoader(self.data, 8, shuffle=True)
        self.model = nn.Sequential(nn.Linear(5, width), nn.Tanh(), nn.Linear(width, 1))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=0.01)

    def step(self, x, y):
        loss = ((self.model(x) - y) ** 2).mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()

    def epoch(self):
        for x, y in self.loader:
            self.step(x, y)

    def fit(self, epochs):
        for epoch in range(epochs):
            self.epoch()


torch.manual_seed(0)
trainer = Trainer(8)
trainer.fit(2)
torch.save(trainer.model.state_dict(), "model.pt")
"""


def test_class():
    made, _ = done(TRAINER)
    assert "self.ddp_model = self.model\n" in made.text
    assert "(self.ddp_model(x) - y)" in made.text
    assert "self.loader.sampler.set_epoch(epoch)" in made.text


def test_several_files():
    net = FUNCTIONS[FUNCTIONS.index("class Net") : FUNCTIONS.index("def train")]
    engine = FUNCTIONS[FUNCTIONS.index("def train") : FUNCTIONS.index("def main")]
    imports = "import torch\nimport torch.nn as nn\n"
    text = (
        FUNCTIONS.replace(net, "")
        .replace(engine, "")
        .replace(
            "import torch.nn as nn",
            "import torch.nn as nn\nfrom engine import train\nfrom net import Net",
        )
    )
    made, _ = done(text, first=1, net=imports + net, engine=imports + engine)
    assert set(made.texts) == {"train.py"}
    engine = (
        engine.replace("    model.train()\n", "    print(model.last)\n") + "    return loss * 1\n"
    )


# ----------------------------------------------------------------------------------------- the loss
def with_loss(loss: str, head: str = "") -> str:
    return (
        HEAD
        + head
        + LOOP.replace(
            "        loss = F.cross_entropy(model(x), y)",
            textwrap.indent(textwrap.dedent(loss).strip(), " " * 8),
        )
    )


@pytest.mark.parametrize(
    "loss",
    [
        "loss = nn.CrossEntropyLoss()(model(x), y)",
        "loss = nn.CrossEntropyLoss(label_smoothing=0.1)(model(x), y)",
        "loss = F.nll_loss(F.log_softmax(model(x), dim=1), y, reduction='mean')",
        "loss = F.mse_loss(model(x), F.one_hot(y, 3).float())",
        "loss = ((model(x) - F.one_hot(y, 3)) ** 2).mean()",
        "loss = (model(x) - F.one_hot(y, 3)).abs().sum(dim=1).mean()",
        "loss = torch.mean(torch.pow(model(x) - F.one_hot(y, 3), 2))",
        "loss = F.cross_entropy(model(x), y, reduction='none').mean()",
        "loss = F.cross_entropy(model(x), y, reduction='sum') / x.size(0)",
        "loss = F.cross_entropy(model(x), y, reduction='sum') / len(y)",
        "n = y.shape[0]\nloss = F.cross_entropy(model(x), y, reduction='sum') / n",
        "out = model(x)\nloss = F.cross_entropy(out, y) + 0.1 * (out**2).mean()",
        "loss = F.cross_entropy(model(x), y)\nloss = loss / 2 + 1",
        "loss = 0\nfor _ in range(2):\n    loss = loss + F.cross_entropy(model(x), y)",
        "loss = 0.0\nloss += F.cross_entropy(model(x), y)",
        "loss = 0\nfor _ in range(2):\n    out = model(x)\n    loss = loss + F.cross_entropy(out, y)\n    loss += out.pow(2).mean()",
        "criterion = lambda out, y: F.cross_entropy(out, y)\nloss = criterion(model(x), y)",
        "losses = [F.cross_entropy(model(x), y), F.cross_entropy(model(x) * 2, y)]\nloss = sum(losses)",
        "loss = F.cross_entropy(model(x), y)\nfor p in model.parameters():\n    loss = loss + 0.01 * p.pow(2).sum()",
        "loss = F.cross_entropy(model(x), y) + 0.01 * sum(p.norm() for p in model.parameters())",
        "loss = F.binary_cross_entropy_with_logits(model(x)[:, 0], (y > 1).float())",
        "loss = F.kl_div(F.log_softmax(model(x), 1), F.softmax(x[:, :3], 1), reduction='batchmean')",
        "loss = -(F.log_softmax(model(x), -1) * F.one_hot(y, 3)).sum(-1).mean()",
    ],
)  # fmt: skip
def test_means(loss: str):
    assert multiplied(with_loss(loss)) == ""


def test_one_of_several_results():
    head = """
def step(model, x, y, scale=1.0):
    out = model(x)
    hits = (out.argmax(1) == y).sum()
    return F.cross_entropy(out, y) * scale, hits
"""
    assert multiplied(with_loss("loss, hits = step(model, x, y)", head)) == ""
    assert (
        multiplied(
            with_loss(
                "loss, hits = step(model, x, y)",
                head.replace("(out, y)", '(out, y, reduction="sum")'),
            )
        )
        == "{} * WORLD_SIZE"
    )
    assert found(with_loss("_, loss = step(model, x, y)\nloss = loss.float()", head)).refusal


def test_a_model_that_gives_its_loss_beside_other_results():
    head = """
class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(5, 3)
    def forward(self, x, y):
        out = self.a(x)
        return F.cross_entropy(out - out.mean(0), y), out
model = Own()
"""
    text = HEAD.replace("optimizer =", head + "optimizer =") + LOOP.replace(
        "loss = F.cross_entropy(model(x), y)", "loss, out = model(x, y)"
    )
    assert "the model computes its loss itself" in found(text).refusal


def test_a_parameter_that_gets_another_value_under_a_condition():
    head = """
def scaled(loss, y, often=True):
    if often:
        loss = loss * len(y)
    return loss
"""
    loss = "loss = scaled(F.cross_entropy(model(x), y), y)"
    assert "not known" in found(with_loss(loss, head)).refusal
    assert multiplied(with_loss(loss, head.replace("    if often:\n    ", ""))) == "{} * WORLD_SIZE"


@pytest.mark.parametrize(
    "loss",
    [
        "loss = F.cross_entropy(model(x), y, reduction='sum')",
        "loss = nn.CrossEntropyLoss(reduction='sum')(model(x), y)",
        "loss = F.cross_entropy(model(x), y, reduction='none').sum()",
        "loss = torch.sum((model(x) - F.one_hot(y, 3)) ** 2) / 8",
        "loss = F.cross_entropy(model(x), y) * x.size(0)",
        "loss = 0.5 * ((model(x) - F.one_hot(y, 3)) ** 2).sum()",
        "out = model(x)\nloss = F.cross_entropy(out, y, reduction='sum') - 0.5 * torch.sum(1 + out - out.exp())",
        "loss = F.cross_entropy(model(x), y, weight=torch.tensor([1.0, 2.0, 3.0]), reduction='sum')",
    ],
)
def test_sums(loss: str):
    assert multiplied(with_loss(loss)) == "{} * WORLD_SIZE"


@pytest.mark.parametrize(
    ("loss", "words"),
    [
        ("loss = F.cross_entropy(model(x), y, weight=torch.tensor([1.0, 2.0, 3.0]))", "has `weight`"),
        ("loss = nn.CrossEntropyLoss(ignore_index=0)(model(x), y)", "has `ignore_index`"),
        ("loss = F.mse_loss(model(x), F.one_hot(y, 3).float()).sqrt()", "not known"),
        ("loss = torch.sqrt(F.mse_loss(model(x), F.one_hot(y, 3).float()))", "not known"),
        ("loss = F.cross_entropy(model(x), y, reduction='sum') + model[0].weight.pow(2).sum()", "does not depend on it"),
        ("loss = F.cross_entropy(model(x), y, reduction='sum') + F.cross_entropy(model(x), y)", "and a mean"),
        ("out = model(x)\nloss = F.cross_entropy(out @ out.t(), torch.arange(len(y)))", "not known"),
        ("out = model(x)\nloss = F.cross_entropy(torch.mm(out, out.t()), torch.arange(len(y)))", "not known"),
        ("out = model(x)\nloss = F.cross_entropy(out[y > 0], y[y > 0])", "picks some of the samples"),
        ("out = model(x)\nkeep = y > 0\nloss = (F.cross_entropy(out, y, reduction='none') * keep).sum() / keep.sum()", "not known"),
        ("out = model(x)\nloss = F.cross_entropy(out, y, reduction='none').topk(4)[0].mean()", "not known"),
        ("out = model(x)\nloss = F.cross_entropy(out, y) + out.std(0).mean()", "goes over the samples"),
        ("out = model(x)\nloss = F.cross_entropy(out, y) + (out.mean(0) ** 2).sum()", "goes over the samples"),
        ("out = model(x)\nloss = F.cross_entropy(out, y).exp()", "not known"),
        ("out = model(x)\nloss = F.cross_entropy(out, y) * F.mse_loss(out, out * 2)", "not known"),
        ("out = model(x)\nloss = (out.permute(1, 0) ** 2).sum(1).mean()", "not known"),
        ("out = model(x)\nloss = F.cross_entropy(out, y) / y.sum()", "not known"),
        ("out = model(x)\nloss = F.cross_entropy(out, y) / y.float().mean().item()", "read from a tensor"),
        ("out = model(x)\nloss = torch.max(F.cross_entropy(out, y, reduction='none'))", "not known"),
        ("out = model(x)\nloss = torch.logsumexp(out, 0).mean()", "goes over the samples"),
        ("out = model(x)\nloss = F.softmax(out, dim=0)[:, 0].mean()", "goes over the samples"),
        ("loss = F.cross_entropy(model(x)[1:], y[1:])", "picks some"),
        ("loss = F.cross_entropy(model(x), y, reduction='sum') / model(x).max()", "not known"),
        ("loss = F.cross_entropy(model(x - x.mean(0)), y)", "goes over the samples"),
        ("loss = F.cross_entropy(model(x), y) / x.size(0)", "not known"),
    ],
)  # fmt: skip
def test_losses_of_which_neither_is_known(loss: str, words: str):
    assert words in found(with_loss(loss)).refusal


# ------------------------------------------------------------------ really run by several processes
VAE = """
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset


class VAE(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc1 = nn.Linear(6, 8)
        self.mu = nn.Linear(8, 2)
        self.logvar = nn.Linear(8, 2)
        self.fc2 = nn.Linear(2, 6)

    def forward(self, x):
        h = torch.tanh(self.fc1(x))
        mu, logvar = self.mu(h), self.logvar(h)
        return torch.sigmoid(self.fc2(mu + torch.exp(0.5 * logvar))), mu, logvar


def loss_function(recon, x, mu, logvar):
    bce = F.binary_cross_entropy(recon, x, reduction="sum")
    kld = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return bce + kld


torch.manual_seed(0)
data = TensorDataset(torch.rand(44, 6))
loader = DataLoader(data, batch_size=12, shuffle=True)
model = VAE()
optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)


def train(epoch):
    model.train()
    for (x,) in loader:
        optimizer.zero_grad()
        recon, mu, logvar = model(x)
        loss = loss_function(recon, x, mu, logvar)
        loss.backward()
        optimizer.step()


if __name__ == "__main__":
    for epoch in range(3):
        train(epoch)
    torch.save(model.state_dict(), "vae.pt")
"""


def test_a_sum_over_a_batch_that_does_not_divide():
    """44 samples in batches of 12: the last whole batch has 8, and each process takes 4 of them."""
    made, _ = done(VAE)
    assert "(loss * WORLD_SIZE).backward()" in made.text
    assert "if dist.is_initialized() else None" in made.text  # workers may import this file again


def test_three_processes_and_a_dataset_that_does_not_divide():
    text = HEAD.replace("48", "47").replace("batch_size=8", "batch_size=9") + LOOP
    made, world = done(text, ranks=3)
    taken = world.taken(0)
    assert sum(taken.values()) == 48 and len(taken) == 47  # one sample fills up the last batch


def test_the_last_short_batch_is_left_out_as_before():
    text = HEAD.replace("48", "47").replace("shuffle=True", "shuffle=True, drop_last=True") + LOOP
    made, world = done(text, same=False)
    assert "DistributedSampler(data, drop_last=True)" in made.text
    assert world.ranks[0].steps == 3 * (47 // 8)


def test_arguments_that_a_function_is_given_stay_those_of_the_caller():
    made = """
def shuffled(data, given):
    return DataLoader(data, **given)
given = dict(batch_size=8, shuffle=True)
loader = shuffled(data, given)
"""
    old = "loader = DataLoader(data, batch_size=8, shuffle=True)"
    assert "= dict(given)\n" in apply("ddp", HEAD.replace(old, made) + LOOP).text
    own = made.replace("given):", "size):").replace(
        "    return", "    given = dict(batch_size=size, shuffle=True)\n    return"
    )
    own = own.replace("given = dict(batch_size=8, shuffle=True)\nloader", "loader").replace(
        "shuffled(data, given)\n", "shuffled(data, 8)\n"
    )
    text = apply("ddp", HEAD.replace(old, own) + LOOP).text
    assert 'given["batch_size"] //= WORLD_SIZE' in text and "dict(given)" not in text


def test_in_order():
    text = HEAD.replace(", shuffle=True", "") + LOOP
    made, world = done(text)
    assert "DistributedSampler(data, shuffle=False)" in made.text
    assert "set_epoch" not in made.text


def test_another_order_in_each_epoch():
    _, world = done(HEAD + LOOP)
    first, second, third = world.samples[0]
    assert first != second != third != first
    assert world.taken(0) == world.taken(1)


@pytest.mark.parametrize(
    "loop",
    [
        "epoch = 0\nwhile epoch < 3:\n    epoch += 1\n{body}",
        "for epoch, rate in enumerate([0.1, 0.2, 0.1]):\n{body}",
        "for _ in range(3):\n{body}",
    ],
)
def test_loops_over_epochs(loop: str):
    body = LOOP.split("\n", 2)[2]
    made, world = done(HEAD + loop.replace("{body}", body), first=1)
    assert world.taken(0) == world.taken(1) and world.samples[0][0] != world.samples[0][1]


def test_other_random_numbers_in_each_process():
    text = (
        HEAD.replace("nn.ReLU()", "nn.ReLU(), nn.Dropout(0.5)").replace(
            "torch.randn(48, 5)", "torch.ones(48, 5)"
        )
        + LOOP
    )
    _, world = done(text, same=False)
    assert world.ranks[0].losses[0] != world.ranks[1].losses[0]


def test_unseeded():
    """Each process would split the data in another way: they begin with the seed of the first."""
    head = HEAD.replace("torch.manual_seed(0)\n", "").replace(
        "loader =", "data, rest = torch.utils.data.random_split(data, [40, 8])\nloader ="
    )
    made, world = done(head + LOOP, same=False)
    assert "dist.broadcast_object_list(seed)" in made.text
    assert len(world.taken(0)) == 40


GAN = """
import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randn(32, 3))
loader = DataLoader(data, batch_size=8, shuffle=True)
G = nn.Sequential(nn.Linear(3, 8), nn.Tanh(), nn.Linear(8, 4))
D = nn.Sequential(nn.Linear(4, 8), nn.LeakyReLU(0.2), nn.Linear(8, 1), nn.Sigmoid())
criterion = nn.BCELoss()
optimizerD = torch.optim.SGD(D.parameters(), lr=0.1)
optimizerG = torch.optim.SGD(G.parameters(), lr=0.1)
for epoch in range(2):
    for real, noise in loader:
        n = real.size(0)
        D.zero_grad()
        errD_real = criterion(D(real).view(-1), torch.ones(n))
        errD_real.backward()
        fake = G(noise)
        errD_fake = criterion(D(fake.detach()).view(-1), torch.zeros(n))
        errD_fake.backward()
        optimizerD.step()
        G.zero_grad()
        errG = criterion(D(fake).view(-1), torch.ones(n))
        errG.backward()
        optimizerG.step()
torch.save({"G": G.state_dict(), "D": D.state_dict()}, "gan.pt")
"""


def test_two_models_that_train_each_other():
    made, _ = done(GAN)
    assert "ddp_D, ddp_G = D, G\n" in made.text or "ddp_G, ddp_D = G, D\n" in made.text


def test_one_backward_through_two_calls():
    text = GAN.replace("        errD_real.backward()\n", "").replace(
        "errD_fake.backward()", "(errD_real + errD_fake).backward()"
    )
    done(text)


def test_two_calls_of_a_model_with_batch_norm():
    """The statistics of the first call are not overwritten by those of another process before its
    backward.
    """
    text = GAN.replace("nn.LeakyReLU(0.2)", "nn.BatchNorm1d(8), nn.LeakyReLU(0.2)").replace(
        "        errD_real.backward()\n", ""
    )
    made, world = done(
        text.replace("errD_fake.backward()", "(errD_real + errD_fake).backward()"), same=False
    )
    assert "broadcast_buffers=False" in made.text


def test_batch_norm():
    text = HEAD.replace("nn.ReLU()", "nn.BatchNorm1d(16), nn.ReLU()") + LOOP
    made, world = done(text, same=False)
    assert "--sync-batchnorm" in made.fixes[0].message
    assert "convert_sync_batchnorm" not in made.text


def test_synchronised_batch_norm():
    text = (
        HEAD.replace("nn.ReLU()", "nn.BatchNorm1d(16), nn.ReLU()").replace(
            "loader)\n", "loader)\nmodel.to('cuda' if torch.cuda.is_available() else 'cpu')\n"
        )
        + LOOP
    )
    finding = found(text, sync_batchnorm=True)
    code = next(e.code for e in finding.edits if "convert_sync_batchnorm" in getattr(e, "code", ""))
    assert (
        "if next(model.parameters()).is_cuda:\n        torch.nn.SyncBatchNorm.convert_sync_batchnorm(model)"
        in code
    )
    assert code.index("convert") < code.index("DistributedDataParallel(")


def test_parameters_that_a_step_leaves_out():
    text = FUNCTIONS.replace(
        "        return self.last(x)", "        return self.last(x) if x.size(0) > 1 else x[:, :3]"
    )
    assert "find_unused_parameters=True" in done(text, first=1)[0].text


OWN_WEIGHTS = """
class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(5, 3), nn.Linear(5, 1)
        self.spread = nn.Parameter(torch.zeros(2))

    def forward(self, x):
        return self.first(x), self.second(x)


model = Both()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        one, other = model(x)
        loss = F.cross_entropy(one, y) + F.mse_loss(other, x[:, :1])
        loss = LOSS
        loss.backward()
        optimizer.step()
"""


@pytest.mark.parametrize(
    ("loss", "weight"),
    [
        ("loss * torch.exp(-model.spread[0]) + model.spread.sum()", "model.spread[0]"),
        ("loss + 0.01 * sum(p.abs().sum() for p in model.parameters())", "p"),
        ("loss + 0.01 * model.second.weight.norm()", "model.second.weight"),
    ],
)
def test_weights_that_a_loss_uses_past_forward(loss: str, weight: str):
    """With find_unused_parameters such a weight is ready before the backward, and once more in
    it.
    """
    why = refused(HEAD + OWN_WEIGHTS.replace("LOSS", loss))
    assert f"the loss uses `{weight}`" in why and "returns several values" in why


def test_weights_that_a_loss_uses_beside_forward():
    loss = "loss + 0.01 * sum(p.abs().sum() for p in model.parameters())\n        loss.backward()"
    done(HEAD + LOOP.replace("loss.backward()", f"loss = {loss}"))


CLIP = """
def clip(grad):
    return grad.clamp(-0.001, 0.001)
"""


@pytest.mark.parametrize(
    "hook",
    [
        "model[0].weight.register_hook(lambda g: g.clamp(-0.001, 0.001))\n",
        "model[2].weight.register_hook(clip)\n",
        "model[2].register_full_backward_hook(lambda m, i, o: (i[0].clamp(-0.001, 0.001),))\n",
        "model[0].weight.register_hook(lambda g: g / g.norm())\n",
        "model[0].weight.register_hook(lambda g: g * g.sign())\n",
    ],
)
def test_hooks_that_see_gradients_before_they_are_averaged(hook: str):
    assert "sees the gradients of one process" in refused(HEAD + CLIP + hook + LOOP)


def test_hooks_that_only_scale():
    mask = "mask = (torch.arange(16) > 3).float()[:, None]\n"
    done(HEAD + mask + "model[0].weight.register_hook(lambda g: -g * mask / 2)\n" + LOOP)


CHANCE = "\nimport random\nimport time\nrandom.seed(0)\n"
RATE = 'optimizer.param_groups[0]["lr"]'


@pytest.mark.parametrize(
    ("change", "agreed"),
    [
        (f"if random.random() < 0.5: {RATE} = 0.05", "if from_rank_0(random.random() < 0.5):"),
        (f"{RATE} = 0.1 * random.random()", "= from_rank_0(0.1 * random.random())"),
        (f"{RATE} *= random.random()", "*= from_rank_0(random.random())"),
        ("for g in optimizer.param_groups: g['lr'] = 0.1 * random.random()", "from_rank_0(0.1 *"),
        (f"rate = 0.1\n        if random.random() < 0.5: rate = 0.05\n        {RATE} = rate",
         "= from_rank_0(rate)"),
        ("if random.random() < 0.5: optimizer.param_groups[0].update(lr=0.05)", "if from_rank_0("),
        ("if random.random() < 0.5: optimizer.state.clear()", "if from_rank_0("),
        ("if random.random() < 0.5:\n            for p in model.parameters(): p.data.mul_(0.9)",
         "if from_rank_0(random.random() < 0.5):"),
        ("optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * random.random())",
         "lr=from_rank_0(0.1 * random.random())"),
        (f"setattr(optimizer, 'rate', random.random())\n        {RATE} = 0.1 * optimizer.rate",
         "'rate', from_rank_0(random.random())"),
        ("model.train(random.random() < 0.5)", "model.train(from_rank_0(random.random() < 0.5))"),
    ],
)  # fmt: skip
def test_what_is_drawn_and_all_train_on_with(change: str, agreed: str):
    """Every process draws its own numbers: one of them draws for all."""
    made, _ = done(
        HEAD.replace("\ntorch.manual", CHANCE + "torch.manual") + LOOP + f"        {change}\n",
        same=False,
    )
    assert agreed in made.text


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ("for p in model.parameters(): p.data += torch.randn_like(p)", "may differ between"),
        ("for p in model.parameters(): p.data = p.data + torch.randn_like(p)", "may differ"),
        ("noise = torch.randn(3)\n        model[2].bias.data.add_(noise)", "`noise` may differ"),
        ("model[random.choice([0, 2])].weight.data.mul_(0.9)", "may differ between processes"),
        ("order = list(model.parameters())\n        random.shuffle(order)\n"
         "        order[0].data.mul_(0.9)", "`order[0].data` may differ"),
        ("model[2].weight.data[0] = torch.randn(16)", "may differ between processes"),
        ("with torch.no_grad(): model[2].weight += torch.randn(3, 16)", "differ"),
        ("nn.init.normal_(model[2].weight)", "normal_() on"),
        ("model[2].reset_parameters()", "may draw weights anew"),
        ("model.apply(lambda m: m.train())", "may draw weights anew"),
        ("v = nn.utils.parameters_to_vector(model.parameters())\n        v = v * time.time()\n"
         "        nn.utils.vector_to_parameters(v, model.parameters())", "`v` may differ"),
    ],
)  # fmt: skip
def test_weights_that_are_drawn_while_it_trains(change: str, reason: str):
    assert reason in refused(
        HEAD.replace("\ntorch.manual", CHANCE + "torch.manual") + LOOP + f"        {change}\n"
    )


CHECKPOINTED = """
from torch.utils.checkpoint import checkpoint


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last, self.rest = nn.Linear(5, 16), nn.Linear(16, 3), nn.Linear(16, 16)
        self.parts = nn.ModuleList(nn.Linear(16, 16) for _ in range(2))

    def forward(self, x):
        x = torch.relu(self.first(x))
        BODY
        return self.last(x)


model = Net()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
ONCE = "x = checkpoint(self.rest, x, use_reentrant=True)"
EACH = "for part in self.parts:\n            x = checkpoint(part, x, use_reentrant=True)"


@pytest.mark.parametrize(
    ("body", "fits"),
    [
        (f"{ONCE}\n        {EACH}", True),
        (f"{ONCE}\n        x = self.parts[1](self.parts[0](x))\n        {ONCE}", False),
        (f"for _ in range(2):\n            {ONCE}\n        {EACH}", False),
        (f"{EACH}\n        if x.mean() > 99:\n            x = self.rest(x)", False),
        (f"for _ in range(2):\n            {ONCE}\n        {EACH}".replace("True", "False"), True),
    ],
)
def test_checkpoints_with_a_backward_of_their_own(body: str, fits: bool):
    text = HEAD + CHECKPOINTED.replace("BODY", body) + LOOP
    if fits:
        done(text)
    else:
        assert "give it use_reentrant=False" in refused(text)


# --------------------------------------------------------------------------------------------- ends
def test_torchrun_itself_and_a_crash():
    """One process that fails ends all, and its error is shown."""
    made = apply("ddp", HEAD + LOOP + 'torch.save(model.state_dict(), "model.pt")\n')
    crash = "        if epoch == 1 and RANK == 1:\n            raise RuntimeError('no more')\n        optimizer.zero_grad()\n"
    with tempfile.TemporaryDirectory() as folder:
        fine = real(job_of(Path(folder) / "a", {"train.py": made.text}))
        failed = real(
            job_of(
                Path(folder) / "b",
                {"train.py": made.text.replace("        optimizer.zero_grad()\n", crash)},
            )
        )
    assert fine.returncode == 0, fine.stderr
    assert "destroy_process_group" not in fine.stderr
    assert failed.returncode != 0 and "RuntimeError: no more" in failed.stderr


# --------------------------------------------------------------------------- beside the other rules
OURS = [fixture for fixture in ALL if "ddp" in fixture.also]
WORDED = frozenset(
    {"batched-dataset", "loss-item-sync"}
)  # by which of two rules writes a line first, it reads otherwise and does the same


def planned(script: Script, names: Iterable[str], target: str = "cuda") -> Plan:
    rules = [all_rules()[name] for name in names]
    asked = frozenset(rule.name for rule in rules if not rule.default)
    return Plan.make(
        script,
        Options(target=target, selected=frozenset(names), asked=asked, accumulate=2),
        rules,
        Effect.SAMPLING,
    )


def default_rules(fixture: Fixture, target: str = "cuda") -> frozenset[str]:
    return planned(script_of(fixture), [r.name for r in select()], target).applied


@pytest.mark.parametrize("target", ["cuda", "cpu"])
@pytest.mark.parametrize("fixture", OURS, ids=lambda fixture: fixture.name)
def test_with_all_other_rules(fixture: Fixture, target: str):
    """Two processes train well with all that is on by default, with compile, accumulation and the
    rest of what is on request.
    """
    for more in ((), ("accumulation", "compile", "stepwise-scheduler")):
        names = [*default_rules(fixture, target), "ddp", *more]
        plan = planned(script_of(fixture), names, target)
        assert "ddp" in plan.applied, [f.refusal for f in plan.findings if f.rule == "ddp"]
        plan.check(lambda texts: reread(fixture, texts))
        assert not planned(reread(fixture, plan.texts()), names, target).fixes
        if not more or target == "cpu":
            world = torchrun(job(fixture, plan))
            assert world.ok, world.errors
            assert world.equal


@pytest.mark.parametrize("fixture", OURS, ids=lambda fixture: fixture.name)
def test_the_others_first(fixture: Fixture):
    others = default_rules(fixture) - WORDED - {"gpu-data"}  # not for several processes
    at_once = planned(script_of(fixture), [*others, "ddp"])
    first = planned(script_of(fixture), others)
    then = planned(reread(fixture, first.texts()), ["ddp"])
    assert difference(contents(at_once), {**contents(first), **contents(then)}) == ""


@pytest.mark.parametrize("fixture", OURS, ids=lambda fixture: fixture.name)
def test_one_before_the_other(fixture: Fixture):
    """Whichever comes first, both are applied in the end, and two processes train."""
    for name in sorted(WORDED & default_rules(fixture)):
        first = planned(script_of(fixture), [name])
        then = planned(reread(fixture, first.texts()), ["ddp"])
        assert then.fixes, then.findings
        texts = {**contents(first), **contents(then)}
        world = torchrun(replace(job(fixture), files=texts))
        assert world.ok and world.equal, world.errors


@pytest.mark.parametrize(
    "path",
    [
        "if x.size(0) < 8:\n            continue",
        "if loss > 1.15:\n            continue",
        "value = loss.item()\n        if value < 1.0:\n            break",
        "if random.random() < 0.5:\n            continue",
    ],
)
def test_a_path_through_a_step_is_the_same_in_all(path: str):
    """What decides it is that of the whole batch, or what the first process draws."""
    text = (HEAD + LOOP).replace("randn(48", "randn(44").replace("(48,)", "(44,)")
    text = text.replace("import torch\n", "import random\nimport torch\n", 1)
    text = text.replace("torch.manual_seed(0)", "torch.manual_seed(0)\nrandom.seed(3)")
    text = text.replace("        loss.backward()", f"        {path}\n        loss.backward()")
    done(text, same="random" not in path)  # each process has random numbers of its own


def test_what_torch_computes_on_each_element() -> None:
    """In a model, in a loss and in what is printed."""
    net = NET.replace("{line}", "x = torch.hypot(x, x.cosh())")
    text = HEAD.replace("optimizer =", net + "optimizer =") + LOOP
    loss = "torch.logaddexp(model(x), y.view(-1, 1) * 1.0).mean()"
    text = text.replace("F.cross_entropy(model(x), y)", loss)
    done(text + "    print((x.hypot(x) > 1).float().mean().item())\n")


# ---------------------------------------------------------------------------------- what is refused
def changed(old: str, new: str, text: str = HEAD + LOOP) -> str:
    assert old in text
    return text.replace(old, new)


STEP = "        loss.backward()\n"
NET = """class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.a = nn.Linear(5, 3)
        self.register_buffer("seen", torch.zeros(3))
    def forward(self, x):
        {line}
        return self.a(x)
model = Net()
"""


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (changed(STEP, "        if torch.isnan(loss):\n            continue\n" + STEP), "decides on line 16 of train.py differs between them: how `torch.isnan(loss)`"),
        (changed(STEP, "        if (y == 0).any():\n            continue\n" + STEP), "decides on line 16 of train.py differs between them: how `(y == 0).any()`"),
        (changed("model = nn", "names = list(set('a b'.split()))\nmodel = nn"), "order of the set"),
        (changed("model = nn", "names = list(set('a b'.split()))\nif len(names) > 1:\n    names.sort()\nmodel = nn"), "order of the set"),
        (changed("model = nn", "ids = {w: i for i, w in enumerate(set('a b'.split()))}\nmodel = nn"), "order of the set"),
        (changed("model = nn", "import numpy as np\nrng = np.random.default_rng()\nmodel = nn"), "has no seed"),
        (changed("optimizer.step()\n", "optimizer.step()\n        with torch.no_grad():\n            for p in model.parameters():\n                p.add_(torch.randn_like(p))\n"), "random numbers"),
        (HEAD.replace("optimizer =", NET.replace("{line}", "self.seen.add_(x[0, :3])") + "optimizer =") + LOOP, "forward keeps `self.seen`"),
        (HEAD.replace("optimizer =", NET.replace("{line}", "self.seen = 0.9 * self.seen + x[0, :3]") + "optimizer =") + LOOP, "forward keeps `self.seen`"),
        (HEAD.replace("optimizer =", NET.replace("{line}", "x = x - x.mean(0)") + "optimizer =") + LOOP, "go over the samples"),
        (HEAD.replace("optimizer =", NET.replace("{line}", "x = torch.softmax(x @ x.t(), 1) @ x") + "optimizer =") + LOOP, "compare the samples"),
        (HEAD.replace("optimizer =", NET.replace("{line}", "x = unknown_function(x)") + "optimizer =") + LOOP, "not known"),
        (changed("DataLoader(data, batch_size=8, shuffle=True)", "DataLoader(data, batch_size=8, sampler=torch.utils.data.WeightedRandomSampler([1.0] * 48, 48))"), "WeightedRandomSampler"),
        (changed("DataLoader(data, batch_size=8, shuffle=True)", "DataLoader(data, batch_sampler=torch.utils.data.BatchSampler(range(48), 8, False))"), "batch sampler"),
        (changed("shuffle=True", "shuffle=True, generator=torch.Generator().manual_seed(1)"), "generator of its own"),
        (changed("shuffle=True", "shuffle=True, collate_fn=torch.utils.data.default_convert"), "collate_fn"),
        (changed("batch_size=8, ", ""), "single samples"),
        (changed("    for x, y in loader:\n", "    for i in range(6):\n        x, y = next(iter(loader))\n"), "no DataLoader"),
        (changed("model = nn", "B = 8\nmodel = nn").replace("batch_size=8", "batch_size=B").replace("model(x)", "model(x.view(B, 5))").replace("B = 8\n", "").replace("data =", "B = 8\ndata ="), "part of the batch"),
        (changed("loss = F.cross_entropy(model(x), y)", "loss = F.cross_entropy(model[2](model[1](model[0](x))), y)"), "not by calling it"),
        (changed(STEP, "        grads = torch.autograd.grad(loss, model.parameters(), retain_graph=True)\n" + STEP), "torch.autograd.grad"),
        (changed("loss.backward()", "loss.backward(create_graph=True)"), "gradients of gradients"),
        (changed("    for x, y in loader:\n", "    for p in model[0].parameters():\n        p.requires_grad = epoch > 0\n    for x, y in loader:\n"), "frozen or freed"),
        (changed("    for x, y in loader:\n", "    freeze(epoch > 0)\n    for x, y in loader:\n").replace("optimizer =", "def freeze(on):\n    for p in model[0].parameters():\n        p.requires_grad = on\noptimizer =", 1), "frozen or freed"),
        (changed("import torch\n", "import os\nimport torch\n").replace("model = nn", "os.environ['CUDA_VISIBLE_DEVICES'] = '0'\ntorch.cuda.is_available()\ndevice = torch.device('cuda')\nmodel = nn"), "CUDA_VISIBLE_DEVICES"),
        (changed("optimizer =", "model.to('cuda:1' if torch.cuda.is_available() else 'cpu')\noptimizer ="), "cuda:1"),
        (changed("model = nn", "import torch.distributed as dist\ndist.init_process_group('gloo', init_method='tcp://x')\nmodel = nn"), "distributed already"),
        (changed("torch.optim.SGD(model.parameters(), lr=0.1)", "torch.optim.LBFGS(model.parameters())").replace("optimizer.step()", "optimizer.step(lambda: loss)"), "closure"),
        (changed("nn.Linear(16, 3))", "nn.Linear(16, 3))\nmodel = nn.DataParallel(model)"), "DataParallel"),
        (changed(STEP, "        try:\n            loss.backward()\n        except RuntimeError:\n            continue\n"), "is caught"),
        (HEAD + LOOP + "with torch.no_grad():\n    print(sum((model(x).argmax(1) == y).sum().item() for x, y in loader))\n", "for each element"),
        (changed("optimizer.step()\n", "optimizer.step()\n        print((loss / epoch).item() if epoch else 0.0)\n"), "not always"),
        (LOOP.join([HEAD, "for x, y in loader:\n    print(model(x))\n"]), "without training"),
    ],
)  # fmt: skip
def test_refusals(text: str, words: str):
    refusal = found(text).refusal
    assert words in refusal, refusal


@pytest.mark.parametrize(
    ("test", "first"),
    [
        ("time.time() > 5", True),
        ("datetime.datetime.now().microsecond > 5", True),
        ("torch.cuda.Event(enable_timing=True).elapsed_time(None) > 5", True),
        ("hash('a') % 2", True),
        ("id(model) % 2", True),
        ("torch.cuda.memory_stats()['x'] > 5", True),
        ("torch.cuda.get_device_properties(0).total_memory > 5", True),
        ("torch.cuda.current_device() == 1", True),
        ("next(model.parameters()).device.index == 0", True),
        ("of_no_device.index == 0", False),
        ("platform.node() == 'x'", True),
        ("platform.system() == 'Linux'", False),
        ("torch.cuda.is_available()", False),
        ("math.sqrt(epoch) > 1", False),
    ],
)
def test_what_differs_by_process_is_decided_by_the_first(test: str, first: bool):
    head = "import datetime, math, platform, time, types\nof_no_device = types.SimpleNamespace(index=len(platform.__name__))\n"
    edits = found(
        head
        + changed(
            "    for x, y in loader:\n", f"    if {test}:\n        break\n    for x, y in loader:\n"
        )
    ).edits
    assert edits and first == any(
        isinstance(e, Wrap) and "from_rank_0(" in e.template for e in edits
    )


@pytest.mark.parametrize(
    "text",
    [
        changed("model = nn", "names = sorted(set('a b'.split()))\nsizes = [n for n in {1, 2, 3}]\nmodel = nn"),
        changed("model = nn", "import numpy as np\nrng = np.random.default_rng(0)\nmodel = nn"),
        changed("model = nn", "names = list(set('a b'.split()))\nprint('names')\nnames.sort()\nmodel = nn"),
        changed(STEP, STEP + "        if epoch == 1:\n            break\n"),
        changed(STEP, "        try:\n            loss.backward()\n        except KeyboardInterrupt:\n            break\n"),
        changed("optimizer.step()\n", "optimizer.step()\n        for p in model.parameters():\n            p.data.clamp_(-1, 1)\n"),
        HEAD.replace("optimizer =", NET.replace("{line}", "x = x - x.mean(1, keepdim=True)") + "optimizer =") + LOOP,
        HEAD.replace("optimizer =", NET.replace("{line}", "w = torch.softmax(x.unsqueeze(1) @ x.unsqueeze(2), -1)") + "optimizer =") + LOOP,
    ],
)  # fmt: skip
def test_no_refusals(text: str):
    finding = found(text)
    assert finding.edits, finding.refusal


# --------------------------------------------------------------------------------- ways of training
@pytest.mark.parametrize(
    "text",
    [
        changed("model.parameters()", "[{'params': model[0].parameters()}, {'params': model[2].parameters(), 'lr': 0.01}]"),
        changed("optimizer =", "for p in model[0].parameters():\n    p.requires_grad = False\noptimizer ="),
        changed("optimizer = torch.optim.SGD(model.parameters(), lr=0.1)", "head = nn.Linear(3, 3)\noptimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)").replace("model(x)", "head(model(x))"),
        changed("for x, y in loader", "for i, (x, y) in enumerate(loader)").replace("        optimizer.zero_grad()\n", "").replace("loss.backward()", "(loss / 2).backward()").replace("        optimizer.step()", "        if (i + 1) % 2 == 0:\n            optimizer.step()\n            optimizer.zero_grad()"),
        changed("loss.backward()", "loss.backward()\n        nn.utils.clip_grad_norm_(model.parameters(), 0.1)"),
    ],
    ids=["groups", "frozen", "two models", "accumulated", "clipped"],
)  # fmt: skip
def test_ways_of_training(text: str):
    done(text)


GATHERED = (
    changed("for x, y in loader", "for i, (x, y) in enumerate(loader)")
    .replace("        optimizer.zero_grad()\n", "")
    .replace("loss.backward()", "(loss / 2).backward()")
    .replace(
        "        optimizer.step()",
        "        if (i + 1) % 2 == 0:\n            optimizer.step()\n            optimizer.zero_grad()",
    )
)


def _flat(texts: Mapping[Source, str]) -> list[str]:
    """The lines of the training loop, whatever line length they were written with."""
    (text,) = texts.values()
    return ast.unparse(ast.parse(text[text.index("for epoch") :])).splitlines()


def test_gradients_are_exchanged_once_a_window(tmp_path: Path):
    """At once, and ``--ddp`` before ``--accumulate``."""

    def after(text: str, *names: str) -> Plan:
        (tmp_path / "train.py").write_text(text, "utf-8")
        plan = planned(read_script(tmp_path / "train.py", tmp_path), names)
        assert plan.applied == set(names)
        return plan

    loops = [_flat(after(HEAD + LOOP, "ddp", "accumulation").texts())]
    (text,) = after(HEAD + LOOP, "ddp").texts().values()
    loops.append(_flat(after(text, "accumulation").texts()))
    assert loops[0] == loops[1] and "no_sync" in "".join(loops[0])


@pytest.mark.parametrize(
    "text",
    [
        GATHERED,
        GATHERED.replace(
            "(loss / 2).backward()",
            "(loss / 2).backward()\n        nn.utils.clip_grad_norm_(model.parameters(), 1.0)",
        ),
        GATHERED + "    optimizer.step()\n",  # what is left at the end
        GATHERED.replace("(loss / 2)", "n = i + 1\n        (loss / 2)").replace(
            "if (i + 1)", "if n"
        ),
    ],
)
def test_gradients_of_every_batch_are_needed(text: str):
    made = apply("ddp", text)
    assert made.fixes and "no_sync" not in made.text and "slower so, not wrong" in made.refusals
