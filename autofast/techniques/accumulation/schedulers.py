"""Schedulers that are stepped after every update: lengths that are counted in batches become lengths in updates."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field

from autofast.edit.edits import Edit, Wrap, literal
from autofast.facts.updates.events import Event, Iteration
from autofast.flow.scopes import mentions, owner, variables_of
from autofast.model.calls import is_name
from autofast.model.kinds import is_loader
from autofast.model.script import Scheduler, Script
from autofast.model.source import at, function_of, parent_of, statement_of
from autofast.model.syntax import is_read
from autofast.model.values import Arg, Bound, Cls, Const, Func, Inst, Module, Num, Ref, Seq, Unknown
from autofast.rule import Refusal
from autofast.techniques.accumulation.window import COUNT, Window
from autofast.write.spelling import spelled

LENGTHS = {
    "StepLR": ((1, "step_size"),),
    "MultiStepLR": ((1, "milestones"),),
    "ConstantLR": ((2, "total_iters"),),
    "LinearLR": ((3, "total_iters"),),
    "PolynomialLR": ((1, "total_iters"),),
    "CosineAnnealingLR": ((1, "T_max"),),
    "CosineAnnealingWarmRestarts": ((1, "T_0"),),
    "OneCycleLR": ((2, "total_steps"), (4, "steps_per_epoch")),
    "CyclicLR": ((3, "step_size_up"), (4, "step_size_down")),
    "SequentialLR": ((2, "milestones"),),
    "ChainedScheduler": (),
}
NEEDED = {"OneCycleLR": 1, "CyclicLR": 1}  # how many of them must be given; of the others all
FACTORS = ("ExponentialLR", "MultiplicativeLR", "LambdaLR")


@dataclass(eq=False)
class Horizons:
    """The edits for all schedulers of a loop. ``keep``: the number of updates stays what it was, that of batches does not."""

    script: Script
    iteration: Iteration
    window: Window
    keep: bool
    edits: list[Edit] = field(default_factory=list)
    _done: set[int] = field(default_factory=set)

    def build(self) -> list[Edit]:
        for event in self.iteration.of("schedule"):
            schedulers = [
                s
                for s in self.script.schedulers
                if any(t is x for t in s.things for x in event.things)
            ]
            if not schedulers:
                raise Refusal(f"which scheduler is stepped on {at(event.node)} is not known")
            for scheduler in schedulers:
                self._follow(scheduler, event)
        return self.edits

    def _follow(self, scheduler: Scheduler, event: Event) -> None:
        assert isinstance(event.node, ast.Call)
        if scheduler.name == "ReduceLROnPlateau":
            raise Refusal(f"ReduceLROnPlateau on {at(event.node)} has its patience in batches")
        if other := next(
            (t for t in scheduler.ticks if t.node is not event.node and t.unit == "epoch"), None
        ):
            raise Refusal(f"the scheduler is stepped after every batch and on {at(other.node)}")
        if event.node.args or event.node.keywords:
            return  # it is told where it is
        self._convert(scheduler)

    def _convert(self, scheduler: Scheduler) -> None:
        if id(scheduler) in self._done:
            return
        self._done.add(id(scheduler))
        where = f"{scheduler.name} on {at(scheduler.node)}"
        if scheduler.own or (scheduler.name not in LENGTHS and scheduler.name not in FACTORS):
            raise Refusal(f"what {where} counts is not known")
        if scheduler.args.open or scheduler.args.loose is not None:
            raise Refusal(f"not all arguments of {where} are known")
        if scheduler.name in FACTORS:
            if not self.keep:
                raise Refusal(
                    f"{where} changes the learning rate by a factor or function of the number of batches, which would be that of updates"
                )
            self._functions(scheduler)
            return
        given = [
            g
            for i, n in LENGTHS[scheduler.name]
            if (g := scheduler.args.given(i, n)) is not None and g.values != {Const(None)}
        ]
        if len(given) < NEEDED.get(scheduler.name, len(LENGTHS[scheduler.name])) and not self.keep:
            raise Refusal(f"{where} has a length of its own, in batches")
        for one in given:
            expr = spelled(scheduler.node, one)
            if expr is None:
                raise Refusal(f"a length of {where} does not stand in its call")
            found = self._length(expr, scheduler.node)
            if not found and not self.keep:
                raise Refusal(
                    f"`{ast.unparse(expr)}` of {where} is a number of batches: give it in updates, as a part of len(loader)"
                )
        for thing in scheduler.inner:
            part = next(
                (s for s in self.script.schedulers if any(t is thing for t in s.things)), None
            )
            if part is None:
                raise Refusal(f"of which schedulers {where} is made is not known")
            self._convert(part)

    def _functions(self, scheduler: Scheduler) -> None:
        """What a function of the number of updates takes for lengths."""
        for one in scheduler.args.every:
            for thing in one.values:
                func = thing.func if isinstance(thing, Bound) else thing
                if isinstance(func, (Func, Seq)):
                    for node in ast.walk(func.node) if func.node is not None else ():
                        self._in_function(node, scheduler)

    def _in_function(self, node: ast.AST, scheduler: Scheduler) -> None:
        if isinstance(node, ast.Call) and is_name(node.func, "len"):
            self._length(node, scheduler.node)
        elif isinstance(node, ast.Name) and is_read(node):
            found = self.script.values(node)
            plain = found and all(
                isinstance(t, (Ref, Func, Cls, Module, Inst, Const, Arg)) or is_loader(t)
                for t in found
            )
            if not plain and isinstance(owner(node), (ast.Module, type(None))):
                self._variable(node, scheduler.node)
        elif isinstance(node, ast.Attribute) and is_read(node):
            if any(isinstance(t, (Num, Unknown)) for t in self.script.values(node)):
                raise Refusal(
                    f"whether `{ast.unparse(node)}` on {at(node)} is a number of batches is not known"
                )

    def _length(self, expr: ast.expr, call: ast.Call) -> bool:
        """Make every number of batches in a length one of updates; whether there is one."""
        match expr:
            case ast.Call(func=ast.Name(id="len"), args=[given]) if self._is_loader(given):
                self._number(expr)
                return True
            case ast.Constant():
                return False
            case ast.BinOp():
                return self._length(expr.left, call) | self._length(expr.right, call)
            case ast.UnaryOp():
                return self._length(expr.operand, call)
            case ast.Call(func=ast.Name(id="int" | "round" | "max" | "min" | "float")):
                each = [self._length(a, call) for a in expr.args]
                return any(each)
            case ast.List() | ast.Tuple():
                each = [self._length(e, call) for e in expr.elts]
                if any(each) and not all(each):
                    raise Refusal(
                        f"`{ast.unparse(expr)}` on {at(expr)} is in part a number of batches"
                    )
                return any(each)
            case ast.Name():
                return self._variable(expr, call)
        found = self.script.values(expr)
        if found and all(isinstance(t, (Const, Arg)) for t in found):
            return False
        raise Refusal(
            f"whether `{ast.unparse(expr)}` on {at(expr)} is a number of batches is not known"
        )

    def _variable(self, expr: ast.Name, call: ast.Call) -> bool:
        found = self.script.values(expr)
        if found and all(isinstance(t, (Const, Arg)) for t in found):
            return False
        variables = variables_of(expr)
        variable = variables.of(expr)
        stores = (
            [n for n in variables.stores(variable) if isinstance(n, ast.Name)]
            if variable is not None
            else []
        )
        if (
            not stores
            and not found
            and (variable is None or isinstance(variable.scope, ast.Module))
        ):
            return False  # a function, a class or a module
        statement = statement_of(stores[0]) if len(stores) == 1 else None
        if variable is None or not isinstance(statement, ast.Assign) or statement.targets != stores:
            raise Refusal(f"whether `{expr.id}` on {at(expr)} is a number of batches is not known")
        before = len(self.edits)
        if not self._length(statement.value, call):
            return False
        if len(self.edits) > before or any(e for e in self.edits):
            for node in variables.loads(variable):
                if not self._in_scheduler(node):
                    raise Refusal(
                        f"`{expr.id}` is a number of batches for the scheduler, and for {at(node)} too"
                    )
        return True

    def _in_scheduler(self, node: ast.AST) -> bool:
        """It is asked for in the making of a scheduler that is converted, or of another length."""
        here: ast.AST | None = node
        while here is not None and not isinstance(here, ast.stmt):
            if any(here is s.node for s in self.script.schedulers):
                return True
            here = parent_of(here)
        if (
            isinstance(here, ast.Assign)
            and len(here.targets) == 1
            and isinstance(here.targets[0], ast.Name)
        ):
            others = [n for n in mentions(function_of(here), here.targets[0].id) if is_read(n)]
            return bool(others) and all(self._in_scheduler(n) for n in others)
        return False

    def _is_loader(self, expr: ast.expr) -> bool:
        found = self.script.values(expr)
        mine = {id(t) for s in self.iteration.step.loaders for t in (s,)}
        return bool(found) and all(id(t) in mine for t in found)

    def _number(self, expr: ast.Call) -> None:
        if id(expr) in self._done:
            return
        self._done.add(id(expr))
        self.edits.append(
            Wrap(
                expr,
                literal(self.window.count(expr)).replace(COUNT, "{}"),
            )
        )
