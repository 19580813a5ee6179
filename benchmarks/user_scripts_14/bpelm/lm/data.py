from __future__ import annotations

import random
from pathlib import Path

import numpy as np
import torch

from .tokenizer import BPE, EOT

SYLLABLES = "ba be bri ca cor da del du fen fi ga gro ha hol in ka kel la lin lo ma mer mi na nor o pa per pi ra ri ro sa sel shu ta ten to tri va ven vi wa wen zo".split()
MOODS = "quietly|slowly|gladly|at last|in a hurry|without a word|for the second time".split("|")
VERBS = [("find", "found"), ("carry", "carried"), ("mend", "mended"), ("hide", "hid"), ("sell", "sold")]


def _lexicon(n: int, seed: int) -> list[str]:
    rng = random.Random(seed)
    words: dict[str, None] = {}
    while len(words) < n:
        words["".join(rng.choice(SYLLABLES) for _ in range(rng.choice((2, 2, 3, 3, 4))))] = None
    return list(words)


NAMES = [w.capitalize() for w in _lexicon(1500, 1)]
THINGS = _lexicon(5000, 2)
PLACES = _lexicon(2500, 3)


def _pick(rng: random.Random, words: list[str]) -> str:
    return words[int(len(words) * rng.random() ** 2)]


def _story(rng: random.Random) -> str:
    a, b = _pick(rng, NAMES), _pick(rng, NAMES)
    thing, place = _pick(rng, THINGS), _pick(rng, PLACES)
    n = rng.randint(2, 90)
    lines = [f"{a} lost a {thing} in the {place}."]
    for _ in range(rng.randint(3, 14)):
        who = rng.choice((a, b))
        now, past = rng.choice(VERBS)
        if rng.random() < 0.3:
            lines.append(f'"Who will {now} the {thing}?" asked {who}.')
        else:
            lines.append(f"{who} {past} {rng.choice(('it', 'the ' + thing))} {rng.choice(MOODS)} near the {_pick(rng, PLACES)}.")
        if rng.random() < 0.2:
            k = rng.randint(1, n)
            lines.append(f"There were {n} steps, and after {k} only {n - k} were left.")
    lines.append(f"In the end {b} gave the {thing} back to {a}.")
    return " ".join(lines)


def build_corpus(root: Path, stories: int, vocab: int, seed: int = 0) -> BPE:
    """Writes tokenizer.json, train.bin and val.bin; a no-op when they are there."""
    root.mkdir(parents=True, exist_ok=True)
    if (root / "val.bin").exists():
        return BPE.load(root / "tokenizer.json")
    rng = random.Random(seed)
    texts = [_story(rng) for _ in range(stories)]
    bpe = BPE.train("\n".join(texts[: max(200, stories // 20)]), vocab)
    bpe.save(root / "tokenizer.json")
    cut = int(stories * 0.97)
    for name, part in (("train", texts[:cut]), ("val", texts[cut:])):
        ids: list[int] = []
        for t in part:
            ids.extend(bpe.encode(t))
            ids.append(EOT)
        np.array(ids, dtype=np.uint16).tofile(root / f"{name}.bin")
    return bpe


class TokenStream:
    """Random windows of a token file."""

    def __init__(self, path: Path, batch: int, context: int, device: torch.device, seed: int):
        self.tokens = np.memmap(path, dtype=np.uint16, mode="r")
        self.batch, self.context, self.device = batch, context, device
        self.rng = np.random.default_rng(seed)

    def next(self) -> tuple[torch.Tensor, torch.Tensor]:
        at = self.rng.integers(0, len(self.tokens) - self.context - 1, self.batch)
        x = torch.stack([torch.from_numpy(self.tokens[i : i + self.context].astype(np.int64)) for i in at])
        y = torch.stack([torch.from_numpy(self.tokens[i + 1 : i + 1 + self.context].astype(np.int64)) for i in at])
        if self.device.type == "cuda":
            x = x.pin_memory().to(self.device, non_blocking=True)
            y = y.pin_memory().to(self.device, non_blocking=True)
        return x, y
