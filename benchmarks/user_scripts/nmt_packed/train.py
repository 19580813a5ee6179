import random
import sys
import time

import torch
import torch.nn as nn
import yaml
from torch.utils.data import DataLoader

from data import EOS, PAD, CurriculumSampler, ReverseCopy, collate
from model import Seq2Seq


def to_device(obj, device):
    """moves tensors in nested dicts / lists / tuples, calls itself"""
    if torch.is_tensor(obj):
        return obj.to(device)
    if isinstance(obj, dict):
        return {k: to_device(v, device) for k, v in obj.items()}
    if isinstance(obj, (list, tuple)):
        return type(obj)(to_device(v, device) for v in obj)
    return obj


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.device = torch.device('cuda') if torch.cuda.is_available() else torch.device('cpu')
        d, t = cfg['data'], cfg['train']
        self.train_set = ReverseCopy(d['n_train'], d['min_len'], d['max_len'], d['vocab'], 1)
        self.valid_set = ReverseCopy(d['n_valid'], d['min_len'], d['max_len'], d['vocab'], 2)
        self.sampler = CurriculumSampler(self.train_set, t['batch'], cfg['seed'])
        self.model = Seq2Seq(d['vocab'], **cfg['model']).to(self.device)
        self.model.apply(self.init_weights)
        self.opt = torch.optim.Adam(self.model.parameters(), lr=t['lr'])
        self.criterion = nn.CrossEntropyLoss(ignore_index=PAD, reduction='sum')
        self.best, self.bad, self.tf = float('inf'), 0, t['teacher_forcing']

    @staticmethod
    def init_weights(m):
        for name, p in m.named_parameters(recurse=False):
            if 'weight' in name and p.dim() > 1:
                nn.init.uniform_(p.data, -0.12, 0.12)

    @property
    def train_loader(self):
        # a new loader on every access; the sampler keeps the state
        return DataLoader(self.train_set, batch_sampler=self.sampler, collate_fn=collate)

    @property
    def valid_loader(self):
        return DataLoader(self.valid_set, batch_size=32, collate_fn=collate)

    def loss(self, out, trg):
        return self.criterion(out[:, 1:].reshape(-1, out.size(-1)), trg[:, 1:].reshape(-1))

    def train_epoch(self, epoch):
        self.model.train()
        total, n_tokens, correct = 0.0, 0, 0
        loader = self.train_loader
        for step, batch in enumerate(loader):
            batch = to_device(batch, self.device)
            trg = batch['trg']
            self.opt.zero_grad()
            out = self.model(**batch['net'], trg=trg, teacher_forcing=self.tf)
            loss = self.loss(out, trg)
            n = (trg[:, 1:] != PAD).sum().item()
            (loss / n).backward()
            torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg['train']['clip'])
            self.opt.step()
            total += loss.item()
            n_tokens += n
            pred = out.argmax(-1)
            correct += ((pred == trg) & (trg != PAD))[:, 1:].sum().item()
            if (step + 1) % self.cfg['train']['log_every'] == 0:
                print('  %d/%d loss %.6f acc %.5f' % (step + 1, len(loader), total / n_tokens, correct / n_tokens))
        return total / n_tokens

    def validate(self):
        self.model.eval()
        total, n_tokens, exact = 0.0, 0, 0
        with torch.no_grad():
            for batch in self.valid_loader:
                batch = to_device(batch, self.device)
                trg = batch['trg']
                out = self.model(**batch['net'], trg=trg)
                total += self.loss(out, trg).item()
                n_tokens += (trg[:, 1:] != PAD).sum().item()
                hyp = self.model(**batch['net'], max_len=trg.size(1)).argmax(-1).cpu()
                trg = trg.cpu()
                for b in range(hyp.size(0)):
                    h, g = hyp[b, 1:].tolist(), trg[b, 1:].tolist()
                    h = h[:h.index(EOS)] if EOS in h else h
                    exact += int(h == g[:g.index(EOS)])
        return total / n_tokens, exact / len(self.valid_set)

    def fit(self):
        for epoch in range(self.cfg['train']['epochs']):
            t0 = time.time()
            tr = self.train_epoch(epoch)
            va, exact = self.validate()
            print('epoch %d train %.6f valid %.6f exact %.4f limit %d tf %.3f [%.1fs]' % (
                epoch, tr, va, exact, self.sampler.limit(), self.tf, time.time() - t0))
            # curriculum and scheduled sampling follow the training loss
            if tr < 2.6:
                self.sampler.progress = min(1.0, self.sampler.progress + 0.3)
            self.tf = max(0.3, min(self.tf, tr / 3))
            if va < self.best:
                self.best, self.bad = va, 0
                torch.save(self.model.state_dict(), 'best.pt')
            else:
                self.bad += 1
                for g in self.opt.param_groups:
                    g['lr'] *= 0.5
                self.model.load_state_dict(torch.load('best.pt', map_location=self.device))
                if self.bad > self.cfg['train']['patience']:
                    break
        print('best %.6f' % self.best)


if __name__ == '__main__':
    with open(sys.argv[1] if len(sys.argv) > 1 else 'config.yaml') as f:
        cfg = yaml.safe_load(f)
    random.seed(cfg['seed'])
    torch.manual_seed(cfg['seed'])
    Trainer(cfg).fit()
