"""How a run goes on in a new history, when the one that it has is long."""

from __future__ import annotations

from temporalio import workflow

with workflow.unsafe.imports_passed_through():
    from abeyance import wire
    from abeyance.core import snapshot
    from abeyance.core.state import RunState


def hand_over(state: RunState, start: wire.StartRun, used: tuple[str, ...]) -> None:
    """Continue as new. Returns only if the run is too large for that as it is.

    `used` are the nonces of the last orders.
    Temporal takes what a visit may be given, and no more: otherwise the task would fail again and again,
    and nobody could reach the run.
    """
    carry, graph, by_scope = snapshot.parted(state)
    # The moment, not a count: after a reset, too, it is larger than any before.
    moment = int(workflow.now().timestamp() * 1_000_000)
    generation = max(moment, start.generation + 1)
    news = {"generation": generation, "used": used}
    arguments = [start.model_copy(update=news), graph, by_scope, carry]
    payloads = workflow.payload_converter().to_payloads(arguments)
    carried = sum(payload.ByteSize() for payload in payloads)
    if carried > state.limits.visit_bytes:
        workflow.logger.warning(
            "bytes=%d most=%d | the history is long, and the run is too large to be handed over",
            carried,
            state.limits.visit_bytes,
        )
        return
    # A new history has the memo that the run was started with, unless it is given another.
    memo = {key: value for key, value in workflow.memo().items() if key != wire.MEMO_FACTS}
    workflow.continue_as_new(args=arguments, memo=memo)
