import argparse
import copy
import os
import time
from types import SimpleNamespace

import torch
from torch.autograd import Variable
from torch.utils.data import DataLoader

from forecaster import GRUForecaster, Tracked
from series import Streams, Windows, make_series


def repackage(h):
    """detach hidden states, works on tensors, tuples and lists (recursive, as in word_language_model)"""
    if h is None:
        return None
    if torch.is_tensor(h):
        return h.detach()
    return type(h)(repackage(v) for v in h)


class Experiment:
    def __init__(self, opt):
        self.opt = opt
        self.device = torch.device('cuda:0' if torch.cuda.is_available() and not opt.no_cuda else 'cpu')
        data = make_series(opt.series)
        cut = int(data.size(1) * 0.75)
        self._train, self._val = Windows(data[:, :cut], opt.context, opt.context), Windows(data[:, cut:], opt.context, opt.context)
        self._sampler = Streams(self._train, opt.group, opt.seed)
        self.model = Tracked(GRUForecaster(opt.series, opt.hid).to(self.device))
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=opt.lr)
        self.scheduler = torch.optim.lr_scheduler.ReduceLROnPlateau(self.optimizer, 'min', factor=0.5, patience=1, threshold=1e-3)
        self.state = SimpleNamespace(epoch=0, best=float('inf'), k1=1)

    @property
    def train_loader(self):
        return DataLoader(self._train, batch_sampler=self._sampler, num_workers=0)

    @property
    def val_loader(self):
        for k in range(self._val.n_win):
            items = [self._val[s * self._val.n_win + k] for s in range(self.opt.series)]
            yield torch.stack([w for w, _, _ in items]), torch.tensor([s for _, s, _ in items]), k

    def save(self, path):
        torch.save({'model': self.model.state_dict(), 'optimizer': self.optimizer.state_dict(), 'scheduler': self.scheduler.state_dict(),
                    'state': vars(self.state), 'sampler': (self._sampler.rs.get_state(), self._sampler.order),
                    'rng': torch.get_rng_state()}, path)

    def resume(self, path):
        ck = torch.load(path, map_location=self.device, weights_only=False)
        self.model.load_state_dict(ck['model'])
        self.optimizer.load_state_dict(ck['optimizer'])
        self.scheduler.load_state_dict(ck['scheduler'])
        self.state = SimpleNamespace(**ck['state'])
        rs, self._sampler.order = ck['sampler']
        self._sampler.rs.set_state(rs)
        torch.set_rng_state(ck['rng'].cpu())

    def train_epoch(self):
        self.model.train()
        h, total, n, pending = None, 0.0, 0, None
        for i, (win, sid, k) in enumerate(self.train_loader):
            if int(k[0]) == 0:
                h = None                                   # a new group starts
            win, sid = Variable(win.to(self.device)), Variable(sid.to(self.device))
            pred, target, h = self.model(win, sid, h)
            loss = self.model.pinball(pred, target)
            # truncated bptt over k1 windows: the graph of the first window is kept and used again
            pending = loss if pending is None else pending + loss
            last = int(k[0]) == self._train.n_win - 1
            if (int(k[0]) + 1) % self.state.k1 == 0 or last:
                self.optimizer.zero_grad()
                pending.backward()
                torch.nn.utils.clip_grad_norm_(self.model.parameters(), 0.5)
                self.optimizer.step()
                h, pending = repackage(h), None
            total += loss.item() * win.size(0)
            n += win.size(0)
        return total / n

    def evaluate(self):
        self.model.eval()
        h, tot, cover, mae = None, 0.0, [], []
        for win, sid, k in self.val_loader:
            win, sid = win.to(self.device), sid.to(self.device)
            with torch.no_grad():
                pred, target, h = self.model(win, sid, h)
            tot += self.model.pinball(pred, target).item()
            inside = (target > pred[..., 0]) & (target < pred[..., 2])
            cover.append(inside.float().mean().item())
            back = pred[..., 1] * self.model.norm.scale[sid].unsqueeze(1)
            true = target * self.model.norm.scale[sid].unsqueeze(1)
            mae.append((back - true).abs().mean().cpu().numpy())
        return tot / (k + 1), sum(cover) / len(cover), float(sum(mae) / len(mae))

    def run(self, until):
        best_state = None
        while self.state.epoch < until:
            t0 = time.time()
            tr = self.train_epoch()
            va, cover, mae = self.evaluate()
            self.scheduler.step(va)
            lr = self.optimizer.param_groups[0]['lr']
            print('| epoch %2d | train %.6f | val %.6f | cover %.4f | mae %.5f | lr %.5f | k1 %d | calls %d | %.2fs' % (
                self.state.epoch, tr, va, cover, mae, lr, self.state.k1, self.model.calls, time.time() - t0))
            # longer truncation once it fits
            self.state.k1 = 2 if tr < 0.5 else 1
            if va < self.state.best:
                self.state.best, best_state = va, copy.deepcopy(self.model.state_dict())
            elif lr < self.opt.lr / 8:
                break
            self.state.epoch += 1
            self.save(self.opt.ckpt)
        if best_state is not None:
            self.model.load_state_dict(best_state)
        print('final %.6f %.4f %.5f' % self.evaluate(), 'best %.6f' % self.state.best)


if __name__ == '__main__':
    ap = argparse.ArgumentParser(formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    ap.add_argument('--series', type=int, default=24)
    ap.add_argument('--context', type=int, default=24)
    ap.add_argument('--group', type=int, default=10)
    ap.add_argument('--hid', type=int, default=32)
    ap.add_argument('--epochs', type=int, default=4)
    ap.add_argument('--lr', type=float, default=0.01)
    ap.add_argument('--seed', type=int, default=3)
    ap.add_argument('--ckpt', default='forecast.pt')
    ap.add_argument('--no-cuda', action='store_true')
    ap.add_argument('--resume', action='store_true')
    ap.add_argument('--restart-at', type=int, default=0, help='pretend a crash after so many epochs')
    opt = ap.parse_args()
    torch.manual_seed(opt.seed)
    exp = Experiment(opt)
    if opt.resume and os.path.exists(opt.ckpt):
        exp.resume(opt.ckpt)
        print('resumed at', exp.state.epoch)
    if opt.restart_at:
        exp.run(opt.restart_at)
        exp = Experiment(opt)
        exp.resume(opt.ckpt)
        print('restarted at', exp.state.epoch)
    exp.run(opt.epochs)
