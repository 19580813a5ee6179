"""What is made anew of sizes alone, and copied to the device, in each call: tables of positions,
rotary frequencies, weights of classes. A function of their own keeps the last of them."""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

from autofast.edit.edits import Before, Edit, Edits, Import, Remove, Replace, Rewrite, plain_code
from autofast.facts.double_backward import functional_derivative
from autofast.facts.invariants import Invariants
from autofast.facts.of_numbers import OfNumbers, needed, written
from autofast.facts.read_only import ReadOnly
from autofast.flow.callgraph import CallGraph
from autofast.flow.scopes import mentions
from autofast.flow.usage import Act, usage_of
from autofast.model.calls import call_of, has_unpacking, is_name, is_path
from autofast.model.events import CallFrame, Site
from autofast.model.names import last_part
from autofast.model.roles import GPUS, Transfer
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import (
    ByNode,
    Source,
    ancestors,
    block_of,
    contains_kind,
    enclosing,
    function_of,
    is_at_top,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
    walk,
    within_any,
)
from autofast.model.syntax import (
    VARIABLES,
    is_attribute,
    is_docstring,
    is_number,
    is_read,
    is_stored,
)
from autofast.model.tensors import tensors_in
from autofast.model.values import Func, Seq, Tensor, any_of, one
from autofast.read.recover.evaluations import region_of
from autofast.techniques.transfers.creations import device_of
from autofast.techniques.transfers.device_parameters import may_be_another
from autofast.techniques.transfers.factories import runs_often
from autofast.techniques.transfers.made_each_step import DATA
from autofast.techniques.transfers.told import told
from autofast.techniques.transfers.uploads import index_code, indexed
from autofast.write.spelling import torch_in

INFERENCE = (1, 9)  # torch.inference_mode
FEW = 8  # sizes whose tables are kept
REPLICAS = "torch.nn.DataParallel"  # each of their threads has a device of its own
# What would keep a tensor of its own, or record that one is kept, besides the transforms of
# torch.func.
RECORDS = (
    "torch.jit.script", "torch.jit.trace", "torch.onnx.export", "torch.export.export", "torch.vmap",
    "torch.fx.symbolic_trace", "torch.fx.experimental.proxy_tensor.make_fx",
    "torch._subclasses.FakeTensorMode", "torch._subclasses.fake_tensor.FakeTensorMode",
)  # fmt: skip
# What is worth to be kept; what a factory only fills is best told the device.
WORK = wordset("exp sin cos tan sqrt rsqrt log pow outer linspace logspace")
COMPILE = "torch.compile"
SWITCHES = (ast.If, ast.IfExp)
POWERS = (ast.Pow, ast.Div)
WORDS = {0: "zero", 1: "one", 2: "two", 0.5: "one_half"}
MADE_FOR = "  # training reads it, too"


Helpers = dict[tuple[Source, str], tuple[str, Before]]  # the code of each, and what writes it


@dataclass(frozen=True, eq=False)
class Table:
    """``node``: the copy; ``made``: all that goes to the function that keeps it."""

    node: ast.expr
    made: tuple[ast.AST, ...]
    edits: Edits


def tables(script: Script, hot: frozenset[ast.AST], kept: Collection[ast.AST]) -> Iterator[Table]:
    """One for each place; what is ``kept`` otherwise is left out."""
    recorded = [*script.calls(*RECORDS), *(s for s in script.calls(COMPILE) if _is_certain(s))]
    if script.analysis(Invariants).unsure or recorded or functional_derivative(script):
        return
    done, names = {*kept}, Helpers()
    copies: ByNode[Transfer] = {t.node: t for t in script.transfers if _is_copy(script, t)}
    for node, transfer in copies.items():
        apart = not within_any(node, done) and done.isdisjoint(walk(node))
        if runs_often(transfer.site, hot) and apart:
            table = _whole(script, transfer, copies) or _part(
                script, transfer.node, transfer.site, names
            )
            if table is not None:
                done |= {*table.made}
                yield table
    for call, site in told(script):
        if runs_often(site, hot) and not within_any(call, done):
            if (table := _part(script, call, site, names)) is not None:
                done |= {*table.made}
                yield table
    often = {f for loop in hot for f in script.analysis(CallGraph).run_in(loop, often=True)}  # type: ignore[arg-type]
    for subscript, part in indexed(script, often):
        if not within_any(part, done) and (
            (table := _index(script, subscript, part, names)) is not None
        ):
            yield table


def _is_certain(site: Site) -> bool:
    """Whether no option decides on it: what is compiled keeps nothing."""
    return not any(isinstance(n, SWITCHES) for n in ancestors(site.node))


def _is_copy(script: Script, transfer: Transfer) -> bool:
    return (
        transfer.only_moves
        and bool(transfer.kinds & {*GPUS, "?"})
        and not transfer.kinds & {"tensor", "type"}
        and (transfer.target is not None or not _in_replicas(script, transfer))
    )


def _in_replicas(script: Script, transfer: Transfer) -> bool:
    """Whether threads of DataParallel may come to a copy: in the forward pass of a module."""
    return bool(script.calls(REPLICAS)) and any(
        isinstance(f, CallFrame) and f.func.name == "forward"
        for o in transfer.site
        for f in o.stack
    )


def _has_work(script: Script, tree: ast.AST) -> bool:
    """Whether it is more than a factory fills in one go."""
    made = [n for n in nodes_in(tree, ast.expr) if any(tensors_in(script.values(n)))]
    return (
        contains_kind(tree, ast.For)
        or any(contains_kind(n.op, *POWERS) for n in of_kind(made, ast.BinOp))
        or any(
            script.library_function(call) in DATA
            or any_of(script.called(call), Func)
            or last_part(ast.unparse(call.func)) in WORK
            for call in of_kind(made, ast.Call)
        )
    )


def _function(node: ast.AST) -> ast.FunctionDef | None:
    """The function that a place stands in, which stands in no other."""
    function = function_of(node)
    return function if isinstance(function, ast.FunctionDef) and is_at_top(function) else None


def _top(function: ast.FunctionDef) -> ast.stmt:
    """The function, or the class whose method it is."""
    return enclosing(function, ast.ClassDef) or function


def _kept_by(
    script: Script, sites: Sequence[Site], function: ast.FunctionDef, sized: bool
) -> list[str]:
    """The decorators; where evaluations come, too, what is made under ``inference_mode`` first
    could not be saved for a backward."""
    lines = [f"@functools.lru_cache(maxsize={FEW if sized else None})"]
    evaluated = script.calls("torch.inference_mode") or any(
        region_of(script, e).meets(s, o) for e in script.evaluations for s in sites for o in s
    )
    if evaluated and not script.torch.rules_out(INFERENCE):
        torch, _ = torch_in(source_of(function))
        lines.append(f"@{torch}.inference_mode(False){MADE_FOR}")
    return lines


# --------------------------------------------------------------------------- a part of a function
def _part(script: Script, node: ast.Call, site: Site, names: Helpers) -> Table | None:
    """Statements of one block go to a function of their own, and what they make is read only."""
    stmt, function = statement_of(node), _function(node)
    if function is None:
        return None
    made, block = OfNumbers(script, function), block_of(stmt)
    before = needed(made, block[: block.index(stmt)], node)
    if not all(map(made.takes, before)):
        return None
    statements, whole = before, None
    if made.takes(stmt):
        first = block.index([*before, stmt][0])
        statements = made.takes_all([*before, stmt], _others(block[first:], [*before, stmt]))
    elif made.is_given(node):
        whole = node
    else:
        return None
    parts: list[ast.AST] = [*statements, *([whole] if whole is not None else [])]
    results = [whole] if whole is not None else _results(made, statements)
    begin, last = [*statements, stmt][0], stmt if whole is not None else statements[-1]
    between = block[block.index(begin) : block.index(last) + 1]
    roots = {n.id for p in made.inputs.values() for n in nodes_in(ast.parse(p), ast.Name)}
    if (
        not results
        or not any(_has_work(script, p) for p in parts)
        or not made.is_set_by(statements)
        or (whole is not None and not _is_local(made, parts))
        or any(written(s) & roots for s in _others(between, statements) if s is not stmt)
        or any(ReadOnly(script).follow(n, None) for n in results)
    ):
        return None
    given = sorted(
        {n.id: n for n in of_kind(results, ast.Name)},
        key=lambda name: min(n.lineno for n in mentions(function, name) if is_stored(n)),
    )
    stem = "_".join(given) if whole is None else _stem(made, whole)
    source = source_of(function)
    body = [made.text(s) for s in statements]
    said = ", ".join(given)
    if whole is not None:
        body.append(f"return {made.text(whole)}")
    else:
        match statements[-1]:
            case ast.Assign(targets=[made_last], value=value) if (
                ast.unparse(made_last).strip("()") == said
            ):
                body[-1] = f"return {made.text(value)}"
            case _:
                body.append(f"return {said}")
    sized = any(p != "device" for p in made.inputs)
    lines = _kept_by(script, [site], function, sized)
    code = textwrap.indent("\n".join(body), "    ") + "\n\n\n"
    lines.append(f"def {{name}}({', '.join(made.order)}):\n{code}")
    name, helper = _helper(function, stem, "\n".join(lines), names)
    call = plain_code(f"{name}({', '.join(made.inputs[p] for p in made.order)})")
    edits: list[Edit] = [helper, Import(source, "import functools")]
    if whole is not None:
        edits += [Rewrite(whole, call), *map(Remove, statements)]
    else:
        edits += [Replace(statements[0], f"{said} = {call}"), *map(Remove, statements[1:])]
    return Table(node, tuple(parts), tuple(edits))


def _helper(function: ast.FunctionDef, stem: str, text: str, names: Helpers) -> tuple[str, Before]:
    """A function with this text above another, which those share that need the same."""
    source = source_of(function)
    stems = (f"make_{stem}", *(f"make_{stem}_{n}" for n in range(2, 99)))
    free = (n for n in stems if n not in source.names)
    name = next(n for n in free if names.get((source, n), (text,))[0] == text)
    helper = Before(_top(function), plain_code(text.replace("{name}", name, 1)))
    return name, names.setdefault((source, name), (text, helper))[1]


def _index(
    script: Script, subscript: ast.Subscript, part: ast.expr, names: Helpers
) -> Table | None:
    """An index that is written out goes to a function that copies it to each device once."""
    function, tensor = _function(part), subscript.value
    if function is None:
        return None
    made = OfNumbers(script, function)
    there = any(t.device != "cpu" for t in of_kind(script.values(tensor), Tensor))
    if not (is_path(tensor) and script.must_be(tensor, Tensor) and there):
        return None
    if not made.is_given(part) or made.inputs or made.bound:
        return None
    lines = _kept_by(script, script.log.within(function), function, False)
    code = index_code(script, part, made.text(part))
    lines.append(f"def {{name}}(device):\n    return {code}\n\n\n")
    name, helper = _helper(function, "index", "\n".join(lines), names)
    call = plain_code(f"{name}({ast.unparse(tensor)}.device)")
    edits = helper, Import(source_of(part), "import functools"), Rewrite(part, call)
    return Table(part, (part,), edits)


def _others(some: Sequence[ast.stmt], without: Sequence[ast.stmt]) -> list[ast.stmt]:
    return [s for s in some if s not in without]


def _results(made: OfNumbers, statements: Sequence[ast.stmt]) -> list[ast.expr]:
    """Where others read what statements make."""
    return [
        n
        for name in sorted(made.bound)
        for n in mentions(made.function, name)
        if is_read(n) and not within_any(n, statements)
    ]


def _is_local(made: OfNumbers, parts: Sequence[ast.AST]) -> bool:
    """Whether nothing else has to do with the variables."""
    return all(within_any(n, parts) for v in made.bound for n in mentions(made.function, v))


def _stem(made: OfNumbers, whole: ast.expr) -> str:
    """For the name of a function: the argument that gets it, or the variable it is made in."""
    if name := getattr(parent_of(whole), "arg", ""):
        return str(name)
    names = [*nodes_in(whole, ast.Name)]
    roots = [n.id for n in names if n.id in made.bound]
    roots += [n.id.lower() for n in names if made.script.must_be(n, Seq)]
    return roots[0] if roots else number_name(whole) or "constant"


def number_name(made: ast.expr) -> str:
    """What a tensor of one number is called: ``torch.tensor([0.3])``, also where it is copied."""
    match made:
        case ast.Call(func=ast.Attribute(value=ast.Call() as inner, attr="to" | "cuda")):
            return number_name(inner)
        case ast.Call(args=[ast.List(elts=[number])]) if is_number(number):
            text = ast.unparse(number)
            value = ast.literal_eval(text)
            name = WORDS.get(abs(value)) or "constant_" + re.sub(r"\W", "_", text.strip("-"))
            return f"minus_{name}" if value < 0 else name
    return ""


# ------------------------------------------------------------------------------ a whole function
def _whole(script: Script, transfer: Transfer, copies: ByNode[Transfer]) -> Table | None:
    """A function that makes nothing else keeps what it gives: one that copies it, or whose callers
    all do."""
    graph, here = script.analysis(CallGraph), function_of(transfer.node)
    called = graph.callees(transfer.operand)  # type: ignore[arg-type]
    inside = usage_of(transfer.node).act is Act.RETURNED and not called
    function = here if inside else one({c.function for c in called})
    match function:
        case ast.FunctionDef(
            args=ast.arguments(
                posonlyargs=[], args=args, vararg=None, kwonlyargs=[], kwarg=None, defaults=[]
            ),
            decorator_list=[],
            body=[*above, ast.Return(value=ast.expr() as result)],
        ):
            above = above[sum(map(is_docstring, above[:1])) :]
        case _:
            return None
    method = _top(function) is not function
    sites, moves = graph.sites(function), [_move_of(s, copies) for s in graph.sites(function)]
    places = [m.node if m is not None else s for m, s in zip(moves, sites, strict=True)]
    made = OfNumbers(script, function)
    names = [a.arg for a in args[method:]]
    if (
        graph.complete(function)
        or (method and (not args or may_be_another(script, function)))
        or any(has_unpacking(s) or s.keywords or len(s.args) != len(names) for s in sites)
        or any((m is None) != inside for m in moves)
        or not all(map(made.takes, above))
        or not made.is_given(result)
        or not made.is_set_by(above)
        or not any(_has_work(script, s) for s in (*above, result))
        or any(ReadOnly(script).follow(p, None) for p in places)
        or any(contains_kind(s, ast.JoinedStr) for s in above)
    ):
        return None
    own = args[0].arg if method else ""
    more = [p for p in made.order if p not in names]
    if any(
        made.inputs[p] != p if p in names else not _is_of(made.inputs[p], own) for p in made.inputs
    ):
        return None
    if not inside and ("device" in names or not _is_open(result)):
        return None
    told = [device_of(script, m) if m is not None else "" for m in moves]
    if None in told or (method and not all(is_attribute(s.func) for s in sites)):
        return None
    params = [ast.unparse(a) for a in args[method:]]
    at = params.index("device") if "device" in params else len(params)
    params[at:at] = more
    if not inside:
        params.append("device")
    lines = ["@staticmethod"] * method
    lines += _kept_by(script, [transfer.site], function, bool(params and params != ["device"]))
    returns = f" -> {ast.unparse(function.returns)}" if function.returns else ""
    lines.append(f"def {function.name}({', '.join(params)}){returns}:")
    body = made.text(function, function.body[0]) + ("" if inside else ".to(device)")
    lines.append(textwrap.indent(body, "    "))
    edits: list[Edit] = [
        Replace(function, plain_code("\n".join(lines))),
        Import(source_of(function), "import functools"),
    ]
    for site, place, device in zip(sites, places, told, strict=True):
        receiver = ast.unparse(site.func.value) if is_attribute(site.func) else ""
        given = [f"{{a{n}}}" for n in range(len(names))]
        given[at:at] = [plain_code(made.inputs[p].replace(own, receiver, 1)) for p in more]
        if device:
            given.append(plain_code(device))
        holes = {"f": site.func} | {f"a{n}": a for n, a in enumerate(site.args)}
        edits.append(Rewrite(place, f"{{f}}({', '.join(given)})", holes))
    return Table(transfer.node, (function, *places), tuple(edits))


def _move_of(site: ast.Call, copies: ByNode[Transfer]) -> Transfer | None:
    method = parent_of(site)
    call = call_of(method) if is_attribute(method) else None
    return copies.get(call) if call is not None else None


def _is_of(given: str, own: str) -> bool:
    """``self.dim``"""
    match ast.parse(given, mode="eval").body:
        case ast.Attribute(value=inner):
            return bool(own) and is_name(inner, own)
    return False


def _is_open(result: ast.expr) -> bool:
    """Whether a method of the result can be called without parentheses."""
    return isinstance(result, (*VARIABLES, ast.Call, ast.Subscript))
