import argparse
import random

import torch
from torch.utils.data import DataLoader

from dataset import ShapesDataset, collate_fn
from engine import evaluate, train_one_epoch
from model import CenterDet


def main(args):
    device = torch.device(args.device)
    random.seed(0)
    torch.manual_seed(0)

    train_loader = DataLoader(ShapesDataset(args.n, 128, True), batch_size=args.batch_size, shuffle=True,
                              num_workers=args.workers, collate_fn=collate_fn)
    test_loader = DataLoader(ShapesDataset(60, 128, False), batch_size=4, shuffle=False,
                             num_workers=args.workers, collate_fn=collate_fn)

    model = CenterDet(3).to(device)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=args.lr, momentum=0.9, weight_decay=1e-4)
    lr_scheduler = torch.optim.lr_scheduler.StepLR(optimizer, step_size=3, gamma=0.1)

    for epoch in range(args.epochs):
        train_one_epoch(model, optimizer, train_loader, device, epoch)
        lr_scheduler.step()
        evaluate(model, test_loader, device)
        torch.save({"model": model.state_dict(), "optimizer": optimizer.state_dict(),
                    "lr_scheduler": lr_scheduler.state_dict(), "epoch": epoch}, "checkpoint.pth")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--epochs", type=int, default=3)
    ap.add_argument("--batch-size", type=int, default=8)
    ap.add_argument("--workers", type=int, default=0)
    ap.add_argument("--lr", type=float, default=0.02)
    ap.add_argument("--n", type=int, default=300)
    main(ap.parse_args())
