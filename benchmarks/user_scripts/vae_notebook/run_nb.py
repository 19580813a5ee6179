"""runs the code cells of a notebook in order, without jupyter:  python run_nb.py NB"""
import json
import sys

nb = json.load(open(sys.argv[1]))
ns = {'__name__': '__main__'}
for i, c in enumerate(c for c in nb['cells'] if c['cell_type'] == 'code'):
    exec(compile(''.join(c['source']), 'cell_%d' % i, 'exec'), ns)
