"""The class that takes whole batches of data on the device, where no loader of torch's own can be
written: how it is written, and how it is known again.
"""

from __future__ import annotations

import ast
import re

NAME = "DeviceLoader"
MARK = "__on_device__"  # attribute of a loader (Ext) that is made by the class

CLASS = """\
class {name}({base}):
    \"\"\"Takes whole batches of tensors at once, in the order of a DataLoader.\"\"\"

    def __iter__(self):
        {torch}.empty((), dtype={torch}.int64).random_(generator=self.generator)  # as a DataLoader
        return (list(self.dataset[{torch}.tensor(rows)]) for rows in self.batch_sampler)
"""


def is_device_loader(node: ast.ClassDef) -> bool:
    """Whether a class gives its batches as the one that is written here does."""
    return _iterating(node) == _iterating(ast.parse(CLASS.format(name="_", base="_", torch="_")))


def _iterating(tree: ast.AST) -> list[str]:
    """The method that gives the batches, whatever torch is called."""
    found = (n for n in ast.walk(tree) if getattr(n, "name", "") == "__iter__")
    return [re.sub(r"id='\w+'", "", ast.dump(n)) for n in found]
