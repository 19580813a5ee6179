"""Training that is aware of quantisation: what it learns is how the model computes with few bits,
which no other rounding may disturb.
"""

from __future__ import annotations

import re

from autofast.model.events import Site
from autofast.model.script import Script

LIBRARIES = ("pytorch_quantization.", "brevitas.", "nncf.")
PREPARES = re.compile(
    r"(torch|torchao)\.(\w+\.)*(prepare(_qat|_fx|_qat_fx|_pt2e|_qat_pt2e)?|(Fused)?[Ff]ake_?[Qq]uanti[sz]\w*|\w*QAT\w*|QuantWrapper)"
)


def quantised(script: Script) -> Site | None:
    """The place that puts observers or fake quantisation into a model; None where there is none."""
    for (kind, _), site in script.log.each():
        if kind.startswith(LIBRARIES) or PREPARES.fullmatch(kind):
            return site
    return None
