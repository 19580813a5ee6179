"""Blocks that stand beside each other and can be written as one."""

from __future__ import annotations

from autofast.edit.edits import Around
from autofast.flow.positions import index_in_block, statements_beside


def follows(one: Around, other: Around) -> bool:
    """Whether ``other`` begins with the statement after ``one``, in the same block and under the
    same header.
    """
    here = statements_beside(one.last)
    return (
        one.header == other.header
        and index_in_block(here, other.first) == index_in_block(here, one.last) + 1
    )
