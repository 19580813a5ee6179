"""The kinds of expressions and calls, and of what variables, attributes and containers hold."""

from __future__ import annotations

import ast
from collections.abc import Iterable

from autofast.facts.host_io import ASKS, IMAGES, effect_of, name_of
from autofast.flow.callgraph import Callee, code_of
from autofast.flow.scopes import owner
from autofast.model.calls import arguments_of, method_name, receiver_of, root_of
from autofast.model.kinds import is_module
from autofast.model.several import surely, wordset
from autofast.model.source import at, source_of, statement_of
from autofast.model.syntax import IDENTITY, SEQUENCES, is_attribute
from autofast.model.values import (
    COLLECTIONS,
    OBJECTS,
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Module,
    Reason,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    any_of,
    begins,
    is_named,
    of_kind,
)
from autofast.ops import is_in_place
from autofast.rule import Refusal
from autofast.techniques.ddp.uniformity.kinds import (
    EQUAL,
    LOADER,
    NEAR,
    SHAPE,
    SHARE,
    SIZE,
    Kind,
    each,
    join,
    joined,
    of,
    share,
)
from autofast.techniques.ddp.uniformity.notes import Notes
from autofast.techniques.ddp.uniformity.state import in_words

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
# Asked of a tensor, and the same in all processes.
TYPES = wordset("device dtype ndim is_cuda requires_grad grad_fn is_leaf layout dim get_device")
HOST = ("item", "tolist", "numpy")  # what makes a number of a tensor
MODULE = ("train", "eval", "load_state_dict", "requires_grad_", "to", "cuda", "step", "update")


class Values(Notes):
    """What expressions are; statements and functions are :class:`.walk.Walk`'s."""

    def step(self) -> None:
        raise NotImplementedError

    def call_function(self, callee: Callee, node: ast.Call | None) -> Kind:
        raise NotImplementedError

    # -------------------------------------------------------------------------------------- objects
    def things(self, node: ast.expr) -> list[Thing]:
        """What an expression may be in the calls that are followed now."""
        found = list(self.script.values(node))
        if isinstance(node, ast.Name):
            scope = self._scope_of(node)
            frame = next((f for f in reversed(self.frames) if f.run.function is scope), None)
            return found if frame is None else frame.things.get(node.id, found)
        if isinstance(node, ast.Attribute) and found:
            owners = self.things(node.value)
            bound = [t for t in found if isinstance(t, (Bound, Method))]
            if len(bound) == len(found):
                mine = {id(o) for o in owners}
                return [t for t in bound if id(t.this) in mine] or found
            if surely(isinstance(o, Inst) and node.attr in o.attrs for o in owners):
                kept = {
                    id(t)
                    for o in of_kind(owners, Inst)
                    for t in (*o.attrs[node.attr], *o.past.get(node.attr, ()))
                }
                return [
                    t for t in found if id(t) in kept or not isinstance(t, (Inst, Ext, Seq, Dict))
                ]
        return found

    # ---------------------------------------------------------------------------------------- names
    def _scope_of(self, node: ast.Name) -> ast.AST:
        return owner(node) or source_of(node).tree

    def _lookup(self, node: ast.Name) -> Kind:
        found = self.state.get(("v", self._scope_of(node), node.id))
        if found is not None:
            return found
        mine = source_of(node)
        for statement in of_kind(mine.tree.body, ast.ImportFrom):
            for alias in statement.names:
                if (alias.asname or alias.name) == node.id:
                    for source in self.script.sources:
                        if (kind := self.state.get(("v", source.tree, node.id))) is not None:
                            return kind
        return EQUAL

    def store(self, target: ast.expr, kind: Kind, value: ast.expr | None = None) -> None:
        """``value`` is what is stored, where that is known."""
        match target:
            case ast.Name():
                self.state["v", self._scope_of(target), target.id] = self.raised(kind)
                self.kinds[target] = kind
            case ast.Tuple(elts=parts) | ast.List(elts=parts):
                kinds = [kind.whole] * len(parts)
                if kind.name == "shape":
                    kinds = [SIZE, *[EQUAL] * (len(parts) - 1)]
                elif kind.items is not None:
                    several = kind.name != "each" and len(kind.items) == len(parts)
                    kinds = [*kind.items] if several else [joined(*kind.items)] * len(parts)
                for part, mine in zip(parts, kinds, strict=True):
                    self.store(part, mine)
            case ast.Starred():
                self.store(
                    target.value,
                    share("its length is not known") if kind.name == "shape" else kind.whole,
                )
            case ast.Attribute():
                self.changes(target)
                self.ev(target.value)
                self._store_attribute(target, self._keep(target, kind, value), value)
            case ast.Subscript():
                self.ev(target.slice)
                if self.ev(target.value).whole.name == "share":
                    self._in_place(target.value, [value] if value is not None else [])
                else:
                    self._hold(target.value, self._keep(target, kind, value))

    def _keep(self, target: ast.expr, kind: Kind, value: ast.expr | None) -> Kind:
        if value is None and not kind.whole.same:
            raise Refusal(
                f"`{ast.unparse(target)}` on {at(target)} keeps what differs between processes: {in_words(kind)}"
            )
        return self.raised(kind.whole) if value is None else self.kept(value, kind)

    def _store_attribute(self, target: ast.Attribute, kind: Kind, value: ast.expr | None) -> None:
        found = self.things(target.value)
        for thing in of_kind(found, Inst):
            key = ("a", id(thing), target.attr)
            old = self.state.get(key, kind)
            self.state[key] = kind if len(found) == 1 else join(old, kind)
        for module in of_kind(found, Module):
            self.state["v", module.source.tree, target.attr] = kind
        if not any_of(found, Inst, Module) and self.kinds[target.value].whole.name != "share":
            self._decide(target, kind, value)

    def _decide(self, target: ast.expr, kind: Kind, value: ast.expr | None) -> None:
        """``param_group["lr"] = x``: what is set decides how the training goes on."""
        if (
            kind.name == "near"
            and value is not None
            and isinstance(statement_of(target), ast.Assign)
        ):
            self.note(value, "first")
        self.happens(target)

    def _hold(self, container: ast.expr, what: Kind) -> None:
        """A container holds ``what`` from now on, under all its names."""
        self.changes(container)
        found = of_kind(self.things(container), COLLECTIONS)
        for thing in found:
            key = ("c", id(thing), "")
            self.state[key] = join(self.state.get(key, what), what)
        root = root_of(container, ast.Subscript)
        if isinstance(root, ast.Call):
            root = receiver_of(root) or root.func
        if isinstance(root, ast.Name):
            self.state["v", self._scope_of(root), root.id] = join(self._lookup(root).whole, what)
        elif isinstance(root, ast.Attribute):
            for inst in of_kind(self.things(root.value), Inst):
                key = ("a", id(inst), root.attr)
                self.state[key] = join(self.state.get(key, EQUAL).whole, what)

    def _in_place(self, changed: ast.expr, given: Iterable[ast.expr]) -> None:
        """A value is changed in place, which nobody sees who asks where it comes from: all that
        may be done is what is done to each sample.
        """
        shares = [e for e in given if not self.kinds.get(e, EQUAL).same]
        if self.kinds[changed].same and not shares:
            return
        root = changed
        while isinstance(root, (ast.Subscript, ast.Call)) or is_attribute(root, "data"):
            root = receiver_of(root) or root.func if isinstance(root, ast.Call) else root.value
        if not isinstance(root, ast.Name):
            raise Refusal(
                f"`{ast.unparse(root)}` is changed in place on {at(changed)}, in each process by its part of the batch"
            )
        if not self.numbers.are_rows(root, shares, self.frames[-1].run):
            self.store(root, share(f"it is changed in place on {at(changed)}"))

    def _inside(self, node: ast.expr, found: Kind) -> Kind:
        """What was put into the container that an expression may be, wherever that was done."""
        for thing in of_kind(self.things(node), COLLECTIONS):
            if (mine := self.state.get(("c", id(thing), ""))) is not None:
                found = join(found.whole, mine)
        return found

    # ---------------------------------------------------------------------------------- expressions
    def ev(self, node: ast.expr | None) -> Kind:
        if node is None:
            return EQUAL
        self.step()
        found = self._loader(node) if not isinstance(node, ast.Call) else None
        found = self._ev(node) if found is None else found
        self.kinds[node] = found
        if self.recording and found.same:
            self.whole.add(node)
        return found

    def _ev(self, node: ast.expr) -> Kind:
        match node:
            case ast.Name():
                return self._inside(node, self._lookup(node))
            case ast.BinOp(left=ast.expr() as left, right=right):
                kinds = self.ev(left), self.ev(right)
                if isinstance(node.op, ast.Mod) and isinstance(self.script.constant(left), str):
                    return self._text([right])
                return self._operation(node.op, (left, kinds[0]), (right, kinds[1]))
            case ast.UnaryOp(operand=operand):
                kind = self.ev(operand)
                return self._truth(operand) if isinstance(node.op, ast.Not) else kind.whole
            case ast.Compare():
                return self._compare(node)
            case ast.BoolOp(values=values):
                found = []
                for value in values:
                    found.append(self.condition(value))
                    self.under(value, found[-1])
                del self.control[-len(values) :]
                return joined(*found)
            case ast.IfExp():
                test = self.condition(node.test)
                self.under(node.test, test)
                kind = join(self.ev(node.body), self.ev(node.orelse))
                kind = self.raised(kind)
                self.control.pop()
                return kind
            case ast.Tuple(elts=elts) | ast.List(elts=elts):
                self._made_anew(node)
                found = [self.ev(e) for e in elts]
                starred = any_of(elts, ast.Starred)
                return _together(joined(*(k.whole for k in found))) if starred else of(*found)
            case ast.Attribute():
                return self._attribute(node)
            case ast.Subscript():
                return self._subscript(node)
            case ast.Call():
                return self._call(node)
            case ast.JoinedStr(values=values):
                return self._text(v.value for v in of_kind(values, ast.FormattedValue))
            case ast.NamedExpr():
                kind = self.ev(node.value)
                self.store(node.target, kind, node.value)
                return kind
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp() | ast.DictComp():
                return self._comprehension(node)
            case ast.Constant() | ast.Lambda():
                return EQUAL
            case ast.Yield() | ast.YieldFrom() | ast.Await():
                raise Refusal(f"what `{ast.unparse(node)}` on {at(node)} gives is not followed")
        self._made_anew(node)
        parts = of_kind(ast.iter_child_nodes(node), ast.expr)
        held = joined(*(self.ev(p).whole for p in parts))
        return held if isinstance(node, (ast.Slice, ast.Starred)) else _together(held)

    def under(self, test: ast.expr, kind: Kind) -> None:
        raise NotImplementedError

    def _loader(self, node: ast.expr) -> Kind | None:
        """A loader whose batches are shared out."""
        found = self.things(node)
        loaders = [t for t in of_kind(found, Ext) if self.training.shares(t)]
        if not loaders:
            return None
        rest = [t for t in found if t not in loaders and t != Const(None)]
        return share("it is one loader or another") if rest else LOADER

    def _made_anew(self, node: ast.expr) -> None:
        """An empty container again: what those made here before hold is known where they were
        put.
        """
        for thing in of_kind(self.things(node), COLLECTIONS):
            if getattr(thing, "node", None) is node:
                self.state.pop(("c", id(thing), ""), None)

    def _operation(
        self, op: ast.operator, left: tuple[ast.expr, Kind], right: tuple[ast.expr, Kind]
    ) -> Kind:
        kinds = a, b = left[1].whole, right[1].whole
        names = [k.name for k in kinds]
        if "share" in names:
            return self._mixed(left[0], kinds)
        if "size" not in names or {*names} - {"size", "equal", "near"}:
            return joined(*kinds)
        if a == b == SIZE and isinstance(op, (ast.Add, ast.Sub, ast.Div)):
            return EQUAL if isinstance(op, ast.Div) else SIZE
        if isinstance(op, (ast.Mult, ast.Div)) and EQUAL in kinds:
            if a == SIZE or isinstance(op, ast.Mult):
                return SIZE
        # Numbers of samples that go into a number in another way: those of all are meant.
        found = [self.read(e) if k == SIZE else k for e, k in (left, right)]
        return joined(*found)

    def _mixed(self, where: ast.expr, kinds: Iterable[Kind]) -> Kind:
        """What is made of a share and of others."""
        kinds = list(kinds)
        if any(k.counted for k in kinds):
            raise Refusal(
                f"a value of this process's part meets the number of samples of all on {at(where)}: divide sums by the size of the batch itself"
            )
        return next((k for k in kinds if k.why), SHARE)

    def _compare(self, node: ast.Compare) -> Kind:
        operands = [node.left, *node.comparators]
        kinds = [self.ev(o).whole for o in operands]
        if surely(isinstance(op, IDENTITY) for op in node.ops):
            return EQUAL
        if any(k.name == "share" for k in kinds):
            return self._mixed(node, kinds)
        return joined(*map(self.read, operands))

    def condition(self, test: ast.expr) -> Kind:
        self.ev(test)
        return self._truth(test)

    def _truth(self, test: ast.expr) -> Kind:
        """``if x``: a number that is compared is that of all."""
        if isinstance(test, ast.Compare) and not self.kinds[test].same:
            return joined(*map(self.read, (test.left, *test.comparators)))
        return self.read(test)

    def _attribute(self, node: ast.Attribute) -> Kind:
        """Of an object of a library: what the object is, since what differs by process comes from
        calls (``DRAWN``).
        """
        kind = self.ev(node.value).whole
        found = []
        for thing in of_kind(self.things(node.value), Inst):
            mine = self.state.get(("a", id(thing), node.attr))
            found += [mine] if mine is not None else []
            found += self._of_methods(thing, node.attr, "property")
        if found:
            return self._inside(node, joined(*found))
        if node.attr == "index" and any(map(_may_be_device, self.things(node.value))):
            return NEAR  # each process has a GPU of its own
        if node.attr in TYPES:
            return EQUAL
        if node.attr == "shape" and kind == SHARE:
            return SHAPE if self.numbers.has_rows(node.value, self.frames[-1].run) else SHARE
        return self._inside(node, kind)

    def _of_methods(self, thing: Inst, name: str, decorated: str = "") -> list[Kind]:
        """What a property gives, or a method without arguments."""
        return [
            self.call_function(Callee(func, thing), None)
            for func in of_kind(thing.cls.find(name) or (), Func)
            if not decorated
            or any(getattr(t, "name", "").endswith(decorated) for d in func.decorators for t in d)
        ]

    def _subscript(self, node: ast.Subscript) -> Kind:
        kind = self._inside(node.value, self.ev(node.value))
        index, key = self.ev(node.slice).whole, self.script.constant(node.slice)
        if any(id(t) in self.random_data for t in self.things(node.value)):
            self.draws(node)
        if kind.items is not None and isinstance(key, int) and kind.name != "each":
            if -len(kind.items) <= key < len(kind.items):
                return kind.items[key]
        kind = kind.whole
        if kind.name == "shape":
            if not isinstance(key, int) or key < 0:
                return SHARE
            return EQUAL if key else SIZE
        if kind.name == "share" or index.name in ("share", "size"):
            return self._mixed(node, (kind, index))
        return join(kind.items[0] if kind.items else kind, index)

    def _text(self, parts: Iterable[ast.expr]) -> Kind:
        """A text of values, which says what they are, or what their ``__str__`` says."""
        found = EQUAL
        for part in parts:
            elements = part.elts if isinstance(part, SEQUENCES) else [part]
            for element in elements:
                self.ev(element)
                own = [
                    kind
                    for thing in of_kind(self.things(element), Inst)
                    for name in ("__str__", "__repr__", "__format__")
                    for kind in self._of_methods(thing, name)
                ]
                found = join(found, joined(*own) if own else self.read(element))
        return found

    def _comprehension(
        self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp
    ) -> Kind:
        depth = len(self.control)
        for generator in node.generators:
            kind = self.element(generator.iter, self.ev(generator.iter))
            self.store(generator.target, kind)
            for test in generator.ifs:
                self.under(test, self.condition(test))
        if isinstance(node, ast.DictComp):
            self.ev(node.key)
            found = self.ev(node.value)
        else:
            found = self.ev(node.elt)
        found = self.raised(found.whole)
        del self.control[depth:]
        return each(found) if isinstance(node, ast.GeneratorExp) else _together(found)

    def element(self, expr: ast.expr, kind: Kind) -> Kind:
        """What a loop over ``expr`` gives."""
        kind = self._inside(expr, kind)
        if kind.items is not None:
            return joined(*kind.items)
        if kind.name == "loader":
            return SHARE
        if kind.same or (kind == SHARE and self.script.must_be(expr, Seq, Dict)):
            return kind
        return share(kind.why or "single samples of this process's part")

    # ---------------------------------------------------------------------------------------- calls
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
        return self._opaque(node, EQUAL)

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
        if name == "backward" or (name in MODULE and (isinstance(this, Ext) or is_module(this))):
            self.happens(node)
            return self._opaque(node, EQUAL)
        if name in ADDERS and isinstance(this, (Seq, Dict, Unknown)):
            self._put(node)
            return EQUAL
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
        if name in TYPES:
            return EQUAL
        return (
            self._sized(node, EQUAL)
            if any_of(self.things(receiver), Tensor)
            else self._opaque(node, EQUAL)
        )


def _together(held: Kind) -> Kind:
    """A collection of these, which cannot be multiplied as a number of samples can."""
    return share("several numbers of samples at once") if held == SIZE else held


def _may_be_device(thing: Thing) -> bool:
    if isinstance(thing, Unknown):
        # A library's functions give no devices.
        return thing.reason not in (Reason.RESULT, Reason.METHOD)
    return is_named(thing, Ext, "torch.device")


def _different(found: list[Thing]) -> list[Thing]:
    """Without further tensors whose same method is called."""
    kept: dict[object, Thing] = {}
    for thing in found:
        key: object = id(thing)
        if isinstance(thing, Method) and isinstance(thing.this, (Tensor, Unknown)):
            key = type(thing.this), thing.name
        kept.setdefault(key, thing)
    return list(kept.values())
