"""One decorator of the project above a function several times."""

from __future__ import annotations

from tests.onerule import apply

SCRIPT = """
from functools import wraps
import torch
from torch import nn


def alias(name, others):
    def decorator(func):
        @wraps(func)
        def wrapper(*args, **kwargs):
            for other in others:
                if other in kwargs:
                    kwargs[name] = kwargs.pop(other)
            {more}
            return func(*args, **kwargs)

        return wrapper

    return decorator


class Trainer:
    def __init__(self, model):
        self.model = model
        self.optimizer = torch.optim.Adam(model.parameters())

    @alias("steps", ["n_steps"])
    @alias("rows", ["n_rows"])
    @alias("wait", ["delay"])
    def fit(self, steps=10, rows=8, wait=0):
        for step in range(steps):
            x = torch.zeros(8, 4).cuda()
            loss = self.model(x).sum()
            loss.backward()
            self.optimizer.step()


Trainer(nn.Linear(4, 1).cuda()).fit(n_steps=3)
"""


def test_the_function_below_is_followed() -> None:
    found = apply("device-creation", SCRIPT.format(more=""))
    assert found.lines == ['x = torch.zeros(8, 4, device="cuda")']


def test_a_wrapper_that_calls_itself_ends() -> None:
    found = apply("device-creation", SCRIPT.format(more="wrapper(*args, **kwargs)"))
    assert found is not None


def test_closures_that_make_closures_end() -> None:
    text = """
def make(n):
    def inner():
        return make(n - 1)() if n else 0

    return inner


make(30)()
"""
    assert not apply("device-creation", text).findings
