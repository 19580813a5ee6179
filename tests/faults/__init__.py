"""Rewritten scripts with one fault each, and sound ones: what the verifier must tell apart.

Every fault is one of the silent corruptions that an automatic rewrite can cause (the list in
docs/verify-evidence.md): the script runs to its end, and the loss goes down. ``effect`` is that of
the rule in whose work the fault would hide, so that the test of that effect has to find it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

HERE = Path(__file__).parent


@dataclass(frozen=True)
class Case:
    """``edits`` are (old text, new text), each of which must occur exactly once in the base script.
    ``rules``: as if these had been applied; they tell which precision to expect. ``steps``: of a
    run, 0 to its end. ``file``: the file of a package that is changed, the script itself where it
    is empty."""

    name: str
    base: str
    effect: str
    edits: tuple[tuple[str, str], ...]
    sound: bool = False
    rules: tuple[str, ...] = ()
    folder: Path = HERE
    steps: int = 0
    file: str = ""

    @property
    def path(self) -> Path:
        return self.folder / f"{self.base}.py"

    @property
    def changed(self) -> Path:
        return self.folder / self.file if self.file else self.path

    def text(self) -> str:
        text = self.changed.read_text()
        for old, new in self.edits:
            if text.count(old) != 1:
                raise ValueError(
                    f"{self.name}: {old!r} occurs {text.count(old)} times in {self.changed.name}"
                )
            text = text.replace(old, new)
        return text


_RULES = {
    "exact": ("no-grad-eval",),
    "rounding": ("fused-optimizer",),
    "half": ("autocast",),
    "sampling": ("fused-optimizer", "num-workers"),
    "half and sampling": ("autocast", "num-workers"),
    "recipe": ("stepwise-scheduler",),
    "unknown": (),
}


def fault(name: str, base: str, effect: str, *edits: tuple[str, str]) -> Case:
    return Case(
        name,
        base,
        {"half": "rounding", "half and sampling": "sampling"}.get(effect, effect),
        edits,
        rules=_RULES[effect],
    )


def sound(name: str, base: str, effect: str, *edits: tuple[str, str]) -> Case:
    return replace(fault(name, base, effect, *edits), sound=True)


# A fault hides best among the differences that 16 bits make.
_BF16 = (
    "        loss = criterion(model(x), y)\n",
    '        with torch.autocast("cpu", dtype=torch.bfloat16):\n            loss = criterion(model(x), y)\n',
)


_SGD = "torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, weight_decay=1e-3)"
_ADAMW = "torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.05)"
_STEP = "            loss.backward()\n            optimizer.step()\n"
_FORWARD = "            loss = F.cross_entropy(model(image), label)\n"
_LOOP = "        for image, label in loader:\n"
_TWO = (  # micro-batches of two to a step
    ("            optimizer.zero_grad()\n", ""),
    ("for image, label in loader:", "for step, (image, label) in enumerate(loader):"),
    (
        _STEP,
        "            (loss / 2).backward()\n            if step % 2:\n                optimizer.step()\n                optimizer.zero_grad()\n",
    ),
)
_ITEM = "    def __getitem__(self, index):\n        image"

CASES = [
    # ------------------------------------------------------------------- gradients and their window
    fault("a dropped / N of gradient accumulation", "classifier", "rounding", ("(loss / WINDOW).backward()", "loss.backward()")),
    fault("the last, partial window is dropped", "classifier", "rounding", (" or i + 1 == len(loader)", "")),
    fault("a window one batch too long", "classifier", "rounding", ("(i + 1) % WINDOW == 0", "(i + 1) % (WINDOW + 1) == 0")),
    fault(
        "a forgotten zero_grad", "classifier", "rounding",
        ("            optimizer.step()\n            optimizer.zero_grad()\n", "            optimizer.step()\n"),
    ),
    fault(
        "a doubled zero_grad: only the last batch of a window counts", "classifier", "rounding",
        ("        loss = criterion(model(x), y)\n", "        optimizer.zero_grad()\n        loss = criterion(model(x), y)\n"),
    ),
    fault("clipping left out", "classifier", "rounding", ("            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", "")),
    fault("the gradients of a part are lost (no_grad around it)", "classifier", "rounding",
          ("        return self.head(self.body(x))", "        with torch.no_grad():\n            x = self.body(x)\n        return self.head(x)")),
    fault("autocast, and a dropped / N", "classifier", "half", _BF16, ("(loss / WINDOW).backward()", "loss.backward()")),
    fault("autocast, and the last window is dropped from the mean", "classifier", "half", _BF16, ("(loss / WINDOW).backward()", "(loss / (WINDOW + 1)).backward()")),
    fault("autocast, workers, and a dropped / N", "classifier", "half and sampling", _BF16, ("(loss / WINDOW).backward()", "loss.backward()")),
    fault("autocast, and a forgotten zero_grad", "classifier", "half", _BF16,
          ("            optimizer.step()\n            optimizer.zero_grad()\n", "            optimizer.step()\n")),
    fault("autocast, and clipping left out", "classifier", "half", _BF16, ("            nn.utils.clip_grad_norm_(model.parameters(), 1.0)\n", "")),
    fault("autocast, and evaluation in training mode", "classifier", "half", _BF16, ("    model.eval()\n", "")),
    fault("reduction='sum' in place of the mean", "classifier", "rounding", ("nn.CrossEntropyLoss()", 'nn.CrossEntropyLoss(reduction="sum")')),
    # ----------------------------------------------------------------------- optimizer and schedule
    fault("an optimizer that holds dead parameters (a new head)", "classifier", "rounding",
          (_SGD, f"{_SGD}\n    torch.manual_seed(9)\n    model.head = nn.Linear(32, 3)")),
    fault("the scheduler stepped twice", "classifier", "rounding", ("        scheduler.step()\n", "        scheduler.step()\n        scheduler.step()\n")),
    fault("the scheduler steps with every batch, its horizon in epochs", "classifier", "sampling",
          ("            optimizer.step()\n", "            optimizer.step()\n            scheduler.step()\n"),
          ("def train(model, loader, criterion, optimizer):", "def train(model, loader, criterion, optimizer, scheduler):"),
          ("train(model, train_loader, criterion, optimizer)", "train(model, train_loader, criterion, optimizer, scheduler)"),
          ("        scheduler.step()\n        print", "        print")),
    fault("weight decay dropped", "pictures", "sampling", (_ADAMW, "torch.optim.AdamW(model.parameters(), lr=3e-3, weight_decay=0.0)")),
    fault("Adam in place of AdamW", "pictures", "rounding", (_ADAMW, "torch.optim.Adam(model.parameters(), lr=3e-3, weight_decay=0.05)")),
    fault("learning rate scaled by the number of processes", "pictures", "sampling", ("lr=3e-3", "lr=6e-3")),
    # ------------------------------------------------------------------------------------ precision
    fault("clipping before unscaling", "scaled", "half", ("            scaler.unscale_(optimizer)\n", "")),
    fault("scaled backward, plain optimizer.step", "scaled", "half",
          ("            scaler.unscale_(optimizer)\n", ""), ("            scaler.step(optimizer)\n            scaler.update()\n", "            optimizer.step()\n")),
    fault("autocast around optimizer.step (stale weights)", "scaled", "half",
          ("    for epoch in range(5):\n", '    autocast = torch.autocast("cpu", dtype=torch.float16)\n    autocast.__enter__()\n    for epoch in range(5):\n')),
    fault("fp16 without loss scaling for tiny gradients", "scaled", "half",
          ("init_scale=1024.0", "enabled=False"),
          ("loss = nn.functional.mse_loss(model(features), target)", "loss = 1e-6 * nn.functional.mse_loss(model(features), target)"),
          ("lr=0.1", "lr=0.1e6"), ("5.0)\n            scaler.step", "5e-6)\n            scaler.step")),
    fault("the running loss summed in bf16", "pictures", "rounding",
          ("        running = 0.0\n", "        running = torch.zeros((), dtype=torch.bfloat16)\n"),
          ("            running += loss.item()\n", "            running += loss.detach()\n"), ("{running / len(loader):.4f}", "{float(running) / len(loader):.4f}")),
    # ----------------------------------------------------------------------------------------- data
    fault("shuffle lost", "pictures", "sampling", ("shuffle=True", "shuffle=False")),
    fault("one batch in ten skipped", "pictures", "sampling", (_LOOP, "        for i, (image, label) in enumerate(loader):\n            if i % 10 == 9:\n                continue\n")),
    fault("drop_last leaks into the evaluation", "classifier", "sampling", ("DataLoader(test_set, batch_size=16)", "DataLoader(test_set, batch_size=16, drop_last=True)")),
    fault("augmentation frozen by a cache", "pictures", "sampling",
          ("    def __getitem__(self, index):\n", "    def __getitem__(self, index):\n        if index not in CACHE:\n            CACHE[index] = self.draw(index)\n        return CACHE[index]\n\n    def draw(self, index):\n"),
          ("class Pictures(Dataset):", "CACHE = {}\n\n\nclass Pictures(Dataset):")),
    fault("an in-place change of a view of the data set", "pictures", "sampling",
          ("        image = self.images[index]\n", "        image = self.images[index].sub_(0.05)\n")),
    fault("one random draw before random_split: validation samples in training", "classifier", "rounding",
          ("    train_set, test_set = random_split", "    torch.rand(1)\n    train_set, test_set = random_split")),
    fault("every sample twice (a stream in two workers)", "pictures", "sampling",
          ("    def __len__(self):\n        return len(self.labels)", "    def __len__(self):\n        return 2 * len(self.labels)"),
          ("        image = self.images[index]\n", "        index = index % len(self.labels)\n        image = self.images[index]\n")),
    # ------------------------------------------------------------- model state, evaluation, logging
    fault("eval mode left on", "classifier", "rounding", ("    model.train()\n", "")),
    fault("evaluation in training mode", "classifier", "rounding", ("    model.eval()\n", "")),
    fault("dropout switched off", "pictures", "sampling", ("        model.train()\n", "        model.eval()\n")),
    fault("only the last batch's loss is logged", "classifier", "rounding",
          ("    return total / count\n", "    return loss.item()\n")),
    fault("mean of batch means in evaluation", "classifier", "rounding",
          ("    return total / count, correct / count", "    return total / len(loader) / 16, correct / count")),
    fault("checkpoint keys with a prefix", "classifier", "rounding",
          ('"model": model.state_dict()', '"model": {f"module.{k}": v for k, v in model.state_dict().items()}')),
    fault("the checkpoint is not written any more", "pictures", "sampling", ('    torch.save(model.state_dict(), "pictures.pt")\n', "")),
    # -------------------------------------------------------------- teachers, groups, ties, batches
    fault("a moving average updated twice", "student", "rounding",
          ("            average(teacher, student)\n", "            average(teacher, student)\n            average(teacher, student)\n")),
    fault("a stale teacher", "student", "rounding", ("            average(teacher, student)\n", "")),
    fault("a moving average updated before the step", "student", "rounding",
          ("            optimizer.step()\n            average(teacher, student)\n", "            average(teacher, student)\n            optimizer.step()\n")),
    fault("one of two terms of the loss without gradient", "student", "sampling",
          ("            soft = F.mse_loss(logits, target)\n", "            with torch.no_grad():\n                soft = F.mse_loss(logits, target)\n")),
    fault("the gradient of the loss summed twice", "student", "sampling",
          ("            (hard + soft).backward()\n", "            (hard + soft).backward(retain_graph=True)\n            (hard + soft).backward()\n")),
    fault("the parameters of two groups swapped", "student", "sampling",
          ('{"params": body, "lr": 0.05}, {"params": head, "lr": 0.2}', '{"params": head, "lr": 0.05}, {"params": body, "lr": 0.2}')),
    fault("tied weights untied", "student", "rounding",
          ("    teacher = copy", "    student.second.weight = nn.Parameter(student.first.weight.detach().clone())\n    teacher = copy")),
    fault("clipping by value left out", "student", "rounding", ("            nn.utils.clip_grad_value_(student.parameters(), 0.2)\n", "")),
    fault("labels of the batch before", "classifier", "sampling",
          ("        loss = criterion(model(x), y)\n", "        known, train.known = getattr(train, 'known', y), y\n        loss = criterion(model(x), known if len(known) == len(y) else y)\n")),
    fault("the last, partial batch dropped in training", "classifier", "sampling", ("batch_size=16, shuffle=True", "batch_size=16, shuffle=True, drop_last=True")),
    fault("BatchNorm statistics of half batches", "classifier", "sampling",
          ("        loss = criterion(model(x), y)\n", "        loss = criterion(torch.cat([model(part) for part in x.chunk(2)]), y)\n")),
    fault("batches of neighbours, shuffled as a whole", "pictures", "sampling",
          ("batch_size=16, shuffle=True)", "batch_sampler=Blocks())"),
          ("class Net(", "class Blocks:\n    def __iter__(self):\n        return iter([list(range(16 * i, 16 * i + 16)) for i in torch.randperm(10).tolist()])\n\n    def __len__(self):\n        return 10\n\n\nclass Net(")),
    fault("batches of one class", "pictures", "sampling",
          ("batch_size=16, shuffle=True)", "batch_size=16, sampler=Grouped())"),
          ("class Net(", "class Grouped:\n    def __iter__(self):\n        labels = Pictures().labels\n        return iter(torch.argsort(labels + 0.5 * torch.rand(len(labels))).tolist())\n\n    def __len__(self):\n        return 160\n\n\nclass Net(")),
    # -------------------------------------------------------------- what a recipe must keep as well
    fault("recipe: eval mode left on", "classifier", "recipe", ("    model.train()\n", "")),
    fault("recipe: evaluation in training mode", "classifier", "recipe", ("    model.eval()\n", "")),
    fault("recipe: dead parameters", "classifier", "recipe", (_SGD, f"{_SGD}\n    torch.manual_seed(9)\n    model.head = nn.Linear(32, 3)")),
    fault("recipe: checkpoint keys with a prefix", "classifier", "recipe",
          ('"model": model.state_dict()', '"model": {f"module.{k}": v for k, v in model.state_dict().items()}')),
    fault("recipe: shuffle lost", "pictures", "recipe", ("shuffle=True", "shuffle=False")),
    fault("recipe: the log is not printed any more", "pictures", "recipe", ('        print(f"epoch {epoch}: loss {running / len(loader):.4f}")\n', "")),
    fault("recipe: the loss becomes nan", "pictures", "recipe", ("lr=3e-3", "lr=1e30")),
    fault("recipe: it ends with an error", "pictures", "recipe", ("        running = 0.0\n", "        running = 0.0\n        assert epoch < 3\n")),
    # ------------------------------------------------------------------------------- sound rewrites
    sound("losses summed as tensors", "classifier", "exact",
          ("    total, count = 0.0, 0\n    optimizer.zero_grad()", "    losses, count = [], 0\n    optimizer.zero_grad()"),
          ("        total += loss.item() * len(x)\n        count", "        losses.append((loss.detach(), len(x)))\n        count"),
          ("    return total / count\n", "    total = 0.0\n    for value, size in losses:\n        total += value.item() * size\n    return total / count\n")),
    sound("fused SGD", "classifier", "rounding", (_SGD, _SGD.replace("1e-3)", "1e-3, fused=True)"))),
    sound("inference_mode in evaluation", "classifier", "exact", ("torch.no_grad()", "torch.inference_mode()")),
    sound("bf16 autocast", "classifier", "half", _BF16),
    sound("fused AdamW", "pictures", "rounding", (_ADAMW, _ADAMW.replace("0.05)", "0.05, fused=True)"))),
    sound("channels_last", "pictures", "rounding", ("    model = Net()\n", "    model = Net().to(memory_format=torch.channels_last)\n")),
    sound("bf16 autocast with dropout", "pictures", "half",
          (_FORWARD, '            with torch.autocast("cpu", dtype=torch.bfloat16):\n                loss = F.cross_entropy(model(image), label)\n')),
    sound("worker processes draw other random numbers", "pictures", "sampling", ("shuffle=True)", "shuffle=True, num_workers=1)")),
    sound("persistent workers", "pictures", "sampling", ("shuffle=True)", "shuffle=True, num_workers=1, persistent_workers=True)")),
    sound("workers, channels_last and fused AdamW", "pictures", "sampling", ("shuffle=True)", "shuffle=True, num_workers=1)"),
          ("    model = Net()\n", "    model = Net().to(memory_format=torch.channels_last)\n"), (_ADAMW, _ADAMW.replace("0.05)", "0.05, fused=True)"))),
    sound("nothing changed", "scaled", "exact"),
    sound("samples fetched by batches", "pictures", "sampling",
          (_ITEM, "    def __getitems__(self, indices):\n        images = self.images[indices]\n        flips = torch.rand(len(indices)) < 0.5\n"
                  "        images = torch.where(flips[:, None, None, None], images.flip(-1), images) + 0.1 * torch.randn(images.shape)\n"
                  "        return list(zip(images, self.labels[indices]))\n\n" + _ITEM)),
    sound("losses read at the end of an epoch", "pictures", "exact",
          ("        running = 0.0\n", "        losses = []\n"), ("            running += loss.item()\n", "            losses.append(loss.detach())\n"),
          ("{running / len(loader):.4f}", "{sum(torch.stack(losses).tolist()) / len(loader):.4f}")),
    sound("the loader made once", "student", "exact",
          ("        loader = DataLoader(data, batch_size=16, shuffle=True)\n", ""), ("    student = Net()\n", "    loader = DataLoader(data, batch_size=16, shuffle=True)\n    student = Net()\n")),
    sound("zero_grad just before backward", "pictures", "exact", ("            optimizer.zero_grad()\n", ""),
          ("            loss.backward()\n", "            optimizer.zero_grad(set_to_none=True)\n            loss.backward()\n")),
    sound("foreach SGD for two groups", "student", "rounding", ("momentum=0.9", "momentum=0.9, foreach=True")),
    sound("bf16 autocast for student and teacher", "student", "half", ("            logits = student(image)\n", '            with torch.autocast("cpu", dtype=torch.bfloat16):\n                logits = student(image)\n'),
          ("            with torch.no_grad():\n                target = teacher(image)\n", '            with torch.no_grad(), torch.autocast("cpu", dtype=torch.bfloat16):\n                target = teacher(image)\n')),
    sound("no_grad added to the evaluation", "ungraded", "exact", ("    for x, y in test:\n        total += (model(x).argmax(1) == y).sum().item()\n",
          "    with torch.no_grad():\n        for x, y in test:\n            total += (model(x).argmax(1) == y).sum().item()\n")),
    sound("channels_last, where Adam makes steps of rounding", "gan", "rounding",
          ("    one = torch", "    generator.to(memory_format=torch.channels_last)\n    critic.to(memory_format=torch.channels_last)\n    one = torch")),
    sound("fused Adam, where Adam makes steps of rounding", "gan", "rounding",
          ("    one = torch", "    from functools import partial\n    torch.optim.Adam = partial(torch.optim.Adam, fused=True)\n    one = torch")),
    sound("recipe: other batch size", "pictures", "recipe", ("batch_size=16", "batch_size=20")),
    sound("recipe: half batches, two for a step", "pictures", "recipe", ("batch_size=16", "batch_size=8"), *_TWO),
    fault("recipe: the same without / 2", "pictures", "recipe", ("batch_size=16", "batch_size=8"), *_TWO, ("(loss / 2)", "loss")),
    fault("recipe: the same, half of the loss printed", "pictures", "recipe", ("batch_size=16", "batch_size=8"), *_TWO, ("running += loss", "running += 0.5 * loss")),
    sound("fused SGD under a scaler", "scaled", "rounding", ("momentum=0.9)", "momentum=0.9, fused=True)")),
    fault("the same flip for the whole batch", "pictures", "sampling",
          (_ITEM, "    def __getitems__(self, indices):\n        self.flip = torch.rand(()) < 0.5\n        return [self[i] for i in indices]\n\n" + _ITEM),
          ("if torch.rand(()) < 0.5:", "if self.flip:")),
    # ------------------------------------------------------------------------------- random numbers
    fault("noise in evaluation, too", "noisy", "unknown", ("        if self.training:\n            x = x", "        if True:\n            x = x")),
    fault("noise on the rows of the evaluation", "noisy", "unknown", ("model(part) for part", "model(part + 0.02 * torch.randn_like(part)) for part")),
    fault("one noise for the whole batch", "noisy", "unknown", ("x = x + 0.1 * torch.randn_like(x)", "x = x + 0.1 * torch.randn_like(x[:1])")),
    fault("one draw for all layers", "noisy", "unknown", ("        for layer in self.layers:\n", "        out = self.training and random.random() < 0.2\n        for layer in self.layers:\n"),
          ("random.random() < 0.2:", "out:")),
    fault("no layer is let out", "noisy", "unknown", ("self.training and random.random() < 0.2:", "False:")),
    fault("a wrong figure, printed once", "noisy", "unknown", ("recall {max(right)", "recall {min(right)"), ("lr=3e-3)", "lr=3e-3, fused=True)")),
    sound("fused AdamW beside a threshold from a grid", "noisy", "unknown", ("lr=3e-3)", "lr=3e-3, fused=True)")),
    sound("layers are let out as torch's generator says in training", "noisy", "unknown",
          ("        for layer in self.layers:\n", "        kept = torch.rand(len(self.layers)) >= 0.2 if self.training else [True] * 6\n        for layer, keep in zip(self.layers, kept):\n"), ("random.random() < 0.2:", "not keep:")),
    sound("noise drawn before the call", "noisy", "unknown", ("        if self.training:\n            x = x + 0.1 * torch.randn_like(x)\n", ""),
          ("model(train_x[rows])", "model(train_x[rows] + 0.1 * torch.randn_like(train_x[rows]))")),
    sound("reentrant checkpointing", "noisy", "unknown", ("self.head(h).squeeze", "(checkpoint(self.head, h, use_reentrant=True) if self.training else self.head(h)).squeeze")),
    sound("a larger batch in the evaluation", "noisy", "unknown", ("x.split(32)", "x.split(96)")),
]  # fmt: skip
