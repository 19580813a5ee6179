"""Operations on lists of parameters, in Python."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from dataclasses import dataclass, field

from autofast.facts.parameter_loops import PLAIN, ParameterLoop
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.source import source_of
from autofast.techniques.optimizer.foreach import Op


@dataclass
class Writer:
    """The statements for ``done``, with ``TORCH`` for the module; lists that are used twice get a
    name.
    """

    script: Script
    loop: ParameterLoop
    done: list[Op]
    holes: dict[str, ast.expr] = field(default_factory=dict)

    def text(self) -> tuple[str, dict[str, ast.expr]]:
        """The statements, and the expressions that they quote."""
        uses = [e for op in self.done for e in (op.target, op.other) if e is not None]
        words = [self.list_of(e) for e in uses]
        lines, names = [], dict[str, str]()
        for word in dict.fromkeys(words):
            if words.count(word) > 1:
                wanted = ("targets", "parameters")[len(self.loop.lists) == 1]
                names[word] = source_of(self.loop.node).fresh(wanted, f"{wanted}_list")
                lines.append(f"{names[word]} = {word}")
        for op in self.done:
            lines += self.call(op, names)
        return "\n".join(lines), self.holes

    def call(self, op: Op, names: dict[str, str]) -> Iterator[str]:
        target = self.list_of(op.target)
        args = [names.get(target, target)]
        if op.other is not None:
            other = self.list_of(op.other)
            args.append(names.get(other, other))
        number = self.hole(op.number) if op.number is not None else ""
        if op.rest:
            plain = isinstance(op.number, (ast.Name, ast.Attribute, ast.Constant))
            number = f"1 - {number}" if plain else f"1 - ({number})"
        if op.name == "add_":
            name = "_foreach_sub_" if op.negative else "_foreach_add_"
            args += [f"alpha={number}"] if number else []
            yield f"TORCH.{name}({', '.join(args)})"
            return
        yield f"TORCH._foreach_{op.name}({', '.join([*args, *([number] if number else [])])})"

    def hole(self, expr: ast.expr) -> str:
        name = next((n for n, e in self.holes.items() if e is expr), f"e{len(self.holes)}")
        self.holes[name] = expr
        return f"{{{name}}}"

    def list_of(self, expr: ast.expr) -> str:
        """``[p.data for p in net.parameters()]``: never a gradient where the loop had none."""
        found = self.loop.element(expr)
        assert found is not None
        call = self.loop.lists[found[0]]
        assert is_method(call)
        each = f"{self.hole(call.func.value)}.parameters()"
        word = "data" if any(getattr(n, "attr", "") in PLAIN for n in ast.walk(expr)) else ""
        if not word and self.records(expr):
            word = "data"
        return f"[{found[0]}.{word} for {found[0]} in {each}]" if word else f"list({each})"

    def records(self, expr: ast.expr) -> bool:
        """Whether autograd is on where a parameter is only read."""
        modes = {
            o.grad for s in self.script.log.of("iterate") if s.node is self.loop.node for o in s
        }
        return not modes <= {"off", "inference"} and not any(expr is op.target for op in self.done)
