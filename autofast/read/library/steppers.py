"""Steppers: objects of libraries that do a whole update, or a whole epoch, where they are called.

What such a call does is told in Python, and followed like code of the project: the backward, the
update and what comes between them are then events like any others, and no rule has to know of
steppers. Nothing in it can be changed (:class:`~autofast.model.source.Told`). It says what happens
to a training, in the order in which it happens, and leaves out what only shows or saves. So are
measures that trainings with such a library take of what a network gives.
"""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

from autofast.model.names import last_part
from autofast.model.source import Told
from autofast.model.values import Arguments, Values, Where
from autofast.read.library.table import gives_for
from autofast.read.state.core import Core

# Called with the loss and the optimizer. Clipping by the norm of the weights ("agc") scales
# gradients in place.
_TIMM = """
import torch
from apex import amp

def dispatch_clip_grad(parameters, value, mode="norm", norm_type=2.0):
    if mode == "norm":
        torch.nn.utils.clip_grad_norm_(parameters, value, norm_type=norm_type)
    elif mode == "value":
        torch.nn.utils.clip_grad_value_(parameters, value)
    else:
        with torch.no_grad():
            for parameter in parameters:
                parameter.grad.mul_(value)

class NativeScaler:
    state_dict_key = "amp_scaler"
    def __init__(self, device="cuda"):
        self._scaler = torch.amp.GradScaler(device)
    def __call__(
        self, loss, optimizer, clip_grad=None, clip_mode="norm", parameters=None,
        create_graph=False, need_update=True,
    ):
        self._scaler.scale(loss).backward(create_graph=create_graph)
        if not need_update:
            return
        if clip_grad is not None:
            self._scaler.unscale_(optimizer)
            dispatch_clip_grad(parameters, clip_grad, clip_mode)
        self._scaler.step(optimizer)
        self._scaler.update()
    def state_dict(self):
        return self._scaler.state_dict()
    def load_state_dict(self, state_dict):
        self._scaler.load_state_dict(state_dict)

class ApexScaler:
    state_dict_key = "amp"
    def __call__(
        self, loss, optimizer, clip_grad=None, clip_mode="norm", parameters=None,
        create_graph=False, need_update=True,
    ):
        with amp.scale_loss(loss, optimizer) as scaled:
            scaled.backward(create_graph=create_graph)
        if not need_update:
            return
        if clip_grad is not None:
            dispatch_clip_grad(amp.master_params(optimizer), clip_grad, clip_mode)
        optimizer.step()
"""

# Makes the passes of an epoch itself, over the loader that `run` is given.
_SMP = """
import torch

def read(logs, loss, value, metrics, made, wanted):
    logs[loss.__name__] = value.cpu().detach().numpy()
    for metric in metrics:
        logs[metric.__name__] = metric(made, wanted).cpu().detach().numpy()

class ValidEpoch:
    def __init__(self, model, loss, metrics, device="cpu", verbose=True):
        for part in (model, loss, *metrics):
            part.to(device)
        self.model, self.loss, self.metrics, self.device = model, loss, metrics, device
    def run(self, dataloader):
        self.model.eval()
        logs = {}
        for images, wanted in dataloader:
            images, wanted = images.to(self.device), wanted.to(self.device)
            with torch.no_grad():
                made = self.model.forward(images)
                loss = self.loss(made, wanted)
            read(logs, self.loss, loss, self.metrics, made, wanted)
        return logs

class TrainEpoch(ValidEpoch):
    def __init__(self, model, loss, metrics, optimizer, device="cpu", verbose=True):
        super().__init__(model, loss, metrics, device)
        self.optimizer = optimizer
    def run(self, dataloader):
        self.model.train()
        logs = {}
        for images, wanted in dataloader:
            images, wanted = images.to(self.device), wanted.to(self.device)
            self.optimizer.zero_grad()
            made = self.model.forward(images)
            loss = self.loss(made, wanted)
            loss.backward()
            self.optimizer.step()
            read(logs, self.loss, loss, self.metrics, made, wanted)
        return logs
"""

# Makes the passes of all epochs over the function that it is given, and calls hooks between.
_TORCHNET = """
class Engine:
    def __init__(self):
        self.hooks = {}
    def hook(self, name, state):
        if name in self.hooks:
            self.hooks[name](state)
    def forward(self, state, train):
        loss, output = state["network"](state["sample"])
        state["output"], state["loss"] = output, loss
        if train:
            loss.backward()
        self.hook("on_forward", state)
        state["output"] = state["loss"] = None
        return loss
    def train(self, network, iterator, maxepoch, optimizer):
        state = dict(network=network, iterator=iterator, maxepoch=maxepoch, optimizer=optimizer)
        state.update(epoch=0, t=0, train=True)
        self.hook("on_start", state)
        while state["epoch"] < state["maxepoch"]:
            self.hook("on_start_epoch", state)
            for sample in state["iterator"]:
                state["sample"] = sample
                self.hook("on_sample", state)
                state["optimizer"].zero_grad()
                state["optimizer"].step(lambda: self.forward(state, True))
                self.hook("on_update", state)
                state["t"] += 1
            state["epoch"] += 1
            self.hook("on_end_epoch", state)
        self.hook("on_end", state)
        return state
    def test(self, network, iterator):
        state = dict(network=network, iterator=iterator, t=0, train=False)
        self.hook("on_start", state)
        for sample in state["iterator"]:
            state["sample"] = sample
            self.hook("on_sample", state)
            self.forward(state, False)
            state["t"] += 1
        self.hook("on_end", state)
        return state
"""

_TIMM_METRICS = """
class AverageMeter:
    def __init__(self):
        self.reset()
    def reset(self):
        self.val = 0
        self.avg = 0
        self.sum = 0
        self.count = 0
    def update(self, val, n=1):
        self.val = val
        self.sum += val * n
        self.count += n
        self.avg = self.sum / self.count

def accuracy(output, target, topk=(1,)):
    most = min(max(topk), output.size()[1])
    _, pred = output.topk(most, 1, True, True)
    correct = pred.t().eq(target.reshape(1, -1).expand_as(pred.t()))
    return [
        correct[: min(k, most)].reshape(-1).float().sum(0) * 100.0 / target.size(0) for k in topk
    ]
"""

# The part of the library, and the places that its names are imported from.
TOLD = {
    "timm.utils": (_TIMM, ("timm.utils", "timm.utils.cuda", "timm.utils.clip_grad")),
    "timm.utils.metrics": (_TIMM_METRICS, ("timm.utils", "timm.utils.metrics")),
    "torchnet.engine": (_TORCHNET, ("torchnet.engine", "torchnet.engine.engine")),
    "segmentation_models_pytorch.utils.train": (_SMP, ("segmentation_models_pytorch.utils.train",)),
}
_NAMES = {
    f"{place}.{node.name}": part
    for part, (text, places) in TOLD.items()
    for node in ast.parse(text).body
    if isinstance(node, (ast.FunctionDef, ast.ClassDef))
    for place in places
}


@cache
def _source(part: str) -> Told:
    # where no other module lies beside it
    path = Path(__file__).resolve().with_suffix("") / f"{part}.py"
    return Told(path, part, TOLD[part][0].encode())


@gives_for(*_NAMES)
def _called(interp: Core, name: str, args: Arguments, node: Where) -> Values:
    module = interp.run_module(_source(_NAMES[name]), False)
    return interp.call_values(module.env.vars[last_part(name)], args, node)
