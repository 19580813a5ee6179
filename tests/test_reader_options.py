"""Options of the command line, in the ways that scripts declare them and get at them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.model.values import Arg, Cls, Const, Func, Num, Unknown
from tests.onerule import apply, run
from tests.reading import read, shown

ARGPARSE = """
import argparse
import probe
parser = argparse.ArgumentParser()
"""
WAYS = {
    "parents": """
        import argparse
        import probe
        def get_parser():
            parser = argparse.ArgumentParser("model", add_help=False)
            parser.add_argument("--batch-size", type=int, default=64)
            return parser
        parser = argparse.ArgumentParser("train", parents=[get_parser()])
        probe.show(parser.parse_args().batch_size)
    """,
    "vars": """
        import argparse
        import probe
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch_size", type=int, default=64)
        args = vars(parser.parse_args())
        probe.show(args["batch_size"])
        probe.show(args.get("batch_size"))
    """,
    "spread": """
        import argparse
        import probe
        parser = argparse.ArgumentParser()
        parser.add_argument("--batch_size", type=int, default=64)
        def main(batch_size):
            probe.show(batch_size)
        main(**vars(parser.parse_args()))
    """,
    "fire": """
        import fire
        import probe
        def main(path, batch_size=64):
            probe.show(batch_size)
        if __name__ == "__main__":
            fire.Fire(main)
    """,
    "tyro": """
        import probe
        import tyro
        def main(*, batch_size: int = 64):
            probe.show(batch_size)
        tyro.cli(main)
    """,
    "tyro, a class": """
        from dataclasses import dataclass, field
        import probe
        import tyro
        @dataclass
        class Args:
            names: list = field(default_factory=list)
            batch_size: int = 64
        def main(args):
            probe.show(args.batch_size)
        if __name__ == "__main__":
            main(tyro.cli(Args))
    """,
    "transformers": """
        from dataclasses import dataclass, field
        import probe
        from transformers import HfArgumentParser
        @dataclass
        class Args:
            batch_size: int = 64
        (args,) = HfArgumentParser(Args).parse_args_into_dataclasses()
        probe.show(args.batch_size)
    """,
    "own parser": """
        import argparse
        import probe
        class Parser(argparse.ArgumentParser):
            def __init__(self):
                super().__init__()
                self.add_argument("--batch_size", type=int, default=64)
        probe.show(Parser().parse_args().batch_size)
    """,
    "subcommand": """
        import argparse
        import probe
        def train(args):
            probe.show(args.batch_size)
        parser = argparse.ArgumentParser()
        command = parser.add_subparsers().add_parser("train")
        command.add_argument("--batch_size", type=int, default=64)
        command.set_defaults(func=train)
        args = parser.parse_args()
        args.func(args)
    """,
    "click": """
        import click
        import probe
        @click.command()
        @click.option("--epochs", default=3)
        @click.option("-b", "--batch-size", type=int, default=64)
        def main(epochs, batch_size):
            probe.show(batch_size)
        if __name__ == "__main__":
            main()
    """,
    "click, a group": """
        import click
        import probe
        @click.group()
        @click.option("--out", default="out")
        @click.pass_context
        def cli(ctx, out):
            ctx.obj = {"out": out}
        @cli.command()
        @click.option("--batch-size", default=64)
        @click.pass_obj
        def train(obj, batch_size, **kw):
            probe.show(batch_size)
        @cli.group()
        def more():
            pass
        @more.command("try")
        def try_it():
            pass
        if __name__ == "__main__":
            cli(obj={})
    """,
    "typer, an app": """
        import probe
        import typer
        app = typer.Typer()
        @app.command()
        def train(path: str, batch_size: int = 64):
            probe.show(batch_size)
        @app.command()
        def test(path: str):
            pass
        if __name__ == "__main__":
            app()
    """,
    "click, named": """
        import click
        import probe
        @click.command()
        @click.option("--bs", "batch_size", default=64)
        def main(batch_size):
            probe.show(batch_size)
        main()
    """,
    "click, the rest": """
        import click
        import probe
        @click.command()
        @click.option("--epochs", default=3)
        @click.option("--batch-size", default=64)
        def main(epochs, **settings):
            probe.show(settings["batch_size"])
        main()
    """,
    "absl": """
        import probe
        from absl import app, flags
        FLAGS = flags.FLAGS
        flags.DEFINE_integer("batch_size", 64, "rows in a batch")
        def main(argv):
            probe.show(FLAGS.batch_size)
        if __name__ == "__main__":
            app.run(main)
    """,
    "absl, a holder": """
        import probe
        from absl import flags
        SIZE = flags.DEFINE_integer("batch_size", 64, "rows in a batch")
        probe.show(SIZE.value)
    """,
    "configargparse": """
        import configargparse
        import probe
        parser = configargparse.ArgParser(default_config_files=["train.ini"])
        parser.add("--batch_size", type=int, default=64)
        probe.show(parser.parse_args().batch_size)
    """,
}


@pytest.mark.parametrize("way", WAYS)
def test_an_option_is_its_default_or_what_is_said(way: str, tmp_path: Path) -> None:
    (option,) = shown(read(tmp_path, WAYS[way]))
    assert isinstance(option, Arg)
    assert (option.name, option.default) == ("batch_size", frozenset({Const(64)}))
    assert option.said is not None


def test_a_field_that_is_made_anew_or_has_no_default_is_not_known(tmp_path: Path) -> None:
    code = """
        from dataclasses import dataclass, field
        import probe, pyrallis
        @dataclass
        class Args:
            path: str
            sizes: list = field(default_factory=lambda: [64])
        args = pyrallis.parse(config_class=Args)
        probe.show(args.path)
        probe.show(args.sizes)
    """
    found = shown(read(tmp_path, code))
    assert any(isinstance(t, Unknown) for t in found)
    assert not any(isinstance(t, Arg) for t in found)


def test_what_a_field_says_of_its_default(tmp_path: Path) -> None:
    code = """
        from dataclasses import dataclass, field
        import probe
        @dataclass
        class Net:
            hidden: int = field(default=48, repr=False)
        @dataclass
        class Args:
            net: Net = field(default_factory=Net)
        probe.show(Args().net.hidden)
    """
    assert shown(read(tmp_path, code)) == {Const(48)}


def test_options_of_parents_that_are_not_known(tmp_path: Path) -> None:
    code = ARGPARSE.replace("()", "(parents=[probe.maybe()])")
    found = shown(read(tmp_path, code + "probe.show(parser.parse_args().batch_size)"))
    assert any(isinstance(t, Unknown) for t in found)


def test_what_is_written_into_vars_of_options_counts(tmp_path: Path) -> None:
    code = (
        ARGPARSE
        + "parser.add_argument('--n', type=int, default=4)\nargs = parser.parse_args()\nvars(args)['n'] = 1\nprobe.show(args.n)\nprobe.show(vars(args)['n'])\n"
    )
    assert Const(1) in shown(read(tmp_path, code))


def test_functions_of_several_subcommands(tmp_path: Path) -> None:
    code = """
        import argparse
        import probe
        def train(args): pass
        def test(args): pass
        parser = argparse.ArgumentParser()
        commands = parser.add_subparsers()
        commands.add_parser("train").set_defaults(func=train)
        commands.add_parser("test").set_defaults(func=test)
        probe.show(parser.parse_args().func)
    """
    found = {t.name for t in shown(read(tmp_path, code)) if isinstance(t, Func)}
    assert found == {"train", "test"}


# ------------------------------------------------------------------------ options that name a class
CHOSEN = """
import argparse
import sys
import torch
from torch import nn

class Small(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 2, 3))

class Large(nn.Sequential):
    def __init__(self):
        super().__init__(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Conv2d(8, 2, 3))

NETS = {{"small": Small, "large": Large}}

class Choose(argparse.Action):
    def __call__(self, parser, namespace, values, option_string=None):
        setattr(namespace, self.dest, self.choices[values])

Made = type("", (argparse.Action,), dict(__call__=lambda a, p, n, v, o: setattr(n, a.dest, a.choices[v])))

torch.manual_seed(0)
parser = argparse.ArgumentParser()
parser.add_argument("--net", default=Small, {how})
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
net = parser.parse_args(words).net().to(device)
optimizer = torch.optim.Adam(net.parameters(), lr=0.1)
losses = []
for step in range(4):
    optimizer.zero_grad()
    loss = net(torch.randn(2, 3, 8, 8).to(device)).pow(2).mean()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
"""


@pytest.mark.parametrize("words", [[], ["--net", "large"]])
@pytest.mark.parametrize(
    "how",
    [
        "choices=NETS, action=Choose",
        "choices=dict(small=Small, large=Large), action=Made",
        "type=lambda name: NETS[name]",
        "type=NETS.__getitem__",
    ],
)
def test_classes_that_options_name(how: str, words: list[str]) -> None:
    """What is made of the class is known, whichever the user asks for."""
    found = apply("channels-last", CHOSEN.format(how=how))
    assert bool(found.fixes) is ("__getitem__" not in how)
    before = run(found.before, words=words)["losses"]
    assert run(found.text, words=words)["losses"] == pytest.approx(before, rel=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("self.choices[values])", "self.choices[values])\n        namespace.lr = 2"),
        ("self.choices[values])", "self.choices.get(values, eval(values)))"),
        ("self.choices[values])", "__import__(values).Net)"),
        ("setattr(namespace, self.dest,", "setattr(namespace, values,"),
        ("class Choose(argparse.Action):", "class Choose(secret.Action):"),
        ("    def __call__", "    def __init__(self, *a, **k):\n        pass\n\n    def __call__"),
    ],
)
def test_actions_that_may_do_anything(old: str, new: str, tmp_path: Path) -> None:
    text = CHOSEN.format(how="choices=NETS, action=Choose")
    assert old in text
    code = text.replace(old, new).replace("import sys", "import secret\nimport probe")
    found = shown(read(tmp_path, code + "\nprobe.show(parser.parse_args().net)\n"))
    assert not all(isinstance(t, Cls) for t in found)


def test_options_of_numbers_stay_options(tmp_path: Path) -> None:
    """A converter of the project that gives no class: the default, or what the user says."""
    code = ARGPARSE + (
        "def size(text):\n    return int(text) * 2\n"
        "parser.add_argument('--n', type=size, default=4)\nprobe.show(parser.parse_args().n)\n"
    )
    (option,) = shown(read(tmp_path, code))
    assert isinstance(option, Arg) and option.default == frozenset({Const(4)})


OVERRIDDEN = """
import probe
import torch
cfg = {"l2": 0.1, "hidden": [256, 64], "vocab": {"user": 9}}
for item in input().split():
    key, value = item.split("=")
    cfg[key] = type(cfg[key])(value)
weight = torch.nn.Linear(2, 2).weight
probe.show(LINE)
"""


@pytest.mark.parametrize(
    ("line", "sums"),
    [
        ("cfg['l2'] * weight.sum()", True),
        ("weight.sum() * cfg['l2']", True),
        ("cfg['l2'] + weight.sum()", True),
        ("cfg['hidden'] * 2", False),
        ("cfg['hidden'] + [1]", False),
    ],
)
def test_no_list_is_added_to_a_tensor(tmp_path: Path, line: str, sums: bool) -> None:
    """Whatever an option may be after a key that is not known was set."""
    found = shown(read(tmp_path, OVERRIDDEN.replace("LINE", line)))
    kinds = {type(thing).__name__ for thing in found}
    assert kinds == {"Tensor"} if sums else "Seq" in kinds


def test_fields_of_a_dataclass_whose_keys_are_computed(tmp_path: Path) -> None:
    """They are options with the defaults of the class; without one, numbers are numbers by what it
    says of them, and nothing else is known.
    """
    text = """
        import argparse, dataclasses, probe
        @dataclasses.dataclass
        class Config:
            name: str
            rate: float
            width: int = 64
            deep: bool = False
        parser = argparse.ArgumentParser()
        for f in dataclasses.fields(Config):
            parser.add_argument("--" + f.name, type=type(f.default), default=f.default)
        given = vars(parser.parse_args())
        cfg = Config(**{f.name: given[f.name] for f in dataclasses.fields(Config)})
        probe.show({what})
    """
    for number in ("cfg.rate", "cfg.width // 4"):
        found = shown(read(tmp_path, text.replace("{what}", number)))
        assert all(isinstance(t, Const | Num) for t in found)
    for option, default in (("cfg.width", 64), ("cfg.deep", False)):
        (found,) = shown(read(tmp_path, text.replace("{what}", option)))
        assert isinstance(found, Arg) and found.default == {Const(default)}
    found = shown(read(tmp_path, text.replace("{what}", "cfg.name")))
    assert any(isinstance(t, Unknown) for t in found)


@pytest.mark.parametrize(
    ("declared", "known"),
    [
        ('"--n", type=int, default=4', True),
        ('"--n", type=float, default=0.5, help="how much"', True),
        ('"n", type=int, default=2 * 2, choices=[2, 4]', True),
        ('"--n", type=int', False),
        ('"--n", type=int, default=None', False),
        ('"--n", type=int, default=4, nargs="?"', False),
        ('"--n", type=lambda s: None if s == "no" else int(s), default=4', False),
        ('"--n", type=int, default=4, action=Choose', False),
        ('"--n", default=4', False),
        ('"--n", type=int, default=4, **more', False),
    ],
)
def test_options_of_numbers_are_never_none(declared: str, known: bool, tmp_path: Path) -> None:
    """Only where neither the default nor the command line can say None."""
    add = f"from other import Choose, more\nparser.add_argument({declared})\n"
    found = shown(read(tmp_path, f"{ARGPARSE}{add}probe.show(parser.parse_args().n is not None)"))
    assert (found == {Const(True)}) is known


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("\nargs =", "\nparser.set_defaults(n=None)\nargs ="),
        ("probe.show(", "if probe.maybe():\n    args.n = None\nprobe.show("),
        ("argparse.ArgumentParser()", "jsonargparse.ArgumentParser()"),
        ("argparse.ArgumentParser()", "Parser()"),
    ],
)
def test_what_else_may_make_an_option_none(old: str, new: str, tmp_path: Path) -> None:
    text = """
import argparse, jsonargparse, probe
class Parser(argparse.ArgumentParser):
    def parse_args(self):
        args = super().parse_args()
        args.n = None
        return args
parser = argparse.ArgumentParser()
parser.add_argument("--n", type=int, default=4)
args = parser.parse_args()
probe.show(args.n is not None)
"""
    assert shown(read(tmp_path, text)) == {Const(True)}
    assert shown(read(tmp_path, text.replace(old, new, 1))) != {Const(True)}
