# Message passing for QM properties, everything in one file so that the students can read it top to bottom.
# data: one .npz with ragged arrays, made by prepare_qm9.py (see group wiki):
#   z        (sum_atoms,)   atomic numbers
#   pos      (sum_atoms,3)  coordinates in Angstrom
#   n_atoms  (n_mols,)
#   y        (n_mols, n_targets)
import json
import os
import time

import click
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, Dataset, Subset

dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")


class Molecules(Dataset):
    def __init__(self, path, cutoff=5.0):
        raw = np.load(path)
        self.z = raw["z"].astype(np.int64)
        self.pos = raw["pos"].astype(np.float32)
        self.n_atoms = raw["n_atoms"].astype(np.int64)
        self.y = raw["y"].astype(np.float32)
        self.start = np.concatenate([[0], np.cumsum(self.n_atoms)])
        self.cutoff = cutoff

    def __len__(self):
        return len(self.n_atoms)

    def __getitem__(self, i):
        a, b = self.start[i], self.start[i + 1]
        pos = self.pos[a:b]
        # all pairs inside the cutoff (both directions)
        src, dst, dist = [], [], []
        for p in range(b - a):
            for q in range(b - a):
                if p == q:
                    continue
                d = np.linalg.norm(pos[p] - pos[q])
                if d < self.cutoff:
                    src.append(p)
                    dst.append(q)
                    dist.append(d)
        return {
            "z": torch.from_numpy(self.z[a:b]),
            "src": torch.tensor(src, dtype=torch.long),
            "dst": torch.tensor(dst, dtype=torch.long),
            "dist": torch.tensor(np.array(dist), dtype=torch.float32),
            "y": torch.from_numpy(self.y[i]),
        }


def collate(mols):
    z, src, dst, dist, mol, y = [], [], [], [], [], []
    offset = 0
    for k, m in enumerate(mols):
        n = len(m["z"])
        z.append(m["z"])
        src.append(m["src"] + offset)
        dst.append(m["dst"] + offset)
        dist.append(m["dist"])
        mol.append(torch.full((n,), k, dtype=torch.long))
        y.append(m["y"])
        offset += n
    return (torch.cat(z), torch.cat(src), torch.cat(dst), torch.cat(dist), torch.cat(mol), torch.stack(y))


class RBF(nn.Module):
    def __init__(self, n=64, cutoff=5.0):
        super().__init__()
        self.n = n
        self.cutoff = cutoff

    def forward(self, d):
        centres = torch.linspace(0, self.cutoff, self.n).to(d.device)
        gamma = (self.n / self.cutoff) ** 2
        # exponentials of squared differences: float32 please
        rbf = torch.exp(-gamma * (d[:, None] - centres[None, :]) ** 2)
        envelope = 0.5 * (torch.cos(np.pi * d / self.cutoff) + 1.0)
        return rbf * envelope[:, None]


class Interaction(nn.Module):
    def __init__(self, dim, n_rbf):
        super().__init__()
        self.filter = nn.Sequential(nn.Linear(n_rbf, dim), nn.SiLU(), nn.Linear(dim, dim))
        self.lin_in = nn.Linear(dim, dim, bias=False)
        self.update = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, dim))

    def forward(self, h, rbf, src, dst):
        msg = self.lin_in(h)[src] * self.filter(rbf)
        agg = torch.zeros(h.shape).to(h.device)
        agg.index_add_(0, dst, msg)
        return h + self.update(agg)


class Net(nn.Module):
    def __init__(self, dim=128, n_layers=6, n_rbf=64, n_targets=12, cutoff=5.0):
        super().__init__()
        self.embed = nn.Embedding(100, dim)
        self.rbf = RBF(n_rbf, cutoff)
        self.layers = nn.ModuleList([Interaction(dim, n_rbf) for _ in range(n_layers)])
        self.readout = nn.Sequential(nn.Linear(dim, dim), nn.SiLU(), nn.Linear(dim, n_targets))

    def forward(self, z, src, dst, dist, mol, n_mols):
        h = self.embed(z)
        rbf = self.rbf(dist)
        for layer in self.layers:
            h = layer(h, rbf, src, dst)
        atom_out = self.readout(h)
        out = []
        for k in range(n_mols):
            out.append(atom_out[mol == k].sum(0))
        return torch.stack(out)


def split(n, n_train, n_val, seed):
    g = torch.Generator().manual_seed(seed)
    perm = torch.randperm(n, generator=g).tolist()
    return perm[:n_train], perm[n_train:n_train + n_val], perm[n_train + n_val:]


def run_epoch(net, loader, mean, std, opt=None):
    training = opt is not None
    net.train(training)
    loss_sum, count = 0.0, 0
    abs_err = []
    for batch in loader:
        z, src, dst, dist, mol, y = [t.to(dev) for t in batch]
        n = y.shape[0]
        pred = net(z, src, dst, dist, mol, n)
        loss = F.smooth_l1_loss(pred, (y - mean) / std)
        if training:
            opt.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(net.parameters(), 10.0)
            opt.step()
        loss_sum += loss.item() * n
        count += n
        abs_err.append((pred * std + mean - y).abs().detach().cpu().numpy())
    mae = np.concatenate(abs_err).mean(0)
    return loss_sum / count, mae


def train_one(data, cfg, seed):
    """one seed of the table in the paper, must stay reproducible on the same machine"""
    torch.manual_seed(seed)
    np.random.seed(seed)
    tr, va, te = split(len(data), cfg["n_train"], cfg["n_val"], seed)
    # target statistics of the train part only
    y = torch.from_numpy(data.y[tr])
    mean, std = y.mean(0).to(dev), y.std(0).to(dev)
    train_loader = DataLoader(Subset(data, tr), batch_size=cfg["batch_size"], shuffle=True, collate_fn=collate)
    val_loader = DataLoader(Subset(data, va), batch_size=cfg["batch_size"], collate_fn=collate)
    test_loader = DataLoader(Subset(data, te), batch_size=cfg["batch_size"], collate_fn=collate)

    net = Net(cfg["dim"], cfg["layers"], cfg["n_rbf"], data.y.shape[1], cfg["cutoff"]).to(dev)
    opt = torch.optim.Adam(net.parameters(), lr=cfg["lr"])
    sched = torch.optim.lr_scheduler.ExponentialLR(opt, gamma=0.98)
    best, best_state, bad = float("inf"), None, 0
    for epoch in range(cfg["epochs"]):
        t0 = time.time()
        tl, _ = run_epoch(net, train_loader, mean, std, opt)
        vl, vmae = run_epoch(net, val_loader, mean, std)
        sched.step()
        print("seed %d epoch %3d  train %.5f  val %.5f  mae[0] %.5f  (%.0fs)" % (seed, epoch, tl, vl, vmae[0], time.time() - t0))
        if vl < best:
            best, bad = vl, 0
            best_state = {k: v.clone() for k, v in net.state_dict().items()}
        else:
            bad += 1
            if bad >= cfg["patience"]:
                break
    net.load_state_dict(best_state)
    _, test_mae = run_epoch(net, test_loader, mean, std)
    torch.save(best_state, os.path.join(cfg["out"], "seed%d.pt" % seed))
    return test_mae


def check_invariance(net, data):
    """rotating a molecule must not change the prediction (distances only); run once before training"""
    net.eval()
    m = collate([data[0], data[1]])
    with torch.no_grad():
        a = net(*[t.to(dev) for t in m[:-1]], 2)
        q, _ = np.linalg.qr(np.random.default_rng(0).normal(size=(3, 3)))
        keep = data.pos
        data.pos = (keep @ q).astype(np.float32)
        b = net(*[t.to(dev) for t in collate([data[0], data[1]])[:-1]], 2)
        data.pos = keep
    assert torch.allclose(a, b, atol=1e-4), (a - b).abs().max().item()


@click.command()
@click.option("--data", "path", default="qm9.npz", show_default=True)
@click.option("--out", default="out", show_default=True)
@click.option("--seeds", default="0,1,2", help="comma separated")
@click.option("--epochs", default=300)
@click.option("--batch-size", default=128)
@click.option("--n-train", default=110000)
@click.option("--n-val", default=10000)
@click.option("--dim", default=128)
@click.option("--layers", default=6)
@click.option("--n-rbf", default=64)
@click.option("--cutoff", default=5.0)
@click.option("--lr", default=5e-4)
@click.option("--patience", default=30)
def main(path, out, seeds, **cfg):
    cfg["out"] = out
    os.makedirs(out, exist_ok=True)
    data = Molecules(path, cfg["cutoff"])
    check_invariance(Net(cfg["dim"], cfg["layers"], cfg["n_rbf"], data.y.shape[1], cfg["cutoff"]).to(dev), data)
    table = []
    for s in seeds.split(","):
        table.append(train_one(data, cfg, int(s)))
    table = np.stack(table)
    for t in range(table.shape[1]):
        print("target %2d   %.5f +- %.5f" % (t, table[:, t].mean(), table[:, t].std()))
    with open(os.path.join(out, "table.json"), "w") as f:
        json.dump({"mae_mean": table.mean(0).tolist(), "mae_std": table.std(0).tolist()}, f, indent=1)


if __name__ == "__main__":
    main()
