"""Views: the form of stored bytes in one group version and one representation, selected by the Accept header.

Stored encodings have no `kind` and `apiVersion`, so the plain view of a built-in kind adds a prefix to the stored
bytes, and a list joins them. Only the rare views decode: shaped kinds, Tables, metadata.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

from . import nesting, protobuf, tables
from .errors import ApiError
from .resource import Object, Resource
from .store import Record
from .times import clock_text

JSON, YAML, PROTOBUF = "application/json", "application/yaml", protobuf.MEDIA_TYPE


@dataclass(frozen=True, slots=True)
class Representation:
    """The form that the Accept header selects.

    `form` is "", "Table", "Partial" or "PartialList", in `version` of meta.k8s.io. `content_type` is one of JSON, YAML
    and PROTOBUF.
    """

    form: str
    content_type: str
    version: str = "v1"


PLAIN = Representation("", JSON)
_FORMS = {"Table": "Table", "PartialObjectMetadata": "Partial", "PartialObjectMetadataList": "PartialList"}
#: The media types of built-in kinds. Others are rejected before the request is processed.
_PRODUCED = frozenset({JSON, YAML, PROTOBUF, "application/*", "*/*"})


@lru_cache(maxsize=256)
def alternatives(accept: str) -> tuple[tuple[str, dict[str, str]], ...]:
    """Return the media types of an Accept header with their parameters, those with the highest `q` first."""
    found = []
    for alternative in accept.split(","):
        media, *parameters = (part.strip() for part in alternative.split(";"))
        found.append((media, dict(parameter.partition("=")[::2] for parameter in parameters)))
    return tuple(sorted(found, key=lambda one: -_quality(one[1])))


def _quality(parameters: dict[str, str]) -> float:
    try:
        return float(parameters.get("q", "1"))
    except ValueError:
        return 1.0


def negotiate(accept: str | None, *, custom: bool = False) -> Representation:
    """Return the first supported alternative of an Accept header. Raises 406 if there is none."""
    if accept is None or accept in ("", "*/*", JSON):
        return PLAIN
    return _negotiate(accept, custom)


@lru_cache(maxsize=256)
def _negotiate(accept: str, custom: bool) -> Representation:
    matched = False
    for media, options in alternatives(accept):
        if media not in _PRODUCED:
            continue
        matched = True
        kind = media if media in (YAML, PROTOBUF) else JSON
        wanted, version = options.get("as", ""), options.get("v", "")
        # Objects of custom kinds and Tables have no protobuf form.
        if kind == PROTOBUF and (wanted == "Table" or (custom and not wanted)):
            continue
        if not wanted:
            return PLAIN if kind == JSON else Representation("", kind)
        if options.get("g") != "meta.k8s.io" or version not in ("v1", "v1beta1") or wanted not in _FORMS:
            continue
        return Representation(_FORMS[wanted], kind, version)
    if not matched and not custom:
        raise ApiError(406, "NotAcceptable", "406: Not Acceptable", {})
    raise not_acceptable(f"only the following media types are accepted: {JSON}, {YAML}")


def not_acceptable(why: str) -> ApiError:
    return ApiError(406, "NotAcceptable", why)


@lru_cache(maxsize=1024)
def preferred_type(accept: str, kind: str | None = None) -> str:
    """Return the media type that an Accept header selects for an object of a kind; without `kind`, for some kind."""
    for media, options in alternatives(accept):
        wanted = options.get("as", "")
        if wanted and kind is not None and wanted != kind:
            continue
        if media == YAML or (media == PROTOBUF and kind != "Table"):
            return media
        if media in _PRODUCED:
            return JSON
    return JSON


class View:
    """The plain JSON of one resource's stored bytes. Owned by the registry; immutable."""

    def __init__(self, resource: Resource) -> None:
        self.resource = resource
        names = self._named(resource.kind)
        self._names = names.encode()
        self._lines = {
            type_: f'{{"type":"{type_}","object":{{{names}'.encode()
            for type_ in ("ADDED", "MODIFIED", "DELETED", "BOOKMARK")
        }

    @cached_property
    def in_protobuf(self) -> View:
        """The same view for watches in protobuf. It is made once, because watchers of one view share its lines."""
        return ProtobufView(self)

    def _named(self, kind: str) -> str:
        """Return the first two keys, whose order differs between built-in and custom kinds, as in kube-apiserver."""
        names = (f'"kind":"{kind}",', f'"apiVersion":"{self.resource.api_version}",')
        return "".join(reversed(names) if self.resource.custom else names)

    def object(self, data: bytes) -> bytes:
        """Return the body of a GET."""
        return b"{" + self._names + data[1:]

    def made(self, obj: Object, record: Record) -> bytes:
        """Return the response to a write that stored `obj` as `record`. `obj` is consumed."""
        return self.object(record.data)

    def item(self, data: bytes) -> bytes:
        """Return an item of a list; those of built-in kinds omit `kind` and `apiVersion`."""
        return self.object(data) if self.resource.custom else data

    def line(self, type_: str, data: bytes) -> bytes:
        """Return a watch event with its newline."""
        return self._lines[type_] + data[1:] + b"}\n"

    def decode(self, data: bytes) -> Object:
        """Return the decoded object with kind and version of this view."""
        obj: Object = {"kind": self.resource.kind, "apiVersion": self.resource.api_version}
        obj.update(nesting.loads(data))
        return obj

    def error(self, status: Object) -> bytes:
        """Return the event of an error."""
        return b'{"type":"ERROR","object":%b}\n' % nesting.dumps(status)

    def bookmark(self, rv: int, *, initial_end: bool) -> bytes:
        metadata: Object = {"resourceVersion": str(rv)}
        if initial_end:
            metadata["annotations"] = {"k8s.io/initial-events-end": "true"}
        return self.line("BOOKMARK", nesting.dumps({"metadata": metadata, **self.resource.bookmark}))

    def list(self, items: Sequence[bytes], meta: Object) -> bytes:
        """Return the body of a LIST of stored encodings."""
        resource = self.resource
        if resource.custom:
            items = [self.item(data) for data in items]
        kind = resource.list_kind or resource.kind + "List"
        names = self._named(kind).encode()
        return b'{%b"metadata":%b,"items":[%b]}' % (names, nesting.dumps(meta), b",".join(items))


class ShapedView(View):
    """A second version of objects that another resource stores."""

    def __init__(self, resource: Resource, stored: View) -> None:
        super().__init__(resource)
        self._stored = stored

    def decode(self, data: bytes) -> Object:
        assert self.resource.shape is not None
        return self.resource.shape.from_stored(self._stored.decode(data))

    def made(self, obj: Object, record: Record) -> bytes:
        assert self.resource.shape is not None
        metadata = {"resourceVersion": "", **obj["metadata"]}
        metadata["resourceVersion"] = str(record.rv)
        obj["metadata"] = metadata
        return super().object(nameless(self.resource.shape.from_stored({"metadata": metadata, **obj})))

    def _reshape(self, data: bytes) -> bytes:
        return nameless(self.decode(data))

    def object(self, data: bytes) -> bytes:
        return super().object(self._reshape(data))

    def line(self, type_: str, data: bytes) -> bytes:
        return super().line(type_, data if type_ == "BOOKMARK" else self._reshape(data))

    def list(self, items: Sequence[bytes], meta: Object) -> bytes:
        return super().list([self._reshape(data) for data in items], meta)


def nameless(obj: Object) -> bytes:
    """Return the object in its stored encoding."""
    obj.pop("kind", None)
    obj.pop("apiVersion", None)
    return nesting.dumps(obj)


class PartialView(View):
    """Metadata only, for metadata informers and garbage collectors."""

    def __init__(self, plain: View, *, version: str = "v1", listed: bool = False) -> None:
        super().__init__(plain.resource)
        self._version = f"meta.k8s.io/{version}"
        #: Whether the client asked for the list form; the two forms are not interchangeable.
        self._listed = listed

    def _partial(self, data: bytes) -> Object:
        return {
            "kind": "PartialObjectMetadata",
            "apiVersion": self._version,
            "metadata": nesting.loads(data)["metadata"],
        }

    def object(self, data: bytes) -> bytes:
        if self._listed:
            why = "you requested PartialObjectMetadataList, but the requested object is not a list"
            raise not_acceptable(why)
        return nesting.dumps(self._partial(data))

    def line(self, type_: str, data: bytes) -> bytes:
        return nesting.dumps({"type": type_, "object": self._partial(data)}) + b"\n"

    def list(self, items: Sequence[bytes], meta: Object) -> bytes:
        if not self._listed:
            raise not_acceptable("you requested PartialObjectMetadata, but the requested object is a list")
        return nesting.dumps(
            {
                "kind": "PartialObjectMetadataList",
                "apiVersion": self._version,
                "metadata": meta,
                "items": [self._partial(data) for data in items],
            }
        )


class TableView(View):
    """Rows and columns for `kubectl get`. `include` is None, Metadata or Object."""

    def __init__(self, plain: View, *, include: str, clock: Callable[[], float]) -> None:
        super().__init__(plain.resource)
        self._plain = plain
        self._include = include
        self._clock = clock
        self._headed = False

    def _table(self, items: Sequence[bytes], meta: Object) -> dict[str, Any]:
        return tables.table(
            self.resource,
            [self._plain.decode(data) for data in items],
            meta=meta,
            include=self._include,
            now=clock_text(self._clock()),
        )

    def object(self, data: bytes) -> bytes:
        rv = nesting.loads(data)["metadata"].get("resourceVersion", "")
        return nesting.dumps(self._table([data], {"resourceVersion": rv}))

    def line(self, type_: str, data: bytes) -> bytes:
        if type_ == "BOOKMARK":
            bookmark = {
                "kind": "Table",
                "apiVersion": "meta.k8s.io/v1",
                "metadata": nesting.loads(data)["metadata"],
                "columnDefinitions": None,
                "rows": [],
            }
            return nesting.dumps({"type": type_, "object": bookmark}) + b"\n"
        rv = nesting.loads(data)["metadata"]["resourceVersion"]
        table = self._table([data], {"resourceVersion": rv})
        if self._headed:
            table["columnDefinitions"] = None
        self._headed = True
        return nesting.dumps({"type": type_, "object": table}) + b"\n"

    def list(self, items: Sequence[bytes], meta: Object) -> bytes:
        return nesting.dumps(self._table(items, meta))


class ProtobufView(View):
    """The watch events of another view in protobuf. Complete responses are converted from JSON (`handlers`)."""

    def __init__(self, plain: View) -> None:
        super().__init__(plain.resource)
        self._plain = plain

    def line(self, type_: str, data: bytes) -> bytes:
        """Return an event. That of an object which cannot be encoded is an error, because the commit must not fail."""
        try:
            return protobuf.frame(nesting.loads(self._plain.line(type_, data)))
        except ApiError as refused:
            return self.error(refused.status())

    def error(self, status: Object) -> bytes:
        return protobuf.frame(nesting.loads(self._plain.error(status)))
