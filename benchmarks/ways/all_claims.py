"""All claims."""

from benchmarks.ways import (
    copies,
    creations,
    data,
    gradients,
    numbers,
    parameters,
    updates,
    workers,
)

CLAIMS = [
    *data.CLAIMS,
    *gradients.CLAIMS,
    *numbers.CLAIMS,
    *parameters.CLAIMS,
    *copies.CLAIMS,
    *creations.CLAIMS,
    *workers.CLAIMS,
    *updates.CLAIMS,
]
