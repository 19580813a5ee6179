"""The layers of VGG16, an eighth as wide but for the last."""

from torch import nn


def vgg16(weights=None):
    assert weights is None
    model, layers, c_in = nn.Module(), [], 3
    for width in (8, 8, 0, 16, 16, 0, 32, 32, 32, 0, 64, 64, 512):
        if not width:
            layers.append(nn.MaxPool2d(2, 2))
            continue
        layers += [nn.Conv2d(c_in, width, 3, padding=1), nn.ReLU(inplace=True)]
        c_in = width
    model.features = nn.Sequential(*layers)
    return model
