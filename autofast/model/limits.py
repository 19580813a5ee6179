"""How far a program is followed: the limits of reading, and of the work of a rule, in one place.

Two kinds. A *bound* says how many of something are told apart before they are "unknown" (things
that a variable may be, items of a list); it keeps what is known small. A *budget* says how much
work a question may take; it is counted (:data:`WORK`), never timed, so that the answer is the same
on every machine and under every load. Behind a budget the answer is "too large to follow": a call,
a file or a rule is given up, and what it would have told is not known. What an analysis asks for
anyway (values, what is inside of them, states of a data-flow problem) counts; one that goes on for
long without asking for any of these must count for itself.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

# ----------------------------------------------------- budgets of the reader: evaluated expressions
READING = 360_000  # for one script
SHARE = 0.9  # of what is left, for one call: a deep helper cannot starve the training loop
UNCALLED = 0.5  # of what is left, for one function that nothing calls
SEVERAL = 90_000  # for one call of several networks, one of which is chosen, by name or otherwise
CHOSEN = 40_000  # for one call of many datasets, one of which is chosen
IMPORTED = 60_000  # for the top level of one imported file, beside the others
FETCHED = 40_000  # for what a loader makes of the items of its dataset
FED = 20_000  # the same for a framework's trainer
MOST_CUTS = 250  # calls that are cut short: after so many nothing is known any more

# ---------------------------------------------------------------------------------- budgets of work
RULE = 3_000_000  # for what one rule finds in one script
RULES = 6_000_000  # for what all find, once
SCRIPT = 10_000_000  # to read one script, the last resort: it ends with one line

# ------------------------------------------------------------------------------------------- bounds
DEPTH = 24  # nested calls of project functions
PASSES = 6  # over a loop's body: what still changes then is unknown
MOST_VALUES = 48  # more things than this are "unknown"
# the same of objects of one class: the blocks and layers of a deep network, as its methods see them
MOST_ALIKE = 512
MOST_CALLEES = 24  # functions and classes one of which is called: of more, none is followed
MANY = 4  # classes, one of which is called, that share a budget
MOST_HELD = 20_000  # things that are looked for in one that is left out of a set
FEW = 8  # items of a loop that are followed one by one
MOST_ITEMS = 64  # of a list that are told apart
MOST_COPIES = 3  # of a copy of a copy, by one call
# lists and dicts in what a module gives: of more, which a loop may nest without end, nothing is
# known
MOST_PARTS = 60
MOST_WAYS = 10_000  # to one place
MOST_WRAPPERS = 4  # of one decorator around one function
OFTEN = 40  # calls of one function that are followed with all that tells their objects apart
# Passes through one Sequential, with the same input, whose layers are followed: networks from a
# registry may stand in each other, and the ways through them are without number.
MOST_ALIKE_PASSES = 8
MOST_EVENTS = 2_000  # of one call that happen once more in all the ways they came about
# Things that are searched for changes before a call is followed again, and changes of a call that
# are looked through, as who makes more has changed something: at least, and for each step that to
# follow it again would cost.
MOST_SEARCHED = 400
SEARCHED_PER_STEP = 4
MOST_STATES = 400  # of a protocol before one statement: more than any script needed that was tried
MOST_SIBLINGS = 12  # other scripts that are read: the nearest


class TooLarge(Exception):
    """A budget is used up."""


class Work:
    """What has been done so far, in units that are small and alike: a value that is asked for, a
    thing that is looked into, a state that is passed on, an expression that is evaluated."""

    def __init__(self) -> None:
        self.done, self.limit = 0, sys.maxsize

    def spend(self) -> None:
        """One unit more; raises :class:`TooLarge` where that is too much."""
        self.done += 1
        if self.done > self.limit:
            raise TooLarge

    @contextmanager
    def at_most(self, units: int) -> Iterator[None]:
        """What runs within may take so much, and no more than is left for what is around it."""
        outer = self.limit
        self.limit = min(outer, self.done + units)
        try:
            yield
        finally:
            self.limit = outer

    @contextmanager
    def apart(self) -> Iterator[None]:
        """What runs within is another question, with budgets of its own, and not counted here."""
        outer, began = self.limit, self.done
        self.limit = sys.maxsize
        try:
            yield
        finally:
            self.limit, self.done = outer, began


WORK = Work()
