"""A run that was rewound: what tells it from the time that was discarded."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime

from abeyance.core import deadlines, ledger
from abeyance.core.state import RunState


def begin_era(run: RunState, era: str, now: datetime) -> None:
    """Renew the digests of what is open, so that an answer to what people were shown before is stale.

    Open questions have the time that they had left: else one beside could expire now, and end the run.
    """
    run.era = era
    for entry in list(run.ledger.open.values()):
        digest = ledger.digest_of(entry.address, entry, era)
        again = replace(entry, digest=digest)
        if entry.held is None:
            again = deadlines.with_time_left(again, run.updated_at, now)
        run.ledger.open[entry.id] = again


def take_salt(run: RunState, salt: str) -> None:
    """Give what the run asks from now on ids that none of its questions has had."""
    run.salt = salt
