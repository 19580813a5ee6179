import numpy as np
import torch
from PIL import Image, ImageDraw


def adjust_learning_rate(optimizer, epoch, args):
    if args.lradj == 'type1':
        lr = args.learning_rate * (0.5 ** ((epoch - 1) // 1))
    else:
        lr = args.learning_rate
    for param_group in optimizer.param_groups:
        param_group['lr'] = lr
    print('Updating learning rate to {}'.format(lr))


class EarlyStopping:
    def __init__(self, patience=7):
        self.patience = patience
        self.counter = 0
        self.best_score = None
        self.early_stop = False
        self.val_loss_min = np.inf

    def __call__(self, val_loss, model, path):
        score = -val_loss
        if self.best_score is None or score > self.best_score:
            self.best_score = score
            print(f'Validation loss decreased ({self.val_loss_min:.6f} --> {val_loss:.6f}).  Saving model ...')
            torch.save(model.state_dict(), path + '/' + 'checkpoint.pth')
            self.val_loss_min = val_loss
            self.counter = 0
        else:
            self.counter += 1
            print(f'EarlyStopping counter: {self.counter} out of {self.patience}')
            if self.counter >= self.patience:
                self.early_stop = True


def visual(true, preds, name):
    """ground truth in black, prediction in red"""
    w, h = 480, 160
    lo, hi = min(true.min(), preds.min()), max(true.max(), preds.max()) + 1e-6
    img = Image.new('RGB', (w, h), 'white')
    draw = ImageDraw.Draw(img)
    for series, color in ((true, 'black'), (preds, 'red')):
        pts = [(i * w / len(series), h - 1 - (v - lo) / (hi - lo) * (h - 2)) for i, v in enumerate(series)]
        draw.line(pts, fill=color)
    img.save(name)
