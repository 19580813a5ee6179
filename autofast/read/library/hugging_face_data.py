"""Datasets of Hugging Face: what ``datasets.load_dataset()`` gives, its splits, and what its
methods make of it.
"""

from __future__ import annotations

from autofast.model.several import wordset
from autofast.model.values import (
    NONE,
    Arguments,
    Ext,
    Thing,
    Unknown,
    Values,
    Where,
    things as values,
)
from autofast.read.library.table import gives_for, make
from autofast.read.state.core import Core

LOADS = tuple(
    f"datasets.{n}"
    for n in ("load_dataset", "load_from_disk", "concatenate_datasets", "Dataset.from_")
)
SAME = wordset("""map filter select shuffle sort shard remove_columns rename_column rename_columns select_columns cast cast_column
    class_encode_column flatten with_format train_test_split add_column flatten_indices""")
IN_PLACE = wordset("set_format reset_format set_transform save_to_disk")
SPLITS = tuple("train valid test dev eval unsupervised".split())


@gives_for("datasets.*", "datasets.Dataset.*")
def _made(interp: Core, name: str, args: Arguments, node: Where) -> Values | None:
    return make(interp, name, args, node) if is_made(name) else None


def is_made(name: str) -> bool:
    """Whether calling ``name`` gives such a dataset (or a dict of them)."""
    return name.startswith(LOADS)


def is_dataset(thing: Thing | None) -> bool:
    return isinstance(thing, Ext) and is_made(thing.name)


def method(interp: Core, this: Thing, name: str, args: Arguments) -> Values | None:
    """What a method of a dataset gives: the same object stands for all that is made of one."""
    if not isinstance(this, Ext) or not is_dataset(this):
        return None
    if name in ("with_transform", "set_transform"):
        this.attrs["transform"] = args.get(0, "transform")
    if name in IN_PLACE:
        return NONE
    return values(this) if name in SAME or name == "with_transform" else None


def split(thing: Ext, key: object) -> Values:
    """``data["train"]``; columns and rows are not followed."""
    if isinstance(key, str) and key.startswith(SPLITS):
        return values(thing)
    return values(Unknown("a column or a row of a dataset"))


def draws(thing: Ext) -> bool:
    """Whether its items are made by a function that may draw random numbers."""
    return "transform" in thing.attrs
