"""Which ports a stack takes."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from abeyance import SettingsError
from abeyance.processes.claim import free_ports

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
        with pytest.raises(SettingsError, match=rf"the port {port} .* choose another with --port"):
            free_ports(HOST, {"--port": port})
