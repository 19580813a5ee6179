"""toy corpus: arithmetic sentences and brackets, byte level, documents end with 0"""
import json

import numpy as np

r = np.random.RandomState(8)
docs = []
for _ in range(900):
    if r.rand() < .6:
        a, b = r.randint(0, 40, 2)
        docs.append('%d+%d=%d;' % (a, b, a + b))
    else:
        s, depth = '', 0
        for _ in range(r.randint(4, 30)):
            if depth and r.rand() < .5:
                s, depth = s + ')', depth - 1
            else:
                s, depth = s + '(', depth + 1
        docs.append(s + ')' * depth)
chars = sorted(set(''.join(docs)))
stoi = {c: i + 1 for i, c in enumerate(chars)}
ids = [t for d in docs for t in [stoi[c] for c in d] + [0]]
n = int(len(ids) * .9)
np.array(ids, np.uint16).tofile('tokens.bin')
json.dump({'vocab': len(chars) + 1, 'chars': chars, 'split': n, 'total': len(ids)}, open('meta.json', 'w'))
print('tokens', len(ids), 'vocab', len(chars) + 1)
