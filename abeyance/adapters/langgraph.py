"""Agents of LangChain (`create_agent`) and graphs of LangGraph as nodes.

    graph.agent("clerk", langgraph_agent(my_agent), input="letter", output="reply")

Each call of a `ToolNode` is held in the place of its tool, behind the middleware around it;
`HumanInTheLoopMiddleware`, batched or per call, decides which calls need an approval. Any other
`interrupt()` of a node or a tool is a question. The state is the newest checkpoint, written by
LangGraph's own serialiser; the result of each node, also of the model, is recorded at once.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage
from langchain_core.runnables import RunnableConfig, RunnableLambda
from langgraph.checkpoint.memory import InMemorySaver
from langgraph.checkpoint.serde.base import SerializerProtocol
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.prebuilt import ToolNode
from langgraph.pregel import Pregel
from langgraph.types import Command, interrupt
from pydantic_core import to_jsonable_python

from abeyance.agents.foreign import (
    ForeignAgent,
    ForeignCall,
    ForeignContext,
    ForeignTool,
    ForeignTurn,
    ToolRules,
    TurnTaken,
    fresh,
    made_by,
    warn_untested,
)
from abeyance.agents.model_request import unused_ids
from abeyance.agents.tool_errors import ResultError
from abeyance.core.json import Json
from abeyance.core.text import truncate
from abeyance.errors import AgentFailed, FailureCode

TESTED: Final = ("langgraph", "1.2.0", "1.3.0")
QUESTION: Final = "interrupt"
"""The tool that asks an `interrupt()` of a node."""

_LONGEST_PROMPT: Final = 1_000
_THREAD: Final = "agent"
_CONFIG: Final[Any] = {"configurable": {"thread_id": _THREAD}, "recursion_limit": 1_000}
_HELD: Final = "abeyance_call"
_ANY: Final[dict[str, Json]] = {"type": "object", "properties": {"value": {}}}


def langgraph_agent(
    agent: Pregel[Any, Any, Any, Any] | Callable[[], Pregel[Any, Any, Any, Any]],
    *,
    tools: ToolRules | None = None,
    context: Any = None,
    enter: Callable[[str], Any] | None = None,
    result: Callable[[Any], Any] | None = None,
    **options: Any,
) -> ForeignAgent:
    """Return an agent of LangChain or a graph of LangGraph as the agent of a node.

    Args:
        agent: The compiled graph, which stays as it is, or a function that makes it.
        tools: By tool name, options of `@tool` for the approval; `timeout` is its deadline.
        context: The runtime context, or a function that makes it. It is not stored.
        enter: Makes the graph's input from the prompt; a message of the user in `messages` by default.
        result: Makes the output from the graph's output; the text of the last message by default.
        options: The options of `Agent`, such as `name`, `max_turns`, `hooks` and `memory`.
    """
    warn_untested(*TESTED)
    made = made_by(agent, Pregel, "a compiled graph of LangGraph")
    return ForeignAgent(LangGraph(made, context, enter, result), tools=tools, **options)


class LangGraph:
    """The adapter: see `abeyance.adapters.Framework`."""

    def __init__(
        self,
        graph: Pregel[Any, Any, Any, Any],
        context: Any,
        enter: Callable[[str], Any] | None,
        result: Callable[[Any], Any] | None,
    ) -> None:
        self._graph = graph
        self._context = context
        self._enter = enter or (lambda text: {"messages": [HumanMessage(text)]})
        self._result = result or _last_text
        self._nodes = {
            name: node.bound
            for name, node in graph.nodes.items()
            if isinstance(node.bound, ToolNode)
        }
        self._approved = set(_approved_tools(graph))

    @property
    def name(self) -> str:
        return "agent" if self._graph.name == "LangGraph" else self._graph.name.replace(" ", "_")

    def tools(self) -> list[ForeignTool]:
        question = ForeignTool(
            name=QUESTION, description="Ask a person.", parameters=_ANY, is_question=True
        )
        named = {
            name: tool for node in self._nodes.values() for name, tool in node.tools_by_name.items()
        }
        return [
            *(
                ForeignTool(
                    name=name,
                    description=tool.description,
                    parameters=_schema_of(tool.tool_call_schema),
                    approve=name in self._approved,
                )
                for name, tool in named.items()
            ),
            question,
        ]

    def output(self) -> Any:
        return None if self._result is _last_text else Any

    async def turn(self, turn: ForeignTurn) -> TurnTaken:
        saver = _Saver()
        held = self._held(saver, turn)
        given: Any = self._enter(turn.text)
        before = 0
        if turn.state is not None:
            _restore(saver, turn.state["saver"])
            before = turn.state["messages"]
            if turn.state["open"]:
                given = await self._continued(held, turn)
        context = fresh(self._context)
        out = await held.ainvoke(given, _CONFIG, context=context)
        approve: set[str] = set()
        while asked := [each for each in out.get("__interrupt__", ()) if _is_approval(each.value)]:
            # Approvals of the framework pass here: people are asked in the places of the tools.
            approve |= {each.value["tool_call_id"] for each in asked if not _is_batched(each.value)}
            out = await held.ainvoke(
                Command(resume={each.id: self._let_through(each.value) for each in asked}),
                _CONFIG,
                context=context,
            )
        messages = _messages(out)
        calls: list[ForeignCall] = []
        open_: dict[str, list[Any]] = {}
        unused_id = unused_ids()
        for each in out.get("__interrupt__", ()):
            call = _call_of(each)
            call = replace(call, id=unused_id(call.id), approve=call.id in approve)
            calls.append(call)
            open_[call.id] = [each.id, call.tool != QUESTION]
        said = [each for each in messages[before:] if isinstance(each, AIMessage)]
        usage: list[Any] = [each.usage_metadata or {} for each in said]
        return TurnTaken(
            state={"saver": _dump(saver), "messages": len(messages), "open": open_},
            calls=_in_order(calls, said),
            text=said[-1].text if said and calls else "",
            output=None if calls else self._result(out),
            model=said[-1].response_metadata.get("model_name") if said else None,
            input_tokens=sum(each.get("input_tokens", 0) for each in usage),
            output_tokens=sum(each.get("output_tokens", 0) for each in usage),
        )

    async def _continued(self, held: Any, turn: ForeignTurn) -> Any:
        """Return the input with which the graph continues, once its calls have results."""
        resume = {
            interrupt_id: _resumed(turn, call_id, is_call=is_call)
            for call_id, (interrupt_id, is_call) in turn.state["open"].items()
        }
        command = Command(resume=resume)
        models = [name for name in ("model", "agent") if name in held.nodes]
        if not turn.prompts:
            return command
        if not models:
            message = "a graph without a node 'model' or 'agent' takes no messages while it waits"
            raise AgentFailed(FailureCode.NODE_FAILED, message)
        # The messages come behind the results: no provider takes a message between a call and its result.
        await held.ainvoke(command, _CONFIG, interrupt_before=models, context=fresh(self._context))
        state = await held.aget_state(_CONFIG)
        if state.interrupts or not state.next:
            return None
        await held.aupdate_state(
            _CONFIG, {"messages": [HumanMessage(turn.text)]}, as_node=next(iter(self._nodes), None)
        )
        return None

    async def call(self, name: str, arguments: dict[str, Any], ctx: ForeignContext) -> Any:
        if name == QUESTION:
            return await _ask(ctx, QUESTION, arguments.get("value"))
        node = next(each for each in self._nodes.values() if name in each.tools_by_name)
        alone = StateGraph(MessagesState, context_schema=self._graph.context_schema)
        plain = copy.copy(node)
        plain._awrap_tool_call = plain._wrap_tool_call = None  # noqa: SLF001 it has no other name
        plain.afunc = plain._afunc  # noqa: SLF001
        alone.add_node("tools", plain)
        alone.add_edge(START, "tools")
        graph = alone.compile(checkpointer=InMemorySaver())
        call = {"name": name, "args": arguments, "id": ctx.call_id, "type": "tool_call"}
        given: Any = {"messages": [AIMessage("", tool_calls=[call])]}
        asked = 0
        while True:
            out = await graph.ainvoke(given, _CONFIG, context=fresh(self._context))
            if not (waiting := out.get("__interrupt__")):
                break
            (value, id_) = (waiting[0].value, waiting[0].id)
            asked += 1
            name_ = QUESTION if asked == 1 else f"{QUESTION}.{asked}"
            answer = await _ask(ctx, name_, to_jsonable_python(value, fallback=str))
            given = Command(resume={id_: answer})
        last = out["messages"][-1]
        if isinstance(last, ToolMessage) and last.status == "error":
            raise ResultError(last.text)
        return last.content

    def _held(self, saver: InMemorySaver, turn: ForeignTurn) -> Any:
        nodes = dict(self._graph.nodes)
        for name, node in nodes.items():
            if name in self._nodes:
                nodes[name] = node.copy({"bound": _holding(node.bound)})
            elif name != START and not node.subgraphs:
                nodes[name] = node.copy({"bound": _recorded(node.bound, saver.serde, turn)})
        return self._graph.copy({"nodes": nodes, "checkpointer": saver})

    def _let_through(self, value: Mapping[str, Any]) -> Any:
        if not _is_batched(value):
            return {"type": "approve"}
        for request in value["action_requests"]:
            if request["name"] not in self._approved:
                message = f"nobody can be asked about the tool {request['name']!r} of {self.name!r}"
                raise AgentFailed(FailureCode.NODE_FAILED, message)
        return {"decisions": [{"type": "approve"} for _ in value["action_requests"]]}


async def _ask(ctx: ForeignContext, name: str, value: Json) -> Any:
    """Ask people about the value of an `interrupt()`. A text is also the prompt, cut if it is long."""
    is_text = isinstance(value, str) and bool(value.strip())
    prompt = truncate(value, _LONGEST_PROMPT) if is_text else None
    return await ctx.interrupt(name, prompt=prompt, reason=value)


def _resumed(turn: ForeignTurn, call_id: str, *, is_call: bool) -> Any:
    """Return the input of the graph: an answer as it is, or the result of a call with its status."""
    known = turn.results.get(call_id)
    content, ok = (None, False) if known is None else (known.content, known.ok)
    return {"content": content, "ok": ok} if is_call else content


def _schema_of(schema: Any) -> dict[str, Json]:
    return schema if isinstance(schema, dict) else schema.model_json_schema()


def _holding(node: Any) -> Any:
    """Return a copy of a tool node whose calls wait for their results."""
    held = copy.copy(node)

    around, around_sync = node._awrap_tool_call, node._wrap_tool_call  # noqa: SLF001 it has no other name

    async def wait(request: Any, _: Any) -> Any:
        async def hold(request: Any) -> Any:
            return stand_in(request)

        if around is not None:
            return await around(request, hold)
        return stand_in(request) if around_sync is None else around_sync(request, stand_in)

    def stand_in(request: Any) -> Any:
        call = request.tool_call
        if request.tool is not node.tools_by_name.get(call["name"]):
            message = f"{call['name']!r} was replaced by a tool that the agent does not have"
            raise RuntimeError(message)
        if request.tool is None:
            # LangGraph tells the model that there is no such tool.
            return node._validate_tool_call(call)  # noqa: SLF001
        result = interrupt({_HELD: {key: call[key] for key in ("id", "name", "args")}})
        content = result["content"]
        text = content if isinstance(content, str | list) else str(to_jsonable_python(content))
        return ToolMessage(
            text,
            name=call["name"],
            tool_call_id=call["id"],
            status="success" if result["ok"] else "error",
        )

    held._awrap_tool_call = wait  # noqa: SLF001
    held.afunc = held._afunc  # noqa: SLF001
    return held


class _Saver(InMemorySaver):
    """A saver that says which field of the state cannot be stored."""

    def put_writes(
        self,
        config: RunnableConfig,
        writes: Sequence[tuple[str, Any]],
        task_id: str,
        task_path: str = "",
    ) -> None:
        for name, value in writes:
            try:
                self.serde.dumps_typed(value)
            except TypeError as error:
                message = (
                    f"{name!r} in the state of the graph cannot be stored: {error}. Keep in it what "
                    "LangGraph can serialise, and make such an object anew where it is used"
                )
                raise AgentFailed(FailureCode.NODE_FAILED, message) from error
        super().put_writes(config, writes, task_id, task_path)


def _recorded(node: Any, serde: SerializerProtocol, turn: ForeignTurn) -> Any:
    """Return a node whose result is recorded in the visit. A node that asks runs again, as always."""

    async def run(given: Any, config: RunnableConfig) -> Any:
        results = []

        async def enter() -> Json:
            results.append(await node.ainvoke(given, config))
            try:
                return _packed(serde.dumps_typed(results[0]))
            except TypeError:
                return None  # If it belongs to the state, the saver refuses it later.

        at = config["metadata"]
        place = f"{at['langgraph_node']} {at['langgraph_step']} {at['langgraph_path']}"
        recorded = await turn.journal(place, enter)
        if results:
            return results[0]
        return (
            await node.ainvoke(given, config)
            if recorded is None
            else serde.loads_typed(_unpacked(recorded))
        )

    return RunnableLambda(run)


def _call_of(each: Any) -> ForeignCall:
    if isinstance(each.value, Mapping) and _HELD in each.value:
        call = each.value[_HELD]
        return ForeignCall(id=call["id"], tool=call["name"], arguments=call["args"])
    value = to_jsonable_python(each.value, fallback=str)
    return ForeignCall(id=each.id, tool=QUESTION, arguments={"value": value})


def _in_order(calls: Sequence[ForeignCall], said: Sequence[AIMessage]) -> list[ForeignCall]:
    order = [call["id"] for message in said for call in message.tool_calls]
    places = {id_: place for place, id_ in enumerate(order)}
    return sorted(calls, key=lambda call: places.get(call.id, len(places)))


def _approved_tools(graph: Any) -> Iterator[str]:
    for node in graph.nodes.values():
        middleware = getattr(getattr(node.bound, "afunc", None), "__self__", None)
        rules = getattr(middleware, "interrupt_on", None)
        if isinstance(rules, Mapping):
            yield from (name for name, rule in rules.items() if rule is not False)


def _is_batched(value: Mapping[str, Any]) -> bool:
    return "action_requests" in value


def _is_approval(value: Any) -> bool:
    return isinstance(value, Mapping) and (
        _is_batched(value) or value.get("type") == "tool_approval"
    )


def _messages(out: Any) -> list[BaseMessage]:
    found = out.get("messages", []) if isinstance(out, Mapping) else []
    return [each for each in found if isinstance(each, BaseMessage)]


def _last_text(out: Any) -> str:
    messages = _messages(out)
    return messages[-1].text if messages else str(out)


def _dump(saver: InMemorySaver) -> Json:
    """Return the newest checkpoint of each namespace, as JSON."""
    entries, writes, blobs = [], [], []
    for namespace, checkpoints in saver.storage[_THREAD].items():
        newest = max(checkpoints)
        entries.append([namespace, newest, *map(_packed, checkpoints[newest][:2])])
        versions = saver.serde.loads_typed(checkpoints[newest][0])["channel_versions"]
        writes += [
            [namespace, newest, *key, task, channel, _packed(value), path]
            for key, (task, channel, value, path) in saver.writes[
                _THREAD, namespace, newest
            ].items()
        ]
        blobs += [
            [
                namespace,
                channel,
                version,
                _packed(saver.blobs[_THREAD, namespace, channel, version]),
            ]
            for channel, version in versions.items()
            if (_THREAD, namespace, channel, version) in saver.blobs
        ]
    return {"checkpoints": entries, "writes": writes, "blobs": blobs}


def _restore(saver: InMemorySaver, dumped: Json) -> None:
    for namespace, id_, checkpoint, metadata in dumped["checkpoints"]:
        saver.storage[_THREAD][namespace][id_] = (_unpacked(checkpoint), _unpacked(metadata), None)
    for namespace, id_, of, number, task, channel, value, path in dumped["writes"]:
        saver.writes[_THREAD, namespace, id_][of, number] = (task, channel, _unpacked(value), path)
    for namespace, channel, version, value in dumped["blobs"]:
        saver.blobs[_THREAD, namespace, channel, version] = _unpacked(value)


def _packed(value: tuple[str, bytes]) -> list[str]:
    return [value[0], base64.b64encode(value[1]).decode()]


def _unpacked(value: Sequence[str]) -> tuple[str, bytes]:
    return value[0], base64.b64decode(value[1])
