#!/usr/bin/env python
# coding=utf-8
""" Distil a fine-tuned token classification teacher into a shallow student, without using a Trainer. """
import argparse
import logging
import math
import os
import random

import numpy as np
import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from accelerate_shim import Accelerator
from modeling_mini import MiniConfig, MiniForTokenClassification

try:
    from tqdm.auto import tqdm
except ImportError:
    class tqdm:
        def __init__(self, it=None, **kw): self.n = 0
        def update(self, k=1): self.n += k
        def set_postfix(self, **kw): self.last = kw

logger = logging.getLogger(__name__)
LABELS = ["O", "B-PER", "I-PER", "B-ORG", "I-ORG", "B-LOC", "I-LOC", "B-MISC", "I-MISC"]


def parse_args():
    p = argparse.ArgumentParser(description="Distil a token classifier")
    p.add_argument("--num_train_examples", type=int, default=14041)
    p.add_argument("--num_eval_examples", type=int, default=3250)
    p.add_argument("--teacher_layers", type=int, default=12)
    p.add_argument("--student_layers", type=int, default=6)
    p.add_argument("--hidden_size", type=int, default=768)
    p.add_argument("--vocab_size", type=int, default=30522)
    p.add_argument("--max_length", type=int, default=128)
    p.add_argument("--per_device_train_batch_size", type=int, default=32)
    p.add_argument("--gradient_accumulation_steps", type=int, default=1)
    p.add_argument("--learning_rate", type=float, default=5e-5)
    p.add_argument("--weight_decay", type=float, default=0.01)
    p.add_argument("--num_train_epochs", type=int, default=3)
    p.add_argument("--num_warmup_steps", type=int, default=100)
    p.add_argument("--temperature", type=float, default=2.0)
    p.add_argument("--alpha_hidden", type=float, default=0.5)
    p.add_argument("--mixed_precision", type=str, default="no", choices=["no", "fp16", "bf16"])
    p.add_argument("--logging_steps", type=int, default=50)
    p.add_argument("--output_dir", type=str, default=None)
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def make_examples(n, args, seed):
    """CoNLL-like: entity tokens come from ranges of the vocabulary"""
    rng = random.Random(seed)
    span, out = args.vocab_size // 10, []
    for _ in range(n):
        ids, tags = [], []
        while len(ids) < rng.randint(6, args.max_length - 10):
            if rng.random() < 0.2:
                k, m = rng.randint(0, 3), rng.randint(1, 3)
                ids += [1 + span * (k + 1) + rng.randrange(span) for _ in range(m)]
                tags += [1 + 2 * k] + [2 + 2 * k] * (m - 1)
            else:
                ids.append(1 + span * 5 + rng.randrange(span * 4))
                tags.append(0)
        out.append({"input_ids": ids, "labels": tags})
    return out


def collate(features):
    L = max(len(f["input_ids"]) for f in features)
    pad = lambda key, v: torch.tensor([f[key] + [v] * (L - len(f[key])) for f in features])
    ids = pad("input_ids", 0)
    return {"input_ids": ids, "attention_mask": (ids != 0).long(), "labels": pad("labels", -100)}


def spans(tags):
    out, start = set(), None
    for i, t in enumerate(list(tags) + ["O"]):
        if start is not None and (t[:2] != "I-"):
            out.add((start, i, tags[start][2:]))
            start = None
        if t[:2] == "B-":
            start = i
    return out


def f1(preds, golds):
    tp = fp = fn = 0
    for p, g in zip(preds, golds):
        a, b = spans(p), spans(g)
        tp, fp, fn = tp + len(a & b), fp + len(a - b), fn + len(b - a)
    return 2 * tp / max(1, 2 * tp + fp + fn)


def distil_loss(s_logits, t_logits, s_hidden, t_hidden, batch, args):
    mask = batch["attention_mask"].bool()
    T = args.temperature
    kl = F.kl_div(F.log_softmax(s_logits[mask] / T, -1), F.softmax(t_logits[mask] / T, -1), reduction="batchmean") * T * T
    ce = F.cross_entropy(s_logits.view(-1, s_logits.size(-1)), batch["labels"].view(-1), ignore_index=-100)
    step = (len(t_hidden) - 1) // (len(s_hidden) - 1)
    hid = 0.0
    for i in range(1, len(s_hidden)):
        hid = hid + F.mse_loss(s_hidden[i][mask], t_hidden[i * step][mask])
    return ce + kl + args.alpha_hidden * hid


def main():
    args = parse_args()
    logging.basicConfig(format="%(asctime)s - %(levelname)s - %(name)s - %(message)s", level=logging.INFO)
    accelerator = Accelerator(gradient_accumulation_steps=args.gradient_accumulation_steps, mixed_precision=args.mixed_precision)
    random.seed(args.seed); np.random.seed(args.seed); torch.manual_seed(args.seed)
    logger.info("device %s, mixed precision %s", accelerator.device, args.mixed_precision)
    train_ds = make_examples(args.num_train_examples, args, args.seed)
    eval_ds = make_examples(args.num_eval_examples, args, args.seed + 1)
    train_dl = DataLoader(train_ds, shuffle=True, collate_fn=collate, batch_size=args.per_device_train_batch_size)
    eval_dl = DataLoader(eval_ds, collate_fn=collate, batch_size=64)

    kw = dict(vocab_size=args.vocab_size, hidden_size=args.hidden_size, num_heads=max(1, args.hidden_size // 64),
              intermediate_size=4 * args.hidden_size, num_labels=len(LABELS))
    teacher = MiniForTokenClassification(MiniConfig(num_layers=args.teacher_layers, **kw))
    student = MiniForTokenClassification(MiniConfig(num_layers=args.student_layers, **kw))
    student.load_state_dict({k: v for k, v in teacher.state_dict().items() if k in student.state_dict()}, strict=False)
    for p in student.position.parameters():
        p.requires_grad = False
    no_decay = ["bias", "norm"]
    groups = [{"params": [p for n, p in student.named_parameters() if p.requires_grad and not any(k in n for k in no_decay)],
               "weight_decay": args.weight_decay},
              {"params": [p for n, p in student.named_parameters() if p.requires_grad and any(k in n for k in no_decay)],
               "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=args.learning_rate)
    steps = args.num_train_epochs * math.ceil(len(train_dl) / args.gradient_accumulation_steps)
    sched = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min((s + 1) / max(1, args.num_warmup_steps), max(0.0, (steps - s) / steps)))
    teacher, student, optimizer, train_dl, eval_dl, sched = accelerator.prepare(teacher, student, optimizer, train_dl, eval_dl, sched)

    bar, done, best = tqdm(range(steps)), 0, 0.0
    for epoch in range(args.num_train_epochs):
        student.train()
        teacher.eval()
        total_loss = 0
        for batch in train_dl:
            with accelerator.accumulate(student):
                s_logits, s_hidden = student(batch["input_ids"], batch["attention_mask"])
                t_logits, t_hidden = teacher(batch["input_ids"], batch["attention_mask"])
                loss = distil_loss(s_logits, t_logits, s_hidden, t_hidden, batch, args)
                total_loss += loss.detach().float()
                accelerator.backward(loss)
                if accelerator.sync_gradients:
                    accelerator.clip_grad_norm_(student.parameters(), 1.0)
                optimizer.step()
                sched.step()
                optimizer.zero_grad()
            if accelerator.sync_gradients:
                done += 1
                bar.update(1)
                bar.set_postfix(loss=loss.item())
                if done % args.logging_steps == 0:
                    logger.info("step %d loss %.4f lr %.2e", done, loss.item(), sched.get_last_lr()[0])

        student.eval()
        preds, golds = [], []
        for batch in eval_dl:
            with torch.no_grad():
                logits, _ = student(batch["input_ids"], batch["attention_mask"])
            pred, lab = accelerator.gather_for_metrics(logits.argmax(-1)), accelerator.gather_for_metrics(batch["labels"])
            for p_row, l_row in zip(pred, lab):
                preds.append([LABELS[p.item()] for p, l in zip(p_row, l_row) if l.item() != -100])
                golds.append([LABELS[l.item()] for l in l_row if l.item() != -100])
        score = f1(preds, golds)
        accelerator.print("epoch %d: train loss %.4f  eval f1 %.4f" % (epoch, total_loss.item() / len(train_dl), score))
        if args.output_dir is not None and score >= best:
            best = score
            accelerator.wait_for_everyone()
            os.makedirs(args.output_dir, exist_ok=True)
            torch.save(accelerator.unwrap_model(student).state_dict(), os.path.join(args.output_dir, "pytorch_model.bin"))


if __name__ == "__main__":
    main()
