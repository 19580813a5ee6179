"""The kinds of what functions of libraries give: losses, layers, factories, Python's own."""

from __future__ import annotations

import ast
from dataclasses import replace

from autofast.facts.batch.calls import reduction_of
from autofast.facts.batch.losses_of_torch import Loss, loss_called
from autofast.facts.host_io import ASKS, READS, name_of
from autofast.model.calls import arguments_of, keyword_of, receiver_of
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.several import wordset
from autofast.model.syntax import SEQUENCES
from autofast.model.values import (
    COLLECTIONS,
    OBJECTS,
    Dict,
    Ext,
    Inst,
    Method,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    all_of,
    begins,
)
from autofast.rule import Refusal
from autofast.techniques.ddp.uniformity.kinds import (
    BATCH,
    EQUAL,
    MEAN,
    NEAR,
    NONE,
    SIZE,
    SUM,
    Called,
    Kind,
    add,
    join,
    joined,
    of,
    other,
    over,
    times,
)
from autofast.techniques.ddp.uniformity.tensors import Tensors, is_tensor

REDUCED = {"mean": MEAN, "batchmean": MEAN, "sum": SUM, "none": BATCH}
RANDOM = tuple(
    """torch.rand torch.randn torch.randint torch.randperm torch.normal torch.bernoulli
    torch.multinomial""".split()
)
FILLED = ("torch.ones", "torch.zeros", "torch.full", "torch.empty", "torch.arange")
# what every process, or every machine, has another of; whatever else a library gives for equal
# arguments is taken to be equal
DRAWN = tuple("""random. numpy.random. secrets. uuid. tempfile. os.urandom torch.seed torch.cuda.seed
    torch.Generator time. datetime. timeit. torch.cuda.Event os.times os.getpid os.getppid
    os.getpgid os.getloadavg os.sched_getaffinity threading. multiprocessing. subprocess.
    builtins.id builtins.hash psutil. resource. tracemalloc. gc. shutil.disk_usage socket.
    platform.node platform.uname os.uname torch.cuda.mem torch.cuda.max_mem torch.cuda.util
    torch.cuda.current_device torch.cuda.get_device torch.cuda.temperature torch.cuda.power_draw
    torch.cuda.clock_rate torch.cuda.list_gpu_processes torch.mps.current_alloc
    torch.mps.driver_alloc pynvml. nvidia_smi. GPUtil. gpustat.""".split())  # fmt: skip
FORMATS = wordset("builtins.str builtins.repr builtins.format builtins.print")
NUMBERS = wordset("builtins.float builtins.int builtins.bool builtins.round")
ALIKE = wordset("""builtins.iter builtins.list builtins.tuple builtins.reversed builtins.sorted copy.copy
    copy.deepcopy""")
ADDERS = wordset("append extend add update insert setdefault appendleft push")
CLASSES = COLLECTIONS


class LibraryCalls(Tensors):
    """Functions, methods and modules of libraries."""

    def _function(self, name: str, call: Called) -> Kind:
        node, args, wholes = call.node, call.args, call.wholes
        last = last_part(name)
        if name.startswith((*RANDOM, "random.", "numpy.random.")) or name in (
            "builtins.next",
            "torchsummary.summary",
            "torchinfo.summary",
        ):
            self.draws(node)
        first = next(iter(call.kinds), EQUAL)
        if name in ("builtins.vars", "builtins.getattr", "dataclasses.asdict") and args:
            asked = self.script.constant(node.args[1]) if len(args) > 1 else None
            known = [
                self.state.get(("a", id(t), asked), EQUAL)
                if isinstance(asked, str)
                else self.contents(t, None)
                for t in self.things(node.args[0])
            ]
            return joined(first, *known, *args[2:])
        if name == "builtins.len" and args:
            return self._length(node.args[0], first)
        if name == "builtins.enumerate":
            return Kind("iter", items=(of(EQUAL, self.element(node.args[0], first)),))
        if name == "builtins.zip":
            return Kind(
                "iter",
                items=(of(*(self.element(e, k) for e, k in zip(node.args, args, strict=True))),),
            )
        if name == "builtins.next":
            return self.element(node.args[0], first)
        if name in ALIKE or name.startswith(("tqdm", "rich.progress")):
            return first
        if name in ("builtins.sys.exit", "sys.exit", "builtins.exit", "builtins.quit", "os._exit"):
            return EQUAL
        if name in FORMATS:
            return self._text(node.args)
        if name in NUMBERS and args:
            return self._read_whole(node.args[0], first)
        if name == "builtins.sum" and args:
            return self.element(node.args[0], first)
        if name.startswith((*RANDOM, *FILLED)) and not name.endswith("_like"):
            return self._filled(name, call)
        if name.startswith(DRAWN):
            return NEAR if all(k.same for k in wholes) else self._scaled_call(call)
        if name.startswith("torch.") or (
            name.startswith("numpy.") and any(not k.same for k in wholes)
        ):
            return self._torch(name, last, call)
        if ASKS.fullmatch(name) or READS.fullmatch(name):
            # The first process may have made the file by now.
            asks = NEAR if ASKS.fullmatch(name) else EQUAL
            if all(k.same for k in wholes):
                return asks
            return self._opaque(wholes, "a file that a batch names")
        if all(k.same or k.name == "loader" for k in wholes):
            return NEAR if any(k.name == "near" for k in wholes) else EQUAL
        if name.startswith(("builtins.", "math.")):
            return self._scaled_call(call)
        return self._opaque(wholes, f"what {name}() makes of a batch")

    def _filled(self, name: str, call: Called) -> Kind:
        """A new tensor: with a row for each sample where its first size is that of a batch."""
        node, wholes = call.node, call.wholes
        if any(k.name == "per" for k in wholes):
            return other("a new tensor of a number of this process")
        if all(k.same for k in wholes):
            return NEAR if name.startswith(RANDOM) else EQUAL
        sizes = [a for a in node.args if not isinstance(a, ast.Starred)]
        if name in ("torch.randint", "torch.normal"):
            sizes = [a for a in sizes if isinstance(a, SEQUENCES) or self.kinds[a].shape]
        elif name in ("torch.randperm", "torch.arange", "torch.bernoulli", "torch.multinomial"):
            return other(f"what {name}() makes of a number of samples")
        first = sizes[0] if sizes else keyword_of(node, "size")
        if isinstance(first, SEQUENCES) and first.elts:
            first = first.elts[0]
        kind = self.kinds.get(first, EQUAL)
        rest = [k for k in wholes if not k.same and k.items is None and k is not kind]
        if (kind.sized or (kind.shape and kind.axis == 0)) and not rest:
            return BATCH
        return other("the shapes are not known")

    def _scaled_call(self, call: Called) -> Kind:
        """A function of numbers: those of all processes are meant."""
        found = EQUAL
        for part, kind in zip(arguments_of(call.node), call.wholes, strict=True):
            read = self._read_whole(part, kind)
            found = join(found, read) if read.same else read
        return found

    def _length(self, expr: ast.expr, kind: Kind) -> Kind:
        whole = kind.whole
        if whole.name == "batch" and kind.items is None:
            if not is_tensor(self.script, expr):
                return SIZE if self._surely_rows(expr) else other("the length of a batch")
            if whole.axis == "some":
                return other("the number of some samples")
            return SIZE if whole.axis in (0, "flat") and not whole.shape else EQUAL
        return EQUAL

    def _surely_rows(self, expr: ast.expr) -> bool:
        return all_of(self.things(expr), Tensor)

    def _torch(self, name: str, last: str, call: Called) -> Kind:
        args, wholes = call.args, call.wholes
        if all(k.same or k.name == "loader" for k in wholes):
            return NEAR if any(k.name == "near" for k in wholes) else EQUAL
        if (loss := loss_called(Ref(name))) is not None:
            return self._loss(*loss, call)
        if last in ("add", "sub", "subtract") and len(args) == 2:
            return add(*args)
        if last in ("mul", "multiply") and len(args) == 2:
            return times(*args)
        if last in ("div", "divide", "true_divide") and len(args) == 2:
            return over(*args)
        if last in ("cat", "concat", "stack", "hstack", "vstack", "concatenate") and args:
            inner = args[0].whole
            dims = self._dims(call.node, 1)
            if inner.name == "batch":
                if last != "stack" and dims in (None, 0):
                    return inner
                return other("samples are put together in a way that is not known")
            return inner
        if last in ("clip_grad_norm_", "clip_grad_value_"):
            return EQUAL
        if args:
            first = args[0].whole
            kind = joined(*(w for w in wholes if not w.same)) if first.same else first
            return self._tensor(last, kind, replace(call, args=args[1:], shift=1))
        return self._opaque(wholes, f"what {name}() makes of a batch")

    def _loss(self, known: Loss, made: Ext | None, call: Called) -> Kind:
        """What a loss function makes of a batch, by its reduction."""
        parts = [k for k in call.wholes if k.name in ("other", "mean", "sum")]
        if parts:
            unknown = (k for k in parts if k.name == "other")
            return next(unknown, other("a loss of parts of numbers"))
        try:
            reduction, _ = reduction_of(self.script, known, made, call.node)
        except Refusal as why:
            return other(f"not put together again over processes: {why}")
        return REDUCED.get(reduction, other("how the loss is reduced is not known"))

    def _module(self, thing: Ext, call: Called) -> Kind:
        """A layer, a loss or a model of a library."""
        wholes = call.wholes
        short = last_part(thing.name)
        if self.training.trains(thing):
            return self._forward(call)
        if all(k.same for k in wholes):
            return NEAR if is_module(thing) or any(k.name == "near" for k in wholes) else EQUAL
        if (loss := loss_called(thing)) is not None:
            return self._loss(*loss, call)
        if thing.name.startswith("torch.nn.") and short.endswith("Loss"):
            return other(f"how {short} goes together over processes is not known")
        if is_module(thing):
            return self._forward(call)
        return self._opaque(wholes, f"what {thing.name} makes of a batch")

    def _method(self, this: Thing, name: str, call: Called) -> Kind:
        node, receiver, kinds = call.node, call.receiver, call.kinds
        whole = receiver.whole
        if begins(this, Ext, ("numpy.random.", "random.")):
            self.draws(node)
        if isinstance(this, Ext) and name == "step" and "lr_scheduler" in this.name:
            self.changes(node)
            self.happens(node)
            for part in node.args:
                if self.kinds[part].whole.name == "near":
                    self.first_value(part)
                else:
                    self.settle(part)
            return NONE
        if name == "state_dict" and isinstance(this, OBJECTS) and not self.guarded:
            self.happens(node)  # what is kept of it may be loaded again
        if isinstance(this, Ext) and (
            name in ("step", "load_state_dict", "backward", "update", "zero_grad")
            or is_module(this)
        ):
            if name in ("step", "load_state_dict", "train", "eval", "requires_grad_", "update"):
                self.happens(node)
            if all(k.same for k in kinds):
                return EQUAL
            return self._opaque(kinds, f"what .{name}() does with a batch")
        if name == "backward":
            self.happens(node)
            return NONE
        if name in ADDERS and isinstance(this, (Seq, Dict, Unknown)):
            self._put(call)
            return NONE
        if whole.name in ("batch", "mean", "sum"):
            return self._tensor(name, whole, call)
        if whole.name == "iter":
            return receiver
        if isinstance(this, Inst) and is_module(this):
            if name in ("train", "eval", "load_state_dict", "requires_grad_", "to", "cuda"):
                self.happens(node)
            return EQUAL
        if ASKS.fullmatch(name_of(Method(this, name))):
            return NEAR
        if name_of(Method(this, name)).startswith("tqdm"):
            for part in arguments_of(node):
                self.settle_if_number(part)
            return EQUAL
        if whole.same and all(k.whole.same for k in kinds):
            near = whole.name == "near" or any(k.whole.name == "near" for k in kinds)
            return NEAR if near else EQUAL
        of = receiver_of(node)
        text = None if of is None else self.script.constant(of)
        if whole.same and isinstance(text, str):
            return self._text(arguments_of(node))
        return self._opaque([receiver, *kinds], f"what .{name}() makes of a batch")

    def settle_if_number(self, expr: ast.expr) -> None:
        """The argument of a progress bar: shown, in the first process only."""
        kind = self.kinds[expr].whole
        if kind.name != "sum" or not kind.sized:
            self.settle(expr)
