"""Function definitions: decorators and parameters."""

from __future__ import annotations

from collections.abc import Sequence

import libcst as cst


def add_decorator(function: cst.FunctionDef, decorator: cst.BaseExpression) -> cst.FunctionDef:
    """``function`` with one more decorator, the innermost."""
    return function.with_changes(decorators=[*function.decorators, cst.Decorator(decorator)])


def replace_decorator(
    function: cst.FunctionDef, index: int, decorator: cst.BaseExpression
) -> cst.FunctionDef:
    """``function`` with another decorator in the place of one it has."""
    decorators = list(function.decorators)
    decorators[index] = decorators[index].with_changes(decorator=decorator)
    return function.with_changes(decorators=decorators)


def add_parameter(
    function: cst.FunctionDef, name: str, default: cst.BaseExpression | None
) -> cst.FunctionDef:
    """``function`` with one more parameter: the last that can be given by position, unless only a
    keyword can follow the defaults.
    """
    parameters = function.params
    every = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]
    if any(p.name.value == name for p in every):
        return function
    new = cst.Param(cst.Name(name), default=default, equal=_equal(default), star="")
    positional = [*parameters.posonly_params, *parameters.params]
    if isinstance(parameters.star_arg, cst.Param) or (
        default is None and any(p.default is not None for p in positional)
    ):
        return function.with_changes(params=_keyword_only(parameters, new))
    return function.with_changes(
        params=parameters.with_changes(params=_appended(parameters.params, new))
    )


def _keyword_only(parameters: cst.Parameters, new: cst.Param) -> cst.Parameters:
    if isinstance(parameters.star_arg, (cst.Param, cst.ParamStar)):
        star = parameters.star_arg
    else:
        star = cst.ParamStar()
    if not isinstance(parameters.star_arg, (cst.Param, cst.ParamStar)) and parameters.params:
        parameters = parameters.with_changes(params=_spaced(parameters.params))
    return parameters.with_changes(
        star_arg=star, kwonly_params=_appended(parameters.kwonly_params, new)
    )


def _appended(before: Sequence[cst.Param], new: cst.Param) -> list[cst.Param]:
    if not before:
        return [new]
    params, last = list(before), before[-1]
    closing = last.comma if isinstance(last.comma, cst.Comma) else None
    separator = next(
        (p.comma for p in params[:-1] if isinstance(p.comma, cst.Comma)), None
    ) or cst.Comma(whitespace_after=cst.SimpleWhitespace(" "))
    params[-1] = last.with_changes(comma=separator, whitespace_after_param=cst.SimpleWhitespace(""))
    return [
        *params,
        new.with_changes(
            comma=closing or cst.MaybeSentinel.DEFAULT,
            whitespace_after_param=last.whitespace_after_param,
        ),
    ]


def _spaced(before: Sequence[cst.Param]) -> list[cst.Param]:
    params = list(before)
    params[-1] = params[-1].with_changes(comma=cst.MaybeSentinel.DEFAULT)
    return params


def _equal(default: cst.BaseExpression | None) -> cst.AssignEqual | cst.MaybeSentinel:
    if default is None:
        return cst.MaybeSentinel.DEFAULT
    return cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
