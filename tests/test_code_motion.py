"""loss-item-sync: what is computed in every step and shown in few moves below the condition that
shows it, and computes the very same there; what would not stays.
"""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply
from tests.test_rule_loss_item_sync import HEAD, indented, output, training

SHOWN = "if i % 2 == 0:\n    print(i, acc)"
ACC = "acc = (out.argmax(1) == y).float().mean().item()"
NORMED = HEAD.replace("nn.Linear(4, 8),", "nn.Linear(4, 8), nn.BatchNorm1d(8),")
ACCURACY = """\
def accuracy(output, target, topk=(1,)):
    with torch.no_grad():
        pred = output.topk(max(topk), 1, True, True)[1]
        pred = pred.t()
        correct = pred.eq(target.view(1, -1).expand_as(pred))
        res = []
        for k in topk:
            correct_k = correct[:k].reshape(-1).float().sum(0, keepdim=True)
            res.append(correct_k.mul_(100.0 / target.size(0)).item())
        return res

"""


def both(text: str) -> Applied:
    done = apply("loss-item-sync", text)
    assert output(done.text) == output(text)
    return done


def moved(code: str, step: str, before: str = "", head: str = HEAD, **more: str) -> Applied:
    """What the rule makes of a step in which all lines of ``code`` move into the first condition
    behind them.
    """
    done = both(head + training(step, before_backward=before, **more))
    assert indented(code, 12) in done.text and done.text.count(code.splitlines()[0]) == 1
    return done


@pytest.mark.parametrize(
    "code",
    [
        ACC,
        "pred = out.argmax(1)\nright = pred == y\nacc = right.float().mean().item()",
        "pred = out.data.cpu().numpy()\npred = np.argmax(pred, axis=1)\nacc = np.mean((pred == y.data.cpu().numpy()).astype(int))",
        "with torch.no_grad():\n    hits = out.argmax(1) == y\n    acc = hits.float().mean().item()",
        "acc = [p.item() for p in out[0]]",
        "acc, n = (out.argmax(1) == y).sum().item(), len(y)\nacc /= n",
        "if epoch:\n    acc = out.mean().item()\nelse:\n    acc = out.max().item()",
        "acc: float = out.mean().item()",
        "acc = 0.0\nacc += out.mean().item()",
        "acc = sum(\n    v.item()  # of each sample\n    for v in out[:, 0]\n)",
    ],
)
@pytest.mark.parametrize("early", [False, True])
def test_what_is_shown_in_few_steps_is_computed_there(code: str, early: bool) -> None:
    """Also before the update that comes in between."""
    if "np." in code and early:
        return  # of an array, it is not known who writes to it
    moved(code, SHOWN if early else f"{code}\n{SHOWN}", code if early else "")


def test_functions_of_the_script_that_only_compute() -> None:
    code = "acc, top = accuracy(out.data, y, topk=(1, 2))"
    shown = SHOWN.replace("acc", "acc, top")
    done = moved(code, f"{code}\n{shown}", head=HEAD + ACCURACY)
    assert done.text.count(".item()") == 1
    moved(code, shown, code, head=HEAD + ACCURACY)
    counted = ACCURACY.replace("    with", "    seen.append(1)\n    with") + "seen = []\n"
    done = both(HEAD + counted + training(f"{code}\n{shown}", end="print(len(seen))"))
    assert f"        {code}\n        if" in done.text


def test_the_condition_may_stand_in_others() -> None:
    step = f"{ACC}\nif device is not None:\n    n = 1\n    if i % 2 == 0 and n:\n        print(acc)"
    done = both(HEAD + training(step))
    assert indented(ACC, 16) in done.text
    # the nearest condition that holds all uses
    step = f"{ACC}\nif i % 2 == 0:\n    if i == 2:\n        print(1, acc)\n    print(acc)"
    moved(ACC, step)
    step = f"{ACC}\nif i % 2 == 0:\n    print(acc)\nif i % 4 == 0:\n    print(1, acc)"
    assert f"            {ACC}" not in both(HEAD + training(step)).text


def test_in_functions_that_each_step_calls() -> None:
    text = (
        HEAD
        + """
class Trainer:
    def step(self, x, y, i):
        optimizer.zero_grad()
        out = model(x)
        loss = F.cross_entropy(out, y)
        loss.backward()
        optimizer.step()
        acc = (out.argmax(1) == y).float().mean().item()
        if i % 2 == 0:
            print(acc)


trainer = Trainer()
for epoch in range(2):
    for i, (x, y) in enumerate(loader):
        trainer.step(x.to(device), y.to(device), i)
"""
    )
    assert indented(ACC, 12) in both(text).text


def test_comments_go_with_what_they_are_about() -> None:
    step = f"# how many are right\n{ACC}  # of this batch\n{SHOWN}"
    done = moved(f"# how many are right\n{ACC}  # of this batch", step)
    assert done.text.count("# how many are right") == 1
    # it is about what stays, too
    step = f"seen = 0\n\n# of the batch\n{ACC}\nseen += len(x)\n\n{SHOWN}"
    done = moved(ACC, step, end="print(seen)")
    assert "        # of the batch\n        seen += len(x)\n" in done.text
    step = f"n = len(x); {ACC}\n{SHOWN}\nprint(n)"
    assert "        n = len(x)\n" in moved(ACC, step).text


def test_a_comment_spares_all_that_moves_together() -> None:
    step = f"hits = out.argmax(1) == y  # autofast: ignore\n{ACC.replace('(out.argmax(1) == y)', 'hits')}\n{SHOWN}"
    assert "            hits" not in both(HEAD + training(step)).text


def test_with_the_edits_of_other_rules() -> None:
    text = HEAD + training(
        f"where = torch.zeros(3).to(device)\nacc = (out.mean(0) + where).sum().item()\n{SHOWN}"
    )
    done = apply("loss-item-sync device-creation", text)
    assert "            where = torch.zeros(3, device=device)\n            acc = " in done.text
    assert output(done.text) == output(text)


def test_ways_that_leave_before() -> None:
    moved(ACC, f"{ACC}\nif i == 3:\n    continue\nif i > 90:\n    raise ValueError(i)\n{SHOWN}")


def test_what_gives_a_variable_another_value_moves_along() -> None:
    code = "k = out.mean()\nacc = k.item()\nk = len(x)"
    moved(code, f"{code}\nif i % 2 == 0:\n    print(acc, k)")
    code = "k = out.mean()\nacc = k.item()\nk = len(x)  # autofast: ignore"
    done = both(HEAD + training(f"{code}\nif i % 2 == 0:\n    print(acc, k)"))
    assert "            acc" not in done.text


def test_conditions_of_one_line_and_of_several() -> None:
    done = both(HEAD + training(f"{ACC}\nif i % 2 == 0: print(acc); print(i)"))
    assert indented(f"{ACC}\nprint(acc); print(i)", 12) in done.text
    step = f"{ACC}\nif i > 90:\n    print(0)\nelif i % 2 == 0:\n    print(acc)"
    moved(ACC, step)


KEEPS = [
    # used elsewhere: in the other arm, in the condition, behind the loop, in the next turn
    (ACC, f"{SHOWN}\nelse:\n    print(1, acc)"),
    (ACC, "if i % 2 == 0 and acc > -1:\n    print(acc)"),
    (ACC, "if (low := acc < 9) and i % 2 == 0:\n    print(acc)"),
    (ACC, f"{SHOWN}\nkept = acc"),
    ("old = acc if i else 0.0\n" + ACC, f"{SHOWN}\n    print(old)"),
    ("acc = 0.5 * acc + 0.5 * out.mean().item() if i else 0.0", SHOWN),
    ("if i < 2:\n    acc = out.mean().item()", SHOWN),
    # what it computes with is another there
    ("acc = out.mean().item() + k", f"k += 1\n{SHOWN}"),
    ("acc = out.detach().sum().item()", f"out.data.add_(1)\n{SHOWN}"),
    ("acc = out.sum().item()", f"view = out.detach()\nview += 1\n{SHOWN}"),
    ("acc = y.sum().item()", f"y.view(-1).mul_(2)\n{SHOWN}"),
    ("acc = y.sum().item()", f"double(y)\n{SHOWN}"),
    (
        "array = out.detach().numpy()\nacc = array.sum() + out.mean().item()",
        f"array[0] += 1\nprint(array.sum())\n{SHOWN}",
    ),
    ("rows = [1, 2]\nacc = rows[0] + out.mean().item()", f"rows[0] = i\nprint(rows)\n{SHOWN}"),
    ("acc = table['n'] + out.mean().item()", f"table['n'] += 1\n{SHOWN}"),
    ("acc = out.mean().item() + k", "if bump() + i % 2 == 0 or i % 2 == 0:\n    print(acc)"),
    # numbers are drawn, something is done
    ("acc = torch.rand_like(out).mean().item()", f"torch.rand(2)\n{SHOWN}"),
    ("acc = F.dropout(out, 0.5).mean().item()", SHOWN),
    ("acc = np.random.rand() + out.mean().item()", SHOWN),
    ("acc = next(others) + out.mean().item()", SHOWN),
    ("acc = time.perf_counter() * 0 + seen.append(i) if 0 else out.mean().item()", SHOWN),
    ("acc = seen.append(i) or out.mean().item()", f"{SHOWN}\nif i == 3:\n    print(seen)"),
    ("seen[0] = acc = out.mean().item()", f"{SHOWN}\nif i == 3:\n    print(seen)"),
    ("acc = model(x).mean().item()", SHOWN),
    # in another gradient mode, or where errors are caught
    ("with torch.autocast('cpu', torch.bfloat16):\n    acc = (out @ out.T).mean().item()", SHOWN),
    (
        f"try:\n    {ACC}\n    if i % 2 == 0:\n        print(acc)\nexcept ValueError:\n    print(0)",
        "",
    ),
    (ACC, f"{SHOWN}\nif i == 2:\n    print(sorted(locals())[:2], 'acc' in locals())"),
    (ACC, f"{SHOWN}\nshow = lambda: acc\nif i == 2:\n    print(show())"),
    (f"for k in range(2):\n    {ACC}", SHOWN),
    (ACC + "\ndel acc", "acc = 0\n" + SHOWN),
]


@pytest.mark.parametrize(("code", "rest"), KEEPS)
def test_what_stays(code: str, rest: str) -> None:
    front = (
        HEAD.replace("import math", "import math\nimport time")
        + "np.random.seed(0)\nothers, seen, table, k, kept = iter(range(99)), [0], {'n': 0}, 0, 0\n"
        + "def double(t):\n    t.mul_(2)\ndef bump():\n    global k\n    k += 1\n    return 1\n"
    )
    done = both(front + training(f"{code}\n{rest}", end="print(k, kept)"))
    line = next(s for s in code.splitlines() if "acc" in s).strip()
    assert f"            {line}\n            print" not in done.text


@pytest.mark.parametrize(
    "code",
    [
        "acc = model[0].weight.mean().item()",
        "acc = 0.0 if model[0].weight.grad is None else model[0].weight.grad.norm().item()",
        "acc = optimizer.param_groups[0]['lr'] + out.mean().item()",
        "acc = weight.mean().item()",
        "acc = part.mean().item()",
    ],
)
def test_parameters_before_the_update(code: str) -> None:
    front = HEAD + "weight = model[0].weight\npart = model[0].weight.data[0]\n"
    done = both(front + training(SHOWN, before_backward=code))
    assert f"            {code}" not in done.text
    moved(code, f"{code}\n{SHOWN}", head=front)  # behind it


def test_buffers_before_another_pass() -> None:
    code = "acc = model[1].running_mean.mean().item() + out.mean().item()"
    done = both(NORMED + training(f"{code}\nmodel(x)\n{SHOWN}"))
    assert f"            {code}" not in done.text


def test_batches_that_are_written_to_again() -> None:
    """What the script collates itself may be one tensor in all steps."""
    code = "acc = y.float().mean().item()"
    head = (
        HEAD
        + "def again(items):\n    return torch.stack([a for a, _ in items]), torch.stack([b for _, b in items])\n"
    )
    head += "loader = DataLoader(data, batch_size=8, collate_fn=again)\n"
    assert f"            {code}" not in both(head + training(SHOWN, before_backward=code)).text


def test_a_graph_is_not_kept() -> None:
    """Where no backward frees it, the old value of a variable goes in each turn."""
    text = HEAD + (
        "for x, y in loader:\n"
        "    optimizer.zero_grad()\n"
        "    F.cross_entropy(model(x.to(device)), y.to(device)).backward()\n"
        "    optimizer.step()\n"
        "for i, (x, y) in enumerate(test_loader):\n"
        "    loss = F.cross_entropy(model(x.to(device)), y.to(device))\n"
        "    loss = loss.item()\n"
        "    if i % 2 == 0:\n"
        "        print(loss)\n"
    )
    assert "        loss = loss.item()" not in both(text).text


def test_what_moves_is_not_kept_for_a_sum() -> None:
    step = (
        f"total += loss.item()\nmean = total / (i + 1)\n{ACC}\nif i % 2 == 0:\n    print(mean, acc)"
    )
    done = both(HEAD + training(step, "total = 0", "print(total)"))
    assert indented(f"mean = total / (i + 1)\n{ACC}", 12) in done.text.replace(
        "float(total)", "total"
    )


def test_cells_of_a_notebook_that_show_the_last_value() -> None:
    text = HEAD + training(f"{ACC}\n{SHOWN}") + "acc\n"
    assert f"            {ACC}" not in both(text).text
