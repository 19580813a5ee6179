#!/usr/bin/env python3
'''Train the meter line reader.   ./train.py config.yaml [key=value ...]'''
from __future__ import annotations

import dataclasses
import logging
import pathlib
import sys
import time

import torch
import yaml
from torch import nn
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader

from crnn import CRNN
from lines import LineDataset, collate
from metrics import error_rates, greedy_decode

log = logging.getLogger('meterread')


@dataclasses.dataclass
class Config:
    data_dir: str = 'lines'
    out_dir: str = 'run'
    alphabet: str = '0123456789.-m'
    height: int = 48
    max_width: int = 480
    batch_size: int = 128
    epochs: int = 60
    lr: float = 8e-4
    weight_decay: float = 1e-4
    hidden: int = 256
    clip: float = 5.0
    workers: int = 4
    amp: bool = True
    seed: int = 3

    @classmethod
    def load(cls, argv: list[str]) -> Config:
        raw = yaml.safe_load(pathlib.Path(argv[0]).read_text()) if argv else {}
        for kv in argv[1:]:
            k, v = kv.split('=', 1)
            raw[k] = yaml.safe_load(v)
        return cls(**raw)


class Trainer:
    def __init__(self, cfg: Config):
        self.cfg = cfg
        self.device = 'cuda' if torch.cuda.is_available() else 'cpu'
        self.use_amp = cfg.amp and self.device == 'cuda'
        torch.manual_seed(cfg.seed)
        args = (cfg.alphabet, cfg.height, cfg.max_width)
        self.train_dl = DataLoader(
            LineDataset(cfg.data_dir, 'train', *args), cfg.batch_size,
            shuffle=True, num_workers=cfg.workers, collate_fn=collate,
        )
        self.val_dl = DataLoader(
            LineDataset(cfg.data_dir, 'val', *args), cfg.batch_size,
            shuffle=False, num_workers=cfg.workers, collate_fn=collate,
        )
        self.net = CRNN(len(cfg.alphabet), cfg.hidden, cfg.height).to(self.device)
        self.ctc = nn.CTCLoss(blank=0, zero_infinity=True)
        self.opt = torch.optim.AdamW(self.net.parameters(), lr=cfg.lr, weight_decay=cfg.weight_decay)
        # lr follows the validation CER
        self.plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(self.opt, factor=0.5, patience=3)
        self.scaler = GradScaler(enabled=self.use_amp)
        self.out = pathlib.Path(cfg.out_dir)
        self.out.mkdir(parents=True, exist_ok=True)
        (self.out / 'config.yaml').write_text(yaml.safe_dump(dataclasses.asdict(cfg)))

    def loss(self, logits, widths, targets, target_lengths):
        # ctc in float32, the half version overflowed on long lines
        log_probs = logits.float().log_softmax(2)
        input_lengths = (widths // 4).to(self.device)
        target_lengths = target_lengths.to(self.device)
        return self.ctc(log_probs, targets, input_lengths, target_lengths)

    def train_epoch(self) -> tuple[float, float]:
        self.net.train()
        total, seen = 0.0, 0
        edits = chars = 0
        for i, (x, widths, y, y_len, texts) in enumerate(self.train_dl):
            x, y = x.to(self.device), y.to(self.device)
            with autocast(enabled=self.use_amp):
                logits = self.net(x)
            loss = self.loss(logits, widths, y, y_len)
            self.opt.zero_grad()
            self.scaler.scale(loss).backward()
            nn.utils.clip_grad_norm_(self.net.parameters(), self.cfg.clip)
            self.scaler.step(self.opt)
            self.scaler.update()

            total += loss.item() * len(texts)
            seen += len(texts)
            e, c, _ = error_rates(greedy_decode(logits, widths, self.cfg.alphabet), texts)
            edits += e
            chars += c
            if i % 100 == 0:
                log.info('  step %d/%d  ctc %.4f  train CER %.4f', i, len(self.train_dl), total / seen, edits / chars)
        return total / seen, edits / chars

    @torch.no_grad()
    def validate(self) -> tuple[float, float, float]:
        self.net.eval()
        losses = []
        edits = chars = wrong = n = 0
        for x, widths, y, y_len, texts in self.val_dl:
            x, y = x.to(self.device), y.to(self.device)
            logits = self.net(x)
            losses.append(self.loss(logits, widths, y, y_len).item())
            e, c, w = error_rates(greedy_decode(logits, widths, self.cfg.alphabet), texts)
            edits, chars, wrong, n = edits + e, chars + c, wrong + w, n + len(texts)
        return sum(losses) / len(losses), edits / chars, 1 - wrong / n

    def fit(self) -> None:
        best = float('inf')
        for epoch in range(self.cfg.epochs):
            t = time.perf_counter()
            loss, train_cer = self.train_epoch()
            val_loss, cer, exact = self.validate()
            self.plateau.step(cer)
            log.info('epoch %d  loss %.4f/%.4f  CER %.4f/%.4f  exact %.4f  %.1fs', epoch, loss, val_loss,
                     train_cer, cer, exact, time.perf_counter() - t)
            if cer < best:
                best = cer
                torch.save({'net': self.net.state_dict(), 'alphabet': self.cfg.alphabet, 'cer': cer},
                           self.out / 'best.pt')


if __name__ == '__main__':
    logging.basicConfig(level=logging.INFO, format='%(asctime)s %(message)s', datefmt='%H:%M:%S')
    Trainer(Config.load(sys.argv[1:])).fit()
