"""Runs over Temporal: `Client` and its parts, and one run, `TemporalRun` (an `abeyance.RunHandle`).

The shells (API, workers) and programs import it, and it imports neither. Start reading in `client.py`;
`run.py` controls one run, `reader.py` reads one, and `rpc.py` makes the calls to Temporal.
"""

from abeyance.client.client import Client as Client
from abeyance.client.run import TemporalRun as TemporalRun

__all__ = ["Client", "TemporalRun"]
