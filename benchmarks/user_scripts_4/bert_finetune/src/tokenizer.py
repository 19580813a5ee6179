"""A whitespace tokenizer and a synthetic "natural language inference" corpus."""
import random

SUBJ = "the cat|a dog|my friend|the teacher|an engineer|the old man|a child|the pilot".split("|")
VERB = "eats|likes|sees|builds|wants|finds|draws|sells".split("|")
OBJ = "an apple|a house|the car|some bread|a red ball|the small boat|old books|a plan".split("|")
TAIL = "today|in the park|with great care|at night|near the river|again and again|".split("|")


class Tokenizer:
    def __init__(self):
        words = sorted({w for part in (SUBJ, VERB, OBJ, TAIL) for s in part for w in s.split()} | {"not", "does"})
        self.vocab = {w: i for i, w in enumerate(["[PAD]", "[CLS]", "[SEP]", "[UNK]"] + words)}
        self.pad_id, self.cls_id, self.sep_id, self.unk_id = 0, 1, 2, 3

    def __call__(self, a, b):
        ids = [self.cls_id] + [self.vocab.get(w, 3) for w in a.split()] + [self.sep_id]
        types = [0] * len(ids)
        tail = [self.vocab.get(w, 3) for w in b.split()] + [self.sep_id]
        return ids + tail, types + [1] * len(tail)


def make_pairs(n, seed):
    rng = random.Random(seed)
    pairs = []
    for _ in range(n):
        s, v, o = rng.choice(SUBJ), rng.choice(VERB), rng.choice(OBJ)
        premise = f"{s} {v} {o} {rng.choice(TAIL)}"
        label = rng.randrange(3)
        if label == 0:
            hyp = f"{s} {v} {o}"
        elif label == 1:
            hyp = f"{s} does not {v} {o}"
        else:
            hyp = f"{rng.choice(SUBJ)} {rng.choice(VERB)} {rng.choice(OBJ)}"
        pairs.append((premise.strip(), hyp, label))
    return pairs
