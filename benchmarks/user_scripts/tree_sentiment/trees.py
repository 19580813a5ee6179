import collections
import random

Node = collections.namedtuple('Node', 'word left right label')
LEAF_WORDS = {'good': 1, 'great': 2, 'fine': 1, 'bad': -1, 'awful': -2, 'dull': -1, 'film': 0, 'plot': 0, 'actor': 0, 'scene': 0}
OPS = {'not': lambda a, b: -b, 'and': lambda a, b: a + b, 'but': lambda a, b: b}
VOCAB = {w: i for i, w in enumerate(sorted(LEAF_WORDS) + sorted(OPS))}


def score(n):
    if n.left is None:
        return LEAF_WORDS[n.word]
    return OPS[n.word](score(n.left), score(n.right))


def grow(rng, depth):
    if depth == 0 or rng.random() < 0.2:
        w = rng.choice(sorted(LEAF_WORDS))
        return Node(w, None, None, 1 + (LEAF_WORDS[w] > 0) - (LEAF_WORDS[w] < 0))
    n = Node(rng.choice(sorted(OPS)), grow(rng, depth - 1), grow(rng, depth - 1), None)
    s = score(n)
    return n._replace(label=1 + (s > 0) - (s < 0))


def corpus(n, seed, depth=4):
    rng = random.Random(seed)
    return [grow(rng, depth) for _ in range(n)]
