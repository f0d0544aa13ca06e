"""Messages: admission, delivery to a visit, and reports of those that no visit read.

A message is for the visit that its `target` names, by address or by node; without a target for the
first reader. A visit reads at its start if its function takes an `inbox`, or asks while it runs. The
messages that a visit has taken belong to it: a retry gets the same ones. Those that its code never
received go back into the mailbox when it ends. An `action` is data for the code that reads it.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from typing import Final

from abeyance.core import items
from abeyance.core.address import Address
from abeyance.core.events import Message, MessagesCleared, MessageSent, MessagesTaken
from abeyance.core.json import Json, size, why_not_json
from abeyance.core.mailbox import PREVIEW_CHARS, UndeliveredReason, preview
from abeyance.core.outcome import Finished
from abeyance.core.spec import GraphSpec, SubgraphNode
from abeyance.core.state import Limits, RunState
from abeyance.core.step import Step
from abeyance.core.text import LONGEST_ID, truncate
from abeyance.core.visit import NO_MOMENT, Inbox, Running, Visit
from abeyance.errors import Code, Refusal

# Only a host and perhaps a port, so that no later parser can read another host from the url.
_HTTPS: Final = re.compile(r"https://(?P<host>[A-Za-z0-9.-]+(:[0-9]{1,5})?)([/?#][!-~]*)?")

_AUDITED: Final = ("text", "parts", "metadata", "action", "params", "target")
_MOST_AUDITED: Final = 10_000
"""In bytes. For a larger rejected message the audit keeps only the beginning of its text."""
_BEGINNING: Final = 1_000


def refuse(state: RunState, message: Message) -> None:
    """Refuse a message that may not be admitted."""
    _refuse_malformed(state, message)
    if state.mailbox.knows(message):
        return
    if state.ending is not None:
        raise Refusal(
            Code.NOT_RUNNING,
            f"The run is {state.status} and reads no more messages.",
            run_status=str(state.status),
        )
    refuse_unknown_target(state.spec, message)
    state.mailbox.refuse_if_full(state.limits.max_queue_size, message)


def sent(step: Step, event: MessageSent) -> None:
    """Admit a message; a signalled one that is refused is recorded as rejected."""
    message = replace(event.message, sent_at=event.now)
    try:
        if event.fault is not None:
            raise _invalid(message, event.fault)
        refuse(step.run, message)
    except Refusal as refusal:
        _reject(step, message, refusal)
        return
    if step.run.mailbox.knows(message):
        return
    box = step.run.mailbox = step.run.mailbox.with_message(message)
    step.run.last_activity_at = event.now
    items.forget_all_counts(step)
    counters = step.run.counters
    counters.messages_queued += 1
    counters.max_queue_depth = max(counters.max_queue_depth, len(box.queue))
    step.publish(
        "message.queued",
        actor=message.sender,
        audit=_audited(message),
        message_id=message.message_id,
        queue_depth=len(box.queue),
    )


def _reject(step: Step, message: Message, refusal: Refusal) -> None:
    code = str(refusal.code)
    step.run.mailbox = step.run.mailbox.with_rejected(message, code)
    step.publish(
        "message.rejected",
        actor=message.sender,
        audit=_audited(message, most=_MOST_AUDITED),
        message_id=message.message_id,
        code=code,
        reason=refusal.message,
    )


def _audited(message: Message, *, most: int | None = None) -> Mapping[str, Json] | None:
    said: Json = {name: value for name in _AUDITED if (value := getattr(message, name))}
    if most is not None and size(said) > most:
        said = {"text": truncate(message.text, _BEGINNING)}
    return {"message": said} if said else None


def for_visit(state: RunState, visit: Visit) -> Iterator[Message]:
    """Yield the unread messages that a visit may take, in reading order."""
    names = _names(state, visit)
    for message in state.mailbox.queue:
        if (
            message.target is None
            or message.target in names
            or _is_turn(state, message.target, visit)
        ):
            yield message


def _is_turn(state: RunState, target: str, visit: Visit) -> bool:
    """Return whether the target is another turn of the same agent, which means any later turn."""
    if not state.scopes[visit.scope].is_agent:
        return False
    first = f"{visit.scope};node:{visit.node}"
    return target == first or target.startswith(f"{first}:")


def _names(state: RunState, visit: Visit) -> set[str]:
    names = {visit.address, visit.node, visit.scope}
    scope = state.scopes[visit.scope]
    around = scope.visit
    if around is not None and scope.is_agent:
        # The target may be the agent or its node.
        names |= {around, state.visits[around].node, state.graph_of(visit.scope).name}
    return names


def read_at_start(step: Step, visit: Visit) -> None:
    """Deliver the messages for a visit that starts for the first time and has an inbox."""
    visit.inbox = Inbox(delivered=tuple(for_visit(step.run, visit)))
    _deliver(step, visit, visit.inbox.delivered)


def taken(step: Step, event: MessagesTaken) -> None:
    """Deliver messages that a running visit asks for."""
    visit = step.run.visits.get(event.visit)
    if visit is None or not isinstance(visit.state, Running):
        return
    count = max(0, event.upto - len(visit.inbox.taken))
    batch = tuple(for_visit(step.run, visit))[:count]
    if batch:
        visit.inbox = replace(visit.inbox, taken=(*visit.inbox.taken, *batch))
        _deliver(step, visit, batch)


def give_back(step: Step, visit: Visit, finished: Finished) -> None:
    """Put back messages that a visit has taken and its code has not read.

    The reply may have been lost: the attempt that asked died, and the one that finished did not ask.
    """
    inbox = visit.inbox
    read_count = (
        len(inbox.taken)
        if finished.messages_read is None
        else max(finished.messages_read, inbox.read_count)
    )
    # If its code runs again, it has to ask for the others anew.
    visit.inbox = replace(inbox, taken=inbox.taken[:read_count], read_count=read_count)
    if unread := inbox.taken[read_count:]:
        # A moment with fewer messages may be equal to an earlier one, of other values.
        shown_at = dict.fromkeys(visit.questions.shown_at, NO_MOMENT)
        visit.questions = replace(visit.questions, shown_at=shown_at)
        step.run.mailbox = step.run.mailbox.with_returned(unread)
        _returned(step, visit, unread)


def _returned(step: Step, visit: Visit, unread: tuple[Message, ...]) -> None:
    step.run.counters.messages_delivered -= len(unread)
    for message in unread:
        step.publish("message.returned", visit.address, message_id=message.message_id)


def unread(state: RunState, now: datetime) -> int:
    """Return the number of messages that can be read now; some may expire in this very moment."""
    return len(state.mailbox.queue) - len(state.mailbox.expired(now))


def cleared(step: Step, event: MessagesCleared) -> None:
    """Discard the unread messages."""
    unread = step.run.mailbox.queue
    if unread:
        report(step, unread, "cleared")
        step.run.last_activity_at = event.now
        step.publish("messages.cleared", actor=event.actor, count=len(unread))


def _deliver(step: Step, visit: Visit, messages: tuple[Message, ...]) -> None:
    if not messages:
        return
    step.run.mailbox = step.run.mailbox.without(messages)
    step.run.last_activity_at = step.now
    step.run.counters.messages_delivered += len(messages)
    for message in messages:
        step.publish("message.delivered", visit.address, message_id=message.message_id)


def report(step: Step, messages: tuple[Message, ...], reason: UndeliveredReason) -> None:
    """List messages as undelivered."""
    for message in messages:
        step.publish("message.undelivered", message_id=message.message_id, reason=reason)
    step.run.mailbox = step.run.mailbox.reporting(messages, reason)


def report_unread(step: Step, visit: Visit, reason: UndeliveredReason) -> None:
    """Report the messages delivered at the start of a visit whose code will never begin."""
    unread = visit.inbox.delivered
    if unread and visit.activations == 1:
        _returned(step, visit, unread)
        report(step, unread, reason)


def expire(step: Step) -> None:
    """Report the messages that have expired."""
    if old := step.run.mailbox.expired(step.now):
        report(step, old, "expired")


def refuse_empty(message: Message) -> None:
    """Raise the Refusal of a message that no run admits. A caller can check it without the run."""
    length = len(message.message_id.encode(errors="replace"))
    if not 0 < length <= LONGEST_ID:
        raise _invalid(
            message,
            f"A message id has 1 to {LONGEST_ID} bytes, and this one has {length}. Leave it out to have "
            "one made.",
        )
    if not message.text.strip() and not message.parts and message.action is None:
        raise _invalid(
            message, "The message is empty: give it a text that is more than spaces, or parts."
        )


def _refuse_malformed(state: RunState, message: Message) -> None:
    refuse_empty(message)
    limits, text = state.limits, message.text
    if len(text) > limits.max_message_length:
        raise _invalid(
            message,
            f"The message has {len(text)} characters, and max_message_length allows "
            f"{limits.max_message_length}. Shorten it, send it in parts, or put a reference to a "
            f"longer text into it. It begins: {preview(message)!r}",
            limit=limits.max_message_length,
            actual=len(text),
        )
    _refuse_metadata(limits, message)
    _refuse_foreign_media(state, message)
    allowed = limits.allowed_actions
    if message.action is not None and allowed and message.action not in allowed:
        raise Refusal(
            Code.ACTION_NOT_ALLOWED,
            f"The action {message.action!r} is not allowed in this run; allowed are "
            f"{', '.join(map(repr, allowed))}.",
            message_id=message.message_id,
            allowed_actions=list(allowed),
        )


def _refuse_metadata(limits: Limits, message: Message) -> None:
    for what, value in (
        ("metadata", message.metadata),
        ("params", message.params),
        ("parts", list(message.parts)),
    ):
        if (fault := why_not_json(value)) is not None:
            raise _invalid(
                message, f"The {what} of the message cannot be written as JSON: {fault}."
            )
    carried = size(message.metadata)
    carried += sum(size(value) for value in (message.params, list(message.parts)) if value)
    if carried > limits.max_metadata_size:
        raise _invalid(
            message,
            f"The metadata of the message, with its parts and parameters, takes {carried} bytes of "
            f"JSON, and max_metadata_size allows {limits.max_metadata_size}. Put what is large "
            f"elsewhere, and a reference to it into the message. Its text begins: {preview(message)!r}",
            limit=limits.max_metadata_size,
            actual=carried,
        )


def refuse_unknown_target(spec: GraphSpec, message: Message) -> None:
    """Raise the Refusal of a message whose target is neither in the graph nor an address in it."""
    target = message.target
    if target is None or target in _nodes(spec):
        return
    try:
        last = Address.parse(target).segments[-1]
    except ValueError:
        pass
    else:
        if f"{target};".startswith(f"graph:{spec.name};") and last.id in _every_name(spec):
            return
    raise Refusal(
        Code.UNKNOWN_NODE,
        f"The message is for {target!r}, which is neither a node of {spec.name!r} nor an address "
        f"in it. There are the nodes {', '.join(map(repr, sorted(_nodes(spec))))}.",
        message_id=message.message_id,
    )


def _every_name(spec: GraphSpec) -> frozenset[str]:
    inner = [node.graph for node in spec.nodes.values() if isinstance(node, SubgraphNode)]
    return frozenset({spec.name, *spec.nodes}).union(*map(_every_name, inner))


def _refuse_foreign_media(state: RunState, message: Message) -> None:
    hosts = state.limits.allowed_media_hosts
    for url in (part["url"] for part in message.parts if part.get("url") is not None):
        if not is_allowed_media(str(url), hosts):
            raise _invalid(
                message,
                f"The url {truncate(str(url), PREVIEW_CHARS)!r} is not an https address on a host of "
                f"allowed_media_hosts, which has {', '.join(hosts) or 'none'}. Send the media itself "
                "as `data`, or have the host allowed.",
            )


def _nodes(spec: GraphSpec) -> set[str]:
    """Return the names of all nodes and agents, nested ones too."""
    inner = [node for node in spec.nodes.values() if isinstance(node, SubgraphNode)]
    agents = {node.graph.name for node in inner if node.agent}
    return {*spec.nodes, *agents}.union(*(_nodes(node.graph) for node in inner))


def _invalid(message: Message, text: str, **details: int) -> Refusal:
    return Refusal(Code.INVALID_MESSAGE, text, message_id=message.message_id, **details)


def is_allowed_media(url: str, hosts: Container[str]) -> bool:
    """Return whether a media url may be passed to a model: https, and on one of these hosts."""
    match = _HTTPS.fullmatch(url)
    return match is not None and match["host"].lower().removesuffix(":443") in hosts
