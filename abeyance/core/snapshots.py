"""Migrate, retry and fork: a run taken apart, and put together for another graph, a second try, or a copy.

All three take a whole run and return a whole run; they emit no effects. Give the result to `advance` with
`Restored`, which starts what can start. What they publish is numbered, but reported by the event that
carries them out (`Migrated`), or by `Restored` (`run.retried`, `run.forked`).
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from abeyance.core.json import Json
from abeyance.core.policy import Principal
from abeyance.core.spec import GraphSpec
from abeyance.core.state import RunState


def migrated(
    state: RunState,
    spec: GraphSpec,
    *,
    patch: Mapping[str, Json],
    renames: Mapping[str, str],
    now: datetime,
) -> RunState:
    """Return the run in another version of its graph.

    `renames` maps names of nodes of the run's graph, nested ones as `outer.inner`, to those in `spec`; what
    is not named keeps its name. `patch` sets fields of the values. A graph that is equal, without a patch,
    changes nothing.

    Raises the Refusal `cannot_migrate` if anything has no place in `spec`. Its detail `obstacles` lists all
    of it, each as `{"what", "name", "why", "remedy"}`, with an `address` if there is one.
    """
    raise NotImplementedError


def retried(
    state: RunState,
    *,
    now: datetime,
    principal: Principal,
    spec: GraphSpec | None = None,
    patch: Mapping[str, Json],
    renames: Mapping[str, str],
) -> RunState:
    """Return a run that failed, was halted or was cancelled, open again at the point where it ended.

    Finished visits, answers, messages and counters are kept. The visits that were open run again, with
    their journals, and open questions are open under their ids, with deadlines moved by the time that the
    run was over. `spec`, `patch` and `renames` are those of `migrated`; `spec` None keeps the graph.

    Raises the Refusal `not_running` if the run is open, `run_finished` if it completed,
    `capability_required` if the principal may not, and `cannot_migrate` as `migrated` does.
    """
    raise NotImplementedError


def forked(
    state: RunState,
    *,
    run_id: str,
    salt: str,
    back: int,
    now: datetime,
    principal: Principal,
) -> RunState:
    """Return a new, open run with the past of another, which may be open or over and stays as it is.

    `back` is how many finished visits of the branch that moved last are undone. Visits that were running
    start again, with their journals; open questions are asked under ids of the new run, with deadlines that
    begin anew; answers to gates whose effects lie ahead are not carried over. Messages stay with the
    original.

    Raises the Refusal `no_such_past` if `back` is larger than the trail; its detail `most` is how far back is
    possible. Raises `capability_required` if the principal may not.
    """
    raise NotImplementedError
