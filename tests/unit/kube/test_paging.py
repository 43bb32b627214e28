"""A collection taken page by page, and what is no page of an API server."""

from __future__ import annotations

import asyncio
import json
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

import msgspec
import pytest

from agent_scheduler.kube.errors import FailureClass, RequestFailed
from agent_scheduler.kube.paging import SLICE, collect, read_page, version_of
from agent_scheduler.kube.transport import NotSent, Response, Transport
from agent_scheduler.objects.config_map import ConfigMap

PATH = "/api/v1/configmaps"
EXPIRED = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}


def answer(body: Any, *, status: int = 200, kind: str = "application/json") -> Response:
    return Response(status, json.dumps(body).encode(), {"Content-Type": kind})


def page(*names: str, version: str = "7", token: str = "") -> dict[str, Any]:
    items = [{"metadata": {"name": name, "uid": name, "resourceVersion": "1"}} for name in names]
    metadata = {"resourceVersion": version, "continue": token}
    return {"kind": "ConfigMapList", "apiVersion": "v1", "metadata": metadata, "items": items}


class Pages:
    """Answers in their order; `asked`: the parameters of each list."""

    def __init__(self, *answers: Response | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[dict[str, str]] = []
        self.unread: list[bytes] = []

    async def request(self, method: str, path: str, **more: Any) -> Response:
        assert method == "GET" and urlsplit(path).path == PATH
        self.asked.append({key: value for key, (value,) in parse_qs(urlsplit(path).query).items()})
        given = self.answers.pop(0)
        if isinstance(given, Exception):
            raise given
        return given

    async def collect(self, page_size: int = 2) -> tuple[str, list[str], set[str]]:
        """The version, the objects' UIDs in their order, and those that could not be read."""

        def malformed(raw: bytes, _error: Exception) -> str:
            self.unread.append(raw)
            return str(json.loads(raw)["metadata"]["uid"])

        version, objects, unread = await collect(
            cast(Transport, self),
            PATH,
            msgspec.json.Decoder(ConfigMap).decode,
            query={"fieldSelector": "a=b"},
            page_size=page_size,
            timeout=10,
            malformed=malformed,
        )
        return version, list(objects), unread


@pytest.mark.parametrize(
    ("response", "version"),
    [
        (answer(page("a")), "7"),
        (answer({**page("a"), "items": None}), "7"),
        (answer(page("a"), kind="text/html"), None),
        (answer({**page("a"), "kind": "ConfigMap"}), None),
        (answer({**page("a"), "apiVersion": ""}), None),
        (answer(page("a", version="")), None),
        (Response(200, b"{", {"Content-Type": "application/json"}), None),
    ],
)
async def test_a_list_is_an_api_servers_only_if_it_says_so_in_all_its_parts(
    response: Response, version: str | None
) -> None:
    found = read_page(response)
    assert (None if found is None else found.metadata.resource_version) == version
    assert await version_of(cast(Transport, Pages(response)), PATH) == (version or "")


@pytest.mark.parametrize(
    "given", [NotSent("nobody there"), answer(page("a"), status=500)], ids=["no answer", "an error"]
)
async def test_the_version_of_a_collection_is_not_known_where_no_list_can_be_had(
    given: Response | Exception,
) -> None:
    pages = Pages(given)
    assert await version_of(cast(Transport, pages), PATH) == ""
    assert pages.asked == [{"limit": "1"}]


async def test_pages_are_asked_for_until_the_last_and_its_version_is_the_lists() -> None:
    pages = Pages(answer(page("a", "b", token="t")), answer(page("c", version="8")))
    assert await pages.collect() == ("8", ["a", "b", "c"], set())
    assert pages.asked == [
        {"fieldSelector": "a=b", "limit": "2"},
        {"fieldSelector": "a=b", "limit": "2", "continue": "t"},
    ]


async def test_a_list_without_pages_may_be_of_any_size_and_of_none() -> None:
    names = [f"c{number}" for number in range(2 * SLICE + 1)]
    assert await Pages(answer(page(*names))).collect(0) == ("7", names, set())
    assert await Pages(answer({**page(), "items": None})).collect(0) == ("7", [], set())


async def test_others_have_their_turn_while_a_long_list_is_read() -> None:
    turns = 0

    async def count() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    counting = asyncio.create_task(count())
    await Pages(answer(page(*(f"c{number}" for number in range(3 * SLICE))))).collect(0)
    counting.cancel()
    assert turns >= 3


async def test_a_list_whose_pages_expire_is_begun_anew_with_larger_ones_and_in_the_end_with_one() -> None:
    """Nothing of what the pages before said is kept, nor of what could not be read in them."""
    odd = page("gone", "a", token="t")
    odd["items"][0]["data"] = 7
    expired = answer(EXPIRED, status=410)
    first = [answer(odd), expired]
    pages = Pages(*first, *first, *first, answer(page("a", "b", version="9")))
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
    odd["items"][0]["data"] = 7
    pages = Pages(answer(odd))
    assert await pages.collect() == ("7", ["a"], {"odd"})
    assert len(pages.unread) == 1


async def test_a_first_page_that_is_said_to_be_expired_is_a_failure() -> None:
    pages = Pages(answer(EXPIRED, status=410))
    with pytest.raises(RequestFailed) as failed:
        await pages.collect()
    assert failed.value.failure.kind is FailureClass.GONE
    assert len(pages.asked) == 1


async def test_a_later_page_that_is_refused_is_a_failure() -> None:
    refused = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Forbidden", "code": 403}
    pages = Pages(answer(page("a", token="t")), answer(refused, status=403))
    with pytest.raises(RequestFailed) as failed:
        await pages.collect()
    assert failed.value.failure.kind is FailureClass.PERMANENT
    assert len(pages.asked) == 2


async def test_a_page_that_is_not_an_api_servers_is_a_failure() -> None:
    with pytest.raises(RequestFailed):
        await Pages(answer(page("a"), kind="text/html")).collect()
