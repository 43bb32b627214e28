"""Lists of objects for commands."""

from __future__ import annotations

import msgspec
import pytest

from agent_scheduler.cli.listing import ReadError, list_all
from agent_scheduler.objects.job import JOBS, Job
from kube_client.testing.scripted import Answer, answering, in_order

DEEP = b"[" * 10_000 + b"]" * 10_000
BODY = (
    b'{"kind":"JobList","apiVersion":"batch.volcano.sh/v1alpha1","metadata":{"resourceVersion":"7"},"items":['
    b'{"metadata":{"name":"deep","namespace":"t","uid":"1"},"spec":{"unknown":%b}},'
    b'{"metadata":{"name":"good","namespace":"t","uid":"2"}}]}' % DEEP
)


async def test_an_object_that_cannot_be_read_is_left_out_with_a_line_or_is_an_error() -> None:
    said: list[str] = []
    _, transport = answering(in_order(Answer(body=BODY), Answer(body=BODY)))
    decode = msgspec.json.Decoder(Job).decode
    found = await list_all(transport, JOBS, decode, say=said.append)
    assert [each.metadata.name for each in found] == ["good"]
    assert said == [f"list {JOBS}: an object cannot be read: t/deep: nested too deeply to be decoded"]
    with pytest.raises(ReadError, match="t/deep: nested too deeply"):
        await list_all(transport, JOBS, decode)
