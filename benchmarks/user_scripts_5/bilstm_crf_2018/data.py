# -*- coding: utf-8 -*-
from __future__ import print_function

import random
import numpy as np

TAGS = ['O', 'B-PER', 'I-PER', 'B-LOC', 'I-LOC', 'B-NUM']
PAD = 0


def gen_corpus(n_sent, vocab=800, seed=1):
    """toy NER: the tag is a (noisy) function of word id and of the previous tag"""
    rng = random.Random(seed)
    corpus = []
    for _ in range(n_sent):
        L = rng.randint(5, 22)
        words, tags = [], []
        prev = 0
        for _ in range(L):
            w = rng.randint(1, vocab - 1)
            if prev in (1, 2) and w % 3 == 0:
                t = 2
            elif prev in (3, 4) and w % 3 == 0:
                t = 4
            elif w % 11 == 0:
                t = 1
            elif w % 13 == 0:
                t = 3
            elif w % 17 == 0:
                t = 5
            else:
                t = 0
            words.append(w)
            tags.append(t)
            prev = t
        corpus.append((words, tags))
    return corpus


class BatchIter(object):
    """sorts by length inside of a batch (pack_padded_sequence wants that)"""

    def __init__(self, corpus, batch_size, shuffle=True):
        self.corpus = corpus
        self.batch_size = batch_size
        self.shuffle = shuffle

    def __len__(self):
        return (len(self.corpus) + self.batch_size - 1) // self.batch_size

    def __iter__(self):
        idx = list(range(len(self.corpus)))
        if self.shuffle:
            random.shuffle(idx)
        for i in range(0, len(idx), self.batch_size):
            chunk = [self.corpus[j] for j in idx[i:i + self.batch_size]]
            chunk.sort(key=lambda x: -len(x[0]))
            lens = [len(x[0]) for x in chunk]
            words = np.full((len(chunk), lens[0]), PAD, dtype=np.int64)
            tags = np.zeros((len(chunk), lens[0]), dtype=np.int64)
            for k, (w, t) in enumerate(chunk):
                words[k, :len(w)] = w
                tags[k, :len(t)] = t
            yield words, tags, lens
