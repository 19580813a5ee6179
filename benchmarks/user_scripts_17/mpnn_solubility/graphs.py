import numpy as np
import torch
from torch.utils.data import Dataset

from molecules import ELEMENTS


class MolDataset(Dataset):
    def __init__(self, path):
        with open(path) as f:
            self.lines = [line.strip() for line in f]

    def __len__(self):
        return len(self.lines)

    def targets(self):
        return np.array([float(line.rsplit("|", 1)[1]) for line in self.lines], dtype=np.float32)

    def __getitem__(self, idx):
        symbols, bonds, y = self.lines[idx].split("|")
        n = len(symbols)
        src, dst, order = [], [], []
        for token in bonds.split(","):
            pair, o = token.split(":")
            i, j = pair.split("-")
            src += [int(i), int(j)]
            dst += [int(j), int(i)]
            order += [int(o), int(o)]
        # node features: element one-hot, degree one-hot (0..5), in-ring guess
        x = np.zeros((n, len(ELEMENTS) + 7), dtype=np.float32)
        for k, s in enumerate(symbols):
            x[k, ELEMENTS.index(s)] = 1.0
            deg = dst.count(k)
            x[k, len(ELEMENTS) + min(deg, 5)] = 1.0
            x[k, -1] = float(deg > 2)
        e = np.zeros((len(src), 4), dtype=np.float32)
        for k in range(len(src)):
            e[k, order[k] - 1] = 1.0
            e[k, 3] = abs(src[k] - dst[k]) / 10.0
        return {
            "x": torch.tensor(x),
            "edge_index": torch.tensor([src, dst], dtype=torch.long),
            "edge_attr": torch.tensor(e),
            "y": torch.tensor(float(y)),
        }


def collate(graphs):
    """Disjoint union of the graphs."""
    xs, eis, eas, ys, batch = [], [], [], [], []
    offset = 0
    for g, data in enumerate(graphs):
        n = data["x"].shape[0]
        xs.append(data["x"])
        eis.append(data["edge_index"] + offset)
        eas.append(data["edge_attr"])
        ys.append(data["y"])
        batch.append(torch.full((n,), g, dtype=torch.long))
        offset += n
    return {
        "x": torch.cat(xs),
        "edge_index": torch.cat(eis, dim=1),
        "edge_attr": torch.cat(eas),
        "y": torch.stack(ys),
        "batch": torch.cat(batch),
    }
