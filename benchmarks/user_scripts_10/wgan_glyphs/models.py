import math

import torch.nn as nn


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight.data, 0.0, 0.02)


class Generator(nn.Module):
    def __init__(self, latent_dim, img_size, ngf):
        super(Generator, self).__init__()
        n_up = int(math.log2(img_size)) - 2
        ch = ngf * 2 ** (n_up - 1)
        layers = [nn.ConvTranspose2d(latent_dim, ch, 4, 1, 0, bias=False), nn.BatchNorm2d(ch), nn.ReLU(True)]
        for _ in range(n_up - 1):
            layers += [nn.ConvTranspose2d(ch, ch // 2, 4, 2, 1, bias=False), nn.BatchNorm2d(ch // 2), nn.ReLU(True)]
            ch //= 2
        layers += [nn.ConvTranspose2d(ch, 3, 4, 2, 1), nn.Tanh()]
        self.net = nn.Sequential(*layers)

    def forward(self, z):
        return self.net(z.view(z.size(0), -1, 1, 1))


class Critic(nn.Module):
    """no batch norm in the critic, see the WGAN-GP paper"""

    def __init__(self, img_size, ndf):
        super(Critic, self).__init__()
        n_down = int(math.log2(img_size)) - 2
        layers = [nn.Conv2d(3, ndf, 4, 2, 1), nn.LeakyReLU(0.2, inplace=True)]
        ch = ndf
        for _ in range(n_down - 1):
            layers += [nn.Conv2d(ch, ch * 2, 4, 2, 1), nn.InstanceNorm2d(ch * 2, affine=True),
                       nn.LeakyReLU(0.2, inplace=True)]
            ch *= 2
        layers += [nn.Conv2d(ch, 1, 4, 1, 0)]
        self.net = nn.Sequential(*layers)

    def forward(self, img):
        return self.net(img).view(-1, 1)
