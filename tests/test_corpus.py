"""Well-known public scripts on generated data, before and after; see ``tests/corpus_run.py``."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.harness import HAVE_TORCH

MIRROR = os.environ.get("AUTOFAST_CORPUS", "")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not HAVE_TORCH, reason="running training scripts needs torch"),
    pytest.mark.skipif(
        not MIRROR,
        reason="the corpus is not here: set AUTOFAST_CORPUS to the folder with its repositories",
    ),
]

NAMES = [
    "mnist",
    "vae",
    "wgan_gp",
    "nanoGPT",
    "minGPT",
    "word_language_model",
    "super_resolution",
    "stargan",
]


@pytest.mark.parametrize("name", NAMES)
def test_rewritten_scripts_of_the_corpus_train_the_same(name: str, tmp_path: Path):
    corpus_run = pytest.importorskip("tests.corpus_run", reason="needs NumPy")
    subject = next(subject for subject in corpus_run.SUBJECTS if subject.name == name)
    git = corpus_run.repository(Path(MIRROR), subject)
    if git is None:
        pytest.skip(f"{subject.repo} is not in {MIRROR}")
    different = [
        outcome
        for outcome in corpus_run.outcomes(subject, git, tmp_path / "work")
        if outcome.differences
    ]
    wrong = ["\n  ".join([corpus_run.row(outcome), *outcome.differences]) for outcome in different]
    assert not wrong, "\n".join(wrong)
