"""The directory of `--data-dir`: a log of all changes, from which the next start restores the objects.

`objects.log` has a line for each change, with a checksum. A change is written before it is made, so that a killed
process loses no write that it has answered; it is not synchronized to the disk, so a crash of the host may lose the
last seconds. When most of the log is outdated, it is replaced by a new one with the current objects only.

A last line without its end is the rest of an interrupted write, and is ignored. Any other damage is an error, and
nothing is written. A lock keeps a second process out.
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from zlib import crc32

import orjson

from . import nesting
from .collector import Collector
from .controllers import Controller
from .errors import ApiError, ClusterError
from .registry import DEFINITIONS, Registry
from .store import Event, Record, Store

Name = tuple[str, str]

LOG, LOCK = "objects.log", "lock"
_HEAD = b"embedded-kubernetes objects 1\n"
#: Kinds of lines: an object, its deletion, the version of the store, and the end of the first start.
_PUT, _DELETE, _VERSION, _READY = "P", "D", "V", "R"
#: The log is replaced when it has this many bytes, and this many times those of the current objects.
_LEAST, _TIMES = 32 * 1024 * 1024, 4


class DataError(ClusterError):
    """The directory cannot be used; the message names the file."""


class UnwritableError(ApiError):
    """A change could not be written, and was not made."""


class _Contents:
    """The contents of a log: the current objects by table and key, the UIDs of deleted ones, and the version."""

    def __init__(self) -> None:
        self.objects: dict[tuple[Name, str], tuple[int, bytes]] = {}
        self.gone: dict[str, None] = {}
        self.rv = 1
        self.is_ready = False
        #: The bytes up to the end of the last complete line.
        self.size = 0


class Journal(Controller):
    """Owns the directory until `close`. As a controller, it replaces the log when that is due."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        """Lock the directory, which is created, and read the log. Raises `DataError`."""
        self._folder = Path(folder)
        self._store: Store | None = None
        self._lock = self._log = -1
        try:
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            self._lock = os.open(self._folder / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            found = self._read()
            self._log = os.open(self._folder / LOG, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
            if not found.is_ready:
                # The first start was interrupted, so it begins again.
                found = _Contents()
            os.ftruncate(self._log, found.size)
            self._size = found.size
            if not found.size:
                self._append(_HEAD)
        except BlockingIOError:
            self.close()
            raise DataError(f"{self._folder} is in use by another process") from None
        except OSError as error:
            self.close()
            raise DataError(f"{error.filename or self._folder}: {error.strerror or error}") from None
        except DataError:
            self.close()
            raise
        self._found: _Contents | None = found
        self._limit = _LEAST
        #: Whether nothing was stored before.
        self.is_new = not found.is_ready

    def close(self) -> None:
        for descriptor in (self._log, self._lock):
            if descriptor >= 0:
                os.close(descriptor)
        self._log = self._lock = -1

    # -- reading

    def _read(self) -> _Contents:
        path, found = self._folder / LOG, _Contents()
        if not path.exists():
            return found
        with path.open("rb") as lines:
            for number, line in enumerate(lines, 1):
                if not line.endswith(b"\n"):
                    break
                try:
                    if number == 1:
                        if line != _HEAD:
                            raise ValueError
                    else:
                        _take(found, line)
                except (ValueError, KeyError, TypeError):
                    why = "not a log of this version" if number == 1 else f"line {number} is damaged"
                    hint = "" if number == 1 else f"; to keep only what is before it: truncate -s {found.size} {path}"
                    raise DataError(f"{path}: {why}{hint}") from None
                found.size += len(line)
        return found

    def restore(self, registry: Registry, collector: Collector) -> None:
        """Put the objects into an empty store, and write its changes from now on."""
        found, self._found = self._found, None
        assert found is not None, "restored once"
        store = self._store = registry.store

        def order(item: tuple[tuple[Name, str], tuple[int, bytes]]) -> tuple[bool, int]:
            # Definitions come first, because they add the tables of custom objects.
            return item[0][0] != DEFINITIONS, item[1][0]

        for (name, key), (rv, data) in sorted(found.objects.items(), key=order):
            if name in store.tables:
                store.restore(name, rv, data)
            elif "." in name[0] and name[0].endswith("k8s.io"):
                text = f"has {name[1]}.{name[0]} such as {key}, which is not served without its --runtime-config"
                raise DataError(f"{self._folder / LOG}: {text}")
        store.settle(found.rv)
        collector.resume(found.gone)
        store.journal = self._write

    # -- writing

    def ready(self) -> None:
        """Mark the end of the first start: from now on the objects are restored."""
        self._append(_line([_READY]))

    def _write(self, name: Name, event: Event) -> None:
        """Write a change that is about to be made. Raises 500, and leaves the log as it was."""
        record = event.record
        if event.type == "DELETED":
            line = _line([_DELETE, event.rv, *name, record.key, record.uid])
        else:
            line = _line([_PUT, event.rv, *name, record.key], record.data)
        try:
            self._append(line)
        except OSError as error:
            why = f"{self._folder / LOG}: {error.strerror or error}"
            raise UnwritableError(500, "InternalError", f"Internal error occurred: {why}") from None
        if self._size > self._limit:
            self.wake()

    def _append(self, line: bytes) -> None:
        try:
            written = os.write(self._log, line)
            while written < len(line):
                written += os.write(self._log, line[written:])
        except OSError:
            os.ftruncate(self._log, self._size)
            raise
        self._size += len(line)

    def advance(self, *, most: int = 64) -> float | None:
        """Replace the log if that is due."""
        if self._size > self._limit and self._store is not None:
            try:
                self._replace(self._store)
            except OSError:
                # The old log is complete, and can grow for as long as there is room.
                self.drop(f"{LOG}.new")
                self._limit = 2 * self._size
        return None

    def _replace(self, store: Store) -> None:
        """Write a new log with the current objects, and put it in the place of the old one."""
        path, new = self._folder / LOG, self._folder / f"{LOG}.new"
        with open(new, "wb", opener=_private) as file:
            file.write(_HEAD + _line([_READY]))
            for name, record in _records(store):
                file.write(_line([_PUT, record.rv, *name, record.key], record.data))
            file.write(_line([_VERSION, store.rv]))
            file.flush()
            os.fsync(file.fileno())
            size = file.tell()
        new.replace(path)
        os.close(self._log)
        self._log = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._size, self._limit = size, max(_LEAST, _TIMES * size)

    def kept(self, name: str, make: Callable[[], bytes]) -> bytes:
        """Return the contents of a file of the directory that only its owner can read; it is made if it is missing."""
        path = self._folder / name
        try:
            if path.exists():
                return path.read_bytes()
            data, partial = make(), path.with_name(f"{name}.new")
            with open(partial, "wb", opener=_private) as file:
                file.write(data)
            partial.replace(path)
        except OSError as error:
            raise DataError(f"{path}: {error.strerror or error}") from None
        return data

    def drop(self, name: str) -> None:
        """Remove a file of the directory, so that `kept` makes it again."""
        (self._folder / name).unlink(missing_ok=True)


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def _records(store: Store) -> Iterator[tuple[Name, Record]]:
    for name, table in store.tables.items():
        for record in table.records.values():
            yield name, record


def _line(head: list[Any], data: bytes = b"") -> bytes:
    """Return a line: checksum, length of the JSON list, the list, and the object's JSON, which has no line breaks."""
    body = orjson.dumps(head)
    return b"%08x %d %b%b\n" % (crc32(data, crc32(body)), len(body), body, data)


def _take(found: _Contents, line: bytes) -> None:
    """Add a line to the contents. Raises ValueError, KeyError or TypeError if it is damaged."""
    checksum, length, rest = line[:-1].split(b" ", 2)
    if int(checksum, 16) != crc32(rest):
        raise ValueError
    body, data = rest[: int(length)], rest[int(length) :]
    kind, *values = nesting.loads(body)
    if kind == _READY:
        found.is_ready = True
        return
    found.rv = max(found.rv, values[0])
    if kind == _PUT:
        rv, group, plural, key = values
        found.objects[(group, plural), key] = (rv, data)
    elif kind == _DELETE:
        _, group, plural, key, uid = values
        found.objects.pop(((group, plural), key), None)
        found.gone[uid] = None
