import torch
import torch.nn as nn
import torchvision


def conv_bn(cin, cout, dilation):
    return nn.Sequential(
        nn.Conv2d(cin, cout, 3, padding=dilation, dilation=dilation),
        nn.BatchNorm2d(cout),
        nn.ReLU(inplace=True),
    )


class CSRNet(nn.Module):
    """VGG16 up to conv4_3, then dilated convs; output is 1/8 of the input."""

    def __init__(self, pretrained=True):
        super().__init__()
        weights = torchvision.models.VGG16_Weights.IMAGENET1K_V1 if pretrained else None
        vgg = torchvision.models.vgg16(weights=weights)
        self.front = nn.Sequential(*list(vgg.features.children())[:23])
        self.back = nn.Sequential(
            conv_bn(512, 512, 2),
            conv_bn(512, 512, 2),
            conv_bn(512, 512, 2),
            conv_bn(512, 256, 2),
            conv_bn(256, 128, 2),
            conv_bn(128, 64, 2),
        )
        self.out = nn.Conv2d(64, 1, 1)
        for m in list(self.back.modules()) + [self.out]:
            if isinstance(m, nn.Conv2d):
                nn.init.normal_(m.weight, std=0.01)
                nn.init.zeros_(m.bias)

    def forward(self, x):
        x = self.front(x)
        x = self.back(x)
        # counts are sums over ~10^4 cells: leave this in float32, bf16 loses heads
        return torch.relu(self.out(x.float()))


class CountLoss(nn.Module):
    """Pixel MSE plus a relative count term for each region of a pyramid."""

    def __init__(self, levels=(1, 2, 4), weight=0.1):
        super().__init__()
        self.levels = levels
        self.weight = weight

    def forward(self, pred, target):
        mse = ((pred - target) ** 2).sum() / pred.size(0)
        region = 0.0
        for b in range(pred.size(0)):
            for n in self.levels:
                p = pred[b, 0].unfold(0, pred.size(2) // n, pred.size(2) // n).unfold(1, pred.size(3) // n, pred.size(3) // n)
                t = target[b, 0].unfold(0, pred.size(2) // n, pred.size(2) // n).unfold(1, pred.size(3) // n, pred.size(3) // n)
                p = p.sum(dim=(2, 3))
                t = t.sum(dim=(2, 3))
                region = region + ((p - t).abs() / (t + 1.0)).mean()
        return mse + self.weight * region / pred.size(0)
