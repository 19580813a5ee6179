"""Follows the script from its first line, with abstract values instead of real ones.

Functions of the project are entered with the arguments of each call, both arms of a condition are
taken (unless the test is a constant), loop bodies run until their variables come to rest. Nothing
is executed. What happens on the way (a backward, a copy to the device, a loader built) goes into
the :class:`Log` with the frames around it. The library's objects are described in
:mod:`autofast.read.library.torch_library`.
"""

from __future__ import annotations

import ast

from autofast.model import limits
from autofast.model.changes import CLOCK
from autofast.model.kinds import is_static, of_type
from autofast.model.source import Source, source_of
from autofast.model.syntax import is_text, positional_parameters
from autofast.model.values import (
    NOTHING,
    NUMBER,
    Arguments,
    Bound,
    Cls,
    Const,
    Env,
    Func,
    Given,
    Inst,
    Module,
    Ref,
    Thing,
    Unknown,
    Values,
    things as values,
)
from autofast.read.interpreter.calls import Calls
from autofast.read.interpreter.expressions import Expressions
from autofast.read.interpreter.loops import Loops
from autofast.read.library import frameworks
from autofast.read.state.core import Again, Record, TooDeep

__all__ = ["Again", "Interpreter", "TooDeep", "values"]
# Methods that set up what the others of their class use.
FIRST = (
    *"__init__ setup prepare_data configure_optimizers".split(),
    *"train_dataloader val_dataloader".split(),
    *"training_step validation_step test_step predict_step".split(),
)


class Interpreter(Loops, Expressions, Calls):
    """One run over one script: where it starts."""

    def run_module(self, source: Source, main: bool) -> Module:
        """Interpret a file's top level; ``__name__`` is ``__main__`` for the entry script."""
        if source in self.modules:
            return self.modules[source]
        name = "__main__" if main else source.path.stem
        env = Env("module", {"__name__": values(Const(name)), "__file__": NUMBER}, None, source)
        module = self.modules[source] = Module(source, env)
        stack, self.stack = self.stack, [] if main else self.stack
        kept, self.tries, self.left = (self.tries, self.left), [], [] if main else self.left
        self.records.append(Record())
        began = self.steps
        self.limits.append(self.limits[-1] if main else began + limits.IMPORTED)
        inside = self.depths()
        try:
            self.block(source.tree.body, env)
        except TooDeep:
            self.unwind(inside)
            self.cut_short(source.rel, env)
        finally:
            self.limits.pop()
            if not main:  # each file is read once: no call has to pay for it
                self.limits = [limit + self.steps - began for limit in self.limits]
            self.records.pop()
            self.stack = stack
            self.tries, self.left = kept
        return module

    def run_uncalled(self, source: Source) -> None:
        """Enter the functions and methods of ``source`` that nothing called, with unknown
        arguments.
        """
        module = self.modules.get(source)
        if module is None:
            return
        for bound in list(module.env.vars.values()):
            for thing in bound:
                if (
                    isinstance(thing, Func)
                    and source_of(thing.node) is source
                    and thing.node not in self.called
                ):
                    self.enter_unknown(thing)
                elif isinstance(thing, Cls) and source_of(thing.node) is source:
                    self.run_class(thing)

    def run_class(self, cls: Cls) -> None:
        """Enter the methods of a class that nothing called, on an instance the script made or one
        with unknown arguments.
        """
        methods = [
            f for v in cls.members.values() for f in v if isinstance(f, Func) and f.owner is cls
        ]
        if all(f.node in self.called for f in methods):
            return
        mine = [t for t in self.made if isinstance(t, Inst) and t.cls is cls]
        if mine:
            inst: Inst = mine[0]
        else:
            made = self.instantiate(cls, self.unknown_arguments(cls.find("__init__")), cls.node)
            inst = next(t for t in made if isinstance(t, Inst))
        rank = {name: n for n, name in enumerate(FIRST)}
        for func in sorted(methods, key=lambda f: rank.get(f.name, len(FIRST))):
            if func.node not in self.called:
                self.enter_unknown(func, inst)

    def enter_unknown(self, func: Func, this: Thing | None = None) -> None:
        if self.cuts > limits.MOST_CUTS:
            raise TooDeep
        target: Thing = Bound(func, this) if this is not None and not is_static(func) else func
        left = limits.READING * 1.5 - self.steps
        self.limits.append(self.steps + int(left * limits.UNCALLED))
        inside = self.depths()
        try:
            self.call_thing(
                target, self.unknown_arguments(values(func), skip_self=this is not None), func.node
            )
        except TooDeep:
            self.unwind(inside)
            self.cut_short(f"{func.name}()", func.env)
        finally:
            self.limits.pop()

    def unknown_arguments(self, funcs: Values | None, skip_self: bool = True) -> Arguments:
        """Arguments for a function nobody calls: what the annotation says, else the default, else
        unknown.
        """
        args = Arguments(None)
        for func in funcs or ():
            if not isinstance(func, Func):
                continue
            spec = func.node.args
            params = positional_parameters(spec)[
                1 if skip_self and func.owner is not None and not is_static(func) else 0 :
            ]
            for param in [*params, *spec.kwonlyargs]:
                found = self.annotated(param.annotation, func.env) or frameworks.fed(
                    self, func, param
                )
                found = found or values(
                    Unknown(
                        f"`{param.arg}` is a parameter of {func.name}(), which nothing in this project calls"
                    )
                )
                args.named[param.arg] = Given(found, None)
            break
        return args

    def annotated(self, annotation: ast.expr | None, env: Env) -> Values:
        """An object of the annotated library class."""
        if annotation is None:
            return NOTHING
        if is_text(annotation):
            return NOTHING
        inside = self.depths()
        try:
            kinds = self.expr(annotation, env)
        except TooDeep:
            self.unwind(inside)
            CLOCK.shake()
            return NOTHING
        found: Values = NOTHING
        for kind in kinds:
            if isinstance(kind, Ref):
                found |= of_type(kind.name)
            elif isinstance(kind, Cls):
                self.summaries.unsure += 1  # others may be made later
                found |= values(*[t for t in self.made if isinstance(t, Inst) and t.cls is kind])
        return found
