import torch
import torch.nn as nn
from torch.utils.data import DataLoader, TensorDataset

torch.manual_seed(0)
device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
generator = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 4)).to(device)
critic = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).to(device)
optimizer_g = torch.optim.Adam(generator.parameters(), lr=0.01)
optimizer_c = torch.optim.Adam(critic.parameters(), lr=0.01)
loader = DataLoader(TensorDataset(torch.randn(24, 4)), batch_size=8)
for epoch in range(2):
    for (real,) in loader:
        real = real.to(device)
        noise = torch.randn(len(real), 3, device=device)
        optimizer_c.zero_grad()
        loss = critic(generator(noise).detach()).mean() - critic(real).mean()
        loss.backward()
        optimizer_c.step()
        optimizer_g.zero_grad()
        loss = -critic(generator(noise)).mean()
        loss.backward()
        optimizer_g.step()
    print(f"epoch {epoch}: {loss.item():.4f}")
