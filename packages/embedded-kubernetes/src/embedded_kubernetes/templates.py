"""Fast creation of objects that differ in a few texts only.

Agents' pods come in bursts of equal pods with different names, and each bind creates an equal event about another
pod. Decoding, defaulting, admission and validation are pure functions of the body, the time (to the second) and the
priority classes. They depend only on the form of the differing texts, and on whether the name is free. The result for
the first objects of a burst is therefore kept as encoded bytes with holes, which later objects fill.

Guarantee: object and response are equal to those of the full rules. A template is used once it reproduced the second
object of its burst from the first. Unusual requests (a query, a warning, a generated name, a name that occurs
elsewhere in the object) take the full path.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

from . import nesting
from .builtin.events import LONGEST_NOTE
from .builtin.names import subdomain
from .registry import Registry, Served
from .requests import Request, Response
from .resource import Object
from .store import Record
from .times import is_micro_time

Path = tuple[str | int, ...]

#: The number of templates for the current second; a workload with more kinds of objects does not profit from them.
_LIMIT = 256
_MARK = "\ue000{}"
_MARKED = re.compile(rb'"\xee\x80\x80(\d+)"')
_NOTHING: Object = {}
#: Fields that the server sets in every object; they precede the holes of a template.
_STAMPS: tuple[Path, ...] = (("metadata", "resourceVersion"), ("metadata", "uid"))


class Hole(NamedTuple):
    """A text in which the objects of a burst differ.

    `stored` is its path, and `fields` are the field selectors for it. For a text in the request body: `sent` is its
    path there, and `fits` returns whether it is valid. An `optional` hole may be absent and is the last one.
    """

    stored: Path
    fields: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    fits: Callable[[str], bool] = bool
    optional: bool = False


class Form:
    """Encoded bytes with holes."""

    def __init__(self, marked: bytes) -> None:
        """Parse marked bytes. Raises ValueError unless there are at least two holes, each once."""
        parts = _MARKED.split(marked)
        order = [int(number) for number in parts[1::2]]
        if len(order) < 2 or sorted(order) != list(range(len(order))):
            raise ValueError("not every hole is there once")
        self._pattern = b"%b".join(part.replace(b"%", b"%%") for part in parts[::2])
        self._pick: Callable[[Sequence[bytes]], tuple[bytes, ...]] = itemgetter(*order)

    def fill(self, texts: Sequence[bytes]) -> bytes:
        """Return the bytes with JSON texts in the holes, in order of their numbers."""
        return self._pattern % self._pick(texts)


class Template:
    """A stored object with holes for its version, its UID and further texts, the first of which is the name."""

    def __init__(self, record: Record, served: Served, holes: Sequence[Hole]) -> None:
        """Create a template from a stored object. Raises ValueError if that is not possible."""
        obj: Object = nesting.loads(record.data)
        for number, path in enumerate((*_STAMPS, *[hole.stored for hole in holes])):
            holder: Any = obj
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = _MARK.format(number)
        marked = nesting.dumps(obj)
        self._stored = Form(marked)
        self._view = served.view
        #: Only a shaped kind returns more than the stored bytes and its kind.
        self._shown = Form(served.view.object(marked)) if served.resource.shape is not None else None
        names = served.table.field_names
        self._fields = record.fields
        self._varying = [(names.index(field), number) for number, hole in enumerate(holes) for field in hole.fields]
        self._labels = record.labels
        self._owners = record.owners

    def fill(
        self, rv: int, namespace: str, uid: str, texts: Sequence[str], *, owners: tuple[str, ...] | None = None
    ) -> Record:
        """Return the object with these texts as version `rv`. `owners` is set if UIDs of owners are among the texts."""
        fields = list(self._fields)
        for place, number in self._varying:
            fields[place] = texts[number]
        name = texts[0]
        return Record(
            f"{namespace}/{name}",
            namespace,
            name,
            uid,
            rv,
            self._stored.fill(_encoded(rv, uid, texts)),
            self._labels,
            tuple(fields),
            self._owners if owners is None else owners,
            False,
        )

    def shown(self, record: Record, texts: Sequence[str]) -> bytes:
        """Return the object in the form of the response to a write."""
        if self._shown is None:
            return self._view.object(record.data)
        return self._shown.fill(_encoded(record.rv, record.uid, texts))


def _encoded(rv: int, uid: str, texts: Sequence[str]) -> list[bytes]:
    return list(map(nesting.dumps, (str(rv), uid, *texts)))


class Sight(NamedTuple):
    """A request body split into the texts of the holes and the rest."""

    key: tuple[str, bytes]
    texts: list[str]


class _First(NamedTuple):
    """The first object of a burst."""

    record: Record
    texts: list[str]


class Templates:
    """The templates of one namespaced kind. Valid for one second and one state of the priority classes."""

    def __init__(self, registry: Registry, served: Served, holes: Sequence[Hole]) -> None:
        self._registry = registry
        self._served = served
        self._holes = holes
        #: The location of each hole in the request body: path of the parent, and name.
        self._places = [(hole.sent[:-1], hole.sent[-1], hole.fits, hole.optional) for hole in holes]
        self._until = ("", -1)
        #: Keyed by `Sight.key`. None if the second object could not be reproduced.
        self._known: dict[tuple[str, bytes], _First | Template | None] = {}

    def look(self, request: Request, namespace: str) -> Sight | None:
        """Split the body of a create; return None if it has to take the full path."""
        if request.query or request.content_type != "application/json":
            return None
        texts: list[str] = []
        try:
            sent: Any = nesting.loads(request.body)
            for above, name, fits, optional in self._places:
                holder = sent
                for step in above:
                    holder = holder.get(step, _NOTHING) if optional else holder[step]
                if optional and name not in holder:
                    continue
                text = holder.pop(name)
                if type(text) is not str or not fits(text):
                    return None
                texts.append(text)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # the full path reports the error
        return Sight((namespace, b"%d %b" % (len(texts), nesting.dumps(sent))), texts)

    def make(self, sight: Sight) -> Response | None:
        """Store an object by its template; return None without a template, or if an error is due."""
        registry, served = self._registry, self._served
        state = (registry.now(), registry.classes_version)
        if state != self._until:
            self._until = state
            self._known.clear()
            return None
        key, texts = sight
        template, namespace = self._known.get(key), key[0]
        if (
            not isinstance(template, Template)
            or f"{namespace}/{texts[0]}" in served.table.records
            or namespace in registry.terminating
            or namespace in registry.limits
            or namespace in registry.quotas
            or registry.namespace(namespace) is None
        ):
            return None
        store = registry.store
        record = template.fill(store.rv + 1, namespace, store.uid(), texts)
        store.put(served.name, record, None)
        return Response(201, template.shown(record, texts))

    def learn(self, sight: Sight) -> None:
        """Learn from an object that took the full path. The second one creates a template, or excludes one."""
        key, texts = sight
        record = self._served.table.records[f"{key[0]}/{texts[0]}"]
        first = self._known.get(key)
        if key not in self._known:
            if len(self._known) < _LIMIT:
                self._known[key] = _First(record, texts)
        elif isinstance(first, _First):
            self._known[key] = self._template(first, record, texts)

    def _template(self, first: _First, second: Record, texts: list[str]) -> Template | None:
        try:
            template = Template(first.record, self._served, self._holes[: len(texts)])
        except (ValueError, KeyError, IndexError):
            return None
        made = template.fill(second.rv, second.namespace, second.uid, texts)
        same = (made.data, made.fields, made.labels, made.owners) == (
            second.data,
            second.fields,
            second.labels,
            second.owners,
        )
        return template if same else None


def _is_name(text: str) -> bool:
    return not subdomain(text)


def _is_note(text: str) -> bool:
    return 0 < len(text) <= LONGEST_NOTE


NAME = Hole(("metadata", "name"), ("metadata.name",), ("metadata", "name"), _is_name)
#: The annotation of a gang's member, because gangs come in bursts as well.
_GROUP = ("metadata", "annotations", "scheduling.k8s.io/group-name")
_ABOUT = "involvedObject"
#: The holes of the objects of a burst, name first, by (group, plural).
BURSTS: dict[tuple[str, str], tuple[Hole, ...]] = {
    ("", "pods"): (NAME, Hole(_GROUP, (), _GROUP, _is_name, optional=True)),
    ("events.k8s.io", "events"): (
        NAME,
        Hole(("eventTime",), (), ("eventTime",), is_micro_time),
        Hole(("message",), (), ("note",), _is_note),
        Hole((_ABOUT, "name"), (f"{_ABOUT}.name", "regarding.name"), ("regarding", "name")),
        Hole((_ABOUT, "uid"), (f"{_ABOUT}.uid", "regarding.uid"), ("regarding", "uid")),
    ),
}
