"""loss-item-sync: what a step shows is read behind its last work, and only what may wait moves."""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply
from tests.test_rule_loss_item_sync import HEAD, output, same, training

ITEM = "loss-item-sync"
MORE = "reg = out.pow(2).mean()\nacc = (out.argmax(1) == y).float().mean()\n"
WRITER = """\
class Shown:
    def __init__(self):
        self.lines = []
    def put(self, line):
        self.lines.append(line)
        print(line)
shown = Shown()
"""


def moved(before: str, after: str = "", start: str = "", front: str = "") -> Applied:
    """What becomes of ``before``, which stands between the forward and the backward pass."""
    return same(HEAD + front + training(after, start, "", before))


def stays(before: str, after: str = "", start: str = "", front: str = "") -> None:
    """Whatever the rule does, nothing is read behind the update that was not."""
    text = HEAD + front + training(after, start, "", before)
    done = apply(ITEM, text)
    assert output(done.text) == output(text)
    below, was = (t.split("optimizer.step()\n")[1] for t in (done.text, text))
    assert ".item()" not in below.replace(was, ""), below


def test_entries_of_a_dict() -> None:
    """As they are shown in every step, among others, which keep their order."""
    before = (
        "log['loss'] = loss.item()\nacc = (out.argmax(1) == y).float().mean()\n"
        "log['acc'] = acc.item()\n"
    )
    after = "log['lr'] = optimizer.param_groups[0]['lr']\nprint(i, log)"
    done = moved(before, after, "log = {}")
    new = '        log["loss"] = loss.item()\n        log["acc"] = acc.item()\n'
    assert "optimizer.step()\n" + new + '        log["lr"]' in done.text.replace("'", '"')


@pytest.mark.parametrize(
    "before",
    [
        "stats = {k: v.item() for k, v in {'loss': loss, 'reg': reg}.items()}",
        "parts = {'loss': loss, 'reg': reg}\nstats = {k: v.item() for k, v in parts.items()}",
        "parts = [loss, reg]\nstats = [v.item() for v in parts]\nloss = sum(parts)",
        "stats = {'loss': loss.item(), 'reg': round(reg.item(), 3), 'epoch': epoch}",
        "stats = {'epoch': epoch}\nstats.update({'loss': loss.item(), 'reg': reg.item()})",
        "stats = {'epoch': epoch}\nstats.update(loss=loss.item(), reg=reg.item())",
        "one, two = loss.item(), reg.item()\nstats = {'loss': one, 'reg': two}",
        "stats = {}\nif epoch:\n    stats['loss'] = loss.item()\nelse:\n    stats['reg'] = reg.item()",
    ],
)
def test_forms(before: str) -> None:
    done = moved(MORE + before, "print(i, stats)")
    work, rest = done.text.split("optimizer.step()\n")
    assert ".item()" not in work and any(read in rest for read in (".item()", ".tolist()"))


def test_what_is_shown_keeps_its_order() -> None:
    before = MORE + "print(i, loss.item())\nprint('reg', reg.item())\nprint('acc', acc.item())"
    done = moved(before, "print('end')")
    assert "loss_value, reg_value, acc_value = torch.hstack((loss, reg, acc)).tolist()" in done.text
    assert done.text.index("optimizer.step()") < done.text.index("print(i, loss_value)")
    writer = "if i < 5:\n    print('reg', reg.item())"
    assert "optimizer.step()\n        if i < 5:" in moved(MORE + writer, "print('end')").text


def test_one_read_for_what_is_shown_again() -> None:
    done = moved("log['loss'] = loss.item()", "print(i, loss.item())\nprint(log)", "log = {}")
    assert "        loss_value = loss.item()\n" in done.text and done.text.count(".item()") == 1


def test_in_a_function_of_the_step() -> None:
    step = """\
def step(x, y):
    out = model(x)
    loss = F.cross_entropy(out, y)
    stats = {"loss": loss.item(), "mean": out.mean().item()}
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return stats
for i, (x, y) in enumerate(loader):
    print(i, step(x.to(device), y.to(device)))
"""
    done = same(HEAD + step)
    assert done.text.index("optimizer.step()") < done.text.index("stats = ")


def test_only_where_nothing_else_waits_before() -> None:
    """A read that stays between the forward and the backward pass waits as long."""
    text = HEAD + training("print(log)", "log = {}", "", "log['loss'] = loss.item()")
    assert apply(ITEM, text, min_gain=0.01).fixes
    other = text.replace("        loss.backward", "        print(y.cpu())\n        loss.backward")
    assert not [f for f in apply(ITEM, other, min_gain=0.01).fixes if f.worth]
    other = text.replace("print(log)", "print(log, out.cpu())")  # behind the update
    assert apply(ITEM, other, min_gain=0.01).fixes


def test_numbers_that_are_shown_wait_for_nothing() -> None:
    """Two numbers read between the passes, and shown by two statements."""
    text = HEAD + training(
        "print(one)\nprint(two)", "", "", MORE + "one = loss.item()\ntwo = reg.item()"
    )
    done = apply(ITEM, text, min_gain=0.01)
    assert "print(one.item())" in done.text and "print(two.item())" in done.text


CLOSED = "log = {}\ndef look():\n    return sorted(log)\n"
STATE = (
    "class State:\n    at, log = 0, {}\n    def go(self):\n        self.at += 1\nstate = State()\n"
)


@pytest.mark.parametrize(
    ("before", "after", "start", "front"),
    [
        # looked at in between
        ("log['loss'] = loss.item()\nn = len(sorted(log))", "print(n, log)", "log = {}", ""),
        ("log['loss'] = loss.item()\nn = look()", "print(n, log)", "", CLOSED),
        ("log['loss'] = loss.item()\nb.pop('x', 0)", "print(log)", "log = b = {}", ""),
        ("state.log['loss'] = loss.item()\nn = len(sorted(state.log))", "print(n)", "", STATE),
        ("v = loss.item()\nw = hash(v)", "print(v, w)", "", "w = 0\n"),
        # changed in between
        ("log['loss'] = loss.item()\nloss = loss * 2", "print(log)", "log = {}", ""),
        ("log['loss'] = loss.item()\nloss.data.mul_(2)", "print(log)", "log = {}", ""),
        ("t = loss\nlog['loss'] = t.item()\nloss.data.mul_(2)", "print(log)", "log = {}", ""),
        ("log['w'] = model[0].weight.norm().item()", "print(log)", "log = {}", ""),
        ("w = model[0].weight\nlog['w'] = w.norm().item()", "print(log)", "log = {}", ""),
        ("w = model[0].weight[0]\nlog['w'] = w[0].item()", "print(log)", "log = {}", ""),
        ("log[state.at] = loss.item()\nstate.go()\nn = len(sorted(log))", "print(log)", "log = {}", STATE),
        ("log[n] = loss.item()\nn = hash(n + 1)", "print(log)", "log, n = {}, 0", ""),
        # shown in between
        ("print(loss.item())\nshown.put(i)", "print('end')", "", WRITER),
        # not always
        ("log['loss'] = loss.item()\nif i > 2:\n    continue", "print(log)", "log = {}", ""),
        ("log['loss'] = loss.item()\nif i > 2:\n    break", "print(log)", "log = {}", ""),
    ],
)
def test_what_may_not_wait(before: str, after: str, start: str, front: str) -> None:
    stays(before, after, start, front)


def test_gradients_are_read_before_they_are_cleared() -> None:
    text = HEAD + training("optimizer.zero_grad()\nout2 = model(x)\nprint(log)", "log = {}")
    text = text.replace(
        "        optimizer.step()\n",
        "        log['g'] = model[0].weight.grad.norm().item()\n        optimizer.step()\n",
    )
    done = apply(ITEM, text)
    assert output(done.text) == output(text)


def test_not_out_of_a_try() -> None:
    text = HEAD + training("print(log)", "log = {}", "", "log['loss'] = loss.item()")
    head, loop = text.split("        x, y = x.to(device), y.to(device)\n")
    body = "".join("    " + line + "\n" for line in loop.splitlines())
    text = (
        head
        + "        try:\n            x, y = x.to(device), y.to(device)\n"
        + body
        + "        except ValueError:\n            print(log)\n"
    )
    done = apply(ITEM, text)
    assert output(done.text) == output(text)
    assert done.text.index("loss.item()") < done.text.index("loss.backward()")
