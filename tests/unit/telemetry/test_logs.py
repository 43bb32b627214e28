"""Log lines: their form, their levels, and what never gets into them."""

from __future__ import annotations

import io
import logging
import subprocess
import sys

import orjson
import pytest

from agent_scheduler.telemetry import logs
from tests.plugin import LostErrors


def start(level: logs.LogLevel = "info", log_format: logs.LogFormat = "json") -> io.BytesIO:
    out = io.BytesIO()
    logs.setup(level=level, log_format=log_format, stream=out)
    return out


def test_a_line_is_one_json_object_with_utc_time_level_and_logger() -> None:
    out = start()
    logs.get_logger("queue").info("woken", pods=3, text="a\nb")
    (raw,) = out.getvalue().splitlines()
    line = orjson.loads(raw)
    assert line.pop("time").endswith("Z")
    assert line == {"event": "woken", "level": "info", "logger": "queue", "pods": 3, "text": "a\nb"}


CHANGES = """
import logging
import structlog
from agent_scheduler.telemetry import logs

logs.setup(level="warning")
log = logs.get_logger("x")
plugin = structlog.get_logger("plugin").bind(a=1)
log.warning("one")
log.info("two")
plugin.info("two")
logs.set_level("debug")
log.debug("three")
plugin.debug("three of a plugin")
logging.getLogger("aiohttp.access").info("four")
logs.set_level("error")
log.warning("five")
log.error("six")
logging.getLogger("aiohttp.access").warning("seven")
"""


def test_the_level_can_be_changed_for_loggers_in_use_of_every_package() -> None:
    # In a process of its own: in this one loggers keep nothing from their first line on.
    run = subprocess.run([sys.executable, "-c", CHANGES], capture_output=True, check=True)
    told = [orjson.loads(line) for line in run.stderr.splitlines()]
    assert [line["event"] for line in told] == ["one", "three", "three of a plugin", "four", "six"]
    assert told[-1]["logger"] == "x"


def test_what_asyncio_reports_has_the_same_form(lost_errors: LostErrors) -> None:
    out = start()
    logging.getLogger("asyncio").error("task %s failed", "t1", exc_info=ValueError("boom"))
    assert len(lost_errors.take()) == 1
    line = orjson.loads(out.getvalue())
    assert (line["event"], line["logger"], line["level"]) == ("task t1 failed", "asyncio", "error")
    assert "ValueError: boom" in line["exception"]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_credentials_never_reach_a_line(log_format: logs.LogFormat) -> None:
    out = start(log_format=log_format)
    secret = "s3cr3t"
    log = logs.get_logger("x")
    log.info("a", token=secret, bearer=f"Bearer {secret}", user={"client-key-data": secret})
    log.info("b", headers=[{"Authorization": secret}], nested={"a": {"password": secret}})
    logging.getLogger("lib").warning("c", extra={"api_token": secret})
    try:
        held = secret  # a local of a frame in the traceback
        raise ValueError("refused")
    except ValueError:
        log.exception("d")
    assert held == secret
    assert secret not in out.getvalue().decode()
    assert out.getvalue().count(b"redacted") >= 6


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_credentials_are_found_by_their_looks_in_any_text(log_format: logs.LogFormat) -> None:
    out = start(log_format=log_format)
    log = logs.get_logger("x")
    log.info("cannot reach https://me:s3cr3t@proxy:3128/x", error="through //me:s3cr3t@proxy")
    log.info("sent Authorization: Basic bWU6czNjcjN0czNjcjN0", said=["bearer eyJhbGciOi.s3cr3t-s3cr3t"])
    try:
        raise ValueError("http://me:s3cr3t@proxy refused")
    except ValueError:
        log.exception("d")
    logging.getLogger("lib").warning("a@b is no secret, nor is the basic authentication of https://api/x@y")
    text = out.getvalue().decode()
    assert "s3cr3t" not in text and "czNjcjN0" not in text
    assert "proxy:3128/x" in text and "basic authentication of https://api/x@y" in text


def test_a_console_line_is_readable() -> None:
    out = start(log_format="console")
    logs.get_logger("queue").warning("woken", pods=3)
    text = out.getvalue().decode()
    assert "[warning" in text
    assert "woken [queue] pods=3" in text


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_texts_of_strangers_neither_add_lines_nor_control_a_terminal(log_format: logs.LogFormat) -> None:
    out = start(log_format=log_format)
    hostile = "a\x1b[2J\x9b1m\u202e\nb"
    logs.get_logger("x").warning("one", path=hostile, each=[hostile])
    logging.getLogger("lib").warning("two %s", hostile)
    lines = out.getvalue().decode().split("\n")
    assert len(lines) == 3
    assert all(line.isprintable() for line in lines)
    try:
        raise ValueError(hostile)
    except ValueError:
        logs.get_logger("x").exception("three")
    assert all(line.isprintable() for line in out.getvalue().decode().split("\n"))


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_a_text_of_a_user_does_not_make_a_line_of_any_length(log_format: logs.LogFormat) -> None:
    out = start(log_format=log_format)
    logs.get_logger("x").warning("malformed", error="\x1b" * 1_000_000)
    assert len(out.getvalue()) < 60_000
    assert b"... (1000000 characters)" in out.getvalue()


def test_repeating_lines_of_a_library_are_limited() -> None:
    out = start()
    for number in range(9):
        logging.getLogger("aiohttp.server").error("request %d", number, exc_info=ValueError("x"))
        logging.getLogger("aiohttp.server").warning("%s %s", "too few")  # noqa: PLE1206
    lines = [orjson.loads(line) for line in out.getvalue().splitlines() if line.startswith(b"{")]
    assert [line["event"] for line in lines] == ["request 0"]
    assert out.getvalue().count(b"\n") == 2


def test_values_that_json_does_not_know_are_written_as_text() -> None:
    out = start()
    logs.get_logger("x").info("a", where=logs, what={1: "a"}, broken="\ud800", large=2**70)
    line = orjson.loads(out.getvalue().replace(b"\\ud800", b"?").replace(b"1180591620717411303424", b"0"))
    assert (line["what"], line["broken"]) == ({"1": "a"}, "?")
    assert "module" in line["where"]
