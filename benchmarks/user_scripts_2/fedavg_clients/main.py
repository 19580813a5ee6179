#!/usr/bin/env python3
"""Federated ECG toy: FedAvg / FedProx / SCAFFOLD with FedBN."""
import argparse
import random

import numpy as np
import torch

from fed.client import Client
from fed.data import partition
from fed.net import build_net
from fed.server import Server


def get_args(argv=None):
    p = argparse.ArgumentParser(description=__doc__)
    p.add_argument('--algo', choices=['fedavg', 'fedprox', 'scaffold'], default='fedavg')
    p.add_argument('--rounds', type=int, default=10)
    p.add_argument('--clients', type=int, default=10)
    p.add_argument('--frac', type=float, default=.4)
    p.add_argument('--drop', type=float, default=.1)
    p.add_argument('--alpha', type=float, default=.5)
    p.add_argument('--local-steps', type=int, default=12)
    p.add_argument('--bs', type=int, default=16)
    p.add_argument('--lr', type=float, default=.02)
    p.add_argument('--mu', type=float, default=.1)
    p.add_argument('--dp', type=float, default=0.)
    p.add_argument('--max-norm', type=float, default=6.)
    p.add_argument('--server-momentum', type=float, default=.3)
    p.add_argument('--median', action='store_true')
    p.add_argument('--seed', type=int, default=2)
    p.add_argument('--gpu', type=int, default=0, help='-1: cpu')
    a = p.parse_args(argv)
    a.device = torch.device(f'cuda:{a.gpu}' if a.gpu >= 0 and torch.cuda.is_available() else 'cpu')
    return a


def main():
    args = get_args()
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    hospitals, (xt, yt) = partition(480, args.clients, args.alpha, args.seed)
    net = build_net().to(args.device)
    clients = [Client(i, d, net, args) for i, d in enumerate(hospitals)]
    server = Server(net, clients, args)
    print('sizes', [len(d) for d in hospitals], 'device', args.device.type)
    for r in range(args.rounds):
        loss = server.round(r)
        tl, acc, per = server.test(xt, yt)
        server.log.append(acc)
        print(f'round {r} train {loss!r} test {tl!r} acc {acc!r}')
        if r == args.rounds // 2:
            args.lr *= .5                    # args is shared with the clients
    own = [c.evaluate(server.weights) for c in clients]
    print('personal accuracy', own, 'mean', sum(own) / len(own))
    print('confusion', per, 'reads', [d.reads for d in hospitals])


if __name__ == '__main__':
    main()
