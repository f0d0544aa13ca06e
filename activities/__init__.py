"""The work that a run wants done: imported only as `abeyance.activities`."""
