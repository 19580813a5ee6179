"""Recall@k and mAP@R of query photos against the gallery. Also a command:  python evaluate.py --ckpt runs/best.pt ..."""
import argparse

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from data import EvalImages, read_csv
from model import Embedder


def embed(model, loader, device):
    model.eval()
    feats, labels = [], []
    for images, ids in loader:
        f = F.normalize(model(images.to(device)))
        feats.append(f.detach().cpu())
        labels.append(ids)
    return torch.cat(feats), torch.cat(labels)


def recall_at_k(q, q_ids, g, g_ids, ks=(1, 5, 10)):
    hits = {k: 0 for k in ks}
    ap = 0.0
    for i in range(len(q)):
        sim = g @ q[i]
        order = sim.argsort(descending=True)
        match = (g_ids[order] == q_ids[i])
        for k in ks:
            if match[:k].any():
                hits[k] += 1
        r = int(match.sum())
        if r > 0:
            top = match[:r].float()
            prec = top.cumsum(0) / torch.arange(1, r + 1)
            ap += float((prec * top).sum() / r)
    n = max(1, len(q))
    return {f"R@{k}": hits[k] / n for k in ks} | {"mAP@R": ap / n}


def eval_sets(args):
    ids: dict[str, int] = {}
    for split in ("query", "gallery"):
        for _, sku in read_csv(args.csv, split):
            ids.setdefault(sku, len(ids))
    q = EvalImages(args.root, args.csv, "query", ids, args.size)
    g = EvalImages(args.root, args.csv, "gallery", ids, args.size)
    return q, g


def evaluate(model, args, device):
    q_set, g_set = eval_sets(args)
    q_loader = DataLoader(q_set, batch_size=args.batch_size)
    g_loader = DataLoader(g_set, batch_size=args.batch_size)
    q, qi = embed(model, q_loader, device)
    g, gi = embed(model, g_loader, device)
    return recall_at_k(q, qi, g, gi)


if __name__ == "__main__":
    p = argparse.ArgumentParser()
    p.add_argument("--ckpt", required=True)
    p.add_argument("--root", default="/data/shoes")
    p.add_argument("--csv", default="/data/shoes/catalogue.csv")
    p.add_argument("--size", type=int, default=224)
    p.add_argument("--batch-size", type=int, default=96)
    a = p.parse_args()
    dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    ck = torch.load(a.ckpt, map_location="cpu")
    net = Embedder(ck["width"], ck["dim"])
    net.load_state_dict(ck["model"])
    print(evaluate(net.to(dev), a, dev))
