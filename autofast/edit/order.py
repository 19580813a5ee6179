"""Who goes inside whom, where several rules touch one place: the only file that knows two rules at
once.
"""

from __future__ import annotations

from enum import IntEnum


class Rank(IntEnum):
    """Inner to outer for expressions and blocks; first to last for statements put into one
    group.
    """

    LEAF = 0  # keywords and rewrites of one expression: they commute
    MOVED = (
        5  # a statement that moves into a condition: below what brings its sums up to date there
    )
    LOSS_DIVIDE = 10  # loss / n ...
    LOSS_SCALE = 11  # ... then scaler.scale(loss / n): the division must be inside the scaled value
    UNSCALE = 20  # gradients are unscaled before anything reads or clips them
    CLIP = 21
    STEP = 22
    SCALER_UPDATE = 23  # once, after every scaler.step() of the iteration
    SCHEDULE = 24  # the scheduler counts optimizer steps, so it follows the update
    ZERO = 26  # gradients are cleared last
    GUARD = 30  # "if last micro-batch of the window": around all of the above
    AUTOCAST = 40  # around forward and loss, never around the group above
    GRAD_MODE = (
        50  # no_grad / inference_mode: around autocast, so that the cast cache dies with the block
    )
