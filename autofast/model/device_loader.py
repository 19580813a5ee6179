"""The class that keeps data on the device: how it is written, and how it is known again."""

from __future__ import annotations

import ast
from functools import cache

NAME = "DeviceLoader"
MARK = "__on_device__"  # attribute of a loader (Ext) that is made by the class

# What all classes do: SHARE times the data have to fit, for the batches and the network beside
# them.
_KEPT = """\
        device = {torch}.device(device)
        size = SHARE * sum(t.numel() * t.element_size() for t in tensors)
        if device.type == "cuda" and size > {torch}.cuda.mem_get_info(device.index)[0]:
            tensors = []  # too large: batches come as from any DataLoader
        self.tensors = [t.to(device).contiguous() for t in tensors]
"""
_IN_BATCHES = """\
    def __iter__(self):
        if not self.tensors:
            return super().__iter__()
        {torch}.empty((), dtype={torch}.int64).random_()  # which a DataLoader draws, too
        return self.batches()

    def batches(self):
        order = {torch}.tensor(list(self.sampler), device=self.tensors[0].device)
        for rows in order.split(self.batch_size)[: len(self)]:
"""
CLASS = (
    '''\
class {name}({base}):
    """Keeps all items on the device, if they fit, and takes whole batches there."""

    def __init__(self, *args, device, **options):
        super().__init__(*args, **options)
{items}
'''
    + _KEPT.replace("SHARE", "10")
    + """
"""
    + _IN_BATCHES
    + """            yield [t[rows] for t in self.tensors]
"""
)

# The same for images that are cropped and flipped: with black borders, which are normalized like
# the rest.
IMAGES_CLASS = (
    '''\
class {name}({base}):
    """Keeps all images on the device, if they fit, and takes whole batches there."""

    def __init__(self, *args, device, {padding}augment=None, **options):
        super().__init__(*args, **options)
{items}
'''
    + _KEPT.replace("SHARE", "5")
    + """        self.augment = augment

"""
    + _IN_BATCHES
    + """            images, targets = [t[rows] for t in self.tensors]
            yield [self.augment(images) if self.augment else images, targets]
"""
)

# The same for data whose batches a method of the dataset makes on the device, as ``__getitem__``
# makes items.
METHOD = "batch"
BATCH_CLASS = (
    '''\
class {name}({base}):
    """Keeps the data on the device, if they fit, and makes whole batches there."""

    def __init__(self, *args, device, **options):
        super().__init__(*args, **options)
{items}
'''
    + _KEPT.replace("SHARE", "5")
    + """{fixed}
"""
    + _IN_BATCHES
    + """            yield self.data.batch({given})
"""
)
OF_ROWS = "*[t[rows] for t in self.tensors]"
FIXED = ", *self.fixed"


def is_device_loader(node: ast.ClassDef) -> bool:
    """Whether a class gives its batches as the one that is written here does; where its tensors
    come from is its own affair.
    """
    if not {"__iter__", "batches"} <= {getattr(s, "name", "") for s in node.body}:
        return False
    torch = next(
        (
            n.value.id
            for n in ast.walk(node)
            if isinstance(n, ast.Attribute) and n.attr == "empty" and isinstance(n.value, ast.Name)
        ),
        "torch",
    )
    return _giving(node) in _written(torch)


@cache
def _written(torch: str) -> list[list[str]]:
    found = []
    of_rows = ((BATCH_CLASS, given) for given in (OF_ROWS, OF_ROWS + FIXED))
    for form, more in ((CLASS, ""), (IMAGES_CLASS, ""), *of_rows):
        code = form.format(
            name="_", base="_", torch=torch, items="", padding="", fixed="", given=more
        )
        (node,) = ast.parse(code).body
        assert isinstance(node, ast.ClassDef)
        found.append(_giving(node))
    return found


def _giving(node: ast.ClassDef) -> list[str]:
    return [
        ast.dump(s)
        for s in node.body
        if isinstance(s, ast.FunctionDef) and s.name in ("__iter__", "batches")
    ]
