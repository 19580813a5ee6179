"""What items of a data set are made of and nobody changes once it is built: what a method computes
of that and of the index alone, it computes again for the same item in every epoch.
"""

from __future__ import annotations

import ast
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cached_property

from autofast.facts.arrays import JOINED, array_of, array_origins, arrays_change, held_under
from autofast.facts.invariants import Invariants, own_constructor
from autofast.facts.loader_uses import is_known
from autofast.facts.loaders import (
    OF_RANKS,
    SAMPLERS,
    is_iterated_again,
    loader_argument,
    own_argument,
)
from autofast.facts.read_only import ReadOnly
from autofast.facts.workers.shared_state import (
    changed_since_built,
    files_written_since_built,
    is_written_by_items,
    may_change_unseen,
)
from autofast.flow.callgraph import CallGraph, Function
from autofast.flow.program import Flow, holder_of
from autofast.flow.scopes import mentions, parameters
from autofast.flow.usage import Act, Usage
from autofast.flow.valueflow import Answer, Verdict, first_bad, first_reason
from autofast.model.calls import (
    call_of,
    given_to,
    is_call_of,
    is_method,
    is_name,
    keyword_of,
    may_give,
    only_target,
)
from autofast.model.contents import with_contents
from autofast.model.roles import Dataset, Loader
from autofast.model.script import Script
from autofast.model.several import of_kind, one, surely, wordset
from autofast.model.source import (
    block_of,
    contains_kind,
    function_of,
    nodes_in,
    parent_of,
    statement_of,
)
from autofast.model.syntax import TARGETS, is_attribute, is_docstring, is_read, is_stored
from autofast.model.values import (
    Bound,
    Const,
    Ext,
    Func,
    Inst,
    Method,
    Num,
    Ref,
    Seq,
    Thing,
    Unknown,
    Values,
    certainly,
    ordered,
)
from autofast.read.recover.datasets import wrapped_datasets

# What text, dicts and dates are asked, and functions that make something of them.
ASKING = wordset(
    "lower upper title strip lstrip rstrip split rsplit splitlines partition join replace startswith "
    "endswith isdigit isalpha isalnum isspace encode decode format zfill get items keys values index "
    "count find rfind group groups timetuple weekday isoweekday toordinal timestamp strftime hour"
)
MAKING = tuple(
    "re. datetime. unicodedata. operator. string. pathlib. os.path.join os.path.basename "
    "os.path.dirname os.path.split".split()
)
NOW = tuple(".now .today .utcnow".split())
COPYING = wordset("copy clone tolist item tobytes sum mean std max min any all")
READERS = wordset("numpy.load numpy.loadtxt numpy.genfromtxt numpy.fromfile")
PICTURES = wordset(
    "PIL.Image.open cv2.imread imageio.imread imageio.v2.imread imageio.v3.imread skimage.io.imread "
    "matplotlib.pyplot.imread tifffile.imread"
)
DRAWERS = tuple("PIL. cv2. imageio. skimage. matplotlib. torchvision. tifffile.".split())
FLOATS = wordset("sin cos tan sqrt exp log log1p atan2 radians tanh", "math.") | {"builtins.float"}
JOINING = JOINED | wordset("numpy.array torch.stack torch.cat torch.tensor")
PADDING = {"torch.nn.utils.rnn.pad_sequence"}
PASSING = wordset("zip enumerate list tuple reversed sorted", "builtins.")
NUMBERS = tuple("numpy. torch. h5py. zarr. pandas. tables.".split())
MAPPED = ("numpy.memmap", "numpy.lib.format.open_memmap", "h5py.", "zarr.")
# Who is given a data set, and takes items of it for batches alone.
LOADING = SAMPLERS | OF_RANKS | wordset("len isinstance type id print super", "builtins.")
LOADING |= wordset(
    "DataLoader Subset random_split ConcatDataset Dataset.__init__", "torch.utils.data."
)
UNASKED = (Act.CHOSEN, Act.RETURNED, Act.COMPARED, Act.TESTED, Act.DROPPED, Act.SHOWN, Act.TARGET)


@dataclass(frozen=True, eq=False)
class Items:
    """A class whose ``getitem`` makes items of what its constructor ``init`` keeps; ``this`` and
    ``index`` are the names of its parameters.
    """

    script: Script
    getitem: ast.FunctionDef
    init: ast.FunctionDef
    datasets: tuple[Dataset, ...]
    loaders: tuple[Loader, ...]

    @property
    def this(self) -> str:
        return self.getitem.args.args[0].arg

    @property
    def index(self) -> str:
        return self.getitem.args.args[1].arg

    @cached_property
    def things(self) -> frozenset[Thing]:
        return frozenset(d.thing for d in self.datasets)

    @cached_property
    def are_copied(self) -> bool:
        """Whether all that anybody gets of an item is a copy: batches of ``default_collate``."""
        return self.are_numbered and not any(own_argument(x, "collate_fn") for x in self.loaders)

    @cached_property
    def are_numbered(self) -> bool:
        """Whether nobody but loaders asks for items, each by its number, be it of a part."""
        sizes = (loader_argument(x, "batch_size") for x in self.loaders)
        return (
            all(certainly(x.things, Ext) for x in self.loaders)
            and not any(size is not None and Const(None) in size.values for size in sizes)
            and first_bad(self.script, self._are_parts, self._asks) is None
        )

    def _are_parts(self, found: Values) -> bool:
        return any(t in self.things for t in with_contents(ordered(found), wrapped_datasets))

    def _asks(self, use: Usage) -> Answer:
        match use.act:
            case Act.GIVEN if is_known(self.script, use.node, LOADING):  # type: ignore[arg-type]
                return Verdict.GOES_ON
            case Act.ASKED if not use.node.attr.startswith("__"):  # type: ignore[attr-defined]
                return Verdict.GOES_ON
            case Act.BOUND if all(isinstance(t, TARGETS) for t in use.targets):
                return Verdict.GOES_ON
            case Act.HELD if not isinstance(use.node, ast.Starred):
                return Verdict.GOES_ON
        return Verdict.GOES_ON if use.act in UNASKED else "items may be taken"

    @cached_property
    def batches_are_copies(self) -> bool:
        """The same, where functions of the project may make the batches."""
        given = [t for x in self.loaders for t in x.args.get(-1, "collate_fn") if t != Const(None)]
        return self.are_numbered and all(
            isinstance(t, Func)
            and isinstance(t.node, ast.FunctionDef)
            and Collated(self).makes_copies(t.node)
            for t in given
        )

    def is_row(self, expr: ast.AST) -> bool:
        """``self.rows[index]``"""
        return (
            isinstance(expr, ast.Subscript)
            and self.name_of(expr.value) != ""
            and isinstance(expr.slice, ast.Name)
            and expr.slice.id == self.index
            and is_read(expr)
        )

    def is_element(self, expr: ast.AST) -> bool:
        """``self.rows[k]``: one element, whichever it is."""
        return (
            isinstance(expr, ast.Subscript)
            and not isinstance(expr.slice, ast.Slice)
            and self.name_of(expr.value) != ""
            and (
                self.is_list(expr.value)
                or (self.is_row(expr) and self.are_numbered and self.is_array(expr.value))
            )
        )

    def row_of(self, expr: ast.AST) -> ast.Subscript | None:
        """``self.rows[index]``, also under a name that has nothing else."""
        named = isinstance(expr, ast.Name)
        made = self.script.analysis(Flow).value(expr) if named else expr
        return made if made is not None and self.is_row(made) else None  # type: ignore[return-value]

    def rows_in(self, tree: ast.AST) -> dict[ast.expr, ast.Subscript]:
        """The places that stand for a row."""
        places = of_kind(ast.walk(tree), ast.expr)
        return {n: row for n in places if (row := self.row_of(n)) is not None}

    def row_bound(self, name: ast.Name) -> tuple[ast.expr, ast.Subscript] | None:
        """``a, b = self.rows[index]``: what gets it, and the row, for one of the names."""
        made = self.script.analysis(Flow).definition(name)
        stmt = made.statement if made is not None else None
        target = only_target(stmt)
        row = self.row_of(getattr(stmt, "value")) if target is not None else None  # noqa: B009
        return None if row is None or target is None else (target, row)

    def slice_of(self, expr: ast.expr) -> ast.Subscript | None:
        """``self.rows[a:b]`` of a list or a text, also under a name that nothing else reads, where
        the bounds are still the same."""
        flow = self.script.analysis(Flow)
        made = flow.value_of_its_own(expr) if isinstance(expr, ast.Name) else expr
        if (
            not isinstance(made, ast.Subscript)
            or not isinstance(made.slice, ast.Slice)
            or not (self.is_list(made.value) or self.is_text(made.value))
            or not self.name_of(made.value)
        ):
            return None
        moves = made is not expr
        names = {n.id for n in nodes_in(made.slice, ast.Name)} if moves else set()
        again = any(len([*filter(is_stored, mentions(self.getitem, n))]) > 1 for n in names)
        return None if again or (moves and contains_kind(made.slice, ast.Call)) else made

    def counts(self, name: str) -> bool:
        """Whether there are as many items as the attribute has rows, and no more of these."""
        methods = of_kind(block_of(self.getitem), ast.FunctionDef)
        match next((s.body[-1] for s in methods if s.name == "__len__"), None):
            case ast.Return(value=ast.Call(args=[held]) as call):
                return is_call_of(call, "len") and self.name_of(held) == name
        return False

    def is_unpacked(self, call: ast.Call) -> bool:
        """Whether arrays are taken out of an open file by their names: what is kept would be the
        file."""
        target, up = only_target(statement_of(call)), parent_of(call)
        uses = mentions(self.getitem, target.id) if isinstance(target, ast.Name) else []
        return any(
            isinstance(n, ast.Subscript) and isinstance(self.script.constant(n.slice), str)
            for n in (up, *map(parent_of, uses))
        )

    def name_of(self, expr: ast.AST) -> str:
        """The attribute of the data set that it is; empty for anything else."""
        own = isinstance(expr, ast.Attribute) and isinstance(expr.value, ast.Name)
        return expr.attr if own and expr.value.id == self.this else ""  # type: ignore[attr-defined]

    def reads(self, name: str) -> list[ast.Attribute]:
        """All reads of an attribute, of whatever object may be one of these."""
        return [
            n
            for n in self.script.each(ast.Attribute)
            if n.attr == name
            and is_read(n)
            and not self.things.isdisjoint(self.script.values(n.value) or self.things)
        ]

    def is_array(self, held: ast.expr) -> bool:
        """An array of NumPy, in memory, of numbers, which nobody writes to once it is kept."""
        known, name = array_of(self.script, held), self.name_of(held)
        return (
            known is not None
            and known.plain
            and not known.tensor
            and not known.is_list
            and not any(
                isinstance(n, ast.Call)
                and (
                    may_give(n, "mmap_mode") or self.script.library_name(n.func).startswith(MAPPED)
                )
                for n in array_origins(self.script, held)
            )
            and not any(arrays_change(self.script, d, {name}) for d in self.datasets)
        )

    def is_list(self, held: ast.expr) -> bool:
        """A list, a tuple or a text: elements come as often, and in the order, as indices say."""
        return surely(
            (isinstance(t, Seq) and t.kind != "set")
            or (isinstance(t, Const) and isinstance(t.value, str))
            for t in self.script.values(held)
        )

    def is_text(self, held: ast.expr) -> bool:
        """A text that is not known, of no package that keeps numbers on the disk."""
        calls = of_kind(array_origins(self.script, held), ast.Call)
        names = [self.script.library_name(call.func) for call in calls]
        return certainly(self.script.values(held), Const, Num) and not any(
            name.startswith(NUMBERS) for name in names
        )

    def reads_file(self, call: ast.AST) -> bool:
        return (
            isinstance(call, ast.Call)
            and self.script.is_call(call, *READERS)
            and not may_give(call, "mmap_mode", "allow_pickle")
        )

    @cached_property
    def files_stay(self) -> bool:
        """Whether files of arrays are as they were when the data sets were built."""
        return self._stay(("numpy.",))

    @cached_property
    def pictures_stay(self) -> bool:
        """The same of pictures."""
        return self._stay(DRAWERS)

    def _stay(self, libraries: tuple[str, ...]) -> bool:
        return not any(
            files_written_since_built(self.script, x, d.thing, libraries)
            for d, x in zip(self.datasets, self.loaders, strict=True)
        )

    def reads_or_decodes(self, call: ast.AST) -> bool:
        """``np.load(path)``, ``Image.open(path)``: numbers or a picture."""
        return self.reads_file(call) or self.script.is_call(call, *PICTURES)

    def decodes(self, call: ast.AST) -> bool:
        """The same of files that are as they were when the data sets were built."""
        picture = self.script.is_call(call, *PICTURES)
        return self.reads_or_decodes(call) and (self.pictures_stay if picture else self.files_stay)

    def holds_file(self, held: ast.expr) -> bool:
        """What the constructor has opened with ``np.load``, of which each member is unpacked again
        whenever it is asked for."""
        return bool(self.name_of(held)) and surely(
            made is not None and self.reads_file(made)
            for thing in self.things
            for made in held_under(self.script, thing, self.name_of(held))
        )


def items_of(script: Script) -> Iterator[Items]:
    """Of all data sets of the project that loaders go through more than once, and that nobody
    changes from where they are built on."""
    found: dict[ast.FunctionDef, list[tuple[Dataset, Loader]]] = {}
    for loader in () if script.analysis(Invariants).open else script.loaders:
        for dataset in loader.datasets:
            if dataset.kind == "project" and dataset.getitem is not None:
                found.setdefault(dataset.getitem, []).append((dataset, loader))
    for getitem, users in found.items():
        init, given = own_constructor(getitem), getitem.args
        if (
            init is not None
            and len(given.args) == 2
            and not (given.vararg or given.kwonlyargs or given.kwarg or getitem.decorator_list)
            and init.args.args[0].arg == given.args[0].arg
            and not contains_kind(getitem, ast.Yield, ast.YieldFrom)
            and not any(is_stored(n) for a in given.args for n in mentions(getitem, a.arg))
            and any(is_iterated_again(script, x) for _, x in users)
            and not any(d.writes or d.set_outside for d, _ in users)
            and not any(is_written_by_items(script, x) for _, x in users)
            and not any(changed_since_built(script, x, d.thing) for d, x in users)
            and not any(may_change_unseen(script, x) for _, x in users)
        ):
            yield Items(script, getitem, init, *map(tuple, zip(*users, strict=True)))


class OfItems(Invariants):
    """What the methods of data sets compute: ``given`` are the places that stand for an element;
    ``files``: also of files that stay as they are.
    """

    def __init__(self, items: Items, given: Collection[ast.AST] = (), files: bool = False):
        super().__init__(items.script)
        self.items, self.given, self.files = items, given, files

    def _is_same(self, expr: ast.AST, method: Function, init: ast.FunctionDef | None) -> bool:
        if expr in self.given:
            return True
        return super()._is_same(expr, method, init)

    def is_kept(self, attribute: ast.Attribute, init: ast.FunctionDef | None) -> bool:
        """Set by the constructor alone; that nobody writes to what it holds is known of items."""
        found, owners = self.script.values(attribute), self.script.values(attribute.value)
        return bool(found) and not self.is_set(attribute.attr, owners, init)

    def is_bound_once(self, name: ast.Name) -> bool:
        """Also a date, which nobody can change."""
        bound = [n for n in mentions(holder_of(name), name.id) if not is_read(n)]
        value = given_to(statement_of(bound[0]), name.id) if len(bound) == 1 else None
        made = isinstance(value, ast.Call) and self.script.library_name(value.func)
        return super().is_bound_once(name) or bool(made and made.startswith("datetime."))

    def _only_computes(
        self, callee: Thing, call: ast.Call, init: ast.FunctionDef | None, depth: int
    ) -> bool:
        match callee:
            case Ref(name=name) if name.startswith(MAKING):
                return not name.endswith(NOW)
            case Ref() if self.files and self.items.decodes(call):
                return True
            case Method() | Unknown() if is_attribute(call.func, *ASKING):
                return True
            case Method() | Unknown() if self.files and is_attribute(call.func, "convert"):
                return True
            case Bound(func=Func(node=function), this=Inst()):
                return self.is_pure(function, own_constructor(function), depth)
        return super()._only_computes(callee, call, init, depth)


def is_plain_value(script: Script, expr: ast.expr) -> bool:
    """A number or a text, which nobody can change."""
    return certainly(script.values(expr), Const, Num) and array_of(script, expr) is None


def makes_rows(script: Script, call: ast.Call) -> bool:
    """Whether a function of the project makes an array of what it is given, each row of one
    element alone, and all of one type, whichever these are."""
    function = one([c.function for c in script.analysis(CallGraph).callees(call)])
    if not isinstance(function, ast.FunctionDef) or len([*parameters(function)]) != 1:
        return False
    given, flow = next(iter(parameters(function))).arg, script.analysis(Flow)
    match [s for s in function.body if not is_docstring(s)]:
        case [ast.Return(value=ast.Call(args=[ast.ListComp() as rows]) as made)]:
            over, row = rows.generators[0].iter, rows.elt
            plain = len(rows.generators) == 1 and not rows.generators[0].ifs
        case [
            first,
            ast.For(iter=over, body=[*before, last], orelse=[]),
            ast.Return(value=ast.Call(args=[ast.Name(id=out)]) as made),
        ]:
            put, begin = getattr(last, "value", None), given_to(first, out)
            if not is_method(put, "append") or not isinstance(begin, ast.List) or begin.elts:
                return False
            row = put.args[0]
            plain = (
                is_name(put.func.value, out)
                and len(mentions(function, out)) == 3
                and all(only_target(s) for s in before)
                and all(
                    flow.definition(n) for s in before for n in nodes_in(s, ast.Name) if is_read(n)
                )
            )
        case _:
            return False
    typed = keyword_of(made, "dtype") is not None or _is_float(script, row)
    plain = plain and len(mentions(function, given)) == 1  # no row looks at `dates[0]`
    return plain and typed and is_name(over, given) and script.is_call(made, "numpy.array")


def _is_float(script: Script, expr: ast.expr) -> bool:
    """Whether all numbers are certainly floats, of whatever they are computed."""
    match expr:
        case ast.List(elts=parts) | ast.Tuple(elts=parts):
            return surely(_is_float(script, part) for part in parts)
        case ast.BinOp(op=ast.Div()):
            return True
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() | ast.Mult(), right=right):
            return _is_float(script, left) or _is_float(script, right)
        case ast.Call(func=func):
            return script.library_name(func) in FLOATS
    return isinstance(getattr(expr, "value", None), float)


def certainly_names(targets: list[ast.expr]) -> bool:
    """Variables, and tuples of such."""
    return all(
        isinstance(n, (ast.Name, ast.Tuple, ast.expr_context)) for t in targets for n in ast.walk(t)
    )


class ItemReads(ReadOnly):
    """Whether what an item is made of may be written to, or anybody could who has a batch."""

    def __init__(self, items: Items):
        super().__init__(items.script)
        self.items = items

    def judge(self, use: Usage, context: None) -> Answer:
        node = use.node
        match use.act:
            case Act.ASKED if is_attribute(node, *COPYING):
                return Verdict.STOPS
            case Act.ASKED if is_attribute(node, "astype") and (call := call_of(node)):
                return super().judge(use, context) if may_give(call, "copy") else Verdict.STOPS
            case Act.BOUND if certainly_names(use.targets):
                return Verdict.GOES_ON
            case Act.HELD if self.script.is_call(parent_of(node), *JOINING):
                return Verdict.STOPS
            case Act.HELD | Act.RETURNED if self._is_result(use):
                return Verdict.STOPS
        return super().judge(use, context)

    def _is_result(self, use: Usage) -> bool:
        """It is an item, or directly in one, and becomes a copy in a batch."""
        stmt = statement_of(use.expr)
        plain = isinstance(stmt, ast.Return) and function_of(stmt) is self.items.getitem
        return plain and parent_of(use.node) in (stmt, use.node) and self.items.are_copied


class Collated(ItemReads):
    """The same in a function that makes batches: lists of items and of parts of them are its own,
    what is joined is a copy."""

    def judge(self, use: Usage, context: None) -> Answer:
        match use.act:
            case Act.LOOPED | Act.HELD:
                return Verdict.GOES_ON
            case Act.RETURNED:
                return "it is handed on"
        return super().judge(use, context)

    def given(self, use: Usage, callee: Thing, context: None) -> Answer:
        name = getattr(callee, "name", "")
        put = use.node.func  # type: ignore[attr-defined]
        if is_attribute(put, "append") and certainly(self.script.values(put.value), Seq):
            return self._put(put.value)
        if name in JOINING | PADDING:
            return Verdict.STOPS
        return Verdict.GOES_ON if name in PASSING else super().given(use, callee, context)

    def _put(self, into: ast.expr) -> Answer:
        """What comes of it in a list that the function has."""
        if not isinstance(into, ast.Name) or holder_of(into) is not function_of(into):
            return "it is kept"
        reads = [n for n in mentions(holder_of(into), into.id) if is_read(n) and n is not into]
        return first_reason(self.follow(n, None) for n in reads) or Verdict.STOPS

    def makes_copies(self, collate: Function) -> bool:
        """Whether nothing of a batch shares memory with what a function makes it of."""
        return not self.bind(next(iter(parameters(collate))), None)
