import argparse
import contextlib
import json
from dataclasses import dataclass, field
from itertools import islice

import torch
import torch.nn.functional as F
from torch.utils.data import DataLoader

from lm import LM, CosineWithWarmup, PackedTokens, ResumableSampler


@dataclass
class RunState:
    step: int = 0
    best: float = float('inf')
    tokens: int = 0
    log: list = field(default_factory=list)


class Run:
    def __init__(self, cfg, device):
        self.cfg, self.device, self.st = cfg, device, RunState()
        torch.manual_seed(cfg['data']['seed'])
        self.meta = json.load(open('meta.json'))
        d = cfg['data']
        ctx = cfg['model']['ctx']
        self.train_ds = PackedTokens(d['bin'], 0, self.meta['split'], ctx // 2)
        self.val_ds = PackedTokens(d['bin'], self.meta['split'], self.meta['total'], ctx)
        self.sampler = ResumableSampler(self.train_ds, d['seed'])
        self.model = LM(self.meta['vocab'], **cfg['model']).to(device)
        self.opt = self.make_optimizer()
        o = cfg['optim']
        self.sched = CosineWithWarmup(self.opt, o['lr'], o['min_lr'], o['warmup'], o['steps'])
        if cfg['precision'] == 'bf16':
            self.ctx = torch.autocast(torch.device(device).type, dtype=torch.bfloat16)
        else:
            self.ctx = contextlib.nullcontext()

    def make_optimizer(self):
        decay, plain, gates = [], [], []
        for n, p in self.model.named_parameters():
            (gates if n.endswith('gate') else decay if p.dim() > 1 else plain).append(p)
        o = self.cfg['optim']
        return torch.optim.AdamW([
            {'params': decay, 'weight_decay': o['wd']}, {'params': plain, 'weight_decay': 0.0},
            {'params': gates, 'weight_decay': 0.0, 'mult': 0.5}], lr=o['lr'], betas=tuple(o['betas']))

    def loader(self):
        return iter(DataLoader(self.train_ds, batch_size=self.cfg['data']['micro'], sampler=self.sampler))

    def nll(self, x, y, doc):
        with self.ctx:
            logits = self.model(x, doc)
        logits = logits.float()
        ce = F.cross_entropy(logits.flatten(0, 1), y.flatten(), ignore_index=-1, reduction='sum')
        z = torch.logsumexp(logits, -1).pow(2)[y >= 0].sum()
        return ce, z

    def optimizer_step(self, batches):
        """normalises by the number of real tokens of the whole window, which is known only at its end"""
        n = 0
        total = 0.0
        ent = 0.0
        self.opt.zero_grad()
        for x, y, doc in batches:
            x, y, doc = x.to(self.device), y.to(self.device), doc.to(self.device)
            ce, z = self.nll(x, y, doc)
            (ce + self.cfg['z_loss'] * z).backward()
            n += (y >= 0).sum().item()
            total += ce.item()
            ent += self.model.blocks[-1].att.entropy.mean().item()
        for p in self.model.parameters():
            p.grad /= n
        norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg['optim']['clip'])
        lr = self.sched(self.st.step)
        if torch.isfinite(norm):
            self.opt.step()
        self.st.step += 1
        self.st.tokens += n
        return total / n, norm.item(), lr, ent / self.cfg['data']['accum']

    def evaluate(self):
        self.model.eval()
        s, n = 0.0, 0
        for x, y, doc in DataLoader(self.val_ds, batch_size=8):
            x, y, doc = x.to(self.device), y.to(self.device), doc.to(self.device)
            ce, _ = self.nll(x, y, doc)
            s, n = s + ce.item(), n + (y >= 0).sum().item()
        stoi = {c: i + 1 for i, c in enumerate(self.meta['chars'])}
        out = self.model.generate(torch.tensor([[stoi[c] for c in '12+7=']]).to(self.device), 8, stoi[';'])
        text = ''.join(self.meta['chars'][i - 1] if i else '|' for i in out[0].tolist())
        self.model.train()
        return s / n, text

    def fit(self, until):
        d = self.cfg['data']
        it = self.loader()
        self.model.train()
        while self.st.step < until:
            if self.st.step == d['short_until']:
                self.train_ds.ctx = self.cfg['model']['ctx']        # longer windows from now on
                self.sampler.epoch, self.sampler.pos = 100, 0
                it = self.loader()
            loss, norm, lr, ent = self.optimizer_step(islice(it, d['accum']))
            self.st.log.append(loss)
            if self.st.step % self.cfg['log_every'] == 0:
                print(f'step {self.st.step} loss {loss!r} norm {norm!r} lr {lr!r} entropy {ent!r} tokens {self.st.tokens}')
            if self.st.step % self.cfg['eval_every'] == 0:
                v, text = self.evaluate()
                print(f'  val {v!r} sample {text!r}')
                if v < self.st.best:
                    self.st.best = v
                    self.save('best.pt')

    def save(self, path):
        torch.save({'model': self.model.state_dict(), 'opt': self.opt.state_dict(), 'sampler': self.sampler.state_dict(),
                    'state': vars(self.st), 'rng': torch.get_rng_state(), 'ctx': self.train_ds.ctx}, path)

    def load(self, path):
        c = torch.load(path, weights_only=False)
        self.model.load_state_dict(c['model'])
        self.opt.load_state_dict(c['opt'])
        self.sampler.load_state_dict(c['sampler'])
        self.st = RunState(**c['state'])
        self.train_ds.ctx = c['ctx']
        torch.set_rng_state(c['rng'])


if __name__ == '__main__':
    ap = argparse.ArgumentParser()
    ap.add_argument('config')
    ap.add_argument('--resume-test', action='store_true')
    ap.add_argument('--device', default='cuda' if torch.cuda.is_available() else 'cpu')
    args = ap.parse_args()
    cfg = json.load(open(args.config))
    run = Run(cfg, args.device)
    if args.resume_test:
        run.fit(cfg['optim']['steps'] // 2)
        run.save('ckpt.pt')
        del run
        run = Run(cfg, args.device)
        run.load('ckpt.pt')
        print('resumed at', run.st.step, run.sampler.state_dict())
    run.fit(cfg['optim']['steps'])
    print('best', run.st.best, 'mean loss', sum(run.st.log) / len(run.st.log), 'groups', [g['lr'] for g in run.opt.param_groups])
