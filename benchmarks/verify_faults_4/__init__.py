"""A fourth set of faults, written blind as the third was, for two scripts; run once, as it is.

Sequence labelling (packed sequences, a masked loss, warm-up by steps) and recommendations (negatives drawn in every step, an average of the weights,
early stopping). ``python -m benchmarks.verify_faults --set 4``.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

HERE = Path(__file__).parent / "scripts"
CASES = Cases(HERE)
fault, sound = CASES.fault, CASES.sound


FIFTH = [
    # ---------------------------------------------------------------------------------------------- sequence labelling
    fault("the mask left out of the mean", "tagger", ("return (each * mask).sum() / mask.sum()", "return (each * mask).mean()")),
    fault("the schedule steps once an epoch", "tagger", ("            scheduler.step()\n            shown += loss.item()\n", "            shown += loss.item()\n        scheduler.step()\n")),
    fault("each group clipped by itself", "tagger", ("            nn.utils.clip_grad_norm_(model.parameters(), 0.5)\n", "            for group in optimizer.param_groups:\n                nn.utils.clip_grad_norm_(group[\"params\"], 0.5)\n")),
    fault("norms and biases decay", "tagger", ('"weight_decay": 0.0', '"weight_decay": 0.1')),
    fault("dropout between the layers lost", "tagger", (", dropout=0.1)", ")")),
    fault("sentences of a length always together", "tagger",
          ("    train = DataLoader(Sentences(150, 1), batch_size=16, shuffle=True, collate_fn=collate)\n", "    data = Sentences(150, 1)\n    order = sorted(range(150), key=lambda index: len(data.words[index]))\n    batches = [order[at : at + 16] for at in range(0, 150, 16)]\n    train = DataLoader(data, batch_sampler=Shuffled(batches), collate_fn=collate)\n"),
          ("def masked_loss(", "class Shuffled(list):\n    def __iter__(self):\n        return (self[index] for index in torch.randperm(len(self)).tolist())\n\n\ndef masked_loss(")),
    fault("the padding runs through the LSTM", "tagger", ("        packed = pack_padded_sequence(self.drop(self.embed(words)), lengths, batch_first=True, enforce_sorted=False)\n        out, _ = pad_packed_sequence(self.body(packed)[0], batch_first=True)\n", "        out, _ = self.body(self.drop(self.embed(words)))\n")),
    fault("one mask of dropout for the whole batch", "tagger", ("self.head(self.drop(self.norm(out)))", "self.head(self.norm(out) * self.drop(torch.ones_like(out[:1])))")),
    sound("sorted within a batch", "tagger", ("    words, tags = zip(*items)\n", "    words, tags = zip(*sorted(items, key=lambda item: -len(item[0])))\n"), ("enforce_sorted=False", "enforce_sorted=True")),
    sound("fused AdamW", "tagger", ("lr=2e-2)", "lr=2e-2, fused=True)")),
    sound("the loss of the chosen words", "tagger", ("    each = F.cross_entropy(logits.flatten(0, 1), tags.flatten(), reduction=\"none\").view_as(tags)\n    return (each * mask).sum() / mask.sum()\n", "    return F.cross_entropy(logits[mask], tags[mask])\n")),
    # ---------------------------------------------------------------------------------------------- recommendations
    fault("negatives drawn once", "rank", ("    best, waited = -1.0, 0\n", "    best, waited = -1.0, 0\n    drawn = torch.randint(0, ITEMS, (2, 64))\n"), ("            other = torch.randint(0, ITEMS, liked.shape)\n            again = torch.randint(0, ITEMS, liked.shape)\n", "            other, again = drawn[:, : len(liked)]\n")),
    fault("the batch's own items are the negatives", "rank", ("            other = torch.randint(0, ITEMS, liked.shape)\n", "            other = liked[torch.randperm(len(liked))]\n")),
    fault("the average made before the step", "rank", ("            optimizer.step()\n            update(average, model)\n", "            update(average, model)\n            optimizer.step()\n")),
    fault("evaluated with the weights as they are", "rank", ("found = recall(average, known", "found = recall(copy.deepcopy(model), known")),
    fault("dropout lost", "rank", ("self.drop(self.user(user))", "self.user(user)")),
    fault("the last batch dropped", "rank", ("shuffle=True)", "shuffle=True, drop_last=True)")),
    fault("the last weights saved as the best", "rank", ('torch.save(average.state_dict(), "rank.pt")', "kept = average.state_dict()"), ("    model.load_state_dict(", '    torch.save(kept, "rank.pt")\n    model.load_state_dict(')),
    fault("no gradient through the negatives", "rank", ("            difference = model(user, liked) - model(user, other)\n", "            with torch.no_grad():\n                worse = model(user, other)\n            difference = model(user, liked) - worse\n")),
    sound("the average by foreach", "rank", ("        for mine, theirs in zip(average.parameters(), model.parameters()):\n            mine.mul_(share).add_(theirs, alpha=1 - share)\n", "        torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - share)\n")),
    sound("all users ranked at once", "rank", ("    every = torch.arange(ITEMS)\n    found = 0\n    for user in range(USERS):\n        score = model(torch.full_like(every, user), every).masked_fill(known[user], float(\"-inf\"))\n        found += torch.isin(score.topk(10).indices, hidden[user]).sum().item()\n", "    score = model.user.weight @ model.item.weight.t() + model.bias.weight.t()\n    top = score.masked_fill(known, float(\"-inf\")).topk(10).indices\n    found = (top[:, :, None] == hidden[:, None]).sum().item()\n")),
    sound("the pairs permuted in memory", "rank", ("        for user, liked in loader:\n", "        for rows in torch.randperm(len(pairs)).split(64):\n            user, liked = pairs[rows].unbind(1)\n")),
]  # fmt: skip
