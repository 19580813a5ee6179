"""``autofast tune``: which of the rewrites pay on this machine, by measuring.

    command ──► space (settings and their texts) ──► search ──► confirmation
                                                       │
                                       measuring (runs of autofast.verify)

``search`` knows settings and a ``Measurer`` only, so that it is tested without running anything;
``measuring`` makes the runs with the engine of ``autofast.verify`` and judges them with its
statistics.
"""
