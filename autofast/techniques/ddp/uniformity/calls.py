"""What calls give: of functions of the project and of libraries, of models and tensors."""

from __future__ import annotations

import ast

from autofast.facts.host_io import ASKS, IMAGES, effect_of, name_of
from autofast.flow.callgraph import Callee, code_of
from autofast.flow.effects import CHANGERS
from autofast.model.calls import arguments_of, method_name, receiver_of
from autofast.model.kinds import is_module
from autofast.model.names import last_part
from autofast.model.several import wordset
from autofast.model.source import at
from autofast.model.values import (
    OBJECTS,
    Bound,
    Cls,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    any_of,
    begins,
    of_kind,
)
from autofast.ops import is_in_place
from autofast.rule import Refusal
from autofast.techniques.ddp.uniformity.kinds import (
    EQUAL,
    NEAR,
    SHAPE,
    SHARE,
    SIZE,
    Kind,
    each,
    joined,
    of,
    share,
)
from autofast.techniques.ddp.uniformity.values import TYPES, Values

RANDOM = tuple(
    """torch.rand torch.randn torch.randint torch.randperm torch.normal torch.bernoulli
    torch.multinomial random. numpy.random.""".split()
)
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
# Functions that make a number or a text of what they are given.
READERS = wordset("str repr format float int bool round min max abs", "builtins.")
ALIKE = wordset("iter list tuple reversed sorted", "builtins.") | wordset("copy.copy copy.deepcopy")
ADDERS = wordset("append extend add update insert setdefault appendleft push")
HELD = ("collections.", "queue.", "multiprocessing.queues.", "asyncio.")  # libraries' containers
# functions that put into their first argument what else they are given
PUT = wordset("heappush heappushpop heapreplace", "heapq.") | wordset("operator.setitem")
PUT |= wordset("insort insort_left insort_right", "bisect.")
REDRAWS = ("apply", "reset_parameters", "_reset_parameters")
HOST = ("item", "tolist", "numpy")  # what makes a number of a tensor
MODULE = ("train", "eval", "load_state_dict", "requires_grad_", "to", "cuda", "step", "update")


class Calls(Values):
    """What calls are; statements and functions are :class:`.walk.Walk`'s."""

    def _call(self, node: ast.Call) -> Kind:
        found = self.things(node.func)
        if (loader := self._loader(node)) is not None and any_of(found, Ref):
            for part in arguments_of(node):
                self.ev(part)
            return loader
        effect = effect_of(self.script, node)
        if effect is not None and effect.kind in ("guard", "writer"):
            return self._effect(node, effect.name)
        if (receiver := receiver_of(node)) is not None:
            self.kinds[receiver] = self._inside(receiver, self.ev(receiver))
            if method_name(node) == "format" and isinstance(self.script.constant(receiver), str):
                return self._text(arguments_of(node))
        for part in arguments_of(node):
            self.ev(part)
        if effect is not None and effect.kind in ("read", "ask", "file", "download"):
            self.files(node, effect.kind)
        results = [self._call_thing(t, node) for t in _different(found)]
        return joined(*results) if results else self._unresolved(node)

    def _effect(self, node: ast.Call, name: str) -> Kind:
        if (receiver := receiver_of(node)) is not None:
            self.ev(receiver)
        if name.endswith(".summary") and name.startswith("torch"):
            self.draws(node)
        text = name.startswith(("builtins.print", "logging.", "tqdm", "sys.", "pprint."))
        for part in arguments_of(node):
            kind = self._text([part]) if text else self.ev(part)
            if IMAGES.fullmatch(name) is None and not (text and kind.same):
                self.settle(part)
        self.files(node, "guard")
        return EQUAL

    def _kinds(self, node: ast.Call) -> list[Kind]:
        return [self.kinds.get(a, EQUAL).whole for a in arguments_of(node)]

    def _call_thing(self, thing: Thing, node: ast.Call) -> Kind:
        match thing:
            case Bound(func=func, this=this) if (
                func.name == "forward" and is_module(this) and self._is_model(this)
            ):
                return self._forward(node)
            case Func() | Bound():
                return self.call_function(code_of(thing)[0], node)
            case Cls():
                return self._make(thing, node)
            case Inst() if not (is_module(thing) and self.training.trains(thing)):
                for callee in code_of(thing)[:1]:
                    return self.call_function(callee, node)
                return self._opaque(node)
            case Ref():
                return self._function(thing.name, node)
            case Method(this=this, name=name):
                return self._method(this, name, node)
            case Ext() | Inst():
                return self._forward(node) if is_module(thing) else self._opaque(node)
        return self._unresolved(node)

    def _is_model(self, thing: Thing) -> bool:
        return self.training.trains(thing) or any(m.thing is thing for m in self.script.models)

    def _unresolved(self, node: ast.Call) -> Kind:
        if method_name(node) in ADDERS:
            self._put(node)
        return self._of_tensor(method_name(node), node)

    def _opaque(self, node: ast.Call, otherwise: Kind = NEAR) -> Kind:
        """What a library, or code that is not followed, makes of its arguments."""
        receiver = receiver_of(node)
        kinds = self._kinds(node)
        if receiver is not None:
            kinds.append(self.kinds.get(receiver, EQUAL).whole)
        # What goes through the elements of a generator makes something of them.
        kinds = [k.items[0].whole if k.name == "each" and k.items else k for k in kinds]
        if all(k.same or k.name == "loader" for k in kinds):
            return NEAR if any(k.name == "near" for k in kinds) else otherwise
        return self._mixed(node, kinds)

    def _forward(self, node: ast.Call) -> Kind:
        """A model or a loss."""
        if node in self.passes:
            self.happens(node)
        return self._opaque(node)

    def _make(self, cls: Cls, node: ast.Call) -> Kind:
        for thing in of_kind(self.things(node), Inst):
            if thing.cls is cls:
                for func in of_kind(cls.find("__init__") or (), Func):
                    self.call_function(Callee(func, thing), node)
        return EQUAL if cls.find("__init__") else self._opaque(node, EQUAL)

    def _put(self, node: ast.Call) -> None:
        """``losses.append(x)``: the list holds it from now on, whatever it is called."""
        self.changes(node)
        if (receiver := receiver_of(node)) is not None and self._lasts(receiver):
            self.changed_alike(node, arguments_of(node))
            return
        for part in arguments_of(node):
            what = self.kept(part, self.kinds[part])
            if (receiver := receiver_of(node)) is not None:
                self._hold(receiver, what)

    def _function(self, name: str, node: ast.Call) -> Kind:
        if name.startswith(RANDOM) or name in (
            "builtins.next",
            "torchsummary.summary",
            "torchinfo.summary",
        ):
            self.draws(node)
        first = node.args[0] if node.args else None
        kind = self.kinds.get(first, EQUAL)
        if (
            name in ("builtins.vars", "builtins.getattr", "dataclasses.asdict")
            and first is not None
        ):
            held = [
                k
                for t in self.things(first)
                for (what, thing, _), k in self.state.items()
                if (what, thing) == ("a", id(t))
            ]
            return joined(kind, *held, *self._kinds(node)[1:])
        if name.startswith("torch.nn.init.") and first is not None and self._lasts(first):
            raise Refusal(
                f"{last_part(name)}() on {at(node)} draws the weights anew while it trains, in every process others"
            )
        if self.place == "in" and name.startswith("torch.optim."):  # what trains from here on
            self.happens(node)
            self._agreed(arguments_of(node))
        if self.place == "in" and name == "builtins.setattr":
            self._agreed(arguments_of(node)[2:])
        if name in PUT and first is not None:
            for part in arguments_of(node)[1:]:
                self._hold(first, self.kept(part, self.kinds[part]))
        if self.place == "in" and name.endswith("random.shuffle") and first is not None:
            self._hold(first, NEAR)
        if name == "torch.nn.utils.vector_to_parameters" and self.place == "in":
            self.changed_alike(node, arguments_of(node)[:1])
        if name == "builtins.len" and first is not None:
            if kind.whole == SHARE:
                rows = self.numbers.has_rows(first, self.frames[-1].run)
                return SIZE if rows else share("the length of a batch")
            return EQUAL if kind.name == "loader" else kind.whole
        if name == "builtins.enumerate" and first is not None:
            return each(of(EQUAL, self.element(first, kind)))
        if name == "builtins.zip":
            return each(of(*(self.element(a, self.kinds[a]) for a in node.args)))
        if name in ("builtins.next", "builtins.sum") and first is not None:
            return self.element(first, kind)
        if name in ("itertools.islice", "itertools.cycle") and first is not None:
            return each(self.element(first, kind))
        if name in ALIKE or name.startswith(("tqdm", "rich.progress")):
            return kind
        if name in ("builtins.isinstance", "builtins.hasattr", "builtins.type"):
            return EQUAL
        if name in READERS or name.startswith("math."):
            return joined(EQUAL, *map(self.read, arguments_of(node)))
        if name.startswith((*DRAWN, *RANDOM)) or ASKS.fullmatch(name):
            # The first process may have made the file by now.
            return self._sized(node, NEAR)
        if name.startswith("torch."):
            return self._sized(node, EQUAL)
        if any(self.kinds.get(a, EQUAL).name in ("loader", "each") for a in arguments_of(node)):
            mine = joined(*(self.element(a, self.kinds[a]) for a in arguments_of(node)))
            if not mine.same:
                return each(share(f"what {name}() makes of batches is not followed"))
        return self._opaque(node, EQUAL)

    def _agreed(self, given: list[ast.expr]) -> None:
        """What is drawn for it is what the first process draws."""
        for expr in given:
            if self.kinds[expr].whole.name == "near":
                self.note(expr, "first")

    def _sized(self, node: ast.Call, otherwise: Kind) -> Kind:
        """What may be given sizes of tensors: those of this process."""
        if any(k.counted for k in self._kinds(node)):
            self._mixed(node, self._kinds(node))
        return self._opaque(node, otherwise)

    def _method(self, this: Thing, name: str, node: ast.Call) -> Kind:
        if begins(this, Ext, ("numpy.random.", "random.")):
            self.draws(node)
        if isinstance(this, Ext) and name == "step" and "lr_scheduler" in this.name:
            self.happens(node)
            for part in node.args:
                if self.kinds[part].whole.name == "near":
                    self.note(part, "first")
                else:
                    self.settle(part)
            return EQUAL
        if name == "state_dict" and isinstance(this, OBJECTS) and not self.guarded:
            self.happens(node)  # what is kept of it may be loaded again
        if name in REDRAWS and is_module(this) and self.place == "in":
            raise Refusal(
                f"{name}() on {at(node)} may draw weights anew while it trains, in every process others"
            )
        if name == "train" and is_module(this) and self.place == "in":
            for part in arguments_of(node):
                if self.kinds[part].whole.name == "near":
                    self.note(part, "first")
        held = begins(this, Ext, HELD) and name in CHANGERS
        if held or (name in ADDERS and isinstance(this, (Seq, Dict, Unknown))):
            self._put(node)
            return EQUAL
        if name == "backward" or (name in MODULE and (isinstance(this, Ext) or is_module(this))):
            self.happens(node)
            return self._opaque(node, EQUAL)
        known = name_of(Method(this, name))
        if ASKS.fullmatch(known):
            return NEAR
        if known.startswith("tqdm"):  # shown, in the first process only
            for part in arguments_of(node):
                self.settle(part)
            return EQUAL
        return self._of_tensor(name, node)

    def _of_tensor(self, name: str, node: ast.Call) -> Kind:
        """A method of a tensor, or of what may be one."""
        receiver = receiver_of(node)
        if receiver is None:
            return self._opaque(node)
        kind = self.kinds[receiver].whole
        if kind.name == "share":
            rows = self.numbers.has_rows(receiver, self.frames[-1].run)
            if name in HOST:
                return self.read(receiver)
            if name == "size" and rows:
                key = self.script.constant(node.args[0]) if node.args else None
                if key is None:
                    return SHAPE
                return EQUAL if isinstance(key, int) and key > 0 else SIZE if key == 0 else SHARE
            if name in ("items", "values", "keys"):
                return each({"items": of(EQUAL, kind), "keys": EQUAL}.get(name, kind))
        if is_in_place(name):
            self._in_place(receiver, arguments_of(node))
        elif name in CHANGERS and self._lasts(receiver):
            self.changed_alike(node, arguments_of(node))
        if name in TYPES:
            return EQUAL
        return (
            self._sized(node, EQUAL)
            if any_of(self.things(receiver), Tensor)
            else self._opaque(node, EQUAL)
        )


def _different(found: list[Thing]) -> list[Thing]:
    """Without further tensors whose same method is called."""
    kept: dict[object, Thing] = {}
    for thing in found:
        key: object = id(thing)
        if isinstance(thing, Method) and isinstance(thing.this, (Tensor, Unknown)):
            key = type(thing.this), thing.name
        kept.setdefault(key, thing)
    return list(kept.values())
