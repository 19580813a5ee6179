# runs all code cells of a notebook in one namespace: python nbexec.py some.ipynb [NAME=value ...]
# NAME=value become environment variables
import json
import os
import sys

os.environ.update(a.split("=", 1) for a in sys.argv[2:])
with open(sys.argv[1]) as f:
    nb = json.load(f)
ns = {"__name__": "__main__"}
for n, cell in enumerate(nb["cells"]):
    if cell["cell_type"] == "code":
        exec(compile("".join(cell["source"]), f"{sys.argv[1]}#{n}", "exec"), ns)
