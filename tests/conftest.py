"""What holds for all tests."""

from __future__ import annotations

from typing import NoReturn

import pytest

from autofast.edit import running


@pytest.fixture(autouse=True)
def _rules_do_not_raise(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """A rule that raises fails the test; users only lose that rule. A test of just that asks for ``resilient``."""

    def as_it_is(_rule: object, _script: object, error: Exception) -> NoReturn:
        raise error

    if "resilient" not in request.fixturenames:
        monkeypatch.setattr(running, "raised", as_it_is)


@pytest.fixture
def resilient() -> None:
    """Rules may raise, as at a user's."""
