"""A cluster of 60 to 150 nodes that changes by chance, in bursts of up to 100 changes."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable
from typing import Any

from agent_scheduler.engine.state.gpus import ANNOTATION as GPU_INDEX
from tests.support import devices, objects, storage
from tests.support.drawn import APPS, IMAGES, NAMESPACES, TEAMS, ZONES, Drawn
from tests.support.terms import ZONE, term

from .live import LEARNING, PACKING, PROFILES, Answer, Live, Obj, Question

#: How many changes come between two decisions: none, as between workers' turns, a few, and many at once.
BURSTS = (0, 1, 1, 2, 5, 17, 40, 65, 100)
#: How many of a class's pods come one after the other.
RUNS = (1, 1, 1, 3, 8, 30)
#: Pods that wait, of which some are decided on after each burst.
WAITING = 16
#: Kinds of pods that come and go, and how many pods there are on a node.
KINDS = 30
PODS_A_NODE = 3


class Cluster:
    """`live` has been told of each change of `objects` as it came."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._numbers = itertools.count()
        self.objects: dict[str, dict[str, Any]] = {
            kind: {} for kind in ("namespaces", "services", "slices", "claims", "volumes", "volumeclaims")
        }
        self.objects |= {"classes": {"any": devices.class_of()}, "nodes": {}, "pods": {}}
        self.objects["storageclasses"] = {"slow": storage.storage_class()}
        self.live = Live(self.objects, ())
        self._size = self._random.randrange(60, 151)
        #: Of ten changes so many are of nodes: for some time none, for some time half of them.
        self._of_nodes = 1
        # In some clusters no node is better or worse than another but for what it offers, as far as most pods go.
        repelling = 0.0 if self._random.random() < 0.3 else 0.1
        self._drawn = Drawn(self._random, claims=4, device_claims=10, repelling=repelling)
        for index in range(self._size):
            self._set_node(index)
        for name in NAMESPACES:
            self._set("namespaces", name, {"metadata": {"name": name, "labels": {"team": "x"}}})
        for _ in range(60):
            self._change_slice()
            self._change_claim()
            self._change_volume()
            self._change_volume_claim()
        self._kinds = [self._pod() for _ in range(KINDS)]
        for _ in range(2 * self._size):
            self._run_pod()
        self._waiting = [self._pod() for _ in range(WAITING)]
        self._came_last = self._waiting[0]

    # ---- decisions

    def anew(self) -> Live:
        """An engine that has kept nothing."""
        return Live(self.objects, self.live.names_of_rows, self.live.workload)

    def turn(self, compare: Callable[[Answer, Answer, str], None]) -> None:
        """A burst of changes, and some decisions after it."""
        rng = self._random
        if rng.random() < 0.1:
            self._of_nodes = rng.choice((0, 0, 1, 5))
        for _ in range(rng.choice((0, 0, 1, 20))):
            # What is learnt of pods that come changes what tells nodes apart.
            self.live.workload.seen(self.live.read(rng.choice(self._kinds)).cls)
        told = [self._change() for _ in range(rng.choice(BURSTS))]
        if rng.random() < 0.3:
            self._waiting[rng.randrange(WAITING)] = self._like(rng.choice(self._waiting))
            self._kinds[rng.randrange(KINDS)] = self._like(rng.choice(self._waiting))
        fresh = self.anew()
        # What was kept while many came is asked about after what changed since.
        for body in (self._came_last, *rng.sample(self._waiting, 5)):
            compare(*self._ask(fresh, body), f"{body} after {told}")
        body = self._came_last = rng.choice(self._waiting)
        for _ in range(rng.choice(RUNS)):
            if not self._bind(body):
                break
        compare(*self._ask(self.anew(), body), f"{body} after others like it")

    def _ask(self, fresh: Live, body: Obj) -> tuple[Answer, Answer]:
        rng, nodes = self._random, [*self.objects["nodes"]]
        question = Question(
            candidates=rng.choice((1, 3, 5)),
            offset=rng.choice((0, 7, 41, rng.randrange(len(nodes)))),
            nominated=rng.choice(nodes) if rng.random() < 0.1 else "",
            taken=tuple(rng.sample(nodes, 3)) if rng.random() < 0.1 else (),
            in_full=rng.random() < 0.4,
        )
        return self.live.answer(self.live.read(body), question), fresh.answer(fresh.read(body), question)

    def _bind(self, body: Obj) -> bool:
        """A pod like `body` comes and is bound. Returns whether it could be."""
        rng, pod = self._random, self._called(body)
        info = self.live.read(pod)
        question = Question(3, rng.choice((0, 7)), "", (), False)
        answer = self.live.answer(info, question)
        if not answer.chosen or info.claims or info.cls.volumes is not None:
            return False
        node, row = rng.choice(answer.chosen)
        self.live.ledger.assume(info, row)
        if rng.random() < 0.1:
            self.live.ledger.forget(info.uid)
            return True
        self.live.ledger.confirm(info.uid)
        annotations = self.live.ledger.bound_with.get(info.uid, {})
        self.objects["pods"][info.uid] = {
            "metadata": {**pod["metadata"], "annotations": annotations},
            "spec": {**pod["spec"], "nodeName": node},
        }
        return True

    # ---- changes

    def _set(self, kind: str, name: str, body: Any) -> str:
        self.objects[kind][name] = body
        self.live.set(kind, name, body)
        return f"{kind} {name}"

    def _delete(self, kind: str, name: str) -> str:
        del self.objects[kind][name]
        self.live.delete(kind, name)
        return f"no {kind} {name}"

    def _some(self, kind: str) -> str:
        return self._random.choice([*self.objects[kind]])

    def _change(self) -> str:
        rng = self._random
        what: Callable[[], str]
        if rng.random() < self._of_nodes / 10:
            what = rng.choice((self._change_node, self._change_node, self._change_node, self._swap_node))
        elif rng.random() < 0.08:
            what = rng.choice(
                (self._change_namespace, self._change_service, self._change_volume, self._change_volume_claim)
            )
        elif rng.random() < 0.3:
            what = rng.choice((self._change_slice, *[self._change_claim] * 7))
        else:
            what = rng.choice((self._run_pod, self._run_pod, self._end_pod, self._change_pod))
            if what == self._run_pod and len(self.objects["pods"]) > PODS_A_NODE * self._size:
                what = self._end_pod
        return what()

    def _swap_node(self) -> str:
        """One goes, or one comes, mostly under a name that was there before."""
        nodes = self.objects["nodes"]
        if len(nodes) > 60 and self._random.random() < 0.5:
            return self._delete("nodes", self._some("nodes"))
        return self._set_node(self._random.randrange(150))

    def _change_node(self) -> str:
        """In one thing, or in all."""
        rng, name = self._random, self._some("nodes")
        old = self.objects["nodes"][name]
        new = self._node(name)
        part = rng.choice(("metadata", "spec", "status", ""))
        return self._set("nodes", name, {**old, part: new[part]} if part else new)

    def _set_node(self, index: int) -> str:
        return self._set("nodes", f"n{index}", self._node(f"n{index}"))

    def _node(self, name: str) -> Obj:
        images = [{"names": [self._random.choice(IMAGES)], "sizeBytes": 500_000_000}]
        status = {"images": images} if self._drawn.likely(0.3) else {}
        return objects.node(name, uid=name, status=status, **self._drawn.node_fields())

    def _run_pod(self) -> str:
        """Somebody else's pod is bound; its node may be one that is not there (yet)."""
        body = self._called(self._random.choice(self._kinds))
        body["spec"] = {**body["spec"], "nodeName": self._where()}
        # On whatever devices, or on none that it names.
        body["metadata"]["annotations"] = {GPU_INDEX: self._random.choice(("0", "1", "0,1", ""))}
        return self._set("pods", body["metadata"]["uid"], body)

    def _where(self) -> str:
        return f"n{self._random.randrange(150)}" if self._random.random() < 0.1 else self._some("nodes")

    def _end_pod(self) -> str:
        return self._delete("pods", self._some("pods")) if self.objects["pods"] else ""

    def _change_pod(self) -> str:
        """It is being deleted, labelled anew or resized."""
        uid = self._some("pods")
        old = self.objects["pods"][uid]
        metadata, spec = old["metadata"], old["spec"]
        match self._random.randrange(4):
            case 0:
                metadata = {**metadata, "deletionTimestamp": "2026-01-01T00:00:00Z"}
            case 1:
                metadata = {**metadata, "labels": self._drawn.labels()}
            case 2:
                spec = {**spec, "containers": [self._container()]}
            case _:
                spec = {**spec, "nodeName": self._where()}
        return self._set("pods", uid, {**old, "metadata": metadata, "spec": spec})

    def _change_namespace(self) -> str:
        name = self._random.choice(NAMESPACES)
        labels = {"team": self._random.choice(TEAMS)}
        return self._set("namespaces", name, {"metadata": {"name": name, "labels": labels}})

    def _change_service(self) -> str:
        name = f"s{self._random.randrange(3)}"
        if name in self.objects["services"] and self._random.random() < 0.5:
            return self._delete("services", name)
        selector = {"app": self._random.choice(APPS)}
        return self._set("services", name, {"metadata": {"name": name}, "spec": {"selector": selector}})

    def _change_slice(self) -> str:
        rng, number = self._random, self._random.randrange(40)
        name = f"slice{number}"
        if name in self.objects["slices"] and rng.random() < 0.2:
            return self._delete("slices", name)
        place: Obj = {"nodeName": f"n{number}"}
        if number < 2:
            place = {"allNodes": True}
        elif number < 5:
            place = {"nodeSelector": {"nodeSelectorTerms": [term(ZONE, ZONES[number - 2])]}}
        found = [
            devices.device(f"d{index}", attributes=devices.attributes(kind=rng.choice("ab")))
            for index in range(rng.randrange(1, 5))
        ]
        pool = {"name": f"pool{number}"}
        return self._set("slices", name, devices.slice_of(name, *found, version=self._next(), pool=pool, **place))

    def _change_claim(self) -> str:
        """One that waiting pods have or, mostly, one of others that takes devices or gives them back."""
        rng, number = self._random, self._random.randrange(60)
        name = f"claim-{number}"
        if name in self.objects["claims"] and rng.random() < 0.3:
            return self._delete("claims", name)
        request = devices.exactly(count=rng.randrange(1, 3))
        if rng.random() < 0.5:
            kind = f"device.attributes['{devices.DRIVER}'].kind == '{rng.choice('ab')}'"
            request["exactly"]["selectors"] = [{"cel": {"expression": kind}}]
        if rng.random() < 0.3:
            two = {"name": "two", "deviceClassName": "any", "count": 2}
            request = {"name": "r", "firstAvailable": [two, {"name": "one", "deviceClassName": "any"}]}
        status = self._allocated() if number >= 10 and rng.random() < 0.8 else {}
        made = devices.claim_of(name, request, version=self._next(), status=status)
        return self._set("claims", name, made)

    def _allocated(self) -> Obj:
        """A device that nobody has, if one is found at once."""
        if not self.objects["slices"]:
            return {}
        made = self.objects["slices"][self._some("slices")]
        pool, name = made.pool.pool, self._random.choice(made.devices).name
        for each in self.objects["claims"].values():
            if each.allocation and (pool, name) in [use.id[1:] for use in each.allocation.uses]:
                return {}
        status = devices.allocated_to(name, pool=pool)
        del status["allocation"]["nodeSelector"]
        return status

    def _change_volume(self) -> str:
        rng, number = self._random, self._random.randrange(6)
        name = f"pv{number}"
        if name in self.objects["volumes"] and rng.random() < 0.3:
            return self._delete("volumes", name)
        claim = storage.ref(f"claim-{number}", uid="") if number < 3 else None
        return self._set("volumes", name, storage.volume(name, zone=rng.choice(ZONES), claim=claim))

    def _change_volume_claim(self) -> str:
        rng, number = self._random, self._random.randrange(4)
        name = f"claim-{number}"
        if name in self.objects["volumeclaims"] and rng.random() < 0.2:
            return self._delete("volumeclaims", name)
        bound = number < 3 and rng.random() < 0.5
        volume, phase = (f"pv{number}", "Bound") if bound else ("", "Pending")
        return self._set("volumeclaims", name, storage.claim(name, volume=volume, bound=bound, phase=phase))

    def _next(self) -> int:
        return next(self._numbers) + 1

    # ---- pods

    def _called(self, body: Obj) -> Obj:
        uid = f"p{next(self._numbers)}"
        return {**body, "metadata": {**body["metadata"], "name": uid, "uid": uid}}

    def _like(self, body: Obj) -> Obj:
        """Another kind of pod, which may differ in no more than what it asks for."""
        if self._random.random() < 0.5:
            return self._pod()
        return {**body, "spec": {**body["spec"], "containers": [self._container()]}}

    def _pod(self) -> Obj:
        rng, drawn = self._random, self._drawn
        spec: Obj = {"schedulerName": rng.choice((*PROFILES, PACKING, LEARNING)), "containers": [self._container()]}
        for part in rng.choice(PARTS):
            part(drawn, spec)
        namespace = rng.choice(NAMESPACES) if drawn.likely(0.2) else "default"
        about = objects.metadata("waiting", uid="waiting", namespace=namespace, labels=drawn.labels())
        return {"metadata": about, "spec": spec}

    def _container(self) -> Obj:
        rng, drawn = self._random, self._drawn
        ports = [rng.choice((80, 81))] if drawn.likely(0.1) else []
        return objects.container(requests=drawn.requests(), ports=ports, image=rng.choice(IMAGES))


def _near(drawn: Drawn, spec: Obj) -> None:
    drawn.near(spec, weights=(0, 1, 10))


#: What a pod's spec has beside its containers.
PARTS: tuple[tuple[Callable[[Drawn, Obj], None], ...], ...] = (
    (),
    (),
    (),
    (Drawn.selected,),
    (Drawn.tolerating,),
    (Drawn.required,),
    (Drawn.preferred, Drawn.tolerating),
    (Drawn.spreading,),
    (Drawn.spreading,),
    (Drawn.spreading, Drawn.selected),
    (_near,),
    (_near,),
    (_near, Drawn.spreading),
    (Drawn.claiming,),
    (Drawn.claiming, Drawn.preferred),
    (Drawn.mounting,),
)
