"""python train.py [key=value ...]     keys are dotted paths into config.yaml"""
import os
import random
import sys

import numpy as np
import torch
import torch.nn as nn
import yaml
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader
from tqdm_lite import progress

from dataset import PartDataset
from pointnet2 import PointNet2Seg
from shapes import CATEGORIES, N_PARTS, PARTS, make_data


def load_config(argv):
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), 'config.yaml')) as f:
        cfg = yaml.safe_load(f)
    for arg in argv:
        key, value = arg.split('=', 1)
        node = cfg
        *path, last = key.split('.')
        for k in path:
            node = node[k]
        node[last] = yaml.safe_load(value)
    return cfg


class Trainer:
    def __init__(self, cfg):
        self.cfg = cfg
        self.device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
        d, t = cfg['data'], cfg['train']
        make_data(d['root'], d['n_train'], d['n_test'], d['raw_points'])
        self.train_set = PartDataset(d['root'], 'train', d['points'])
        self.test_set = PartDataset(d['root'], 'test', d['points'])
        self.train_loader = DataLoader(self.train_set, t['batch_size'], shuffle=True,
                                       num_workers=d['workers'], drop_last=True)
        self.test_loader = DataLoader(self.test_set, t['batch_size'], shuffle=False,
                                      num_workers=d['workers'])
        self.model = PointNet2Seg(cfg['model'], len(CATEGORIES), N_PARTS).to(self.device)
        self.optimizer = torch.optim.Adam(self.model.parameters(), lr=t['lr'],
                                          weight_decay=t['weight_decay'])
        self.scheduler = torch.optim.lr_scheduler.StepLR(self.optimizer, t['lr_step'], t['lr_gamma'])
        self.amp = t['amp'] and self.device.type == 'cuda'
        self.scaler = GradScaler(enabled=self.amp)
        self.part_weights = self.count_parts()
        self.best = 0.0

    def count_parts(self):
        """rare parts (fins, handles) weigh more"""
        n = np.zeros(N_PARTS)
        for i in range(min(500, len(self.train_set))):
            n += np.bincount(self.train_set[i][2].numpy(), minlength=N_PARTS)
        w = n.sum() / np.maximum(n, 1)
        return (w ** 0.5 / np.mean(w ** 0.5)).tolist()

    def set_bn_momentum(self, epoch):
        t = self.cfg['train']
        m = max(t['bn_momentum'] * t['bn_decay'] ** (epoch // t['bn_step']), 0.01)
        for mod in self.model.modules():
            if isinstance(mod, (nn.BatchNorm1d, nn.BatchNorm2d)):
                mod.momentum = m

    def train_epoch(self, epoch):
        self.model.train()
        self.set_bn_momentum(epoch)
        losses, accs = [], []
        for pts, cat, seg in progress(self.train_loader, 'train %d' % epoch):
            pts, cat, seg = pts.to(self.device), cat.to(self.device), seg.to(self.device)
            self.optimizer.zero_grad()
            with autocast(enabled=self.amp):
                logits = self.model(pts, cat)
                weight = torch.tensor(self.part_weights, dtype=torch.float32, device=self.device)
                loss = nn.CrossEntropyLoss(weight=weight)(logits.float(), seg)
            self.scaler.scale(loss).backward()
            nn.utils.clip_grad_norm_(self.model.parameters(), self.cfg['train']['clip'])
            self.scaler.step(self.optimizer)
            self.scaler.update()
            pred = logits.max(1)[1].cpu().numpy()
            accs.append(np.mean(pred == seg.cpu().numpy()))
            losses.append(loss.item())
        self.scheduler.step()
        return np.mean(losses), np.mean(accs)

    @torch.no_grad()
    def test(self):
        self.model.eval()
        ious = {c: [] for c in CATEGORIES}
        for pts, cat, seg in self.test_loader:
            pts, cat, seg = pts.to(self.device), cat.to(self.device), seg.to(self.device)
            with autocast(enabled=self.amp):
                logits = self.model(pts, cat)
            logits = logits.float().cpu().numpy()
            seg = seg.cpu().numpy()
            for i in range(len(seg)):
                name = CATEGORIES[cat[i].item()]
                parts = PARTS[name]
                # only the parts of its own category may be predicted
                pred = np.argmax(logits[i][parts], 0) + parts[0]
                iou = []
                for p in parts:
                    union = np.sum((pred == p) | (seg[i] == p))
                    iou.append(1.0 if union == 0 else np.sum((pred == p) & (seg[i] == p)) / union)
                ious[name].append(np.mean(iou))
        per_cat = {c: float(np.mean(v)) for c, v in ious.items() if v}
        return float(np.mean([x for v in ious.values() for x in v])), per_cat

    def fit(self):
        os.makedirs(self.cfg['out'], exist_ok=True)
        for epoch in range(self.cfg['train']['epochs']):
            loss, acc = self.train_epoch(epoch)
            miou, per_cat = self.test()
            print('epoch %d loss %.6f acc %.4f | mIoU %.5f | %s' % (
                epoch, loss, acc, miou, ' '.join('%s %.3f' % kv for kv in per_cat.items())))
            if miou > self.best:
                self.best = miou
                torch.save({'model': self.model.state_dict(), 'opt': self.optimizer.state_dict(),
                            'epoch': epoch, 'miou': miou}, os.path.join(self.cfg['out'], 'best.pth'))


if __name__ == '__main__':
    cfg = load_config(sys.argv[1:])
    random.seed(cfg['seed'])
    np.random.seed(cfg['seed'])
    torch.manual_seed(cfg['seed'])
    Trainer(cfg).fit()
