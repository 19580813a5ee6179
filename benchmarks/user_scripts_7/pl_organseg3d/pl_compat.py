"""pytorch_lightning if installed, else the small part of it that this repo needs (for the CI box)."""
try:
    import lightning.pytorch as pl
    from lightning.pytorch.callbacks import ModelCheckpoint
    LightningModule, LightningDataModule, Trainer = pl.LightningModule, pl.LightningDataModule, pl.Trainer
    HAVE_PL = True
except ImportError:
    HAVE_PL = False
    import os
    import torch

    class LightningModule(torch.nn.Module):
        def save_hyperparameters(self, ns):
            self.hparams = ns

        def log(self, name, value, prog_bar=False, on_step=None, on_epoch=None, batch_size=1):
            v = value.detach().clone() if torch.is_tensor(value) else torch.tensor(float(value))
            self.trainer.sums.setdefault(name, []).append(v)

        @property
        def device(self):
            return next(self.parameters()).device

        def on_train_epoch_end(self): pass
        def on_before_optimizer_step(self, optimizer): pass

    class LightningDataModule:
        pass

    class ModelCheckpoint:
        def __init__(self, dirpath, monitor, mode="max"):
            self.dirpath, self.monitor, self.best = dirpath, monitor, None

        def update(self, trainer, module):
            v = trainer.callback_metrics[self.monitor]
            if self.best is None or v > self.best:
                self.best = v
                os.makedirs(self.dirpath, exist_ok=True)
                torch.save({"state_dict": module.state_dict()}, os.path.join(self.dirpath, "best.ckpt"))

    class Trainer:
        def __init__(self, max_epochs, accelerator="auto", devices=1, precision="32-true", gradient_clip_val=None, benchmark=None,
                     callbacks=(), check_val_every_n_epoch=1, log_every_n_steps=50, limit_train_batches=None):
            self.max_epochs, self.clip, self.callbacks, self.every = max_epochs, gradient_clip_val, callbacks, check_val_every_n_epoch
            self.dev = torch.device("cuda" if torch.cuda.is_available() else "cpu")
            self.sums, self.callback_metrics, self.current_epoch = {}, {}, 0

        def move(self, batch):
            return {k: v.to(self.dev) if torch.is_tensor(v) else v for k, v in batch.items()}

        def fit(self, module, datamodule):
            module.trainer = self
            module.to(self.dev)
            conf = module.configure_optimizers()
            opt, sched = conf["optimizer"], conf["lr_scheduler"]["scheduler"]
            train, val = datamodule.train_dataloader(), datamodule.val_dataloader()
            for self.current_epoch in range(self.max_epochs):
                module.train()
                for i, b in enumerate(train):
                    opt.zero_grad()
                    module.training_step(self.move(b), i).backward()
                    module.on_before_optimizer_step(opt)
                    if self.clip:
                        torch.nn.utils.clip_grad_norm_(module.parameters(), self.clip)
                    opt.step()
                module.on_train_epoch_end()
                sched.step()
                if (self.current_epoch + 1) % self.every == 0:
                    module.eval()
                    with torch.no_grad():
                        for i, b in enumerate(val):
                            module.validation_step(self.move(b), i)
                self.callback_metrics = {k: torch.stack([x.cpu() for x in v]).mean().item() for k, v in self.sums.items()}
                self.sums = {}
                print("epoch", self.current_epoch, {k: round(v, 4) for k, v in self.callback_metrics.items()})
                for c in self.callbacks:
                    if c.monitor in self.callback_metrics:
                        c.update(self, module)
