import numpy as np
import torch


def compute_overlap(box, boxes):
    iw = np.minimum(box[2], boxes[:, 2]) - np.maximum(box[0], boxes[:, 0])
    ih = np.minimum(box[3], boxes[:, 3]) - np.maximum(box[1], boxes[:, 1])
    inter = np.maximum(iw, 0) * np.maximum(ih, 0)
    area = (box[2] - box[0]) * (box[3] - box[1])
    return inter / (area + (boxes[:, 2] - boxes[:, 0]) * (boxes[:, 3] - boxes[:, 1]) - inter + 1e-8)


def compute_ap(recall, precision):
    mrec = np.concatenate(([0.], recall, [1.]))
    mpre = np.concatenate(([0.], precision, [0.]))
    for i in range(mpre.size - 1, 0, -1):
        mpre[i - 1] = np.maximum(mpre[i - 1], mpre[i])
    i = np.where(mrec[1:] != mrec[:-1])[0]
    return np.sum((mrec[i + 1] - mrec[i]) * mpre[i + 1])


def get_detections(dataset, retinanet, device, score_threshold=0.05, max_detections=100):
    all_detections = []
    retinanet.eval()
    with torch.no_grad():
        for index in range(len(dataset)):
            data = dataset[index]
            img = data['img'].permute(2, 0, 1).to(device).float().unsqueeze(dim=0)
            scores, labels, boxes = retinanet(img)
            scores = scores.cpu().numpy()
            labels = labels.cpu().numpy()
            boxes = boxes.cpu().numpy() / data['scale']
            order = np.argsort(-scores[scores > score_threshold])[:max_detections]
            all_detections.append((scores[order], labels[order], boxes[order]))
    return all_detections


def evaluate(dataset, retinanet, device, iou_threshold=0.5):
    detections = get_detections(dataset, retinanet, device)
    aps = []
    for label in range(dataset.num_classes()):
        tp, sc = [], []
        num_annotations = 0.0
        for i in range(len(dataset)):
            scores, labels, boxes = detections[i]
            annotations = dataset.boxes[i][dataset.boxes[i][:, 4] == label]
            num_annotations += annotations.shape[0]
            detected = []
            for d in np.where(labels == label)[0]:
                sc.append(scores[d])
                hit = 0
                if annotations.shape[0]:
                    overlaps = compute_overlap(boxes[d], annotations)
                    best = int(np.argmax(overlaps))
                    if overlaps[best] >= iou_threshold and best not in detected:
                        detected.append(best)
                        hit = 1
                tp.append(hit)
        if num_annotations == 0 or len(tp) == 0:
            aps.append(0.0)
            continue
        tp = np.array(tp)[np.argsort(-np.array(sc), kind='stable')]
        cum = np.cumsum(tp)
        aps.append(compute_ap(cum / num_annotations, cum / np.arange(1, len(tp) + 1)))
        print('  class {}: AP {:.4f}'.format(label, aps[-1]))
    return float(np.mean(aps))
