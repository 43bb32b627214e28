"""Lists a whole collection, page by page."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeVar
from urllib.parse import urlencode

import msgspec
from msgspec import Raw

from apimachinery.nesting import brackets, shallow
from kube_client.discovery import explained
from kube_client.driver import Driver
from kube_client.errors import FailureClass, RequestFailed, classify, classify_error, from_middlebox, has_json
from kube_client.transport import Response, Transport, TransportError
from kube_client.watch_events import SLICE, Decode, Object

T = TypeVar("T", bound=Object)

#: The number of times that a list whose pages expire is restarted, each time with pages larger by the factor, before
#: it is requested in one piece, which cannot expire. client-go requests one piece immediately; but if listing takes
#: long enough to expire, one piece is the heaviest load for the API server, the network and our own limits.
_TRIES_IN_PAGES = 2
_LARGER = 4
#: The number of objects in a page. Pages are sequential, and a start lists everything, so smaller pages delay the
#: first bind; a larger page blocks the loop for longer while it is split: at this size about 4 ms for pods.
PAGE = 1_000
_VERSION_TIMEOUT = 5.0


class _ListMeta(msgspec.Struct, rename="camel"):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class ListPage(msgspec.Struct, rename="camel"):
    """One page of a list. Items are decoded later, one by one, so that a malformed item does not affect others."""

    metadata: _ListMeta
    kind: str = ""
    api_version: str = ""
    items: list[Raw] | None = None


_decode_page = msgspec.json.Decoder(ListPage).decode


#: What precedes the list of objects in a page.
_BEFORE_ITEMS = re.compile(rb'"items"\s*:\s*\Z')
#: Brackets that are read before other tasks run: about 5 ms.
_BRACKETS = 10_000


def read_page(response: Response) -> ListPage | None:
    """Return the list in an API server's response; None for anything else.

    Raises RecursionError if it has an object that is nested too deeply.
    """
    return _page_of(response, response.body)


async def _read_deep_page(response: Response) -> ListPage | None:
    """Return the list in a response with objects that are nested too deeply, with the bytes of each object."""
    data = response.body
    rest: list[bytes] = []
    items: list[Raw] = []
    at = begin = 0
    is_among_items = False
    for number, (position, level) in enumerate(brackets(data), start=1):
        if level == 2 and data[position] in b"[{":
            is_among_items = _BEFORE_ITEMS.search(data[max(0, position - 64) : position]) is not None
        elif level == 3 and is_among_items and data[position] in b"[{":
            begin = position
        elif level == 3 and is_among_items:
            items.append(Raw(data[begin : position + 1]))
            rest += (data[at:begin], b"null")
            at = position + 1
        if number % _BRACKETS == 0:
            await asyncio.sleep(0)
    try:
        page = _page_of(response, b"".join([*rest, data[at:]]))
    except RecursionError:
        return None
    if page is None or page.items is None or len(page.items) != len(items):
        return None
    page.items = items
    return page


def _page_of(response: Response, body: bytes) -> ListPage | None:
    if not has_json(response):
        return None
    try:
        page = _decode_page(body)
    except msgspec.MsgspecError:
        return None
    is_list = page.kind.endswith("List") and page.api_version and page.metadata.resource_version
    return page if is_list else None


async def version_of(transport: Transport, path: str) -> str:
    """Return the current version of the collection, at the cost of one object; empty if it is unavailable."""
    try:
        response = await transport.request("GET", f"{path}?limit=1", timeout=_VERSION_TIMEOUT)
    except TransportError:
        return ""
    if classify(response) is not None:
        return ""
    try:
        page = read_page(response)
    except RecursionError:
        page = _page_of(response, shallow(response.body))
    return "" if page is None else page.metadata.resource_version


async def collect(
    transport: Transport,
    path: str,
    decode: Decode[T],
    *,
    query: Mapping[str, str] = MappingProxyType({}),
    page_size: int = PAGE,
    timeout: float,  # noqa: ASYNC109 - of each request
    malformed: Callable[[bytes, Exception], str],
) -> tuple[str, dict[str, T], set[str]]:
    """Return the list's version, the objects by UID, and the UIDs of those that `decode` rejects.

    `page_size` 0 means without pages. `malformed` is called for each object that cannot be decoded, and returns its
    UID. Raises RequestFailed.
    """
    objects: dict[str, T] = {}
    unread: set[str] = set()
    token: str | None = None
    limit, expired = page_size, 0
    while True:
        asked = dict(query)
        if limit:
            asked["limit"] = str(limit)
        if token:
            asked["continue"] = token
        try:
            response = await transport.request("GET", f"{path}?{urlencode(asked)}", timeout=timeout)
        except TransportError as error:
            raise RequestFailed(f"list {path}", classify_error(error)) from error
        failure = classify(response)
        if failure is not None:
            failure = await Driver(transport=transport, request_timeout=timeout).run(explained(failure, path))
            if failure.kind is FailureClass.GONE and token:
                # The snapshot of the token was compacted during paging.
                objects.clear()
                unread.clear()
                expired += 1
                token, limit = None, limit * _LARGER if expired <= _TRIES_IN_PAGES else 0
                continue
            raise RequestFailed(f"list {path}", failure)
        try:
            page = read_page(response)
        except RecursionError:
            page = await _read_deep_page(response)
        if page is None:
            raise RequestFailed(f"list {path}", from_middlebox(response))
        items = page.items or []
        # A server may ignore the limit; other tasks still get their turn.
        for start in range(0, len(items), SLICE):
            for raw in items[start : start + SLICE]:
                try:
                    item = decode(raw)
                except Exception as error:
                    unread.add(malformed(bytes(raw), error))
                    continue
                objects[item.metadata.uid] = item
            await asyncio.sleep(0)
        token = page.metadata.continue_
        if not token:
            return page.metadata.resource_version, objects, unread
