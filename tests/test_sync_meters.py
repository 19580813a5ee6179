"""loss-item-sync: objects of the project that count what steps give them keep tensors, until
somebody asks what they came to.
"""

from __future__ import annotations

import sys
import types

import pytest

from autofast.read.library.steppers import TOLD
from autofast.rule import Effect
from tests.onerule import Applied, apply, run
from tests.test_rule_loss_item_sync import HEAD, METER, output, refused, same, training

SHOWN = "if i % 4 == 0:\n    "
GIVEN = "m.update(loss.item(), x.size(0))\n"


SMOOTHED = """\
import operator
from operator import attrgetter, methodcaller

class Meter:
    def __init__(self, alpha=0.9):
        self.alpha = alpha
        self.avg = 0.0

    def update(self, val, n=1):
        self.avg = self.alpha * self.avg + (1 - self.alpha) * val

    def weigh(self, alpha):
        self.alpha = alpha

    def total(self):
        return self.avg

    def reset(self):
        self.__init__()

"""
STEADY = SMOOTHED.replace("    def weigh(self, alpha):\n        self.alpha = alpha\n\n", "")


OPTIONS = """\
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=3)
parser.set_defaults(**{k: 2 for k in ["steps"][len(data):]})
args = parser.parse_args([])
args.weights = torch.ones(())
"""


def not_kept(text: str) -> None:
    """The class stays as it is; the loop may still put off what it gives."""
    done = apply("loss-item-sync", text)
    assert ".keep(" not in done.text
    assert output(done.text) == output(text)


def metered(look: str, front: str = METER, step: str = GIVEN, start: str = "m = Meter()") -> str:
    return HEAD + front + training(step + look, start, "print(m.avg)")


@pytest.mark.parametrize(
    ("look", "read"),
    [
        ("print(m.val, m.avg)", "print(m.read().val, m.read().avg)"),
        ("print(f'{m}', m.sum / m.count)", "print(f'{m}', m.read().sum / m.read().count)"),
        ("print('{m.val} {m.avg}'.format(m=m))", "format(m=m.read())"),
        ("print('{0.val} {0.avg}'.format(m))", "format(m.read())"),
        ("print('%s, %r' % (m, m.avg))", "m.read().avg"),
        ("print(getattr(m, 'avg'), str(m))", "getattr(m.read(), 'avg')"),
        ("m.avg = m.avg / 2", "m.read().avg = m.read().avg / 2"),
        ("m.reset()", "self.read()"),
        ("m.update(0.5, 3)", "self.read()"),
        ("print([v for v in [m.avg] if m.count])", "[m.read().avg]"),
        ("other = m\n    print(other.avg)", "other.read().avg"),
        ("print(max([m], key=lambda m: m.avg).avg)", "m.read().avg"),
    ],
)
def test_whoever_looks_finds_what_was_counted(look: str, read: str) -> None:
    same(metered(SHOWN + look), "m.keep(loss.detach(), x.size(0))", read)


@pytest.mark.parametrize(
    ("look", "reason"),
    [
        ("if m.avg < 0.5:\n    break", "every step"),
        ("print(m)", "every step"),
    ],
)
def test_looked_at_in_every_step(look: str, reason: str) -> None:
    refused(metered(look), reason)


@pytest.mark.parametrize(
    "look",
    [
        "print(len(m.__dict__))",
        "import copy; print(copy.copy(m).avg)",
        "import copy; print(copy.deepcopy({'loss': [m]})['loss'][0].avg)",
        "print(vars(m))",
        "print(np.array([m], dtype=object)[0].avg)",
        "say = m.update\n    say(1.0)",
        "print('{m.avg}'.format(**{'m': m}))",
    ],
)
def test_what_may_look_at_it_unseen(look: str) -> None:
    not_kept(metered(SHOWN + look))


@pytest.mark.parametrize(
    "look",
    [
        "m.alpha = 0.5",
        "m.alpha *= 0.5",
        "Meter.weigh(m, 0.5)",
        "m.weigh(0.5)",
        "setattr(m, 'alpha', 0.5)",
        "[setattr(o, 'al' + 'pha', 0.5) for o in [m]]",
    ],
)
def test_a_weight_that_is_set_in_between(look: str) -> None:
    not_kept(metered(SHOWN + look, SMOOTHED if "weigh" in look else STEADY))


NAMED = "\n\ndef change(parts, name):\n    for part in parts():\n        setattr(part, name, 0)\n        part.__delattr__('gone')\n"


def test_something_unknown_whose_attribute_has_no_known_name() -> None:
    """It is no meter where counting reads nothing but what it sets itself."""
    same(metered(SHOWN + "print(m.avg)", METER + NAMED), "m.keep(")
    not_kept(metered(SHOWN + "print(m.avg)", STEADY + NAMED))


def test_a_meter_beside_it_holds_nothing_more() -> None:
    look = SHOWN + "print(m.avg)\n    o.reset()\n    print(o.__dict__)"
    same(metered(look, start="m = Meter()\no = Meter()"), "m.keep(")


def test_a_weight_that_stays() -> None:
    same(metered(SHOWN + "print(m.avg)", STEADY), "m.keep(")
    other = "class Other:\n    pass\n\no = Other()\n"
    same(metered(SHOWN + "o.alpha = 2; print(m.avg)", STEADY + other), "m.keep(")
    for again in ("m.reset()", "m.__init__()"):
        same(metered(SHOWN + again, STEADY), "m.keep(")
    same(metered(SHOWN + "print(attrgetter('real')(i), m.avg)", STEADY), "m.keep(")
    several = STEADY.replace("self.alpha = alpha", "self.alpha = [alpha]")
    several = several.replace("self.alpha *", "self.alpha[0] *").replace(
        "- self.alpha", "- self.alpha[0]"
    )
    not_kept(metered(SHOWN + "m.alpha[0] = 0.5", several))


@pytest.mark.parametrize(
    "look",
    [
        "print(max([m], key=attrgetter('avg')).alpha, list(map(attrgetter('avg'), [m])))",
        "print(list(map(operator.attrgetter('avg'), [m])))",
        "print(list(map(methodcaller('total'), [m])))",
        "get = attrgetter\n    print(list(map(get('avg'), [m])))",
        "print(list(map(getattr, [m], ['avg'])))",
        "print('{m[0].avg}'.format_map({'m': [m]}))",
    ],
)
def test_what_looks_at_it_by_a_name(look: str) -> None:
    not_kept(metered(SHOWN + look, STEADY))


def test_a_base_class_that_others_derive_from() -> None:
    base = METER.replace("Meter", "Base").split("    def update")[0]
    base += "    def total(self):\n        return self.sum\n\n"
    mine = "class Meter(Base):\n    def update" + METER.split("    def update")[1]
    other = "class Counter(Base):\n    pass\n\nc = Counter()\n"
    not_kept(metered(SHOWN + "print(m.total(), c.total())", base + mine + other))


@pytest.mark.parametrize(
    ("more", "look"),
    [
        ("    def __len__(self):\n        return self.count\n", "print(len(m))"),
        ("    @property\n    def twice(self):\n        return 2 * self.avg\n", "print(m.twice)"),
        ("    def add(self, other):\n        self.sum += other.sum\n", "n.add(m); print(n.sum)"),
        ("    def all(self):\n        return dict(vars(self))\n", "print(m.all())"),
        ("    def all(self):\n        return f'{self.__dict__}'\n", "print(m.all())"),
        ("    def all(self):\n        return '{sum}'.format(**self.__dict__)\n", "print(m.all())"),
        ("    def __float__(self):\n        return float(self.avg)\n", "print(m.avg.real)"),
        ("class Other(Meter):\n    def __init__(self):\n        self.sum = self.count = 0\n",
         "o = Other(); o.update(1.0); print(o.avg, m.avg)"),
    ],
)  # fmt: skip
def test_classes_that_do_more(more: str, look: str) -> None:
    text = metered(SHOWN + look, METER.rstrip() + "\n\n" + more + "\nn = Meter()\n")
    assert output(apply("loss-item-sync", text).text) == output(text)


WINDOW = """\
from collections import deque

class Window:
    '''The last numbers, and all.'''

    def __init__(self, size=3):
        self.last = deque(maxlen=size)
        self.total, self.n = 0.0, 0

    def update(self, value, n=1):
        '''Counts one.'''
        self.last.append(value)
        self.total += value * n
        self.n += n

    @property
    def median(self):
        return sorted(self.last)[len(self.last) // 2]

    @property
    def avg(self):
        return self.total / self.n

    def values(self):
        return RESULT

Meter = Window
"""


@pytest.mark.parametrize("result", ["list(self.last)", "self.last[-1]", "[*self.last]"])
def test_a_window_of_numbers(result: str) -> None:
    text = metered(SHOWN + "print(m.median, m.avg, m.values())", WINDOW.replace("RESULT", result))
    done = same(text, "m.keep(", "self.read()")
    assert "def values(self):\n        self.read()" in done.text


NEVER_CALLED = """\
    def spread(self):
        numbers = np.std(self.last)
        return numbers

    def values("""


ALONE = "import numpy as np\n" + WINDOW.replace("RESULT", "None").replace(
    "    def values(", NEVER_CALLED
)


def windowed(one: str = "", other: str = "") -> Applied:
    """A meter in a file of its own, with a method that nobody calls."""
    files = {"windows.py": ALONE.replace(one, other)}
    text = metered(SHOWN + "print(m.median, m.avg)", "from windows import Meter\n")
    return apply("loss-item-sync", text, files=files)


def test_what_a_method_counts_that_is_never_called() -> None:
    """It is told by its imports: nothing is known of what it calls."""
    done = windowed()
    assert "m.keep(" in done.text
    front = "from windows import Meter\n"
    assert "def spread(self):\n        self.read()" in done.texts["windows.py"]
    ask = "\nprint(round(float(m.spread()), 4), m.n)\n"
    before = metered(SHOWN + "print(m.median, m.avg)", ALONE)
    after = done.text.replace(front, done.texts["windows.py"])
    assert output(after + ask) == output(before + ask)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("np.std(self.last)", "np.asarray(self.last)"),
        ("np.std(self.last)", "np.array(self.last, copy=None)"),
        ("np.std(self.last)", "box.std(self.last)"),
        ("import numpy as np", "import numpy as np\nnp = dict"),
        ("import numpy as np", "import numpy as np\nfrom collections import *"),
    ],
)
def test_what_a_method_may_keep_that_is_never_called(one: str, other: str) -> None:
    assert ".keep(" not in windowed(one, other).text


def test_what_a_method_hands_out_is_seen_later() -> None:
    look = "print(m.median, m.avg, m.values())"
    not_kept(metered(SHOWN + look, WINDOW.replace("RESULT", "self.last")))
    later = "print((lambda: list(m.values()())[-1])())"
    not_kept(metered(SHOWN + later, WINDOW.replace("RESULT", "lambda: self.last")))


def test_few_tensors_are_kept_whoever_asks() -> None:
    text = HEAD.replace("(44,", "(440,").replace("batch_size=8, shuffle", "batch_size=2, shuffle")
    text = text.replace("torch.randn(44,", "torch.randn(440,")
    text += METER + "m, most = Meter(), 0\n" + training("m.update(loss.item())", "", "print(m.avg)")
    done = same(text, "if len(self.kept) == 100:")
    seen = done.text.replace(
        "m.keep(loss.detach())", "m.keep(loss.detach()); most = max(most, len(m.kept))"
    )
    assert run(seen)["most"] == 99


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("loss.item() * 4, len(x)", "m.keep(loss.detach().double() * 4, len(x))"),
        ("loss.data.item(), n=len(x)", "m.keep(loss.detach(), n=len(x))"),
        ("1 - loss.item()", "m.keep(1 - loss.detach().double())"),
        ("float(loss)", "m.keep(loss.detach())"),
    ],
)
def test_what_is_given(given: str, kept: str) -> None:
    same(metered(SHOWN + "print(m.avg)", step=f"m.update({given})\n"), kept)


@pytest.mark.parametrize(
    "given",
    [
        "loss.item(), y.sum()",
        "1 / loss.item()",
        "math.exp(loss.item())",
        "*[loss.item()]",
        "loss.item(), *[1]",
        "min(loss.item(), 0.5)",
    ],
)
def test_what_the_device_would_compute_otherwise(given: str) -> None:
    not_kept(metered(SHOWN + "print(m.avg)", step=f"m.update({given})\n"))


def test_a_tensor_that_is_changed_later_is_copied() -> None:
    step = "last = out.detach().mean()\nm.update(last.item())\nlast.zero_()\n"
    same(metered(SHOWN + "print(m.avg)", step=step), "m.keep(last.detach().clone())")


def test_numbers_that_steps_give_beside_tensors() -> None:
    step = GIVEN + "m.update(i, 2)\n"
    same(metered(SHOWN + "print(m.avg)", step=step), "m.keep(i, 2)", "if torch.is_tensor(val)")
    not_kept(metered(SHOWN + "print(m.avg)", step=step.replace("i, 2", "y.sum()")))


def test_one_of_two_meters_counts_in_every_step() -> None:
    start = "m, n = Meter(), Meter()"
    step = GIVEN + "n.update(out.mean().item())\nif n.avg > 9:\n    break\n"
    done = same(
        metered(SHOWN + "print(m.avg, n.avg)", step=step, start=start), "m.read().avg, n.avg"
    )
    assert "n.update(out.mean().item())" in done.text


@pytest.mark.parametrize(
    ("front", "start", "number"),
    [
        ("", "size = x0.shape[0] if epoch else len(x0)", "size"),
        ("", "size = x0.shape[0]\nif epoch:\n    size = len(loader) % size", "size"),
        ("", "size = max(1, len(loader) // 2)", "size"),
        (OPTIONS, "size = args.steps", "size"),
        (OPTIONS, "size = max(1, args.steps)", "size"),
        ("", "size = torch.ones(())", ""),
        (OPTIONS, "size = args.weights", ""),
    ],
)
def test_what_is_certainly_a_number(front: str, start: str, number: str) -> None:
    start = f"m, x0 = Meter(), data[:8][0]\n{start}"
    for given in ("loss.item() * 2, size", "loss.item() * size, 2"):
        text = metered(SHOWN + "print(m.avg)", METER + front, f"m.update({given})\n", start)
        assert (".keep(" in apply("loss-item-sync", text).text) is bool(number), given
        done = apply("loss-item-sync", text)
        assert output(done.text) == output(text)


def test_a_device_without_float64_rounds() -> None:
    head = HEAD.replace(
        ' else "cpu"', ' else "mps" if torch.backends.mps.is_available() else "cpu"'
    )
    text = head + metered(SHOWN + "print(m.avg)", step="m.update(loss.item() * 4)\n")[len(HEAD) :]
    done = apply("loss-item-sync", text)
    assert "m.keep(loss.detach().float() * 4)" in done.lines
    assert {f.effect for f in done.fixes} == {Effect.ROUNDING}
    assert output(done.text) == output(text)  # a power of 2


PROGRESS = """\
class Progress:
    def __init__(self, *meters):
        self.meters = meters

    def display(self, i):
        print(i, " ".join(str(m) for m in self.meters))

"""


def test_meters_that_others_show() -> None:
    start = "m, seconds = Meter(), Meter()\nprogress = Progress(m, seconds)"
    step = GIVEN + "seconds.update(i)\n"
    text = metered(SHOWN + "progress.display(i)", METER + PROGRESS, step, start)
    done = same(text, "m.keep(loss.detach(), x.size(0))")
    assert "seconds.update(i)" in done.text
    refused(text.replace(SHOWN, "if True:\n    "), "every step")


def test_numbers_of_a_class_that_others_give_too() -> None:
    # another script only gives numbers, and looks as it did before
    text = metered(SHOWN + "print(m.avg)", "from meters import Meter\n")
    other = "from meters import Meter\nm = Meter()\nm.update(0.5)\nprint(m.avg)\n"
    files = {"meters.py": METER, "other.py": other}
    done = apply("loss-item-sync", text, files=files)
    assert "m.keep(" in done.text and "other.py" not in {
        name for name, new in done.texts.items() if new != files.get(name, text)
    }
    assert output(done.texts["meters.py"] + other.split("\n", 1)[1]) == "0.5\n"


def test_shown_in_every_step_by_a_bar() -> None:
    look = "print('loss', m.avg)"
    text = metered(look, start="m = Meter()")
    refused(text, "every step")
    done = apply("loss-item-sync", text, effect=Effect.RECIPE)
    assert "print('loss', m.read().avg)" in done.text and "if i % 100 == 0 or" in done.text
    assert {f.effect for f in done.fixes} == {Effect.RECIPE}
    shown = output(text).splitlines()
    assert [line for line in output(done.text).splitlines() if line not in shown] == []
    helper = METER + "def tell(m):\n    print('loss', m.avg)\n\n"
    done = apply("loss-item-sync", metered("tell(m)", helper), effect=Effect.RECIPE)
    assert output(done.text).splitlines()[-1] == shown[-1]


# ------------------------------------------------------------------- loggers that hold many of them
LOGGER = """\
from collections import defaultdict, deque

class SmoothedValue(object):
    def __init__(self, window_size=20, fmt=None):
        if fmt is None:
            fmt = "{median:.4f} ({global_avg:.4f})"
        self.deque = deque(maxlen=window_size)
        self.total = 0.0
        self.count = 0
        self.fmt = fmt

    def update(self, value, n=1):
        self.deque.append(value)
        self.count += n
        self.total += value * n

    def synchronize_between_processes(self):
        if not torch.distributed.is_initialized():
            return
        t = torch.tensor([self.count, self.total], dtype=torch.float64, device=device)
        torch.distributed.all_reduce(t)
        t = t.tolist()
        self.count = int(t[0])
        self.total = t[1]

    @property
    def median(self):
        d = torch.tensor(list(self.deque))
        return d.median().item()

    @property
    def avg(self):
        d = torch.tensor(list(self.deque), dtype=torch.float32)
        return d.mean().item()

    @property
    def global_avg(self):
        return self.total / self.count

    @property
    def max(self):
        return max(self.deque)

    @property
    def value(self):
        return self.deque[-1]

    def __str__(self):
        return self.fmt.format(
            median=self.median, avg=self.avg, global_avg=self.global_avg, max=self.max,
            value=self.value,
        )


class MetricLogger(object):
    def __init__(self, delimiter="  "):
        self.meters = defaultdict(SmoothedValue)
        self.delimiter = delimiter

    def update(self, **kwargs):
        for k, v in kwargs.items():
            if v is None:
                continue
            if isinstance(v, torch.Tensor):
                v = v.item()
            assert isinstance(v, (float, int))
            self.meters[k].update(v)

    def __getattr__(self, attr):
        if attr in self.meters:
            return self.meters[attr]
        if attr in self.__dict__:
            return self.__dict__[attr]
        raise AttributeError(attr)

    def __str__(self):
        return self.delimiter.join(f"{name}: {str(m)}" for name, m in self.meters.items())

    def synchronize_between_processes(self):
        for meter in self.meters.values():
            meter.synchronize_between_processes()

    def add_meter(self, name, meter):
        self.meters[name] = meter

    def log_every(self, iterable, print_freq, header=None):
        i = 0
        iter_time = SmoothedValue(fmt="{avg:.4f}")
        for obj in iterable:
            yield obj
            iter_time.update(i)
            if i % print_freq == 0 or i == len(iterable) - 1:
                left = iter_time.global_avg * (len(iterable) - i)
                print(header, i, left, str(self), iter_time)
            i += 1
            print(header, "total", len(iterable))
"""
EPOCHS = """
for epoch in range(2):
    logger = MetricLogger()
    logger.add_meter("lr", SmoothedValue(window_size=1, fmt="{value:.6f}"))
    for x, y in logger.log_every(loader, 3, f"Epoch {epoch}"):
        x, y = x.to(device), y.to(device)
        out = model(x)
        loss = F.cross_entropy(out, y)
        parts = {"ce": loss, "norm": out.norm(), "none": None}
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        STEP
        logger.update(lr=optimizer.param_groups[0]["lr"])
    logger.synchronize_between_processes()
    print("Averaged stats:", logger)
    print({k: meter.global_avg for k, meter in logger.meters.items()}, logger.loss.median)
"""
PARTS = "logger.update(loss=loss, **parts)"
READ = """logger.update(loss=loss.item(), size=len(x))
        logger.meters["hits"].update((out.argmax(1) == y).float().mean().item(), n=len(x))"""
ADDED = 'logger.log("loss", loss.item())'
LOG = """    def log(self, name, value):
        if torch.is_tensor(value):
            value = value.item()
        self.meters[name].update(value)

    def add_meter("""


def logged(step: str, logger: str = LOGGER) -> str:
    return HEAD + logger + EPOCHS.replace("STEP", step)


@pytest.mark.parametrize(
    ("step", "kept"),
    [
        (PARTS, "v = v.detach().clone()"),
        (READ, "logger.update(loss=loss.detach(), size=len(x))"),
        (READ, 'logger.meters["hits"].keep('),
        (ADDED, 'logger.log("loss", loss.detach())'),
        ("logger.log(value=loss.item(), name='loss')", "logger.log(value=loss.detach(), name='loss')"),
    ],
)  # fmt: skip
def test_loggers_hand_tensors_on(step: str, kept: str) -> None:
    logger = LOGGER.replace("    def add_meter(", LOG) if "log(" in step else LOGGER
    done = same(logged(step, logger), kept, "value.item() if torch.is_tensor(value) else value")
    assert ".keep(v" in done.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # looked at as a number before and after it is made one
        ("            if v is None:", "            if v is None or v != v:"),
        ("            self.meters[k].update(v)", "            self.meters[k].update(v * 1.0)"),
        ("            self.meters[k].update(v)", "            self.meters[k].update(v)\n            v += 1"),
        ("            assert isinstance(v, (float, int))", "            if v < -1: continue"),
        ("        for k, v in kwargs.items():", "        last.update(kwargs)\n        for k, v in kwargs.items():"),
        ("if i % print_freq == 0 or i == len(iterable) - 1:", "if print_freq:"),
    ],
)  # fmt: skip
def test_loggers_that_look_at_numbers(old: str, new: str) -> None:
    logger = "last = {}\n" + LOGGER.replace(old, new)
    assert old in LOGGER
    for step in (PARTS, READ):
        text = logged(step, logger)
        done = apply("loss-item-sync", text)
        assert output(done.text) == output(text)
        assert "logger.update(loss=loss.detach()" not in done.text
    if "print_freq" in new:
        refused(text, "every step")


def test_dicts_that_make_what_is_missing() -> None:
    front = METER + "from collections import defaultdict\n"
    look = "print({k: m.avg for k, m in meters.items()})"
    step = (
        "meters['a'].update(loss.item(), len(x))\nmeters[f'b{i % 2}'].update(out.mean().item())\n"
    )
    text = HEAD + front + training(step + SHOWN + look, "meters = defaultdict(Meter)", look)
    same(text, "meters['a'].keep(loss.detach(), len(x))", "m.read().avg for k, m")
    same(text.replace("(Meter)", "(lambda: Meter())"), "meters['a'].keep(")


TIMM = """
from timm.utils import accuracy
hits, fives = Meter(), Meter()
model.eval()
with torch.no_grad():
    for i, (x, y) in enumerate(test_loader):
        x, y = x.to(device), y.to(device)
        out = model(x)
        one, two = accuracy(out, y, topk=(1, 2))
        hits.update(one.item(), n=x.shape[0])
        fives.update(two.item(), n=x.shape[0])
        if i % 3 == 0:
            print(hits, fives)
print(hits.avg, fives.avg)
"""


@pytest.fixture
def timm(monkeypatch: pytest.MonkeyPatch) -> None:
    stand_in = types.ModuleType("timm.utils")
    exec(TOLD["timm.utils.metrics"][0], stand_in.__dict__)
    monkeypatch.setitem(sys.modules, "timm", types.ModuleType("timm"))
    monkeypatch.setitem(sys.modules, "timm.utils", stand_in)


@pytest.mark.usefixtures("timm")
def test_what_a_library_measures_is_a_tensor() -> None:
    train = training("") + TIMM
    same(HEAD + METER + train, "hits.keep(", "fives.read().avg")


LIBRARY = "from timm.utils import AverageMeter\n\n"
STEP = "m.update(loss.item(), x.size(0))\nif i % 4 == 0:\n    "


def of_library(look: str, step: str = STEP, end: str = "print(m.avg, m.count)") -> str:
    return HEAD + LIBRARY + training(step + look, "m = AverageMeter()", end)


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize(
    ("look", "shown"),
    [
        ("print(m.val, m.avg)", "print(float(m.val), float(m.avg))"),
        ("print(f'{m.avg:.4f} {m.count}')", "{m.avg:.4f} {m.count}"),
        ("print('{m.val:.4f} {m.avg:.4f}'.format(m=m))", "format(m=m)"),
        ("print(math.exp(m.avg))", "math.exp(m.avg)"),
        ("m.update(0.5, 3)", "m.update(0.5, 3)"),
        ("m.reset()", "m.reset()"),
        ("m.sum = m.sum / 2", "m.sum = float(m.sum) / 2"),
    ],
)
def test_meters_of_a_library_compute_with_tensors(look: str, shown: str) -> None:
    done = apply("loss-item-sync", of_library(look))
    assert "m.update(loss.detach().double(), x.size(0))" in done.text and shown in done.text
    assert "print(float(m.avg), m.count)" in done.text
    assert output(done.text) == output(of_library(look))


@pytest.mark.usefixtures("timm")
@pytest.mark.parametrize(
    ("look", "step"),
    [
        ("print(getattr(m, 'avg'))", STEP),
        ("print(vars(m))", STEP),
        ("print('{m.val!r} {m.avg!r}'.format(m=m))", STEP),
        ("pass\nprint(m.avg)", STEP),
        ("print(m.val)", STEP.replace("loss", "out.argmax(1).eq(y).sum()")),
        ("with torch.no_grad():\n        m.update(model(x).mean().item())", STEP),
    ],
)
def test_meters_of_a_library_that_get_numbers(look: str, step: str) -> None:
    done = apply("loss-item-sync", of_library(look, step))
    assert "m.update(loss.detach()" not in done.text and ".double()" not in done.text
    assert output(done.text) == output(of_library(look, step))


@pytest.mark.parametrize("step", ["pass", f"{GIVEN}{SHOWN}print(m.avg)"])
def test_new_code_in_a_meter_is_not_worth_it_for_an_evaluation_alone(step: str) -> None:
    measured = (
        "with torch.no_grad():\n    for x, y in loader:\n"
        "        loss = F.cross_entropy(model(x.to(device)), y.to(device))\n"
        "        v.update(loss.item(), x.size(0))\nprint(v.avg)"
    )
    text = HEAD + METER + training(step, "m, v = Meter(), Meter()", measured)
    whole = apply("loss-item-sync", text)
    assert "v.keep(loss," in whole.text
    done = apply("loss-item-sync", text, min_gain=0.01)
    assert ("v.keep(loss," in done.text) is (step != "pass")
    assert output(done.text) == output(text)


# The class as most have it, whose text formats what it has.
PLAIN = METER.replace('f"{self.val!r} ({self.avg!r})"', 'f"{self.val:.6f} ({self.avg:.6f})"')
AS_DICT = PLAIN.replace(
    'return f"{self.val:.6f} ({self.avg:.6f})"',
    "return ('{val' + self.spec + '} ({avg' + self.spec + '})').format(**self.__dict__)",
).replace("self.reset()", "self.spec = ':.6f'\n        self.reset()", 1)
SUMMED = "m.update(loss.detach().double(), x.size(0))"


@pytest.mark.parametrize(
    ("front", "look", "shown"),
    [
        (PLAIN, "print(m)", "print(float(m.avg))"),
        (AS_DICT, "print(str(m), m.count)", "print(float(m.avg))"),
        (PLAIN, "print(m.avg, f'{m.val:.5f}')", "print(float(m.avg), f'{m.val:.5f}')"),
        (PLAIN, "print([round(v, 5) for v in [m.avg]])", "[float(m.avg)]"),
        (PLAIN, "m.update(0.5, 3)", "m.update(0.5, 3)"),
        (
            PLAIN.replace("/ self.count", "/ self.count if self.count else 0"),
            "m.reset()",
            "m.reset()",
        ),
        (
            PLAIN.replace("+= val * n", "+= val"),
            "print(m.val, m.sum)",
            "float(m.val), float(m.sum)",
        ),
    ],
)
def test_a_class_that_only_adds_and_divides_computes_with_tensors(
    front: str, look: str, shown: str
) -> None:
    text = metered(SHOWN + look, front)
    done = same(text, SUMMED)
    assert shown in done.text and ".keep(" not in done.text
    assert {f.effect for f in done.fixes} == {Effect.ROUNDING}
    exact = apply("loss-item-sync", text, effect=Effect.EXACT)
    assert "m.keep(loss.detach(), x.size(0))" in exact.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{self.val:.6f}", "{self.val!s}"),  # what a tensor is called
        ("self.avg = self.sum / self.count\n", "self.avg = self.sum / self.count\n        self.best = max(self.avg, 0)\n"),
        ("self.avg = self.sum / self.count\n", "self.avg = self.sum / self.count\n        if val > 3:\n            self.avg = 0\n"),
        ("self.avg = self.sum / self.count\n", "self.avg = self.sum / (self.count + val)\n"),
        ("self.sum += val * n", "self.last = self.sum\n        self.sum += val * n"),  # one tensor
        ("self.val = self.sum =", "self.last = [self.val] if self.__dict__ else []\n        self.val = self.sum ="),
    ],
)  # fmt: skip
def test_a_class_that_does_more_keeps_tensors(old: str, new: str) -> None:
    assert old in PLAIN
    done = same(metered(SHOWN + "print(m)", PLAIN.replace(old, new)))
    assert ".double()" not in done.text


@pytest.mark.parametrize(("attr", "summed"), [("avg", True), ("val", False)])
def test_a_meter_of_whole_numbers_beside_it(attr: str, summed: bool) -> None:
    step = f"m.update(loss.item())\nc.update(x.size(0))\n{SHOWN}print([w.{attr} for w in [m, c]])"
    text = HEAD + PLAIN + training(step, "m, c = Meter(), Meter()", "print(m.avg)")
    assert (".double()" in same(text).text) is summed


@pytest.mark.parametrize(
    ("model", "given"),
    [("", "loss.detach().double()"), ("model.double()\n", "loss.detach().clone().double()")],
)
def test_a_loss_of_64_bits_that_is_changed_later_is_copied(model: str, given: str) -> None:
    step = f"m.update(loss.item(), x.size(0))\nloss.detach().mul_(0)\n{SHOWN}print(m.avg)"
    body = training(step, "m = Meter()", "print(m.avg)")
    body = (
        body.replace("x, y = x.to(device)", "x, y = x.to(device, torch.float64)") if model else body
    )
    text = HEAD + PLAIN + model + body
    done = same(text)
    assert f"m.update({given}, x.size(0))" in done.text


def test_whole_numbers_are_no_floats() -> None:
    step = "m.update(out.argmax(1).eq(y).sum().item(), x.size(0))\n"
    done = same(metered(SHOWN + "print(m.val)", PLAIN, step))
    assert ".double()" not in done.text
