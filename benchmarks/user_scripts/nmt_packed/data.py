import random

import torch
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import Dataset, Sampler

PAD, BOS, EOS = 0, 1, 2


class ReverseCopy(Dataset):
    """target = reversed source with every even token doubled"""

    def __init__(self, n, min_len, max_len, vocab, seed):
        r = random.Random(seed)
        self.pairs = []
        for _ in range(n):
            s = [r.randrange(3, vocab) for _ in range(r.randint(min_len, max_len))]
            t = []
            for w in reversed(s):
                t += [w, w] if w % 2 == 0 else [w]
            self.pairs.append((s, [BOS] + t + [EOS]))

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, i):
        s, t = self.pairs[i]
        return {'src': torch.LongTensor(s), 'trg': torch.LongTensor(t), 'id': i}


class CurriculumSampler(Sampler):
    """batches of similar length; longer sentences come in as `progress` grows.
    Keeps state between epochs (rng and progress)."""

    def __init__(self, data, batch, seed):
        self.lens = [len(s) for s, _ in data.pairs]
        self.batch, self.rng, self.progress = batch, random.Random(seed), 0.7

    def limit(self):
        return max(4, int(self.progress * max(self.lens)))

    def __iter__(self):
        idx = [i for i, l in enumerate(self.lens) if l <= self.limit()]
        self.rng.shuffle(idx)
        chunks = [idx[i:i + self.batch * 8] for i in range(0, len(idx), self.batch * 8)]
        for c in chunks:
            c.sort(key=lambda i: self.lens[i])
            for i in range(0, len(c), self.batch):
                yield c[i:i + self.batch]

    def __len__(self):
        n = sum(l <= self.limit() for l in self.lens)
        return (n + self.batch - 1) // self.batch


def collate(samples):
    samples = sorted(samples, key=lambda s: -len(s['src']))
    return {
        'net': {'src': pad_sequence([s['src'] for s in samples], batch_first=True, padding_value=PAD),
                'src_len': [len(s['src']) for s in samples]},
        'trg': pad_sequence([s['trg'] for s in samples], batch_first=True, padding_value=PAD),
        'meta': ([s['id'] for s in samples], 'batch'),
    }
