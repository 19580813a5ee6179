import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from data import UNK


class CharCNN(nn.Module):
    def __init__(self, n_chars, dim, out, dropout):
        super(CharCNN, self).__init__()
        self.emb = nn.Embedding(n_chars, dim, padding_idx=0)
        self.drop = nn.Dropout(dropout)
        self.conv = nn.Conv1d(dim, out, 3, padding=1)

    def forward(self, char):
        B, T, C = char.size()
        x = self.drop(self.emb(char.view(B * T, C)))
        x = F.relu(self.conv(x.transpose(1, 2)))
        return x.max(2)[0].view(B, T, -1)


class CRF(nn.Module):
    """Linear chain CRF over the tags 1..K-1 (0 is padding)."""

    def __init__(self, tag_names):
        super(CRF, self).__init__()
        self.names = tag_names
        self.K = len(tag_names)
        self.trans = nn.Parameter(torch.randn(self.K, self.K) * 0.01)  # [from, to]
        self.start = nn.Parameter(torch.zeros(self.K))

    def scores(self):
        bad = torch.zeros(self.K, self.K)
        for i, a in enumerate(self.names):
            for j, b in enumerate(self.names):
                # I-X only after B-X or I-X, nothing goes to <pad>
                if b.startswith("I-") and a not in ("B-" + b[2:], b):
                    bad[i, j] = -10000.
                if j == 0:
                    bad[i, j] = -10000.
        return self.trans + bad.to(self.trans.device)

    def log_z(self, emit, mask):
        trans = self.scores()
        alpha = self.start + emit[:, 0]
        for t in range(1, emit.size(1)):
            nxt = torch.logsumexp(alpha.unsqueeze(2) + trans + emit[:, t].unsqueeze(1), 1)
            m = mask[:, t].unsqueeze(1)
            alpha = m * nxt + (1 - m) * alpha
        return torch.logsumexp(alpha, 1)

    def path_score(self, emit, tag, mask):
        trans = self.scores()
        rows = torch.arange(emit.size(0)).to(emit.device)
        s = self.start[tag[:, 0]] + emit[rows, 0, tag[:, 0]]
        for t in range(1, emit.size(1)):
            step = trans[tag[:, t - 1], tag[:, t]] + emit[rows, t, tag[:, t]]
            s = s + step * mask[:, t]
        return s

    def nll(self, emit, tag, mask):
        return (self.log_z(emit, mask) - self.path_score(emit, tag, mask)).mean()

    def viterbi(self, emit, lengths):
        trans = self.scores()
        score = self.start + emit[:, 0]
        back, finals = [], [score]
        for t in range(1, emit.size(1)):
            best, ptr = (score.unsqueeze(2) + trans).max(1)
            score = best + emit[:, t]
            back.append(ptr)
            finals.append(score)
        paths = []
        for b, n in enumerate(lengths):
            k = finals[n - 1][b].argmax().item()
            path = [k]
            for t in range(n - 2, -1, -1):
                k = back[t][b, k].item()
                path.append(k)
            paths.append(path[::-1])
        return paths


class Tagger(nn.Module):
    def __init__(self, args, n_words, n_chars, tag_names):
        super(Tagger, self).__init__()
        self.word_drop = args.word_drop
        self.emb = nn.Embedding(n_words, args.word_dim, padding_idx=0)
        self.chars = CharCNN(n_chars, args.char_dim, args.char_out, args.dropout)
        self.drop = nn.Dropout(args.dropout)
        self.lstm = nn.LSTM(args.word_dim + args.char_out, args.hidden // 2, args.layers,
                            batch_first=True, bidirectional=True,
                            dropout=args.dropout if args.layers > 1 else 0)
        self.out = nn.Linear(args.hidden, len(tag_names))
        self.crf = CRF(tag_names)

    def emissions(self, word, char, lengths):
        if self.training and self.word_drop > 0:
            keep = torch.bernoulli(torch.full(word.size(), 1 - self.word_drop)).long().to(word.device)
            unk = (word > 0).long() * UNK
            word = word * keep + unk * (1 - keep)
        x = self.drop(torch.cat([self.emb(word), self.chars(char)], 2))
        packed = pack_padded_sequence(x, lengths, batch_first=True)
        h, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True)
        return self.out(self.drop(h))

    def forward(self, word, char, tag, mask, lengths):
        return self.crf.nll(self.emissions(word, char, lengths), tag, mask)

    def decode(self, word, char, lengths):
        return self.crf.viterbi(self.emissions(word, char, lengths), lengths)
