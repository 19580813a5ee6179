"""A second set of faults, made without sight of how verify works, and judged as any second script is: nothing is known of what was done.

Scripts of other kinds than those of tests/faults: segmentation, a recurrent language model, a table in memory, policy gradient,
contrastive learning with workers, a moving average with early stopping. ``python -m benchmarks.verify_faults --set 2a``.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

HERE = Path(__file__).parent
CASES = Cases(HERE)
fault, sound = CASES.fault, CASES.sound


_BF16 = 'with torch.autocast("cpu", dtype=torch.bfloat16):'

FIRST = [
    # ---------------------------------------------------------------------------------------------- segmentation
    fault("dice over the batch instead of the image", "segment",
          ("    both = (p * mask).sum((1, 2))\n    return (1 - (2 * both + 1) / (p.sum((1, 2)) + mask.sum((1, 2)) + 1)).mean()",
           "    both = (p * mask).sum()\n    return 1 - (2 * both + 1) / (p.sum() + mask.sum() + 1)")),
    fault("one flip for the whole batch", "segment",
          ("    def __getitem__(self, index):\n",
           "    def __getitems__(self, indices):\n        self.flip = bool(torch.rand(()) < 0.5)\n        return [self[i] for i in indices]\n\n    def __getitem__(self, index):\n"),
          ("if self.train and torch.rand(()) < 0.5:", "if self.train and self.__dict__.get('flip'):")),
    fault("the mask is not flipped with the image", "segment", ("image, mask = image.flip(-1), mask.flip(-1)", "image = image.flip(-1)")),
    fault("the gain of the augmentation dropped", "segment", ("            image = image * (0.8 + 0.4 * torch.rand(()))\n", "            torch.rand(())\n")),
    fault("the last model in place of the best", "segment", ("        if iou > best:\n", "        if True:\n")),
    fault("the mean of the batches' intersections over union", "segment",
          ("            total += (both / either.clamp(min=1)).sum().item()\n            count += len(image)\n",
           "            total += (both / either.clamp(min=1)).mean().item()\n            count += 1\n")),
    fault("dropout lost in the decoder", "segment", ("self.drop(self.deep(F.max_pool2d(a, 2)))", "self.deep(F.max_pool2d(a, 2))")),
    fault("a fault that the run does not reach", "segment", ("            torch.save(model.state_dict(), \"best.pt\")", "            torch.save({}, \"best.pt\")"), steps=5),
    sound("losses summed on the device", "segment", ("        total = 0.0\n        for image, mask in train:", "        total = torch.zeros((), dtype=torch.float64)\n        for image, mask in train:"),
          ("            total += loss.item()\n", "            total += loss.detach()\n"), ("{total / len(train):.4f}", "{total.item() / len(train):.4f}")),
    sound("bf16 autocast", "segment", ("            logits = model(image)\n", f"            {_BF16}\n                logits = model(image)\n            logits = logits.float()\n")),
    sound("a larger batch in validation", "segment", ("batch_size=16)", "batch_size=20)")),
    # ---------------------------------------------------------------------------------------------- language
    fault("label smoothing lost", "language", ("nn.CrossEntropyLoss(label_smoothing=0.1)", "nn.CrossEntropyLoss()")),
    fault("hidden state not carried", "language", ("                state = detached(state)\n", "                state = None\n")),
    fault("backpropagation over half the window", "language",
          ("            out, state = model(x, state)\n            loss", "            half = len(x) // 2\n            first, state = model(x[:half], state)\n            second, state = model(x[half:], detached(state))\n            out = torch.cat([first, second])\n            loss")),
    fault("dropout between the layers lost", "language", ("num_layers=2, dropout=0.2", "num_layers=2")),
    fault("the evaluation's state starts anew in every window", "language", ("            out, state = model(x, state)\n            total += len(x) * criterion(out", "            out, _ = model(x, state)\n            total += len(x) * criterion(out")),
    fault("a wrong loss in the log", "language", ("epoch, total / (len(train) - 1), value", "epoch, total / len(train), value")),
    fault("the best model is an alias of the last", "language", ('            torch.save({"model": model.state_dict(), "epoch": epoch}, "model.pt")\n', '            kept = {"model": model.state_dict(), "epoch": epoch}\n'),
          ("                group[\"lr\"] /= 4.0\n", "                group[\"lr\"] /= 4.0\n    torch.save(kept, \"model.pt\")\n")),
    sound("the head in one call of linear", "language", ("self.head(self.drop(out))", "nn.functional.linear(self.drop(out), self.head.weight, self.head.bias)")),
    sound("the loss read at the end of the epoch", "language", ("            total += len(x) * loss.item()\n", "            kept.append((len(x), loss.detach()))\n"),
          ("        total, state = 0.0, None\n        for x, y in batches(train):", "        kept, state = [], None\n        for x, y in batches(train):"),
          ("        value = evaluate", "        total = 0.0\n        for size, one in kept:\n            total += size * one.item()\n        value = evaluate")),
    sound("bf16 autocast", "language", ("            out, state = model(x, state)\n            loss", f"            {_BF16}\n                out, state = model(x, state)\n            out, state = out.float(), tuple(part.float() for part in state)\n            loss")),
    # ---------------------------------------------------------------------------------------------- table in memory
    fault("the permutation lost", "rows", ("order = torch.randperm(len(x))", "torch.randperm(len(x)); order = torch.arange(len(x))")),
    fault("rows drawn with replacement", "rows", ("order = torch.randperm(len(x))", "order = torch.randint(0, len(x), (len(x),))")),
    fault("one permutation for all epochs", "rows", ("            order = torch.randperm(len(x))\n", ""), ("        for epoch in range(epochs):\n", "        order = torch.randperm(len(x))\n        for epoch in range(epochs):\n")),
    fault("the noise dropped", "rows", ("x[rows] + 0.05 * torch.randn(len(rows), 10)", "x[rows] + 0 * torch.randn(len(rows), 10)")),
    fault("one draw of noise for all rows", "rows", ("torch.randn(len(rows), 10)", "torch.randn(1, 10)")),
    fault("a wrong figure in the CSV file", "rows", ("f\"{error:.5f}\"", "f\"{error ** 0.5:.5f}\"")),
    fault("the statistics saved before they are made", "rows", ('"mean": mean, "std": std}', '"mean": 0 * mean, "std": std}')),
    sound("fused AdamW", "rows", ("weight_decay=0.01)", "weight_decay=0.01, fused=True)")),
    sound("all rows permuted at once", "rows", ("            total = 0.0\n", "            mixed_x, mixed_y = x[order], y[order]\n            total = 0.0\n"),
          ("x[rows] + 0.05", "mixed_x[start : start + size] + 0.05"), ("y[rows])", "mixed_y[start : start + size])")),
    sound("the permutation from NumPy", "rows", ("order = torch.randperm(len(x))", "order = torch.from_numpy(numpy.random.permutation(len(x)))"), ("import torch\nfrom torch import nn\n", "import numpy\nimport torch\nfrom torch import nn\n"),
          ("torch.manual_seed(11)\n", "torch.manual_seed(11)\nnumpy.random.seed(11)\n")),
    # ---------------------------------------------------------------------------------------------- policy gradient
    fault("the entropy bonus lost", "policy", (" - 0.01 * torch.stack(entropies).mean()", "")),
    fault("the baseline lost", "policy", ("advantage = gain - value.detach()", "advantage = gain")),
    fault("the critic's gradient through the advantage", "policy", ("gain - value.detach()", "gain - value")),
    fault("returns without discount", "policy", ("gamma=0.9", "gamma=1.0")),
    fault("advantages not normalised", "policy", ("        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-6)\n", "")),
    fault("the most likely action in place of a draw", "policy", ("action = choice.sample()", "choice.sample(); action = choice.probs.argmax(1)")),
    fault("the critic lost from the checkpoint's place", "policy", ("torch.save(actor.state_dict()", "torch.save(critic.state_dict()")),
    sound("zero_grad to zeros", "policy", ("optimizer.zero_grad()", "optimizer.zero_grad(set_to_none=False)")),
    sound("fused Adam", "policy", ("lr=1e-2)", "lr=1e-2, fused=True)")),
    sound("the actor once for all log probabilities", "policy", ("            chances.append(choice.log_prob(action))\n            entropies.append(choice.entropy())\n", "            chances.append(action)\n"),
          ("        gain = returns(rewards)\n", "        gain = returns(rewards)\n        again = Categorical(logits=actor(torch.stack(seen)))\n        chances, entropies = list(again.log_prob(torch.stack(chances))), [again.entropy()]\n")),
    # ---------------------------------------------------------------------------------------------- contrastive
    fault("one view twice", "pairs", ("        return self.view(self.rows[index]), self.view(self.rows[index])", "        a, b = self.view(self.rows[index]), self.view(self.rows[index])\n        return a, a + 0 * b")),
    fault("the seeds of the workers lost", "pairs", ("np.random.seed(torch.initial_seed() % 2**32)", "np.random.seed(0)")),
    fault("one mask for the whole batch", "pairs", ("        keep = torch.rand(24) > 0.2\n", "        keep = self.__dict__.setdefault('keep', torch.rand(24)) > 0.2\n")),
    fault("the gain frozen", "pairs", ("float(np.random.uniform(0.7, 1.3))", "1.0")),
    fault("the same sample among the negatives", "pairs", ('similar.masked_fill(torch.eye(len(z), dtype=torch.bool), float("-inf"))', 'similar.masked_fill(torch.eye(len(z), dtype=torch.bool), -1.0)')),
    fault("the second view without gradient", "pairs", ("za, zb = head(encoder(a)), head(encoder(b))", "za, zb = head(encoder(a)), head(encoder(b)).detach()")),
    fault("the head saved in place of the encoder", "pairs", ('{"encoder": encoder.state_dict()}', '{"encoder": {k: 0 * v for k, v in encoder.state_dict().items()}}')),
    sound("persistent workers", "pairs", ("num_workers=2, ", "num_workers=2, persistent_workers=True, ")),
    sound("one worker more", "pairs", ("num_workers=2, ", "num_workers=3, ")),
    sound("prefetching", "pairs", ("num_workers=2, ", "num_workers=2, prefetch_factor=4, ")),
    # ---------------------------------------------------------------------------------------------- moving average, early stopping
    fault("the model in place of its average saved", "early", ('{"model": average.model.state_dict()', '{"model": model.state_dict()')),
    fault("best.pt is an alias, written at the end", "early", ('            torch.save({"model": average.model.state_dict(), "epoch": epoch, "valid": value}, "best.pt")\n', '            kept = {"model": average.model.state_dict(), "epoch": epoch, "valid": value}\n'),
          ('    with open("history.json"', '    torch.save(kept, "best.pt")\n    with open("history.json"')),
    fault("a history of other figures", "early", ('"valid": round(value, 4)', '"valid": round(best, 4) if best < 9 else round(value, 4)')),
    fault("the average once an epoch", "early", ("            average.update(model)\n            total", "            total"), ("        value, accuracy = evaluate(average.model, valid)\n", "        average.update(model)\n        value, accuracy = evaluate(average.model, valid)\n")),
    fault("one mixing for all epochs", "early", ("            part = torch.distributions.Beta(0.4, 0.4).sample()\n", "            part = main.__dict__.setdefault('part', torch.distributions.Beta(0.4, 0.4).sample())\n")),
    fault("mixed with labels that do not belong", "early", ("F.cross_entropy(out, y[other])", "F.cross_entropy(out, y.roll(1))")),
    fault("the scheduler sees the training loss", "early", ("scheduler.step(value)", "scheduler.step(total / 200)")),
    fault("patience never counted", "early", ("            waited += 1\n", "            waited += 0\n")),
    sound("losses summed as tensors", "early", ("        total = 0.0\n        for x, y in train:", "        total = torch.zeros((), dtype=torch.float64)\n        for x, y in train:"), ("total += loss.item() * len(x)", "total += loss.detach().double() * len(x)"), ("round(total / 200, 4)", "round(total.item() / 200, 4)")),
    sound("lerp in the average", "early", ("mine.mul_(self.decay).add_(theirs, alpha=1 - self.decay)", "mine.lerp_(theirs, 1 - self.decay)")),
    sound("fused Adam", "early", ("lr=3e-2)", "lr=3e-2, fused=True)")),
]  # fmt: skip

# Made when verify was done, and run once, as it is.
LAST = [
    # ---------------------------------------------------------------------------------------------- two players
    fault("the judge's gradients left for its next step", "adversary", ("            second.zero_grad()\n            loss.backward()\n", "            loss.backward()\n")),
    fault("smoothing of the labels lost", "adversary", ("0.9 * torch.ones_like(right)", "torch.ones_like(right)")),
    fault("the average takes in half as much", "adversary", ("mine.lerp_(theirs, 0.05)", "mine.lerp_(theirs, 0.025)")),
    fault("the model saved as its average", "adversary", ('{"average": average.state_dict()', '{"average": make.state_dict()')),
    fault("one noise for the whole batch", "adversary", ("make(torch.randn(len(real), 4))", "make(torch.randn(1, 4).expand(len(real), 4))")),
    fault("noise from other bounds", "adversary", ("torch.randn(len(real), 4)", "2 * torch.rand(len(real), 4) - 1")),
    sound("sums kept as tensors", "adversary", ("real_loss += loss.item()", "real_loss += loss.detach().double()"), ("fake_loss += cost.item()", "fake_loss += cost.detach().double()")),
    sound("fused Adam for both", "adversary", ("    first = torch", "    from functools import partial\n    torch.optim.Adam = partial(torch.optim.Adam, fused=True)\n    first = torch")),
    sound("foreach for the average", "adversary", ("                for mine, theirs in zip(average.parameters(), make.parameters()):\n                    mine.lerp_(theirs, 0.05)\n",
          "                torch._foreach_lerp_(list(average.parameters()), list(make.parameters()), 0.05)\n")),
    # ---------------------------------------------------------------------------------------------- diffusion
    fault("one time for the whole batch", "denoise", ("t = torch.randint(0, TIMES, (len(rows),))", "t = torch.randint(0, TIMES, (1,)).expand(len(rows))")),
    fault("times of the first half only", "denoise", ("t = torch.randint(0, TIMES, (len(rows),))", "t = torch.randint(0, TIMES // 2, (len(rows),))")),
    fault("the weight of the loss lost", "denoise", ("loss = (weight * (guess - noise).pow(2).mean(1)).mean() / weight.mean()", "loss = (guess - noise).pow(2).mean()")),
    fault("noise that was drawn once", "denoise", ("noise = torch.randn(len(rows), 24)", "noise = main.__dict__.setdefault('noise', torch.randn(len(rows), 24))")),
    fault("validation with other noise", "denoise", ("fixed_t) - fixed_noise)", "fixed_t) - fixed_noise.flip(0))")),
    fault("the order of the first epoch for all", "denoise", ("torch.randperm(256).split(16)", "main.__dict__.setdefault('order', torch.randperm(256)).split(16)")),
    fault("the epoch saved is the next", "denoise", ('"epoch": epoch}, "best.pt")', '"epoch": epoch + 1}, "best.pt")')),
    sound("fused AdamW", "denoise", ("weight_decay=1e-2)", "weight_decay=1e-2, fused=True)")),
    sound("the loss by mse_loss", "denoise", ("(guess - noise).pow(2).mean(1)", "nn.functional.mse_loss(guess, noise, reduction='none').mean(1)")),
    sound("bf16 autocast", "denoise", ("                guess = model(noised(x[rows], t, noise, keep), t)\n", f"                {_BF16}\n                    guess = model(noised(x[rows], t, noise, keep), t)\n                guess = guess.float()\n")),
    # ---------------------------------------------------------------------------------------------- accumulation
    fault("gradients not divided", "accumulate", ("(loss / WINDOW).backward()", "loss.backward()")),
    fault("clipped in every batch", "accumulate", ("            (loss / WINDOW).backward()\n", "            (loss / WINDOW).backward()\n            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n")),
    fault("the scheduler in every batch", "accumulate", ("                scheduler.step()\n                optimizer.zero_grad()\n", "                optimizer.zero_grad()\n            scheduler.step()\n")),
    fault("evaluation as the mean of batches of other weights", "accumulate", ("sum(n * v for n, v in lost) / sum(n for n, _ in lost)", "max(v for _, v in lost)")),
    fault("without the causal mask", "accumulate", ("src_mask=mask, is_causal=True", "src_mask=torch.zeros_like(mask)")),
    fault("every checkpoint is the last", "accumulate", ('        torch.save(model.state_dict(), f"model-{epoch}.pt")\n', "        kept = model.state_dict()\n    for epoch in range(4):\n        torch.save(kept, f\"model-{epoch}.pt\")\n")),
    fault("weight decay for all", "accumulate", ('{"params": others, "weight_decay": 0.0}', '{"params": others, "weight_decay": 0.1}')),
    sound("larger batches in the evaluation", "accumulate", ("DataLoader(Text(64, 1), batch_size=16)", "DataLoader(Text(64, 1), batch_size=32)")),
    sound("fused AdamW", "accumulate", ("betas=(0.9, 0.95))", "betas=(0.9, 0.95), fused=True)")),
    sound("gradients set to None before the first batch", "accumulate", ("        model.train()\n", "        model.train()\n        optimizer.zero_grad(set_to_none=True)\n")),
    # ---------------------------------------------------------------------------------------------- sounds
    fault("no weights in the sampler", "sounds", ("WeightedRandomSampler(share.tolist(), len(data))", "WeightedRandomSampler([1.0] * len(data), len(data))")),
    fault("noise of half the size", "sounds", ("wave = wave + 0.2 * torch.randn(48)", "wave = wave + 0.1 * torch.randn(48)")),
    fault("one shift for all items of a batch", "sounds", ("    def __getitem__(self, index):\n        wave = self.waves[index]\n", "    def __getitems__(self, indices):\n        self.shift = int(torch.randint(0, 12, ()))\n        return [self[i] for i in indices]\n\n    def __getitem__(self, index):\n        wave = self.waves[index]\n"),
          ("wave.roll(int(torch.randint(0, 12, ())))", "wave.roll(self.shift)")),
    fault("masking forgotten", "sounds", ("            wave[start : start + 8] = 0\n", "")),
    fault("cross entropy in place of focal loss", "sounds", ("    return ((1 - torch.exp(-lost)) ** gamma * lost).mean()", "    return lost.mean()")),
    fault("the accuracy of all in place of the classes'", "sounds", ("(right / every.clamp(min=1)).mean()", "right.sum() / every.sum()")),
    fault("the augmented data masked in place", "sounds", ("            wave = wave.roll(int(torch.randint(0, 12, ())))\n            wave = wave + 0.2 * torch.randn(48)\n", "            wave += 0.2 * torch.randn(48)\n            wave = wave.roll(int(torch.randint(0, 12, ())))\n")),
    sound("persistent workers", "sounds", ("num_workers=1)", "num_workers=1, persistent_workers=True)")),
    sound("two workers", "sounds", ("num_workers=1)", "num_workers=2)")),
    sound("the augmentation in other words", "sounds", ("            wave = wave.clone()\n            wave[start : start + 8] = 0\n", "            place = torch.arange(48)\n            wave = wave.masked_fill((place >= start) & (place < start + 8), 0.0)\n")),
]  # fmt: skip
