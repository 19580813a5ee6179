from __future__ import annotations

from collections import Counter, deque

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from semi.registry import METHODS, register


@register(METHODS)
class FlexTeacher:
    """pseudo labels of the teacher, thresholds per class as in FlexMatch (Zhang et al. 2021)"""

    def __init__(self, num_classes: int, num_unlabeled: int, device, p_cutoff: float, lambda_u: float,
                 ema_decay: float, thresh_warmup: bool, dist_align: bool):
        self.num_classes = num_classes
        self.device = device
        self.p_cutoff = p_cutoff
        self.lambda_u = lambda_u
        self.ema_decay = ema_decay
        self.thresh_warmup = thresh_warmup
        self.dist_align = dist_align
        self.selected_label = torch.full((num_unlabeled,), -1, dtype=torch.long, device=device)
        self.classwise_acc = torch.zeros(num_classes, device=device)
        self.prob_list: deque[Tensor] = deque(maxlen=128)

    def update_thresholds(self) -> None:
        pseudo_counter = Counter(self.selected_label.tolist())
        if max(pseudo_counter.values()) < len(self.selected_label):  # not all -1
            if self.thresh_warmup:
                top = max(pseudo_counter.values())
            else:
                top = max([v for k, v in pseudo_counter.items() if k != -1])
            for i in range(self.num_classes):
                self.classwise_acc[i] = pseudo_counter[i] / top

    def align(self, probs: Tensor) -> Tensor:
        """divide by the running mean of the predictions, times the uniform target"""
        self.prob_list.append(probs.mean(0))
        p_model = torch.stack(list(self.prob_list)).mean(0)
        p_target = torch.ones(self.num_classes).to(probs.device) / self.num_classes
        probs = probs * p_target / p_model.clamp(min=1e-6)
        return probs / probs.sum(1, keepdim=True)

    def step(self, student: nn.Module, teacher: nn.Module, x_lb: Tensor, y_lb: Tensor, idx: Tensor, x_w: Tensor,
             x_s: Tensor) -> tuple[Tensor, dict]:
        logits_w = teacher(x_w)
        logits = student(torch.cat([x_lb, x_s]))
        logits_lb, logits_s = logits[:len(x_lb)], logits[len(x_lb):]
        sup_loss = F.cross_entropy(logits_lb, y_lb)

        probs = torch.softmax(logits_w.float(), dim=1).detach()
        if self.dist_align:
            probs = self.align(probs)
        max_probs, pseudo = probs.max(1)
        # convex mapping of the learning status
        acc = self.classwise_acc[pseudo]
        mask = max_probs.ge(self.p_cutoff * (acc / (2.0 - acc))).float()
        select = max_probs.ge(self.p_cutoff)
        if idx[select].nelement() != 0:
            self.selected_label[idx[select]] = pseudo[select]
        if mask.sum() > 0:
            unsup_loss = (F.cross_entropy(logits_s, pseudo, reduction='none') * mask).mean()
        else:
            unsup_loss = logits_s.sum() * 0
        self.update_thresholds()

        loss = sup_loss + self.lambda_u * unsup_loss
        return loss, {
            'sup': sup_loss.item(),
            'unsup': unsup_loss.item(),
            'mask': mask.mean().item(),
            'train_acc': (logits_lb.argmax(1) == y_lb).float().mean().item(),
        }
