"""``--resume-from``: both scripts go on from a checkpoint of theirs, given as they take it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from autofast.commands.resuming import Way, ways
from autofast.model.source import BadInput
from autofast.verify.request import Request
from autofast.verify.running.runs import Setup


def applied(request: Request, setup: Setup) -> tuple[Setup, dict[Path, Path]]:
    """The setup with the arguments by which the script resumes, and files that have to lie where it
    reads them (by where that is). Raises ``BadInput`` where it has no way to."""
    if request.resume_from is None:
        return setup, {}
    checkpoint = request.resume_from.absolute()
    if not checkpoint.exists():
        raise BadInput(
            f"{request.resume_from}: no such file; --resume-from names a checkpoint that the script has saved"
        )
    setup = replace(setup, resume=checkpoint)
    if any(_names(word, checkpoint, setup.cwd) for word in setup.arguments):
        return setup, {}
    way = _way(request, setup)
    flags = tuple(word for word in way.flags if word not in setup.arguments)
    if way.option:
        relative = os.path.relpath(checkpoint, setup.cwd)
        path = relative if not relative.startswith("..") else str(checkpoint)
        return replace(setup, arguments=(*setup.arguments, *flags, way.option, path)), {}
    setup = replace(setup, arguments=(*setup.arguments, *flags))
    target = Path(os.path.normpath(setup.cwd / way.path)) if way.path else checkpoint
    if target.resolve() == checkpoint.resolve():
        return setup, {}
    if request.cwd is not None:
        raise BadInput(
            f"{request.script}: reads {way.path} ({way.place}); with --cwd the checkpoint has to lie there"
        )
    return replace(setup, resume=target), {target: checkpoint}


def _names(word: str, checkpoint: Path, cwd: Path) -> bool:
    """An argument that is the path, or ends in it (``--resume=last.pt``, ``resume=last.pt``)."""
    return Path(os.path.normpath(cwd / word.rpartition("=")[2])) == checkpoint


def _way(request: Request, setup: Setup) -> Way:
    by_hand = f"give the arguments with which it resumes, the path among them, behind -- ({request.resume_from})"
    try:
        found = ways(request.script, request.root)
    except BadInput as why:
        raise BadInput(
            f"{request.script}: how it resumes cannot be read ({why}); {by_hand}"
        ) from None
    if not found:
        raise BadInput(
            f"{request.script}: no way to resume was found (a torch.load whose path an option gives, or that is fixed, "
            f"with a load_state_dict); {by_hand}"
        )
    return found[0]
