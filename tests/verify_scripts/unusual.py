"""Trainings that have no usual optimizer step: ``lbfgs``, ``own`` (no optimizer of torch's),
``bare``, ``nested``, ``functional``.
"""

import atexit
import sys
import threading

import torch
from torch import nn

kind = sys.argv[1]
model = nn.Linear(8, 1)
x, y = torch.randn(64, 8), torch.randn(64, 1)


def loss():
    value = nn.functional.mse_loss(model(x), y)
    print("loss", value.item())
    return value


if kind == "lbfgs":
    optimizer = torch.optim.LBFGS(model.parameters(), max_iter=3)

    def closure():
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    for _ in range(4):
        optimizer.step(closure)
elif kind == "own":

    class Descent:
        def __init__(self, parameters):
            self.parameters = list(parameters)

        def step(self):
            with torch.no_grad():
                for parameter in self.parameters:
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None

    optimizer = Descent(model.parameters())
    for _ in range(9):
        loss().backward()
        optimizer.step()
elif kind == "bare":
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    atexit.register(print, "at exit")
    for _ in range(1000):
        try:
            loss().backward()
            optimizer.step()
        except:  # noqa: E722
            print("swallowed")
elif kind == "finally":
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    atexit.register(print, "at exit")
    threading.Thread(target=threading.Event().wait).start()  # would keep the process alive for ever
    try:
        for _ in range(1000):
            try:
                loss().backward()
                optimizer.step()
            except Exception:
                print("swallowed")
    finally:
        print("finally")
elif kind == "nested":

    class Lookahead(torch.optim.Optimizer):
        def __init__(self, inner):
            self.inner = inner
            super().__init__(inner.param_groups, {})

        def step(self, closure=None):
            self.inner.step()

    optimizer = Lookahead(torch.optim.SGD(model.parameters(), 0.1))
    for _ in range(3):
        from torch.utils.checkpoint import checkpoint

        nn.functional.mse_loss(
            checkpoint(model, x.requires_grad_(), use_reentrant=True), y
        ).backward()  # calls backward inside backward
        optimizer.step()
        optimizer.zero_grad()
elif kind == "functional":
    weight = torch.zeros(8, 1, requires_grad=True)
    optimizer = torch.optim.SGD([weight], 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        nn.functional.mse_loss(x @ weight, y).backward()
        optimizer.step()
elif kind == "compiled step":
    optimizer = torch.optim.Adam(model.parameters(), torch.tensor(0.1), foreach=False)
    step = torch.compile(optimizer.step, backend="eager", fullgraph=False)
    for _ in range(3):
        loss().backward()
        step()
        model.zero_grad()
elif kind == "dead parameters":
    optimizer = torch.optim.SGD(nn.Linear(8, 1).parameters(), 0.1)
    for _ in range(3):
        model.zero_grad()
        loss().backward()
        optimizer.step()
        model.zero_grad()
