"""What speaks against 16-bit arithmetic in a piece of code: asked once for all code that would run under autocast."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from autofast.facts.precision.quantised import quantised
from autofast.facts.precision.ratios import Ratios
from autofast.flow.callgraph import CallGraph
from autofast.flow.positions import happens_in, nodes_of
from autofast.flow.program import Flow
from autofast.model.events import Occurrence, Site, WithFrame
from autofast.model.kinds import grad_mode_of, is_autocast, is_module, is_optimizer, is_scaler
from autofast.model.script import Model, Script
from autofast.model.source import ancestors, line_of, source_of
from autofast.model.tensors import tensors_in
from autofast.model.values import (
    Cls,
    Const,
    Ext,
    Inst,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    const,
)
from autofast.read.recover.build import unwrapped

CHOSEN = {"f64": "float64", "complex": "complex", "half": "16-bit"}
FP16_MOST = 65504.0
FP16_LEAST = 6e-8  # what is smaller becomes 0 in fp16
SAMPLING = (
    "torch.nn.functional.grid_sample",
    "torch.nn.functional.affine_grid",
    "torch.grid_sampler",
    "torch.affine_grid_generator",
)
BANNED = (
    "torch.nn.BCELoss",
    "torch.nn.functional.binary_cross_entropy",
)  # an error under CUDA autocast
LINALG = frozenset(
    [
        "inverse",
        "inv",
        "svd",
        "eig",
        "eigh",
        "eigvals",
        "eigvalsh",
        "qr",
        "cholesky",
        "cholesky_ex",
        "det",
        "slogdet",
        "logdet",
        "solve",
        "lstsq",
        "pinv",
        "matrix_exp",
        "matrix_power",
        "lu",
        "lu_solve",
        "triangular_solve",
        "cholesky_solve",
        "cholesky_inverse",
        "symeig",
        "geqrf",
        "orgqr",
        "householder_product",
        "pca_lowrank",
        "svd_lowrank",
    ]
)
FACTORING = tuple(  # distributions that factor their covariance
    f"torch.distributions.{n}"
    for n in ("MultivariateNormal", "LowRankMultivariateNormal", "Wishart", "LKJCholesky")
)
OF_DISTRIBUTIONS = (".log_prob", ".sample", ".rsample", ".entropy", ".kl_divergence")
SAME_DTYPE = frozenset(
    [
        ".scatter_",
        ".scatter_add_",
        ".index_add_",
        ".index_copy_",
        ".index_put_",
        ".masked_scatter_",
        ".scatter_reduce_",
        ".scatter_add",
        ".index_add",
        ".index_copy",
    ]
)
KNOWN_LIBRARIES = frozenset(
    [
        "torch",
        "torchvision",
        "torchaudio",
        "builtins",
        "math",
        "numpy",
        "random",
        "time",
        "tqdm",
        "logging",
        "collections",
        "functools",
        "itertools",
        "einops",
        "timm",
        "transformers",
        "warnings",
        "os",
        "sys",
        "contextlib",
        "typing",
        "copy",
        "string",
        "re",
        "datetime",
        "dataclasses",
        "abc",
        "operator",
        "json",
        "pathlib",
        "wandb",
        "tensorboardX",
        "visdom",
        "torchinfo",
        "torchsummary",
        "rich",
    ]
)
HEAVY = (
    "Conv",
    "LSTM",
    "GRU",
    "RNN",
    "Transformer",
    "MultiheadAttention",
    "Embedding",
    "Bilinear",
    "torchvision.models.",
    "create_model",
    "from_pretrained",
    "from_config",
)
RECURRENT = frozenset(
    {"LSTM", "GRU", "RNN", "RNNBase"}
)  # cuDNN computes them in fp16 under autocast
ANY_LAYER = "torch.nn.*"  # getattr(nn, name): one of which only the module is known
TINY = 2**16  # a matrix with fewer weights than this is multiplied faster than it is cast


# ------------------------------------------------------------------------------------------------ the script as a whole
def against_script(script: Script, target: str, gpu: bool, leaves: str = "") -> str:
    """Why nothing in this script should be run under autocast; empty where nothing speaks against. ``leaves`` is a framework that goes."""
    if others := {name: node for name, node in script.frameworks.items() if name != leaves}:
        name, node = next(iter(others.items()))
        return f"{FRAMEWORKS.get(name, name)} decides about precision here (line {getattr(node, 'lineno', 1)})"
    if sites := script.calls("torch.set_default_dtype", "torch.set_default_tensor_type"):
        if any(
            _names_f64(o.args.get(0, "d") | o.args.get(0, "t"))
            for s in sites
            for o in s
            if o.args is not None
        ):
            return f"line {line_of(sites[0].node)} makes float64 the default"
    if target == "cuda" and not gpu:
        return "nothing in this script goes to a GPU"
    if script.processes and _shares_model(script):
        return f"several processes train one model in shared memory (line {line_of(script.processes[0].node)})"
    if (site := quantised(script)) is not None:
        return f"line {line_of(site.node)} prepares quantisation, which has to see the numbers that the model computes in fp32"
    if why := _odd_parameter(script):
        return why
    for site in _sparse(script):
        return f"line {line_of(site.node)} makes sparse tensors, for which autocast has no kernels everywhere"
    return ""


FRAMEWORKS = {
    "accelerate": "Accelerator(mixed_precision=...)",
    "lightning": "Trainer(precision=...)",
    "fabric": "Fabric(precision=...)",
    "hf-trainer": "TrainingArguments(bf16=...)",
    "apex": "apex.amp",
    "deepspeed": "the DeepSpeed configuration",
}


def _names_f64(found: Values) -> bool:
    return any(
        (isinstance(t, Ref) and t.name.rsplit(".", 1)[-1] in ("float64", "double", "DoubleTensor"))
        or (isinstance(t, Const) and str(t.value).rpartition(".")[2] in DOUBLE)
        for t in found
    )


COMPLEX = frozenset(
    [
        "complex32",
        "complex64",
        "complex128",
        "chalf",
        "cfloat",
        "cdouble",
        "view_as_complex",
        "polar",
        "ComplexFloatTensor",
    ]
)
DOUBLE = frozenset(["float64", "double", "DoubleTensor"])


def complex_in(script: Script, node: ast.AST) -> ast.expr | None:
    """A word in the code of ``node`` that makes complex numbers."""
    for part in ast.walk(node):
        name = (
            part.attr
            if isinstance(part, ast.Attribute)
            else part.id
            if isinstance(part, ast.Name)
            else ""
        )
        if isinstance(part, ast.Constant) and isinstance(part.value, complex):
            return part
        if name in COMPLEX or (name == "complex" and Ref("torch.complex") in script.values(part)):
            return part  # type: ignore[return-value]
    return None


def _odd_parameter(script: Script) -> str:
    """A parameter that is complex or float64, in words."""
    made = {
        id(s.node): s.node
        for s in script.calls("torch.nn.Parameter", "torch.nn.parameter.Parameter")
    }
    for source in script.sources:
        for node in source.nodes:
            if isinstance(node, ast.Call) and any(
                k.arg == "requires_grad" and const(script.values(k.value)) is True
                for k in node.keywords
            ):
                made[id(node)] = node
    for node in made.values():
        parts = [node, *_assigned(script, node)]
        words = {
            p.attr if isinstance(p, ast.Attribute) else getattr(p, "id", "")
            for n in parts
            for p in ast.walk(n)
        }
        given = tensors_in(
            script.values(node), *(script.values(a) for a in getattr(node, "args", ()))
        )
        if any(t.dtype == "complex" for t in given) or any(
            complex_in(script, p) is not None for p in parts
        ):
            return f"the parameter on line {getattr(node, 'lineno', 1)} of {source_of(node).rel} is complex, which autocast and GradScaler do not take"
        single = words & {"float", "float32"}
        if (
            any(t.dtype == "f64" for t in given)
            or (words & DOUBLE and not single)
            or ("from_numpy" in words and not single)
        ):
            return f"the parameter on line {getattr(node, 'lineno', 1)} of {source_of(node).rel} is, or may be, float64 by choice"
    for optimizer in script.optimizers:
        for tensor in tensors_in(optimizer.args.get(0, "params")):
            if tensor.dtype in ("complex", "f64"):
                return f"the optimizer on line {optimizer.node.lineno} gets {CHOSEN[tensor.dtype]} parameters"
    return ""


def _assigned(script: Script, call: ast.AST) -> Iterator[ast.AST]:
    """What the variables in a call may have been set to."""
    names = (n for a in getattr(call, "args", ()) for n in ast.walk(a) if isinstance(n, ast.Name))
    yield from (
        d.value for n in names for d in script.analysis(Flow).reaching(n) if d.value is not None
    )


def _shares_model(script: Script) -> bool:
    return bool(script.methods("share_memory"))


def _sparse(script: Script) -> Iterator[Site]:
    yield from (
        s
        for (kind, _), s in script.log._sites.items()
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


# ------------------------------------------------------------------------------------------------ one piece of code
class Code:
    """Statements (or expressions), and all code of the project that they call, with the questions that autocast asks about them."""

    def __init__(self, script: Script, statements: Iterable[ast.AST], models: Iterable[Thing]):
        self.script = script
        self.statements = list(statements)
        self.here = nodes_of(self.statements)
        self.models = _models(script, models)
        self.parts: list[ast.AST] = [*self.statements, *self._called()]
        self.all = nodes_of(self.parts)

    def _called(self) -> list[ast.AST]:
        """The functions that are called, and the forward passes of the models, but no constructors."""
        found: dict[int, ast.AST] = {}
        todo: list[ast.AST] = list(self.statements)
        for model in self.models:
            for cls in model.classes:
                forwards = [
                    s for s in cls.body if isinstance(s, ast.FunctionDef) and s.name == "forward"
                ]
                found.update((id(f), f) for f in forwards)
                todo += forwards
        calls = self.script.analysis(CallGraph)
        while todo:
            nodes = (n for n in ast.walk(todo.pop()) if isinstance(n, ast.Call))
            for func in (c.function for n in nodes for c in calls.callees(n) if c.makes is None):
                if id(func) not in found:
                    found[id(func)] = func
                    todo.append(func)
        return list(found.values())

    # ------------------------------------------------------------------------------------------------ questions
    @cached_property
    def is_autocast(self) -> bool:
        """Some of it runs under autocast already, or keeps a part out of it on purpose."""
        for node in (n for p in self.parts for n in ast.walk(p)):
            if isinstance(node, ast.expr) and is_autocast(self.script.values(node)):
                return True
        around = [
            o.stack
            for s in self.script.log.of("forward")
            for o in s
            if happens_in(o, s.node, self.here)
        ]
        return any(
            isinstance(f, WithFrame) and any(is_autocast(v) or _may_be(v) for _, v in f.contexts)
            for stack in around
            for f in stack
        )

    def against(self) -> str:
        """Why it cannot run under autocast; empty where nothing speaks against."""
        for check in (
            self._losses,
            self._dtypes,
            self._algebra,
            self._structure,
            self.custom_function,
            self._foreign,
            self._writes,
            self._size,
        ):
            if why := check():
                return why
        return ""

    def _losses(self) -> str:
        for site, occurrence in self.events("loss"):
            if name := banned(occurrence.this):
                return error_of(name, site)
        return ""

    def _dtypes(self) -> str:
        for model in self.models:
            if model.dtype:
                kind = "float64" if model.dtype == "f64" else "16-bit"
                return f"{model.name} is {kind} by choice"
        for part in [*self.parts, *(c for m in self.models for c in m.classes)]:
            if (word := complex_in(self.script, part)) is not None:
                return f"line {word.lineno} of {source_of(word).rel} computes with complex numbers"
        for site, occurrence in self.events("forward"):
            for tensor in occurrence.data.get("inputs", ()):
                if tensor.dtype in CHOSEN:
                    return f"line {line_of(site.node)} computes with {CHOSEN[tensor.dtype]} data by choice"
        return ""

    def _algebra(self) -> str:
        for site, occurrence in self.events(
            *(f"{root}.{n}" for root in ("torch", "") for n in LINALG),
            *FACTORING,
            *OF_DISTRIBUTIONS,
            *(k for k in self._kinds() if k.startswith("torch.fft.")),
        ):
            thing = occurrence.this
            if (
                thing.name in FACTORING
                if isinstance(thing, Ext)
                else isinstance(thing, (Ref, Tensor, Unknown, type(None)))
                and site.kind not in OF_DISTRIBUTIONS
            ):
                return f"line {line_of(site.node)} does linear algebra or a Fourier transform, which needs fp32"
        for site, _ in self.events(*SAMPLING):
            return f"line {line_of(site.node)} samples at positions that would be computed in 16 bits: in bf16, up to a pixel off where an image has 224"
        return ""

    def ratio(self) -> str:
        """A ratio of probabilities of which one would be in 16 bits and the other not, in words; empty where there is none."""
        passes = {
            id(n)
            for site, o in self.events("forward", entered=True)
            for n in (site.node, *(f.node for f in o.stack))
        }
        call = Ratios(self.script, self.parts, self.all, passes & self.all).of_an_earlier_pass
        if call is None:
            return ""
        return f"line {call.lineno} compares with an earlier pass in fp32: in 16 bits, the ratio of both would not start at 1"

    def _structure(self) -> str:
        return self._yields() or self.between() or self._modes()

    def _yields(self) -> str:
        for node in (n for s in self.statements for n in ast.walk(s)):
            if isinstance(node, (ast.Yield, ast.YieldFrom, ast.Await)) and not _in_function_below(
                node, self.statements
            ):
                return f"line {node.lineno} leaves the block in the middle (yield)"
        return ""

    def between(self) -> str:
        """What it does to gradients or weights between forward pass and loss, in words; empty where it does nothing."""
        for site, _ in self.events(
            ".backward",
            "torch.autograd.grad",
            "torch.autograd.backward",
            ".unscale_",
            "closure",
            entered=True,
        ):
            return f"line {line_of(site.node)} computes gradients between the forward pass and the end of the loss"
        for site, occurrence in self.events(".step", entered=True):
            if occurrence.this is not None and (
                is_optimizer(occurrence.this) or is_scaler(occurrence.this)
            ):
                return f"line {line_of(site.node)} updates weights between the forward pass and the end of the loss"
        for site, occurrence in self.events("inplace", "tensor_write", "grad_write", entered=True):
            if isinstance(occurrence.this, Tensor) and occurrence.this.param == "param":
                return f"line {line_of(site.node)} changes weights before the end of the loss: autocast would go on with the old ones"
        return ""

    def _modes(self) -> str:
        modes: dict[int, set[bool]] = {}
        for _, occurrence in self.events("forward", entered=True):
            if occurrence.data["outer"]:
                modes.setdefault(id(occurrence.this), set()).add(self._is_switched(occurrence))
        if any(len(m) > 1 for m in modes.values()):
            return "one model runs with and without gradients in it: torch before 2.11 loses the gradients of weights that were cast without"
        return ""

    def _is_switched(self, occurrence: Occurrence) -> bool:
        """Whether gradients are switched off (or on) on the way to a place, inside of this code."""
        first = next(
            (n for n, f in enumerate(occurrence.stack) if id(f.node) in self.here),
            len(occurrence.stack),
        )
        return any(
            isinstance(f, WithFrame) and any(grad_mode_of(v) for _, v in f.contexts)
            for f in occurrence.stack[first:]
        )

    def custom_function(self) -> str:
        """An autograd Function of the project that nobody has prepared for other dtypes and layouts, in words."""
        for node in (n for p in self.parts for n in ast.walk(p)):
            if isinstance(node, ast.Attribute) and node.attr == "apply":
                for thing in self.script.values(node.value):
                    if (
                        isinstance(thing, Cls)
                        and any(n.startswith("torch.autograd.") for n in thing.external)
                        and not _marked(thing)
                    ):
                        return f"{thing.node.name}, an autograd Function, is not marked with torch.amp.custom_fwd (line {node.lineno})"
        return ""

    def _foreign(self) -> str:
        for model in self.models:
            if model.unknown:
                return f"what {model.name} is made of is not known: {model.unknown}"
            if any(w.name.startswith("torch.jit") for w in model.wraps):
                return f"{model.name} is a TorchScript module"
        for site, occurrence in self.events("call_unknown"):
            if (
                not isinstance(occurrence.this, Unknown)
                or occurrence.args is None
                or self.is_known(site)
            ):
                continue
            if _has_tensor(occurrence.args.positional):
                return f"line {line_of(site.node)} gives tensors to something that is not known: {occurrence.this.why}"
        for kind in self._kinds():
            root = kind.split(".")[0]
            if "." in kind and root and root not in KNOWN_LIBRARIES:
                for site, occurrence in self.events(kind):
                    if occurrence.args is not None and _has_tensor(
                        [*occurrence.args.positional, *occurrence.args.named.values()]
                    ):
                        return f"line {line_of(site.node)} gives tensors to {kind}(), which may not take 16-bit ones"
        return ""

    def is_known(self, site: Site) -> bool:
        """A call of a known model, of one that was loaded from a file in its place, or of an autograd Function of the project."""
        call = site.node
        if not isinstance(call, ast.Call):
            return False
        if (
            isinstance(call.func, ast.Attribute)
            and call.func.attr == "apply"
            and any(isinstance(t, Cls) for t in self.script.values(call.func.value))
        ):
            return True  # an autograd Function, asked about elsewhere
        return any(is_module(t) for t in self.script.values(call.func))

    def _writes(self) -> str:
        for site, occurrence in self.events(*SAME_DTYPE):
            if occurrence.args is not None and any(
                is_activation(g.values) for g in occurrence.args.positional[2:]
            ):
                return f"line {line_of(site.node)} writes 16-bit values into a tensor that is fp32"
        for site, occurrence in self.events("tensor_write"):
            node = site.node
            if (
                isinstance(node, ast.Subscript)
                and is_activation(occurrence.result)
                and _by_mask(self.script, node.slice)
            ):
                return f"line {line_of(site.node)} writes 16-bit values into a part of a tensor that is fp32"
        for site, occurrence in self.events("sync"):
            if (
                occurrence.data.get("how") == "numpy"
                and id(site.node) not in self.here
                and isinstance(occurrence.this, Tensor)
                and is_activation(frozenset({occurrence.this}))
            ):
                return (
                    f"line {line_of(site.node)} gives a 16-bit tensor to NumPy, which has no bf16"
                )
        return ""

    def _size(self) -> str:
        """One small matrix: casting it takes longer than it saves."""
        if self.is_small and sum(len(dense_sizes(self.script, m)) for m in self.models) == 1:
            return "the model is one small linear layer: casting it would take longer than it saves"
        return ""

    @cached_property
    def is_small(self) -> bool:
        """All models are small linear layers and what costs nothing beside them: to launch their kernels, and to cast, takes longer than to multiply."""
        sizes = [dense_sizes(self.script, m) for m in self.models]
        return bool(sizes) and all(s and max(s) < TINY for s in sizes)

    @cached_property
    def recurrent(self) -> str:
        """What autocast for CUDA computes in fp16, whichever dtype it was asked for, in words; empty where there is nothing.

        torch casts the arguments of cuDNN's recurrent networks to fp16 (AutocastRNN.cpp); cells (``LSTMCell``) get the dtype asked for.
        """
        for model in self.models:
            if found := sorted(model.layers & RECURRENT):
                return (
                    f"autocast runs the {found[0]} of {model.name} in fp16, whatever it is set to"
                )
            for site in self.script.log.of("new"):
                if _belongs(site, model) and any(_may_be_recurrent(o.this) for o in site):
                    return f"line {line_of(site.node)} makes a layer by its name: an LSTM would run in fp16, whatever autocast is set to"
        return ""

    @cached_property
    def not_fp16(self) -> str:
        """A constant that fp16 cannot hold, in words; empty where there is none."""
        for part in self.parts:
            for node in ast.walk(part):
                if isinstance(node, ast.expr) and (value := self._constant(node)) is not None:
                    if abs(value) > FP16_MOST or 0 < abs(value) < FP16_LEAST:
                        return f"fp16 cannot hold {value:g} ({source_of(node).rel}:{node.lineno})"
        return ""

    def _constant(self, node: ast.expr) -> float | None:
        """The number that an operand or an argument is; not one of a layer, a loss or a functional norm, which compute in fp32."""
        parent = getattr(node, "_af_parent", None)
        call = getattr(parent, "_af_parent", None) if isinstance(parent, ast.keyword) else parent
        if isinstance(call, ast.Call) and call.func is not node:
            if any(_keeps_fp32(t) for t in self.script.values(call.func)):
                return None
        elif not isinstance(parent, (ast.BinOp, ast.arguments)):
            return None
        if (
            isinstance(node, ast.UnaryOp)
            and isinstance(node.op, ast.USub)
            and isinstance(node.operand, ast.Constant)
        ):
            number = node.operand.value
            value = -number if isinstance(number, (int, float)) else number
        elif isinstance(node, ast.Constant):
            value = node.value
        else:
            value = const(self.script.values(node))
        return (
            float(value)
            if isinstance(value, (int, float))
            and not isinstance(value, bool)
            and value == value
            and abs(value) != float("inf")
            else None
        )

    # ------------------------------------------------------------------------------------------------ events
    def events(self, *kinds: str, entered: bool = False) -> Iterator[tuple[Site, Occurrence]]:
        """What happens in this code, or in what it calls; with ``entered`` only what was seen to happen on the way from here."""
        for site in self.script.log.of(*kinds):
            mine = [o for o in site if happens_in(o, site.node, self.here)]
            if not entered and id(site.node) in self.all and not mine and site.occurrences:
                mine = [
                    site.occurrences[0]
                ]  # a forward that the reader entered once for all of its calls
            for occurrence in mine:
                yield site, occurrence

    def _kinds(self) -> list[str]:
        return sorted({kind for kind, _ in self.script.log._sites})


def banned(loss: Thing | None) -> str:
    """The name of a loss that is an error under autocast; empty for any other."""
    if isinstance(loss, Inst):
        return next((n for n in BANNED if n in loss.cls.external), "")
    return loss.name if isinstance(loss, (Ext, Ref)) and loss.name in BANNED else ""


def error_of(name: str, site: Site) -> str:
    """What is wrong with a banned loss, in words."""
    short = name.rsplit(".", 1)[-1]
    better = "BCEWithLogitsLoss" if short == "BCELoss" else f"{short}_with_logits"
    return f"{short} (line {line_of(site.node)}) is an error under autocast: use {better} and leave out the sigmoid before it"


def _models(script: Script, things: Iterable[Thing]) -> list[Model]:
    wanted = {id(inner) for thing in things for inner in unwrapped(thing)}
    return [m for m in script.models if id(m.thing) in wanted]


def _may_be(contexts: Values) -> bool:
    """A context that is autocast on one branch, or one that is not known at all."""
    return any(isinstance(t, Unknown) and "autocast" in t.name for t in contexts)


def _in_function_below(node: ast.AST, statements: list[ast.AST]) -> bool:
    tops = {id(s) for s in statements}
    for outer in ancestors(node):
        if id(outer) in tops:
            return False
        if isinstance(outer, (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)):
            return True
    return False


def _marked(cls: Cls) -> bool:
    """``@custom_fwd`` on forward: the author has thought of autocast."""
    return any(
        "custom_fwd" in ast.dump(d)
        for f in cls.node.body
        if isinstance(f, ast.FunctionDef) and f.name == "forward"
        for d in f.decorator_list
    )


def _has_tensor(given: Iterable[object]) -> bool:
    return any(is_activation(getattr(g, "values", frozenset())) for g in given)


def is_activation(found: Values) -> bool:
    """A tensor of numbers that comes out of a batch or a layer, or something that is not known."""
    return any(
        isinstance(t, Unknown)
        or (isinstance(t, Tensor) and not (t.loss or t.fresh or t.param) and t.dtype != "int")
        for t in found
    )


def _by_mask(script: Script, index: ast.expr) -> bool:
    """``x[mask] = y`` wants one dtype; ``x[i, :3] = y`` converts."""
    parts = index.elts if isinstance(index, ast.Tuple) else [index]
    return any(
        isinstance(t, (Tensor, Unknown, Seq))
        for p in parts
        if not isinstance(p, ast.Slice)
        for t in script.values(p)
    )


def _keeps_fp32(callee: Thing) -> bool:
    if isinstance(callee, Ref):
        last = callee.name.rsplit(".", 1)[-1]
        return callee.name.startswith(
            ("torch.nn.", "torch.optim.", "builtins.", "math.", "random.", "numpy.", "time.")
        ) or last in (
            "arange",
            "randint",
            "device",
        )
    return isinstance(callee, (Cls, Ext)) or callee is None


def _may_be_recurrent(thing: Thing | None) -> bool:
    """A layer that is chosen by its name, with sizes: activations have none."""
    return (
        isinstance(thing, Ext)
        and thing.name == ANY_LAYER
        and len(thing.args.positional) + len(thing.args.named) > 1
    )


def dense_sizes(script: Script, model: Model) -> list[int]:
    """The numbers of weights of the ``nn.Linear`` that a model is made of; empty where it has other heavy layers, or one is not known."""
    if any(layer.startswith(HEAVY) for layer in model.layers) or "Linear" not in model.layers:
        return []
    found = [
        o.this
        for s in script.log.of("new")
        if _belongs(s, model)
        for o in s
        if isinstance(o.this, Ext) and o.this.name == "torch.nn.Linear"
    ]
    sizes = [
        (const(t.args.get(0, "in_features")), const(t.args.get(1, "out_features"))) for t in found
    ]
    known = [a * b for a, b in sizes if isinstance(a, int) and isinstance(b, int)]
    return known if len(known) == len(sizes) else []


def _belongs(site: Site, model: Model) -> bool:
    inside = {id(model.node), *(id(c) for c in model.classes)}
    return any(id(outer) in inside for outer in (site.node, *ancestors(site.node)))
