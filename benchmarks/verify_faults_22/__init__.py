"""A twenty-second set of faults: six short scripts in the manner of ordinary users, written without sight of the judge.

Part a: ``clouds``: clouds of points, turned at random, with a learned transform and votes at test time; ``joints``: keypoints by heatmaps with loader
workers; ``tagging``: a package that tags notes by weighted words, with accumulated gradients, an average of the weights and early stopping.
Part b: ``depot``: forecasts scaled by the window's own mean, with gaps; ``register``: pictures laid over each other by a field of shifts;
``bags``: bags of cells by attention, with a balanced sampler and a lookahead step.
``CASES.claimed`` says of each case what its author would say it is (exact, rounding, sampling): of a sound one that is so, of a fault it is not.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from benchmarks.fault_sets import Claims
from tests.faults import Case

CASES = Claims(Path(__file__).parent / "scripts")
fault, sound = CASES.wrong, CASES.right


# ------------------------------------------------------------------------------------ clouds
TURN = "        cloud = turned(cloud, torch.rand(1).item() * 2 * math.pi)\n"
JITTER = "        cloud = cloud + (0.06 * torch.randn(cloud.shape)).clamp(-0.12, 0.12)\n"
LOST = """        lost = torch.rand(len(cloud)) < torch.rand(1) * 0.5
        cloud = torch.where(lost.unsqueeze(1), cloud[0], cloud)
"""
CHANGES = TURN + JITTER + LOST
TRAIN_LOADER = "shuffle=True, drop_last=True)"
BY_COLLATE = "shuffle=True, drop_last=True, collate_fn=changed)"
OF_BATCH = """def changed(items):
    clouds, labels = torch.stack([cloud for cloud, _ in items]), torch.stack([label for _, label in items])
    angle = torch.rand({turns}) * 2 * math.pi
    c, s, o, i = angle.cos(), angle.sin(), torch.zeros_like(angle), torch.ones_like(angle)
    clouds = clouds @ torch.stack([c, s, o, -s, c, o, o, o, i], 1).view(-1, 3, 3)
    clouds = clouds + (0.06 * torch.randn(clouds.shape)).clamp(-0.12, 0.12)
    lost = torch.rand(clouds.shape[:2]) < torch.rand(len(clouds), 1) * 0.5
    return torch.where(lost.unsqueeze(2), clouds[:, :1], clouds), labels


class Shapes(Dataset):
"""
CHOSEN = "        cloud = cloud[torch.randperm(len(cloud))[: self.points]]\n"
MADE = "        self.points, self.train = points, train\n"
CLIP = "            nn.utils.clip_grad_norm_(model.parameters(), args.max_norm)\n"
CLIP_EACH = """            for p in model.parameters():
                p.grad.mul_((args.max_norm / (p.grad.norm() + 1e-6)).clamp(max=1))
"""
CLIP_FOREACH = """            grads = [p.grad for p in model.parameters()]
            norm = torch.stack(torch._foreach_norm(grads)).norm()
            torch._foreach_mul_(grads, (args.max_norm / (norm + 1e-6)).clamp(max=1))
"""
GRAM = """    gram = transform @ transform.transpose(1, 2)
    return (gram - torch.eye(16)).pow(2).sum((1, 2)).mean()
"""
GRAM_OF_ALL = """    gram = torch.einsum("nij,nkj->ik", transform, transform) / len(transform)
    return (gram - torch.eye(16)).pow(2).sum()
"""
GRAM_BY_EINSUM = """    gram = torch.einsum("nij,nkj->nik", transform, transform)
    return F.mse_loss(gram, torch.eye(16).expand_as(gram), reduction="sum") / len(gram)
"""
VOTES = """        probs = 0
        for k in range(votes):
            logits, _ = model(turned(clouds, 2 * math.pi * k / votes))
            probs = probs + logits.softmax(1)
        probs = probs / votes
"""
VOTES_AT_ONCE = """        turns = torch.cat([turned(clouds, 2 * math.pi * k / votes) for k in range(votes)])
        logits, _ = model(turns)
        probs = logits.softmax(1).view(votes, len(labels), -1).mean(0)
"""
RUNNING = "            total += loss.item()\n"
RUNNING_LATER = "            total = total + loss.detach()\n"

CLOUDS = [
    fault("sampling", "changes by the batch, one turn for all its clouds", "clouds", (CHANGES, ""), (TRAIN_LOADER, BY_COLLATE), ("class Shapes(Dataset):\n", OF_BATCH.format(turns=1))),
    fault("sampling", "points chosen once for all epochs", "clouds", (CHOSEN, "        cloud = cloud[self.chosen[i]]\n"), (MADE, MADE + "        self.chosen = [torch.randperm(len(c))[:points] for c in self.clouds]\n")),
    fault("sampling", "jitter drawn for a point, not for each coordinate", "clouds", ("torch.randn(cloud.shape))", "torch.randn(len(cloud), 1))")),
    fault("rounding", "penalty of the mean transform", "clouds", (GRAM, GRAM_OF_ALL)),
    fault("rounding", "gradients clipped tensor by tensor", "clouds", (CLIP, CLIP_EACH)),
    fault("exact", "momentum of the norms set once", "clouds", ("        set_momentum(model, epoch)\n", ""), ("    best = 0.0\n", "    best = 0.0\n    set_momentum(model, 0)\n")),
    sound("sampling", "changes by the batch, losses read once an epoch", "clouds", (CHANGES, ""), (TRAIN_LOADER, BY_COLLATE), ("class Shapes(Dataset):\n", OF_BATCH.format(turns="len(clouds)")), (RUNNING, RUNNING_LATER), ("{total / len(train):.5f}", "{total.item() / len(train):.5f}")),
    sound("rounding", "votes in one batch, foreach clip and step, penalty by einsum", "clouds", (VOTES, VOTES_AT_ONCE), (CLIP, CLIP_FOREACH), (GRAM, GRAM_BY_EINSUM), ("weight_decay=1e-4)", "weight_decay=1e-4, foreach=True)")),
]

# ------------------------------------------------------------------------------------ joints
FLIP = """                joints = (joints * [-1, 1] + [SIZE - 1, 0])[MIRROR]
                seen = seen[MIRROR]
"""
LOSS = """    errors = (found - maps).pow(2).mean((2, 3))
    return 100 * (errors * seen).sum() / seen.sum().clamp(min=1)
"""
LOSS_OF_ALL = """    errors = (found - maps) * seen[:, :, None, None]
    return 100 * errors.pow(2).mean()
"""
LOSS_SELECTED = """    there = seen.bool()
    return 100 * F.mse_loss(found[there], maps[there])
"""
LOSS_WEIGHTED = """    weights = seen / seen.sum().clamp(min=1)
    return 100 * torch.einsum("bkhw,bk->", (found - maps).square(), weights) / maps[0, 0].numel()
"""
MAPS = "    maps = np.stack([heatmap(j) for j in joints])\n"
MAPS_AT_ONCE = """    n = np.arange(SIZE // STRIDE)
    x, y = np.moveaxis(np.stack(joints) / STRIDE, 2, 0)[..., None]
    row, column = (np.exp(-((n - z) ** 2) / (2 * SIGMA**2)) for z in (y, x))
    maps = (row[..., :, None] * column[..., None, :]).astype(np.float32)
"""
MIRRORED = """            found = model(images)
            mirrored = model(images.flip(3)).flip(3)[:, MIRROR]
            found = (found + mirrored) / 2
"""
MIRRORED_UNSWAPPED = """            found, mirrored = model(torch.cat([images, images.flip(3)])).chunk(2)
            found = (found + mirrored.flip(3)) / 2
"""
MIRRORED_AT_ONCE = """            found, mirrored = model(torch.cat([images, images.flip(3)])).chunk(2)
            found = (found + mirrored.flip(3)[:, MIRROR]) / 2
"""
SEEDED = "    np.random.seed(torch.initial_seed() % 2**32)\n"
HIDDEN = """            y, x = np.random.randint(0, SIZE - 6, 2)
            image = image.copy()
            image[y : y + 6, x : x + 6] = 0
"""
SEED_WORKER = "def seed_worker(worker):\n"
HIDDEN_LATER = """def collate_train(items):
    images, *rest = collate(items)
    y, x = np.random.randint(0, SIZE - 6, 2)
    images[:, :, y : y + 6, x : x + 6] = 0
    return images, *rest


"""
APPENDED = "            losses.append(loss.item())\n"
APPENDED_LATER = "            losses.append(loss.detach())\n"
PRINTED = "np.mean(losses)"
PRINTED_LATER = "torch.stack(losses).double().mean().item()"
TRAIN_WORKERS = "num_workers=2, collate_fn"

JOINTS = [
    fault("exact", "workers seeded by their number, alike in each epoch", "joints", (SEEDED, "    np.random.seed(worker)\n")),
    fault("rounding", "loss over all joints, unseen ones as zero", "joints", (LOSS, LOSS_OF_ALL)),
    fault("rounding", "heatmaps at once, twice as narrow", "joints", (MAPS, MAPS_AT_ONCE.replace("(2 * SIGMA**2)", "SIGMA**2"))),
    fault("rounding", "mirror image in the same batch, left and right as they come", "joints", (MIRRORED, MIRRORED_UNSWAPPED)),
    fault("exact", "mirrored without a swap of who is seen", "joints", (FLIP, FLIP.replace("                seen = seen[MIRROR]\n", ""))),
    fault("sampling", "patch hidden by the batch", "joints", (HIDDEN, ""), (SEED_WORKER, HIDDEN_LATER + SEED_WORKER), (TRAIN_WORKERS + "=collate", TRAIN_WORKERS + "=collate_train")),
    sound("rounding", "heatmaps at once, loss by einsum, mirror image in the same batch", "joints", (MAPS, MAPS_AT_ONCE), (LOSS, LOSS_WEIGHTED), (MIRRORED, MIRRORED_AT_ONCE)),
    sound("sampling", "loss of the seen joints alone, workers that stay, losses read once an epoch", "joints", (LOSS, LOSS_SELECTED), (TRAIN_WORKERS, "num_workers=2, persistent_workers=True, prefetch_factor=4, collate_fn"), (APPENDED, APPENDED_LATER), (PRINTED, PRINTED_LATER)),
    sound("sampling", "four loader workers, foreach step, no inference graph", "joints", (TRAIN_WORKERS, "num_workers=4, collate_fn"), ("alpha=0.95)", "alpha=0.95, foreach=True)"), ("torch.no_grad()", "torch.inference_mode()")),
]

# ------------------------------------------------------------------------------------ tagging
DATA, MODEL, ENGINE = (f"herbarium/{name}.py" for name in ("data", "model", "engine"))
DECAY = "        decay = min(self.decay, (1 + self.updates) / (10 + self.updates))\n"
AVERAGED = """        for mine, theirs in zip(self.model.parameters(), model.parameters()):
            mine.mul_(decay).add_(theirs, alpha=1 - decay)
        for mine, theirs in zip(self.model.buffers(), model.buffers()):
            mine.copy_(theirs)
"""
AVERAGED_BY_STATE = """        mine, theirs = self.model.state_dict(), model.state_dict()
        floats = [name for name in mine if mine[name].is_floating_point()]
        torch._foreach_lerp_([mine[n] for n in floats], [theirs[n] for n in floats], 1 - decay)
        mine["norm.num_batches_tracked"].copy_(theirs["norm.num_batches_tracked"])
"""
AVERAGED_FOREACH = """        mine, theirs = list(self.model.parameters()), list(model.parameters())
        torch._foreach_lerp_(mine, theirs, 1 - decay)
        torch._foreach_copy_(list(self.model.buffers()), list(model.buffers()))
"""
DROPPED = """        if self.word_dropout:
            kept = words[np.random.random(len(words)) >= self.word_dropout]
            words = kept if len(kept) else words[:1]
"""
ITEM = "        return torch.from_numpy(words), torch.from_numpy(self.idf[words]), torch.from_numpy(self.tags[i])\n"
KEPT_ITEMS = """        if i not in self.ready:
            self.ready[i] = torch.from_numpy(words), torch.from_numpy(self.idf[words]), torch.from_numpy(self.tags[i])
        return self.ready[i]
"""
READY = "idf, word_dropout\n\n    def __len__"
COLLATE = """    words, weights, tags = zip(*batch)
    lengths = torch.tensor([0] + [len(w) for w in words[:-1]])
    return torch.cat(words), lengths.cumsum(0), torch.cat(weights), torch.stack(tags)
"""
BY_INDEX = """    def __getitems__(self, index):
        notes = [self.notes[i] for i in index]
        words, lengths = np.concatenate(notes), np.array([len(n) for n in notes])
        if self.word_dropout:
            kept = np.random.random(len(words)) >= self.word_dropout
            starts = lengths.cumsum() - lengths
            kept[starts[np.add.reduceat(kept, starts) == 0]] = True
            words, lengths = words[kept], np.add.reduceat(kept, starts)
        offsets = torch.from_numpy(lengths.cumsum() - lengths)
        return torch.from_numpy(words), offsets, torch.from_numpy(self.idf[words]), torch.from_numpy(self.tags[index])
"""
GETITEM = "    def __getitem__(self, i):\n        words = self.notes[i]\n" + DROPPED + ITEM
STEP_DUE = "        if (i + 1) % config.accumulate == 0 or i + 1 == len(loader):\n"
KEPT_BEST = "            best_state = copy.deepcopy(ema.model.state_dict())\n"
POSITIVE = "(1 - positive) / positive.clamp(min=1e-3)"
LOSSES = "        total += loss.item() * len(tags)\n"
LOSSES_LATER = "        total += loss.detach().double() * len(tags)\n"
THRESHOLDS = "    scores = torch.stack([f1(probs, truth, t) for t in grid])\n"
THRESHOLDS_AT_ONCE = """    found = (probs > grid[:, None, None]).float()
    hits = (found * truth).sum(1)
    scores = 2 * hits / (found.sum(1) + truth.sum(0)).clamp(min=1)
"""


def _in(file: str, case: Case) -> Case:
    return replace(case, file=file)


TAGGING = [
    _in(MODEL, fault("rounding", "statistics of the norm averaged with the weights", "tagging", (AVERAGED, AVERAGED_BY_STATE))),
    _in(MODEL, fault("rounding", "average that never forgets faster", "tagging", (DECAY, "        decay = self.decay\n"))),
    _in(DATA, fault("sampling", "items kept from the first epoch, with their lost words", "tagging", (ITEM, KEPT_ITEMS), (READY, READY.replace("\n\n", "\n        self.ready = {}\n\n")))),
    _in(DATA, fault("rounding", "weights of the tags by all over positive", "tagging", (POSITIVE, "1 / positive.clamp(min=1e-3)"))),
    _in(ENGINE, fault("exact", "last micro-batches of an epoch left to the next", "tagging", (STEP_DUE, STEP_DUE.replace(" or i + 1 == len(loader)", "")))),
    _in(ENGINE, fault("exact", "best weights not copied", "tagging", (KEPT_BEST, "            best_state = ema.model.state_dict()\n"))),
    _in(DATA, sound("exact", "notes gathered by the batch with the same draws", "tagging", (GETITEM, BY_INDEX), (COLLATE, "    return batch\n"))),
    _in(MODEL, sound("rounding", "average by foreach", "tagging", (AVERAGED, AVERAGED_FOREACH))),
    _in(ENGINE, sound("rounding", "thresholds at once, losses read once an epoch, no inference graph", "tagging", (THRESHOLDS, THRESHOLDS_AT_ONCE), (LOSSES, LOSSES_LATER), ("    return total / count\n", "    return total.item() / count\n"), ("@torch.no_grad()\n", "@torch.inference_mode()\n"))),
]

PART_A = CLOUDS + JOINTS + TAGGING

del CLOUDS, JOINTS, TAGGING

# ------------------------------------------------------------------------------------ depot
SCALE = """        count = known.sum(1, keepdim=True).clamp(min=1)
        mean = (values * known).sum(1, keepdim=True) / count
        var = ((values - mean).pow(2) * known).sum(1, keepdim=True) / count
"""
SCALE_OF_ALL = """        var, mean = torch.var_mean(values, 1, keepdim=True, correction=0)
"""
SCALE_BY_MOMENTS = """        share = known / known.sum(1, keepdim=True).clamp(min=1)
        mean = torch.linalg.vecdot(values, share).unsqueeze(1)
        var = torch.linalg.vecdot((values - mean).square(), share).unsqueeze(1)
"""
PADDED = "        y = self.conv(F.pad(x, (self.pad, 0)))\n"
HUBER = """    error = F.huber_loss(forecast, target, reduction="none", delta=10.0)
    return (error * known).sum() / known.sum().clamp(min=1)
"""
HUBER_OF_ALL = """    return F.huber_loss(forecast * known, target, delta=10.0)
"""
HUBER_SELECTED = """    seen = known.bool()
    return F.huber_loss(forecast[seen], target[seen], delta=10.0)
"""
DRAWN = """    windows = []
    for shop in shops.tolist():
        start = torch.randint(0, VAL - CONTEXT - HORIZON, (1,)).item()
        windows.append(cut(series, shop, start))
    return shops, [torch.stack(part) for part in zip(*windows)]
"""
DRAWN_AT_ONCE = """    start = torch.randint(0, VAL - CONTEXT - HORIZON, ({starts},)).expand(BATCH)
    window = series.unfold(1, CONTEXT + HORIZON, 1)[shops, start]
    known = (~window.isnan()).float()
    window = window.nan_to_num()
    weekday = ((start.unsqueeze(1) + torch.arange(CONTEXT)) % 7).float()
    return shops, [window[:, :CONTEXT], known[:, :CONTEXT], weekday, window[:, CONTEXT:], known[:, CONTEXT:]]
"""
GROUPS = '[{"params": decay, "weight_decay": 0.1}, {"params": no_decay, "weight_decay": 0.0}], lr=1e-3)'
DEPOT_LOSSES = "            losses.append(loss.item())\n"
DEPOT_LOSSES_LATER = "            losses.append(loss.detach())\n"

DEPOT = [
    fault("rounding", "mean and spread by var_mean, gaps as zeros", "depot", (SCALE, SCALE_OF_ALL)),
    fault("rounding", "Huber loss of all days, over all days", "depot", (HUBER, HUBER_OF_ALL)),
    fault("sampling", "windows by unfold, one start for the batch", "depot", (DRAWN, DRAWN_AT_ONCE.format(starts=1))),
    fault("exact", "padding by the convolution, on both sides", "depot", (PADDED, "        y = self.conv(x)\n"), ("3, dilation=dilation)", "3, padding=dilation, dilation=dilation)")),
    fault("sampling", "windows drawn once for all epochs", "depot", ("    best, best_state, waited = float", "    batches = [draw_batch(series) for _ in range(STEPS_PER_EPOCH)]\n    best, best_state, waited = float"), ("for _ in range(STEPS_PER_EPOCH):\n            shops, (values, known, weekday, target, seen) = draw_batch(series)\n", "for shops, (values, known, weekday, target, seen) in batches:\n")),
    fault("rounding", "one group of parameters for the fused step", "depot", (GROUPS, "decay + no_decay, lr=1e-3, weight_decay=0.1, fused=True)")),
    sound("sampling", "windows by unfold, a start for each", "depot", (DRAWN, DRAWN_AT_ONCE.format(starts="BATCH"))),
    sound("rounding", "mean and spread by dot products, Huber loss of the seen days, losses read once an epoch", "depot", (SCALE, SCALE_BY_MOMENTS), (HUBER, HUBER_SELECTED), (DEPOT_LOSSES, DEPOT_LOSSES_LATER), ("np.mean(losses)", "torch.stack(losses).double().mean().item()")),
    sound("rounding", "more shops in an evaluation batch, fused step", "depot", ("split(10)", "split(40)"), ("lr=1e-3)", "lr=1e-3, fused=True)"), ("zero_grad()", "zero_grad(set_to_none=True)")),
]

# ------------------------------------------------------------------------------------ register
WAYS = """    there = model(moving, fixed)
    back = model(fixed, moving)
"""
WAYS_AT_ONCE = "    there, back = model(torch.cat([moving, fixed]), torch.cat([fixed, moving])).chunk(2)\n"
LIT = "change_light(images[moving[part]]), change_light(images[fixed[part]])"
LIT_TOGETHER = "*change_light(torch.cat([images[moving[part]], images[fixed[part]]], 1)).split(1, 1)"
GRID = """    y, x = torch.meshgrid(torch.linspace(-1, 1, h), torch.linspace(-1, 1, w), indexing="ij")
    grid = torch.stack([x, y], -1).expand(n, h, w, 2) + flow.permute(0, 2, 3, 1)
"""
GRID_AFFINE = """    grid = F.affine_grid(torch.eye(2, 3).expand(n, 2, 3), (n, 1, h, w), align_corners={corners}) + flow.permute(0, 2, 3, 1)
"""
SAMPLED = 'padding_mode="border", align_corners=True)'
NCC = """    mean_a, mean_b = box(a), box(b)
    cross = box(a * b) - mean_a * mean_b
    var_a, var_b = box(a * a) - mean_a**2, box(b * b) - mean_b**2
    return 1 - (cross**2 / (var_a * var_b + 1e-3)).mean()
"""
NCC_OF_ALL = """    a, b = (x - x.mean((2, 3), keepdim=True) for x in (a, b))
    cross, var_a, var_b = ((p * q).mean((2, 3)) for p, q in ((a, b), (a, a), (b, b)))
    return 1 - (cross**2 / (var_a * var_b + 1e-3)).mean()
"""
NCC_BY_CHANNELS = """    mean_a, mean_b, ab, aa, bb = box(torch.cat([a, b, a * b, a * a, b * b], 1)).split(1, 1)
    cross = ab - mean_a * mean_b
    return 1 - (cross.square() / ((aa - mean_a.square()) * (bb - mean_b.square()) + 1e-3)).mean()
"""
BOX = "    return F.conv2d(x, torch.ones(1, 1, k, k) / k**2, padding=k // 2)\n"
BOX_POOL = "    return F.avg_pool2d(x, k, 1, k // 2)\n"
SUMS = "            loss_sum += loss.item()\n            image_sum += image.item()\n"
SUMS_LATER = "            loss_sum += loss.detach().double()\n            image_sum += image.double()\n"

REGISTER = [
    fault("rounding", "both ways in one batch through the norms", "register", (WAYS, WAYS_AT_ONCE)),
    fault("sampling", "light changed alike for both pictures of a pair", "register", (LIT, LIT_TOGETHER)),
    fault("exact", "grid of pixel centres, sampled by corners", "register", (GRID, GRID_AFFINE.format(corners=False))),
    fault("rounding", "correlation of the whole picture", "register", (NCC, NCC_OF_ALL)),
    fault("exact", "roughness of a field out of the graph", "register", ("    smooth = 10 *", "    there, back = there.detach(), back.detach()\n    smooth = 10 *")),
    fault("exact", "rate set by the epoch, for as many steps", "register", ("            scheduler.step()\n", ""), ("        print(f\"epoch", "        scheduler.step()\n        print(f\"epoch")),
    sound("rounding", "boxes in one convolution by pooling, losses read once an epoch", "register", (BOX, BOX_POOL), (NCC, NCC_BY_CHANNELS), (SUMS, SUMS_LATER)),
    sound("rounding", "grid by affine_grid, foreach step, evaluation at once", "register", (GRID, GRID_AFFINE.format(corners=True)), ("betas=(0.9, 0.98))", "betas=(0.9, 0.98), foreach=True)"), ("batch=20", "batch=40")),
]

# ------------------------------------------------------------------------------------ bags
PER_BAG = """        logits, evenness = [], []
        for cells in bags:
            h = self.embed(cells)
            scores = self.score(torch.tanh(self.tanh(h)) * torch.sigmoid(self.gate(h))).squeeze(1)
            weights = scores.softmax(0)
            logits.append(self.head(weights @ h))
            entropy = -(weights * (weights + 1e-8).log()).sum()
            evenness.append(entropy / math.log(max(len(cells), 2)))
        return torch.cat(logits), torch.stack(evenness)
"""
PADDED_BAGS = """        lengths = torch.tensor([len(cells) for cells in bags])
        h = self.embed(nn.utils.rnn.pad_sequence(bags, batch_first=True))
        scores = self.score(torch.tanh(self.tanh(h)) * torch.sigmoid(self.gate(h))).squeeze(2)
        there = torch.arange(h.shape[1]) < lengths[:, None]
        weights = scores.masked_fill(~there, float("-inf")).softmax(1)
        logits = self.head(torch.bmm(weights.unsqueeze(1), h).squeeze(1)).squeeze(1)
        entropy = -(weights * (weights + 1e-8).log()).sum(1)
        return logits, entropy / lengths.clamp(min=2).log()
"""
JOINED_BAGS = """        lengths = torch.tensor([len(cells) for cells in bags])
        bag = torch.arange(len(bags)).repeat_interleave(lengths)
        h = self.embed(torch.cat(bags))
        scores = self.score(torch.tanh(self.tanh(h)) * torch.sigmoid(self.gate(h))).squeeze(1)
        top = scores.new_zeros(len(bags)).scatter_reduce(0, bag, scores.detach(), "amax", include_self=False)
        weights = (scores - top[bag]).exp()
        weights = weights / weights.new_zeros(len(bags)).index_add(0, bag, weights)[bag]
        pooled = h.new_zeros(len(bags), HIDDEN).index_add(0, bag, weights.unsqueeze(1) * h)
        entropy = -torch.zeros(len(bags)).index_add(0, bag, weights * (weights + 1e-8).log())
        return self.head(pooled).squeeze(1), entropy / lengths.clamp(min=2).log()
"""
SAMPLER = "[train.labels.long()], len(train))"
CELLS = """            kept = torch.rand(len(cells)) < KEEP
            kept[0] = True
            cells = cells[kept] + 0.2 * torch.randn(int(kept.sum()), FEATURES)
"""
CELLS_NOISY = """            kept = torch.rand(len(cells)) < KEEP
            kept[0] = True
            cells = cells[kept] + 0.2 * torch.randn(FEATURES)
"""
SLOW = "        self.slow = [p.detach().clone() for p in self.params]\n"
BACK = """            for slow, p in zip(self.slow, self.params):
                slow.add_(p - slow, alpha=self.alpha)
                p.copy_(slow)
"""
BACK_FOREACH = """            torch._foreach_lerp_(self.slow, self.params, self.alpha)
            torch._foreach_copy_(self.params, self.slow)
"""
AUC_OF_ALL = "    return torch.cat(losses).mean().item(), auc(torch.cat(scores), torch.cat(labels))\n"
AUC_BY_BATCH = "    return torch.cat(losses).mean().item(), sum(auc(s, t) for s, t in zip(scores, labels)) / len(labels)\n"
BAG_SUMS = """            running_loss += loss.item() * len(labels)
            running_right += ((logits > 0).float() == labels).sum().item()
"""
BAG_SUMS_LATER = """            running_loss += loss.detach().double() * len(labels)
            running_right += ((logits.detach() > 0).float() == labels).sum()
"""

BAGS = [
    fault("sampling", "bags padded, attention to the padding too", "bags", (PER_BAG, PADDED_BAGS.replace('.masked_fill(~there, float("-inf"))', ""))),
    fault("sampling", "bags padded, evenness by the longest", "bags", (PER_BAG, PADDED_BAGS.replace("lengths.clamp(min=2).log()", "math.log(h.shape[1])"))),
    fault("sampling", "each bag once, unbalanced", "bags", (SAMPLER, "[train.labels.long()], len(train), replacement=False)")),
    fault("exact", "slow weights that are the weights", "bags", (SLOW, "        self.slow = [p.detach() for p in self.params]\n")),
    fault("rounding", "area under the curve by the batch", "bags", (AUC_OF_ALL, AUC_BY_BATCH)),
    fault("sampling", "noise drawn once for the cells of a bag", "bags", (CELLS, CELLS_NOISY)),
    sound("sampling", "bags padded and masked, lookahead by foreach", "bags", (PER_BAG, PADDED_BAGS), (BACK, BACK_FOREACH)),
    sound("rounding", "bags joined, sums by index, losses read once an epoch", "bags", (PER_BAG, JOINED_BAGS), (BAG_SUMS, BAG_SUMS_LATER)),
]

PART_B = DEPOT + REGISTER + BAGS

del DEPOT, REGISTER, BAGS
