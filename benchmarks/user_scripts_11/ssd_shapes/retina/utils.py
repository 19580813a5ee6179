import torch
import torch.nn as nn


class BBoxTransform(nn.Module):
    def __init__(self):
        super(BBoxTransform, self).__init__()
        self.std = torch.tensor([0.1, 0.1, 0.2, 0.2])

    def forward(self, boxes, deltas):
        std = self.std.to(boxes.device)
        widths = boxes[:, :, 2] - boxes[:, :, 0]
        heights = boxes[:, :, 3] - boxes[:, :, 1]
        ctr_x = boxes[:, :, 0] + 0.5 * widths
        ctr_y = boxes[:, :, 1] + 0.5 * heights
        d = deltas * std
        pred_ctr_x = ctr_x + d[:, :, 0] * widths
        pred_ctr_y = ctr_y + d[:, :, 1] * heights
        pred_w = torch.exp(d[:, :, 2].clamp(max=4)) * widths
        pred_h = torch.exp(d[:, :, 3].clamp(max=4)) * heights
        return torch.stack([pred_ctr_x - 0.5 * pred_w, pred_ctr_y - 0.5 * pred_h,
                            pred_ctr_x + 0.5 * pred_w, pred_ctr_y + 0.5 * pred_h], dim=2)


class ClipBoxes(nn.Module):
    def forward(self, boxes, img):
        height, width = img.shape[2:]
        boxes[:, :, 0::2] = torch.clamp(boxes[:, :, 0::2], 0, width)
        boxes[:, :, 1::2] = torch.clamp(boxes[:, :, 1::2], 0, height)
        return boxes


def nms(boxes, scores, threshold):
    """pure python, I could not get the CUDA extension to build"""
    areas = (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1])
    order = scores.sort(descending=True)[1][:200]
    keep = []
    while order.numel() > 0:
        i = order[0].item()
        keep.append(i)
        if order.numel() == 1:
            break
        rest = order[1:]
        iw = (torch.min(boxes[i, 2], boxes[rest, 2]) - torch.max(boxes[i, 0], boxes[rest, 0])).clamp(min=0)
        ih = (torch.min(boxes[i, 3], boxes[rest, 3]) - torch.max(boxes[i, 1], boxes[rest, 1])).clamp(min=0)
        inter = iw * ih
        iou = inter / (areas[i] + areas[rest] - inter)
        order = rest[iou <= threshold]
    return keep
