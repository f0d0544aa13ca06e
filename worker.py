"""Start a worker from the checkout: `python worker.py`."""

import sys
from pathlib import Path

# Python puts a script's folder first on sys.path. From there our folders `workflows`, `activities`
# and `api` would hide packages of the same names that a graph's nodes import, for example that of
# llama-index-workflows. The installed `abeyance` reaches them through its links: the entry can go.
ROOT = Path(__file__).resolve().parent
sys.path[:] = [entry for entry in sys.path if Path(entry).resolve() != ROOT]

from abeyance.worker import main  # noqa: E402  (only after the entry is gone)

if __name__ == "__main__":
    main()
