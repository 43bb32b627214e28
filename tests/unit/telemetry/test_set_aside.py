"""Which objects are set aside, and the file that remembers the object of a step."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from agent_scheduler.telemetry.process import ProcessMetrics
from agent_scheduler.telemetry.set_aside import MOST, SECONDS, EndRecord, SetAside, StepSubject, with_ends
from agent_scheduler.telemetry.step_file import SIZE, StepFile
from kube_client.testing.virtual import virtual_time

A = StepSubject("decision", "Pod", "default", "a", "uid-a", "7", 1)


def changed(subject: StepSubject, **fields: object) -> StepSubject:
    values = {name: getattr(subject, name) for name in subject.__struct_fields__} | fields
    return StepSubject(**values)


@pytest.mark.parametrize(
    ("other", "ends"),
    [
        (A, 2),
        # A status was written between the ends.
        (changed(A, version="8"), 2),
        (changed(A, version="8", generation=2), 1),
        (changed(A, version="8", generation=0), 1),
        (changed(A, uid="uid-b"), 1),
        (changed(A, step="watch"), 1),
    ],
)
def test_ends_are_counted_for_an_object_that_has_not_changed(other: StepSubject, ends: int) -> None:
    records = with_ends(with_ends((), [A], 10.0), [other], 20.0)
    assert records[-1] == EndRecord(other, ends, 20.0)


def test_records_are_dropped_after_a_day_and_are_limited() -> None:
    assert with_ends(with_ends((), [A], 0.0), [], 90_000.0) == ()
    many = [changed(A, uid=str(number)) for number in range(2 * MOST)]
    records = with_ends((), many, 1.0)
    assert [each.subject for each in records] == many[-MOST:]


def test_an_object_with_two_ends_is_set_aside_until_it_changes_or_for_an_hour() -> None:
    records = [EndRecord(A, 2, 100.0), EndRecord(changed(A, uid="once"), 1, 100.0)]

    def aside() -> SetAside:
        found = SetAside()
        found.read(records)
        return found

    assert "ended 2 times" in aside().why(A, 101.0)
    assert aside().why(changed(A, uid="once"), 101.0) == ""
    assert aside().why(changed(A, version="8", generation=2), 101.0) == ""
    assert aside().why(A, 100.0 + SECONDS) == ""
    seen = aside()
    assert seen.why(A, 101.0, "looks")
    # Its own condition has changed its version, then its labels change.
    assert seen.why(changed(A, version="8"), 102.0, "looks")
    assert seen.why(changed(A, version="9"), 103.0, "looks different") == ""
    assert not seen.any


def opened(path: Path, at: float = 0.0) -> tuple[StepFile, list[str]]:
    fresh: list[str] = []
    return StepFile(path, now=lambda: at, fresh=fresh.append), fresh


def test_a_mark_survives_an_end_without_a_farewell_and_counts_once(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.steps"
    file, fresh = opened(path)
    file.mark(*(getattr(A, name) for name in A.__struct_fields__))
    file.close()
    file, _ = opened(path, 5.0)
    assert (file.ended_in, file.records, fresh) == ((A,), (EndRecord(A, 1, 5.0),), [])
    # A shorter mark replaces a longer one, and a step that ended in time leaves nothing.
    file.mark("watch", "Node", "", "n", "u", "1")
    file.clear_current()
    file.close()
    file, _ = opened(path, 6.0)
    assert (file.ended_in, file.records) == ((), (EndRecord(A, 1, 5.0),))
    file.close()


def test_a_step_that_lasted_too_long_counts_unless_the_process_survives_it(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.steps"
    for survives, ended_in in ((False, (A,)), (True, ())):
        file, _ = opened(path)
        file.mark(*(getattr(A, name) for name in A.__struct_fields__))
        file.keep_late()
        file.clear_current()
        if survives:
            file.clear_late()
        file.close()
        file, _ = opened(path)
        assert file.ended_in == ended_in
        file.clear()
        file.close()


@pytest.mark.parametrize("content", [b"x", b"\0" * SIZE, b"{}" * SIZE, b"agent-scheduler steps 1\n".ljust(SIZE, b"{")])
def test_a_foreign_file_is_one_line_and_a_fresh_start(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "scheduler.steps"
    path.write_bytes(content)
    file, fresh = opened(path)
    assert (len(fresh), file.records, file.ended_in) == (1, (), ())
    file.close()
    file, fresh = opened(path)
    assert (fresh, path.stat().st_size) == ([], SIZE)
    file.close()


def test_a_mark_that_was_cut_off_counts_for_nothing(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.steps"
    file, _ = opened(path)
    file._put(64, b'["decision","Pod","default","a","uid')
    file.close()
    file, fresh = opened(path)
    assert (file.ended_in, fresh) == ((), [])
    file.close()


def test_a_file_belongs_to_one_process_and_has_room_for_all_records(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.steps"
    file, _ = opened(path)
    with pytest.raises(BlockingIOError):
        opened(path)
    file.close()
    for number in range(MOST + 10):
        file, _ = opened(path)
        file.mark("decision", "Pod", "n" * 253, "p" * 253, f"{number:0800d}", "1")
        file.close()
    file, fresh = opened(path)
    assert (fresh, len(file.records)) == ([], MOST)
    file.close()


@virtual_time
async def test_a_step_of_half_the_deadline_counts_if_the_process_ends_soon_after(tmp_path: Path) -> None:
    path = tmp_path / "scheduler.steps"
    for seconds, waits, ended_in in ((4.0, 0.0, ()), (6.0, 0.0, (A,)), (6.0, 21.0, ())):
        metrics = ProcessMetrics(version="1")
        file, _ = opened(path)
        metrics.handling.begin(file, now=lambda: 0.0, renew_deadline=10.0)
        metrics.handling.mark_subject(A)
        metrics.steps.of("decision")(seconds)
        metrics.handling.clear()
        await asyncio.sleep(waits)
        # The lease is lost: the process ends by an exception.
        metrics.handling.end(regularly=False)
        file, _ = opened(path)
        assert file.ended_in == ended_in
        file.clear()
        file.close()
