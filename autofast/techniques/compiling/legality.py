"""What speaks against compiling a model: asked of the whole script, of how the model is used, and
of the code of its forward pass.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator

from autofast.facts.double_backward import functional_derivative, gradients_of_gradients
from autofast.facts.retained_graphs import gone_through_twice
from autofast.model.calls import is_name, keyword_of
from autofast.model.contents import with_contents, without_wrappers
from autofast.model.events import Site
from autofast.model.names import first_part
from autofast.model.script import Script
from autofast.model.source import at, enclosing, parent_of
from autofast.model.syntax import is_attribute, is_text
from autofast.model.values import Const, const, is_weight

SINCE = (2, 3)
FRAMEWORKS = {
    "accelerate": "pass dynamo_backend= to Accelerator instead",
    "lightning": "Lightning has its own place for torch.compile",
    "fabric": "fabric.setup(torch.compile(model)) is its place here",
    "hf-trainer": "pass torch_compile=True to TrainingArguments instead",
    "apex": "apex.amp changes the functions that are called: put torch.amp in its place first",
    "deepspeed": "the DeepSpeed engine compiles",
}
ENVIRONMENTS = ("gym.", "gymnasium.", "pettingzoo.", "procgen.", "envpool.")
SPARSE = tuple(
    "torch.sparse torch.spmm torch.hspmm torch_sparse. .to_sparse torch.sspaddmm".split()
)
COMPLEX = ("torch.fft.", "torch.stft", "torch.view_as_complex", "torch.complex", "torch.polar")
GRAPHS = ("torch_geometric.", "dgl.", "torch_scatter.", "torch_cluster.")
PACKED = ("torch.nn.utils.rnn.pack_padded_sequence", "torch.nn.utils.rnn.pack_sequence")
HOOKS = re.compile(r"^register_(module_|multi_grad_|full_)?(forward|backward)?_?(pre_)?hook$")
HOOKED = tuple(
    """torch.nn.utils.spectral_norm torch.nn.utils.weight_norm torch.nn.utils.prune.
    torch.nn.utils.parametrize. torch.nn.utils.parametrizations. wandb.watch""".split()
)
ASKED_OF_JIT = ("is_scripting", "is_tracing", "ignore", "unused", "export")
COMPILES = re.compile(r"^--?(no[-_])?(use[-_])?(torch[-_]?)?(compile|dynamo)\b")


# ---------------------------------------------------------------------------- the script as a whole
def is_there(script: Script) -> ast.AST | None:
    """Where the script knows about torch.compile already, perhaps behind an option."""
    return next((node for node in script.nodes if _compiles(node)), None)


class Compiled:
    """The decision that models are compiled."""


def _compiles(node: ast.AST) -> bool:
    match node:
        case ast.Attribute(value=of, attr=name):
            named = is_name(of, "re", "regex", "sre")
            return (name == "compile" and not named) or name in ("torch_compile", "_dynamo")
        case ast.Import(names=names):
            return any(a.name.startswith("torch._dynamo") for a in names)
        case ast.ImportFrom(module="torch", names=names):
            return any(a.name in ("compile", "_dynamo") for a in names)
        case ast.ImportFrom(module=module):
            return (module or "").startswith(("torch._dynamo", "torch.compiler"))
        case ast.keyword(arg=name):
            return name in ("torch_compile", "dynamo_backend")
    return is_text(node) and bool(COMPILES.match(node.value))


def against_script(script: Script) -> str:
    """Why nothing in this script should be compiled; empty where nothing speaks against."""
    for name, node in script.frameworks.items():
        return f"{FRAMEWORKS.get(name, name)} ({at(node)})"
    for check in (_double_backward, _graphs_used_twice, _hooks, _scripted, _shared, _data, _swaps):
        if why := check(script):
            return why
    return ""


def _double_backward(script: Script) -> str:
    if (node := gradients_of_gradients(script)) is not None:
        return f"{at(node)} computes gradients of gradients, which compiled code has not"
    if (found := functional_derivative(script)) is not None:
        kind, node = found
        return f"{at(node)} differentiates by {kind}, whose gradients may be wrong in compiled code"
    return ""


def _graphs_used_twice(script: Script) -> str:
    for step in script.steps:
        for backward in step.backwards:
            kept = keyword_of(backward.node, "retain_graph")
            if kept is not None and script.constant(kept) is not False:
                return f"{at(backward)} keeps the graph for another backward, and the graph of compiled code is used once"
    if (twice := gone_through_twice(script)) is not None:
        first, second, forward = twice
        lines = f"{at(first)} and {at(second)} go back through the forward pass of {at(forward)}"
        return f"{lines}, and the graph of compiled code is used once"
    return ""


def _hooks(script: Script) -> str:
    for node in script.each(ast.Attribute):
        if HOOKS.match(node.attr):
            return f"{at(node)} registers a hook: compiled code does not call all of them"
    for kind, site in events_of(script, HOOKED):
        return f"{kind}() on {at(site)} works by hooks: compiled code does not call all of them"
    return ""


def _scripted(script: Script) -> str:
    node = next((n for n in jit_uses(script) if not class_of(n)), None)
    return f"{at(node)} uses TorchScript" if node is not None else ""


def jit_uses(script: Script) -> Iterator[ast.Attribute]:
    for node in script.each(ast.Attribute):
        if node.attr == "jit" and ast.unparse(node) == "torch.jit":
            if not is_attribute(parent_of(node), *ASKED_OF_JIT):
                yield node


def class_of(node: ast.AST) -> ast.ClassDef | None:
    return enclosing(node, ast.ClassDef)


def _shared(script: Script) -> str:
    for site in script.methods("share_memory"):
        return f"several processes train one model in shared memory ({at(site)})"
    modules = {id(inner) for m in script.models for inner in without_wrappers(m.thing)}
    for site in script.processes:
        if any(modules & {id(t) for t in with_contents(v)} for o in site for v in o.args.all()):
            return f"the model is given to another process or thread ({at(site)}), and is compiled in none but its own"
    return ""


def _data(script: Script) -> str:
    for kind, site in events_of(script, SPARSE):
        return f"sparse tensors ({at(site)}, {kind.lstrip('.')}) are not compiled"
    for kind, site in events_of(script, GRAPHS):
        return f"graphs of {first_part(kind)} ({at(site)}) have other sizes in each batch"
    for _, site in events_of(script, PACKED):
        return f"packed sequences ({at(site)}) have other sizes in each batch"
    without_loader = (
        () if any(step.loaders for step in script.steps) else ("torch.distributions.Categorical",)
    )
    for kind, site in events_of(script, (*ENVIRONMENTS, *without_loader)):
        return f"it acts in an environment ({kind}, {at(site)}): states one by one, and episodes of other lengths"
    for kind, site in events_of(script, COMPLEX):
        return f"complex numbers ({kind}, {at(site)}) have no compiled kernels"
    for site in script.calls("torch.use_deterministic_algorithms"):
        if any(const(o.args.get(0, "mode")) is not False for o in site):
            return f"{at(site)} asks for deterministic algorithms, and compiled code computes in another order"
    for site in script.log.of("new", "torch.nn.functional.embedding"):
        if any(o.args.get(-1, "sparse") - {Const(False)} for o in site):
            return f"the embedding of {at(site)} may have sparse gradients, which compiled code has not"
    return ""


def _swaps(script: Script) -> str:
    """``p.data = average[name]`` while the model is in use."""
    first = min((o.order for m in script.models for s in m.forwards for o in s), default=0)
    for site in script.log.of("tensor_write", "set_attribute"):
        for occurrence in site:
            weight = is_weight(occurrence.this)
            if weight and occurrence.data.get("name") == "data" and occurrence.order > first:
                return (
                    f"{at(site)} puts other weights into the model, which compiled code may not see"
                )
    return ""


def events_of(script: Script, prefixes: tuple[str, ...]) -> Iterator[tuple[str, Site]]:
    return ((kind, site) for (kind, _), site in script.log.each() if kind.startswith(prefixes))
