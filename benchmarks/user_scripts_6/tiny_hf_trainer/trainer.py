import contextlib
import math
import os
import random
import tempfile

import numpy as np
import torch
from torch.utils.data import DataLoader


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


class TrainerCallback:
    def on_step_end(self, trainer, **kw): pass
    def on_log(self, trainer, logs): pass
    def on_evaluate(self, trainer, metrics): pass


class PrinterCallback(TrainerCallback):
    def on_log(self, trainer, logs):
        print({k: (round(v, 7) if isinstance(v, float) else v) for k, v in logs.items()})


class MemoryCallback(TrainerCallback):
    """keeps the fragmentation down"""
    def __init__(self):
        self.peak = 0

    def on_step_end(self, trainer, **kw):
        if trainer.device.type == "cuda":
            torch.cuda.synchronize()
            self.peak = max(self.peak, torch.cuda.memory_allocated())
            torch.cuda.empty_cache()


class EarlyStoppingCallback(TrainerCallback):
    def __init__(self, patience=3):
        self.patience, self.best, self.bad = patience, math.inf, 0

    def on_evaluate(self, trainer, metrics):
        if metrics["eval_loss"] < self.best:
            self.best, self.bad = metrics["eval_loss"], 0
        else:
            self.bad += 1
            trainer.should_stop = self.bad >= self.patience


class Trainer:
    def __init__(self, model, args, train_dataset, eval_dataset, data_collator, compute_metrics=None, callbacks=()):
        self.args = args
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.data_collator, self.compute_metrics = data_collator, compute_metrics
        self.callbacks = [PrinterCallback(), MemoryCallback(), *callbacks]
        self.should_stop = False
        self.global_step = 0
        self.output_dir = args.output_dir or tempfile.mkdtemp()

    def call(self, event, **kw):
        for cb in self.callbacks:
            getattr(cb, event)(self, **kw)

    def get_train_dataloader(self):
        return DataLoader(self.train_dataset, batch_size=self.args.per_device_train_batch_size, shuffle=True,
                          collate_fn=self.data_collator, num_workers=self.args.dataloader_num_workers)

    def get_eval_dataloader(self):
        return DataLoader(self.eval_dataset, batch_size=self.args.per_device_eval_batch_size, shuffle=False,
                          collate_fn=self.data_collator)

    def create_optimizer_and_scheduler(self, total):
        no_decay = ("bias", "ln.", "ln1.", "ln2.")
        groups = [
            {"params": [p for n, p in self.model.named_parameters() if not any(s in n for s in no_decay)],
             "weight_decay": self.args.weight_decay},
            {"params": [p for n, p in self.model.named_parameters() if any(s in n for s in no_decay)],
             "weight_decay": 0.0}]
        self.optimizer = torch.optim.AdamW(groups, lr=self.args.learning_rate, eps=1e-8, foreach=False)
        warm = int(total * self.args.warmup_ratio)
        self.lr_scheduler = torch.optim.lr_scheduler.LambdaLR(
            self.optimizer, lambda s: s / max(1, warm) if s < warm else max(0.0, (total - s) / max(1, total - warm)))

    def _prepare_inputs(self, inputs):
        return {k: v.to(self.device) for k, v in inputs.items()}

    def autocast_ctx(self):
        if self.args.bf16:
            return torch.autocast(self.device.type, dtype=torch.bfloat16)
        return contextlib.nullcontext()

    def training_step(self, inputs):
        self.model.train()
        inputs = self._prepare_inputs(inputs)
        with self.autocast_ctx():
            out = self.model(**inputs, label_smoothing=self.args.label_smoothing_factor)
        loss = out.loss / self.args.gradient_accumulation_steps
        loss.backward()
        return loss.item()

    def grads_finite(self):
        for p in self.model.parameters():
            if p.grad is not None and not torch.isfinite(p.grad).all():
                return False
        return True

    def train(self):
        args = self.args
        loader = self.get_train_dataloader()
        steps_per_epoch = len(loader) // args.gradient_accumulation_steps
        self.create_optimizer_and_scheduler(steps_per_epoch * args.num_train_epochs)
        tr_loss, gnorm = 0.0, 0.0
        self.model.zero_grad()
        for epoch in range(args.num_train_epochs):
            for step, inputs in enumerate(loader):
                tr_loss += self.training_step(inputs)
                if (step + 1) % args.gradient_accumulation_steps:
                    continue
                if args.skip_nonfinite and not self.grads_finite():
                    print("non finite gradients, step skipped")
                    self.model.zero_grad()
                    continue
                gnorm += torch.nn.utils.clip_grad_norm_(self.model.parameters(), args.max_grad_norm, foreach=False).item()
                self.optimizer.step()
                self.lr_scheduler.step()
                self.model.zero_grad()
                self.global_step += 1
                self.call("on_step_end", epoch=epoch)
                if self.global_step % args.logging_steps == 0:
                    self.call("on_log", logs={"step": self.global_step, "loss": tr_loss / args.logging_steps,
                                              "grad_norm": gnorm / args.logging_steps,
                                              "lr": float(self.lr_scheduler.get_last_lr()[0])})
                    tr_loss, gnorm = 0.0, 0.0
                if self.global_step % args.eval_steps == 0:
                    self.evaluate()
                if self.global_step % args.save_steps == 0:
                    self.save_checkpoint()
                if self.should_stop:
                    return
            self.call("on_log", logs={"epoch": epoch, "train_acc": self.probe_train_accuracy()})

    def evaluate(self):
        self.model.eval()
        losses, preds, labels = [], [], []
        with torch.no_grad():
            for inputs in self.get_eval_dataloader():
                inputs = self._prepare_inputs(inputs)
                out = self.model(**inputs)
                losses.append(out.loss.item() * len(inputs["labels"]))
                preds.extend(out.logits.argmax(-1).tolist())
                labels.extend(inputs["labels"].tolist())
        metrics = {"eval_loss": sum(losses) / len(labels)}
        if self.compute_metrics:
            metrics.update(self.compute_metrics(np.array(preds), np.array(labels)))
        self.call("on_log", logs=metrics)
        self.call("on_evaluate", metrics=metrics)
        return metrics

    def probe_train_accuracy(self, n=96):
        self.model.eval()
        hits = 0
        for i in range(n):
            x = self._prepare_inputs(self.data_collator([self.train_dataset[i]]))
            hits += int(self.model(**x).logits.argmax(-1) == x["labels"])
        return hits / n

    def save_checkpoint(self):
        d = os.path.join(self.output_dir, f"checkpoint-{self.global_step}")
        os.makedirs(d, exist_ok=True)
        torch.save(self.model.state_dict(), os.path.join(d, "model.bin"))
        torch.save(self.optimizer.state_dict(), os.path.join(d, "optimizer.pt"))
