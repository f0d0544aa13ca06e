"""`python -m abeyance`: the command line."""

import sys
from pathlib import Path

# `python -m` puts the current directory first on the import path. From there the folders `workflows`,
# `activities` and `api` of a checkout would hide packages of the same names that a graph imports.
# Graphs are still found in it: `load_graphs` looks there last.
if not sys.flags.safe_path and sys.path[0] == str(Path.cwd()):
    del sys.path[0]

from abeyance.cli.main import main

if __name__ == "__main__":
    main()
