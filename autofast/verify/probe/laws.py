"""By which law inputs are drawn (record.Call.laws): of every sample of a tensor some numbers that
say what it is like, and of BLOCK calls together how these numbers lie.

Two scripts that draw in another order give their models other numbers by the same law; noise of
another strength, flips of another share or integers of another range show here. Zeros count by
themselves alone, so that padding changes nothing else.
"""

from __future__ import annotations

from typing import Any

import torch

BLOCK = 10  # calls
MOST_CALLS = 600  # of a tensor
ENTRIES = 1 << 15  # of a call: so few that torch takes no threads for them
LONGEST = 1 << 11  # of a sample
BUCKETS = 16  # of whole numbers, by their rest
PLACES = 8
QUANTILES = (0.02, 0.1, 0.5, 0.9, 0.98)
LEVEL = 1e-10  # of squares: what scatters less is rounding

Tensor = Any


class Laws:
    def __init__(self) -> None:
        self.seen: dict[tuple[int, str], tuple[list[Tensor], list[Any]]] = {}

    def called(self, number: int, tensors: list[tuple[str, Tensor]]) -> dict[str, list[float]]:
        """By name, of those tensors with which a block ends."""
        found = {}
        for name, tensor in tensors:
            some, shapes = self.seen.setdefault((number, name), ([], []))
            if len(shapes) >= MOST_CALLS or not tensor.numel():
                continue
            try:
                some.append(described(tensor))
            except Exception:  # inside of torch.func.vmap, or a layout of its own
                some.append(None)
            shapes.append(tuple(tensor.shape[1:]))
            if len(shapes) % BLOCK == 0:
                # Whole numbers by turns with others have no law of their own.
                if (
                    all(one is not None for one in some)
                    and len({one.shape[1] for one in some}) == 1
                ):
                    found[name] = lying(torch.cat(some), len({*shapes}) == 1)
                some.clear()
        return found


def lying(rows: Tensor, even: bool) -> list[float]:
    """Column by column: mean, spread and QUANTILES. Where samples are not of equal shape, what
    hangs on it is no number."""
    rows = rows.double()
    quantiles = torch.tensor(QUANTILES, dtype=rows.dtype, device=rows.device)
    parts = [rows.mean(0, keepdim=True), rows.std(0, keepdim=True), rows.quantile(quantiles, 0)]
    found = torch.cat(parts).T
    if not even:
        found[_shaped(rows.shape[1])] = float("nan")
    return [float(f"{x:.6g}") for x in found.flatten().tolist()]


def _shaped(columns: int) -> list[int]:
    """The share of zeros and the entries at some places."""
    return [0, *range(columns - PLACES, columns)] if columns > BUCKETS + 4 else [0]


def described(tensor: Tensor) -> Tensor:
    """A row for each sample."""
    with torch.no_grad():
        data = tensor.detach()
        data = torch.view_as_real(data) if data.is_complex() else data.to_dense()
        data = data.reshape(len(data) if data.dim() else 1, -1) if data.dim() < 2 else data
        data = _some(data)
        while data.dim() != 4:
            data = data.flatten(1, 2) if data.dim() > 4 else data.unsqueeze(1)
        while data[0].numel() > LONGEST:
            axis = max((1, 2, 3), key=lambda k: data.shape[k])
            data = data.narrow(axis, data.shape[axis] // 4, data.shape[axis] // 2)
        whole = not data.is_floating_point() and data.dtype != torch.bool
        if whole:
            return _whole(data)
        rows = _real(data.float())
        if data.element_size() == 2:  # neighbours are rounded to the same number
            rows[:, 1] = float("nan")
        return rows


def _some(data: Tensor) -> Tensor:
    """Samples from all over the batch, irregularly: two views may lie by turns in one script
    and one behind the other in the other."""
    each = data[0].numel()
    most = 1024 if each == 1 else min(64, max(1, ENTRIES // min(LONGEST, each)))
    if len(data) <= most:
        return data
    places = torch.frac(
        torch.arange(most, dtype=torch.float64, device="cpu") * 0.6180339887498949
    ) * len(data)
    return data[places.long().to(data.device)]


def _share(which: Tensor, among: Tensor | None = None) -> Tensor:
    many = which[0].numel() if among is None else among.flatten(1).sum(1).clamp(min=1)
    return which.flatten(1).sum(1) / many


def _alike(data: Tensor, seen: Tensor) -> Tensor:
    """The share of neighbours that are equal."""
    both = seen[..., 1:] & seen[..., :-1]
    return _share(both & (data[..., 1:] == data[..., :-1]), both)


def _whole(data: Tensor) -> Tensor:
    """Shares of zeros, of equal neighbours and of each bucket; the mean, and the greatest."""
    seen = data != 0
    rest = data.remainder(BUCKETS)
    buckets = [_share(seen & (rest == k), seen) for k in range(BUCKETS)]
    values = data.float()
    mean = values.flatten(1).sum(1) / seen.flatten(1).sum(1).clamp(min=1)
    greatest = values.flatten(1).amax(1)
    return torch.stack([_share(~seen), _alike(data, seen), *buckets, mean, greatest], 1)


def _ratio(one: Tensor, two: Tensor, least: Tensor | float = 0.0) -> Tensor:
    return torch.where(two > least, one / torch.where(two > least, two, 1.0), 0.0)


def _mean(values: Tensor, seen: Tensor) -> Tensor:
    return (values * seen).flatten(1).sum(1) / seen.flatten(1).sum(1).clamp(min=1)


def _peaked(values: Tensor, seen: Tensor) -> tuple[Tensor, Tensor]:
    """Third and fourth moment, standardised."""
    mean = _mean(values, seen)
    off = values - mean[:, None, None, None]
    square = _mean(off**2, seen)
    least = LEVEL * mean**2
    return _ratio(_mean(off**3, seen), square**1.5, least), _ratio(_mean(off**4, seen), square**2, least**2)  # fmt: skip


def _lean(values: Tensor, seen: Tensor, axis: int) -> Tensor:
    """By how much values grow along an axis, for a step of one standard deviation of the places."""
    shape = [1] * 4
    shape[axis] = -1
    at = torch.arange(values.shape[axis], dtype=values.dtype, device=values.device).view(shape)
    at = (at - _mean(at.expand_as(values), seen)[:, None, None, None]).expand_as(values)
    return _ratio(_mean(at * values, seen), _mean(at**2, seen) ** 0.5)


def _real(data: Tensor) -> Tensor:
    """In the order of judging/laws.REAL."""
    seen = data != 0
    values = torch.where(seen, data, 0.0)
    size = values.abs()
    skew, peak = _peaked(values, seen)
    low, high = (getattr(torch.where(seen, data, k), n)((1, 2, 3)) for k, n in ((torch.inf, "amin"), (-torch.inf, "amax")))  # fmt: skip
    empty = ~seen.flatten(1).any(1)
    low, high = (torch.where(empty, 0.0, x) for x in (low, high))
    steps = []
    for axis in (3, 2, 1):
        many = data.shape[axis] - 1
        both = seen.narrow(axis, 1, many) & seen.narrow(axis, 0, many)
        steps.append((values.diff(dim=axis), both))
    far = [_mean(step.abs(), both) for step, both in steps]
    step, both = steps[0]
    again = step.diff(dim=3).abs()
    double = both[..., 1:] & both[..., :-1]
    leans = [_lean(some, seen, axis) for some in (values, values**2) for axis in (3, 2, 1)]
    # Turns and gains that one draw decides: each by itself is as it was.
    together = [leans[0] * one for one in leans[1:3]]
    together += [one * _mean(values, seen) for one in leans[:3]]
    flat = values.flatten(1)
    places = [flat[:, k * flat.shape[1] // PLACES] for k in range(PLACES)]
    first = [_share(~seen), _alike(data, seen), _mean(values, seen), _mean(size, seen)]
    more = [_mean(values**2, seen) ** 0.5, skew, peak, low, high, *far]
    colour = [_peaked(step, both)[1], _ratio(_mean(again, double), far[0])]
    return torch.stack([*first, *more, *colour, *leans, *together, *places], 1)
