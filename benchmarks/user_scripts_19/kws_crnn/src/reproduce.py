"""Nightly check: two runs of 30 steps with one seed have to give the same losses, bit for bit."""
import os

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from .data import SpeechCommands, list_split
from .model import CRNN
from .train import get_args, set_seed

torch.use_deterministic_algorithms(True, warn_only=True)
torch.backends.cudnn.benchmark = False
torch.backends.cudnn.deterministic = True


def short_run(args, steps=30):
    set_seed(args.seed)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    words, split = list_split(args.root)
    loader = DataLoader(SpeechCommands(args.root, split["train"], train=True), batch_size=32, shuffle=True)
    model = CRNN(len(words)).to(device)
    opt = torch.optim.AdamW(model.parameters(), lr=args.lr)
    losses = []
    for i, (x, y) in enumerate(loader):
        if i == steps:
            break
        loss = F.cross_entropy(model(x.to(device)), y.to(device))
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses


if __name__ == "__main__":
    args = get_args()
    a, b = short_run(args), short_run(args)
    for i, (u, v) in enumerate(zip(a, b)):
        print(i, u.hex(), v.hex())
        assert u == v, f"step {i}: {u!r} != {v!r}"
    print("ok")
