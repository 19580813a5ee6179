from . import hooks, losses, networks  # noqa: F401  (fills the registries)
