"""
Knowledge distillation on CIFAR-100: WRN-40-2 teacher -> WRN-16-2 student (Hinton KD + attention transfer)

    python distill.py teacher --data ./cifar-100-python
    python distill.py student --data ./cifar-100-python --teacher ckpt/teacher.pth
"""
import argparse
import os
import pickle
import time

import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader, Dataset

CIFAR_MEAN = np.array([0.5071, 0.4865, 0.4409], dtype=np.float32)
CIFAR_STD = np.array([0.2673, 0.2564, 0.2762], dtype=np.float32)


class Cifar100(Dataset):
    def __init__(self, root, train):
        with open(os.path.join(root, "train" if train else "test"), "rb") as f:
            d = pickle.load(f, encoding="bytes")
        self.images = d[b"data"].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)  # uint8 NHWC
        self.labels = d[b"fine_labels"]
        self.train = train

    def __len__(self):
        return len(self.labels)

    def __getitem__(self, idx):
        img = self.images[idx]
        if self.train:
            img = np.pad(img, ((4, 4), (4, 4), (0, 0)), mode="reflect")
            y, x = np.random.randint(0, 9, size=2)
            img = img[y:y + 32, x:x + 32]
            if np.random.rand() < 0.5:
                img = img[:, ::-1]
        img = (img / 255.0 - CIFAR_MEAN) / CIFAR_STD
        return torch.tensor(img.transpose(2, 0, 1).copy(), dtype=torch.float32), torch.tensor(self.labels[idx])


class BasicBlock(nn.Module):
    def __init__(self, cin, cout, stride):
        super().__init__()
        self.bn1 = nn.BatchNorm2d(cin)
        self.conv1 = nn.Conv2d(cin, cout, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(cout)
        self.conv2 = nn.Conv2d(cout, cout, 3, 1, 1, bias=False)
        self.short = nn.Conv2d(cin, cout, 1, stride, bias=False) if cin != cout or stride != 1 else None

    def forward(self, x):
        h = F.relu(self.bn1(x))
        s = self.short(h) if self.short is not None else x
        h = self.conv1(h)
        h = self.conv2(F.relu(self.bn2(h)))
        return h + s


class WideResNet(nn.Module):
    def __init__(self, depth, width, classes=100):
        super().__init__()
        n = (depth - 4) // 6
        ch = [16, 16 * width, 32 * width, 64 * width]
        self.stem = nn.Conv2d(3, ch[0], 3, 1, 1, bias=False)
        self.group1 = self._group(n, ch[0], ch[1], 1)
        self.group2 = self._group(n, ch[1], ch[2], 2)
        self.group3 = self._group(n, ch[2], ch[3], 2)
        self.bn = nn.BatchNorm2d(ch[3])
        self.fc = nn.Linear(ch[3], classes)

    @staticmethod
    def _group(n, cin, cout, stride):
        blocks = [BasicBlock(cin, cout, stride)]
        blocks += [BasicBlock(cout, cout, 1) for _ in range(n - 1)]
        return nn.Sequential(*blocks)

    def forward(self, x):
        x = self.stem(x)
        g1 = self.group1(x)
        g2 = self.group2(g1)
        g3 = self.group3(g2)
        x = F.relu(self.bn(g3))
        x = F.adaptive_avg_pool2d(x, 1).view(x.size(0), -1)
        return self.fc(x), (g1, g2, g3)


def attention_map(f):
    return F.normalize(f.pow(2).mean(1).view(f.size(0), -1))


def kd_loss(s_logits, t_logits, T):
    p = F.log_softmax(s_logits / T, dim=1)
    q = F.softmax(t_logits / T, dim=1)
    return F.kl_div(p, q, reduction="batchmean") * T * T


def accuracy(logits, target, topk=(1, 5)):
    _, pred = logits.topk(max(topk), 1)
    correct = pred.t().eq(target.view(1, -1))
    return [correct[:k].reshape(-1).float().sum().item() * 100.0 / target.size(0) for k in topk]


class AverageMeter:
    def __init__(self):
        self.sum = self.count = 0

    def update(self, v, n):
        self.sum += v * n
        self.count += n

    @property
    def avg(self):
        return self.sum / self.count


class Trainer:
    def __init__(self, args):
        self.args = args
        self.use_cuda = torch.cuda.is_available()
        self.net = WideResNet(*([40, 2] if args.mode == "teacher" else [16, 2]))
        self.teacher = None
        if args.mode == "student":
            self.teacher = WideResNet(40, 2)
            self.teacher.load_state_dict(torch.load(args.teacher, map_location="cpu"))
            self.teacher.eval()
        if self.use_cuda:
            self.net = nn.DataParallel(self.net).cuda()
            if self.teacher is not None:
                self.teacher = self.teacher.cuda()

        self.train_loader = DataLoader(Cifar100(args.data, True), batch_size=args.batch, shuffle=True,
                                       num_workers=args.workers, pin_memory=True)
        self.test_loader = DataLoader(Cifar100(args.data, False), batch_size=args.batch, shuffle=False,
                                      num_workers=args.workers, pin_memory=True)
        self.opt = torch.optim.SGD(self.net.parameters(), lr=args.lr, momentum=0.9, weight_decay=5e-4, nesterov=True)
        self.sched = torch.optim.lr_scheduler.MultiStepLR(self.opt, [60, 120, 160], gamma=0.2)
        self.scaler = GradScaler(enabled=self.use_cuda)
        self.ce = nn.CrossEntropyLoss()

    def train_one_epoch(self, epoch):
        a = self.args
        self.net.train()
        meters = {k: AverageMeter() for k in ("loss", "ce", "kd", "at", "top1", "top5")}
        start = time.time()
        for i, (x, y) in enumerate(self.train_loader):
            if self.use_cuda:
                x, y = x.cuda(), y.cuda()
            with autocast(enabled=self.use_cuda):
                logits, feats = self.net(x)
                ce = self.ce(logits, y)
                kd = at = torch.zeros(1).to(x.device)
                if self.teacher is not None:
                    t_logits, t_feats = self.teacher(x)
                    kd = kd_loss(logits, t_logits.detach(), a.temp)
                    at = sum((attention_map(s) - attention_map(t)).pow(2).mean() for s, t in zip(feats, t_feats))
                loss = ce + a.alpha * kd + a.beta * at
            loss = loss.sum()
            self.opt.zero_grad()
            self.scaler.scale(loss).backward()
            self.scaler.unscale_(self.opt)
            nn.utils.clip_grad_norm_(self.net.parameters(), 5.0)
            self.scaler.step(self.opt)
            self.scaler.update()

            top1, top5 = accuracy(logits, y)
            n = x.size(0)
            meters["loss"].update(loss.item(), n)
            meters["ce"].update(ce.item(), n)
            meters["kd"].update(kd.item(), n)
            meters["at"].update(at.item(), n)
            meters["top1"].update(top1, n)
            meters["top5"].update(top5, n)
            if i % 50 == 0:
                msg = " ".join("%s %.3f" % (k, m.avg) for k, m in meters.items())
                print("epoch %d [%d/%d] %s (%.1fs)" % (epoch, i, len(self.train_loader), msg, time.time() - start))
            torch.cuda.empty_cache()
        return meters["top1"].avg

    def test(self):
        self.net.eval()
        loss, top1 = AverageMeter(), AverageMeter()
        with torch.no_grad():
            for x, y in self.test_loader:
                if self.use_cuda:
                    x, y = x.cuda(), y.cuda()
                logits, _ = self.net(x)
                loss.update(self.ce(logits, y).item(), x.size(0))
                top1.update(accuracy(logits, y)[0], x.size(0))
        return loss.avg, top1.avg

    def fit(self):
        best = 0
        os.makedirs(self.args.ckpt, exist_ok=True)
        for epoch in range(self.args.epochs):
            tr = self.train_one_epoch(epoch)
            loss, acc = self.test()
            self.sched.step()
            print("== epoch %d train %.2f test %.2f loss %.4f lr %.4f" % (epoch, tr, acc, loss, self.sched.get_last_lr()[0]))
            if acc > best:
                best = acc
                net = self.net.module if isinstance(self.net, nn.DataParallel) else self.net
                torch.save(net.state_dict(), os.path.join(self.args.ckpt, self.args.mode + ".pth"))
        print("best", best)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("mode", choices=["teacher", "student"])
    parser.add_argument("--data", default="./cifar-100-python")
    parser.add_argument("--teacher", default="ckpt/teacher.pth")
    parser.add_argument("--ckpt", default="ckpt")
    parser.add_argument("--epochs", type=int, default=200)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--workers", type=int, default=4)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--temp", type=float, default=4.0)
    parser.add_argument("--alpha", type=float, default=0.9)
    parser.add_argument("--beta", type=float, default=1000.0)
    args = parser.parse_args()
    Trainer(args).fit()
