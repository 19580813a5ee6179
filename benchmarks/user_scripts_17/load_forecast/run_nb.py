"""Run the code cells of a notebook:  python run_nb.py forecast.ipynb epochs=2 n_series=20

key=value replaces the value of a plain `key = ...` line of the CONFIG cell (the first code cell).
"""
import json
import re
import sys

nb = json.load(open(sys.argv[1]))
overrides = dict(a.split("=", 1) for a in sys.argv[2:])
cells = ["".join(c["source"]) for c in nb["cells"] if c["cell_type"] == "code"]
for key, value in overrides.items():
    cells[0], n = re.subn(rf"^{key} = .*$", f"{key} = {value}", cells[0], flags=re.M)
    if n == 0:
        sys.exit(f"no such setting: {key}")
space = {"__name__": "__main__"}
for i, source in enumerate(cells):
    exec(compile(source, f"cell{i}", "exec"), space)
