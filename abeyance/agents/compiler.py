"""The call of an agent about which somebody is asked: what stands before it, and then the agent.

A tool's own code can ask, an agent has none before its first turn. So such a call is first a visit of
this node, which goes on as a visit of the agent's, at the same address. What is not let through is never
entered.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from abeyance.agents import tool_results
from abeyance.agents.agent import ENTRY_NODE, MODEL_NODE, Agent, AgentTool
from abeyance.agents.approvals import APPROVE
from abeyance.agents.prompts import Input, read_input
from abeyance.agents.state import MEMORY_FIELDS, AgentState, AgentValues
from abeyance.agents.tool import Tool
from abeyance.agents.tool_call import ToolVisit
from abeyance.agents.tool_gate import ToolGate
from abeyance.agents.turn import Prompt, Turn, blobs_of
from abeyance.authoring.callables import NodeCode, call, can_take, refuses, summary
from abeyance.authoring.compiler import placeholder_spec
from abeyance.authoring.context import Context
from abeyance.authoring.graph import Graph
from abeyance.core.outcome import Finished, key_of
from abeyance.core.spec import START, FunctionNode, ReturnErrorToCaller, SubgraphNode
from abeyance.schemas.json_types import misfit
from abeyance.schemas.state_model import StateModel


class SubagentGate:
    """The visits of this node."""

    def __init__(self, agent: Agent) -> None:
        self._agent = agent

    async def run(self, state: AgentValues, ctx: Context) -> Finished:
        """Ask what is asked before the call that a visit is about, and let it through or not."""
        name = str(ctx.item["tool"])
        called = self._agent.agents.get(name)
        if called is None:
            gone = tool_results.error(f"There is no tool {name!r} any more.")
            return Finished(result=gone, ended="failed")
        admission = ToolGate(self._agent, called.tool, ctx, AgentState(state.agent_state))
        refused = await admission.refused()
        changes = admission.memory.changes()
        patch = {"agent_state": changes} if changes else {}
        is_edited = admission.arguments != ctx.item["args"]
        known = {"args": admission.arguments} if is_edited else None
        if refused is None:
            return Finished(patch=patch, goto=name, result=known)
        kept = await tool_results.kept(blobs_of(ctx), ctx.run_id, refused)
        ended = tool_results.to_model_text(refused)[0]
        return Finished(patch=patch, result={**(known or {}), **kept}, ended=ended)


_LEAST_ATTEMPTS: Final = 3
"""A call that nobody had to approve is made again where its worker was lost."""
_SLACK: Final = 10.0
"""In seconds: a tool's own timeout is kept inside its activity, where the model can be told."""


def prompt_of(states: StateModel, source: str | Callable[..., Any]) -> Prompt:
    """What an agent is told first, as its node says: what a field has, or what a function of the state,
    or of the state and the item of a fan-out, returns. It is a text, or a list of parts.
    """
    takes_item = callable(source) and not can_take(source, 1) and can_take(source, 2)

    async def prompt(given: Mapping[str, Any]) -> Input:
        values = given["values"]
        if isinstance(source, str):
            found = values.get(source)
        else:
            about = [given["item"]] if takes_item else []
            found = await call(source, states.read(values), *about)
        return read_input(found, given.get("media_hosts") or ())

    return prompt


def faults_of(
    name: str,
    agent: Agent,
    states: StateModel,
    source: str | Callable[..., Any],
    output: str | None,
) -> Iterator[str]:
    """What is wrong with what leads into an agent and out of it, where its node stands."""
    told = f"the agent {name!r}"
    if isinstance(source, str):
        if source not in states.fields and not states.is_open:
            yield f"{told}, input=: {source!r} is no field of the state"
    elif not callable(source) or refuses(source, 1, 2):
        yield (
            f"{told}, input=: {source!r} is neither a field of the state nor a function of (state) or of "
            "(state, item)"
        )
    if output is not None:
        why = misfit(agent.output.schema, states.field_schema(output))
        if why is not None:
            yield f"{told}, output=: its result cannot become {output!r}: {why}"


async def _task(given: Mapping[str, Any]) -> str:
    # Who was asked about the call may have put another task in the place of the model's.
    answer = given["answers"].get(key_of("approval", APPROVE), {})
    admitted = (given.get("result") or {}).get("args", given["item"]["args"])
    return str(answer.get("arguments", admitted)["task"])


def lowered(agent: Agent, prompt: Prompt) -> Graph:
    """The graph of an agent that begins with this prompt. Raises TypeError for what is no agent."""
    if not isinstance(agent, Agent):
        message = f"{agent!r} is no Agent: write Agent('name', model=...)"
        raise TypeError(message)
    graph = Graph(agent.name, state=AgentValues, description=agent.description)
    nodes = [*agent.tools, *agent.agents, *agent.servers]
    if agent.agents:
        nodes.append(ENTRY_NODE)
    graph.declare(
        FunctionNode(
            id=MODEL_NODE,
            description="A turn of the model.",
            timeout=agent.model_timeout,
            retries=agent.model_retries,
            to=(*nodes, MODEL_NODE),
            asks=agent.asks,
            reads_inbox=True,
            guarded=True,
        ),
        NodeCode(function=Turn(agent, prompt).take, takes=2, takes_inbox=True),
        faults=agent.faults,
    )
    for tool in agent.tools.values():
        _declare_tool(graph, agent, tool)
    for title in agent.servers:
        _declare_server(graph, agent, title)
    if agent.agents:
        _declare_entry(graph, agent)
    for each in agent.agents.values():
        graph.declare(_nested(agent, each), inner=lowered(each.agent, _task))
    graph.edge(START, MODEL_NODE)
    if nodes:
        graph.edge(nodes, MODEL_NODE)
    return graph


def node_of(name: str, agent: Agent, output: str | None) -> SubgraphNode:
    """The node of a graph that an agent is; it writes its result to the field `output`."""
    return SubgraphNode(
        id=name,
        graph=placeholder_spec(agent.name),
        description=agent.description,
        input={},
        output={} if output is None else {output: "output"},
        agent=True,
        remembers=MEMORY_FIELDS if agent.remembers else (),
    )


def _declare_tool(graph: Graph, agent: Agent, tool: Tool) -> None:
    graph.declare(
        FunctionNode(
            id=tool.name,
            description=summary(tool.description),
            timeout=None if tool.timeout is None else tool.timeout + _SLACK,
            retries=max(tool.retries, _LEAST_ATTEMPTS),
            heartbeat=tool.heartbeat,
            on_error=ReturnErrorToCaller(),
            asks=_asks(agent, tool),
        ),
        NodeCode(function=ToolVisit(agent, tool.name).run, takes=2),
    )


def _declare_entry(graph: Graph, agent: Agent) -> None:
    graph.declare(
        FunctionNode(
            id=ENTRY_NODE,
            description="What is asked before an agent is called.",
            to=tuple(agent.agents),
            retries=_LEAST_ATTEMPTS,
            on_error=ReturnErrorToCaller(),
            asks=_asks(agent, *(each.tool for each in agent.agents.values())),
        ),
        NodeCode(function=SubagentGate(agent).run, takes=2),
    )


def _declare_server(graph: Graph, agent: Agent, title: str) -> None:
    server = agent.servers[title].server
    own = () if server.requested_capability is None else (server.requested_capability,)
    graph.declare(
        FunctionNode(
            id=title,
            description="Tools of an MCP server.",
            retries=max(server.retries, _LEAST_ATTEMPTS),
            on_error=ReturnErrorToCaller(),
            asks=tuple(dict.fromkeys([*own, *agent.asks])),
        ),
        NodeCode(function=ToolVisit(agent, title).run, takes=2),
    )


def _asks(agent: Agent, *tools: Tool) -> tuple[str, ...]:
    """What a call may ask for: in its tool's name, or in that of a hook of the agent."""
    own = [capability for tool in tools for capability in tool.capabilities]
    return tuple(dict.fromkeys([*own, *agent.asks]))


def _nested(agent: Agent, each: AgentTool) -> SubgraphNode:
    return SubgraphNode(
        id=each.name,
        graph=placeholder_spec(each.agent.name),
        description=summary(each.tool.description),
        input={},
        output={},
        agent=True,
        result="output",
        on_error=ReturnErrorToCaller(),
        remembers=MEMORY_FIELDS if each.agent.remembers else (),
        asks=_asks(agent, each.tool),
    )
