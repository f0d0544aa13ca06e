"""Compiling an `Agent` to a graph: nodes for the model and each tool, a subgraph for each sub-agent.

The call of a sub-agent that needs an answer first is a visit of `ENTRY_NODE`: unlike a tool, an agent has
no code of its own before its first turn. If the call is allowed, the visit continues as a visit of the
sub-agent at the same address; otherwise the sub-agent is never entered.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from abeyance.agents.agent import ENTRY_NODE, MODEL_NODE, Agent, AgentTool
from abeyance.agents.approvals import APPROVAL
from abeyance.agents.output import Write, as_it_is
from abeyance.agents.prompts import Input, read_input
from abeyance.agents.state import MEMORY_FIELDS, AgentValues
from abeyance.agents.tool import Tool
from abeyance.agents.tool_call import ToolVisit
from abeyance.agents.turn import Prompt, Turn
from abeyance.authoring.callables import NodeCode, call, can_take, refuses, summary
from abeyance.authoring.compiler import placeholder_spec
from abeyance.authoring.graph import Graph
from abeyance.core.bounds import RetryPolicy
from abeyance.core.spec import START, FunctionNode, ReturnErrorToCaller, SubgraphNode
from abeyance.schemas.json_types import misfit
from abeyance.schemas.state_model import StateModel

_MIN_RETRIES: Final = 3
"""The least retries of a call's visit: an unapproved call runs again after its worker was lost."""
_TIMEOUT_MARGIN: Final = 10.0
"""Seconds by which the activity outlasts the tool's own timeout, so that the model gets the timeout."""


def prompt_of(states: StateModel, source: str | Callable[..., Any]) -> Prompt:
    """Return the function that makes an agent's first prompt: a text or a list of parts.

    `source` is a field of the state, or a function of the state, or of the state and the fan-out item.
    """
    takes_item = callable(source) and _takes_item(source)

    async def prompt(visit: Mapping[str, Any]) -> Input:
        values = visit["values"]
        if isinstance(source, str):
            value = values.get(source)
        else:
            items = [visit["item"]] if takes_item else []
            value = await call(source, states.read(values), *items)
        return read_input(value, visit.get("media_hosts") or ())

    return prompt


def _takes_item(function: Callable[..., Any]) -> bool:
    """Return True if a function of the state takes the item too.

    A second parameter with a default (`n=n`, as in a loop that declares agents) is not filled, unless its
    name is `item`.
    """
    if not can_take(function, 2):
        return False
    second = [*inspect.signature(function).parameters][1:2]
    return second == ["item"] or not can_take(function, 1)


def faults_of(
    name: str,
    agent: Agent,
    states: StateModel,
    source: str | Callable[..., Any],
    output: str | None,
) -> Iterator[str]:
    """Yield the errors of the `input=` and `output=` of an agent's node."""
    label = f"the agent {name!r}"
    if isinstance(source, str):
        if source not in states.fields and not states.is_open:
            yield f"{label}, input=: the state has no field {source!r}: name a field, or pass a function"
    elif not callable(source) or refuses(source, 1, 2):
        yield (
            f"{label}, input=: {source!r} is invalid: name a field of the state, or pass a function of "
            "(state) or (state, item)"
        )
    if output is not None:
        mismatch = misfit(agent.output.schema, states.field_schema(output))
        if mismatch is not None:
            yield f"{label}, output=: its result cannot become {output!r}: {mismatch}"


async def _task(visit: Mapping[str, Any]) -> str:
    # An approver may have edited the task.
    answer = visit["answers"].get(APPROVAL, {})
    arguments = (visit.get("result") or {}).get("args", visit["item"]["args"])
    return str(answer.get("arguments", arguments)["task"])


def compile_agent(agent: Agent, prompt: Prompt, write: Write = as_it_is) -> Graph:
    """Compile an agent whose first prompt is `prompt`, and whose result `write` writes.

    Raises TypeError if it is not an Agent.
    """
    if not isinstance(agent, Agent):
        raise TypeError(
            f"{agent!r} is not an Agent: write Agent('name', model=...), or wrap the agent of another "
            "framework by one of abeyance.adapters"
        )
    graph = Graph(agent.name, state=AgentValues, description=agent.description)
    graph.compiled_from, graph.budget = agent, agent.budget
    nodes = [*agent.tools, *agent.agents, *agent.servers]
    if agent.agents:
        nodes.append(ENTRY_NODE)
    graph.declare(
        FunctionNode(
            id=MODEL_NODE,
            description="A turn of the model.",
            timeout=agent.model_timeout,
            retry=agent.model_retry,
            to=(*nodes, MODEL_NODE),
            asks=agent.asks,
            reads_inbox=True,
            guarded=True,
        ),
        NodeCode(
            function=Turn(agent, prompt, write).take,
            takes=2,
            takes_inbox=True,
            retry_on=agent.model_retry_on,
        ),
        faults=agent.faults,
    )
    for tool in agent.tools.values():
        _declare_calls(
            graph,
            agent,
            tool.name,
            summary(tool.description),
            tool.capabilities,
            timeout=None if tool.timeout is None else _longest(tool, tool.timeout),
            retry=_of_calls(tool.retry),
            heartbeat=tool.heartbeat,
        )
    for node, server in agent.servers.items():
        own = server.requested_capability
        asks = () if own is None else (own,)
        retry = _of_calls(server.retry)
        _declare_calls(graph, agent, node, server.description, asks, retry=retry)
    if agent.agents:
        _declare_calls(
            graph,
            agent,
            ENTRY_NODE,
            "Hooks and approvals before an agent is called.",
            chain.from_iterable(each.tool.capabilities for each in agent.agents.values()),
            to=tuple(agent.agents),
            retry=RetryPolicy(retries=_MIN_RETRIES),
        )
    for agent_tool in agent.agents.values():
        graph.declare(_nested(agent, agent_tool), inner=compile_agent(agent_tool.agent, _task))
    graph.edge(START, MODEL_NODE)
    if nodes:
        graph.edge(nodes, MODEL_NODE)
    return graph


def agent_node(name: str, agent: Agent, output: str | None) -> SubgraphNode:
    """Return the subgraph node of an agent. It writes the result to the field `output`."""
    return SubgraphNode(
        id=name,
        graph=placeholder_spec(agent.name),
        description=agent.description,
        input={},
        output={} if output is None else {output: "output"},
        agent=True,
        remembers=MEMORY_FIELDS if agent.remembers else (),
    )


def _of_calls(own: RetryPolicy) -> RetryPolicy:
    """Return the policy for visits of calls: their code decides which exceptions of a tool to retry."""
    return own if own.retries is None else replace(own, retries=max(own.retries, _MIN_RETRIES))


def _longest(tool: Tool, timeout: float) -> float:
    """Return the time limit of a call's activity: that of the call, and of the preview before it."""
    return timeout * (1 if tool.preview is None else 2) + _TIMEOUT_MARGIN


def _declare_calls(
    graph: Graph, agent: Agent, node: str, description: str, asks: Iterable[str], **options: Any
) -> None:
    """Declare the node that makes the calls of a tool, of a server's tools, or of sub-agents."""
    graph.declare(
        FunctionNode(
            id=node,
            description=description,
            on_error=ReturnErrorToCaller(),
            asks=tuple(dict.fromkeys([*asks, *agent.asks])),
            **options,
        ),
        NodeCode(function=ToolVisit(agent, node).run, takes=2),
    )


def _nested(agent: Agent, agent_tool: AgentTool) -> SubgraphNode:
    return replace(
        agent_node(agent_tool.name, agent_tool.agent, None),
        description=summary(agent_tool.tool.description),
        result="output",
        on_error=ReturnErrorToCaller(),
        asks=tuple(dict.fromkeys([*agent_tool.tool.capabilities, *agent.asks])),
    )
