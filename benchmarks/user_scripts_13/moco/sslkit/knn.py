import torch
import torch.nn.functional as F


@torch.no_grad()
def embed(encoder, loader, device):
    feats, labels = [], []
    for x, y in loader:
        f = encoder.features(x.to(device, non_blocking=True))
        feats.append(F.normalize(f, dim=1).cpu())
        labels.append(y)
    return torch.cat(feats), torch.cat(labels)


@torch.no_grad()
def knn_accuracy(encoder, bank_loader, test_loader, device, k, T, classes=8):
    encoder.eval()
    bank, bank_y = embed(encoder, bank_loader, device)
    test, test_y = embed(encoder, test_loader, device)
    encoder.train()
    hit = 0
    for f, y in zip(test, test_y):
        sim, idx = (bank @ f).topk(k)
        votes = torch.zeros(classes).scatter_add_(0, bank_y[idx], (sim / T).exp())
        hit += int(votes.argmax() == y)
    return hit / len(test)
