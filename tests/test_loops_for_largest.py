"""python-loop: the largest places of rows that a decoder asks for one by one are found at once."""

from __future__ import annotations

import contextlib
import io

import pytest

from tests.onerule import apply, run
from tests.test_rule_python_loop import script_of

DECODER = script_of("""\
data = TensorDataset(torch.randn(24, 7, 4), torch.randint(1, 7, (24,)))
loader = DataLoader(data, batch_size=6)
letters = "abc"


def collapse(path):
    return [k for k, last in zip(path, [0, *path]) if k != last]


def greedy(out, lengths):
    texts = []
    for b in range(out.shape[1]):
        path = []
        for t in range(int(lengths[b])):
            k = out[t, b].argmax().item()
            path.append(k)
        texts.append("".join(letters[k] for k in collapse(path)))
    return texts


def main():
    model = nn.Linear(4, 3).to(device)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for epoch in range(2):
        for x, lengths in loader:
            x = x.to(device)
            out = model(x).transpose(0, 1)
            loss = out.logsumexp(2).mean()
        {update}
            print(loss.item(), greedy(out, lengths))


main()
""").replace("        optimizer", "            optimizer").replace("        loss.backward", "            loss.backward")  # fmt: skip
ASKED = "k = out[t, b].argmax().item()"
AT_ONCE = "largest = out.reshape(*out.shape[:2], -1).argmax(-1).tolist()"


def printed(text: str) -> str:
    with contextlib.redirect_stdout(io.StringIO()) as said:
        run(text)
    return said.getvalue()


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("", "", "k = largest[t][b]"),
        (ASKED, "k = int(out[t, b].argmax())", "k = largest[t][b]"),
        (f"{ASKED}\n            path.append(k)", "path.append(out[t, b].argmax().item())", "path.append(largest[t][b])"),
        # a dimension more, of which the flattened places count
        ("item(), greedy(out,", "item(), greedy(out.unsqueeze(3).expand(-1, -1, 3, 2),", "k = largest[t][b]"),
        ('letters[k]', 'letters[k % 3]', "k = largest[t][b]"),
    ],
)  # fmt: skip
def test_all_places_are_found_at_once(old: str, new: str, line: str) -> None:
    text = DECODER.replace(old, new) if old else DECODER
    if "unsqueeze" in new:
        text = text.replace("letters[k]", "letters[k % 3]")
    found = apply("python-loop", text)
    assert found.lines == [AT_ONCE, line]
    assert printed(text) == printed(found.text)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # the next row depends on the one before
        (ASKED, f"{ASKED}\n            out[t + 1 :, b] *= 0.5"),
        (ASKED, f"{ASKED}\n            out[t].mul_(0.5)"),
        (ASKED, f"{ASKED}\n            out = out * 0.5"),
        (ASKED, f"{ASKED}\n            halve(out)"),
        # places that are no turns of the loops
        (ASKED, "k = out[t - 1, b].argmax().item()"),
        ("for t in range(int(lengths[b])):", "for t in lengths[:1]:"),
        # along a dimension of a larger row
        (ASKED, "k = int(out[t, b].argmax(0))"),
    ],
)
def test_what_may_differ_from_turn_to_turn_stays(old: str, new: str) -> None:
    helper = "def halve(x):\n    x *= 0.5\n\n\ndef greedy(out, lengths):\n    out = out.detach().clone()\n"
    text = DECODER.replace(old, new).replace("def greedy(out, lengths):\n", helper)
    found = apply("python-loop", text)
    assert not found.fixes
    printed(text)


def test_no_other_rule_reads_them_one_by_one() -> None:
    text = DECODER.replace(
        f"{ASKED}\n            path.append(k)", "path.append(out[t, b].argmax().item())"
    )
    found = apply("python-loop loss-item-sync", text)
    assert AT_ONCE in found.lines and "path.append(largest[t][b])" in found.lines
    assert printed(text) == printed(found.text)


def test_rows_whose_dimensions_are_known_stay_as_they_are() -> None:
    counted = "steps, batch, kinds = out.shape\n    for b in range(batch):"
    text = DECODER.replace("for b in range(out.shape[1]):", counted)
    found = apply("python-loop", text)
    assert found.lines == ["largest = out.argmax(-1).tolist()", "k = largest[t][b]"]
    assert printed(text) == printed(found.text)
