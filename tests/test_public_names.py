"""What torch defines in one module and offers in another is one thing; classmethods make layers."""

from __future__ import annotations

import ast
import importlib
import re
import types
from pathlib import Path

import pytest

from autofast.facts.used_parameters import parameters_of
from autofast.model.names import canonical
from autofast.rule import Refusal
from tests.reading import read

PUBLIC = """torch torch.nn torch.nn.functional torch.optim torch.optim.lr_scheduler
torch.utils.data torch.nn.utils torch.nn.init torch.nn.parallel torch.autograd torch.distributed
torch.amp torch.optim.swa_utils""".split()
INTERNAL = re.compile(
    r"\._[a-zC](?!utils\.(collate|worker))|datapipes|<|^torch\.(jit|storage|func|utils\.dlpack)\.|^torch\.amp.*GradScaler|thread_safe"
)


def test_what_torch_defines_elsewhere_has_its_public_name() -> None:
    """``from torch.nn.parameter import Parameter`` is ``torch.nn.Parameter``."""
    asked = 0
    for module in map(importlib.import_module, PUBLIC):
        for name, thing in list(vars(module).items()):
            home = getattr(thing, "__module__", None) or ""
            if not isinstance(thing, (type, types.FunctionType)) or name != thing.__name__:
                continue
            own = home.startswith(f"{module.__name__}.") or home == module.__name__
            if own and not INTERNAL.search(f"{home}.{thing.__qualname__}"):
                asked += 1
                assert canonical(f"{home}.{name}") == canonical(f"{module.__name__}.{name}")
    assert asked > 300


@pytest.mark.parametrize(
    "given, trained",
    [
        ("weights", False),
        ("weights, freeze=False", True),
        ("weights, False, 0", True),
        ("weights, frozen", False),
    ],
)
def test_embeddings_of_given_weights_are_layers(given: str, trained: bool, tmp_path: Path) -> None:
    script = read(
        tmp_path,
        f"""
        import sys, torch
        from torch import nn
        from torch.nn.parameter import Parameter
        from torch.nn.utils.weight_norm import weight_norm

        class Net(nn.Module):
            def __init__(self, weights, frozen):
                super().__init__()
                self.words = nn.Embedding.from_pretrained({given})
                self.head = weight_norm(nn.Linear(8, 2))
                self.scale = Parameter(torch.ones(1))

            def forward(self, x):
                return self.scale * self.head(self.words(x).mean(1))

        model = Net(torch.randn(9, 8), len(sys.argv) > 1)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        for _ in range(3):
            loss = model(torch.randint(9, (4, 3))).sum()
            loss.backward()
            optimizer.step()
        """,
    )
    (model,) = script.models
    assert {"Embedding", "Linear"} <= set(model.layers)
    if trained:
        assert len(list(parameters_of(model.thing))) == 3
    else:
        with pytest.raises(Refusal, match="may be frozen"):
            list(parameters_of(model.thing))


def test_no_table_asks_for_a_name_that_is_replaced() -> None:
    """The reader never gives such a name: the entry would be dead."""
    root = Path(__file__).parents[1]
    files = [p for top in ("autofast", "rules") for p in (root / top).rglob("*.py")]
    known_raw = {
        "names.py",
        "torch_versions.py",
    }  # where names are replaced, and as they are written
    asked = [
        word
        for path in files
        if path.name not in known_raw and "verify" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for word in node.value.split()
        if re.fullmatch(r"torch(\.\w+)+", word)
    ]
    assert len(asked) > 400
    assert [word for word in asked if canonical(word) != word] == []
