"""Run the code cells of a notebook in one namespace (no jupyter on the cluster):
    python run_nb.py load_forecast.ipynb
"""
import json
import sys

path = sys.argv[1] if len(sys.argv) > 1 else "load_forecast.ipynb"
with open(path) as f:
    nb = json.load(f)
ns = {"__name__": "__main__"}
for n, cell in enumerate(c for c in nb["cells"] if c["cell_type"] == "code"):
    src = "".join(l for l in cell["source"] if not l.lstrip().startswith(("%", "!")))
    exec(compile(src, "cell-%d" % (n + 1), "exec"), ns)
