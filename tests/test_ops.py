"""The table of torch's operations: as the installed torch says it, and as its operations behave."""

from __future__ import annotations

import importlib.util
import sys
import warnings
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from autofast.ops import by_element, is_in_place, is_view, may_share, op
from autofast.ops.ops import HERE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

torch = pytest.importorskip("torch")
ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def kept() -> dict[str, Any]:
    return tomllib.loads((HERE / "torch_ops.toml").read_text())


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("torch_ops", ROOT / "scripts" / "torch_ops.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def made(script: Any) -> dict[str, Any]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return script.generate()


def test_the_table_is_what_the_installed_torch_says(kept, made, script) -> None:
    if made["torch"] == kept["torch"]:
        assert (HERE / "torch_ops.toml").read_text() == script.written(made), (
            "run scripts/torch_ops.py"
        )
        return
    # another torch: what it knows of must be no view and write to nothing where the table says so
    known = set((kept["functions"] + kept["methods"] + kept["functional"]).split())
    views = set((kept["maybe_view"] + " " + kept["always_view"]).split())
    assert {*made["maybe_view"], *made["always_view"]} & known <= views
    for position, names in made["mutates"].items():
        assert set(names) & known <= set(kept["mutates"].get(position, "").split()), position


def test_the_autocast_lists_are_those_of_the_header(made) -> None:
    assert (
        "matmul" in made["autocast_lower"]
        and "softmax" in made["autocast_fp32"]
        and "addcmul" in made["autocast_promote"]
    )
    assert op("torch.Tensor.sum").autocast == "fp32" and op("torch.relu").autocast == ""


# ---------------------------------------------------------------------------------- how they behave
def square(contiguous: bool = True) -> Any:
    x = torch.linspace(0.1, 0.9, 9).view(3, 3)
    return x if contiguous else x.t()


def memory(value: Any) -> set[int]:
    if isinstance(value, (tuple, list)):
        return {p for v in value for p in memory(v)}
    return {value.untyped_storage().data_ptr()}


ARGUMENTS: dict[str, tuple[Any, ...]] = {
    "as_strided": ((2, 2), (1, 1)),
    "broadcast_to": ((3, 3),),
    "chunk": (3,),
    "dsplit": (),
    "expand": (2, 3, 3),
    "expand_as": (torch.zeros(2, 3, 3),),
    "flatten": (),
    "hsplit": (3,),
    "linalg_diagonal": (),
    "moveaxis": (0, 1),
    "movedim": (0, 1),
    "narrow": (0, 1, 2),
    "permute": (1, 0),
    "reshape": (9,),
    "reshape_as": (torch.zeros(9),),
    "select": (0, 1),
    "split": (1,),
    "split_with_sizes": ([1, 2],),
    "swapaxes": (0, 1),
    "swapdims": (0, 1),
    "tensor_split": (3,),
    "to": (torch.float32,),
    "transpose": (0, 1),
    "type_as": (torch.zeros(2),),
    "unflatten": (0, (1, 3)),
    "unfold": (0, 2, 1),
    "unsqueeze": (0,),
    "view": (9,),
    "view_as": (torch.zeros(9),),
    "vsplit": (3,),
    "float": (),
    "type": (torch.float32,),
    "unsafe_chunk": (3,),
    "unsafe_split": (1,),
}
ALONE = "T mT H mH data real".split()


def shared(name: str, x: Any) -> bool:
    result = getattr(x, name)
    return bool(memory(result if name in ALONE else result(*ARGUMENTS.get(name, ()))) & memory(x))


@pytest.mark.parametrize(
    "name",
    "as_strided broadcast_to chunk contiguous conj cpu detach diagonal expand expand_as flatten float hsplit mH mT T H data real moveaxis "
    "movedim narrow permute positive ravel reshape reshape_as resolve_conj resolve_neg select split split_with_sizes squeeze swapaxes swapdims t "
    "tensor_split to transpose type type_as unbind unflatten unfold unsqueeze view view_as vsplit unsafe_split dequantize".split(),
)
def test_views_share_memory(name: str) -> None:
    assert shared(name, square())
    assert is_view(name) and may_share(name)
    if op(f".{name}").view == "always" and name not in ("view", "unflatten", "view_as"):
        assert shared(
            name, square(contiguous=False)
        )  # a `maybe` copies here, or where the type is another


def test_always_and_maybe() -> None:
    assert {
        n for n in ("reshape", "contiguous", "flatten", "ravel") if not shared(n, square(False))
    } == {
        "reshape",
        "contiguous",
        "flatten",
        "ravel",
    }
    assert {
        op(f".{n}").view for n in ("reshape", "contiguous", "flatten", "ravel", "to", "float")
    } == {"maybe"}
    assert op("torch.nn.functional.unfold").view == "" and op(".unfold").view == "always"


FRESH: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        "abs add clone cumsum exp flip mean neg round sigmoid softmax sort sqrt sum tril triu floor relu argmax".split(),
        (),
    ),
    "add": (0,),
    "repeat": (1, 1),
    "roll": (0,),
    "cumsum": (0,),
    "softmax": (0,),
    "flip": (0,),
    "index_select": (0, torch.arange(3)),
    "tile": (1,),
    "masked_fill": (torch.zeros(3, 3, dtype=torch.bool), 1),
    "gather": (0, torch.zeros(3, 3, dtype=torch.long)),
    "mul": (1,),
}


@pytest.mark.parametrize("name", sorted(FRESH))
def test_others_do_not(name: str) -> None:
    x = square()
    result = getattr(x, name)(*FRESH[name])
    assert not memory(result if isinstance(result, torch.Tensor) else list(result)) & memory(x)
    assert not may_share(name)


INPLACE: dict[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        "abs_ exp_ sqrt_ sigmoid_ zero_ neg_ normal_ uniform_ bernoulli_ tanh_ reciprocal_ exponential_ random_".split(),
        (),
    ),
    "add_": (1,),
    "mul_": (2,),
    "clamp_": (0, 0.2),
    "fill_": (3,),
    "copy_": (torch.zeros(3, 3),),
    "lerp_": (torch.zeros(3, 3), 0.5),
    "index_fill_": (0, torch.tensor([0]), 5.0),
    "masked_fill_": (torch.ones(3, 3, dtype=torch.bool), 1),
    "__iadd__": (1,),
    "fill_diagonal_": (7.0,),
    "__setitem__": (0, 9.0),
    "scatter_": (0, torch.zeros(1, 3, dtype=torch.long), 8.0),
    "apply_": (lambda v: v + 1,),
    "__imul__": (2,),
}


@pytest.mark.parametrize("name", sorted(INPLACE))
def test_in_place(name: str) -> None:
    x = square().neg()
    if name in ("sqrt_", "abs_"):
        x = square().mul(-1 if name == "abs_" else 1)
    before = x.clone()
    getattr(x, name)(*INPLACE[name])
    assert not torch.equal(before, x)
    assert is_in_place(name) and 0 in op(f".{name}").mutates and may_share(name)


@pytest.mark.parametrize("name", "requires_grad_ detach_ retain_grad share_memory_".split())
def test_flags_leave_the_numbers_alone(name: str) -> None:
    x = square().clone().requires_grad_(name == "retain_grad")
    before = x.detach().clone()
    getattr(x, name)()
    assert torch.equal(before, x.detach())
    assert not is_in_place(name) and op(f".{name}").flags and may_share(name)


@pytest.mark.parametrize("name", "t_ transpose_ unsqueeze_ squeeze_ swapaxes_ resize_".split())
def test_changes_of_shape(name: str) -> None:
    x = torch.arange(6.0).view(1, 6)
    getattr(x, name)(
        *{"transpose_": (0, 1), "swapaxes_": (0, 1), "unsqueeze_": (0,), "resize_": (3, 2)}.get(
            name, ()
        )
    )
    assert x.shape != (1, 6) and op(f".{name}").reshapes and is_in_place(name)


def test_a_name_that_is_not_known_goes_by_the_convention() -> None:
    assert (
        is_in_place("update_")
        and is_in_place("torch.nn.utils.clip_grad_norm_")
        and is_in_place("torch._foreach_mul_")
    )
    assert not is_in_place("update") and not is_in_place("__len__") and not is_in_place("_hidden_")
    assert (
        op("torch.nn.Linear") is None and op("numpy.add") is None and op(".no_such_method") is None
    )


@pytest.mark.parametrize(
    "name",
    "torch.nn.functional.relu torch.nn.functional.elu torch.nn.functional.hardtanh torch.nn.functional.dropout torch.nn.functional.silu".split(),
)
def test_the_position_of_inplace(name: str) -> None:
    position = op(name).inplace
    x = square().neg()
    before = x.clone()
    given = {"elu": (1.0,), "hardtanh": (-0.2, 0.2), "dropout": (0.9, True)}.get(
        name.rpartition(".")[2], ()
    )
    assert len(given) + 1 == position
    getattr(torch.nn.functional, name.rpartition(".")[2])(x, *given, True)
    assert not torch.equal(before, x)


F = torch.nn.functional
DRAWS = {
    "torch.rand": partial(torch.rand, 3),
    "torch.randn": partial(torch.randn, 3),
    "torch.randperm": partial(torch.randperm, 30),
    "torch.randint": partial(torch.randint, 9, (9,)),
    "torch.rand_like": lambda: torch.rand_like(square()),
    "torch.bernoulli": lambda: torch.bernoulli(square()),
    "torch.multinomial": lambda: torch.multinomial(square(), 2),
    "torch.normal": lambda: torch.normal(square(), 1.0),
    "torch.poisson": lambda: torch.poisson(square()),
    "torch.nn.functional.dropout": lambda: F.dropout(square()),
    "torch.nn.functional.dropout2d": lambda: F.dropout2d(torch.ones(4, 4, 2, 2)),
    "torch.nn.functional.alpha_dropout": lambda: F.alpha_dropout(square(), training=True),
    "torch.nn.functional.gumbel_softmax": lambda: F.gumbel_softmax(square()),
    "torch.nn.functional.rrelu": lambda: F.rrelu(-square(), training=True),
    "torch.nn.functional.fractional_max_pool2d": lambda: F.fractional_max_pool2d(
        torch.rand(1, 1, 8, 8), 2, output_size=3
    ),
    ".normal_": lambda: square().normal_(),
    ".exponential_": lambda: square().exponential_(),
    "torch.svd_lowrank": lambda: torch.svd_lowrank(square())[0],
    **{
        f"torch.nn.init.{n}": partial(getattr(torch.nn.init, n), torch.empty(4, 4))
        for n in "normal_ uniform_ xavier_uniform_ xavier_normal_ kaiming_uniform_ kaiming_normal_ orthogonal_ trunc_normal_".split()
    },
}
NO_DRAWS = {
    "torch.zeros": partial(torch.zeros, 3),
    "torch.softmax": lambda: torch.softmax(square(), 0),
    "torch.nn.functional.relu": lambda: F.relu(square()),
    "torch.nn.init.zeros_": lambda: torch.nn.init.zeros_(torch.empty(3)),
    "torch.nn.init.constant_": lambda: torch.nn.init.constant_(torch.empty(3), 2.0),
    "torch.nn.init.eye_": lambda: torch.nn.init.eye_(torch.empty(3, 3)),
}


@pytest.mark.parametrize("name", [*DRAWS, *NO_DRAWS])
def test_random(name: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    {**DRAWS, **NO_DRAWS}[name]()
    assert torch.equal(before, torch.get_rng_state()) is (name in NO_DRAWS)
    assert op(name).random is (name in DRAWS)


@pytest.mark.parametrize(
    "name",
    "abs add sub mul div exp log sqrt sigmoid tanh relu clamp maximum where lt eq multiply divide greater negative".split(),
)
def test_pointwise(name: str) -> None:
    """What one element of the result is, does not change with the others."""
    x, y = torch.rand(6, 3) + 0.1, torch.rand(6, 3)
    y = y if name in "add sub mul div maximum lt eq multiply divide greater".split() else None
    function = getattr(torch, name)

    def run(rows: slice) -> Any:
        if name == "where":
            return torch.where(x[rows] > 0.5, x[rows], 0.0)
        return (
            function(x[rows], 0.3)
            if name == "clamp"
            else function(x[rows])
            if y is None
            else function(x[rows], y[rows])
        )

    assert torch.equal(run(slice(None))[2:4], run(slice(2, 4)))
    assert op(f"torch.{name}").pointwise and not op(f"torch.{name}").reduces


@pytest.mark.parametrize(
    "name",
    "sum mean amax amin max min prod std var norm argmax argmin any all median logsumexp nanmean".split(),
)
def test_reductions(name: str) -> None:
    x = square()
    result = getattr(x, name)(*((0,) if name == "logsumexp" else ()))
    assert result.numel() < x.numel()
    assert op(f".{name}").reduces and not op(f".{name}").pointwise


@pytest.mark.parametrize(
    "name", "argmax argsort eq lt isnan bool long int detach sign floor mul sigmoid".split()
)
def test_gradients(name: str) -> None:
    result = getattr(square().requires_grad_(), name)(
        *((1,) if name in ("eq", "lt", "mul") else ())
    )
    assert result.requires_grad or not op(f".{name}").gradient
    assert op(f".{name}").gradient is result.requires_grad or name == "detach"


def test_what_is_written_to_below_the_schema() -> None:
    for name in ("torch.nn.functional.batch_norm", "torch.nn.functional.instance_norm"):
        mean, var = torch.zeros(3), torch.ones(3)
        x = torch.rand(4, 3, 5)
        getattr(F, name.rpartition(".")[2])(x, mean, var, None, None, True)
        assert mean.abs().sum() > 0 and op(name).mutates == {1, 2}
    weight = torch.full((2, 3), 5.0)
    F.embedding(torch.tensor([0]), weight, max_norm=1.0)
    assert weight[0].norm() < 2 and op("torch.nn.functional.embedding").mutates == {1}


def test_what_waits_for_the_device() -> None:
    assert all(
        op(f".{n}").syncs
        for n in "item tolist numpy cpu nonzero masked_select unique bincount".split()
    )
    assert not any(
        op(f".{n}").syncs for n in "sum detach argmax to view size".split() if op(f".{n}")
    )


@pytest.mark.parametrize("name", ["mul", "mul_", "hypot", "logsigmoid", "masked_fill", "eq"])
def test_operations_on_each_element(name: str) -> None:
    assert by_element(name)


@pytest.mark.parametrize("name", ["mean", "softmax", "view", "sort", "dropout", "append"])
def test_operations_that_look_further(name: str) -> None:
    assert not by_element(name)
