from __future__ import annotations

import json

import msgspec
import pytest

from kube_client.watch_events import identify, is_older, open_event, open_event_slowly, version

from .objects import Item

POD = {"metadata": {"name": "p", "uid": "u", "resourceVersion": "7"}, "spec": {"schedulerName": "s"}}
decode = msgspec.json.Decoder(Item).decode


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED", "DELETED", "BOOKMARK"])
def test_an_event_is_opened_the_same_way_quickly_and_slowly(kind: str) -> None:
    line = compact({"type": kind, "object": POD})
    quick, raw = open_event(line)
    slow, other = open_event_slowly(line)
    assert quick == slow == kind
    assert decode(raw) == decode(other) == msgspec.convert(POD, Item)


@pytest.mark.parametrize(
    "line",
    [
        json.dumps({"type": "ADDED", "object": POD}, indent=1).encode(),
        compact({"object": POD, "type": "ADDED"}),
        b"  " + compact({"type": "ADDED", "object": POD}) + b" \r",
    ],
)
def test_any_spelling_of_the_envelope_is_understood(line: bytes) -> None:
    kind, raw = open_event(line)
    assert kind == "ADDED"
    assert decode(raw) == msgspec.convert(POD, Item)


def test_an_envelope_with_more_members_needs_the_slow_way_and_says_so() -> None:
    line = compact({"type": "ADDED", "object": POD, "more": {}})
    with pytest.raises(msgspec.MsgspecError):
        decode(open_event(line)[1])
    assert decode(open_event_slowly(line)[1]) == msgspec.convert(POD, Item)


def test_no_beginning_of_an_event_passes_for_an_event() -> None:
    line = compact({"type": "ADDED", "object": POD})
    for end in range(len(line)):
        with pytest.raises((ValueError, msgspec.MsgspecError)):
            decode(open_event(line[:end])[1])


@pytest.mark.parametrize("line", [b"", b"x", b"[]", b'{"type":"ADDED"}', b'{"type":"SHOUTED","object":{}}'])
def test_what_is_no_event_is_a_value_error(line: bytes) -> None:
    with pytest.raises(ValueError):
        open_event(line)


def test_an_object_that_cannot_be_decoded_is_still_identified() -> None:
    assert identify(compact({**POD, "spec": 3})) == ("u", "7", "", "p")
    assert identify(b'{"metadata":{"uid":"u","resourceVersion":7,"namespace":"t","name":"p"}}') == ("u", "", "t", "p")
    deep = b'{"spec":' + b'{"a":' * 10_000 + b"1" + b"}" * 10_000 + b',"metadata":{"uid":"u"}}'
    assert identify(deep) == ("u", "", "", "")
    for nothing in (b'{"metadata":7}', b"7", b"{"):
        assert identify(nothing) == ("", "", "", "")


@pytest.mark.parametrize(
    ("text", "number"),
    [("12", 12), ("0", 0), ("", None), ("-1", None), ("1.5", None), ("٣", None), ("a", None), ("9" * 5000, None)],
)
def test_only_plain_digits_are_comparable_versions(text: str, number: int | None) -> None:
    assert version(text) == number


@pytest.mark.parametrize(
    ("text", "than", "older"),
    [
        ("9", "10", True),
        ("10", "9", False),
        ("19", "20", True),
        ("20", "19", False),
        ("20", "20", False),
        ("007", "8", True),
        ("07", "7", False),
        ("008", "7", False),
        ("", "1", False),
        ("1", "", False),
        ("1a", "2a", False),
        ("10", "2a", False),
        ("٣", "9", False),
    ],
)
def test_a_version_is_older_only_as_a_number(text: str, than: str, older: bool) -> None:
    assert is_older(text, than) is older
