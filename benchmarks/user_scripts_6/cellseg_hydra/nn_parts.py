import torch
import torch.nn as nn
import torch.nn.functional as F

from registry import MODELS, LOSSES

NORMS = {"batch": nn.BatchNorm2d, "none": lambda c: nn.Identity(), "instance": nn.InstanceNorm2d}


class ConvBlock(nn.Sequential):
    def __init__(self, cin, cout, norm="batch"):
        super().__init__()
        for i in range(2):
            self.add_module(f"conv{i}", nn.Conv2d(cin if i == 0 else cout, cout, 3, padding=1))
            self.add_module(f"norm{i}", NORMS[norm](cout))
            self.add_module(f"act{i}", nn.ReLU(inplace=True))


@MODELS.register("unet")
class UNet(nn.Module):
    def __init__(self, in_channels, base, depth, norm="batch", upsample="bilinear"):
        super().__init__()
        self.upsample = upsample
        chans = [base * 2 ** i for i in range(depth)]
        self.down = nn.ModuleList()
        c = in_channels
        for w in chans:
            self.down.append(ConvBlock(c, w, norm))
            c = w
        self.up = nn.ModuleList()
        for w in reversed(chans[:-1]):
            self.up.append(ConvBlock(c + w, w, norm))
            c = w
        self.head = nn.Conv2d(c, 1, 1)

    def forward(self, x):
        skips = []
        for i, blk in enumerate(self.down):
            x = blk(x if i == 0 else F.max_pool2d(x, 2))
            skips.append(x)
        for blk, skip in zip(self.up, reversed(skips[:-1])):
            x = F.interpolate(x, size=skip.shape[-2:], mode=self.upsample, align_corners=False)
            x = blk(torch.cat([x, skip], dim=1))
        return torch.sigmoid(self.head(x))


@LOSSES.register("dice")
class DiceLoss(nn.Module):
    def forward(self, prob, target):
        prob, target = prob.float().flatten(1), target.flatten(1)
        inter = (prob * target).sum(1)
        return (1 - (2 * inter + 1) / (prob.sum(1) + target.sum(1) + 1)).mean()


@LOSSES.register("bce")
class BCE(nn.Module):
    def forward(self, prob, target):
        # BCELoss is not allowed under autocast
        with torch.cuda.amp.autocast(enabled=False):
            return F.binary_cross_entropy(prob.float().clamp(1e-6, 1 - 1e-6), target)


@LOSSES.register("boundary")
class BoundaryLoss(nn.Module):
    """L1 between sobel magnitudes"""

    def forward(self, prob, target):
        gx = torch.tensor([[1., 0., -1.], [2., 0., -2.], [1., 0., -1.]]).view(1, 1, 3, 3).to(prob.device)
        gy = gx.transpose(2, 3).contiguous()
        prob = prob.float()

        def mag(t):
            return torch.sqrt(F.conv2d(t, gx, padding=1) ** 2 + F.conv2d(t, gy, padding=1) ** 2 + 1e-6)
        with torch.cuda.amp.autocast(enabled=False):
            return (mag(prob) - mag(target)).abs().mean()
