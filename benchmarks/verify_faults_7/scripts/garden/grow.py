import torch

from .cleaner import Average, Cleaner, Noise
from .leaves import loaders
from .settings import settings


def loss_of(model, noise, clean, kind, hide):
    spoilt, added, level = noise.spoil(clean)
    if hide:
        kind = torch.where(torch.rand(len(kind)) < settings.drop_kind, torch.full_like(kind, 2), kind)
    each = (model(spoilt, level, kind) - added).pow(2).mean((1, 2, 3))
    return each * noise.weight(level)


def judge(model, noise, loader):
    model.eval()
    state = torch.get_rng_state()
    torch.manual_seed(1234)
    total, count = 0.0, 0
    with torch.no_grad():
        for clean, kind in loader:
            each = loss_of(model, noise, clean, kind, hide=False)
            total += each.sum().item()
            count += len(each)
    torch.set_rng_state(state)
    model.train()
    return total / count


def grow():
    torch.manual_seed(21)
    train, valid = loaders()
    noise, model = Noise(settings.levels), Cleaner()
    average = Average(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.01)
    total_steps = settings.epochs * len(train)
    scheduler = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.1, total_steps)
    best = float("inf")
    for epoch in range(settings.epochs):
        running, seen = 0.0, 0
        for clean, kind in train:
            loss = loss_of(model, noise, clean, kind, hide=True).mean()
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            scheduler.step()
            average.update(model)
            running += loss.item() * len(clean)
            seen += len(clean)
        average.swap(model)
        found = judge(model, noise, valid)
        if found < best:
            best = found
            torch.save(model.state_dict(), "leaves_best.pt")
        average.swap(model)
        print(f"epoch {epoch}: train {running / seen:.4f}, average on valid {found:.4f}, rate {scheduler.get_last_lr()[0]:.5f}", flush=True)
