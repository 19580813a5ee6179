"""Functions of the project that ``__getitem__`` calls: their code for a whole batch is written where they are called."""

from __future__ import annotations

import ast

from autofast.flow.scopes import stored_in
from autofast.model.calls import is_method
from autofast.model.source import at
from autofast.model.values import Bound, Const, Func, Inst, Thing
from autofast.rule import Refusal
from autofast.techniques.loading.item_statements import Statements
from autofast.techniques.loading.item_values import Draw, Items, Value


class Functions(Statements):
    """Code that is written in the place of calls."""

    def project(self, call: ast.Call) -> Value | None:
        """What a function of the project gives, whose code is written here; None for anything else."""
        found = self.script.values(call.func)
        functions = {id(f.node): f for t in found for f in _functions(t)}
        if not functions:
            return None
        if len(functions) > 1 or not all(_functions(t) or t == Const(None) for t in found):
            raise Refusal(f"{at(call)} may call one function or another")
        (func,) = functions.values()
        node = func.node
        match node:
            case ast.FunctionDef(args=ast.arguments(vararg=None, kwonlyargs=[], kwarg=None)) if (
                not node.decorator_list and node not in self.inside and len(self.inside) < 5
            ):
                return self.written_here(call, node, func.owner is not None)
        raise Refusal(f"{at(call)}: `{ast.unparse(call.func)}` has no form for batches")

    def written_here(self, call: ast.Call, function: ast.FunctionDef, bound: bool) -> Value:
        this, index = "", ""
        names = [a.arg for a in function.args.args]
        env: dict[str, Value] = {}
        if bound:
            # A method, or an object that is called.
            this = self.path(call.func.value if is_method(call, function.name) else call.func)
            names = names[1:]
        given: dict[str, ast.expr] = dict(zip(names, call.args, strict=False))
        given |= {k.arg: k.value for k in call.keywords if k.arg}
        spare = dict(zip(reversed(names), reversed(function.args.defaults), strict=False))
        for name in names:
            value = given.get(name, spare.get(name))
            match value:
                case ast.Name(id=passed) if passed == self.index and this == self.root:
                    index = name
                case ast.expr():
                    env[name] = self.value(value)
        if (
            len(call.args) > len(names)
            or set(given) - set(names)
            or len(env) + bool(index) < len(names)
        ):
            raise Refusal(f"{at(call)} has no form for batches")
        return self.apart(function, this, index, env)

    def apart(
        self, function: ast.FunctionDef, this: str, index: str, env: dict[str, Value]
    ) -> Value:
        """The code of a function, with variables of its own."""
        kept = (
            "sums",
            "this",
            "index",
            "within_this",
            "own",
            "env",
            "called",
            "mask",
            "given",
            "base",
        )
        before = {name: getattr(self, name) for name in kept}
        parameters = [a.arg for a in function.args.args]
        self.own = stored_in(function)
        self.called = {n: self.fresh(n) for n in sorted(self.own)}
        self.env, self.mask, self.base, self.sums = {}, "", self.depth, {}
        self.this = parameters[0] if this else ""
        self.within_this, self.index = this, index
        self.inside.append(function)
        for name, value in env.items():
            match value:
                case Items(code=code) | Draw(code=code) if (
                    name in self.own or not code.isidentifier()
                ):
                    self.called.setdefault(name, self.fresh(name))
                    self.emit(name, value)
                case _:
                    self.env[name] = value
        found = self.body(function)
        self.inside.pop()
        for name in kept:
            setattr(self, name, before[name])
        return found


def _functions(thing: Thing) -> list[Func]:
    """The function of the project that a call of it runs."""
    match thing:
        case Func():
            return [thing]
        case Bound(func=func):
            return [func]
        case Inst(cls=cls):
            found = cls.find("__call__") or cls.find("forward") or ()
            return [f for f in found if isinstance(f, Func)]
    return []
