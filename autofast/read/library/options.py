"""Options of the command line: what argparse, click and absl give a script is the default, or what
its user says.
"""

from __future__ import annotations

import ast
from dataclasses import replace
from typing import TypeGuard

from autofast.flow.scopes import defaults
from autofast.model.calls import is_name
from autofast.model.events import BranchFrame
from autofast.model.several import surely, wordset
from autofast.model.source import parent_of
from autofast.model.values import (
    NONE,
    NOTHING,
    NUMBER,
    Arg,
    Arguments,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Given,
    Inst,
    Partial,
    Ref,
    Seq,
    Thing,
    Unknown,
    Values,
    Where,
    all_of,
    any_named,
    any_of,
    const,
    is_const,
    is_named,
    of_kind,
    one,
    ordered,
    things as values,
)
from autofast.read.library.iteration import iterate
from autofast.read.library.table import gives_for, make
from autofast.read.state.core import Core

PARSERS = wordset("""argparse.ArgumentParser configargparse.ArgParser configargparse.ArgumentParser
    configargparse.ConfigArgParser jsonargparse.ArgumentParser""")
# Of these, `default`, `type=int` and no more than words about it make an option a number.
OF_NUMBERS = wordset("default type help metavar dest required choices env_var")
NUMBERS = ("builtins.int", "builtins.float")
SPACES = wordset("types.SimpleNamespace argparse.Namespace")
ACTION = "argparse.Action"
FLAGS = "absl.flags.FLAGS"
DEFINE = "absl.flags.DEFINE_"
TYPER = wordset("typer.Option typer.Argument")
# What makes a command of a function: its parameters are options, their defaults those of the
# options.
RUNNERS = {
    "fire.Fire": "component",
    "tyro.cli": "f",
    "typer.run": "function",
    "defopt.run": "funcs",
    "plac.call": "obj",
    "argh.dispatch_command": "function",
    "jsonargparse.CLI": "components",
    "jsonargparse.auto_cli": "components",
    **dict.fromkeys(("pyrallis.parse", "draccus.parse", "simple_parsing.parse"), "config_class"),
}
GROUPS = ("click.group", "click.decorators.group", "rich_click.group")
COMMAND_LINE = "the command line gives them"
OPTION = "option "  # before the names of options among the attributes of a parser


@gives_for(*PARSERS)
def _parser(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    parser = interp.intern(Ext, (node, name), lambda: Ext(name, node, args))
    _inherit(interp, parser, args.get(4, "parents"), node)
    return values(parser)


@gives_for("typer.Typer")
def _app(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    made = make(interp, name, args, node)
    _open_group(interp, made)
    return made


@gives_for(*RUNNERS)
def _run(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    """What the function gives that ``fire.Fire(train)`` calls, or the object of a class with the
    options (``tyro.cli(Args)``); None where it is nothing of the project.
    """
    given = args.get(0, RUNNERS[name])
    if surely(isinstance(t, Cls) and "dataclass" in t.external for t in given):
        return interp.call_values(given, Arguments(node, open=COMMAND_LINE), node)
    if (
        not isinstance(node, ast.Call)
        or len(given) != 1
        or not isinstance(func := next(iter(given)), Func)
    ):
        return None
    return None if isinstance(func.node, ast.Lambda) else _command(interp, func, node)


def _command(interp: Core, func: Func, node: ast.Call) -> Values:
    """What a function gives whose parameters are options."""
    args = Arguments(node)
    for parameter, default in defaults(func.node).items():
        found = func.defaults.get(parameter, NOTHING) if default is not None else NOTHING
        if not found and (found := of_command(interp, func, parameter)):
            args.named[parameter] = Given(found, None)
            continue
        option = Arg(parameter, found, node, "", default)
        unsaid = Unknown(f"`{parameter}` is given on the command line")
        args.named[parameter] = Given(values(option if found else unsaid), default)
    return interp.call_values(values(func), args, node)


def enlist(interp: Core, written: ast.expr, found: Values) -> bool:
    """Whether a decorator is ``@cli.command()`` of a group of click, or ``@app.command()`` of
    ``app = typer.Typer()``, which runs what it is put on when it is called.
    """
    func = written.func if isinstance(written, ast.Call) else written
    if any_named(interp.at.get(func, NOTHING), Ref, GROUPS):
        _open_group(interp, found)
    if not isinstance(func, ast.Attribute) or func.attr not in ("command", "group", "callback"):
        return False
    known = [t for t in interp.at.get(func.value, NOTHING) if t in interp.commands]
    for group in known:
        interp.commands[group][written] = found
    if known and func.attr == "group":
        _open_group(interp, found)
    return bool(known)


def _open_group(interp: Core, found: Values) -> None:
    for group in found:
        interp.commands.setdefault(group, {})


def run_commands(interp: Core, group: Thing, node: Where) -> None:
    """One of the commands of a group runs, if there are any; each is followed."""
    for written, found in interp.commands.get(group, {}).items():
        for func in ordered(found):
            if isinstance(node, ast.Call) and isinstance(func, Func):
                interp.stack.append(BranchFrame(written, True))
                try:
                    _command(interp, func, node)
                    run_commands(interp, func, node)
                finally:
                    interp.stack.pop()


def of_field(cls: Cls, name: str, kind: str, default: Values, node: Where) -> Arg | None:
    """The option that a field of a dataclass is whose value the command line, or another dict that
    is not known, may give; None where its default is made anew each time.
    """
    if not isinstance(node, ast.Call) or not all_of(default, Const):
        return None
    written = (s for base in (cls, *cls.ancestors()) for s in base.node.body)
    said = (s.value for s in of_kind(written, ast.AnnAssign) if is_name(s.target, name))
    expr = next(said, None)
    number = "number" if kind in ("int", "float") else ""
    return Arg(name, default, node, number, expr if isinstance(expr, ast.Constant) else None)


@gives_for(*SPACES)
def _space(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    space = interp.intern(Ext, (node, "namespace"), lambda: Ext("argparse.Namespace", node, args))
    for key, given in args.named.items():
        space.attrs[key] = space.attrs.get(key, NOTHING) | given.values
    known = surely(not holder.rest for holder in args.dicts)
    space.open = space.open or ("" if known else args.open)
    return values(space)


@gives_for(*TYPER)
def _of_typer(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    given = args.given(0, "default")
    if given is None or not isinstance(node, ast.Call):
        return None
    return values(Arg(_parameter_of(node), given.values, node, "", given.expr))


# ----------------------------------------------------------------------------------------- argparse
def _inherit(interp: Core, parser: Ext, parents: Values, node: Where) -> None:
    """``ArgumentParser(parents=[...])``: it has the options that these have when it is made."""

    for thing in iterate(interp, parents, node) if parents else ():
        if is_parser(thing) and not thing.open:
            parser.attrs.update((k, v) for k, v in thing.attrs.items() if k.startswith(OPTION))
        else:
            interp.open_attributes(parser, "it has the options of a parser that is not known")


def is_parser(thing: Thing) -> TypeGuard[Ext | Inst]:
    """A parser, also one of a class of the project that extends it."""
    if isinstance(thing, Inst):
        return bool(PARSERS & thing.cls.external)
    return is_named(thing, Ext, PARSERS)


def parser_method(
    interp: Core, this: Ext | Inst, name: str, args: Arguments, node: Where
) -> Values:
    """``add_argument`` declares an option, ``parse_args`` gives an object with all of them."""
    if name in ("add_argument", "add", "add_arg") and isinstance(node, ast.Call):
        flags = [v for g in args.positional if isinstance(v := const(g.values), str)]
        dest = const(args.named["dest"].values) if "dest" in args.named else ...
        key = dest if isinstance(dest, str) else _name(flags)
        action = const(args.named["action"].values) if "action" in args.named else None
        given = args.named.get("default")
        kind = "flag" if isinstance(action, str) and action.startswith("store_") else ""
        kind = "number" if _is_number(this, args) else kind
        unsaid = {"store_true": False, "store_false": True}.get(str(action))
        default = given.values if given is not None else values(Const(unsaid))
        said = given.expr if given is not None else None
        option = Arg(key, default, node, kind, said)
        this.attrs[f"{OPTION}{key}"] = chosen(interp, this, option, args, node) or values(option)
        return NUMBER
    if name in ("add_argument_group", "add_mutually_exclusive_group"):
        return values(this)
    if name in ("add_subparsers", "add_parser"):
        return values(this)  # of which one is chosen: all their options are there
    if name in ("parse_args", "parse_known_args"):
        space = _parsed(interp, this, args, node)
        if name == "parse_args":
            return values(space)
        return interp.tuple_of(node, (values(space), NUMBER), "parsed")
    if name == "set_defaults":
        _set_defaults(interp, this, args)
        return NONE
    return NUMBER


def _is_number(parser: Ext | Inst, args: Arguments) -> bool:
    """Whether an option is a number wherever the command line gives it."""
    if isinstance(parser, Inst) or parser.name.startswith("jsonargparse."):
        return False
    kind = one(args.named["type"].values) if "type" in args.named else None
    return is_named(kind, Ref, NUMBERS) and set(args.named) <= OF_NUMBERS and not args.open


def chosen(
    interp: Core, parser: Ext | Inst, option: Arg, args: Arguments, node: ast.Call
) -> Values:
    """The classes and functions of which an option names one, by an action or a ``type=`` of the
    project; nothing for any other option.
    """
    text = Given(values(replace(option, default=NOTHING)), None)
    if (kind := args.named.get("type")) is not None and all_of(kind.values, Func):
        found = _maybe(interp, kind.values, Arguments(None, [text]), node)
        plain = [t for t in option.default if is_const(t, str)]
        default = option.default - frozenset(plain) - {Const(None)}
        for word in plain:  # a default that is a string goes through `type=`, too
            default |= interp.call_values(
                kind.values, Arguments(None, [Given(values(word), None)]), node
            )
    elif "action" in args.named and all(_is_action(t) for t in args.named["action"].values):
        found, default = _acted(interp, parser, option, args, node), option.default
    else:
        return NOTHING
    named = found and all_of(found | (default - {Const(None)}), Cls, Func, Ref, Partial)
    return found | default if named else NOTHING


def _is_action(thing: Thing) -> bool:
    if isinstance(thing, Ext):  # type("Choose", (argparse.Action,), {...})
        bases = thing.args.get(1, "bases") if thing.name == "builtins.type" else NOTHING
        return any(Ref(ACTION) in t.any() for t in of_kind(bases, Seq))
    return isinstance(thing, Cls) and ACTION in thing.external


def _acted(
    interp: Core, parser: Ext | Inst, option: Arg, args: Arguments, node: ast.Call
) -> Values:
    """What an action sets the option to, when its ``__call__`` is given what the user says."""
    found = NOTHING
    for action in ordered(args.named["action"].values):
        key = (node, "action", action)
        this = interp.intern(Ext, key, lambda: Ext(ACTION, node, args))
        this.attrs.update({name: given.values for name, given in args.named.items()})
        this.attrs["dest"] = values(Const(option.name))
        space = interp.intern(
            Ext, (*key, "space"), lambda: Ext("argparse.Namespace", node, Arguments(None))
        )
        text = values(replace(option, default=NOTHING))
        given = [Given(v, None) for v in (values(this), values(parser), values(space), text)]
        own = _calls_of(action)
        _maybe(interp, own, Arguments(None, [*given, Given(NUMBER, None)]), node)
        if not own or space.open or set(space.attrs) != {option.name}:
            return NOTHING
        found |= space.attrs[option.name]
    return found


def _calls_of(action: Thing) -> Values:
    if isinstance(action, Cls):
        return NOTHING if action.find("__init__") else action.find("__call__") or NOTHING
    members = action.args.get(2, "dict") if isinstance(action, Ext) else NOTHING
    return NOTHING.union(*(t.get("__call__") for t in members if isinstance(t, Dict)))


def _maybe(interp: Core, func: Values, args: Arguments, node: ast.Call) -> Values:
    """A call that happens only where the option is given."""
    interp.stack.append(BranchFrame(node, True))
    try:
        return interp.call_values(func, args, node)
    finally:
        interp.stack.pop()


def _name(flags: list[str]) -> str:
    """``batch_size`` of ``--batch-size``: the first long form, else the first."""
    long = next((f for f in flags if f.startswith("--")), flags[0] if flags else "")
    return long.lstrip("-").replace("-", "_")


def _parsed(interp: Core, this: Ext | Inst, args: Arguments, node: Where) -> Ext:
    options = {k[len(OPTION) :]: v for k, v in this.attrs.items() if k.startswith(OPTION)}
    space = interp.intern(Ext, (node, "namespace"), lambda: Ext("argparse.Namespace", node, args))
    space.attrs.update({k: v for k, v in options.items() if k not in space.attrs})
    filled = "it is filled from another object" if "namespace" in args.named else ""
    space.open = space.open or this.open or filled
    return space


def _set_defaults(interp: Core, this: Ext | Inst, args: Arguments) -> None:
    for key, given in args.named.items():
        declared = this.attrs.get(f"{OPTION}{key}", NOTHING)
        for option in declared:
            if isinstance(option, Arg):
                weak = interp.weak(this.made) or not given.sure
                default = option.default | given.values if weak else given.values
                this.attrs[f"{OPTION}{key}"] = values(replace(option, default=default))
        if not any_of(declared, Arg):
            this.attrs[f"{OPTION}{key}"] = declared | given.values  # as of several subparsers
    if args.open:
        interp.open_attributes(this, "defaults of options are set that are not known")


# -------------------------------------------------------------------------------------------- click
def of_command(interp: Core, func: Func, parameter: str) -> Values:
    """What click gives a parameter of ``@click.option(...) def main(...)``; nothing where no option
    is declared for it.
    """
    return options_of(interp, func).get(parameter, NOTHING)


def options_of(interp: Core, func: Func) -> dict[str, Values]:
    """What click gives for each option that is declared at a function, by its name."""
    found: dict[str, Values] = {}
    for written in getattr(func.node, "decorator_list", ()):
        if isinstance(written, ast.Call) and _is_option(interp, written):
            words = [const(interp.at.get(a, NOTHING)) for a in written.args]
            names = of_kind(words, str)
            plain = [n for n in names if not n.startswith("-")]
            name = plain[0] if plain else _name(names)
            found.setdefault(name, values(_option_of(interp, written, name)))
    return found


def _is_option(interp: Core, written: ast.Call) -> bool:
    return any_named(
        interp.at.get(written.func, NOTHING), Ref, ("click.option", "click.decorators.option")
    )


def _option_of(interp: Core, written: ast.Call, name: str) -> Arg:
    keywords = {k.arg: k.value for k in written.keywords}
    said = keywords.get("default")
    is_flag = "is_flag" in keywords and const(interp.at.get(keywords["is_flag"], NOTHING)) is True
    unsaid = values(Const(False if is_flag else None))
    default = interp.at.get(said, NOTHING) if said is not None else unsaid
    return Arg(name, default, written, "flag" if is_flag else "", said)


def _parameter_of(default: ast.expr) -> str:
    spec = parent_of(default)
    known = defaults(parent_of(spec)) if isinstance(spec, ast.arguments) else {}
    return next((name for name, given in known.items() if given is default), "")


# --------------------------------------------------------------------------------------------- absl
@gives_for(f"{DEFINE.rpartition('.')[0]}.*")
def _defined(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    """``flags.DEFINE_integer("workers", 4, "...")``, which gives a holder with the ``value``."""
    if not name.startswith(DEFINE) or not isinstance(node, ast.Call):
        return None
    key, given = const(args.get(0, "name")), args.given(1, "default")
    if not isinstance(key, str) or given is None:
        return values(Unknown("an option whose name is not known"))
    option = values(Arg(key, given.values, node, "", given.expr))
    interp.patched[f"{FLAGS}.{key}"] = option
    holder = interp.intern(Ext, (node, "holder"), lambda: Ext("argparse.Namespace", node, args))
    holder.attrs["value"] = option
    return values(holder)
