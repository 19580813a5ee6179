from __future__ import annotations

import json
from dataclasses import asdict, dataclass, fields
from pathlib import Path


@dataclass
class Config:
    root: Path = Path("data/kvasir")
    out: Path = Path("runs/unet")
    size: int = 352
    batch_size: int = 16
    base: int = 64
    epochs: int = 120
    lr: float = 3e-4
    val_fraction: float = 0.15
    seed: int = 7
    threshold: float = 0.5

    @classmethod
    def from_argv(cls, argv: list[str]) -> "Config":
        """--key=value pairs, nothing fancy."""
        types = {f.name: type(f.default) for f in fields(cls)}
        kwargs = {}
        for item in argv:
            key, _, value = item.lstrip("-").partition("=")
            kwargs[key] = types[key](value)
        return cls(**kwargs)

    def dump(self) -> None:
        self.out.mkdir(parents=True, exist_ok=True)
        text = json.dumps({k: str(v) for k, v in asdict(self).items()}, indent=2)
        (self.out / "config.json").write_text(text)
