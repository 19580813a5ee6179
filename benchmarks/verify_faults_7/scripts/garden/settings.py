from types import SimpleNamespace

settings = SimpleNamespace(batch=16, epochs=4, levels=40, lr=4e-3, keep=0.95, drop_kind=0.2)
