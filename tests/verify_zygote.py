"""A process that has imported torch and forks a child for every run of the probe: importing torch takes seconds, a run a tenth of one.

Started by tests/probing.py. Reads one JSON object a line ({"argv", "cwd", "environment", "stdout", "stderr"}), answers with the exit code.
"""

import gc
import json
import os
import runpy
import sys
import tempfile


def run(job: dict) -> None:
    """In the child: becomes what ``python argv...`` would have been, and leaves by the interpreter's own end."""
    os.chdir(job["cwd"])
    os.environ.update(job["environment"])
    tempfile.tempdir = None  # asked for anew: it may be another one
    for name, number in (("stdout", 1), ("stderr", 2)):
        handle = os.open(job[name], os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(handle, number)
        os.close(handle)
    sys.argv[:] = job["argv"]
    sys.path[0] = job["argv"][0]  # of a folder with a __main__, as of a script
    if os.path.isdir(job["argv"][0]):
        del sys.path[0]  # run_path adds it
    else:
        sys.path[0] = os.path.dirname(os.path.abspath(job["argv"][0]))
    runpy.run_path(job["argv"][0], run_name="__main__")


def main() -> None:
    import torch
    import torch._dynamo
    import torch.utils.data

    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()  # a child that ends does not look through all of torch
    for line in sys.stdin:
        job = json.loads(line)
        child = os.fork()
        if child == 0:
            return run(job)
        _, status = os.waitpid(child, 0)
        print(os.waitstatus_to_exitcode(status), flush=True)


if __name__ == "__main__":
    main()
