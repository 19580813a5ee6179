from __future__ import print_function
import argparse
import os
import time

import torch
import torch.nn as nn
import torch.nn.functional as F
import torch.nn.init as init
import torch.optim as optim
import torch.utils.data as data
from torch.autograd import Variable

parser = argparse.ArgumentParser(description='VAE (pytorch 0.3/0.4)')
parser.add_argument('--batch_size', type=int, default=128)
parser.add_argument('--epochs', type=int, default=10)
parser.add_argument('--no_cuda', action='store_true', default=False)
parser.add_argument('--seed', type=int, default=1)
parser.add_argument('--log_interval', type=int, default=3)
parser.add_argument('--beta', type=float, default=1.0)
parser.add_argument('--lr', type=float, default=2e-3)
parser.add_argument('--z', type=int, default=8)
args = parser.parse_args()
args.cuda = not args.no_cuda and torch.cuda.is_available()

torch.manual_seed(args.seed)
if args.cuda:
    torch.cuda.manual_seed(args.seed)

Tensor = torch.cuda.FloatTensor if args.cuda else torch.FloatTensor


class SavedDigits(data.Dataset):
    def __init__(self, path, transform=None):
        self.fh = open(path, 'rb')           # kept open like the hdf5 version
        self.data, self.labels = torch.load(self.fh)
        self.transform = transform

    def __getitem__(self, index):
        img, target = self.data[index], self.labels[index]
        img = img.float().div_(255).unsqueeze(0)
        if self.transform is not None:
            img = self.transform(img)
        return img, target

    def __len__(self):
        return self.data.size(0)


def binarize(img):
    # stochastic binarization: another picture each time it is asked for
    return torch.bernoulli(img)


kwargs = {'num_workers': 0, 'pin_memory': True} if args.cuda else {}
train_loader = data.DataLoader(SavedDigits('training.pt', binarize), batch_size=args.batch_size, shuffle=True, **kwargs)
test_loader = data.DataLoader(SavedDigits('test.pt', binarize), batch_size=args.batch_size, shuffle=False, **kwargs)


def weights_init(m):
    classname = m.__class__.__name__
    if classname.find('Conv') != -1:
        init.kaiming_normal_(m.weight.data)
    elif classname.find('BatchNorm') != -1:
        m.weight.data.normal_(1.0, 0.02)
        m.bias.data.fill_(0)


class VAE(nn.Module):
    def __init__(self, z):
        super(VAE, self).__init__()
        self.z = z
        self.enc = nn.Sequential(
            nn.Conv2d(1, 16, 4, 2, 1, bias=False), nn.BatchNorm2d(16), nn.LeakyReLU(0.2, inplace=True),
            nn.Conv2d(16, 32, 4, 2, 1, bias=False), nn.BatchNorm2d(32), nn.LeakyReLU(0.2, inplace=True))
        self.fc = nn.Linear(32 * 25, 2 * z)
        self.fc_dec = nn.Linear(z, 32 * 25)
        self.dec = nn.Sequential(
            nn.BatchNorm2d(32), nn.ReLU(True),
            nn.ConvTranspose2d(32, 16, 4, 2, 1), nn.BatchNorm2d(16), nn.ReLU(True),
            nn.ConvTranspose2d(16, 1, 4, 2, 1))

    def encode(self, x):
        h = self.enc(x)
        h = self.fc(h.view(-1, 32 * 25))
        mu, logvar = h.chunk(2, 1)
        return mu, logvar

    def reparametrize(self, mu, logvar):
        std = logvar.mul(0.5).exp_()
        if args.cuda:
            eps = torch.cuda.FloatTensor(std.size()).normal_()
        else:
            eps = torch.FloatTensor(std.size()).normal_()
        eps = Variable(eps)
        return eps.mul(std).add_(mu)

    def decode(self, z):
        return torch.sigmoid(self.dec(self.fc_dec(z).view(-1, 32, 5, 5)))

    def forward(self, x):
        mu, logvar = self.encode(x)
        z = self.reparametrize(mu, logvar)
        return self.decode(z), mu, logvar


model = VAE(args.z)
model.apply(weights_init)
if args.cuda:
    model.cuda()

reconstruction_function = nn.BCELoss(size_average=False)


def loss_function(recon_x, x, mu, logvar):
    BCE = reconstruction_function(recon_x, x)
    # 0.5 * sum(1 + log(sigma^2) - mu^2 - sigma^2)
    KLD_element = mu.pow(2).add_(logvar.exp()).mul_(-1).add_(1).add_(logvar)
    KLD = torch.sum(KLD_element).mul_(-0.5)
    return BCE, KLD


optimizer = optim.Adam(model.parameters(), lr=args.lr)
beta = 0.0
steps = 0


def adjust_learning_rate(optimizer, epoch):
    lr = args.lr * (0.5 ** (epoch // 2))
    for g in optimizer.param_groups:
        g['lr'] = lr


def train(epoch):
    global beta, steps
    model.train()
    train_loss = 0
    kl_running = None
    adjust_learning_rate(optimizer, epoch)
    for batch_idx, (batch, _) in enumerate(train_loader):
        batch = Variable(batch)
        if args.cuda:
            batch = batch.cuda()
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(batch)
        bce, kld = loss_function(recon_batch, batch, mu, logvar)
        loss = bce + beta * kld
        loss.backward()

        # the decoder's last bias is stepped by hand
        last = model.dec[-1].bias
        last.data.add_(-1e-5 * last.grad.data)
        last.grad.data.zero_()

        train_loss += loss.data.item()
        optimizer.step()
        steps += 1

        # KL thermostat: the more the latent code is used the faster beta goes up
        kl_now = kld.data / len(batch)
        kl_running = kl_now if kl_running is None else 0.9 * kl_running + 0.1 * kl_now
        if float(kl_running) > 4.0:
            beta = min(args.beta, beta + 0.02)
        else:
            beta = max(0.0, beta - 0.01)

        if batch_idx % args.log_interval == 0:
            print('Train Epoch: {} [{}/{}]\tLoss: {} beta {}'.format(
                epoch, batch_idx * len(batch), len(train_loader.dataset), loss.item() / len(batch), beta))

    print('====> Epoch: {} Average loss: {}'.format(epoch, train_loss / len(train_loader.dataset)))


def iwae_bound(x, k=5):
    """importance weighted bound, log-mean-exp over k samples"""
    mu, logvar = model.encode(x)
    ws = []
    for _ in range(k):
        z = model.reparametrize(mu, logvar)
        px = -F.binary_cross_entropy(model.decode(z), x, reduction='none').sum(3).sum(2).sum(1)
        pz = -0.5 * z.pow(2).sum(1)
        qz = -0.5 * ((z - mu).pow(2) / logvar.exp() + logvar).sum(1)
        ws.append(px + pz - qz)
    ws = torch.stack(ws)
    return torch.logsumexp(ws, 0) - torch.log(torch.tensor(float(k)))


def refine(x, n=3):
    """a few gradient steps on the code itself (semi-amortized), the model stays as it is"""
    mu, logvar = model.encode(x)
    z = Variable(mu.data.clone(), requires_grad=True)
    o = optim.SGD([z], lr=0.02)
    for _ in range(n):
        o.zero_grad()
        l = reconstruction_function(model.decode(z), x) / len(x)
        l.backward()
        o.step()
    model.zero_grad()
    return reconstruction_function(model.decode(z), x)


def test(epoch):
    model.eval()
    test_loss, bound, refined = 0, 0, 0
    for data_, _ in test_loader:
        if args.cuda:
            data_ = data_.cuda()
        data_ = Variable(data_, volatile=True) if torch.__version__ < '0.4' else Variable(data_)
        recon_batch, mu, logvar = model(data_)
        bce, kld = loss_function(recon_batch, data_, mu, logvar)
        test_loss += (bce + kld).data.item()
        bound += iwae_bound(data_).sum().data.item()
        refined += refine(data_).data.item()
    n = len(test_loader.dataset)
    print('====> Test set loss: {} iwae: {} refined bce: {}'.format(test_loss / n, bound / n, refined / n))
    return test_loss / n


best = None
since = time.time()
for epoch in range(1, args.epochs + 1):
    train(epoch)
    l = test(epoch)
    if best is None or l < best:
        best = l
        torch.save(model.state_dict(), 'vae.pth')

sample = Variable(Tensor(6, args.z).normal_())
print(model.decode(sample).data.mean(3).mean(2).view(-1).tolist())
print('steps', steps, 'saved', sorted(torch.load('vae.pth'))[:3], os.path.getsize('vae.pth') > 0)
