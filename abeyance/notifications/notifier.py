"""The deliverer of notices: a class with the methods of `Notifier`.

The entry point `people` of the group `abeyance.notifiers` names ours (`abeyance.contrib.people`).
"""

from __future__ import annotations

from datetime import timedelta
from typing import TYPE_CHECKING, Final, Protocol

from abeyance import extensions
from abeyance.notifications.moments import Moment, Receiver

if TYPE_CHECKING:
    from abeyance.notifications.config import Notifications

_OURS: Final = "people"


class NotDelivered(Exception):
    """An attempt failed. `final`: every further attempt would fail too. `retry_after`: the pause that
    the receiver asks for.
    """

    def __init__(
        self, reason: str, *, final: bool = False, retry_after: timedelta | None = None
    ) -> None:
        self.final = final
        self.retry_after = retry_after
        super().__init__(reason)


class Notifier(Protocol):
    """Sends the notices of one worker. `base` is the address at which people reach the API."""

    def __init__(self, file: Notifications, *, base: str) -> None: ...

    @staticmethod
    def missing() -> str | None:
        """Return the missing dependency and the fix; None if nothing is missing."""

    @staticmethod
    def understands(address: str) -> bool:
        """Return whether the service of an apprise address is known; True if apprise is not installed."""

    async def send(self, moment: Moment, receiver: Receiver, *, notification: str) -> None:
        """Make one attempt. `notification` is the id that all attempts share. Raises NotDelivered."""


def notifier() -> type[Notifier]:
    """Return the installed notifier. Raises SettingsError if there is none."""
    found: type[Notifier] = extensions.load(extensions.NOTIFIERS, _OURS)
    return found
