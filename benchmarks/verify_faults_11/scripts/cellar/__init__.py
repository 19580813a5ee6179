"""Sensors of fermenting barrels: data, net and bookkeeping."""
from .checkpoint import Keeper
from .data import Barrels, Normalizer, windows
from .metrics import Confusion
from .model import Watcher

__all__ = ["Barrels", "Confusion", "Keeper", "Normalizer", "Watcher", "windows"]
