"""A file in memory that has the object of the current step, and survives every end of the process.

A mark is copied into a mapping of the file, without a system call: the kernel keeps the page if the process is killed
or runs out of memory. The next process reads the mark and counts an end of the process against its object
(`set_aside`). One process uses a file at a time.
"""

from __future__ import annotations

import fcntl
import mmap
import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

import msgspec

from agent_scheduler.telemetry.set_aside import EndRecord, StepSubject, with_ends

_MAGIC: Final = b"agent-scheduler steps 1\n"
#: The places of the current step, of the last step that lasted too long, and of the records.
_CURRENT, _LATE, _RECORDS, SIZE = 64, 4096, 8192, 131_072

_decode_subject = msgspec.json.Decoder(StepSubject).decode
_decode_records = msgspec.json.Decoder(tuple[EndRecord, ...]).decode
_encode = msgspec.json.Encoder().encode


class StepFile:
    """The marks of a process. Owner of the file until `close`."""

    def __init__(self, path: Path, *, now: Callable[[], float], fresh: Callable[[str], None]) -> None:
        """Open or create the file, and count the ends that it has. `fresh` receives why a file cannot be read.

        Raises OSError; BlockingIOError if another process uses the file.
        """
        self._descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            size = os.fstat(self._descriptor).st_size
            os.ftruncate(self._descriptor, SIZE)
            # Otherwise a write to a full disk would end the process.
            os.posix_fallocate(self._descriptor, 0, SIZE)
            self._map = mmap.mmap(self._descriptor, SIZE)
        except BaseException:
            os.close(self._descriptor)
            raise
        self.records: tuple[EndRecord, ...] = ()
        subjects: list[StepSubject] = []
        if size:
            try:
                self.records, subjects = self._read(size)
            except (ValueError, msgspec.MsgspecError) as error:
                fresh(str(error) or type(error).__name__)
        #: The objects in whose steps the last process ended.
        self.ended_in: tuple[StepSubject, ...] = tuple(subjects)
        self.records = with_ends(self.records, subjects, now())
        text = _encode(self.records)
        while len(text) > SIZE - _RECORDS - 1:
            self.records = self.records[1:]
            text = _encode(self.records)
        self._map[: len(_MAGIC)] = _MAGIC
        self._put(_RECORDS, text)
        self.clear()

    def _read(self, size: int) -> tuple[tuple[EndRecord, ...], list[StepSubject]]:
        if size != SIZE or self._map[: len(_MAGIC)] != _MAGIC:
            raise ValueError("not a file of steps")
        records = _decode_records(self._text(_RECORDS) or b"[]")
        subjects: list[StepSubject] = []
        for place in (_CURRENT, _LATE):
            if text := self._text(place):
                # A mark may have been cut off by the end of the process.
                with suppress(msgspec.MsgspecError):
                    subjects.append(_decode_subject(text))
        return records, [each for index, each in enumerate(subjects) if each not in subjects[:index]]

    def _text(self, place: int) -> bytes:
        return self._map[place : self._map.find(b"\0", place)]

    def _put(self, place: int, text: bytes) -> None:
        self._map[place : place + len(text) + 1] = text + b"\0"

    def mark(
        self, step: str, kind: str, namespace: str, name: str, uid: str, version: str, generation: int = 0
    ) -> None:
        """Record that a step on an object begins. The arguments are the fields of `StepSubject`."""
        text = _encode((step, kind, namespace, name, uid, version, generation)) + b"\0"
        ends = _CURRENT + len(text)
        if ends <= _LATE:
            self._map[_CURRENT:ends] = text

    def clear_current(self) -> None:
        """Record that no step is running."""
        self._map[_CURRENT] = 0

    def keep_late(self) -> None:
        """Record that the process may end because of the duration of the current step."""
        self._put(_LATE, self._text(_CURRENT))

    def clear_late(self) -> None:
        self._map[_LATE] = 0

    def clear(self) -> None:
        self.clear_current()
        self.clear_late()

    def close(self) -> None:
        """Release the file with its current content."""
        self._map.close()
        os.close(self._descriptor)
