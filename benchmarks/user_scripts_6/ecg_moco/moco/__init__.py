from .builder import MoCo
from .augment import TwoCrops
from .data import EcgBeats

__all__ = ["MoCo", "TwoCrops", "EcgBeats"]
