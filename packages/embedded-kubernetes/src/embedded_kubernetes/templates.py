"""Objects that differ in a few texts only: what the rules decide for one holds for all of them.

Agents' pods come in bursts of the same pod under many names, and each bind is told by the same event about another pod.
Decoding, defaulting, admission and validation are pure functions of what was sent, of the time (to the second) and of
the priority classes; of the texts that differ, only their form matters, and that a name is free. So the outcome for the
first objects of a burst is kept as encoded bytes with holes, and the rest of the burst fills the holes.

Guarantee: an object made from a template is what the full rules would have stored, and so is its answer. A template is
trusted once it made the second object of its burst out of the first. Anything out of the ordinary (a query, a warning,
a generated name, a name that occurs elsewhere in the object) goes the long way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from operator import itemgetter
from typing import Any, NamedTuple

import orjson

from .builtin.events import LONGEST_NOTE
from .builtin.names import subdomain
from .registry import Registry, Served
from .requests import Request, Response
from .resource import Object
from .store import Record
from .times import is_micro_time

Path = tuple[str | int, ...]

#: Templates kept for the present second; a workload with more kinds of objects than this gains nothing from them.
_LIMIT = 256
_MARK = "\ue000{}"
_MARKED = re.compile(rb'"\xee\x80\x80(\d+)"')
_NOTHING: Object = {}
#: What the server itself writes into every object; they come before the holes of a template.
_STAMPS: tuple[Path, ...] = (("metadata", "resourceVersion"), ("metadata", "uid"))


class Hole(NamedTuple):
    """A text in which the objects of a burst differ.

    It is `stored` in one place, and `fields` are the names under which selectors read it. Of a text that clients send:
    where they do, and whether it is one that the rules let pass. An `optional` one need not be there; it is the last.
    """

    stored: Path
    fields: tuple[str, ...] = ()
    sent: tuple[str, ...] = ()
    fits: Callable[[str], bool] = bool
    optional: bool = False


class Form:
    """Encoded bytes with holes."""

    def __init__(self, marked: bytes) -> None:
        """Raises ValueError unless there are two holes at least, each of them once."""
        parts = _MARKED.split(marked)
        order = [int(number) for number in parts[1::2]]
        if len(order) < 2 or sorted(order) != list(range(len(order))):
            raise ValueError("not every hole is there once")
        self._pattern = b"%b".join(part.replace(b"%", b"%%") for part in parts[::2])
        self._pick: Callable[[Sequence[bytes]], tuple[bytes, ...]] = itemgetter(*order)

    def fill(self, texts: Sequence[bytes]) -> bytes:
        """With JSON texts, by the holes' numbers."""
        return self._pattern % self._pick(texts)


class Template:
    """One stored object with holes: for its version, its UID, and texts of its own, of which the first is the name."""

    def __init__(self, record: Record, served: Served, holes: Sequence[Hole]) -> None:
        """From an object that the rules have made. Raises ValueError if it cannot be one."""
        obj: Object = orjson.loads(record.data)
        for number, path in enumerate((*_STAMPS, *[hole.stored for hole in holes])):
            holder: Any = obj
            for step in path[:-1]:
                holder = holder[step]
            holder[path[-1]] = _MARK.format(number)
        marked = orjson.dumps(obj)
        self._stored = Form(marked)
        self._view = served.view
        #: Only another shape is more than what is stored under the names of its kind.
        self._shown = Form(served.view.object(marked)) if served.resource.shape is not None else None
        names = served.table.field_names
        self._fields = record.fields
        self._varying = [
            (names.index(field), number) for number, hole in enumerate(holes) for field in hole.fields
        ]
        self._labels = record.labels
        self._owners = record.owners

    def fill(
        self,
        rv: int,
        namespace: str,
        uid: str,
        texts: Sequence[str],
        *,
        owners: tuple[str, ...] | None = None,
    ) -> Record:
        """The object with these texts as version `rv`. `owners`: if the owners' UIDs are among the texts."""
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
        """The object as a write of its kind is answered."""
        if self._shown is None:
            return self._view.object(record.data)
        return self._shown.fill(_encoded(record.rv, record.uid, texts))


def _encoded(rv: int, uid: str, texts: Sequence[str]) -> list[bytes]:
    return list(map(orjson.dumps, (str(rv), uid, *texts)))


class Sight(NamedTuple):
    """What was sent: all but the texts of the holes, and these."""

    key: tuple[str, bytes]
    texts: list[str]


class _First(NamedTuple):
    """The first object of a burst."""

    record: Record
    texts: list[str]


class Templates:
    """The templates of one kind in namespaces. Valid for one second and one state of the priority classes."""

    def __init__(self, registry: Registry, served: Served, holes: Sequence[Hole]) -> None:
        self._registry = registry
        self._served = served
        self._holes = holes
        #: Where each hole is in what is sent: above it, and its own name there.
        self._places = [(hole.sent[:-1], hole.sent[-1], hole.fits, hole.optional) for hole in holes]
        self._until = ("", -1)
        #: By the key of a sight. None where a second object showed that there is no template.
        self._known: dict[tuple[str, bytes], _First | Template | None] = {}

    def look(self, request: Request, namespace: str) -> Sight | None:
        """What a create is known by; None if it must go the long way."""
        if request.query or request.content_type != "application/json":
            return None
        texts: list[str] = []
        try:
            sent: Any = orjson.loads(request.body)
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
            return None  # the long way says what is wrong
        return Sight((namespace, b"%d %b" % (len(texts), orjson.dumps(sent))), texts)

    def make(self, sight: Sight) -> Response | None:
        """Store an object by its template. None if there is none, or if a refusal is due."""
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
            or registry.namespace(namespace) is None
        ):
            return None
        store = registry.store
        record = template.fill(store.rv + 1, namespace, store.uid(), texts)
        store.put(served.name, record, None)
        return Response(201, template.shown(record, texts))

    def learn(self, sight: Sight) -> None:
        """Remember the outcome of the long way. Its second time makes a template, or shows that there is none."""
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
#: Of a member of a gang; gangs come in bursts of the same one under many names, too.
_GROUP = ("metadata", "annotations", "scheduling.k8s.io/group-name")
_ABOUT = "involvedObject"
#: (group, plural) -> in what the objects of a burst differ, their names first.
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
