import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


def write_notes(count, config, seed):
    """Notes of 4 to 30 words; some tags are rare, some common; a tag makes its words likelier."""
    rng, world = np.random.default_rng(seed), np.random.default_rng(123)
    liked = world.integers(0, config.words, (config.tags, 40))
    rate = np.linspace(0.04, 0.45, config.tags)
    notes, tags = [], np.zeros((count, config.tags), np.float32)
    for i in range(count):
        tags[i] = rng.random(config.tags) < rate
        which = np.flatnonzero(tags[i])
        words = rng.integers(0, config.words, rng.integers(4, 31))
        for k in range(len(words)):
            if len(which) and rng.random() < 0.85:
                words[k] = liked[which[rng.integers(len(which))], rng.integers(40)]
        notes.append(words)
    return notes, tags


class Notes(Dataset):
    def __init__(self, notes, tags, idf, word_dropout=0.0):
        self.notes, self.tags, self.idf, self.word_dropout = notes, tags, idf, word_dropout

    def __len__(self):
        return len(self.notes)

    def __getitem__(self, i):
        words = self.notes[i]
        if self.word_dropout:
            kept = words[np.random.random(len(words)) >= self.word_dropout]
            words = kept if len(kept) else words[:1]
        return torch.from_numpy(words), torch.from_numpy(self.idf[words]), torch.from_numpy(self.tags[i])


def collate(batch):
    words, weights, tags = zip(*batch)
    lengths = torch.tensor([0] + [len(w) for w in words[:-1]])
    return torch.cat(words), lengths.cumsum(0), torch.cat(weights), torch.stack(tags)


def get_loaders(config):
    parts = [write_notes(n, config, seed) for n, seed in ((610, 1), (200, 2), (200, 3))]
    seen = np.zeros(config.words)
    for words in parts[0][0]:
        seen[np.unique(words)] += 1
    idf = np.log(len(parts[0][0]) / (1 + seen)).astype(np.float32)
    train = DataLoader(Notes(*parts[0], idf, config.word_dropout), config.batch_size, shuffle=True, collate_fn=collate)
    val, test = (DataLoader(Notes(*part, idf), config.batch_size, collate_fn=collate) for part in parts[1:])
    positive = torch.from_numpy(parts[0][1]).mean(0)
    return train, val, test, (1 - positive) / positive.clamp(min=1e-3)
