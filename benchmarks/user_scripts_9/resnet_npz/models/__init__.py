from .resnet import ResNet, build_model
