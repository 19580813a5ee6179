import torch
from torch.nn.utils.rnn import pad_sequence

PAD, MASK, FIRST, WORDS = 0, 1, 2, 26


def sentences(count, seed):
    generator = torch.Generator().manual_seed(seed)
    found = []
    for _ in range(count):
        length = int(torch.randint(8, 17, (), generator=generator))
        begin, stride = torch.randint(0, 24, (2,), generator=generator).tolist()
        noise = (torch.rand(length, generator=generator) < 0.1).long() * torch.randint(0, 24, (length,), generator=generator)
        found.append(FIRST + (begin + (1 + stride % 3) * torch.arange(length) + noise) % 24)
    return found


class Masker:
    """Pads a batch and hides some of its words, anew every time."""

    def __init__(self, share, generator=None):
        self.share, self.generator = share, generator

    def __call__(self, batch):
        words = pad_sequence(batch, batch_first=True, padding_value=PAD)
        draw = torch.rand(words.shape, generator=self.generator)
        chosen = (draw < self.share) & (words != PAD)
        kind = torch.rand(words.shape, generator=self.generator)
        others = torch.randint(FIRST, WORDS, words.shape, generator=self.generator)
        shown = torch.where(chosen & (kind < 0.8), torch.full_like(words, MASK), words)
        shown = torch.where(chosen & (kind > 0.9), others, shown)
        return shown, words, chosen
