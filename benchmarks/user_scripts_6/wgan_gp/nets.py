import torch.nn as nn


def weights_init(m):
    name = m.__class__.__name__
    if name.find('Conv') != -1:
        m.weight.data.normal_(0.0, 0.02)
    elif name.find('BatchNorm') != -1:
        m.weight.data.normal_(1.0, 0.02)
        m.bias.data.fill_(0)


class Generator(nn.Module):
    def __init__(self, nz=32, ngf=16):
        super().__init__()
        self.ngf = ngf
        self.project = nn.Sequential(nn.Linear(nz, ngf * 4 * 4 * 4), nn.BatchNorm1d(ngf * 64), nn.ReLU(True))
        self.main = nn.Sequential(
            nn.ConvTranspose2d(ngf * 4, ngf * 2, 4, 2, 1, bias=True),
            nn.BatchNorm2d(ngf * 2),
            nn.ReLU(True),
            nn.ConvTranspose2d(ngf * 2, ngf, 4, 2, 1, bias=True),
            nn.BatchNorm2d(ngf),
            nn.ReLU(True),
            nn.Conv2d(ngf, 1, 3, 1, 1),
            nn.Tanh(),
        )

    def forward(self, z):
        h = self.project(z).view(z.size(0), self.ngf * 4, 4, 4)
        return self.main(h)


class Critic(nn.Module):
    # no BatchNorm here: the penalty is per sample
    def __init__(self, ndf=16):
        super().__init__()
        self.main = nn.Sequential(
            nn.Conv2d(1, ndf, 4, 2, 1),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf, ndf * 2, 4, 2, 1),
            nn.GroupNorm(1, ndf * 2),
            nn.LeakyReLU(0.2),
            nn.Conv2d(ndf * 2, ndf * 4, 4, 2, 1),
            nn.GroupNorm(1, ndf * 4),
            nn.LeakyReLU(0.2),
        )
        self.head = nn.Linear(ndf * 4 * 2 * 2, 1)

    def forward(self, x):
        return self.head(self.main(x).flatten(1)).squeeze(1)
