"""What is left of a plan when its new texts do not stand up to the post-conditions."""

from __future__ import annotations

from autofast.edit.plan import Plan, PostConditionError, Reread
from autofast.edit.postcheck import Amendable


def what_stands(plan: Plan, reread: Reread, settled: bool = True) -> tuple[Plan, Plan | None]:
    """``plan``, or what is left of it without the findings and rules that keep it from fulfilling
    all post-conditions; and the plan for what comes of it.

    ``settled`` is as of :meth:`Plan.check`. Raises :class:`PostConditionError` where no single rule
    is to blame.
    """
    while True:
        try:
            again = plan.check(reread, settled)
        except Amendable as error:
            plan = plan.amended(error.amendments)
        except PostConditionError as error:
            # Made again: what the other rules found may have rested on this one.
            plan = _without_culprit(plan, error)
        else:
            return plan, again


def _without_culprit(plan: Plan, error: PostConditionError) -> Plan:
    """``plan`` without the rule that ``error`` names; or else without the first rule whose absence
    mends the texts, or all that do not stand together."""
    why = f"left out: {error}"
    if error.rule in plan.applied:
        return plan.without(error.rule, why)
    for rule in sorted(plan.applied):
        if _is_fit(fewer := plan.without(rule, why)):
            return fewer
    kept = [rule.name for rule in plan.rules if rule.name not in plan.applied]
    rest = plan
    for rule in sorted(plan.applied):
        if _is_fit(plan.subset([*kept, rule])):
            kept.append(rule)
        else:
            rest = rest.without(rule, why)
    if rest is plan:
        raise error
    return rest


def _is_fit(plan: Plan) -> bool:
    try:
        plan.check()
    except PostConditionError:
        return False
    return True
