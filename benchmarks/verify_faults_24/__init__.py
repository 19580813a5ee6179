"""A twenty-fourth set of faults, written without sight of the judge: draws that are shared, kept or made by another law, and what is carried,
chosen or weighed otherwise. Above each case stands why it is wrong, or sound.

Part a: ``gru_tbptt``: series forecast in windows, with a state that is carried and forecasts that are fed back; ``diffusion2d``: noise taken from
points, with an average of the weights; ``bpr``: a recommender, from negatives that are drawn; ``coteach``: two networks that choose for each
other which of the noisy labels to learn from.

Part b: ``aug_cls``: images that workers augment; ``charlm``: a language model with packed texts and micro-batches; ``kfold``: tables in
folds, with the best weights kept.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

CASES = Cases(Path(__file__).parent / "scripts")
fault, sound = CASES.fault, CASES.sound


# ------------------------------------------------------------------------------- gru_tbptt
GRU_TBPTT = [
    # hidden state restarts at zero each window instead of being carried
    fault(
        "hidden-reset", "gru_tbptt",
        ("        h = h.detach()\n", "        h = model.start(STREAMS)\n"),
    ),
    # scheduled-sampling coins predrawn per time step only: all streams switch together, 1 draw instead of 32
    fault(
        "feed-whole-batch", "gru_tbptt",
        ("        preds, prev = [], None\n", "        preds, prev = [], None\n        coins = torch.rand(x.size(1)) < feed_prob\n"),
        ("                own = torch.rand(x.size(0)) < feed_prob\n", "                own = coins[t]\n"),
    ),
    # predrawn coins use the complement: the model's own forecast is fed with probability 1-p instead of p
    fault(
        "feed-complement", "gru_tbptt",
        ("        preds, prev = [], None\n", "        preds, prev = [], None\n        coins = torch.bernoulli(torch.full((x.size(1), x.size(0)), 1 - feed_prob)).bool()\n"),
        ("                own = torch.rand(x.size(0)) < feed_prob\n", "                own = coins[t]\n"),
    ),
    # streams are permuted anew for each window while the carried hidden state is not: it belongs to other streams
    fault(
        "streams-shuffled", "gru_tbptt",
        ("        xb, yb = train_x[:, s:s + WINDOW], train_y[:, s:s + WINDOW]\n", "        perm = torch.randperm(STREAMS)\n        xb, yb = train_x[perm, s:s + WINDOW], train_y[perm, s:s + WINDOW]\n"),
    ),
    # test warm-up skipped: test starts from a zero state, so the metric misses the regime carried from training
    fault(
        "test-from-zero", "gru_tbptt",
        ("        _, h = model(train_x, model.start(STREAMS))\n", "        h = model.start(STREAMS)\n"),
    ),
    # coins predrawn per window and stream: same distribution
    sound(
        "ok-predraw", "gru_tbptt",
        ("        preds, prev = [], None\n", "        preds, prev = [], None\n        coins = torch.rand(x.size(1), x.size(0)) < feed_prob\n"),
        ("                own = torch.rand(x.size(0)) < feed_prob\n", "                own = coins[t]\n"),
    ),
    # streams reordered once per epoch together with nothing carried over; foreach optimizer; late read
    sound(
        "ok-order-foreach", "gru_tbptt",
        ("    h = model.start(STREAMS)\n    feed_prob", "    perm = torch.randperm(STREAMS)\n    h = model.start(STREAMS)\n    feed_prob"),
        ("train_x[:, s:s + WINDOW], train_y[:, s:s + WINDOW]", "train_x[perm, s:s + WINDOW], train_y[perm, s:s + WINDOW]"),
        ("lr=4e-3)", "lr=4e-3, foreach=True)"),
        ("loss.item() * xb", "loss.detach() * xb"),
    ),
]

# ----------------------------------------------------------------------------- diffusion2d
DIFFUSION2D = [
    # one time step drawn for the whole batch instead of one per point
    fault(
        "t-shared", "diffusion2d",
        ("        t = torch.randint(0, sch.steps, (a.batch,))\n", "        t = torch.randint(0, sch.steps, (1,)).expand(a.batch)\n"),
    ),
    # noise buffer filled with U(-1,1) instead of N(0,1): wrong scale and shape, sampler starts elsewhere
    fault(
        "noise-uniform", "diffusion2d",
        ("        noise = torch.randn_like(x0)\n", "        noise = torch.empty_like(x0).uniform_(-1, 1)\n"),
    ),
    # noise (and step) precomputed once per training point and reused every epoch: the net fits 1600 fixed pairs
    fault(
        "noise-pool", "diffusion2d",
        ("    window = 0.0\n    for it", "    pool_t = torch.randint(0, sch.steps, (len(train),))\n    pool_n = torch.randn(len(train), 2)\n    window = 0.0\n    for it"),
        ("        t = torch.randint(0, sch.steps, (a.batch,))\n", "        idx = order[k * a.batch:(k + 1) * a.batch]\n        t = pool_t[idx]\n"),
        ("        noise = torch.randn_like(x0)\n", "        noise = pool_n[idx]\n"),
    ),
    # foreach EMA lerps by decay instead of 1-decay: the average is just the raw weights
    fault(
        "ema-swapped", "diffusion2d",
        ("        for pe, pm in zip(ema.parameters(), model.parameters()):\n            pe.mul_(decay).add_(pm, alpha=1 - decay)\n", "        torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), decay)\n"),
    ),
    # the SNR weight is averaged apart from the error: every step weighs the same, min-SNR is lost
    fault(
        "weight-decoupled", "diffusion2d",
        ("loss = (sch.weight[t] * (pred - noise).pow(2).mean(1)).mean()", "loss = sch.weight[t].mean() * (pred - noise).pow(2).mean()"),
    ),
    # foreach EMA by 1-decay, fused Adam
    sound(
        "ok-foreach-inference", "diffusion2d",
        ("        for pe, pm in zip(ema.parameters(), model.parameters()):\n            pe.mul_(decay).add_(pm, alpha=1 - decay)\n", "        torch._foreach_lerp_(list(ema.parameters()), list(model.parameters()), 1 - decay)\n"),
        ("lr=3e-3)", "lr=3e-3, fused=True)"),
    ),
    # steps and noise from a separate generator into preallocated buffers: same distributions
    sound(
        "ok-other-draws", "diffusion2d",
        ("    window = 0.0\n    for it", "    gen = torch.Generator().manual_seed(a.seed + 1000)\n    buf = torch.empty(a.batch, 2)\n    window = 0.0\n    for it"),
        ("        t = torch.randint(0, sch.steps, (a.batch,))\n", "        t = (torch.rand(a.batch, generator=gen) * sch.steps).long()\n"),
        ("        noise = torch.randn_like(x0)\n", "        noise = buf.normal_(generator=gen)\n"),
    ),
]

# ------------------------------------------------------------------------------------- bpr
BPR = [
    # negatives sampled once before training and reused each epoch: the model learns 4 fixed negatives per pair
    fault(
        "negatives-static", "bpr",
        ("    for epoch in range(args.epochs):\n", "    all_neg = sample_negatives(pairs[:, 0], probs, seen)\n    for epoch in range(args.epochs):\n"),
        ("            neg = sample_negatives(users, probs, seen)\n", "            neg = all_neg[order[k:k + args.batch]]\n"),
    ),
    # fast randint negatives lose the popularity^0.75 weighting and the exclusion of the user's own positives
    fault(
        "negatives-uniform", "bpr",
        ("            neg = sample_negatives(users, probs, seen)\n", "            neg = torch.randint(0, ITEMS, (len(users), NEG))\n"),
    ),
    # fused loss averages over the 5 logits: negatives weigh a quarter against the positive
    fault(
        "neg-mean", "bpr",
        ("F.softplus(sn).sum(1).mean()", "F.softplus(sn).mean()"),
    ),
    # the L2 term is computed on detached weights (as a 'cheap' statistic), so nothing is regularised
    fault(
        "reg-detached", "bpr",
        ("reg = model.user(users).pow(2).sum(1).mean() + model.item(pos).pow(2).sum(1).mean()", "reg = model.user.weight.data[users].pow(2).sum(1).mean() + model.item.weight.data[pos].pow(2).sum(1).mean()"),
    ),
    # items already seen are no longer masked at evaluation: training positives fill the top 10
    fault(
        "eval-mask-lost", "bpr",
        ("        scores = scores.masked_fill(seen[users], -1e9)\n", ""),
    ),
    # all negatives of an epoch drawn in one call: same distribution, fresh each epoch
    sound(
        "ok-negs-per-epoch", "bpr",
        ("        order = torch.randperm(len(pairs))\n", "        order = torch.randperm(len(pairs))\n        all_neg = sample_negatives(pairs[:, 0], probs, seen)\n"),
        ("            neg = sample_negatives(users, probs, seen)\n", "            neg = all_neg[order[k:k + args.batch]]\n"),
    ),
    # seen-masked probabilities per user sample exactly, with no rejection loop
    sound(
        "ok-gather-first", "bpr",
        ("            neg = sample_negatives(users, probs, seen)\n", "            neg = torch.multinomial(probs * ~seen[users], NEG, replacement=True)\n"),
    ),
]

# --------------------------------------------------------------------------------- coteach
COTEACH = [
    # label noise redrawn each batch: averaged over epochs the true label shows through, the noisy-label problem is gone
    fault(
        "fresh-noise", "coteach",
        ("        x, y = x_train[idx], y_train[idx]\n", "        x = x_train[idx]\n        bad = torch.rand(len(idx)) < NOISE\n        y = torch.where(bad, (y_clean[idx] + torch.randint(1, CLASSES, (len(idx),))) % CLASSES, y_clean[idx])\n"),
    ),
    # each network trains on its own easy samples: confirmation instead of exchange
    fault(
        "self-select", "coteach",
        ("loss_a[easy_b].mean(), loss_b[easy_a].mean()", "loss_a[easy_a].mean(), loss_b[easy_b].mean()"),
    ),
    # the number kept uses the forget rate (0.35) instead of 1-0.35 once the ramp is over
    fault(
        "keep-complement", "coteach",
        ("    return 1.0 - NOISE * min(1.0, epoch / ramp)", "    return max(1.0 - (1.0 - NOISE) * min(1.0, epoch / ramp), NOISE)"),
    ),
    # selection by topk on the shuffled positions: n random samples instead of the n with the smallest loss (fresh order too)
    fault(
        "select-random", "coteach",
        ("loss_a.detach().argsort()[:n]", "torch.randperm(len(idx))[:n]"),
        ("loss_b.detach().argsort()[:n]", "torch.randperm(len(idx))[:n]"),
    ),
    # topk(largest=False) instead of argsort, one backward over the sum, set_to_none, order from another generator
    sound(
        "ok-topk-late", "coteach",
        ("loss_a.detach().argsort()[:n]", "loss_a.detach().topk(n, largest=False).indices"),
        ("loss_b.detach().argsort()[:n]", "loss_b.detach().topk(n, largest=False).indices"),
        ("    perm = torch.randperm(len(x_train))\n", "    perm = torch.rand(len(x_train)).argsort()\n"),
    ),
    # kept samples averaged by a 0/1 mask instead of indexing, foreach SGD for net a
    sound(
        "ok-masked-mean", "coteach",
        ("loss_a[easy_b].mean(), loss_b[easy_a].mean()", "(loss_a * torch.zeros(len(idx)).index_fill_(0, easy_b, 1.0)).sum() / n, (loss_b * torch.zeros(len(idx)).index_fill_(0, easy_a, 1.0)).sum() / n"),
    ),
]

# -------------------------------------------------------------------------------- aug_cls
AUG_CLS = [
    # workers are reseeded with a constant each epoch, so both workers draw the same augmentation sequence and every epoch repeats it
    fault(
        "worker-const-seed", "aug_cls",
        ("    s = torch.initial_seed() % 2**32\n", "    s = 12345\n"),
    ),
    # augmentation moved to the batch but one flip, crop and gain are drawn for the whole batch instead of per image
    fault(
        "batch-shared-draw", "aug_cls",
        ("        if self.train:\n            img = self.augment(img)\n", ""),
        ("def seed_worker", "def batch_augment(x):\n    n = x.size(0)\n    if torch.rand(()) < 0.5:\n        x = x.flip(3)\n    x = F.pad(x, (3, 3, 3, 3))\n    dy, dx = torch.randint(0, 7, (2,)).tolist()\n    return x[:, :, dy:dy + 18, dx:dx + 18] * (0.6 + 0.8 * torch.rand(()))\n\n\ndef seed_worker"),
        ("            loss = criterion(model(x), y)\n", "            x = batch_augment(x)\n            loss = criterion(model(x), y)\n"),
    ),
    # vectorised augmentation draws the gain from N(1,0.8) (often negative or near 0) instead of U(0.6,1.4)
    fault(
        "batch-gain-normal", "aug_cls",
        ("        if self.train:\n            img = self.augment(img)\n", ""),
        ("def seed_worker", "def batch_augment(x):\n    n = x.size(0)\n    flip = torch.rand(n) < 0.5\n    x = torch.where(flip[:, None, None, None], x.flip(3), x)\n    x = F.pad(x, (3, 3, 3, 3))\n    off = torch.randint(0, 7, (2, n))\n    r = torch.arange(18)\n    rows, cols = off[0][:, None] + r, off[1][:, None] + r\n    x = x[torch.arange(n)[:, None, None, None], torch.arange(3)[None, :, None, None], rows[:, None, :, None], cols[:, None, None, :]]\n    return x * (1 + 0.8 * torch.randn(n, 1, 1, 1))\n\n\ndef seed_worker"),
        ("            loss = criterion(model(x), y)\n", "            x = batch_augment(x)\n            loss = criterion(model(x), y)\n"),
    ),
    # weight decay lands on biases/BN scales and the conv/linear weights get none
    fault(
        "decay-groups-swapped", "aug_cls",
        ("\"params\": decay, \"weight_decay\": wd", "\"params\": decay, \"weight_decay\": 0.0"),
        ("\"params\": plain, \"weight_decay\": 0.0", "\"params\": plain, \"weight_decay\": wd"),
    ),
    # OneCycle sized in steps is stepped once an epoch, so the rate never leaves the start of the warm-up
    fault(
        "sched-per-epoch", "aug_cls",
        ("            sched.step()\n", ""),
        ("        test_loss, test_acc = evaluate(model, test_loader)\n", "        sched.step()\n        test_loss, test_acc = evaluate(model, test_loader)\n"),
    ),
    # augmentation vectorised on the batch with per-image draws from the same distributions
    sound(
        "ok-vec-aug", "aug_cls",
        ("        if self.train:\n            img = self.augment(img)\n", ""),
        ("def seed_worker", "def batch_augment(x):\n    n = x.size(0)\n    flip = torch.rand(n) < 0.5\n    x = torch.where(flip[:, None, None, None], x.flip(3), x)\n    x = F.pad(x, (3, 3, 3, 3))\n    off = torch.randint(0, 7, (2, n))\n    r = torch.arange(18)\n    rows, cols = off[0][:, None] + r, off[1][:, None] + r\n    x = x[torch.arange(n)[:, None, None, None], torch.arange(3)[None, :, None, None], rows[:, None, :, None], cols[:, None, None, :]]\n    return x * (0.6 + 0.8 * torch.rand(n, 1, 1, 1))\n\n\ndef seed_worker"),
        ("            loss = criterion(model(x), y)\n", "            x = batch_augment(x)\n            loss = criterion(model(x), y)\n"),
    ),
    # larger evaluation batch, inference_mode, losses detached and read late
    sound(
        "ok-eval-big-detach", "aug_cls",
        ("batch_size=64)", "batch_size=250)"),
        ("@torch.no_grad()\n", "@torch.inference_mode()\n"),
        ("running += loss.item() * y.numel()", "running = running + loss.detach() * y.numel()"),
    ),
]

# --------------------------------------------------------------------------------- charlm
CHARLM = [
    # each micro-batch is averaged over its own tokens and divided by accum: tokens of short-document micro-batches weigh several times more
    fault(
        "mean-per-micro", "charlm",
        ("reduction=\"sum\") / total\n", "reduction=\"mean\") / args.accum\n"),
    ),
    # sdpa's dropout_p is not gated by training, so evaluation (all reported val losses) runs with attention dropout
    fault(
        "sdpa-dropout-always", "charlm",
        ("        att = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))\n        att = att.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float(\"-inf\"))\n        att = F.dropout(att.softmax(-1), self.p, self.training)\n        return att @ v\n", "        return F.scaled_dot_product_attention(q, k, v, dropout_p=self.p, is_causal=True)\n"),
    ),
    # targets preallocated as zeros, so padding is learnt and counted as the character \0 in loss and metric
    fault(
        "pad-counted", "charlm",
        ("y = torch.full((len(docs), width), -100, dtype=torch.long)", "y = torch.zeros_like(x)"),
    ),
    # the schedule is stepped per micro-batch: the cosine ends after a quarter of the run
    fault(
        "sched-per-micro", "charlm",
        ("        sched.step()\n", ""),
        ("            loss.backward()\n", "            loss.backward()\n            sched.step()\n"),
    ),
    # same shuffles drawn from torch instead of random
    sound(
        "ok-torch-perm", "charlm",
        ("        rng.shuffle(order)\n", "        order = torch.randperm(len(docs)).tolist()\n"),
        ("        rng.shuffle(batches)\n", "        batches = [batches[i] for i in torch.randperm(len(batches)).tolist()]\n"),
    ),
    # sdpa with gated dropout and fused AdamW, larger evaluation batch
    sound(
        "ok-sdpa-fused", "charlm",
        ("        att = (q @ k.transpose(-2, -1)) / math.sqrt(q.size(-1))\n        att = att.masked_fill(torch.ones(n, n, dtype=torch.bool).triu(1), float(\"-inf\"))\n        att = F.dropout(att.softmax(-1), self.p, self.training)\n        return att @ v\n", "        return F.scaled_dot_product_attention(q, k, v, dropout_p=self.p if self.training else 0.0, is_causal=True)\n"),
        ("weight_decay=0.05)", "weight_decay=0.05, fused=True)"),
        ("docs, bs=16)", "docs, bs=40)"),
    ),
]

# ---------------------------------------------------------------------------------- kfold
KFOLD = [
    # best_state aliases the live weights: the last epoch's weights are restored and saved, not the best
    fault(
        "best-alias", "kfold",
        ("best_state = copy.deepcopy(model.state_dict())", "best_state = {k: v.detach() for k, v in model.state_dict().items()}"),
    ),
    # target encoding computed from all rows, validation targets leak into the feature (order drawn otherwise as well)
    fault(
        "encode-leak", "kfold",
        ("    best, best_state, bad =", "    gen = torch.Generator().manual_seed(args.seed + 77)\n    best, best_state, bad ="),
        ("        order = torch.randperm(len(xt))\n", "        order = torch.randperm(len(xt), generator=gen)\n"),
        ("target_encode(cat[tr], y[tr], cat.max() + 1)", "target_encode(cat, y, cat.max() + 1)"),
    ),
    # one model built outside is reused for all folds: later folds validate on rows already trained on
    fault(
        "model-reused", "kfold",
        ("    model = MLP(xt.size(1))\n", "    model = train_fold.__dict__.setdefault('net', None) or MLP(xt.size(1))\n    train_fold.net = model\n"),
    ),
    # validation runs in train mode: dropout active, batch statistics, running stats absorb validation rows
    fault(
        "predict-train-mode", "kfold",
        ("    model.eval()\n    return torch.cat", "    return torch.cat"),
    ),
    # epoch order drawn with replacement over the first half too often: squared-uniform index over-samples early rows
    fault(
        "with-replacement", "kfold",
        ("        order = torch.randperm(len(xt))\n", "        order = (torch.rand(len(xt)).pow(2) * len(xt)).long()\n"),
    ),
    # order from a generator of its own, larger prediction batch, inference_mode
    sound(
        "ok-gen-order", "kfold",
        ("    best, best_state, bad =", "    gen = torch.Generator().manual_seed(args.seed + 77)\n    best, best_state, bad ="),
        ("        order = torch.randperm(len(xt))\n", "        order = torch.randperm(len(xt), generator=gen)\n"),
        ("bs=128)", "bs=4096)"),
        ("@torch.no_grad()", "@torch.inference_mode()"),
    ),
    # best weights cloned instead of deep-copied, train loss accumulated as a tensor, fused AdamW
    sound(
        "ok-clone-late", "kfold",
        ("best_state = copy.deepcopy(model.state_dict())", "best_state = {k: v.detach().clone() for k, v in model.state_dict().items()}"),
        ("loss.item() * len(idx)", "loss.detach() * len(idx)"),
        ("weight_decay=0.02)", "weight_decay=0.02, fused=True)"),
    ),
]

PART_A = GRU_TBPTT + DIFFUSION2D + BPR + COTEACH
PART_B = AUG_CLS + CHARLM + KFOLD

del AUG_CLS, CHARLM, KFOLD, GRU_TBPTT, DIFFUSION2D, BPR, COTEACH
