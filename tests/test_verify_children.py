"""Processes that a script starts itself: what is not followed is said, and keeps the verdict
open.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from autofast.verify.evidence.record import FULL
from autofast.verify.judging import parity
from autofast.verify.result import Sameness
from tests.probing import run
from tests.test_verify_judge import made

SECOND = """
import torch

def train(rank=0):
    model = torch.nn.Linear(4, 1)  # the import of an optimizer takes as long as that of torch
    for _ in range(3):
        model(torch.ones(2, 4)).sum().backward()
        with torch.no_grad():
            for p in model.parameters():
                p.sub_(0.1 * p.grad)
                p.grad = None
"""
PROGRAM = "print('a program of the project, whatever it does')"
FIRST = """
import os, subprocess, sys
import multiprocessing as mp
import second

def nothing(queue):
    queue.put(1)

if __name__ == "__main__":
    second.train()
    {0}
"""
STARTS = {
    "forked": "p = mp.get_context('fork').Process(target=second.train); p.start(); p.join()",
    "spawned": "p = mp.get_context('spawn').Process(target=second.train, args=(2,)); p.start(); p.join()",
    "by torch": "import torch.multiprocessing as tm; tm.start_processes(second.train, nprocs=1, start_method='spawn')",
    "beside ranks": "import torch.multiprocessing as tm; tm.spawn(second.train, nprocs=1)",
    "a script": "subprocess.run([sys.executable, 'third.py'], check=True)",
    "a module": "subprocess.run([sys.executable, '-m', 'third'], check=True)",
    "by the shell": "os.system(f'{sys.executable} third.py > log.txt')",
    "in a line": "subprocess.run([sys.executable, '-c', 'if 0: import torch'], check=True)",
}
QUIET = {
    "no training": "q = mp.get_context('fork').Queue(); p = mp.get_context('fork').Process(target=nothing, args=(q,)); p.start(); q.get(); p.join()",
    "git": "subprocess.run(['git', '--version'], check=True)",
    "workers": "import torch; [list(torch.utils.data.DataLoader(range(4), num_workers=1, multiprocessing_context=c)) for c in ('fork', 'spawn')]",
}


def unseen(folder: Path, start: str) -> tuple[str, ...]:
    (folder / "second.py").write_text(SECOND)
    (folder / "third.py").write_text(PROGRAM)
    (folder / "first.py").write_text(FIRST.format(start))
    ran = run(folder, "first.py", detail=FULL)
    assert ran.code == 0, ran.stderr
    return ran.record.unseen


@pytest.mark.parametrize("start", STARTS.values(), ids=STARTS.keys())
def test_what_trains_elsewhere_is_told(tmp_path: Path, start: str) -> None:
    assert len(unseen(tmp_path, start)) == 1


@pytest.mark.parametrize("start", QUIET.values(), ids=QUIET.keys())
def test_what_does_not_train_is_no_matter(tmp_path: Path, start: str) -> None:
    assert unseen(tmp_path, start) == ()


def test_no_verdict_reaches_it() -> None:
    runs = [made(), made(), made("rewritten")]
    assert parity.judge("exact", runs).verdict is Sameness.IDENTICAL
    runs = [made(unseen=("second.py is started",)), *runs[1:]]
    found = parity.judge("exact", runs)
    assert found.verdict is Sameness.UNCLEAR and "second.py" in found.summary
