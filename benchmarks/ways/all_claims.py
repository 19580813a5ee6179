"""All claims."""

from benchmarks.ways import data, gradients, numbers, parameters

CLAIMS = [*data.CLAIMS, *gradients.CLAIMS, *numbers.CLAIMS, *parameters.CLAIMS]
