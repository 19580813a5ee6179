import itertools

import torch

PAD_token = 0
SOS_token = 1
EOS_token = 2


class Voc:
    def __init__(self, name):
        self.name = name
        self.sym2index = {}
        self.index2sym = {PAD_token: '<pad>', SOS_token: '<s>', EOS_token: '</s>'}
        self.num = 3

    def add(self, seq):
        for s in seq:
            if s not in self.sym2index:
                self.sym2index[s] = self.num
                self.index2sym[self.num] = s
                self.num += 1

    def indexes(self, seq):
        return [self.sym2index[s] for s in seq if s in self.sym2index] + [EOS_token]


def zero_padding(l, fillvalue=PAD_token):
    return list(itertools.zip_longest(*l, fillvalue=fillvalue))


def binary_matrix(l, value=PAD_token):
    m = []
    for i, seq in enumerate(l):
        m.append([])
        for token in seq:
            m[i].append(0 if token == value else 1)
    return m


def batch2tensors(src_voc, tgt_voc, pairs):
    """-> src (S, B), lengths (B,), target (T, B), mask (T, B), max target length"""
    pairs = sorted(pairs, key=lambda p: len(p[0]), reverse=True)   # longest first, for packing
    src = [src_voc.indexes(p[0]) for p in pairs]
    lengths = torch.tensor([len(s) for s in src])
    src = torch.LongTensor(zero_padding(src))
    tgt = [tgt_voc.indexes(p[1]) for p in pairs]
    max_len = max(len(t) for t in tgt)
    tgt = zero_padding(tgt)
    mask = torch.BoolTensor(binary_matrix(tgt))
    return src, lengths, torch.LongTensor(tgt), mask, max_len
