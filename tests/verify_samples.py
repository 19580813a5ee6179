"""Made-up verifications, one for every kind of outcome: what the reports are tested and looked at
with.
"""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from dataclasses import replace

from autofast.verify.evidence.record import (
    FULL,
    PHASES,
    Detail,
    Device,
    Moments,
    Pass,
    Record,
    Run,
    Step,
    TensorPrint,
)
from autofast.verify.result import (
    Answer,
    Arm,
    Check,
    Contribution,
    Diagnosis,
    Parity,
    Ratio,
    Sameness,
    Speed,
    SpeedVerdict,
    Verification,
)

GPU = {
    "gpu": "NVIDIA H200 (141 GiB)",
    "driver": "570.86.15",
    "cuda": "12.8",
    "torch": "2.13.0+cu128",
    "python": "3.11.9",
    "cpu": "AMD EPYC 9454, 16 cores",
    "threads": "8",
    "precision": "float32 matmul: highest; TF32 off",
}
CPU = {"torch": "2.13.0+cpu", "python": "3.11.2", "cpu": "Intel Xeon, 2 cores", "threads": "2"}
LIGHT = Detail()
BEFORE = {
    "data": 0.31,
    "transfer": 0.06,
    "forward": 0.22,
    "backward": 0.29,
    "optimizer": 0.11,
    "other": 0.01,
}
AFTER = {
    "data": 0.02,
    "transfer": 0.03,
    "forward": 0.36,
    "backward": 0.45,
    "optimizer": 0.11,
    "other": 0.03,
}

DIFF = """\
--- a/train.py
+++ b/train.py
@@ -12,7 +12,7 @@  pin-memory, num-workers, fused-optimizer
 train = ImageFolder("data/train", transform)
-loader = DataLoader(train, batch_size=64, shuffle=True)
+loader = DataLoader(train, batch_size=64, shuffle=True, num_workers=8, pin_memory=True)
 model = resnet50(num_classes=10).to(device)
-optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
+optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
 for epoch in range(90):
     for x, y in loader:
         if x.shape[0] < 2 and "<tag> & \\"quote\\"":
@@ -24,6 +24,7 @@  autocast, non-blocking, loss-item-sync
-        x, y = x.to(device), y.to(device)
-        loss = F.cross_entropy(model(x), y)
+        x, y = x.to(device, non_blocking=True), y.to(device, non_blocking=True)
+        with torch.autocast("cuda", torch.bfloat16):
+            loss = F.cross_entropy(model(x), y)
         loss.backward()
         optimizer.step()
-        total += loss.item()
+        total += loss.detach()
         optimizer.zero_grad()
"""


def run(
    arm: str,
    *,
    seed: int = 0,
    step: float = 0.04,
    steps: int = 60,
    shares: Mapping[str, float] = BEFORE,
    detail: Detail = LIGHT,
    drift: float = 0.0,
    gpu: bool = True,
    world: int = 1,
    memory: float = 3400,
    noise: int = 0,
) -> Run:
    """A run that went well: a falling loss that the seed decides, step times with a tail to the
    right.
    """
    times = random.Random(f"{arm}{seed}{noise}")
    losses = random.Random(seed)
    records = []
    for rank in range(world):
        rows, end = [], 6.0
        for n in range(steps):
            wall = (
                step
                * (1 + drift)
                * math.exp(times.gauss(0, 0.03))
                * (1.4 if times.random() < 0.04 else 1)
                * (9 if n == 0 else 1)
            )
            end += wall
            loss = (
                0.3
                + 2.0 * math.exp(-n / 25)
                + losses.gauss(0, 0.06)
                + (times.gauss(0, 4e-4 * n) if arm != "original" else 0)
            )
            phases = {p: wall * shares.get(p, 0.0) for p in PHASES}
            rows.append(
                Step(
                    n,
                    0,
                    end,
                    wall,
                    phases,
                    samples=64,
                    batches=1,
                    backwards=1,
                    losses=(loss,),
                    lr=(3e-4,),
                )
            )
        devices = (
            (Device("NVIDIA H200", memory * 4, (0.0, 71.0, 75.0), (310.0, 402.0)),) if gpu else ()
        )
        records.append(
            Record(
                version=1,
                rank=rank,
                world_size=world,
                ending="steps",
                exit_code=0,
                moments=Moments(2.1, 2.4, 7.0, end, 0.0),
                steps=tuple(rows),
                losses=tuple(x for row in rows for x in row.losses),
                backwards=steps,
                skipped=0,
                optimizers=("AdamW",),
                passes=(Pass(0, True, steps, steps * 64, False, 8, (1.5, 2.5)),),
                model={"0/weight": TensorPrint((3,), "float32", "ab", 1.0, (0.5, 0.25))}
                if detail.state
                else {},
                syncs={"train.py:31": steps, "train.py:44": 3} if gpu else {},
                peak_memory=memory,
                peak_memory_children=410,
                devices=devices,
                environment=GPU if gpu else CPU,
            )
        )
    return Run(
        arm, seed, detail, tuple(records), 0, 9.0 + end, stdout="epoch 1\n", stderr="", pressure=1.5
    )


def failed(
    arm: str,
    error: str = "RuntimeError: mat1 and mat2 must have the same dtype, but got Float and BFloat16",
) -> Run:
    """A run whose script raised an error."""
    trace = f'Traceback (most recent call last):\n  File "train_fast.py", line 31, in <module>\n    loss = head(model(x))\n{error}\n'
    good = run(arm, steps=1)
    record = replace(
        good.record,
        ending="error",
        exit_code=1,
        steps=(),
        losses=(),
        backwards=0,
        error=error,
        traceback=trace,
    )
    return replace(good, records=(record,), exit_code=1, stderr=trace)


def pairs(
    step: float, ratio: float, number: int, noise_pairs: int, **options: object
) -> tuple[tuple[Run, ...], ...]:
    """Rounds of runs in shuffled order, the first ones with the original twice, on a machine whose
    pace drifts.
    """
    dice = random.Random(7)
    rounds = []
    for n in range(number):
        arms = ["original", "rewritten"] + ["original"] * (n < noise_pairs)
        dice.shuffle(arms)
        made = []
        for k, arm in enumerate(arms):
            drift = 0.03 * math.sin(n / 2) + dice.gauss(0, 0.004)
            mine: dict[str, object] = {"step": step, "shares": BEFORE}
            if arm == "rewritten":
                mine = {
                    "step": step / ratio,
                    "shares": AFTER,
                    "memory": 0.8 * float(str(options.get("memory", 3400))),
                }
            made.append(run(arm, drift=drift, noise=3 * n + k, **{**options, **mine}))  # type: ignore[arg-type]
        rounds.append(tuple(made))
    return tuple(rounds)


def ratio(value: float, half: float, number: int) -> Ratio:
    dice = random.Random(number)
    return Ratio(
        value,
        value - half,
        value + half,
        number,
        tuple(value + half * dice.gauss(0, 1.2) for _ in range(number)),
    )


def speed(
    verdict: SpeedVerdict,
    value: float,
    half: float = 0.03,
    number: int = 12,
    noise: float = 0.012,
    **fields: object,
) -> Speed:
    made = Speed(
        verdict,
        ratio(value, half, number),
        ratio(1.001, noise, 4),
        "median step",
        0.0401,
        0.0401 / value,
        7.1,
        15.8,
        10,
        8.1,
        484,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


FASTER = speed(SpeedVerdict.FASTER, 1.83, 0.07)
SAME = speed(SpeedVerdict.SAME, 1.003, 0.012, break_even=None, compiling=0.0, first_step_after=7.2)
SLOWER = speed(SpeedVerdict.SLOWER, 0.8, 0.02, break_even=None)
UNCLEAR = speed(
    SpeedVerdict.UNCLEAR,
    1.04,
    0.09,
    3,
    reason="the interval is wider than the noise floor; about 14 more pairs would decide",
)
SPEEDS = {s.verdict: s for s in (FASTER, SAME, SLOWER, UNCLEAR)}

CHECKS = (
    Check(
        "number of steps and samples",
        True,
        "60 steps of 64 samples in both",
        identical=True,
        verdict=Sameness.BROKEN,
    ),
    Check("start of the models", True, "161 tensors, not a bit differs", identical=True),
    Check(
        "distance from a float64 run",
        True,
        "original 2.1e-3, rewritten 2.4e-3: 1.1 times as far, 2 allowed",
    ),
    Check(
        "loss against seed noise",
        True,
        "final loss differs by 0.0021 ± 0.0040 (margin 0.0150, 5 seeds, TOST p = 0.0004)",
    ),
    Check("checkpoints", None, "the run saves none", verdict=Sameness.BROKEN),
)


def parity(verdict: Sameness) -> Parity:
    """With the checks that such a verdict comes from."""
    first = {
        Sameness.IDENTICAL: ("exact", "losses and weights identical to the last bit", None),
        Sameness.EQUIVALENT: ("rounding", "loss within seed noise", None),
        Sameness.DIFFERENT: (
            "rounding",
            "gradient norms differ",
            Check(
                "gradient norm, step 1",
                False,
                "4.0012 times as large as the original's in all 60 steps",
            ),
        ),
        Sameness.SUSPICIOUS: (
            "recipe",
            "final loss lower than any seed's",
            Check(
                "loss against seed noise",
                False,
                "final loss lower by 0.21, seed noise 0.02",
                verdict=Sameness.SUSPICIOUS,
            ),
        ),
        Sameness.BROKEN: (
            "rounding",
            "the rewritten script fails",
            Check(
                "number of steps and samples",
                False,
                "60 steps in the original, 54 in the other",
                verdict=Sameness.BROKEN,
            ),
        ),
        Sameness.UNCLEAR: (
            "sampling",
            "the interval reaches over the margin",
            Check("loss against seed noise", None, "0.012 ± 0.019, margin 0.015, 3 seeds"),
        ),
    }
    effect, summary, check = first[verdict]
    checks = CHECKS if check is None else (CHECKS[0], CHECKS[1], check, CHECKS[4])
    return Parity(
        verdict, effect, checks, summary, more_runs=4 if verdict is Sameness.UNCLEAR else 0
    )


DIAGNOSIS = Diagnosis(
    BEFORE,
    AFTER,
    "data",
    "The original waits for its DataLoader in 31 % of a step; the rewritten script is bound by backward.",
    ("num-workers", "pin-memory", "compile"),
    (
        Answer("num-workers", "refused", "train.py:30", 1, "items change `self.cache` (line 12)"),
        Answer("pin-memory", "applied", "train.py:30", 2),
        Answer("compile", "on request", reason="--compile"),
    ),
    "decode once, and keep arrays",
)
RULES = ("pin-memory", "num-workers", "fused-optimizer", "autocast", "loss-item-sync")


def verification(
    fast: Speed | None = FASTER,
    same: Sameness | None = Sameness.EQUIVALENT,
    *,
    timed: tuple[tuple[Run, ...], ...] | None = None,
    runs: tuple[Run, ...] | None = None,
    **fields: object,
) -> Verification:
    """Twelve pairs and five seeds on a GPU, unless told otherwise."""
    if runs is None:
        runs = tuple(
            run(arm, seed=seed, detail=FULL)
            for seed in range(5)
            for arm in ("original", "rewritten")
            if same is not None
        )
    if timed is None:
        timed = () if fast is None else pairs(0.04, fast.ratio.value, fast.ratio.pairs, 4)
    rounds, first = [], len(runs)
    for one in timed:
        rounds.append(tuple(range(first, first + len(one))))
        first += len(one)
    made = Verification(
        original=Arm("original", "train.py", "python train.py --epochs 90 --data data/train"),
        rewritten=Arm(
            "rewritten", "train_fast.py", "python train_fast.py --epochs 90 --data data/train"
        ),
        speed=fast,
        parity=None if same is None else parity(same),
        diagnosis=DIAGNOSIS,
        diff={"train.py": DIFF},
        rules=RULES,
        runs=runs + tuple(r for one in timed for r in one),
        rounds=tuple(rounds),
        dropped=2,
        steps=60,
        warnings=("the GPU was shared with another process for 3 of 24 runs",),
        environment=GPU,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def broken() -> Verification:
    """The rewritten script raises an error in its first step."""
    runs = (run("original"), run("original", noise=1), failed("rewritten"))
    return verification(None, Sameness.BROKEN, runs=runs, diagnosis=None)


def unclear() -> Verification:
    """Too noisy for a figure, and the user lost patience."""
    return verification(
        UNCLEAR,
        Sameness.UNCLEAR,
        interrupted="Ctrl-C after 3 pairs",
        warnings=("the machine was busy: 8 % of CPU time waited",),
    )


def cpu_only() -> Verification:
    """No difference on a machine without a GPU."""
    timed = pairs(0.0021, 1.003, 6, 4, gpu=False, memory=420.0)
    runs = tuple(run("original", gpu=False, detail=FULL) for _ in range(2))
    runs = (runs[0], replace(runs[1], arm="rewritten"))
    note = "this machine has no GPU: the figures say nothing about one"
    fast = replace(SAME, ratio=ratio(1.003, 0.012, 6), step_before=0.0021, step_after=0.002094)
    return verification(
        fast, Sameness.IDENTICAL, timed=timed, runs=runs, environment=CPU, warnings=(note,)
    )


def two_ranks() -> Verification:
    """Under torchrun, with time for communication."""
    before = {**BEFORE, "data": 0.11, "communication": 0.2}
    after = {**AFTER, "communication": 0.09, "forward": 0.27}
    launch = "torchrun --standalone --nproc-per-node=2"
    runs = tuple(
        run(arm, seed=seed, world=2, detail=FULL)
        for seed in range(3)
        for arm in ("original", "rewritten")
    )
    made = verification(
        timed=pairs(0.04, 1.83, 12, 4, world=2),
        runs=runs,
        diagnosis=Diagnosis(before, after, "communication", "Bound by all-reduce."),
    )
    arms = [replace(arm, command=f"{launch} {arm.path}") for arm in (made.original, made.rewritten)]
    return replace(
        made, original=arms[0], rewritten=arms[1], environment={**GPU, "gpu": "2 × NVIDIA H200"}
    )


def by_rule() -> Verification:
    """Twelve rules, each alone and left out."""
    names = [
        *RULES,
        "channels-last",
        "set-to-none",
        "persistent-workers",
        "prefetch-factor",
        "non-blocking",
        "unscale-before-clip",
        "ddp-bucket",
    ]
    dice = random.Random(3)
    rows = []
    for n, name in enumerate(names):
        value = 1 + 0.25 / (1 + n) - 0.03
        rows.append(
            Contribution(
                name,
                ratio(value, 0.015 + 0.01 * dice.random(), 4),
                ratio(value * 0.99, 0.02, 4) if n % 5 else None,
            )
        )
    rows[3] = replace(rows[3], note="with channels-last more than the two alone")
    return verification(contributions=tuple(rows), rules=tuple(names))


def hostile() -> Verification:
    """Long names, markup in every text, a long diff."""
    name = (
        "experiments/2026/"
        + "a_very_long_folder_name/" * 5
        + "train_<script>alert(1)</script>|&_final_v2.py"
    )
    lines = [
        f"-    x{n} = layer_{n}(x{n - 1})  # <b>|&amp;\n+    x{n} = layer_{n}(x{n - 1}, checkpoint=True)  # `{n}` {'long ' * 30}"
        for n in range(1, 151)
    ]
    text = (
        f"--- a/{name}\n+++ b/{name}\n@@ -1,150 +1,150 @@  <i>rule</i>\n" + "\n".join(lines) + "\n"
    )
    check = Check("loss | <b>bold</b>", False, "`code` | @someone </td></table> ```")
    return verification(
        same=None,
        original=Arm("original", name, f"python '{name}' --note '</script><svg onload=x> & more'"),
        rewritten=Arm("rewritten", "b.py", "python b.py"),
        diff={name: text},
        parity=Parity(Sameness.DIFFERENT, "unknown", (check,), ""),
        environment={"<gpu>": 'A "quoted" & <b>GPU</b> | pipe'},
        warnings=("<script>alert('warn')</script> | pipe",),
        contributions=(
            Contribution("<b>$x_1$</b>|\x00&amp;", ratio(1.1, 0.02, 6), None, "<i>`|`</i>"),
        ),
    )


def nothing() -> Verification:
    """The original itself does not run."""
    return verification(
        None,
        None,
        runs=(failed("original", "ModuleNotFoundError: No module named 'timm'"),),
        diagnosis=None,
        warnings=(),
    )


SAMPLES = {
    "faster": verification,
    "broken": broken,
    "unclear": unclear,
    "cpu": cpu_only,
    "ranks": two_ranks,
    "rules": by_rule,
    "hostile": hostile,
    "nothing": nothing,
}
