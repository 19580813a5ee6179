"""The forbidden fixes of the fixtures are rightly forbidden: made naively, each is seen when the
script runs.

Only what a CPU can show: a GPU would be needed for pinned CUDA tensors, ``binary_cross_entropy``
under autocast, determinism of cuDNN, and a platform that spawns for scripts without a main guard.
"""

from __future__ import annotations

import pytest

from autofast.rule import Effect
from tests.harness import HALF, HARNESS, HAVE_TORCH, compare
from tests.test_harness import edited

pytestmark = pytest.mark.skipif(not HAVE_TORCH, reason="running training scripts needs torch")

NO_GRAD, INFERENCE = "with torch.no_grad():", "with torch.inference_mode():"
BF16_FORWARD = "with torch.autocast('cpu', dtype=torch.bfloat16):"
IN_PLACE = "2, 32), *block(32, 32), nn.Linear(32, 1)).to(device)\ncritic.forward = torch.compile(critic.forward)"
HALF_FORWARD = "with torch.autocast('cuda', dtype=torch.float16):"

# rule -> fixture, replacements, whether fp16 and the scaler are executed, what shows it
NAIVE = {
    "wgan_gp compile": (
        [("2, 32), *block(32, 32), nn.Linear(32, 1)).to(device)", IN_PLACE)],
        False,
        "does not currently support double backward",
    ),
    "two_backwards compile": (
        [("Heads().to(device)", "Heads().to(device)\n    model.compile()")],
        False,
        "backward through the graph a second",
    ),
    "feature_hooks compile": (
        [("Net().to(device)", "Net().to(device)\n    model.compile()")],
        False,
        "'0 activations",
    ),
    "eval_escapes no-grad-eval": (
        [(NO_GRAD, INFERENCE)],
        False,
        "Inference tensors cannot be saved for backward",
    ),
    "distillation no-grad-eval": (
        [(f"{NO_GRAD}\n                soft", f"{INFERENCE}\n                soft")],
        False,
        "Inference tensors",
    ),
    "policy_gradient no-grad-eval": (
        [(NO_GRAD, INFERENCE)],
        False,
        "Inference tensors cannot be saved for backward",
    ),
    "adversarial_eval no-grad-eval": (
        [("def robust_accuracy", "@torch.no_grad()\ndef robust_accuracy")],
        False,
        "does not require grad",
    ),
    "view_on_conv channels-last": (
        [
            ("LeNet().to(device)", "LeNet().to(device, memory_format=torch.channels_last)"),
            ("image.to(device)", "image.to(device, memory_format=torch.channels_last)"),
        ],
        False,
        "view size is not compatible",
    ),
    "alternating_heads set-to-none": (
        [("set_to_none=False", "set_to_none=True")],
        False,
        "'NoneType' object has no attribute 'abs'",
    ),
    "alternating_heads set-to-none, momentum": (
        [
            ("set_to_none=False", "set_to_none=True"),
            ('model.heads["sum"].weight.grad.abs().sum()', "torch.zeros(())"),
        ],
        False,
        "what training changed differs",
    ),
    "alternating_heads fused-optimizer": (
        [("weight_decay=1e-2)", "weight_decay=1e-2, fused=True)")],
        False,
        "ends with TypeError",
    ),
    "sparse_embedding fused-optimizer": ([("lr=0.5)", "lr=0.5, fused=True)")], False, "sparse"),
    "caching_dataset num-workers": (
        [("shuffle=True)", "shuffle=True, num_workers=2)")],
        False,
        "served 0",
    ),
    "item_sums a tensor in the log": (
        [("running_loss += loss.item()", "running_loss += loss.detach()")],
        False,
        "not JSON serializable",
    ),
    "numpy_metrics autocast": (
        [
            (
                "            logits = model(glyph.to(device))",
                f"            {BF16_FORWARD}\n                logits = model(glyph.to(device))",
            )
        ],
        False,
        "unsupported ScalarType BFloat16",
    ),
    "mask_fill grad-scaler": (
        [
            (
                "            logits = model(token[:, :-1])",
                f"            {HALF_FORWARD}\n                logits = model(token[:, :-1])",
            )
        ],
        True,
        "without overflow",
    ),
    "focal_loss autocast": (
        [
            (
                "            logits = model(x).squeeze(1)\n",
                f"            {HALF_FORWARD}\n                logits = model(x).squeeze(1)\n",
            ),
            (
                "            loss = criterion(logits, y)\n",
                "                loss = criterion(logits, y)\n",
            ),
        ],
        True,
        "became nan",
    ),
    "grad_logging grad-scaler": (
        [
            (
                "    for epoch in range",
                "    scaler = torch.amp.GradScaler('cuda')\n    for epoch in range",
            ),
            ("loss.backward()", "scaler.scale(loss).backward()"),
            ("optimizer.step()", "scaler.step(optimizer)\n            scaler.update()"),
        ],
        True,
        "0 optimizer steps",
    ),
}


@pytest.mark.parametrize("name", NAIVE)
def test_a_naive_rewrite_goes_wrong(name: str):
    changes, fake, shows = NAIVE[name]
    fixture = name.split()[0]
    before, after = HARNESS.run_many(
        [edited(fixture, fake=fake), edited(fixture, *changes, fake=fake)]
    )
    assert before.ok
    differences = compare(before, after, Effect.ROUNDING, HALF if fake else None)
    assert shows in "\n".join(differences), differences
