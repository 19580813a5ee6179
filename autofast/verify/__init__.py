"""Runs the original and the rewritten script side by side and judges: how much faster, and does it
still train the same.

    request.py    what the user typed
    probe/        in the child process: runs a script unmodified and writes down what it did
    running/      a copy of the project for every run, one run, its rows: one per optimizer step
    evidence/     what runs recorded, sorted, and what two of them have in common
    judging/      the tests of sameness: parity says which runs are wanted and what comes out
    speed.py      the ratio of step times, its interval, the noise floor
    series.py     which runs, in which order, and when it is enough
    blame.py      which rule makes the difference
    diagnosis.py  where the time of a step goes; facts.py: what happens at which line
    result.py     what all of this amounts to: the data that the reports show
    command.py    from the request to the result

Nothing but ``probe/`` imports torch, and nothing there but ``packages`` is imported here: the probe
is started as a program, with the interpreter that has the user's packages.
"""
