"""What the code behind a loader has from before, and no worker can have for itself: open files,
tensors on the device, generators.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from functools import cached_property

from autofast.facts.loaders import SPLIT
from autofast.facts.workers.loader_code import Side, ever_bound
from autofast.flow.defuse import bound_to
from autofast.flow.effects import Effects
from autofast.flow.program import function_around
from autofast.model import names
from autofast.model.calls import is_method
from autofast.model.contents import with_contents
from autofast.model.several import wordset
from autofast.model.source import Said, nodes_in, within_any
from autofast.model.values import Ext, Inst, Thing, is_named, of_kind

# fmt: off
OPENERS = wordset("""
    builtins.open io.open gzip.open bz2.open lzma.open tarfile.open tarfile.TarFile tarfile.TarFile.open zipfile.ZipFile wave.open
    h5py.File tables.open_file netCDF4.Dataset xarray.open_dataset xarray.open_mfdataset pandas.HDFStore uproot.open
    lmdb.open lmdb.Environment sqlite3.connect leveldb.LevelDB plyvel.DB rocksdb.DB shelve.open
    psycopg2.connect pymysql.connect MySQLdb.connect pymongo.MongoClient redis.Redis redis.StrictRedis sqlalchemy.create_engine
    socket.socket requests.Session boto3.client boto3.resource
    cv2.VideoCapture decord.VideoReader av.open torchvision.io.VideoReader imageio.get_reader soundfile.SoundFile
    openslide.OpenSlide openslide.open_slide rasterio.open
    multiprocessing.Queue multiprocessing.Value
""")
# fmt: on
ARCHIVE = "numpy.load"  # of an .npz, which stays open
OPENERS_OF = ("queue.", "threading.")
# Attributes and methods whose result has nothing to do with the file any more.
FACTS = wordset("""shape size dtype ndim nbytes name names filename path width height count bounds crs dimensions values data attrs
    level_count level_dimensions mpp""")
READS = wordset("""read readline readlines read_frames get_batch get_avg_fps keys getnames namelist infolist fetchone fetchall load compute
    to_numpy to_dataframe astype tolist item copy numpy cpu asnumpy select find find_one count_documents to_pandas""")


def _is_npz(path: Thing) -> bool:
    return str(getattr(path, "pattern", "") or getattr(path, "value", "")).endswith(".npz")


class Held:
    """Asked for the items of one loader."""

    def __init__(self, code: Side):
        self.code, self.script, self.flow = code, code.script, code.flow

    def handle(self) -> Said | None:
        """Where something was opened that items read from, and by what."""
        for thing in self.code.objects.values():
            if isinstance(thing, Ext) and thing.node is not None and opens(thing.name):
                if not self._is_own(thing.node):
                    return thing.node, thing.name
        for call in self._origins:
            if name := next(filter(opens, self._names(call)), ""):
                return call, name
        return self._archive()

    def _archive(self) -> Said | None:
        """``np.load("data.npz")``, of which items take an array out of the open file each time."""
        loads = {c for c in self._origins if ARCHIVE in self._names(c)}
        functions = self.code.functions.values() if loads else ()
        for part in (n for f in functions for n in nodes_in(f, ast.Subscript)):
            by_name = isinstance(self.script.constant(part.slice), str)
            start: list[ast.AST] = [part.value]
            for call in loads.intersection(with_contents(start, self._whole)):  # type: ignore[arg-type]
                if by_name or any(_is_npz(t) for a in call.args[:1] for t in self.script.values(a)):
                    return call, ARCHIVE
        return None

    def on_device(self) -> ast.AST | None:
        """Where a tensor or a model that items read was moved to the device."""
        moves = {t.node for t in self.script.transfers if t.to_device}
        return next((c for c in self._origins if is_method(c, "cuda") or c in moves), None)

    def generator(self) -> ast.AST | None:
        """Where a generator was made that items draw from, and of which each worker would have a
        copy.
        """
        of_splits = {
            id(t)
            for thing in self.code.objects.values()
            if is_named(thing, Ext, SPLIT)
            for t in thing.args.get(2, "generator")
        }
        things = of_kind(self.code.objects.values(), Ext)
        made = [t.node for t in things if t.name in names.GENERATORS and id(t) not in of_splits]
        made += [c for c in self._origins if self._names(c) & names.GENERATORS]
        return next((n for n in made if n is not None and not self._is_own(n)), None)

    def _names(self, call: ast.Call) -> set[str]:
        return self.script.library_functions(call)

    def _is_own(self, node: ast.AST) -> bool:
        """It is made by the code of the items, each time."""
        around = function_around(node)
        return within_any(around, self.code.functions.values())

    # ----------------------------------------------------------------------- where values come from
    @cached_property
    def _origins(self) -> list[ast.Call]:
        """The calls that what items read comes from, but those that items make themselves."""
        start: list[ast.AST] = [*self._stored()]
        for name in self.code.free.values():
            start += [value for value, _ in ever_bound(name) if value is not None]
        found = with_contents(start, self._below)
        return [n for n in of_kind(found, ast.Call) if not self._is_own(n)]

    def _stored(self, wanted: Iterable[tuple[int, str]] | None = None) -> Iterator[ast.expr]:
        """What the attributes are set to that items read, or single ones of objects."""
        for write in self.script.analysis(Effects).writes:
            if not write.name or write.base is None:
                continue
            mine = {(id(t), write.name) for t in self.script.values(write.base)}
            if wanted is None:
                # A dataset is handed over as a whole where processes are not forked.
                is_read = write.name in self.code.loads or self.code.every
                held = self.code.objects if is_read else {id(t) for t in self.code.roots}
                found = any(id_ in held for id_, _ in mine)
            else:
                found = not mine.isdisjoint(wanted)
            value, _ = bound_to(write.node)
            if found and value is not None:
                yield value

    def _whole(self, node: ast.AST) -> Iterable[ast.AST]:
        """The same as :meth:`_below`, for what is no part of it."""
        return () if isinstance(node, ast.Subscript) else self._below(node)

    def _below(self, node: ast.AST) -> Iterator[ast.AST]:
        """What a value is, is a part of, or has as a part, one step further down."""
        match node:
            case ast.Name(ctx=ast.Load()):
                values = (bound_to(d.node)[0] for d in self.flow.reaching(node))
                yield from (v for v in values if v is not None)
            case ast.Attribute(value=base, attr=attr) if attr not in FACTS:
                things = of_kind(self.script.values(base), Inst)
                yield from self._stored([(id(t), attr) for t in things]) if things else (base,)
            case ast.Subscript(value=base, slice=index) if not isinstance(index, SLICES):
                yield base
            case ast.Call(func=ast.Attribute(value=base, attr=attr)) if attr not in READS:
                # What a generator of NumPy draws is no generator, unless it is asked for one.
                known = {t.name for t in self.script.values(base) if isinstance(t, Ext)}
                drawn = known and known <= DRAW and attr != "spawn"
                if not drawn and not self._names(node):
                    yield base
            case ast.ListComp(elt=value) | ast.GeneratorExp(elt=value) | ast.DictComp(value=value):
                yield value
            case ast.List(elts=parts) | ast.Tuple(elts=parts) | ast.Dict(values=parts):
                yield from parts
            case ast.BoolOp(values=parts):
                yield from parts
            case ast.IfExp(body=one, orelse=other):
                yield from (one, other)
            case ast.NamedExpr(value=value):
                yield value


DRAW = names.GENERATORS - {"torch.Generator"}  # whose methods give itself
SLICES = (ast.Slice, ast.Tuple)  # f["x"][:] is read into memory


def opens(name: str) -> bool:
    """Whether a function or class of a library opens what processes must not share."""
    return name in OPENERS or name.startswith(OPENERS_OF)
