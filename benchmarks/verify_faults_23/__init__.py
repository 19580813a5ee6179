"""A twenty-third set of faults: what is drawn, and handed to the model, by another law. Written without sight of the judge.

Part a: ``lens``: small pictures sharpened, from patches that are cut, blurred and made noisy on the fly; ``hymns``: words that were hidden, filled
in by an encoder; ``swarm``: a learned simulator, from noisy and turned windows, that is rolled out to be judged.
Part b: ``river``: rectified flow of small pictures of a kind, with an average; ``pulse``: heartbeats on three leads that are shifted, scaled, lost
and mixed; ``kite``: a controller that is trained through its simulator, whose masses, winds and sensors vary.
``CASES.claimed`` says of each case what its author would say it is (exact, rounding, sampling): of a sound one that is so, of a fault it is not.
"""

from __future__ import annotations

from pathlib import Path

from benchmarks.fault_sets import Claims, Edit

CASES = Claims(Path(__file__).parent / "scripts")
fault, sound = CASES.wrong, CASES.right


# ------------------------------------------------------------------------------------ lens
ITEM = """        picture = self.pictures[i]
        top = torch.randint(0, SIDE - PATCH + 1, (1,)).item()
        left = torch.randint(0, SIDE - PATCH + 1, (1,)).item()
        sharp = picture[:, top : top + PATCH, left : left + PATCH]
        if torch.rand(1) < 0.5:
            sharp = sharp.flip(-1)
        if torch.rand(1) < 0.5:
            sharp = sharp.flip(-2)
        width = NARROW + (WIDE - NARROW) * torch.rand(1)
        coarse = degrade(sharp, width, torch.randn(1, PATCH // 2, PATCH // 2))
        return coarse, sharp
"""
PICTURE = "        return self.pictures[i]\n"
CLASS = "class Patches(Dataset):\n"
AT_ONCE = """def patches(pictures):
    \"\"\"All pictures of a batch cut, flipped, blurred and made noisy at once.\"\"\"
    pictures = torch.stack(pictures)
    n = len(pictures)
    corner = torch.randint(0, SIDE - PATCH + 1, (2, n, 1))
    rows, columns = corner + torch.arange(PATCH)
    sharp = pictures[torch.arange(n)[:, None, None], :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
    across, down = torch.rand(2, n, 1, 1, 1) < 0.5
    sharp = torch.where(across, sharp.flip(-1), sharp)
    sharp = torch.where(down, sharp.flip(-2), sharp)
    widths = NARROW + (WIDE - NARROW) * torch.rand(n)
    windows = torch.stack([window(width) for width in widths])[:, None]
    padded = F.pad(sharp, (2, 2, 2, 2), mode="reflect").transpose(0, 1)
    blurred = F.conv2d(padded, windows, groups=n).transpose(0, 1)
    coarse = blurred[:, :, ::2, ::2]
    return coarse + NOISE * torch.randn_like(coarse), sharp


"""
LOADER = "BATCH, shuffle=True, drop_last=True)"
LOADER_AT_ONCE = "BATCH, shuffle=True, drop_last=True, collate_fn=patches)"


def _lens(*changes: Edit) -> tuple[Edit, ...]:
    text = AT_ONCE
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return (ITEM, PICTURE), (CLASS, text + CLASS), (LOADER, LOADER_AT_ONCE)


RUNNING = "            running += loss.item()\n"
RUNNING_LATER = "            running += loss.detach()\n"
LENS_PSNR = """        error = (model(coarse).clamp(0, 1) - sharp).square().mean(dim=(1, 2, 3))
        total += (-10 * error.log10()).sum().item()
"""
LENS_PSNR_BATCH = """        error = (model(coarse).clamp(0, 1) - sharp).square().mean()
        total += -10 * error.log10().item() * len(sharp)
"""

LENS = [
    fault("sampling", "patches at once, noise of 0.06", "lens", *_lens(("NOISE * torch", "0.06 * torch"))),
    fault("sampling", "patches at once, widths from a normal law", "lens", *_lens(("NARROW + (WIDE - NARROW) * torch.rand(n)", "(0.9 + 0.23 * torch.randn(n)).clamp(min=0.2)"))),
    fault("sampling", "patches at once, never at the far border", "lens", *_lens(("SIDE - PATCH + 1, (2", "SIDE - PATCH, (2"))),
    fault("sampling", "patches at once, flips of four in ten", "lens", *_lens((") < 0.5\n", ") < 0.4\n"))),
    fault("sampling", "patches at once, turned by half where flipped", "lens", *_lens(("    across, down = torch.rand(2, n, 1, 1, 1) < 0.5\n", "    across = down = torch.rand(2, n, 1, 1, 1)[0] < 0.5\n"))),
    fault("rounding", "quality of the whole batch", "lens", (LENS_PSNR, LENS_PSNR_BATCH)),
    sound("sampling", "patches at once", "lens", *_lens()),
    sound("sampling", "patches at once, widths first, losses read once an epoch", "lens", *_lens(("    corner =", "    widths = NARROW + (WIDE - NARROW) * torch.rand(n)\n    corner ="), ("    widths = NARROW + (WIDE - NARROW) * torch.rand(n)\n    windows", "    windows")), (RUNNING, RUNNING_LATER)),
    sound("rounding", "foreach step, no inference graph, losses read once an epoch", "lens", ("parameters(), lr=LR)", "parameters(), lr=LR, foreach=True)"), ("@torch.no_grad()\ndef psnr", "@torch.inference_mode()\ndef psnr"), (RUNNING, RUNNING_LATER)),
]


# ------------------------------------------------------------------------------------ hymns
HIDE = """    chosen = (torch.rand(words.shape, generator=generator) < CHOSEN) & (words != PAD)
    labels[~chosen] = IGNORED
    masked = chosen & (torch.rand(words.shape, generator=generator) < AS_MASK)
    other = chosen & ~masked & (torch.rand(words.shape, generator=generator) < AS_OTHER / (1 - AS_MASK))
    words = words.clone()
    words[masked] = MASK
    some = torch.randint(SPECIAL, WORDS, words.shape, generator=generator)
    words[other] = some[other]
    return words, labels


def collate"""
# One draw decides what becomes of a word; the evaluation keeps the one above.
ONE_DRAW = HIDE.replace(
    "def collate",
    '''def hide_quickly(words):
    labels = words.clone()
    drawn = torch.rand(words.shape).masked_fill(words == PAD, 1.0)
    labels[drawn >= CHOSEN] = IGNORED
    some = torch.randint(SPECIAL, WORDS, words.shape)
    words = torch.where(drawn < CHOSEN * (AS_MASK + AS_OTHER), some, words)
    return torch.where(drawn < CHOSEN * AS_MASK, torch.full_like(words, MASK), words), labels


def collate''',
)
HIDING = "    return hide(nn.utils.rnn.pad_sequence(lines, batch_first=True, padding_value=PAD))\n"
HIDING_QUICKLY = HIDING.replace("hide(", "hide_quickly(")


def _hymns(*changes: Edit) -> tuple[Edit, ...]:
    text = ONE_DRAW
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return (HIDE, text), (HIDING, HIDING_QUICKLY)


HYMNS_LOADER = "    train_loader = DataLoader(hymns(1000, 1), BATCH, shuffle=True, collate_fn=collate)\n"
HIDDEN_ONCE = """    lines = [tuple(part[0] for part in hide(line[None])) for line in hymns(1000, 1)]

    def padded(pairs):
        words, labels = zip(*pairs)
        pad = nn.utils.rnn.pad_sequence
        return pad(words, batch_first=True, padding_value=PAD), pad(labels, batch_first=True, padding_value=IGNORED)

    train_loader = DataLoader(lines, BATCH, shuffle=True, collate_fn=padded)
"""
HYMNS_LOSS = """            logits = model(words)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=IGNORED)
"""
HYMNS_ROWS = """            known = labels != IGNORED
            loss = F.cross_entropy(model(words)[known], labels[known])
"""
HYMNS_SENTENCES = """            logits = model(words)
            each = F.cross_entropy(logits.transpose(1, 2), labels, ignore_index=IGNORED, reduction="none")
            loss = (each.sum(1) / (labels != IGNORED).sum(1).clamp(min=1)).mean()
"""
BY_LINE = """    hidden = [hide(line[None]) for line in lines]
    words = nn.utils.rnn.pad_sequence([one[0] for one, _ in hidden], batch_first=True, padding_value=PAD)
    return words, nn.utils.rnn.pad_sequence([one[0] for _, one in hidden], batch_first=True, padding_value=IGNORED)
"""

HYMNS = [
    fault("sampling", "one draw for each word, an eighth chosen", "hymns", *_hymns(("labels[drawn >= CHOSEN]", "labels[drawn >= 0.125]"), ("drawn < CHOSEN * (AS_MASK", "drawn < 0.125 * (AS_MASK"), ("drawn < CHOSEN * AS_MASK", "drawn < 0.125 * AS_MASK"))),
    fault("sampling", "one draw for each word, none stays as it is", "hymns", *_hymns(("drawn < CHOSEN * (AS_MASK + AS_OTHER)", "drawn < CHOSEN"))),
    fault("sampling", "one draw for each word, others from all words", "hymns", *_hymns(("    some = torch.randint(SPECIAL, WORDS, words.shape)\n", "    some = torch.randint(0, WORDS, words.shape)\n"))),
    fault("sampling", "hidden once for all epochs", "hymns", (HYMNS_LOADER, HIDDEN_ONCE)),
    fault("rounding", "loss as the mean of the lines' means", "hymns", (HYMNS_LOSS, HYMNS_SENTENCES)),
    fault("sampling", "dropout of the embedding before its norm", "hymns", ("self.drop(self.norm(h))", "self.norm(self.drop(h))")),
    sound("sampling", "one draw for each word", "hymns", *_hymns()),
    sound("sampling", "hidden line by line", "hymns", (HIDING, BY_LINE)),
    sound("rounding", "loss of the chosen words alone, foreach step", "hymns", (HYMNS_LOSS, HYMNS_ROWS), ("betas=(0.9, 0.98))", "betas=(0.9, 0.98), foreach=True)")),
]


# ------------------------------------------------------------------------------------ swarm
WALK = "    return STEP_NOISE * torch.randn(shape).cumsum(1)\n"
EACH_BY_ITSELF = "    return STEP_NOISE * PAST**0.5 * torch.randn(shape)\n"
ANGLES = """    noise = walk((len(windows), PAST, BODIES, 2))
    angles = 2 * math.pi * torch.rand(len(windows))
    windows = turned(windows, angles)
"""
ANGLES_FIRST = """    windows = turned(windows, 2 * math.pi * torch.rand(len(windows)))
    noise = walk((len(windows), PAST, BODIES, 2))
"""
TARGET = "    target = (windows[:, -1] + noise[:, -1]) - past[:, -1] - speed\n"
MESSAGES = """        pairs = torch.cat([h[:, :, None].expand(-1, -1, n, -1), h[:, None].expand(-1, n, -1, -1), between, far], -1)
        heard = self.message(pairs).mean(2)
"""
MESSAGES_SPLIT = """        first = self.message[0]
        to, of, way, rest = first.weight.split([HIDDEN, HIDDEN, 2, 1], 1)
        pairs = (h @ to.T)[:, :, None] + (h @ of.T)[:, None] + between @ way.T + far * rest[:, 0] + first.bias
        heard = self.message[1:](pairs).mean(2)
"""
BATCHES = """    for first in range(0, len(order) - BATCH + 1, BATCH):
        picked = starts[order[first : first + BATCH]]
        frames = picked[:, 1:] + torch.arange(PAST + 1)
        windows = data[picked[:, :1], frames]
        yield prepared(windows)
"""
# The noise and the angles of an epoch by one call each.
BATCHES_AT_ONCE = """    usable = len(order) // BATCH * BATCH
    picked = starts[order[:usable]]
    windows = data[picked[:, :1], picked[:, 1:] + torch.arange(PAST + 1)]
    past, target = prepared(windows)
    yield from zip(past.split(BATCH), target.split(BATCH))
"""
STARTS = "torch.arange(FRAMES - PAST))\n"

SWARM = [
    fault("sampling", "angles first, noise of a fifth more", "swarm", (ANGLES, ANGLES_FIRST), (WALK, WALK.replace("STEP_NOISE", "0.0048"))),
    fault("sampling", "noise of each place by itself", "swarm", (WALK, EACH_BY_ITSELF), (ANGLES, ANGLES_FIRST)),
    fault("sampling", "prepared an epoch at once, turned by half a circle at most", "swarm", (BATCHES, BATCHES_AT_ONCE), ("angles = 2 * math.pi", "angles = math.pi")),
    fault("sampling", "angles first, where the noise leads not told", "swarm", (ANGLES, ANGLES_FIRST), (TARGET, "    target = windows[:, -1] - past[:, -1] - speed\n")),
    fault("sampling", "the last window of a run never seen", "swarm", (STARTS, "torch.arange(FRAMES - PAST - 1))\n")),
    fault("exact", "gradients clipped tensor by tensor", "swarm", ("            nn.utils.clip_grad_norm_(model.parameters(), 0.1)\n", "            for p in model.parameters():\n                nn.utils.clip_grad_norm_(p, 0.1)\n")),
    sound("sampling", "angles before the noise", "swarm", (ANGLES, ANGLES_FIRST)),
    sound("sampling", "prepared an epoch at once", "swarm", (BATCHES, BATCHES_AT_ONCE)),
    sound("rounding", "messages from split weights, turned by a product", "swarm", (MESSAGES, MESSAGES_SPLIT), ('    return torch.einsum("bij,btnj->btni", turn, places)\n', "    return (turn[:, None] @ places.transpose(2, 3)).transpose(2, 3)\n")),
]

PART_A = LENS + HYMNS + SWARM


# ------------------------------------------------------------------------------------ river
DRAWS = """    x1 = dequantised(levels)
    x0 = torch.randn_like(x1)
    t = torch.sigmoid(torch.randn(len(x1)))
    lost = torch.rand(len(x1)) < NO_KIND
"""
DRAWS_OTHERWISE = """    lost = torch.rand(len(levels)) < NO_KIND
    t = torch.sigmoid(torch.randn(len(levels)))
    x0 = torch.randn_like(levels)
    x1 = dequantised(levels)
"""


def _river(old: str, new: str) -> Edit:
    assert DRAWS_OTHERWISE.count(old) == 1, old
    return DRAWS, DRAWS_OTHERWISE.replace(old, new)


EPOCH_LOOP = """        for picked in torch.randperm(len(levels)).split(BATCH):
            inputs, speeds = batch_of(levels[picked], kinds[picked])
"""
EPOCH_AT_ONCE = """        order = torch.randperm(len(levels))
        inputs, speeds = batch_of(levels[order], kinds[order])
        for *inputs, speeds in zip(*(part.split(BATCH) for part in (*inputs, speeds))):
"""
FOLLOW = """    for slow, p in zip(average.parameters(), model.parameters()):
        slow.mul_(DECAY).add_(p, alpha=1 - DECAY)
"""
FOLLOW_FOREACH = """    torch._foreach_lerp_(list(average.parameters()), list(model.parameters()), 1 - DECAY)
"""
GUIDED = """        free = model(x, t, torch.full_like(kinds, NOTHING))
        told = model(x, t, kinds)
        x = x + (free + GUIDE * (told - free)) / EULER
"""
GUIDED_AT_ONCE = """        both = torch.cat([torch.full_like(kinds, NOTHING), kinds])
        free, told = model(x.repeat(2, 1, 1, 1), t.repeat(2), both).chunk(2)
        x = x + (free + GUIDE * (told - free)) / EULER
"""

RIVER = [
    fault("sampling", "drawn in another order, times drawn evenly", "river", _river("torch.sigmoid(torch.randn(len(levels)))", "torch.rand(len(levels))")),
    fault("sampling", "drawn in another order, noise of 0.9", "river", _river("torch.randn_like(levels)", "0.9 * torch.randn_like(levels)")),
    fault("sampling", "drawn in another order, even noise of the same spread", "river", _river("torch.randn_like(levels)", "3**0.5 * (2 * torch.rand_like(levels) - 1)")),
    fault("sampling", "drawn in another order, a sixth without a kind", "river", _river("NO_KIND", "0.1667")),
    fault("sampling", "one noise of the levels for a picture", "river", ("torch.rand_like(levels)) / LEVELS", "torch.rand(len(levels), 1, 1, 1)) / LEVELS")),
    fault("exact", "average of the weights before the step", "river", ("            optimizer.step()\n            update(average, model)\n", "            update(average, model)\n            optimizer.step()\n")),
    sound("sampling", "drawn in another order", "river", (DRAWS, DRAWS_OTHERWISE)),
    sound("sampling", "drawn an epoch at once", "river", (EPOCH_LOOP, EPOCH_AT_ONCE)),
    sound("rounding", "average by foreach, guidance in one call, losses read once an epoch", "river", (FOLLOW, FOLLOW_FOREACH), (GUIDED, GUIDED_AT_ONCE), ("            total += loss.item()\n", "            total += loss.detach()\n")),
]


# ------------------------------------------------------------------------------------ pulse
AUGMENTED = """        beat = self.data[i]
        if self.train:
            beat = self.augment(beat)
        return beat, self.kinds[i]
"""
NOT_AUGMENTED = """        return self.data[i], self.kinds[i]
"""
MIXED = "def mixed(x, y):\n"
OF_THE_BATCH = """def augmented(items):
    \"\"\"A batch at once.\"\"\"
    beats, kinds = (torch.stack(part) for part in zip(*items))
    n = len(beats)
    shifts = torch.randint(-SHIFT, SHIFT + 1, (n, 1))
    places = (torch.arange(LENGTH) - shifts) % LENGTH
    beats = beats.gather(2, places[:, None].expand_as(beats))
    beats = beats * (1 + GAIN * (2 * torch.rand(n, 1, 1) - 1))
    phase, turns = 2 * math.pi * torch.rand(n, 1, 1), 0.5 + 1.5 * torch.rand(n, 1, 1)
    beats = beats + DRIFT * torch.sin(2 * math.pi * turns * torch.arange(LENGTH) / LENGTH + phase)
    beats = beats + NOISE * torch.randn_like(beats)
    there = torch.rand(n, LEADS, 1) >= MISSING
    there[:, 0] = True
    return beats * there, kinds


"""
PULSE_LOADER = "BATCH, shuffle=True, drop_last=True)"
PULSE_AT_ONCE = "BATCH, shuffle=True, drop_last=True, collate_fn=augmented)"


def _pulse(*changes: Edit) -> tuple[Edit, ...]:
    text = OF_THE_BATCH
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return (AUGMENTED, NOT_AUGMENTED), (MIXED, text + MIXED), (PULSE_LOADER, PULSE_AT_ONCE)


WEIGHT = """    weight = torch.distributions.Beta(ALPHA, ALPHA).sample((len(x),))
    other = torch.randperm(len(x))
"""
OTHER_FIRST = """    other = torch.randperm(len(x))
    weight = torch.distributions.Beta(ALPHA, ALPHA).sample((len(x),))
"""
PULSE_RUNNING = "            running += loss.item()\n"

PULSE = [
    fault("sampling", "changed by the batch, noise of 0.07", "pulse", *_pulse(("NOISE * torch", "0.07 * torch"))),
    fault("sampling", "pairs first, weights nearer the ends", "pulse", (WEIGHT, OTHER_FIRST.replace("Beta(ALPHA, ALPHA)", "Beta(0.2, 0.2)"))),
    fault("sampling", "changed by the batch, shifted to one side", "pulse", *_pulse(("torch.randint(-SHIFT, SHIFT + 1", "torch.randint(0, 2 * SHIFT + 1"))),
    fault("sampling", "changed by the batch, one lead in four missing", "pulse", *_pulse((">= MISSING", ">= 0.25"))),
    fault("sampling", "changed by the batch, gains that only grow", "pulse", *_pulse(("GAIN * (2 * torch.rand(n, 1, 1) - 1)", "GAIN * torch.rand(n, 1, 1)"))),
    fault("rounding", "score as the mean of the batches' scores", "pulse", ("    return F.cross_entropy(logits, kinds).item(), macro_f1(logits.argmax(1), kinds)\n", "    parts = zip(logits.split(100), kinds.split(100))\n    scores = [macro_f1(part.argmax(1), truth) for part, truth in parts]\n    return F.cross_entropy(logits, kinds).item(), sum(scores) / len(scores)\n")),
    sound("sampling", "changed by the batch", "pulse", *_pulse()),
    sound("sampling", "pairs before weights, losses read once an epoch", "pulse", (WEIGHT, OTHER_FIRST), (PULSE_RUNNING, "            running += loss.detach()\n")),
    sound("rounding", "foreach step, no inference graph", "pulse", ("weight_decay=5e-4)", "weight_decay=5e-4, foreach=True)"), ("@torch.no_grad()\ndef evaluate", "@torch.inference_mode()\ndef evaluate")),
]


# ------------------------------------------------------------------------------------ kite
WORLD = """        self.mass = LIGHT + (HEAVY - LIGHT) * torch.rand(count, generator=generator)
        self.length = SHORT + (LONG - SHORT) * torch.rand(count, generator=generator)
        self.angle = 0.5 * math.pi * (2 * torch.rand(count, generator=generator) - 1)
        self.speed = 0.5 * torch.randn(count, generator=generator)
        self.wind = GUST * torch.randn(count, generator=generator)
"""
# Only in training: the poles of the judgement stay as they are.
WORLD_OTHERWISE = """        if generator is None:
            self.speed, self.wind = torch.randn(2, count) * torch.tensor([[0.5], [GUST]])
            mass, length, angle = torch.rand(3, count)
            self.mass = LIGHT + (HEAVY - LIGHT) * mass
            self.length = SHORT + (LONG - SHORT) * length
            self.angle = 0.5 * math.pi * (2 * angle - 1)
            return
"""


def _kite(*changes: Edit) -> tuple[Edit, ...]:
    text = WORLD_OTHERWISE
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return ((WORLD, text + WORLD),)


SEEN = """        if noisy:
            seen = seen + SENSOR * torch.randn(self.count, 4, generator=self.generator)
"""
GUSTS = "        self.wind = CALM * self.wind + math.sqrt(1 - CALM**2) * GUST * fresh\n"
CLIP = "            nn.utils.clip_grad_norm_(controller.parameters(), 1.0)\n"

KITE = [
    fault("sampling", "poles drawn at once, masses from a normal law", "kite", *_kite(("LIGHT + (HEAVY - LIGHT) * mass", "1 + 0.1732 * torch.randn(count)"), ("mass, length, angle = torch.rand(3, count)", "length, angle = torch.rand(2, count)"))),
    fault("sampling", "poles drawn at once, leaning to one side", "kite", *_kite(("(2 * angle - 1)", "angle"))),
    fault("sampling", "poles drawn at once, sensors of a fifth more noise", "kite", *_kite(), (SEEN, SEEN.replace("SENSOR", "(SENSOR if self.generator else 0.048)"))),
    fault("sampling", "poles drawn at once, wind without memory", "kite", *_kite(), (GUSTS, GUSTS + "        if self.generator is None:\n            self.wind = GUST * fresh\n")),
    fault("rounding", "cost without a discount", "kite", ("        total = total + weight * world.cost(push)\n        weight *= DISCOUNT\n", "        total = total + world.cost(push)\n")),
    fault("exact", "rate lowered before the epoch", "kite", ("        controller.train()\n        costs = []\n", "        controller.train()\n        scheduler.step()\n        costs = []\n"), ("            costs.append(loss.item())\n        scheduler.step()\n", "            costs.append(loss.item())\n")),
    sound("sampling", "poles drawn at once", "kite", *_kite()),
    sound("sampling", "poles drawn at once, foreach clip, costs read once an epoch", "kite", *_kite(), (CLIP, CLIP.replace("1.0)", "1.0, foreach=True)")), ("            costs.append(loss.item())\n", "            costs.append(loss.detach())\n")),
]

PART_B = RIVER + PULSE + KITE

del LENS, HYMNS, SWARM, RIVER, PULSE, KITE
