"""Pretend "base model": the same net trained for a moment on plain sums; then LoRA on instructions."""
import random

import torch

from tuner import Trainer, TrainingArguments
from tuner.model import TinyLM, add_lora

VOCAB = ["<pad>", "<eos>", "<ans>"] + list("0123456789+-*= ") + ["add", "sub", "rev", "max", "say"]
STOI = {t: i for i, t in enumerate(VOCAB)}
PAD, EOS, ANS = 0, 1, 2


def encode(toks):
    return [STOI[t] for t in toks]


class Instructions(torch.utils.data.Dataset):
    def __init__(self, n, seed):
        rnd = random.Random(seed)
        self.rows = []
        for _ in range(n):
            op = rnd.choice(["add", "rev", "max", "say"])
            a, b = rnd.randint(0, 99), rnd.randint(0, 99)
            ans = {"add": str(a + b), "rev": f"{a} {b}"[::-1], "max": str(max(a, b)), "say": f"{a}"}[op]
            self.rows.append(([op] + list(f" {a} {b}") + ["<ans>"], list(ans) + ["<eos>"]))

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, i):
        prompt, ans = self.rows[i]
        ids = encode(prompt) + encode(ans)
        labels = [-100] * len(prompt) + encode(ans)
        return {"input_ids": ids, "labels": labels}


def collate(rows):
    n = max(len(r["input_ids"]) for r in rows)
    ids = torch.full((len(rows), n), PAD)
    labels = torch.full((len(rows), n), -100)
    for i, r in enumerate(rows):
        ids[i, :len(r["input_ids"])] = torch.tensor(r["input_ids"])
        labels[i, :len(r["labels"])] = torch.tensor(r["labels"])
    return {"input_ids": ids, "labels": labels}


def pretrain(model, steps=60):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    model.to(device).train()
    opt = torch.optim.Adam(model.parameters(), lr=3e-3)
    rnd = random.Random(0)
    for s in range(steps):
        rows = []
        for _ in range(32):
            a, b = rnd.randint(0, 99), rnd.randint(0, 99)
            ids = encode(list(f"{a}+{b}={a + b}") + ["<eos>"])
            rows.append({"input_ids": ids, "labels": ids})
        batch = {k: v.to(device) for k, v in collate(rows).items()}
        loss = model(**batch)["loss"] / (batch["labels"][:, 1:] != -100).sum()
        opt.zero_grad()
        loss.backward()
        opt.step()
        if (s + 1) % 20 == 0:
            print(f"pretrain {s + 1}: {loss.item():.4f}")


if __name__ == "__main__":
    args = TrainingArguments.parse()
    torch.manual_seed(args.seed)
    model = TinyLM(len(VOCAB))
    pretrain(model)
    add_lora(model, args.lora_r, args.lora_alpha)
    trainable = sum(p.numel() for p in model.parameters() if p.requires_grad)
    print(f"trainable {trainable} of {sum(p.numel() for p in model.parameters())}")
    trainer = Trainer(model, args, Instructions(1200, 1), Instructions(96, 2), collate)
    trainer.train()
    for prompt in (["say"] + list(" 42 7"), ["max"] + list(" 13 88")):
        out = trainer.generate(encode(prompt + ["<ans>"]), 6, EOS)
        print("".join(VOCAB[i] for i in out))
