import torch
import torch.nn.functional as F
from torch.optim.swa_utils import AveragedModel

from . import instantiate
from .metrics import edit, greedy


class Trainer:
    def __init__(self, epochs, switch_at, swa_from, clip, device, model, augment, optim, late_optim):
        self.dev = torch.device('cuda' if torch.cuda.is_available() else 'cpu') if device == 'auto' else torch.device(device)
        self.epochs, self.switch_at, self.swa_from, self.clip = epochs, switch_at, swa_from, clip
        self.model, self.augment = model.to(self.dev), augment
        self.opt = instantiate(optim, self.model.parameters())
        self.late = late_optim
        self.swa = AveragedModel(self.model)
        self.tb = []
        self.skipped = []

    def ctc(self, logits, batch):
        logp = F.log_softmax(logits, -1).transpose(0, 1)
        return F.ctc_loss(logp, batch['y'].to(self.dev), batch['lens'], torch.tensor(batch['ylens']),
                          reduction='none', zero_infinity=True)

    def train_epoch(self, loader, epoch):
        self.model.train()
        self.augment.train()
        total, n = 0.0, 0
        for k, batch in enumerate(loader):
            x = batch['x'].to(self.dev)
            logits = self.model(self.augment(x, batch['lens']), batch['lens'])
            per = self.ctc(logits, batch)
            bad = (per == 0) | ~torch.isfinite(per)      # too short for its text
            if bad.any():
                self.skipped += [u for u, b in zip(batch['utt'], bad.tolist()) if b]
                per = per[~bad]
                if len(per) == 0:
                    continue
            # long utterances count by their letters
            w = torch.tensor(batch['ylens'], dtype=torch.float32).to(self.dev)
            loss = per.sum() / w.sum()
            self.opt.zero_grad()
            try:
                with torch.autograd.set_detect_anomaly(True):
                    loss.backward()
            except RuntimeError:                  # nan in the gradient: note the utterances and go on
                self.skipped += batch['utt']
                continue
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.clip)
            try:
                self.guard(norm)
                self.opt.step()
            except ArithmeticError as e:
                print('step refused:', e)
            total += loss.item() * len(batch['text'])
            n += len(batch['text'])
            self.tb.append((epoch, k, loss.item(), norm.item()))
            if epoch >= self.swa_from:
                self.swa.update_parameters(self.model)
        return total / n

    def guard(self, norm):
        if norm > 40 * self.clip:
            raise ArithmeticError('norm %r' % norm.item())

    def refresh_norm(self, loader):
        """statistics of BatchNorm for the averaged weights (update_bn cannot call a model with lengths)"""
        m = self.swa.module
        m.norm.reset_running_stats()
        m.norm.momentum = None
        m.train()
        self.augment.eval()
        with torch.no_grad():
            for batch in loader:
                m(batch['x'].to(self.dev), batch['lens'])
        m.eval()

    def validate(self, model, loader):
        model.eval()
        err = letters = 0
        total = 0.0
        worst = []
        for batch in loader:
            logits = model(batch['x'].to(self.dev), batch['lens'])
            total += self.ctc(logits, batch).sum().item()
            for hyp, ref, u in zip(greedy(logits, batch['lens'].tolist()), batch['text'], batch['utt']):
                e = edit(hyp, ref)
                err, letters = err + e, letters + len(ref)
                worst.append((e, u, ref, hyp))
        return total / letters, err / letters, max(worst)

    def fit(self, train, val):
        for epoch in range(self.epochs):
            if epoch == self.switch_at:
                # Adam for the start, SGD to finish
                self.opt = instantiate(self.late, self.model.parameters())
            loss = self.train_epoch(train, epoch)
            print('epoch', epoch, type(self.opt).__name__, 'train', loss, 'val', *self.validate(self.model, val))
        self.refresh_norm(train)
        print('averaged', int(self.swa.n_averaged), *self.validate(self.swa, val))
        print('skipped', len(self.skipped), 'mean norm', sum(t[3] for t in self.tb) / len(self.tb), 'last', self.tb[-1])
