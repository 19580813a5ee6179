"""What speaks against 16-bit arithmetic anywhere in a script."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from autofast.facts.precision.quantised import quantised
from autofast.flow.program import definitions_at
from autofast.model.calls import short_name
from autofast.model.events import Site, WithFrame, inside
from autofast.model.kinds import is_autocast
from autofast.model.names import last_part
from autofast.model.script import Script
from autofast.model.several import wordset
from autofast.model.source import at, nodes_in, walk
from autofast.model.tensors import tensors_in
from autofast.model.values import Const, Ref, Tensor, Values

FRAMEWORKS = {
    "accelerate": "Accelerator(mixed_precision=...)",
    "lightning": "Trainer(precision=...)",
    "fabric": "Fabric(precision=...)",
    "hf-trainer": "TrainingArguments(bf16=...)",
    "apex": "apex.amp",
    "deepspeed": "the DeepSpeed configuration",
}
COMPLEX = wordset(
    "complex32 complex64 complex128 chalf cfloat cdouble view_as_complex polar ComplexFloatTensor"
)
DOUBLE = wordset("float64 double DoubleTensor")
OTHER_TYPES = DOUBLE | wordset("half float16 bfloat16 HalfTensor BFloat16Tensor autocast amp")
CHOSEN = {"f64": "float64", "complex": "complex", "half": "16-bit"}


def against_script(script: Script, target: str, gpu: bool) -> str:
    """Why nothing in this script should be run under autocast; empty where nothing speaks
    against.
    """
    for name, node in script.frameworks.items():
        return f"{FRAMEWORKS.get(name, name)} decides about precision here ({at(node)})"
    if sites := script.calls("torch.set_default_dtype", "torch.set_default_tensor_type"):
        if any(_names_f64(o.args.get(0, "d") | o.args.get(0, "t")) for s in sites for o in s):
            return f"{at(sites[0])} makes float64 the default"
    if target == "cuda" and not gpu:
        return "nothing in this script goes to a GPU"
    if script.processes and script.methods("share_memory"):
        return f"several processes train one model in shared memory ({at(script.processes[0])})"
    if (site := quantised(script)) is not None:
        return f"{at(site)} prepares quantisation, which has to see the numbers that the model computes in fp32"
    if (place := _elsewhere(script)) is not None:
        return f"{at(place)} runs under autocast, and the training was left out of it"
    if why := _odd_parameter(script):
        return why
    if (site := _asks_for_gradients_of_outputs(script)) is not None:
        return f"{at(site)} asks for the gradient of what a network gives, which a cast to fp32 would part from the loss"
    for site in _sparse(script):
        return f"{at(site)} makes sparse tensors, for which autocast has no kernels everywhere"
    return ""


def is_in_fp32(script: Script) -> bool:
    """Whether nothing is converted to another type of fractions, or runs under autocast."""
    named = {n for kind in (ast.Name, ast.Attribute) for n in script.each(kind)}
    return not any(short_name(n) in OTHER_TYPES for n in named)


def _asks_for_gradients_of_outputs(script: Script) -> Site | None:
    """``features.retain_grad()``, ``torch.autograd.grad(loss, features)``."""
    sites = [*script.methods("register_hook", "retain_grad"), *script.log.of("grad_read")]
    asked = [(s, o.this) for s in sites for o in s]
    for site in script.calls("torch.autograd.grad"):
        given = (o.args.get(1, "inputs") for o in site)
        asked += [(site, t) for found in given for t in tensors_in(found)]
    outputs = (s for s, t in asked if isinstance(t, Tensor) and t.models and not t.param)
    return next(outputs, None)


def _elsewhere(script: Script) -> ast.AST | None:
    """A block under autocast that stands in no training step, where no step is under one."""
    frames = {
        frame.node: any(inside(stack, step.loop) for step in script.steps)
        for stack in script.stacks
        for frame in stack
        if isinstance(frame, WithFrame) and any(is_autocast(v) for _, v in frame.contexts)
    }
    return None if any(frames.values()) else next(iter(frames), None)


def _names_f64(found: Values) -> bool:
    return any(
        (isinstance(t, Ref) and last_part(t.name) in DOUBLE)
        or (isinstance(t, Const) and last_part(str(t.value)) in DOUBLE)
        for t in found
    )


def complex_in(script: Script, node: ast.AST) -> ast.expr | None:
    """A word in the code of ``node`` that makes complex numbers."""
    for part in walk(node):
        if not isinstance(part, (ast.Name, ast.Attribute, ast.Constant)):
            continue
        name = short_name(part)
        if isinstance(part, ast.Constant) and isinstance(part.value, complex):
            return part
        if name in COMPLEX or (name == "complex" and Ref("torch.complex") in script.values(part)):
            return part
    return None


def _odd_parameter(script: Script) -> str:
    """A parameter that is complex or float64, in words."""
    made = {s.node: s.node for s in script.calls("torch.nn.Parameter")}
    for call in script.each(ast.Call):
        if any(
            k.arg == "requires_grad" and script.constant(k.value) is True for k in call.keywords
        ):
            made[call] = call
    for node in made.values():
        parts = [node, *_assigned(script, node)]
        words = {
            p.attr if isinstance(p, ast.Attribute) else getattr(p, "id", "")
            for n in parts
            for p in walk(n)
        }
        given = tensors_in(
            script.values(node), *(script.values(a) for a in getattr(node, "args", ()))
        )
        if any(t.dtype == "complex" for t in given) or any(
            complex_in(script, p) is not None for p in parts
        ):
            return (
                f"the parameter on {at(node)} is complex, which autocast and GradScaler do not take"
            )
        single = words & {"float", "float32"}
        if (
            any(t.dtype == "f64" for t in given)
            or (words & DOUBLE and not single)
            or ("from_numpy" in words and not single)
        ):
            return f"the parameter on {at(node)} is, or may be, float64 by choice"
    for optimizer in script.optimizers:
        for tensor in tensors_in(optimizer.args.get(0, "params")):
            if tensor.dtype in ("complex", "f64"):
                return f"the optimizer on {at(optimizer)} gets {CHOSEN[tensor.dtype]} parameters"
    return ""


def _assigned(script: Script, call: ast.AST) -> Iterator[ast.AST]:
    """What the variables in a call may have been set to."""
    names = (n for a in getattr(call, "args", ()) for n in nodes_in(a, ast.Name))
    yield from (d.value for n in names for d in definitions_at(script, n) if d.value is not None)


def _sparse(script: Script) -> Iterator[Site]:
    yield from (
        s
        for (kind, _), s in script.log.each()
        if kind.startswith(("torch.sparse", "torch.to_sparse", "torch_sparse."))
    )
    yield from script.calls(
        "torch.spmm",
        "torch.hspmm",
        "torch.sspaddmm",
        "torch.sparse_coo_tensor",
        "torch.sparse_csr_tensor",
        "torch.sparse.FloatTensor",
    )
    yield from script.methods("to_sparse", "to_sparse_csr", "to_sparse_coo")
