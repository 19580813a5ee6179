import argparse
import math
import numpy as np
import torch
import torch.nn as nn
from torch.autograd import Variable

import data
import model

parser = argparse.ArgumentParser(description='PyTorch RNN/LSTM Language Model with AR/TAR and (N)ASGD')
parser.add_argument('--emsize', type=int, default=64)
parser.add_argument('--nhid', type=int, default=96)
parser.add_argument('--nlayers', type=int, default=2)
parser.add_argument('--lr', type=float, default=8)
parser.add_argument('--clip', type=float, default=0.25)
parser.add_argument('--epochs', type=int, default=3)
parser.add_argument('--batch_size', type=int, default=20)
parser.add_argument('--bptt', type=int, default=25)
parser.add_argument('--dropout', type=float, default=0.2)
parser.add_argument('--alpha', type=float, default=1.0)
parser.add_argument('--beta', type=float, default=0.5)
parser.add_argument('--nonmono', type=int, default=2)
parser.add_argument('--tied', action='store_true')
parser.add_argument('--seed', type=int, default=1111)
parser.add_argument('--log-interval', type=int, default=20)
parser.add_argument('--save', type=str, default='model.pt')
args = parser.parse_args()

np.random.seed(args.seed)
torch.manual_seed(args.seed)
args.cuda = torch.cuda.is_available()
if args.cuda:
    torch.cuda.manual_seed(args.seed)

corpus = data.Corpus()


def batchify(d, bsz):
    nbatch = d.size(0) // bsz
    d = d.narrow(0, 0, nbatch * bsz)
    d = d.view(bsz, -1).t().contiguous()
    return d


eval_batch_size = 10
train_data = batchify(corpus.train, args.batch_size)
val_data = batchify(corpus.valid, eval_batch_size)
test_data = batchify(corpus.test, eval_batch_size)

ntokens = len(corpus.dictionary)
net = model.RNNModel(ntokens, args.emsize, args.nhid, args.nlayers, args.dropout, args.tied)
if args.cuda:
    net.cuda()
criterion = nn.CrossEntropyLoss()


def repackage_hidden(h):
    """Wraps hidden states in new Variables, to detach them from their history."""
    if isinstance(h, torch.Tensor):
        return Variable(h.data)
    return type(h)(repackage_hidden(v) for v in h)


def get_batch(source, i, seq_len=None, evaluation=False):
    seq_len = min(seq_len if seq_len else args.bptt, len(source) - 1 - i)
    x = Variable(source[i:i + seq_len])
    target = Variable(source[i + 1:i + 1 + seq_len].contiguous().view(-1))
    if args.cuda:
        x, target = x.cuda(), target.cuda()
    return x, target


def evaluate(data_source):
    # Turn on evaluation mode which disables dropout.
    net.eval()
    total_loss = 0
    hidden = net.init_hidden(eval_batch_size)
    for i in range(0, data_source.size(0) - 1, args.bptt):
        x, targets = get_batch(data_source, i, evaluation=True)
        output, hidden = net(x, hidden)
        output_flat = output.view(-1, ntokens)
        total_loss += len(x) * criterion(output_flat, targets).data
        hidden = repackage_hidden(hidden)
    return total_loss.item() / len(data_source)


def train(epoch):
    net.train()
    total_loss = 0
    hidden = net.init_hidden(args.batch_size)
    batch, i = 0, 0
    while i < train_data.size(0) - 1 - 1:
        bptt = args.bptt if np.random.random() < 0.95 else args.bptt / 2.
        # Prevent excessively small or negative sequence lengths
        seq_len = max(5, int(np.random.normal(bptt, 5)))
        lr2 = optimizer.param_groups[0]['lr']
        optimizer.param_groups[0]['lr'] = lr2 * seq_len / args.bptt
        x, targets = get_batch(train_data, i, seq_len=seq_len)

        # Starting each batch, we detach the hidden state from how it was previously produced.
        hidden = repackage_hidden(hidden)
        optimizer.zero_grad()
        output, hidden, rnn_hs, dropped_rnn_hs = net(x, hidden, return_h=True)
        raw_loss = criterion(output.view(-1, ntokens), targets)

        loss = raw_loss
        # Activation regularization
        loss = loss + sum(args.alpha * h.pow(2).mean() for h in dropped_rnn_hs[-1:])
        # Temporal activation regularization (slowness)
        loss = loss + sum(args.beta * (h[1:] - h[:-1]).pow(2).mean() for h in rnn_hs[-1:])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(net.parameters(), args.clip)
        optimizer.step()

        total_loss += raw_loss.data.cpu().numpy()
        optimizer.param_groups[0]['lr'] = lr2
        if batch % args.log_interval == 0 and batch > 0:
            cur_loss = total_loss / args.log_interval
            print('| epoch {:3d} | {:5d} batches | lr {:02.2f} | loss {:5.2f} | ppl {:8.2f}'.format(
                epoch, batch, optimizer.param_groups[0]['lr'], cur_loss, math.exp(cur_loss)))
            total_loss = 0
        batch += 1
        i += seq_len


best_val_loss = []
stored_loss = 100000000
optimizer = torch.optim.SGD(net.parameters(), lr=args.lr, weight_decay=1.2e-6)
for epoch in range(1, args.epochs + 1):
    train(epoch)
    if 't0' in optimizer.param_groups[0]:
        # averaged weights: swap in for evaluation, swap back after
        tmp = {}
        for prm in net.parameters():
            tmp[prm] = prm.data.clone()
            if 'ax' in optimizer.state[prm]:
                prm.data = optimizer.state[prm]['ax'].clone()
        val_loss = evaluate(val_data)
        for prm in net.parameters():
            prm.data = tmp[prm].clone()
    else:
        val_loss = evaluate(val_data)
        if epoch >= 2 and 't0' not in optimizer.param_groups[0]:
            print('Switching to ASGD')
            optimizer = torch.optim.ASGD(net.parameters(), lr=args.lr, t0=0, lambd=0., weight_decay=1.2e-6)
    print('-' * 60)
    print('| end of epoch {:3d} | valid loss {:5.4f} | valid ppl {:8.2f}'.format(epoch, val_loss, math.exp(val_loss)))
    print('-' * 60)
    if val_loss < stored_loss:
        torch.save(net.state_dict(), args.save)
        stored_loss = val_loss
    best_val_loss.append(val_loss)

net.load_state_dict(torch.load(args.save))
test_loss = evaluate(test_data)
print('| End of training | test loss {:5.4f} | test ppl {:8.2f}'.format(test_loss, math.exp(test_loss)))
