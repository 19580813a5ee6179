"""As train.py, tuned by hand: images on the device, logits, 16 bits, compiled, nothing read."""

import argparse

import torch
import torch.nn as nn


def weights_init(m):
    if isinstance(m, (nn.Conv2d, nn.ConvTranspose2d)):
        nn.init.normal_(m.weight, 0.0, 0.02)
    elif isinstance(m, nn.BatchNorm2d):
        nn.init.normal_(m.weight, 1.0, 0.02)
        nn.init.zeros_(m.bias)


class Generator(nn.Module):
    def __init__(self, nz, ngf):
        super().__init__()
        layers = [nn.ConvTranspose2d(nz, ngf * 8, 4, 1, 0, bias=False)]
        layers += [nn.BatchNorm2d(ngf * 8), nn.ReLU(True)]
        for n in (4, 2, 1):
            layers.append(nn.ConvTranspose2d(ngf * n * 2, ngf * n, 4, 2, 1, bias=False))
            layers += [nn.BatchNorm2d(ngf * n), nn.ReLU(True)]
        layers += [nn.ConvTranspose2d(ngf, 3, 4, 2, 1, bias=False), nn.Tanh()]
        self.main = nn.Sequential(*layers)

    def forward(self, x):
        return self.main(x)


class Discriminator(nn.Module):
    def __init__(self, ndf):
        super().__init__()
        layers = [nn.Conv2d(3, ndf, 4, 2, 1, bias=False), nn.LeakyReLU(0.2, inplace=True)]
        for n in (1, 2, 4):
            layers.append(nn.Conv2d(ndf * n, ndf * n * 2, 4, 2, 1, bias=False))
            layers += [nn.BatchNorm2d(ndf * n * 2), nn.LeakyReLU(0.2, inplace=True)]
        layers += [nn.Conv2d(ndf * 8, 1, 4, 1, 0, bias=False)]
        self.main = nn.Sequential(*layers)

    def forward(self, x):
        return self.main(x)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--tiny", action="store_true", help="for a CPU, in seconds")
    args = parser.parse_args()
    number, batch, nz, features = (96, 8, 16, 4) if args.tiny else (30_000, 128, 100, 64)
    if args.tiny:
        args.epochs = 1

    torch.manual_seed(999)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    small = torch.rand(number, 3, 4, 4)
    images = nn.functional.interpolate(small, size=64, mode="bilinear") * 2 - 1
    images = images.to(device).contiguous(memory_format=torch.channels_last)
    on_gpu = device.type == "cuda"
    torch.backends.cudnn.benchmark = True

    def half():
        return torch.autocast(device.type, torch.bfloat16, enabled=on_gpu)

    netG = Generator(nz, features).to(device).to(memory_format=torch.channels_last)
    netG.apply(weights_init)
    netD = Discriminator(features).to(device).to(memory_format=torch.channels_last)
    netD.apply(weights_init)
    G, D = (torch.compile(netG), torch.compile(netD)) if on_gpu else (netG, netD)
    criterion = nn.BCEWithLogitsLoss()
    fixed_noise = torch.randn(16, nz, 1, 1, device=device)
    real_label = 1.0
    fake_label = 0.0
    optimizerD = torch.optim.Adam(netD.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    optimizerG = torch.optim.Adam(netG.parameters(), lr=2e-4, betas=(0.5, 0.999), fused=True)
    img_list, G_losses, D_losses = [], [], []
    for epoch in range(args.epochs):
        order = torch.randperm(number, device=device).split(batch)
        for i, rows in enumerate(order):
            netD.zero_grad()
            netD.requires_grad_(True)
            real = images[rows]
            b_size = real.size(0)
            label = torch.full((b_size,), real_label, dtype=torch.float, device=device)
            with half():
                output = D(real).view(-1)
                errD_real = criterion(output, label)
            errD_real.backward()
            D_x = output.detach().sigmoid().mean()

            noise = torch.randn(b_size, nz, 1, 1, device=device)
            label.fill_(fake_label)
            with half():
                fake = G(noise)
                output = D(fake.detach()).view(-1)
                errD_fake = criterion(output, label)
            errD_fake.backward()
            D_G_z1 = output.detach().sigmoid().mean()
            errD = (errD_real + errD_fake).detach()
            optimizerD.step()

            netG.zero_grad()
            netD.requires_grad_(False)  # only the gradients of the generator are needed
            label.fill_(real_label)
            with half():
                output = D(fake).view(-1)
                errG = criterion(output, label)
            errG.backward()
            D_G_z2 = output.detach().sigmoid().mean()
            optimizerG.step()

            if i % 50 == 0:
                print(f"[{epoch}][{i}/{len(order)}] D {errD.item():.4f} G {errG.item():.4f}")
                print(f"D(x) {D_x:.4f}, D(G(z)) {D_G_z1:.4f} / {D_G_z2:.4f}")
            G_losses.append(errG.detach())
            D_losses.append(errD)
        with torch.no_grad():
            img_list.append(netG(fixed_noise).cpu())
    G_losses, D_losses = torch.stack(G_losses).tolist(), torch.stack(D_losses).tolist()


if __name__ == "__main__":
    main()
