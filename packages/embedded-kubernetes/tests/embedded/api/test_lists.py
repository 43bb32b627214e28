"""Lists: selectors, consistent chunks, and the values of resourceVersion."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest

from embedded.support import PODS, World, cases, refuses
from embedded_kubernetes.selectors import compile_selector
from embedded_kubernetes.store import Record

ALL = [f"p{number}" for number in range(7)]


@pytest.fixture
def world() -> World:
    world = World()
    for number, name in enumerate(ALL):
        world.pod(name, labels={"n": str(number), "odd" if number % 2 else "even": ""})
    return world


@pytest.mark.parametrize(
    ("query", "refusal"),
    [
        ("continue=zzz", (400, "BadRequest")),
        ("continue=eyJ2IjoxfQ", (400, "BadRequest")),
        ("resourceVersion=abc", (500, "")),
        ("resourceVersionMatch=Exact", (422, "Invalid")),
        ("resourceVersionMatch=Exact&resourceVersion=0", (422, "Invalid")),
        ("resourceVersionMatch=Newer&resourceVersion=1", (422, "Invalid")),
        ("sendInitialEvents=true", (422, "Invalid")),
        ("limit=", (400, "BadRequest")),
        ("limit=x", (400, "BadRequest")),
        ("limit=9223372036854775808", (400, "BadRequest")),
        ("timeoutSeconds=1s", (400, "BadRequest")),
        ("labelSelector=a%20b%20c", (400, "BadRequest")),
        ("labelSelector=-a%3Db", (400, "BadRequest")),
        ("fieldSelector=spec.nosuch%3Dx", (400, "BadRequest")),
        ("fieldSelector=novalue", (400, "BadRequest")),
    ],
)
def test_bad_options_are_refused(world: World, query: str, refusal: tuple[int, str]) -> None:
    assert world.refused("GET", f"{PODS}?{query}") == refusal


def test_an_exact_version_shows_the_past(world: World) -> None:
    version = world.store.rv
    world.delete(f"{PODS}/p0")
    world.pod("late")
    exact = world.get(f"{PODS}?resourceVersion={version}&resourceVersionMatch=Exact")
    assert [item["metadata"]["name"] for item in exact["items"]] == ALL
    assert exact["metadata"]["resourceVersion"] == str(version)
    assert world.names(f"{PODS}?resourceVersion={version}&limit=2") == ALL[:2]
    newer = [*ALL[1:], "late"]
    assert sorted(world.names(f"{PODS}?resourceVersion={version}")) == sorted(newer)
    not_older = f"{PODS}?resourceVersion={version}&resourceVersionMatch=NotOlderThan"
    assert sorted(world.names(not_older)) == sorted(newer)


def record(**labels: str) -> Record:
    return Record("k", "", "k", "u", 1, b"", labels, ("k", ""), (), False)


@cases("""
    selector | matches
    a | true
    '!a' | false
    z | false
    '!z' | true
    a=1 | true
    a==1 | true
    a!=1 | false
    z!=1 | true
    a in (1,2) | true
    a in (2) | false
    a notin (2), b | true
    z notin (1) | true
    e= | true
    e in () | true
    a>0 | true
    a gt 1 | false
    a<2,b=x | true
    b<2 | false
    example.com/k=v | true
    ' a = 1 , b = x ' | true
    """)
def test_label_selectors_say_what_apimachinery_says(selector: str, matches: bool) -> None:
    compiled = compile_selector(selector, "", ("metadata.name", "metadata.namespace"))
    assert compiled.matches(record(a="1", b="x", e="", **{"example.com/k": "v"})) is matches


@pytest.mark.parametrize(
    "selector", ["a=1,", "a in 1", "a in (1", "=a", "a=b=c", "a,,b", "Ex.com/a/b=c", "a=-x", "a>x"]
)
def test_bad_label_selectors_are_bad_requests(selector: str) -> None:
    with refuses(400):
        compile_selector(selector, "", ("metadata.name", "metadata.namespace"))


@cases("""
    selector | said
    -a=b | 'key: Invalid value: "-a": name part must consist of alphanumeric characters'
    a=b,c=d_ | 'values[0][c]: Invalid value: "d_": a valid label must be an empty string or consist of'
    a in (b,-c) | 'values[1][a]: Invalid value: "-c": a valid label must be'
    """)
def test_a_selector_is_refused_with_the_place_and_the_rule(world: World, selector: str, said: str) -> None:
    status, answer = world.call("GET", f"{PODS}?{urlencode({'labelSelector': selector})}")
    assert status == 400
    assert answer["message"].startswith(f"unable to parse requirement: {said}")


def test_every_wrong_option_of_a_list_is_told(world: World) -> None:
    status, answer = world.call("GET", f"{PODS}?resourceVersionMatch=Some&sendInitialEvents=0")
    causes = [(cause["reason"], cause["field"]) for cause in answer["details"]["causes"]]
    assert (status, causes) == (
        422,
        [
            ("FieldValueForbidden", "resourceVersionMatch"),
            ("FieldValueNotSupported", "resourceVersionMatch"),
            ("FieldValueForbidden", "sendInitialEvents"),
        ],
    )
