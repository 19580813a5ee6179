"""One side of a loader: the code of the project that runs there, what it reads, what it changes, and what others change of that."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from autofast.flow.callgraph import Callee, CallGraph, code_of
from autofast.flow.defuse import Definition, bound_to
from autofast.flow.effects import Effects, Write, is_number
from autofast.flow.program import Flow, holder_of
from autofast.flow.scopes import FUNCTIONS, defaults, parameters, variables_of
from autofast.model.events import CallFrame
from autofast.model.kinds import is_property
from autofast.model.script import Script
from autofast.model.source import ancestors, function_of, live, parent_of, source_of
from autofast.model.values import (
    Arg,
    Arguments,
    Bound,
    Cls,
    Const,
    Dict,
    Ext,
    Func,
    Inst,
    Method,
    Module,
    Num,
    Partial,
    Ref,
    Seq,
    Tensor,
    Thing,
    Unknown,
    Values,
    ordered,
)
from autofast.ops import is_view

PLACES = (
    ast.Attribute,
    ast.Subscript,
    ast.Name,
    ast.Call,
    ast.For,
    ast.AsyncFor,
    ast.comprehension,
    ast.YieldFrom,
)
CALLED = ("__call__", "forward")
GETTERS = ("__getitem__", "__getitems__", "__iter__", "__next__")
# A default of this kind is one object for all calls.
MUTABLE = (ast.List, ast.Dict, ast.Set, ast.Call)
NO_PROTOCOL = frozenset(
    {
        "__init__",
        "__new__",
        "__del__",
        "__getstate__",
        "__setstate__",
        "__repr__",
        "__str__",
        "__init_subclass__",
    }
)
# fmt: off
PARTS = frozenset(  # methods of containers whose result may be a part of what they are called on
    "get pop popleft popitem setdefault values items keys __getitem__ loc iloc __iter__ requires_grad_".split()
)
COPIES = frozenset(  # methods of things that are not known whose result is certainly something new
    "copy clone astype tolist item convert resize crop rotate read decode encode lower upper strip split join format replace numpy "
    "mean sum max min transpose load open sample".split()
)
PASSING = frozenset({  # functions whose result may be their argument, or hold parts of it
    "builtins.iter", "builtins.next", "builtins.enumerate", "builtins.zip", "builtins.reversed", "builtins.map", "builtins.filter",
    "builtins.getattr", "builtins.vars", "random.choice", "torch.from_numpy", "torch.as_tensor", "numpy.asarray", "numpy.ascontiguousarray",
    "numpy.squeeze", "numpy.expand_dims", "numpy.transpose", "numpy.reshape", "numpy.ravel", "numpy.atleast_1d", "numpy.atleast_2d",
    "torch.squeeze", "torch.unsqueeze", "torch.reshape", "torch.transpose", "operator.itemgetter", "typing.cast", "builtins.super",
})
WRITERS = frozenset({
    "torch.save", "numpy.save", "numpy.savez", "numpy.savez_compressed", "numpy.savetxt", "pickle.dump", "json.dump", "joblib.dump",
    "cv2.imwrite", "imageio.imwrite", "os.remove", "os.unlink", "os.rename", "os.replace", "os.rmdir", "shutil.move", "shutil.copy",
    "shutil.copyfile", "shutil.rmtree", "torchvision.utils.save_image", "os.chdir",
})
ITERATORS = ("itertools.", "builtins.iter", "builtins.zip", "builtins.map", "builtins.filter", "builtins.enumerate", "builtins.reversed")
HOLDERS = ("h5py.File", "lmdb.open", "sqlite3.connect", "socket.socket", "zipfile.ZipFile", "tarfile.open", "cv2.VideoCapture", "gzip.open",
           "queue.", "multiprocessing.Queue", "multiprocessing.Value", "threading.")
# fmt: on
SETTLED = (
    "RandomSampler",
    "SequentialSampler",
    "WeightedRandomSampler",
    "DistributedSampler",
)  # they draw all indices at the beginning
OPTIONS = (
    "argparse.",
    "easydict.",
    "yacs.",
    "omegaconf.",
    "ml_collections.",
    "types.",
    "addict.",
    "munch.",
)  # only the program reads these
DEEP = 24
PASSES = 8


class Side:
    """The project's code that runs for a loader in one place (fetching items, or choosing indices), and the objects it reads."""

    def __init__(self, script: Script, roots: Iterable[Thing], beside: Iterable[Thing] = ()):
        self.script = script
        self.graph, self.flow, self.effects = (
            script.analysis(CallGraph),
            script.analysis(Flow),
            script.analysis(Effects),
        )
        self.roots = list(roots)
        self.functions: dict[int, ast.AST] = {}
        self.starts: set[int] = set()  # functions that the loader (or a library) calls
        self.partials: dict[int, list[Partial]] = {}
        self.sites: dict[int, list[ast.Call]] = {}  # where this side's code calls a function
        self.loads: set[str] = set()  # attributes that it reads
        self.every = False  # ... and any other
        self.free: dict[tuple[int, str], ast.Name] = {}
        self.objects: dict[int, Thing] = {}
        self.classes: dict[int, Cls] = {}
        self.environment = False
        self.calls: list[ast.Call] = []
        self._kept: dict[object, bool] = {}
        self.beside = {id(f) for thing in beside for f in run_by(thing, CALLED)}
        for thing in self.roots:
            self.enter(thing, GETTERS + CALLED)
        for _ in range(PASSES):
            known = len(self.functions), len(self.loads), len(self.objects)
            self.collect()
            if known == (len(self.functions), len(self.loads), len(self.objects)):
                break
        self.aliases, self.fields = self.given_names()

    # ---------------------------------------------------------------- functions
    def enter(self, thing: Thing, methods: tuple[str, ...] = CALLED) -> None:
        for function in run_by(thing, methods):
            self.starts.add(id(function))
            if isinstance(thing, Partial) and all(
                p is not thing for p in self.partials.get(id(function), ())
            ):
                self.partials.setdefault(id(function), []).append(thing)
            self.function(function)

    def function(self, function: ast.AST) -> None:
        if id(function) in self.functions or len(self.functions) > 300:
            return
        self.functions[id(function)] = function
        body = (
            [function.body] if isinstance(function, ast.Lambda) else getattr(function, "body", [])
        )
        for node in (n for part in body for n in live(part)):
            if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                self.loads.add(node.attr)
                self.properties(node)
            elif isinstance(node, ast.Call):
                self.call(node)
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                home = holder_of(node)
                if id(home) not in self.functions and not holds(function, home):
                    self.free.setdefault((id(home), node.id), node)
            if isinstance(node, ast.expr):
                self.value(node)

    def properties(self, node: ast.Attribute) -> None:
        for thing in self.script.values(node.value):
            for member in (thing.cls.find(node.attr) or ()) if isinstance(thing, Inst) else ():
                if isinstance(member, Func) and is_property(member):
                    self.starts.add(id(member.node))
                    self.function(member.node)

    def call(self, node: ast.Call) -> None:
        callees = self.script.values(node.func)
        for callee in self.graph.callees(node):
            self.sites.setdefault(id(callee.function), []).append(node)
            self.function(callee.function)
        names = {t.name for t in callees if isinstance(t, Ref)}
        if "builtins.getattr" in names and len(node.args) > 1:
            keys = self.script.values(node.args[1])
            self.loads.update(str(k.value) for k in keys if isinstance(k, Const))
            self.every = self.every or not all(isinstance(k, Const) for k in keys)
        if names & {"builtins.vars", "builtins.globals", "builtins.eval", "builtins.exec"}:
            self.every = True
        if any(n.startswith(("os.environ", "os.getenv")) for n in names):
            self.environment = True
        self.calls.append(node)

    def value(self, node: ast.expr) -> None:
        """Functions that are passed on, and objects of the project that are used as a whole (``x in bag``, ``with lock``)."""
        parent = parent_of(node)
        called = isinstance(parent, ast.Call) and parent.func is node
        for thing in self.script.values(node):
            if isinstance(thing, Ref) and thing.name.startswith("os.environ"):
                self.environment = True
            if isinstance(thing, (Func, Bound, Partial)) and not called:
                self.enter(thing)
            elif (
                isinstance(thing, Inst)
                and isinstance(node, (ast.Name, ast.Attribute))
                and not isinstance(parent, ast.Attribute)
            ):
                names = [
                    n
                    for c in (thing.cls, *thing.cls.ancestors())
                    for n in c.members
                    if n.startswith("__") and n.endswith("__")
                ]
                self.enter(
                    thing,
                    tuple(
                        n
                        for n in names
                        if n not in NO_PROTOCOL and not (n == "__len__" and thing in self.roots)
                    ),
                )

    # ---------------------------------------------------------------- objects
    def collect(self) -> None:
        """Everything that this code may read, beginning with what the loader has and the names around."""
        todo = [*self.roots]
        for name in self.free.values():
            todo += ordered(self.script.values(name))
        for function in self.functions.values():
            for name in (n for n in ast.walk(function) if isinstance(n, ast.Name)):
                todo += [t for t in self.script.values(name) if isinstance(t, Cls)]
        seen: set[int] = set()
        while todo and len(seen) < 4000:
            thing = todo.pop()
            if id(thing) in seen or isinstance(thing, (Const, Num, Ref, Unknown, Tensor, Arg)):
                continue
            seen.add(id(thing))
            self.objects[id(thing)] = thing
            todo += [t for values in self.parts(thing) for t in values]

    def parts(self, thing: Thing) -> Iterator[Iterable[Thing]]:
        if isinstance(thing, Inst):
            whole = self.every or bool(
                {n for n in thing.cls.external if not n.startswith("torch.utils.data.")}
            )
            yield from (found for name, found in thing.attrs.items() if whole or name in self.loads)
            yield [thing.cls]
            self.enter_held(thing)
        elif isinstance(thing, Cls):
            self.classes[id(thing)] = thing
            yield from (f for n, f in thing.members.items() if n in self.loads)
            yield thing.bases
        elif isinstance(thing, Ext):
            if thing.name.rsplit(".", 1)[-1] in SETTLED:
                return
            yield from thing.attrs.values()
            yield from thing.args.all()
        elif isinstance(thing, (Seq, Dict)):
            yield thing.any()
        elif isinstance(thing, (Func, Bound, Partial)):
            self.enter(thing)
            if isinstance(thing, Bound):
                yield [thing.this]
            elif isinstance(thing, Partial):
                yield from (thing.func, *thing.args.all())
            else:
                yield from thing.defaults.values()
        elif isinstance(thing, Method):
            yield [thing.this]
        elif isinstance(thing, Module):
            yield from (f for n, f in thing.env.vars.items() if n in self.loads)

    def enter_held(self, thing: Inst) -> None:
        """Something with ``__call__`` that a library holds (in ``Compose([...])``), or that is not seen to be called here."""
        if thing not in self.roots:
            self.enter(thing)

    def given_names(self) -> tuple[set[tuple[int, str]], set[tuple[int, str]]]:
        """The variables, and attributes of objects, that hold what was given to these objects when they were made."""
        names = {key for key, name in self.free.items() if not is_number(self.script.values(name))}
        names |= {
            key
            for key, name in self.free.items()
            if any(isinstance(t, Num) for t in self.script.values(name))
        }
        fields: set[tuple[int, str]] = set()
        for thing in self.objects.values():
            if isinstance(thing, (Inst, Ext)) and isinstance(thing.args, Arguments):
                frames = [f for f in thing.made if isinstance(f, CallFrame)]
                for given_ in (*thing.args.positional, *thing.args.named.values()):
                    self.follow(given_.expr, frames, names, fields)
        return names, fields

    def follow(
        self,
        expr: ast.expr | None,
        frames: list[CallFrame],
        names: set[tuple[int, str]],
        fields: set[tuple[int, str]],
    ) -> None:
        while isinstance(expr, ast.Subscript):
            expr = expr.value
        if isinstance(expr, ast.Name):
            home = holder_of(expr)
            if (id(home), expr.id) in names:
                return
            names.add((id(home), expr.id))
            for n, frame in enumerate(frames):
                if frame.func.node is home and expr.id in frame.given:
                    self.follow(frame.given[expr.id].expr, frames[:n], names, fields)
            for value, whole in ever_bound(expr):
                if whole and isinstance(value, (ast.Name, ast.Attribute)):
                    self.follow(value, frames, names, fields)
        elif isinstance(expr, ast.Attribute):
            fields |= {
                (id(t), expr.attr)
                for t in self.script.values(expr.value)
                if isinstance(t, (Inst, Ext))
            }

    # ---------------------------------------------------------------- what it changes
    def writes(self) -> Iterator[tuple[ast.AST, str]]:
        """Places where this code changes something that is there after it, in words."""
        for function in list(self.functions.values()):
            for node in live(function):
                if not isinstance(node, PLACES) or function_of(node) is not function:
                    continue
                for write in self.effects.of(node):
                    if write.bound:
                        if id(holder_of(node)) not in self.functions:  # type: ignore[arg-type]
                            yield node, f"`{write.bound}`"
                    elif write.base is not None and self.keeps(write.base):
                        if isinstance(node, ast.Call) and self.is_module_function(write.base):
                            continue
                        yield node, f"`{shown(write.base if isinstance(node, ast.Call) else node)}`"
                if isinstance(node, ast.Call):
                    if why := self.advances(node):
                        yield node, why
                elif isinstance(node, (ast.For, ast.AsyncFor, ast.comprehension, ast.YieldFrom)):
                    over = node.value if isinstance(node, ast.YieldFrom) else node.iter
                    if (
                        isinstance(over, (ast.Name, ast.Attribute))
                        and self.keeps(over)
                        and is_iterator(self.script.values(over))
                    ):
                        yield over, f"`{shown(over)}`, which can be gone through only once"

    def advances(self, node: ast.Call) -> str:
        names = {t.name for t in self.script.values(node.func) if isinstance(t, Ref)}
        if (
            "builtins.next" in names
            and node.args
            and self.keeps(node.args[0])
            and not self.begins(node.args[0])
        ):
            return f"`{shown(node.args[0])}`"
        if "builtins.open" in names:
            mode = (
                node.args[1]
                if len(node.args) > 1
                else next((k.value for k in node.keywords if k.arg == "mode"), None)
            )
            found = self.script.values(mode) if mode is not None else frozenset()
            if any(not isinstance(t, Const) or set(str(t.value)) & set("wax+") for t in found):
                return f"a file (`{shown(node)}`)"
        if names & WRITERS and not any(
            isinstance(t, Ext) and t.name.startswith("io.")
            for a in node.args
            for t in self.script.values(a)
        ):
            return f"a file (`{shown(node)}`)"
        if (
            isinstance(node.func, ast.Attribute)
            and node.func.attr in ("write_text", "write_bytes", "to_csv", "save")
            and node.args
        ):
            found = self.script.values(node.args[0])
            text = [
                t
                for t in found
                if isinstance(t, Num)
                and t.pattern
                or isinstance(t, Const)
                and isinstance(t.value, str)
            ]
            if found and len(text) == len(found):
                return f"a file (`{shown(node)}`)"
        return ""

    def begins(self, expr: ast.expr) -> bool:
        """Whether this is an iterator that was made here: ``iter(self.paths)``."""
        if isinstance(expr, ast.Name):
            found = (
                [bound_to(d.node) for d in self.flow.reaching(expr)]
                if id(holder_of(expr)) in self.functions
                else []
            )
            return bool(found) and all(
                whole and v is not None and not isinstance(v, ast.Name) and self.begins(v)
                for v, whole in found
            )
        if not isinstance(expr, ast.Call):
            return False
        names = {t.name for t in self.script.values(expr.func) if isinstance(t, Ref)}
        return (
            bool(names)
            and names <= set(ITERATORS)
            and not any(is_iterator(self.script.values(a)) for a in expr.args)
        )

    def is_module_function(self, base: ast.expr) -> bool:
        found = self.script.values(base)
        return bool(found) and all(
            isinstance(t, (Ref, Const))
            and not (isinstance(t, Ref) and t.name.startswith("os.environ"))
            for t in found
        )

    def handles(self) -> Iterator[Ext]:
        """Open files, databases and the like that this code reaches."""
        return (
            t for t in self.objects.values() if isinstance(t, Ext) and t.name.startswith(HOLDERS)
        )

    # ---------------------------------------------------------------- what outlives an item
    def keeps(self, expr: ast.expr | None, depth: int = 0) -> bool:
        """Whether what ``expr`` is, in this code, may have been there before and be there afterwards."""
        if expr is None or depth > DEEP:
            return False
        match expr:
            case ast.Name():
                return self.keeps_name(expr, depth)
            case ast.Attribute():
                return self.keeps(expr.value, depth + 1)
            case ast.Subscript() | ast.Starred() | ast.Await():
                return self.keeps(expr.value, depth + 1)
            case ast.NamedExpr():
                return self.keeps(expr.value, depth + 1)
            case ast.IfExp():
                return self.keeps(expr.body, depth + 1) or self.keeps(expr.orelse, depth + 1)
            case ast.BoolOp():
                return any(self.keeps(v, depth + 1) for v in expr.values)
            case ast.Call():
                return self.keeps_result(expr, depth)
        return False

    def keeps_name(self, name: ast.Name, depth: int) -> bool:
        if id(name) not in self._kept:
            self._kept[id(name)] = False  # where it depends on itself
            outside = id(holder_of(name)) not in self.functions
            self._kept[id(name)] = outside or any(
                self.binds_kept(d, depth) for d in self.flow.reaching(name)
            )
        return self._kept[id(name)]

    def binds_kept(self, definition: Definition, depth: int) -> bool:
        if definition.is_parameter:
            key = "parameter", id(definition.node)
            if key not in self._kept:
                self._kept[key] = False
                self._kept[key] = self.parameter(
                    function_of(definition.node), definition.name, depth
                )
            return self._kept[key]
        if definition.is_augmented:
            return self.keeps_name(definition.node, depth)  # type: ignore[arg-type]
        value, whole = bound_to(definition.node)
        if not whole and isinstance(value, (ast.Tuple, ast.List, ast.Set)):
            return any(self.keeps(part, depth + 1) for part in value.elts)
        if (
            not whole
            and isinstance(value, ast.Call)
            and (place := _place_of(definition.node, value)) is not None
        ):
            return self.keeps_result(value, depth + 1, place)
        return self.keeps(value, depth + 1)

    def parameter(self, function: ast.AST, name: str, depth: int) -> bool:
        index = [p.arg for p in parameters(function)].index(name)
        started = id(function) in self.starts
        method = isinstance(parent_of(function), ast.ClassDef) and not is_static_method(function)
        if started and method and index == 0:
            return True
        for partial in self.partials.get(id(function), ()):
            if (
                index < len(partial.args.positional) + method
                or name in partial.args.named
                or partial.args.open
            ):
                return True
        shared = isinstance(defaults(function).get(name), MUTABLE)
        for site in self.sites.get(id(function), ()):
            for callee in self.graph.callees(site):
                if callee.function is not function or (callee.makes is not None and index == 0):
                    continue  # another one, or a new object
                if callee.is_bound and index == 0:
                    if self.keeps_receiver(site, callee.this, depth):
                        return True
                    continue
                given = self.given(site, callee, name)
                if any(self.keeps(a, depth + 1) for a in given) or (shared and not given):
                    return True
        return started and index > 0 and shared

    def given(self, site: ast.Call, callee: Callee, name: str) -> list[ast.expr]:
        """What a call may give for a parameter; nothing where its default holds."""
        argument = self.graph.argument(site, callee, name)
        if argument is not None:
            return [argument]
        if name in defaults(callee.function) and self.graph.leaves_default(site, callee, name):
            return []
        return [a.value if isinstance(a, ast.Starred) else a for a in site.args] + [
            k.value for k in site.keywords
        ]

    def keeps_receiver(self, site: ast.Call, this: Thing | None, depth: int) -> bool:
        """Whether the object whose method is called, or which is called itself, is kept."""
        if this in self.script.values(site.func):
            return self.keeps(site.func, depth + 1)
        return not isinstance(site.func, ast.Attribute) or self.keeps(site.func.value, depth + 1)

    def keeps_result(self, call: ast.Call, depth: int, place: int | None = None) -> bool:
        """With ``place``: whether that part of a tuple which it returns is kept."""
        callees = self.script.values(call.func)
        if isinstance(call.func, ast.Name) and call.func.id == "super":
            first = [Definition(p.arg, p) for p in parameters(function_of(call))[:1]]
            return any(self.binds_kept(d, depth) for d in first)
        names = {t.name for t in callees if isinstance(t, Ref)}
        if names & PASSING:
            return any(self.keeps(a, depth + 1) for a in call.args)
        if "builtins.type" in names or "builtins.globals" in names:
            return True
        for thing in callees:
            if any(self.returns_kept(function, depth, place) for function in run_by(thing, CALLED)):
                return True
        if (
            not isinstance(call.func, ast.Attribute)
            or names
            or any(isinstance(t, (Func, Bound, Cls)) for t in callees)
        ):
            return False
        if call.func.attr in PARTS or is_view(call.func.attr):
            return self.keeps(call.func.value, depth + 1)
        held = self.script.values(call.func.value)
        if (
            any(isinstance(t, (Ext, Inst, Unknown)) for t in held)
            and call.func.attr not in COPIES
            and not draws(held)
        ):
            return self.keeps(call.func.value, depth + 1) and any(
                isinstance(t, Method) for t in callees
            )
        return False

    def returns_kept(self, function: ast.AST, depth: int, place: int | None = None) -> bool:
        key = ("returns", id(function), place)
        if key not in self._kept:
            self._kept[key] = False
            if isinstance(function, ast.Lambda):
                self._kept[key] = self.keeps(function.body, depth + 1)
            else:
                ends = [
                    n
                    for n in live(function)
                    if isinstance(n, (ast.Return, ast.Yield)) and function_of(n) is function
                ]
                place = None if any(isinstance(n, ast.Yield) for n in ends) else place
                self._kept[key] = any(self.keeps_end(n.value, depth + 1, place) for n in ends)
        return self._kept[key]

    def keeps_end(self, result: ast.expr | None, depth: int, place: int | None) -> bool:
        """Whether what a function returns is kept, or the part of it at ``place``."""
        if isinstance(result, (ast.Tuple, ast.List)):
            known = (
                place is not None
                and place < len(result.elts)
                and not any(isinstance(p, ast.Starred) for p in result.elts)
            )
            return any(
                self.keeps(p, depth) for n, p in enumerate(result.elts) if not known or n == place
            )
        return (
            self.keeps_result(result, depth, place)
            if isinstance(result, ast.Call)
            else self.keeps(result, depth)
        )

    # ---------------------------------------------------------------- what others change
    def touched(self, change: Write) -> bool:
        """Whether a change that is made elsewhere is one of something that this code reads."""
        if change.bound:
            return (id(holder_of(change.node)), change.bound) in self.free  # type: ignore[arg-type]
        base = change.base
        assert base is not None
        found = self.script.values(base)
        if self.environment and any(
            isinstance(t, Ref) and t.name.startswith(("os.environ", "os.putenv", "os.unsetenv"))
            for t in found
        ):
            return True
        is_attribute = bool(change.name) or change.computed
        for thing in found:
            if id(thing) in self.objects:
                if is_attribute and (self.reads(thing, change.name) or change.computed):
                    return True
                if not is_attribute and isinstance(thing, (Seq, Dict, Ext)):
                    return True
        if is_attribute:
            known = change.name in self.names_of_objects()
            return known and (
                any(isinstance(t, Unknown) for t in found)
                or (not found and bool(self.script.unread))
            )
        if (
            change.node is base
            and isinstance(base, ast.Name)
            and not any(isinstance(t, (Seq, Dict, Tensor, Ext, Inst)) for t in found)
        ):
            # `x += 1`, of what may well be a number.
            return (id(holder_of(base)), base.id) in self.aliases
        return self.is_part(base)

    def reads(self, thing: Thing, name: str) -> bool:
        if self.every or name in self.loads:
            return True
        return (
            isinstance(thing, Ext)
            and not is_options(thing)
            or isinstance(thing, Inst)
            and is_of_library(thing)
            and name in thing.attrs
        )

    def names_of_objects(self) -> set[str]:
        held = [thing.attrs for thing in self.objects.values() if isinstance(thing, Inst)]
        held += [c.members for c in self.classes.values()]
        return {n for attrs in held for n in attrs if n in self.loads}

    def is_part(self, expr: ast.expr, depth: int = 0) -> bool:
        """Whether ``expr``, outside this code, is something that it reads: by its name, or as an attribute of an object that it has."""
        if depth > 6:
            return False
        if isinstance(expr, ast.Name):
            home = holder_of(expr)
            if (id(home), expr.id) in self.aliases:
                return True
            for value, whole in ever_bound(expr):
                if isinstance(value, (ast.Attribute, ast.Subscript, ast.Name)) or (
                    whole and isinstance(value, ast.Call)
                ):
                    if not isinstance(value, ast.Name) or value.id != expr.id:
                        if self.is_part(value, depth + 1):
                            return True
            given = self.graph.arguments(home, expr.id) if isinstance(home, FUNCTIONS) else []
            return any(a is not None and self.is_part(a, depth + 1) for _, a in given)
        if isinstance(expr, ast.Attribute):
            for thing in self.script.values(expr.value):
                if (id(thing), expr.attr) in self.fields or (
                    id(thing) in self.objects and self.reads(thing, expr.attr)
                ):
                    return True
                if isinstance(thing, Inst) and any(
                    self.is_part(v, depth + 1) for v in _stored(self.script, thing, expr.attr)
                ):
                    return True
            return (
                self.is_part(expr.value, depth + 1)
                if expr.attr in ("data", "T", "values", "loc", "iloc", "at", "iat", "flat")
                else False
            )
        if isinstance(expr, ast.Subscript):
            if any(
                id(t) in self.objects and isinstance(t, (Seq, Dict))
                for t in self.script.values(expr.value)
            ):
                return not is_number(self.script.values(expr))
            return self.is_part(expr.value, depth + 1)
        if (
            isinstance(expr, ast.Call)
            and isinstance(expr.func, ast.Attribute)
            and (expr.func.attr in PARTS or is_view(expr.func.attr))
        ):
            return self.is_part(expr.func.value, depth + 1)
        if (
            isinstance(expr, ast.Call)
            and expr.args
            and {t.name for t in self.script.values(expr.func) if isinstance(t, Ref)} & PASSING
        ):
            return self.is_part(expr.args[0], depth + 1)
        return False


def holds(function: ast.AST, home: ast.AST) -> bool:
    """Whether ``home`` is a function (or comprehension) inside ``function``."""
    return home is function or any(a is function for a in ancestors(home))


def run_by(thing: Thing, methods: tuple[str, ...]) -> list[ast.AST]:
    """The functions of the project that run when a thing is called, or an object is used by these methods."""
    if isinstance(thing, Inst):
        return [
            t.node for name in methods for t in thing.cls.find(name) or () if isinstance(t, Func)
        ]
    return [c.function for c in code_of(thing) if c.makes is None]


def ever_bound(name: ast.Name) -> list[tuple[ast.expr | None, bool]]:
    """What a variable is bound to anywhere, and whether to the whole of it (see :func:`bound_to`)."""
    table = variables_of(name)
    variable = table.of(name)
    return [bound_to(n) for n in table.stores(variable)] if variable is not None else []


def is_static_method(function: ast.AST) -> bool:
    return any(
        isinstance(d, ast.Name) and d.id == "staticmethod"
        for d in getattr(function, "decorator_list", ())
    )


def shown(node: ast.AST) -> str:
    text = " ".join((source_of(node).segment(node) or "it").split())
    return text if len(text) <= 40 else text[:37] + "..."


def is_iterator(found: Values) -> bool:
    return any(
        (isinstance(t, Seq) and (t.kind == "generator" or isinstance(t.node, ast.GeneratorExp)))
        or (isinstance(t, Ext) and t.name.startswith(ITERATORS))
        for t in found
    )


def draws(found: Values) -> bool:
    return any(
        isinstance(t, Ext) and ("andom" in t.name or t.name.startswith("logging.")) for t in found
    )


def is_options(thing: Thing) -> bool:
    return isinstance(thing, Ext) and thing.name.startswith(OPTIONS)


def is_of_library(thing: Inst) -> bool:
    return any(not n.startswith("torch.utils.data.") for n in thing.cls.external)


def _stored(script: Script, thing: Thing, name: str) -> Iterator[ast.expr]:
    """What an attribute of an object is assigned."""
    for write in script.analysis(Effects).writes:
        if write.name == name and write.base is not None and thing in script.values(write.base):
            parent = parent_of(write.node)
            if isinstance(parent, (ast.Assign, ast.AnnAssign)) and isinstance(
                parent.value, (ast.Name, ast.Attribute)
            ):
                yield parent.value


def _place_of(node: ast.AST, value: ast.expr) -> int | None:
    """Which part of ``value`` a variable gets: 1 for ``b`` in ``a, b = value``."""
    target = parent_of(node)
    statement = parent_of(target) if isinstance(target, (ast.Tuple, ast.List)) else None
    if (
        not isinstance(statement, ast.Assign)
        or statement.value is not value
        or not any(t is target for t in statement.targets)
    ):
        return None
    assert isinstance(target, (ast.Tuple, ast.List))
    if any(isinstance(part, ast.Starred) for part in target.elts):
        return None
    return next((n for n, part in enumerate(target.elts) if part is node), None)
