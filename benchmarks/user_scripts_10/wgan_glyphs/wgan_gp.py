import argparse
import copy
import os
import random

import numpy as np
import torch
import torch.autograd as autograd
from torch.autograd import Variable
from torch.utils.data import DataLoader

from glyphs import GlyphDataset, ensure_glyphs, save_grid
from models import Critic, Generator, weights_init

parser = argparse.ArgumentParser()
parser.add_argument('--n_epochs', type=int, default=100, help='number of epochs of training')
parser.add_argument('--n_images', type=int, default=30000, help='size of the data set')
parser.add_argument('--batch_size', type=int, default=64, help='size of the batches')
parser.add_argument('--lr', type=float, default=0.0002, help='adam: learning rate')
parser.add_argument('--b1', type=float, default=0.5)
parser.add_argument('--b2', type=float, default=0.9)
parser.add_argument('--n_cpu', type=int, default=4, help='number of cpu threads to use during batch generation')
parser.add_argument('--latent_dim', type=int, default=128)
parser.add_argument('--img_size', type=int, default=64)
parser.add_argument('--nf', type=int, default=64)
parser.add_argument('--n_critic', type=int, default=5, help='number of training steps for critic per iter')
parser.add_argument('--lambda_gp', type=float, default=10)
parser.add_argument('--ema', type=float, default=0.999)
parser.add_argument('--sample_interval', type=int, default=500)
parser.add_argument('--seed', type=int, default=2019)
opt = parser.parse_args()
print(opt)

os.makedirs('images', exist_ok=True)
random.seed(opt.seed)
np.random.seed(opt.seed)
torch.manual_seed(opt.seed)

cuda = torch.cuda.is_available()
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor

generator = Generator(opt.latent_dim, opt.img_size, opt.nf)
critic = Critic(opt.img_size, opt.nf)
generator.apply(weights_init)
critic.apply(weights_init)
if cuda:
    generator.cuda()
    critic.cuda()
ema_generator = copy.deepcopy(generator)

data_path = 'glyphs_%d_%d.npy' % (opt.n_images, opt.img_size)
ensure_glyphs(data_path, opt.n_images, opt.img_size)
dataset = GlyphDataset(data_path)
dataloader = DataLoader(
    dataset,
    batch_size=opt.batch_size,
    shuffle=True,
    num_workers=opt.n_cpu,
    pin_memory=True,
    drop_last=True,
)

optimizer_G = torch.optim.Adam(generator.parameters(), lr=opt.lr, betas=(opt.b1, opt.b2))
optimizer_D = torch.optim.Adam(critic.parameters(), lr=opt.lr, betas=(opt.b1, opt.b2))


def compute_gradient_penalty(D, real_samples, fake_samples):
    """Calculates the gradient penalty loss for WGAN GP"""
    # Random weight term for interpolation between real and fake samples
    alpha = Tensor(np.random.random((real_samples.size(0), 1, 1, 1)))
    interpolates = (alpha * real_samples + (1 - alpha) * fake_samples).requires_grad_(True)
    d_interpolates = D(interpolates)
    grad_outputs = Variable(torch.ones(real_samples.size(0), 1).type(Tensor), requires_grad=False)
    gradients = autograd.grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=grad_outputs,
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def update_ema():
    for p_ema, p in zip(ema_generator.parameters(), generator.parameters()):
        p_ema.data.mul_(opt.ema).add_(p.data * (1 - opt.ema))
    for b_ema, b in zip(ema_generator.buffers(), generator.buffers()):
        b_ema.data.copy_(b.data)


def evaluate(n=1000, n_proj=64):
    """sliced Wasserstein distance between real images and samples of the averaged generator"""
    ema_generator.eval()
    fakes = []
    for _ in range(0, n, opt.batch_size):
        z = Variable(Tensor(np.random.normal(0, 1, (opt.batch_size, opt.latent_dim))))
        fakes.append(ema_generator(z).detach().cpu())
    fakes = torch.cat(fakes)[:n].view(n, -1).numpy()
    reals = (dataset.images[:n].transpose(0, 3, 1, 2).reshape(n, -1).astype(np.float32) - 127.5) / 127.5
    rng = np.random.RandomState(0)
    dirs = rng.randn(fakes.shape[1], n_proj).astype(np.float32)
    dirs /= np.linalg.norm(dirs, axis=0)
    return float(np.abs(np.sort(fakes @ dirs, axis=0) - np.sort(reals @ dirs, axis=0)).mean())


# ----------
#  Training
# ----------
batches_done = 0
best = float('inf')
for epoch in range(opt.n_epochs):
    d_losses, penalties = [], []
    for i, imgs in enumerate(dataloader):
        real_imgs = Variable(imgs.type(Tensor))

        # ---------------------
        #  Train Discriminator
        # ---------------------
        optimizer_D.zero_grad()
        z = Variable(Tensor(np.random.normal(0, 1, (imgs.shape[0], opt.latent_dim))))
        fake_imgs = generator(z)

        real_validity = critic(real_imgs)
        fake_validity = critic(fake_imgs)
        gradient_penalty = compute_gradient_penalty(critic, real_imgs.data, fake_imgs.data)
        d_loss = -torch.mean(real_validity) + torch.mean(fake_validity) + opt.lambda_gp * gradient_penalty

        d_loss.backward()
        optimizer_D.step()
        d_losses.append(d_loss.item())
        penalties.append(gradient_penalty.item())

        # -----------------
        #  Train Generator
        # -----------------
        if i % opt.n_critic == 0:
            optimizer_G.zero_grad()
            gen_imgs = generator(z)
            g_loss = -torch.mean(critic(gen_imgs))
            g_loss.backward()
            optimizer_G.step()
            update_ema()

            print(
                "[Epoch %d/%d] [Batch %d/%d] [D loss: %f] [G loss: %f]"
                % (epoch, opt.n_epochs, i, len(dataloader), d_loss.item(), g_loss.item())
            )

        if batches_done % opt.sample_interval == 0:
            save_grid(fake_imgs.data[:25], "images/%06d.png" % batches_done)
        batches_done += 1

    swd = evaluate(min(1000, opt.n_images))
    print("[Epoch %d/%d] mean D loss %.4f, mean penalty %.4f, SWD %.5f"
          % (epoch, opt.n_epochs, np.mean(d_losses), np.mean(penalties), swd))
    if swd < best:
        best = swd
        torch.save({'G': generator.state_dict(), 'G_ema': ema_generator.state_dict(),
                    'D': critic.state_dict(), 'epoch': epoch}, 'best.pth')
print("best SWD %.5f" % best)
