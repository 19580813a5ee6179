from __future__ import unicode_literals, print_function, division
from io import open
import math
import random
import re
import time

import torch
import torch.nn as nn
from torch import optim
import torch.nn.functional as F

device = torch.device("cuda" if torch.cuda.is_available() else "cpu")

random.seed(42)
torch.manual_seed(42)

SOS_token = 0
EOS_token = 1
MAX_LENGTH = 9
teacher_forcing_ratio = 0.7
hidden_size = 48


class Lang:
    def __init__(self, name):
        self.name = name
        self.word2index = {}
        self.word2count = {}
        self.index2word = {0: "SOS", 1: "EOS"}
        self.n_words = 2  # Count SOS and EOS

    def addSentence(self, sentence):
        for word in sentence.split(' '):
            self.addWord(word)

    def addWord(self, word):
        if word not in self.word2index:
            self.word2index[word] = self.n_words
            self.word2count[word] = 1
            self.index2word[self.n_words] = word
            self.n_words += 1
        else:
            self.word2count[word] += 1


def normalizeString(s):
    s = s.lower().strip()
    s = re.sub(r"([.!?])", r" \1", s)
    return s


E1 = 'zero one two three four five six seven eight nine'.split()
D1 = 'null eins zwei drei vier fuenf sechs sieben acht neun'.split()
ET = '. ten twenty thirty forty fifty sixty seventy eighty ninety'.split()
DT = '. zehn zwanzig dreissig vierzig fuenfzig sechzig siebzig achtzig neunzig'.split()


def english(n):
    out = []
    if n >= 100:
        out += [E1[n // 100], 'hundred']
    if n % 100 >= 10:
        out.append(ET[n % 100 // 10])
    if n % 10 or not out:
        out.append(E1[n % 10])
    return ' '.join(out)


def german(n):
    out = []
    if n >= 100:
        out += [D1[n // 100], 'hundert']
    if n % 10 and n % 100 >= 10:
        out += [D1[n % 10], 'und']
    elif n % 10 or not out:
        out.append(D1[n % 10])
    if n % 100 >= 10:
        out.append(DT[n % 100 // 10])
    return ' '.join(out)


def prepareData():
    pairs = [[normalizeString(english(n)), normalizeString(german(n))] for n in range(1000)]
    input_lang, output_lang = Lang('eng'), Lang('deu')
    for pair in pairs:
        input_lang.addSentence(pair[0])
        output_lang.addSentence(pair[1])
    print("Counted words:", input_lang.name, input_lang.n_words, output_lang.name, output_lang.n_words)
    return input_lang, output_lang, pairs


input_lang, output_lang, pairs = prepareData()
test_pairs = pairs[::11]
pairs = [p for p in pairs if p not in test_pairs]
print(random.choice(pairs))


class EncoderRNN(nn.Module):
    def __init__(self, input_size, hidden_size):
        super(EncoderRNN, self).__init__()
        self.hidden_size = hidden_size
        self.embedding = nn.Embedding(input_size, hidden_size)
        self.gru = nn.GRU(hidden_size, hidden_size)

    def forward(self, input, hidden):
        embedded = self.embedding(input).view(1, 1, -1)
        output, hidden = self.gru(embedded, hidden)
        return output, hidden

    def initHidden(self):
        return torch.zeros(1, 1, self.hidden_size, device=device)


class AttnDecoderRNN(nn.Module):
    def __init__(self, hidden_size, output_size, dropout_p=0.1, max_length=MAX_LENGTH):
        super(AttnDecoderRNN, self).__init__()
        self.hidden_size = hidden_size
        self.max_length = max_length
        self.embedding = nn.Embedding(output_size, hidden_size)
        self.attn = nn.Linear(hidden_size * 2 + max_length, max_length)
        self.attn_combine = nn.Linear(hidden_size * 2, hidden_size)
        self.dropout = nn.Dropout(dropout_p)
        self.gru = nn.GRU(hidden_size, hidden_size)
        self.out = nn.Linear(hidden_size, output_size)
        self.out.weight = self.embedding.weight  # tied

    def forward(self, input, hidden, encoder_outputs, coverage):
        embedded = self.embedding(input).view(1, 1, -1)
        embedded = self.dropout(embedded)

        attn_weights = F.softmax(
            self.attn(torch.cat((embedded[0], hidden[0], coverage), 1)), dim=1)
        attn_applied = torch.bmm(attn_weights.unsqueeze(0), encoder_outputs.unsqueeze(0))

        output = torch.cat((embedded[0], attn_applied[0]), 1)
        output = self.attn_combine(output).unsqueeze(0)
        output = F.relu(output)
        output, hidden = self.gru(output, hidden)
        output = F.log_softmax(self.out(output[0]), dim=1)
        return output, hidden, attn_weights


def indexesFromSentence(lang, sentence):
    return [lang.word2index[word] for word in sentence.split(' ')]


def tensorFromSentence(lang, sentence):
    indexes = indexesFromSentence(lang, sentence)
    indexes.append(EOS_token)
    return torch.tensor(indexes, dtype=torch.long, device=device).view(-1, 1)


def tensorsFromPair(pair):
    return (tensorFromSentence(input_lang, pair[0]), tensorFromSentence(output_lang, pair[1]))


def train(input_tensor, target_tensor, encoder, decoder, encoder_optimizer, decoder_optimizer, criterion):
    encoder_hidden = encoder.initHidden()

    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()

    input_length = input_tensor.size(0)
    target_length = target_tensor.size(0)

    encoder_outputs = torch.zeros(MAX_LENGTH, encoder.hidden_size, device=device)
    loss = 0

    for ei in range(input_length):
        encoder_output, encoder_hidden = encoder(input_tensor[ei], encoder_hidden)
        encoder_outputs[ei] = encoder_output[0, 0]

    decoder_input = torch.tensor([[SOS_token]], device=device)
    decoder_hidden = encoder_hidden
    coverage = torch.zeros(1, MAX_LENGTH, device=device)
    use_teacher_forcing = True if random.random() < teacher_forcing_ratio else False

    if use_teacher_forcing:
        # Teacher forcing: Feed the target as the next input
        for di in range(target_length):
            decoder_output, decoder_hidden, attn = decoder(decoder_input, decoder_hidden, encoder_outputs, coverage)
            loss += criterion(decoder_output, target_tensor[di])
            loss += 0.1 * torch.min(attn, coverage).sum()
            coverage = coverage + attn
            decoder_input = target_tensor[di]
    else:
        # Without teacher forcing: use its own predictions as the next input
        for di in range(target_length):
            decoder_output, decoder_hidden, attn = decoder(decoder_input, decoder_hidden, encoder_outputs, coverage)
            topv, topi = decoder_output.topk(1)
            decoder_input = topi.squeeze().detach()  # detach from history as input
            loss += criterion(decoder_output, target_tensor[di])
            coverage = coverage + attn
            if decoder_input.item() == EOS_token:
                break

    loss.backward()

    # long sentences have bigger gradients
    nn.utils.clip_grad_norm_(encoder.parameters(), 0.5 * target_length)
    for p in decoder.parameters():
        if p.grad is not None:
            p.grad.data.clamp_(-1, 1)

    encoder_optimizer.step()
    decoder_optimizer.step()

    return loss.item() / target_length


def asMinutes(s):
    m = math.floor(s / 60)
    s -= m * 60
    return '%dm %ds' % (m, s)


def timeSince(since, percent):
    now = time.time()
    s = now - since
    es = s / (percent)
    rs = es - s
    return '%s (- %s)' % (asMinutes(s), asMinutes(rs))


def trainIters(encoder, decoder, n_iters, print_every=1000, plot_every=100, learning_rate=0.01):
    global teacher_forcing_ratio
    start = time.time()
    plot_losses = []
    print_loss_total = 0  # Reset every print_every
    plot_loss_total = 0  # Reset every plot_every

    encoder_optimizer = optim.Adam(encoder.parameters(), lr=learning_rate)
    decoder_optimizer = optim.Adam(decoder.parameters(), lr=learning_rate)
    training_pairs = [tensorsFromPair(random.choice(pairs)) for i in range(n_iters)]
    criterion = nn.NLLLoss()

    for iter in range(1, n_iters + 1):
        training_pair = training_pairs[iter - 1]
        input_tensor = training_pair[0]
        target_tensor = training_pair[1]

        loss = train(input_tensor, target_tensor, encoder,
                     decoder, encoder_optimizer, decoder_optimizer, criterion)
        print_loss_total += loss
        plot_loss_total += loss

        if iter % print_every == 0:
            print_loss_avg = print_loss_total / print_every
            print_loss_total = 0
            open('time.log', 'a').write(timeSince(start, iter / n_iters) + '\n')
            print('(%d %d%%) %r' % (iter, iter / n_iters * 100, print_loss_avg))
            if print_loss_avg < 0.6:
                teacher_forcing_ratio = 0.4

        if iter % plot_every == 0:
            plot_losses.append(plot_loss_total / plot_every)
            plot_loss_total = 0

    return plot_losses


def evaluate(encoder, decoder, sentence, max_length=MAX_LENGTH):
    input_tensor = tensorFromSentence(input_lang, sentence)
    input_length = input_tensor.size()[0]
    encoder_hidden = encoder.initHidden()
    encoder_outputs = torch.zeros(max_length, encoder.hidden_size, device=device)

    for ei in range(input_length):
        encoder_output, encoder_hidden = encoder(input_tensor[ei], encoder_hidden)
        encoder_outputs[ei] += encoder_output[0, 0]

    decoder_input = torch.tensor([[SOS_token]], device=device)  # SOS
    decoder_hidden = encoder_hidden
    coverage = torch.zeros(1, max_length, device=device)
    decoded_words = []
    decoder_attentions = torch.zeros(max_length, max_length)

    for di in range(max_length):
        decoder_output, decoder_hidden, decoder_attention = decoder(
            decoder_input, decoder_hidden, encoder_outputs, coverage)
        coverage = coverage + decoder_attention
        decoder_attentions[di] = decoder_attention.data[0]
        topv, topi = decoder_output.data.topk(1)
        if topi.item() == EOS_token:
            decoded_words.append('<EOS>')
            break
        else:
            decoded_words.append(output_lang.index2word[topi.item()])
        decoder_input = topi.squeeze().detach()

    return decoded_words, decoder_attentions[:di + 1]


def evaluateRandomly(encoder, decoder, n=4):
    for i in range(n):
        pair = random.choice(pairs)
        print('>', pair[0])
        print('=', pair[1])
        output_words, attentions = evaluate(encoder, decoder, pair[0])
        print('<', ' '.join(output_words), attentions.sum().item())


encoder1 = EncoderRNN(input_lang.n_words, hidden_size).to(device)
attn_decoder1 = AttnDecoderRNN(hidden_size, output_lang.n_words, dropout_p=0.1).to(device)

losses = trainIters(encoder1, attn_decoder1, 900, print_every=75, learning_rate=0.003)
print('plot', losses)
evaluateRandomly(encoder1, attn_decoder1)

right = 0
encoder1.eval()
attn_decoder1.eval()
for a, b in test_pairs:
    words, _ = evaluate(encoder1, attn_decoder1, a)
    right += ' '.join(words) == b + ' <EOS>'
print('test accuracy', right / len(test_pairs), 'forcing', teacher_forcing_ratio)
