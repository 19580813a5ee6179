"""What the code behind a loader changes for good: objects that stay, files, iterators that it
advances.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cached_property

from autofast.facts.workers.lifetime import Lifetime
from autofast.facts.workers.loader_code import Side
from autofast.facts.workers.memos import Memos
from autofast.flow.program import holder_of
from autofast.flow.scratch import is_scratch
from autofast.model.calls import is_method, keyword_of
from autofast.model.several import surely, wordset
from autofast.model.source import (
    Said,
    function_of,
    live_nodes,
    nodes_in,
    parent_of,
    source_of,
    statement_of,
)
from autofast.model.syntax import TAKERS, VARIABLES
from autofast.model.values import (
    Bound,
    Const,
    Ext,
    Func,
    Num,
    Ref,
    Seq,
    Values,
    any_of,
    begins,
    is_const,
)

PLACES = (
    ast.Attribute, ast.Subscript, ast.Name, ast.Call, ast.For, ast.AsyncFor, ast.comprehension,
    ast.YieldFrom,
)  # fmt: skip
# fmt: off
WRITERS = wordset("""torch.save numpy.save numpy.savez numpy.savez_compressed numpy.savetxt pickle.dump
    json.dump joblib.dump cv2.imwrite imageio.imwrite os.remove os.unlink os.rename os.replace
    os.rmdir shutil.move shutil.copy shutil.copyfile shutil.rmtree
    torchvision.utils.save_image os.chdir""")
ITERATORS = tuple("""itertools. builtins.iter builtins.zip builtins.map builtins.filter builtins.enumerate
    builtins.reversed""".split())
# fmt: on

READERS = wordset("""numpy.load numpy.loadtxt numpy.genfromtxt numpy.fromfile PIL.Image.open cv2.imread
    torch.load torch.from_numpy json.load pickle.load builtins.open builtins.int builtins.float
    builtins.str os.path.join""")
CONVERTS = wordset("astype convert copy numpy float long")
A_FILE = "a file"
WRITES = "wax+"  # modes of open() and h5py.File
# The torch of the days of h5py 3, before which a file is opened for writing where that is allowed.
ONLY_READS = (1, 7)


class Changes:
    """The changes of one side of a loader."""

    def __init__(self, code: Side):
        self.code, self.script, self.flow, self.effects = code, code.script, code.flow, code.effects
        self.keeps = Lifetime(code).keeps

    @cached_property
    def writes(self) -> list[Said]:
        """Places where this code changes something that is there after it, in words."""
        return list(self._writes())

    def _writes(self) -> Iterator[Said]:
        for function in list(self.code.functions.values()):
            for node in live_nodes(function):
                if not isinstance(node, PLACES) or function_of(node) is not function:
                    continue
                for write in self.effects.of(node):
                    if write.bound:
                        if holder_of(node) not in self.code.functions:  # type: ignore[arg-type]
                            yield node, f"`{write.bound}`"
                    elif write.base is not None and self.keeps(write.base):
                        if isinstance(node, ast.Call) and self.is_module_function(write.base):
                            continue
                        if isinstance(node, ast.expr) and is_scratch(
                            node, self.script.sources, self.script.values
                        ):
                            continue
                        yield node, f"`{shown(write.base if isinstance(node, ast.Call) else node)}`"
                if isinstance(node, ast.Call):
                    if why := self.advances(node):
                        yield node, why
                elif isinstance(node, (*TAKERS, ast.YieldFrom)):
                    over = node.value if isinstance(node, ast.YieldFrom) else node.iter
                    if (
                        isinstance(over, VARIABLES)
                        and self.keeps(over)
                        and is_iterator(self.script.values(over))
                    ):
                        yield over, f"`{shown(over)}`, which can be gone through only once"

    def comes_to_the_same(self, node: ast.AST, draws: bool) -> bool:
        """Whether what a place changes is the same for who comes there first and for who has been
        there before.
        """
        return self.memoises(node, draws) or Memos(self.code).fills(node)

    def memoises(self, node: ast.AST, draws: bool) -> bool:
        """``self.cache[index] = item``: what is read from files for an index is kept by it, and
        nothing else is asked of the dict. Whoever kept it has what is read anew.

        ``draws``: random numbers are drawn for items.
        """
        match node, statement_of(node):
            case ast.Subscript(value=ast.Attribute(attr=name)), ast.Assign(value=value):
                functions = self.code.functions.values()
                held = (n for f in functions for n in nodes_in(f, ast.Attribute) if n.attr == name)
                by_key = self._is_given(node.slice) and all(map(self._is_by_key, held))
                return by_key and (not draws or self._is_read(value, node.slice))
        return False

    def _is_given(self, key: ast.expr) -> bool:
        return surely(made.is_parameter for made in self.flow.reaching(key))

    def _is_by_key(self, held: ast.Attribute) -> bool:
        """Asked for what is kept by the index that was asked for, or for how much is kept."""
        match parent_of(held):
            case ast.Subscript(value=value, slice=key):
                return value is held and self._is_given(key)
            case ast.Compare(left=key, ops=[ast.In() | ast.NotIn()]):
                return self._is_given(key)
            case ast.Call() as call:
                return "builtins.len" in self.script.library_functions(call)
        return False

    def _is_read(self, value: ast.expr, key: ast.expr) -> bool:
        """Whether a value is read from files, and depends on nothing but the key and the data set:
        no random number is in it.
        """
        given = (ast.unparse(key), "self")
        for node in self.flow.made_of([value]):
            if isinstance(node, ast.Call) and not (
                self.script.library_functions(node) & READERS
                or is_method(node, *CONVERTS)
                and not any_of(self.script.called(node), Func, Bound)
            ):
                return False
            for made in self.flow.reaching(node):
                from_outside = made.is_parameter and made.name not in given
                if from_outside or not (made.value or isinstance(made.node, (ast.arg, ast.alias))):
                    return False
        return True

    def advances(self, node: ast.Call) -> str:
        names = self.script.library_functions(node)
        if "builtins.next" in names and node.args and self.keeps(node.args[0]):
            return f"`{shown(node.args[0])}`"
        if names & {"builtins.open", "h5py.File"}:
            mode = node.args[1] if len(node.args) > 1 else keyword_of(node, "mode")
            old = self.script.torch.rules_out(ONLY_READS) and "h5py.File" in names
            if mode is None and old:
                return f"{A_FILE} (`{shown(node)}`)"
            found = self.script.values(mode) if mode is not None else frozenset()
            if any(not isinstance(t, Const) or set(str(t.value)) & set(WRITES) for t in found):
                return f"{A_FILE} (`{shown(node)}`)"
        if names & WRITERS and not any(
            begins(t, Ext, "io.") for a in node.args for t in self.script.values(a)
        ):
            return f"{A_FILE} (`{shown(node)}`)"
        if is_method(node, "write_text", "write_bytes", "to_csv", "save") and node.args:
            found = self.script.values(node.args[0])
            text = [t for t in found if isinstance(t, Num) and t.pattern or is_const(t, str)]
            if found and len(text) == len(found):
                return f"{A_FILE} (`{shown(node)}`)"
        return ""

    def is_module_function(self, base: ast.expr) -> bool:
        found = self.script.values(base)
        return surely(
            isinstance(t, (Ref, Const)) and not begins(t, Ref, "os.environ") for t in found
        )


def shown(node: ast.AST) -> str:
    text = " ".join((source_of(node).segment(node) or "it").split())
    return text if len(text) <= 40 else text[:37] + "..."


def is_iterator(found: Values) -> bool:
    return any(
        (isinstance(t, Seq) and (t.kind == "generator" or isinstance(t.node, ast.GeneratorExp)))
        or begins(t, Ext, ITERATORS)
        for t in found
    )
