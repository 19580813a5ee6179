"""BiLSTM-CRF named entity recognition (Ma & Hovy 2016), course project.

usage:  python train.py            (about 14k sentences, 1 GPU)
"""
import argparse
import random

import torch
from torch.utils.data import DataLoader

import corpus
from data import NERDataset, build_vocabs
from model import Tagger

ap = argparse.ArgumentParser()
ap.add_argument("--train-size", type=int, default=14000)
ap.add_argument("--dev-size", type=int, default=3000)
ap.add_argument("--dir", default="corpus")
ap.add_argument("--epochs", type=int, default=30)
ap.add_argument("--batch-size", type=int, default=32)
ap.add_argument("--max-len", type=int, default=128)
ap.add_argument("--max-word-len", type=int, default=20)
ap.add_argument("--hidden", type=int, default=256)
ap.add_argument("--lr", type=float, default=0.15)
ap.add_argument("--decay", type=float, default=0.05)
ap.add_argument("--clip", type=float, default=5.0)
ap.add_argument("--seed", type=int, default=42)


def spans(tags):
    found, start = set(), None
    for i, t in enumerate(tags + ["O"]):
        if start is not None and not t.startswith("I-"):
            found.add((start, i, tags[start][2:]))
            start = None
        if t.startswith("B-"):
            start = i
    return found


def evaluate(model, loader, names, device):
    model.eval()
    tp = n_pred = n_gold = 0
    dev_loss = 0.0
    for words, chars, tags, mask in loader:
        words, chars, tags, mask = words.to(device), chars.to(device), tags.to(device), mask.to(device)
        dev_loss += model.loss(words, chars, tags, mask).item()
        paths = model.predict(words, chars, mask)
        for b, path in enumerate(paths):
            gold = [names[t.item()] for t in tags[b][: len(path)]]
            pred = [names[t] for t in path]
            g, p = spans(gold), spans(pred)
            tp += len(g & p)
            n_pred += len(p)
            n_gold += len(g)
    prec, rec = tp / max(n_pred, 1), tp / max(n_gold, 1)
    f1 = 2 * prec * rec / max(prec + rec, 1e-9)
    return dev_loss / len(loader), prec, rec, f1


def main():
    args = ap.parse_args()
    random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

    corpus.write(f"{args.dir}/train.txt", args.train_size, 1)
    corpus.write(f"{args.dir}/dev.txt", args.dev_size, 2)
    train_sents, dev_sents = corpus.read(f"{args.dir}/train.txt"), corpus.read(f"{args.dir}/dev.txt")
    words, chars, tags = build_vocabs(train_sents)
    names = {i: t for t, i in tags.items()}
    print(f"{len(train_sents)} train, {len(dev_sents)} dev, {len(words)} words, {len(tags)} tags")

    train_set = NERDataset(train_sents, words, chars, tags, args.max_len, args.max_word_len)
    dev_set = NERDataset(dev_sents, words, chars, tags, args.max_len, args.max_word_len)
    train_loader = DataLoader(train_set, batch_size=args.batch_size, shuffle=True)
    dev_loader = DataLoader(dev_set, batch_size=args.batch_size)

    model = Tagger(len(words), len(chars), len(tags), hidden=args.hidden).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    # lr_t = lr_0 / (1 + decay * epoch)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda e: 1.0 / (1.0 + args.decay * e))

    best = 0.0
    for epoch in range(args.epochs):
        model.train()
        total = 0.0
        for i, batch in enumerate(train_loader):
            w, c, t, m = [x.to(device) for x in batch]
            model.zero_grad()
            loss = model.loss(w, c, t, m)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            total += loss.item()
        scheduler.step()
        dev_loss, p, r, f1 = evaluate(model, dev_loader, names, device)
        print(f"epoch {epoch} train {total / len(train_loader):.4f} dev {dev_loss:.4f} "
              f"P {p:.4f} R {r:.4f} F1 {f1:.4f}")
        if f1 > best:
            best = f1
            torch.save(model.state_dict(), "best_tagger.pt")
    print(f"best F1 {best:.4f}")


if __name__ == "__main__":
    main()
