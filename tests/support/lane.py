"""The distribution of the tests over xdist's processes."""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from pathlib import PurePosixPath
from typing import Final

from xdist.scheduler import LoadFileScheduling
from xdist.workermanage import WorkerController

_TOGETHER: Final = ("tests/adapters", "tests/cli")
"""Folders whose tests share a slow start: the imports of frameworks, or a whole development stack."""


class Lane(LoadFileScheduling):  # type: ignore[misc] # it has no types
    """Keeps a file in one process, and also a folder whose tests share a slow start.

    Some folders compute, and others wait for servers. The files of each folder are spread over the whole
    session, so that some tests compute while others wait.
    """

    workqueue: OrderedDict[str, dict[str, bool]]
    _is_spread = False

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        folder = _folder(file)
        return folder if folder in _TOGETHER else file

    def _assign_work_unit(self, node: WorkerController) -> None:
        if not self._is_spread:
            self._is_spread = True
            work = self.workqueue
            self.workqueue = OrderedDict((scope, work[scope]) for scope in spread([*work]))
        super()._assign_work_unit(node)


def spread(scopes: list[str]) -> list[str]:
    """Order files so that those of each folder, in their order, are spread evenly over the session."""
    folders = defaultdict(list)
    for scope in scopes:
        folders[_folder(scope)].append(scope)
    places = {
        scope: number / len(files)
        for files in folders.values()
        for number, scope in enumerate(files)
    }
    return sorted(scopes, key=places.__getitem__)


def _folder(scope: str) -> str:
    return scope if scope in _TOGETHER else str(PurePosixPath(scope).parent)
