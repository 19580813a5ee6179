#!/usr/bin/env python
import argparse
import dataclasses
import json
import logging
import math
import os
import random
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader

from modeling_clap import ClapModel
from processing import AudioTextDataset, Collator, Tokenizer, make_corpus

logger = logging.getLogger(__name__)


@dataclasses.dataclass
class TrainingArguments:
    data_dir: str = "audio_captions"
    output_dir: str = "clap-out"
    text_checkpoint: str = ""
    num_clips: int = 45000
    sampling_rate: int = 16000
    seconds: float = 10.0
    n_fft: int = 400
    hop: int = 160
    n_mels: int = 64
    patch: int = 16
    max_length: int = 48
    audio_hidden_size: int = 768
    audio_layers: int = 12
    audio_heads: int = 12
    text_hidden_size: int = 768
    text_layers: int = 12
    text_heads: int = 12
    projection_dim: int = 512
    dropout: float = 0.1
    per_device_train_batch_size: int = 128
    per_device_eval_batch_size: int = 128
    gradient_accumulation_steps: int = 2
    num_train_epochs: int = 20
    learning_rate: float = 1e-4
    weight_decay: float = 0.05
    warmup_ratio: float = 0.05
    max_grad_norm: float = 1.0
    fp16: bool = True
    dataloader_num_workers: int = 0
    logging_steps: int = 50
    seed: int = 42


def parse_args():
    parser = argparse.ArgumentParser()
    for f in dataclasses.fields(TrainingArguments):
        conv = (lambda s: s.lower() == "true") if f.type in (bool, "bool") else type(f.default)
        parser.add_argument("--" + f.name, type=conv, default=f.default)
    return TrainingArguments(**vars(parser.parse_args()))


def get_optimizer(model, args):
    no_decay = ("bias", "norm1.weight", "norm2.weight", "norm.weight", "logit_scale")
    named = [(n, p) for n, p in model.named_parameters() if p.requires_grad]
    groups = [
        {"params": [p for n, p in named if not n.endswith(no_decay)], "weight_decay": args.weight_decay},
        {"params": [p for n, p in named if n.endswith(no_decay)], "weight_decay": 0.0},
    ]
    return torch.optim.AdamW(groups, lr=args.learning_rate, betas=(0.9, 0.98), eps=1e-6)


def prepare(batch, device):
    return {k: v.to(device) for k, v in batch.items()}


def evaluate(model, loader, device, fp16):
    model.eval()
    audio, text = [], []
    with torch.no_grad():
        for batch in loader:
            batch = prepare(batch, device)
            with torch.cuda.amp.autocast(enabled=fp16):
                audio.append(model.get_audio_features(batch["waveform"]).float())
                text.append(model.get_text_features(batch["input_ids"], batch["attention_mask"]).float())
    audio, text = torch.cat(audio), torch.cat(text)
    sim = text @ audio.t()
    ranks = []
    for i in range(len(sim)):
        order = torch.argsort(sim[i], descending=True)
        ranks.append((order == i).nonzero()[0].item())
    ranks = np.array(ranks)
    model.train()
    return {"R@1": float((ranks < 1).mean()), "R@10": float((ranks < 10).mean()), "medr": float(np.median(ranks) + 1)}


def main():
    args = parse_args()
    args.samples = int(args.seconds * args.sampling_rate)
    logging.basicConfig(format="%(levelname)s %(message)s", level=logging.INFO, stream=sys.stdout)
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    fp16 = args.fp16 and device.type == "cuda"

    if not os.path.isdir(args.data_dir):
        make_corpus(args.data_dir, args.num_clips, args.seconds * 1.2, args.sampling_rate, args.seed)
    with open(os.path.join(args.data_dir, "captions.json")) as f:
        captions = json.load(f)
    names = sorted(captions)
    n_eval = max(8, len(names) // 20)
    tokenizer = Tokenizer(captions, args.max_length)
    args.vocab_size = len(tokenizer)
    train_set = AudioTextDataset(args.data_dir, names[n_eval:], captions, tokenizer, args.samples, True)
    eval_set = AudioTextDataset(args.data_dir, names[:n_eval], captions, tokenizer, args.samples, False)
    train_dataloader = DataLoader(train_set, batch_size=args.per_device_train_batch_size, shuffle=True,
                                  drop_last=True, collate_fn=Collator(), pin_memory=device.type == "cuda",
                                  num_workers=args.dataloader_num_workers)
    eval_dataloader = DataLoader(eval_set, batch_size=args.per_device_eval_batch_size, collate_fn=Collator(),
                                 num_workers=args.dataloader_num_workers)

    model = ClapModel(args)
    if args.text_checkpoint:
        model.text_model.load_state_dict(torch.load(args.text_checkpoint, map_location="cpu"))
    model.to(device)
    optimizer = get_optimizer(model, args)
    steps_per_epoch = len(train_dataloader) // args.gradient_accumulation_steps
    max_steps = max(1, steps_per_epoch * args.num_train_epochs)
    warmup = int(max_steps * args.warmup_ratio)
    lr_scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: (s + 1) / max(1, warmup) if s < warmup else
                                                     0.5 * (1 + math.cos(math.pi * (s - warmup) / max(1, max_steps - warmup))))
    scaler = torch.cuda.amp.GradScaler(enabled=fp16)

    logger.info("***** Running training *****")
    logger.info("  examples %d  optimization steps %d", len(train_set), max_steps)
    global_step, tr_loss, logged = 0, 0.0, 0.0
    model.train()
    for epoch in range(args.num_train_epochs):
        for step, batch in enumerate(train_dataloader):
            batch = prepare(batch, device)
            with torch.cuda.amp.autocast(enabled=fp16):
                loss = model(**batch)
            loss = loss / args.gradient_accumulation_steps
            scaler.scale(loss).backward()
            tr_loss += loss.item()
            if (step + 1) % args.gradient_accumulation_steps == 0:
                torch.nn.utils.clip_grad_norm_(model.parameters(), args.max_grad_norm)
                scaler.step(optimizer)
                scaler.update()
                lr_scheduler.step()
                optimizer.zero_grad()
                global_step += 1
                if global_step % args.logging_steps == 0:
                    logger.info("epoch %d step %d loss %.4f lr %.2e scale %.2f", epoch, global_step,
                                (tr_loss - logged) / args.logging_steps, lr_scheduler.get_last_lr()[0],
                                model.logit_scale.exp().item())
                    logged = tr_loss
        metrics = evaluate(model, eval_dataloader, device, fp16)
        logger.info("epoch %d eval %s", epoch, json.dumps(metrics))
        os.makedirs(args.output_dir, exist_ok=True)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "lr_scheduler": lr_scheduler.state_dict(), "global_step": global_step},
                   os.path.join(args.output_dir, "checkpoint-last.pt"))


if __name__ == "__main__":
    main()
