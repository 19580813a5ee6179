import math

import torch
import torch.nn as nn
import torch.nn.functional as F

from retina.anchors import Anchors
from retina.utils import BBoxTransform, ClipBoxes, nms


class BasicBlock(nn.Module):
    def __init__(self, inplanes, planes, stride=1):
        super(BasicBlock, self).__init__()
        self.conv1 = nn.Conv2d(inplanes, planes, 3, stride, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(planes)
        self.conv2 = nn.Conv2d(planes, planes, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = None
        if stride != 1 or inplanes != planes:
            self.downsample = nn.Sequential(nn.Conv2d(inplanes, planes, 1, stride, bias=False),
                                            nn.BatchNorm2d(planes))

    def forward(self, x):
        residual = x if self.downsample is None else self.downsample(x)
        out = F.relu(self.bn1(self.conv1(x)), inplace=True)
        out = self.bn2(self.conv2(out)) + residual
        return F.relu(out, inplace=True)


class PyramidFeatures(nn.Module):
    def __init__(self, C3, C4, C5, feature_size):
        super(PyramidFeatures, self).__init__()
        self.P5_1 = nn.Conv2d(C5, feature_size, 1)
        self.P5_2 = nn.Conv2d(feature_size, feature_size, 3, padding=1)
        self.P4_1 = nn.Conv2d(C4, feature_size, 1)
        self.P4_2 = nn.Conv2d(feature_size, feature_size, 3, padding=1)
        self.P3_1 = nn.Conv2d(C3, feature_size, 1)
        self.P3_2 = nn.Conv2d(feature_size, feature_size, 3, padding=1)

    def forward(self, inputs):
        C3, C4, C5 = inputs
        P5_x = self.P5_1(C5)
        P4_x = self.P4_1(C4) + F.interpolate(P5_x, size=C4.shape[2:])
        P3_x = self.P3_1(C3) + F.interpolate(P4_x, size=C3.shape[2:])
        return [self.P3_2(P3_x), self.P4_2(P4_x), self.P5_2(P5_x)]


class SubNet(nn.Module):
    def __init__(self, num_features_in, out_per_anchor, num_anchors=9, feature_size=256, sigmoid=False):
        super(SubNet, self).__init__()
        self.out_per_anchor = out_per_anchor
        self.sigmoid = sigmoid
        self.convs = nn.Sequential(
            nn.Conv2d(num_features_in, feature_size, 3, padding=1), nn.ReLU(),
            nn.Conv2d(feature_size, feature_size, 3, padding=1), nn.ReLU())
        self.output = nn.Conv2d(feature_size, num_anchors * out_per_anchor, 3, padding=1)

    def forward(self, x):
        out = self.output(self.convs(x))
        if self.sigmoid:
            out = torch.sigmoid(out)
        out = out.permute(0, 2, 3, 1)
        return out.contiguous().view(x.shape[0], -1, self.out_per_anchor)


class RetinaNet(nn.Module):
    def __init__(self, num_classes, width=64, feature_size=256, layers=(2, 2, 2, 2)):
        super(RetinaNet, self).__init__()
        self.inplanes = width
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1 = nn.BatchNorm2d(width)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        self.layer1 = self._make_layer(width, layers[0], 1)
        self.layer2 = self._make_layer(width * 2, layers[1], 2)
        self.layer3 = self._make_layer(width * 4, layers[2], 2)
        self.layer4 = self._make_layer(width * 8, layers[3], 2)
        self.fpn = PyramidFeatures(width * 2, width * 4, width * 8, feature_size)
        self.regressionModel = SubNet(feature_size, 4, feature_size=feature_size)
        self.classificationModel = SubNet(feature_size, num_classes, feature_size=feature_size, sigmoid=True)
        self.anchors = Anchors()
        self.regressBoxes = BBoxTransform()
        self.clipBoxes = ClipBoxes()

        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                n = m.kernel_size[0] * m.kernel_size[1] * m.out_channels
                m.weight.data.normal_(0, math.sqrt(2. / n))
        prior = 0.01
        self.classificationModel.output.weight.data.fill_(0)
        self.classificationModel.output.bias.data.fill_(-math.log((1.0 - prior) / prior))
        self.regressionModel.output.weight.data.fill_(0)
        self.regressionModel.output.bias.data.fill_(0)

    def _make_layer(self, planes, blocks, stride):
        layers = [BasicBlock(self.inplanes, planes, stride)]
        self.inplanes = planes
        for _ in range(1, blocks):
            layers.append(BasicBlock(planes, planes))
        return nn.Sequential(*layers)

    def freeze_bn(self):
        """small batches: keep the statistics of the first layers"""
        for layer in self.layer1.modules():
            if isinstance(layer, nn.BatchNorm2d):
                layer.eval()

    def forward(self, img_batch):
        x = self.maxpool(F.relu(self.bn1(self.conv1(img_batch))))
        x1 = self.layer1(x)
        x2 = self.layer2(x1)
        x3 = self.layer3(x2)
        x4 = self.layer4(x3)
        features = self.fpn([x2, x3, x4])
        regression = torch.cat([self.regressionModel(feature) for feature in features], dim=1)
        classification = torch.cat([self.classificationModel(feature) for feature in features], dim=1)
        anchors = self.anchors(img_batch)

        if self.training:
            return classification, regression, anchors

        transformed_anchors = self.clipBoxes(self.regressBoxes(anchors, regression), img_batch)
        final_scores, final_labels, final_boxes = [], [], []
        for i in range(classification.shape[2]):
            scores = classification[0, :, i]
            scores_over_thresh = scores > 0.05
            if scores_over_thresh.sum() == 0:
                continue
            scores = scores[scores_over_thresh]
            boxes = transformed_anchors[0, scores_over_thresh, :]
            keep = nms(boxes, scores, 0.5)
            final_scores.append(scores[keep])
            final_labels.append(torch.tensor([i] * len(keep)).to(img_batch.device))
            final_boxes.append(boxes[keep])
        if len(final_scores) == 0:
            z = torch.zeros(0, device=img_batch.device)
            return [z, z, torch.zeros(0, 4, device=img_batch.device)]
        return [torch.cat(final_scores), torch.cat(final_labels), torch.cat(final_boxes)]
