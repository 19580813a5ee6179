"""Run a notebook's code cells in order without jupyter; key=value arguments are
injected after the cell tagged `parameters` (the way papermill does it).

    python run_nb.py knee_recon.ipynb epochs=2 size=64
"""
import ast
import json
import sys


def main():
    path, overrides = sys.argv[1], sys.argv[2:]
    with open(path) as f:
        nb = json.load(f)
    main_mod = sys.modules["__main__"].__dict__
    for i, cell in enumerate(nb["cells"]):
        if cell["cell_type"] != "code":
            continue
        exec(compile("".join(cell["source"]), "%s[cell %d]" % (path, i), "exec"), main_mod)
        if "parameters" in cell["metadata"].get("tags", []):
            for kv in overrides:
                k, v = kv.split("=", 1)
                try:
                    v = ast.literal_eval(v)
                except (ValueError, SyntaxError):
                    pass
                main_mod[k] = v


if __name__ == "__main__":
    main()
