# -*- coding: utf-8 -*-
import torch
import torch.nn as nn
from torch.autograd import Variable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


class CRF(nn.Module):
    def __init__(self, n_tags, use_cuda=False):
        super(CRF, self).__init__()
        self.n_tags = n_tags
        self.use_cuda = use_cuda
        self.trans = nn.Parameter(torch.randn(n_tags, n_tags) * 0.1)
        self.start = nn.Parameter(torch.zeros(n_tags))

    def log_partition(self, feats, mask):
        # feats: B x T x K
        alpha = self.start + feats[:, 0]
        for t in range(1, feats.size(1)):
            s = alpha.unsqueeze(2) + self.trans.unsqueeze(0) + feats[:, t].unsqueeze(1)
            new = torch.logsumexp(s, 1)
            m = mask[:, t].unsqueeze(1)
            alpha = m * new + (1 - m) * alpha
        return torch.logsumexp(alpha, 1)

    def gold_score(self, feats, tags, mask):
        B, T, K = feats.size()
        score = Variable(torch.zeros(B))
        if self.use_cuda:
            score = score.cuda()
        score = score + self.start[tags[:, 0]]
        score = score + feats[:, 0].gather(1, tags[:, 0:1]).squeeze(1)
        for t in range(1, T):
            emit = feats[:, t].gather(1, tags[:, t].unsqueeze(1)).squeeze(1)
            tr = self.trans[tags[:, t - 1], tags[:, t]]
            score = score + (emit + tr) * mask[:, t]
        return score

    def viterbi(self, feats, length):
        """one sentence. feats: T x K"""
        back = []
        v = self.start + feats[0]
        for t in range(1, length):
            s = v.unsqueeze(1) + self.trans
            best, ptr = s.max(0)
            v = best + feats[t]
            back.append(ptr)
        last = v.max(0)[1].item()
        path = [last]
        for ptr in reversed(back):
            last = ptr[last].item()
            path.append(last)
        path.reverse()
        return path


class BiLSTM_CRF(nn.Module):
    def __init__(self, vocab, emb, hid, n_tags, use_cuda=False):
        super(BiLSTM_CRF, self).__init__()
        self.embed = nn.Embedding(vocab, emb, padding_idx=0)
        self.drop = nn.Dropout(0.3)
        self.lstm = nn.LSTM(emb, hid // 2, num_layers=1, bidirectional=True, batch_first=True)
        self.out = nn.Linear(hid, n_tags)
        self.crf = CRF(n_tags, use_cuda)

    def features(self, words, lens):
        x = self.drop(self.embed(words))
        packed = pack_padded_sequence(x, lens, batch_first=True)
        h, _ = self.lstm(packed)
        h, _ = pad_packed_sequence(h, batch_first=True)
        return self.out(self.drop(h))

    def neg_log_lik(self, words, tags, lens, mask):
        feats = self.features(words, lens)
        return (self.crf.log_partition(feats, mask) - self.crf.gold_score(feats, tags, mask)).mean()

    def decode(self, words, lens):
        feats = self.features(words, lens)
        return [self.crf.viterbi(feats[i], lens[i]) for i in range(len(lens))]
