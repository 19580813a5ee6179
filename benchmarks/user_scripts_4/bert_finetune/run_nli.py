#!/usr/bin/env python
"""Fine-tune a small encoder on NLI, no Trainer."""
import argparse
import json
import logging
import os
import random
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader

from src.dataset import Collator, NliDataset
from src.modeling import Classifier
from src.tokenizer import Tokenizer

logging.basicConfig(stream=sys.stdout, format="%(levelname)s - %(message)s", level=logging.INFO)
logger = logging.getLogger(__name__)


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--hidden", type=int, default=96)
    p.add_argument("--heads", type=int, default=4)
    p.add_argument("--layers", type=int, default=3)
    p.add_argument("--dropout", type=float, default=0.1)
    p.add_argument("--attn_dropout", type=float, default=0.1)
    p.add_argument("--per_gpu_batch_size", type=int, default=16)
    p.add_argument("--gradient_accumulation_steps", type=int, default=2)
    p.add_argument("--learning_rate", type=float, default=5e-4)
    p.add_argument("--weight_decay", type=float, default=0.01)
    p.add_argument("--warmup_steps", type=int, default=20)
    p.add_argument("--max_grad_norm", type=float, default=1.0)
    p.add_argument("--epochs", type=int, default=2)
    p.add_argument("--train_size", type=int, default=3200)
    p.add_argument("--logging_steps", type=int, default=25)
    p.add_argument("--output_dir", default="out")
    p.add_argument("--seed", type=int, default=42)
    return p.parse_args()


def set_seed(seed):
    random.seed(seed)
    np.random.seed(seed)
    torch.manual_seed(seed)
    torch.cuda.manual_seed_all(seed)


def evaluate(model, loader, device):
    model.eval()
    preds, labels, eval_loss = None, None, 0.0
    for batch in loader:
        batch = {k: v.to(device) for k, v in batch.items()}
        with torch.no_grad():
            y = batch.pop("labels")
            logits = model(**batch)
            eval_loss += torch.nn.functional.cross_entropy(logits, y).mean().item()
        if preds is None:
            preds, labels = logits.detach().cpu().numpy(), y.detach().cpu().numpy()
        else:
            preds = np.append(preds, logits.detach().cpu().numpy(), axis=0)
            labels = np.append(labels, y.detach().cpu().numpy(), axis=0)
    return {"acc": float((preds.argmax(1) == labels).mean()), "loss": eval_loss / len(loader)}


def report_attention(model, tokenizer, dataset, collate, device, n=4):
    """Writes the pooler's weights of a few examples, for the paper's figure."""
    inv = {i: w for w, i in tokenizer.vocab.items()}
    batch = collate([dataset[i] for i in range(n)])
    batch.pop("labels")
    model.eval()
    with torch.no_grad():
        _, weights = model(**{k: v.to(device) for k, v in batch.items()}, output_attentions=True)
    for row, ids in zip(weights, batch["input_ids"]):
        k = int(row.argmax())
        logger.info("most attended: %s (%.3f)", inv[int(ids[k])], row[k].item())


def main():
    args = parse_args()
    set_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tokenizer = Tokenizer()
    train_ds = NliDataset(tokenizer, args.train_size, seed=1)
    eval_ds = NliDataset(tokenizer, 480, seed=2)
    collate = Collator(tokenizer.pad_id)
    train_loader = DataLoader(train_ds, batch_size=args.per_gpu_batch_size, shuffle=True, collate_fn=collate)
    eval_loader = DataLoader(eval_ds, batch_size=args.per_gpu_batch_size, shuffle=False, collate_fn=collate)

    model = Classifier(args, len(tokenizer.vocab)).to(device)
    no_decay = ["bias", "ln"]
    grouped = [
        {"params": [p for n, p in model.named_parameters() if not any(nd in n for nd in no_decay)],
         "weight_decay": args.weight_decay},
        {"params": [p for n, p in model.named_parameters() if any(nd in n for nd in no_decay)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(grouped, lr=args.learning_rate, eps=1e-8)
    t_total = len(train_loader) // args.gradient_accumulation_steps * args.epochs
    scheduler = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: s / args.warmup_steps if s < args.warmup_steps
        else max(0.0, (t_total - s) / max(1, t_total - args.warmup_steps)))

    global_step, tr_loss, logging_loss = 0, 0.0, 0.0
    model.zero_grad()
    for epoch in range(args.epochs):
        for step, batch in enumerate(train_loader):
            model.train()
            batch = {k: v.to(device) for k, v in batch.items()}
            labels = batch.pop("labels")
            logits = model(**batch)
            loss = torch.nn.functional.cross_entropy(logits, labels)
            if args.gradient_accumulation_steps > 1:
                loss = loss / args.gradient_accumulation_steps
            loss.backward()
            tr_loss += loss.item()
            if (step + 1) % args.gradient_accumulation_steps == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
                optimizer.step()
                scheduler.step()
                model.zero_grad()
                global_step += 1
                if global_step % args.logging_steps == 0:
                    logger.info("step %d lr %.2e loss %.4f", global_step, scheduler.get_last_lr()[0],
                                (tr_loss - logging_loss) / args.logging_steps)
                    logging_loss = tr_loss
        result = evaluate(model, eval_loader, device)
        logger.info("epoch %d eval acc %.4f loss %.4f", epoch, result["acc"], result["loss"])
        os.makedirs(args.output_dir, exist_ok=True)
        torch.save(model.state_dict(), os.path.join(args.output_dir, "checkpoint-%d.pt" % epoch))
    report_attention(model, tokenizer, eval_ds, collate, device)
    with open(os.path.join(args.output_dir, "results.json"), "w") as f:
        json.dump(result, f)


if __name__ == "__main__":
    main()
