"""The catalogue against a plain picture of it: what the API has, and a list of who assumed what."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from agent_scheduler.engine.volumes.catalogue import Catalogue
from agent_scheduler.engine.volumes.records import VolumeDemand, could_be_had
from tests.support.engine import node
from tests.support.stateful import model_test
from tests.support.storage import claim, ref, volume

pytestmark = pytest.mark.promise("S8", "S13")

CLAIMS, VOLUMES, NODES, PODS = ["c1", "c2"], ["v1", "v2", "v3"], ["n1", "n2"], ["p1", "p2", "p3"]
CLAIM, VOLUME, NODE, POD = (st.sampled_from(each) for each in (CLAIMS, VOLUMES, NODES, PODS))


class CatalogueMachine(RuleBasedStateMachine):
    """Keeps `api` (object -> what it says), and `assumed` (object -> (what, holders, written version))."""

    def __init__(self) -> None:
        super().__init__()
        self.catalogue = Catalogue()
        self.api_volumes: dict[str, tuple[str | None, bool, str]] = {}
        self.api_claims: dict[str, str | None] = {}
        self.taken: dict[str, tuple[str, set[str], int | None]] = {}
        self.selected: dict[str, tuple[str, set[str], int | None]] = {}
        self.numbers = itertools.count(1)
        #: Versions run ahead of what the watch shows: some are of writes that it has yet to show.
        self.version = 0

    def meta(self, name: str) -> dict[str, str]:
        self.version = next(self.numbers)
        return {"resourceVersion": str(self.version), "uid": f"uid-{name}"}

    # ---- the watch

    @rule(
        name=VOLUME,
        owner=st.sampled_from([None, *CLAIMS]),
        size=st.sampled_from(["1Gi", "2Gi"]),
        ok=st.booleans(),
    )
    def volume_is_shown(self, name: str, owner: str | None, size: str, ok: bool) -> None:
        meta = self.meta(name)
        self.api_volumes[name] = (owner, ok, size)
        self._shown(self.taken, name)
        self.catalogue.set_volume(
            volume(
                name,
                size=size,
                claim=None if owner is None else ref(owner),
                phase="Available" if ok else "Released",
                meta=meta,
            )
        )

    @rule(name=CLAIM, node=st.sampled_from([None, *NODES]))
    def claim_is_shown(self, name: str, node: str | None) -> None:
        meta = self.meta(name)
        self.api_claims[name] = node
        self._shown(self.selected, name)
        self.catalogue.set_claim(claim(name, selected=node, meta=meta))

    def _shown(self, assumed: dict[str, tuple[str, set[str], int | None]], name: str) -> None:
        if name in assumed and self.version >= (assumed[name][2] or 0):
            del assumed[name]

    @rule(name=VOLUME)
    def volume_goes(self, name: str) -> None:
        self.api_volumes.pop(name, None)
        self.taken.pop(name, None)
        self.catalogue.delete_volume(name)

    @rule(name=CLAIM)
    def claim_goes(self, name: str) -> None:
        self.api_claims.pop(name, None)
        self.selected.pop(name, None)
        self.catalogue.delete_claim("default", name)

    @rule(name=VOLUME)
    def a_list_repeats_a_volume(self, name: str) -> None:
        if name in self.catalogue.volumes:
            assert not self.catalogue.set_volume(self.catalogue.volumes[name])

    # ---- decisions

    def owner_of(self, name: str) -> str | None:
        return self.taken[name][0] if name in self.taken else self.api_volumes[name][0]

    @rule(name=VOLUME, owner=CLAIM, pod=POD)
    def volume_is_taken(self, name: str, owner: str, pod: str) -> None:
        known, wants = self.catalogue.volumes.get(name), self.catalogue.claims.get(("default", owner))
        if known is None or wants is None:
            return
        before = self.catalogue.version
        possible = self.owner_of(name) in (None, owner)
        assert self.catalogue.take(known, wants, pod) is possible
        if possible and self.api_volumes[name][0] is None:
            new = name not in self.taken
            self.taken.setdefault(name, (owner, set(), None))[1].add(pod)
            assert (self.catalogue.version > before) is new
        else:
            assert self.catalogue.version == before

    @rule(name=CLAIM, node=NODE, pod=POD)
    def node_is_selected(self, name: str, node: str, pod: str) -> None:
        known = self.catalogue.claims.get(("default", name))
        if known is None:
            return
        current = self.selected[name][0] if name in self.selected else self.api_claims[name]
        possible = current in (None, node)
        assert self.catalogue.select(known, node, pod) is possible
        if possible and self.api_claims[name] is None:
            self.selected.setdefault(name, (node, set(), None))[1].add(pod)

    @rule(name=VOLUME, ahead=st.integers(0, 2))
    def volume_is_written(self, name: str, ahead: int) -> None:
        """The watch may be several events behind the answer."""
        version = self.version + 1 + ahead
        self.catalogue.taken.written(name, version)
        if name in self.taken:
            owner, holders, written = self.taken[name]
            self.taken[name] = (owner, holders, max(written or 0, version))

    @rule(pod=POD)
    def pod_lets_go(self, pod: str) -> None:
        before = self.catalogue.version
        freed = set()
        for assumed in (self.taken, self.selected):
            for name, (_, holders, written) in list(assumed.items()):
                if pod in holders:
                    holders.discard(pod)
                    if not holders and written is None:
                        del assumed[name]
                        freed.add(name)
        assert {each.name for each in self.catalogue.release(pod)} == freed
        assert (self.catalogue.version > before) is bool(freed)

    @rule(
        size=st.sampled_from([1 << 30, 2 << 30]), modes=st.sampled_from([(), ("ReadWriteOnce",), ("Other",)])
    )
    def volumes_are_looked_for(self, size: int, modes: tuple[str, ...]) -> None:
        """From now on what suffices is kept in step, which `check` looks at."""
        demand = VolumeDemand(size, "Filesystem", frozenset(modes), "", None)
        index = self.catalogue.free.index("slow", demand)
        expected = [each for each in self.catalogue.free.of("slow") if could_be_had(each, demand)]
        assert list(index.at(node("n"))) == expected

    # ---- what holds at every step

    @invariant()
    def nothing_contradicts_itself(self) -> None:
        assert self.catalogue.check() == []

    @invariant()
    def every_volume_is_for_the_claim_of_the_picture(self) -> None:
        assert set(self.catalogue.volumes) == set(self.api_volumes)
        for name, record in self.catalogue.volumes.items():
            owner = self.catalogue.claim_ref(record)
            assert (owner.name if owner else None) == self.owner_of(name)

    @invariant()
    def free_are_the_volumes_without_a_claim_smallest_first(self) -> None:
        free = [
            (size, name)
            for name, (_, ok, size) in self.api_volumes.items()
            if ok and self.owner_of(name) is None
        ]
        assert [each.name for each in self.catalogue.free.of("slow")] == [name for _, name in sorted(free)]

    @invariant()
    def every_claim_has_the_node_of_the_picture(self) -> None:
        for (_, name), record in self.catalogue.claims.items():
            expected = self.selected[name][0] if name in self.selected else self.api_claims[name]
            assert self.catalogue.selected_node(record) == expected


TestCatalogue = model_test(CatalogueMachine, examples=110, steps=40)
