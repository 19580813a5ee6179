import argparse
import copy
import random
import time
from dataclasses import asdict, dataclass, fields

import numpy as np
import torch
from torch.utils.data import DataLoader

from model import Potential
from molecules import ELEMENTS, MoleculeDataset, collate


@dataclass
class Config:
    n_train: int = 40000
    n_val: int = 2000
    n_test: int = 4000
    min_atoms: int = 9
    max_atoms: int = 24
    cutoff: float = 5.0
    dim: int = 128
    n_blocks: int = 5
    n_rbf: int = 50
    batch_size: int = 64
    epochs: int = 150
    lr: float = 5e-4
    weight_decay: float = 1e-6
    rho: float = 20.0          # weight of the forces
    clip: float = 10.0
    ema: float = 0.999
    patience: int = 5
    plot_every: int = 25
    seed: int = 0


class Ema:
    def __init__(self, model, decay):
        self.model = copy.deepcopy(model)
        self.decay = decay
        for p in self.model.parameters():
            p.requires_grad_(False)

    def update(self, model):
        with torch.no_grad():
            for e, p in zip(self.model.parameters(), model.parameters()):
                e.mul_(self.decay).add_(p, alpha=1 - self.decay)


def set_scale(model, dataset):
    """energy per atom, mean and deviation"""
    per_atom = np.array([e / len(z) for z, _, e, _ in dataset.items])
    model.e_mean.fill_(per_atom.mean())
    model.e_std.fill_(per_atom.std())


def evaluate(model, loader, device):
    model.eval()
    e_err, f_err, n_e, n_f = 0.0, 0.0, 0, 0
    for b in loader:
        b = b.to(device)
        energy, forces = model(b)
        e_err += (energy - b.energy).abs().sum().item()
        f_err += (forces - b.forces).abs().sum().item()
        n_e += len(b.energy)
        n_f += b.forces.numel()
    return e_err / n_e, f_err / n_f


def parse() -> Config:
    parser = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    for f in fields(Config):
        parser.add_argument(f"--{f.name}", type=f.type, default=f.default)
    return Config(**vars(parser.parse_args()))


def main(cfg: Config):
    random.seed(cfg.seed)
    np.random.seed(cfg.seed)
    torch.manual_seed(cfg.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    print(asdict(cfg))

    def split(n, seed):
        return MoleculeDataset(n, cfg.min_atoms, cfg.max_atoms, cfg.cutoff, seed)

    train_set, val_set, test_set = split(cfg.n_train, 1), split(cfg.n_val, 2), split(cfg.n_test, 3)
    train_loader = DataLoader(train_set, batch_size=cfg.batch_size, shuffle=True, drop_last=True, collate_fn=collate)
    val_loader = DataLoader(val_set, batch_size=cfg.batch_size, collate_fn=collate)
    test_loader = DataLoader(test_set, batch_size=cfg.batch_size, collate_fn=collate)

    model = Potential(len(ELEMENTS), cfg.dim, cfg.n_blocks, cfg.n_rbf, cfg.cutoff).to(device)
    set_scale(model, train_set)
    ema = Ema(model, cfg.ema)
    optimizer = torch.optim.AdamW(model.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.6, patience=cfg.patience)
    print(f"{sum(p.numel() for p in model.parameters()):,} parameters")

    best = float("inf")
    history = []
    for epoch in range(1, cfg.epochs + 1):
        model.train()
        t0 = time.perf_counter()
        sums = torch.zeros(3)
        for b in train_loader:
            b = b.to(device)
            # a little noise on the geometry, the labels stay (denoising regulariser)
            b.pos += torch.randn(b.pos.shape).to(device) * 0.002
            energy, forces = model(b, create_graph=True)
            n_atoms = torch.bincount(b.batch).float()
            e_loss = (((energy - b.energy) / n_atoms) ** 2).mean()
            f_loss = ((forces - b.forces) ** 2).mean()
            loss = e_loss + cfg.rho * f_loss

            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), cfg.clip)
            optimizer.step()
            ema.update(model)
            sums += torch.tensor([loss.item(), e_loss.item(), f_loss.item()])

        train_loss, train_e, train_f = (sums / len(train_loader)).tolist()
        e_mae, f_mae = evaluate(ema.model, val_loader, device)
        plateau.step(f_mae)
        history.append((train_loss, e_mae, f_mae))
        lr = optimizer.param_groups[0]["lr"]
        print(f"{epoch:4d} | loss {train_loss:9.4f} (E {train_e:.4f} F {train_f:.4f}) | "
              f"val E {e_mae:.4f} F {f_mae:.4f} | lr {lr:.1e} | {time.perf_counter() - t0:.1f}s")
        if f_mae < best:
            best = f_mae
            torch.save({"model": ema.model.state_dict(), "cfg": asdict(cfg)}, "best.pt")
        if epoch % cfg.plot_every == 0:
            np.savetxt("history.csv", np.array(history), delimiter=",", header="loss,e_mae,f_mae")

    ema.model.load_state_dict(torch.load("best.pt")["model"])
    e_mae, f_mae = evaluate(ema.model, test_loader, device)
    print(f"test | E {e_mae:.4f} F {f_mae:.4f}")


if __name__ == "__main__":
    main(parse())
