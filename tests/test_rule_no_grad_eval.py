"""no-grad-eval: where evaluations stop recording, and every reason to leave one as it is."""

from __future__ import annotations

import re
import textwrap

import pytest

from autofast.rule import Effect
from tests.onerule import Applied, apply, run

HEAD = """\
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(24, 4), torch.randint(0, 3, (24,)))
loader, test_loader = DataLoader(data, batch_size=8, shuffle=True), DataLoader(data, batch_size=8)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""
TRAIN = """\
losses = []
for epoch in range(2):
    model.train()
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        optimizer.zero_grad()
        loss = F.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""
EVALUATE = """\
def evaluate(model, loader):
    model.eval()
    total = 0
    with torch.no_grad():
        for x, y in loader:
            out = model(x.to(device))
            total += F.cross_entropy(out, y.to(device), reduction="sum").item()
    return total / len(loader.dataset)
"""
CALL = "    losses.append(evaluate(model, test_loader))\n"


def check(text: str, expected: str) -> Applied:
    """The rule writes a line with ``expected``, and both scripts compute the same, to the last
    bit.
    """
    done = apply("no-grad-eval", text)
    assert any(expected in line for line in done.lines), (done.lines, done.refusals)
    assert run(text)["losses"] == run(done.text)["losses"]
    return done


def refused(text: str, reason: str) -> None:
    done = apply("no-grad-eval", text)
    assert not done.fixes, done.lines
    assert reason in done.refusals, done.refusals


def untouched(text: str) -> None:
    done = apply("no-grad-eval", text)
    assert not done.fixes, done.lines


# ---------------------------------------------------------------------------- no_grad that is there
MEASURED = """\
class Pinball(nn.Module):
    def __init__(self, weights):
        super().__init__()
        self.weights = weights

    def forward(self, out, y):
        return (self.weights * (out - y[:, None]).abs()).mean()

def measure(loader, criterion):
    total = 0
    for x, y in loader:
        with torch.no_grad():
            out = model(x.to(device))
        total += criterion(out, y.to(device)).item()
    return total
"""


def test_what_is_measured_beside_no_grad_records_nothing() -> None:
    shown = "losses.append(measure(test_loader, Pinball({})))\n"
    text = HEAD + TRAIN + MEASURED + shown.format("torch.ones(3)")
    assert apply("no-grad-eval", text).lines == ["with torch.inference_mode():"]
    learnt = text.replace("torch.ones(3)", "nn.Parameter(torch.ones(3))")
    check(learnt, "@torch.inference_mode()")


def test_no_grad_becomes_inference_mode() -> None:
    done = check(HEAD + EVALUATE + TRAIN + CALL, "with torch.inference_mode():")
    assert len(done.lines) == 1 and ".eval()" in done.text


@pytest.mark.parametrize(
    ("imports", "spelled", "expected"),
    [
        ("import torch as th", "th.no_grad()", "with th.inference_mode():"),
        ("from torch import no_grad", "no_grad()", "with torch.inference_mode():"),
        ("import torch.autograd as ag", "ag.no_grad()", "with torch.inference_mode():"),
        ("", "torch.autograd.no_grad()", "with torch.inference_mode():"),
    ],
)
def test_every_spelling(imports: str, spelled: str, expected: str) -> None:
    check(
        f"{imports}\n" + HEAD + EVALUATE.replace("torch.no_grad()", spelled) + TRAIN + CALL,
        expected,
    )


@pytest.mark.parametrize("spelled", ["@torch.no_grad()", "@torch.no_grad"])
def test_decorators(spelled: str) -> None:
    text = EVALUATE.replace("    with torch.no_grad():\n", "    if True:\n")
    check(HEAD + f"{spelled}\n" + text + TRAIN + CALL, "@torch.inference_mode()")


def test_what_is_only_read_afterwards_may_leave() -> None:
    body = """\
        with torch.no_grad():
            out = model(data.tensors[0].to(device))
            hits = (out.argmax(1) == data.tensors[1].to(device)).sum()
            rows = [row.max() for row in out]
        print(f"{hits / len(out):.3f}", out.shape, float(sum(rows) / len(rows)), out.cpu().numpy().mean())
        losses.append((100.0 * hits / len(data)).item())
"""
    check(
        HEAD + "def main():\n" + _indent(TRAIN) + body + "    return losses\nlosses = main()\n",
        "with torch.inference_mode():",
    )


def test_contexts_of_other_kinds_stay() -> None:
    for spelled in ("torch.inference_mode()", "torch.set_grad_enabled(False)"):
        untouched(HEAD + EVALUATE.replace("torch.no_grad()", spelled) + TRAIN + CALL)
    untouched(
        HEAD + "off = torch.no_grad()\n" + EVALUATE.replace("torch.no_grad()", "off") + TRAIN + CALL
    )


def test_lightning_evaluates_without_gradients_itself() -> None:
    untouched(
        "import lightning as L\nclass M(L.LightningModule):\n    pass\n"
        + HEAD
        + EVALUATE
        + TRAIN
        + CALL
    )


# -------------------------------------------------------------------------------------- what leaves
KEEP = [
    (
        "out = model(x.to(device))",
        "out = model(x.to(device)); kept.append(out)",
        "changes something that outlives",
    ),
    (
        "out = model(x.to(device))",
        "out = model(x.to(device)); table['last'] = out",
        "changes something that outlives",
    ),
    ("out = model(x.to(device))", "out = model(x.to(device)); model.last = out", "keeps a tensor"),
    (
        "out = model(x.to(device))",
        "global latest; out = latest = model(x.to(device))",
        "the global `latest`",
    ),
    ("out = model(x.to(device))", "out = model(x.to(device)); yield out", "yields"),
    (
        "out = model(x.to(device))",
        "out = model(x.to(device)); torch.enable_grad().__enter__()",
        "computes gradients",
    ),
    (
        "out = model(x.to(device))",
        "x.requires_grad_(True); out = model(x.to(device))",
        "computes gradients",
    ),
    (
        "out = model(x.to(device))",
        "out = model(x.to(device)); extra.head = nn.Linear(3, 3)",
        "a module is made here",
    ),
    (
        "out = model(x.to(device))",
        "out = model(x.to(device)); unknown_thing.update(out)",
        "not known",
    ),
]


@pytest.mark.parametrize(("old", "new", "reason"), KEEP)
def test_a_tensor_that_leaves_keeps_no_grad(old: str, new: str, reason: str) -> None:
    names = "kept, table, state, latest, extra = [], {}, torch.zeros(3), None, nn.Module()\nfrom somewhere import unknown_thing\n"
    refused(HEAD + names + EVALUATE.replace(old, new) + TRAIN + CALL, reason)


METER = """\
class Meter(object):
    def __init__(self):
        self.reset()

    def reset(self):
        self.value, self.sum, self.count = 0, 0, 0

    def update(self, value, n=1):
        self.value = value
        self.sum += value * n
        self.count += n
        self.avg = self.sum / self.count

    def __str__(self):
        return f"{self.value:.3f} ({self.avg:.3f})"


def accuracy(out, y, topk=(1,)):
    _, best = out.topk(max(topk), 1, True, True)
    correct = best.t().eq(y.view(1, -1))
    return [correct[:k].reshape(-1).float().sum().mul_(100.0 / y.size(0)) for k in topk]


def save(state, name):
    kept.append(state["best"].item() if torch.is_tensor(state["best"]) else state["best"])


kept, best = [], 0
"""
METERED = """\
def evaluate(model, loader):
    top = Meter()
    model.eval()
    with torch.no_grad():
        for x, y in loader:
            out = model(x.to(device))
            top.update(accuracy(out, y.to(device))[0], len(y))
            print(top)
    return top.avg
"""
BEST = """\
    hits = evaluate(model, test_loader)
    better = hits > best
    best = max(hits, best)
    save({"epoch": epoch, "best": best}, "x.pt")
losses += kept
"""


def test_meters_that_keep_tensors_of_an_evaluation() -> None:
    """They are read by the callers, compared, and saved: what a training meter of the same class
    does is something else.
    """
    trained = (
        TRAIN.replace("losses = []\n", "losses = []\nmine = Meter()\n")
        + "        mine.update(loss.item(), len(y))\n"
    )
    done = check(HEAD + METER + METERED + trained + BEST, "with torch.inference_mode():")
    assert len(run(done.text)["kept"]) == 2


def test_a_meter_that_training_goes_on_with() -> None:
    text = METERED.replace("    top = Meter()\n", "").replace(
        "    return top.avg", "    return float(top.avg)"
    )
    shared = METER + "top = Meter()\n" + text
    trained = TRAIN + "        top.update(loss.item(), len(y))\n" + BEST
    refused(HEAD + shared + trained, "`self.value` keeps a tensor made here")
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        run((HEAD + shared + trained).replace("torch.no_grad", "torch.inference_mode"))


def test_a_meter_whose_value_is_trained_with() -> None:
    weighted = TRAIN.replace(
        "F.cross_entropy(model(x), y)", "F.cross_entropy(model(x), y) * scale"
    ).replace("losses = []", "losses, scale = [], 1.0")
    refused(
        HEAD + METER + METERED + weighted + "    scale = evaluate(model, test_loader)\n",
        "may need gradients",
    )
    check(
        HEAD + METER + METERED + weighted + "    scale = 1 + evaluate(model, test_loader)\n",
        "with torch.inference_mode():",
    )


def test_outputs_that_functions_get_afterwards() -> None:
    body = """\
        with torch.no_grad():
            out = model(x)
        losses.append(accuracy(out, y)[0].item())
        losses.append(measured(out, y).item())
"""
    more = "def measured(out, y, scale=2.0):\n    loss = F.cross_entropy(out, y)\n    loss /= scale\n    return loss\n"
    check(HEAD + METER + more + TRAIN + body, "with torch.inference_mode():")
    refused(
        HEAD + METER + more.replace("    loss =", "    out += 1\n    loss =") + TRAIN + body,
        "`out` is changed in place",
    )


def test_lists_that_a_model_gathers_its_parts_in() -> None:
    module = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(4, 3) for _ in range(2))

    def forward(self, x):
        found = []
        for part in self.parts:
            found.append(part(x))
        return torch.stack(found).sum(0)

"""
    text = HEAD.replace(
        "model = nn.Sequential", module + "model = Net().to(device)\nother = nn.Sequential"
    )
    check(
        text + TRAIN + "    losses.append(model(data.tensors[0].to(device)).max().item())\n",
        "with torch.inference_mode():",
    )


def test_used_by_training_afterwards() -> None:
    text = TRAIN.replace(
        "        optimizer.zero_grad()\n",
        "        with torch.no_grad():\n            old = model(x)\n        optimizer.zero_grad()\n",
    )
    refused(
        HEAD + text.replace("F.cross_entropy(model(x), y)", "F.mse_loss(model(x), old)"),
        "combines it with a tensor that may need gradients",
    )


def test_kept_by_a_list_of_the_module_that_another_function_trains_with() -> None:
    kept = """\
bank = []
def collect():
    with torch.no_grad():
        out = model(data.tensors[0].to(device))
    bank.append(out)
collect()
def distance(x):
    return F.mse_loss(model(x), bank[0][:8])
"""
    text = (
        HEAD
        + kept
        + TRAIN.replace(
            "F.cross_entropy(model(x), y)", "F.cross_entropy(model(x), y) + distance(x)"
        )
    )
    refused(text, "combines it with a tensor that may need gradients")
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        run(text.replace("no_grad", "inference_mode"))


def test_changed_in_place_afterwards() -> None:
    text = EVALUATE.replace(
        ".item()\n    return total / len(loader.dataset)",
        "\n    total /= len(loader.dataset)\n    return total.item()",
    )
    refused(HEAD + text + TRAIN + CALL, "changed in place")
    scope = {}
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        scope = run((HEAD + text + TRAIN + CALL).replace("no_grad", "inference_mode"))
    assert not scope


SUM = EVALUATE.replace("total = 0", "total, n = torch.zeros(1), torch.zeros(1)").replace(
    ".item()\n    return total / len(loader.dataset)",
    "\n            n += y.numel()\n    total /= n\n    return (total / n).item()",
)


def test_sums_that_were_tensors_before_stay_such() -> None:
    check(HEAD + SUM + TRAIN + CALL, "with torch.inference_mode():")
    bound = SUM.replace("n += y.numel()\n", "total = total * 1.0\n            n += y.numel()\n")
    refused(HEAD + bound + TRAIN + CALL, "changed in place")


@pytest.mark.parametrize(
    "write", ["state.copy_(out[0])", "state[0] = out[0, 0]", "state.normal_()"]
)
def test_numbers_written_into_a_tensor_that_was_there_before(write: str) -> None:
    """It stays one that autograd takes: the training goes on with it."""
    kept = EVALUATE.replace("x.to(device))", f"x.to(device)); {write}")
    trained = TRAIN.replace("F.cross_entropy(model(x), y)", "F.cross_entropy(model(x) * state, y)")
    done = check(HEAD + "state = torch.ones(3)\n" + kept + trained + CALL, "torch.inference_mode()")
    assert not run(done.text)["state"].is_inference()


def test_the_next_turn_of_a_loop_uses_it() -> None:
    text = TRAIN.replace(
        "    model.train()\n",
        "    model.train()\n    if epoch:\n        losses.append(F.mse_loss(model(data.tensors[0]), soft).item())\n",
    )
    text += "    with torch.no_grad():\n        soft = model(data.tensors[0].to(device))\n"
    done = apply("no-grad-eval", HEAD + text)
    assert "may need gradients" in done.refusals and len(done.fixes) == 1
    assert run(HEAD + text)["losses"] == run(done.text)["losses"]


def test_tables_kept_by_the_model() -> None:
    module = """\
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.scale = nn.Linear(4, 3), None

    def forward(self, x):
        if self.scale is None:
            self.scale = torch.linspace(0, 1, 3, device=x.device)
        return self.inner(x) * self.scale

"""
    text = HEAD.replace(
        "model = nn.Sequential", module + "model = Net().to(device)\nother = nn.Sequential"
    )
    first = "print(evaluate(model, test_loader))\n"
    refused(text + EVALUATE + first + TRAIN + CALL, "`self.scale` keeps a tensor")
    check(text + EVALUATE + TRAIN + CALL, "inference_mode")  # training has made the table before
    with pytest.raises(RuntimeError, match="[Ii]nference"):
        run((text + EVALUATE + first + TRAIN).replace("no_grad", "inference_mode"))


def test_tables_kept_by_a_helper_of_the_model() -> None:
    """Not a module, so that only its uses tell."""
    helper = """\
class Table:
    def __init__(self):
        self.kept = None

    def of(self, x):
        if self.kept is None:
            self.kept = torch.linspace(1, 2, x.shape[1], device=x.device)
        return {result}


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner, self.table = nn.Linear(4, 3), Table()

    def forward(self, x):
        x = self.inner(x)
        return x * self.table.of(x)

"""
    for result in ("self.kept", "self.kept[None]", "self.kept.view(1, -1)"):
        text = HEAD.replace(
            "model = nn.Sequential",
            helper.format(result=result) + "model = Net().to(device)\nother = nn.Sequential",
        )
        text += EVALUATE + "print(evaluate(model, test_loader))\n" + TRAIN
        refused(text + CALL, "keeps a tensor")
        with pytest.raises(RuntimeError, match="[Ii]nference"):
            run(text.replace("no_grad", "inference_mode"))


@pytest.mark.parametrize(
    ("mode", "remembers"),
    [("", True), ("@torch.enable_grad()\n", True), ("@torch.inference_mode(False)\n", False)],
)
def test_remembered_results(mode: str, remembers: bool) -> None:
    text = (
        "import functools\n"
        + HEAD
        + f"@functools.lru_cache\n{mode}def weights(n):\n    return torch.ones(n)\n"
    )
    text += (
        EVALUATE.replace("model(x.to(device))", "model(x.to(device)) * weights(3)") + TRAIN + CALL
    )
    if remembers:
        refused(text, "remembers its results")
    else:
        check(text, "with torch.inference_mode():")


def test_caching_datasets() -> None:
    dataset = """\
class Cached(torch.utils.data.Dataset):
    def __init__(self):
        self.cache = {}

    def __len__(self):
        return 24

    def __getitem__(self, i):
        if i not in self.cache:
            self.cache[i] = torch.full((4,), float(i)), i % 3
        return self.cache[i]

"""
    refused(
        HEAD.replace("data = TensorDataset", dataset + "data = Cached()\nunused = TensorDataset")
        + EVALUATE
        + TRAIN
        + CALL,
        "also for training",
    )


def test_compiled_models() -> None:
    refused(HEAD + "model = torch.compile(model)\n" + EVALUATE + TRAIN + CALL, "compile")


def test_inside_an_autocast_block() -> None:
    text = TRAIN.replace(
        "        loss = F.cross_entropy(model(x), y)\n",
        "        with torch.autocast('cpu'):\n            with torch.no_grad():\n                print(model(x).mean().item())\n"
        "            loss = F.cross_entropy(model(x), y)\n",
    )
    refused(HEAD + text, "autocast block")


# -------------------------------------------------------------------------- no_grad that is missing
def test_a_loop_over_batches() -> None:
    text = (
        EVALUATE.replace("    with torch.no_grad():\n", "    # all of them\n")
        .replace("        for", "    for")
        .replace("            ", "        ")
    )
    # the function does nothing else with tensors: no need to move the loop
    done = check(HEAD + text + TRAIN + CALL, "@torch.inference_mode()")
    assert "@torch.inference_mode()\ndef evaluate(" in done.text
    assert "    # all of them\n    for x, y in loader:\n        out" in done.text


@pytest.mark.parametrize(
    ("beside", "mode"),
    [
        ("weight = torch.ones(2)", "no_grad"),  # it may leave on more ways than are followed
        ("helper(model)", "no_grad"),  # the model keeps a tensor
        ("rows = [x for x in loader]", "no_grad"),
        ("count = len(loader.dataset)", "inference_mode"),
        ("head = nn.Linear(2, 2)", ""),
    ],
)
def test_a_loop_beside_other_work(beside: str, mode: str) -> None:
    text = (
        EVALUATE.replace("    with torch.no_grad():\n", f"    {beside}\n")
        .replace("        for", "    for")
        .replace("            ", "        ")
    )
    helper = "def helper(model):\n    model.spare = torch.zeros(3)\n\n\n"
    if mode:
        done = check(HEAD + helper + text + TRAIN + CALL, f"@torch.{mode}()")
        assert f"@torch.{mode}()\ndef evaluate(" in done.text
        return
    done = check(HEAD + helper + text + TRAIN + CALL, "with torch.inference_mode():")
    assert (
        f"    {beside}\n    with torch.inference_mode():\n        for x, y in loader:\n            out"
        in done.text
    )


LEAVING = """
class Norm:
    def __init__(self, weight):
        self.weight = weight

    def go(self, out):
        return out * self.weight


class Worse(Exception):
    pass


kept = []
go = Norm(1.0).go


def evaluate():
    right = torch.ones(3, device=device)
    for x, y in loader:
        right += F.one_hot(model(x.to(device)).argmax(1), 3).sum(0)
    weight = right / right.sum()
    LEAVES


"""


@pytest.mark.parametrize(
    ("leaves", "use"),
    [
        ("return lambda out: out * weight", "go = evaluate()"),
        ("def scaled(out):\n        return out * weight\n    return scaled", "go = evaluate()"),
        ("return Norm(weight).go", "go = evaluate()"),
        ("return weight.mul", "go = evaluate()"),
        ("vars(kept)['w'] = weight", ""),
        (
            "raise Worse(weight)",
            "try:\n        evaluate()\n    except Worse as error:\n        go = error.args[0].mul",
        ),
        ("for p in model.parameters():\n        p.grad = torch.zeros_like(p)", "evaluate()"),
    ],
    ids=["lambda", "closure", "method", "of-tensor", "vars", "error", "gradient"],
)
def test_what_leaves_on_other_ways_may_be_trained_with(leaves: str, use: str) -> None:
    if leaves.startswith("vars"):
        leaves = "kept.append(Norm(weight)); vars(kept[0])['weight'] = weight"
        use = "evaluate(); go = kept.pop().go"
    train = TRAIN.replace("model(x)", "go(model(x))", 1)
    assert train != TRAIN
    for given in ("", "@torch.no_grad()\n"):
        text = HEAD + LEAVING.replace("LEAVES", leaves).replace("def eval", f"{given}def eval")
        done = apply("no-grad-eval", text + train + f"    {use}\n")
        assert ("@torch.no_grad()" in done.text) and "inference_mode" not in done.text
        assert run(done.text)["losses"] == run(done.before)["losses"]


def test_two_loops_of_one_function() -> None:
    text = """
def evaluate(rows):
    right, found = 0, []
    for x, y in loader:
        right += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
    for row in rows:
        found.append(model(row.to(device).expand(2, -1)).softmax(1))
    found = torch.cat(found)
    losses.append(right + found.mean().item())


"""
    done = check(HEAD + text + TRAIN + "    evaluate(data.tensors[0])\n", "@torch.no_grad()")
    assert done.text.count("torch.no_grad") == 1


def test_a_function_without_a_loop() -> None:
    text = "def predict(model, rows):\n    model.eval()\n    return model(rows.to(device)).argmax(1).tolist()\n"
    check(
        HEAD + text + TRAIN + "    losses.append(predict(model, data.tensors[0]))\n",
        "@torch.inference_mode()",
    )


def test_a_function_that_returns_a_tensor_gets_no_grad() -> None:
    """Where callers train with it; a result that they only read does no harm."""
    text = "def predict(model, rows):\n    model.eval()\n    return model(rows.to(device))\n"
    check(
        HEAD + text + TRAIN + "    losses.append(predict(model, data.tensors[0]).mean().item())\n",
        "@torch.inference_mode()",
    )
    soft = TRAIN.replace(
        "        optimizer.zero_grad()\n",
        "        soft = predict(model, x).detach()\n        optimizer.zero_grad()\n",
    )
    check(
        HEAD + text + soft.replace("F.cross_entropy(model(x), y)", "F.mse_loss(model(x), soft)"),
        "@torch.no_grad()",
    )
    changed = "    soft = predict(model, data.tensors[0])\n    soft += 1\n    losses.append(soft.mean().item())\n"
    check(HEAD + text + TRAIN + changed, "@torch.no_grad()")


def test_statements_after_the_update() -> None:
    text = TRAIN.replace(
        "    for x, y in loader:\n        x, y =", "    for x, y in [data.tensors]:\n        x, y ="
    )
    text += "        out = model(x)\n        losses.append(F.cross_entropy(out, y).item())\n"
    check(HEAD + text, "with torch.inference_mode():")


def test_a_pass_that_shares_its_name_with_the_trained_one() -> None:
    text = TRAIN.replace(
        "loss = F.cross_entropy(model(x), y)",
        "output = model(x)\n        loss = F.cross_entropy(output, y)",
    )
    text += "        if epoch:\n            model.eval()\n            output = model(x)\n"
    text += "        losses.append(F.cross_entropy(output, y).item())\n"
    check(HEAD + text, "with torch.inference_mode():")


def test_seldom_ones_are_left_alone() -> None:
    untouched(
        HEAD
        + TRAIN
        + "        if len(losses) % 5 == 0:\n            sample = model(x)\n            print(sample.mean().item())\n"
    )


@pytest.mark.parametrize(
    "text",
    [
        "            model.eval()\n            held = model(part)\n            worth = F.cross_entropy(held, side)\n            model.train()\n",
        "            held = model(part)\n            worth = (torch.max(held, 1)[1] == side).float().mean()\n",
        "            held = model(part)\n            worth = held.argmax(1).eq(side).sum()\n",
    ],
)
def test_seldom_ones_that_measure_the_model(text: str) -> None:
    head = (
        HEAD + "part, side = data.tensors[0].to(device), data.tensors[1].to(device)\nfound = []\n"
    )
    gate = "        if len(losses) % 5 == 0:\n" + text + "            found.append(worth.item())\n"
    check(head + TRAIN + gate, "with torch.inference_mode():")


def test_a_torch_whose_no_grad_is_no_decorator_yet() -> None:
    evaluate = EVALUATE.replace("    with torch.no_grad():\n", "").replace("        ", "    ")
    text = HEAD + evaluate.replace("    out =", "        out =").replace(
        "    total +=", "        total +="
    )
    text = text + TRAIN + CALL
    for version, decorated in (("0.4.0", False), ("1.0.0", True)):
        done = apply("no-grad-eval", text, files={"requirements.txt": f"torch=={version}"})
        assert ("@torch.no_grad()" in done.text) is decorated, done.text


def test_generators_get_no_decorator() -> None:
    text = "def predictions(model, rows):\n    for row in rows.split(8):\n        yield model(row).argmax(1).tolist()\n"
    untouched(
        HEAD + text + TRAIN + "    losses.append(list(predictions(model, data.tensors[0])))\n"
    )


# ------------------------------------------------------------------------ gradients that are needed
@pytest.mark.parametrize(
    "text",
    [
        # what attacks and saliency maps are made of
        "def attack(x, y):\n    x = x.clone().requires_grad_(True)\n    F.cross_entropy(model(x), y).backward()\n    return x.grad\n"
        "attack(*data.tensors)\n",
        "def attack(x, y):\n    x.requires_grad_(True)\n    return torch.autograd.grad(model(x).sum(), x)[0]\nattack(*data.tensors)\n",
        # a forward in a helper
        "def run(x):\n    return model(x)\nF.cross_entropy(run(data.tensors[0]), data.tensors[1]).backward()\n",
        # several passes, one backward
        "parts = [model(part) for part in data.tensors[0].split(8)]\nF.cross_entropy(torch.cat(parts), data.tensors[1]).backward()\n",
        # a function that nothing here calls
        "def features(x):\n    return model(x)\n",
        # a model that is trained by something unknown
        "from somewhere import trainer\ntrainer.fit(model(data.tensors[0]))\n",
        "from somewhere import fit\nfor x, y in test_loader:\n    fit(model(x), y)\n",
    ],
)
def test_gradients_that_are_needed(text: str) -> None:
    untouched(HEAD + TRAIN + text)


def test_a_gan_keeps_its_graph() -> None:
    untouched(
        HEAD
        + """\
G, D = nn.Linear(2, 4), nn.Linear(4, 1)
og, od = torch.optim.SGD(G.parameters(), 0.1), torch.optim.SGD(D.parameters(), 0.1)
for x, _ in loader:
    fake = G(torch.randn(8, 2))
    (D(fake.detach()).mean() - D(x).mean()).backward()
    od.step()
    og.zero_grad()
    (-D(fake).mean()).backward()
    og.step()
"""
    )


def _indent(text: str) -> str:
    return "".join(f"    {line}\n" for line in text.splitlines())


# ----------------------------------------------------------------------------------------- autocast
SHARED = """\
def forward(x, y):
    return F.cross_entropy(model(x.to(device)), y.to(device))
losses = []
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = forward(x, y)
        loss.backward()
        optimizer.step()
"""


def test_a_function_that_is_also_trained_with_under_autocast() -> None:
    apart = "    with torch.no_grad():\n        losses.append(forward(*data[:8]).item())\n"
    check(HEAD + SHARED + apart, "with torch.inference_mode():")
    nested = '    with torch.no_grad():\n        with torch.autocast("cpu", dtype=torch.bfloat16):\n            losses.append(forward(*data[:8]).item())\n'
    check(HEAD + SHARED + nested, "with torch.inference_mode():")


def test_an_evaluation_within_the_autocast_block_of_training_keeps_no_grad() -> None:
    inside = (
        "            with torch.no_grad():\n                losses.append(forward(x, y).item())\n"
    )
    text = HEAD + SHARED.replace(
        "            loss = forward(x, y)\n", inside + "            loss = forward(x, y)\n"
    )
    refused(text, "the autocast block around it")
    called = "            losses.append(probe(x, y))\n"
    text = HEAD + "@torch.no_grad()\ndef probe(x, y):\n    return forward(x, y).item()\n" + SHARED
    refused(
        text.replace(
            "            loss = forward(x, y)\n", called + "            loss = forward(x, y)\n"
        ),
        "the autocast block around it",
    )


TEACHER = """\
import copy
class Net(nn.Module):
    def __init__(self, **sizes):
        super().__init__()
        self.body, self.head = nn.Linear(4, sizes["width"]), nn.Linear(sizes["width"], 3)
    def forward(self, x):
        return self.head(F.relu(self.body(x)))
class Probe(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.body, self.head = net.body, nn.Linear(8, 3)
    def forward(self, x):
        return self.head(self.body(x))
model = Net(**{"width": 8}).to(device)
teacher = MADE
losses = []
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            wanted = teacher(x.to(device))
            probs = wanted.softmax(1).detach()
            loss = F.cross_entropy(model(x.to(device)), y.to(device)) + (probs * probs).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
"""


@pytest.mark.parametrize("made", ["copy.deepcopy(model)", 'Net(**{"width": 8}).to(device)'])
def test_a_teacher_beside_the_training_under_autocast(made: str) -> None:
    check(HEAD + TEACHER.replace("MADE", made), "with torch.inference_mode():")


@pytest.mark.parametrize(
    ("made", "more"),
    [
        ("copy.copy(model)", ""),
        ("Probe(model)", ""),
        ("copy.deepcopy(model)", " + F.linear(x, teacher.body.weight).mean()"),
        ("copy.deepcopy(model)", " + teacher.head(model.body(x)).mean()"),
    ],
)
def test_a_teacher_whose_weights_are_trained_under_autocast(made: str, more: str) -> None:
    text = TEACHER.replace("MADE", made).replace("(probs * probs).mean()", f"probs.mean(){more}")
    refused(HEAD + text, "the autocast block around it")


# ----------------------------------------------------------- results that are asked for their graph
@pytest.mark.parametrize(
    "after",
    [
        "assert out.requires_grad",
        "print(out.grad_fn is not None)",
        "out.retain_grad()",
        "out.register_hook(print)",
        'assert getattr(out, "requires_grad")',
        "def check(t):\n    assert t.requires_grad\ncheck(out)",
        "h = out * 2\nassert not h.is_leaf",
        "outs = [out]\nassert outs[0].requires_grad",
    ],
)
def test_results_that_are_asked_for_their_graph(after: str) -> None:
    text = HEAD + "out = model(torch.ones(4, 4).to(device))\n" + after + "\n" + TRAIN
    run(text)
    done = apply("no-grad-eval", text)
    assert not done.fixes and (
        "looks at the gradient" in done.refusals or "reads gradients" in done.refusals
    )


def test_models_that_ask_for_the_mode() -> None:
    own = """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 3)

    def forward(self, x):
        h = self.body(x)
        if {test}:
            calls.append(1)
        return h

calls = []
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
out = model(torch.ones(4, 4).to(device)).sum().item()
"""
    for test in ("h.requires_grad", "torch.is_grad_enabled()", "h.grad_fn is not None"):
        done = apply("no-grad-eval", HEAD + own.format(test=test) + TRAIN)
        assert not done.fixes and "looks at the gradient" in done.refusals


def test_parameters_may_be_asked() -> None:
    ask = "count = sum(p.numel() for p in model.parameters() if p.requires_grad)\n"
    check(
        HEAD + ask + "out = model(torch.ones(4, 4).to(device)).sum().item()\n" + TRAIN,
        "with torch.inference_mode():",
    )


# ---------------------------------------------------------- ways to autograd that are easily missed
OUTS = """\
@torch.no_grad()
def outs():
    model.eval()
    return model(data.tensors[0].to(device))
"""


@pytest.mark.parametrize(
    ("made", "used"),
    [
        ("[*[outs()]]", "(model(x) * kept[0][:len(x)]).sum()"),
        ("TensorDataset(outs())", "(model(x) * kept[0:len(x)][0]).sum()"),
        (
            "nn.Embedding.from_pretrained(outs(), freeze=False)",
            "(model(x) - kept.weight[:len(x)]).sum()",
        ),
        ("F.relu(outs(), inplace=True)", "0"),
        ("F.dropout(outs(), 0.5, True, True)", "0"),
        ("F.leaky_relu(outs(), 0.1, True)", "0"),
        ("torch.clamp_(outs(), 0, 1)", "0"),
        ("nn.init.zeros_(outs())", "0"),
        ("outs()._version", "0"),
        ("outs().is_inference()", "0"),
    ],
)
def test_ways_to_autograd(made: str, used: str) -> None:
    untouched(
        HEAD + OUTS + f"kept = {made}\n" + TRAIN.replace("(model(x), y)", f"(model(x), y) + {used}")
    )


def test_masks_that_are_made_in_the_place_itself() -> None:
    for mask in (
        "out.max(1).values > 0",
        "(p := torch.max(out, 1).values) > 0",
        "(out.sort(1).values[:, 0] > 0) * 1.0",
    ):
        block = f"with torch.no_grad():\n    out = model(data.tensors[0].to(device))\n    kept = {mask}\n"
        untouched(
            HEAD
            + block
            + TRAIN.replace(
                "(model(x), y)", "(model(x), y) + (model(x)[:, 0] * kept[:len(x)]).sum()"
            )
        )


def test_a_result_in_a_dict_that_is_changed_in_place() -> None:
    outs = OUTS.replace(
        "return model(data.tensors[0].to(device))",
        "return {'a': model(data.tensors[0].to(device)).sum()}",
    )
    for body in ("d['a'] /= 2", "for k in d:\n    d[k] /= 2"):
        untouched(HEAD + outs + TRAIN + f"d = outs()\n{body}\nlosses.append(d['a'].item())\n")
    given = HEAD + outs + TRAIN + "d = outs()\nlosses.append(d['a'].item())\n"
    refused(given, "gives tensors to its callers")
    check(
        given.replace(".sum()}", ".sum().item()}").replace("['a'].item()", "['a']"),
        "@torch.inference_mode()",
    )


def test_hooks_may_keep_what_a_model_makes() -> None:
    hook = "acts = {}\nmodel[0].register_forward_hook(lambda m, i, o: acts.setdefault('a', o.detach()))\n"
    used = TRAIN.replace(
        "(model(x), y)", "(model(x), y) + (acts['a'] * model[0].weight.sum()).mean()"
    )
    refused(HEAD + hook + EVALUATE + "evaluate(model, test_loader)\n" + used, "the hook of line")


# ----------------------------------------------------------------- modules that change in the place
def module(forward: str, init: str = "") -> str:
    """The header with a model whose forward begins with ``forward`` and ends with a layer."""
    body = textwrap.indent(forward, "        ")
    more = textwrap.indent(init, "        ")
    start = HEAD.index("model = nn.Sequential")
    return (
        HEAD[:start]
        + "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        + f"        self.a = nn.Linear(4, 3)\n{more}    def forward(self, x):\n{body}"
        + "        return self.a(x)\n\nmodel = Net().to(device)\n"
        + HEAD[HEAD.index("optimizer = ") :]
    )


LAZY = HEAD.replace("nn.Linear(4, 8), nn.BatchNorm1d(8)", "nn.LazyLinear(8), nn.LazyBatchNorm1d()")
AT_OPTIMIZER = HEAD.index("optimizer = ")
FIRST = "with torch.no_grad():\n    model(torch.zeros(2, 4, device=device))\n"
WHILE_EVALUATING = {
    "lazy layers": (
        LAZY.replace("optimizer = ", FIRST + "optimizer = "),
        "LazyBatchNorm1d makes its parameters",
    ),
    "a buffer in forward": (
        module(
            "if not hasattr(self, 'scale'):\n    self.register_buffer('scale', torch.ones(4))\n"
            "x = x * self.a.bias.sum() * self.scale\n"
        ),
        "gives a module a tensor",
    ),
    "a parameter that begins at what the first batch says": (
        module(
            "if not self.begun:\n    self.scale.data = 1 / (1 + x.std(0))\n    self.begun = True\n"
            "x = x * self.scale\n",
            "self.scale, self.begun = nn.Parameter(torch.ones(4)), False\n",
        ),
        "gives a parameter new data",
    ),
    "a buffer in a helper": (
        module("x = x * self.a.bias.sum() * scale(self)\n").replace(
            "class Net",
            "def scale(module):\n    if not hasattr(module, 'scale'):\n"
            "        module.register_buffer('scale', torch.ones(4))\n    return module.scale\n\nclass Net",
        ),
        "gives a module a tensor",
    ),
    "a table by size": (
        module(
            "if len(x) not in self.tables:\n    self.tables[len(x)] = torch.ones(4)\n"
            "x = x * self.a.bias.sum() * self.tables[len(x)]\n",
            "self.tables = {}\n",
        ),
        "outlives this place",
    ),
    "a call that is kept with its arguments": (
        module(
            "if len(x) not in self.tables:\n    self.tables[len(x)] = functools.partial(torch.mul, torch.ones(4))\n"
            "x = self.tables[len(x)](x * self.a.bias.sum())\n",
            "self.tables = {}\n",
        ).replace("import torch\n", "import functools\nimport torch\n", 1),
        "outlives this place",
    ),
    "a remembered function": (
        module("x = x * self.a.bias.sum() * scale(4)\n").replace(
            "class Net",
            "import functools\n\n@functools.lru_cache\ndef scale(n):\n    return torch.ones(n)\n\nclass Net",
        ),
        "remembers its results",
    ),
    "a global of a helper": (
        module("x = x * self.a.bias.sum() * scale()\n").replace(
            "class Net",
            "table = None\n\ndef made():\n    global table\n    if table is None:\n        table = torch.ones(4)\n"
            "    return table\n\ndef scale():\n    return made()\n\nclass Net",
        ),
        "the global `table` may keep",
    ),
}


@pytest.mark.parametrize("kind", WHILE_EVALUATING)
def test_modules_that_get_tensors_when_first_called(kind: str) -> None:
    text, reason = WHILE_EVALUATING[kind]
    first = EVALUATE.replace("def evaluate", "def validate") + "validate(model, test_loader)\n"
    text = text + first + TRAIN + EVALUATE.replace("with torch.no_grad()", "if True") + CALL
    done = apply("no-grad-eval", text)
    assert "inference_mode" not in done.text and reason in done.refusals, done.refusals
    assert run(text)["losses"] == run(done.text)["losses"]


MODULES_MADE = {
    "a copy": (
        "with torch.no_grad():\n    model(data.tensors[0].to(device))\n    model = copy.deepcopy(model)\n",
        "a module is copied",
    ),
    "the best copy": (
        "@torch.no_grad()\ndef best(model):\n    loss = model(data.tensors[0].to(device)).sum()\n"
        "    return copy.deepcopy({'model': model, 'loss': loss.item()})\nmodel = best(model)['model']\n",
        "a module is copied",
    ),
    "a cast": (
        "with torch.no_grad():\n    model.double().float()\n    model(data.tensors[0].to(device))\n",
        "casts a module",
    ),
    "a state put in": (
        "with torch.no_grad():\n    model.load_state_dict({k: v * 2 for k, v in model.state_dict().items()}, assign=True)\n"
        "    model(data.tensors[0].to(device))\n",
        "puts other tensors into a module",
    ),
    "other data": (
        "with torch.no_grad():\n    model(data.tensors[0].to(device))\n"
        "    for p in model.parameters():\n        p.data = p.data * 0.5\n",
        "gives a parameter new data",
    ),
    "a parametrization": (
        "with torch.no_grad():\n    nn.utils.parametrizations.weight_norm(model[0])\n    model(data.tensors[0].to(device))\n",
        "puts other tensors into a module",
    ),
}


@pytest.mark.parametrize("kind", MODULES_MADE)
def test_modules_that_are_copied_or_changed_and_then_trained(kind: str) -> None:
    made, reason = MODULES_MADE[kind]
    head, optimizer = HEAD[:AT_OPTIMIZER], HEAD[AT_OPTIMIZER:]
    text = "import copy\n" + head + made + optimizer + TRAIN
    refused(text, reason)
    assert outcome(text.replace("torch.no_grad()", "torch.inference_mode()")) != outcome(text)


def outcome(text: str) -> object:
    try:
        return run(text)["losses"]
    except RuntimeError as error:
        return str(error)


def test_a_move_to_where_the_model_is_already() -> None:
    evaluate = EVALUATE.replace("torch.no_grad():", "torch.no_grad():\n        model.to(device)")
    check(HEAD + evaluate + TRAIN + CALL, "torch.inference_mode()")
    later = HEAD.replace("nn.Linear(8, 3)).to(device)", "nn.Linear(8, 3))")
    refused(later + evaluate + "evaluate(model, test_loader)\n" + TRAIN + CALL, "moves a module")
    cast = evaluate.replace("model.to(device)", "model.to(device).float()")
    refused(HEAD + cast + TRAIN + CALL, "casts a module")


FITS = {
    "tried": "try:\n        model(batch)\n        return True\n    except RuntimeError:\n        return False",
    "computed with": "try:\n        out = model(batch)\n        loss = out.sum()\n        del out, loss\n    except (ValueError, "
    "torch.cuda.OutOfMemoryError):\n        return False\n    return True",
    "measured": "model(batch)\n    return torch.cuda.max_memory_allocated()",
}


@pytest.mark.parametrize("kind", FITS)
def test_whether_a_batch_fits_is_asked_with_gradients(kind: str) -> None:
    text = f"def fits(model, batch):\n    {FITS[kind]}\n\nfits(model, torch.zeros(64, 4, device=device))\n"
    refused(HEAD + text + TRAIN, "may ask whether a batch fits into memory")


def test_an_evaluation_that_skips_what_does_not_fit() -> None:
    evaluate = EVALUATE.replace("    with torch.no_grad():\n", "    if True:\n").replace(
        "            out = model(x.to(device))\n",
        "            try:\n                out = model(x.to(device))\n            except RuntimeError:\n                continue\n",
    )
    check(HEAD + evaluate + TRAIN + CALL, "torch.inference_mode()")


POLICY = """
import torch
import torch.nn as nn
from torch.distributions.categorical import Categorical
from torch.optim import Adam


def train(epochs=3):
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 2))

    def get_policy(obs):
        logits = net(obs)
        return Categorical(logits=logits)

    def get_action(obs):
        return get_policy(obs).sample().item()

    def compute_loss(obs, act, weights):
        logp = get_policy(obs).log_prob(act)
        return -(logp * weights).mean()

    optimizer = Adam(net.parameters(), lr=1e-2)

    def one_epoch():
        seen, acts = [], []
        for _ in range(20):
            obs = torch.randn(4)
            seen.append(obs)
            acts.append(get_action(obs))
        optimizer.zero_grad()
        batch_loss = compute_loss(torch.stack(seen), torch.as_tensor(acts), torch.ones(20))
        batch_loss.backward()
        optimizer.step()
        return batch_loss.item()

    return [one_epoch() for _ in range(epochs)]


losses = train()
"""


def test_a_helper_that_makes_the_distribution_of_loss_and_actions() -> None:
    """The helper is called for actions as well as for the loss: only the function that gives
    numbers is one of an evaluation.
    """
    seeded = POLICY.replace("def train", "torch.manual_seed(0)\n\n\ndef train")
    done = check(seeded, "@torch.inference_mode()")
    assert "    @torch.inference_mode()\n    def get_action(obs):" in done.text
    assert len(done.lines) == 1


def test_a_helper_that_an_unknown_loss_may_go_through() -> None:
    """The loss is a distribution's that the reader does not follow."""
    seeded = POLICY.replace(
        "def train", "torch.manual_seed(0)\nNAME = [*{'logits'}][0]\n\n\ndef train"
    )
    done = check(seeded.replace("logits=logits", "**{NAME: logits}"), "@torch.inference_mode()")
    assert "    @torch.inference_mode()\n    def get_action(obs):" in done.text
    assert len(done.lines) == 1


REPLICAS = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

data = TensorDataset(torch.randn(32, 4), torch.randn(32, 1))
loader = DataLoader(data, batch_size=8)
model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 1))
if torch.cuda.device_count() > 1:
    model = nn.DataParallel(model)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []


def measure(model, loader):
    {mode}
    total = 0.0
    {no_grad}
        for x, y in loader:
            total += (model(x) - y).abs().mean().item()
    return total


for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = (model(x) - y).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    measure(model, loader)
"""


@pytest.mark.parametrize("no_grad", ["with torch.no_grad():", "if True:"])
@pytest.mark.parametrize("mode", ["model.eval()", "pass"])
def test_replicas_in_training_mode_get_no_inference_mode(mode: str, no_grad: str):
    """Threads of DataParallel are outside of it, and BatchNorm would change a buffer that was
    copied inside.
    """
    done = apply("no-grad-eval", REPLICAS.format(mode=mode, no_grad=no_grad))
    assert ("inference_mode" in done.text) == (mode == "model.eval()")
    assert "torch.no_grad()" in done.text or mode == "model.eval()"


@pytest.mark.parametrize("mode", ["model.eval()", "pass"])
def test_replicas_by_a_helper_that_training_calls_too(mode: str):
    text = REPLICAS.format(mode=mode, no_grad="with torch.no_grad():")
    shared = "def error(x, y):\n    return model(x) - y\n\n\ndef measure"
    text = text.replace("def measure", shared).replace("(model(x) - y)", "error(x, y)")
    text = text.replace(
        "    for x, y in loader:\n        optimizer",
        "    model.train()\n    for x, y in loader:\n        optimizer",
    )
    assert "model.train()" in text and text.count("error(x, y)") == 3
    done = apply("no-grad-eval", text)
    assert ("inference_mode" in done.text) == (mode == "model.eval()")


# ------------------------------------------------------------------------ code that training shares
SHARED_EPOCH = """\
def run_epoch(loader, train=True):
    total = 0
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss = F.cross_entropy(out, y)
        if train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        total += loss.item()
    return total

losses = []
for epoch in range(2):
    model.train()
    losses.append(run_epoch(loader))
    model.eval()
    valid = run_epoch(test_loader, train=False)
    losses.append(valid)
"""
SHARED_HELPER = """\
def scores(x):
    return model(x.to(device))

losses = []
for epoch in range(2):
    model.train()
    for x, y in loader:
        optimizer.zero_grad()
        loss = F.cross_entropy(scores(x), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    model.eval()
    for x, y in test_loader:
        found = scores(x).topk(2)[1]
        losses.append((found[:, 0].cpu() == y).sum().item())
"""


def test_a_pass_that_shares_its_function_with_the_training() -> None:
    done = check(HEAD + SHARED_EPOCH, "with torch.inference_mode():")
    assert done.text.count("inference_mode") == 1
    assert "        valid = run_epoch(test_loader, train=False)" in done.text


TRAINER = """\
class Trainer:
    def run(self, phase, loader):
        model.train(phase == "train")
        total = 0
        for x, y in loader:
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            if phase == "train":
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            total += loss.item()
        return total

    def train(self, loader):
        return self.run("train", loader)

    def val(self, loader):
        return self.run("val", loader)

trainer, losses = Trainer(), []
if len(data) < 40:
    losses.append(trainer.val(test_loader))
for epoch in range(2):
    losses.append(trainer.train(loader))
    CALL
"""


@pytest.mark.parametrize(
    "call",
    [
        "with torch.no_grad():\n        losses.append(trainer.val(test_loader))",
        "losses.append(trainer.val(test_loader))",
        "losses += [trainer.val(test_loader)]",
    ],
)
def test_a_method_that_returns_what_a_shared_one_gives(call: str) -> None:
    done = check(HEAD + TRAINER.replace("CALL", call), "torch.inference_mode()")
    assert "no_grad" not in done.text and "\n        return self.run" in done.text
    marked = "inference_mode()\n    def val" in done.text
    assert marked or done.text.count("inference_mode()") == 2


def test_what_such_a_method_gives_may_be_trained() -> None:
    call = "loss = trainer.val(test_loader)\n    loss.backward()\n    losses.append(loss.item())"
    text = HEAD + TRAINER.replace("CALL", call).replace(
        "loss.item()\n        return", "loss\n        return"
    )
    text = text.replace("losses.append(trainer", "print(trainer")
    done = check(text, "torch.inference_mode()")
    assert f"\n    {call}" in done.text and "inference_mode()\n    def" not in done.text


TAUGHT = """\
teacher = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)

def step(x, y):
    out = model(x)
    wanted = teacher(x)
    return F.cross_entropy(out, y) + F.mse_loss(out, wanted.detach())

losses = []
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = step(x.to(device), y.to(device))
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
losses.append(teacher[0].weight.grad is None)
"""


def test_a_teacher_in_the_function_that_makes_the_loss() -> None:
    done = check(HEAD + TAUGHT, "with torch.no_grad():")
    assert "        wanted = teacher(x)" in done.text and done.text.count("no_grad") == 1
    untouched(HEAD + TAUGHT.replace("wanted.detach()", "wanted"))


def test_a_loop_that_shares_a_helper_with_the_training() -> None:
    done = check(HEAD + SHARED_HELPER, "with torch.inference_mode():")
    assert done.text.count("inference_mode") == 1
    assert "        for x, y in test_loader:" in done.text


@pytest.mark.parametrize(
    "text",
    [
        # a fresh tensor of what a helper gives is the loss
        SHARED_HELPER.replace(
            "F.cross_entropy(scores(x), y.to(device))", "scores(x).square().mean()"
        ),
        # each turn of the second loop gives a part of the loss of the next one
        """\
        def scores(x):
            return model(x.to(device))

        losses, kept = [], []
        for epoch in range(2):
            for x, y in loader:
                optimizer.zero_grad()
                loss = F.cross_entropy(scores(x), y) + sum(k.mean() for k in kept)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
                kept = []
            for x, y in list(test_loader)[:1]:
                kept.append(scores(x))
        """,
        # the loss is kept by an object, and differentiated elsewhere
        """\
        class Keeper:
            loss = 0
            def add(self, x):
                self.loss = self.loss + model(x.to(device)).mean()

        keeper, losses = Keeper(), []
        for epoch in range(2):
            for x, y in loader:
                keeper.add(x)
            for x, y in test_loader:
                keeper.add(x)
            optimizer.zero_grad()
            keeper.loss.backward()
            optimizer.step()
            losses.append(keeper.loss.item())
            keeper.loss = 0
        """,
        # what the function returns is trained with outside
        SHARED_EPOCH.replace("total += loss.item()", "total = total + loss").replace(
            "    losses.append(valid)",
            "    optimizer.zero_grad()\n    valid.backward()\n    losses.append(valid.item())",
        ),
    ],
)
def test_what_training_goes_on_with_keeps_its_graph(text: str) -> None:
    done = apply("no-grad-eval", HEAD + textwrap.dedent(text))  # a loss without a graph raises
    assert run(HEAD + textwrap.dedent(text))["losses"] == run(done.text)["losses"]


NESTED = REPLICAS.replace(
    "    {mode}\n    total = 0.0\n    {no_grad}\n        for x, y in loader:\n            total += (model(x) - y).abs().mean().item()\n    return total\n",
    """    def run():
        total = 0.0
        with torch.no_grad():
            for x, y in loader:
                total += (model(x) - y).abs().mean().item()
        return total

    model.{mode}
    return run()
""",
)


@pytest.mark.parametrize(
    ("mode", "inference"), [("eval()", True), ("train(False)", True), ("train()", False)]
)
def test_replicas_are_in_the_mode_that_was_set_last(mode: str, inference: bool):
    done = apply("no-grad-eval", NESTED.format(mode=mode))
    assert ("inference_mode" in done.text) == inference


@pytest.mark.parametrize(
    ("made", "out"),
    [
        ("", "nn.Softmax(dim=1)(model(x.to(device)))"),
        (
            "class Scale(nn.Module):\n    def forward(self, x):\n        return 2 * x\n\n\n",
            "Scale()(model(x.to(device)))",
        ),
    ],
)
def test_a_module_made_for_one_call(made: str, out: str) -> None:
    text = HEAD + made + EVALUATE.replace("model(x.to(device))", out) + TRAIN + CALL
    check(text, "with torch.inference_mode():")


def test_a_module_that_stays_could_not_be_trained() -> None:
    kept = EVALUATE.replace(
        "out = model(x.to(device))", "kept = nn.Linear(3, 3)\n            out = kept(model(x))"
    )
    refused(HEAD + kept + TRAIN + CALL, "a module is made here")


def test_an_averaged_model_calls_the_copy_of_a_model() -> None:
    averaged = "average = torch.optim.swa_utils.AveragedModel(model)\n"
    text = HEAD + averaged + EVALUATE + TRAIN + CALL.replace("evaluate(model", "evaluate(average")
    check(text + "    average.update_parameters(model)\n", "with torch.inference_mode():")


@pytest.mark.parametrize(
    ("name", "known"), [("BertForSequenceClassification", True), ("AutoModel", False)]
)
def test_models_of_transformers_that_keep_nothing(name: str, known: bool) -> None:
    text = HEAD.replace(
        "model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3))",
        f'import transformers\nmodel = transformers.{name}.from_pretrained("a")',
    )
    done = apply("no-grad-eval", text + EVALUATE + TRAIN + CALL)
    assert bool(done.fixes) is known
    assert known or "may keep tensors" in done.refusals


SOFTMAX = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
data = TensorDataset(torch.randn(32, 4), torch.randint(0, 3, (32,)))
loader, test_loader = DataLoader(data, batch_size=8), DataLoader(data, batch_size=8)
model = nn.Linear(4, 3)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    right = 0
    for x, y in test_loader:
        with torch.no_grad():
            out = model(x)
        probs = nn.Softmax(dim=1)(out)
        right += (torch.max(probs, 1)[1] == y).sum().item()
    losses.append(right)
"""


def test_a_softmax_is_no_model() -> None:
    """Below the context of the model it records nothing, and takes what the model gives there."""
    done = apply("no-grad-eval", SOFTMAX)
    assert done.lines == ["with torch.inference_mode():"]
    assert run(SOFTMAX)["losses"] == run(done.text)["losses"]


SHRUNK = """\
    model.eval()
    right = 0
    for x, y in test_loader:
        right += (model(x.to(device)).argmax(1).cpu() == y).sum().item()
        vector = nn.utils.parameters_to_vector(model.parameters())
        nn.utils.vector_to_parameters(vector * 0.9, model.parameters())
    losses.append(right)
"""


def test_an_evaluation_that_gives_parameters_new_data() -> None:
    done = check(HEAD + TRAIN + SHRUNK, "with torch.no_grad():")
    assert "inference_mode" not in done.text


def test_parameters_that_are_given_new_data() -> None:
    """Parameters made of inference tensors would train wrongly, without an error."""
    done = apply(
        "no-grad-eval",
        """
import torch
from torch import nn
torch.manual_seed(0)
net, x = nn.Linear(4, 2), torch.randn(8, 4)
vector = nn.utils.parameters_to_vector(net.parameters()).detach()
with torch.no_grad():
    for e in torch.randn(3, 10):
        nn.utils.vector_to_parameters(vector + e, net.parameters())
        print(net(x).sum().item())
optimizer = torch.optim.SGD(net.parameters(), 0.1)
for i in range(3):
    optimizer.zero_grad()
    net(x).pow(2).mean().backward()
    optimizer.step()
""",
    )
    assert not done.fixes and "gives parameters new data" in done.refusals


WORDS = """
import torch
from torch import nn
net, x = nn.LSTM(4, 2), torch.randn(8, 1, 4)
with torch.no_grad():
    for e in range(3):
        {flatten}
        print(net(x)[0].sum().item())
optimizer = torch.optim.SGD(net.parameters(), 0.1)
net(x)[0].sum().backward()
optimizer.step()
"""


@pytest.mark.parametrize("flatten", ["net.flatten_parameters()", "pass"])
def test_weights_that_are_put_into_other_memory(flatten: str) -> None:
    done = apply("no-grad-eval", WORDS.replace("{flatten}", flatten))
    assert bool(done.fixes) is (flatten == "pass")
    assert ("other memory" in done.refusals) is (flatten != "pass")


RANKER = """\
import random
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)
random.seed(0)


class Ranker(nn.Module):
    def __init__(self):
        super().__init__()
        self.items, self.mix = nn.Embedding(9, 4), nn.Linear(4, 4)
        self.last = torch.zeros(4)

    def features(self, row):
        return torch.tanh(self.mix(self.items(row))).mean(0)

    def forward(self, row, items):
        return self.items(items) @ self.features(row)

    def predict(self, row, items):
        {kept}
        return self.items(items) @ self.features(row)


def evaluate(model, rows):
    hits = 0
    if len(rows) > 4:
        order = random.sample(range(len(rows)), 4)
    else:
        order = range(len(rows))
    for i in order:
        scores = -model.predict(rows[i], torch.arange(9))
        hits += scores.argsort().argsort()[0].item() < 4
    return hits


rows = [torch.tensor([i, i + 1]) for i in range(6)]
model = Ranker()
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for row in rows:
        optimizer.zero_grad()
        loss = F.cross_entropy(model(row, torch.arange(9)), row[0]){more}
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    losses.append(evaluate(model, rows))
"""


def test_a_method_of_the_model_other_than_forward() -> None:
    done = check(RANKER.format(kept="pass", more=""), "@torch.inference_mode()")
    assert len(done.lines) == 1
    # Its loss is that of such a method, too.
    check(
        RANKER.format(kept="pass", more="").replace("model(row, t", "model.predict(row, t"),
        "@torch.inference_mode()",
    )


def test_what_such_a_method_keeps_for_the_training() -> None:
    kept = RANKER.format(kept="self.last = self.features(row)", more=" + model.last.sum()")
    assert not apply("no-grad-eval", kept).fixes


def test_a_method_of_the_model_that_trains() -> None:
    trains = """\
import torch
import torch.nn as nn


class Both(nn.Module):
    def __init__(self):
        super().__init__()
        self.one, self.other = nn.Linear(4, 4), nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.parameters(), lr=0.1)

    def update(self, x):
        made = self.one(x)
        loss = self.other(made.detach()).mean()
        loss.backward()
        self.optimizer.step()
        return loss.item()


model = Both()
losses = []
for step in range(3):
    losses.append(model.update(torch.ones(2, 4)))
"""
    assert not apply("no-grad-eval", trains).fixes


ACTOR = """\
import torch
import torch.nn as nn
from torch.distributions import Normal

torch.manual_seed(0)


class Policy(nn.Module):
    def __init__(self):
        super().__init__()
        self.mean, self.deviation = nn.Linear(3, 2), nn.Linear(3, 2)

    def forward(self, state):
        return self.mean(state), self.deviation(state)

    def sample(self, state):
        mean, deviation = self.forward(state)
        normal = Normal(mean, deviation.exp())
        drawn = normal.rsample()
        return drawn, normal.log_prob(drawn).sum(1)


class Agent:
    def __init__(self):
        self.policy = Policy()
        self.kept = []
        self.weight = torch.zeros(1, requires_grad=True)
        self.optimizer = torch.optim.SGD([*self.policy.parameters(), self.weight], lr=0.1)

    def act(self, state):
        action, density = self.policy.sample(state.unsqueeze(0))
        KEEP
        return RESULT

    def update(self, states):
        action, density = self.policy.sample(states)
        self.optimizer.zero_grad()
        loss = (action.sum(1) + density).mean()
        loss.backward()
        other = -(self.weight * (density + 1).detach()).mean()
        other.backward()
        self.optimizer.step()
        return loss.item()


agent = Agent()
losses = []
for episode in range(3):
    states = []
    for i in range(4):
        states.append(torch.ones(3) * i)
        losses.append(float(agent.act(states[-1])[0]))
    losses.append(agent.update(torch.stack(states)))
"""


def test_a_function_that_no_gradient_leaves_beside_a_loss_of_no_model() -> None:
    text = ACTOR.replace("KEEP", "pass").replace("RESULT", "action.detach().numpy()[0]")
    assert check(text, "@torch.inference_mode()").lines == ["@torch.inference_mode()"]


@pytest.mark.parametrize(
    ("keep", "result"),
    [
        ("pass", "action[0]"),
        ("self.kept.append(density)", "action.detach().numpy()[0]"),
        ("global last; last = density", "action.detach().numpy()[0]"),
    ],
)
def test_a_function_that_a_gradient_may_leave(keep: str, result: str) -> None:
    text = ACTOR.replace("KEEP", keep).replace("RESULT", result)
    assert not apply(
        "no-grad-eval", text.replace("float(agent.act(states[-1])[0])", "agent.act(states[-1])[0]")
    ).fixes


def test_a_loop_that_makes_numbers_of_what_leaves_it() -> None:
    text = ACTOR.replace("KEEP", "pass").replace("RESULT", "action[0]")
    check(text, "with torch.inference_mode():")
    text = text.replace("update(torch.stack(states))", "update(states[1][None])")
    check(text, "with torch.no_grad():")  # states are saved for a backward


def test_evaluations_beside_each_other_share_a_block() -> None:
    evaluate = EVALUATE.replace("    with torch.no_grad():\n", "    if True:\n")
    calls = "    first = model.eval()(data[0][0][None].to(device)).sum().item()\n"
    calls += "    second = model.eval()(data[1][0][None].to(device)).sum().item()\n"
    calls += "    losses += [first, second]\n"
    done = check(HEAD + evaluate + TRAIN + calls, "with torch.inference_mode():")
    block = "    with torch.inference_mode():\n        first = model.eval()"
    assert block in done.text and done.text.count("_mode():") == 1
    spared = calls.replace("item()\n", "item()  # autofast: ignore[no-grad-eval]\n", 1)
    assert "_mode():\n        second" in apply("no-grad-eval", HEAD + TRAIN + spared).text


@pytest.mark.parametrize(
    ("condition", "shared"),
    [
        ("if epoch < 1:", True),
        ("if (flag := epoch) < 1:", False),  # what is bound there may be a tensor
    ],
)
def test_both_arms_and_what_follows_share_a_block(condition: str, shared: bool) -> None:
    arms = f"    wanted = None\n    {condition}\n        wanted = teacher(x)\n    else:\n        wanted = model(x * 2)\n"
    arms += "    wanted = teacher(F.pad(wanted, (0, 1)))\n"
    text = TAUGHT.replace("    wanted = teacher(x)\n", arms).replace(
        "def step(", "epoch = 0\ndef step("
    )
    done = check(HEAD + text, "with torch.no_grad():")
    block = f"    with torch.no_grad():\n        {condition}\n            wanted = teacher(x)\n        else:\n"
    assert (block in done.text) is shared
    assert done.text.count("no_grad") == (1 if shared else 3)


KEPT = """\
class Stopper:
    def __init__(self):
        self.best = None
    def __call__(self, value):
        if self.best is None or -value > self.best:
            self.best = -value
            print(f"{float(self.best):.3f}")
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(4, 3)
        self.seen = None
    def forward(self, x):
        x = self.fc(x)
        self.seen = x.softmax(1)
        return x
model = Net().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
stop = Stopper()
"""
PAIRS = """\
    model.eval()
    with torch.no_grad():
        out = model(data.tensors[0].to(device))
        worst = out.max()
    stop(worst)
    rows = []
    for row, target in zip(out, data.tensors[0]):
        rows.append((torch.clamp(row, 0, 1).sum() - torch.clamp(target, 0, 1).sum()) ** 2)
    losses.append(torch.stack(rows).mean().item())
"""


def test_what_keeps_numbers_only_may_keep_it() -> None:
    """An object that is called, an attribute of a module that nothing reads, and one of two
    sequences that go side by side.
    """
    check(HEAD + KEPT + TRAIN + PAIRS, "with torch.inference_mode():")


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("self.best = -value\n", "self.best = value\n            self.best.mul_(2)\n", "keeps it"),
        ("        x = self.fc(x)\n", "        x = self.fc(x) * (1 if self.seen is None else self.seen[:1])\n", "self.seen"),
        ("self.seen = None", 'self.register_buffer("seen", torch.zeros(1))', "self.seen"),
        ("torch.clamp(row, 0, 1)", "(row * model.fc.weight[0, 0])", "may need gradients"),
    ],
)  # fmt: skip
def test_what_is_used_again_must_not_be_kept(old: str, new: str, reason: str) -> None:
    refused((HEAD + KEPT + TRAIN + PAIRS).replace(old, new), reason)


# ------------------------------------------------------------------ a decorator in place of a block
PREPARED = """
def normalize(rows, mean=0.5):
    return (np.asarray(rows, dtype=np.float32) - mean) {more}


def infer(rows, scales):
    rows = normalize(rows)
    found = np.zeros(len(rows))
    sizes = [scale * 2 for scale in scales]
    for size in sizes:
        part = torch.from_numpy(rows * size).to(device)
        found = found + model(part).argmax(1).cpu().numpy()
    return found


"""


@pytest.mark.parametrize("result", ["found", "np.sqrt(len(found) / 2).item()"])
def test_what_numpy_prepares_stands_below_the_decorator(result: str) -> None:
    measured = "    print(infer(data.tensors[0].tolist(), [1, 2]))\n"
    prepared = PREPARED.format(more="* 2").replace("return found\n", f"return {result}\n")
    text = "import numpy as np\n" + HEAD + prepared + TRAIN + measured
    done = check(text, "@torch.inference_mode()")
    assert "with torch." not in done.text


@pytest.mark.parametrize("score", ["row.upper().replace('-', '')", "torch.tensor(row)"])
def test_work_with_texts_stands_below_the_decorator(score: str) -> None:
    more = f"""
def named(rows):
    found = set()
    for row in rows:
        found = found.union({score})
    return sorted(found)


def measure(name, rows):
    if name == "dev":
        count = len(rows)
    else:
        print("no such set", name)
        exit(1)
    model.eval()
    found = []
    for k in range(count):
        found.append(model(data.tensors[0][k : k + 1].to(device)).argmax(1).item())
    return found, named(rows)


"""
    measured = "    print(measure('dev', [line for line in open(__file__)]))\n"
    done = apply("no-grad-eval", HEAD + more + TRAIN + measured)
    assert "@torch.no_grad()\ndef measure" in done.text  # what is read from the file is not known


BOTH_WAYS = """
def go(train=True):
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        if train:
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        losses.append(loss.item())


def measure():{more}
    go(train=False)


losses = []
for epoch in range(3):
    go()
    measure()
"""


def test_a_function_that_only_evaluates_by_shared_code_gets_a_decorator() -> None:
    start = HEAD.replace("\nlosses = []", "")
    for more, whole in (
        ("", True),
        ("\n    print('measured')", True),
        ("\n    go()", False),
        ("\n    losses.append(float(model(data.tensors[0].to(device)).sum()))", True),
    ):
        done = apply("no-grad-eval", start + BOTH_WAYS.format(more=more))
        assert ("()\ndef measure():" in done.text) is whole, more
        assert ("with torch." in done.text) is not whole, more
        assert run(done.text)["losses"] == run(done.before)["losses"]


METERS = """
class Meter{base}:
    def __init__(self):
        {more}self.sum, self.count = 0, 0

    def update(self, value, n=1):
        self.sum += value * n
        self.count += n


def measure():
    model.eval()
    seen, right = Meter(), Meter()
    for x, y in loader:
        found = model(x.to(device)).argmax(1).cpu()
        right.update((found == y).float().mean().item(), len(y))
        seen.update(len(y))
    return right.sum / right.count


"""


@pytest.mark.parametrize(
    ("base", "more", "mode"),
    [
        ("", "", "@torch.inference_mode()"),
        ("", "self.start = torch.zeros(1)\n        ", "@torch.no_grad()"),
        ("(nn.Module)", "super().__init__()\n        ", "with torch.inference_mode():"),
    ],
)
def test_meters_are_made_below_the_decorator(base: str, more: str, mode: str) -> None:
    meters = METERS.format(base=base, more=more)
    check(HEAD + meters + TRAIN + "    print(measure())\n", mode)


# ------------------------------------------------------------------------------------------- tables
TABLE = """
import pandas as pd


class Ranks:
    def keep(self, scores):
        table = pd.merge(pd.DataFrame({"score": scores}), pd.DataFrame({"n": [1]}), how="cross")
        table["rank"] = table["score"].rank()
        self.table = table

    def best(self):
        return self.table["rank"].sum()


ranks = Ranks()
"""


@pytest.mark.parametrize(("given", "kept"), [("out.tolist()", False), ("[o for o in out]", True)])
def test_tables_hold_no_tensors_unless_they_are_given_some(given: str, kept: bool) -> None:
    evaluate = EVALUATE.replace(
        "            total +=", f"            ranks.keep({given})\n            total +="
    )
    text = HEAD + TABLE + evaluate + TRAIN + CALL + "    print(ranks.best())\n"
    done = apply("no-grad-eval", text)
    assert bool(done.fixes) is not kept
    assert ("gives tensors to pandas" in done.refusals) is kept


def test_a_model_that_one_option_has_no_class_for() -> None:
    """`self.net = self.net.eval()` keeps a model; a class that was deleted, and is still named,
    gives no tensor.
    """
    text = """
import sys
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

loader = DataLoader(TensorDataset(torch.randn(8, 4), torch.randn(8, 1)), batch_size=4)


class Runner:
    def __init__(self, net):
        self.net, self.optimizer = net, torch.optim.SGD(net.parameters(), lr=0.1)

    def train(self):
        self.net = self.net.train()
        for x, y in loader:
            loss = (self.net(x) - y).pow(2).mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()

    def evaluate(self):
        self.net = self.net.eval()
        return sum((self.net(x) - y).abs().sum().item() for x, y in loader)


net = Deleted() if "deleted" in sys.argv else nn.Linear(4, 1)
runner, losses = Runner(net), []
for epoch in range(2):
    runner.train()
    with torch.no_grad():
        losses.append(runner.evaluate())
"""
    done = apply("no-grad-eval", text)
    assert done.lines == ["with torch.inference_mode():"]
    assert len(run(done.text)["losses"]) == 2


@pytest.mark.parametrize(
    "made",
    [
        "nn.LogSoftmax(dim=1)",
        "nn.Dropout(0.5).eval()",
        "nn.Upsample(scale_factor=1)",
        "nn.ReplicationPad1d(1)",
    ],
)
def test_a_module_without_weights_may_stay(made: str) -> None:
    """Nothing of it could be trained; one with weights is refused."""
    out = f"last = {made}\n            out = last(model(x.to(device))[None])[0, :, :3]"
    text = HEAD + EVALUATE.replace("out = model(x.to(device))", out) + TRAIN + CALL
    check(text, "with torch.inference_mode():")


SHIFTED = """
class Shifted(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3))
        self.register_buffer("table", torch.linspace(-1, 1, 4)[None])

    def forward(self, x):
        return self.net(x + MOVED)


model = Shifted().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
"""


@pytest.mark.parametrize(
    ("table", "fits"),
    [
        ("self.table[:, : x.size(1)].requires_grad_(False)", True),
        ("torch.ones_like(x).requires_grad_(requires_grad=False)", True),
        ("self.table.detach().requires_grad_(len(x) < 0)", False),
        ("self.net[0].bias[:4].sum() * x.detach().requires_grad_(True)", False),
    ],
)
def test_gradients_that_are_off_already_are_switched_off(table: str, fits: bool) -> None:
    head = HEAD + SHIFTED.replace("MOVED", table)
    for evaluation in (EVALUATE, EVALUATE.replace("torch.no_grad()", "torch.device('cpu')")):
        text = head + evaluation + TRAIN + CALL
        if fits:
            check(text, "torch.inference_mode()")
        else:
            refused(text, "gradients")


def test_the_gradient_is_asked_for_by_name() -> None:
    head = HEAD + SHIFTED.replace("MOVED", "self.table * float(getattr(x, 'requires_grad'))")
    evaluate = EVALUATE.replace("torch.no_grad()", "torch.device('cpu')")
    refused(head + evaluate + TRAIN + CALL, "looks at the gradient")


KEEPER = """
class Keeper(nn.Module):
    def __init__(self):
        super().__init__()
        self.net, self.seen = nn.Linear(4, 3), None

    def forward(self, x):
        BODY


model = Keeper().to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)


def run_epoch(loader, train):
    total = 0.0
    for x, y in loader:
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        if train:
            optimizer.zero_grad()
            (loss + MORE).backward()
            optimizer.step()
        total += loss.item()
    return total


def look(model):
    return model.seen.mean().item()


losses = []
for epoch in range(2):
    losses.append(run_epoch(loader, True))
    losses.append(run_epoch(test_loader, False))
    EXTRA
losses.append(look(model))
"""
BODIES = [
    "self.seen = self.net(x)\n        return self.seen",
    "y = self.seen = self.net(x)\n        return y",
]


@pytest.mark.parametrize(
    ("body", "more", "extra", "fits"),
    [
        *((body, "0", "pass", True) for body in BODIES),
        (BODIES[0], "0", "losses.append(len(losses))", True),
        (BODIES[0], "model.seen.pow(2).mean()", "pass", False),
        (BODIES[1], "getattr(model, 'seen').pow(2).mean()", "pass", False),
        (BODIES[0], "0", "losses.append(look(model))", True),
    ],
)
def test_what_a_forward_keeps_is_only_looked_at(
    body: str, more: str, extra: str, fits: bool
) -> None:
    keeper = KEEPER.replace("BODY", body).replace("MORE", more).replace("EXTRA", extra)
    done = apply("no-grad-eval", HEAD + keeper)
    assert any("losses.append(run_epoch(test_loader" in x for x in done.text.splitlines())
    assert bool(done.fixes) is fits, done.refusals
    assert run(done.before)["losses"] == run(done.text)["losses"]


SETTINGS = HEAD.replace(
    "model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).to(device)",
    """\
class Net(nn.Module):
    def __init__(self, args):
        super().__init__()
        for name, value in vars(args).items():
            setattr(self, name, value)
        self.body = nn.Linear(4, self.width)
        self.head = nn.Linear(self.width, 3)

    def forward(self, x):
        return self.head(torch.relu(self.body(x)))


parser = argparse.ArgumentParser()
parser.add_argument("--width", type=int, default=8)
args = parser.parse_args([])
args.classes = 3
model = Net(args).to(device)""",
).replace("import torch\n", "import argparse\nimport torch\n", 1)


UNGUARDED = EVALUATE.replace("    with torch.no_grad():\n", "").replace("        for", "    for")


def test_options_that_become_attributes() -> None:
    check(SETTINGS + UNGUARDED.replace("            ", "        ") + TRAIN + CALL, "inference_mode")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("args = parser.parse_args([])", "args, _ = parser.parse_known_args([], namespace=OTHER)"),
        ("vars(args).items()", "vars(DataLoader([1])).items()"),
        ("args.classes = 3", "setattr(args, input(), print)"),
    ],
)
def test_options_that_may_be_any_attribute(old: str, new: str) -> None:
    text = SETTINGS.replace(old, new) + UNGUARDED.replace("            ", "        ")
    refused(text + TRAIN + CALL, "calls something that is not known")


# ------------------------------------------------------------------------------- autograd Functions
APPLIES = HEAD.replace(
    "model = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Linear(8, 3)).to(device)",
    """\
kept = []


class Clip(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, low):
        ctx.save_for_backward(x)
        ctx.inside = x > low
        return x.clamp(min=low)

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.inside, None


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Linear(4, 8)
        self.head = nn.Linear(8, 3)

    def forward(self, x):
        return self.head(Clip.apply(self.body(x), 0.1))


model = Net().to(device)""",
)
SHORT = UNGUARDED.replace("            ", "        ")


def test_evaluations_that_apply_a_function() -> None:
    check(APPLIES + SHORT + TRAIN + CALL, "inference_mode")
    check(APPLIES + EVALUATE + TRAIN + CALL, "inference_mode")


TRAINED_WITH = TRAIN.replace(
    "optimizer.zero_grad()", "optimizer.zero_grad(); extra = kept[-1] if kept else 0"
).replace("model(x), y)\n", "model(x), y) + (extra * 2).sum()\n")


@pytest.mark.parametrize(
    ("old", "new", "train"),
    [
        ("ctx.save_for_backward(x)", "ctx.save_for_backward(x); kept.append(x * 2)", TRAINED_WITH),
        ("ctx.save_for_backward(x)", "ctx.save_for_backward(x); Net.last = x * 2", TRAIN.replace("model(x), y)", "model(x) + getattr(Net, 'last', 0).sum(), y)")),
        ("ctx.save_for_backward(x)", "OTHER(x)", TRAIN),
    ],
)  # fmt: skip
def test_functions_that_keep_what_they_get(old: str, new: str, train: str) -> None:
    text = APPLIES.replace(old, new) + EVALUATE + train + CALL
    assert text.count(new) == 1
    assert not apply("no-grad-eval", text).fixes


def test_what_a_function_gives_may_be_trained_with() -> None:
    text = "def clipped(model, rows):\n    model.eval()\n    return Clip.apply(model(rows.to(device)), 0.1)\n"
    train = TRAIN.replace(
        "loss = F.cross_entropy(", "loss = clipped(model, x).sum() + F.cross_entropy("
    )
    untouched(APPLIES + text + train)


def test_what_a_function_gives_of_weights_alone_may_be_trained_with() -> None:
    text = "scale = nn.Parameter(torch.ones(3))\n\n\ndef scaled(model, rows):\n    model.eval()\n    print(model(rows.to(device)).argmax(1).sum().item())\n    return Clip.apply(scale, 0.1)\n"
    train = TRAIN.replace(
        "F.cross_entropy(model(x), y)", "F.cross_entropy(model(x) * scaled(model, x), y)"
    )
    untouched(APPLIES + text + train)


ONE_BATCH = """
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
data = TensorDataset(torch.randn(64, 8), torch.randn(64, 1))
loader = DataLoader(data, batch_size=8)
model = nn.Linear(8, 1).to(device)
optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
for epoch in range(9):
    for x, y in loader:
        loss = (model(x.to(device)) - y.to(device)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
model.eval()
{given}
out = model(x.to(device))
print(out.argmax(1))
"""


@pytest.mark.parametrize(
    ("given", "worth"), [("x, y = next(iter(loader))", False), ("x = data.tensors[0]", True)]
)
def test_one_batch_that_is_looked_at_is_not_worth_a_block(given: str, worth: bool) -> None:
    text = ONE_BATCH.format(given=given)
    assert apply("no-grad-eval", text).fixes
    assert bool(apply("no-grad-eval", text, min_gain=0.005).fixes) is worth


AVERAGE = """
import lightning as L
import torch
from torch import nn


class Average(nn.Module):
    def __init__(self, net):
        super().__init__()
        self.kept = [p.detach().clone() for p in net.parameters()]

    def forward(self, net):
        decay = 0.9
        {mode}
            for kept, p in zip(self.kept, net.parameters()):
                kept.mul_(decay).add_((1 - decay) * p)


class Net(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(64, 1)
        self.average = Average(self.net)

    def training_step(self, batch, n):
        return self.net(batch).square().mean()

    def on_train_batch_end(self, *args, **kwargs):
        self.average(self.net)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-3)


L.Trainer(max_epochs=9, accelerator="gpu").fit(Net(), torch.utils.data.DataLoader(torch.randn(8, 64)))
"""


@pytest.mark.parametrize(("mode", "n"), [("with torch.no_grad():", 0), ("if decay:", 1)])
def test_an_average_below_no_grad_needs_none_around(mode: str, n: int) -> None:
    assert len(apply("no-grad-eval", AVERAGE.format(mode=mode)).fixes) == n


GATHERED = """\
def features(net, rows):
    net.eval()
    found = []
    for i in range(0, len(rows), 8):
        found.append(net(rows[i : i + 8].to(device)))
    return torch.cat(found)
"""


def test_results_that_a_list_gathers() -> None:
    """Whoever reads the list of a function is followed: a probe that trains on what is detached."""
    probe = """\
    feats = features(model, data.tensors[0]).detach()
    head = nn.Linear(3, 3).to(device)
    F.cross_entropy(head(feats), data.tensors[1].to(device)).backward()
    losses.append(head.weight.grad.sum().item())
"""
    check(HEAD + GATHERED + TRAIN + probe, "@torch.no_grad()")


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("return torch.cat(found)", "kept['last'] = found\n    return torch.cat(found)"),
        ("found = []", "found = kept['last'] = []"),
        ("found = []", "found = kept['all']"),
    ],
)
def test_lists_that_others_have_may_be_trained_with(part: str, other: str) -> None:
    changed = "kept = {'all': []}\n" + GATHERED.replace(part, other)
    untouched(HEAD + changed + TRAIN + "    features(model, data.tensors[0])\n")
    trained = "        loss = loss + features(model, x).mean()\n        loss.backward()\n"
    untouched(HEAD + GATHERED + TRAIN.replace("        loss.backward()\n", trained))


POOLED = """\
class Pool(nn.Module):
    def __init__(self):
        super().__init__()
        self.q, self.last, self.keep = nn.Parameter(torch.zeros(4)), None, True

    def forward(self, x):
        w = (x * self.q).softmax(1)
        if self.keep:
            self.last = w
        return w * x

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.pools = nn.ModuleList([Pool() for _ in range(2)])
        self.head = nn.Linear(4, 3)

    def forward(self, x):
        for pool in self.pools:
            x = pool(x)
        return self.head(x)

"""
RIGHT = "    right = 0\n    for x, y in test_loader:\n        right += (model(x.to(device)).argmax(1).cpu() == y).sum().item()\n    losses.append(right)\n"
BEFORE = "        loss.backward()\n"
ENTROPY = "        for pool in model.pools:\n            loss = loss + (pool.last * pool.last.log()).sum(1).mean()\n"
SEEN = "        seen = sum(pool.last.max().item() for pool in model.pools)\n        losses.append(seen)\n"


def pooled(net: str = POOLED, train: str = TRAIN) -> str:
    head = HEAD.replace(
        "model = nn.Sequential", f"{net}model = Net().to(device)\nother = nn.Sequential"
    )
    return (
        head
        + train.replace(
            "loss = F.cross_entropy(model(x), y)",
            "out = model(x)\n        loss = F.cross_entropy(out, y)",
        )
        + RIGHT
    )


@pytest.mark.parametrize("read", [ENTROPY, SEEN, ENTROPY + SEEN])
def test_what_each_pass_of_training_sets_anew(read: str) -> None:
    check(
        pooled(train=TRAIN.replace(BEFORE, read + BEFORE)),
        "with torch.no_grad():" if read != SEEN else "with torch.",
    )


@pytest.mark.parametrize(
    ("part", "other"),
    [
        ("        x = pool(x)", "        x = pool(x) if len(x) > 2 else x"),
        (
            "            x = pool(x)\n",
            "            if torch.rand(1) < 0.5:\n                continue\n            x = pool(x)\n",
        ),
        ("        for pool in self.pools:\n", "        for pool in self.pools[:1]:\n"),
        (
            "        for pool in self.pools:\n            x = pool(x)\n",
            "        x = self.pools[0](x)\n",
        ),
        ("        if self.keep:\n", "        if x.sum() > 0:\n"),
        (
            "            self.last = w\n",
            "            self.last = w if self.last is None else self.last\n",
        ),
    ],
)
def test_what_a_pass_may_leave_from_an_evaluation(part: str, other: str) -> None:
    assert part in POOLED
    text = pooled(POOLED.replace(part, other), TRAIN.replace(BEFORE, ENTROPY + BEFORE))
    refused(text, "may carry a gradient that is needed later")


def test_what_is_read_in_front_of_the_pass() -> None:
    kept = "        kept = sum(pool.last.sum() for pool in model.pools if pool.last is not None)\n"
    train = TRAIN.replace(
        "        optimizer.zero_grad()\n", kept + "        optimizer.zero_grad()\n"
    )
    refused(
        pooled(train=train.replace(BEFORE, "        loss = loss + kept\n" + BEFORE)), "needed later"
    )


def test_what_goes_into_a_tensor_of_the_forward() -> None:
    """``torch.zeros(n).index_add_(...)``: nothing but the result has it."""
    net = POOLED.replace(
        "            self.last = w\n        return w * x",
        "            x = x * 1\n        return torch.zeros(len(x), 4).index_add_(0, torch.arange(len(x)), w * x)",
    )
    assert net != POOLED
    check(pooled(net), "with torch.")


PHASES = """\
losses = []
for epoch in range(2):
    for phase in ["train", "test"]:
        for i, (x, y) in enumerate(loader if phase == "train" else test_loader):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            {test}
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            losses.append(loss.item())
"""


@pytest.mark.parametrize(
    ("test", "switch"),
    [
        ('if phase == "train":', 'phase == "train"'),
        ('if not phase == "test":', 'not phase == "test"'),
        ('if phase == "train" and len(data):', ""),
        ('if phase == "train" and i % 2:', ""),
        ("if loss < 9:", ""),
        ("if True:", ""),
    ],
)
def test_a_loop_that_trains_in_one_of_its_phases(test: str, switch: str) -> None:
    text = HEAD + PHASES.format(test=test)
    if not switch:
        assert not apply("no-grad-eval", text).findings
        return
    done = check(text, f"with torch.set_grad_enabled({switch}):")
    assert "):\n                loss = F.cross_entropy(" in done.text
    assert apply("no-grad-eval", done.text).findings == ()


@pytest.mark.parametrize(
    ("old", "new", "switch"),
    [
        ("", "", "bool(train)"),
        ("train):", "train: bool):", "train"),
        (
            "if train:\n        optimizer",
            "if not train:\n        pass\n    else:\n        optimizer",
            "not (not train)",
        ),
        ("    loss = F", "    optimizer.zero_grad()\n    loss = F", "bool(train)"),
        ("return loss", "return out, loss", "bool(train)"),
    ],
)
def test_a_function_that_trains_in_some_of_its_calls(old: str, new: str, switch: str) -> None:
    text = HEAD + (SOME_CALLS.replace(old, new) if old else SOME_CALLS)
    text = text.replace("loss = step(", "_, loss = step(") if "out, loss" in new else text
    done = check(text, f"with torch.set_grad_enabled({switch}):")
    assert "        out = model(x)" in done.text and "\n    if " in done.text


@pytest.mark.parametrize(
    ("old", "new", "goes"),
    [
        (
            "loss = F.cross_entropy(model(x.to(device)), y.to(device))",
            "loss = 0\n            for part in (0, 4):\n                loss = loss + F.cross_entropy(model(x.to(device))[part:], y.to(device)[part:])",
            True,
        ),
        (
            "loss = F.cross_entropy(model(x.to(device)), y.to(device))",
            "kept = model(x.to(device)) + kept\n            loss = F.cross_entropy(kept, y.to(device))",
            False,
        ),
        (
            "loss = F.cross_entropy(model(x.to(device)), y.to(device))",
            "for part in (0, 4):\n                kept = kept + F.cross_entropy(model(x.to(device))[part:], y.to(device)[part:])\n            loss = kept",
            False,
        ),
        (
            "loss = F.cross_entropy(model(x.to(device)), y.to(device))",
            'if phase == "train":\n                out = model(x.to(device))\n            else:\n                out = y.to(device)[:, None] * torch.ones(3, device=device)\n            loss = F.cross_entropy(out, y.to(device))',
            False,
        ),
    ],
)
def test_what_a_turn_of_a_phase_begins_with(old: str, new: str, goes: bool) -> None:
    text = PHASES.format(test='if phase == "train":').replace(old, new)
    text = text.replace("losses = []", "losses, kept = [], torch.zeros((), device=device)")
    if "kept" in new:
        text = text.replace("loss.backward()", "loss.backward(retain_graph=True)")
    done = apply("no-grad-eval", HEAD + text)
    assert ("set_grad_enabled" in done.text) is goes
    if goes:
        assert run(done.text)["losses"] == run(done.before)["losses"]


SOME_CALLS = """\
def step(x, y, train):
    out = model(x)
    loss = F.cross_entropy(out, y)
    hits = (out.argmax(1) == y).sum()
    if train:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    losses.append(hits.item())
    return loss

losses, kept = [], [torch.zeros((), device=device)]
for epoch in range(2):
    for phase, batches in [("train", loader), ("test", test_loader)]:
        for x, y in batches:
            loss = step(x.to(device), y.to(device), phase == "train")
            losses.append(loss.item())
"""


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("losses.append(loss.item())", "kept[0] = loss\n            losses.append(loss.item())"),
        ("    hits =", "    loss = loss + kept[0]\n    kept[0] = loss\n    hits ="),
        (
            "    hits =",
            "    loss = loss + 0 * model.kept.sum()\n    model.kept = out[:1].sum()\n    hits =",
        ),
        ("    hits =", "    torch.autograd.grad(loss, out, retain_graph=True)\n    hits ="),
        ("    hits =", "    train = train and len(x) > 1\n    hits ="),
        (
            "losses.append(loss.item())",
            "losses.append(loss.item())\n            (loss * 0).backward()",
        ),
        ("if train:", "if train and model.training:"),
    ],
)
def test_a_function_whose_calls_may_need_gradients(old: str, new: str) -> None:
    text = HEAD + SOME_CALLS.replace(old, new)
    if "kept[0] = loss\n " in new:
        text = text.replace(
            "        loss.backward()", "        (loss + kept[0]).backward(retain_graph=True)"
        )
    done = apply("no-grad-eval", text)
    assert "set_grad_enabled" not in done.text


def test_a_sum_over_the_turns_of_all_phases() -> None:
    text = PHASES.format(test='if phase == "train":').replace(
        "            loss = ", "            total = total + "
    )
    text = text.replace("loss.backward()", "total.backward(retain_graph=True)").replace(
        "loss.item", "total.item"
    )
    text = HEAD + text.replace("losses = []", "losses, total = [], torch.zeros((), device=device)")
    assert "set_grad_enabled" not in apply("no-grad-eval", text).text


SHARED_LOSS = """\
class Smooth(nn.Module):
    def forward(self, out, y):
        return F.cross_entropy(out, y, label_smoothing=0.1)

class Experiment:
    def __init__(self):
        self.model, self.parts = model, {"smooth": Smooth(), "plain": nn.CrossEntropyLoss()}
    def loss_of(self, out, y):
        found = {k: part(out, y) for k, part in self.parts.items()}
        return sum(found.values()), found
    def train(self):
        self.model.train()
        for x, y in loader:
            loss, _ = self.loss_of(self.model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())
    def validate(self):
        self.model.eval()
        total = 0.0
        for x, y in test_loader:
            out = self.model(x.to(device))
            loss, _ = self.loss_of(out, y.to(device))
            total += loss
        AFTER
        return total.item() / len(test_loader)

losses = []
experiment = Experiment()
for epoch in range(2):
    experiment.train()
    losses.append(experiment.validate())
"""


def test_a_loss_with_layers_of_its_own_that_training_takes_too() -> None:
    text = HEAD + SHARED_LOSS.replace("        AFTER\n", "")
    done = check(text, "torch.")
    assert len(done.fixes) == 1


@pytest.mark.parametrize(
    "after",
    [
        "total.backward(); optimizer.step()",
        "self.last = total",
        "loss.backward(); optimizer.step(); optimizer.zero_grad()",
    ],
)
def test_a_loss_of_an_evaluation_that_comes_to_a_backward(after: str) -> None:
    used = "if experiment.validate() and hasattr(experiment, 'last'): experiment.last.backward()\n"
    text = HEAD + SHARED_LOSS.replace("AFTER", after) + used
    done = apply("no-grad-eval", text)
    assert run(text)["losses"] == run(done.text)["losses"]
    assert not done.fixes


CRITIC = """\
generator = nn.Linear(4, 4).to(device)
optimizer_g = torch.optim.SGD(generator.parameters(), lr=0.1)
losses = []
for epoch in range(2):
    for x, y in loader:
        real = x.to(device)
        fake = generator(torch.randn(8, 4).to(device)).detach()
        between = ((real + fake) / 2).requires_grad_(True)
        slope = torch.autograd.grad(outputs=model(between).sum(), inputs=between, create_graph=True)[0]
        loss = model(fake).mean() - model(real).mean() + (slope.norm(2, 1) - 1).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        optimizer_g.zero_grad()
        (-model(generator(torch.randn(8, 4).to(device))).mean()).backward()
        optimizer_g.step()
        losses.append(loss.item())
"""


def test_what_a_critic_is_given_beside_a_penalty() -> None:
    """The outputs that are differentiated have a name."""
    done = check(HEAD + CRITIC, "torch.")
    assert [line for line in done.lines if "no_grad" in line or "inference" in line]


# ------------------------------------------------------------------ what nothing trains, in a step
GUIDED = """\
teacher = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(device)
{before}
losses = []
for epoch in range(2):
    for x, y in loader:
        x, y = x.to(device), y.to(device)
        {inside}
        out = model(x)
        wanted = teacher({given})
        loss = F.cross_entropy(out, y) + F.mse_loss(out, wanted)
        optimizer.zero_grad()
        loss.backward()
        {after}
        optimizer.step()
        losses.append(loss.item())
"""


def guided(before: str = "", inside: str = "pass", given: str = "x", after: str = "pass") -> str:
    return HEAD + GUIDED.format(before=before, inside=inside, given=given, after=after)


LAYERS = """\
def made(layer):
    nn.init.xavier_uniform_(layer.weight)
    return layer
"""


@pytest.mark.parametrize(
    "text",
    [
        guided(),
        guided(after="nn.utils.clip_grad_norm_(model.parameters(), 0.1)"),
        guided(after="losses.append(sum(p.grad.norm().item() for p in model.parameters()))"),
        guided("nn.init.orthogonal_(teacher[0].weight, 0.5)\nnn.init.zeros_(tensor=teacher[0].bias)"),
        guided().replace("teacher = nn.Sequential(nn.Linear(4, 8)", LAYERS + "teacher = nn.Sequential(made(nn.Linear(4, 8))"),
    ],
)  # fmt: skip
def test_a_network_that_nothing_trains(text: str) -> None:
    done = check(text, "with torch.no_grad():")
    assert done.text.count("no_grad") == 1


ALL = "[*model.parameters(), *teacher.parameters()]"


@pytest.mark.parametrize(
    "text",
    [
        guided("optimizer.add_param_group({'params': teacher.parameters()})"),
        guided("other = torch.optim.SGD(teacher.parameters(), lr=0.1)"),
        guided("other = __import__('lib').optimizer(teacher)", after="other.step()"),
        guided("teacher[2] = model[2]"),
        guided("teacher[2].weight = model[2].weight"),
        guided("for p, q in zip(teacher[2].parameters(), model[2].parameters()):\n    p.data = q.data", after="teacher[2].bias.grad"),
        guided("teacher = model"),
        guided().replace("teacher = nn.Sequential(", "teacher = nn.Sequential(nn.TransformerEncoderLayer(4, 1, 8), "),
        guided(inside="x.requires_grad_()", after="losses.append(x.grad.norm().item())"),
        guided(given="model[1](model[0](x))[:, :4]"),
        guided(after="losses.append(teacher[0].weight.grad.norm().item())"),
        guided(after="losses.append(sum(p.grad.norm().item() for m in (model, teacher) for p in m.parameters()))"),
        guided(after=f"nn.utils.clip_grad_norm_({ALL}, 0.1)"),
        guided(after="nn.utils.clip_grad_norm_((p for m in (model, teacher) for p in m.parameters()), 0.1)"),
        guided(after="for p in teacher.parameters():\n            p.data.sub_(p.grad)"),
        guided("teacher[0].register_full_backward_hook(lambda m, i, o: losses.append(o[0].sum().item()))"),
        guided(after="with torch.no_grad():\n            [p.add_(getattr(p, 'grad'), alpha=-0.1) for p in teacher.parameters()]"),
        guided("teacher.requires_grad_(False)"),
        guided("w = nn.Parameter(torch.ones(3, device=device))\noptimizer.add_param_group({'params': [w]})").replace("teacher(x)", "teacher(x) * w"),
        guided("optimizer = torch.optim.SGD([*model.parameters(), teacher[2].bias], lr=0.1)"),
        guided("optimizer.add_param_group({'params': [teacher[2].weight]})"),
        guided("optimizer.add_param_group({'params': [nn.init.zeros_(teacher[2].weight)]})"),
        guided("w = nn.init.zeros_(teacher[2].weight)\noptimizer.add_param_group({'params': [w]})"),
        guided("teacher.register_parameter('more', model[2].weight)"),
        guided().replace("F.mse_loss(out, wanted)", "F.mse_loss(out, wanted * model[2].bias)"),
        guided().replace("wanted = teacher(x)", "wanted = teacher(x)\n        wanted.register_hook(print)"),
        guided(after="losses.append(torch.autograd.grad(F.mse_loss(teacher(x), wanted), wanted)[0].sum().item())"),
        guided().replace("wanted = teacher(x)", "wanted = teacher(x) + model(x)"),
        guided("nn.ReLU.forward = lambda _, x: F.relu(x) * (2 if torch.is_grad_enabled() else 1)"),
        guided("nn.ReLU.forward = lambda _, x: F.relu(x) * (2 if x.requires_grad else 1)"),
        guided("optimizer.add_param_group({'params': [teacher.state_dict(keep_vars=True)['0.weight']]})"),
    ],
)  # fmt: skip
def test_a_network_that_something_trains_or_whose_gradients_are_seen(text: str) -> None:
    untouched(text)


PREDICTS = """\
import numpy as np
import torch
from torch import nn

torch.manual_seed(0)
data = np.random.default_rng(0).normal(size=(24, 4))


class Forecast(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Linear(4, 1)
        self.optimizer = torch.optim.SGD(self.net.parameters(), lr=0.1)
        self.losses = []

    def train(self):
        for epoch in range(20):
            for i in range(0, 24, 8):
                loss = self.net(torch.from_numpy(data[i : i + 8]).float()).square().mean()
                self.optimizer.zero_grad()
                loss.backward()
                self.optimizer.step()
                self.losses.append(loss.item())
            if epoch % 2 == 0:
                first = self.test(8)
                second = self.test(16)
                self.losses.append(float(np.concatenate((first, second)).sum()))

    def test(self, n):
        made = np.zeros(n)
        i = 0
        while i < n:
            made[i : i + 8] = self.net(torch.from_numpy(data[i : i + 8]).float()).detach().numpy()[:, 0]
            i += 8
        return made


model = Forecast()
model.train()
made = model.test(24)
losses = [*model.losses, made.sum()]
"""


def test_one_decorator_for_all_calls_of_a_function() -> None:
    done = check(PREDICTS, "@torch.")
    assert len(done.lines) == 1 and "no_grad():" not in done.text.split("def train")[1][:900]


@pytest.mark.parametrize(
    ("old", "new"), [("return made", "yield made"), ("def test(", "def forward(")]
)
def test_blocks_where_a_function_may_be_called_elsewhere(old: str, new: str) -> None:
    text = PREDICTS.replace(old, new)
    if "yield" in new:
        text = text.replace("self.test(8)", "next(self.test(8))").replace(
            "self.test(16)", "next(self.test(16))"
        )
        text = text.replace("model.test(24)", "next(model.test(24))")
    if "forward" in new:
        text = text.replace("self.test(", "self(").replace("model.test(", "model(")
    done = apply("no-grad-eval", text)
    assert not any(line.startswith("@torch") for line in done.lines)


@pytest.mark.parametrize(
    "hook",
    [
        "model.net.register_forward_hook(lambda m, i, o: kept.append(o))",
        "model.net.register_forward_pre_hook(lambda m, i: kept.extend(i))",
        "torch.nn.modules.module.register_module_forward_hook(lambda m, i, o: kept.append(o))",
    ],
)
def test_a_hook_may_keep_what_a_method_computes(hook: str) -> None:
    text = PREDICTS.replace("model.train()", f"kept = []\n{hook}\nmodel.train()")
    refused(text, "registers a hook")


def test_a_layer_of_the_project_keeps_what_its_library_class_computes() -> None:
    layer = """class Kept(nn.Linear):
    total = 0

    def forward(self, x):
        out = super().forward(x)
        self.total = self.total + out.abs().mean()
        return out


class Forecast("""
    text = PREDICTS.replace("class Forecast(", layer).replace("nn.Linear(4, 1)", "Kept(4, 1)")
    trained = "loss = self.test(8).sum() * 0 + self.net("
    text = text.replace("loss = self.net(", trained)
    text = text.replace(".square().mean()", ".square().mean() + 0.1 * self.net.total")
    text = text.replace("loss.backward()", "self.net.total = 0\n                loss.backward()")
    done = apply("no-grad-eval", text)
    assert run(text)["losses"] == run(done.text)["losses"]


@pytest.mark.parametrize("more", ["with torch.no_grad():\n    ", "print(model.test)\n"])
def test_a_method_that_gives_no_tensor_whoever_calls_it(more: str) -> None:
    text = PREDICTS.replace("made = model.test(24)", more + "made = model.test(24)")
    assert "    @torch.inference_mode()\n    def test" in check(text, "@torch.").text


WRITES = """\
import torch
from torch import nn

torch.manual_seed(0)
letters = "abcd"
cell = nn.GRUCell(4, 8)
head = nn.Linear(8, 4)
optimizer = torch.optim.SGD([*cell.parameters(), *head.parameters()], lr=0.1)
losses = []


def write(begin, length):
    text = begin
    hidden = torch.zeros(1, 8)
    for _ in range(length):
        hidden = cell(torch.eye(4)[:1], hidden)
        text += letters[int(head(hidden).argmax())]
    return text


for epoch in range(4):
    hidden = torch.zeros(4, 8)
    loss = 0
    for step in range(3):
        hidden = cell(torch.eye(4), hidden)
        loss += head(hidden).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    losses.append(write("START", 5))
"""


@pytest.mark.parametrize("begin", ["", "a"])
def test_text_is_written_beside_a_loss_that_begins_with_zero(begin: str) -> None:
    """No backward is of the number, and what is added to a text is no tensor."""
    check(WRITES.replace("START", begin), "torch.")


def test_a_pass_of_a_function_that_runs_once() -> None:
    """It is shown a sample behind the training, in no loop."""
    shown = "def show(x):\n    return model(x).argmax(1).tolist()\n\n\n"
    text = HEAD + shown + TRAIN + "print(show(torch.zeros(2, 4)), show(torch.ones(2, 4)))\n"
    assert apply("no-grad-eval", text).fixes
    assert not apply("no-grad-eval", text, min_gain=0.01).fixes


PENALISED = """
import torch
from torch import nn

device = torch.device("cuda")
generator = nn.Sequential(LAYERS).to(device)
critic = nn.Sequential(LAYERS).to(device)
optimizer = torch.optim.Adam(critic.parameters())
for step in range(9000):
    fake = generator(torch.randn(8, 3, 16, 16, device=device)).detach()
    loss = critic(fake).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""


@pytest.mark.parametrize(
    ("layers", "worth"), [("nn.Conv2d(3, 3, 3)", False), ("nn.Linear(16, 16), nn.ReLU()", True)]
)
def test_what_is_detached_at_once(layers: str, worth: bool) -> None:
    """Nothing of it is kept: launches are saved, which a GPU with images does not wait for."""
    text = PENALISED.replace("LAYERS", layers)
    assert bool(apply("no-grad-eval", text, min_gain=0.01).fixes) is worth


# ----------------------------------------------- acting beside a loss of a number that is trained
def test_an_encoder_has_other_kernels_without_gradients() -> None:
    """Those leave out what is padded: its outputs are zeros, and the loss may count them."""
    encoder = (
        "nn.TransformerEncoder(nn.TransformerEncoderLayer(4, 1, 8, 0.0, batch_first=True), 1), "
    )
    text = HEAD.replace("nn.Sequential(", f"nn.Sequential({encoder}")
    for part in ("    with torch.no_grad():\n", ""):
        there = (
            EVALUATE if part else EVALUATE.replace("    with torch.no_grad():\n", "    if True:\n")
        )
        done = apply("no-grad-eval", text + there + TRAIN + CALL)
        assert bool(done.fixes) is bool(part)
        assert part or "an encoder, which takes other kernels without gradients" in str(
            done.refusals
        )


@pytest.mark.parametrize("whole", [True, False])
def test_an_encoder_without_nested_tensors_only_rounds(whole: bool) -> None:
    encoder = "nn.TransformerEncoderLayer(4, 1, 8, 0.0, batch_first=True), "
    if whole:
        encoder = f"nn.TransformerEncoder({encoder}1, enable_nested_tensor=False), "
    text = HEAD.replace("nn.Sequential(", f"nn.Sequential({encoder}")
    there = EVALUATE.replace("    with torch.no_grad():\n", "    if True:\n")
    done = apply("no-grad-eval", text + there + TRAIN + CALL)
    assert [f.effect for f in done.fixes] == [Effect.ROUNDING]
    one, other = (run(t)["losses"] for t in (text + there + TRAIN + CALL, done.text))
    assert one == pytest.approx(other, rel=1e-4)
    subclass = "class Own(nn.TransformerEncoder):\n    pass\n\n\n"
    own = text.replace("model =", f"{subclass}model =").replace("nn.TransformerEncoder(", "Own(")
    assert bool(apply("no-grad-eval", own + there + TRAIN + CALL).fixes) is not whole


SOFT = """\
import torch
import torch.nn as nn
from torch.distributions import Normal

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Actor(nn.Module):
    def __init__(self):
        super().__init__()
        self.body, self.mean, self.log_std = nn.Linear(3, 8), nn.Linear(8, 2), nn.Linear(8, 2)

    def forward(self, x):
        h = torch.relu(self.body(x))
        return self.mean(h), self.log_std(h).clamp(-5, 2)

    def get_action(self, x):
        mean, log_std = self(x)
        normal = Normal(mean, log_std.exp())
        drawn = normal.rsample()
        return torch.tanh(drawn), normal.log_prob(drawn).sum(1, keepdim=True), torch.tanh(mean)


actor, critic = Actor().to(device), nn.Linear(5, 1).to(device)
optimizer = torch.optim.Adam(actor.parameters(), lr=1e-2)
log_alpha = torch.zeros(1, requires_grad=True, device=device)
alpha_optimizer = torch.optim.Adam([log_alpha], lr=1e-2)
alpha, losses, kept, obs = 1.0, [], [], torch.ones(3)


def evaluate(actor):
    total, seen = 0.0, torch.ones(3)
    for _ in range(4):
        _, _, action = actor.get_action(seen[None].to(device))
        seen = seen + action.detach().cpu()[0].sum()
        total += float(seen.sum())
    return total


for step in range(6):
    action, _, _ = actor.get_action(obs[None].to(device))
    obs = torch.cat([action.detach().cpu()[0], obs[:1]])
    states = obs.repeat(4, 1).to(device) + step
    drawn, log_prob, _ = actor.get_action(states)
    loss = (alpha * log_prob - critic(torch.cat([states, drawn], 1))).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    with torch.no_grad():
        _, log_prob, _ = actor.get_action(states)
    alpha_loss = (-log_alpha.exp() * (log_prob - 2.0)).mean()
    alpha_optimizer.zero_grad()
    alpha_loss.backward()
    alpha_optimizer.step()
    alpha = log_alpha.exp().item()
    losses += [loss.item(), alpha]
    if step % 2 == 0:
        losses.append(evaluate(actor))
"""
ACT = "    action, _, _ = actor.get_action(obs[None].to(device))\n"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # the action trains after all
        ("    loss = (alpha", "    loss = action.mean() + (alpha"),
        # it is kept with its gradient, and trained with later
        (ACT, f"{ACT}    kept.append(action.mean())\n"),
        ("    obs = torch.cat([action.detach().cpu()[0]", "    obs = torch.cat([action.cpu()[0]"),
        (ACT, f"{ACT}    actor.last = action\n"),
        # another name for it
        (ACT, f"{ACT}    again = action\n    kept += [again.mean()]\n"),
        # what is not known gets it
        (ACT, f"{ACT}    __import__('gc').freeze() or vars().get('learn', print)(action)\n"),
        # hooks see what the layers give
        ("alpha, losses", "actor.body.register_forward_hook(lambda m, i, o: kept.append(o))\nalpha, losses"),
    ],
)  # fmt: skip
def test_acting_that_may_train(old: str, new: str) -> None:
    assert old in SOFT
    text = SOFT.replace(").mean()\n    optimizer.", ").mean() + sum(kept)\n    optimizer.")
    done = apply("no-grad-eval", text.replace(old, new))
    assert f"inference_mode():\n    {ACT}" not in done.text
    assert f"no_grad():\n    {ACT}" not in done.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("", ""),
        # nobody wants what a helper gives, either
        ("losses += [loss", "mean = actor.get_action(states)[0].mean()\n    losses += [mean.item(), loss"),
        (ACT, f"    if step > 1:\n    {ACT}    else:\n        action = torch.zeros(1, 2)\n"),
        (".detach().cpu()", ".cpu().data"),
        # it is kept, and set anew by the pass that is trained
        ("        drawn = normal.rsample()\n", "        drawn = self.last = normal.rsample()\n"),
    ],
)  # fmt: skip
def test_acting_in_a_loop_that_trains_the_same_method(old: str, new: str) -> None:
    done = check(SOFT.replace(old, new), "with torch.inference_mode():")
    assert re.search(rf"torch.inference_mode\(\):\n +{re.escape(ACT.strip())}", done.text)


BESIDE = """\
class Agent:
    def __init__(self, model):
        self.model = model

    def act(self, obs):
        {}
        return action.detach()


agent = Agent(actor)
"""


@pytest.mark.parametrize(
    ("act", "more", "fits"),
    [
        ("action = self.model.get_action(obs[None])[0]", "0", True),
        ("action = self.kept = self.model.get_action(obs[None])[0]", "agent.kept.sum()", False),
        ("action = self.model.get_action(obs[None])[0]", "locals()['action'].sum()", False),
        ("action = self.model.get_action(obs[None])[0]", "agent.act(obs).sum()", True),
    ],
)
def test_agents_that_act_beside_the_training(act: str, more: str, fits: bool) -> None:
    text = SOFT.replace("for step in range(6)", f"{BESIDE.format(act)}\n\nfor step in range(6)")
    text = text.replace(ACT, "    action = agent.act(obs)\n")
    text = text.replace("    loss = (alpha", f"    loss = {more} + (alpha")
    done = apply("no-grad-eval", text)
    assert ("        action = agent.act(obs)" in done.text) is fits
    assert run(text)["losses"] == run(done.text)["losses"]


def test_an_evaluation_whose_result_trains() -> None:
    text = SOFT.replace("total += float(seen.sum())", "total = total + action.sum()")
    text = text.replace("losses.append(evaluate(actor))", "kept.append(evaluate(actor))")
    text = text.replace(
        "    optimizer.zero_grad()\n", "    loss = loss + sum(kept)\n    optimizer.zero_grad()\n"
    )
    assert "\n\ndef evaluate(actor):\n" in text and "\n    for _ in range(4):" in text
    done = apply("no-grad-eval", text)
    assert "\n\ndef evaluate(actor):\n" in done.text and "\n    for _ in range(4):" in done.text


ENV = """\
class Env:
    def __init__(self, seed):
        self.rng = np.random.default_rng(seed)

    def reset(self):
        self.at, self.turns = self.rng.normal(size=3).astype(np.float32), 0
        return self.at

    def step(self, action):
        self.at, self.turns = self.at + action.mean(), self.turns + 1
        return self.at, float(self.at.sum()), self.turns > 4


def evaluate(actor):
    env, total, done = Env(3), 0.0, False
    obs = env.reset()
    while not done:
        _, _, action = actor.get_action(torch.Tensor(obs[None]).to(device))
        obs, reward, done = env.step(action.detach().cpu().numpy()[0])
        total += reward
    return total
"""


def in_env() -> str:
    before, after = SOFT.index("def evaluate"), SOFT.index("\n\nfor step in range(6)")
    return "import numpy as np\n" + SOFT[:before] + ENV + SOFT[after:]


def test_an_evaluation_beside_a_loss_without_a_network() -> None:
    """No backward but that of the temperature, which no network has a part in, stands in its
    loop's way.
    """
    done = check(in_env(), "@torch.no_grad()")
    assert "@torch.no_grad()\ndef evaluate(actor):" in done.text


def test_what_a_loss_is_computed_of_may_be_a_number_that_was_read() -> None:
    text = in_env().replace("log_prob - 2.0", "log_prob + entropy")
    entropy = "entropy = -torch.prod(actor.mean.weight.sum() * torch.ones(2)).item()\n"
    check(text.replace("alpha, losses", f"{entropy}alpha, losses"), "@torch.no_grad()")


@pytest.mark.parametrize(
    "new",
    [
        "(-log_alpha.exp() * learn(log_prob)).mean()",
        "learn(log_alpha)",
        "(-log_alpha.exp() * (log_prob - 2.0)).mean() + sum(kept)",
    ],
)
def test_an_evaluation_beside_a_loss_that_is_not_known(new: str) -> None:
    text = in_env().replace("(-log_alpha.exp() * (log_prob - 2.0)).mean()", new)
    done = apply("no-grad-eval", "from unknown import learn\n" + text)
    assert "\n\ndef evaluate(actor):\n" in done.text and "_mode():\n    while" not in done.text


ACTED = """\
import torch
import torch.nn as nn
from collections import namedtuple
from dataclasses import dataclass
from torch.distributions import Categorical
from types import SimpleNamespace

torch.manual_seed(0)
net = nn.Linear(4, 3)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
store, space, Turn, losses = [], SimpleNamespace(), namedtuple("Turn", "given made"), []


@dataclass
class Step:
    made: object


class Pool(list):
    pass


pool = Pool()


def act(given):
    made = Categorical(logits=net(given))
    {keep}
    return made.sample()


for step in range(4):
    given = torch.randn(8, 4)
    action = act(given)
    loss = -({back}.log_prob(action)).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


@pytest.mark.parametrize(
    ("keep", "back"),
    [
        ("store.append(made)", "store[-1]"),
        ("store.append(Step(made))", "store[-1].made"),
        ("store.append(Turn(given, made))", "store[-1].made"),
        ("store.append(lambda: made)", "store[-1]()"),
        ("space.made = made", "space.made"),
        ("pool.append(made)", "pool[-1]"),
    ],
)
@pytest.mark.parametrize("turns", [1, 3])
def test_what_is_kept_of_an_action_holds_its_graph(keep: str, back: str, turns: int) -> None:
    """Also in a loop of its own, as of a rollout."""
    text = ACTED.format(keep=keep, back=back)
    if turns > 1:
        text = text.replace(
            "    action = act(given)\n",
            f"    for turn in range({turns}):\n        action = act(given)\n",
        )
    done = apply("no-grad-eval", text)
    assert run(done.text)["losses"] == run(text)["losses"]
    assert "action = act" in done.text and "no_grad" not in done.text


DOUBLE = """\
online = nn.Linear(4, 3).to(device)
target = copy.deepcopy(online)
optimizer = torch.optim.SGD(online.parameters(), lr=0.1)


def learn(states, others):
    q = online(states).gather(1, torch.zeros(len(states), 1, dtype=torch.long, device=device))
    best = online(others).argmax(1, keepdim=True)
    wanted = 1 + 0.9 * target(others).gather(1, best).detach()
    loss = F.smooth_l1_loss(q, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss.item()


losses = []
for step in range(1, 9):
    state = torch.randn(8, 4).to(device)
    if step > 2 and step % 2 == 0:
        losses.append(learn(state, state + 1))
"""


def test_a_choice_in_each_step_that_trains_is_not_seldom() -> None:
    text = HEAD.replace("import torch\n", "import copy\nimport torch\n", 1) + DOUBLE
    done = check(text, "best = online(others).argmax(1, keepdim=True)")
    assert "    with torch.no_grad():\n        best = online(others)" in done.text
    call = "        losses.append(learn(state, state + 1))\n"
    shown = text.replace(call, f"        shown = online(state)\n{call[4:]}")
    assert "        shown = online(state)\n" in apply("no-grad-eval", shown).text
