"""Train a small network with Lightning."""

import torch
import torch.nn as nn
import torch.nn.functional as F
from lightning.pytorch import LightningModule, Trainer
from torch.utils.data import DataLoader, TensorDataset


class Net(LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, 16, 3), nn.ReLU(), nn.Flatten(), nn.Linear(16 * 6 * 6, 3)
        )

    def training_step(self, batch, batch_idx):
        images, labels = batch
        return F.cross_entropy(self.layers(images), labels)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


torch.manual_seed(0)
data = TensorDataset(torch.randn(24, 3, 8, 8), torch.randint(0, 3, (24,)))
loader = DataLoader(data, batch_size=8, shuffle=True)
trainer = Trainer(max_epochs=2, accelerator="auto")
trainer.fit(Net(), loader)
