import copy
import json
import os
import sys

import numpy as np
import torch
import yaml
from torch.utils.data import DataLoader
from tqdm import tqdm

from dataset import Interactions, TestUsers, make_train_set
from towers import TwoTower


def recall_at_k(model, loader, n_items, seen, k, device):
    """recall@k and ndcg@k over the sampled test users"""
    model.eval()
    item_vecs = []
    for start in range(0, n_items, 512):
        ids = torch.arange(start, min(start + 512, n_items)).to(device)
        item_vecs.append(model.items(ids).detach())
    item_vecs = torch.cat(item_vecs)

    hits, ndcg, n = 0, 0.0, 0
    for users, hist, target in tqdm(loader, desc="eval", leave=False):
        u = model.users(users.to(device), hist.to(device))
        scores = u @ item_vecs.t()
        for b in range(len(users)):
            s = scores[b].clone()
            s[torch.tensor(list(seen[int(users[b])]), dtype=torch.long).to(device)] = -1e9
            top = s.topk(k).indices.cpu().tolist()
            t = int(target[b])
            if t in top:
                hits += 1
                ndcg += 1.0 / np.log2(top.index(t) + 2)
            n += 1
    model.train()
    return hits / n, ndcg / n


def main(path="config.yaml"):
    with open(path) as f:
        cfg = yaml.safe_load(f)
    run_cfg = copy.deepcopy(cfg)
    os.makedirs(cfg["out"], exist_ok=True)
    torch.manual_seed(cfg["seed"])
    np.random.seed(cfg["seed"])
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")

    inter = Interactions(cfg["data"], cfg["history_len"])
    train_rows, test_rows = inter.split()
    train_set = make_train_set(inter, train_rows)
    test_set = TestUsers(inter, test_rows, cfg["eval_users"])
    seen = {}
    for r in train_rows:
        seen.setdefault(int(inter.user[r]), set()).add(int(inter.item[r]))
    for r in test_rows:
        seen.setdefault(int(inter.user[r]), set())
    print(f"{inter.n_users} users, {inter.n_items} items, {len(train_set)} interactions")

    counts = np.bincount(inter.item[train_rows], minlength=inter.n_items) + 1.0
    log_q = torch.from_numpy(np.log(counts / counts.sum()).astype(np.float32)).to(device)

    train_loader = DataLoader(train_set, batch_size=cfg["batch_size"], shuffle=True, drop_last=True, num_workers=4)
    test_loader = DataLoader(test_set, batch_size=256)

    model = TwoTower(inter, cfg).to(device)
    sparse_params = [model.items.emb.weight, model.users.emb.weight]
    sparse_ids = {id(p) for p in sparse_params}
    dense_params = [p for p in model.parameters() if id(p) not in sparse_ids]
    opt_sparse = torch.optim.SparseAdam(sparse_params, lr=cfg["embedding_lr"])
    opt_dense = torch.optim.Adam(dense_params, lr=cfg["lr"])

    history = []
    for epoch in range(cfg["epochs"]):
        losses = []
        bar = tqdm(train_loader, desc=f"epoch {epoch}")
        for i, (users, hist, items) in enumerate(bar):
            users, hist, items = users.to(device), hist.to(device), items.to(device)
            loss = model(users, hist, items, log_q)
            opt_sparse.zero_grad()
            opt_dense.zero_grad()
            loss.backward()
            opt_sparse.step()
            opt_dense.step()
            losses.append(loss.item())
            if torch.isnan(loss):
                print("loss is nan, stopping")
                sys.exit(1)
            if i % cfg["log_every"] == 0:
                bar.set_postfix(loss=np.mean(losses[-cfg["log_every"]:]))
        recall, ndcg = recall_at_k(model, test_loader, inter.n_items, seen, cfg["topk"], device)
        print(f"epoch {epoch}: loss {np.mean(losses):.4f} recall@{cfg['topk']} {recall:.4f} ndcg {ndcg:.4f}")
        history.append({"epoch": epoch, "loss": float(np.mean(losses)), "recall": recall, "ndcg": ndcg})
        with open(os.path.join(cfg["out"], "history.json"), "w") as f:
            json.dump({"config": run_cfg, "history": history}, f, indent=1)
        torch.save(model.state_dict(), os.path.join(cfg["out"], f"epoch{epoch:02d}.pt"))


if __name__ == "__main__":
    main(*sys.argv[1:])
