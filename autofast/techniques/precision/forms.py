"""How autocast and the scaler are spelled: the dtype, and where they are enabled."""

from __future__ import annotations

import ast
from dataclasses import dataclass, replace

from autofast.edit.edits import After, Before, Edits, Written
from autofast.facts.by_default import Off
from autofast.facts.forwards import Region
from autofast.model.script import Script
from autofast.model.several import one
from autofast.model.source import source_of, statement_of
from autofast.techniques.precision.scaling import EVER_SINCE, Scaling, of_cuda_amp
from autofast.write.cuda_flag import enabled_where_cuda
from autofast.write.half_dtype import AMP_DTYPE, HAS_BF16, Shared
from autofast.write.spelling import torch_in

DTYPE_SINCE = (1, 10)  # autocast(dtype=...)


@dataclass(frozen=True)
class Precision:
    """How autocast and the scaler are spelled. ``form``: bf16, fp16, native (bf16 on GPUs that
    have it), either (there, and fp16 on others); ``device``: cuda, cpu.

    ``shared`` is what the forms native and either ask the GPU; ``off`` an option with which
    something else does all this.
    """

    form: str
    device: str
    shared: Shared | None = None
    off: Off | None = None
    old: bool = False  # torch.cuda.amp.autocast(), which is fp16

    @property
    def torch(self) -> tuple[int, int]:
        """The oldest torch that runs it."""
        return EVER_SINCE if self.old else DTYPE_SINCE

    def header(self, script: Script, place: ast.stmt) -> Written:
        """The ``with`` line of a block that begins with ``place``, and what its file needs."""
        torch, needed = torch_in(source_of(place))
        edits: Edits = needed
        dtype = f"{torch}.float16" if self.form == "fp16" else f"{torch}.bfloat16"
        enabled, imports = self._enabled(script, place)
        if self.shared is not None:
            chosen = self.shared.value_for(place)
            edits = *edits, *chosen.edits
            if self.form == "either":
                dtype = chosen.code
            else:
                enabled, imports = chosen.code, self.shared.below()
        enabled = self._unless(script, place, enabled)
        if self.old:
            given = f"enabled={enabled}" if enabled else ""
            return f"with {torch}.cuda.amp.autocast({given}):", (*edits, *imports)
        given = f'"{self.device}", dtype={dtype}' + (f", enabled={enabled}" if enabled else "")
        return f"with {torch}.autocast({given}):", (*edits, *imports)

    def _unless(self, script: Script, place: ast.stmt, enabled: str) -> str:
        """The condition ``enabled``, and that the option is not given."""
        if self.off is None:
            return enabled
        return " and ".join(e for e in (enabled, self.off.is_off_at(script, place)) if e)

    def _enabled(self, script: Script, place: ast.stmt) -> Written:
        return enabled_where_cuda(script, place) if self.device == "cuda" else ("", ())

    def scaler(self, script: Script, place: ast.stmt, scaling: Scaling) -> Edits:
        torch, needed = torch_in(source_of(place))
        edits: Edits = needed
        enabled, imports = self._enabled(script, place)
        before = ""
        if self.shared is not None:
            chosen, before = self.shared.value_for(place), self.shared.local
            imports = *imports, *chosen.edits
            is_half = f"{chosen.code} == {torch}.float16"
            enabled = f"{enabled} and {is_half}" if enabled else is_half
        enabled = self._unless(script, place, enabled)
        old = of_cuda_amp(script)
        device = "" if old else f'"{self.device}"'
        given = ", ".join(filter(None, (device, f"enabled={enabled}" if enabled else "")))
        amp = f"{torch}.cuda.amp" if old else f"{torch}.amp"
        code = f"{before}{scaling.target} = {amp}.GradScaler({given})"
        return ((Before if scaling.early else After)(place, code), *edits, *imports)


def shared(
    script: Script, precision: Precision, regions: list[Region], scaling: Scaling | None
) -> Precision:
    """The precision, with the place of the constant that it asks for; fp16 where there is no place
    for it, as that needs none.
    """
    firsts = [r.first for r in regions]
    scaled = precision.form in ("either", "fp16") and scaling is not None
    if scaled and precision.device == "cuda" and script.torch.rules_out(DTYPE_SINCE):
        return replace(precision, form="fp16", old=True)
    if precision.form == "either" and scaling is not None:
        beside = one(scaling.makes)
        dtype = Shared(script, AMP_DTYPE, [*firsts, *scaling.makes], beside)
        return (
            replace(precision, shared=dtype)
            if dtype.is_constant
            else replace(precision, form="fp16")
        )
    if precision.form == "native":
        made = [statement_of(o.node) for o in script.optimizers]
        found = [Shared(script, HAS_BF16, firsts, stmt) for stmt in [*reversed(made), None]]
        return replace(precision, shared=next((f for f in found if f.local), found[-1]))
    return precision
