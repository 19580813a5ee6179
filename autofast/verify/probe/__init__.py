"""Runs a training script unmodified, inside its own process, and writes down what it did. Torch and
the standard library only.

``python /path/to/autofast/verify/probe SCRIPT ARGUMENTS...`` with any interpreter that has torch
(Python 3.8, torch 2.0 or later, hence no ``zip(strict=...)`` here); autofast need not be installed
there. What to record comes as JSON in the environment variable AUTOFAST_PROBE (settings.py), so
that launchers may order their arguments as they like.

    __main__.py     loads this folder as a package under a private name, so that nothing of it meets
    the script's own modules settings.py     what is asked for program.py      runs the script as
    ``__main__`` and ends as the script would have ended packages.py     scripts that import
    relatively, and so run as ``python -m`` alone arrival.py      calls back when the script itself
    imports torch or numpy: settings that must precede the import keep their effect core.py
    the log of events, the count of steps, the end of a run writing.py      makes the record of it
    all training.py     optimizers, backward, GradScaler loaders.py      DataLoaders: waits, sizes,
    checksums spans.py        time in transfers to a device and in torch.distributed device.py
    CUDA: events, waits of the host, utilisation state.py        the models: prints of their state,
    training flags, perturbation common.py       the same random numbers for two scripts, step
    for step prints.py       a tensor in a few numbers averages.py     averages of the weights, and
    by which law they follow carried.py      what workers draw children.py     processes that the
    script starts itself: ranks, and what is not followed saves.py        checkpoints, and files
    written outside the working folder
    watch.py what is asked for by place: batches, copies, reads, shapes operations.py   how many
    operations a step begins, how long the GPU idles seeds.py        seeds from outside, and shifts
    of the script's own double.py       the same run in double precision surroundings.py
    environment, memory, random state

The script's events are written raw; autofast/verify/steps.py makes rows of them, in the parent
process.
"""
