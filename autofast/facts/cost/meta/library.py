"""What libraries give to the code of a network: layers and their methods, functions of Python, of
``math``, of torch.
"""

from __future__ import annotations

import ast
import builtins
import math
import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from autofast.facts.cost.meta import functions, layers
from autofast.facts.cost.meta.backbones import FIGURES, HEADS, Backbone
from autofast.facts.cost.meta.calls import by_element
from autofast.facts.cost.meta.layers import CONTAINERS, Layer
from autofast.facts.cost.meta.objects import Closure, Library, Method, Object, Partial, Runs
from autofast.facts.cost.meta.python import native, power
from autofast.facts.cost.meta.tensor import UNKNOWN, Meta, few
from autofast.facts.cost.work import Unsized
from autofast.model.names import TIMM, VISION, WRAPPERS, canonical, last_part, makes_module
from autofast.model.several import wordset
from autofast.model.values import Cls, Func

PLAIN = wordset(
    "len int float bool str abs round min max sum tuple list dict set zip reversed sorted any all divmod"
)
MATH = wordset("sqrt log log2 log10 exp ceil floor sin cos tan tanh gcd prod fabs hypot trunc")
NUMPY = {"prod": math.prod, "sqrt": math.sqrt, "log": math.log, "log2": math.log2, "exp": math.exp,
         "ceil": math.ceil, "floor": math.floor, "abs": abs, "power": power, "log10": math.log10}  # fmt: skip
QUIET = wordset("torch.no_grad torch.inference_mode")
NO_GRADIENT = Library("no_grad")
# Methods of a module that give it back, that say nothing here, and that list what it has.
ITSELF = wordset(
    "to cuda cpu float half double bfloat16 train eval requires_grad_ type share_memory apply xpu"
)
SILENT = wordset("register_forward_hook register_forward_pre_hook register_full_backward_hook zero_grad load_state_dict "
                 "register_backward_hook init_weights reset_parameters _init_weights post_init save_hyperparameters")  # fmt: skip
LISTS = wordset(
    "parameters named_parameters modules named_modules buffers named_buffers state_dict"
)
PASSES = re.compile(
    r"torch\.(?:nn\.utils\.(?:parametrizations\.)?(?:weight|spectral)_norm|compile|jit\.script|jit\.trace)$"
)


# ------------------------------------------------------------------------------------------- layers
def makes_layer(name: str) -> bool:
    """Whether a call of this makes a layer of torch."""
    return name.startswith("torch.nn.") and makes_module(name) and last_part(name)[0].isupper()


def made(ev: Runs, name: str, args: list[Any], named: dict[str, Any], node: object) -> Any:
    """A layer of torch; its wrappers are what they wrap."""
    if name in WRAPPERS:
        return args[0] if args else named.get("module", UNKNOWN)
    kind = last_part(name)
    ev.made += 1
    if kind in CONTAINERS:
        return container(kind, args, named, node)
    return layers.make(kind, ev.ledger, args, named, node)


def container(kind: str, args: list[Any], named: dict[str, Any], node: object = None) -> Layer:
    """A Sequential, a ModuleList, a ModuleDict, of what it is given."""
    given = args[0] if args else next(iter(named.values()), [])
    layer = layers.bare(kind, node)
    if isinstance(given, dict):
        names, parts = [str(k) for k in given], list(given.values())
    else:
        if kind != "Sequential" and given is UNKNOWN:
            raise Unsized("its layers are not known")
        parts = (
            list(args)
            if kind == "Sequential"
            else list(given)
            if isinstance(given, (list, tuple))
            else parts_of(given) or []
        )
        names = [str(n) for n in range(len(parts))]
    few(len(parts))
    layer.attrs.update(parts=parts, names=names)
    return layer


def joined(left: Any, right: Any) -> Any:
    """``Sequential(...) + Sequential(...)``, ``layers += [layer]``"""
    first = held_by(left)
    second = right if isinstance(right, (list, tuple)) else held_by(right)
    return UNKNOWN if first is None or second is None else sequential([*first, *second])


def sequential(parts: list[Any]) -> Layer:
    return container("Sequential", parts, {})


def initialise(ev: Runs, this: Object, args: list[Any], named: dict[str, Any]) -> None:
    """What the constructors of torch's classes do for a class of the project."""
    for name in sorted(this.cls.external):
        kind = last_part(name)
        if not name.startswith("torch.nn.") or kind == "Module":
            continue
        if kind in CONTAINERS:
            if this.parts is None:
                this.parts = container(kind, args, named).attrs["parts"]
        elif makes_layer(name):
            this.base = layers.make(kind, ev.ledger, args, named, None)


def fields_of(cls: Cls) -> list[str]:
    """The fields of a dataclass."""
    if not cls.node.decorator_list:
        return []
    return [
        s.target.id
        for c in reversed(cls.lineage())
        for s in c.node.body
        if isinstance(s, ast.AnnAssign) and isinstance(s.target, ast.Name)
    ]


def layer_attribute(this: Layer | Backbone, name: str) -> Any:
    """An attribute of a layer, or a method."""
    if name in this.attrs:
        return this.attrs[name]
    if name == "training":
        return True
    if isinstance(this, Backbone):
        if name in HEADS:
            return layers.bare("Linear", in_features=this.features, out_features=1000, free=False)
        return Backbone(this.name, whole=False) if name == "features" else Method(this, name)
    if "parts" in this.attrs and name in this.attrs["names"]:
        return this.attrs["parts"][this.attrs["names"].index(name)]
    return Method(this, name)


def is_module_method(name: str) -> bool:
    return name in ITSELF | SILENT | LISTS or name in MODULE


def module_method(ev: Runs, this: Any, name: str, args: list[Any], named: dict[str, Any]) -> Any:
    """A method that modules of torch have."""
    if name in ITSELF:
        return this
    if name in SILENT:
        return None
    if name in LISTS:
        return []
    if name in ("forward", "__call__"):
        return ev.call(this, args, named)
    if name in MODULE:
        return MODULE[name](ev, this, args, named)
    return UNKNOWN


def _add(ev: Runs, this: Any, args: list[Any], named: dict[str, Any]) -> Any:
    name, part = [*args, *named.values()][:2]
    if isinstance(this, Object):
        if this.parts is not None:
            this.parts.append(part)
        this.attrs[str(name)] = part
    elif isinstance(this, Layer) and "parts" in this.attrs:
        this.attrs["parts"].append(part)
        this.attrs["names"].append(str(name))
    return None


def _append(ev: Runs, this: Any, args: list[Any], named: dict[str, Any]) -> Any:
    held = held_by(this)
    if held is not None:
        held.append(args[0])
        _renamed(this)
        few(len(held))
    return this


def _extend(ev: Runs, this: Any, args: list[Any], named: dict[str, Any]) -> Any:
    held = held_by(this)
    if held is not None:
        held.extend(ev.items(args[0]) or ())
        _renamed(this)
        few(len(held))
    return this


def _insert(ev: Runs, this: Any, args: list[Any], named: dict[str, Any]) -> Any:
    held = held_by(this)
    if held is not None:
        held.insert(args[0], args[1])
        _renamed(this)
    return this


def _renamed(this: Any) -> None:
    if isinstance(this, Layer):
        this.attrs["names"] = [str(n) for n in range(len(this.attrs["parts"]))]


def _register(ev: Runs, this: Any, args: list[Any], named: dict[str, Any]) -> Any:
    given = [*args, *named.values()]
    if isinstance(this, Object) and len(given) > 1 and isinstance(given[0], str):
        this.attrs[given[0]] = given[1]
    return None


def _children(ev: Runs, this: Any, args: list[Any], named: dict[str, Any]) -> Any:
    if isinstance(this, Backbone):
        pool = layers.make("AdaptiveAvgPool2d", ev.ledger, [1], {}, None)
        return [Backbone(this.name, whole=False), pool, layer_attribute(this, "fc")]
    if isinstance(this, Object) and this.parts is None:
        return [v for v in this.attrs.values() if isinstance(v, (Object, Layer, Backbone))]
    return list(held_by(this) or ())


def _named_children(ev: Runs, this: Any, args: list[Any], named: dict[str, Any]) -> Any:
    if isinstance(this, Object) and this.parts is None:
        kinds = (Object, Layer, Backbone)
        return [(k, v) for k, v in this.attrs.items() if isinstance(v, kinds)]
    if isinstance(this, Layer) and "parts" in this.attrs:
        return list(zip(this.attrs["names"], this.attrs["parts"], strict=True))
    return UNKNOWN


def _values(ev: Runs, this: Any, args: list[Any], named: dict[str, Any]) -> Any:
    return list(held_by(this) or ())


def _keys(ev: Runs, this: Any, args: list[Any], named: dict[str, Any]) -> Any:
    return list(this.attrs.get("names", ()))


MODULE: dict[str, Callable[[Runs, Any, list[Any], dict[str, Any]], Any]] = {
    "add_module": _add, "register_module": _add, "append": _append, "extend": _extend, "insert": _insert,
    "register_buffer": _register, "register_parameter": _register, "children": _children,
    "named_children": _named_children, "values": _values, "keys": _keys, "items": _named_children,
}  # fmt: skip


def held_by(this: Any) -> list[Any] | None:
    """The list of what a container holds."""
    if isinstance(this, Object):
        return this.parts
    found: list[Any] | None = this.attrs.get("parts") if isinstance(this, Layer) else None
    return found


def parts_of(this: Any) -> list[Any] | None:
    """What a loop over a container goes over: of a ModuleDict, its keys."""
    held = held_by(this)
    if held is None:
        return None
    if isinstance(this, Layer) and this.kind.endswith("Dict"):
        return list(this.attrs["names"])
    return list(held)


def part(this: Any, place: Any) -> Any:
    """One layer of a container; some, as a container."""
    held = held_by(this)
    if held is None or place is UNKNOWN:
        return UNKNOWN
    if isinstance(place, str):
        names = this.attrs.get("names", []) if isinstance(this, Layer) else []
        return held[names.index(place)] if place in names else UNKNOWN
    try:
        found = held[place]
    except (IndexError, TypeError):
        return UNKNOWN
    return sequential(found) if isinstance(place, slice) else found


def set_part(this: Layer, place: Any, found: Any) -> None:
    names, parts = this.attrs["names"], this.attrs["parts"]
    if str(place) in names:
        parts[names.index(str(place))] = found
    elif isinstance(place, str):
        names.append(place)
        parts.append(found)
    elif isinstance(place, int) and -len(parts) <= place < 0:
        parts[place] = found


# ---------------------------------------------------------------------------------------- functions
def attribute(owner: str, name: str) -> Any:
    """``math.pi``, ``torch.nn``"""
    if owner == "numpy" and name == "newaxis":
        return None
    if owner in ("math", "numpy") and isinstance(found := getattr(math, name, None), float):
        return found
    return Library(canonical(f"{owner}.{name}"))


def call(ev: Runs, name: str, args: list[Any], named: dict[str, Any]) -> Any:
    """A function or class of a library."""
    space, _, short = name.rpartition(".")
    if space == "builtins":
        return _builtin(ev, short, args, named)
    if space in ("math", "numpy"):
        return _number(ev, space, short, args, named)
    if makes_layer(name):
        return made(ev, name, args, named, None)
    if name in QUIET:
        return NO_GRADIENT
    if name in WRAPPERS or PASSES.match(name):
        return args[0] if args else UNKNOWN
    if name == "torch.nn.Parameter":
        return _parameter(ev, args, named)
    if name.startswith("torch.nn.init."):
        return args[0] if args else UNKNOWN
    if name in ("torch.nn.utils.rnn.pack_padded_sequence", "torch.nn.utils.rnn.pad_sequence"):
        return args[0] if args and short.startswith("pack") else UNKNOWN
    if name == "torch.nn.utils.rnn.pad_packed_sequence":
        return (args[0] if args else UNKNOWN), UNKNOWN
    if name == "torch.utils.checkpoint.checkpoint" and args:
        return ev.call(args[0], args[1:], {})
    if name in ("copy.deepcopy", "copy.copy") and args:
        return cloned(args[0])
    if name == "functools.partial" and args:
        return Partial(args[0], args[1:], named)
    if name in ("collections.OrderedDict", "collections.defaultdict"):
        return native(ev.ledger, dict, args if short == "OrderedDict" else [], named)
    if name in ("einops.rearrange", "einops.repeat", "einops.reduce"):
        return _rearranged(ev, args, named)
    if name.startswith((VISION, TIMM, "timm.")):
        return _backbone(short, args, named)
    if name.startswith("torch."):
        return functions.operate(ev.ledger, short, args, named)
    if any(isinstance(a, Meta) and not a.whole for a in args):
        ev.ledger.unsure(f"what {name}() costs is not known")
    return UNKNOWN


def cloned(this: Any, seen: dict[int, Any] | None = None) -> Any:
    """A copy of a module with its layers, or of a list."""
    seen = {} if seen is None else seen
    if id(this) in seen:
        return seen[id(this)]
    few(len(seen))
    match this:
        case Layer():
            made: Any = replace(this, attrs=dict(this.attrs))
            seen[id(this)] = made
            if "parts" in made.attrs:
                made.attrs["parts"] = [cloned(part, seen) for part in made.attrs["parts"]]
        case Object():
            made = replace(this)
            seen[id(this)] = made
            made.attrs = {k: cloned(v, seen) for k, v in this.attrs.items()}
            made.parts, made.base = cloned(this.parts, seen), cloned(this.base, seen)
        case list():
            made = seen[id(this)] = []
            made += [cloned(part, seen) for part in this]
        case dict():
            made = seen[id(this)] = {}
            made.update((k, cloned(v, seen)) for k, v in this.items())
        case _:
            return this
    return made


def _parameter(ev: Runs, args: list[Any], named: dict[str, Any]) -> Any:
    given = args[0] if args else named.get("data", UNKNOWN)
    if not isinstance(given, Meta):
        return UNKNOWN
    found = Meta(given.dims, weight=True)
    ev.weights.append(found)
    ev.ledger.use(found, found.count, 1)
    return found


def _backbone(name: str, args: list[Any], named: dict[str, Any]) -> Any:
    if name == "create_model" and args and isinstance(args[0], str):
        name = args[0]
    if name not in FIGURES:
        raise Unsized("its layers are not known")
    found = Backbone(name)
    if type(classes := named.get("num_classes")) is int:
        sizes = {"in_features": found.features, "out_features": classes}
        found.attrs["fc"] = layers.bare("Linear", **sizes, free=False)
    return found


def _number(ev: Runs, space: str, short: str, args: list[Any], named: dict[str, Any]) -> Any:
    if UNKNOWN in args:
        return UNKNOWN
    if args and isinstance(args[0], Meta):
        return functions.operate(ev.ledger, short, args, named)
    func = NUMPY.get(short) if space == "numpy" else getattr(math, short) if short in MATH else None
    return native(ev.ledger, func, args, named) if func is not None else UNKNOWN


def _builtin(ev: Runs, name: str, args: list[Any], named: dict[str, Any]) -> Any:
    if name in BUILTINS:
        return BUILTINS[name](ev, args, named)
    if name not in PLAIN or UNKNOWN in args or (named and name not in ("dict", "int", "float")):
        return UNKNOWN
    if name == "len" and args and isinstance(args[0], Meta) and args[0].dims:
        return args[0].dims[0]
    if name == "round" and len(args) > 1 and args[1] not in range(-20, 20):
        return UNKNOWN
    if name in ("list", "tuple", "sorted", "reversed", "set", "any", "all", "sum", "len") and args:
        return _over(ev, name, args)
    if name == "zip":
        over = [ev.items(a) for a in args]
        return UNKNOWN if None in over else list(zip(*(o or () for o in over), strict=False))
    if name in ("max", "min") and any(isinstance(a, Meta) for a in args):
        return args[0]
    found = native(ev.ledger, getattr(builtins, name), args, named)
    return list(found) if name == "dict" and not isinstance(found, dict) else found


def _over(ev: Runs, name: str, args: list[Any]) -> Any:
    items = ev.items(args[0])
    if items is None:
        return UNKNOWN
    if name == "len":
        return len(items)
    if any(isinstance(i, Meta) for i in items) and name in ("sum", "any", "all"):
        tensors = [i for i in items if isinstance(i, Meta)]
        return by_element(ev.ledger, tensors) if name == "sum" else UNKNOWN
    if UNKNOWN in items and name not in ("list", "tuple", "reversed"):
        return UNKNOWN
    if name == "sum":
        return native(ev.ledger, sum, [items, *args[1:]], {})
    if name == "reversed":
        return items[::-1]
    if name == "set":
        return (
            list(dict.fromkeys(items)) if all(isinstance(i, (str, int)) for i in items) else UNKNOWN
        )
    return native(ev.ledger, getattr(builtins, name), [items], {})


def _range(ev: Runs, args: list[Any], named: dict[str, Any]) -> Any:
    return native(ev.ledger, range, args, {}) if all(type(a) is int for a in args) else UNKNOWN


def _enumerate(ev: Runs, args: list[Any], named: dict[str, Any]) -> Any:
    items = ev.items(args[0]) if args else None
    start = args[1] if len(args) > 1 else named.get("start", 0)
    return UNKNOWN if items is None or type(start) is not int else list(enumerate(items, start))


def _map(ev: Runs, args: list[Any], named: dict[str, Any]) -> Any:
    over = [ev.items(a) for a in args[1:]]
    each = zip(*(o or () for o in over), strict=False)
    return UNKNOWN if None in over else [ev.call(args[0], list(e), {}) for e in each]


def _isinstance(ev: Runs, args: list[Any], named: dict[str, Any]) -> Any:
    this, kinds = args
    found = [_is_a(this, k) for k in (kinds if isinstance(kinds, tuple) else (kinds,))]
    return True if True in found else UNKNOWN if UNKNOWN in found else False


def _is_a(this: Any, kind: Any) -> Any:
    if this is UNKNOWN or kind is UNKNOWN:
        return UNKNOWN
    if isinstance(kind, Cls):
        return isinstance(this, Object) and kind in this.cls.lineage()
    if not isinstance(kind, Library):
        return UNKNOWN
    short = last_part(kind.name)
    if kind.name.startswith("builtins."):
        python = getattr(builtins, short, None)
        return isinstance(this, python) if isinstance(python, type) else UNKNOWN
    if short in ("Tensor", "Parameter"):
        return isinstance(this, Meta)
    if short == "Module":
        return isinstance(this, (Object, Layer, Backbone))
    if isinstance(this, Layer):
        return this.kind == short
    return isinstance(this, Object) and kind.name in this.cls.external


def _getattr(ev: Runs, args: list[Any], named: dict[str, Any]) -> Any:
    if len(args) < 2 or not isinstance(args[1], str):
        return UNKNOWN
    found = ev.attribute(args[0], args[1])
    missing = found is UNKNOWN or (isinstance(found, Method) and not _has(args[0], args[1]))
    return args[2] if missing and len(args) > 2 else found


def _has(this: Any, name: str) -> bool:
    if isinstance(this, Object):
        return name in this.attrs or bool(this.cls.find(name)) or is_module_method(name)
    return True


def _hasattr(ev: Runs, args: list[Any], named: dict[str, Any]) -> Any:
    if len(args) != 2 or not isinstance(args[1], str):
        return UNKNOWN
    if isinstance(args[0], (Layer, Backbone)):
        return args[1] in args[0].attrs
    return _has(args[0], args[1]) if isinstance(args[0], Object) else UNKNOWN


def _setattr(ev: Runs, args: list[Any], named: dict[str, Any]) -> Any:
    if len(args) == 3 and isinstance(args[0], (Object, Layer, Backbone)):
        args[0].attrs[str(args[1])] = args[2]
    return None


def _type(ev: Runs, args: list[Any], named: dict[str, Any]) -> Any:
    return args[0].cls if len(args) == 1 and isinstance(args[0], Object) else UNKNOWN


def _callable(ev: Runs, args: list[Any], named: dict[str, Any]) -> Any:
    return isinstance(args[0], (Closure, Func, Method, Library, Cls, Layer, Object))


BUILTINS: dict[str, Callable[[Runs, list[Any], dict[str, Any]], Any]] = {
    "range": _range, "enumerate": _enumerate, "map": _map, "isinstance": _isinstance, "getattr": _getattr,
    "hasattr": _hasattr, "setattr": _setattr, "type": _type, "callable": _callable,
    "print": lambda ev, args, named: None,
}  # fmt: skip


def _rearranged(ev: Runs, args: list[Any], named: dict[str, Any]) -> Any:
    """``einops.rearrange(x, "b (h p) c -> b h (p c)", p=4)``"""
    x, form = (args[0], args[1]) if len(args) > 1 else (UNKNOWN, UNKNOWN)
    if not isinstance(x, Meta) or not isinstance(form, str) or "..." in form:
        return UNKNOWN
    takes, _, gives = form.partition("->")
    sizes = {k: v for k, v in named.items() if isinstance(v, int)}
    sizes["1"] = 1
    groups = _groups(takes)
    if len(groups) != len(x.dims):
        raise Unsized(f"{x.dims} do not fit {form}")
    for group, size in zip(groups, x.dims, strict=True):
        open_ = [n for n in group if n not in sizes]
        known = math.prod(sizes[n] for n in group if n in sizes)
        if len(open_) > 1 or size % known:
            raise Unsized(f"{x.dims} do not fit {form}")
        sizes.update(dict.fromkeys(open_, size // known))
    ev.ledger.launch()
    try:
        return x.like(*(math.prod(sizes[n] for n in group) for group in _groups(gives)))
    except KeyError:
        return UNKNOWN


def _groups(text: str) -> list[list[str]]:
    found = re.findall(r"\(([^)]*)\)|(\S+)", text)
    return [inner.split() if not single else [single] for inner, single in found]
