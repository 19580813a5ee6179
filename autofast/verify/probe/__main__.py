"""Entry point: ``python FOLDER script ...`` or, for launchers that want a file, ``python
FOLDER/__main__.py script ...``.
"""

import importlib
import importlib.util
import os
import sys
from typing import Any

PACKAGE = "_autofast_probe"


def module(name: str) -> Any:
    """A module of this folder, as one of a package under a private name."""
    if PACKAGE not in sys.modules:
        folder = os.path.dirname(os.path.abspath(__file__))
        spec = importlib.util.spec_from_file_location(
            PACKAGE, os.path.join(folder, "__init__.py"), submodule_search_locations=[folder]
        )
        assert spec is not None and spec.loader is not None
        package = importlib.util.module_from_spec(spec)
        sys.modules[PACKAGE] = package
        spec.loader.exec_module(package)
    return importlib.import_module(PACKAGE + "." + name)


def main() -> None:
    folder = os.path.dirname(os.path.abspath(__file__))
    # Python put this folder (or the file's) first on the path: a script's ``import state`` must not
    # find ours.
    if sys.path and os.path.realpath(sys.path[0]) == os.path.realpath(folder):
        del sys.path[0]
    module("program").main(sys.argv[1:])


# Not in children of multiprocessing's "spawn", which import the main module under another name.
if __name__ == "__main__":
    main()
