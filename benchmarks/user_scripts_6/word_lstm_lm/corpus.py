import random
import torch


class Dictionary(object):
    def __init__(self):
        self.word2idx = {}
        self.idx2word = []

    def add_word(self, w):
        if w not in self.word2idx:
            self.idx2word.append(w)
            self.word2idx[w] = len(self.idx2word) - 1
        return self.word2idx[w]

    def __len__(self):
        return len(self.idx2word)


NAMES = ['anna', 'bob', 'carla', 'dieter', 'emre', 'fatou']
VERBS = {'likes': ['tea', 'music', 'old books', 'the sea'], 'finds': ['a key', 'the map', 'some bread'],
         'sells': ['bread', 'old books', 'a boat', 'shoes'], 'fears': ['the dark', 'the sea', 'wolves']}
ADV = ['today', 'often', 'at night', 'in the old town', 'for no reason']


class Corpus(object):
    def __init__(self, n, seed):
        self.dictionary = Dictionary()
        self.dictionary.add_word('<eos>')
        rng = random.Random(seed)
        self.train = self.tokenize(self.generate(rng, n))
        self.valid = self.tokenize(self.generate(rng, n // 5))

    def generate(self, rng, n):
        for _ in range(n):
            v = rng.choice(sorted(VERBS))
            s = [rng.choice(NAMES), v, rng.choice(VERBS[v])]
            if rng.random() < 0.5:
                s.append(rng.choice(ADV))
            if rng.random() < 0.3:
                s += ['and', rng.choice(NAMES), 'knows']
            yield ' '.join(s)

    def tokenize(self, lines):
        ids = []
        for line in lines:
            for w in line.split() + ['<eos>']:
                ids.append(self.dictionary.add_word(w))
        return torch.LongTensor(ids)


def batchify(data, bsz, device):
    nbatch = data.size(0) // bsz
    data = data.narrow(0, 0, nbatch * bsz)
    return data.view(bsz, -1).t().contiguous().to(device)


def iter_starts(source, bptt):
    return range(0, source.size(0) - 1, bptt)


def get_batch(source, i, bptt):
    seq_len = min(bptt, len(source) - 1 - i)
    return source[i:i + seq_len], source[i + 1:i + 1 + seq_len].reshape(-1)
