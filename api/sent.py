"""A message as a run gets it: under an id by which a repeat is known, from whom, in the run's terms."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

from abeyance import wire
from abeyance.api.backend import Backend
from abeyance.api.bodies import given_in
from abeyance.api.problems import invalid
from abeyance.client import Client
from abeyance.core.model import SubgraphNode
from abeyance.core.policy import Principal
from abeyance.errors import Code, Refusal
from abeyance.graphs.graph import Graph
from abeyance.values.statemodel import StateModel, ValuesError


def message_of(body: wire.MessageBody, who: Principal, key: str | None) -> wire.SteerMessage:
    """What somebody sends, under a key if they gave one. Raises `invalid_body` for two ids."""
    if None not in (key, body.message_id) and key != body.message_id:
        told = f"{body.message_id!r} is not the Idempotency-Key {key!r}: give one, or both the same"
        raise invalid([{"pointer": "/message_id", "message": told}])
    message_id = body.message_id or key or uuid.uuid4().hex
    given = {**given_in(body), "message_id": message_id}
    return wire.SteerMessage(**given, sender=who.subject, capabilities=who.capabilities)


async def fitted(
    message: wire.SteerMessage, run_id: str, behind: Backend, client: Client
) -> wire.SteerMessage:
    """The message for this run: what it would set is written as the run's state takes it.

    Which of the run's graphs it will be about only the run knows, so it has to fit one of them. Raises
    `invalid_message` where this service has the graph and it fits none, and `unknown_run`.
    """
    patch = message.params.get("patch")
    # The run itself says what it cannot use.
    if message.action != "update_state" or not isinstance(patch, dict):
        return message
    graph = behind.graphs.get(await client.run(run_id).graph_of() or "")
    if graph is None:
        return message
    misfits: list[ValuesError] = []
    for states in _states(graph):
        try:
            written = states.patch(patch)
        except ValuesError as error:
            misfits.append(error)
        else:
            return message.model_copy(update={"params": {**message.params, "patch": written}})
    faults = [
        {**fault, "pointer": f"/params/patch{fault['pointer']}"} for fault in misfits[0].errors
    ]
    raise Refusal(
        Code.INVALID_MESSAGE, f"update_state cannot be carried out: {misfits[0]}.", errors=faults
    )


def _states(graph: Graph) -> Iterator[StateModel]:
    """The states of a graph and of those in it, but for agents, whose own state is not edited so."""
    yield graph.states
    for name, node in graph.build().nodes.items():
        if isinstance(node, SubgraphNode) and not node.agent:
            yield from _states(graph.subgraphs[name])
