import argparse
import json
import os
import random
import tempfile

import numpy as np
import torch

from audio_data import WORDS, KeywordDataset, make_corpus
from federated import Client, Server
from net import DSCNN


def args_parser():
    p = argparse.ArgumentParser()
    p.add_argument('--rounds', type=int, default=6)
    p.add_argument('--num_users', type=int, default=10)
    p.add_argument('--frac', type=float, default=0.4)
    p.add_argument('--local_ep', type=int, default=2)
    p.add_argument('--local_bs', type=int, default=10)
    p.add_argument('--lr', type=float, default=0.05)
    p.add_argument('--lr_decay', type=float, default=0.95)
    p.add_argument('--mu', type=float, default=0.01, help='FedProx coefficient')
    p.add_argument('--gpu', type=int, default=0)
    p.add_argument('--seed', type=int, default=42)
    return p.parse_args()


def main():
    args = args_parser()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = 'cuda:%d' % args.gpu if torch.cuda.is_available() else 'cpu'
    wavs, labels, speakers = make_corpus(args.num_users + 3, 36, args.seed)
    clients = [Client(c, wavs[speakers == c], labels[speakers == c], args, device) for c in range(args.num_users)]
    held_out = speakers >= args.num_users
    test_set = KeywordDataset(wavs[held_out], labels[held_out])
    model = DSCNN(len(WORDS)).to(device)
    server = Server(model, clients, test_set, args, device)
    out = tempfile.mkdtemp(prefix='fed_')
    log, best = [], 0.0
    for rnd in range(args.rounds):
        train_loss, drift = server.round(rnd)
        test_loss, conf = server.evaluate(len(WORDS))
        acc = conf.diag().sum().item() / conf.sum().item()
        recall = (conf.diag().float() / conf.sum(1).clamp(min=1)).tolist()
        print('round %2d | local loss %.5f | drift %.4f | test loss %.5f | acc %.4f' % (rnd, train_loss, drift, test_loss, acc))
        log.append({'round': rnd, 'train': train_loss, 'test': test_loss, 'acc': acc, 'recall': recall})
        if acc > best:
            best = acc
            torch.save(server.global_state, os.path.join(out, 'global_best.pt'))
    with open(os.path.join(out, 'log.json'), 'w') as f:
        json.dump(log, f, indent=2)
    print('best acc %.4f | worst recall %.3f' % (best, min(log[-1]['recall'])))


if __name__ == '__main__':
    main()
