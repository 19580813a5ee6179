import os
import random
import torch


class Dictionary(object):
    def __init__(self):
        self.word2idx = {}
        self.idx2word = []

    def add_word(self, word):
        if word not in self.word2idx:
            self.idx2word.append(word)
            self.word2idx[word] = len(self.idx2word) - 1
        return self.word2idx[word]

    def __len__(self):
        return len(self.idx2word)


class Corpus(object):
    """Toy corpus: a second order markov chain over a small vocabulary."""

    def __init__(self, nwords=400, ntrain=30000, nvalid=3000, ntest=3000, seed=11):
        self.dictionary = Dictionary()
        rng = random.Random(seed)
        for i in range(nwords):
            self.dictionary.add_word('w%d' % i)
        self.successors = {}
        self.nwords = nwords
        self.train = self.tokenize(rng, ntrain)
        self.valid = self.tokenize(rng, nvalid)
        self.test = self.tokenize(rng, ntest)

    def tokenize(self, rng, n):
        ids = torch.LongTensor(n)
        prev = 0
        for i in range(n):
            if prev not in self.successors:
                self.successors[prev] = [rng.randrange(self.nwords) for _ in range(4)]
            word = rng.choice(self.successors[prev])
            ids[i] = word
            prev = word
        return ids
