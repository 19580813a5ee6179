"""Whether batches in host memory come to something that nobody follows, which could give them back
under another name: the reader knows all others by their loader.
"""

from __future__ import annotations

import ast
from collections.abc import Collection

from autofast.facts.aliases import MEMORY
from autofast.facts.escapes import handed, may_escape
from autofast.flow.program import Flow
from autofast.flow.usage import Act, Usage
from autofast.flow.valueflow import Answer, expressions_holding
from autofast.model.contents import attributes, each_once, with_contents
from autofast.model.kinds import is_module
from autofast.model.script import Script
from autofast.model.several import any_in, wordset
from autofast.model.values import Tensor, Thing, Values, certainly

# By which memory gets another name that is not followed.
SHARING = MEMORY | wordset("numpy __array__ __dlpack__")
FOLLOWED = tuple("torch. builtins. tqdm. itertools. math. logging. time. numpy.".split())
LOST = tuple(
    "torch.ops. torch.utils. torch.func. torch.jit. torch.vmap torch.compile torch.from_dlpack "
    "torch.to_dlpack builtins.map builtins.filter itertools.starmap itertools.tee numpy.as "
    "numpy.array numpy.frombuffer numpy.ravel numpy.atleast_ numpy.expand_dims numpy.flip "
    "numpy.broadcast_ numpy.reshape numpy.squeeze".split()
)
HOOKS = ("_forward_hook", "_forward_pre_hook")  # of one module, or of all


class BatchEscapes:
    """What becomes of the batches of loaders in host memory."""

    def __init__(self, script: Script):
        self.script = script
        self._known: dict[frozenset[Thing], bool] = {}
        self._hooked = any(
            n.attr.startswith("register_") and n.attr.endswith(HOOKS)
            for n in script.each(ast.Attribute)
        )

    def escape(self, loaders: Collection[Thing]) -> bool:
        """Whether something that is not followed may hold a batch of one of the loaders."""
        key = frozenset(loaders)
        if key not in self._known:
            held = expressions_holding(self.script, lambda t: is_held(t, loaders))
            self._known[key] = may_escape(self.script, held, self._judge)
        return self._known[key]

    def comes_of(self, expr: ast.expr | None, loaders: Collection[Thing]) -> bool:
        """Whether ``expr`` is taken out of something that holds a batch, however little is known of
        what that gives.
        """
        todo: list[ast.AST] = [expr] if expr is not None else []
        for node in each_once(todo):
            found = self.script.values(node)
            if is_held(found, loaders):
                return True
            if not certainly(found, Tensor):  # another tensor has been followed
                todo += ast.iter_child_nodes(node)
                if isinstance(node, ast.Name):
                    origins = self.script.analysis(Flow).origins(node)
                    todo += [o.value for o in origins if o.value is not None]
        return expr is None

    def _judge(self, use: Usage) -> Answer:
        node = use.node
        match use.act:
            case Act.ASKED if isinstance(node, ast.Attribute) and node.attr in SHARING:
                return "gives the memory of"
            case Act.GIVEN if self._hooked and any(map(is_module, self.script.called(node))):
                return "gives a module with hooks"
        return handed(self.script, use, (FOLLOWED, LOST))


def is_held(found: Values, loaders: Collection[Thing]) -> bool:
    """Whether these values are, or have in them, a batch in host memory."""
    return any(
        isinstance(t, Tensor) and t.device != "dev" and any_in(t.batch, loaders)
        for t in with_contents(found, attributes)
    )
