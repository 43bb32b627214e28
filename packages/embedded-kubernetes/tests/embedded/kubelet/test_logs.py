"""Logs of simulated containers tell the phases of their life, with a kubelet's errors."""

from __future__ import annotations

import pytest

from embedded.support import PODS, World, cases, container
from embedded_kubernetes.kubelet import Kubelets
from embedded_kubernetes.kubelet_play import EXIT_CODE, READY_AFTER, RUN_SECONDS

STARTED = "container c of image i started; it is simulated, no program runs\n"
READY, FAILED = "container c is ready\n", "container c exited with code 3\n"


@pytest.fixture
def world() -> World:
    made = World()
    made.node()
    made.api.registry.has_kubelets = True
    made.controllers = [Kubelets(made.store)]
    annotations = {EXIT_CODE: "3", RUN_SECONDS: "20", READY_AFTER: "5"}
    made.pod("p", annotations=annotations, spec={"nodeName": "n1"})
    made.settle(1.0)
    return made


def log(world: World, query: str = "", pod: str = "p") -> str:
    return world.send("GET", f"{PODS}/{pod}/log?{query}").body.decode()


def test_a_log_grows_with_the_life_of_its_container(world: World) -> None:
    assert log(world) == STARTED
    world.settle(5.0)
    assert log(world) == STARTED + READY
    assert log(world, "timestamps=true").splitlines()[1] == f"2027-01-15T08:00:05Z {READY.strip()}"
    assert log(world, "tailLines=1") == log(world, "sinceSeconds=2") == READY
    assert log(world, "sinceTime=2027-01-15T08:00:05Z") == READY
    assert log(world, "limitBytes=9") == "container"
    # It is restarted at once: the log is that of the new start, and the old one is the previous.
    world.settle(16.0)
    assert (log(world), log(world, "previous=true")) == (STARTED, STARTED + FAILED)
    # Now it waits for its restart, and the log is still that of the last start.
    world.settle(20.0)
    assert log(world) == STARTED + FAILED


def test_a_followed_log_gets_each_line_as_it_comes_and_ends_with_the_container(world: World) -> None:
    subscribers = len(world.api.registry.stored(("", "pods")).table.subscribers)
    watch = world.watch(f"{PODS}/p/log?follow=true")
    watcher = watch.stream.watcher
    assert watch.stream.content_type == "text/plain"
    assert b"".join(watcher.take(1000)).decode() == STARTED
    world.settle(5.0)
    assert b"".join(watcher.take(1000)).decode() == READY
    assert not watcher.ended
    world.settle(20.0)
    assert b"".join(watcher.take(1000)).decode() == FAILED
    assert watcher.drained
    watch = world.watch(f"{PODS}/p/log?follow=true")
    world.delete(f"{PODS}/p", gracePeriodSeconds=0)
    assert watch.stream.watcher.ended
    assert len(world.api.registry.stored(("", "pods")).table.subscribers) == subscribers


@cases("""
    pod | query | said
    p | container=x | container x is not valid for pod p
    p | previous=true | previous terminated container "c" in pod "p" not found
    two | '' | 'a container name must be specified for pod two, choose one of: [a b] or one of the init containers: [i]'
    two | container=a | 'container "a" in pod "two" is waiting to start: ContainerCreating'
    """)
def test_what_has_no_log_says_why(world: World, pod: str, query: str, said: str) -> None:
    spec = {"containers": [container("a"), container("b")], "initContainers": [container("i")], "nodeName": "n1"}
    world.pod("two", spec=spec)
    status, answer = world.call("GET", f"{PODS}/{pod}/log?{query}")
    assert (status, answer["message"]) == (400, said)


@pytest.mark.parametrize("below", ["exec", "attach", "portforward"])
def test_nothing_runs_in_a_container(world: World, below: str) -> None:
    status, answer = world.call("POST", f"{PODS}/p/{below}")
    assert (status, answer["reason"]) == (501, "NotImplemented")
    assert f"{below} is not possible: the containers of this cluster are simulated" in answer["message"]
