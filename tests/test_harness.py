"""The harness must be able to fail: faults that rewriters really make are seeded, and have to be
seen.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from autofast.rule import Effect
from tests.harness import HALF, HARNESS, HAVE_TORCH, Job, Run, compare

pytestmark = pytest.mark.skipif(not HAVE_TORCH, reason="running training scripts needs torch")

FIXTURES = Path(__file__).resolve().parent.parent / "fixtures"
EXACT, ROUNDING, SAMPLING = Effect.EXACT, Effect.ROUNDING, Effect.SAMPLING


def edited(
    name: str, *changes: tuple[str, str], fake: bool = False, args: tuple[str, ...] = ()
) -> Job:
    """The run of a fixture after plain text replacements."""
    text = (FIXTURES / name / "train.py").read_text()
    for old, new in changes:
        assert old in text, f"{old!r} is not in {name}"
        text = text.replace(old, new)
    return Job(FIXTURES / name, args=args, files={"train.py": text.encode()}, fake_cuda_amp=fake)


def both(before: Job, after: Job) -> list[Run]:
    runs = HARNESS.run_many([before, after])
    assert runs[0].ok, runs[0].traceback
    return runs


FAULTS = {
    "zero_grad forgotten": ("module_level", [("    opt.zero_grad()\n", "")], ROUNDING),
    "division by the window dropped": (
        "accumulation",
        [("loss = loss / args.accum", "loss = loss / 1")],
        ROUNDING,
    ),
    "window twice as long": (
        "accumulation",
        [("% args.accum == 0", "% (2 * args.accum) == 0")],
        SAMPLING,
    ),
    "scheduler stepped twice": (
        "trainer_class",
        [("self.sched.step()", "self.sched.step(); self.sched.step()")],
        ROUNDING,
    ),
    "clip dropped": (
        "rnn_truncated",
        [("torch.nn.utils.clip_grad_norm_(model.parameters(), args.clip)", "pass")],
        ROUNDING,
    ),
    "fake not detached": ("gan", [("netD(fake.detach())", "netD(fake)")], EXACT),
    "a sample dropped": ("eval_escapes", [("Blobs(60)", "Blobs(59)")], SAMPLING),
    "last batch dropped": (
        "module_level",
        [("shuffle=True)", "shuffle=True, drop_last=True)")],
        SAMPLING,
    ),
    "stream read by every worker": (
        "iterable_unsharded",
        [("batch_size=32)", "batch_size=32, num_workers=2)")],
        SAMPLING,
    ),
    "persistent workers freeze the data set": (
        "stateful_dataset",
        [("num_workers=args.workers)", "num_workers=args.workers, persistent_workers=True)")],
        SAMPLING,
    ),
    "split moved by an extra draw": (
        "random_split_seeded",
        [("    dataset = Waves(64)", "    dataset = Waves(64); torch.rand(1)")],
        EXACT,
    ),
    "weights renamed in the checkpoint": (
        "dp_like",
        [("raw.state_dict()", '{"module." + k: v for k, v in raw.state_dict().items()}')],
        SAMPLING,
    ),
    "in-place operation reaches the data set": (
        "tabular",
        [
            (
                "        with torch.no_grad():\n            for rows, price in test_loader",
                "        with torch.no_grad():\n            for rows, price in [(x_test, y_test)]",
            )
        ],
        SAMPLING,
    ),
    "a warning that was not there": (
        "module_level",
        [("shuffle=True)", "shuffle=True, pin_memory=True)")],
        EXACT,
    ),
    "a printed value turned into a tensor": (
        "rnn_truncated",
        [
            ("total_loss += loss.item()", "total_loss += loss.detach()"),
            ("{current:.3f}", "{str(current)}"),
        ],
        SAMPLING,
    ),
    "a sum in half precision": (
        "item_sums",
        [
            ("loss.item() * x.size(0)", "loss.detach().bfloat16() * x.size(0)"),
            ("{running_loss /", "{float(running_loss) /"),
            ("running_loss / seen, ", "float(running_loss / seen), "),
        ],
        ROUNDING,
    ),
    "training in evaluation mode": (
        "eval_without_no_grad",
        [("    net.train()\n    return", "    return"), ("        net.train()\n", "")],
        ROUNDING,
    ),
    "crash": ("sparse_embedding", [("lr=0.5)", "lr=0.5, fused=True)")], SAMPLING),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_seeded_fault_is_seen(fault):
    name, changes, effect = FAULTS[fault]
    before, after = both(edited(name), edited(name, *changes))
    assert compare(before, after, effect)


SPANNING = [
    (
        "for epoch in range(EPOCHS):\n    net.train()",
        "cast = torch.autocast('cpu', dtype=torch.bfloat16)\ncast.__enter__()\nfor epoch in range(EPOCHS):\n    net.train()",
    ),
]
INSIDE = [
    (
        "    pred = net(X)\n        loss = loss_fn(pred, y)",
        "    with torch.autocast('cpu', dtype=torch.bfloat16):\n            pred = net(X)\n            loss = loss_fn(pred, y)",
    )
]


def test_autocast_around_the_step_is_seen_and_autocast_around_the_forward_is_tolerated():
    before, inside = both(edited("module_level"), edited("module_level", *INSIDE))
    assert compare(before, inside, ROUNDING, HALF) == []
    assert compare(before, HARNESS.run(edited("module_level", *SPANNING)), ROUNDING, HALF)


UNSCALED = [
    (
        "            nn.utils.clip_grad_norm_",
        "            scaler.unscale_(optimizer)\n            nn.utils.clip_grad_norm_",
    )
]


def test_the_scaler_really_runs_when_faked():
    """Gradients that are clipped while scaled: no error, hardly any training. Only an enabled
    scaler shows it.
    """
    plain = HARNESS.run(edited("existing_amp", args=("--no-amp",)))
    wrong, right = both(
        edited("existing_amp", fake=True), edited("existing_amp", *UNSCALED, fake=True)
    )
    assert compare(plain, right, ROUNDING, HALF) == []
    assert compare(plain, wrong, ROUNDING, HALF)
    assert right.files["bars.pt"]["scaler.scale"] == 256.0
    assert "scaler.scale" not in HARNESS.run(edited("existing_amp")).files["bars.pt"], (
        "without the fake the scaler is off"
    )


def test_faked_autocast_leaves_islands_of_full_precision_alone(tmp_path):
    kernels = tmp_path / "kernels.py"
    kernels.write_text(
        "import torch\ntorch.backends.mkldnn.set_flags(False)\n"
    )  # as the fake does: the last bit of gradients hangs on it
    island = [
        ("torch.autocast(device.type, enabled=False)", "torch.autocast(device.type, enabled=True)")
    ]
    before, after = both(
        edited("explicit_intent", fake=True), edited("explicit_intent", *island, fake=True)
    )
    assert (
        compare(HARNESS.run(replace(edited("explicit_intent"), before=str(kernels))), before, EXACT)
        == []
    )
    assert compare(before, after, EXACT) and before.losses != after.losses


def test_equal_runs_are_equal_and_run_once():
    job = edited("gan")
    first, again = both(job, edited("gan", ("parser.parse_args()", "(parser.parse_args())")))
    assert compare(first, again, EXACT) == []
    assert HARNESS.run(job) is first


def test_workers_run_in_a_forked_child():
    before, after = both(
        edited("stateful_dataset", args=("--workers", "0")),
        edited("stateful_dataset", args=("--workers", "2")),
    )
    assert compare(before, after, EXACT) == []


def test_a_second_run_goes_on_from_the_first():
    job = Job(
        FIXTURES / "segmentation_cnn",
        args=("--epochs", "1"),
        then=("--epochs", "1", "--resume", "checkpoints/last.pth"),
    )
    run = HARNESS.run(job)
    assert run.then is not None and run.then.ok
    assert "resumed at epoch 1" in run.then.stdout
    assert run.then.losses[0] < run.losses[0]


def test_what_a_run_records(tmp_path):
    (tmp_path / "train.py").write_text(
        "import sys, warnings, torch\n"
        "p = torch.nn.Parameter(torch.ones(2))\n"
        "opt = torch.optim.SGD([p], lr=0.5)\n"
        "for _ in range(3):\n"
        "    opt.zero_grad(); (p * 2).sum().backward(); opt.step()\n"
        "warnings.warn('careful'); print('done', sys.argv[1:])\n"
        "torch.save({'a': [p.data, 3]}, 'x.pt'); open('log.txt', 'w').write('hi')\n"
        "raise SystemExit(4)\n"
    )
    run = HARNESS.run(Job(tmp_path, args=("--k", "1")))
    assert run.losses == [4.0, 0.0, -4.0]
    assert run.steps == 3
    assert [p.tolist() for p in run.start[0] + run.params[0]] == [[1.0, 1.0], [-2.0, -2.0]]
    assert run.stdout == "done ['--k', '1']\n"
    assert run.warnings == ["UserWarning: careful"]
    assert run.error == "SystemExit: 4"
    assert run.files["log.txt"] == "hi"
    assert run.files["x.pt"]["a[0]"].tolist() == [-2.0, -2.0] and run.files["x.pt"]["a[1]"] == 3
    stopped = HARNESS.run(Job(tmp_path, stop_after=2))
    assert (stopped.steps, stopped.error, stopped.files) == (2, "", {})


@pytest.mark.parametrize(
    ("code", "error"),
    [
        ("import os; os._exit(3)", "the process ended with status 3"),
        ("while True: pass", "more than 1 s"),
        ("def f(:", "SyntaxError: invalid syntax (train.py, line 1)"),
        (
            "import no_such_module_at_all",
            "ModuleNotFoundError: No module named 'no_such_module_at_all'",
        ),
    ],
)
def test_how_a_run_can_end(tmp_path, code, error):
    (tmp_path / "train.py").write_text(code)
    assert HARNESS.run(Job(tmp_path, limit=1)).error == error
