"""A Gaussian filter with zeros around, as SciPy's with mode="constant"."""

import numpy as np


def gaussian_filter(values, sigma, mode="constant"):
    assert mode == "constant"
    radius = int(4 * sigma + 0.5)
    kernel = np.exp(-0.5 * (np.arange(-radius, radius + 1) / sigma) ** 2)
    kernel /= kernel.sum()
    for axis in (0, 1):
        spread = [np.convolve(row, kernel)[radius:-radius] for row in np.moveaxis(values, axis, -1)]
        values = np.moveaxis(np.stack(spread), -1, axis)
    return values.astype(np.float32)
