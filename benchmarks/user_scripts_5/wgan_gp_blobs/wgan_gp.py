import argparse
import math
import os
import random

import numpy as np
import torch
import torch.autograd as autograd
import torch.nn as nn
from torch.utils.data import DataLoader, Dataset

os.makedirs("images", exist_ok=True)

parser = argparse.ArgumentParser()
parser.add_argument("--n_epochs", type=int, default=2, help="number of epochs of training")
parser.add_argument("--batch_size", type=int, default=32, help="size of the batches")
parser.add_argument("--lr", type=float, default=0.0002, help="adam: learning rate")
parser.add_argument("--b1", type=float, default=0.5)
parser.add_argument("--b2", type=float, default=0.9)
parser.add_argument("--n_cpu", type=int, default=0, help="number of cpu threads to use during batch generation")
parser.add_argument("--latent_dim", type=int, default=64)
parser.add_argument("--img_size", type=int, default=32)
parser.add_argument("--channels", type=int, default=3)
parser.add_argument("--n_critic", type=int, default=5)
parser.add_argument("--n_images", type=int, default=800)
parser.add_argument("--sample_interval", type=int, default=20)
opt = parser.parse_args()
print(opt)

cuda = True if torch.cuda.is_available() else False
device = torch.device("cuda" if cuda else "cpu")
Tensor = torch.cuda.FloatTensor if cuda else torch.FloatTensor

torch.backends.cudnn.benchmark = True


class Blobs(Dataset):
    """Coloured gaussian blobs on dark background."""

    def __init__(self, n, size, transform=None):
        rng = np.random.RandomState(0)
        self.params = rng.rand(n, 6)
        self.size = size
        self.transform = transform

    def __len__(self):
        return len(self.params)

    def __getitem__(self, i):
        p = self.params[i]
        yy, xx = np.meshgrid(np.arange(self.size), np.arange(self.size), indexing="ij")
        cx, cy = 6 + p[0] * (self.size - 12), 6 + p[1] * (self.size - 12)
        s = 2 + 4 * p[2]
        g = np.exp(-((xx - cx) ** 2 + (yy - cy) ** 2) / (2 * s * s))
        img = np.stack([g * p[3], g * p[4], g * p[5]], 0)
        img = torch.tensor(img).float()
        if self.transform is not None:
            img = self.transform(img)
        return img


class Flip:
    def __call__(self, img):
        if random.random() < 0.5:
            img = torch.flip(img, [2])
        return img * 2 - 1


def weights_init_normal(m):
    classname = m.__class__.__name__
    if classname.find("Conv") != -1:
        torch.nn.init.normal_(m.weight.data, 0.0, 0.02)
    elif classname.find("BatchNorm2d") != -1:
        torch.nn.init.normal_(m.weight.data, 1.0, 0.02)
        torch.nn.init.constant_(m.bias.data, 0.0)


class Generator(nn.Module):
    def __init__(self):
        super().__init__()
        self.init_size = opt.img_size // 4
        self.l1 = nn.Sequential(nn.Linear(opt.latent_dim, 64 * self.init_size ** 2))
        self.conv_blocks = nn.Sequential(
            nn.BatchNorm2d(64),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(64, 64, 3, stride=1, padding=1),
            nn.BatchNorm2d(64),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Upsample(scale_factor=2),
            nn.Conv2d(64, 32, 3, stride=1, padding=1),
            nn.BatchNorm2d(32),
            nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(32, opt.channels, 3, stride=1, padding=1),
            nn.Tanh(),
        )

    def forward(self, z):
        out = self.l1(z)
        out = out.view(out.shape[0], 64, self.init_size, self.init_size)
        return self.conv_blocks(out)


class Critic(nn.Module):
    def __init__(self):
        super().__init__()

        def block(i, o, norm=True):
            layers = [nn.Conv2d(i, o, 3, 2, 1)]
            if norm:
                layers.append(nn.InstanceNorm2d(o, affine=True))
            layers.append(nn.LeakyReLU(0.2, inplace=True))
            return layers

        self.model = nn.Sequential(
            *block(opt.channels, 32, norm=False),
            *block(32, 64),
            *block(64, 128),
        )
        ds = opt.img_size // 8
        self.adv = nn.Linear(128 * ds ** 2, 1)

    def forward(self, img):
        h = self.model(img)
        return self.adv(h.view(h.shape[0], -1))


generator = Generator()
critic = Critic()
generator.apply(weights_init_normal)
critic.apply(weights_init_normal)
if cuda:
    generator.cuda()
    critic.cuda()

dataloader = DataLoader(
    Blobs(opt.n_images, opt.img_size, Flip()),
    batch_size=opt.batch_size,
    shuffle=True,
    num_workers=opt.n_cpu,
    drop_last=True,
)

optimizer_G = torch.optim.Adam(generator.parameters(), lr=opt.lr, betas=(opt.b1, opt.b2))
optimizer_D = torch.optim.Adam(critic.parameters(), lr=opt.lr, betas=(opt.b1, opt.b2))

lambda_gp = 10


def compute_gradient_penalty(D, real_samples, fake_samples):
    """Calculates the gradient penalty loss for WGAN GP"""
    # Random weight term for interpolation between real and fake samples
    alpha = Tensor(np.random.random((real_samples.size(0), 1, 1, 1)))
    interpolates = (alpha * real_samples + ((1 - alpha) * fake_samples)).requires_grad_(True)
    d_interpolates = D(interpolates)
    fake = torch.ones(real_samples.shape[0], 1).to(device)
    gradients = autograd.grad(
        outputs=d_interpolates,
        inputs=interpolates,
        grad_outputs=fake,
        create_graph=True,
        retain_graph=True,
        only_inputs=True,
    )[0]
    gradients = gradients.view(gradients.size(0), -1)
    return ((gradients.norm(2, dim=1) - 1) ** 2).mean()


def save_grid(imgs, path, nrow=5):
    imgs = (imgs.clamp(-1, 1) + 1) / 2
    n = imgs.shape[0]
    rows = math.ceil(n / nrow)
    grid = torch.zeros(3, rows * opt.img_size, nrow * opt.img_size)
    for k in range(n):
        r, c = divmod(k, nrow)
        grid[:, r * opt.img_size:(r + 1) * opt.img_size, c * opt.img_size:(c + 1) * opt.img_size] = imgs[k].cpu()
    np.save(path, grid.numpy())


# ----------
#  Training
# ----------

fixed_z = torch.randn(25, opt.latent_dim, device=device)
d_hist, g_hist = [], []
batches_done = 0
for epoch in range(opt.n_epochs):
    for i, imgs in enumerate(dataloader):
        real_imgs = imgs.type(Tensor)

        optimizer_D.zero_grad()

        z = torch.from_numpy(np.random.normal(0, 1, (imgs.shape[0], opt.latent_dim))).float().to(device)
        fake_imgs = generator(z)

        real_validity = critic(real_imgs)
        fake_validity = critic(fake_imgs)
        gradient_penalty = compute_gradient_penalty(critic, real_imgs.data, fake_imgs.data)
        d_loss = -torch.mean(real_validity) + torch.mean(fake_validity) + lambda_gp * gradient_penalty

        d_loss.backward()
        optimizer_D.step()
        d_hist.append(d_loss.item())

        # Train the generator every n_critic steps
        if i % opt.n_critic == 0:
            optimizer_G.zero_grad()
            fake_imgs = generator(z)
            g_loss = -torch.mean(critic(fake_imgs))
            g_loss.backward()
            optimizer_G.step()
            g_hist.append(g_loss)

            print(
                "[Epoch %d/%d] [Batch %d/%d] [D loss: %f] [G loss: %f]"
                % (epoch, opt.n_epochs, i, len(dataloader), d_loss.item(), g_loss.item())
            )

            if batches_done % opt.sample_interval == 0:
                generator.eval()
                sample = generator(fixed_z)
                generator.train()
                save_grid(sample.detach(), "images/%d.npy" % batches_done)
            batches_done += opt.n_critic
        torch.cuda.empty_cache()

print("final D %.4f  G %.4f" % (np.mean(d_hist[-20:]), torch.stack(g_hist[-5:]).mean().item()))
