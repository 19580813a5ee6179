"""Small scripts with a loader, and a program that trains with it: what the tests of the loader
rules are written in.
"""

from __future__ import annotations

import textwrap

HEAD = """
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, TensorDataset
"""
FILES = """
class Files(Dataset):
    def __init__(self, n=16):
        self.paths = [f"{i}.pt" for i in range(n)]

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        x = torch.load(self.paths[index])
        return x, x.sum()
"""
TRAIN = """
def main():
{setup}
    model = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(3):
{epoch}        for x, y in {loader}:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            loss = (model(x).squeeze() - y).pow(2).mean()
            loss.backward()
            optimizer.step()
"""
GUARD = """

if __name__ == "__main__":
    main()
"""
DEVICE = 'device = torch.device("cuda" if torch.cuda.is_available() else "cpu")'


def script(
    loader: str,
    *,
    dataset: str = FILES,
    more: str = "",
    epoch: str = "",
    over: str = "loader",
    guard: bool = True,
    device: str = DEVICE,
) -> str:
    """A script whose main() makes ``loader = <loader>`` and trains with it; ``more`` stands before
    that, ``epoch`` in the loop of epochs.
    """
    lines = "\n".join(
        part for part in (device, more, f"loader = {loader}" if loader else "") if part
    )
    body = TRAIN.format(
        setup=textwrap.indent(lines, "    "),
        epoch=textwrap.indent(epoch, "        ") + "\n" * bool(epoch),
        loader=over,
    )
    return HEAD + textwrap.dedent(dataset) + body + (GUARD if guard else "\nmain()\n")
