"""The demo's children get ports of their own."""

from __future__ import annotations

import random
import socket
from pathlib import Path

import pytest

from agent_scheduler.demo.processes import ProcessError, free_port

EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")


def test_a_free_port_is_none_that_an_outgoing_connection_may_be_given() -> None:
    lowest = int(EPHEMERAL.read_text().split()[0]) if EPHEMERAL.exists() else 49152
    assert free_port() < max(lowest, 32768)


def test_a_port_that_is_taken_is_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port, free = taken.getsockname()[1], free_port()
        monkeypatch.setattr(random, "sample", lambda *_: [port, free])
        assert free_port() == free
        monkeypatch.setattr(random, "sample", lambda *_: [port])
        with pytest.raises(ProcessError, match="all are taken"):
            free_port()
