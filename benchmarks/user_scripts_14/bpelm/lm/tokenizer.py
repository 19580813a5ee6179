"""Byte-pair encoding without dependencies."""
from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path

SPLIT = re.compile(r" ?[A-Za-z]+| ?[0-9]| ?[^\sA-Za-z0-9]+|\s+")
EOT = 256


class BPE:
    def __init__(self, merges: list[tuple[int, int]]):
        self.merges = merges
        self.rank = {pair: 257 + i for i, pair in enumerate(merges)}
        self.bytes = {i: bytes([i]) for i in range(256)}
        self.bytes[EOT] = b""
        for i, (a, b) in enumerate(merges):
            self.bytes[257 + i] = self.bytes[a] + self.bytes[b]
        self._cache: dict[str, list[int]] = {}

    @property
    def size(self) -> int:
        return 257 + len(self.merges)

    @classmethod
    def train(cls, text: str, size: int) -> "BPE":
        words = Counter(SPLIT.findall(text))
        seqs = {w: list(w.encode()) for w in words}
        merges: list[tuple[int, int]] = []
        where: dict[tuple[int, int], set[str]] = {}
        count: Counter = Counter()
        for w, s in seqs.items():
            for pair in zip(s, s[1:]):
                count[pair] += words[w]
                where.setdefault(pair, set()).add(w)
        while 257 + len(merges) < size and count:
            pair, n = count.most_common(1)[0]
            if n < 2:
                break
            new = 257 + len(merges)
            merges.append(pair)
            for w in where.pop(pair):
                s = seqs[w]
                for p in zip(s, s[1:]):
                    count[p] -= words[w]
                s = seqs[w] = merge(s, pair, new)
                for p in zip(s, s[1:]):
                    count[p] += words[w]
                    where.setdefault(p, set()).add(w)
            count.pop(pair, None)
        return cls(merges)

    def _word(self, w: str) -> list[int]:
        ids = self._cache.get(w)
        if ids is None:
            ids = list(w.encode())
            while len(ids) > 1:
                best = min(zip(ids, ids[1:]), key=lambda p: self.rank.get(p, 1 << 30))
                if best not in self.rank:
                    break
                ids = merge(ids, best, self.rank[best])
            self._cache[w] = ids
        return ids

    def encode(self, text: str) -> list[int]:
        out: list[int] = []
        for w in SPLIT.findall(text):
            out.extend(self._word(w))
        return out

    def decode(self, ids: list[int]) -> str:
        return b"".join(self.bytes[i] for i in ids).decode(errors="replace")

    def save(self, path: Path) -> None:
        path.write_text(json.dumps(self.merges))

    @classmethod
    def load(cls, path: Path) -> "BPE":
        return cls([tuple(p) for p in json.loads(path.read_text())])


def merge(ids: list[int], pair: tuple[int, int], new: int) -> list[int]:
    out, i = [], 0
    while i < len(ids):
        if i + 1 < len(ids) and (ids[i], ids[i + 1]) == pair:
            out.append(new)
            i += 2
        else:
            out.append(ids[i])
            i += 1
    return out
