"""Noisy labels: two networks, each trained on the samples the other finds easy (co-teaching)."""
import torch
import torch.nn as nn
import torch.nn.functional as F

seed = 21
EPOCHS, BATCH, NOISE, CLASSES = 10, 64, 0.35, 5
torch.set_num_threads(1)
torch.manual_seed(seed)


def blobs(n, gen, centers):
    y = torch.randint(0, CLASSES, (n,), generator=gen)
    which = torch.randint(0, 3, (n,), generator=gen)
    x = centers[y, which] + 0.75 * torch.randn(n, 12, generator=gen)
    return x, y


data_gen = torch.Generator().manual_seed(4)
centers = torch.randn(CLASSES, 3, 12, generator=data_gen) * 0.8
x_train, y_clean = blobs(1200, data_gen, centers)
x_test, y_test = blobs(1000, data_gen, centers)
flip = torch.rand(len(y_clean), generator=data_gen) < NOISE
other = (y_clean + torch.randint(1, CLASSES, (len(y_clean),), generator=data_gen)) % CLASSES
y_train = torch.where(flip, other, y_clean)


def make_net():
    return nn.Sequential(nn.Linear(12, 128), nn.BatchNorm1d(128), nn.ReLU(), nn.Dropout(0.1),
                         nn.Linear(128, 128), nn.ReLU(), nn.Linear(128, CLASSES))


def keep_rate(epoch, ramp=4):
    return 1.0 - NOISE * min(1.0, epoch / ramp)


def accuracy(net_a, net_b):
    net_a.eval(), net_b.eval()
    with torch.no_grad():
        out = net_a(x_test).softmax(1) + net_b(x_test).softmax(1)
        loss = F.nll_loss((out / 2).log(), y_test).item()
        acc = (out.argmax(1) == y_test).float().mean().item()
    net_a.train(), net_b.train()
    return loss, acc


net_a = make_net()
net_b = make_net()
opt_a = torch.optim.SGD(net_a.parameters(), lr=0.04, momentum=0.9, weight_decay=1e-4)
opt_b = torch.optim.SGD(net_b.parameters(), lr=0.04, momentum=0.9, weight_decay=1e-4)

for epoch in range(EPOCHS):
    perm = torch.randperm(len(x_train))
    kept_loss = kept = clean = 0
    for i in range(0, len(perm), BATCH):
        idx = perm[i:i + BATCH]
        x, y = x_train[idx], y_train[idx]
        loss_a = F.cross_entropy(net_a(x), y, reduction="none")
        loss_b = F.cross_entropy(net_b(x), y, reduction="none")
        n = max(1, int(keep_rate(epoch) * len(idx)))
        easy_a = loss_a.detach().argsort()[:n]
        easy_b = loss_b.detach().argsort()[:n]
        step_a, step_b = loss_a[easy_b].mean(), loss_b[easy_a].mean()
        opt_a.zero_grad()
        step_a.backward()
        opt_a.step()
        opt_b.zero_grad()
        step_b.backward()
        opt_b.step()
        kept_loss += (step_a.item() + step_b.item()) / 2 * n
        kept += n
        clean += (~flip[idx][easy_b]).sum().item()
    test_loss, test_acc = accuracy(net_a, net_b)
    print(f"epoch {epoch:2d} kept_loss {kept_loss / kept:.4f} clean {clean / kept:.3f} "
          f"test_loss {test_loss:.4f} test_acc {test_acc:.4f}")

torch.save({"a": net_a.state_dict(), "b": net_b.state_dict()}, "coteach.pt")
