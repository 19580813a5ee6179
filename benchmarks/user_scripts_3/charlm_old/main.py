# Character language model with an LSTM. Ported from my lua code in 2016, kept alive since.
# usage: python main.py [-cuda] [-nhid 96] ...
from __future__ import print_function, division
import argparse, math, time, sys
import numpy as np
import torch
import torch.nn as nn
from torch.autograd import Variable

parser = argparse.ArgumentParser()
parser.add_argument('-data', type=str, default='', help='text file; empty = generate one')
parser.add_argument('-emsize', type=int, default=48)
parser.add_argument('-nhid', type=int, default=96)
parser.add_argument('-bptt', type=int, default=32)
parser.add_argument('-batch', type=int, default=16)
parser.add_argument('-epochs', type=int, default=3)
parser.add_argument('-lr', type=float, default=4.0)
parser.add_argument('-clip', type=float, default=0.25)
parser.add_argument('-dropout', type=float, default=0.1)
parser.add_argument('-seed', type=int, default=1111)
parser.add_argument('-log', type=int, default=20)
parser.add_argument('-save', type=str, default='model.t7')
opt = parser.parse_args()

torch.manual_seed(opt.seed)
np.random.seed(opt.seed)
use_cuda = torch.cuda.is_available()
if use_cuda:
	torch.cuda.manual_seed_all(opt.seed)

###############################################################################
# data
###############################################################################

def fake_text(n):
	subj = ['the cat', 'a dog', 'my uncle', 'the old ship', 'nobody', 'our teacher']
	verb = ['sees', 'eats', 'likes', 'breaks', 'finds', 'never had']
	obj = ['a red fish', 'the moon', 'some bread', 'seven keys', 'it', 'the garden gate']
	out = []
	while sum(len(s) for s in out[-200:]) * max(1, len(out) // 200) < n:
		out.append('%s %s %s. ' % (subj[np.random.randint(6)], verb[np.random.randint(6)], obj[np.random.randint(6)]))
	return ''.join(out)

text = open(opt.data).read() if opt.data else fake_text(60000)
chars = sorted(set(text))
char2id = dict((c, i) for i, c in enumerate(chars))
ids = torch.LongTensor(len(text))
for i, c in enumerate(text):
	ids[i] = char2id[c]
ntokens = len(chars)

def batchify(x, bsz):
	n = x.size(0) // bsz
	x = x.narrow(0, 0, n * bsz).view(bsz, -1).t().contiguous()
	return x

ntrain = int(ids.size(0) * 0.9)
train_data = batchify(ids[:ntrain], opt.batch)
valid_data = batchify(ids[ntrain:], 4)

def get_batch(source, i, evaluation=False):
	seq_len = min(opt.bptt, source.size(0) - 1 - i)
	data = Variable(source[i:i + seq_len])
	target = Variable(source[i + 1:i + 1 + seq_len].view(-1))
	if use_cuda:
		data, target = data.cuda(), target.cuda()
	return data, target

###############################################################################
# model
###############################################################################

class RNNModel(nn.Module):
	def __init__(self, ntoken, ninp, nhid, dropout):
		super(RNNModel, self).__init__()
		self.drop = nn.Dropout(dropout)
		self.encoder = nn.Embedding(ntoken, ninp)
		self.rnn = nn.LSTM(ninp, nhid, 1)
		self.proj = nn.Linear(nhid, ninp)
		self.decoder = nn.Linear(ninp, ntoken)
		self.decoder.weight = self.encoder.weight		# tied
		self.nhid = nhid
		self.encoder.weight.data.uniform_(-0.1, 0.1)
		self.decoder.bias.data.fill_(0)

	def forward(self, input, hidden):
		emb = self.drop(self.encoder(input))
		output, hidden = self.rnn(emb, hidden)
		output = self.proj(self.drop(output))
		decoded = self.decoder(output.view(output.size(0) * output.size(1), output.size(2)))
		return decoded, hidden

	def init_hidden(self, bsz):
		weight = next(self.parameters()).data
		return (Variable(weight.new(1, bsz, self.nhid).zero_()),
				Variable(weight.new(1, bsz, self.nhid).zero_()))

model = RNNModel(ntokens, opt.emsize, opt.nhid, opt.dropout)
if use_cuda:
	model.cuda()
criterion = nn.CrossEntropyLoss()
print('%d chars, %d symbols, %d parameters' % (len(text), ntokens, sum(p.nelement() for p in model.parameters())))

def repackage_hidden(h):
	if isinstance(h, torch.Tensor):
		return Variable(h.data)
	return tuple(repackage_hidden(v) for v in h)

def evaluate(source):
	model.eval()
	total = 0
	hidden = model.init_hidden(source.size(1))
	for i in range(0, source.size(0) - 1, opt.bptt):
		data, target = get_batch(source, i, evaluation=True)
		output, hidden = model(data, hidden)
		total += len(data) * criterion(output, target).data
		hidden = repackage_hidden(hidden)
	return total.item() / len(source)

def dynamic_evaluate(source, lr):
	# Dynamic evaluation: keep on learning from the test text while it is read
	model.eval()
	backup = [p.data.clone() for p in model.parameters()]
	total = 0
	hidden = model.init_hidden(source.size(1))
	for i in range(0, source.size(0) - 1, opt.bptt):
		data, target = get_batch(source, i)
		hidden = repackage_hidden(hidden)
		model.zero_grad()
		output, hidden = model(data, hidden)
		loss = criterion(output, target)
		total += len(data) * loss.data.item()
		if not use_cuda:		# cudnn RNN backward needs train mode
			loss.backward()
			for p in model.parameters():
				p.data.add_(p.grad.data, alpha=-lr)
	for p, b in zip(model.parameters(), backup):
		p.data.copy_(b)
	return total / len(source)

def sample(n):
	model.eval()
	hidden = model.init_hidden(1)
	inp = torch.LongTensor([[char2id['t']]])
	if use_cuda:
		inp = inp.cuda()
	out = ['t']
	for _ in range(n):
		output, hidden = model(Variable(inp), hidden)
		w = torch.multinomial(output.data.view(-1).div(0.7).exp().cpu(), 1)[0]
		inp.data.fill_(w)
		out.append(chars[w])
	return ''.join(out)

def train(epoch, lr):
	model.train()
	total_loss = 0
	start = time.time()
	hidden = model.init_hidden(opt.batch)
	for b, i in enumerate(range(0, train_data.size(0) - 1, opt.bptt)):
		data, targets = get_batch(train_data, i)
		hidden = repackage_hidden(hidden)
		model.zero_grad()
		output, hidden = model(data, hidden)
		loss = criterion(output, targets)
		loss.backward()
		gnorm = torch.nn.utils.clip_grad_norm_(model.parameters(), opt.clip)
		for p in model.parameters():
			p.data.add_(p.grad.data, alpha=-lr)
		total_loss += loss.data.item()
		if b % opt.log == 0 and b > 0:
			cur = total_loss / opt.log
			sys.stderr.write('%.1f ms/batch\n' % ((time.time() - start) * 1000 / opt.log))
			print('| epoch %d | %4d/%4d batches | lr %02.3f | loss %5.3f | bpc %6.3f | gnorm %.3f' % (
				epoch, b, train_data.size(0) // opt.bptt, lr, cur, cur / math.log(2), gnorm))
			total_loss = 0
			start = time.time()

lr = opt.lr
best = None
for epoch in range(1, opt.epochs + 1):
	train(epoch, lr)
	val = evaluate(valid_data)
	print('-' * 60)
	print('| end of epoch %d | valid loss %5.3f | valid ppl %8.3f' % (epoch, val, math.exp(val)))
	print('-' * 60)
	if best is None or val < best:
		torch.save(model.state_dict(), opt.save)
		best = val
	else:
		lr /= 4.0		# anneal when the validation does not improve
print('dynamic evaluation: %.4f' % dynamic_evaluate(valid_data, 0.05))
print(sample(80))
