from .estimator import TabNN, clone  # noqa: F401
