import torch.nn as nn

from reid.registry import BACKBONES


def conv_bn(i, o, k, s):
    return nn.Sequential(nn.Conv2d(i, o, k, s, k // 2, bias=False), nn.BatchNorm2d(o))


class Block(nn.Module):
    def __init__(self, i, o, s):
        super(Block, self).__init__()
        self.conv1, self.conv2 = conv_bn(i, o, 3, s), conv_bn(o, o, 3, 1)
        self.short = conv_bn(i, o, 1, s) if (s != 1 or i != o) else nn.Identity()
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x):
        return self.relu(self.conv2(self.relu(self.conv1(x))) + self.short(x))


@BACKBONES.register('resnet_small')
class ResNetSmall(nn.Module):
    """ResNet-18 with last stride 1"""

    def __init__(self, width):
        super(ResNetSmall, self).__init__()
        w = width
        self.stem = nn.Sequential(conv_bn(3, w, 7, 2), nn.ReLU(inplace=True))
        self.stages = nn.Sequential(Block(w, w, 1), Block(w, w, 1), Block(w, 2 * w, 2), Block(2 * w, 2 * w, 1),
                                    Block(2 * w, 4 * w, 2), Block(4 * w, 4 * w, 1),
                                    Block(4 * w, 8 * w, 1), Block(8 * w, 8 * w, 1))
        self.out_dim = 8 * w

    def forward(self, x):
        return self.stages(self.stem(x))


@BACKBONES.register('vgg_tiny')
class VGGTiny(nn.Module):
    def __init__(self, width):
        super(VGGTiny, self).__init__()
        layers, i = [], 3
        for o in (width, 2 * width, 4 * width):
            layers += [conv_bn(i, o, 3, 1), nn.ReLU(inplace=True), nn.MaxPool2d(2)]
            i = o
        self.body = nn.Sequential(*layers)
        self.out_dim = i

    def forward(self, x):
        return self.body(x)
