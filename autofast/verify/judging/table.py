"""The checks of sameness, in the order in which they are asked and shown: a row for each.

``scripts/readme.py`` writes the table into docs/verify.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import Any

from autofast.verify.evidence import course
from autofast.verify.evidence.gathered import Evidence
from autofast.verify.evidence.record import NORMS, Words
from autofast.verify.judging import (
    averages,
    coverage,
    draws,
    driven,
    exact,
    inputs,
    invariants,
    items,
    printed,
    resumed,
    rounding,
    rows,
    samples,
    saves,
    seeded,
    settings,
    targets,
    tensors,
    weights,
)
from autofast.verify.result import Check, Sameness, unclear

BROKEN, DIFFERENT, UNCLEAR = Sameness.BROKEN, Sameness.DIFFERENT, Sameness.UNCLEAR
REPRODUCED = ("exact", "rounding")  # effects that keep every batch in its place
KEPT = (*REPRODUCED, "sampling", "unknown")  # effects that keep the recipe
ALL = (*KEPT, "recipe")
ONE, TWO, LEAST = "a run of each", "two of the original", seeded.LEAST
MOVED = "double precision, moved parameters"


@dataclass(frozen=True)
class Row:
    """``ask`` gives the check (or several, each with a row of its own), or nothing where there is
    nothing to compare; ``allowed``: how far apart the two may be; ``says``: what a difference is.
    It needs ``seeds`` pairs of runs, and ``needs`` in words; asked under ``effects`` alone.
    """

    ask: Callable[[Evidence], Any]
    name: str
    compares: str
    allowed: str = "equal"
    says: Sameness = DIFFERENT
    effects: Words = ALL
    seeds: int = 0
    needs: str = ONE

    def named(self, check: Check) -> Check:
        """A check that has no name of its own is this row's."""
        if check.name:
            return check
        differs = check.passed is False and check.verdict is DIFFERENT
        return replace(check, name=self.name, verdict=self.says if differs else check.verdict)


# fmt: off
STRUCTURE = (  # what no rewrite may change, whatever its numbers look like
    Row(invariants.ended, "runs to its end", "exceptions, exit codes, time", says=BROKEN),
    Row(invariants.enough, "steps compared", "whether there is more than one step", says=UNCLEAR),
    Row(invariants.recorded, "what was recorded", "what the probe could not record", says=UNCLEAR),
    Row(invariants.finite, "finite losses", "NaN and infinity in losses and final tensors", says=BROKEN),
    Row(resumed.check, "resumed", "what is read of `--resume-from` and restored"),
    Row(invariants.steps, course.NAME, "how many; of GradScaler's skipped ones 2 % more or less", "equal; as seeds have it", BROKEN),
    Row(invariants.samples, "samples for each step", "of training and evaluation, over all ranks", says=BROKEN),
    Row(invariants.samples, "samples for evaluation", "of complete evaluations", says=BROKEN),
    Row(settings.learning_rates, settings.RATES, "of each group at every step", "1e-6; on a plateau factors and 5 %", effects=KEPT),
    Row(settings.optimizers, "optimizers", "kinds and number", effects=KEPT),
    Row(settings.settings, "optimizer settings", "of each group at the first and last step", "1e-6", effects=KEPT),
    Row(tensors.tensors, "tensors of the model", "number, shapes, types"),
    Row(tensors.movement, "every parameter trains", "which tensors move", "1e-6 of the norm"),
    Row(tensors.replicas, "the same model in every process", "parameters of all ranks at the end"),
    Row(settings.counters, settings.COUNTERS, "whole numbers among the buffers at the end", "equal; as seeds have it", effects=KEPT),
    Row(settings.clipping, "gradient clipping", "the limit that gradient norms keep", "1 %", effects=KEPT),
    Row(tensors.training_mode, "training mode", "share of modules that train in calls with and without gradients"),
    Row(samples.checkpoints, "checkpoints", "files, keys, types, shapes, whether they load", says=BROKEN),
    Row(samples.order, "the same batches in the same order", "checksums of batches", "1e-9", effects=REPRODUCED, needs=TWO),
    Row(samples.content, "the same samples in a pass", "sums over complete passes", "1e-9"),
    Row(samples.shuffled, "shuffling", "whether batches differ from pass to pass and seed to seed"),
    Row(samples.level, "mean value of the samples", "of each pass", "6 standard deviations, 1e-7"),
    Row(samples.scatter, "scatter of the batches", "variance of the means over batches", "× 1.5, 6 standard errors", effects=KEPT),
    Row(inputs.modules, "settings of the modules", "arguments; dropout by places, sizes and rates of its masks", effects=KEPT),
    Row(inputs.given, "what the models are given", "order, repetition, scatter, level and law of inputs", "6 standard errors", effects=KEPT, seeds=LEAST),
    Row(targets.check, targets.NAME, "law of labels; whether they come again, and count", "6 standard errors; 5 %", effects=KEPT, seeds=LEAST),
    Row(inputs.called, "calls of the models", "how many in training", "equal, or rounding alone", UNCLEAR, KEPT[1:], LEAST),
    Row(draws.check, draws.NAME, "numbers drawn at a time, their law; draws and data of evaluations", "half, under every seed; none that samples share"),
    Row(driven.check, driven.NAME, "prints, saves, steps", "100 times a rounding", needs="weights that move by themselves"),
    Row(items.drawn, "what is drawn for single items", "level, amount, togetherness, return", "6 standard errors", effects=KEPT, seeds=LEAST),
    Row(items.chosen, "which items are drawn", "how often each", "4 standard errors", effects=KEPT, seeds=LEAST),
    Row(rows.check, rows.NAME, "when each comes again, which follow each other, their places", "3 to 25 %, seeds (1e-3)", effects=KEPT, seeds=LEAST),
    Row(averages.check, averages.NAME, "rate, before or after a step, of how many", "5 %"),
    Row(weights.loaded, "weights at the end", "where all before is the same to the bit", "0.3 %", effects=KEPT),
    Row(saves.values, saves.NAME, "tensors and numbers at every save, and when", "equal; as far as rounding carries", effects=KEPT),
    Row(coverage.changes, "changed lines", "whether every changed place ran", says=UNCLEAR),
    Row(coverage.reached, "evaluation and saves", "whether runs that end early came to one", says=UNCLEAR),
    Row(coverage.followed, "processes of its own", "whether one trains out of sight", says=UNCLEAR),
    Row(printed.text_of, "printed lines", "kinds of lines; files (BROKEN)"),
    Row(printed.numbers, printed.NAME, "digit by digit, where the training is the same to the bit", "one in the last of four", needs=TWO),
    Row(printed.rounded, "printed numbers up to rounding", "where the same is drawn", "100 times a rounding, 2 %", needs=MOVED),
    Row(printed.meaning, "what the printed loss is", "mean, sum, first or last of the losses", "half a digit"),
    Row(printed.levels, "printed numbers over seeds", "level and scatter", "3 standard deviations; × 4", effects=KEPT[1:], seeds=LEAST),
)
NUMBERS = (  # which of these are asked follows from the effect, and from what was drawn (``parity``)
    Row(exact.bitwise, "bit for bit", "losses, norms, final weights, random states", needs=TWO),
    Row(exact.as_close, "as close as the original to itself", "losses and final weights", "3 times as far", needs="four of the original"),
    Row(rounding.first_step, "first step", "loss, gradient, update", "1e-4, 1e-3, 1e-2; 2 %, 10 %, 15 % in 16 bits"),
    Row(rounding.parting_step, "first step that differs", "the same, where all before is equal bit for bit", "the same"),
    Row(rounding.distances, "as far as rounding carries", "losses and final weights", "10 times as far; 100 while rounding is tame", needs=MOVED),
    Row(seeded.band, seeded.BAND, "ten stretches of the loss; all lower is SUSPICIOUS", "as below, or 3 times what rounding moves", seeds=LEAST),
    Row(seeded.equivalence, seeded.EQUIVALENCE, "mean of the last third; lower is SUSPICIOUS", "two one-sided tests, 5 % of the drop at most", seeds=LEAST),
    Row(seeded.learns, seeded.LEARNS, "drop of the loss", "half of it", seeds=3),
    Row(seeded.course, seeded.COURSE, "ten stretches of the loss", "2 %, 5 % of the drop, seeds (1e-3)", effects=KEPT, seeds=LEAST),
    *(Row(seeded.levels, f"{words} over seeds", "mean logarithm", "5 %, seeds (1e-3)", effects=KEPT, seeds=LEAST) for words in NORMS.values()),
    Row(seeded.levels, seeded.LAYERS, "the same of six groups of tensors", "10 %, seeds (1e-4)", effects=KEPT, seeds=LEAST),
    Row(seeded.levels, seeded.STROKES, "losses and norms of the same step", "10 times as far as in others, and by rounding", effects=KEPT, seeds=LEAST),
    Row(weights.checks, weights.BEGIN, "norm of each tensor", "10 %, seeds (1e-3 for all)", seeds=LEAST),
    Row(weights.checks, weights.END, "norm of each tensor", "10 %, seeds (1e-3 for all)", effects=KEPT, seeds=LEAST),
)
# fmt: on


def failed(name: str, error: Exception) -> Check:
    return unclear(
        f"the check itself failed and tells nothing: {type(error).__name__}: {error}", name
    )


def asked(rows: Iterable[Row], ev: Evidence) -> list[Check]:
    """Nothing passes because a check of it fails."""
    found: list[Check] = []
    fitting = [r for r in rows if ev.effect in r.effects and len(ev.pairs) >= r.seeds]
    for ask, row in {row.ask: row for row in fitting}.items():
        try:
            said = ask(ev)
        except Exception as error:
            said = failed(f"{ask.__module__.rpartition('.')[2]}.{ask.__name__}", error)
        found += (row.named(one) for one in (said if isinstance(said, list) else [said]) if one)
    return found
