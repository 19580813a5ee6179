"""loss-item-sync with `--effect recipe`: what is only shown in every step is shown in few, the same
as before; and what must be shown, or kept, in every step.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from pathlib import Path

import pytest

from autofast.rule import Effect
from autofast.server.session import Session
from tests.onerule import Applied, apply
from tests.test_cli import autofast, findings
from tests.test_rule_loss_item_sync import HEAD, METER, indented, output, training

MANY = HEAD.replace("44", "480").replace("batch_size=8", "batch_size=2")  # 240 steps
BAR = "from tqdm import tqdm\n"
LOGGER = "import logging, sys\nlogger, seen = logging.getLogger('train'), []\n"
SUMS = "total += loss.item()\ncorrect += (out.argmax(1) == y).sum().item()\nseen += y.size(0)"
BEGIN = "total = 0.0\ncorrect = seen = 0"
END = "print('epoch', epoch, repr(total / len(loader)), correct)"


def few(text: str, files: Mapping[str, str] | None = None) -> Applied:
    return apply("loss-item-sync", text, effect=Effect.RECIPE, files=files)


def fewer(text: str, *expected: str, shown: int = 0) -> Applied:
    """The rule writes lines with ``expected``; what is still printed, of ``shown`` steps an epoch,
    is the same, and so is what is printed last.
    """
    done = few(text)
    for part in expected:
        assert any(part in line for line in done.lines), (part, done.lines, done.refusals)
    before, after = output(text).splitlines(), output(done.text).splitlines()
    lines = iter(before)
    assert all(line in lines for line in after), (after, before[:3])
    assert before[-1] == after[-1]
    if shown:
        per_epoch = [n for n in after if not n.startswith("epoch")]
        assert len(per_epoch) == 2 * shown, per_epoch
        assert len([n for n in before if not n.startswith("epoch")]) > 10 * shown
    assert any(f.effect is Effect.RECIPE for f in done.fixes)
    return done


def stays(text: str, *lines: str) -> None:
    """These lines stay as they are, in every step."""
    done = few(text)
    assert not any(" % 100 == 0" in line for line in done.lines), done.lines
    for line in lines:
        assert line in done.text, done.lines


SHOWN = "print('loss', repr(total / (i + 1)), correct, seen)"
TEST = "if i % 100 == 0 or i == len(loader) - 1:"


def test_sums_are_read_where_they_are_shown() -> None:
    text = MANY + training(f"{SUMS}\n{SHOWN}", BEGIN, END)
    done = fewer(text, TEST, "total += loss.detach().double()", "correct += (out.", shown=4)
    assert ".item()" not in done.text


def test_only_where_the_recipe_may_change() -> None:
    text = MANY + training(f"{SUMS}\n{SHOWN}", BEGIN, END)
    done = apply("loss-item-sync", text)
    assert not done.fixes and "used in every step" in done.refusals
    text = MANY + training("print('loss', loss.item())")
    assert not apply("loss-item-sync", text).fixes
    fewer(text, TEST, shown=4)


def test_a_bar_says_it_in_few_steps_and_counts_all() -> None:
    step = f"{SUMS}\nacc = 100.0 * correct / seen\nbar.set_postfix(loss=loss.item(), acc=acc)"
    text = MANY + training(f"{step}\nbar.update(1)", f"{BEGIN}\nbar = tqdm(total=len(loader))", END)
    done = fewer(BAR + text, TEST, "acc = 100.0 * correct / seen")
    assert "\n        bar.update(1)" in done.text
    assert "\n            bar.set_postfix" in done.text


@pytest.mark.parametrize(
    "step",
    [
        "bar.set_postfix(**{'loss (batch)': loss.item()})",
        "parts = {}\nparts['loss'] = loss.item()\nparts['out'] = out.mean().item()\nbar.set_postfix(**parts)",
        "parts = {}\nif seen:\n    parts['loss'] = loss.item()\nbar.set_postfix(parts)",
    ],
)
def test_a_bar_is_given_a_dict(step: str) -> None:
    text = training(step, "seen, bar = 1, tqdm(total=len(loader))", "print('epoch', float(loss))")
    done = fewer(BAR + MANY + text, TEST)
    gate = done.text[done.text.index(TEST) :]
    assert gate.count(".item()") == text.count(".item()")


def test_a_loop_without_a_counter_gets_one() -> None:
    text = MANY + training(f"{SUMS}\nprint('loss', repr(total), seen)", BEGIN, END)
    text = text.replace("for i, (x, y) in enumerate(loader)", "for x, y in tqdm(loader)")
    done = fewer(BAR + text, "for step, (x, y) in enumerate(tqdm(loader)):", shown=4)
    assert "if step % 100 == 0 or step == len(loader) - 1:" in done.lines


@pytest.mark.parametrize(
    ("head", "counted", "shown", "test"),
    [
        ("for i, (x, y) in enumerate(loader, 1)", "", 3, "if i % 100 == 0 or i == len(loader):"),
        ("for x, y in loader", "seen += 1", 2, "if seen % 100 == 0:"),
        ("for x, y in loader", "seen += y.size(0)", 4, "if step % 100 == 0 or step == "),
    ],
)
def test_counters(head: str, counted: str, shown: int, test: str) -> None:
    text = MANY + training(f"total += loss.item()\n{counted}\nprint(repr(total))", BEGIN, END)
    fewer(text.replace("for i, (x, y) in enumerate(loader)", head), test, shown=shown)


def taking_batches(head: str, step: str) -> str:
    """A training whose loop takes its batches itself."""
    text = MANY + training(step, "n = 0\nbatches = iter(loader)", "print('epoch', n)")
    text = text.replace("for i, (x, y) in enumerate(loader):", head)
    return text.replace("        x, y = x.to", "        x, y = next(batches)\n        x, y = x.to")


@pytest.mark.parametrize(
    ("over", "test"),
    [
        ("230", "if n % 100 == 0 or n == 229:"),
        ("steps", "if n % 100 == 0 or n == steps - 1:"),
        ("len(loader)", "if n % 100 == 0 or n == len(loader) - 1:"),
        ("0, steps", "if n % 100 == 0:"),
    ],
)
def test_the_last_turn_of_a_range(over: str, test: str) -> None:
    text = taking_batches(f"for n in range({over}):", "print('loss', loss.item())")
    fewer(f"steps = 230\n{text}", test, shown=3 if "0," in over else 4)


@pytest.mark.parametrize(
    ("head", "written"),
    [
        ("for _, (x, y) in enumerate(loader):", "for step, (x, y) in enumerate(loader):"),
        ("for _, (x, _) in enumerate(loader):", "for step, (_, (x, _)) in enumerate(enumerate"),
        ("for i, (x, i) in enumerate(loader):", "for step, (i, (x, i)) in enumerate(enumerate"),
    ],
)
def test_a_counter_that_nobody_asks_for(head: str, written: str) -> None:
    """Another value of the turn may stand under its name."""
    label = head.split("(x, ")[1][0]
    text = MANY + training("print('loss', loss.item())")
    text = text.replace("for i, (x, y) in enumerate(loader):", head)
    text = text.replace("y = x.to(device), y.to", f"y = x.to(device), {label}.to")
    fewer(text, written, "if step % 100 == 0 or step == len(loader) - 1:", shown=4)


def test_a_while_loop_that_counts() -> None:
    text = taking_batches("while n < 230:", "print('loss', loss.item())\nn += 1")
    fewer(text, "if n % 100 == 0:", shown=3)
    stays(text.replace("n += 1", "n = n + 1"))


def test_what_a_loop_shows_around_the_steps_of_a_critic() -> None:
    """Its own batches, too: one update of the generator each."""
    text = """
for epoch in range(2):
    batches = iter(loader)
    for i in range(110):
        for k in range(2):
            x, y = next(batches)
            optimizer.zero_grad()
            F.cross_entropy(model(x.to(device)), y.to(device)).backward()
            optimizer.step()
        optimizer.zero_grad()
        loss = model(torch.randn(2, 4, device=device)).pow(2).mean()
        loss.backward()
        optimizer.step()
        print('loss %.9f' % loss)
    print('epoch', loss.item())
"""
    fewer(MANY + text, "if i % 100 == 0 or i == 109:", shown=3)
    whole = text.replace("for k in range(2):", "for x, y in loader:").replace(
        "x, y = next", "_ = iter"
    )
    stays(MANY + whole.replace("range(110)", "range(3)"))


def test_what_is_shown_together_stands_below_one_condition() -> None:
    step = "value = loss.item()\nif epoch >= 0:\n    print('loss', value)\n    print('lr', 0.1)"
    done = fewer(MANY + training(step), TEST, "value = loss.item()", shown=8)
    assert done.text.count("% 100") == 1


def test_lines_that_hold_several_statements() -> None:
    fewer(MANY + training("if epoch >= 0: print('loss', loss.item())"), TEST, shown=4)
    fewer(MANY + training("last = i; print('loss', loss.item())"), TEST, shown=4)


def test_turns_that_end_early() -> None:
    step = "if x.size(0) < 2:\n    continue\nprint('loss', loss.item())"
    fewer(MANY + training(step), TEST)
    stays(MANY + training(step.replace("x.size(0) < 2", "i % 2 == 0")))
    stays(MANY + training("if i > 150:\n    print('loss', loss.item())"))


HELPER = """\
import sys
import time

last_time = time.time()
begin_time = last_time


def progress(current, total, msg=None):
    global last_time, begin_time
    if current == 0:
        begin_time = time.time()
    now = time.time()
    step_time = now - last_time
    last_time = now
    parts = []
    parts.append(part(step_time))
    parts.append(msg)
    sys.stdout.write("".join(parts))
    sys.stdout.write("\\r" if current < total - 1 else "\\n")
    sys.stdout.flush()


def part(seconds):
    text = ""
    if seconds < 0:
        text += "-"
    return text
"""
HELPED = training(
    f"{SUMS}\nprogress(i, len(loader), 'Loss: %r | Acc: %r' % (total/(i+1), correct/seen))",
    BEGIN,
    END,
)


def test_a_helper_of_the_project_that_shows() -> None:
    fewer(MANY + HELPER + HELPED, TEST, "int(correct)/seen))")
    done = few(MANY + "from helper import progress\n" + HELPED, files={"helper.py": HELPER})
    assert TEST in done.lines and list(done.texts) == ["train.py"]


@pytest.mark.parametrize(
    "change",
    [
        ("    parts = []", "    history.append(msg)\n    parts = []"),
        ("    parts = []", "    model.train()\n    parts = []"),
        ("    parts = []", "    torch.rand(1)\n    parts = []"),
        ("    parts = []", "    open('log.txt', 'a').write(msg)\n    parts = []"),
        ("def part(", "def asked():\n    return last_time\n\n\ndef part("),
        ("    parts = []", "    total.shown = 1\n    parts = []"),
    ],
)
def test_a_helper_that_does_more(change: tuple[str, str]) -> None:
    text = MANY + "history = []\n" + HELPER.replace(*change) + HELPED
    stays(text, "total += loss.item()")


def test_meters() -> None:
    step = "losses.update(loss.item(), x.size(0))\nprint('loss', repr(losses.avg))"
    text = MANY + METER + training(step, "losses = Meter()", "print('epoch', losses)")
    fewer(text, TEST, "losses.keep(loss.detach(), x.size(0))", shown=4)
    shown = step.replace("repr(losses.avg)", "losses")
    fewer(text.replace(step.splitlines()[1], shown.splitlines()[1]), TEST, shown=4)
    speaks = METER.replace("        return f", "        self.count = 0\n        return f")
    stays(MANY + speaks + training(shown, "losses = Meter()", "print('epoch', losses)"))


def test_attributes_are_read_where_they_are_shown() -> None:
    text = """
class Trainer:
    def __init__(self):
        self.total = 0.0

    def train(self):
        for i, (x, y) in enumerate(loader):
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            self.total += loss.item()
            print('loss', repr(self.total))

trainer = Trainer()
for epoch in range(2):
    trainer.train()
print(repr(trainer.total))
"""
    fewer(MANY + text, TEST, "self.total += loss.detach().double()")


WRITER = """
class SummaryWriter:
    records = []

    def add_scalar(self, tag, scalar_value, global_step=None):
        self.records.append((tag, float(scalar_value), global_step))

    def add_scalars(self, tag, values, global_step=None):
        self.records += [(f"{tag}/{key}", float(v), global_step) for key, v in values.items()]

    def close(self):
        self.records.append(("end", 0.0, None))
"""
WRITES = """
from torch.utils.tensorboard import SummaryWriter

class Log:
    writer = SummaryWriter()

log, writer, n = Log(), SummaryWriter(), 0
"""


@pytest.fixture
def records(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, float, int]]:
    """What TensorBoard has been given."""
    module = types.ModuleType("torch.utils.tensorboard")
    exec(WRITER, module.__dict__)
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", module)
    return module.SummaryWriter.records  # type: ignore[no-any-return]


@pytest.mark.parametrize(
    "step",
    [
        "writer.add_scalar('loss', loss.item(), n)\nn += 1",
        "writer.add_scalar('loss', loss, global_step=epoch * len(loader) + i)",
        "if i % 2:\n    writer.add_scalar(tag='loss', scalar_value=loss.item() / 2, global_step=i)",
        "writer.add_scalar(f'loss/{i % 2}', loss.item(), i)\nwriter.add_scalar('out', out.mean(), i)",
        "writer.add_scalars('step', {'loss': loss.item(), 'out': out.mean().item()}, i)",
        "writer.add_scalars('step', {'loss': loss, 'out': out.mean()}, global_step=i)",
        "value = loss.item()\nwriter.add_scalar('loss', value, i)",
        "writer.add_scalar(next(names), loss.item(), i)",
        "writer.add_scalar('loss', loss.item(), i)\nif i == 123:\n    break",
        "writer.add_scalar('loss', loss.item(), i)\nprint('loss', loss.item())",
    ],
)
def test_records_are_written_later(step: str, records: list[tuple[str, float, int]]) -> None:
    """All of them, each as it was, those of one name in the same order."""
    names = "names = iter('ab' * 999)\n"
    text = (
        MANY
        + WRITES
        + names
        + training(step, end="print('epoch', repr(loss.item()))\nwriter.close()")
    )
    done = few(text)
    assert any(") == 100:" in line for line in done.lines), (done.lines, done.refusals)
    assert done.fixes and all(f.effect is Effect.RECIPE for f in done.fixes)
    before, printed = (records.clear(), output(text), [*records])[1:][::-1]
    after, again = (records.clear(), output(done.text), [*records])[1:][::-1]
    assert len(before) > 120 and printed.splitlines()[-1] == again.splitlines()[-1]
    for name in {tag for tag, _, _ in before}:
        assert [r for r in after if r[0] == name] == [r for r in before if r[0] == name]
    ends = [[n for n, r in enumerate(found) if r[0] == "end"] for found in (before, after)]
    assert ends[0] == ends[1]


@pytest.mark.parametrize(
    ("step", "around", "reason"),
    [
        ("writer.add_scalar('loss', loss.item())", "", ""),
        ("writer.add_scalar('loss', loss.item(), i, time.time())", "", ""),
        ("writer.add_scalar('loss', loss.item(), i)\nwriter.close()", "", "closes the writer"),
        ("writer.add_scalar('loss', loss.item(), i)\nwriter.flush()", "", "closes the writer"),
        (
            "writer.add_scalar('loss', loss.item(), i)\nimport sys\nif i > 99: sys.exit()",
            "",
            "may end the script",
        ),
        (
            "writer.add_scalar('loss', loss.item(), i)\nif i > 99: raise SystemExit",
            "",
            "may end the script",
        ),
        (
            "for name, p in model.named_parameters(): writer.add_scalar(name, p.grad.norm(), i)",
            "",
            "",
        ),
        (
            "log.writer.add_scalar('loss', loss.item(), i)\nlog.writer = SummaryWriter()",
            "",
            "makes another writer",
        ),
        ("writer.add_scalar('loss', loss.item(), i)", "try", "an exception in the loop may be"),
    ],
)
def test_records_that_stay_where_they_are(step: str, around: str, reason: str) -> None:
    text = training(step)
    if around:
        text = f"try:\n{indented(text, 4)}except KeyboardInterrupt:\n    writer.close()\n"
    done = few("import time\n" + MANY + WRITES + text)
    assert not any("== 100" in line for line in done.lines), done.lines
    assert step.splitlines()[0] in done.text and reason in done.refusals, done.refusals


def test_records_wait_on_request_only() -> None:
    done = apply(
        "loss-item-sync", MANY + WRITES + training("writer.add_scalar('a', loss.item(), i)")
    )
    assert not done.fixes and "`--effect recipe` keeps it" in done.refusals


@pytest.mark.parametrize(
    ("start", "step"),
    [
        ("log = open('log.csv', 'w')", "log.write('%f\\n' % loss.item())"),
        ("log = open('log.csv', 'w')", "print(loss.item(), file=log)"),
        ("import csv, io\nlog = csv.writer(io.StringIO())", "log.writerow([i, loss.item()])"),
        (
            "import logging\nlogging.basicConfig(filename='log.txt')",
            "logging.info('loss %f', loss.item())",
        ),
        *(
            (f"{LOGGER}{to}", "logger.info('loss %f', loss.item())")
            for to in (
                "logger.addHandler(logging.StreamHandler(open('log.txt', 'w')))",
                "logging.basicConfig(stream=open('log.txt', 'w'))",
                "class Kept(logging.Handler):\n    def emit(self, record): seen.append(record)\n"
                "logger.addHandler(Kept())",
                "class Kept(logging.FileHandler):\n    pass\nlogger.addHandler(Kept('log.txt'))",
                "import logging.handlers\n"
                "logger.addHandler(logging.handlers.SysLogHandler())",
            )
        ),
        ("to = {'file': open('log.txt', 'w')}", "print(loss.item(), **to)"),
        (f"{BAR}bar = tqdm(file=open('log.txt', 'w'))", "bar.set_postfix(loss=loss.item())"),
        (f"{BAR}bar = tqdm(file=open('log.txt', 'w'))", "bar.set_postfix(**{'a': loss.item()})"),
        (
            "import sys\nclass Tee:\n    def write(self, text): sys.__stdout__.write(text)\n"
            "    def flush(self): pass\nsys.stdout = Tee()",
            "print(loss.item())",
        ),
        ("", "if loss > 1.5:\n    print('high', loss.item())"),
        ("seen = 0", "if not seen and y[0] > 0:\n    print(loss.item())\nseen += 1"),
        ("names = iter(range(999))", "print(next(names), loss.item())"),
        ("numbers = iter(range(9999))", "print(max(numbers), loss.item())"),
        ("batches = iter(loader)", "print(len(list(batches)), loss.item())"),
        ("numbers = (n for n in range(9))", "print(*numbers, loss.item())"),
        ("seen = []", "print(seen.append(loss.item()))"),
        ("", "print(loss.item(), torch.rand(1))"),
        ("", "print(loss.item())  # autofast: ignore"),
        ("import time", "start = time.time()\nprint(loss.item(), time.time() - start)"),
        ("", "value = loss.item()\nprint(value)\nif value > 9:\n    break"),
        ("best = 9.0", "value = loss.item()\nbest = min(best, value)\nif best < 0.01: break\nprint(best)"),
    ],
)  # fmt: skip
def test_what_stays_in_every_step(start: str, step: str) -> None:
    stays(MANY + training(step, start))


@pytest.mark.parametrize("to", ["", "sys.stdout"])
def test_a_log_that_goes_to_the_screen(to: str) -> None:
    start = f"{LOGGER}logger.addHandler(logging.StreamHandler({to}))"
    done = few(MANY + training("logger.info('loss %f', loss.item())", start))
    assert TEST in done.lines, done.refusals


def test_how_long_it_has_taken_may_be_shown() -> None:
    step = "print('loss', loss.item(), time.time() - start > 0)"
    fewer(MANY + training(step, "import time\nstart = time.time()"), TEST, shown=4)


@pytest.mark.parametrize(
    ("begin", "step", "early"),
    [
        (
            "took, end = Meter(), time.time()",
            "took.update(time.time() - end)\nend = time.time()\nprint('loss', loss.item())",
            "",
        ),
        ("", "print('loss %f %d' % (loss, time.time() - begin > 99))", "begin = time.time()"),
        ("", "print('loss {} {}'.format(loss, time.time() < 9))", ""),
    ],
)
def test_how_long_whole_turns_take_is_the_same_on_average(
    begin: str, step: str, early: str
) -> None:
    text = training(step, begin, before_backward=early)
    fewer(f"import time\n{MANY}{METER}{text}", TEST, shown=4)


@pytest.mark.parametrize(
    "step",
    [
        "took.update(time.time() - begin)\nprint('loss', loss.item())",
        "used = time.time() - begin\nprint('loss', loss.item(), used)",
        "print('loss %f %f' % (loss.item(), time.time() - begin))",
        "print(f'{loss} {time.time() - begin}')",
    ],
)
def test_the_time_of_a_part_of_a_turn(step: str) -> None:
    text = MANY + METER + training(step, "took = Meter()", before_backward="begin = time.time()")
    stays(f"import time\n{text}")
    told = few(f"import time\n{text}")
    assert "recipe" not in told.refusals + told.advice
    if "f'" not in step:
        assert "stays there: the loop takes the time of a part of its steps" in told.refusals


def test_numbers_that_are_read_before() -> None:
    """To show them in few steps would spare nothing."""
    step = "bar.set_postfix(**{})\nif {}['loss'] > 99:\n    break"
    start, early = "parts, bar = dict(), tqdm(total=9)", "parts['loss'] = loss.item()"
    text = training(step.replace("{}", "parts"), start, before_backward=early)
    stays(BAR + MANY + text, "bar.set_postfix(**parts)")
    single = training(step.replace("**{}", "loss=value").replace("{}['loss']", "value"), start)
    single = single.replace("loss.backward()", "value = loss.item()\n        loss.backward()")
    done = few(BAR + MANY + single)
    assert TEST in done.lines and len(done.fixes) == len(done.findings)


BARS = """
class Bar:
    suffix = ""

    def __init__(self, text):
        self.text = text

    def next(self):
        print(self.suffix)
"""


@pytest.mark.parametrize("told", ["bar", "Bar"])
def test_what_a_bar_is_told_to_say(told: str, monkeypatch: pytest.MonkeyPatch) -> None:
    package, module = types.ModuleType("progress"), types.ModuleType("progress.bar")
    exec(BARS, module.__dict__)
    monkeypatch.setitem(sys.modules, "progress", package)
    monkeypatch.setitem(sys.modules, "progress.bar", module)
    step = f"losses.update(loss.item(), x.size(0))\n{told}.suffix = f'({{i}}) {{losses.avg!r}}'\nbar.next()"
    end = "print('epoch', losses)"
    text = MANY + METER + training(step, "losses, bar = Meter(), Bar('Training')", end)
    text = f"from progress.bar import Bar\n{text}"
    done = few(text)
    assert TEST in done.lines and "losses.keep(loss.detach(), x.size(0))" in done.lines
    assert "\n        bar.next()" in done.text
    before, after = output(text).splitlines(), output(done.text).splitlines()
    assert len(after) == len(before)
    for old, new in zip(before, after, strict=True):
        shown = not old.startswith("(") or int(old[1:].split(")")[0]) in (0, 100, 200, 239)
        assert new == old if shown else new in before


@pytest.mark.parametrize(
    "shown",
    ["print(i, name, meters[name].avg)", "texts = 0\n    print(f'{i} {meters[name].avg!r}')"],
)
def test_what_a_loop_over_names_shows(shown: str) -> None:
    step = (
        "parts = {'loss': loss, 'size': out.abs().mean()}\nfor name in meters:\n"
        f"    meters[name].update(parts[name].item(), x.size(0))\n    {shown}"
    )
    start = "meters = {name: Meter() for name in ['loss', 'size']}"
    end = "print('epoch', [m.avg for m in meters.values()])"
    text = MANY + METER + training(step, start, end)
    done = few(text)
    assert TEST in done.lines and ".keep(parts[name].detach()" in done.text
    before, after = output(text).splitlines(), output(done.text).splitlines()
    assert {*after} < {*before} and [a for a in after if "epoch" in a] == [
        b for b in before if "epoch" in b
    ]
    # what it is read for is no wait that stays
    assert apply("loss-item-sync", text, effect=Effect.RECIPE, min_gain=0.01).fixes[0].worth


@pytest.mark.parametrize(
    "loop",
    [
        "for j in (loss > 9).nonzero().tolist():\n    print('odd', j, loss.item())",
        "n = 0\nwhile n < 1:\n    print('again', loss.item())\n    n += 1",
    ],
)
def test_what_a_loop_in_some_steps_shows(loop: str) -> None:
    assert TEST not in few(MANY + training(loop)).lines


def test_a_block_whose_prints_go_elsewhere() -> None:
    block = "import contextlib, io\nwith contextlib.redirect_stdout(io.StringIO()):\n    {}\n"
    step = training("print('loss', loss.item())")
    fewer(MANY + block.format("print('hidden')") + step, TEST, shown=4)
    inside = f"def train():\n{indented(step, 4)}"
    stays(MANY + inside + block.format("train()"), "print('loss', loss.item())")
    stays(MANY + block.format("pass").replace("    pass\n", indented(step, 4)))
    kept = "import contextlib, io\nto = contextlib.redirect_stdout(io.StringIO())\nto.__enter__()\n"
    stays(MANY + kept + step)


@pytest.mark.parametrize(("more", "goes"), [("", True), (", file=open('log.txt', 'w')", False)])
def test_a_bar_made_with_options(more: str, goes: bool) -> None:
    begin = f"options = dict(desc='epoch', leave=False{more})\nbar = tqdm(total=9, **options)"
    text = BAR + MANY + training("bar.set_postfix(loss=loss.item())", begin, "print('epoch')")
    fewer(text, TEST) if goes else stays(text)


def test_a_wait_in_the_middle_of_the_step() -> None:
    """Between it and what is shown, the device has the backward pass to do."""
    text = MANY + training(
        "print('loss', loss.item())", before_backward="if out.max().item() > 99: break"
    )
    fewer(text, TEST, shown=4)


def test_loops_that_wait_all_the_same_show_what_they_did() -> None:
    step = "print('loss', loss.item())\nseen.append(out.argmax(1).cpu().numpy().sum() > 0)"
    text = MANY + training(f"{step}\nif out[0, 0].item() > 99: break", "seen = []")
    stays(text, "print('loss', loss.item())")
    assert "waits for the device all the same" in few(text).refusals
    stays(text.replace(step.splitlines()[1], "pass"), "print('loss', loss.item())")


def test_evaluation() -> None:
    loop = """
model.eval()
total = 0.0
with torch.no_grad():
    for i, (x, y) in enumerate(loader):
        x, y = x.to(device), y.to(device)
        loss = F.cross_entropy(model(x), y)
        total += loss.item()
        print('loss', repr(total / (i + 1)))
print('epoch', repr(total / len(loader)))
"""
    text = MANY + training("pass") + indented("", 0) + loop
    fewer(text, TEST, "total += loss.double()")


@pytest.mark.parametrize("asked", [False, True])
def test_all_commands_go_as_far(
    asked: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the option, or by the settings of the project, which editors have, too."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").write_text(MANY + training("print('loss', loss.item())"))
    settings = '[tool.autofast]\nselect = ["loss-item-sync"]\nmin-gain = 0\n'
    (tmp_path / "pyproject.toml").write_text(settings)
    options = ("--effect", "recipe") if asked else ()

    def told(*options: str) -> list[tuple[str, str]]:
        (found,) = findings("train.py", *options)
        assert (TEST in autofast("rewrite", "train.py", *options).out.decode()) is asked
        return [(found["status"], found["effect"])]

    status = [("fix", "recipe")] if asked else [("refused", "exact")]
    assert told(*options) == status
    if asked:
        (tmp_path / "pyproject.toml").write_text(settings + 'effect = "recipe"\n')
    assert told() == status
    seen = Session().analysis(tmp_path / "train.py")
    assert seen is not None and [(r.status, r.effect) for r in seen.records] == status
