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
    function: cst.FunctionDef, name: str, default: cst.BaseExpression
) -> cst.FunctionDef:
    """``function`` with one more parameter: the last that can be given by position, unless only a
    keyword can follow (``*args``).
    """
    parameters = function.params
    every = [*parameters.posonly_params, *parameters.params, *parameters.kwonly_params]
    if any(p.name.value == name for p in every):
        return function
    equal = cst.AssignEqual(cst.SimpleWhitespace(""), cst.SimpleWhitespace(""))
    new = cst.Param(cst.Name(name), default=default, equal=equal, star="")
    if isinstance(parameters.star_arg, cst.Param):
        keyword_only = _appended(parameters.kwonly_params, new)
        return function.with_changes(params=parameters.with_changes(kwonly_params=keyword_only))
    return function.with_changes(
        params=parameters.with_changes(params=_appended(parameters.params, new))
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
