# -*- coding: utf-8 -*-
# char-CNN + BiLSTM + CRF for named entities, everything in one file.
# python ner.py --gpu 0
import argparse
import os
import random
import sys
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

parser = argparse.ArgumentParser(description='BiLSTM-CRF tagger')
parser.add_argument('--data', default='data', help='folder of train.bio / dev.bio, made when missing')
parser.add_argument('--n_train', type=int, default=15000)
parser.add_argument('--n_dev', type=int, default=3000)
parser.add_argument('--max_len', type=int, default=40)
parser.add_argument('--word_dim', type=int, default=100)
parser.add_argument('--char_dim', type=int, default=30)
parser.add_argument('--char_hidden', type=int, default=50)
parser.add_argument('--hidden', type=int, default=200)
parser.add_argument('--dropout', type=float, default=0.5)
parser.add_argument('--batch_size', type=int, default=32)
parser.add_argument('--iteration', type=int, default=50)
parser.add_argument('--lr', type=float, default=0.015)
parser.add_argument('--lr_decay', type=float, default=0.05)
parser.add_argument('--clip', type=float, default=5.0)
parser.add_argument('--report', type=int, default=100)
parser.add_argument('--seed', type=int, default=42)
args = parser.parse_args()

random.seed(args.seed)
np.random.seed(args.seed)
torch.manual_seed(args.seed)
use_cuda = torch.cuda.is_available()
device = torch.device('cuda' if use_cuda else 'cpu')

START_TAG, STOP_TAG, PAD = '<start>', '<stop>', '<pad>'
TYPES = ['PER', 'LOC', 'ORG', 'MISC']


# ------------------------------------------------------------------ data
def syllables(rng, n):
    return ''.join(rng.choice('bcdfghklmnprstvz') + rng.choice('aeiou') for _ in range(n))


def entity(rng, kind):
    a = syllables(rng, rng.randint(1, 2))
    if kind == 'PER':
        return [syllables(rng, 2).capitalize(), (a + rng.choice(['son', 'ov', 'ez'])).capitalize()][rng.randint(0, 1):]
    if kind == 'LOC':
        name = [(a + rng.choice(['burg', 'ville', 'land', 'shire'])).capitalize()]
        return (['New'] if rng.random() < 0.2 else []) + name
    if kind == 'ORG':
        return [syllables(rng, 2).capitalize(), rng.choice(['Inc', 'Ltd', 'Bank', 'United'])]
    return [(a + rng.choice(['ian', 'ese', 'ish'])).capitalize()]


def make_file(path, n, seed, max_len):
    rng = random.Random(seed)
    common = 'the of in and to a was said on for with at by from after that is will has its'.split()
    rare = [syllables(random.Random(i), 3) for i in range(5000)]
    with open(path, 'w') as f:
        for _ in range(n):
            length = rng.randint(5, max_len)
            sent = []
            while len(sent) < length:
                if rng.random() < 0.15:
                    kind = rng.choice(TYPES)
                    words = entity(rng, kind)
                    if len(words) == 1:
                        sent.append((words[0], 'S-' + kind))
                    else:
                        tags = ['B-'] + ['I-'] * (len(words) - 2) + ['E-']
                        sent += [(w, t + kind) for w, t in zip(words, tags)]
                else:
                    w = rng.choice(common) if rng.random() < 0.6 else rng.choice(rare)
                    sent.append((w.capitalize() if not sent or rng.random() < 0.03 else w, 'O'))
            for w, t in sent:
                f.write(w + ' ' + t + '\n')
            f.write('\n')


def read_file(path):
    sents, cur = [], []
    for line in open(path):
        line = line.strip()
        if line:
            cur.append(line.split())
        elif cur:
            sents.append(cur)
            cur = []
    return sents


class Alphabet:
    def __init__(self, items):
        self.itos = [PAD, '<unk>'] + items
        self.stoi = dict((s, i) for i, s in enumerate(self.itos))

    def get(self, s):
        return self.stoi.get(s, 1)

    def __len__(self):
        return len(self.itos)


def to_ids(sents, words, chars, tags):
    out = []
    for s in sents:
        out.append([[words.get(w.lower()) for w, _ in s], [[chars.get(c) for c in w] for w, _ in s],
                    [tags[t] for _, t in s]])
    return out


def batchify(input_batch_list):
    """pad, sort by length; returns everything on the device"""
    batch_size = len(input_batch_list)
    words = [sent[0] for sent in input_batch_list]
    chars = [sent[1] for sent in input_batch_list]
    labels = [sent[2] for sent in input_batch_list]
    seq_lengths = torch.LongTensor([len(w) for w in words])
    max_seq_len = int(seq_lengths.max())
    word_tensor = torch.zeros((batch_size, max_seq_len)).long()
    label_tensor = torch.zeros((batch_size, max_seq_len)).long()
    mask = torch.zeros((batch_size, max_seq_len)).bool()
    for idx, (seq, label, seqlen) in enumerate(zip(words, labels, seq_lengths)):
        word_tensor[idx, :seqlen] = torch.LongTensor(seq)
        label_tensor[idx, :seqlen] = torch.LongTensor(label)
        mask[idx, :seqlen] = 1
    seq_lengths, perm = seq_lengths.sort(0, descending=True)

    # chars
    max_word_len = max(max(len(c) for c in sent) for sent in chars)
    char_tensor = torch.zeros((batch_size, max_seq_len, max_word_len)).long()
    for idx, sent in enumerate(chars):
        for idy, word in enumerate(sent):
            char_tensor[idx, idy, :len(word)] = torch.LongTensor(word)

    word_tensor = word_tensor[perm].to(device)
    label_tensor = label_tensor[perm].to(device)
    mask = mask[perm].to(device)
    char_tensor = char_tensor[perm].to(device)
    return word_tensor, char_tensor, seq_lengths, label_tensor, mask, perm


# ------------------------------------------------------------------ model
def log_sum_exp(vec):
    """(batch, n) -> (batch,)"""
    max_score = vec.max(1)[0]
    return max_score + torch.log(torch.sum(torch.exp(vec - max_score.unsqueeze(1)), 1))


class CRF(nn.Module):
    def __init__(self, tagset_size, start, stop):
        super(CRF, self).__init__()
        self.tagset_size = tagset_size
        self.start, self.stop = start, stop
        # entry i,j: score of going to i from j
        self.transitions = nn.Parameter(torch.randn(tagset_size, tagset_size) * 0.1)
        self.transitions.data[start, :] = -10000
        self.transitions.data[:, stop] = -10000

    def _forward_alg(self, feats, mask):
        batch_size, seq_len, _ = feats.size()
        init_alphas = torch.full((batch_size, self.tagset_size), -10000.)
        init_alphas[:, self.start] = 0.
        forward_var = init_alphas.to(feats.device)
        for t in range(seq_len):
            alphas_t = []  # the forward tensors at this timestep
            for next_tag in range(self.tagset_size):
                emit_score = feats[:, t, next_tag].view(-1, 1).expand(batch_size, self.tagset_size)
                trans_score = self.transitions[next_tag].view(1, -1)
                next_tag_var = forward_var + trans_score + emit_score
                alphas_t.append(log_sum_exp(next_tag_var))
            new_var = torch.stack(alphas_t, 1)
            forward_var = torch.where(mask[:, t].unsqueeze(1), new_var, forward_var)
        return log_sum_exp(forward_var + self.transitions[self.stop])

    def _score_sentence(self, feats, tags, mask):
        batch_size, seq_len, _ = feats.size()
        score = torch.zeros(batch_size).to(feats.device)
        prev = torch.LongTensor([self.start] * batch_size).to(feats.device)
        for t in range(seq_len):
            emit = feats[:, t, :].gather(1, tags[:, t].unsqueeze(1)).squeeze(1)
            trans = self.transitions[tags[:, t], prev]
            score = score + (emit + trans) * mask[:, t].float()
            prev = torch.where(mask[:, t], tags[:, t], prev)
        return score + self.transitions[self.stop, prev]

    def neg_log_likelihood(self, feats, tags, mask):
        return (self._forward_alg(feats, mask) - self._score_sentence(feats, tags, mask)).sum()

    def viterbi_decode(self, feats):
        """one sentence, (len, tags) -> list of tags"""
        backpointers = []
        init_vvars = torch.full((self.tagset_size,), -10000.).to(feats.device)
        init_vvars[self.start] = 0
        forward_var = init_vvars
        for feat in feats:
            best, bptrs = (forward_var.unsqueeze(0) + self.transitions).max(1)
            forward_var = best + feat
            backpointers.append(bptrs.tolist())
        best_tag = (forward_var + self.transitions[self.stop]).argmax().item()
        path = [best_tag]
        for bptrs_t in reversed(backpointers):
            best_tag = bptrs_t[best_tag]
            path.append(best_tag)
        path.pop()  # start
        path.reverse()
        return path


class BiLSTM_CRF(nn.Module):
    def __init__(self, n_words, n_chars, tags):
        super(BiLSTM_CRF, self).__init__()
        self.word_emb = nn.Embedding(n_words, args.word_dim, padding_idx=0)
        self.char_emb = nn.Embedding(n_chars, args.char_dim, padding_idx=0)
        self.char_cnn = nn.Conv1d(args.char_dim, args.char_hidden, kernel_size=3, padding=1)
        self.lstm = nn.LSTM(args.word_dim + args.char_hidden, args.hidden // 2, num_layers=1,
                            batch_first=True, bidirectional=True)
        self.drop = nn.Dropout(args.dropout)
        self.hidden2tag = nn.Linear(args.hidden, len(tags))
        self.crf = CRF(len(tags), tags[START_TAG], tags[STOP_TAG])

    def get_features(self, words, chars, lengths):
        b, w, c = chars.size()
        char_feat = self.char_emb(chars.view(b * w, c)).transpose(2, 1)
        char_feat = torch.tanh(self.char_cnn(char_feat)).max(2)[0].view(b, w, -1)
        x = self.drop(torch.cat([self.word_emb(words), char_feat], 2))
        packed = pack_padded_sequence(x, lengths.cpu().numpy(), batch_first=True)
        out, _ = self.lstm(packed)
        out, _ = pad_packed_sequence(out, batch_first=True)
        return self.hidden2tag(self.drop(out))

    def loss(self, words, chars, lengths, labels, mask):
        feats = self.get_features(words, chars, lengths)
        return self.crf.neg_log_likelihood(feats, labels, mask), feats.max(2)[1]

    def decode(self, words, chars, lengths, mask):
        feats = self.get_features(words, chars, lengths)
        return [self.crf.viterbi_decode(feats[i, :int(mask[i].sum())]) for i in range(feats.size(0))]


# ------------------------------------------------------------------ scores
def spans(tags):
    out, start = set(), None
    for i, t in enumerate(tags):
        if t[0] == 'S':
            out.add((i, i, t[2:]))
        elif t[0] == 'B':
            start = i
        elif t[0] == 'E' and start is not None:
            out.add((start, i, t[2:]))
            start = None
    return out


def predict_check(pred, gold, mask):
    pred = pred.cpu().data.numpy()
    gold = gold.cpu().data.numpy()
    mask = mask.cpu().data.numpy()
    return np.sum((pred == gold) * mask), mask.sum()


def evaluate(data, model, tag_names):
    model.eval()
    n_pred = n_gold = n_hit = 0
    for start in range(0, len(data), args.batch_size):
        instance = data[start:start + args.batch_size]
        words, chars, lengths, labels, mask, _ = batchify(instance)
        pred = model.decode(words, chars, lengths, mask)
        for i in range(len(instance)):
            gold = [tag_names[int(labels[i, j])] for j in range(int(lengths[i]))]
            p, g = spans([tag_names[k] for k in pred[i]]), spans(gold)
            n_pred += len(p)
            n_gold += len(g)
            n_hit += len(p & g)
    prec, rec = n_hit / max(1, n_pred), n_hit / max(1, n_gold)
    return prec, rec, 2 * prec * rec / max(1e-9, prec + rec)


def lr_decay(optimizer, epoch):
    lr = args.lr / (1 + args.lr_decay * epoch)
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr
    print(' Learning rate is set as: %.5f' % lr)


def main():
    if not os.path.exists(os.path.join(args.data, 'train.bio')):
        os.makedirs(args.data, exist_ok=True)
        make_file(os.path.join(args.data, 'train.bio'), args.n_train, 1, args.max_len)
        make_file(os.path.join(args.data, 'dev.bio'), args.n_dev, 2, args.max_len)
    train_sents = read_file(os.path.join(args.data, 'train.bio'))
    dev_sents = read_file(os.path.join(args.data, 'dev.bio'))

    count = {}
    for s in train_sents:
        for w, _ in s:
            count[w.lower()] = count.get(w.lower(), 0) + 1
    words = Alphabet(sorted(w for w, c in count.items() if c > 1))
    chars = Alphabet(sorted(set(c for s in train_sents for w, _ in s for c in w)))
    tag_names = ['O'] + [p + '-' + t for t in TYPES for p in 'BIES'] + [START_TAG, STOP_TAG]
    tags = dict((t, i) for i, t in enumerate(tag_names))
    train_ids = to_ids(train_sents, words, chars, tags)
    dev_ids = to_ids(dev_sents, words, chars, tags)
    print('sentences %d/%d, words %d, chars %d, tags %d' % (len(train_ids), len(dev_ids), len(words), len(chars),
                                                           len(tags)))

    model = BiLSTM_CRF(len(words), len(chars), tags).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=args.lr, momentum=0.9)
    best_f = -1
    for epoch in range(args.iteration):
        print('Epoch: %s/%s' % (epoch, args.iteration))
        lr_decay(optimizer, epoch)
        epoch_start = time.time()
        random.shuffle(train_ids)
        model.train()
        model.zero_grad()
        sample_loss, total_loss, right, whole = 0, 0, 0, 0
        total_batch = len(train_ids) // args.batch_size + 1
        for batch_id in range(total_batch):
            instance = train_ids[batch_id * args.batch_size:(batch_id + 1) * args.batch_size]
            if not instance:
                continue
            word, char, lengths, label, mask, _ = batchify(instance)
            loss, tag_seq = model.loss(word, char, lengths, label, mask)
            r, w = predict_check(tag_seq, label, mask)
            right += r
            whole += w
            sample_loss += loss.item()
            total_loss += loss.item()
            (loss / len(instance)).backward()
            nn.utils.clip_grad_norm_(model.parameters(), args.clip)
            optimizer.step()
            model.zero_grad()
            if (batch_id + 1) % args.report == 0:
                print('     Instance: %s; loss: %.4f; emission acc: %.4f' % (
                    (batch_id + 1) * args.batch_size, sample_loss, right / float(whole)))
                sys.stdout.flush()
                if sample_loss > 1e8 or str(sample_loss) == 'nan':
                    print('ERROR: LOSS EXPLOSION (>1e8) ! PLEASE SET PROPER PARAMETERS AND STRUCTURE! EXIT....')
                    sys.exit(1)
                sample_loss = 0
        print('Epoch: %s training finished. Time: %.2fs, total loss: %.4f' % (
            epoch, time.time() - epoch_start, total_loss))
        p, r, f = evaluate(dev_ids, model, tag_names)
        print('Dev: p: %.4f, r: %.4f, f: %.4f' % (p, r, f))
        if f > best_f:
            best_f = f
            torch.save(model.state_dict(), 'best_ner.model')
    print('Best dev f: %.4f' % best_f)


if __name__ == '__main__':
    main()
