# Practical PyTorch: Batched Seq2Seq with attention (numbers in words -> digits with units)
import math
import random
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
from torch import optim
from torch.autograd import Variable
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from masked_cross_entropy import masked_cross_entropy

USE_CUDA = torch.cuda.is_available()
PAD_token, SOS_token, EOS_token = 0, 1, 2

SMALL = len(sys.argv) > 1
n_iters = int(sys.argv[1]) if SMALL else 2000
hidden_size = 48 if SMALL else 500
batch_size = 16 if SMALL else 50
n_layers = 2
dropout = 0.1
clip = 50.0
learning_rate = 2e-3 if SMALL else 1e-4
decoder_learning_ratio = 5.0 if not SMALL else 1.0
teacher_forcing_ratio = 0.5
print_every = 10 if SMALL else 50
evaluate_every = 20 if SMALL else 500

random.seed(11)
torch.manual_seed(11)


# ---- Indexing words ---------------------------------------------------------
class Lang:
    def __init__(self, name):
        self.name = name
        self.word2index = {}
        self.word2count = {}
        self.index2word = {0: "PAD", 1: "SOS", 2: "EOS"}
        self.n_words = 3

    def index_words(self, sentence):
        for word in sentence.split(' '):
            if word not in self.word2index:
                self.word2index[word] = self.n_words
                self.word2count[word] = 1
                self.index2word[self.n_words] = word
                self.n_words += 1
            else:
                self.word2count[word] += 1


ONES = 'zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen ' \
       'sixteen seventeen eighteen nineteen'.split()
TENS = 'x x twenty thirty forty fifty sixty seventy eighty ninety'.split()
UNITS = {'metres': 'm', 'kilograms': 'kg', 'seconds': 's', 'litres': 'l'}


def spell(n):
    if n < 20:
        return ONES[n]
    if n < 100:
        return TENS[n // 10] + ('' if n % 10 == 0 else ' ' + ONES[n % 10])
    return ONES[n // 100] + ' hundred' + ('' if n % 100 == 0 else ' and ' + spell(n % 100))


def read_pairs(n=4000):
    rng = random.Random(5)
    out = []
    for _ in range(n):
        num = rng.randint(0, 999)
        unit = rng.choice(sorted(UNITS))
        out.append(('about ' * (rng.random() < 0.3) + spell(num) + ' ' + unit,
                    ' '.join(str(num)) + ' ' + UNITS[unit]))
    return out


def prepare_data():
    input_lang, output_lang = Lang('words'), Lang('digits')
    pairs = read_pairs()
    for a, b in pairs:
        input_lang.index_words(a)
        output_lang.index_words(b)
    return input_lang, output_lang, pairs


input_lang, output_lang, pairs = prepare_data()
print('Indexed %d words in input language, %d words in output' % (input_lang.n_words, output_lang.n_words))


# ---- Batches ----------------------------------------------------------------
def indexes_from_sentence(lang, sentence):
    return [lang.word2index[word] for word in sentence.split(' ')] + [EOS_token]


def pad_seq(seq, max_length):
    return seq + [PAD_token for i in range(max_length - len(seq))]


def random_batch(batch_size):
    input_seqs, target_seqs = [], []
    for i in range(batch_size):
        pair = random.choice(pairs)
        input_seqs.append(indexes_from_sentence(input_lang, pair[0]))
        target_seqs.append(indexes_from_sentence(output_lang, pair[1]))
    seq_pairs = sorted(zip(input_seqs, target_seqs), key=lambda p: len(p[0]), reverse=True)
    input_seqs, target_seqs = zip(*seq_pairs)
    input_lengths = [len(s) for s in input_seqs]
    input_padded = [pad_seq(s, max(input_lengths)) for s in input_seqs]
    target_lengths = [len(s) for s in target_seqs]
    target_padded = [pad_seq(s, max(target_lengths)) for s in target_seqs]
    input_var = Variable(torch.LongTensor(input_padded)).transpose(0, 1)
    target_var = Variable(torch.LongTensor(target_padded)).transpose(0, 1)
    if USE_CUDA:
        input_var = input_var.cuda()
        target_var = target_var.cuda()
    return input_var, input_lengths, target_var, target_lengths


# ---- The models -------------------------------------------------------------
class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size, n_layers=1, dropout=0.1):
        super(EncoderRNN, self).__init__()
        self.hidden_size = hidden_size
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size, n_layers, dropout=dropout, bidirectional=True)

    def forward(self, input_seqs, input_lengths, hidden=None):
        embedded = self.embedding(input_seqs)
        packed = pack_padded_sequence(embedded, input_lengths)
        outputs, hidden = self.gru(packed, hidden)
        outputs, output_lengths = pad_packed_sequence(outputs)
        outputs = outputs[:, :, :self.hidden_size] + outputs[:, :, self.hidden_size:]
        return outputs, hidden


class Attn(nn.Module):
    def __init__(self, hidden_size):
        super(Attn, self).__init__()
        self.hidden_size = hidden_size
        self.attn = nn.Linear(hidden_size, hidden_size)

    def forward(self, hidden, encoder_outputs):
        max_len = encoder_outputs.size(0)
        this_batch_size = encoder_outputs.size(1)
        attn_energies = Variable(torch.zeros(this_batch_size, max_len))
        if USE_CUDA:
            attn_energies = attn_energies.cuda()
        for b in range(this_batch_size):
            for i in range(max_len):
                attn_energies[b, i] = self.score(hidden[0, b], encoder_outputs[i, b])
        return F.softmax(attn_energies, dim=1).unsqueeze(1)

    def score(self, hidden, encoder_output):
        energy = self.attn(encoder_output)
        return hidden.dot(energy)


class LuongAttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size, n_layers=1, dropout=0.1):
        super(LuongAttnDecoderRNN, self).__init__()
        self.n_layers = n_layers
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.embedding_dropout = nn.Dropout(dropout)
        self.gru = nn.GRU(hidden_size, hidden_size, n_layers, dropout=dropout)
        self.concat = nn.Linear(hidden_size * 2, hidden_size)
        self.out = nn.Linear(hidden_size, output_size)
        self.attn = Attn(hidden_size)

    def forward(self, input_seq, last_hidden, encoder_outputs):
        batch_size = input_seq.size(0)
        embedded = self.embedding_dropout(self.embedding(input_seq))
        embedded = embedded.view(1, batch_size, -1)
        rnn_output, hidden = self.gru(embedded, last_hidden)
        attn_weights = self.attn(rnn_output, encoder_outputs)
        context = attn_weights.bmm(encoder_outputs.transpose(0, 1))
        concat_output = torch.tanh(self.concat(torch.cat((rnn_output.squeeze(0), context.squeeze(1)), 1)))
        output = self.out(concat_output)
        return output, hidden, attn_weights


# ---- Training ---------------------------------------------------------------
def train(input_batches, input_lengths, target_batches, target_lengths,
          encoder, decoder, encoder_optimizer, decoder_optimizer):
    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()

    encoder_outputs, encoder_hidden = encoder(input_batches, input_lengths, None)

    decoder_input = Variable(torch.LongTensor([SOS_token] * batch_size))
    decoder_hidden = encoder_hidden[:decoder.n_layers]
    max_target_length = max(target_lengths)
    all_decoder_outputs = Variable(torch.zeros(max_target_length, batch_size, decoder.out.out_features))
    if USE_CUDA:
        decoder_input = decoder_input.cuda()
        all_decoder_outputs = all_decoder_outputs.cuda()

    use_teacher_forcing = random.random() < teacher_forcing_ratio
    for t in range(max_target_length):
        decoder_output, decoder_hidden, _ = decoder(decoder_input, decoder_hidden, encoder_outputs)
        all_decoder_outputs[t] = decoder_output
        if use_teacher_forcing:
            decoder_input = target_batches[t]
        else:
            topv, topi = decoder_output.data.topk(1)
            decoder_input = topi.squeeze(1)

    loss = masked_cross_entropy(all_decoder_outputs.transpose(0, 1).contiguous(),
                                target_batches.transpose(0, 1).contiguous(), target_lengths)
    loss.backward()
    ec = torch.nn.utils.clip_grad_norm_(encoder.parameters(), clip)
    dc = torch.nn.utils.clip_grad_norm_(decoder.parameters(), clip)
    encoder_optimizer.step()
    decoder_optimizer.step()
    return loss.item(), ec.item(), dc.item()


def evaluate(encoder, decoder, sentence, max_length=12):
    input_seqs = Variable(torch.LongTensor([indexes_from_sentence(input_lang, sentence)])).transpose(0, 1)
    if USE_CUDA:
        input_seqs = input_seqs.cuda()
    encoder.train(False)
    decoder.train(False)
    encoder_outputs, encoder_hidden = encoder(input_seqs, [input_seqs.size(0)], None)
    decoder_input = Variable(torch.LongTensor([SOS_token]))
    if USE_CUDA:
        decoder_input = decoder_input.cuda()
    decoder_hidden = encoder_hidden[:decoder.n_layers]
    decoded_words = []
    for di in range(max_length):
        decoder_output, decoder_hidden, _ = decoder(decoder_input, decoder_hidden, encoder_outputs)
        topv, topi = decoder_output.data.topk(1)
        ni = topi[0][0].item()
        if ni == EOS_token:
            break
        decoded_words.append(output_lang.index2word[ni])
        decoder_input = Variable(torch.LongTensor([ni]))
        if USE_CUDA:
            decoder_input = decoder_input.cuda()
    encoder.train(True)
    decoder.train(True)
    return ' '.join(decoded_words)


encoder = EncoderRNN(input_lang.n_words, hidden_size, n_layers, dropout=dropout)
decoder = LuongAttnDecoderRNN(hidden_size, output_lang.n_words, n_layers, dropout=dropout)
if USE_CUDA:
    encoder.cuda()
    decoder.cuda()
encoder_optimizer = optim.Adam(encoder.parameters(), lr=learning_rate)
decoder_optimizer = optim.Adam(decoder.parameters(), lr=learning_rate * decoder_learning_ratio)

start = time.time()
print_loss_total, ecs, dcs = 0, 0, 0
for it in range(1, n_iters + 1):
    batch = random_batch(batch_size)
    loss, ec, dc = train(*batch, encoder, decoder, encoder_optimizer, decoder_optimizer)
    print_loss_total += loss
    ecs += ec
    dcs += dc
    if it % print_every == 0:
        print('iter %d (%d%%)  loss %.4f  grad %.3f %.3f' % (
            it, 100 * it / n_iters, print_loss_total / print_every, ecs / print_every, dcs / print_every))
        print_loss_total, ecs, dcs = 0, 0, 0
    if it % evaluate_every == 0:
        src, ref = random.choice(pairs)
        print('  > %s\n  = %s\n  < %s' % (src, ref, evaluate(encoder, decoder, src)))
print('time %dm %ds' % (math.floor((time.time() - start) / 60), (time.time() - start) % 60))
