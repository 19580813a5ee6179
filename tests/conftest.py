"""What holds for all tests."""

from __future__ import annotations

import gc
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import NoReturn

import pytest
from hypothesis import HealthCheck, settings

from autofast.edit import running
from autofast.report import progress
from tests.fixture import EVERYTHING, Fixture

# Each of their cases is a dozen trainings: by default the first of three runs.
TRAININGS = {f"test_verify_{name}.py" for name in ("averages", "common", "driven", "unaided")}

# In these files no test takes long: the last ones that run, one by one, are those of others.
QUICK = tuple(f"test_{name}" for name in ("flow_", "reader_", "rule_", "worth"))

# Tensors are small: threads would only wait for those of other tests. MKL goes by it, too, where
# nothing else is said.
os.environ["OMP_NUM_THREADS"] = "1"
# What one test finds is nothing to another; tests of the cache have a folder of their own.
os.environ["AUTOFAST_NO_CACHE"] = "1"
# A heap of scripts that are kept is looked through less often: by default, a tenth of the time.
gc.set_threshold(100_000, 20, 50)
# A busy machine makes no test fail, nor says that it is still at work.
progress.EVERY = 3600.0
settings.register_profile(
    "any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("any machine")


@pytest.hookimpl(tryfirst=True)  # before xdist looks for groups
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """All tests of a fixture run in one process, which reads and plans it once (``--dist
    loadgroup``), and so do those of a file of quick ones: with each test that ends xdist goes
    through all groups that were handed out. Of cases that are long the first of three is tried,
    unless all are asked for (``AUTOFAST_TESTS=all``), or one by its name.
    """
    if not EVERYTHING and not any("::" in str(name) for name in config.args):
        seen: Counter[str] = Counter()
        later = []
        for item in items:
            if item.path.name in TRAININGS and hasattr(item, "callspec"):
                name = item.nodeid.split("[")[0]
                if seen[name] % 3:
                    later.append(item)
                seen[name] += 1
        config.hook.pytest_deselected(items=later)
        items[:] = [item for item in items if item not in later]
    for item in items:
        fixture = getattr(item, "callspec", None) and item.callspec.params.get("fixture")  # type: ignore[attr-defined]
        if isinstance(fixture, Fixture):
            item.add_marker(pytest.mark.xdist_group(fixture.name))
        elif item.path.name.startswith(QUICK) and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.path.name))


@pytest.fixture(autouse=True)
def _rules_do_not_raise(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that raises fails the test; users only lose that rule. A test of just that asks for
    ``resilient``.
    """

    def as_it_is(_rule: object, _script: object, error: Exception) -> NoReturn:
        raise error

    if "resilient" not in request.fixturenames:
        monkeypatch.setattr(running, "rule_failed", as_it_is)


@pytest.fixture
def resilient() -> None:
    """Rules may raise, as at a user's."""


@pytest.fixture(autouse=True)
def _torch_as_it_was() -> Iterator[None]:
    """Scripts that a test runs in this process may set torch up for all that comes after them."""
    yield
    if torch := sys.modules.get("torch"):
        torch.autograd.set_detect_anomaly(False)
        torch.autograd.set_grad_enabled(True)
        torch.set_default_dtype(torch.float32)
        torch.use_deterministic_algorithms(False)
        torch.set_float32_matmul_precision("highest")
        torch.backends.cudnn.benchmark = False
