"""Detection of buoys on small pictures: a cell of the grid answers for the buoy whose middle lies in it, cells beside it are left out of the focal loss, boxes by generalised IoU, mirrored pictures, average precision after suppression."""
import copy

import torch
import torch.nn.functional as F
from torch import nn

SIDE, GRID, KINDS = 32, 8, 3
CELL = SIDE // GRID
EPOCHS, BATCH, LR, WARM = 10, 16, 4e-3, 30
ALPHA, GAMMA = 0.25, 2.0


def make_pictures(n, seed):
    """One to four buoys each: discs, squares and triangles, dark or light, on waves. Boxes are left, top, right, bottom."""
    g = torch.Generator().manual_seed(seed)
    y, x = torch.meshgrid(torch.arange(SIDE) + 0.5, torch.arange(SIDE) + 0.5, indexing="ij")
    pictures, boxes, kinds = [], [], []
    for _ in range(n):
        picture = 0.3 * torch.sin(x * 0.5 * torch.rand(1, generator=g) + y * 0.6) + 0.2 * torch.randn(SIDE, SIDE, generator=g)
        own, own_kinds = [], []
        for _ in range(int(torch.randint(1, 5, (1,), generator=g))):
            w, h = (5 + 6 * torch.rand(2, generator=g)).tolist()
            l, t = (torch.rand(2, generator=g) * torch.tensor([SIDE - w, SIDE - h])).tolist()
            kind = int(torch.randint(0, KINDS, (1,), generator=g))
            if any(abs(l + w / 2 - (a + c) / 2) < 6 and abs(t + h / 2 - (b + d) / 2) < 6 for a, b, c, d in own):
                continue
            u, v = (x - l) / w, (y - t) / h
            inside = (u > 0) & (u < 1) & (v > 0) & (v < 1)
            if kind == 0:
                inside &= (u - 0.5) ** 2 + (v - 0.5) ** 2 < 0.25
            elif kind == 1:
                inside &= (u - 0.5).abs() < v / 2
            picture = torch.where(inside, 1.2 + 0.2 * torch.randn(1, generator=g), picture)
            own.append((l, t, l + w, t + h))
            own_kinds.append(kind)
        pictures.append(picture)
        boxes.append(torch.tensor(own))
        kinds.append(torch.tensor(own_kinds))
    return torch.stack(pictures).unsqueeze(1), boxes, kinds


def make_targets(boxes, kinds):
    """By cell: kind (KINDS: nothing there, -1: beside a buoy, not asked) and distances from the cell's middle to the four sides."""
    kind, sides = torch.full((GRID, GRID), KINDS), torch.zeros(4, GRID, GRID)
    middle = (boxes[:, :2] + boxes[:, 2:]) / 2
    cells = (middle / CELL).long().clamp(0, GRID - 1).tolist()
    for j, i in cells:
        kind[max(0, i - 1) : i + 2, max(0, j - 1) : j + 2] = -1
    for (j, i), box, k in zip(cells, boxes, kinds):
        at = torch.tensor([(j + 0.5) * CELL, (i + 0.5) * CELL])
        kind[i, j] = k
        sides[:, i, j] = torch.cat([at - box[:2], box[2:] - at])
    return kind, sides


class Detector(nn.Module):
    def __init__(self, width=16):
        super().__init__()

        def block(a, b, stride):
            return [nn.Conv2d(a, b, 3, stride, 1, bias=False), nn.BatchNorm2d(b), nn.ReLU()]

        self.body = nn.Sequential(*block(1, width, 2), *block(width, 2 * width, 2), *block(2 * width, 2 * width, 1), *block(2 * width, 2 * width, 1))
        self.kind, self.sides = nn.Conv2d(2 * width, KINDS, 3, padding=1), nn.Conv2d(2 * width, 4, 3, padding=1)
        nn.init.constant_(self.kind.bias, -3.0)
        nn.init.constant_(self.sides.bias, 1.3)

    def forward(self, x):
        h = self.body(x)
        return self.kind(h), self.sides(h).clamp(max=4).exp()


def focal(logits, kind):
    """(n, KINDS, GRID, GRID) logits; the sum over the cells that are asked."""
    asked = (kind >= 0).unsqueeze(1)
    truth = F.one_hot(kind.clamp(min=0), KINDS + 1)[..., :KINDS].permute(0, 3, 1, 2).to(logits.dtype)
    p = logits.sigmoid()
    right = p * truth + (1 - p) * (1 - truth)
    alpha = ALPHA * truth + (1 - ALPHA) * (1 - truth)
    ce = F.binary_cross_entropy_with_logits(logits, truth, reduction="none")
    return (alpha * (1 - right) ** GAMMA * ce * asked).sum()


def box_loss(guess, sides):
    """One less the generalised IoU of boxes given by their distances from one point."""
    both = torch.minimum(guess, sides)
    hull = torch.maximum(guess, sides)
    inter = (both[:, 0] + both[:, 2]).clamp(min=0) * (both[:, 1] + both[:, 3]).clamp(min=0)
    area = (guess[:, 0] + guess[:, 2]) * (guess[:, 1] + guess[:, 3]) + (sides[:, 0] + sides[:, 2]) * (sides[:, 1] + sides[:, 3]) - inter
    around = (hull[:, 0] + hull[:, 2]) * (hull[:, 1] + hull[:, 3])
    return 1 - inter / area + (around - area) / around


def losses(model, x, kind, sides):
    logits, guess = model(x)
    there = (kind >= 0) & (kind < KINDS)
    count = there.sum().clamp(min=1)
    boxes = box_loss(guess.permute(0, 2, 3, 1)[there], sides.permute(0, 2, 3, 1)[there])
    return focal(logits, kind) / count, boxes.sum() / count


def iou(a, b):
    corner, far = torch.maximum(a[:, None, :2], b[None, :, :2]), torch.minimum(a[:, None, 2:], b[None, :, 2:])
    inter = (far - corner).clamp(min=0).prod(2)
    return inter / ((a[:, 2:] - a[:, :2]).prod(1)[:, None] + (b[:, 2:] - b[:, :2]).prod(1)[None] - inter)


def suppress(boxes, scores, over=0.4):
    order, keep = scores.argsort(descending=True), []
    while len(order):
        first, order = order[0], order[1:]
        keep.append(first.item())
        if len(order):
            order = order[iou(boxes[first][None], boxes[order])[0] <= over]
    return keep


@torch.no_grad()
def detect(model, x, floor=0.05):
    """By picture and kind: boxes and scores that are left."""
    model.eval()
    found = []
    at = (torch.arange(GRID) + 0.5) * CELL
    y, x0 = torch.meshgrid(at, at, indexing="ij")
    for part in x.split(20):
        logits, sides = model(part)
        boxes = torch.stack([x0 - sides[:, 0], y - sides[:, 1], x0 + sides[:, 2], y + sides[:, 3]], -1).flatten(1, 2)
        for scores, own in zip(logits.sigmoid().flatten(2), boxes):
            row = []
            for k in range(KINDS):
                likely = scores[k] > floor
                b, s = own[likely], scores[k][likely]
                keep = suppress(b, s)
                row.append((b[keep], s[keep]))
            found.append(row)
    return found


def average_precision(found, boxes, kinds, over=0.5):
    total = 0.0
    for k in range(KINDS):
        marks, real = [], 0
        for row, own, own_kinds in zip(found, boxes, kinds):
            own = own[own_kinds == k]
            real += len(own)
            taken = set()
            for b, s in zip(*row[k]):
                match = iou(b[None], own)[0].max(0) if len(own) else None
                good = match is not None and match.values > over and match.indices.item() not in taken
                if good:
                    taken.add(match.indices.item())
                marks.append((s.item(), float(good)))
        marks.sort(key=lambda m: -m[0])
        hits = torch.tensor([m[1] for m in marks]).cumsum(0)
        precision = hits / torch.arange(1, len(hits) + 1)
        precision = precision.flip(0).cummax(0)[0].flip(0)
        total += (precision * torch.tensor([m[1] for m in marks])).sum().item() / max(1, real)
    return total / KINDS


def mirrored(picture, boxes):
    l, t, r, b = boxes.unbind(1)
    return picture.flip(-1), torch.stack([SIDE - r, t, SIDE - l, b], 1)


def main():
    torch.manual_seed(17)
    x, boxes, kinds = make_pictures(208, 1)
    held, held_boxes, held_kinds = make_pictures(60, 2)
    model = Detector()
    optimizer = torch.optim.SGD(model.parameters(), lr=LR * 5, momentum=0.9, weight_decay=1e-4)
    steps = EPOCHS * (len(x) // BATCH)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: min(1, (s + 1) / WARM) * (1.0 if s < 0.75 * steps else 0.1))
    best, kept = -1.0, None
    for epoch in range(EPOCHS):
        model.train()
        sum_kind, sum_box = 0.0, 0.0
        for idx in torch.randperm(len(x)).view(-1, BATCH):
            pictures, kind, sides = [], [], []
            for i in idx.tolist():
                picture, own = x[i], boxes[i]
                if torch.rand(1) < 0.5:
                    picture, own = mirrored(picture, own)
                k, s = make_targets(own, kinds[i])
                pictures.append(picture)
                kind.append(k)
                sides.append(s)
            by_kind, by_box = losses(model, torch.stack(pictures), torch.stack(kind), torch.stack(sides))
            optimizer.zero_grad()
            (by_kind + by_box).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 10.0)
            optimizer.step()
            scheduler.step()
            sum_kind += by_kind.item()
            sum_box += by_box.item()
        ap = average_precision(detect(model, held), held_boxes, held_kinds)
        if ap > best:
            best, kept = ap, copy.deepcopy(model.state_dict())
        batches = len(x) // BATCH
        print(f"epoch {epoch} kind {sum_kind / batches:.5f} box {sum_box / batches:.5f} ap {ap:.5f}")
    torch.save({"model": kept, "ap": best}, "buoy.pt")
    print(f"best ap {best:.5f}")


if __name__ == "__main__":
    main()
