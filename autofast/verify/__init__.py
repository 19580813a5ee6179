"""Runs the original and the rewritten script side by side and judges: how much faster, and does it still train the same.

    probe/      in the child process: runs a script unmodified and writes down what it did (torch and the standard library only)
    record.py   what the probe wrote, as data; steps.py derives one row per optimizer step
    scratch.py  a copy of the project for every run
    runs.py     one run: command, environment, time limit, clean end
    series.py   which runs, in which order, and when it is enough
    speed.py    the ratio of step times, its interval, the noise floor
    ranks.py    a training in several processes as the one that it is, beside one in a single process
    parity.py   the tests of sameness, by the strongest effect of the applied rules
    diagnosis.py  where the time of a step goes
    result.py   what all of this amounts to: the data that the reports show

Data flows downwards in this list. Nothing but ``probe/`` imports torch, and nothing there is imported here: the probe is started as a
program, with the interpreter that has the user's packages.
"""
