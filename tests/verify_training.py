"""A small training in NumPy that leaves the records that the probe would: two layers, softmax, SGD
or Adam, and faults to order.

It stands in for torch where hundreds of verifications are to be made in seconds. ``Script`` is one
version of the script, ``verification`` makes the runs that ``parity.wanted`` asks for and returns
the judgement.
"""

from __future__ import annotations

import functools
import hashlib
import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

from autofast.verify.evidence.gathered import ORIGINAL
from autofast.verify.evidence.record import (
    Call,
    Checkpoint,
    Detail,
    Moments,
    Pass,
    Record,
    Run,
    Step,
    TensorPrint,
)
from autofast.verify.judging import parity
from autofast.verify.result import Parity

_SIGNS: dict[int, Any] = {}


@dataclass(frozen=True)
class Script:
    """``faults`` are listed where they act, in ``train``."""

    faults: frozenset[str] = frozenset()
    optimizer: str = "sgd"
    lr: float = 0.1
    batch: int = 16
    samples: int = 192
    epochs: int = 5
    accumulate: int = 1
    clip: float = 0.0
    dropout: float = 0.0
    decimals: int = 6  # of what is printed
    precision: str = "float32"  # or "float64", "half"
    sums: str = "forward"  # or "reversed": the same mathematics in another order
    draws: int = 0  # other random numbers for shuffling and dropout, not for the weights
    masks: int = 0  # other random numbers for dropout alone
    noise: float = 0.0  # what a GPU adds from run to run
    steps: int = 0  # ends after so many
    augment: bool = False
    shuffle: bool = True
    schedule: bool = True
    label_noise: float = 0.2
    extra: dict[str, Any] = field(default_factory=dict, hash=False)


def tensor(value: Any) -> TensorPrint:
    flat = np.asarray(value, np.float64).ravel()
    if flat.size not in _SIGNS:
        _SIGNS[flat.size] = np.random.default_rng(7).choice([-1.0, 1.0], (16, flat.size)) / 4
    return TensorPrint(
        value.shape,
        str(value.dtype),
        hashlib.sha1(value.tobytes()).hexdigest(),
        float(np.linalg.norm(flat)),
        tuple(_SIGNS[flat.size] @ flat),
    )


def _half(x: Any) -> Any:
    """Rounded to bfloat16: the upper 16 bits of float32, to nearest."""
    bits = np.asarray(x, np.float32).view(np.uint32).astype(np.uint64) + 0x8000
    return (bits & 0xFFFF0000).astype(np.uint32).view(np.float32)


def data(count: int, label_noise: float, start: int) -> tuple[Any, Any]:
    draw = np.random.default_rng(1000 + start)
    x = draw.normal(size=(count, 10))
    rule = np.random.default_rng(5).normal(size=(10, 3))
    y = np.argmax(x @ rule + 0.3 * np.sin(3 * x[:, :3]), 1)
    flip = draw.random(count) < label_noise
    y[flip] = draw.integers(0, 3, flip.sum())
    return x, y


@functools.cache
def train(script: Script, arm: str, seed: int, detail: Detail, number: int = 0) -> Run:
    """One run, made once for all tests; ``number`` tells runs apart where the script is not
    reproducible.
    """
    has = script.faults.__contains__
    kind = np.float64 if detail.double or script.precision == "float64" else np.float32
    half = script.precision == "half" and not detail.double

    def low(v: Any) -> Any:
        return _half(v) if half else v

    weights_rng, order_rng = (
        np.random.default_rng([seed, 1]),
        np.random.default_rng([seed, 2, script.draws]),
    )
    mask_rng, machine = (
        np.random.default_rng([seed, 3, script.draws, script.masks]),
        np.random.default_rng([number, seed, 99, arm != ORIGINAL]),
    )
    if has("shuffle per seed lost"):
        order_rng = np.random.default_rng(0)
    shapes = {"a.weight": (10, 16), "a.bias": (16,), "b.weight": (16, 3), "b.bias": (3,)}
    w = {
        k: (weights_rng.normal(size=s) / math.sqrt(s[0]) if len(s) > 1 else np.zeros(s)).astype(
            kind
        )
        for k, s in shapes.items()
    }
    if detail.perturb:
        w = {
            k: (v * (1 + detail.perturb * np.random.default_rng(4).uniform(-1, 1, v.shape))).astype(
                kind
            )
            for k, v in w.items()
        }
    start, stale = {k: tensor(v) for k, v in w.items()}, {k: v.copy() for k, v in w.items()}
    x_all, y_all = data(script.samples, script.label_noise, 0)
    x_val, y_val = data(96, script.label_noise, 1)
    if has("data scaled"):
        x_all = x_all / 2
    first, second, made = ({k: np.zeros_like(v) for k, v in w.items()} for _ in range(3))
    steps: list[Step] = []
    passes: list[Pass] = []
    losses: list[float] = []
    out: list[str] = []
    training, order, pending, taken, evaluated = 1.0, np.arange(script.samples), 0, 0, 0
    row_losses: list[float] = []
    calls: list[Call] = []

    def states() -> str:
        text = f"{order_rng.bit_generator.state}{mask_rng.bit_generator.state}"
        return hashlib.sha1(text.encode()).hexdigest()[:12]

    def forward(x: Any, y: Any, mask: Any, p: dict[str, Any]) -> tuple[float, dict[str, Any], Any]:
        x = x.astype(kind)
        sum_rows = (
            (lambda v: v.sum(0)) if script.sums == "forward" else (lambda v: v[::-1].cumsum(0)[-1])
        )
        q = {k: low(v) for k, v in p.items()}
        hidden = (
            np.tanh(low(low(x) @ q["a.weight"] + q["a.bias"]))
            if script.sums == "forward"
            else np.tanh(x[:, ::-1] @ q["a.weight"][::-1] + q["a.bias"])
        )
        hidden = low(hidden) * mask
        logits = low(hidden @ q["b.weight"] + q["b.bias"]).astype(kind)
        logits = logits - logits.max(1, keepdims=True)
        soft = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
        loss = -np.log(soft[np.arange(len(y)), y] + 1e-30).mean()
        d = low((soft - np.eye(3, dtype=kind)[y]) / len(y)).astype(kind)
        back = low(d @ q["b.weight"].T) * mask * (1 - hidden**2)
        grads = {
            "b.weight": hidden.T @ d,
            "b.bias": sum_rows(d),
            "a.weight": x.T @ back,
            "a.bias": sum_rows(back),
        }
        return float(loss), {k: low(v).astype(kind) for k, v in grads.items()}, logits

    stopped = False
    for epoch in range(script.epochs):
        if (
            script.shuffle
            and not has("shuffle lost")
            and not (has("same order each epoch") and epoch)
        ):
            order = order_rng.permutation(script.samples)
        batches = [order[i : i + script.batch] for i in range(0, script.samples, script.batch)]
        if has("batches twice"):
            batches = [b for b in batches[: len(batches) // 2] for _ in (0, 1)]
        if has("batch frozen"):
            batches = [
                np.arange(i, i + script.batch) for i in range(0, script.samples, script.batch)
            ]
            order_rng.shuffle(batches)
        checksums, epoch_losses = [], []
        rate = script.lr * (
            0.8 ** (epoch * (2 if has("scheduler twice") else 1)) if script.schedule else 1
        )
        rate = script.lr * 0.8 ** (len(steps) // 6) if has("scheduler each step") else rate
        window = script.accumulate
        for i, chosen in enumerate(batches):
            x, y = x_all[chosen], y_all[chosen]
            if script.augment:
                x = x + 0.1 * mask_rng.normal(size=x.shape)
            if has("labels leak"):
                x = x + 0.5 * np.eye(10)[y]
            checksums.append(float(x.sum() + 2 * y.sum()))
            calls.append(Call(0, len(y), {"0": float(x.sum())}, len(steps)))
            taken += len(y)
            if has("one in ten skipped") and i % 10 == 9:
                continue
            mask = (
                (mask_rng.random((len(y), 16)) >= script.dropout) / (1 - script.dropout)
                if script.dropout and training == 1.0
                else np.ones((len(y), 16))
            )
            loss, grads, _ = forward(x, y, mask.astype(kind), stale if has("stale weights") else w)
            if has("nan") and len(steps) == 30:
                loss = math.nan
            losses.append(loss)
            row_losses.append(loss)
            epoch_losses.append(loss)
            share = (
                1 if has("division dropped") else min(window, len(batches) - i // window * window)
            )
            made = {k: made[k] + grads[k] / share for k in w}
            pending += 1
            if (has("zero_grad in the window") or has("window forgotten")) and pending < window:
                made = {k: v if has("window forgotten") else 0 * v for k, v in made.items()}
            if pending < window and (i + 1 < len(batches) or has("last window dropped")):
                continue
            used = {
                k: v + script.noise * machine.normal(size=v.shape).astype(kind)
                for k, v in made.items()
            }
            if has("scaled by 4"):
                used = {k: 4 * v for k, v in used.items()}
            norm = math.sqrt(sum(float((v.astype(np.float64) ** 2).sum()) for v in used.values()))
            limit = script.clip / (65536 if has("clip before unscale") else 1)
            if script.clip and norm > limit:
                used, norm = {k: v * kind(limit / norm) for k, v in used.items()}, limit
            before = {k: v.copy() for k, v in w.items()}
            for k in w:
                if (has("dead parameters") and k.startswith("b")) or (
                    has("frozen layer") and k == "a.weight"
                ):
                    continue
                if script.optimizer == "sgd":
                    first[k] = kind(0.5) * first[k] + used[k]
                    w[k] = w[k] - kind(rate) * first[k]
                else:
                    t = len(steps) + 1
                    first[k] = (0.9 * first[k] + 0.1 * used[k]).astype(kind)
                    second[k] = (0.99 * second[k] + 0.01 * used[k] ** 2).astype(kind)
                    w[k] = w[k] - (
                        kind(rate)
                        * (first[k] / (1 - 0.9**t))
                        / (np.sqrt(second[k] / (1 - 0.99**t)) + 1e-8)
                    ).astype(kind)
            moved = math.sqrt(
                sum(float(((w[k] - before[k]).astype(np.float64) ** 2).sum()) for k in w)
            )
            shown = (
                {"grad_norm": norm, "update_norm": moved, "training": training, "random": states()}
                if detail.gradients
                else {}
            )
            steps.append(
                Step(
                    len(steps),
                    0,
                    0.0,
                    1e-3,
                    {"forward": 1e-3},
                    taken,
                    max(1, taken // script.batch),
                    evaluated,
                    pending,
                    tuple(row_losses),
                    (rate,),
                    **shown,
                )
            )
            if not has("no zero_grad"):
                made = {k: np.zeros_like(v) for k, v in w.items()}
            pending, taken, evaluated, row_losses = 0, 0, 0, []
            stopped = len(steps) == script.steps
            if stopped:
                break
        seen = sum(map(len, batches[: len(checksums)]))
        passes.append(
            Pass(
                0,
                True,
                len(checksums),
                seen,
                not stopped,
                0,
                tuple(checksums) if detail.batches else (),
            )
        )
        if stopped:
            break
        x_eval, y_eval = (x_val[:48], y_val[:48]) if has("half evaluation") else (x_val, y_val)
        _, _, logits = forward(x_eval, y_eval, np.ones((len(y_eval), 16), kind), w)
        evaluated = len(y_eval)
        passes.append(Pass(1, False, 1, evaluated, True))
        if has("evaluation mode"):
            training = 0.0
        value = epoch_losses[-1] if has("last loss logged") else float(np.mean(epoch_losses))
        accuracy = (logits.argmax(1) == y_eval).mean()
        out.append(
            f"epoch {epoch + 1}: loss {value:.{script.decimals}f} accuracy {accuracy:.3f} ({machine.random():.2f} s, {machine.random() * 900:.0f} samples/s)"
        )
    model = {f"0/{k}": tensor(v) for k, v in w.items()} if detail.state else {}
    prefix = "module." if has("checkpoint keys") else ""
    saved = (
        Checkpoint(
            "last.pt",
            {f"model/{prefix}{k}": f"Tensor {v.dtype} {v.shape}" for k, v in w.items()}
            | {"epoch": "int"},
            True,
        ),
    )
    record = Record(
        1, 0, 1, "error" if has("crash") else "steps" if stopped else "end", 0, Moments(1, 2, 3, 4), tuple(steps), tuple(losses), len(losses), 0, (script.optimizer.upper(),), tuple(passes),
        model, {f"0/{k}": v for k, v in start.items()} if detail.state else {}, saved if detail.state else (),
        calls=tuple(calls) if detail.state else (),
        precision=("forward bfloat16" if half else "forward float32",) if detail.state else (),
        error="RuntimeError: no" if has("crash") else "",
    )  # fmt: skip
    return Run(arm, seed, detail, (record,), 0, 1.0, stdout="\n".join(out) + "\n")


def verification(
    effect: str,
    original: Script,
    rewritten: Script,
    rules: Iterable[str] | None = None,
    base: int = 0,
    **more: Any,
) -> tuple[Parity, list[Run]]:
    """``base`` shifts all seeds, so that many verifications of one pair are many different ones."""
    runs: list[Run] = []
    while wishes := parity.wanted(effect, runs, rules=rules, **more):
        for wish in wishes:
            script = original if wish.arm == ORIGINAL else rewritten
            kind = (wish.arm, wish.seed, wish.detail)
            again = sum((run.arm, run.seed, run.detail) == kind for run in runs)
            made = train(script, wish.arm, 1000 * base + wish.seed, wish.detail, again)
            runs.append(replace(made, seed=wish.seed))
        assert len(runs) < 60
    return parity.judge(effect, runs, rules=rules, **more), runs


def faulty(script: Script, *faults: str) -> Script:
    return replace(script, faults=frozenset(faults))
