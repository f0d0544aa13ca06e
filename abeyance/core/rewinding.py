"""A run that was rewound: what tells it from the time that was discarded."""

from __future__ import annotations

from dataclasses import replace

from abeyance.core import ledger
from abeyance.core.state import RunState


def begin_era(run: RunState, era: str) -> None:
    """Renew the digests of what is open, so that an answer to what people were shown before is stale."""
    run.era = era
    for entry in list(run.ledger.open.values()):
        digest = ledger.digest_of(entry.address, entry, era)
        run.ledger.open[entry.id] = replace(entry, digest=digest)


def take_salt(run: RunState, salt: str) -> None:
    """Give what the run asks from now on ids that none of its questions has had."""
    run.salt = salt
