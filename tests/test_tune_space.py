"""What there is to choose from: units that can stand alone, and what a choice writes."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

from autofast.config import Config
from autofast.tune.setting import ORIGINAL, Setting
from autofast.tune.space import Space

WORKLOADS = Path(__file__).parents[1] / "benchmarks" / "workloads"


@cache
def space(name: str, config: Config) -> Space:
    entry = WORKLOADS / name / "train.py"
    return Space(entry, entry.parent, config)


ASKED = Config(target="cpu", extend_select=("persistent-workers",))  # not worth it: seeded


def test_a_rule_comes_with_those_that_it_does_nothing_without() -> None:
    found = {u.name: u.needed for u in space("pictures", ASKED).units}
    assert found["persistent-workers"] == ("num-workers",) and found["num-workers"] == ()
    assert "compile" not in found  # minutes for every choice, on a CPU


def test_values_are_tried_where_they_write_something_else() -> None:
    config = Config(target="cuda", select=("autocast", "grad-scaler", "fused-optimizer"))
    made = space("chargpt", config)
    units = {unit.name: unit for unit in made.units}
    assert units["autocast --precision fp16"].needed == ("grad-scaler",)
    assert units["fused-optimizer"].setting == Setting(frozenset({"fused-optimizer"}))
    assert "fused-optimizer --precision fp16" not in units
    texts = [tuple(made.overlay(unit.setting).values()) for unit in made.units]
    assert len(set(texts)) == len(texts)
    (both,) = made.overlay(
        units["fused-optimizer"].setting.with_(units["autocast --precision fp16"].setting)
    ).values()
    assert b"fused=" in both and b"float16" in both and b"bfloat16" not in both
    fixed = replace(config, precision="bf16")
    assert not any(unit.setting.values for unit in space("chargpt", fixed).units)


def test_compile_is_tried_on_a_gpu_unless_it_is_not_wanted() -> None:
    config = Config(target="cuda")
    assert space("nothing", config)._asked().compile
    for other in (replace(config, ignore=("compile",)), replace(config, select=("autocast",))):
        assert not space("nothing", other)._asked().compile


def test_the_original_and_the_effect_of_a_choice() -> None:
    made = space("chargpt", Config(target="cpu", select=("batched-dataset", "sdpa")))
    assert not made.overlay(ORIGINAL) and not made.result(ORIGINAL).texts
    assert made.effect(ORIGINAL) == "exact"
    effects = {unit.name: made.effect(unit.setting) for unit in made.units}
    assert effects == {"batched-dataset": "exact", "sdpa": "rounding"}
    assert made.effect(Setting(frozenset(effects))) == "rounding"
