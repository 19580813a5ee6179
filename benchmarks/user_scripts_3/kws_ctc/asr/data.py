import numpy as np
import torch
from torch.utils.data import Dataset, DataLoader, Sampler
from .features import LogMel, SpecAugment


class Digits(Dataset):
    """Künstliche Äußerungen: jede Ziffer ist ein Paar von Tönen (DTMF-artig) mit Rauschen."""
    def __init__(self, cfg, n, seed, train):
        rng = np.random.RandomState(seed)
        self.wavs, self.texts = [], []
        for _ in range(n):
            digits = rng.randint(0, 10, rng.randint(1, cfg.max_digits + 1))
            parts = []
            for d in digits:
                dur = rng.randint(900, 1500)
                t = np.arange(dur) / cfg.sample_rate
                f1, f2 = 300 + 170 * (d % 5), 1300 + 700 * (d // 5)
                parts.append(np.sin(6.2832 * f1 * t) + np.sin(6.2832 * f2 * t))
                parts.append(np.zeros(rng.randint(200, 500)))
            wav = np.concatenate(parts)
            self.wavs.append((wav * 0.3 + 0.15 * rng.randn(len(wav))).astype(np.float32))
            self.texts.append(digits)
        self.logmel = LogMel(cfg.sample_rate, cfg.n_fft, cfg.hop, cfg.n_mels)
        self.aug = SpecAugment(cfg.seed, **cfg.specaug) if train else None

    def __len__(self):
        return len(self.wavs)

    def __getitem__(self, i):
        feat = self.logmel(torch.from_numpy(self.wavs[i]))
        if self.aug is not None:
            feat = self.aug(feat)
        return feat, torch.tensor(self.texts[i] + 1)


class LengthSorted(Sampler):
    """Curriculum: kurze Äußerungen zuerst (SortaGrad), ab Epoche 1 zufällig."""
    def __init__(self, ds, seed):
        self.ds, self.rng, self.epoch = ds, np.random.RandomState(seed), 0

    def __len__(self):
        return len(self.ds)

    def __iter__(self):
        if self.epoch == 0:
            order = np.argsort([len(w) for w in self.ds.wavs], kind="stable")
        else:
            order = self.rng.permutation(len(self.ds))
        self.epoch += 1
        return iter(order.tolist())


def pad_collate(batch):
    xlen = torch.tensor([len(x) for x, _ in batch])
    ylen = torch.tensor([len(y) for _, y in batch])
    xs = torch.zeros(len(batch), int(xlen.max()), batch[0][0].shape[1])
    for i, (x, _) in enumerate(batch):
        xs[i, :len(x)] = x
    return xs, xlen, torch.cat([y for _, y in batch]), ylen


def loaders(cfg):
    tr, dev = Digits(cfg, cfg.n_train, 1, True), Digits(cfg, cfg.n_dev, 2, False)
    return (DataLoader(tr, cfg.batch_size, sampler=LengthSorted(tr, cfg.seed), collate_fn=pad_collate),
            DataLoader(dev, cfg.batch_size, collate_fn=pad_collate))
