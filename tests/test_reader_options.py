"""Options of the command line, in the ways that scripts declare them and get at them."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.model.values import Arg, Const, Func, Unknown
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
    "click, named": """
        import click
        import probe
        @click.command()
        @click.option("--bs", "batch_size", default=64)
        def main(batch_size):
            probe.show(batch_size)
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
