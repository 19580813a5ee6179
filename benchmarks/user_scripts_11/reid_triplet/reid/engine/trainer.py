import logging
import os

import torch

from reid.engine.evaluate import evaluate
from reid.engine.solver import WarmupMultiStep, make_optimizer

logger = logging.getLogger('reid')


class AverageMeter(object):
    def __init__(self):
        self.sum, self.count = 0.0, 0

    def update(self, v, n=1):
        self.sum += v * n
        self.count += n

    @property
    def avg(self):
        return self.sum / max(1, self.count)


def do_train(cfg, model, center, criterion, train_loader, val_loader, num_query, device):
    optimizer, optimizer_center = make_optimizer(cfg, model, center)
    milestones = [s * len(train_loader) for s in cfg.SOLVER.STEPS]
    scheduler = WarmupMultiStep(optimizer, milestones, cfg.SOLVER.GAMMA, cfg.SOLVER.WARMUP_ITERS)
    amp = cfg.MODEL.AMP and device.type == 'cuda'
    scaler = torch.cuda.amp.GradScaler(enabled=amp)
    best_map = 0.0

    for epoch in range(1, cfg.SOLVER.EPOCHS + 1):
        model.train()
        meters = {k: AverageMeter() for k in ('loss', 'acc', 'id', 'tri', 'center', 'prec')}
        for n_iter, (img, pid, _) in enumerate(train_loader, 1):
            optimizer.zero_grad()
            optimizer_center.zero_grad()
            img = img.to(device)
            target = pid.to(device)
            with torch.autocast(device.type, enabled=amp):
                score, feat = model(img)
                loss, parts = criterion(score, feat, target)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            # the centers have their own rate, take the weight of the loss out again
            for param in center.parameters():
                param.grad.data *= (1. / cfg.LOSS.CENTER_WEIGHT)
            scaler.step(optimizer_center)
            scaler.update()
            scheduler.step()

            acc = (score.max(1)[1] == target).float().mean()
            meters['loss'].update(loss.item(), img.shape[0])
            meters['acc'].update(acc.item(), img.shape[0])
            for k, v in parts.items():
                meters[k].update(v, img.shape[0])
            if n_iter % cfg.SOLVER.LOG_PERIOD == 0:
                logger.info('Epoch[%d] Iteration[%d/%d] %s lr %.2e', epoch, n_iter, len(train_loader),
                            ' '.join('%s %.4f' % (k, m.avg) for k, m in meters.items()),
                            optimizer.param_groups[0]['lr'])

        logger.info('Epoch %d done. %s', epoch, ' '.join('%s %.4f' % (k, m.avg) for k, m in meters.items()))

        if epoch % cfg.SOLVER.EVAL_PERIOD == 0 or epoch == cfg.SOLVER.EPOCHS:
            cmc, mAP = evaluate(model, val_loader, num_query, device)
            logger.info('Validation epoch %d mAP %.4f rank-1 %.4f rank-5 %.4f', epoch, mAP, cmc[0], cmc[4])
            if mAP > best_map:
                best_map = mAP
                torch.save(model.state_dict(), os.path.join(cfg.OUTPUT_DIR, 'best.pth'))
    return best_map
