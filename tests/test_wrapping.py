"""New lines as the file has them: broken where it breaks its own, imports in its order, remarks
where they were.
"""

from __future__ import annotations

import ast

import pytest

from autofast.edit.aligned import broken_lines, carried_on, is_habit
from autofast.edit.edits import Helper, Import, Keyword, Parameter, Rewrite
from autofast.model.source import Source
from tests.engine import call, edited, source

ALIGNED = """
loss = cross_entropy(outputs, labels,
                     reduction="mean")
"""
HANGING = """
loss = cross_entropy(
    outputs, labels, reduction="mean"
)
"""
SIGNATURE = """
def train(args, model, device, train_loader, optimizer, epoch):
    f(args)
"""


def test_what_a_file_does_with_long_lines() -> None:
    assert is_habit(ALIGNED) and not is_habit(HANGING) and not is_habit(SIGNATURE)
    assert not is_habit(ALIGNED + HANGING.replace("loss", "other"))


def parameter(s: Source) -> list[Parameter]:
    function = next(n for n in s.nodes if getattr(n, "name", "") == "train")
    return [Parameter(function, "scaler", "GradScaler(enabled=False)", rule="a")]  # type: ignore[arg-type]


def test_a_signature_is_broken_as_the_file_breaks_its_lines() -> None:
    text = edited(SIGNATURE + ALIGNED, parameter, 70)
    assert text.startswith(
        """
def train(args, model, device, train_loader, optimizer, epoch,
          scaler=GradScaler(enabled=False)):
    f(args)
"""
    )
    text = edited(SIGNATURE + HANGING, parameter, 70)
    assert "def train(\n    args," in text


@pytest.mark.parametrize(
    ("line", "limit", "lines"),
    [
        ("f(aaaa, bbbb, cccc)", 15, ["f(aaaa, bbbb,", "  cccc)"]),
        ("f(aaaa, [bbbb, cccc])", 20, ["f(aaaa,", "  [bbbb, cccc])"]),
        ("x = g(1)(aaaa, bbbb)  # why", 22, ["x = g(1)(aaaa,", "         bbbb)  # why"]),
        ("f(aaaa_bbbb_cccc)", 10, None),
        ("x, y = f(aaaa), f(bbbb)", 12, None),
        ("\tf(aaaa, bbbb)", 10, None),
        ("a_name_that_is_long(a, b)", 22, None),
        ("x = {k: f(k, net, 2) for k, net in nets.items()}", 36, None),
        (
            "x = sorted(rows, key=lambda a, b: a)",
            30,
            ["x = sorted(rows,", "           key=lambda a, b: a)"],
        ),
    ],
)
def test_a_line_is_broken_after_commas(line: str, limit: int, lines: list[str] | None) -> None:
    assert broken_lines(line, limit) == lines


CONTINUED = """
loader = DataLoader(data, batch_size=8, \\
                    shuffle=True, drop_last=True)
"""


def test_lines_that_go_on_are_broken_where_they_go_on() -> None:
    def more(s: Source) -> list[Keyword]:
        made = call(s, "DataLoader")
        return [Keyword(made, "workers", "4", rule="a"), Keyword(made, "pin", "f(1, 2)", rule="a")]

    assert edited(CONTINUED, more, 60).splitlines()[2:] == [
        "                    shuffle=True, drop_last=True, workers=4,",
        "                    pin=f(1, 2))",
    ]
    plain = CONTINUED.replace(" \\", "")
    assert edited(plain, more, 60).splitlines()[2:] == [
        "                    shuffle=True, drop_last=True, workers=4,",
        "                    pin=f(1, 2))",
    ]
    tabs = plain.replace("                    ", "\t")
    assert "\n\tshuffle=True, drop_last=True, workers=4,\n\tpin=" in edited(tabs, more, 45)


@pytest.mark.parametrize(
    ("line", "limit", "lines"),
    [
        ("  'a, b', [c, d], e)", 14, ["  'a, b',", "  [c, d], e)"]),
        ("  aaaa, bbbb), cccc, dddd", 14, None),
        ("  aaaa,  # and more, much more", 14, None),
    ],
)
def test_commas_of_a_part(line: str, limit: int, lines: list[str] | None) -> None:
    assert carried_on(line, limit) == lines


BELOW = """
edges = Variable(zeros(x.size(0),
                       x.size(1), g(1,
                                    2)))
other = Variable(zeros(x.size(0),
                       x.size(1)))
text = f(Variable(x), \"\"\"
         a\"\"\")
"""


def test_lines_go_with_the_bracket_that_they_stand_below() -> None:
    def plain(s: Source) -> list[Rewrite | Keyword]:
        inner = call(s, "zeros")
        unwrap = Rewrite(call(s, "Variable"), "{made}", {"made": inner}, rule="a")
        return [unwrap, Keyword(inner, "device", "x.device", rule="b")]

    after = edited(BELOW, plain, None)
    assert after.startswith(
        """
edges = zeros(x.size(0),
              x.size(1), g(1,
                           2), device=x.device)
other"""
    )
    assert after[after.index("other") :] == BELOW[BELOW.index("other") :]

    def named(s: Source) -> list[Rewrite]:
        return [
            Rewrite(
                call(s, "f"),
                "longer(Variable(x), {text})",
                {"text": call(s, "f").args[1]},
                rule="a",
            )
        ]

    assert edited(BELOW, named, None).endswith('text = longer(Variable(x), """\n         a""")\n')


LONG = "    total += first_of_all.shape[0] * second_of_all.shape[1] * third_of_all.shape[2] * the_loss_of_this_batch.item() + 1.0 * 2.0"


def test_the_width_of_a_file_is_that_of_its_long_lines_of_code() -> None:
    """Three lines of 130 columns are a habit; one, or a long text, is none."""
    call_ = "    f(first_of_all.shape[0] * second_of_all.shape[1] * third_of_all.shape[2], losses)"
    grown = ", ".join([call_[:-1], *("another_one_of_them",) * 2]) + ")"

    def more(s: Source) -> list[Rewrite]:
        return [Rewrite(call(s, "f"), grown.strip(), rule="a")]

    for lines, broken_ in ((3, False), (1, True)):
        head = "\n".join(["def g():", *(LONG.replace("1.0", f"{n}.0") for n in range(lines))])
        after = edited(f"{head}\n{call_}\n", more, None)
        assert (grown not in after.split("\n")) is broken_
    text = "\n".join("    h('" + "text " * 30 + f"{n}')" for n in range(3))
    assert grown not in edited(f"def g():\n{text}\n{call_}\n", more, None).split("\n")


def test_a_call_stays_on_one_line_beside_one_like_it() -> None:
    args = "the_data_set_of_all, batch_size=the_options.batch_size, num_workers=the_options.workers"
    before = f"one = Loader({args}, sampler=Sampler(the_data_set_of_all))\ntwo = Loader({args})\n"
    after = edited(before, lambda s: [Keyword(call(s, "Loader", 1), "pin", "True", rule="a")], 100)
    assert after.endswith(f"\ntwo = Loader({args}, pin=True)\n")


@pytest.mark.parametrize(
    ("between", "below"),
    [
        ('matplotlib.use("Agg")', True),
        ('os.environ["A"] = "b"', True),
        ("DEBUG = False", False),  # may be what decides about the next import
        ("def f():\n    pass", False),
    ],
)
def test_a_constant_stands_below_all_imports(between: str, below: bool) -> None:
    text = f"import os\nimport matplotlib\n\n{between}\nimport torch.nn\n\nf(1)\n"
    after = edited(text, lambda s: [Helper(s, "n", "n = 3\n", rule="a")], None)
    assert (after.index("n = 3") > after.index("import torch")) is below


def test_two_lines_rather_than_one_for_each_argument() -> None:
    """Where neither the file nor the project's settings show how calls are broken."""
    names = [f"keyword_{n}=options.value_{n}" for n in range(4)]
    before = f"made = Loader({', '.join(names[:2])})\n"

    def more(s: Source) -> list[Keyword]:
        made = call(s, "Loader")
        return [Keyword(made, f"keyword_{n}", f"options.value_{n}", rule="a") for n in (2, 3)]

    lines = [f"made = Loader({names[0]}, {names[1]},", f"              {names[2]}, {names[3]})"]
    assert edited(before, more, None).splitlines() == lines
    black = "made = Loader(\n    keyword_0=options.value_0,\n"
    assert edited(before, more, 88).startswith(black)
    assert edited(before + "f(\n    1,\n    2,\n)\n", more, None).startswith(black)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "made = Loader(data, shuffle=True, limit=4)  # four\n",
            "made = Loader(data, shuffle=True, limit=4,  # four\n              size=options.size)\n",
        ),
        (  # the line is broken where the user ended it, not where it is full
            "made = Loader(data, b=1,\n              a=1, b=2)  # four\n",
            "made = Loader(data, b=1,\n              a=1, b=2,  # four\n              size=options.size, kept=True)\n",
        ),
        (  # its own line holds it all
            "made = Loader(data, b=1,\n              a=1)  # four\n",
            "made = Loader(data, b=1,\n              a=1, size=options.size)  # four\n",
        ),
        (  # one argument a line; two remarks of one kind
            "made = Loader(data,  # four\n              shuffle=True)  # four\n",
            "made = Loader(data,  # four\n              shuffle=True,  # four\n              size=options.size,\n              kept=True)\n",
        ),
    ],
)
def test_a_remark_stays_behind_what_it_was_written_behind(before: str, after: str) -> None:
    names = {"size": "options.size"} | ({"kept": "True"} if "kept" in after else {})

    def more(s: Source) -> list[Keyword]:
        return [Keyword(call(s, "Loader"), n, v, rule="a") for n, v in names.items()]

    assert edited(before + ALIGNED, more, 50) == after + ALIGNED


def test_a_remark_that_made_a_line_too_long_stays_at_its_end() -> None:
    remark = "  # what the loss of the batch comes to, summed up over all the samples in it"
    before = f"total += f(loss){remark}\n"
    after = edited(before, lambda s: [Keyword(call(s, "f"), "n", "4", rule="a")], 60)
    assert after == f"total += f(loss, n=4){remark}\n"
    longer = edited(
        before,
        lambda s: [Rewrite(call(s, "f"), "f(loss, " + "reduction, " * 6 + "n)", rule="a")],
        60,
    )
    assert len(longer.splitlines()) > 1  # too long without it, too


@pytest.mark.parametrize(
    ("before", "code", "after"),
    [
        ("import argparse\nimport sys\n", "import os", "import argparse\nimport os\nimport sys\n"),
        ("import sys\nimport argparse\n", "import os", "import sys\nimport argparse\nimport os\n"),
        (
            "import sys\nfrom torch import nn\nimport numpy\n",
            "import torch",
            "import sys\nimport torch\nfrom torch import nn\nimport numpy\n",
        ),
        (
            "import sys\n# the library\nfrom torch import nn\nimport numpy\n",
            "import torch",
            "import sys\n# the library\nfrom torch import nn\nimport numpy\nimport torch\n",
        ),
        (
            '"""What it is."""\nimport sys\nimport time\n',
            "import os",
            '"""What it is."""\n\nimport os\nimport sys\nimport time\n',
        ),
    ],
)
def test_an_import_goes_where_the_file_would_have_it(before: str, code: str, after: str) -> None:
    text = source(before + "\n\nf()\n")
    assert edited(text.text, lambda s: [Import(s, code, rule="a")], None) == after + "\n\nf()\n"


def test_calls_of_one_function_stay_long_together() -> None:
    """A line may outgrow one that was too long before by so much; one beside it that outgrows more
    is not broken alone.
    """
    before = (
        "first = Loader(the_data_of_training, batch_size=128, shuffle=True, workers=4)\n"
        "other = Loader(the_data_of_evaluation, batch_size=256, workers=4)\n"
    )
    edits = lambda s: [  # noqa: E731
        Keyword(call(s, "Loader", 0), "pin", "True", rule="a"),
        Keyword(call(s, "Loader", 1), "persistent_workers", "count_of_workers > 0", rule="a"),
    ]
    assert len(edited(before, edits, 60).splitlines()) == 2


PAIR = """
train_loader = DataLoader(Tiles(root, ids[count:], True), batch_size=size, shuffle=True)
val_loader = DataLoader(Tiles(root, ids[:count]), batch_size=size)
"""


def test_calls_of_one_function_are_broken_in_one_way() -> None:
    def more(s: Source) -> list[Keyword]:
        made = [n for n in s.nodes if isinstance(n, ast.Call)]
        loaders = [n for n in made if ast.unparse(n.func) == "DataLoader"]
        return [Keyword(n, "pin_memory", "torch.cuda.is_available()", rule="a") for n in loaders]

    assert edited(PAIR, more).splitlines()[1:] == [
        "train_loader = DataLoader(Tiles(root, ids[count:], True), batch_size=size, shuffle=True,",
        "                          pin_memory=torch.cuda.is_available())",
        "val_loader = DataLoader(Tiles(root, ids[:count]), batch_size=size,",
        "                        pin_memory=torch.cuda.is_available())",
    ]
