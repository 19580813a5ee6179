"""Stand-in for Lightning: see tests/standins/README.md."""

from lightning.pytorch import LightningDataModule, LightningModule, Trainer, seed_everything

__all__ = ["LightningDataModule", "LightningModule", "Trainer", "seed_everything"]
