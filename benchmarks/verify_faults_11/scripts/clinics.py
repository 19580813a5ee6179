"""Federated averaging over clinics of unequal size. Norm layers stay with their clinic; the server has a momentum of its own."""
import argparse
import json

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset

FEATURES, CLASSES = 20, 4


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--clinics", type=int, default=12)
    p.add_argument("--per-round", type=int, default=5)
    p.add_argument("--rounds", type=int, default=30)
    p.add_argument("--local-epochs", type=int, default=3)
    p.add_argument("--batch-size", type=int, default=16)
    p.add_argument("--lr", type=float, default=0.05)
    p.add_argument("--lr-decay", type=float, default=0.97)
    p.add_argument("--mu", type=float, default=0.1)
    p.add_argument("--server-momentum", type=float, default=0.6)
    p.add_argument("--max-norm", type=float, default=1.0)
    p.add_argument("--eval-every", type=int, default=3)
    p.add_argument("--seed", type=int, default=11)
    return p.parse_args()


class Clinic:
    def __init__(self, index, rng, centers, args):
        count = int(rng.integers(30, 260))
        prior = rng.dirichlet(np.full(CLASSES, 0.7))
        y = rng.choice(CLASSES, count + 60, p=prior)
        shift, scale = rng.normal(0, 1.0, FEATURES), rng.uniform(0.5, 2.0, FEATURES)
        x = (centers[y] + rng.normal(0, 1.6, (count + 60, FEATURES))) * scale + shift
        x, y = torch.tensor(x, dtype=torch.float32), torch.tensor(y)
        self.index = index
        self.count = count
        self.train = DataLoader(TensorDataset(x[:count], y[:count]), batch_size=args.batch_size, shuffle=True, drop_last=False)
        self.test = DataLoader(TensorDataset(x[count:], y[count:]), batch_size=20)
        seen = torch.bincount(y[:count], minlength=CLASSES).float()
        self.class_weight = (count / (CLASSES * seen.clamp(min=1))).clamp(max=4.0)
        self.norms = None


def build():
    return nn.Sequential(
        nn.Linear(FEATURES, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Dropout(0.2),
        nn.Linear(64, 48), nn.BatchNorm1d(48), nn.ReLU(),
        nn.Linear(48, CLASSES),
    )


def norm_names(model):
    return [f"{n}.{k}" for n, m in model.named_modules() if isinstance(m, nn.BatchNorm1d) for k in m.state_dict()]


def load(model, shared, clinic, local):
    state = dict(shared)
    if clinic.norms is not None:
        state.update({k: clinic.norms[k] for k in local})
    model.load_state_dict(state)


def train_local(model, shared, clinic, local, lr, args):
    load(model, shared, clinic, local)
    model.train()
    anchor = {n: p.detach().clone() for n, p in model.named_parameters()}
    optimizer = torch.optim.SGD(model.parameters(), lr=lr, momentum=0.9, weight_decay=1e-4)
    total, steps = 0.0, 0
    for _ in range(args.local_epochs):
        for x, y in clinic.train:
            if len(x) < 2:
                continue
            optimizer.zero_grad()
            loss = F.cross_entropy(model(x), y, weight=clinic.class_weight)
            prox = 0.0
            for name, param in model.named_parameters():
                if name not in local:
                    prox = prox + (param - anchor[name]).pow(2).sum()
            loss = loss + 0.5 * args.mu * prox
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)
            optimizer.step()
            total += loss.item()
            steps += 1
    state = model.state_dict()
    clinic.norms = {k: state[k].clone() for k in local}
    delta = {k: state[k] - shared[k] for k in shared if k not in local}
    return delta, total / steps


@torch.no_grad()
def evaluate(model, shared, clinics, local):
    right, losses, counts = [], 0.0, 0
    for clinic in clinics:
        load(model, shared, clinic, local)
        model.eval()
        hits = 0
        for x, y in clinic.test:
            out = model(x)
            hits += (out.argmax(1) == y).sum().item()
            losses += F.cross_entropy(out, y, reduction="sum").item()
            counts += len(y)
        right.append(hits / len(clinic.test.dataset))
    return float(np.mean(right)), float(np.min(right)), losses / counts


def main():
    args = get_args()
    torch.manual_seed(args.seed)
    rng = np.random.default_rng(args.seed)
    centers = rng.normal(0, 1.0, (CLASSES, FEATURES))
    clinics = [Clinic(i, rng, centers, args) for i in range(args.clinics)]
    model = build()
    local = norm_names(model)
    shared = {k: v.clone() for k, v in model.state_dict().items()}
    velocity = {k: torch.zeros_like(v) for k, v in shared.items() if k not in local}
    best, kept = 0.0, None
    log = open("clinics.jsonl", "w")
    for rnd in range(args.rounds):
        chosen = rng.choice(args.clinics, args.per_round, replace=False)
        lr = args.lr * args.lr_decay**rnd
        deltas, weights, losses = [], [], []
        for i in chosen:
            delta, loss = train_local(model, shared, clinics[i], local, lr, args)
            deltas.append(delta)
            weights.append(clinics[i].count)
            losses.append(loss)
        share = np.array(weights) / sum(weights)
        for k in velocity:
            mean = sum(w * d[k] for w, d in zip(share.tolist(), deltas))
            velocity[k] = args.server_momentum * velocity[k] + mean
            shared[k] = shared[k] + velocity[k]
        train_loss = float(np.dot(share, losses))
        if (rnd + 1) % args.eval_every == 0:
            mean, worst, held = evaluate(model, shared, clinics, local)
            print(f"round {rnd + 1:3d} lr {lr:.4f} train {train_loss:.4f} held {held:.4f} accuracy {mean:.4f} worst {worst:.3f}")
            log.write(json.dumps({"round": rnd + 1, "train": train_loss, "held": held, "accuracy": mean, "worst": worst}) + "\n")
            if mean > best:
                best, kept = mean, {k: v.clone() for k, v in shared.items()}
                torch.save({"shared": kept, "norms": [c.norms for c in clinics], "round": rnd + 1}, "clinics.pt")
    log.close()
    print(f"best {best:.4f}")


if __name__ == "__main__":
    main()
