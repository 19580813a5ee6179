"""loss-item-sync: a tensor that a loop fills with numbers is made on the device; what is computed
of it stays the same to the last bit.
"""

from __future__ import annotations

import pytest

from tests.onerule import Applied, apply
from tests.test_rule_loss_item_sync import HEAD, indented, output

FUNCTION = """
{decorator}
def estimate():
    out = {{}}
    for name in ("train", "test"):
        losses = {made}
        for k{more} in {over}:
            x, y = next(iter(loader))
            loss = F.cross_entropy(model(x.to(device)), y.to(device))
{step}
{end}
    return out


for epoch in range(2):
    for x, y in loader:
        optimizer.zero_grad()
        F.cross_entropy(model(x.to(device)), y.to(device)).backward()
        optimizer.step()
    print({{k: repr(v) for k, v in estimate().items()}})
"""


def written(
    step: str = "losses[k] = loss.item()",
    end: str = "out[name] = losses.mean()",
    made: str = "torch.zeros(4)",
    decorator: str = "@torch.no_grad()",
    over: str = "range(4)",
    more: str = "",
    head: str = HEAD,
) -> Applied:
    text = head + FUNCTION.format(
        step=indented(step, 12).rstrip(),
        end=indented(end, 8).rstrip(),
        made=made,
        decorator=decorator,
        over=over,
        more=more,
    )
    done = apply("loss-item-sync", text)
    assert output(done.text) == output(text)
    return done


@pytest.mark.parametrize(
    ("made", "now"),
    [
        ("torch.zeros(4)", "torch.zeros(4, device=device)"),
        (
            "torch.empty(4, dtype=torch.float64)",
            "torch.empty(4, dtype=torch.float64, device=device)",
        ),
        ("torch.full((4,), 0.0)", "torch.full((4,), 0.0, device=device)"),
    ],
)
def test_it_is_made_on_the_device(made: str, now: str) -> None:
    done = written(made=made)
    assert f"        losses = {now}\n" in done.text
    assert "            losses[k] = loss\n" in done.text
    assert "        out[name] = losses.cpu().mean()\n" in done.text


def test_a_name_of_a_device() -> None:
    named = HEAD.replace(
        'torch.device("cuda" if torch.cuda.is_available() else "cpu")',
        '"cuda" if torch.cuda.is_available() else "cpu"',
    )
    done = written(head=named)
    assert "torch.zeros(4, device=device)" in done.text and "losses[k] = loss\n" in done.text


def test_no_doubles_where_the_device_may_have_none() -> None:
    mps = HEAD.replace('else "cpu")', 'else "mps" if torch.backends.mps.is_available() else "cpu")')
    done = written(head=mps, made="torch.zeros(4, dtype=torch.float64)")
    assert "device=device)\n        for k" not in done.text
    assert "torch.zeros(4, device=device)" in written(head=mps).text


def test_where_gradients_are_on_the_graph_stays_behind() -> None:
    done = written(decorator="")
    assert "losses[k] = loss.detach()\n" in done.text


def test_what_copies_by_itself() -> None:
    done = written(end="out[name] = losses.tolist()")
    assert "        out[name] = losses.tolist()\n" in done.text and "device=device" in done.text


def test_what_is_used_twice_is_copied_once() -> None:
    done = written(end="out[name] = losses.mean()\nout[name + 's'] = losses.std()")
    assert "        losses = losses.cpu()\n        out[name] = losses.mean()\n" in done.text


def test_what_is_used_in_a_loop_is_copied_above_it() -> None:
    done = written(end="out[name] = 0.0\nfor n in range(4):\n    out[name] += losses[n].item()")
    assert "        losses = losses.cpu()\n        out[name] = 0.0\n" in done.text


@pytest.mark.parametrize(
    "changed",
    [
        {"made": "torch.zeros(4, dtype=torch.long)", "end": "out[name] = losses.sum()"},
        {"made": "torch.zeros(4, pin_memory=False)"},
        {"made": "torch.zeros(4).share_memory_()"},
        {"step": "losses[k] = loss.item() * 2"},
        {"step": "losses[k] = loss.item()\nout[k] = losses.sum()"},  # looked at in the loop
        {"step": "losses[k] = loss.item()\nif k == 2:\n    losses = losses * 2"},
        {"end": "out[name] = (lambda: losses.mean())()"},
    ],
)
def test_what_stays_on_the_host(changed: dict[str, str]) -> None:
    done = written(**changed)
    assert "device=device)\n        for k" not in done.text
