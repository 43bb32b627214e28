"""A collection taken page by page, and what is no page of an API server."""

from __future__ import annotations

import asyncio
from typing import Any

import msgspec
import pytest

from kube_client.errors import FailureClass, RequestFailed
from kube_client.paging import SLICE, collect, read_page, version_of
from kube_client.testing.scripted import Action, Answer, Reset, answering, in_order, status
from kube_client.watch_events import identify

from .objects import Item

PATH = "/api/v1/configmaps"
EXPIRED = status(410, "Expired")
HTML = {"Content-Type": "text/html"}


def page(*names: str, version: str = "7", token: str = "") -> dict[str, Any]:
    items = [{"metadata": {"name": name, "uid": name, "resourceVersion": "1"}} for name in names]
    metadata = {"resourceVersion": version, "continue": token}
    return {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items}


class Pages:
    """Answers in their order; `unread`: what could not be read."""

    def __init__(self, *answers: Action) -> None:
        self.server, self.transport = answering(in_order(*answers))
        self.unread: list[bytes] = []

    @property
    def asked(self) -> list[dict[str, str]]:
        """The parameters of each list."""
        assert {request.path for request in self.server.requests} == {PATH}
        return [request.query for request in self.server.requests]

    async def collect(self, page_size: int = 2) -> tuple[str, list[str], set[str]]:
        """The version, the objects' UIDs in their order, and those that could not be read."""

        def malformed(raw: bytes, _error: Exception) -> str:
            self.unread.append(raw)
            return identify(raw).uid

        version, objects, unread = await collect(
            self.transport,
            PATH,
            msgspec.json.Decoder(Item).decode,
            query={"fieldSelector": "a=b"},
            page_size=page_size,
            timeout=10,
            malformed=malformed,
        )
        return version, list(objects), unread


@pytest.mark.parametrize(
    ("answer", "version"),
    [
        (Answer(200, page("a")), "7"),
        (Answer(200, {**page("a"), "items": None}), "7"),
        (Answer(200, page("a"), HTML), ""),
        (Answer(200, {**page("a"), "kind": "ConfigMap"}), ""),
        (Answer(200, {**page("a"), "apiVersion": ""}), ""),
        (Answer(200, page("a", version="")), ""),
        (Answer(200, b"{"), ""),
        (Answer(500, page("a")), ""),
        (Reset(), ""),
    ],
)
async def test_a_list_is_an_api_servers_only_if_it_says_so_in_all_its_parts(answer: Action, version: str) -> None:
    pages = Pages(answer)
    assert await version_of(pages.transport, PATH) == version
    assert pages.asked == [{"limit": "1"}]
    if isinstance(answer, Answer) and answer.status == 200:
        found = read_page(await pages.transport.request("GET", PATH, timeout=1))
        assert ("" if found is None else found.metadata.resource_version) == version


async def test_pages_are_asked_for_until_the_last_and_its_version_is_the_lists() -> None:
    pages = Pages(Answer(200, page("a", "b", token="t")), Answer(200, page("c", version="8")))
    assert await pages.collect() == ("8", ["a", "b", "c"], set())
    assert pages.asked == [
        {"fieldSelector": "a=b", "limit": "2"},
        {"fieldSelector": "a=b", "limit": "2", "continue": "t"},
    ]


def nested(levels: int, *, kind: str = "{") -> bytes:
    """Return a JSON value of so many levels."""
    begin, end = (b'{"a]\\"":', b"}") if kind == "{" else (b"[", b"]")
    return begin * levels + b'"}"' + end * levels


@pytest.mark.parametrize("kind", ["{", "["])
@pytest.mark.parametrize("levels", [1_000, 1_500, 10_000])
async def test_an_object_that_is_nested_too_deeply_is_left_out_of_its_page(levels: int, kind: str) -> None:
    deep = b'{"metadata":{"name":"b","uid":"b"},"spec":{"d":%b}}' % nested(levels, kind=kind)
    # Another object counts as it is, however deep it is as long as it can be decoded.
    other = b'{"metadata":{"name":"c","uid":"c"},"spec":{"d":%b}}' % nested(500, kind=kind)
    body = (
        b'{"kind":"ConfigMapList","apiVersion":"v1","items" : [{"metadata":{"uid":"a"}}, '
        + deep
        + b","
        + other
        + b'],"metadata":{"resourceVersion":"7"}}'
    )
    pages = Pages(Answer(200, body))
    assert await pages.collect() == ("7", ["a", "c"], {"b"})
    assert pages.unread == [deep]


@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"ConfigMapList","apiVersion":"v1","items":[],"metadata":{"resourceVersion":"7","a":%b}}',
        b'{"kind":"ConfigMapList","apiVersion":"v1","\\u0069tems":[%b],"metadata":{"resourceVersion":"7"}}',
        b'{"kind":"ConfigMapList","apiVersion":"v1","items":[1,%b],"metadata":{"resourceVersion":"7"}}',
    ],
    ids=["beside the objects", "another spelling", "not only objects"],
)
async def test_a_deep_body_whose_objects_are_not_found_is_no_list(body: bytes) -> None:
    with pytest.raises(RequestFailed):
        await Pages(Answer(200, body % nested(1_500))).collect()


async def test_the_version_of_a_collection_does_not_depend_on_its_object() -> None:
    body = b'{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[%b]}'
    assert await version_of(Pages(Answer(200, body % nested(10_000))).transport, PATH) == "7"


async def test_a_list_without_pages_may_be_of_any_size_and_of_none() -> None:
    names = [f"c{number}" for number in range(2 * SLICE + 1)]
    assert await Pages(Answer(200, page(*names))).collect(0) == ("7", names, set())
    assert await Pages(Answer(200, {**page(), "items": None})).collect(0) == ("7", [], set())


async def test_others_have_their_turn_while_a_long_list_is_read() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await Pages(Answer(200, page(*(f"c{number}" for number in range(3 * SLICE))))).collect(0)
    counting.cancel()
    assert turns >= 3


async def test_a_list_whose_pages_expire_is_begun_anew_with_larger_ones_and_in_the_end_with_one() -> None:
    """Nothing of what the pages before said is kept, nor of what could not be read in them."""
    odd = page("gone", "a", token="t")
    odd["items"][0]["spec"] = 7
    first = [Answer(200, odd), EXPIRED]
    pages = Pages(*first, *first, *first, Answer(200, page("a", "b", version="9")))
    assert await pages.collect() == ("9", ["a", "b"], set())
    assert [(asked.get("limit"), asked.get("continue")) for asked in pages.asked] == [
        ("2", None),
        ("2", "t"),
        ("8", None),
        ("8", "t"),
        ("32", None),
        ("32", "t"),
        (None, None),
    ]
    assert len(pages.unread) == 3


async def test_what_cannot_be_read_is_told_and_named() -> None:
    odd = page("odd", "a")
    odd["items"][0]["spec"] = 7
    pages = Pages(Answer(200, odd))
    assert await pages.collect() == ("7", ["a"], {"odd"})
    assert len(pages.unread) == 1


@pytest.mark.parametrize(
    ("answers", "kind"),
    [
        ([EXPIRED], FailureClass.GONE),
        ([Answer(200, page("a", token="t")), status(403, "Forbidden")], FailureClass.PERMANENT),
        ([Answer(200, page("a"), HTML)], FailureClass.UNKNOWN),
    ],
)
async def test_a_page_that_cannot_be_had_is_a_failure(answers: list[Action], kind: FailureClass) -> None:
    pages = Pages(*answers)
    with pytest.raises(RequestFailed) as failed:
        await pages.collect()
    assert (failed.value.failure.kind, len(pages.asked)) == (kind, len(answers))
