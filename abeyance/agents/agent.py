"""`Agent`: a model with instructions and tools that runs until it has an output.

An agent compiles to a nested graph: one node for the turns of its model and one for each tool. It
therefore has the addresses, interrupts, messages and pause boundaries of every other graph.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias, Unpack

from abeyance.agents.approvals import Approve, OnApprovalTimeout
from abeyance.agents.hooks import hook_faults
from abeyance.agents.model_request import ToolSpec, request
from abeyance.agents.output import FINAL_RESULT, OutputType
from abeyance.agents.prompts import NOTE
from abeyance.agents.tool import Tool, ToolServer
from abeyance.agents.tool_decorator import tool
from abeyance.agents.tool_errors import ToolDeclarationError
from abeyance.authoring.budgets import Budget, budget_of
from abeyance.authoring.callables import refuses
from abeyance.authoring.context import Context
from abeyance.authoring.declarations import DeclarationErrors
from abeyance.authoring.lines import here, placed
from abeyance.authoring.retries import (
    ANY_ERROR,
    DEFAULT_BACKOFF,
    Backoff,
    RetryOn,
    exceptions,
    retry_policy,
)
from abeyance.authoring.terms import TermsOptions
from abeyance.core.address import Address
from abeyance.core.json import Json
from abeyance.core.terms import Decision
from abeyance.duration import Duration, seconds

if TYPE_CHECKING:
    from pydantic_ai.messages import ModelMessage, ModelResponse

    from abeyance.agents.model_request import ModelLike

_MODEL_RETRIES: Final = 3
"""The retries of a turn if the agent sets neither `model_retries` nor `model_retry_for`."""

MODEL_NODE: Final = "model"
"""The node that runs the turns of the model; reserved as a tool name."""
ENTRY_NODE: Final = "agents.entry"
"""The node that asks hooks and approvers before a sub-agent is entered."""


def is_turn(address: str) -> bool:
    """Return whether an address belongs to a turn of an agent's model."""
    segments = Address.parse(address).segments[-2:]
    return [each.type for each in segments] == ["agent", "node"] and segments[1].id == MODEL_NODE


_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,64}")
_ILLEGAL_IN_NODE: Final = re.compile(r"[^A-Za-z0-9_.-]")
_MAX_NODE_CHARS: Final = 100

ToolLike: TypeAlias = "Tool | AgentTool | ToolServer | Callable[..., Any]"


class Agent:
    """A model that calls tools until it has an output.

    Args:
        name: The agent's name in addresses, events and Temporal's UI.
        model: `"openai:gpt-5"` or any other model name of pydantic-ai, one of its `Model` instances, or a
            function `(messages, info) -> ModelResponse`.
        instructions: The system instructions of the model.
        tools: Functions, `@tool` objects, agents wrapped by `as_tool(...)`, and MCP servers.
        hooks: Objects with methods that run before and after calls; see `abeyance.agents.hooks`.
        output: The type of the result: text by default, a pydantic model, or any type pydantic validates.
        description: The purpose of the agent, in one sentence.
        max_turns: Maximum model turns in one visit; the next one fails it with `max_turns`.
        budget: What one visit, with the agents that it calls, may use before a person is asked. With
            `turns` in the budget, `max_turns` does not apply.
        max_corrections: Maximum consecutive attempts of the model to correct an invalid output.
        tool_execution: `concurrent` runs the calls of a turn in parallel, `sequential` one at a time.
        memory: With `run`, the next visit of the node continues the conversation of the previous one.
        asks: Capabilities that the hooks request, as names or patterns such as `tenant:*:approve`.
        model_settings: Settings passed to the model unchanged, such as `{"temperature": 0}`.
        model_timeout: Time limit of one model turn.
        model_retries: Maximum retries of a failed turn. The default is 3, or unlimited with
            `model_retry_for`. Retries of an unreachable model are unlimited and do not count.
        model_backoff: The pauses between the attempts at a turn.
        model_retry_for: Time after the first attempt at a turn in which retries may begin.
        model_retry_on: The exceptions after which a turn is retried.
    """

    def __init__(
        self,
        name: str,
        *,
        model: ModelLike,
        instructions: str | None = None,
        tools: Sequence[ToolLike] = (),
        hooks: Sequence[object] = (),
        output: Any = None,
        description: str = "",
        max_turns: int = 50,
        budget: Budget | None = None,
        max_corrections: int = 3,
        tool_execution: Literal["concurrent", "sequential"] = "concurrent",
        memory: Literal["run"] | None = None,
        asks: str | Sequence[str] = (),
        model_settings: Mapping[str, Any] | None = None,
        model_timeout: Duration = 600.0,
        model_retries: int | None = None,
        model_backoff: Backoff = DEFAULT_BACKOFF,
        model_retry_for: Duration | None = None,
        model_retry_on: RetryOn = ANY_ERROR,
    ) -> None:
        self.name = name
        self.model = model
        self.instructions = instructions
        self.hooks = tuple(hooks)
        self.output = OutputType(output)
        self.description = description
        self.max_turns = max_turns
        self.max_corrections = max_corrections
        self.is_sequential = tool_execution == "sequential"
        self.remembers = memory == "run"
        self.model_settings = dict(model_settings or {})
        self.model_timeout = seconds(model_timeout)
        entries = [
            entry if isinstance(entry, Tool | AgentTool | ToolServer) else tool(entry)
            for entry in tools
        ]
        nodes = [(_node_of(entry), entry) for entry in entries]
        self.tools = {node: entry for node, entry in nodes if isinstance(entry, Tool)}
        self.agents = {node: entry for node, entry in nodes if isinstance(entry, AgentTool)}
        self.servers = {node: entry for node, entry in nodes if isinstance(entry, ToolServer)}
        errors = DeclarationErrors()
        label = f"the agent {name!r}"
        self.asks = errors.capabilities(asks, label)
        self.budget = budget_of(budget, f"the budget of {name!r}", errors)
        note = errors.note
        self.model_retry = retry_policy(
            note,
            label,
            retries=model_retries,
            backoff=model_backoff,
            retry_for=model_retry_for,
            default=_MODEL_RETRIES,
            prefix="model_",
        )
        self.model_retry_on = exceptions(note, label, model_retry_on, prefix="model_")
        own = self._faults([node for node, _ in nodes], tool_execution, memory)
        hooks_faults = (fault for hook in self.hooks for fault in hook_faults(hook))
        line = here()
        self.faults = [placed(each, line) for each in (*own, *errors.faults, *hooks_faults)]
        """Every error of the declaration, one sentence each, with its line."""

    def _faults(
        self, names: Sequence[str], tool_execution: object, memory: object
    ) -> Iterator[str]:
        if not isinstance(self.name, str) or not _NAME.fullmatch(self.name):
            yield f"the agent name {self.name!r} is invalid: use 1 to 64 letters, digits, '_' and '-'"
        for name in sorted({name for name in names if names.count(name) > 1}):
            server = self.servers.get(name)
            hint = "" if server is None else f", or give its {type(server).__name__} a name="
            yield f"two tools are named {name!r}: rename one{hint}"
        for name in sorted({MODEL_NODE, ENTRY_NODE, FINAL_RESULT} & {*names}):
            yield f"the tool name {name!r} is reserved: rename the tool"
        for option, value, minimum in (
            ("max_turns", self.max_turns, 1),
            ("max_corrections", self.max_corrections, 0),
        ):
            if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
                yield f"{option}={value!r} is invalid: use an integer of at least {minimum}"
        if (fault := _model_fault(self.model)) is not None:
            yield fault
        if not isinstance(self.instructions, str | None):
            yield f"instructions={self.instructions!r} is not text: pass a string or None"
        if tool_execution not in {"concurrent", "sequential"}:
            yield f"tool_execution={tool_execution!r} is invalid: use 'concurrent' or 'sequential'"
        if memory not in {None, "run"}:
            yield f"memory={memory!r} is invalid: use 'run' or None"

    async def request(
        self,
        ctx: Context,  # noqa: ARG002 `ForeignAgent` uses it
        before: Sequence[ModelMessage],
        messages: Sequence[ModelMessage],
        on_partial: Callable[[ModelResponse], None] | None = None,
        on_stream: Callable[[Callable[[], str]], None] | None = None,
    ) -> ModelResponse:
        """Ask the model for its next response to `messages`; `before` is the conversation so far.

        Raises the errors of `model_request.request`, and Blocked if a server of tools is down.
        """
        return await request(
            self.model,
            messages,
            before=before,
            tools=[each.spec for each in (await self.available_tools()).values()],
            output=self.output.tool,
            instructions="\n\n".join(filter(None, (self.instructions, NOTE))),
            settings=self.model_settings,
            on_partial=on_partial,
            on_stream=on_stream,
        )

    async def available_tools(self) -> dict[str, Offer]:
        """Return the tools that the model may call now. Raises Blocked if a server of tools is down."""
        offers = {each.name: Offer(tool=each, node=each.name) for each in self.tools.values()}
        offers |= {name: Offer(tool=each.tool, node=name) for name, each in self.agents.items()}
        for title, server in self.servers.items():
            for name, each in (await server.available_tools()).items():
                # A declared tool wins over a server's tool of the same name.
                offers.setdefault(name, Offer(tool=each, node=title))
        return offers

    def as_tool(
        self,
        *,
        description: str,
        name: str | None = None,
        approve: Approve = False,
        requested_capability: str | None = None,
        approval_timeout: Duration | None = None,
        on_timeout: OnApprovalTimeout = "halt",
        decisions: Sequence[Decision] | None = None,
        preview: Callable[..., Any] | None = None,
        **terms: Unpack[TermsOptions],
    ) -> AgentTool:
        """Return this agent as a tool of another agent, with one argument: `task`, a text.

        Interrupts inside the agent open at the agent's own address. The calling model gets `description`.
        `approve` and the parameters after it work as in `@tool`; `preview` is an async function of a
        ToolContext and the arguments, a mapping with the `task`. There is no `remember`, because a task
        can say anything; approvals of the tools that the agent calls may be remembered.
        """
        if "remember" in terms:
            fault = (
                "remember= is not for agents, because a task says anything: declare it for the tools "
                "that the agent calls"
            )
            raise ToolDeclarationError(self.name if name is None else name, [fault])
        task_tool = tool(
            name=self.name if name is None else name,
            schema=_TASK,
            description=description,
            approve=approve,
            requested_capability=requested_capability,
            approval_timeout=approval_timeout,
            on_timeout=on_timeout,
            decisions=decisions,
            preview=preview,
            **terms,
        )(_never_called)
        return AgentTool(agent=self, tool=task_tool)


def _node_of(entry: Tool | AgentTool | ToolServer) -> str:
    """Return the name of the node that makes the calls."""
    if isinstance(entry, Tool | AgentTool):
        return entry.name
    # A host with a port, such as localhost:8000, is not a valid node name.
    name = _ILLEGAL_IN_NODE.sub("_", entry.title)
    starts_with_letter = name[:1].isalpha() or name.startswith("_")
    return (name if starts_with_letter else f"mcp_{name}")[:_MAX_NODE_CHARS]


def _model_fault(model: Any) -> str | None:
    match model:
        case str() if ":" in model or model == "test":
            return None
        case str():
            return (
                f"model={model!r} names no provider: write 'provider:model', such as 'openai:gpt-5'"
            )
        case _ if hasattr(model, "request"):
            return None
        case _ if callable(model):
            if not refuses(model, 2):
                return None
            return f"model={model!r} must take (messages, info) and return a ModelResponse"
        case _:
            return (
                f"model={model!r} is not a model: pass a name such as 'openai:gpt-5', a Model, or a "
                "function of (messages, info)"
            )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Offer:
    """A tool and the node of the agent's graph that runs its calls."""

    tool: Tool
    node: str

    @property
    def spec(self) -> ToolSpec:
        tool = self.tool
        return ToolSpec(name=tool.name, description=tool.description, parameters=tool.schema)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class AgentTool:
    """An agent that another agent may call."""

    agent: Agent
    tool: Tool

    @property
    def name(self) -> str:
        return self.tool.name


_TASK: Final[dict[str, Json]] = {
    "type": "object",
    "properties": {
        "task": {
            "type": "string",
            "description": "The task, with everything that the agent needs to know for it.",
        }
    },
    "required": ["task"],
    "additionalProperties": False,
}


def _never_called(context: object, arguments: Mapping[str, Json]) -> None:
    raise AssertionError(f"{context!r}: an agent is entered, not called, with {arguments!r}")
