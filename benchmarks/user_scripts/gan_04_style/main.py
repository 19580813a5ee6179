from __future__ import print_function
import argparse
import os
import random
import torch
import torch.nn as nn
import torch.nn.parallel
import torch.optim as optim
import torch.utils.data
import torchvision.utils as vutils
from torch.autograd import Variable, grad
import numpy as np

parser = argparse.ArgumentParser()
parser.add_argument('--workers', type=int, help='number of data loading workers', default=0)
parser.add_argument('--batchSize', type=int, default=32, help='input batch size')
parser.add_argument('--imageSize', type=int, default=16)
parser.add_argument('--nz', type=int, default=24, help='size of the latent z vector')
parser.add_argument('--ngf', type=int, default=24)
parser.add_argument('--ndf', type=int, default=24)
parser.add_argument('--niter', type=int, default=2, help='number of epochs to train for')
parser.add_argument('--lrD', type=float, default=0.0005)
parser.add_argument('--lrG', type=float, default=0.0005)
parser.add_argument('--beta1', type=float, default=0.5)
parser.add_argument('--gp', type=float, default=5.0, help='gradient penalty')
parser.add_argument('--clamp', type=float, default=0.0, help='weight clamping, 0 = off')
parser.add_argument('--Diters', type=int, default=2)
parser.add_argument('--ngpu', type=int, default=1)
parser.add_argument('--netG', default='', help="path to netG (to continue training)")
parser.add_argument('--outf', default='out', help='folder to output images and model checkpoints')
parser.add_argument('--manualSeed', type=int, default=99)
opt = parser.parse_args()
print(opt)

try:
    os.makedirs(opt.outf)
except OSError:
    pass

print("Random Seed: ", opt.manualSeed)
random.seed(opt.manualSeed)
np.random.seed(opt.manualSeed)
torch.manual_seed(opt.manualSeed)
cuda = torch.cuda.is_available()
if cuda:
    torch.cuda.manual_seed_all(opt.manualSeed)


class Shapes(torch.utils.data.Dataset):
    """crosses and squares, drawn once, shared memory; items are VIEWS of one tensor"""
    def __init__(self, n, size):
        r = np.random.RandomState(0)
        data = np.full((n, 1, size, size), -1, dtype=np.float32)
        for i in range(n):
            a, b, w = r.randint(2, size - 7), r.randint(2, size - 7), r.randint(3, 6)
            if r.rand() < 0.5:
                data[i, 0, a:a + w, b:b + w] = 1
            else:
                data[i, 0, a + w // 2, b:b + w] = 1
                data[i, 0, a:a + w, b + w // 2] = 1
        self.data = torch.from_numpy(data)

    def __getitem__(self, index):
        return self.data[index], 0

    def __len__(self):
        return self.data.size(0)


dataset = Shapes(480, opt.imageSize)
dataloader = torch.utils.data.DataLoader(dataset, batch_size=opt.batchSize, shuffle=True, num_workers=int(opt.workers))
nz = int(opt.nz)


# custom weights initialization, walks through the children itself
def weights_init(m):
    classname = m.__class__.__name__
    if classname.find('Conv') != -1:
        m.weight.data.normal_(0.0, 0.05)
    elif classname.find('BatchNorm') != -1:
        m.weight.data.normal_(1.0, 0.02)
        m.bias.data.fill_(0)
    for c in m.children():
        weights_init(c)


class _netG(nn.Module):
    def __init__(self, ngpu):
        super(_netG, self).__init__()
        self.ngpu = ngpu
        self.main = nn.Sequential(
            nn.ConvTranspose2d(nz, opt.ngf * 2, 4, 1, 0, bias=False),
            nn.BatchNorm2d(opt.ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(opt.ngf * 2, opt.ngf, 4, 2, 1, bias=False),
            nn.BatchNorm2d(opt.ngf),
            nn.ReLU(True),
            nn.ConvTranspose2d(opt.ngf, 1, 4, 2, 1, bias=False),
            nn.Tanh()
        )

    def forward(self, input):
        if isinstance(input.data, torch.cuda.FloatTensor) and self.ngpu > 1:
            output = nn.parallel.data_parallel(self.main, input, range(self.ngpu))
        else:
            output = self.main(input)
        return output


class _netD(nn.Module):
    def __init__(self):
        super(_netD, self).__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, opt.ndf, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(opt.ndf, opt.ndf * 2, 4, 2, 1),
            nn.LeakyReLU(0.2),
        )
        self.critic = nn.Conv2d(opt.ndf * 2, 1, 4, 1, 0, bias=False)

    def forward(self, input):
        feat = self.main(input)
        return self.critic(feat).view(-1), feat


netG = _netG(opt.ngpu)
netG.apply(weights_init)
if opt.netG != '':
    netG.load_state_dict(torch.load(opt.netG))
netD = _netD()
weights_init(netD)

input = torch.FloatTensor(opt.batchSize, 1, opt.imageSize, opt.imageSize)
noise = torch.FloatTensor(opt.batchSize, nz, 1, 1)
fixed_noise = torch.FloatTensor(16, nz, 1, 1).normal_(0, 1)
if cuda:
    netD = nn.DataParallel(netD).cuda()
    netG = netG.cuda()
    input, noise, fixed_noise = input.cuda(), noise.cuda(), fixed_noise.cuda()
fixed_noise = Variable(fixed_noise)

optimizerD = optim.Adam(netD.parameters(), lr=opt.lrD, betas=(opt.beta1, 0.9))
optimizerG = optim.Adam(netG.parameters(), lr=opt.lrG, betas=(opt.beta1, 0.9))


def gradient_penalty(real, fake):
    alpha = torch.rand(real.size(0), 1, 1, 1)
    if cuda:
        alpha = alpha.cuda()
    inter = Variable(alpha * real.data + (1 - alpha) * fake.data, requires_grad=True)
    score, _ = netD(inter)
    ones = torch.ones(score.size())
    if cuda:
        ones = ones.cuda()
    g = grad(outputs=score, inputs=inter, grad_outputs=ones, create_graph=True, retain_graph=True, only_inputs=True)[0]
    g = g.view(g.size(0), -1)
    return ((g.norm(2, dim=1) - 1) ** 2).mean()


drift, k_t = 0.0, 1
for epoch in range(opt.niter):
    errs = []
    for i, (real_cpu, _) in enumerate(dataloader, 0):
        ############################
        # (1) Update D
        ###########################
        for p in netD.parameters():
            p.requires_grad = True
        batch_size = real_cpu.size(0)
        if cuda:
            real_cpu = real_cpu.cuda()
        input.resize_as_(real_cpu).copy_(real_cpu)
        inputv = Variable(input)
        for j in range(k_t):
            if opt.clamp > 0:
                for p in netD.parameters():
                    p.data.clamp_(-opt.clamp, opt.clamp)
            netD.zero_grad()
            score_real, feat_real = netD(inputv)
            errD_real = -score_real.mean()
            errD_real.backward(retain_graph=True)
            noise.resize_(batch_size, nz, 1, 1).normal_(0, 1)
            noisev = Variable(noise)
            fake = netG(noisev)
            score_fake, _ = netD(fake.detach())
            errD_fake = score_fake.mean()
            errD_fake.backward()
            pen = opt.gp * gradient_penalty(inputv, fake)
            # second use of the graph of score_real
            eps_drift = 1e-3 * (score_real ** 2).mean()
            (pen + eps_drift).backward()
            optimizerD.step()
        W_D = -(errD_real + errD_fake).item()
        drift = 0.9 * drift + 0.1 * W_D
        # critic iterations follow the running distance
        k_t = opt.Diters if drift < 1.0 else 1

        ############################
        # (2) Update G
        ###########################
        for p in netD.parameters():
            p.requires_grad = False
        netG.zero_grad()
        score, feat_fake = netD(fake)
        _, feat_real = netD(inputv)
        fm = (feat_fake.mean(0) - feat_real.mean(0)).pow(2).mean()
        errG = -score.mean() + fm
        errG.backward()
        optimizerG.step()
        errs.append([W_D, errG.item(), fm.item(), pen.item()])

        print('[%d/%d][%d/%d] W: %.6f Loss_G: %.6f FM: %.6f GP: %.6f k: %d'
              % (epoch, opt.niter, i, len(dataloader), W_D, errG.item(), fm.item(), pen.item(), k_t))
        if i % 10 == 0:
            fake = netG(fixed_noise)
            vutils.save_image(fake.data, '%s/fake_samples_epoch_%03d.png' % (opt.outf, epoch), normalize=True)

    m = np.array(errs).mean(0)
    # samples for the statistics
    stats = []
    for _ in range(4):
        z = Variable(torch.randn(16, nz, 1, 1))
        if cuda:
            z = z.cuda()
        stats.append(netG(z).data.cpu().numpy().mean())
    print('epoch %d W %.6f G %.6f fm %.6f gp %.6f pix %.6f' % (epoch, m[0], m[1], m[2], m[3], np.mean(stats)))
    torch.save(netG.state_dict(), '%s/netG_epoch_%d.pth' % (opt.outf, epoch))
    torch.save(netD.state_dict(), '%s/netD_epoch_%d.pth' % (opt.outf, epoch))
