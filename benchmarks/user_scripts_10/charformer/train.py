import argparse
import os
import random

import torch

from corpus import write_corpus
from data import CharDataset
from model import GPT, GPTConfig
from trainer import Trainer, TrainerConfig


def parse_args():
    p = argparse.ArgumentParser()
    p.add_argument("--corpus", default="data/corpus.txt")
    p.add_argument("--n-chars", type=int, default=5_000_000)
    p.add_argument("--block-size", type=int, default=256)
    p.add_argument("--n-layer", type=int, default=6)
    p.add_argument("--n-head", type=int, default=6)
    p.add_argument("--n-embd", type=int, default=384)
    p.add_argument("--dropout", type=float, default=0.2)
    p.add_argument("--batch-size", type=int, default=64)
    p.add_argument("--max-steps", type=int, default=5000)
    p.add_argument("--warmup", type=int, default=200)
    p.add_argument("--eval-every", type=int, default=250)
    p.add_argument("--eval-batches", type=int, default=50)
    p.add_argument("--lr", type=float, default=1e-3)
    p.add_argument("--seed", type=int, default=1337)
    return p.parse_args()


def main():
    args = parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    torch.backends.cuda.matmul.allow_tf32 = True

    if not os.path.exists(args.corpus):
        write_corpus(args.corpus, args.n_chars)
    text = open(args.corpus).read()
    split = int(0.9 * len(text))
    train_ds = CharDataset(text[:split], args.block_size, chars=sorted(set(text)))
    val_ds = CharDataset(text[split:], args.block_size, chars=train_ds.chars, stride=args.block_size)

    model = GPT(GPTConfig(train_ds.vocab_size, args.block_size, args.n_layer, args.n_head, args.n_embd, args.dropout))
    n_params = sum(p.numel() for p in model.parameters())
    print(f"vocab {train_ds.vocab_size} | {len(train_ds)} windows | {n_params / 1e6:.2f}M parameters")

    trainer = Trainer(model, train_ds, val_ds, TrainerConfig(
        max_steps=args.max_steps, batch_size=args.batch_size, lr=args.lr, min_lr=args.lr / 10,
        warmup=args.warmup, eval_every=args.eval_every, eval_batches=args.eval_batches))
    best = trainer.fit()
    print(f"best val loss {best:.4f}")
    print(trainer.sample("ARDEN:\n"))


if __name__ == "__main__":
    main()
