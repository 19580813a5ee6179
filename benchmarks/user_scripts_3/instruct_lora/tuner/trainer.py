import json
import math
import os
import time

import torch
from torch.utils.data import DataLoader


class Trainer:
    def __init__(self, model, args, train_dataset, eval_dataset, collator, tokenizer=None):
        self.args = args
        self.device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
        self.model = model.to(self.device)
        self.train_dataset, self.eval_dataset = train_dataset, eval_dataset
        self.collator, self.tokenizer = collator, tokenizer
        self.global_step = 0
        self.log_history = []
        self.create_optimizer_and_scheduler()

    def create_optimizer_and_scheduler(self):
        decay = [p for p in self.model.parameters() if p.requires_grad and p.dim() > 1]
        plain = [p for p in self.model.parameters() if p.requires_grad and p.dim() <= 1]
        self.optimizer = torch.optim.AdamW(
            [{"params": decay, "weight_decay": self.args.weight_decay}, {"params": plain, "weight_decay": 0.0}],
            lr=self.args.learning_rate, betas=(0.9, 0.95))
        warm = max(1, int(self.args.max_steps * self.args.warmup_ratio))

        def schedule(step):
            if step < warm:
                return (step + 1) / warm
            return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, self.args.max_steps - warm)))
        self.scheduler = torch.optim.lr_scheduler.LambdaLR(self.optimizer, schedule)

    def get_train_dataloader(self):
        g = torch.Generator()
        g.manual_seed(self.args.seed)
        return DataLoader(self.train_dataset, batch_size=self.args.per_device_train_batch_size,
                          shuffle=True, generator=g, collate_fn=self.collator, drop_last=True)

    def get_eval_dataloader(self):
        return DataLoader(self.eval_dataset, batch_size=16, collate_fn=self.collator)

    def _prepare_inputs(self, inputs):
        return {k: v.to(self.device) for k, v in inputs.items()}

    def _batches(self, loader):
        while True:
            yield from loader

    def compute_loss(self, inputs):
        with torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=self.args.bf16):
            return self.model(**inputs)["loss"]

    def train(self):
        it = self._batches(self.get_train_dataloader())
        acc = self.args.gradient_accumulation_steps
        tr_loss, tr_tokens, start = 0.0, 0, time.time()
        while self.global_step < self.args.max_steps:
            self.model.train()
            micro = [self._prepare_inputs(next(it)) for _ in range(acc)]
            # the mean is over the answer tokens of ALL micro batches, so count them first
            n_tok = sum((m["labels"][:, 1:] != -100).sum().item() for m in micro)
            for m in micro:
                loss = self.compute_loss(m) / n_tok
                loss.backward()
                tr_loss += loss.item()
            tr_tokens += n_tok
            grad_norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.args.max_grad_norm)
            self.optimizer.step()
            self.scheduler.step()
            self.model.zero_grad()
            self.global_step += 1

            if self.global_step % self.args.logging_steps == 0:
                self.log({"loss": tr_loss / self.args.logging_steps, "grad_norm": grad_norm.item(),
                          "lr": self.scheduler.get_last_lr()[0]})
                tr_loss, tr_tokens, start = 0.0, 0, time.time()
            if self.global_step % self.args.eval_steps == 0:
                self.log(self.evaluate())
            if self.global_step % self.args.save_steps == 0:
                self.save()

    def evaluate(self):
        self.model.eval()
        total, count, hits = 0.0, 0, 0
        for batch in self.get_eval_dataloader():
            batch = self._prepare_inputs(batch)
            with torch.no_grad():
                out = self.model(**batch)
            mask = batch["labels"][:, 1:] != -100
            total += out["loss"].item()
            count += mask.sum().item()
            hits += ((out["logits"][:, :-1].argmax(-1) == batch["labels"][:, 1:]) & mask).sum().item()
        return {"eval_loss": total / count, "eval_token_acc": hits / count, "eval_ppl": math.exp(total / count)}

    def generate(self, ids, max_new_tokens, eos_id, temperature=0.8):
        self.model.eval()
        x = torch.tensor([ids], device=self.device)
        for _ in range(max_new_tokens):
            logits = self.model(x)["logits"][0, -1] / temperature
            nxt = torch.multinomial(logits.softmax(-1).cpu(), 1).to(self.device)   # CPU draw, reproducible
            if nxt.item() == eos_id:
                break
            x = torch.cat([x, nxt[None]], dim=1)
        return x[0].tolist()

    def log(self, d):
        d = {"step": self.global_step, **{k: round(float(v), 5) for k, v in d.items()}}
        self.log_history.append(d)
        print(d, flush=True)

    def save(self):
        path = os.path.join(self.args.output_dir, f"checkpoint-{self.global_step}")
        os.makedirs(path, exist_ok=True)
        adapters = {n: p.detach().cpu() for n, p in self.model.named_parameters() if p.requires_grad}
        torch.save(adapters, os.path.join(path, "adapter.pt"))
        torch.save({"opt": self.optimizer.state_dict(), "rng": torch.get_rng_state()}, os.path.join(path, "state.pt"))
        json.dump(self.log_history, open(os.path.join(path, "trainer_state.json"), "w"), indent=1)
