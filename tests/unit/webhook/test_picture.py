"""What reviews know of the cluster follows each change of it."""

from __future__ import annotations

import msgspec

from agent_scheduler.objects.batch import QUEUE_NAME, Queue
from agent_scheduler.objects.wire import Metadata, Namespace
from agent_scheduler.telemetry.webhook import WebhookMetrics
from agent_scheduler.webhook.picture import Picture
from kube_client.testing.scripted import FakeTime, Hang, answering
from tests.support import objects


def picture() -> Picture:
    metrics = WebhookMetrics(version="1")
    return Picture(answering(lambda _: Hang())[1], metrics=metrics, timing=FakeTime().timing)


def namespace(name: str, **annotations: str) -> Namespace:
    return Namespace(metadata=Metadata(name=name, annotations=annotations))


def test_the_queue_of_a_namespace_is_the_one_that_it_names_now() -> None:
    seen = picture()
    for queue in ("research", "other"):
        seen._set_namespace(namespace("team", **{QUEUE_NAME: queue, "x": "y"}))
        assert seen.namespaces == {"team": {QUEUE_NAME: queue}}
    seen._set_namespace(namespace("team", x="y"))
    assert seen.namespaces == {}
    seen._set_namespace(namespace("team", **{QUEUE_NAME: "research"}))
    seen._set_namespace(namespace("else", **{QUEUE_NAME: "other"}))
    seen._delete_namespace(namespace("team"))
    assert seen.namespaces == {"else": {QUEUE_NAME: "other"}}


def test_a_queue_outlives_the_late_deletion_of_its_namesake() -> None:
    seen = picture()
    old, new = (msgspec.convert(objects.queue("q", uid=uid), Queue) for uid in ("old", "new"))
    seen._set_queue(old)
    seen._set_queue(new)
    seen._delete_queue(old)
    assert seen.queues == {"q": new}
    seen._delete_queue(new)
    seen._delete_queue(new)
    assert seen.queues == {}
