"""autofast.write.plumbing: a value goes where it is needed, along all calls or not at all."""

from __future__ import annotations

import ast
import tempfile
import textwrap
from pathlib import Path

import pytest

from autofast.edit.compose import compose
from autofast.edit.edits import After, Before
from autofast.flow.definition_sites import Attribute
from autofast.flow.scopes import Variable
from autofast.model.script import Script
from autofast.model.source import function_of, source_of, statement_of
from autofast.model.values import Inst
from autofast.read import read_script
from autofast.write.plumbing import Way


def script_of(text: str, **files: str) -> Script:
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder).resolve()
        for name, content in {**{f"{n}.py": t for n, t in files.items()}, "train.py": text}.items():
            (root / name).write_text(textwrap.dedent(content).lstrip("\n"), "utf-8")
        return read_script(root / "train.py", root)


def marks(script: Script, name: str) -> list[ast.Call]:
    """The calls of ``make()`` and ``use()``."""
    found = [n for s in script.sources for n in ast.walk(s.tree) if isinstance(n, ast.Call)]
    return sorted(
        (n for n in found if isinstance(n.func, ast.Name) and n.func.id == name),
        key=lambda n: n.lineno,
    )


def carried(script: Script) -> dict[str, str] | str:
    """Bring ``value``, made at ``make()``, to every ``use()``: the new texts, or the reason why
    not.
    """
    (made,) = marks(script, "make")
    way = Way(script, Variable("value", function_of(made)))
    edits = [After(statement_of(made), "value = 7")]
    for use in marks(script, "use"):
        name = way.to(function_of(use))
        if name is None:
            return way.refusal
        edits.append(Before(statement_of(use), f"seen.append({name})"))
    return {source.rel: text for source, text in compose([*edits, *way.edits]).items()}


def outcome(text: str, **files: str) -> list[int]:
    made = carried(script_of(text, **files))
    assert isinstance(made, dict), made
    seen: list[int] = []
    scope = {"__name__": "__main__", "seen": seen, "make": lambda: None, "use": lambda *a: None}
    exec(compile(made["train.py"], "train.py", "exec"), scope)
    return seen


def refusal(text: str, **files: str) -> str:
    made = carried(script_of(text, **files))
    assert isinstance(made, str), made
    return made


def test_the_same_function():
    assert outcome("def main():\n    make()\n    use()\nmain()\n") == [7]


def test_a_module_variable_is_seen_in_functions():
    text = "make()\ndef step():\n    use()\nstep()\n"
    assert outcome(text) == [7]
    assert "def step():" in carried(script_of(text))["train.py"]


def test_a_nested_function_sees_it():
    assert outcome(
        "def main():\n    make()\n    def step():\n        use()\n    step()\nmain()\n"
    ) == [7]


def test_a_parameter_on_every_call():
    assert outcome(
        "def step(x):\n    use(x)\ndef main():\n    make()\n    step(1)\n    step(x=2)\nmain()\n"
    ) == [7, 7]


def test_through_several_functions():
    text = "def inner():\n    use()\ndef outer(n, *, k=1):\n    inner()\ndef main():\n    make()\n    outer(1)\n    outer(n=2, k=3)\nmain()\n"
    assert outcome(text) == [7, 7]


def test_a_parameter_after_defaults_and_stars():
    assert outcome(
        "def step(x, y=1, *rest, **more):\n    use()\ndef main():\n    make()\n    step(1, 2, 3, z=4)\nmain()\n"
    ) == [7]


def test_a_function_that_calls_itself():
    assert outcome(
        "def step(n):\n    use()\n    if n:\n        step(n - 1)\ndef main():\n    make()\n    step(2)\nmain()\n"
    ) == [7, 7, 7]


def test_a_method_gets_a_parameter():
    text = "class T:\n    def step(self, x):\n        use()\ndef main():\n    make()\n    t = T()\n    t.step(1)\nmain()\n"
    assert outcome(text) == [7]


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            "def step():\n    use()\ndef main():\n    make()\n    for f in [step]:\n        f()\nmain()\n",
            "handed around as a value",
        ),
        (
            "def step():\n    use()\ndef main():\n    make()\nmain()\n",
            "nothing in this project calls",
        ),
        (
            "class T:\n    def __call__(self):\n        use()\ndef main():\n    make()\n    T()()\nmain()\n",
            "called by Python",
        ),
        (
            "def main():\n    make()\n    step = lambda: use()\n    other(step)\nmain()\nhook = lambda: use()\n",
            "a lambda needs it",
        ),
        (
            "import functools\n@functools.lru_cache\ndef step():\n    use()\ndef main():\n    make()\n    step()\nmain()\n",
            "has a decorator that may call it",
        ),
        (
            "def step():\n    use()\nif 0:\n    step()\ndef main():\n    make()\nmain()\n",
            "may call step()",
        ),
    ],
)
def test_refused(text: str, why: str):
    assert why in refusal(text)


def test_another_file_gets_a_parameter():
    script = script_of(
        "from lib import step\ndef main():\n    make()\n    step(1)\nmain()\n",
        lib="def step(x):\n    use()\n",
    )
    made = carried(script)
    assert isinstance(made, dict)
    assert (
        "def step(x, value=None):" in made["lib.py"] and "step(1, value=value)" in made["train.py"]
    )


def test_a_module_of_another_file_would_have_to_import_it():
    assert "would have to import it" in refusal(
        "import lib\ndef main():\n    make()\nmain()\n", lib="use()\n"
    )


def test_an_attribute_is_reached_through_self():
    text = """
    class Base:
        def setup(self):
            self.held = make()

    class Trainer(Base):
        def step(self):
            use()

    def helper(x):
        use(x)

    t = Trainer()
    t.setup()
    t.step()
    """
    script = script_of(text)
    owners = tuple(t for site in script.log.of("new") for t in site.owners if isinstance(t, Inst))
    way = Way(script, Attribute("value", owners))
    step, helper = (function_of(u) for u in marks(script, "use"))
    assert way.to(step) == "self.value"
    assert way.to(helper) is None and "nothing in this project calls helper()" in way.refusal
    assert source_of(step).rel == "train.py"


def test_not_through_self_where_other_objects_have_the_method():
    text = """
    class Base:
        def step(self):
            use()

    class A(Base):
        pass

    class B(Base):
        pass

    a, b = A(), B()
    a.step()
    b.step()
    """
    script = script_of(text)
    (owner,) = (
        t
        for s in script.log.of("new")
        for t in s.owners
        if isinstance(t, Inst) and t.cls.node.name == "A"
    )
    way = Way(script, Attribute("value", (owner,)))
    (use,) = marks(script, "use")
    assert way.to(function_of(use)) is None
