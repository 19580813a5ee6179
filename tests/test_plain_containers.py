"""What a change makes a plain container is not asked for attributes that those do not have."""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.edit.hunks import Hunk
from autofast.edit.plain_containers import missing_attributes
from autofast.read import read_script

TEXT = """\
import collections
import torch

Pair = collections.namedtuple("Pair", "out h")


def pair(x):
    return Pair(x, x + 1)


both = pair(torch.ones(2))
both = {made}
print({read})
"""


@pytest.mark.parametrize(
    ("made", "read", "is_missing"),
    [
        ("tuple(part.float() for part in both)", "both.h", True),
        ("[part.float() for part in both]", "both.h", True),
        ('dict((n, both) for n in "ab")', "both.h", False),  # not followed: no literal
        ('{"h": both.h}', "both.out", True),
        ("tuple(part.float() for part in both)", "both.count(1)", False),
        ("both._make(part.float() for part in both)", "both.h", False),
        ("both", "both.h", False),
    ],
)
def test_an_attribute_of_something_else(
    tmp_path: Path, made: str, read: str, is_missing: bool
) -> None:
    path = tmp_path / "train.py"
    path.write_text(TEXT.format(made=made, read=read))
    new = read_script(path, tmp_path)
    hunk = Hunk(new.entry, (11, 12), (11, 12), (), frozenset({"a-rule"}), ())
    found = list(missing_attributes(new, new.entry, [hunk]))
    assert [h for h, _ in found] == [hunk] * is_missing
    elsewhere = Hunk(new.entry, (0, 1), (0, 1), (), frozenset({"a-rule"}), ())
    assert not list(missing_attributes(new, new.entry, [elsewhere]))
