"""Grapheme-to-phoneme with attention. Started from the PyTorch chatbot tutorial."""
import argparse
import os
import random

import torch
import torch.nn as nn
from torch import optim

from lexicon import make_lexicon, read_lexicon
from models import AttnDecoderRNN, EncoderRNN
from vocab import EOS_token, PAD_token, SOS_token, Voc, batch2tensors

parser = argparse.ArgumentParser()
parser.add_argument('--lexicon', default='lexicon.tsv')
parser.add_argument('--n_words', type=int, default=120000)
parser.add_argument('--max_syllables', type=int, default=5)
parser.add_argument('--hidden', type=int, default=512)
parser.add_argument('--layers', type=int, default=2)
parser.add_argument('--dropout', type=float, default=0.2)
parser.add_argument('--batch_size', type=int, default=128)
parser.add_argument('--n_iteration', type=int, default=60000)
parser.add_argument('--print_every', type=int, default=100)
parser.add_argument('--eval_every', type=int, default=2000)
parser.add_argument('--n_eval', type=int, default=2000)
parser.add_argument('--warmup', type=int, default=1000)
parser.add_argument('--lr', type=float, default=5e-4)
parser.add_argument('--decoder_lr_ratio', type=float, default=2.0)
parser.add_argument('--clip', type=float, default=5.0)
parser.add_argument('--teacher_forcing', type=float, default=0.7)
parser.add_argument('--max_len', type=int, default=40)
parser.add_argument('--save_dir', default='save')
parser.add_argument('--resume', action='store_true')
parser.add_argument('--seed', type=int, default=0)
args = parser.parse_args()

random.seed(args.seed)
torch.manual_seed(args.seed)
device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')


def mask_nll_loss(prob, target, mask):
    n_total = mask.sum()
    nll = -torch.log(torch.gather(prob, 1, target.view(-1, 1)).squeeze(1) + 1e-12)
    loss = nll.masked_select(mask).mean()
    return loss, n_total.item()


def train(batch, encoder, decoder, encoder_optimizer, decoder_optimizer):
    src, lengths, tgt, mask, max_len = batch
    src = src.to(device)
    tgt = tgt.to(device)
    mask = mask.to(device)

    encoder_optimizer.zero_grad()
    decoder_optimizer.zero_grad()

    encoder_outputs, state = encoder(src, lengths)
    src_mask = src != PAD_token
    decoder_input = torch.LongTensor([SOS_token for _ in range(src.size(1))]).to(device)

    loss = 0
    print_losses = []
    n_totals = 0
    for t in range(max_len):
        prob, state = decoder(decoder_input, state, encoder_outputs, src_mask)
        # scheduled sampling, decided anew at each position
        if random.random() < args.teacher_forcing:
            decoder_input = tgt[t]
        else:
            _, topi = prob.topk(1)
            decoder_input = torch.LongTensor([topi[i][0] for i in range(src.size(1))]).to(device)
        mask_loss, n = mask_nll_loss(prob, tgt[t], mask[t])
        loss += mask_loss
        print_losses.append(mask_loss.item() * n)
        n_totals += n

    loss.backward()
    nn.utils.clip_grad_norm_(encoder.parameters(), args.clip)
    nn.utils.clip_grad_norm_(decoder.parameters(), args.clip)
    encoder_optimizer.step()
    decoder_optimizer.step()
    return sum(print_losses) / n_totals


def greedy(word, encoder, decoder, src_voc, tgt_voc):
    src = torch.LongTensor([src_voc.indexes(word)]).t().to(device)
    lengths = torch.tensor([src.size(0)])
    encoder_outputs, state = encoder(src, lengths)
    src_mask = src != PAD_token
    inp = torch.LongTensor([SOS_token]).to(device)
    phonemes = []
    for _ in range(args.max_len):
        prob, state = decoder(inp, state, encoder_outputs, src_mask)
        inp = prob.argmax(1)
        if inp.item() == EOS_token:
            break
        phonemes.append(tgt_voc.index2sym[inp.item()])
    return phonemes


def edit_distance(a, b):
    row = list(range(len(b) + 1))
    for i, x in enumerate(a):
        prev, row[0] = row[0], i + 1
        for j, y in enumerate(b):
            prev, row[j + 1] = row[j + 1], min(row[j + 1] + 1, row[j] + 1, prev + (x != y))
    return row[-1]


def evaluate(pairs, encoder, decoder, src_voc, tgt_voc):
    encoder.eval()
    decoder.eval()
    wrong, errors, total = 0, 0, 0
    for word, phonemes in pairs:
        hyp = greedy(word, encoder, decoder, src_voc, tgt_voc)
        d = edit_distance(hyp, phonemes)
        errors += d
        total += len(phonemes)
        wrong += d > 0
    encoder.train()
    decoder.train()
    return errors / total, wrong / len(pairs)


def main():
    if not os.path.exists(args.lexicon):
        make_lexicon(args.lexicon, args.n_words, args.max_syllables, 11)
    pairs = read_lexicon(args.lexicon)
    src_voc, tgt_voc = Voc('graphemes'), Voc('phonemes')
    for w, p in pairs:
        src_voc.add(w)
        tgt_voc.add(p)
    random.Random(5).shuffle(pairs)
    n_dev = len(pairs) // 20
    dev_pairs, train_pairs = pairs[:n_dev], pairs[n_dev:]
    print('%d words, %d graphemes, %d phonemes' % (len(pairs), src_voc.num, tgt_voc.num))

    encoder = EncoderRNN(src_voc.num, args.hidden, args.layers, args.dropout).to(device)
    decoder = AttnDecoderRNN(tgt_voc.num, args.hidden, args.layers, args.dropout).to(device)
    encoder_optimizer = optim.Adam(encoder.parameters(), lr=args.lr)
    decoder_optimizer = optim.Adam(decoder.parameters(), lr=args.lr * args.decoder_lr_ratio)

    def decay(it):
        return min((it + 1) / args.warmup, (args.warmup / (it + 1)) ** 0.5)

    schedulers = [optim.lr_scheduler.LambdaLR(o, decay)
                  for o in (encoder_optimizer, decoder_optimizer)]
    start = 1
    ckpt = os.path.join(args.save_dir, 'last.tar')
    if args.resume and os.path.exists(ckpt):
        c = torch.load(ckpt, weights_only=False)
        encoder.load_state_dict(c['en'])
        decoder.load_state_dict(c['de'])
        encoder_optimizer.load_state_dict(c['en_opt'])
        decoder_optimizer.load_state_dict(c['de_opt'])
        for s, d in zip(schedulers, c['sched']):
            s.load_state_dict(d)
        random.setstate(c['py_rng'])
        torch.set_rng_state(c['rng'])
        start = c['iteration'] + 1

    print_loss = 0
    for iteration in range(start, args.n_iteration + 1):
        sample = [random.choice(train_pairs) for _ in range(args.batch_size)]
        batch = batch2tensors(src_voc, tgt_voc, sample)
        print_loss += train(batch, encoder, decoder, encoder_optimizer, decoder_optimizer)
        for s in schedulers:
            s.step()

        if iteration % args.print_every == 0:
            print('%d  %.5f' % (iteration, print_loss / args.print_every))
            print_loss = 0
        if iteration % args.eval_every == 0:
            per, wer = evaluate(dev_pairs[:args.n_eval], encoder, decoder, src_voc, tgt_voc)
            print('%d  PER %.4f  WER %.4f' % (iteration, per, wer))
            os.makedirs(args.save_dir, exist_ok=True)
            torch.save({'iteration': iteration, 'en': encoder.state_dict(),
                        'de': decoder.state_dict(), 'en_opt': encoder_optimizer.state_dict(),
                        'de_opt': decoder_optimizer.state_dict(),
                        'sched': [s.state_dict() for s in schedulers],
                        'py_rng': random.getstate(), 'rng': torch.get_rng_state()}, ckpt)


if __name__ == '__main__':
    main()
