"""``rewrite --commit``: one commit for each rule, each on top of the one before.

``--split-patches``: one patch for each rule, each for what the one before has made.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from autofast.commands.files import Output, write_all
from autofast.commands.rewriting import Rewritten
from autofast.edit.hunks import changes, lines_of
from autofast.edit.passes import Passes
from autofast.faults import PostConditionError
from autofast.model.opening import open_source
from autofast.model.source import BadInput, Source, shown_path
from autofast.registry import all_rules
from autofast.report import diff
from autofast.report.diff import Change, FileDiff
from autofast.report.record import Record
from autofast.report.style import expected
from autofast.rule import Effect


@dataclass(frozen=True)
class Step:
    """What ``rules`` change, where all earlier steps have been taken."""

    rules: tuple[str, ...]
    diffs: tuple[FileDiff, ...]


def refuse_notebooks(result: Rewritten) -> None:
    """Raises ``BadInput`` where a notebook has changed."""
    if notebook := next((s.rel for s in result.texts if s.is_notebook), ""):
        raise BadInput(
            f"{notebook}: a patch of a notebook's code fits no file; write it with -o or --in-place"
        )


def write_patches(result: Rewritten, folder: Path, *, force: bool) -> list[Path]:
    """Write the patches below ``folder``, in the order of their names; raises ``BadInput``, and
    then nothing was written.
    """
    refuse_notebooks(result)
    if folder.exists() and not folder.is_dir():
        raise BadInput(f"{folder}: is not a folder; give another name")
    found = list(steps(result))
    if found and not force and folder.is_dir() and any(folder.glob("*.patch")):
        raise BadInput(
            f"{folder}: has patches; give another folder, or write over those of the same name with --force"
        )
    outputs = [
        Output(folder / f"{n:02}-{'+'.join(step.rules)}.patch", diff.patch(step.diffs))
        for n, step in enumerate(found, 1)
    ]
    write_all(outputs, force=force, parents=True)
    return [output.path for output in outputs]


def steps(result: Rewritten) -> Iterator[Step]:
    """The rewrite, rule by rule; the last step ends where the rewrite does.

    A rule that changes nothing without another one, or whose part does not stand by itself, goes
    together with those after it.
    """
    order = sorted(result.plan.applied)
    before = {source: source.text for source in result.texts}
    done: frozenset[str] = frozenset()
    for n in range(1, len(order) + 1):
        made = _part(result, order[:n]) if n < len(order) else result.plan
        if made is None:
            continue
        texts = made.texts()
        if set(texts) - set(before):
            continue  # the whole rewrite leaves that file alone
        after = {source: texts.get(source, source.text) for source in before}
        rules = tuple(sorted(made.applied - done)) or (order[n - 1],)
        if diffs := tuple(_diffs(before, after, rules)):
            yield Step(rules, diffs)
            before, done = after, made.applied


def _part(result: Rewritten, rules: list[str]) -> Passes | None:
    """The rewrite with some of its rules; None where it does not stand."""
    try:
        return result.plan.subset(rules)
    except PostConditionError:
        return None


def _diffs(
    before: dict[Source, str], after: dict[Source, str], rules: tuple[str, ...]
) -> Iterator[FileDiff]:
    for source, text in after.items():
        if text != before[source]:
            old = open_source(source.path, source.rel, source.encode(before[source]))
            found = changes(lines_of(before[source]), lines_of(text))
            yield FileDiff(old, text, [Change(c.old, c.new, rules) for c in found])


def commit(result: Rewritten) -> tuple[list[str], str]:
    """The new commits, as ``1a2b3c4 tf32``, and the one before them.

    All are made or none; raises ``BadInput``, and then everything is as it was. Commits go through
    the hooks of the repository.
    """
    git = Git(result.root)
    git.must_be_clean([source.path for source in result.texts])
    made, start = list(steps(result)), git("rev-parse", "--verify", "HEAD")
    try:
        return [_commit(git, step, result.records) for step in made], start
    except (BadInput, KeyboardInterrupt):
        git("reset", "--hard", "-q", start)  # it was clean
        raise


def _commit(git: Git, step: Step, records: Sequence[Record]) -> str:
    outputs = [
        Output(file.source.path, file.source.encode(file.text), was=file.source.raw)
        for file in step.diffs
    ]
    write_all(outputs)
    git("add", "--", *(str(output.path) for output in outputs))
    git("commit", "-q", "-F", "-", stdin="\n".join(_message(step, records)) + "\n")
    return f"{git('rev-parse', '--short', 'HEAD')} {', '.join(step.rules)}"


def _message(step: Step, records: Sequence[Record]) -> Iterator[str]:
    """A line of what the rules do, then each place with its reason."""
    rules = all_rules()
    yield f"{', '.join(step.rules)}: {rules[step.rules[0]].summary.rstrip('.')}"
    yield ""
    mine = [r for r in records if r.status == "fix" and r.rule in step.rules]
    for record in mine:
        gain = expected(record.gain)
        yield f"{record.path}:{record.shown}: {record.message}{f' ({gain})' if gain else ''}"
    effects = [Effect[r.effect.upper()] for r in mine] or [rules[n].effect for n in step.rules]
    yield ""
    yield f"Effect: {max(effects).name.lower()}"


class Git:
    """``git("status")`` in a folder: what it prints; raises ``BadInput`` with its first words where
    it fails.
    """

    def __init__(self, folder: Path):
        self.folder = folder

    def __call__(self, *arguments: str, stdin: str | None = None) -> str:
        try:
            done = subprocess.run(
                ["git", *arguments],
                cwd=self.folder,
                input=stdin,
                capture_output=True,
                text=True,
                errors="replace",
            )
        except OSError as error:
            raise BadInput(f"--commit: git cannot be run ({error.strerror})") from None
        if done.returncode:
            said = " ".join((done.stderr.strip() or done.stdout.strip()).split())[:300]
            raise BadInput(f"--commit: git {arguments[0]} failed ({said}); nothing was changed")
        return done.stdout.strip()

    def must_be_clean(self, files: Sequence[Path]) -> None:
        """Raises ``BadInput`` unless the folder is in a repository without changes, in which all of
        ``files`` are known.
        """
        changed = self("status", "--porcelain", "--untracked-files=no").splitlines()
        if changed:
            more = f" and {len(changed) - 1} more" if len(changed) > 1 else ""
            raise BadInput(
                f"--commit: {changed[0].split(maxsplit=1)[-1]}{more} has changes that are not committed; commit or stash them first"
            )
        for file in files:
            if not self("ls-files", "--", str(file)):
                raise BadInput(
                    f"--commit: {shown_path(file)} is not in git; add and commit it first"
                )
