"""runs the notebook's code cells in order, without jupyter (magics are skipped)"""
import json
import sys

ns = {"__name__": "__main__"}
for c in json.load(open(sys.argv[1]))["cells"]:
    if c["cell_type"] == "code":
        src = "".join(l for l in c["source"] if not l.startswith(("!", "%")))
        exec(compile(src, sys.argv[1], "exec"), ns)
