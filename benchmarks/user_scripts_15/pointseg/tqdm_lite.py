import sys


def progress(it, label):
    """tqdm is not installed on the cluster"""
    n = len(it)
    for i, x in enumerate(it):
        if sys.stderr.isatty():
            sys.stderr.write('\r%s %d/%d' % (label, i + 1, n))
        yield x
    if sys.stderr.isatty():
        sys.stderr.write('\n')
