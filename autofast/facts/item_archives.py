"""Archives that items open again, each for itself: HDF5 files, LMDB environments, zip files."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.flow.scopes import own_nodes, stored_in
from autofast.model.calls import names_in
from autofast.model.script import Script
from autofast.model.several import of_kind, wordset
from autofast.model.source import ancestors, within
from autofast.model.syntax import CHOICES

ARCHIVES = wordset(
    "h5py.File tables.open_file lmdb.open netCDF4.Dataset xarray.open_dataset zipfile.ZipFile "
    "tarfile.open tarfile.TarFile.open"
)


def reopened(script: Script) -> Iterator[tuple[ast.Call, str]]:
    """Where ``__getitem__`` opens the same archive for every item, and by what."""
    every = (d.getitem for x in script.loaders for d in x.datasets)
    for getitem in dict.fromkeys(f for f in every if f is not None):
        own = stored_in(getitem) | {a.arg for a in getitem.args.args[1:]}
        for call in of_kind(own_nodes(getitem), ast.Call):
            names = script.library_functions(call) & ARCHIVES
            if names and call.args and not own & set(names_in(call.args[0])):
                if not any(isinstance(n, CHOICES) and within(n, getitem) for n in ancestors(call)):
                    yield call, min(names)
