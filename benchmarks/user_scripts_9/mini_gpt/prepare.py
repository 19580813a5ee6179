"""
Writes train.bin / val.bin (uint16 character ids) and meta.pkl.
There is no download: the "corpus" is a little grammar of a town and its people.
"""
import os
import pickle
import random

import numpy as np

PEOPLE = ['the baker', 'the old miller', 'Anna', 'Tom', 'the mayor', 'a tired sailor', 'my aunt']
VERBS = ['sells', 'finds', 'paints', 'carries', 'forgets', 'mends', 'wants']
THINGS = ['bread', 'a red boat', 'two lanterns', 'the north gate', 'a letter', 'seven apples', 'the clock']
WHEN = ['in the morning', 'at night', 'when it rains', 'on market day', 'before the feast']


def make_text(n_chars, seed=1337):
    rng = random.Random(seed)
    parts, total = [], 0
    while total < n_chars:
        s = '%s %s %s' % (rng.choice(PEOPLE), rng.choice(VERBS), rng.choice(THINGS))
        if rng.random() < 0.6:
            s += ' ' + rng.choice(WHEN)
        s = s[0].upper() + s[1:] + ('.\n' if rng.random() < 0.3 else '. ')
        parts.append(s)
        total += len(s)
    return ''.join(parts)[:n_chars]


def prepare(data_dir, n_chars=400000):
    if os.path.exists(os.path.join(data_dir, 'meta.pkl')):
        return
    os.makedirs(data_dir, exist_ok=True)
    text = make_text(n_chars)
    chars = sorted(set(text))
    stoi = {c: i for i, c in enumerate(chars)}
    ids = np.array([stoi[c] for c in text], dtype=np.uint16)
    n = int(0.9 * len(ids))
    ids[:n].tofile(os.path.join(data_dir, 'train.bin'))
    ids[n:].tofile(os.path.join(data_dir, 'val.bin'))
    with open(os.path.join(data_dir, 'meta.pkl'), 'wb') as f:
        pickle.dump({'vocab_size': len(chars), 'itos': dict(enumerate(chars)), 'stoi': stoi}, f)


if __name__ == '__main__':
    prepare('data')
