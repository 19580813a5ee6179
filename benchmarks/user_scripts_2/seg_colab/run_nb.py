"""Runs the code cells without jupyter (lines with % and ! become pass):  python run_nb.py NB"""
import json
import re
import sys

scope = {'__name__': '__main__'}
for n, cell in enumerate([c for c in json.load(open(sys.argv[1]))['cells'] if c['cell_type'] == 'code']):
    text = re.sub(r'(?m)^([%!].*)$', r'pass  # \1', ''.join(cell['source']))
    exec(compile(text, '<cell %d>' % n, 'exec'), scope)
