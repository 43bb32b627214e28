from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from agent_scheduler.kube.credentials import CredentialsUnavailable, TokenFile
from tests.support.scripted import FakeTime


async def test_a_token_file_is_read_again_after_a_minute(tmp_path: Path) -> None:
    file, time = tmp_path / "token", FakeTime()
    file.write_text("one\n")
    source = TokenFile(file, clock=lambda: time.now)
    assert await source.headers() == {"Authorization": "Bearer one"}
    file.write_text("two\n")
    time.now += 59
    assert await source.headers() == {"Authorization": "Bearer one"}
    time.now += 2
    assert await source.headers() == {"Authorization": "Bearer two"}


async def test_a_refused_token_is_read_again_soon(tmp_path: Path) -> None:
    file, time = tmp_path / "token", FakeTime()
    file.write_text("one")
    source = TokenFile(file, clock=lambda: time.now)
    await source.headers()
    file.write_text("two")
    time.now += 6
    source.refused()
    assert await source.headers() == {"Authorization": "Bearer two"}


async def test_a_token_that_is_refused_by_every_answer_is_not_read_for_each(tmp_path: Path) -> None:
    file, time = tmp_path / "token", FakeTime()
    file.write_text("one")
    source = TokenFile(file, clock=lambda: time.now)
    await source.headers()
    file.write_text("two")
    time.now += 4
    source.refused()
    assert await source.headers() == {"Authorization": "Bearer one"}
    time.now += 1
    assert await source.headers() == {"Authorization": "Bearer two"}


async def test_a_token_file_that_vanished_leaves_the_last_token_in_use(tmp_path: Path) -> None:
    file, time = tmp_path / "token", FakeTime()
    file.write_text("one")
    source = TokenFile(file, clock=lambda: time.now)
    await source.headers()
    file.unlink()
    time.now += 100
    assert await source.headers() == {"Authorization": "Bearer one"}
    file.write_text("two")
    time.now += 100
    assert await source.headers() == {"Authorization": "Bearer two"}


@pytest.mark.parametrize("content", [None, "", " \n"])
async def test_a_token_file_without_a_token_means_no_credentials(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_text(content)
    with pytest.raises(CredentialsUnavailable, match=str(file)):
        await TokenFile(file).headers()


BAD = [b"", b" \n", b"two\nlines", b"nul\0", b"with blank", "schl\u00fcssel".encode(), b"\xff\xfe"]


@pytest.mark.parametrize("content", BAD)
async def test_a_token_file_that_is_spoiled_leaves_the_last_good_token_in_use_and_is_told_of_once(
    tmp_path: Path, content: bytes
) -> None:
    file, time = tmp_path / "token", FakeTime()
    file.write_bytes(b"one\n")
    source = TokenFile(file, clock=lambda: time.now)
    await source.headers()
    file.write_bytes(content)
    with structlog.testing.capture_logs() as logs:
        for _ in range(3):
            time.now += 61
            assert await source.headers() == {"Authorization": "Bearer one"}
        assert [log["event"] for log in logs] == ["token_file_unusable"]
        assert str(file) in logs[0]["error"] and "lines" not in logs[0]["error"]
        file.write_bytes(b"three")
        time.now += 6
        assert await source.headers() == {"Authorization": "Bearer three"}


@pytest.mark.parametrize("content", BAD)
async def test_a_token_file_that_is_spoiled_from_the_start_is_one_error_without_its_content(
    tmp_path: Path, content: bytes
) -> None:
    file = tmp_path / "token"
    file.write_bytes(content)
    with pytest.raises(CredentialsUnavailable) as raised:
        await TokenFile(file).headers()
    assert str(file) in str(raised.value)
    assert "lines" not in str(raised.value) and "\n" not in str(raised.value)
    assert raised.value.__cause__ is None
