"""CoNLL-like files with a made-up language, so that nothing has to be downloaded."""
import os
import random

FIRST = ["anna", "boris", "carla", "dmitri", "elena", "farid", "greta", "hugo", "ines", "jonas"]
LAST = ["meyer", "novak", "silva", "keller", "tanaka", "okafor", "rossi", "lind"]
CITY = ["new lima", "port vero", "basel", "kyoto", "old harbor", "minsk", "saint ilia"]
ORG = ["acme", "north sea bank", "blue rail", "university of kyoto", "helix labs"]
FILL = [f"w{i:03d}" for i in range(400)]


def entity(rng):
    kind = rng.choice(["PER", "LOC", "ORG"])
    if kind == "PER":
        words = [rng.choice(FIRST), rng.choice(LAST)][: rng.choice([1, 2, 2])]
    elif kind == "LOC":
        words = rng.choice(CITY).split()
    else:
        words = rng.choice(ORG).split()
    return [(w, ("B-" if i == 0 else "I-") + kind) for i, w in enumerate(words)]


def sentence(rng):
    out = []
    length = min(max(int(rng.gauss(22, 10)), 4), 100)
    while len(out) < length:
        if rng.random() < 0.15:
            out += entity(rng)
        else:
            w = rng.choice(FILL) if rng.random() < 0.9 else rng.choice(FIRST + LAST)
            out.append((w, "O"))
    return out


def write(path, n, seed):
    if os.path.exists(path):
        return
    rng = random.Random(seed)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w") as f:
        for _ in range(n):
            for w, t in sentence(rng):
                f.write(f"{w} {t}\n")
            f.write("\n")


def read(path):
    sents, cur = [], []
    for line in open(path):
        line = line.strip()
        if not line:
            if cur:
                sents.append(cur)
            cur = []
        else:
            cur.append(tuple(line.split()))
    return sents
