from pathlib import Path
from time import perf_counter

import click
import numpy as np
import torch
from torch import nn

from alphabet import collapse, decode, edit_distance
from crnn import CRNN
from lines import make_loader


def greedy(log_probs: torch.Tensor, steps: torch.Tensor) -> list[str]:
    texts = []
    for b in range(log_probs.shape[1]):
        path = []
        for t in range(int(steps[b])):
            path.append(log_probs[t, b].argmax().item())
        texts.append(decode(collapse(path)))
    return texts


def beam(log_probs: np.ndarray, width: int = 10) -> str:
    """Prefix beam search, used once for the test report."""
    beams = {(): (0.0, -np.inf)}
    for row in log_probs:
        nxt: dict = {}
        for prefix, (pb, pnb) in beams.items():
            for c in np.argsort(row)[-width:]:
                p = row[c]
                if c == 0:
                    a, b = nxt.get(prefix, (-np.inf, -np.inf))
                    nxt[prefix] = (np.logaddexp(a, np.logaddexp(pb, pnb) + p), b)
                    continue
                new = prefix + (int(c),)
                a, b = nxt.get(new, (-np.inf, -np.inf))
                if prefix and prefix[-1] == c:
                    nxt[new] = (a, np.logaddexp(b, pb + p))
                    a, b = nxt.get(prefix, (-np.inf, -np.inf))
                    nxt[prefix] = (a, np.logaddexp(b, pnb + p))
                else:
                    nxt[new] = (a, np.logaddexp(b, np.logaddexp(pb, pnb) + p))
        beams = dict(sorted(nxt.items(), key=lambda kv: -np.logaddexp(*kv[1]))[:width])
    return decode(max(beams.items(), key=lambda kv: np.logaddexp(*kv[1]))[0])


@torch.no_grad()
def score(model: nn.Module, loader, device: torch.device, ctc: nn.CTCLoss) -> dict[str, float]:
    model.eval()
    total = chars = errors = exact = n = 0
    for images, widths, targets, lengths, texts in loader:
        images = images.to(device)
        log_probs, steps = model(images, widths)
        total += ctc(log_probs, targets.to(device), steps, lengths).item() * len(texts)
        for guess, truth in zip(greedy(log_probs, steps), texts):
            truth = truth.upper()
            errors += edit_distance(guess, truth)
            chars += len(truth)
            exact += guess == truth
            n += 1
    return {"loss": total / n, "cer": errors / max(chars, 1), "acc": exact / n}


@click.command()
@click.argument("root", type=click.Path(exists=True, path_type=Path))
@click.option("--epochs", default=60)
@click.option("--batch-size", default=128)
@click.option("--lr", default=1e-3)
@click.option("--hidden", default=320)
@click.option("--workers", default=0, help="0: the label machine has little shared memory")
@click.option("--out", default="crnn.pt", type=click.Path(path_type=Path))
@click.option("--resume", is_flag=True)
@click.option("--seed", default=1)
def cli(root: Path, epochs: int, batch_size: int, lr: float, hidden: int, workers: int, out: Path, resume: bool, seed: int):
    torch.manual_seed(seed)
    np.random.seed(seed)
    device = torch.device("cuda:0" if torch.cuda.is_available() else "cpu")
    train = make_loader(root, "train", batch_size, True, num_workers=workers)
    valid = make_loader(root, "valid", batch_size, False, num_workers=workers)

    model = CRNN(hidden).to(device)
    ctc = nn.CTCLoss(blank=0, zero_infinity=True)
    decay = [p for n, p in model.named_parameters() if p.ndim > 1 and "lstm" not in n]
    rest = [p for n, p in model.named_parameters() if not (p.ndim > 1 and "lstm" not in n)]
    optim = torch.optim.AdamW([{"params": decay, "weight_decay": 0.01}, {"params": rest, "weight_decay": 0.0}], lr=lr)
    plan = torch.optim.lr_scheduler.LambdaLR(optim, lambda s: min((s + 1) / 1000, 1.0) * 0.5 ** (s / 20000))

    first, best = 0, 1e9
    if resume and out.with_suffix(".last.pt").exists():
        state = torch.load(out.with_suffix(".last.pt"), map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        optim.load_state_dict(state["optim"])
        plan.load_state_dict(state["plan"])
        first, best = state["epoch"] + 1, state["best"]

    for epoch in range(first, epochs):
        model.train()
        start, seen, sum_loss, right = perf_counter(), 0, 0.0, 0
        for i, (images, widths, targets, lengths, texts) in enumerate(train):
            images, targets = images.to(device), targets.to(device)
            widths, lengths = widths.to(device), lengths.to(device)
            log_probs, steps = model(images, widths)
            loss = ctc(log_probs, targets, steps, lengths)
            if torch.isnan(loss) or torch.isinf(loss):
                print(f"epoch {epoch} batch {i}: bad loss, skipped: {texts[:4]}")
                continue
            optim.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 5.0)
            optim.step()
            plan.step()
            seen += len(texts)
            sum_loss += loss.item() * len(texts)
            right += sum(g == t.upper() for g, t in zip(greedy(log_probs.detach(), steps), texts))
            if i % 50 == 0:
                print(f"{epoch}:{i} loss {sum_loss / seen:.4f} acc {right / seen:.3f} {seen / (perf_counter() - start):.0f} img/s")
        result = score(model, valid, device, ctc)
        print(f"epoch {epoch}: " + " ".join(f"{k}={v:.4f}" for k, v in result.items()))
        torch.cuda.empty_cache()
        state = {"model": model.state_dict(), "optim": optim.state_dict(), "plan": plan.state_dict(), "epoch": epoch, "best": best}
        torch.save(state, out.with_suffix(".last.pt"))
        if result["cer"] < best:
            best = result["cer"]
            torch.save(model.state_dict(), out)

    # final report: greedy against beam search
    model.load_state_dict(torch.load(out, map_location=device, weights_only=True))
    model.eval()
    wrong = [0, 0]
    for images, widths, _, _, texts in make_loader(root, "test", 1, False):
        with torch.no_grad():
            log_probs, steps = model(images.to(device), widths)
        wrong[0] += greedy(log_probs, steps)[0] != texts[0].upper()
        wrong[1] += beam(log_probs[: int(steps[0]), 0].cpu().numpy()) != texts[0].upper()
    print(f"test: {wrong[0]} wrong by greedy, {wrong[1]} wrong by beam")


if __name__ == "__main__":
    cli()
