"""Runs the script as ``__main__`` and ends as it would have ended."""

from __future__ import annotations

import functools
import importlib
import importlib.machinery
import os
import signal
import sys
import traceback
import types
from collections.abc import Callable
from typing import Any

from . import lines, packages, resumes, scalars, seeds, settings, surroundings
from .arrival import Arrival
from .core import Probe, StopRun, leave
from .saves import Saves
from .writing import Writer, described, plain

KEPT: list[Any] = []  # what must outlive its name


def main(arguments: list[str]) -> None:
    born = surroundings.born()
    if not arguments:
        sys.exit(
            "usage: python probe SCRIPT [ARGUMENTS...]   with AUTOFAST_PROBE in the environment"
        )
    probe = installed(arguments[0], settings.read(), born, (settings.rank(), settings.world()))
    sys.argv[:] = arguments
    top, package = packages.of(arguments[0])
    if not getattr(sys.flags, "safe_path", False):
        sys.path.insert(0, top)
    run(probe, functools.partial(started, arguments[0], package))


def installed(script: str, wanted: settings.Settings, born: float, place: tuple[int, int]) -> Probe:
    """A probe at work in this process, the ``(rank, world size)`` of which is ``place``; its hooks
    wait for torch where that is not there yet.
    """
    probe = Probe(wanted, born, place)
    writer, saves, seeding = Writer(probe), Saves(probe), seeds.Seeds(probe)
    if wanted.double:
        # A dispatch mode sees nothing of what is compiled.
        os.environ.setdefault("TORCHDYNAMO_DISABLE", "1")
    writer.parts.append(
        lambda: {
            "wrote_outside": list(saves.outside),
            "checkpoints": list(saves.checkpoints.values()),
            "saves": saves.saves,
            "written": list(saves.inside),
        }
    )
    resuming = resumes.Resumes(probe) if wanted.resume else None
    if resuming is not None:
        writer.parts.append(lambda: {"resumed": resuming.found})
    catch_signals(probe)
    catch_exit(probe)
    folder = os.path.dirname(os.path.realpath(script))
    probe.folder = folder + os.sep
    if (
        wanted.state
        and not wanted.double
        and not wanted.perturb
        and not wanted.shift
        and not wanted.driven
        and wanted.out
    ):
        probe.lines = ran = lines.Lines((wanted.scratch, folder), folder, wanted.out + ".lines")
        writer.parts.append(lambda: {"lines": ran.found()})
    arrivals = {
        "numpy": seeding.numpy,
        "torch": lambda: torch_arrived(probe, writer, saves, seeding, script, resuming),
    }
    if wanted.state:
        logged = scalars.Scalars(probe)
        writer.parts.append(lambda: {"scalars": plain(logged.found)})
        arrivals.update((name, functools.partial(logged.arrived, name)) for name in scalars.MODULES)
    KEPT.append(Arrival(arrivals))
    return probe


def torch_arrived(
    probe: Probe,
    writer: Writer,
    saves: Saves,
    seeding: seeds.Seeds,
    script: str,
    resuming: resumes.Resumes | None = None,
) -> None:
    """Installs every hook. What this version of torch does not allow is noted, and the run goes
    on.
    """
    probe.moments["torch_imported"] = probe.clock()
    wanted = probe.settings

    def attempt(what: str, function: Any) -> Any:
        """What it makes; with what that has found at the end."""
        try:
            made = function()
            if callable(getattr(made, "found", None)):
                writer.parts.append(made.found)
            return made
        except Exception as error:
            probe.note(f"{what} not recorded: {described(error)}")
            return None

    from . import children, loaders, options, spans, state, training, unaided

    attempt("seeds", seeding.torch)
    steps = attempt("steps", lambda: training.Training(probe))
    attempt("training without a backward", lambda: unaided.Unaided(probe, steps))
    fetches = attempt("loaders", lambda: loaders.Loaders(probe))
    attempt("transfers and collectives", lambda: spans.Spans(probe))
    attempt("checkpoints", saves.torch)
    if resuming is not None:
        attempt("what was resumed", resuming.torch)
    ranked = functools.partial(Spawned, os.path.abspath(script))
    attempt("processes that the script starts", lambda: children.Children(probe, ranked))
    if fetches is not None and wanted.facts:
        from .watch import Watch as Places

        folder = os.path.dirname(os.path.realpath(script))
        journal = wanted.out + ".batches"
        watched = attempt(
            "facts", lambda: Places(probe, fetches, (wanted.scratch, folder), folder, journal)
        )
        if watched is not None:
            probe.operations = watched.operations
    if steps is not None and wanted.gradients:
        from .gradients import Watch

        steps.watch = Watch()
        steps.constructed.append(steps.watch.used)
    if steps is not None and wanted.state:
        from . import averages, carried, draws, inputs, masks, own, precision, rows, sizes, targets

        kinds = attempt("precision", precision.Precision)
        if kinds is not None:
            steps.kinds = kinds.gradients
        again = draws.Checkpointing()
        steps.random = surroundings.random_digest
        given = attempt("inputs", lambda: inputs.Inputs(probe, fetches))
        given.draws = random = attempt("draws", lambda: draws.Draws(probe, again))
        random.sizes = counted = attempt("sizes of draws", lambda: sizes.Sizes(probe, again.idle))
        if counted is not None:
            counted.open = random.open
            attempt("draws of workers", lambda: carried.Carrying(counted))
        made = attempt("generators of its own", lambda: own.Own(probe, counted))
        if counted is not None:
            steps.random = lambda: f"{surroundings.random_digest()} {counted.drawn['sequence']}"
        attempt("masks of dropout", lambda: masks.Masks(probe, again.idle))
        if given is not None:
            attempt("targets", lambda: targets.Targets(probe, given, again.idle))
        fetches.rows = attempt("rows of the data", lambda: rows.Rows(probe, again.idle))
    if steps is not None and (wanted.state or wanted.perturb):
        models = state.State(probe)
        steps.constructed.append(models.constructed)
        if wanted.driven:
            steps.watch.drive = models.drive
        if wanted.state:
            steps.models = models.ended
            models.inputs, models.draws = given, random
            followed = averages.Averages(probe, models.optimizers)
            steps.each_backward = followed.look
            writer.parts.append(lambda: {"averages": followed.found})
            steps.options = options.Options()
            steps.first_of_optimizer = models.look
            steps.first_backward.append(models.first_backward)
            writer.parts.append(lambda: {"settings": steps.options.flat()})
            writer.parts.append(models.found)
    if wanted.common:
        from .common import Common

        probe.common = attempt("common random numbers", lambda: Common(probe, random.sizes, made))
        if probe.common is not None and steps is not None:
            steps.random = probe.common.digest
    import torch

    if surroundings.gpu_possible():
        from .device import Device

        probe.device = Device(probe)
        writer.parts.append(lambda: {**probe.device.finish(), "syncs": probe.device.syncs})
    if wanted.detailed:
        attempt("agreeing random draws of compiled code", lambda: same_draws(torch, probe))
    if wanted.double:
        from .double import Double

        KEPT.append(Double())  # type: ignore[no-untyped-call]
        KEPT[-1].__enter__()


class Spawned:
    """``function(rank, *arguments)`` of torch.multiprocessing.spawn, in a new process, under a
    probe.
    """

    def __init__(self, script: str, function: Callable[..., Any], world: int) -> None:
        self.script, self.function, self.world = script, function, world

    def __reduce__(self) -> tuple[Any, ...]:
        from .children import unpickled

        return unpickled(self)

    def __call__(self, place: int, *arguments: Any) -> None:
        probe = installed(
            self.script, settings.read(place), surroundings.born(), (place, self.world)
        )
        probe.has_ranks = True
        run(probe, functools.partial(self.function, place, *arguments))


def same_draws(torch: Any, probe: Probe) -> None:
    """Compiled code draws random numbers of its own unless told to draw eager ones. Set when
    something is compiled: importing inductor for a script that compiles nothing would cost
    seconds."""
    original = torch.compile

    @functools.wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        import torch._inductor.config as inductor

        inductor.fallback_random = True
        if probe.lines is not None:
            probe.lines.stop()
        return original(*args, **kwargs)

    torch.compile = compile


def started(script: str, package: str = "") -> None:
    """Not by runpy.run_path: that takes the script's module away from ``sys.modules`` when it ends,
    before its exit functions run, which then cannot pickle its classes. A folder or a zip file with
    a ``__main__`` is left to runpy."""
    if os.path.isdir(script) or script.endswith(".zip"):
        import runpy

        runpy.run_path(script, run_name="__main__")
    else:
        execute(script, package)


def run(probe: Probe, body: Callable[[], None]) -> None:
    """The script, or the function of it that runs in this process; the record says how it ended."""
    probe.moments["script_started"] = probe.clock()
    try:
        body()
    except StopRun:
        finish(probe)
    except SystemExit as stop:
        probe.write("exit", exit_code=exit_code_of(stop))
        raise
    except BaseException as error:
        if not probe.ours:
            raise
        error.__traceback__ = own = users(error.__traceback__)
        probe.write(
            "error",
            exit_code=1,
            error=described(error),
            trace="".join(traceback.format_exception(type(error), error, own)),
        )
        sys.excepthook(type(error), error, own)
        # Printed; the interpreter still ends as it does for this exception.
        sys.excepthook = lambda *_: None
        raise
    else:
        if probe.stopping:  # a bare except swallowed the end of the run, and no step came after it
            finish(probe)
        probe.write("end")


def execute(script: str, package: str) -> None:
    # As ``python script.py`` has it.
    path = os.path.abspath(script) if sys.version_info >= (3, 9) else script
    module, loader = (
        types.ModuleType("__main__"),
        importlib.machinery.SourceFileLoader("__main__", path),
    )
    module.__dict__.update(
        __file__=path,
        __builtins__=__builtins__,
        __loader__=loader,
        __cached__=None,
        __annotations__={},
    )
    if package:  # as ``python -m`` has it; workers that are spawned find the module by its name
        importlib.import_module(package)
        name = f"{package}.{os.path.splitext(os.path.basename(path))[0]}"
        module.__package__ = package
        module.__spec__ = importlib.machinery.ModuleSpec(name, loader, origin=path)
        module.__spec__.has_location = True
    KEPT.append(sys.modules["__main__"])
    sys.modules["__main__"] = module
    with open(path, "rb") as file:
        source = file.read()
    exec(compile(source, path, "exec", dont_inherit=True), module.__dict__)


def users(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Without the frames of the probe: the first ones here, and those of wrappers in between."""
    here = os.path.dirname(os.path.abspath(__file__)) + os.sep
    entries = []
    while trace is not None:
        if not os.path.abspath(trace.tb_frame.f_code.co_filename).startswith(here):
            entries.append(trace)
        trace = trace.tb_next
    result: types.TracebackType | None = None
    for entry in reversed(entries):
        result = types.TracebackType(result, entry.tb_frame, entry.tb_lasti, entry.tb_lineno)
    return result


def exit_code_of(stop: SystemExit) -> int:
    return 0 if stop.code is None else stop.code if isinstance(stop.code, int) else 1


def finish(probe: Probe) -> None:
    """The script is unwound after its last wanted step. It did not expect to end here: threads of
    its own may wait for ever.
    """
    probe.write("steps")
    if probe.ours:
        wait_for_others()
        leave(0, orderly=True)


def wait_for_others() -> None:
    """Under torch.distributed: a process that vanishes while another still receives its last
    messages makes that one fail. No collective: the other may not come. The store counts who has
    arrived."""
    import time

    torch: Any = sys.modules.get("torch")
    if (
        torch is None
        or not torch.distributed.is_available()
        or not torch.distributed.is_initialized()
    ):
        return
    try:
        store, size = (
            torch.distributed.distributed_c10d._get_default_store(),
            torch.distributed.get_world_size(),
        )
        arrived, limit = store.add("autofast_probe_end", 1), time.monotonic() + 5
        while arrived < size and time.monotonic() < limit:
            time.sleep(0.01)
            arrived = store.add("autofast_probe_end", 0)
        time.sleep(0.05)  # the process that holds the store goes last
    except Exception:  # the store's own process has gone
        pass


def catch_signals(probe: Probe) -> None:
    """A time limit ends the run by SIGTERM: what is known so far is written. The script's own
    handler replaces this one.
    """

    def terminated(number: int, frame: Any) -> None:
        probe.write("error", exit_code=128 + number, error=signal.Signals(number).name)
        signal.signal(number, signal.SIG_DFL)
        os.kill(os.getpid(), number)

    if signal.getsignal(signal.SIGTERM) == signal.SIG_DFL:
        signal.signal(signal.SIGTERM, terminated)


def catch_exit(probe: Probe) -> None:
    original = os._exit

    @functools.wraps(original)
    def leave_now(status: int) -> Any:
        probe.write("exit", exit_code=status)
        original(status)

    leave_now.autofast_original = original  # type: ignore[attr-defined]
    os._exit = leave_now
