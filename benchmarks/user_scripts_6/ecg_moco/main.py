"""Self-supervised pre-training on ECG beats with MoCo, kNN probe at the end of every epoch."""
import argparse
import os
import random
import tempfile

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from moco import EcgBeats, MoCo, TwoCrops
from moco.data import cosine_lr


def parse():
    ap = argparse.ArgumentParser()
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--bs", type=int, default=32)
    ap.add_argument("--n", type=int, default=512)
    ap.add_argument("--lr", type=float, default=0.06)
    ap.add_argument("--moco-k", type=int, default=512)
    ap.add_argument("--moco-m", type=float, default=0.99)
    ap.add_argument("--knn", type=int, default=11)
    ap.add_argument("--fp16", action="store_true")
    ap.add_argument("--save", default=None)
    ap.add_argument("--seed", type=int, default=31)
    return ap.parse_args()


def top1(logits, labels):
    return (logits.argmax(1) == labels).float().mean() * 100


@torch.no_grad()
def embed(model, ds, device):
    model.eval()
    feats, ys = [], []
    for x, y in DataLoader(ds, batch_size=64):
        f = model.encoder_q.features(x[..., 20:180].to(device))
        feats.append(F.normalize(f, dim=1).cpu())
        ys.append(y)
    model.train()
    return torch.cat(feats), torch.cat(ys)


def knn_probe(model, bank_ds, query_ds, k, device):
    bank, bank_y = embed(model, bank_ds, device)
    query, query_y = embed(model, query_ds, device)
    bank, bank_y, query = bank.to(device), bank_y.to(device), query.to(device)
    correct = 0
    for i in range(len(query)):
        sim = (bank * query[i]).sum(1)
        w, idx = sim.topk(k)
        votes = torch.zeros(4).to(device)
        for j in range(k):
            votes[bank_y[idx[j]]] += torch.exp(w[j] / 0.1)
        correct += int(votes.argmax().item() == query_y[i].item())
    return correct / len(query)


def alignment(q1, q2):
    return (q1 - q2).norm(dim=1).pow(2).mean()


def main():
    args = parse()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cudnn.deterministic = True    # results in the paper must be repeatable
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    use_amp = args.fp16 and device.type == "cuda"

    train_ds, test_ds = EcgBeats(args.n, seed=1), EcgBeats(128, seed=2)
    loader = DataLoader(train_ds, batch_size=args.bs, shuffle=True, drop_last=True)
    model = MoCo(K=args.moco_k, m=args.moco_m).to(device)
    crops = TwoCrops()
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9, weight_decay=1e-4)
    scaler = torch.amp.GradScaler("cuda", enabled=use_amp)
    total = args.epochs * len(loader)
    ckpt_dir = args.save or tempfile.mkdtemp()

    step = 0
    for epoch in range(args.epochs):
        model.train()
        loss_sum, acc_sum, history = 0., 0., []
        for x, _ in loader:
            for g in optimizer.param_groups:
                g["lr"] = cosine_lr(args.lr, step, total)
            x = x.to(device)
            v1, v2 = crops(x)
            with torch.autocast(device.type, dtype=torch.float16, enabled=use_amp):
                logits, labels = model(v1, v2)
                loss = F.cross_entropy(logits, labels)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            step += 1

            loss_sum += loss.item()
            acc_sum += top1(logits, labels).item()
            history.append({"step": step, "logits": logits.cpu(), "loss": loss})
            if step % 8 == 0:
                print(f"[{epoch}] step {step:3d} loss {loss.item():.7f} acc {acc_sum / len(history):.3f} "
                      f"lr {optimizer.param_groups[0]['lr']:.5f}")
        margin = torch.stack([h["logits"][:, 0].mean() - h["logits"][:, 1:].mean() for h in history]).mean()
        acc = knn_probe(model, train_ds, test_ds, args.knn, device)
        print(f"== epoch {epoch} loss {loss_sum / len(loader):.7f} margin {margin.item():.5f} knn {acc:.5f}")
        torch.save({"epoch": epoch, "model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "scaler": scaler.state_dict(), "rng": torch.get_rng_state()},
                   os.path.join(ckpt_dir, "last.pth"))


if __name__ == "__main__":
    main()
