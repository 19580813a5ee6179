from torch import nn


def conv(i, o, s):
    return [nn.Conv1d(i, o, 5, stride=s, padding=2, bias=False), nn.BatchNorm1d(o), nn.ReLU()]


def build_net(width=12, classes=4):
    return nn.Sequential(*conv(1, width, 2), *conv(width, 2 * width, 2), *conv(2 * width, 2 * width, 2),
                         nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(2 * width, classes))


def is_local(name, net):
    """FedBN: everything of BatchNorm stays with the client"""
    return isinstance(net.get_submodule(name.rpartition('.')[0]), nn.BatchNorm1d)
