"""Supervisor: an agent hands tasks to other agents, and what they ask comes to a person at the root.

    abeyance run supervisor --run-id bank --wait
    abeyance inbox
    abeyance respond bank '{"approved": true}'

The supervisor knows each agent as a tool with one argument, `task`. Deep below it the cashier wants to
transfer money, which has to be approved: the question stands in the inbox as any other, with the whole
way to it in its address.
"""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from abeyance import START, Agent, Graph, tool
from examples.agents.model import Answer, Info, Messages, call, call_all, model, results, say

BALANCES = {"savings": 5_000.0, "checking": 300.0}


class Order(BaseModel):
    """What a customer wants, and what they are told."""

    request: str = "How much do I have? And transfer 1000 from savings to checking."
    reply: str | None = None


@tool
async def balance(account: str) -> float:
    """How much money is on an account: `savings` or `checking`."""
    return BALANCES[account]


@tool(
    approve=True,
    prompt="Transfer {amount} from {source} to {target}?",
    requested_capability="money:transfer",
)
async def transfer(source: str, target: str, amount: float) -> str:
    """Transfer money between the customer's accounts."""
    return f"{amount:g} were transferred from {source} to {target}"


def accountant_script(messages: Messages, info: Info) -> Answer:
    """What the accountant's model would say."""
    found = results(messages)
    if not found:
        return call_all(*(("balance", {"account": account}) for account in BALANCES))
    return say(", ".join(f"{n}: {part.content:g}" for n, part in zip(BALANCES, found, strict=True)))


def cashier_script(messages: Messages, info: Info) -> Answer:
    """What the cashier's model would say."""
    if not (found := results(messages)):
        return call("transfer", source="savings", target="checking", amount=1000)
    return say(str(found[-1].content))


def supervisor_script(messages: Messages, info: Info) -> Answer:
    """What the supervisor's model would say."""
    if not (found := results(messages)):
        tasks: list[tuple[str, dict[str, Any]]] = [
            ("accountant", {"task": "List the balances of all accounts."}),
            ("cashier", {"task": "Transfer 1000 from savings to checking."}),
        ]
        return call_all(*tasks)
    return say(" | ".join(str(part.content) for part in found))


accountant = Agent(
    "accountant",
    model=model(accountant_script),
    instructions="You look up balances.",
    tools=[balance],
)
cashier = Agent(
    "cashier",
    model=model(cashier_script),
    instructions="You transfer money. Say what was done, or why it was not.",
    tools=[transfer],
)
supervisor = Agent(
    "supervisor",
    model=model(supervisor_script),
    instructions="You serve a bank's customer. Hand each task to who can do it, then tell the customer "
    "what came of all of them.",
    tools=[
        accountant.as_tool(description="Knows the balances of accounts: savings and checking."),
        cashier.as_tool(description="Transfers money between accounts."),
    ],
)

graph = Graph("supervisor", state=Order, description="An agent that hands tasks to other agents.")
graph.agent("serve", supervisor, input="request", output="reply")
graph.edge(START, "serve")
