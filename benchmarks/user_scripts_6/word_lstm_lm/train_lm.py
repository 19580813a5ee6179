#!/usr/bin/env python
"""word level language model on a small template grammar.  usage: python train_lm.py [-c config.json]"""
import json, math, os, sys, time
import torch
import torch.nn as nn
from corpus import Corpus, batchify, get_batch, iter_starts
from model import RNNLM
from optimizer import ScheduledOptim, clip_gradient

CFG = dict(emsize=64, nhid=96, nlayers=2, bptt=20, batch_size=16, eval_batch_size=8, epochs=3,
           dropout=0.25, tied=False, lr=4e-3, warmup=20, clip=0.2, seed=1111, log_interval=8,
           alpha=1.0, beta=0.5, log_file=None, label_smoothing=0.0, num_sents=560)


def load_cfg(argv):
    cfg = dict(CFG)
    if '-c' in argv:
        with open(argv[argv.index('-c') + 1]) as f:
            cfg.update(json.load(f))
    return type('Cfg', (), cfg)


def repackage_hidden(h):
    """Wraps hidden states in new Tensors, to detach them from their history."""
    if isinstance(h, torch.Tensor):
        return h.detach()
    return [tuple(repackage_hidden(v) for v in layer) for layer in h]


def unigram_weights(corpus, device):
    # rare words get slightly bigger weight
    cnt = torch.ones(len(corpus.dictionary))
    for tok in corpus.train.tolist():
        cnt[tok] += 1
    w = (cnt.sum() / cnt) ** 0.1
    return (w / w.mean()).to(device)


def run_eval(model, source, criterion, cfg, ntokens):
    model.eval()
    total_loss = 0.
    hidden = model.init_hidden(cfg.eval_batch_size)
    for i in iter_starts(source, cfg.bptt):
        data, targets = get_batch(source, i, cfg.bptt)
        output, hidden, _, _ = model(data, hidden)
        total_loss += len(data) * criterion(output.view(-1, ntokens), targets)
        hidden = repackage_hidden(hidden)
    return total_loss.item() / (len(source) - 1)


def main():
    cfg = load_cfg(sys.argv)
    torch.manual_seed(cfg.seed)
    torch.autograd.set_detect_anomaly(True)     # had NaNs in the spring, keep an eye on it
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')

    corpus = Corpus(cfg.num_sents, cfg.seed)
    train_data = batchify(corpus.train, cfg.batch_size, device)
    val_data = batchify(corpus.valid, cfg.eval_batch_size, device)
    ntokens = len(corpus.dictionary)

    model = RNNLM(ntokens, cfg.emsize, cfg.nhid, cfg.nlayers, cfg.dropout, cfg.tied).to(device)
    train_criterion = nn.CrossEntropyLoss(weight=unigram_weights(corpus, device),
                                          label_smoothing=cfg.label_smoothing)
    eval_criterion = nn.CrossEntropyLoss()
    optimizer = ScheduledOptim(torch.optim.Adam(model.parameters(), betas=(0.9, 0.98)),
                               cfg.lr, cfg.warmup)
    print('vocab %d | tokens %d | params %d' % (ntokens, train_data.numel(),
                                              sum(p.numel() for p in model.parameters())))
    best = None
    log_file = cfg.log_file or os.devnull
    try:
        for epoch in range(1, cfg.epochs + 1):
            t0 = time.time()
            model.train()
            running, nll = 0., 0.
            hidden = model.init_hidden(cfg.batch_size)
            starts = iter_starts(train_data, cfg.bptt)
            for b, i in enumerate(starts):
                data, targets = get_batch(train_data, i, cfg.bptt)
                # Starting each batch, we detach the hidden state from how it was previously produced.
                hidden = repackage_hidden(hidden)
                optimizer.zero_grad()
                output, hidden, raw, dropped = model(data, hidden)
                ce = train_criterion(output.view(-1, ntokens), targets)
                # Activation regularization / temporal activation regularization (AWD-LSTM)
                ar = cfg.alpha * dropped.pow(2).mean()
                tar = cfg.beta * (raw[1:] - raw[:-1]).pow(2).mean()
                loss = ce + ar + tar
                if torch.isnan(loss):
                    print('NaN loss, skipping batch', b)
                    continue
                loss.backward()
                gn = clip_gradient(model, cfg.clip)
                optimizer.step()

                running += loss
                nll += ce.item()
                with open(log_file, 'a') as f:
                    f.write('%d %d %.6f %.6f\n' % (epoch, b, float(ce), gn))
                if b % cfg.log_interval == 0 and b > 0:
                    cur = running.item() / cfg.log_interval
                    print('| epoch {:2d} | {:3d}/{:3d} batches | lr {:.6f} | loss {:8.6f} | ppl {:8.4f} | gnorm {:.5f}'.format(
                        epoch, b, len(starts), optimizer.lr, cur, math.exp(ce.item()), gn))
                    running = 0.
            val = run_eval(model, val_data, eval_criterion, cfg, ntokens)
            print('-' * 70)
            print('| end of epoch {:2d} | train nll {:.6f} | valid loss {:.6f} | valid ppl {:.4f}'.format(
                epoch, nll / len(starts), val, math.exp(val)))
            print('-' * 70)
            if best is None or val < best:
                best = val
            else:
                optimizer.init_lr /= 4.0
    except KeyboardInterrupt:
        print('Exiting from training early')

    # sample some text
    model.eval()
    with torch.no_grad():
        g = torch.Generator().manual_seed(3)
        hidden = model.init_hidden(1)
        inp = torch.zeros(1, 1, dtype=torch.long).to(device)
        words = []
        for _ in range(20):
            output, hidden, _, _ = model(inp, hidden)
            probs = output.view(-1).div(0.8).softmax(0).cpu()
            idx = torch.multinomial(probs, 1, generator=g)[0]
            inp.fill_(int(idx))
            words.append(corpus.dictionary.idx2word[int(idx)])
    print(' '.join(words))
    print('best valid loss %.6f' % best)


if __name__ == '__main__':
    main()
