import torch.nn as nn

from reid.registry import BACKBONES, HEADS


class Baseline(nn.Module):
    def __init__(self, cfg, num_classes):
        super(Baseline, self).__init__()
        self.backbone = BACKBONES[cfg.MODEL.BACKBONE](cfg.MODEL.WIDTH)
        self.feat_dim = self.backbone.out_dim
        self.head = HEADS[cfg.MODEL.HEAD](self.feat_dim, num_classes)

    def forward(self, x):
        return self.head(self.backbone(x))
