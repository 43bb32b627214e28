"""Get, list and watch.

Lists consist of stored bytes. The rules for `resourceVersion`, `resourceVersionMatch`, `limit` and `continue` are
those of the Kubernetes API concepts ("Resource versions", "Retrieving large results sets in chunks"); those for
`sendInitialEvents` are in KEP-3157.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from zlib import crc32

from . import nesting
from .builtin.causes import forbidden, unsupported
from .errors import ApiError, Cause, bad_request, gone, invalid, not_found
from .protobuf import STREAM_TYPE
from .registry import Registry, Served
from .requests import Request, Response, Stream
from .resource import Object
from .selectors import Selector, compile_selector, named
from .store import Compacted, Record
from .views import JSON, PROTOBUF, PartialView, TableView, View, negotiate
from .watch import Watcher, initial, replay

#: Seconds until a watch without timeoutSeconds ends: a random time between this and twice this (min-request-timeout).
WATCH_TIMEOUT = 1800.0
_CONTINUE_VERSION = "meta.k8s.io/v1"


def view_of(registry: Registry, served: Served, request: Request) -> View:
    """Return the view that the Accept header selects. Raises 406."""
    asked = negotiate(request.accept, custom=served.resource.custom)
    form = asked.form
    if form == "Table":
        include = request.parameters.get("includeObject", "") or "Metadata"
        if include not in ("None", "Metadata", "Object"):
            raise bad_request(f'includeObject: "{include}" is not one of None, Metadata, Object')
        return TableView(served.view, include=include, clock=registry.store.clock)
    if not form:
        return served.view
    return PartialView(served.view, version=asked.version, listed=form == "PartialList")


def get(registry: Registry, served: Served, namespace: str, name: str, request: Request) -> Response:
    """Handle the GET of one object."""
    view = view_of(registry, served, request)
    record = served.table.get(namespace, name)
    if record is None:
        raise not_found(served.resource.plural, served.name[0], name)
    version = request.version() if request.query else None
    if version is not None:
        _check_not_future(registry, version)
    return Response(200, view.object(record.data))


def _selector(served: Served, request: Request) -> Selector | None:
    return compile_selector(
        request.parameters.get("labelSelector", ""),
        request.parameters.get("fieldSelector", ""),
        served.table.field_names,
    )


def _check_not_future(registry: Registry, version: int) -> None:
    """Check that the version exists. This is the only server, so a future version cannot be awaited. Raises 504."""
    current = registry.store.rv
    if version > current:
        raise ApiError(
            504,
            "Timeout",
            f"Too large resource version: {version}, current: {current}",
            {
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
                "retryAfterSeconds": 1,
            },
        )


_MATCH = "resourceVersionMatch"


def _refuse_options(causes: Iterable[Cause]) -> None:
    found = list(causes)
    if found:
        raise invalid("ListOptions", "meta.k8s.io", "", found)


def _list_problems(parameters: Mapping[str, str]) -> Iterator[Cause]:
    """Yield invalid combinations of a list's options."""
    match, version = parameters.get(_MATCH, ""), parameters.get("resourceVersion", "")
    if match:
        if not version:
            yield forbidden(_MATCH, "resourceVersionMatch is forbidden unless resourceVersion is provided")
        if parameters.get("continue"):
            yield forbidden(_MATCH, "resourceVersionMatch is forbidden when continue is provided")
        if match not in ("Exact", "NotOlderThan"):
            yield unsupported(_MATCH, match, ("Exact", "NotOlderThan", ""))
        if match == "Exact" and version == "0":
            yield forbidden(_MATCH, 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"')
    if "sendInitialEvents" in parameters:
        yield forbidden("sendInitialEvents", "sendInitialEvents is forbidden for list")


def _watch_problems(parameters: Mapping[str, str]) -> Iterator[Cause]:
    """Yield invalid combinations of a watch's options."""
    match, initial_events = parameters.get(_MATCH, ""), "sendInitialEvents" in parameters
    if initial_events and match != "NotOlderThan":
        yield forbidden(_MATCH, "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan")
    if match:
        if not initial_events:
            why = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
            yield forbidden(_MATCH, why)
        if match != "NotOlderThan":
            yield unsupported(_MATCH, match, ("NotOlderThan",))
        if parameters.get("continue"):
            yield forbidden(_MATCH, "resourceVersionMatch is forbidden when continue is provided")


def _token(version: int, key: str) -> str:
    body = nesting.dumps({"v": _CONTINUE_VERSION, "rv": version, "start": key + "\u0000"})
    return base64.urlsafe_b64encode(body).rstrip(b"=").decode()


def _read_token(token: str) -> tuple[int, str]:
    try:
        body: Any = nesting.loads(base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)))
        version, start = body["rv"], body["start"]
        if body["v"] != _CONTINUE_VERSION or not isinstance(version, int) or not isinstance(start, str):
            raise ValueError("not a token of this server")
    except (ValueError, KeyError, TypeError) as error:
        raise bad_request(f"invalid continue token: continue key is not valid: {error}") from None
    return version, start.rstrip("\u0000")


def list_objects(registry: Registry, served: Served, namespace: str, request: Request) -> Response:
    """Handle the GET of a collection."""
    view = view_of(registry, served, request)
    if not request.query:
        found = [record.data for record in served.table.scan(namespace)]
        return Response(200, view.list(found, {"resourceVersion": str(registry.store.rv)}))
    limit = max(request.number("limit") or 0, 0)
    request.number("timeoutSeconds")
    _refuse_options(_list_problems(request.parameters))
    match = request.parameters.get(_MATCH, "")
    selector = _selector(served, request)
    token = request.parameters.get("continue", "")
    version = request.version()
    at, after = None, ""
    if token:
        if version not in (None, 0):
            raise bad_request("specifying resource version is not allowed when using continue")
        at, after = _read_token(token)
        if at < 0:
            at = None  # an inconsistent continuation was accepted
    elif version:
        _check_not_future(registry, version)
        # A limit without resourceVersionMatch means the exact version.
        if match == "Exact" or (limit and not match):
            at = version
    elif version == 0:
        limit = 0  # version 0 is served completely, without limit
    try:
        return _page(registry, served, namespace, view, selector=selector, after=after, at=at, limit=limit)
    except Compacted:
        if token:
            raise gone(
                "The provided continue parameter is too old to display a consistent list result. You can start "
                "a new list without the continue parameter."
            ) from None
        raise gone(f"The resourceVersion for the provided list is too old: {version}") from None


def _candidates(
    served: Served, namespace: str, selector: Selector | None, *, after: str, at: int | None
) -> Iterable[Record]:
    """Return records in key order that include all matches, found in the cheapest way."""
    table = served.table
    if selector is not None and at is None:
        name = selector.pinned(table.field_names.index("metadata.name"))
        if name and (namespace or not table.namespaced):
            record = table.get(namespace if table.namespaced else "", name)
            return [record] if record is not None and record.key > after else []
        for field in table.by_field:
            held = table.having(field, selector.pinned(field) or "")
            if held is not None:
                return [
                    record for record in held if record.key > after and (not namespace or record.namespace == namespace)
                ]
    return table.scan(namespace, after=after, at=at)


def _page(
    registry: Registry,
    served: Served,
    namespace: str,
    view: View,
    *,
    selector: Selector | None,
    after: str,
    at: int | None,
    limit: int,
) -> Response:
    """Return at most `limit` objects (0 for all) after a key, with the continue token."""
    shown = registry.store.rv if at is None else at
    meta: Object = {"resourceVersion": str(shown)}
    candidates = iter(_candidates(served, namespace, selector, after=after, at=at))
    if not limit:
        found = _matching(candidates, selector)
        return Response(200, view.list([record.data for record in found], meta))
    items: list[bytes] = []
    last = ""
    for record in candidates:
        if len(items) == limit:
            # As in kube-apiserver, there is a token if keys are left, whether or not they match.
            meta["continue"] = _token(shown, last)
            if selector is None:
                meta["remainingItemCount"] = served.table.remaining(namespace, last, at=at)
            break
        last = record.key
        if selector is None or selector.matches(record):
            items.append(record.data)
    return Response(200, view.list(items, meta))


def _matching(records: Iterable[Record], selector: Selector | None) -> list[Record]:
    if selector is None:
        return list(records)
    return [record for record in records if selector.matches(record)]


def watch(registry: Registry, served: Served, namespace: str, request: Request, *, name: str = "") -> Stream:
    """Handle the GET of a collection, or of one object by `name`, with watch=1.

    Errors are responses, but a version that is too old is an ERROR event in the stream, as in kube-apiserver.
    """
    seconds = request.number("timeoutSeconds")
    _refuse_options(_watch_problems(request.parameters))
    version = request.version()
    selector = _selector(served, request)
    if name:
        if not served.resource.namespaced:
            namespace = ""
        selector = named(selector, served.table.field_names.index("metadata.name"), name)
    view = view_of(registry, served, request)
    encoded = negotiate(request.accept, custom=served.resource.custom).content_type == PROTOBUF
    if encoded:
        view = view.in_protobuf
    parameters = request.parameters
    bookmarks = request.flag("allowWatchBookmarks")
    wants_initial = request.flag("sendInitialEvents") if "sendInitialEvents" in parameters else None
    timeout = float(seconds or 0)
    if timeout <= 0:
        # Spread out, so that watches that were opened together do not all reconnect together.
        timeout = WATCH_TIMEOUT * (1 + crc32(registry.store.uid().encode()) / 0xFFFFFFFF)
    current = registry.store.rv
    floor = version or 0
    error: bytes | None = None
    backlog: Any = ()
    if wants_initial or (wants_initial is None and not version):
        if wants_initial and version:
            _check_not_future(registry, version)
        end = view.bookmark(current, initial_end=True) if wants_initial and bookmarks else None
        present = _matching(_candidates(served, namespace, selector, after="", at=None), selector)
        backlog = initial(view, present, end=end)
        floor = current
    elif not version:
        floor = current
    else:
        try:
            backlog = replay(view, served.table.since(version), namespace=namespace, selector=selector)
        except Compacted as compacted:
            text = f"too old resource version: {version} ({compacted.oldest})"
            error = view.error(gone(text).status())
            backlog = (error,)
    watcher = Watcher(view, namespace=namespace, selector=selector, floor=floor, backlog=backlog, bookmarks=bookmarks)
    if error is None:
        served.hub.open(watcher)
    else:
        watcher.end()
    store = registry.store
    content_type = STREAM_TYPE if encoded else JSON
    return Stream(watcher=watcher, timeout=timeout, version=lambda: store.rv, content_type=content_type)
