# Runs the code cells of a notebook in order, in one namespace (no Jupyter on the compute node).
import json
import sys

nb = json.load(open(sys.argv[1]))
source = "\n".join("".join(c["source"]) for c in nb["cells"] if c["cell_type"] == "code")
exec(compile(source, sys.argv[1], "exec"), {"__name__": "__main__"})
