import argparse
import logging
import os
import random
import sys
import tempfile

import numpy as np
import torch
import torch.nn.functional as F

import provider
from dataset import PartNormalDataset, prepare, seg_classes
from pointnet2 import get_model, feature_transform_regularizer

seg_label_to_cat = {}
for cat in seg_classes.keys():
    for label in seg_classes[cat]:
        seg_label_to_cat[label] = cat


def to_categorical(y, num_classes):
    """ 1-hot encodes a tensor """
    new_y = torch.eye(num_classes)[y.cpu().data.numpy(), ]
    if y.is_cuda:
        return new_y.cuda()
    return new_y


def parse_args():
    parser = argparse.ArgumentParser('PointNet2 part segmentation')
    parser.add_argument('--batch_size', type=int, default=8)
    parser.add_argument('--epoch', default=6, type=int)
    parser.add_argument('--learning_rate', default=0.002, type=float)
    parser.add_argument('--decay_rate', type=float, default=1e-4, help='weight decay')
    parser.add_argument('--npoint', type=int, default=256)
    parser.add_argument('--step_size', type=int, default=3)
    parser.add_argument('--lr_decay', type=float, default=0.5)
    parser.add_argument('--data_root', default=os.path.join(tempfile.gettempdir(), 'partshapes_v1'))
    parser.add_argument('--log_dir', default=None)
    parser.add_argument('--seed', type=int, default=1)
    return parser.parse_args()


def main(args):
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    torch.manual_seed(args.seed)
    np.random.seed(args.seed)
    random.seed(args.seed)
    log_dir = args.log_dir or tempfile.mkdtemp(prefix='partseg_')
    logging.basicConfig(level=logging.INFO, format='%(message)s', stream=sys.stdout)
    logger = logging.getLogger('Model')
    logger.info('PARAMETER ... batch %d, npoint %d', args.batch_size, args.npoint)

    prepare(args.data_root)
    TRAIN_DATASET = PartNormalDataset(args.data_root, args.npoint, 'train')
    trainDataLoader = torch.utils.data.DataLoader(TRAIN_DATASET, batch_size=args.batch_size, shuffle=True, drop_last=True)
    TEST_DATASET = PartNormalDataset(args.data_root, args.npoint, 'test')
    testDataLoader = torch.utils.data.DataLoader(TEST_DATASET, batch_size=args.batch_size, shuffle=False)
    num_classes, num_part = len(seg_classes), sum(len(v) for v in seg_classes.values())

    classifier = get_model(num_part, num_classes).to(device)
    optimizer = torch.optim.Adam(classifier.parameters(), lr=args.learning_rate, betas=(0.9, 0.999), eps=1e-08,
                                 weight_decay=args.decay_rate)

    def bn_momentum_adjust(m, momentum):
        if isinstance(m, torch.nn.BatchNorm2d) or isinstance(m, torch.nn.BatchNorm1d):
            m.momentum = momentum

    best_acc, best_inctance_avg_iou = 0, 0
    for epoch in range(args.epoch):
        mean_correct, mean_loss = [], []
        lr = max(args.learning_rate * (args.lr_decay ** (epoch // args.step_size)), 1e-5)
        for param_group in optimizer.param_groups:
            param_group['lr'] = lr
        momentum = max(0.1 * (0.5 ** (epoch // args.step_size)), 0.01)
        classifier = classifier.apply(lambda x: bn_momentum_adjust(x, momentum))
        classifier = classifier.train()

        for i, (points, label, target) in enumerate(trainDataLoader):
            optimizer.zero_grad()
            points = points.data.numpy()
            points[:, :, 0:3] = provider.rotate_point_cloud(points[:, :, 0:3])
            points[:, :, 0:3] = provider.random_scale_point_cloud(points[:, :, 0:3])
            points[:, :, 0:3] = provider.shift_point_cloud(points[:, :, 0:3])
            points = torch.Tensor(points)
            points, label, target = points.float().to(device), label.long().to(device), target.long().to(device)
            points = points.transpose(2, 1)

            seg_pred, trans_feat = classifier(points, to_categorical(label, num_classes))
            seg_pred = seg_pred.contiguous().view(-1, num_part)
            target = target.view(-1, 1)[:, 0]
            pred_choice = seg_pred.data.max(1)[1]
            correct = pred_choice.eq(target.data).cpu().sum()
            mean_correct.append(correct.item() / (args.batch_size * args.npoint))
            loss = F.nll_loss(seg_pred, target) + 0.001 * feature_transform_regularizer(trans_feat)
            mean_loss.append(loss.item())
            loss.backward()
            optimizer.step()
        logger.info('Epoch %d lr %.5f loss %.5f train acc %.5f', epoch + 1, lr, np.mean(mean_loss), np.mean(mean_correct))

        with torch.no_grad():
            total_correct, total_seen = 0, 0
            shape_ious = {cat: [] for cat in seg_classes.keys()}
            classifier = classifier.eval()
            for batch_id, (points, label, target) in enumerate(testDataLoader):
                cur_batch_size, NUM_POINT, _ = points.size()
                points, label, target = points.float().to(device), label.long().to(device), target.long().to(device)
                points = points.transpose(2, 1)
                seg_pred, _ = classifier(points, to_categorical(label, num_classes))
                cur_pred_val = seg_pred.cpu().data.numpy()
                cur_pred_val_logits = cur_pred_val
                cur_pred_val = np.zeros((cur_batch_size, NUM_POINT)).astype(np.int32)
                target = target.cpu().data.numpy()
                for i in range(cur_batch_size):
                    cat = seg_label_to_cat[target[i, 0]]
                    logits = cur_pred_val_logits[i, :, :]
                    cur_pred_val[i, :] = np.argmax(logits[:, seg_classes[cat]], 1) + seg_classes[cat][0]
                total_correct += np.sum(cur_pred_val == target)
                total_seen += cur_batch_size * NUM_POINT
                for i in range(cur_batch_size):
                    segp, segl = cur_pred_val[i, :], target[i, :]
                    cat = seg_label_to_cat[segl[0]]
                    part_ious = [0.0 for _ in range(len(seg_classes[cat]))]
                    for l in seg_classes[cat]:
                        if (np.sum(segl == l) == 0) and (np.sum(segp == l) == 0):
                            part_ious[l - seg_classes[cat][0]] = 1.0
                        else:
                            part_ious[l - seg_classes[cat][0]] = np.sum((segl == l) & (segp == l)) / float(
                                np.sum((segl == l) | (segp == l)))
                    shape_ious[cat].append(np.mean(part_ious))
            all_shape_ious = [iou for cat in shape_ious for iou in shape_ious[cat]]
            accuracy, inst_iou = total_correct / float(total_seen), np.mean(all_shape_ious)
        for cat in sorted(shape_ious.keys()):
            logger.info('eval mIoU of %s %.5f', cat + ' ' * (10 - len(cat)), np.mean(shape_ious[cat]))
        logger.info('Epoch %d test accuracy %.5f inctance avg mIOU %.5f', epoch + 1, accuracy, inst_iou)

        if inst_iou >= best_inctance_avg_iou:
            best_inctance_avg_iou = inst_iou
            torch.save({'epoch': epoch, 'train_acc': np.mean(mean_correct), 'inctance_avg_iou': inst_iou,
                        'model_state_dict': classifier.state_dict(),
                        'optimizer_state_dict': optimizer.state_dict()}, os.path.join(log_dir, 'best_model.pth'))
        best_acc = max(best_acc, accuracy)
    logger.info('Best accuracy %.5f, best instance mIoU %.5f', best_acc, best_inctance_avg_iou)


if __name__ == '__main__':
    main(parse_args())
