"""Reading a training script: source files in, a :class:`autofast.script.Script` out."""

from autofast.read.build import read_script

__all__ = ["read_script"]
