"""sdpa: every way to write attention out gives the same outputs and gradients in one call, and what
is not the same stays.
"""

from __future__ import annotations

import pytest

from autofast.rule import Effect
from tests.onerule import Applied, apply, run

RULE = "sdpa"
SCRIPT = """
import math
import numpy as np
import torch
import torch.nn as nn
import torch.nn.functional as F
{imports}

torch.manual_seed(0)


class Attention(nn.Module):
    def __init__(self, width=16, heads=4, length=8, drop={drop}):
        super().__init__()
        self.heads, self.dropout = heads, drop
        self.scale = (width // heads) ** -0.5
        self.seen = None
        self.temperature = (width // heads) ** 0.5
        self.to_q, self.to_k, self.to_v = (nn.Linear(width, width) for _ in range(3))
        self.drop, self.softmax = nn.Dropout(drop), nn.Softmax(dim=-1)
        self.register_buffer("lower", torch.tril(torch.ones(length, length)).view(1, 1, length, length))
        self.register_buffer("upper", torch.triu(torch.ones(length, length), diagonal=1).bool())

    def split(self, x):
        B, T, C = x.shape
        return x.view(B, T, self.heads, C // self.heads).transpose(1, 2)

    def forward(self, x, mask=None):
        B, T, C = x.size()
        q = self.to_q(x).view(B, T, self.heads, C // self.heads).transpose(1, 2)
        k = self.to_k(x).view(B, T, self.heads, C // self.heads).transpose(1, 2)
        v = self.to_v(x).view(B, T, self.heads, C // self.heads).transpose(1, 2)
        {code}
        return y.transpose(1, 2).reshape(B, T, C)


model = Attention()
head = nn.Linear(16, 1)
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
losses, outputs, gradients = [], [], []
keep = torch.ones(2, 1, 1, 8, dtype=torch.bool)
keep[1, :, :, 5:] = False
if {empty}:
    keep[1] = False
for step in range(3):
    x = torch.randn(2, 8, 16)
    y = model(x, keep)
    loss = head(y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    outputs.append(y.detach())
    gradients.append(model.to_q.weight.grad.clone())
"""
CAUSAL = "att = att.masked_fill(self.lower[:, :, :T, :T] == 0, float('-inf'))"


def made(code: str, *, drop: float = 0.0, empty: bool = False, imports: str = "") -> Applied:
    text = SCRIPT.format(
        code=code.strip().replace("\n", "\n        "), drop=drop, empty=empty, imports=imports
    )
    return apply(RULE, text)


def same(found: Applied) -> None:
    """Both texts give the same outputs, gradients and losses up to rounding, with rows that nothing
    masks as a whole.
    """
    import torch

    before, after = run(found.before), run(found.text)
    for name in ("outputs", "gradients"):
        for a, b in zip(before[name], after[name], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    assert before["losses"] == pytest.approx(after["losses"], rel=1e-5)
    assert max(map(abs, before["losses"])) > 0


def call(found: Applied) -> str:
    """The call that was written, on one line."""
    text = found.text[found.text.index("y = ") :]
    assert len(found.fixes) == 1, found.refusals
    whole = next(p for p in (text[: n + 1] for n in range(len(text))) if _closed(p))
    words = " ".join(whole.split()).replace("( ", "(").replace(" )", ")").replace(",)", ")")
    return words.removeprefix("y = F.scaled_dot_product_attention")


def _closed(text: str) -> bool:
    return "attention(" in text and text.count("(") == text.count(")") and text.endswith(")")


FORMS = {
    "minGPT": (
        f"""
att = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
{CAUSAL}
att = F.softmax(att, dim=-1)
att = self.drop(att)
y = att @ v
""",
        "(q, k, v, dropout_p=self.drop.p if self.training else 0.0, is_causal=True)",
    ),
    "softmax in fp32, as the call computes": (
        """
att = (q @ k.transpose(-2, -1)) * self.scale
att = F.softmax(att, dim=-1, dtype=torch.float32).type_as(q)
y = att @ v
""",
        "(q, k, v, scale=self.scale)",
    ),
    "no mask, in one expression": (
        "y = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(q.size(-1)), dim=-1) @ v",
        "(q, k, v)",
    ),
    "a scale of its own": (
        "y = torch.softmax(torch.matmul(q, k.mT) * self.scale, dim=-1) @ v",
        "(q, k, v, scale=self.scale)",
    ),
    "divided": (
        """
dots = torch.matmul(q / self.temperature, k.transpose(2, 3))
weights = dots.softmax(dim=-1)
y = torch.matmul(weights, v)
""",
        "(q, k, v, scale=1 / self.temperature)",
    ),
    "no scale at all": (
        "y = torch.matmul(self.softmax(q.matmul(k.permute(0, 1, 3, 2))), v)",
        "(q, k, v, scale=1.0)",
    ),
    "einsum": (
        """
energy = torch.einsum("bhqd,bhkd->bhqk", [q, k]) if False else torch.einsum("bhqd,bhkd->bhqk", q, k)
y = torch.einsum("bhqk,bhkd->bhqd", torch.softmax(energy * self.scale, dim=-1), v)
""".replace('torch.einsum("bhqd,bhkd->bhqk", [q, k]) if False else ', ""),
        "(q, k, v, scale=self.scale)",
    ),
    "einsum with the result turned": (
        """
scores = F.softmax(torch.einsum("bhid, bhjd->bhij", q, k) / self.temperature, dim=-1)
y = torch.einsum("bhij, bhjd->bihd", scores, v).transpose(1, 2)
""",
        "(q, k, v, scale=1 / self.temperature)",
    ),
    "einsum of heads behind positions": (
        """
q, k, v = q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2)
energy = torch.einsum("nqhd,nkhd->nhqk", [q, k])
weights = torch.softmax(energy / 4, dim=3)
y = torch.einsum("nhql,nlhd->nqhd", [weights, v]).transpose(1, 2)
""".replace(
            """if mask is not None:
    energy = energy.masked_fill(mask == 0, float("-inf"))
""",
            "",
        ),
        "(q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), scale=1 / 4)",
    ),
    "einsum with positions first": (
        """
q, k, v = (t.permute(2, 0, 1, 3) for t in (q, k, v))
energy = torch.einsum("qbhd,kbhd->bhqk", q * self.scale, k)
y = torch.einsum("bhqk,kbhd->bhqd", energy.softmax(dim=-1), v)
""",
        "(q.permute(1, 2, 0, 3), k.permute(1, 2, 0, 3), v.permute(1, 2, 0, 3), scale=self.scale)",
    ),
    "einsum with positions last": (
        """
q, k, v = (t.transpose(2, 3) for t in (q, k, v))
sim = torch.einsum("bhdi,bhdj->bhij", q * self.scale, k)
y = torch.einsum("bhij,bhdj->bhid", sim.softmax(dim=-1), v)
""",
        f"({', '.join(f'{x}.transpose(2, 3).contiguous()' for x in 'qkv')}, scale=self.scale)",
    ),
    "a variable for the width": (
        """
d_k = q.size(-1)
scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(d_k)
y = torch.matmul(scores.softmax(-1), v)
""",
        "(q, k, v)",
    ),
    "a mask of bool, -inf": (
        """
scores = q @ k.transpose(-2, -1) * self.scale
scores = scores.masked_fill(mask == 0, -math.inf)
y = scores.softmax(dim=-1) @ v
""",
        "(q, k, v, attn_mask=mask != 0, scale=self.scale)",
    ),
    "a mask that is turned": (
        """
scores = q @ k.transpose(-2, -1) * self.scale
scores = scores.masked_fill(~mask, -np.inf)
y = scores.softmax(dim=-1) @ v
""",
        "(q, k, v, attn_mask=mask, scale=self.scale)",
    ),
    "a mask of what is left out": (
        """
hidden = mask.logical_not()
scores = q @ k.transpose(-2, -1) * self.scale
scores = scores.masked_fill(hidden, float("-inf"))
y = scores.softmax(dim=-1) @ v
""",
        "(q, k, v, attn_mask=hidden.logical_not(), scale=self.scale)",
    ),
    "a mask that is filled in place": (
        """
scores = torch.matmul(q, k.transpose(-2, -1)) * self.scale
scores.masked_fill_(mask == 0, float("-inf"))
y = scores.softmax(dim=-1) @ v
""",
        "(q, k, v, attn_mask=mask != 0, scale=self.scale)",
    ),
    "where": (
        """
scores = torch.where(mask, q @ k.transpose(-2, -1) * self.scale, float("-inf"))
y = scores.softmax(dim=-1) @ v
""",
        "(q, k, v, attn_mask=mask, scale=self.scale)",
    ),
    "perhaps a mask": (
        """
scores = q @ k.transpose(-2, -1) * self.scale
if mask is not None:
    scores = scores.masked_fill(mask == 0, -1e9)
y = F.softmax(scores, dim=-1) @ v
""",
        "(q, k, v, attn_mask=None if mask is None else torch.where(mask == 0, -1e9, 0.0), scale=self.scale)",
    ),
    "the upper triangle": (
        """
scores = q @ k.transpose(-2, -1) * self.scale
scores = scores.masked_fill(self.upper[:T, :T], -1e9)
y = F.softmax(scores, dim=-1) @ v
""",
        "(q, k, v, is_causal=True, scale=self.scale)",
    ),
    "a triangle made here": (
        """
seen = torch.tril(torch.ones(T, T)).bool()
scores = q @ k.transpose(-2, -1) * self.scale
scores = scores.masked_fill(seen == 0, float("-inf"))
y = F.softmax(scores, dim=-1) @ v
""",
        "(q, k, v, is_causal=True, scale=self.scale)",
    ),
    "another triangle": (
        """
scores = q @ k.transpose(-2, -1) * self.scale
scores = scores.masked_fill(self.lower[:, :, -T:, :T] == 0, float("-inf"))
y = F.softmax(scores, dim=-1) @ v
""",
        "(q, k, v, attn_mask=self.lower[:, :, -T:, :T] != 0, scale=self.scale)",
    ),
    "floats that are added": (
        """
near = torch.zeros(T, T)
scores = q @ k.transpose(-2, -1) * self.scale + near
y = F.softmax(scores, dim=-1) @ v
""",
        "(q, k, v, attn_mask=near, scale=self.scale)",
    ),
    "floats of a caller, with the model's dtype": (
        """
def attend(q, k, v, added):
    scores = torch.matmul(q, k.transpose(-1, -2)) * self.scale + added
    y = torch.matmul(F.softmax(scores, dim=-1), v)
    return y
added = mask[:, :, :, :T].to(dtype=x.dtype)
added = (1.0 - added) * -10000.0
y = attend(q, k, v, added)
""",
        "(q, k, v, attn_mask=added, scale=self.scale)",
    ),
}
ADDED = "added = {mask}\ny = (q @ k.transpose(-2, -1) * self.scale + added).softmax(-1) @ v"


@pytest.mark.parametrize(("code", "expected"), FORMS.values(), ids=FORMS)
def test_one_call_gives_the_same(code: str, expected: str) -> None:
    found = made(code)
    assert call(found) == expected
    assert "softmax(" not in found.text.replace("nn.Softmax(", "")
    same(found)


TRIANGLE = """
class Triangle:
    def __init__(self, B, L, device="cpu", of=None):
        with torch.no_grad():
            self._mask = torch.triu(torch.ones([B, 1, L, L], dtype=torch.bool), diagonal=1).to(device)

    @property
    def mask(self):
        return self._mask
"""
INFORMER = """
scale = 1.0 / math.sqrt(q.shape[-1])
scores = torch.einsum("bhid,bhjd->bhij", q, k)
if mask is not None and self.heads > 1:
    seen = Triangle(B, T, device=q.device)
    scores.masked_fill_(seen.mask, -np.inf)
weights = self.drop(torch.softmax(scale * scores, dim=-1))
y = torch.einsum("bhij,bhjd->bhid", weights, v)
"""


def test_scores_that_are_filled_below_a_condition_and_scaled_then() -> None:
    """-inf is -inf, whatever it is multiplied by; the mask of an object is a property of it."""
    found = made(INFORMER, imports=TRIANGLE)
    dropped = "dropout_p=self.drop.p if self.training else 0.0, "
    assert call(found) == f"(q, k, v, attn_mask=keep_2, {dropped}scale=scale)"
    assert "        keep_2 = None\n        if mask" in found.text
    assert "keep_2 = seen.mask.logical_not()" in found.text
    same(found)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("-np.inf", "-1e9"),
        ("scale = 1.0", "scale = -1.0"),
        ("weights =", "scores += 1\nweights ="),
        ("y = ", "print(scores)\ny = "),
        ("weights =", "scores.masked_fill_(seen.mask, -np.inf)\nweights ="),
        ("device=q.device)", "of=q.mul_(2))"),
        ("-np.inf)", "-np.inf)\nelse:\n    scores.masked_fill_(scores > 9, -np.inf)"),
    ],
)
def test_scores_that_are_filled_otherwise(old: str, new: str) -> None:
    assert not made(INFORMER.replace(old, new, 1), imports=TRIANGLE).fixes


def test_what_is_made_for_the_mask_may_write_to_the_query() -> None:
    writes = TRIANGLE.replace(
        "        with", "        if of is not None:\n            of.mul_(2)\n        with"
    )
    given = INFORMER.replace("device=q.device", "of=q")
    assert "may change `q`" in made(given, imports=writes).refusals
    assert made(given, imports=TRIANGLE).fixes


def test_floats_that_some_callers_leave_out() -> None:
    code = """
def attend(q, k, v, added=None):
    scores = q @ k.transpose(-1, -2) * self.scale
    if added is not None:
        scores = scores + added
    y = scores.softmax(dim=-1) @ v
    return y
rest = {given}
y = attend(q, k, v) + attend(q, k, v, rest)
"""
    found = made(code.replace("{given}", "torch.zeros(T, T)"))
    assert "attn_mask=added, scale" in found.text
    same(found)
    unknown = code.replace("{given}", "torch.zeros(T, T, dtype=torch.double)")
    assert not made(unknown).fixes


def test_the_result_is_turned_as_einsum_turns_it() -> None:
    found = made(FORMS["einsum with the result turned"][0])
    assert found.text.count(".transpose(1, 2)") == found.before.count(".transpose(1, 2)") + 1


def test_a_result_with_the_positions_last_lies_as_a_view_needs_it() -> None:
    found = made("""
weights = (q @ k.transpose(-2, -1)).softmax(dim=-1)
y = torch.einsum("bhij,bhjd->bhdi", weights, v).view(B, -1, T)
y = y.view(B, self.heads, -1, T).transpose(2, 3)
""")
    assert ".transpose(2,3).contiguous()" in "".join(found.text.split())
    same(found)


@pytest.mark.parametrize("axes", ["bhij,bhjd->bjid", "bhij,bijd->bhid"])
def test_other_sums_over_the_weights_stay(axes: str) -> None:
    code = f'''
v = v[:, :, :T]
weights = (q @ k.transpose(-2, -1)).softmax(dim=-1)
y = torch.einsum("{axes}", weights, v)
y = y.reshape(B, self.heads, T, -1)[..., :4]
'''
    assert not made(code).fixes


def test_what_is_no_longer_needed_goes() -> None:
    found = made(FORMS["a variable for the width"][0])
    assert "d_k" not in found.text and "scores" not in found.text


def test_a_row_that_is_masked_as_a_whole_is_the_mean_of_all_with_other_gradients() -> None:
    """-1e9 in a whole row: the outputs are the same, the gradients are not, so it is done on
    request only.
    """
    import torch

    found = made(FORMS["perhaps a mask"][0], empty=True)
    assert found.fixes[0].effect is Effect.RECIPE
    before, after = run(found.before), run(found.text)
    torch.testing.assert_close(before["outputs"][0], after["outputs"][0], rtol=1e-4, atol=1e-6)
    assert not torch.allclose(before["gradients"][0], after["gradients"][0], rtol=1e-2)
    causal = made(FORMS["the upper triangle"][0])
    assert causal.fixes[0].effect is Effect.ROUNDING


@pytest.mark.parametrize(
    ("drop", "expected"),
    [
        (
            "F.dropout(att, p=self.dropout, training=self.training)",
            "self.dropout if self.training else 0.0",
        ),
        ("F.dropout(att, 0.25)", "0.25"),
        ("self.drop(att)", "self.drop.p if self.training else 0.0"),
    ],
)
def test_dropout_is_drawn_by_the_call_and_in_training_alone(drop: str, expected: str) -> None:
    import torch

    code = (
        f"att = F.softmax(q @ k.transpose(-2, -1) * self.scale, dim=-1)\natt = {drop}\ny = att @ v"
    )
    found = made(code, drop=0.25)
    assert call(found) == f"(q, k, v, dropout_p={expected}, scale=self.scale)"
    assert found.fixes[0].effect is not None and found.fixes[0].effect.name == "SAMPLING"
    models = [run(text)["model"] for text in (found.before, found.text)]
    models[1].load_state_dict(models[0].state_dict())
    x = torch.randn(2, 8, 16)
    if "0.25" not in drop:
        a, b = (m.eval()(x) for m in models)
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-6)
    means = [torch.stack([m.train()(x) for _ in range(600)]).mean(0) for m in models]
    torch.testing.assert_close(*means, rtol=0.1, atol=0.05)


def test_dropout_of_nothing_is_left_out() -> None:
    code = (
        "att = F.dropout(F.softmax(q @ k.transpose(-2, -1) * self.scale, dim=-1), 0.0)\ny = att @ v"
    )
    assert call(made(code)) == "(q, k, v, scale=self.scale)"


KEPT = {
    "the weights are used": (
        "att = F.softmax(q @ k.transpose(-2, -1) * self.scale, dim=-1)\nself.seen = att\ny = att @ v",
        "uses the attention weights, too",
    ),
    "two masks": (
        f"att = q @ k.transpose(-2, -1) * self.scale\n{CAUSAL}\natt = att.masked_fill(mask == 0, -1e9)\ny = att.softmax(-1) @ v",
        "two masks are applied",
    ),
    "a small number": (
        "att = q @ k.transpose(-2, -1) * self.scale\natt = att.masked_fill(mask == 0, -10.0)\ny = att.softmax(-1) @ v",
        "nothing shows that masked scores are set to -inf",
    ),
    "the largest number": (
        "att = q @ k.transpose(-2, -1) * self.scale\natt = att.masked_fill(mask == 0, torch.finfo(q.dtype).min)\ny = att.softmax(-1) @ v",
        "a row may be masked as a whole",
    ),
    "the mask is scaled": (
        "att = q @ k.transpose(-2, -1)\natt = att.masked_fill(mask == 0, -1e9) * self.scale\ny = att.softmax(-1) @ v",
        "the mask is scaled, too",
    ),
    "something is written on the way": (
        "att = (q @ k.transpose(-2, -1) * self.scale).softmax(-1)\nk.mul_(2)\nq = q + 1\ny = att @ v",
        "on the way to the product",
    ),
    "integers that are added": (
        "near = torch.zeros(T, T, dtype=torch.long)\ny = (q @ k.transpose(-2, -1) * self.scale + near).softmax(-1) @ v",
        "nothing shows that what is added",
    ),
    "integers of a mask": (
        ADDED.format(mask="(1 - mask[:, :, :, :T].to(x.dtype)) * -9"),
        "that what is added",
    ),
    "the dtype of something": (
        ADDED.format(mask="mask[:, :, :, :T].to(x.dtype)"),
        "that what is added",
    ),
    "halves": (
        ADDED.format(mask="(1.0 - mask[:, :, :, :T].to(torch.half)) * -9.0"),
        "that what is added",
    ),
}


def test_a_softmax_in_halves_stays() -> None:
    code = "att = F.softmax(q @ k.transpose(-2, -1), dim=-1, dtype=torch.bfloat16)\ny = att @ v"
    assert not made(code).findings


@pytest.mark.parametrize(("code", "why"), KEPT.values(), ids=KEPT)
def test_what_is_not_the_same_stays(code: str, why: str) -> None:
    found = made(code)
    assert not found.fixes and why in found.refusals


@pytest.mark.parametrize(
    "code",
    [
        "y = F.softmax(q @ k.transpose(-2, -1), dim=1) @ v",
        "y = F.softmax(q @ k.transpose(-2, -1), dim=2) @ v",
        "y = F.softmax(q * 2, dim=-1) * v",
        "y = F.softmax(q @ k.transpose(1, 2).reshape(k.shape).mT + 0.0, dim=-2) @ v",
        "y = v @ F.softmax(q.transpose(1, 2).transpose(1, 2).mT @ k, dim=-1)",
        "y = F.scaled_dot_product_attention(q, k, v) if T > 4 else F.softmax(q @ k.mT, dim=-1) @ v",
    ],
)
def test_other_uses_of_softmax_are_none(code: str) -> None:
    found = made(code)
    assert not found.findings


@pytest.mark.parametrize(
    ("more", "why"),
    [
        (
            "gradient = torch.autograd.grad(head(model(x)).sum(), head.weight, create_graph=True)",
            "gradients of gradients",
        ),
        ("torch.use_deterministic_algorithms(True)", "deterministic"),
        ("torch.func.vmap(head)(x)", "torch.func"),
    ],
)
def test_what_the_script_asks_for_speaks_against_it(more: str, why: str) -> None:
    code = FORMS["no scale at all"][0]
    text = SCRIPT.format(code=code, drop=0.0, empty=False, imports="") + more + "\n"
    found = apply(RULE, text)
    assert not found.fixes and why in found.refusals


def test_hooks_see_the_layers_and_casts_the_masks() -> None:
    hook = "\nmodel.softmax.register_forward_hook(lambda *given: None)\n"
    text = SCRIPT.format(code=FORMS["no scale at all"][0], drop=0.0, empty=False, imports="")
    found = apply(RULE, text + hook)
    assert not found.fixes and "sets a hook" in found.refusals
    code = FORMS["perhaps a mask"][0].strip().replace("\n", "\n        ")
    found = apply(
        RULE, SCRIPT.format(code=code, drop=0.0, empty=False, imports="") + "\nmodel.double()\n"
    )
    assert not found.fixes and "changes dtypes" in found.refusals


def test_an_old_torch_has_no_scale() -> None:
    text = SCRIPT.format(code=FORMS["no scale at all"][0], drop=0.0, empty=False, imports="")
    found = apply(RULE, text, files={"requirements.txt": "torch==1.13.1\n"})
    assert not found.fixes and "torch ==1.13.1" in found.refusals


LAYER = """
import torch
import torch.nn as nn

torch.manual_seed(0)


class Block(nn.Module):
    def __init__(self, drop):
        super().__init__()
        self.attention = nn.MultiheadAttention(16, 4, dropout=drop, batch_first=True)

    def forward(self, x, hidden):
        {code}
        return x + y


model = Block({drop})
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
hidden = torch.zeros(2, 8, dtype=torch.bool)
hidden[0, 5:] = True
losses, outputs, gradients = [], [], []
for step in range(3):
    x = torch.randn(2, 8, 16)
    y = model(x, hidden)
    loss = y.pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    outputs.append(y.detach())
    gradients.append(model.attention.in_proj_weight.grad.clone())
"""


@pytest.mark.parametrize(
    ("code", "written"),
    [
        (
            "y = self.attention(x, x, x, key_padding_mask=hidden)[0]",
            "y = self.attention(x, x, x, key_padding_mask=hidden, need_weights=False)[0]",
        ),
        (
            "y, _ = self.attention(x, x, x, hidden)",
            "y, _ = self.attention(x, x, x, hidden, need_weights=False)",
        ),
    ],
)
def test_a_layer_whose_weights_are_dropped(code: str, written: str) -> None:
    found = apply(RULE, LAYER.format(code=code, drop=0.0))
    assert found.lines == [written] and found.fixes[0].effect is Effect.ROUNDING
    same(found)
    found = apply(RULE, LAYER.format(code=code, drop=0.1))
    assert found.fixes[0].effect is Effect.SAMPLING


@pytest.mark.parametrize(
    "code",
    [
        "y, w = self.attention(x, x, x); self.seen = w",
        "y = self.attention(x, x, x)[0 if hidden.any() else 1]",
        "y = self.attention(x, x, x, need_weights=True)[0]",
        "y = self.attention(x, x, x, None, True)[0]",
    ],
)
def test_a_layer_whose_weights_are_used_or_asked_for(code: str) -> None:
    assert not apply(RULE, LAYER.format(code=code, drop=0.0)).findings


def whole(code: str, more: str = "", drop: float = 0.0) -> Applied:
    """The script with lines behind the model is made."""
    text = SCRIPT.format(
        code=code.strip().replace("\n", "\n        "), drop=drop, empty=False, imports=""
    )
    return apply(RULE, text.replace("head = nn.Linear", f"{more}\nhead = nn.Linear", 1))


@pytest.mark.parametrize(
    "more",
    [
        "model.lower[:, :, :, :3] = 1",
        "model.lower[..., :3].fill_(1)",
        "model.lower.squeeze()[:, 2::3] = 0",
        "model.lower.copy_(torch.ones(8, 8))",
        "model.register_buffer(name='lower', tensor=torch.ones(1, 1, 8, 8))",
        "setattr(model, 'lower', torch.ones(1, 1, 8, 8))",
        "model.lower, model.other = torch.ones(1, 1, 8, 8), 1",
        "for n, b in model.named_buffers():\n    if n.endswith('lower'):\n        b.fill_(1)",
        "for n, b in model.state_dict().items():\n    if n.endswith('lower'):\n        b.fill_(1)",
        "for n, b in model._buffers.items():\n    if n == 'lower':\n        b.fill_(1)",
    ],
)
def test_a_triangle_that_is_written_to_is_none(more: str) -> None:
    found = whole(FORMS["minGPT"][0], more)
    assert found.fixes and "is_causal" not in found.text and "attn_mask=self.lower" in found.text
    same(found)


@pytest.mark.parametrize("asked", ["n.endswith('lower')", "'lower' in n", "n == 'lower'"])
def test_a_name_that_is_asked_for_among_parameters_sets_nothing(asked: str) -> None:
    decay = f"decayed = [p for n, p in model.named_parameters() if not {asked}]"
    found = whole(FORMS["minGPT"][0], decay)
    assert "is_causal=True" in call(found)
    same(found)


def test_a_triangle_that_is_changed_before_it_is_kept() -> None:
    prefix = """
seen = torch.tril(torch.ones(T, T))
seen[:, :3] = 1
scores = (q @ k.transpose(-2, -1) * self.scale).masked_fill(seen == 0, float("-inf"))
y = F.softmax(scores, dim=-1) @ v
"""
    found = made(prefix)
    assert "attn_mask=seen != 0" in found.text
    same(found)


def test_one_query_and_more_keys_see_all_of_them() -> None:
    """A mask of one position fits all scores: a cache of keys, the last query alone."""
    cached = FORMS["minGPT"][0].replace(
        "att = (q",
        "k, v = torch.cat([k, k], 2)[:, :, :T], torch.cat([v, v], 2)[:, :, :T]\natt = (q",
    )
    found = made(cached)
    assert found.fixes and "is_causal" not in found.text
    same(found)


def test_dropout_that_is_switched_apart_keeps_its_own_mode() -> None:
    code = "att = F.softmax(q @ k.transpose(-2, -1) * self.scale, dim=-1)\natt = self.drop(att)\ny = att @ v"
    found = whole(code, "model.drop.eval()", drop=0.5)
    assert "dropout_p=self.drop.p if self.drop.training else 0.0" in found.text
    same(found)


@pytest.mark.parametrize(
    ("code", "why"),
    [
        ("F = 2.0\ny = torch.softmax(q @ k.mT * F, dim=-1) @ v", "`F` is a variable here"),
        ("y = torch.softmax(torch.arange(4.0) @ k.mT, dim=-1) @ v[0, 0]", "has one dimension"),
        ("hidden = torch.arange(T) > 5\ny = (q @ k.mT).masked_fill(hidden, float('-inf')).softmax(-1) @ v", "two dimensions or more"),
    ],
)  # fmt: skip
def test_what_the_call_cannot_take_stays(code: str, why: str) -> None:
    found = made(code)
    assert not found.fixes and why in found.refusals


def test_models_that_are_cast_by_to_and_torchscript() -> None:
    found = whole(FORMS["perhaps a mask"][0], "model.to(torch.float64)")
    assert not found.fixes and "changes dtypes" in found.refusals
    text = LAYER.format(code="y = self.attention(x, x, x)[0]", drop=0.0)
    found = apply(RULE, text + "\ntorch.jit.script(nn.ReLU())\n")
    assert not found.fixes and "TorchScript" in found.refusals


def test_a_layer_with_a_hook_or_told_to_be_causal() -> None:
    text = LAYER.format(code="y = self.attention(x, x, x)[0]", drop=0.0)
    found = apply(RULE, text + "\nmodel.attention.register_forward_hook(lambda *given: None)\n")
    assert not found.fixes and "sets a hook" in found.refusals
    code = "y = self.attention(x, x, x, attn_mask=torch.ones(8, 8).triu(2) > 0, is_causal=True)[0]"
    assert not apply(RULE, LAYER.format(code=code, drop=0.0)).findings


def test_scores_that_are_computed_in_float_and_a_triangle_of_infinities() -> None:
    code = """
near = torch.full((T, T), float("-inf")).triu(1)
scores = q @ k.transpose(2, 3) * self.scale + near
y = F.softmax(scores.float(), dim=-1).type_as(q) @ v
"""
    found = made(code)
    assert call(found) == "(q, k, v, is_causal=True, scale=self.scale)"
    same(found)


def test_a_triangle_that_is_made_where_it_is_missing() -> None:
    code = """
if self.seen is None or self.seen.size(-1) < T:
    self.seen = torch.tril(torch.ones(T, T)).view(1, 1, T, T).to(x.device)
scores = q @ k.transpose(-2, -1) * self.scale
scores = scores.masked_fill(self.seen[:, :, :T, :T] == 0, float("-inf"))
y = F.softmax(scores, dim=-1) @ v
"""
    found = made(code)
    assert call(found) == "(q, k, v, is_causal=True, scale=self.scale)"
    same(found)


def one_head(unpacked: str, given: str = "x") -> Applied:
    """Attention of a single head, as lessons write it: nothing brings the queries into shape."""
    text = SCRIPT.format(code="", drop=0.0, empty=False, imports="")
    head, _, tail = text.partition("    def forward(self, x, mask=None):\n")
    forward = f"""    def forward(self, x, mask=None):
        {unpacked}
        q, k, v = self.to_q({given}), self.to_k({given}), self.to_v({given})
        att = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        att = att.masked_fill(self.lower[0, 0][:T, :T] == 0, float('-inf'))
        y = F.softmax(att, dim=-1) @ v
        return y
"""
    forward = forward.replace("self.lower[0, 0][:T, :T]", "self.triangle[:T, :T]")
    head = head.replace(
        "    def split",
        "        self.register_buffer('triangle', torch.tril(torch.ones(length, length)))\n\n    def split",
    )
    return apply(RULE, head + forward + "\n\n" + tail[tail.index("model = Attention()") :])


@pytest.mark.parametrize(
    "unpacked", ["B, T, C = x.shape", "B, T, C = x.size()", "_, T, _ = x.shape"]
)
def test_a_single_head_is_as_long_as_what_it_is_given(unpacked: str) -> None:
    found = one_head(unpacked)
    assert call(found) == "(q[None], k[None], v[None], is_causal=True)"
    same(found)


@pytest.mark.parametrize(
    ("flat", "form"),
    [
        ("B * self.heads, T, -1", "w = torch.bmm(q, k.transpose(1, 2)) * self.scale"),
        ("B * self.heads, T, -1", "w = (q @ k.transpose(-2, -1)) * self.scale"),
    ],
)
def test_three_dimensions_become_four(flat: str, form: str) -> None:
    """No fused kernel takes another number."""
    code = f"q = q.reshape({flat})\nk = k.reshape({flat})\nv = v.reshape({flat})\n{form}\n"
    code += "y = torch.bmm(w.softmax(-1), v)\ny = y.view(B, self.heads, T, -1)"
    found = made(code)
    assert "(q[None], k[None], v[None], scale=self.scale)[0]" in " ".join(found.text.split())
    same(found)


@pytest.mark.parametrize(("shape", "given"), [("T, C", "q[0, 0]"), ("B, 1, self.heads, T, -1", "")])
def test_other_dimensions(shape: str, given: str) -> None:
    code = f"q = q.reshape({shape})\nk = k.reshape({shape})\nv = v.reshape({shape})\n"
    code += "y = (q @ k.transpose(-2, -1) * self.scale).softmax(-1) @ v\n"
    code += "y = y.reshape(B, self.heads, T, -1)"
    found = made(code.replace("T, C", "B * self.heads * T, -1"))
    if given:
        assert "q[None, None], k[None, None], v[None, None], scale=self.scale" in found.text
        assert ")[0, 0]" in found.text
        same(found)
    else:
        assert not found.fixes and "no fused kernel takes 5 dimensions" in found.refusals


@pytest.mark.parametrize(
    ("unpacked", "given"),
    [
        (
            "B, T, C = x.shape\n        x = torch.cat([x, x], 1)[:, :T]",
            "x",
        ),  # other positions, it may be
        ("T, B, C = x.shape\n        T = 8", "x"),
        ("B, T, C = mask.new_zeros(2, 8, 16).shape", "x"),
        ("B, *more, T, C = x.shape", "x"),
        ("B, T, C = x.shape", "x.transpose(0, 1).transpose(0, 1)"),
    ],
)
def test_a_single_head_whose_length_is_not_certain(unpacked: str, given: str) -> None:
    found = one_head(unpacked, given)
    assert found.fixes and "is_causal" not in found.text
    same(found)


def test_a_chain_behind_it_that_makes_a_long_line() -> None:
    found = made(
        "att = F.softmax(q @ k.transpose(-2, -1) / math.sqrt(k.size(-1)), dim=-1)\n"
        "y = (att @ v).transpose(1, 2).contiguous().transpose(1, 2).contiguous().clone()"
    )
    same(found)
    assert "y = F.scaled_dot_product_attention(q, k, v)" in found.lines
    assert "y = y.transpose(1, 2).contiguous().transpose(1, 2).contiguous().clone()" in found.lines
    short = made("y = (F.softmax(q @ k.mT, dim=-1) @ v).clone()")
    assert "v, scale=1.0).clone()" in short.text


FUNCTION = """
import math
import torch
import torch.nn as nn
import torch.nn.functional as F

torch.manual_seed(0)


ATTENTION


class Heads(nn.Module):
    def __init__(self, width=16, heads=4):
        super().__init__()
        self.heads, self.width = heads, width // heads
        self.layers = nn.ModuleList(nn.Linear(width, width) for _ in range(4))
        self.dropout = nn.Dropout(p=0.0)
        self.attention = Attention()

    def forward(self, query, key, value, mask=None):
        n = query.size(0)
        query, key, value = [
            layer(x).view(n, -1, self.heads, self.width).transpose(1, 2)
            for layer, x in zip(self.layers, (query, key, value))
        ]
        CALLED
        x = x.transpose(1, 2).contiguous().view(n, -1, self.heads * self.width)
        return self.layers[-1](x)


model = Heads()
head = nn.Linear(16, 1)
optimizer = torch.optim.SGD([*model.parameters(), *head.parameters()], lr=0.1)
losses, outputs, gradients = [], [], []
keep = torch.ones(2, 1, 8, dtype=torch.long)
keep[1, :, 5:] = 0
for step in range(3):
    x = torch.randn(2, 8, 16)
    y = model(x, x, x, keep.unsqueeze(1) if step else None)
    loss = head(y).pow(2).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
    outputs.append(y.detach())
    gradients.append(model.layers[0].weight.grad.clone())
"""
RETURNED = """
def attention(query, key, value, mask=None, dropout=None):
    d_k = query.size(-1)
    scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        scores = scores.masked_fill(mask == 0, -1e9)
    p_attn = F.softmax(scores, dim=-1)
    if dropout is not None:
        p_attn = dropout(p_attn)
    return torch.matmul(p_attn, value), p_attn


class Attention(nn.Module):
    def forward(self, query, key, value, mask=None, dropout=None):
        return attention(query, key, value, mask=mask, dropout=dropout)
"""
ALONE = RETURNED.split("class Attention")[0] + "class Attention(nn.Module):\n    pass\n"
MODULE = """
class Attention(nn.Module):
    def forward(self, query, key, value, mask=None, dropout=None):
        scores = torch.matmul(query, key.transpose(-2, -1)) / math.sqrt(query.size(-1))

        if mask is not None:
            scores = scores.masked_fill(mask == 0, -1e9)

        p_attn = F.softmax(scores, dim=-1)

        if dropout:
            p_attn = dropout(p_attn)

        return torch.matmul(p_attn, value), p_attn
"""
SHAPED = """
def attention(q, k, v, d_k, mask=None, dropout=None):
    scores = torch.matmul(q, k.transpose(-2, -1)) / math.sqrt(d_k)
    if mask is not None:
        mask = mask.unsqueeze(1)
        scores = scores.masked_fill(mask == 0, -1e9)
    scores = F.softmax(scores, dim=-1)
    if dropout is not None:
        scores = dropout(scores)
    output = torch.matmul(scores, v)
    return output


class Attention(nn.Module):
    pass
"""
PARTS = "x, attn = self.attention(query, key, value, mask=mask, dropout=self.dropout)"
WHOLE = "mask = None if mask is None else mask.squeeze(1)\nx = attention(query, key, value, self.width, mask, self.dropout)"


def copied(function: str, called: str) -> Applied:
    called = called.replace("\n", "\n        ")
    return apply(RULE, FUNCTION.replace("ATTENTION", function.strip()).replace("CALLED", called))


@pytest.mark.parametrize(
    ("function", "called"),
    [
        (ALONE, PARTS.replace("self.attention", "attention")),
        (RETURNED, PARTS.replace("x, attn", "x, _")),
        (MODULE, PARTS),
        (MODULE, PARTS.replace("x, attn", "x") + "[0]"),
        (SHAPED, WHOLE),
    ],
)
def test_the_function_that_everybody_copies(function: str, called: str) -> None:
    """With a mask that may be None, a dropout that may be None, and weights for nobody."""
    found = copied(function, called)
    assert len(found.fixes) == 1 and found.fixes[0].effect is Effect.RECIPE, found.refusals
    assert "attn_mask=None if mask is None else torch.where(mask == 0, -1e9, 0.0)" in found.text
    assert "dropout_p=dropout.p if dropout is not None and dropout.training else 0.0" in found.text
    assert ("scale=1 / math.sqrt(d_k)" in found.text) == (function is SHAPED)
    assert "softmax" not in found.text and "p_attn" not in found.text
    same(found)


@pytest.mark.parametrize(
    ("function", "called", "why"),
    [
        (ALONE, PARTS.replace("x, attn", "x, self.attn").replace("self.attention", "attention"), "uses the attention weights, too"),
        (MODULE, PARTS + "\nself.seen = attn.detach()", "uses the attention weights, too"),
        (MODULE, PARTS.replace("x, attn", "both") + "\nx = both[0]", "uses the attention weights, too"),
        (SHAPED.replace("mask = mask.unsqueeze(1)", "mask = mask.unsqueeze(1) if d_k else None"), WHOLE, ""),
    ],
)  # fmt: skip
def test_weights_that_somebody_may_read(function: str, called: str, why: str) -> None:
    found = copied(function, called)
    assert not found.fixes and why in found.refusals, found.text
