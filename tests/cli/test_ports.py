"""The ports that a stack takes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from abeyance import SettingsError
from abeyance.dev.ports import CLOSED_TO_BROWSERS, closed_to_browsers, free_ports

HOST = "127.0.0.1"


def test_ports_that_are_chosen_differ_and_are_none_that_the_system_lends_to_others() -> None:
    lent = Path("/proc/sys/net/ipv4/ip_local_port_range")
    first = int(lent.read_text().split()[0]) if lent.exists() else 32_768

    found = free_ports(HOST, dict.fromkeys(map(str, range(100)), 0))

    assert len({*found.values()}) == 100
    assert max(found.values()) < first


def test_a_port_that_somebody_named_is_kept_and_no_other_is_put_on_it() -> None:
    (named,) = free_ports(HOST, {"--port": 0}).values()

    found = free_ports(HOST, {"--other": 0, "--port": named})

    assert found["--port"] == named
    assert found["--other"] != named


def test_a_port_that_is_in_use_is_refused_with_the_option_that_names_it() -> None:
    with socket.create_server((HOST, 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(
            SettingsError, match=rf"the port {port} .* choose another port with --port"
        ):
            free_ports(HOST, {"--port": port})


def test_ports_that_are_closed_to_browsers_belong_to_one_stack_until_it_ends() -> None:
    with closed_to_browsers(HOST, 2) as ours:
        with closed_to_browsers(HOST, 3) as theirs:
            assert len({*ours, *theirs}) == 5
            assert {*ours, *theirs} <= {*CLOSED_TO_BROWSERS}
        with closed_to_browsers(HOST, 3) as others:
            assert {*others}.isdisjoint(ours)


def test_too_few_free_ports_are_listed() -> None:
    with (
        pytest.raises(SettingsError, match=r"are free: stop another stack, .* 6669, "),
        closed_to_browsers(HOST, len(CLOSED_TO_BROWSERS) + 1),
    ):
        pytest.fail("there are not so many")


def test_a_port_in_use_is_skipped() -> None:
    with closed_to_browsers(HOST, 1) as (first,):
        pass
    with (
        socket.create_server((HOST, first)),
        closed_to_browsers(HOST, 1) as (second,),
    ):
        assert second != first
