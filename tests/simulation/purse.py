"""An agent that pays, whose approvals may be remembered, and the promise about them: no call runs under a
grant that is revoked, used up, expired, or wider than its maker's own rights.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from pydantic_ai.messages import ModelMessage, ModelResponse
from pydantic_ai.models.function import AgentInfo
from scripted_agents import Call, Script, desk
from sqlalchemy import select

from abeyance import Agent, Graph, Remember, ToolContext, tool
from abeyance.core import events
from abeyance.core.approvals import Grant
from abeyance.core.json import Json
from abeyance.core.policy import Principal
from abeyance.core.state import RunState
from abeyance.records.grants import JSON
from abeyance.records.tables import grant_uses, grants, moment
from tests.simulation.chance import Chance
from tests.simulation.records import Records

CAPABILITY: Final = "approve"
MOST: Final = "1h"
BOUND: Final = 200
APPROVER: Final = Principal(subject="approver", capabilities=(CAPABILITY,))
ANSWERS: Final[tuple[Json, ...]] = (
    {"approved": True},
    {"approved": True, "remember": {"for": "1h", "where": "graph", "uses": 2}},
    {"approved": True, "remember": {"for": "1h", "where": "run", "uses": 1}},
    {"approved": True, "remember": {"for": "2m", "where": "run"}},
    {"approved": True, "remember": {"for": "2h", "where": "graph"}},
    {"approved": False, "reason": "too dear"},
)


class Purse:
    """The agent, its calls, and the approvals of the calls."""

    def __init__(self, chance: Chance, records: Records) -> None:
        self.faults: list[str] = []
        self.granted = 0
        self._records = records
        self._turns = [
            [_call(chance) for _ in range(chance.choice([1, 2, 2]))]
            for _ in range(chance.choice([4, 6, 8]))
        ]
        self._approved: set[str] = set()
        self._makers: dict[str, Principal] = {}
        self._revoked: dict[str, datetime] = {}

    def graph(self) -> Graph:
        """Return the graph of the agent."""
        said = Script(*self._turns, "Paid.")

        async def model(messages: list[ModelMessage], info: AgentInfo) -> ModelResponse:
            return said(messages, info)

        remember = Remember(
            most=MOST, where=["run", "graph"], same=["account"], below={"amount": BOUND}
        )

        @tool(approve=True, requested_capability=CAPABILITY, remember=remember)
        async def pay(amount: int, account: str, ctx: ToolContext) -> str:
            self._holds(ctx.address, {"amount": amount, "account": account})
            return f"paid {amount}"

        return desk(Agent("clerk", model=model, tools=[pay]))

    # Observations

    def saw(self, before: RunState, event: events.Event) -> None:
        """Note which calls the answers in a step approve."""
        if not isinstance(event, events.Responded):
            return
        for id_, answer in event.answers.items():
            entry = before.ledger.open.get(id_)
            if entry is not None and isinstance(answer, Mapping) and answer.get("approved") is True:
                self._approved.add(entry.address)

    def answers(self, who: Principal) -> None:
        """Note a person who answers, and may so make a grant."""
        self._makers[who.subject] = who

    def was_revoked(self, id_: str, at: datetime) -> None:
        """Note when a caller's revocation of a grant was confirmed."""
        self._revoked.setdefault(id_, at)

    # Promises

    def _holds(self, call: str, arguments: Mapping[str, Json]) -> None:
        if call in self._approved:
            return
        why = self._why_wrong(call, arguments)
        if why is None:
            self.granted += 1
        else:
            self.faults.append(f"the call {call} with {dict(arguments)} runs {why}")

    def _why_wrong(self, call: str, arguments: Mapping[str, Json]) -> str | None:
        with self._records.writing() as connection:
            used = connection.execute(select(grant_uses)).all()
            found = connection.execute(select(grants.c.document)).scalars().all()
        own = next((use for use in used if use.call == call), None)
        if own is None:
            return "although nobody has approved it, and no grant was used"
        read = (JSON.validate_python(self._records.documents.read(each)) for each in found)
        grant = next((each for each in read if each.id == own.grant_id), None)
        if grant is None:
            return f"under the grant {own.grant_id}, which nobody has made"
        uses = {(use.origin, use.call) for use in used if use.grant_id == grant.id}
        return self._why_not(grant, moment(own.at), len(uses), arguments)

    def _why_not(
        self, grant: Grant, at: datetime, uses: int, arguments: Mapping[str, Json]
    ) -> str | None:
        maker = self._makers.get(grant.by)
        if maker is None or CAPABILITY not in maker.capabilities:
            return f"under a grant of {grant.by}, who may not approve it"
        if grant.uses is not None and uses > grant.uses:
            return f"as number {uses} under a grant for {grant.uses}"
        if at >= grant.until:
            return f"at {at} under a grant that is over at {grant.until}"
        if grant.id in self._revoked and at > self._revoked[grant.id]:
            return f"at {at} under a grant that was revoked at {self._revoked[grant.id]}"
        if arguments["account"] != grant.same["account"] or int(str(arguments["amount"])) >= BOUND:
            return f"under a grant for {grant.same}, {grant.below}"
        return None


def _call(chance: Chance) -> Call:
    amount, account = chance.choice([5, 50, 5, 500]), chance.choice(["a", "a", "a", "b"])
    arguments: dict[str, Any] = {"amount": amount, "account": account}
    return "pay", arguments
