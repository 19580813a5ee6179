"""Filtered link prediction ranks."""
import numpy as np
import torch


def evaluate(model, triples, known, n_entity, batch_size, device):
    """Mean rank, MRR and Hits@k over both directions; other true answers are pushed to the end."""
    model.eval()
    ranks = []
    with torch.no_grad():
        for mode in ("head", "tail"):
            for s in range(0, len(triples), batch_size):
                rows = triples[s:s + batch_size]
                triple = torch.LongTensor(rows).to(device)
                filters = []
                for h, r, t in rows:
                    if mode == "head":
                        filters.append([-1e6 if (e, r, t) in known and e != h else 0.0 for e in range(n_entity)])
                    else:
                        filters.append([-1e6 if (h, r, e) in known and e != t else 0.0 for e in range(n_entity)])
                candidates = torch.arange(n_entity).repeat(len(rows), 1).to(device)
                scores = model.negative(triple, candidates, mode) + torch.tensor(filters).to(device)
                order = torch.argsort(scores, dim=1, descending=True)
                answer = triple[:, 0] if mode == "head" else triple[:, 2]
                for i in range(len(rows)):
                    position = (order[i] == answer[i]).nonzero()
                    ranks.append(1 + position.item())
    ranks = np.array(ranks, dtype=np.float64)
    model.train()
    return {"mr": ranks.mean(), "mrr": (1 / ranks).mean(),
            "h@1": (ranks <= 1).mean(), "h@3": (ranks <= 3).mean(), "h@10": (ranks <= 10).mean()}
