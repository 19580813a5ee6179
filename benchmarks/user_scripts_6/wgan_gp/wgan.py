import argparse, copy, gc, json, os, random, tempfile
from collections import defaultdict

import numpy as np
import torch
from torch import autograd, optim
from torch.utils.data import DataLoader

from data import BlobDigits
from nets import Generator, Critic, weights_init


def get_opt():
    p = argparse.ArgumentParser()
    p.add_argument('--niter', type=int, default=12, help='generator iterations')
    p.add_argument('--n_critic', type=int, default=3)
    p.add_argument('--batchSize', type=int, default=32)
    p.add_argument('--nz', type=int, default=32)
    p.add_argument('--lambda_gp', type=float, default=10.)
    p.add_argument('--drift', type=float, default=1e-3)
    p.add_argument('--ema', type=float, default=0.98)
    p.add_argument('--lrG', type=float, default=4e-4)
    p.add_argument('--lrD', type=float, default=4e-4)
    p.add_argument('--log_every', type=int, default=4)
    p.add_argument('--outf', default=None)
    p.add_argument('--manualSeed', type=int, default=2018)
    return p.parse_args()


def infinite(loader):
    while True:
        for batch in loader:
            yield batch


class Logger:
    def __init__(self, path):
        self.path = path
        self.hist = defaultdict(list)

    def log(self, **kw):
        for k, v in kw.items():
            self.hist[k].append(v)
        with open(self.path, 'w') as f:
            json.dump(self.hist, f)

    def last(self, k, n):
        return sum(self.hist[k][-n:]) / len(self.hist[k][-n:])


class WGANGP:
    def __init__(self, opt):
        self.opt = opt
        self.device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')
        self.G = Generator(opt.nz).to(self.device)
        self.D = Critic().to(self.device)
        self.G.apply(weights_init)
        self.D.apply(weights_init)
        self.G_ema = copy.deepcopy(self.G)
        self.optG = optim.Adam(self.G.parameters(), lr=opt.lrG, betas=(0.0, 0.9))
        self.optD = optim.Adam(self.D.parameters(), lr=opt.lrD, betas=(0.0, 0.9))
        self.fixed_noise = torch.randn(16, opt.nz).to(self.device)

    def gradient_penalty(self, real, fake):
        b = real.size(0)
        alpha = torch.rand(b, 1, 1, 1)
        alpha = alpha.to(self.device)
        inter = (alpha * real + (1 - alpha) * fake).requires_grad_(True)
        score = self.D(inter)
        grads = autograd.grad(outputs=score, inputs=inter,
                              grad_outputs=torch.ones(score.size()).to(self.device),
                              create_graph=True, retain_graph=True, only_inputs=True)[0]
        grads = grads.view(b, -1)
        norm = torch.sqrt((grads ** 2).sum(1) + 1e-12)
        return self.opt.lambda_gp * ((norm - 1) ** 2).mean()

    def critic_step(self, real):
        real = real.to(self.device)
        z = torch.randn(real.size(0), self.opt.nz).to(self.device)
        fake = self.G(z).detach()
        self.optD.zero_grad()
        d_real = self.D(real)
        d_fake = self.D(fake)
        gp = self.gradient_penalty(real, fake)
        w_dist = d_real.mean() - d_fake.mean()
        loss = -w_dist + gp + self.opt.drift * (d_real ** 2).mean()
        loss.backward()
        self.optD.step()
        return loss.item(), w_dist.item(), gp.item()

    def generator_step(self):
        self.optG.zero_grad()
        z = torch.randn(self.opt.batchSize, self.opt.nz).to(self.device)
        fake = self.G(z)
        loss = -self.D(fake).mean()
        loss.backward()
        self.optG.step()
        self.update_ema()
        return loss.item()

    def update_ema(self):
        src = self.G.state_dict()
        for k, v in self.G_ema.state_dict().items():
            if v.dtype.is_floating_point:
                v.mul_(self.opt.ema).add_(src[k], alpha=1 - self.opt.ema)
            else:
                v.copy_(src[k])

    def sample(self, path):
        self.G_ema.eval()
        imgs = self.G_ema(self.fixed_noise)
        grid = imgs.detach().cpu().numpy().reshape(4, 4, 16, 16).transpose(0, 2, 1, 3).reshape(64, 64)
        np.save(path, ((grid + 1) * 127.5).astype(np.uint8))
        return float(imgs.mean()), float(imgs.std())


def main():
    opt = get_opt()
    random.seed(opt.manualSeed)
    np.random.seed(opt.manualSeed)
    torch.manual_seed(opt.manualSeed)
    torch.backends.cudnn.benchmark = True

    outf = opt.outf or tempfile.mkdtemp()
    loader = DataLoader(BlobDigits(), batch_size=opt.batchSize, shuffle=True, drop_last=True)
    batches = infinite(loader)
    gan = WGANGP(opt)
    logger = Logger(os.path.join(outf, 'log.json'))

    for it in range(1, opt.niter + 1):
        # extra critic steps in the beginning
        n_critic = 6 if it <= 2 else opt.n_critic
        for _ in range(n_critic):
            ld, wd, gp = gan.critic_step(next(batches))
            logger.log(loss_D=ld, wdist=wd, gp=gp)
        lg = gan.generator_step()
        logger.log(loss_G=lg)
        m, s = gan.sample(os.path.join(outf, 'fixed_%05d.npy' % it))

        gc.collect()
        torch.cuda.empty_cache()

        if it % opt.log_every == 0:
            print('[%3d/%3d] Loss_D: %.6f Loss_G: %.6f W: %.6f GP: %.6f ema mean/std %.5f %.5f' % (
                it, opt.niter, logger.last('loss_D', opt.log_every), lg,
                logger.last('wdist', opt.log_every), logger.last('gp', opt.log_every), m, s))

    torch.save({'G': gan.G.state_dict(), 'D': gan.D.state_dict(), 'G_ema': gan.G_ema.state_dict(),
                'optG': gan.optG.state_dict(), 'optD': gan.optD.state_dict()},
               os.path.join(outf, 'final.pth'))
    tail = gan.D(gan.G(gan.fixed_noise))
    print('final critic score on fixed noise %.6f' % tail.mean().item())


if __name__ == '__main__':
    main()
