"""The functions that are written to choose a 16-bit dtype at run time."""

from __future__ import annotations

HAS_BF16 = '''def {name}():
    """Whether there is a GPU that computes in bfloat16 (Ampere and newer)."""
    return {torch}.cuda.is_available() and {torch}.cuda.get_device_capability()[0] >= 8
'''

AMP_DTYPE = '''def {name}():
    """bfloat16 where the GPU computes in it (Ampere and newer), else float16."""
    if {torch}.cuda.is_available() and {torch}.cuda.get_device_capability()[0] < 8:
        return {torch}.float16
    return {torch}.bfloat16
'''
