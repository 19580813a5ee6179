# runs hw4 without jupyter: python run_nb.py hw4_dates.ipynb [KEY=VALUE ...]
import json, sys

nb = json.load(open(sys.argv[1]))
ns = {"__name__": "__main__", "OVERRIDE": dict(a.split("=") for a in sys.argv[2:])}
for i, c in enumerate([c for c in nb["cells"] if c["cell_type"] == "code"]):
    code = "".join(l for l in c["source"] if l.lstrip()[:1] not in ("%", "!"))
    exec(compile(code, "<cell %d>" % (i + 1), "exec"), ns)
