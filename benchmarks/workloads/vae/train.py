"""A variational autoencoder of small grey images that lie in memory as bytes."""

import argparse

import torch
from torch import nn, optim
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset


class VAE(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.fc1 = nn.Linear(784, hidden)
        self.fc21 = nn.Linear(hidden, 20)
        self.fc22 = nn.Linear(hidden, 20)
        self.fc3 = nn.Linear(20, hidden)
        self.fc4 = nn.Linear(hidden, 784)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 784))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar


def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 784), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD


def images(number):
    """Blurred squares, as bytes."""
    small = (torch.rand(number, 1, 4, 4) < 0.3).float()
    return (F.interpolate(small, size=28, mode="bilinear") * 255).to(torch.uint8)


def train(model, device, loader, optimizer, epoch):
    model.train()
    train_loss = 0
    for batch_idx, (data,) in enumerate(loader):
        data = (data.float() / 255).to(device)
        optimizer.zero_grad()
        recon_batch, mu, logvar = model(data)
        loss = loss_function(recon_batch, data, mu, logvar)
        loss.backward()
        train_loss += loss.item()
        optimizer.step()
        if batch_idx % 10 == 0:
            print(f"epoch {epoch} batch {batch_idx}: loss {loss.item() / len(data):.4f}")
    print(f"epoch {epoch}: average loss {train_loss / len(loader.dataset):.4f}")


def test(model, device, loader):
    model.eval()
    test_loss = 0
    with torch.no_grad():
        for (data,) in loader:
            data = (data.float() / 255).to(device)
            recon_batch, mu, logvar = model(data)
            test_loss += loss_function(recon_batch, data, mu, logvar).item()
    print(f"test loss {test_loss / len(loader.dataset):.4f}")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--batch-size", type=int, default=128)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--tiny", action="store_true", help="for a CPU, in seconds")
    args = parser.parse_args()
    number, hidden = 60_000, 400
    if args.tiny:
        number, hidden, args.batch_size, args.epochs = 192, 40, 16, 2

    torch.manual_seed(1)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    train_loader = DataLoader(
        TensorDataset(images(number)), batch_size=args.batch_size, shuffle=True
    )
    test_loader = DataLoader(TensorDataset(images(number // 6)), batch_size=args.batch_size)
    model = VAE(hidden).to(device)
    optimizer = optim.Adam(model.parameters(), lr=1e-3)
    for epoch in range(1, args.epochs + 1):
        train(model, device, train_loader, optimizer, epoch)
        test(model, device, test_loader)
    torch.save(model.state_dict(), "vae.pt")


if __name__ == "__main__":
    main()
