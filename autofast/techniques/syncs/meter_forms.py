"""How average meters take the numbers that steps give them.

What only multiplies and adds computes with tensors as it stands: such meters, of the project or of
a library, get ``loss.detach().double()``, and ``losses.avg`` is asked for by ``float(losses.avg)``,
but where it is formatted, or given to a function of ``math``, which comes to the same. Others, and
where quotients may not be rounded in another way, get new methods (:mod:`.meters`); a library's
cannot.
"""

from __future__ import annotations

import ast
from collections.abc import Container, Iterator

from autofast.edit.edits import Edit, Rewrite, Wrap
from autofast.facts.copies import several_gpus
from autofast.flow.usage import Act, Usage, usage_of
from autofast.model.calls import is_method
from autofast.model.script import Script
from autofast.model.several import of_kind, surely
from autofast.model.source import Told, at, first_line, parent_of, source_of
from autofast.model.syntax import is_stored
from autofast.model.values import Inst, Thing
from autofast.rule import Effect, Refusal
from autofast.techniques.syncs.kept import kept_template, without_graph
from autofast.techniques.syncs.meter_calls import Counted, counted_numbers
from autofast.techniques.syncs.meter_sums import Sums
from autofast.techniques.syncs.meters import Meters, reads_of
from autofast.techniques.syncs.reads import Read
from autofast.techniques.syncs.scalar_tensors import kind_of
from autofast.techniques.syncs.step_places import is_in_steps
from autofast.techniques.syncs.stores import Changed
from autofast.write.spelling import has_float64

# How a script comes to numbers of 64 bits on a device.
WIDE = ("double", "float64", "DoubleTensor", "set_default_dtype", "set_default_tensor_type")


def kept_in_meters(
    script: Script, every: list[Read], well: Container[ast.AST], effect: Effect
) -> Iterator[Changed]:
    """What becomes of the numbers that steps give to objects which count them, where not all of
    those of a class are put off ``well`` otherwise.
    """
    by_class: dict[tuple[int, str], list[Counted]] = {}
    for counted in counted_numbers(script, every):
        by_class.setdefault((id(counted.cls), counted.method.attr), []).append(counted)
    for several in by_class.values():
        reads = [r for c in several for r in c.reads]
        if any(is_in_steps(script, r) and r.node not in well for r in reads):
            yield from _kept_by(script, several, effect)


def _kept_by(script: Script, several: list[Counted], effect: Effect) -> Iterator[Changed]:
    """What becomes of the numbers that objects of one class get: some of them may have to count in
    every step.
    """
    told = isinstance(source_of(several[0].cls.node), Told)
    if not told and effect > Effect.EXACT:
        if (summed := _summed(script, several)) is not None:
            yield summed
            return
    try:
        meters = (SumMeters if told else Meters)(script, several)
        unsuited, why = meters.unsuited()
        fit = [c for c in several if not c.taken & unsuited]
        if fit == several:
            yield meters.kept()
            return
    except Refusal as reason:
        fit, why = [], str(reason)
    yield Changed(reads_of([c for c in several if c not in fit]), [], why=why)
    if fit:
        yield from _kept_by(script, fit, effect)


def _summed(script: Script, several: list[Counted]) -> Changed | None:
    """What becomes of them where all may be summed up as the class stands."""
    try:
        meters = SumMeters(script, several)
        return meters.kept() if not meters.unsuited()[0] else None
    except Refusal:
        return None


class SumMeters(Meters):
    """Those of a class that stays as it is, and computes with tensors."""

    def kept(self) -> Changed:
        modes: dict[Thing, set[object]] = {}
        for counted in self.several:
            if counted.read.how != "item" or kind_of(self.script, counted.read.core) != "float":
                raise Refusal(
                    "it may hold whole numbers, which a sum of floats would show otherwise"
                )
            if counted.asserts is not None or several_gpus(self.script):
                raise Refusal("the device may not count it")
            ways = {o.grad for o in self.script.log.ways("sync", counted.read.node)}
            for thing in counted.taken:
                modes.setdefault(thing, set()).update(ways)
        if any(len(ways) > 1 for ways in modes.values()):  # nothing is added to inference tensors
            raise Refusal("it is counted with gradients and without")
        sums = self._sums()
        if not isinstance(source_of(self.cls.node), Told):
            sums.check()
            self.rounds |= sums.divides
        self.rounds |= not has_float64(self.script)
        return super().kept()

    def _sums(self) -> Sums:
        return Sums(self.meter.update, self.meter.methods, self.values)

    def _of_class(self, read: str, mixed: bool) -> list[Edit]:
        return []

    def _edits_of(self, counted: Counted) -> Iterator[Edit]:
        yield from ()

    def _read(self, counted: Counted) -> Iterator[Edit]:
        read, wide = counted.read, "double" if has_float64(self.script) else "float"
        # The cast makes another tensor, but where it is that wide already.
        is_wide = any(any(self.script.attributes(name)) for name in WIDE)
        kept = (kept_template if is_wide else without_graph)(self.script, read.core)
        yield Rewrite(read.node, f"{kept}.{wide}()", {"core": read.core})

    def _look(self, node: ast.expr) -> list[Edit]:
        looks = super()._look(node)
        match usage_of(node):
            case Usage(act=Act.ASKED, node=ast.Attribute() as asked):
                sums = self._sums()
                if asked.attr not in sums.attrs or is_stored(asked) or self._is_number_there(asked):
                    return []
                if asked.attr not in sums.quotients and self._may_be_another(node):
                    raise Refusal(f"`{first_line(asked)}` may be a whole number of another meter")
                return [Wrap(asked, "float({})")]
            case Usage(act=Act.GIVEN, node=ast.Call() as call) if is_method(call, "format"):
                if _is_plain_format(call):
                    return []
        if looks:
            raise Refusal(f"what {at(node)} does with `{first_line(node)}` is not understood")
        return []

    def _may_be_another(self, node: ast.expr) -> bool:
        """A meter of the class that gets no tensors."""
        found = of_kind(self.script.values(node), Inst)
        return any(t.cls is self.cls and t not in self.objects for t in found)

    def _is_number_there(self, asked: ast.Attribute) -> bool:
        """Whether what gets it takes a tensor of one number for that number."""
        match parent_of(asked):
            case ast.FormattedValue(conversion=-1):
                return True
            case ast.Call() as call if asked in call.args:
                names = self.script.library_functions(call)
                return surely(name.startswith("math.") for name in names)
        return False


def _is_plain_format(call: ast.Call) -> bool:
    """``"{m.avg:.3f}".format(m=m)``"""
    match call.func:
        case ast.Attribute(value=ast.Constant(value=str() as text)):
            return "!" not in text
    return False
