from __future__ import annotations

from pathlib import Path

import pytest
import structlog

from kube_client.credentials import CredentialsUnavailable, TokenFile
from kube_client.testing.scripted import FakeTime


async def test_a_token_file_is_read_again_after_a_minute_or_soon_after_a_refusal(tmp_path: Path) -> None:
    """And not for each of many refusals; one that vanished leaves the last token in use."""
    file, time = tmp_path / "token", FakeTime()
    source = TokenFile(file, clock=lambda: time.now)
    file.write_text("one\n")
    assert await source.headers() == {"Authorization": "Bearer one"}
    for text, refused_at, seen_at in (("two\n", None, 60), ("three", 6, 6), ("four", 4, 5)):
        file.write_text(text)
        began, before = time.now, await source.headers()
        for second in range(seen_at):
            time.now = began + second
            if second == refused_at:
                source.refused()
            assert await source.headers() == before, (text, second)
        time.now = began + seen_at
        if refused_at == seen_at:
            source.refused()
        assert await source.headers() == {"Authorization": f"Bearer {text.strip()}"}
    file.unlink()
    time.now += 100
    assert await source.headers() == {"Authorization": "Bearer four"}
    file.write_text("five")
    time.now += 100
    assert await source.headers() == {"Authorization": "Bearer five"}


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
        assert [log["event"] for log in logs] == ["token file unusable"]
        assert str(file) in logs[0]["error"] and "lines" not in logs[0]["error"]
        file.write_bytes(b"three")
        time.now += 6
        assert await source.headers() == {"Authorization": "Bearer three"}


@pytest.mark.parametrize("content", [None, *BAD])
async def test_a_token_file_that_is_missing_or_spoiled_from_the_start_is_one_error_without_its_content(
    tmp_path: Path, content: bytes | None
) -> None:
    file = tmp_path / "token"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(CredentialsUnavailable) as raised:
        await TokenFile(file).headers()
    assert str(file) in str(raised.value)
    assert "lines" not in str(raised.value) and "\n" not in str(raised.value)
    assert raised.value.__cause__ is None
