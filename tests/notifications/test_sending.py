"""One attempt to deliver a notification to a receiver."""

from __future__ import annotations

import asyncio
import ipaddress
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from receiver import SECRET_ENV, Receiver, hook, receiver, rules
from sample_moments import moment

from abeyance.contrib.people import webhook
from abeyance.contrib.people.sending import Sender, mail_url
from abeyance.contrib.people.webhook import is_public, post
from abeyance.notifications.config import Notifications, Webhook
from abeyance.notifications.matching import receivers
from abeyance.notifications.notifier import NotDelivered


async def refused(url: str, **options: Any) -> NotDelivered:
    target = Webhook.model_validate(hook(url, **options))
    with pytest.raises(NotDelivered) as raised:
        await post(target, b"{}", id_="msg_1")
    return raised.value


@pytest.mark.parametrize(
    ("status", "is_final"),
    [
        *((status, True) for status in (301, 404)),
        *((status, False) for status in (408, 425, 429, 500)),
    ],
)
async def test_a_status_says_whether_another_attempt_would_help(
    status: int, is_final: bool
) -> None:
    async with receiver([status]) as made:
        error = await refused(f"{made.url}/hook")

    assert error.final is is_final
    assert str(error).startswith(f"the receiver answered {status}")
    assert len(made.received) == 1


@pytest.mark.parametrize(
    ("header", "seconds"),
    [
        *(("60", 60), ("0", None), ("", None), ("soon", None), ("-5", None), ("999999999", 3_600)),
        ("Mon, 02 Mar 2026 09:01:00 GMT", 60),
        ("Mon, 02 Mar 2026 08:00:00 GMT", None),
        ("Tue, 03 Mar 2026 09:00:00 GMT", 3_600),
    ],
)
def test_a_receiver_names_the_pause_until_the_next_attempt(
    header: str, seconds: int | None
) -> None:
    pause = webhook.pause_of(header, now=datetime(2026, 3, 2, 9, tzinfo=UTC))

    assert pause == (None if seconds is None else timedelta(seconds=seconds))


async def test_the_pause_counts_for_a_failure_that_is_not_final() -> None:
    async with receiver([503, 404], headers=["Retry-After: 60"]) as made:
        busy, gone = await refused(f"{made.url}/hook"), await refused(f"{made.url}/hook")

    assert (busy.retry_after, gone.retry_after) == (timedelta(seconds=60), None)


async def test_success_is_any_status_of_the_two_hundreds(hooked: Receiver) -> None:
    hooked.statuses += [200, 202, 204]
    for _ in range(3):
        await post(Webhook.model_validate(hook(hooked.url)), b"{}", id_="msg_1")

    assert [each.headers["content-type"] for each in hooked.received] == ["application/json"] * 3


async def test_a_receiver_that_says_nothing_is_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(webhook, "SECONDS", 0.2)
    async with receiver([None]) as silent:
        error = await refused(silent.url)

    assert (error.final, str(error)) == (False, "there was no answer within 0.2 s")


async def test_a_receiver_that_is_away_is_tried_again() -> None:
    async with receiver() as gone:
        pass
    error = await refused(gone.url)

    assert not error.final


async def test_a_name_without_an_address_is_tried_again() -> None:
    error = await refused("https://nowhere.invalid/hook")

    assert (error.final, str(error).partition(":")[0]) == (
        False,
        "the host 'nowhere.invalid' has no address",
    )


async def test_a_secret_that_is_gone_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SECRET_ENV)
    error = await refused("https://127.0.0.1")

    assert str(error) == f"the environment variable {SECRET_ENV} is not set"


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "[::1]", "[::ffff:127.0.0.1]", "0"])
async def test_a_private_address_is_refused_unless_that_is_meant(
    host: str, hooked: Receiver
) -> None:
    port = hooked.url.rpartition(":")[2]
    error = await refused(f"http://{host}:{port}/", allow_private=False)

    assert error.final
    assert "not on the public internet: add 'allow_private: true'" in str(error)
    assert not hooked.received


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("93.184.215.14", True),
        ("2606:2800:21f:cb07:6820:80da:af6b:8b2c", True),
        ("64:ff9b::5db8:d70e", True),
        ("10.0.0.1", False),
        ("172.16.0.1", False),
        ("192.168.1.1", False),
        ("100.64.0.1", False),
        ("169.254.169.254", False),
        ("127.0.0.1", False),
        ("224.0.0.1", False),
        ("239.1.2.3", False),
        ("255.255.255.255", False),
        ("::", False),
        ("::1", False),
        ("fe80::1", False),
        ("fd00::1", False),
        ("ff02::1", False),
        ("::ffff:10.0.0.1", False),
        ("64:ff9b::7f00:1", False),
        ("2002:7f00:1::", False),
        ("::7f00:1", False),
        ("64:ff9b:1::7f00:1", False),
        ("fec0::1", False),
        ("2002:a9fe:a9fe::", False),
    ],
)
def test_an_address_is_public_if_it_leads_to_the_internet_alone(
    address: str, expected: bool
) -> None:
    assert is_public(ipaddress.ip_address(address)) is expected


async def test_the_name_is_sent_though_the_address_is_connected_to(hooked: Receiver) -> None:
    port = hooked.url.rpartition(":")[2]
    await post(Webhook.model_validate(hook(f"http://localhost:{port}/x?y=1")), b"{}", id_="msg_1")

    (received,) = hooked.received
    assert (received.path, received.headers["host"]) == ("/x?y=1", f"localhost:{port}")


async def sent(file: Notifications, **fields: Any) -> None:
    given = moment(**fields)
    for each in receivers(file, given).found:
        await Sender(file, base="http://127.0.0.1:8000").send(given, each, notification="n")


async def test_apprise_gets_title_text_and_link(hooked: Receiver) -> None:
    url = hooked.url.replace("http", "json", 1)
    await sent(rules(({"event": "*"}, [{"apprise": f"{url}/chat"}])))

    (received,) = hooked.posts("/chat")
    assert received.json["title"] == "refund asks: approve"
    assert received.json["message"].endswith("http://127.0.0.1:8000/inbox#r.0123456789abcdef")


async def test_apprise_says_that_it_could_not(hooked: Receiver) -> None:
    hooked.statuses.append(500)
    url = hooked.url.replace("http", "json", 1)
    with pytest.raises(NotDelivered, match="apprise could not send it") as raised:
        await sent(rules(({"event": "*"}, [{"apprise": url}])))

    assert not raised.value.final


@asynccontextmanager
async def mail_server() -> AsyncIterator[tuple[int, list[str]]]:
    """Yield the port of a mail server on 127.0.0.1, and the lines that it has received."""
    lines: list[str] = []

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 here\r\n")
        while line := (await reader.readline()).decode().rstrip("\r\n"):
            lines.append(line)
            if line.upper() == "DATA":
                writer.write(b"354 go on\r\n")
                lines.extend((await reader.readuntil(b"\r\n.\r\n")).decode().split("\r\n"))
            writer.write(b"250 ok\r\n")
            if line.upper() == "QUIT":
                break
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield server.sockets[0].getsockname()[1], lines
    finally:
        server.close()


async def test_mail_goes_to_the_person_from_the_address_of_the_file(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with mail_server() as (port, lines):
        monkeypatch.setenv("SMTP_URL", f"smtp://127.0.0.1:{port}")
        file = rules(
            ({"event": "*"}, [{"assignees": "mail"}]),
            mail={"url_env": "SMTP_URL", "from": "abeyance@example.com"},
            people={"ada": {"mail": "ada@example.com"}},
        )
        await sent(file, question={"assignees": ["ada"], "prompt": "Pay <b>3</b>?"})

    told = "\n".join(lines)
    assert "rcpt to:<ada@example.com>" in told.lower()
    assert "mail from:<abeyance@example.com>" in told.lower()
    assert "Subject: refund asks: approve" in told
    # The mail is plain text, so that a prompt cannot be markup there.
    assert "Content-Type: text/plain" in told
    assert "text/html" not in told


@pytest.mark.parametrize(
    ("server", "url"),
    [
        ("mailto://mail", "mailto://mail?from=a%40x&to=b%40y"),
        ("smtp://u:p@mail:25", "mailto://u:p@mail:25?from=a%40x&to=b%40y"),
        ("smtps://u:p@mail", "mailtos://u:p@mail?mode=ssl&from=a%40x&to=b%40y"),
        ("mailtos://mail?mode=starttls&to=c", "mailtos://mail?mode=starttls&from=a%40x&to=b%40y"),
    ],
)
def test_the_server_of_mail_may_be_written_as_people_know_it(server: str, url: str) -> None:
    assert mail_url(server, "a@x", "b@y") == url
