"""Runs the original and the rewritten script side by side and judges: how much faster, and does it
still train the same.

    request.py    what the user typed
    probe/        in the child process: runs a script unmodified and writes down what it did (torch
    and the standard library only) running/      a copy of the project for every run (scratch), one
    run (runs), one row per optimizer step of what the probe wrote (steps) evidence/     what runs
    recorded (record), sorted (gathered), and what two of them have in common (alike, course)
    judging/      the tests of sameness: parity says which runs are wanted and what comes out, the
    others hold one kind of evidence each speed.py      the ratio of step times, its interval, the
    noise floor series.py     which runs, in which order, and when it is enough blame.py      which
    rule makes the difference diagnosis.py, facts.py  where the time of a step goes, and what
    happens at which line
    result.py     what all of this amounts to: the data that the reports show
    command.py    from the request to the result

Nothing but ``probe/`` imports torch, and nothing there but ``packages`` is imported here: the probe
is started as a program, with the interpreter that has the user's packages.
"""
