"""Writes a CoNLL style corpus of an invented language with person / place / org names.

    python make_data.py [folder]
"""
import os
import random
import sys

SYL = ["ba", "ke", "lo", "mi", "su", "ta", "re", "no", "vi", "da", "gu", "pe", "sha", "tri", "kol", "men"]
SUFFIX = {"PER": ["son", "ina", "ov"], "LOC": ["burg", "ia", "ton"], "ORG": ["corp", "bank", "co"]}
CUES = {"PER": ["mr", "says", "met"], "LOC": ["in", "near", "from"], "ORG": ["at", "joined", "owns"]}


def word(rng, lo=1, hi=4):
    return "".join(rng.choice(SYL) for _ in range(rng.randint(lo, hi)))


def entity(rng, kind):
    n = 1 if rng.random() < 0.6 else 2
    toks = [word(rng, 1, 3).capitalize() for _ in range(n)]
    if rng.random() < 0.7:
        toks[-1] += rng.choice(SUFFIX[kind])
    return toks


def sentence(rng, lexicon, lo, hi):
    out, want = [], rng.randint(lo, hi)
    while len(out) < want:
        if rng.random() < 0.22:
            kind = rng.choice(list(SUFFIX))
            out.append((rng.choice(CUES[kind]), "O"))
            for i, t in enumerate(entity(rng, kind)):
                out.append((t, ("B-" if i == 0 else "I-") + kind))
        else:
            # Zipf like choice of ordinary words
            r = int(len(lexicon) ** rng.random()) - 1
            out.append((lexicon[r], "O"))
    return out


def write(out, n_train=14000, n_dev=3200, lo=5, hi=45, n_words=12000):
    rng = random.Random(13)
    lexicon = [word(rng, 1, 5) for _ in range(n_words)]
    os.makedirs(out, exist_ok=True)
    for name, n in (("dev", n_dev), ("train", n_train)):
        with open(os.path.join(out, name + ".conll"), "w") as f:
            for _ in range(n):
                for w, t in sentence(rng, lexicon, lo, hi):
                    f.write("%s %s\n" % (w, t))
                f.write("\n")


if __name__ == "__main__":
    write(sys.argv[1] if len(sys.argv) > 1 else "corpus")
