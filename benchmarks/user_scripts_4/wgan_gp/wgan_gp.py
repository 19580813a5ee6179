"""WGAN-GP on a generated "glyph" image set. After caogang/wgan-gp, cleaned up a bit."""
import os
import argparse
import numpy as np
import torch
import torch.nn as nn
import torch.autograd as autograd
from torch.autograd import Variable

parser = argparse.ArgumentParser()
parser.add_argument('--nz', type=int, default=32)
parser.add_argument('--ngf', type=int, default=16)
parser.add_argument('--ndf', type=int, default=16)
parser.add_argument('--iters', type=int, default=60)
parser.add_argument('--critic_iters', type=int, default=3)
parser.add_argument('--batch_size', type=int, default=32)
parser.add_argument('--lambda_gp', type=float, default=10.)
parser.add_argument('--drift', type=float, default=1e-3)
parser.add_argument('--ema', type=float, default=0.99)
parser.add_argument('--sample_every', type=int, default=20)
parser.add_argument('--outdir', default='samples')
opt = parser.parse_args()
print(opt)

torch.manual_seed(1)
np.random.seed(1)
use_cuda = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if use_cuda else torch.FloatTensor
os.makedirs(opt.outdir, exist_ok=True)


def make_glyphs(n):
    xs = np.linspace(-1, 1, 32)
    X, Y = np.meshgrid(xs, xs)
    out = np.zeros((n, 1, 32, 32), dtype='float32')
    for i in range(n):
        a, b, c = np.random.uniform(-1, 1, 3)
        out[i, 0] = np.tanh(6 * np.sin(3 * (a * X + b * Y) + 3 * c) * np.exp(-2 * (X ** 2 + Y ** 2)))
    return out

data = make_glyphs(1024)


def inf_train_gen():
    while True:
        perm = np.random.permutation(len(data))
        for i in range(0, len(data) - opt.batch_size + 1, opt.batch_size):
            yield data[perm[i:i + opt.batch_size]]


class Generator(nn.Module):
    def __init__(self):
        super(Generator, self).__init__()
        g = opt.ngf
        self.pre = nn.Sequential(nn.Linear(opt.nz, 4 * g * 16), nn.BatchNorm1d(4 * g * 16), nn.ReLU(True))
        self.main = nn.Sequential(
            nn.ConvTranspose2d(4 * g, 2 * g, 4, 2, 1), nn.BatchNorm2d(2 * g), nn.ReLU(True),
            nn.ConvTranspose2d(2 * g, g, 4, 2, 1), nn.BatchNorm2d(g), nn.ReLU(True),
            nn.ConvTranspose2d(g, 1, 4, 2, 1), nn.Tanh())

    def forward(self, z):
        return self.main(self.pre(z).view(z.size(0), -1, 4, 4))


class Discriminator(nn.Module):
    def __init__(self):
        super(Discriminator, self).__init__()
        d = opt.ndf
        self.main = nn.Sequential(
            nn.Conv2d(1, d, 3, 2, 1), nn.LeakyReLU(0.2),
            nn.Conv2d(d, 2 * d, 3, 2, 1), nn.InstanceNorm2d(2 * d, affine=True), nn.LeakyReLU(0.2),
            nn.Conv2d(2 * d, 4 * d, 3, 2, 1), nn.LeakyReLU(0.2))
        self.linear = nn.Linear(16 * 4 * d, 1)

    def forward(self, x):
        return self.linear(self.main(x).view(x.size(0), -1))


netG, netD, netG_ema = Generator(), Discriminator(), Generator()
netG_ema.load_state_dict(netG.state_dict())
if use_cuda:
    netG, netD, netG_ema = netG.cuda(), netD.cuda(), netG_ema.cuda()

optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.9))
optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.9))

one = Tensor([1.]).squeeze()
mone = one * -1
fixed_noise = Variable(torch.randn(16, opt.nz).type(Tensor))


def calc_gradient_penalty(netD, real_data, fake_data):
    alpha = torch.rand(real_data.size(0), 1, 1, 1)
    alpha = alpha.expand(real_data.size())
    alpha = alpha.cuda() if use_cuda else alpha
    interpolates = alpha * real_data + ((1 - alpha) * fake_data)
    interpolates = Variable(interpolates, requires_grad=True)
    disc_interpolates = netD(interpolates)
    gradients = autograd.grad(outputs=disc_interpolates, inputs=interpolates,
                              grad_outputs=torch.ones(disc_interpolates.size()).cuda() if use_cuda else torch.ones(disc_interpolates.size()),
                              create_graph=True, retain_graph=True, only_inputs=True)[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean() * opt.lambda_gp


def update_ema():
    for p_ema, p in zip(netG_ema.parameters(), netG.parameters()):
        p_ema.data.mul_(opt.ema).add_(p.data * (1 - opt.ema))
    for b_ema, b in zip(netG_ema.buffers(), netG.buffers()):
        b_ema.data.copy_(b.data)


def save_samples(it):
    netG_ema.eval()
    s = netG_ema(fixed_noise)
    grid = s.view(4, 4, 32, 32).permute(0, 2, 1, 3).reshape(128, 128)
    np.save('%s/%06d.npy' % (opt.outdir, it), grid.data.cpu().numpy())
    return s


d_hist, w_hist = [], []
gen = inf_train_gen()
for iteration in range(opt.iters):
    # (1) Update D network
    for p in netD.parameters():
        p.requires_grad = True      # they are set to False below in netG update
    for _ in range(opt.critic_iters):
        real = Variable(torch.Tensor(next(gen)).type(Tensor))
        netD.zero_grad()
        d_real = netD(real)
        D_real = d_real.mean()
        D_real.backward(mone, retain_graph=True)

        noise = Variable(torch.randn(opt.batch_size, opt.nz).type(Tensor))
        fake = netG(noise)
        D_fake = netD(fake).mean()
        D_fake.backward(one)

        gp = calc_gradient_penalty(netD, real.data, fake.data)
        gp.backward()
        drift = opt.drift * (d_real ** 2).mean()
        drift.backward()
        D_cost = D_fake - D_real + gp + drift
        Wasserstein_D = D_real - D_fake
        optimizerD.step()

    # (2) Update G network
    for p in netD.parameters():
        p.requires_grad = False     # to avoid computation
    netG.zero_grad()
    noise = Variable(torch.randn(opt.batch_size, opt.nz).type(Tensor))
    fake = netG(noise)
    G = netD(fake).mean()
    G.backward(mone)
    G_cost = -G
    optimizerG.step()
    update_ema()

    d_hist.append(D_cost)
    w_hist.append(Wasserstein_D.cpu().data.numpy())
    if iteration % opt.sample_every == opt.sample_every - 1:
        s = save_samples(iteration)
        print('iter %d: D cost %.4f, G cost %.4f, W %.4f, sample std %.4f' % (
            iteration, D_cost.item(), G_cost.item(), w_hist[-1], s.std().item()))

print('mean D cost %.5f' % (sum(d_hist) / len(d_hist)).item())
print('mean W dist %.5f' % np.mean(w_hist))
