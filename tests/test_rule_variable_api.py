"""variable-api: Variable, volatile, ``loss.data[0]`` and size_average, and what must not be told
apart.
"""

from __future__ import annotations

import warnings

import pytest

from tests.onerule import Applied, apply, run

SCRIPT = """\
import numpy as np
import torch
import torch.nn.functional as F
from torch.autograd import Variable
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
loader = DataLoader(TensorDataset(torch.randn(12, 4), torch.randint(0, 2, (12,))), batch_size=4)
losses = []
for inputs, targets in loader:
    {body}
    loss = F.cross_entropy(model(inputs), targets)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


def script(body: str, more: str = "") -> str:
    return SCRIPT.format(body=body.replace("\n", "\n    ")) + more


def both(text: str, **given: object) -> Applied:
    """The rewrite, after the two texts have computed the same."""
    done = apply("variable-api", text)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before, after = run(text, **given), run(done.text, **given)
    assert before["losses"] == after["losses"]
    assert all(
        bool((p == q).all())
        for p, q in zip(before["model"].parameters(), after["model"].parameters(), strict=True)
    )
    return done


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        ("inputs, targets = Variable(inputs), Variable(targets)", []),
        ("inputs = Variable(inputs)\ntargets = Variable(targets, requires_grad=False)", []),
        (
            "inputs, targets = Variable(inputs.float()), Variable(data=targets)",
            ["inputs, targets = inputs.float(), targets"],
        ),
        ("inputs = torch.autograd.Variable(inputs, volatile=False) * 2", ["inputs = inputs * 2"]),
        (
            "x = Variable(torch.zeros(4, 4).fill_(2.0), False)\ninputs = inputs + x",
            ["x = torch.zeros(4, 4).fill_(2.0)"],
        ),
        ("if True:\n    inputs = Variable(inputs)", []),
        (  # sums, sizes of parts and rows that are set hold no tensor object
            "noise = torch.zeros(inputs.size())\nfor n in range(noise.size()[0]):\n"
            "    noise[n, :] = torch.zeros(noise[0, :].size()).fill_(0.5)\n"
            "noisy = inputs + noise\nnoise = Variable(noise.cpu())\n"
            "inputs, noisy = Variable(inputs.cpu()), Variable(noisy.cpu())\n"
            "noisy.unsqueeze_(0)\ninputs = noisy[0] - noise",
            ["noise = noise.cpu()", "inputs, noisy = inputs.cpu(), noisy.cpu()"],
        ),
    ],
)
def test_a_variable_of_a_batch_is_the_batch(body: str, lines: list[str]) -> None:
    done = both(script(body))
    assert done.lines == lines
    assert "Variable(" not in done.text


def test_the_import_goes_with_the_last_use() -> None:
    assert (
        "import Variable"
        not in both(script("inputs, targets = Variable(inputs), Variable(targets)")).text
    )


def test_what_has_a_graph_is_detached() -> None:
    body = "out = model(inputs)\nfake = Variable(out)\ninputs = inputs + fake.sum() * 0.1"
    assert "fake = out.detach()" in both(script(body)).text


def test_a_parameter_is_detached() -> None:
    done = both(script("w = Variable(model.weight)\ninputs = inputs + w.sum() * 0.1"))
    assert "w = model.weight.detach()" in done.text


def test_asking_for_gradients_makes_a_leaf_of_its_own() -> None:
    body = "x = Variable(inputs, requires_grad=True)\nmodel(x).sum().backward()\ninputs = inputs + x.grad\nassert not inputs.requires_grad"
    done = both(script(body))
    assert "x = inputs.detach().requires_grad_()" in done.text


def test_what_a_parameter_asks_stays_for_others_who_call() -> None:
    helper = "def to_var(x, grad=False):\n    return Variable(x.cpu(), requires_grad=grad)\n\n\nlosses = []"
    text = script("inputs = to_var(inputs)").replace("losses = []", helper)
    done = both(text)
    assert "return x.cpu().detach().requires_grad_(grad)" in done.text
    done = run(done.text + "assert to_var(inputs, True).requires_grad\n")


def test_a_new_tensor_is_asked_itself() -> None:
    body = "x = Variable(torch.ones(4, 4), requires_grad=True)\nmodel(x).sum().backward()\ninputs = inputs + x.grad"
    assert "x = torch.ones(4, 4).requires_grad_()" in both(script(body)).text


def test_a_flag_that_is_not_known_is_passed_on() -> None:
    text = script("x = Variable(inputs, requires_grad=asks)\ninputs = x * 1.0").replace(
        "losses = []", "import sys\nasks = len(sys.argv) > 0\nlosses = []"
    )
    assert "x = inputs.detach().requires_grad_(asks)" in both(text).text


@pytest.mark.parametrize(
    "told",
    [
        "y.requires_grad_()\nassert not inputs.requires_grad",
        "y.unsqueeze_(0)\nassert inputs.dim() == 2",
        "y.mul_(model.weight.sum())\nassert not inputs.requires_grad",
        "y[0] = model.weight.sum()\nassert not inputs.requires_grad",
        "y += model.weight.sum()\nassert not inputs.requires_grad",
        "y.data = torch.ones(1)\nassert inputs.dim() == 2",
        "y.tag = 1\nassert not hasattr(inputs, 'tag')",
        "assert y is not inputs",
    ],
)
def test_a_second_object_stays_one_where_it_can_be_told_apart(told: str) -> None:
    done = both(script("y = Variable(inputs)\n" + told + "\ninputs = inputs.detach()"))
    assert "y = inputs.detach()" in done.text


@pytest.mark.parametrize(
    ("body", "line"),
    [
        ("inputs = Variable(inputs.cpu())", "inputs = inputs.cpu()"),
        (
            "n = inputs.size(0)\ninputs, targets = Variable(inputs.cpu()), Variable(targets.cpu())",
            "inputs, targets = inputs.cpu(), targets.cpu()",
        ),
        ("x = torch.ones(4, 4)\nx = Variable(x.cpu(), requires_grad=False)", "x = x.cpu()"),
        ("x = Variable(-inputs.data)", "x = -inputs.data"),
        ("x = Variable(inputs.data.new(3, 2).zero_())", "x = inputs.data.new(3, 2).zero_()"),
        (
            "x = Variable(torch.atan2(inputs.data, inputs))",
            "x = torch.atan2(inputs.data, inputs)",
        ),
        ("x = Variable(inputs[1:3])", "x = inputs[1:3]"),
        ("x = Variable(inputs[1:3].view(-1))", "x = inputs[1:3].view(-1)"),
    ],
)
def test_what_nothing_else_holds_needs_no_second_object(body: str, line: str) -> None:
    """Though tensors of its kind are told apart elsewhere in the script."""
    done = both(script(body, "state = torch.ones(2, 2)\nstate.unsqueeze_(0)\n"))
    assert done.lines == [line]


@pytest.mark.parametrize(
    "body",
    [
        "kept = inputs\ninputs = Variable(inputs.cpu())\nkept.unsqueeze_(0)",
        "kept = inputs[:]\nkept, inputs = inputs, Variable(inputs.cpu())\nkept.unsqueeze_(0)",
        "pair = [inputs, targets]\ninputs = Variable(inputs.cpu())\npair[0].unsqueeze_(0)",
        "y = Variable(inputs.cpu())\nassert y.unsqueeze_(0).dim() > inputs.dim()",
    ],
)
def test_what_something_else_may_hold_gets_one(body: str) -> None:
    assert "inputs.cpu().detach()" in both(script(body)).text


@pytest.mark.parametrize(
    "body",
    [
        "x = Variable(torch.mul(model(inputs), 2.0))",
        "x = Variable(model(inputs)[1:])",
        "x = Variable(torch.reshape(inputs, (4, 4)))\nx.unsqueeze_(0)\nassert inputs.dim() == 2",
    ],
)
def test_what_has_a_graph_or_may_be_the_same_object_is_detached(body: str) -> None:
    line = both(script(body)).lines[0]
    assert line.startswith("x = ") and line.endswith(".detach()")


def test_a_name_without_a_value_tells_nothing() -> None:
    more = "for k in range(2):\n    if k == 0:\n        w = model.weight.sum()\n    else:\n        w += model.weight.sum()\n"
    done = both(script("y = Variable(inputs.cpu())\ninputs = y * 1.0", more))
    assert "y = inputs.cpu()\n" in done.text


def test_writing_plain_values_tells_nothing_apart() -> None:
    assert "y = inputs\n" in both(script("y = Variable(inputs)\ny.mul_(2.0)\ny[0] = 0.0")).text


def test_volatile_goes_and_what_it_meant_is_said() -> None:
    text = script(
        "inputs = Variable(inputs)",
        "for inputs, targets in loader:\n    inputs = Variable(inputs, volatile=True)\n    losses.append(model(inputs).sum().item())\n",
    )
    done = both(text)
    assert "volatile" not in done.text and "torch.no_grad()" in done.advice


def test_volatile_below_no_grad_needs_no_advice() -> None:
    text = script(
        "inputs = Variable(inputs)",
        "with torch.no_grad():\n    for inputs, targets in loader:\n        out = model(Variable(inputs, volatile=True))\n        losses.append(out.sum().item())\n",
    )
    done = both(text)
    assert "out = model(inputs)" in done.text and not done.advice


def test_isinstance_asks_for_a_tensor() -> None:
    done = both(script("assert isinstance(inputs, Variable)"))
    assert "isinstance(inputs, torch.Tensor)" in done.text and "import Variable" not in done.text


# ------------------------------------------------------------------------------------------ imports
def test_a_use_as_a_value_keeps_the_import() -> None:
    done = both(
        script("inputs, targets = map(Variable, (inputs, targets))\ninputs = Variable(inputs)")
    )
    assert (
        "import Variable" in done.text
        and "as a value" in done.refusals
        and "= Variable(" not in done.text
    )


def test_an_ignored_place_keeps_the_import() -> None:
    done = both(
        script(
            "inputs = Variable(inputs)  # autofast: ignore[variable-api]\ntargets = Variable(targets)"
        )
    )
    assert (
        "import Variable" in done.text
        and "inputs = Variable(inputs)" in done.text
        and "Variable(targets)" not in done.text
    )


def test_other_names_of_the_import_stay() -> None:
    text = script("inputs = V(inputs)").replace("import Variable", "import Variable as V, grad")
    assert "from torch.autograd import grad\n" in both(text).text


def test_an_import_that_another_file_takes_from_here_stays() -> None:
    files = {
        "tools.py": "from torch.autograd import Variable\n\ndef wrap(x):\n    return Variable(x)\n"
    }
    text = script("inputs = wrap(inputs)\ntargets = Variable(targets)").replace(
        "from torch.autograd import Variable", "from tools import Variable, wrap"
    )
    done = apply("variable-api", text, files=files)
    assert (
        "from torch.autograd import Variable" in done.texts["tools.py"]
        and "return x\n" in done.texts["tools.py"]
    )
    assert "Variable(targets)" not in done.text


def test_an_import_that_another_file_may_take_as_an_attribute_stays() -> None:
    tools = "from torch.autograd import Variable\n\ndef wrap(x):\n    return Variable(x)\n"
    text = script("inputs = tools.wrap(inputs)\nassert tools.Variable is not None").replace(
        "from torch.autograd import Variable", "import tools"
    )
    done = apply("variable-api", text, files={"tools.py": tools})
    assert "return x\n" in done.texts["tools.py"]
    assert "import Variable" in done.texts["tools.py"]


@pytest.mark.parametrize(
    ("between", "goes"),
    [
        ("from tools import wrap\n", True),
        ("from tools import *\n", False),
        ("from tools import Variable, wrap\n", False),
    ],
)
def test_a_star_takes_the_names_of_its_own_module(between: str, goes: bool) -> None:
    tools = "from torch.autograd import Variable\n\ndef wrap(x):\n    return Variable(x)\n"
    text = script("inputs = wrap(inputs)").replace(
        "from torch.autograd import Variable", "from between import *"
    )
    done = apply("variable-api", text, files={"tools.py": tools, "between.py": between})
    assert "return x\n" in done.texts["tools.py"]
    assert ("import Variable" not in done.texts["tools.py"]) == goes


def test_code_that_is_not_reached_stays_with_its_import() -> None:
    tools = "from torch.autograd import Variable\n\ndef used(x):\n    return Variable(x)\n\ndef unused(x):\n    return Variable(x)\n"
    text = script("inputs = used(inputs)").replace(
        "from torch.autograd import Variable", "from tools import used"
    )
    done = apply("variable-api", text, files={"tools.py": tools})
    assert (
        done.texts["tools.py"] == tools.replace("return Variable(x)", "return x", 1)
        and not done.refusals
    )


def test_a_function_that_is_called_from_elsewhere_is_given_anything() -> None:
    assert (
        "return x.detach()"
        in both(script("inputs = Variable(inputs)", "def other(x):\n    return Variable(x)\n")).text
    )


def test_another_class_of_that_name_is_not_meant() -> None:
    text = script("inputs = Variable(inputs).value").replace(
        "from torch.autograd import Variable",
        "class Variable:\n    def __init__(self, value):\n        self.value = value",
    )
    assert not apply("variable-api", text).findings


@pytest.mark.parametrize("call", ["Variable(*(inputs,))", "Variable(**{'data': inputs})"])
def test_arguments_that_are_not_spelled_out(call: str) -> None:
    done = apply("variable-api", script(f"inputs = {call}"))
    assert not done.fixes and "not spelled out" in done.refusals


# ------------------------------------------------------------------------------------- loss.data[0]
@pytest.mark.parametrize(
    "made",
    [
        "loss",
        "(loss + loss) / 2",
        "model(inputs).mean()",
        "torch.sum(model(inputs))",
        "F.mse_loss(inputs, inputs * 2)",
    ],
)
def test_the_number_of_a_loss(made: str) -> None:
    text = script("pass", f"value = {made}\nlosses.append(value.data[0])\n")
    done = apply("variable-api", text)
    assert "losses.append(value.item())" in done.text
    with pytest.raises(IndexError):
        run(text)
    assert isinstance(run(done.text)["losses"][-1], float)


@pytest.mark.parametrize(
    "read",
    [
        "value.data.tolist()[0]",
        "value.data.cpu()[0]",
        "value.cpu().data.numpy()[0]",
        "value.detach().numpy()[0]",
    ],
)
def test_the_number_of_a_loss_by_way_of_the_host(read: str) -> None:
    text = script("pass", f"value = model(inputs).mean()\nlosses.append({read})\n")
    done = apply("variable-api", text)
    assert "losses.append(value.item())" in done.text
    with pytest.raises((IndexError, TypeError)):
        run(text)
    assert isinstance(run(done.text)["losses"][-1], float)


@pytest.mark.parametrize(
    "made",
    [
        "F.cross_entropy(model(inputs), targets, reduction='none')",
        "F.mse_loss(inputs, inputs * 2, reduce=False)",
        "model(inputs)",
        "loss.view(1)",
        "loss * torch.from_numpy(np.ones(3))",
        "loss.detach() * np.ones(3)",
        "inputs.mean(0)",
    ],
)
def test_the_first_element_of_several_stays(made: str) -> None:
    assert (
        "value.data[0]"
        in both(script("pass", f"value = {made}\nlosses.append(value.data[0].sum().item())\n")).text
    )


def test_a_loss_whose_reduction_is_set_later_stays() -> None:
    more = "c = torch.nn.MSELoss()\nc.reduction = 'none'\nlosses.append(c(inputs, inputs * 2).data[0].sum().item())\n"
    assert not both(script("pass", more)).fixes


# ------------------------------------------------------------------------------------- size_average
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("size_average=False", 'reduction="sum"'),
        ("size_average=True", 'reduction="mean"'),
        ("reduce=True, size_average=False", 'reduction="sum"'),
        ("size_average=False, reduce=None", 'reduction="sum"'),
    ],
)
def test_reductions(old: str, new: str) -> None:
    for call in (
        f"F.cross_entropy(model(inputs), targets, {old})",
        f"torch.nn.CrossEntropyLoss({old})(model(inputs), targets)",
    ):
        done = both(script("pass", f"losses.append({call}.item())\n"))
        assert new in done.text and "size_average" not in done.text and "reduce=" not in done.text


def test_no_reduction_at_all() -> None:
    done = both(
        script("pass", "losses.append(F.mse_loss(inputs, inputs * 2, reduce=False).sum().item())\n")
    )
    assert 'reduction="none"' in done.text


def test_a_reduction_that_is_not_known_stays() -> None:
    text = script(
        "pass", "losses.append(F.mse_loss(inputs, inputs * 2, size_average=flag).sum().item())\n"
    ).replace("losses = []", "import sys\nflag = len(sys.argv) > 0\nlosses = []")
    done = both(text)
    assert not done.fixes and "not certain" in done.refusals


# ------------------------------------------------------------------------------ with loss-item-sync
def test_a_sum_of_numbers_is_read_later() -> None:
    text = """
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 2).to(device)
    criterion = torch.nn.CrossEntropyLoss()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(TensorDataset(torch.randn(12, 4), torch.randint(0, 2, (12,))), batch_size=4)
    for epoch in range(2):
        total = 0.0
        for x, y in loader:
            loss = criterion(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            total += loss.data[0]
        print(total / len(loader))
    """
    at_once = apply("variable-api loss-item-sync", text).text
    first = apply("variable-api", text).text
    assert "loss.data[0]" not in at_once and "loss.item()" in first
    old = next(
        f for f in apply("variable-api loss-item-sync", text).findings if "data[0]" in f.message
    )
    assert old.status == "fix", "it is gone, whichever rule has taken the statement away"
    assert at_once == apply("loss-item-sync", first).text == apply("loss-item-sync", text).text
    assert run(at_once)["total"] == run(first)["total"]


def test_a_batch_to_which_noise_is_added() -> None:
    """What computes with a tensor, or writes numbers into it, keeps no second name of it."""
    body = (
        "noise = torch.zeros(inputs.size())\n"
        "noise[0, :] = torch.FloatTensor(noise[0, :].size()).normal_(mean=0, std=0.1)\n"
        "noisy = inputs + noise\n"
        "count = np.psnr(noisy) if len(losses) > 99 else 0\ncount += np.abs(len(noisy))\n"
        "inputs, noisy = Variable(inputs.cpu()), Variable(noisy.cpu())\n"
        "noise = Variable(noise.cpu())\n"
        "model(noisy)\nF.mse_loss(noise, noisy)"
    )
    done = both(script(body))
    assert done.lines == ["inputs, noisy = inputs.cpu(), noisy.cpu()", "noise = noise.cpu()"]


def test_a_batch_that_something_else_holds_stays_apart() -> None:
    body = "kept = [inputs]\ninputs = Variable(inputs.cpu())\ninputs.unsqueeze_(1).squeeze_(1)"
    assert "inputs.cpu().detach()" in both(script(body)).text


MOVED = "if len(losses) < 9:\n    inputs, targets = inputs.cpu(), targets.cpu()\n"
TOLD = "\ninputs.unsqueeze_(1).squeeze_(1)"  # shows on one object alone


@pytest.mark.parametrize(
    ("body", "lines"),
    [
        (MOVED + "inputs, targets = Variable(inputs), Variable(targets)" + TOLD, []),
        (
            "if len(losses) < 9:\n    inputs = Variable(inputs.cpu())\n"
            "else:\n    inputs = Variable(inputs)" + TOLD,
            ["inputs = inputs.cpu()"],
        ),
    ],
)
def test_a_batch_that_is_moved_under_a_condition(body: str, lines: list[str]) -> None:
    done = both(script(body))
    assert done.lines == lines
    kept = both(script("kept = [inputs]\n" + body))
    assert ".detach()" in kept.text


def test_a_batch_of_next_and_of_a_collate_function() -> None:
    collate = (
        "def collate(items):\n    kept.append(items[0][1])\n"
        "    return torch.stack([x for x, _ in items], 0), {targets}\n\n\nkept, losses = [], []"
    )
    text = SCRIPT.replace(
        "for inputs, targets in loader:", "batches = iter(loader)\nfor _ in range(3):"
    )
    text = text.replace("batch_size=4", "batch_size=4, collate_fn=collate")
    body = "inputs, targets = next(batches)\n    inputs = Variable(inputs.cpu())\n    targets = Variable(targets.cpu())"
    text = text.format(
        body=body + TOLD.replace("\n", "\n    ") + "\n    targets.unsqueeze_(1).squeeze_(1)"
    )
    made = "torch.stack([y for _, y in items])"
    head, _, rest = text.partition("loader =")
    for targets, line in [
        (made, "targets.cpu()"),
        ("kept_targets(items)", "targets.cpu().detach()"),
    ]:
        more = "def kept_targets(items):\n    return torch.stack([y for _, y in items])\n\n\n"
        whole = (
            head
            + more
            + collate.format(targets=targets)
            + "\nloader ="
            + rest.replace("losses = []\n", "")
        )
        done = both(whole)
        assert "inputs = inputs.cpu()" in done.lines and f"targets = {line}" in done.lines


@pytest.mark.parametrize("other", ["loss", "given"])
def test_numbers_of_one_statement_are_written_anew_together(other: str) -> None:
    text = script("pass", f"print(loss.data[0], {other}.data[0])\n").replace(
        "import torch\n", "import torch\nfrom secret import given\n", 1
    )
    done = apply("variable-api", text).text
    assert ("print(loss.item()" in done) is (other == "loss"), done


def test_a_remark_that_speaks_of_wrapping_goes_with_it() -> None:
    body = "# wrap them in Variable\nif cuda:\n    inputs = Variable(inputs.float())\nelse:\n    inputs = Variable(inputs)"
    text = script(body).replace("losses = []", "losses, cuda = [], torch.cuda.is_available()")
    done = both(text)
    assert "Variable" not in done.text.replace("torch.autograd", "")
    kept = text.replace("# wrap them in Variable", "# what the variable step takes")
    assert "# what the variable step takes" in apply("variable-api", kept).text


def test_a_file_that_keeps_a_variable_keeps_all() -> None:
    """A reviewer does the whole file or none: one of five saves nothing, and the import stays."""
    text = """
import torch
from torch.autograd import Variable

make = Variable


def step(x):
    return Variable(x) * 2


print(step(torch.ones(2)), make(torch.ones(2)))
"""
    found = apply("variable-api", text, min_gain=0.01)
    reasons = {f.gain.reason for f in found.findings if f.gain}
    assert reasons == {"other Variables of the same file stay"}
