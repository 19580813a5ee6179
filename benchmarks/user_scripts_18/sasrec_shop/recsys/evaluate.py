import math
from typing import Dict

import numpy as np
import torch


def evaluate(model, parts: Dict[str, list], target: str, items: int, max_len: int,
             users: int, negatives: int, seed: int, device) -> Dict[str, float]:
    """HR@10 and NDCG@10 of the target among sampled negatives. The seed is fixed, so that epochs compare."""
    rng = np.random.RandomState(seed)
    chosen = rng.permutation(len(parts["train"]))[:users]
    ndcg, hit = 0.0, 0
    model.eval()
    for u in chosen:
        history = parts["train"][u] + ([parts["valid"][u]] if target == "test" else [])
        answer = parts[target][u]
        seq = np.zeros(max_len, dtype=np.int64)
        tail = history[-max_len:]
        seq[max_len - len(tail):] = tail
        seen = set(history)
        seen.add(answer)
        candidates = [answer]
        while len(candidates) <= negatives:
            t = rng.randint(1, items + 1)
            if t not in seen:
                candidates.append(t)
        scores = model.score(torch.LongTensor([seq]).to(device), torch.LongTensor([candidates]).to(device))[0]
        rank = (-scores).argsort().argsort()[0].item()
        if rank < 10:
            ndcg += 1 / math.log2(rank + 2)
            hit += 1
    return {"ndcg@10": ndcg / len(chosen), "hr@10": hit / len(chosen)}
