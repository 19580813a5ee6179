"""A toy corpus from a small stochastic grammar, so the repo needs no download."""
import os
import random

NOUNS = ["king", "queen", "sailor", "ghost", "merchant", "fool", "soldier", "widow", "raven", "storm"]
VERBS = ["loves", "fears", "follows", "betrays", "serves", "mourns", "finds", "curses"]
ADJS = ["old", "pale", "noble", "wretched", "silent", "golden", "bitter", "gentle"]
PLACES = ["in the tower", "by the sea", "at dawn", "under the moon", "before the gate", "in the market"]
NAMES = ["ARDEN", "BIANCA", "CORIN", "DUKE", "EDRIC", "FLORA"]


def noun_phrase(rng):
    det = rng.choice(["the", "a", "my", "thy"])
    adj = rng.choice(ADJS) + " " if rng.random() < 0.5 else ""
    return f"{det} {adj}{rng.choice(NOUNS)}"


def sentence(rng):
    s = f"{noun_phrase(rng)} {rng.choice(VERBS)} {noun_phrase(rng)}"
    if rng.random() < 0.4:
        s += " " + rng.choice(PLACES)
    if rng.random() < 0.2:
        s += ", and " + sentence(rng)
    return s


def write_corpus(path: str, n_chars: int, seed: int = 7) -> None:
    rng = random.Random(seed)
    parts, total = [], 0
    while total < n_chars:
        lines = [sentence(rng) for _ in range(rng.randint(1, 4))]
        block = f"{rng.choice(NAMES)}:\n" + "\n".join(x[0].upper() + x[1:] + rng.choice(".!?") for x in lines) + "\n\n"
        parts.append(block)
        total += len(block)
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as f:
        f.write("".join(parts)[:n_chars])
