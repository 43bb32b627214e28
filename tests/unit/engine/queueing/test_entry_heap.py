"""The heap under the queues: order, removal from the middle, and what removal leaves behind."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from agent_scheduler.engine.queueing.entry import QueuedPodInfo
from agent_scheduler.engine.queueing.subqueues import EntryHeap

from .queue_world import pod


def entry(name: str) -> QueuedPodInfo:
    return QueuedPodInfo(uid=name, pod=pod(name, uid=name), timestamp=0.0)


@given(
    st.lists(
        st.tuples(st.sampled_from(["push", "pop", "remove", "first"]), st.integers(0, 9), st.integers(0, 3)),
        max_size=120,
    )
)
def test_the_heap_is_a_sorted_list_that_forgets(steps: list[tuple[str, int, int]]):
    heap: EntryHeap = EntryHeap()
    model: list[tuple[int, int, str]] = []
    for sequence, (step, name, key) in enumerate(steps):
        uid = str(name)
        known = [item for item in model if item[2] == uid]
        if step == "push" and not known:
            heap.push(entry(uid), (key,))
            model.append((key, sequence, uid))
        elif step == "remove":
            removed = heap.remove(uid)
            assert (removed is None) is (not known)
            model = [item for item in model if item[2] != uid]
        elif step == "pop":
            popped = heap.pop()
            best = min(model, default=None)
            assert (popped and popped.uid) == (best and best[2])
            if best:
                model.remove(best)
        assert heap.first_key() == min((item[0] for item in model), default=None)
        for count in (1, 2, 10):
            first = [one.uid for one in heap.first(count, lambda entry: entry.uid != "3")]
            assert first == [item[2] for item in sorted(model) if item[2] != "3"][:count]
        assert len(heap) == len(model)
        assert {one.uid for one in heap} == {item[2] for item in model}


def test_removed_pods_do_not_pile_up():
    """A pool that pods enter and leave without ever being flushed must not keep them all."""
    heap: EntryHeap = EntryHeap()
    for index in range(10_000):
        heap.push(entry(str(index)), (index,))
        if index >= 10:
            heap.remove(str(index - 5))
    assert len(heap) < 20
    assert len(heap._heap) < 200
