"""Budgets of agents: what an agent uses, and the question at the limit.

Work is charged to each agent around it that has a budget, when its visit ends: what an agent uses counts
for those that called it, too. A turn of an agent does not start while a limit of its own budget is
reached: a person is asked to raise it, or to stop the agent.

Nothing is stopped in its middle. So a budget is exceeded by at most one turn, with its calls.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any, Final

from abeyance.core import interrupts, routing
from abeyance.core.bounds import Account, Amounts, Limit, Use
from abeyance.core.json import Json
from abeyance.core.outcome import Asked, Finished, VisitOutcome, key_of
from abeyance.core.spec import BudgetSpec, Default, FunctionNode, InterruptSpec
from abeyance.core.state import RunState, Scope
from abeyance.core.step import Step
from abeyance.core.visit import Failure, Ready, Running, Visit, Waiting
from abeyance.errors import FailureCode

NAME: Final = "budget"
"""Name of the question; its answer is `{raise_to}` or `{stop}`."""

_KEY: Final = key_of("budget", NAME)
_MOST_SHOWN: Final = 20
_IN_WORDS: Final[Mapping[Limit, str]] = {
    "usd": "US dollars",
    "tokens": "tokens",
    "time": "seconds of work",
    "turns": "turns",
}


def covers(state: RunState, visit: Visit) -> bool:
    """Return whether what a visit uses counts towards a budget."""
    return next(_around(state, visit), None) is not None


def charge(step: Step, visit: Visit, outcome: VisitOutcome, seconds: float) -> None:
    """Charge the work of a visit, whose code has ended, to the agents around it with a budget."""
    accounts = [*_around(step.run, visit)] if step.run.ending is None else []
    if not accounts:
        return
    turn = outcome.turn if isinstance(outcome, Finished) else None
    usage: Mapping[str, Json] = {} if turn is None else turn["usage"]
    use = Use(
        usd=usage.get("usd", 0.0),
        tokens=usage.get("input_tokens", 0) + usage.get("output_tokens", 0),
        time=seconds,
        turns=usage.get("requests", 0),
        calls=int(visit.call is not None and isinstance(outcome, Finished)),
    )
    for outer, budget in accounts:
        scope = step.run.scopes[outer.address]
        before = _account(scope)
        after = before.charged(_name_of(step.run, visit), use)
        if turn is not None and budget.limits.usd is not None and "usd" not in usage:
            after = after.without_price(turn["model"])
        scope.account = after
        if after.unpriced != before.unpriced:
            step.publish("budget.unpriced", scope.address, model=after.unpriced[-1])


def asks(step: Step, visit: Visit) -> bool:
    """Ask about a budget whose limit is reached, before a visit starts. Return False if it may start."""
    if not _takes_a_turn(step.run, visit):
        return False
    if why_stopped(visit.questions.answers) is not None:
        return False
    if (answer := visit.questions.answers.get(_KEY)) is not None:
        visit.questions = visit.questions.without({_KEY})
        if "stop" in answer:
            _stop(step, visit)
            return True
        _raise(step, visit, answer["raise_to"])
    budget = step.run.graph_of(visit.scope).budget
    scope = step.run.scopes[visit.scope]
    if budget is None or not _account(scope).used.reaches(_limits(scope, budget)):
        return False
    question = _question(step.run, scope, budget)
    if (fault := interrupts.misnamed(step.run, visit, [question])) is not None:
        routing.fail(step, visit, fault)
        return True
    step.move(visit, "ask", Waiting(stage="body"))
    interrupts.ask(step, visit, Asked(question=question, kind="budget"))
    return True


def why_stopped(answers: Mapping[str, Json]) -> str | None:
    """Return why the agent is stopped whose turn is given these answers, or None if it is not.

    Such a turn stores what the agent has not read yet in its transcript, and fails.
    """
    stopped: str | None = answers.get(_KEY, {}).get("why")
    return stopped


def fail_stopped(step: Step, visit: Visit, running: Running) -> bool:
    """Fail the agent that is stopped, after its last turn has failed. Return whether it is stopped."""
    answer = visit.questions.answers.get(_KEY)
    if answer is None or step.run.ending is not None:
        return False
    # A retry of the run asks again.
    visit.questions = visit.questions.without({_KEY})
    step.move(visit, "stopped", Ready(stage=running.stage))
    failure = Failure(
        code=FailureCode.BUDGET_EXHAUSTED, message=answer["why"], address=visit.address
    )
    routing.fail_around(step, visit, failure)
    return True


def _around(state: RunState, visit: Visit) -> Iterator[tuple[Scope, BudgetSpec]]:
    """Yield the agents around a visit that have a budget, the innermost first."""
    for each in state.outward(visit):
        if (budget := state.graph_of(each.scope).budget) is not None:
            yield state.scopes[each.scope], budget


def _account(scope: Scope) -> Account:
    return scope.account or Account()


def _limits(scope: Scope, budget: BudgetSpec) -> Amounts:
    return budget.limits.raised_to(_account(scope).raised)


def _name_of(state: RunState, visit: Visit) -> str:
    """Return the name under which the work of a visit is shown: of its tool, its agent, or its node."""
    if visit.call is not None:
        return visit.call.tool
    is_agent = state.scopes[visit.scope].is_agent
    return state.graph_of(visit.scope).name if is_agent else visit.node


def _takes_a_turn(state: RunState, visit: Visit) -> bool:
    scope, node = state.scopes[visit.scope], state.node_of(visit)
    is_model = scope.is_agent and isinstance(node, FunctionNode) and node.guarded
    # With calls that wait for each other it makes the next of them.
    return is_model and not scope.values.get("waiting")


def _raise(step: Step, visit: Visit, to: Mapping[str, Any]) -> None:
    scope = step.run.scopes[visit.scope]
    account = _account(scope)
    scope.account = replace(account, raised=replace(account.raised, **to))


def _stop(step: Step, visit: Visit) -> None:
    """Stop an agent. Its turn starts once more: results of its last calls are in no transcript yet."""
    name, summary = step.run.graph_of(visit.scope).name, _summary(step.run, visit.scope)
    why = f"the agent {name!r} was stopped, because its budget is used up: {summary}"
    visit.questions = visit.questions.answered(_KEY, {"why": why})
    step.move(visit, "proceed", Ready(stage="body"))


def _summary(state: RunState, address: str) -> str:
    budget = state.graph_of(address).budget
    scope = state.scopes[address]
    limits = Amounts() if budget is None else _limits(scope, budget)
    used = _account(scope).used
    return ", ".join(
        f"{_shown(getattr(used, name))} of {_shown(amount)} {_IN_WORDS[name]}"
        for name, amount in limits.set()
    )


def _shown(amount: float) -> str:
    return f"{amount:,}" if isinstance(amount, int) else f"{float(f'{amount:.3g}'):,.10g}"


def _question(state: RunState, scope: Scope, budget: BudgetSpec) -> InterruptSpec:
    account, limits = _account(scope), _limits(scope, budget)
    reached = account.used.reaches(limits)
    name = state.graph_of(scope.address).name
    prompt = f"The budget of the agent {name!r} is used up: {_summary(state, scope.address)}. "
    if account.unpriced:
        prompt += f"Not in it, because their price is not known: {', '.join(account.unpriced)}. "
    question = replace(
        budget.question,
        prompt=f"{prompt}Raise it, or stop {name!r}?",
        reason={
            "budget": dict(limits.set()),
            "used": _plain(account.used),
            "by": {each: _plain(use) for each, use in _largest(account)},
            "reached": list(reached),
            **({"unpriced": list(account.unpriced)} if account.unpriced else {}),
        },
        response_schema=answer_schema(account.used, limits, reached, name),
    )
    match question.on_timeout:
        case Default(answer={"raise_to": raised}) if account.used.reaches(
            limits.raised_to(Amounts(**raised))
        ):
            # Otherwise it would be asked again at each deadline, forever.
            return replace(question, on_timeout=Default(answer={"stop": True}))
        case _:
            return question


def _plain(use: Use) -> dict[str, Json]:
    return {name: amount for name, amount in asdict(use).items() if amount}


def _largest(account: Account) -> list[tuple[str, Use]]:
    by = sorted(
        account.by.items(),
        key=lambda each: (each[1].usd, each[1].tokens, each[1].time),
        reverse=True,
    )
    return by[:_MOST_SHOWN]


def answer_schema(used: Use, limits: Amounts, reached: tuple[Limit, ...], stopped: str) -> Json:
    """Return the JSON Schema of an answer. It has to raise the limits that are `reached` above the use,
    and cannot lower any. `stopped` is the name of the agent that stops otherwise.
    """
    amounts = {
        name: {
            "type": "number" if name in {"usd", "time"} else "integer",
            "description": f"The new limit in {_IN_WORDS[name]}, with all that is used already.",
            **_bound(name, used, amount, is_reached=name in reached),
        }
        for name, amount in limits.set()
    }
    return {
        "type": "object",
        "properties": {
            "raise_to": {
                "type": "object",
                "properties": amounts,
                "required": list(reached),
                "minProperties": 1,
                "additionalProperties": False,
            },
            "stop": {"oneOf": [{"const": True, "title": f"Stop {stopped}"}]},
        },
        "minProperties": 1,
        "maxProperties": 1,
        "additionalProperties": False,
    }


def _bound(name: Limit, used: Use, limit: float, *, is_reached: bool) -> dict[str, Json]:
    """Return the smallest new limit: more than what is used, or what the limit is."""
    if not is_reached:
        return {"minimum": limit}
    amount = getattr(used, name)
    return {"minimum": amount + 1} if isinstance(amount, int) else {"exclusiveMinimum": amount}
