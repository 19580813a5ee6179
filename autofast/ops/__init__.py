"""What torch's operations do, by name: a table made from torch's own schemas."""

from autofast.ops.ops import (
    Op,
    autocast,
    by_element,
    draws,
    is_in_place,
    is_new,
    is_pointwise,
    is_view,
    may_share,
    op,
    reshapes,
)

__all__ = [
    "Op", "autocast", "by_element", "draws", "is_in_place", "is_new", "is_pointwise", "is_view", "may_share",
    "op", "reshapes"
]  # fmt: skip
