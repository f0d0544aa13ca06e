"""Budgets as authors write them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Unpack

from pydantic import BaseModel, BeforeValidator, ConfigDict, PositiveFloat, PositiveInt

from abeyance.authoring.declarations import DeclarationErrors, question_of
from abeyance.authoring.terms import TermsOptions, approval_fault, terms_of, time_faults
from abeyance.core import budgets as core
from abeyance.core.bounds import Amounts, Use
from abeyance.core.json import Json
from abeyance.core.spec import BudgetSpec
from abeyance.duration import Duration, positive_seconds


class _Limits(BaseModel):
    model_config = ConfigDict(title="Budget", strict=True, frozen=True, allow_inf_nan=False)

    usd: PositiveFloat | None
    tokens: PositiveInt | None
    time: Annotated[float, BeforeValidator(positive_seconds)] | None
    turns: PositiveInt | None


class Budget:
    """Limits of what an agent may use before a person is asked.

    At a limit the agent takes no further turn: an interrupt of the kind `budget` shows the use, and the
    agents and tools that caused it. Its answer is `{"raise_to": {"usd": 10}}` with new totals, or
    `{"stop": True}`: the agent then fails with `budget_exhausted`. If an agent calls other agents, their
    usage counts towards its budget too, which is checked before its own next turn.

    Args:
        usd: US dollars, at the list prices of the models. A model without a known price counts as zero,
            and the event `budget.unpriced` and the question say so.
        tokens: Tokens of the models, sent and received.
        time: Time that the turns and calls take together, without waiting for people or for a worker.
        turns: Turns of the models. With `turns` in its budget, an agent has no `max_turns`.
        requested_capability: The capability that the approver must have.
        timeout: How long the question waits; None forever.
        on_timeout: `halt` ends the run, `stop` fails the agent, and `{"default": answer}` answers. A
            default that no longer raises the budget stops the agent.
        terms: Options of `TermsOptions`, such as `assignees`, `priority`, `remind` and `escalate`.
    """

    def __init__(
        self,
        *,
        usd: float | None = None,
        tokens: int | None = None,
        time: Duration | None = None,
        turns: int | None = None,
        requested_capability: str | None = None,
        timeout: Duration | None = None,
        on_timeout: str | Mapping[str, Json] = "halt",
        **terms: Unpack[TermsOptions],
    ) -> None:
        limits = {"usd": usd, "tokens": tokens, "time": time, "turns": turns}
        self.limits = _Limits.model_validate(limits)
        self.requested_capability = requested_capability
        self.timeout = timeout
        self.on_timeout = on_timeout
        self.terms = terms


def budget_of(budget: object, label: str, errors: DeclarationErrors) -> BudgetSpec | None:
    """Return the budget that an author declares, None without one; faults are collected."""
    if budget is None:
        return None
    if not isinstance(budget, Budget):
        errors.note(f"{label} is {budget!r}, and no Budget: write Budget(usd=5)")
        return None
    limits = Amounts(**dict(budget.limits))
    if limits == Amounts():
        errors.note(f"{label} has no limit: set usd=, tokens=, time= or turns=")
    on_timeout = errors.named_default(budget.on_timeout, label, word="stop", answer={"stop": True})
    if budget.timeout is None and on_timeout != "halt":
        errors.note(f"{label} has on_timeout but no timeout: add a timeout")
    question = question_of(
        core.NAME,
        label,
        errors,
        response=core.answer_schema(Use(), limits, (), "the agent"),
        requested_capability=errors.plain_capability(budget.requested_capability, label),
        timeout=budget.timeout,
        on_timeout=on_timeout,
        terms=terms_of(budget.terms, label, errors),
    )
    for fault in time_faults(label, question, has_deadline=question.timeout is not None):
        errors.note(fault)
    if (unfit := approval_fault(question)) is not None:
        errors.note(f"{label} {unfit}")
    return BudgetSpec(limits=limits, question=question)
