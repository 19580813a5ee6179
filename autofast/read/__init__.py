"""Reading a training script: source files in, a :class:`autofast.model.script.Script` out."""

from autofast.read.recover.build import read_script

__all__ = ["read_script"]
