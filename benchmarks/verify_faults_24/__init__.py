"""A twenty-fourth set of faults, written without sight of the judge: draws that are shared, kept or made by another law, and what is carried,
chosen or weighed otherwise. Above each case stands why it is wrong, or sound.

Part a: ``gru_tbptt``: series forecast in windows, with a state that is carried and forecasts that are fed back; ``diffusion2d``: noise taken from
points, with an average of the weights; ``bpr``: a recommender, from negatives that are drawn; ``coteach``: two networks that choose for each
other which of the noisy labels to learn from.
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

PART_A = GRU_TBPTT + DIFFUSION2D + BPR + COTEACH

del GRU_TBPTT, DIFFUSION2D, BPR, COTEACH
