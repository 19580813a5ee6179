"""3-D organ segmentation, nnU-Net flavoured.  python train_seg.py --max_epochs 250"""
import argparse
import random

import numpy as np
import torch
import torch.nn.functional as F

from net3d import UNet3D
from pl_compat import LightningModule, ModelCheckpoint, Trainer
from volumes import OrganDataModule


class OrganSeg(LightningModule):
    def __init__(self, hp):
        super().__init__()
        self.save_hyperparameters(hp)
        self.net = UNet3D(hp.classes, hp.width, hp.levels)
        self.epoch_losses = []

    def forward(self, x):
        return self.net(x)

    def dice_ce(self, logits, target):
        prob = logits.softmax(1)
        dims = (2, 3, 4)
        inter = (prob * target).sum(dims)
        dice = (2 * inter + 1e-5) / (prob.sum(dims) + target.sum(dims) + 1e-5)
        ce = -(target * logits.log_softmax(1)).sum(1).mean()
        return ce + 1 - dice[:, 1:].mean(), dice.detach().mean(0)

    def training_step(self, batch, batch_idx):
        x, target = batch["image"], batch["target"].float()
        outs = self(x)
        loss, weight_sum = 0.0, 0.0
        for k, o in enumerate(outs):
            t = target if k == 0 else F.max_pool3d(target, 2 ** k)
            l, d = self.dice_ce(o, t)
            loss = loss + l / 2 ** k
            weight_sum += 1 / 2 ** k
            if k == 0:
                dice = d
        loss = loss / weight_sum
        self.log("train/loss", loss, prog_bar=True)
        for c in range(1, self.hparams.classes):
            self.log("train/dice_%d" % c, dice[c].item())
        self.epoch_losses.append(loss)
        return loss

    def on_train_epoch_end(self):
        mean = torch.stack(self.epoch_losses).mean().item()
        print("  mean training loss %.4f" % mean)
        self.epoch_losses.clear()

    def on_before_optimizer_step(self, optimizer):
        norms = {}
        for n, p in self.named_parameters():
            if p.grad is not None:
                norms[n] = p.grad.norm().item()
        self.log("grad/max", max(norms.values()))

    def gaussian(self, p):
        g = np.exp(-0.5 * ((np.arange(p) - (p - 1) / 2) / (p / 8)) ** 2)
        return np.maximum(g[:, None, None] * g[None, :, None] * g[None, None, :], 1e-4)

    def sliding_window(self, x):
        p, hp = self.hparams.patch, self.hparams
        size = x.shape[2:]
        out, norm = torch.zeros(1, hp.classes, *size), torch.zeros(1, 1, *size)
        starts = [sorted(set(list(range(0, s - p + 1, p // 2)) + [s - p])) for s in size]
        for a in starts[0]:
            for b in starts[1]:
                for c in starts[2]:
                    w = torch.from_numpy(self.gaussian(p)).float()
                    pred = self.net(x[:, :, a:a + p, b:b + p, c:c + p])
                    out[:, :, a:a + p, b:b + p, c:c + p] += pred.cpu() * w
                    norm[:, :, a:a + p, b:b + p, c:c + p] += w
        return out / norm

    def validation_step(self, batch, batch_idx):
        pred = self.sliding_window(batch["image"]).argmax(1)
        label = batch["label"].cpu()
        scores = []
        for c in range(1, self.hparams.classes):
            inter = ((pred == c) & (label == c)).sum()
            scores.append(2.0 * inter / ((pred == c).sum() + (label == c).sum()).clamp(min=1))
        self.log("val/dice", torch.stack(scores).mean(), batch_size=1)

    def configure_optimizers(self):
        opt = torch.optim.SGD(self.net.parameters(), lr=self.hparams.lr, momentum=0.99, nesterov=True, weight_decay=3e-5)
        E = self.hparams.max_epochs
        sched = torch.optim.lr_scheduler.LambdaLR(opt, lambda e: (1 - e / E) ** 0.9)
        return {"optimizer": opt, "lr_scheduler": {"scheduler": sched, "interval": "epoch"}}


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--cases", type=int, default=60)
    p.add_argument("--volume", type=int, default=192)
    p.add_argument("--patch", type=int, default=96)
    p.add_argument("--classes", type=int, default=5)
    p.add_argument("--width", type=int, default=32)
    p.add_argument("--levels", type=int, default=5)
    p.add_argument("--batch_size", type=int, default=2)
    p.add_argument("--num_workers", type=int, default=0)
    p.add_argument("--max_epochs", type=int, default=250)
    p.add_argument("--val_every", type=int, default=5)
    p.add_argument("--lr", type=float, default=0.01)
    p.add_argument("--ckpt", default="/tmp/organseg_ckpt")
    p.add_argument("--seed", type=int, default=1234)
    hp = p.parse_args()
    random.seed(hp.seed); np.random.seed(hp.seed); torch.manual_seed(hp.seed)
    dm = OrganDataModule(hp)
    module = OrganSeg(hp)
    trainer = Trainer(max_epochs=hp.max_epochs, accelerator="auto", devices=1, gradient_clip_val=12.0,
                      check_val_every_n_epoch=hp.val_every, log_every_n_steps=10,
                      callbacks=[ModelCheckpoint(dirpath=hp.ckpt, monitor="val/dice", mode="max")])
    trainer.fit(module, datamodule=dm)


if __name__ == "__main__":
    main()
