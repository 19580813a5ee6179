"""A third set of faults, written before a line of verify was read by whoever wrote it, and judged as any second script is.

Scripts of kinds that the sets before do not have: a U-Net with deep supervision, recommendations with drawn negatives, clipped policy updates with
real-valued actions, distillation; a package with relative imports, triplets with NumPy in workers, a run that resumes, a critic with a gradient
penalty. ``python -m benchmarks.verify_faults --set 3a`` and ``--set 3b``.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Cases

HERE = Path(__file__).parent / "scripts"
CASES = Cases(HERE)
fault, sound = CASES.fault, CASES.sound


_BF16 = 'with torch.autocast("cpu", dtype=torch.bfloat16):'
_DATA, _MODEL = "parcel/data.py", "parcel/model.py"

# To mend with.
THIRD = [
    # ---------------------------------------------------------------------------------------------- segmentation, deep supervision
    fault("deep supervision lost", "unet", (" + 0.4 * F.cross_entropy(side, small, weight, ignore_index=VOID)", "")),
    fault("deep supervision at full weight", "unet", (" + 0.4 * F", " + F")),
    fault("void pixels count as background", "unet", ("            small = mask", "            mask = mask.masked_fill(mask == VOID, 0)\n            small = mask")),
    fault("the weights of the classes lost", "unet", ("weight = torch.tensor([0.4, 1.3, 1.3])", "weight = torch.ones(3)")),
    fault("the mask cropped elsewhere", "unet", ("        mask = self.masks[index, row : row + 16, column : column + 16]\n", "        mask = self.masks[index, 2:18, 2:18]\n")),
    fault("one crop for the whole batch", "unet",
          ("    def __getitem__(self, index):\n", "    def __getitems__(self, indices):\n        self.spot = torch.randint(0, 5, (2,)).tolist()\n        return [self[index] for index in indices]\n\n    def __getitem__(self, index):\n"),
          ("torch.randint(0, 5, (2,)).tolist()\n        image", "self.spot\n        image")),
    fault("the crop always in the centre", "unet", ("            row, column = torch.randint(0, 5, (2,)).tolist()\n", "            torch.randint(0, 5, (2,))\n")),
    fault("a skip connection detached", "unet", ("scale_factor=2.0), a], 1)", "scale_factor=2.0), a.detach()], 1)")),
    fault("only the first best is saved", "unet", ("        if parts.mean() > best:\n", "        if best < 0:\n")),
    sound("losses kept and summed at the end", "unet", ("        total = 0.0\n        for image, mask in train:", "        kept = []\n        for image, mask in train:"), ("            total += loss.item()\n", "            kept.append(loss.detach())\n"),
          ("{total / len(train):.4f}", "{sum(torch.stack(kept).tolist()) / len(train):.4f}")),
    sound("a larger batch in validation", "unet", ("batch_size=8)", "batch_size=20)")),
    sound("fused AdamW", "unet", ("weight_decay=0.02)", "weight_decay=0.02, fused=True)")),
    sound("channels last", "unet", ("    model = UNet()\n", "    model = UNet().to(memory_format=torch.channels_last)\n"), ("            out, side = model(image)\n", "            out, side = model(image.to(memory_format=torch.channels_last))\n")),
    # ---------------------------------------------------------------------------------------------- recommendations
    fault("negatives drawn evenly", "recommend", ("** 0.75", "** 0.0")),
    fault("one draw of negatives for the whole batch", "recommend", ("torch.multinomial(popular, len(rows) * NEGATIVES, replacement=True).view(len(rows), NEGATIVES)", "torch.multinomial(popular, NEGATIVES, replacement=True).expand(len(rows), NEGATIVES)")),
    fault("liked items among the negatives", "recommend", ("            other = torch.where(known[user[:, None], other], again, other)\n", "")),
    fault("negatives drawn once", "recommend", ("            other = torch.multinomial(", "            torch.manual_seed(1)\n            other = torch.multinomial(")),
    fault("items of the training not left out of the ranking", "recommend", ("        score = score.masked_fill(known, float(\"-inf\"))\n", "")),
    fault("the penalty on the whole tables", "recommend", ("0.01 * (mine.pow(2).sum(1) + theirs.pow(2).sum(1) + others.pow(2).sum(2).mean(1)).mean()", "0.01 * (2 * model.item.weight.pow(2).sum(1).mean() + model.user.weight.pow(2).sum(1).mean())")),
    fault("the penalty without the negatives", "recommend", (" + others.pow(2).sum(2).mean(1)).mean()", ").mean()")),
    fault("the user without gradient where items are worse", "recommend", ("            loss = -F.logsigmoid(better[:, None] - worse).mean()\n", "            worse = (mine.detach()[:, None] * others).sum(-1) + model.bias(other).squeeze(-1)\n            loss = -F.logsigmoid(better[:, None] - worse).mean()\n")),
    fault("the order of the first epoch for all", "recommend", ("    best = -1.0\n", "    best, order = -1.0, torch.randperm(len(pairs))\n"), ("torch.randperm(len(pairs)).split(SIZE)", "order.split(SIZE)")),
    sound("fused Adam", "recommend", ("lr=0.02)", "lr=0.02, fused=True)")),
    sound("the pairs permuted at once", "recommend", ("        for rows in torch.randperm(len(pairs)).split(SIZE):\n            user, liked = pairs[rows, 0], pairs[rows, 1]\n", "        for rows in pairs[torch.randperm(len(pairs))].split(SIZE):\n            user, liked = rows.unbind(1)\n")),
    sound("the ranking in two parts", "recommend", ("score = model.user.weight @ model.item.weight.t() + model.bias.weight.t()", "score = torch.cat([part @ model.item.weight.t() for part in model.user.weight.chunk(2)]) + model.bias.weight.t()")),
    sound("gradients set to None after the step", "recommend", ("            optimizer.zero_grad()\n            loss.backward()\n            optimizer.step()\n", "            loss.backward()\n            optimizer.step()\n            optimizer.zero_grad(set_to_none=True)\n")),
    # ---------------------------------------------------------------------------------------------- clipped policy updates
    fault("the ratio is not clipped", "reach", ("-torch.min(ratio * good, ratio.clamp(0.8, 1.2) * good).mean()", "-(ratio * good).mean()")),
    fault("ends of episodes ignored", "reach", ("alive = 1.0 - end.float()", "alive = 1.0")),
    fault("advantages not normalised", "reach", ("good = (gain[rows] - gain[rows].mean()) / (gain[rows].std() + 1e-6)", "good = gain[rows]")),
    fault("the first action alone in the ratio", "reach", ("ratio = (choice.log_prob(actions[rows]).sum(1) - chances[rows]).exp()", "ratio = (choice.log_prob(actions[rows])[:, 0] * 2 - chances[rows]).exp()")),
    fault("the entropy lost", "reach", (" - 0.01 * choice.entropy().sum(1).mean()", "")),
    fault("old chances made by the new policy", "reach", ("ratio = (choice.log_prob(actions[rows]).sum(1) - chances[rows]).exp()", "now = choice.log_prob(actions[rows]).sum(1)\n                ratio = (now - now.detach()).exp()")),
    fault("minibatches in order", "reach", ("torch.randperm(len(seen)).split(72)", "torch.arange(len(seen)).split(72)")),
    fault("one noise for all places", "reach", ("choice.stddev * torch.randn(PLACES, 2)", "choice.stddev * torch.randn(1, 2)")),
    fault("the statistics saved are those of the start", "reach", ('"mean": norm.mean, "square": norm.square}', '"mean": Running().mean, "square": Running().square}')),
    sound("fused Adam", "reach", ("lr=1e-2)", "lr=1e-2, fused=True)")),
    sound("errors read at the end of the update", "reach", ("                parts.append(critic.item())\n", "                parts.append(critic.detach())\n"), ("sum(parts) / len(parts)}", "sum(torch.stack(parts).tolist()) / len(parts)}")),
    sound("the log of the normal by hand", "reach", ("ratio = (choice.log_prob(actions[rows]).sum(1)", "ratio = ((-((actions[rows] - choice.mean) / choice.stddev) ** 2 / 2 - choice.stddev.log() - 0.9189385332046727).sum(1)")),
    sound("clipping without foreach", "reach", ("agent.parameters(), 0.5)", "agent.parameters(), 0.5, foreach=False)")),
    # ---------------------------------------------------------------------------------------------- distillation
    fault("the mean of the elements in place of the batch's", "distill", ('reduction="batchmean"', 'reduction="mean"')),
    fault("the square of the heat lost", "distill", (" * HEAT**2", "")),
    fault("the teacher trains on in training mode", "distill", ("            student.train()\n", "            student.train()\n            teacher.train()\n")),
    fault("the teacher's targets without heat", "distill", ("F.softmax(aim / HEAT, 1)", "F.softmax(aim, 1)")),
    fault("the projection does not train", "distill", ("[*student.parameters(), *project.parameters()]", "student.parameters()")),
    fault("the hint without gradient", "distill", ("F.mse_loss(project(hidden), shown)", "F.mse_loss(project(hidden.detach()), shown)")),
    fault("the teacher's outputs kept from the first epoch", "distill", ("                with torch.no_grad():\n                    aim, shown = teacher(image)\n", "                with torch.no_grad():\n                    aim, shown = teacher(image)\n                    if epoch == 0:\n                        main.__dict__.update({int(i): (a, s) for i, a, s in zip(index, aim, shown)})\n                    aim, shown = (torch.stack(part) for part in zip(*(main.__dict__[int(i)] for i in index)))\n")),
    fault("the cut-out kept for every image", "distill", ("            row, column = torch.randint(0, 6, (2,)).tolist()\n", "            row, column = self.__dict__.setdefault(f'at{index}', torch.randint(0, 6, (2,)).tolist())\n")),
    fault("evaluation mode left on", "distill", ("            student.train()\n", "            if epoch == 0:\n                student.train()\n")),
    sound("bf16 for the student", "distill", ("                out, hidden = student(image)\n", f"                {_BF16}\n                    out, hidden = student(image)\n                out, hidden = out.float(), hidden.float()\n")),
    sound("fused SGD", "distill", ("momentum=0.9)", "momentum=0.9, fused=True)")),
    sound("the teacher asks for no gradients", "distill", ("    student, project =", "    teacher.requires_grad_(False)\n    student, project =")),
    sound("a larger batch in the test", "distill", ("batch_size=30)", "batch_size=60)")),
]  # fmt: skip

# Run once, at the end.
FOURTH = [
    # ---------------------------------------------------------------------------------------------- triplets, NumPy in workers
    fault("every worker draws the same", "triplet", ("np.random.seed(torch.initial_seed() % 2**32)", "np.random.seed(77)")),
    fault("the gain kept for every item", "triplet", ("np.float32(np.random.uniform(0.6, 1.4))", "np.float32(np.random.default_rng(index).uniform(0.6, 1.4))")),
    fault("noise of half the size", "triplet", ("np.random.normal(0, 0.3, 20)", "np.random.normal(0, 0.15, 20)")),
    fault("an item is its own nearest of its class", "triplet", ("~same | own, -1.0).max(1)", "~same | own, 9.0).min(1)")),
    fault("squared distances", "triplet", (".clamp(min=1e-8).sqrt()", ".clamp(min=1e-8)")),
    fault("the margin lost", "triplet", ("F.relu(near - far + margin)", "F.relu(near - far)")),
    fault("the class counts among the others", "triplet", ("far = apart.masked_fill(same, 9.0)", "far = apart.masked_fill(own, 9.0)")),
    fault("classes in a fixed order", "triplet", ("torch.randperm(8)[: self.kinds]", "torch.arange(8)[: self.kinds]")),
    fault("each item finds itself", "triplet", (".fill_diagonal_(-2.0)", "")),
    fault("embeddings not normalised in the test", "triplet", ("parts = [(F.normalize(model(row), dim=1), label)", "parts = [(model(row), label)")),
    sound("persistent workers", "triplet", ("num_workers=2, ", "num_workers=2, persistent_workers=True, ")),
    sound("four workers", "triplet", ("num_workers=2, ", "num_workers=4, ")),
    sound("fused Adam", "triplet", ("weight_decay=1e-4)", "weight_decay=1e-4, fused=True)")),
    sound("losses summed as tensors", "triplet", ("        total = 0.0\n", "        total = torch.zeros((), dtype=torch.float64)\n"), ("            total += loss.item()\n", "            total += loss.detach()\n"), ("{total / len(train):.4f}", "{total.item() / len(train):.4f}")),
    # ---------------------------------------------------------------------------------------------- a package
    fault("every hidden word is the mask", "parcel/train", ("chosen & (kind < 0.8)", "chosen & (kind < 2)"), ("chosen & (kind > 0.9)", "chosen & (kind > 2)"), file=_DATA),
    fault("the loss of all words", "parcel/train", ("F.cross_entropy(logits[chosen], words[chosen])", "F.cross_entropy(logits.flatten(0, 1), words.flatten(), ignore_index=0)")),
    fault("padding is attended to", "parcel/train", ("self.body(x, src_key_padding_mask=words == PAD)", "self.body(x)"), file=_MODEL),
    fault("the words hidden once for all epochs", "parcel/train", ("        draw = torch.rand(words.shape, generator=self.generator)\n", "        generator = self.generator or torch.Generator().manual_seed(int(words.sum()))\n        draw = torch.rand(words.shape, generator=generator)\n"), file=_DATA),
    fault("one place of hiding for the whole batch", "parcel/train", ("        draw = torch.rand(words.shape, generator=self.generator)\n", "        draw = torch.rand(words.shape, generator=self.generator)[:1].expand(words.shape)\n"), file=_DATA),
    fault("the mean of the batches in the evaluation", "parcel/train", ("lost(out, words, chosen).item() * size\n", "lost(out, words, chosen).item() * 46\n"), ("return total / count, right", "return total / (46 * len(loader)), right")),
    fault("clipped in every batch", "parcel/train", ("                total += loss.item()\n", "                total += loss.item()\n                nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n")),
    fault("the floor of the rate lost", "parcel/train", ("floor=0.1", "floor=0.0")),
    fault("every word at the first place", "parcel/train", ("torch.arange(words.shape[1])", "torch.zeros(words.shape[1], dtype=torch.long)"), file=_MODEL),
    fault("the rate logged is that of the start", "parcel/train", ("lr={scheduler.get_last_lr()[0]:.6f}", "lr={args.lr:.6f}")),
    sound("fused AdamW", "parcel/train", ("weight_decay=0.01)", "weight_decay=0.01, fused=True)")),
    sound("the head by linear", "parcel/train", ("return self.head(self.norm(x))", "return nn.functional.linear(self.norm(x), self.embed.weight, self.head.bias)"), file=_MODEL),
    sound("hidden words by masked_fill", "parcel/train", ("torch.where(chosen & (kind < 0.8), torch.full_like(words, MASK), words)", "words.masked_fill(chosen & (kind < 0.8), MASK)"), file=_DATA),
    sound("places made once", "parcel/train", ("        self.norm = nn.LayerNorm(width)\n", "        self.norm = nn.LayerNorm(width)\n        self.register_buffer('count', torch.arange(20), persistent=False)\n"), ("self.place(torch.arange(words.shape[1]))", "self.place(self.count[: words.shape[1]])"), file=_MODEL),
    # ---------------------------------------------------------------------------------------------- resuming
    fault("the optimizer's state not taken up", "resume", ('        optimizer.load_state_dict(state["optimizer"])\n', "")),
    fault("the scheduler's state not taken up", "resume", ('        scheduler.load_state_dict(state["scheduler"])\n', "")),
    fault("the random state not taken up", "resume", ('        torch.set_rng_state(state["random"])\n', "")),
    fault("the best forgotten", "resume", ('state["epoch"] + 1, state["best"]', 'state["epoch"] + 1, float("inf")')),
    fault("the average begins with the model", "resume", ('average.load_state_dict(state["average"])', 'average.load_state_dict(state["model"])')),
    fault("the table begins anew", "resume", ('        log.info("goes on with epoch %d, best %.4f", begin, best)\n', '        log.info("goes on with epoch %d, best %.4f", begin, best)\n        os.remove("resume.csv")\n')),
    fault("the model saved as the best", "resume", ("torch.save(average.state_dict(), \"best.pt\")", "torch.save(model.state_dict(), \"best.pt\")")),
    fault("the bar shows the last loss", "resume", ('loss=f"{total / number:.4f}"', 'loss=f"{loss.item():.4f}"')),
    fault("statistics of BatchNorm not averaged over", "resume", ("                for mine, theirs in zip(average.buffers(), model.buffers()):\n                    mine.copy_(theirs)\n", "")),
    sound("written beside and put in place", "resume", ('            "state.pt",\n        )\n', '            "state.pt.new",\n        )\n        os.replace("state.pt.new", "state.pt")\n')),
    sound("the average by lerp", "resume", ("mine.mul_(0.9).add_(theirs, alpha=0.1)", "mine.lerp_(theirs, 0.1)")),
    sound("the average by foreach", "resume", ("                for mine, theirs in zip(average.parameters(), model.parameters()):\n                    mine.mul_(0.9).add_(theirs, alpha=0.1)\n", "                torch._foreach_mul_(list(average.parameters()), 0.9)\n                torch._foreach_add_(list(average.parameters()), list(model.parameters()), alpha=0.1)\n")),
    sound("a larger batch in validation", "resume", ("batch_size=24)", "batch_size=48)")),
    # ---------------------------------------------------------------------------------------------- gradient penalty
    fault("the penalty where the data are", "penalty", ("penalty(critic, rows, fake) + 0.001", "penalty(critic, rows, rows) + 0.001")),
    fault("one share for the whole batch", "penalty", ("share = torch.rand(len(rows), 1)", "share = torch.rand(1, 1)")),
    fault("the penalty without gradient", "penalty", ("create_graph=True)", "create_graph=False)")),
    fault("the slope of the batch as one", "penalty", ("(slope.norm(dim=1) - 1).pow(2).mean()", "(slope.norm() - 1).pow(2)")),
    fault("one noise for the three steps", "penalty", ("        gap = 0.0\n", "        gap, noise = 0.0, torch.randn(32, 6)\n"), ("fake = make(torch.randn(len(rows), 6)).detach()", "fake = make(noise).detach()")),
    fault("the maker in evaluation mode for the critic", "penalty", ("            fake = make(torch.randn(len(rows), 6)).detach()\n", "            make.eval()\n            fake = make(torch.randn(len(rows), 6)).detach()\n            make.train()\n")),
    fault("the drift lost", "penalty", (" + 0.001 * good.pow(2).mean()", "")),
    fault("the samples made in training mode", "penalty", ("    make.eval()\n", "")),
    fault("the gap of the last step alone", "penalty", ("gap += (good", "gap = 3 * (good")),
    sound("no gradients for the fakes", "penalty", ("            fake = make(torch.randn(len(rows), 6)).detach()\n", "            with torch.no_grad():\n                fake = make(torch.randn(len(rows), 6))\n")),
    sound("the critic once for both", "penalty", ("good, bad = critic(rows), critic(fake)", "good, bad = critic(torch.cat([rows, fake])).chunk(2)")),
    sound("fused Adam for both", "penalty", ("    first = torch", "    from functools import partial\n    torch.optim.Adam = partial(torch.optim.Adam, fused=True)\n    first = torch")),
    sound("the critic asks for no gradients in the maker's step", "penalty", ("        cost = -critic(", "        critic.requires_grad_(False)\n        cost = -critic("), ("        first.step()\n", "        first.step()\n        critic.requires_grad_(True)\n")),
]  # fmt: skip
