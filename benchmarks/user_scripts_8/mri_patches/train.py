import logging
import os
import random
import sys
import tempfile

import numpy as np
import torch
from torch.cuda.amp import GradScaler, autocast
from torch.utils.data import DataLoader

from config import CONFIG
from dataset import PatchDataset, VolumeDataset, generate, list_cases
from inference import dice_per_class, sliding_window
from losses import DeepSupervisionLoss
from unet3d import UNet3D

logging.basicConfig(level=logging.INFO, format='%(message)s', stream=sys.stdout)
log = logging.getLogger('mri')


def poly_lr(epoch, max_epochs, initial_lr, exponent=0.9):
    return initial_lr * (1 - epoch / max_epochs) ** exponent


def validate(model, loader, cfg, device):
    model.eval()
    dices = []
    with torch.no_grad():
        for volume, seg in loader:
            pred = sliding_window(model, volume[0], cfg['data']['patch'], cfg['data']['num_classes'], cfg['infer'], device)
            dices.append(dice_per_class(pred, seg[0], cfg['data']['num_classes']))
    return np.mean(dices, axis=0)


def main(cfg):
    tc, dc = cfg['train'], cfg['data']
    random.seed(tc['seed'])
    np.random.seed(tc['seed'])
    torch.manual_seed(tc['seed'])
    device = torch.device('cuda' if torch.cuda.is_available() else 'cpu')
    out_dir = tempfile.mkdtemp(prefix='mri_')
    generate(dc)
    train_files, val_files = list_cases(dc)
    train_loader = DataLoader(PatchDataset(train_files, dc), batch_size=tc['batch_size'], shuffle=False,
                              num_workers=dc['num_workers'], drop_last=True)
    val_loader = DataLoader(VolumeDataset(val_files), batch_size=1, shuffle=False)

    model = UNet3D(dc['modalities'], dc['num_classes'], **cfg['model']).to(device)
    criterion = DeepSupervisionLoss(dc['num_classes'])
    optimizer = torch.optim.SGD(model.parameters(), lr=tc['lr'], momentum=tc['momentum'], nesterov=tc['nesterov'],
                                weight_decay=tc['weight_decay'])
    use_amp = tc['amp'] and device.type == 'cuda'
    scaler = GradScaler(enabled=use_amp)
    best, history = -1, []
    for epoch in range(tc['epochs']):
        lr = poly_lr(epoch, tc['epochs'], tc['lr'])
        for g in optimizer.param_groups:
            g['lr'] = lr
        model.train()
        run_loss = 0.0
        for it, (x, y) in enumerate(train_loader):
            x = x.to(device).float()
            y = y.to(device)
            for p in model.parameters():
                p.grad = None
            with autocast(enabled=use_amp):
                outputs = model(x)
                loss = criterion(outputs, y)
            if torch.isnan(loss):
                log.warning('NaN loss in epoch %d iteration %d, batch skipped', epoch, it)
                continue
            scaler.scale(loss).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), tc['grad_clip'])
            scaler.step(optimizer)
            scaler.update()
            run_loss += loss.item()
            history.append(loss)
        log.info('epoch %d lr %.5f train loss %.5f', epoch, lr, run_loss / len(train_loader))
        if (epoch + 1) % tc['val_every'] == 0 or epoch == tc['epochs'] - 1:
            d = validate(model, val_loader, cfg, device)
            log.info('  val dice %s mean %.5f', np.round(d, 5), d.mean())
            if d.mean() > best:
                best = d.mean()
                torch.save({'epoch': epoch, 'state_dict': model.state_dict(), 'optimizer': optimizer.state_dict(),
                            'scaler': scaler.state_dict(), 'dice': float(best)}, os.path.join(out_dir, 'model_best.pth'))
    log.info('best dice %.5f, last losses %s', best, ' '.join('%.4f' % float(h) for h in history[-5:]))
    np.save(os.path.join(out_dir, 'history.npy'), np.array([float(h) for h in history]))


if __name__ == '__main__':
    main(CONFIG)
