__version__ = "7.2.0"
