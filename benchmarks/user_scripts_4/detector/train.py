import argparse
import random
import numpy as np
import torch
from torch.utils.data import DataLoader
from dataset import BlobsDetection, detection_collate
from engine import evaluate, train_one_epoch
from model import TinyFCOS


def main(args):
    random.seed(args.seed)
    np.random.seed(args.seed)
    torch.manual_seed(args.seed)
    device = torch.device(args.device)
    train_set = BlobsDetection(args.images, seed=1, mosaic=0.3)
    val_set = BlobsDetection(64, seed=2)
    train_loader = DataLoader(train_set, batch_size=16, shuffle=True, collate_fn=detection_collate, drop_last=True)
    val_loader = DataLoader(val_set, batch_size=16, collate_fn=detection_collate)

    model = TinyFCOS().to(device)
    params = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.SGD(params, lr=0.01, momentum=0.9, weight_decay=5e-4)
    sched = torch.optim.lr_scheduler.MultiStepLR(optimizer, [args.epochs - 1], 0.1)
    for epoch in range(args.epochs):
        train_one_epoch(model, optimizer, train_loader, device, epoch)
        sched.step()
        recall, found = evaluate(model, val_loader, device)
        print(f"Epoch [{epoch}] recall@0.5 {recall:.4f} detections {found}")


if __name__ == "__main__":
    ap = argparse.ArgumentParser()
    ap.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    ap.add_argument("--epochs", type=int, default=4)
    ap.add_argument("--images", type=int, default=480)
    ap.add_argument("--seed", type=int, default=0)
    main(ap.parse_args())
