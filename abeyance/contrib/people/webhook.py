"""Posting to a webhook by Standard Webhooks 1.0, to addresses of the public internet unless allowed."""

from __future__ import annotations

import asyncio
import ipaddress
import os
import re
import socket
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from email.utils import parsedate_to_datetime
from functools import partial
from typing import Final, TypeAlias
from urllib.parse import urlsplit

import httpx

from abeyance.notifications.config import Webhook
from abeyance.notifications.notifier import NotDelivered

SECONDS: Final = 10.0
"""How long one attempt may take."""

_RETRIED: Final = frozenset({408, 425, 429})
"""Statuses below 500 after which a retry may succeed."""
_LONGEST_PAUSE: Final = timedelta(hours=1)
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
_NOT_PUBLIC: Final = tuple(
    ipaddress.IPv6Network(each) for each in ("::/96", "64:ff9b:1::/48", "fec0::/10")
)
"""IPv6 networks that Python takes for public: the old form of IPv4, and two that are local."""
_PORTS: Final = {"http": 80, "https": 443}
_CONTENT_TYPES: Final = {
    "standard": "application/json",
    "cloudevents": "application/cloudevents+json",
}

_RESOLVERS: Final = ThreadPoolExecutor(16, thread_name_prefix="resolver")
"""Separate threads, because a name server that does not answer must not hold up those of nodes."""

Address: TypeAlias = ipaddress.IPv4Address | ipaddress.IPv6Address


async def post(webhook: Webhook, body: bytes, *, id_: str) -> None:
    """Post a signed body. Raises NotDelivered unless the receiver confirms it."""
    secret = os.environ.get(webhook.secret_env)
    if not secret:
        raise NotDelivered(f"the environment variable {webhook.secret_env} is not set")
    address = await _checked_address(webhook)
    parts = urlsplit(webhook.webhook)
    host = f"[{address}]" if isinstance(address, ipaddress.IPv6Address) else str(address)
    # Connect to the checked address: the name could lead elsewhere a moment later.
    url = httpx.URL(webhook.webhook).copy_with(host=host)
    headers = {
        "Host": parts.netloc,
        "Content-Type": _CONTENT_TYPES[webhook.format],
        "User-Agent": "Abeyance",
        **signed_headers(secret, body, id_=id_, now=datetime.now(UTC)),
    }
    # A proxy of the environment or a redirect would bypass the check of the address.
    client = httpx.AsyncClient(trust_env=False, follow_redirects=False, timeout=SECONDS)
    try:
        async with asyncio.timeout(SECONDS), client:
            request = client.build_request(
                "POST",
                url,
                content=body,
                headers=headers,
                extensions={"sni_hostname": parts.hostname},
            )
            response = await client.send(request, stream=True)
            await response.aclose()
    except TimeoutError as error:
        raise NotDelivered(f"there was no answer within {SECONDS:g} s") from error
    except (httpx.HTTPError, OSError) as error:
        reason = f"the receiver was not reached: {type(error).__name__}: {error}"
        raise NotDelivered(reason) from error
    _check_status(response.status_code, response.headers.get("retry-after", ""))


def signed_headers(secret: str, body: bytes, *, id_: str, now: datetime) -> dict[str, str]:
    """Return the headers by which the receiver verifies a body."""
    from standardwebhooks import Webhook as Signer  # noqa: PLC0415  (optional, and only used here)

    return {
        "webhook-id": id_,
        "webhook-timestamp": str(int(now.timestamp())),
        "webhook-signature": Signer(secret).sign(id_, now, body.decode()),
    }


def _check_status(status: int, retry_after: str) -> None:
    if 200 <= status < 300:  # noqa: PLR2004  (success)
        return
    is_retried = status >= 500 or status in _RETRIED  # noqa: PLR2004  (the receiver's own fault)
    moved = "; redirects are not followed" if 300 <= status < 400 else ""  # noqa: PLR2004
    pause = pause_of(retry_after, now=datetime.now(UTC)) if is_retried else None
    raise NotDelivered(
        f"the receiver answered {status}{moved}", final=not is_retried, retry_after=pause
    )


def pause_of(retry_after: str, *, now: datetime) -> timedelta | None:
    """Return the pause that `Retry-After` asks for, at most an hour; None if it asks for none."""
    if re.fullmatch(r"[0-9]{1,9}", retry_after):
        pause = timedelta(seconds=int(retry_after))
    else:
        try:
            pause = parsedate_to_datetime(retry_after).astimezone(UTC) - now
        except (ValueError, OverflowError):
            return None
    return min(pause, _LONGEST_PAUSE) if pause > timedelta() else None


async def _checked_address(webhook: Webhook) -> Address:
    """Return the address to connect to. Raises NotDelivered if it must be public and is not."""
    parts = urlsplit(webhook.webhook)
    port = parts.port or _PORTS[parts.scheme]
    loop = asyncio.get_running_loop()
    look_up = partial(socket.getaddrinfo, parts.hostname, port, type=socket.SOCK_STREAM)
    try:
        async with asyncio.timeout(SECONDS):
            found = await loop.run_in_executor(_RESOLVERS, look_up)
    except (OSError, UnicodeError, TimeoutError) as error:
        raise NotDelivered(f"the host {parts.hostname!r} has no address: {error}") from error
    # A zone (fe80::1%eth0) belongs to this machine.
    addresses = [ipaddress.ip_address(str(each[4][0]).partition("%")[0]) for each in found]
    private = [each for each in addresses if not is_public(each)]
    if private and not webhook.allow_private:
        raise NotDelivered(
            f"the host {parts.hostname!r} has the address {private[0]}, which is not on the public "
            "internet: add 'allow_private: true' if that is meant",
            final=True,
        )
    return addresses[0]


def is_public(address: Address) -> bool:
    """Return whether an address is on the public internet, and does not embed an internal one."""
    if isinstance(address, ipaddress.IPv6Address):
        teredo = address.teredo
        inside = [address.ipv4_mapped, address.sixtofour, *(teredo or ())]
        if address in _NAT64:
            inside.append(ipaddress.IPv4Address(int(address) & 0xFFFF_FFFF))
        if any(each is not None and not is_public(each) for each in inside):
            return False
        if any(address in network for network in _NOT_PUBLIC):
            return False
    return address.is_global and not address.is_multicast
