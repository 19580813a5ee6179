import argparse
import collections
import os
import random

import numpy as np
import torch
import torch.optim as optim
from torch.utils.data import DataLoader

from retina import evaluation, model
from retina.dataloader import (AspectRatioBasedSampler, Augmenter, Compose, Normalizer, Resizer, ShapesDataset,
                               collater)
from retina.losses import FocalLoss
from retina.shapes import make_shapes

print('torch', torch.__version__)


def main(args=None):
    parser = argparse.ArgumentParser(description='Simple training script for training a RetinaNet network.')
    parser.add_argument('--data', help='npz file, is made when missing', default='shapes.npz')
    parser.add_argument('--n-images', type=int, default=8000)
    parser.add_argument('--n-val', type=int, default=800)
    parser.add_argument('--side', type=int, default=320, help='largest side of the pictures that are made')
    parser.add_argument('--min-side', type=int, default=256)
    parser.add_argument('--max-side', type=int, default=352)
    parser.add_argument('--width', type=int, default=64, help='channels of the first stage')
    parser.add_argument('--feature-size', type=int, default=256)
    parser.add_argument('--batch-size', type=int, default=16)
    parser.add_argument('--epochs', help='Number of epochs', type=int, default=50)
    parser.add_argument('--lr', type=float, default=1e-4)
    parser.add_argument('--workers', type=int, default=2)
    parser.add_argument('--seed', type=int, default=3)
    parser = parser.parse_args(args)

    random.seed(parser.seed)
    np.random.seed(parser.seed)
    torch.manual_seed(parser.seed)
    device = torch.device('cuda:0' if torch.cuda.is_available() else 'cpu')

    if not os.path.exists(parser.data):
        make_shapes(parser.data, parser.n_images + parser.n_val, parser.side)

    # Create the data loaders
    dataset_train = ShapesDataset(parser.data, 0, parser.n_images,
                                  transform=Compose([Normalizer(), Augmenter(),
                                                     Resizer(parser.min_side, parser.max_side)]))
    dataset_val = ShapesDataset(parser.data, parser.n_images, parser.n_images + parser.n_val,
                                transform=Compose([Normalizer(), Resizer(parser.min_side, parser.max_side)]))
    sampler = AspectRatioBasedSampler(dataset_train, batch_size=parser.batch_size, drop_last=False)
    dataloader_train = DataLoader(dataset_train, num_workers=parser.workers, collate_fn=collater,
                                  batch_sampler=sampler)

    # Create the model
    retinanet = model.RetinaNet(num_classes=dataset_train.num_classes(), width=parser.width,
                                feature_size=parser.feature_size)
    retinanet = retinanet.to(device)
    retinanet.training = True

    criterion = FocalLoss()
    optimizer = optim.Adam(retinanet.parameters(), lr=parser.lr)
    scheduler = optim.lr_scheduler.ReduceLROnPlateau(optimizer, patience=3)
    loss_hist = collections.deque(maxlen=500)

    print('Num training images: {}'.format(len(dataset_train)))

    for epoch_num in range(parser.epochs):
        retinanet.train()
        retinanet.freeze_bn()
        epoch_loss = []

        for iter_num, data in enumerate(dataloader_train):
            optimizer.zero_grad()

            img = data['img'].to(device).float()
            annot = data['annot'].to(device)

            classification, regression, anchors = retinanet(img)
            classification_loss, regression_loss = criterion(classification, regression, anchors, annot)
            classification_loss = classification_loss.mean()
            regression_loss = regression_loss.mean()
            loss = classification_loss + regression_loss

            if bool(loss == 0):
                continue

            loss.backward()
            torch.nn.utils.clip_grad_norm_(retinanet.parameters(), 0.1)
            optimizer.step()

            loss_hist.append(float(loss))
            epoch_loss.append(float(loss))

            print('Epoch: {} | Iteration: {} | Classification loss: {:1.5f} | Regression loss: {:1.5f} | Running loss: {:1.5f}'.format(
                epoch_num, iter_num, float(classification_loss), float(regression_loss), np.mean(loss_hist)))

            del classification_loss
            del regression_loss

        print('Evaluating dataset')
        mAP = evaluation.evaluate(dataset_val, retinanet, device)
        scheduler.step(np.mean(epoch_loss))
        print('Epoch: {} | mean loss {:1.5f} | mAP {:1.4f}'.format(epoch_num, np.mean(epoch_loss), mAP))

        torch.save(retinanet.state_dict(), 'retinanet_{}.pt'.format(epoch_num))

    retinanet.eval()
    torch.save(retinanet, 'model_final.pt')


if __name__ == '__main__':
    main()
