import argparse
import csv
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from graphs import ATOMS, BONDS, GraphDataset, collate_graphs, make_graphs
from mpnn import MPNN

parser = argparse.ArgumentParser()
parser.add_argument('--n_train', type=int, default=40000)
parser.add_argument('--n_val', type=int, default=4000)
parser.add_argument('--dim', type=int, default=128)
parser.add_argument('--layers', type=int, default=5)
parser.add_argument('--batch_size', type=int, default=128)
parser.add_argument('--epochs', type=int, default=100)
parser.add_argument('--lr', type=float, default=5e-4)
parser.add_argument('--seed', type=int, default=0)
parser.add_argument('--log', default='log.csv')
parser.add_argument('--ckpt', default='mpnn.pt')
parser.add_argument('--num_workers', type=int, default=0)
args = parser.parse_args()

random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)
device = 'cuda' if torch.cuda.is_available() else 'cpu'

train_set = GraphDataset(make_graphs(args.n_train, seed=1))
val_set = GraphDataset(make_graphs(args.n_val, seed=2), train_set.mean, train_set.std)
test_set = GraphDataset(make_graphs(args.n_val, seed=3), train_set.mean, train_set.std)
train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True,
                          collate_fn=collate_graphs, num_workers=args.num_workers)
val_loader = DataLoader(val_set, batch_size=args.batch_size, collate_fn=collate_graphs)
test_loader = DataLoader(test_set, batch_size=args.batch_size, collate_fn=collate_graphs)

model = MPNN(len(ATOMS), len(BONDS), args.dim, args.layers).to(device)
print('parameters: %d' % sum(p.numel() for p in model.parameters()))
optimizer = torch.optim.Adam(model.parameters(), lr=args.lr)
scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer, factor=0.5, patience=5)


def to_device(data):
    return [d.to(device) for d in data]


def train_epoch():
    model.train()
    total_loss = 0
    grad_norms = []
    for data in train_loader:
        x, edge_index, edge_attr, batch, y = to_device(data)
        optimizer.zero_grad()
        pred = model(x, edge_index, edge_attr, batch)
        loss = F.smooth_l1_loss(pred, y)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        grad_norms.append(norm.item())
        if torch.isnan(loss):
            raise RuntimeError('loss is nan, lower the learning rate')
        optimizer.step()
        total_loss += loss.item() * y.size(0)
    return total_loss / len(train_set), sum(grad_norms) / len(grad_norms)


@torch.no_grad()
def evaluate(loader):
    model.eval()
    abs_err = 0
    sq_err = 0
    for data in loader:
        x, edge_index, edge_attr, batch, y = to_device(data)
        pred = model(x, edge_index, edge_attr, batch)
        err = (pred - y) * train_set.std
        abs_err += err.abs().sum().item()
        sq_err += (err ** 2).sum().item()
    return abs_err / len(loader.dataset), (sq_err / len(loader.dataset)) ** 0.5


def embed_all(loader):
    """graph embeddings for the t-SNE plot"""
    model.eval()
    embs, ys = [], []
    for data in loader:
        x, edge_index, edge_attr, batch, y = to_device(data)
        h = torch.relu(model.embed(x))
        for layer in model.layers:
            h = h + layer(h, edge_index, edge_attr)
        embs.append(model.readout(h, batch).detach().cpu())
        ys.append(y.cpu())
    return torch.cat(embs).numpy(), torch.cat(ys).numpy()


def main():
    best_val = float('inf')
    with open(args.log, 'w', newline='') as f:
        writer = csv.writer(f)
        writer.writerow(['epoch', 'lr', 'train_loss', 'grad_norm', 'val_mae', 'val_rmse'])
        for epoch in range(1, args.epochs + 1):
            loss, grad_norm = train_epoch()
            mae, rmse = evaluate(val_loader)
            scheduler.step(mae)
            lr = optimizer.param_groups[0]['lr']
            print(f'epoch {epoch:03d} | lr {lr:.1e} | loss {loss:.5f} | grad {grad_norm:.3f} '
                  f'| val mae {mae:.5f} rmse {rmse:.5f}')
            writer.writerow([epoch, lr, loss, grad_norm, mae, rmse])
            f.flush()
            if mae < best_val:
                best_val = mae
                torch.save(model.state_dict(), args.ckpt)

    model.load_state_dict(torch.load(args.ckpt, map_location=device))
    mae, rmse = evaluate(test_loader)
    print(f'best val mae {best_val:.5f} | test mae {mae:.5f} rmse {rmse:.5f}')
    emb, ys = embed_all(test_loader)
    np.savez('embeddings.npz', emb=emb, y=ys)


if __name__ == '__main__':
    main()
