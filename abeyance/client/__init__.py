"""Runs over Temporal: `Client` and its parts, and one run, `TemporalRun` (an `abeyance.RunHandle`).

The shells (API, workers) and programs use it; it knows neither. Start reading in `client.py`; `run.py` is
what is done to one run, `reading.py` what is read of one, `line.py` the calls to Temporal underneath.
"""

from abeyance.client.client import Client as Client
from abeyance.client.run import TemporalRun as TemporalRun

__all__ = ["Client", "TemporalRun"]
