"""Pictures that transforms of torchvision make into floats at their very end: by which, and what is
written to leave that out."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from autofast.edit.edits import DropElement, Edit, Edits, Remove, Rewrite
from autofast.facts.datasets import Images, image_sets
from autofast.facts.transforms import pipeline, short_name
from autofast.flow.program import Flow
from autofast.flow.reflection import namespace_calls
from autofast.flow.scopes import Expressions
from autofast.model.calls import has_unpacking, literal_of
from autofast.model.roles import Loader
from autofast.model.script import Script
from autofast.model.several import is_numeric, surely, wordset
from autofast.model.source import ByNode, at, live_nodes, source_of, statement_of
from autofast.model.values import (
    Const,
    Ext,
    Ref,
    Seq,
    Thing,
    Unknown,
    Values,
    begins,
    const,
    is_named,
    of_kind,
    one,
    surely_named,
)
from autofast.rule import Refusal
from autofast.techniques.transfers.byte_batches import Items, Key
from autofast.write.imports import imported
from autofast.write.spelling import argument_expression

CAST = ".float()"
SINGLE = wordset("torch.float32 torch.float numpy.float32")
MODES = wordset("RGB L RGBA CMYK YCbCr HSV")  # of PIL: eight bits a channel
# Methods of a picture that give one of the same mode.
SAME_MODE = wordset(
    "resize crop rotate transpose copy filter thumbnail reduce transform effect_spread"
)
DEEPEST = 12
SINCE = (1, 6)  # with torchvision 0.7, the first that has PILToTensor
# The sets of torchvision whose items are a picture of eight bits a channel and a label, and where
# their transform stands.
SETS = {
    f"torchvision.datasets.{name}": place
    for place, names in (
        (1, "ImageFolder EuroSAT"),
        (2, "MNIST FashionMNIST KMNIST CIFAR10 CIFAR100 SVHN Food101 Flowers102 GTSRB StanfordCars"),
        (3, "STL10 DTD FGVCAircraft FakeData"),
        (4, "Places365"),
        (-1, "EMNIST QMNIST ImageNet"),
    )
    for name in names.split()
}  # fmt: skip
# They make a picture of bytes of one, and a tensor of bytes of one.
KEEPING = wordset("""Resize Scale CenterCrop RandomCrop RandomResizedCrop RandomHorizontalFlip RandomVerticalFlip RandomRotation RandomAffine Pad
    RandomPerspective ColorJitter Grayscale RandomGrayscale GaussianBlur RandomInvert RandomPosterize RandomSolarize AutoAugment
    RandomAdjustSharpness RandomAutocontrast RandomEqualize RandAugment TrivialAugmentWide AugMix ElasticTransform RGB""")
INSIDE = wordset("RandomApply RandomChoice RandomOrder")  # of transforms that do
TAKING = wordset("PILToTensor ToImage")
CASTING = wordset("ToTensor ToDtype ConvertImageDtype")


@dataclass(frozen=True)
class Channels:
    """Numbers, one for each channel; ``expr`` gives them, where something does."""

    numbers: tuple[float, ...]
    expr: ast.expr | None = None


Constants = tuple[Channels, Channels]


@dataclass(frozen=True, eq=False)
class Ending:
    """The last transforms of ``composed``: ``cast`` makes floats between 0 and 1 of bytes,
    ``normalize`` takes the mean and divides by the deviation."""

    composed: Ext
    cast: Ext
    normalize: Ext | None
    mean: tuple[float, ...] = ()
    std: tuple[float, ...] = ()


@dataclass
class Pictures:
    """All items whose transforms end alike, in their part ``key``; ``why``: the reason for which
    they have to, if there is one."""

    key: Key
    node: ast.AST
    endings: list[Ending] = field(default_factory=list)
    getitems: list[ast.FunctionDef] = field(default_factory=list)
    sets: list[Ext] = field(default_factory=list)
    calls: list[ast.Call] = field(default_factory=list)  # of the transforms, in the project's code
    why: str = ""

    @property
    def items(self) -> Items:
        transforms = tuple(e.composed for e in self.endings)
        return Items(self.key, tuple(self.getitems), tuple(self.sets), transforms, tuple(self.calls))  # fmt: skip

    @property
    def constants(self) -> Constants | None:
        """Mean and deviation of the channels, where they are not those of all."""
        first = self.endings[0]
        if first.normalize is None or (len({*first.mean}) < 2 and len({*first.std}) < 2):
            return None
        given = [first.normalize.args.given(n, k) for n, k in ((0, "mean"), (1, "std"))]
        mean, std = (g.expr if g is not None else None for g in given)
        return Channels(first.mean, mean), Channels(first.std, std)

    def template(self, mean: str, std: str) -> str:
        """The operations on a batch, ``{}``."""
        first, scaled = self.endings[0], f"{{}}{CAST} / 255"
        if not first.mean:
            return scaled
        if self.constants is None:
            mean, std = repr(first.mean[0]), repr(first.std[0])
        return f"({scaled} - {mean}) / {std}"

    def edits(self, script: Script) -> Edits:
        """Leave the floats out of the transforms; raises :class:`Refusal` where these are not
        written out."""
        made: list[Edit] = []
        dropped: list[ast.expr] = []
        for ending in self.endings:
            casting = _written(script, ending, ending.cast)
            if short_name(ending.cast) == "ToTensor":
                made += _spelled(script, casting)
            else:
                made.append(DropElement(_list(ending), casting))
            if ending.normalize is not None:
                dropped.append(_written(script, ending, ending.normalize))
                made.append(DropElement(_list(ending), dropped[-1]))
        return (*made, *_without_use(script, dropped))


def pictures_of(script: Script, loaders: Sequence[Loader]) -> list[Pictures]:
    """The pictures that ``loaders`` give as floats, by how they become floats."""
    found: dict[object, Pictures] = {}
    refused: list[Pictures] = []
    for dataset in {id(d): d for x in loaders for d in x.datasets}.values():
        thing, getitem = dataset.thing, dataset.getitem
        pictures = Pictures(0, dataset.node or getitem or ast.Pass())
        if is_named(thing, Ext, SETS):
            pictures.sets.append(thing)
            transforms = thing.args.get(SETS[thing.name], "transform")
            why = _of_set(thing)
            if isinstance(script.analysis(image_sets).get(thing.node), Images):
                why = "all of its images are made into tensors at once: see batched-dataset"
        elif dataset.kind == "project" and getitem is not None:
            made = _transformed(script, getitem)
            if made is None:
                continue
            pictures.key, call = made
            pictures.calls.append(call)
            pictures.getitems.append(getitem)
            transforms = script.called(call)
            why = ""
        else:
            continue
        try:
            pictures.endings = [e for t in transforms if (e := _ending(t)) is not None]
        except Refusal as unlike:
            why = why or str(unlike)
        floats = [t for t in transforms if short_name(t) in ("Compose", "ToTensor")]
        if not pictures.endings and not (why and floats):
            continue
        same = {(e.mean, e.std) for e in pictures.endings}
        for call in pictures.calls:
            why = why or _of_picture(script, call.args[0], pictures.endings)
        if len(pictures.endings) < len(floats) or len(same) > 1:
            why = why or "its transforms may be one of several that end in different ways"
        if why:
            refused.append(replace(pictures, why=why))
            continue
        joined = found.setdefault(
            (*same.pop(), pictures.key), Pictures(pictures.key, pictures.node)
        )
        for name in ("endings", "getitems", "sets", "calls"):
            here = getattr(joined, name)
            here += [x for x in getattr(pictures, name) if not any(x is y or _same(x, y) for y in here)]  # fmt: skip
    return [*found.values(), *refused]


# -------------------------------------------------------------------------------------------- which
def _ending(thing: Thing) -> Ending | None:
    """How a transform ends; None where it makes no floats. Raises :class:`Refusal` where it may
    make them otherwise than of bytes."""
    if not isinstance(thing, Ext) or short_name(thing) not in ("Compose", "ToTensor"):
        return None
    parts = [thing] if short_name(thing) == "ToTensor" else pipeline(thing)
    places = [n for n, part in enumerate(parts) if short_name(part) in CASTING]
    if not places:
        if any(part is None for part in parts) or not parts:
            raise Refusal(f"the transforms of {at(thing)} are not all known")
        return None
    (place, *_), cast = places, parts[places[0]]
    assert isinstance(cast, Ext)
    if len(places) > 1 or [short_name(p) for p in parts[place + 1 :]] not in ([], ["Normalize"]):
        other = next(
            (_said(p) for p in parts[place + 1 :] if short_name(p) != "Normalize"), "another"
        )
        raise Refusal(f"{other} comes after {short_name(cast)}, and is made for floats")
    taken = False
    for part in parts[:place]:
        taken |= short_name(part) in TAKING
        if not _keeps(part):
            raise Refusal(f"it is not certain that {_said(part)} makes bytes of bytes")
    if taken is (short_name(cast) == "ToTensor") or not _scales(cast):
        raise Refusal(f"what {short_name(cast)} makes of a picture here is not known")
    if place + 1 == len(parts):
        return Ending(thing, cast, None)
    normalize = parts[-1]
    assert isinstance(normalize, Ext)
    mean, std = (_numbers(normalize.args.get(n, k)) for n, k in ((0, "mean"), (1, "std")))
    if not mean or not std or normalize.args.open:
        raise Refusal("mean and deviation that Normalize is given are no numbers that are written out")  # fmt: skip
    return Ending(thing, cast, normalize, mean, std)


def _said(part: Thing | None) -> str:
    return short_name(part) or "one of the transforms"


def _keeps(part: Thing | None) -> bool:
    short = short_name(part)
    if short in INSIDE:
        inner = pipeline(part)
        return surely(_keeps(p) and short_name(p) not in TAKING for p in inner)
    return short in KEEPING | TAKING


def _scales(cast: Ext) -> bool:
    """It makes floats between 0 and 1, in single precision."""
    if short_name(cast) == "ToTensor":
        return True
    if short_name(cast) == "ToDtype" and const(cast.args.get(1, "scale")) is not True:
        return False
    given = cast.args.get(0, "dtype")
    single = surely_named(given, Ref, SINGLE)
    return not cast.args.open and (bool(single) or (not given and short_name(cast) != "ToDtype"))


def _numbers(given: Values) -> tuple[float, ...]:
    """A list or tuple of numbers; empty where they are not known."""
    single = one(given)
    if isinstance(single, Seq):
        found = tuple(const(item) for item in single.exact or ())
    elif isinstance(single, Const):
        found = single.value if isinstance(single.value, tuple) else (single.value,)
    else:
        found = ()
    return found if all(is_numeric(x) for x in found) else ()


def _of_set(thing: Ext) -> str:
    """Why items of a set of torchvision may be others than a picture and a label."""
    if thing.args.open:
        return f"its arguments are not all known: {thing.args.open}"
    for name in ("loader", "transforms"):
        if thing.args.named.get(name) is not None:
            return f"it is given `{name}=`, which may make something else than bytes"
    if thing.name.endswith("ImageFolder") and len(thing.args.positional) > 3:
        return "it is given a loader of its own, which may make something else than bytes"
    return ""


def _of_picture(script: Script, expr: ast.expr, endings: Sequence[Ending]) -> str:
    """Why what a transform is given may hold more than eight bits a channel.

    Pictures of PIL that Normalize takes three numbers off have three channels, and those have eight
    bits in all modes.
    """
    three = all(len(e.mean) == 3 for e in endings)
    if is_picture(script, expr) or (three and _is_of_pil(script, expr)):
        return ""
    return f"it is not certain that `{ast.unparse(expr)[:60]}` is a picture of eight bits a channel"


def is_picture(script: Script, expr: ast.expr, depth: int = 0) -> bool:
    """Whether it is a picture of PIL with eight bits for each channel."""
    match expr:
        case ast.Name() if depth < DEEPEST:
            found = script.analysis(Flow).values(expr)
            return surely(is_picture(script, value, depth + 1) for value in found)
        case ast.Call(func=ast.Attribute(value=inner, attr="convert"), args=[mode]):
            return _is_of_pil(script, inner) and script.constant(mode) in MODES
        case ast.Call(func=ast.Attribute(value=inner, attr=attr)):
            return attr in SAME_MODE and is_picture(script, inner, depth)
    return False


def _is_of_pil(script: Script, expr: ast.expr) -> bool:
    return surely(begins(t, Unknown, "PIL.") for t in script.values(expr))


def _transformed(script: Script, getitem: ast.FunctionDef) -> tuple[Key, ast.Call] | None:
    """The part of an item that is what a transform makes of a picture, and that call."""
    for key, part in _returned(getitem):
        match part:
            case ast.Call():
                made: Expressions = [part]
            case ast.Name():
                made = _bound(script, part)
            case _:
                continue
        # A picture can be in no batch: there is a transform wherever a loader takes items.
        calls = [e for e in made if e is None or not _is_of_pil(script, e)]
        match calls:
            case [ast.Call() as call] if _is_transform(script, call):
                return key, call
    return None


def _returned(getitem: ast.FunctionDef) -> list[tuple[Key, ast.expr]]:
    """What a plain ``__getitem__`` gives, where that stands in one place: its parts, by their
    keys."""
    match of_kind(live_nodes(getitem), ast.Return):
        case [ast.Return(value=value) as single] if single is getitem.body[-1]:
            if getitem.decorator_list or namespace_calls(getitem):
                return []
        case _:
            return []
    match value:
        case ast.Tuple(elts=elts):
            return list(enumerate(elts))
        case ast.Dict(keys=keys, values=values):
            pairs = zip(map(literal_of, keys), values, strict=True)
            return [(k, v) for k, v in pairs if isinstance(k, str)]
    return [(None, value)] if value is not None else []


def _bound(script: Script, name: ast.Name) -> Expressions:
    """What a variable may be bound to, where nothing but ``name`` reads what it is in the end."""
    flow = script.analysis(Flow)
    found = list(flow.reaching(name))
    single = [d for d in found if flow.definitions(name).uses(d) == [name]]
    return [d.value for d in found] if single else []


def _is_transform(script: Script, call: ast.Call) -> bool:
    found = script.called(call) - {Const(None)}
    plain = len(call.args) == 1 and not call.keywords and not has_unpacking(call)
    return plain and surely(short_name(t) in ("Compose", "ToTensor") for t in found)


# ---------------------------------------------------------------------------------- what is written
def _list(ending: Ending) -> ast.List:
    given = ending.composed.args.given(0, "transforms")
    match ending.composed.node:
        case ast.Call() as call if isinstance(
            display := argument_expression(call, given), ast.List
        ):
            return display
    raise Refusal("its transforms are no list that is written out")


def _written(script: Script, ending: Ending, part: Ext) -> ast.expr:
    """A transform, where it stands in the list; the one that casts is made there."""
    elements = [part.node] if ending.composed is part else _list(ending).elts
    for element in elements:
        match element:
            case ast.Call() if ending.composed is part or script.values(element) == {part}:
                return element
            case ast.Name() if part is ending.normalize and script.values(element) == {part}:
                return element
    raise Refusal(f"its {short_name(part)} is not made in the list of transforms")


def _spelled(script: Script, casting: ast.expr) -> Iterator[Edit]:
    """``ToTensor()`` as ``PILToTensor()``."""
    func = getattr(casting, "func", casting)
    match func, one(script.values(func)):
        case ast.Attribute(value=module), _:
            yield Rewrite(func, "{module}.PILToTensor", {"module": module})
        case ast.Name(), Ref(name=whole):
            module_name = whole.rpartition(".")[0]
            name, imports = imported(source_of(casting), module_name, "PILToTensor")
            yield from imports
            yield Rewrite(func, name)
        case _:
            raise Refusal("how its ToTensor is spelled is not followed")


def _without_use(script: Script, dropped: Sequence[ast.expr]) -> Iterator[Remove]:
    """The variables that nothing reads once these are gone: ``normalize = Normalize(...)``."""
    flow, gone = script.analysis(Flow), set(dropped)
    statements: ByNode[ast.Assign] = {}
    for name in dropped:
        for made in flow.reaching(name):
            match statement_of(made.node):
                case ast.Assign(targets=[target]) as statement if target is made.node:
                    if set(flow.definitions(name).uses(made)) <= gone:
                        statements[statement] = statement
    yield from (Remove(statement) for statement in statements.values())


def _same(one: object, other: object) -> bool:
    return isinstance(one, Ending) and isinstance(other, Ending) and one.composed is other.composed
