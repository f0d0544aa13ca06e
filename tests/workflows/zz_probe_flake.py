import asyncio, json
from pathlib import Path
from typing import Any
import pytest
from temporalio.client import Client as TemporalClient, WorkflowQueryFailedError
from temporalio.worker import Replayer
from abeyance import *
from abeyance import wire
exec(Path('/work/main/tests/workflows/test_handover.py').read_text().split('async def test_')[0].split('from __future__ import annotations')[1])

async def test_flake(temporal):
    graph = Graph("loop", state=State)
    @graph.node(local=True)
    async def work(state, ctx):
        return {"log": [f"{ctx.answers['more']}"]}
    graph.interrupt("more", prompt="Go on?")
    graph.edge(START, "more"); graph.edge("more", "work")
    graph.route("work", lambda s: END if len(s.log) == 8 else "more", to=["more", END])
    site = Site(temporal, graph, patience=30)
    async with site.worker():
        run_id = await site.start(limits=SMALL)
        async def answer_all():
            for number in range(8):
                view = await site.until(run_id, "awaiting-input", "paused")
                while not view.interrupts:
                    view = await site.client.view(run_id)
                await site.client.respond(run_id, {view.interrupts[0].id: number}, principal=ANYBODY)
        async def disturb():
            for number in range(10):
                try:
                    await site.client.pause(run_id)
                    await site.client.resume(run_id)
                    await site.client.send_message(run_id, wire.SteerMessage(message_id=f"m{number}", text="hello"))
                except Refusal: return
        try:
            await asyncio.gather(answer_all(), disturb(), return_exceptions=False)
            await site.ended(run_id)
        except Exception as e:
            print("FAILED", repr(e)[:200])
        desc = await temporal.get_workflow_handle(run_id).describe()
        rid = desc.run_id
        n=0
        from temporalio.api.enums.v1 import EventType
        while rid and n<40:
            h = await temporal.get_workflow_handle(run_id, run_id=rid).fetch_history()
            from abeyance.workflows.run import AgentRun
            from abeyance.converter import data_converter
            from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner, SandboxRestrictions
            res = await Replayer(workflows=[AgentRun], data_converter=data_converter(), workflow_runner=SandboxedWorkflowRunner(restrictions=SandboxRestrictions.default.with_passthrough_all_modules())).replay_workflow(h, raise_on_replay_failure=False)
            print(n, rid, len(h.events), 'REPLAY', repr(res.replay_failure)[:150])
            if res.replay_failure:
                for ev in h.events: print('   ', ev.event_id, EventType.Name(ev.event_type)[11:], ev.workflow_task_started_event_attributes.history_size_bytes or '')
                Path(f'/tmp/hist_{n}.json').write_text(h.to_json())
            rid = h.events[0].workflow_execution_started_event_attributes.continued_execution_run_id; n+=1
