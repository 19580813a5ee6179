"""What the code of a project changes: objects, attributes, variables, and what stands behind
library objects (files, the environment).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from autofast.flow.reflection import whose_attributes
from autofast.model.calls import is_augmented, unstarred
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import live_nodes
from autofast.model.syntax import is_attribute, is_stored
from autofast.model.values import (
    Arg,
    Bound,
    Cls,
    Const,
    Ext,
    Func,
    Method,
    Num,
    Tensor,
    Values,
    any_of,
    certainly,
    is_const,
    is_named,
    library_names,
    ordered,
)
from autofast.ops import is_in_place

# fmt: off
CHANGERS = wordset("append appendleft extend extendleft insert add remove discard pop popleft popitem clear update setdefault sort reverse rotate "
    "put put_nowait get_nowait fill itemset resize partition setflags intersection_update difference_update symmetric_difference_update "
    "__setitem__ __delitem__ __iadd__ __ior__ __setattr__ __next__ send move_to_end subtract")
HANDLES = wordset("read read1 readinto readline readlines seek tell write writelines flush truncate execute executemany executescript commit cursor "
    "fetchone fetchall fetchmany recv sendall acquire release")
# Functions that change their first argument.
FIRST = wordset("""
    random.shuffle numpy.random.shuffle builtins.setattr builtins.delattr heapq.heappush
    heapq.heappop heapq.heapify heapq.heappushpop heapq.heapreplace bisect.insort numpy.put_along_axis
    bisect.insort_left bisect.insort_right numpy.copyto numpy.put numpy.place numpy.putmask
    numpy.fill_diagonal operator.setitem operator.delitem operator.iadd operator.isub
    operator.imul operator.itruediv operator.ior operator.iconcat numpy.add.at numpy.subtract.at numpy.multiply.at
""")
# Functions of NumPy with the number of their operands; what follows is written to.
OPERANDS = dict.fromkeys(
    """negative positive abs absolute fabs exp exp2 expm1 log log2 log10 log1p sqrt cbrt square sign
    reciprocal floor ceil trunc rint invert logical_not sin cos tan sinh cosh tanh""".split(),
    1,
)
OPERANDS |= dict.fromkeys(
    """add subtract multiply divide true_divide floor_divide power float_power maximum minimum fmax
    fmin mod fmod remainder arctan2 hypot logical_and logical_or logical_xor bitwise_and bitwise_or
    bitwise_xor matmul dot round around max min argmax argmin any all""".split(),
    2,
)
OPERANDS |= dict.fromkeys("clip sum prod mean std var cumsum cumprod take compress".split(), 3)
SETTING = wordset("setattr delattr object.__setattr__ object.__delattr__", "builtins.")
CONTAINERS = tuple("builtins. collections.".split())  # `list.reverse(words)`
DRAWING = wordset("cv2.rectangle cv2.circle cv2.line cv2.putText cv2.fillPoly cv2.polylines cv2.ellipse")
# fmt: on


@dataclass(frozen=True, eq=False)
class Write:
    """A place that changes an object: ``base`` is the object, ``name`` the attribute; or the name
    ``bound`` in a scope gets a new value.
    """

    node: ast.AST
    base: ast.expr | None
    name: str = ""
    bound: str = ""
    computed: bool = False  # an attribute whose name is computed


class Effects:
    """``script.analysis(Effects)``: what each place of the project changes by itself."""

    def __init__(self, script: Script):
        self.script = script

    @cached_property
    def writes(self) -> list[Write]:
        """Every write of the project's code that is reached, or may be."""
        return [w for s in self.script.sources for n in live_nodes(s.tree) for w in self.of(n)]

    def of(self, node: ast.AST) -> Iterator[Write]:
        """What one node changes by itself, without the nodes in it and what it calls."""
        if isinstance(node, (ast.Attribute, ast.Subscript)) and isinstance(
            node.ctx, (ast.Store, ast.Del)
        ):
            name = node.attr if isinstance(node, ast.Attribute) else ""
            yield from self._to(node, node.value, name)
        elif isinstance(node, ast.Name) and is_stored(node):
            yield Write(node, None, bound=node.id)
            if is_augmented(node) and not is_number(self.script.values(node)):
                yield Write(node, node)
        elif isinstance(node, ast.Call):
            yield from self._by_call(node)

    def _by_call(self, node: ast.Call) -> Iterator[Write]:
        func = node.func
        callees = self.script.values(func)
        names = library_names(callees)
        if isinstance(func, ast.Attribute) and not names:
            changes = (
                func.attr in CHANGERS | HANDLES
                or is_in_place(func.attr, flags=True)
                or func.attr.startswith("set_")
            )
            ours = any_of(callees, Func, Bound, Cls) or _reads_by_name(node, callees)
            if changes and not ours:
                yield from self._to(node, func.value)
            if func.attr == "shuffle" and node.args and not ours:
                yield Write(node, node.args[0])  # by a generator, of Python or NumPy
        elif isinstance(func, ast.Attribute) and any(
            n.startswith("os.environ.") and last_part(n) in CHANGERS for n in names
        ):
            yield Write(node, func.value)
        taken = {
            t.name for t in callees if isinstance(t, Method) and t.name != getattr(func, "attr", "")
        }
        if taken & (CHANGERS | HANDLES):
            # A method that was taken from its object before: ``pop = pool.pop``.
            yield Write(node, func)
        if node.args:
            yield from self._by_function(node, names)
            if not (is_attribute(func) and certainly(self.script.values(func.value), Tensor)):
                yield from (Write(node, unstarred(given)) for given in outputs(node, names))
        yield from (Write(node, k.value) for k in node.keywords if k.arg == "out")
        if names & {"os.putenv", "os.unsetenv"}:
            yield Write(node, func)

    def _by_function(self, node: ast.Call, names: set[str]) -> Iterator[Write]:
        """What a call of a function that has these names does to its first argument."""
        if names & SETTING:
            for key in ordered(self.script.values(node.args[1])) if len(node.args) > 1 else ():
                known = is_const(key, str)
                yield Write(node, node.args[0], str(key.value) if known else "", computed=not known)  # type: ignore[attr-defined]
        elif names & (FIRST | DRAWING) or any(
            (n.startswith("torch.") and is_in_place(n, flags=True))
            or (n.startswith((*CONTAINERS, "numpy.ndarray.")) and last_part(n) in CHANGERS)
            for n in names
        ):
            yield from self._to(node, node.args[0])

    def _to(self, node: ast.AST, base: ast.expr, name: str = "") -> Iterator[Write]:
        """A change of an object: of its attributes, by any name, where that is ``vars(x)`` or
        ``x.__dict__``, also under a name."""
        shown = [t.node for t in self.script.values(base) if is_named(t, Ext, "builtins.vars")]
        owners = {o for n in (base, *shown) if n is not None and (o := whose_attributes(n))}
        yield from (Write(node, owner, computed=True) for owner in owners)
        if not owners:
            yield Write(node, base, name)


def _reads_by_name(call: ast.Call, callees: Values) -> bool:
    """``archive.read(name)``: it does not matter what was read before."""
    of = [t.this for t in callees if isinstance(t, Method)]
    return len(of) == len(callees) > 0 and all(
        is_named(t, Ext, "zipfile.ZipFile") and call.args for t in of
    )


def outputs(call: ast.Call, names: Iterable[str]) -> list[ast.expr]:
    """What a function of NumPy that has these names, or a method of an array, is given to write
    to without a word: ``np.add(a, b, a)``, ``a.clip(0, 1, a)``.
    """
    found = [
        given
        for name in names
        if name.startswith("numpy.")
        for given in call.args[OPERANDS.get(name.removeprefix("numpy."), 9) :]
    ]
    if not names and isinstance(call.func, ast.Attribute):
        # A method of the first operand; those of one, `cos`, are functions alone.
        found += call.args[OPERANDS.get(call.func.attr, 9) - 1 or 9 :]
    return [given for given in found if not isinstance(given, ast.Constant)]


def is_number(found: Values) -> bool:
    """Numbers and strings: ``+=`` gives a new one."""
    return certainly(found, Const, Num, Arg)
