"""a tiny lightning: Module with training_step / configure_optimizers, Loop with fit"""
import time

import torch
import torch.nn as nn


class Module(nn.Module):
    trainer = None

    def training_step(self, batch, i):
        raise NotImplementedError

    def on_train_batch_end(self, out, i):
        pass

    def validation_epoch(self, loader):
        return {}

    @property
    def device(self):
        return next(self.parameters()).device

    def log(self, name, value):
        if torch.is_tensor(value):
            value = value.detach().cpu().item()
        self.trainer.metrics.setdefault(name, []).append(value)


class Loop:
    def __init__(self, max_epochs=1, accelerator='auto', log_every=8, accumulate=1, watch=None):
        use = torch.cuda.is_available() if accelerator == 'auto' else accelerator == 'gpu'
        self.device = torch.device('cuda' if use else 'cpu')
        self.max_epochs, self.log_every, self.accumulate, self.watch = max_epochs, log_every, accumulate, watch
        self.metrics, self.global_step = {}, 0

    def move(self, batch):
        if torch.is_tensor(batch):
            return batch.to(self.device)
        return type(batch)(self.move(b) for b in batch)

    def fit(self, module, train_loader, val_loader):
        module.trainer = self
        module.to(self.device)
        opt, sched = module.configure_optimizers()
        best = -1.0
        for epoch in range(self.max_epochs):
            t0 = time.time()
            self.metrics = {}
            module.train()
            n = len(train_loader)
            for i, batch in enumerate(train_loader):
                out = module.training_step(self.move(batch), i)
                (out['loss'] / self.accumulate).backward()
                if (i + 1) % self.accumulate == 0 or i + 1 == n:
                    opt.step()
                    opt.zero_grad(set_to_none=False)
                    sched.step()
                    self.global_step += 1
                    module.on_train_batch_end(out, i)
                if i % self.log_every == 0:
                    print('  %d.%02d %s' % (epoch, i, ' '.join('%s %.6f' % (k, v[-1]) for k, v in sorted(self.metrics.items()))))
            means = {k: sum(v) / len(v) for k, v in self.metrics.items()}
            module.eval()
            means.update(module.validation_epoch(val_loader))
            print('epoch %d %s [%.1f s]' % (epoch, ' '.join('%s=%.6f' % kv for kv in sorted(means.items())), time.time() - t0))
            if self.watch and means[self.watch] > best:
                best = means[self.watch]
                torch.save({'state_dict': module.state_dict(), 'epoch': epoch, 'best': best}, 'byol.ckpt')
        return best
