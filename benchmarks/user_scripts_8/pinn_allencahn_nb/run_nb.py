"""Runs the code cells of a notebook in order, as one program: python run_nb.py NOTEBOOK"""
import json
import sys

cells = json.load(open(sys.argv[1]))['cells']
src = '\n'.join(''.join(c['source']) for c in cells if c['cell_type'] == 'code')
exec(compile(src, sys.argv[1], 'exec'), {'__name__': '__main__'})
