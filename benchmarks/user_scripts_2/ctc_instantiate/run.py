import random
import sys

import numpy as np
import torch
from torch.utils.data import DataLoader

from asr import instantiate, override
from asr.data import ALPHABET, collate
from conf import conf

if __name__ == '__main__':
    c = override(conf, sys.argv[1:])
    random.seed(c['seed']), np.random.seed(c['seed']), torch.manual_seed(c['seed'])
    ds = instantiate(c['data'], feats=c['model']['feats'])
    vs = instantiate(c['data'], feats=c['model']['feats'], split='val')
    train = DataLoader(ds, batch_sampler=instantiate(c['sampler'], ds), collate_fn=collate)
    val = DataLoader(vs, batch_size=16, collate_fn=collate)
    model = instantiate(c['model'], n_out=len(ALPHABET))
    trainer = instantiate(c['trainer'], model=model, augment=instantiate(c['augment']),
                          optim=c['optim'], late_optim=c['late_optim'])
    trainer.fit(train, val)
    print('played', ds.plays.sum(), ds.plays.max())
