"""Make `examples` importable.

The top of the checkout is on no import path, because `workflows`, `activities` and `api` would then be
importable too.
"""

import importlib.util
import sys
from pathlib import Path

FOLDER = Path(__file__).resolve().parents[2] / "examples"

if "examples" not in sys.modules:
    spec = importlib.util.spec_from_file_location(
        "examples", FOLDER / "__init__.py", submodule_search_locations=[str(FOLDER)]
    )
    assert spec is not None
    assert spec.loader is not None
    package = importlib.util.module_from_spec(spec)
    sys.modules["examples"] = package
    spec.loader.exec_module(package)
