"""Teacher first (unless teacher.pt is there), then the student on hard and soft targets."""
import argparse
import json
import math
import os

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader
from tqdm import tqdm

from accel import Accelerator, set_seed
from models import Student, Teacher
from text import Collate, Queries, Vocabulary, write_queries


def get_args():
    p = argparse.ArgumentParser()
    p.add_argument("--data_dir", default="queries")
    p.add_argument("--output_dir", default="distilled")
    p.add_argument("--n_train", type=int, default=80000)
    p.add_argument("--n_eval", type=int, default=8000)
    p.add_argument("--n_intents", type=int, default=120)
    p.add_argument("--vocab_size", type=int, default=8000)
    p.add_argument("--max_len", type=int, default=48)
    p.add_argument("--teacher_dim", type=int, default=512)
    p.add_argument("--teacher_layers", type=int, default=6)
    p.add_argument("--teacher_epochs", type=int, default=5)
    p.add_argument("--teacher_lr", type=float, default=2e-4)
    p.add_argument("--student_dim", type=int, default=128)
    p.add_argument("--student_epochs", type=int, default=40)
    p.add_argument("--student_lr", type=float, default=2e-3)
    p.add_argument("--per_device_batch_size", type=int, default=128)
    p.add_argument("--gradient_accumulation_steps", type=int, default=1)
    p.add_argument("--mixed_precision", choices=("no", "bf16"), default="no")
    p.add_argument("--temperature", type=float, default=3.0)
    p.add_argument("--alpha", type=float, default=0.7)
    p.add_argument("--beta", type=float, default=0.1)
    p.add_argument("--word_drop", type=float, default=0.1)
    p.add_argument("--warmup_ratio", type=float, default=0.06)
    p.add_argument("--logging_steps", type=int, default=50)
    p.add_argument("--threads", type=int, default=0)
    p.add_argument("--seed", type=int, default=13)
    return p.parse_args()


def make_schedule(optimizer, steps, ratio):
    warm = max(1, int(ratio * steps))
    return torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: min(1.0, (s + 1) / warm) * max(0.0, (steps - s) / steps))


def evaluate(accelerator, loader, forward, n_intents):
    hits = torch.zeros(n_intents)
    seen = torch.zeros(n_intents)
    for batch in loader:
        with torch.no_grad():
            logits = forward(batch)
        pred = logits.argmax(-1)
        for y, p in zip(batch["labels"], pred):
            seen[y] += 1
            hits[y] += int(y == p)
    return (hits.sum() / seen.sum()).item(), (hits / seen.clamp(min=1))[seen > 0].mean().item()


def train_teacher(args, accelerator, teacher, train_loader, eval_loader):
    optimizer = torch.optim.AdamW(teacher.parameters(), lr=args.teacher_lr, weight_decay=0.01)
    scheduler = make_schedule(optimizer, args.teacher_epochs * len(train_loader), args.warmup_ratio)
    for epoch in range(args.teacher_epochs):
        teacher.train()
        correct = total = 0
        bar = tqdm(train_loader, desc=f"teacher {epoch}", mininterval=1)
        for batch in bar:
            with accelerator.autocast():
                logits, _ = teacher(batch["ids"])
                loss = F.cross_entropy(logits, batch["labels"])
            optimizer.zero_grad()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(teacher.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            correct += (logits.argmax(-1) == batch["labels"]).sum().item()
            total += len(batch["labels"])
            bar.set_postfix(loss=f"{loss.item():.3f}", acc=f"{correct / total:.3f}")
        teacher.eval()
        acc, macro = evaluate(accelerator, eval_loader, lambda b: teacher(b["ids"])[0], args.n_intents)
        print(f"teacher epoch {epoch}: accuracy {acc:.4f} macro {macro:.4f}")
    torch.save(teacher.state_dict(), os.path.join(args.data_dir, "teacher.pt"))


def distil(args, accelerator, teacher, student, train_loader, eval_loader):
    decay = [p for n, p in student.named_parameters() if p.dim() > 1]
    plain = [p for n, p in student.named_parameters() if p.dim() <= 1]
    optimizer = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": plain, "weight_decay": 0.0}],
                                  lr=args.student_lr)
    steps = args.student_epochs * math.ceil(len(train_loader) / args.gradient_accumulation_steps)
    scheduler = make_schedule(optimizer, steps, args.warmup_ratio)
    T, best, step, history = args.temperature, 0.0, 0, []
    for epoch in range(args.student_epochs):
        student.train()
        teacher.eval()
        running = {"loss": 0.0, "hard": 0.0, "soft": 0.0, "hidden": 0.0}
        for batch in train_loader:
            with accelerator.timer("teacher"):
                t_logits, t_hidden = teacher(batch["ids"])
            with accelerator.timer("student"), accelerator.autocast():
                s_logits, s_hidden = student(batch["noisy"], batch["lengths"])
                hard = F.cross_entropy(s_logits, batch["labels"])
                soft = F.kl_div(F.log_softmax(s_logits / T, -1), F.softmax(t_logits.detach() / T, -1),
                                reduction="batchmean") * T ** 2
                hidden = 1 - F.cosine_similarity(s_hidden, t_hidden.detach(), dim=-1).mean()
                loss = (1 - args.alpha) * hard + args.alpha * soft + args.beta * hidden
                accelerator.backward(loss)
            if accelerator.sync_gradients:
                torch.nn.utils.clip_grad_norm_(student.parameters(), 5.0)
                optimizer.step()
                scheduler.step()
                optimizer.zero_grad()
                step += 1
            for k, v in (("loss", loss), ("hard", hard), ("soft", soft), ("hidden", hidden)):
                running[k] += v.item() / len(train_loader)
            if step % args.logging_steps == 0:
                print(f"step {step}  lr {scheduler.get_last_lr()[0]:.2e}  {accelerator.report()}")
        student.eval()
        acc, macro = evaluate(accelerator, eval_loader, lambda b: student(b["ids"], b["lengths"])[0], args.n_intents)
        history.append({"epoch": epoch, "accuracy": acc, "macro": macro, **running})
        print(f"student epoch {epoch}: " + "  ".join(f"{k} {v:.4f}" for k, v in running.items())
              + f"  accuracy {acc:.4f} macro {macro:.4f}")
        if acc >= best:
            best = acc
            torch.save(student.state_dict(), os.path.join(args.output_dir, "student.pt"))
    with open(os.path.join(args.output_dir, "history.json"), "w") as f:
        json.dump(history, f, indent=1)


def main():
    args = get_args()
    set_seed(args.seed)
    if args.threads:
        torch.set_num_threads(args.threads)
    os.makedirs(args.data_dir, exist_ok=True)
    os.makedirs(args.output_dir, exist_ok=True)
    paths = [os.path.join(args.data_dir, f"{part}.jsonl") for part in ("train", "eval")]
    write_queries(paths[0], args.n_train, args.n_intents, 1)
    write_queries(paths[1], args.n_eval, args.n_intents, 2)
    train_set, eval_set = Queries(paths[0]), Queries(paths[1])
    vocab = Vocabulary([r["text"] for r in train_set.rows], args.vocab_size)

    accelerator = Accelerator(args.mixed_precision, args.gradient_accumulation_steps)
    collate = Collate(vocab, args.max_len, args.word_drop)
    train_loader = DataLoader(train_set, args.per_device_batch_size, shuffle=True, collate_fn=collate)
    eval_loader = DataLoader(eval_set, args.per_device_batch_size, collate_fn=collate)
    teacher = Teacher(len(vocab), args.n_intents, args.teacher_dim, layers=args.teacher_layers, max_len=args.max_len)
    student = Student(len(vocab), args.n_intents, args.student_dim, args.student_dim, args.teacher_dim)
    teacher, student, train_loader, eval_loader = accelerator.prepare(teacher, student, train_loader, eval_loader)

    saved = os.path.join(args.data_dir, "teacher.pt")
    if os.path.exists(saved):
        teacher.load_state_dict(torch.load(saved, map_location=accelerator.device))
    else:
        train_teacher(args, accelerator, teacher, train_loader, eval_loader)
    distil(args, accelerator, teacher, student, train_loader, eval_loader)


if __name__ == "__main__":
    main()
