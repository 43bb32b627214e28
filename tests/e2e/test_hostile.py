"""Installed components beside a hostile tenant: the pods of others are bound, and no process ends."""

from __future__ import annotations

import itertools
from pathlib import Path

from apimachinery.quantity import resource_value
from bench.harness.measure import peak
from bench.hostile_inputs import INPUTS, RIGHTS
from bench.hostile_inputs import NAMESPACE as TENANT
from kube_client.auth import load_endpoint
from kube_client.http1 import Http1Transport
from tests.support.objects import pod

from .installed import Installation
from .test_installed import LEASES, PODS, bound, embedded_alone, own_cluster
from .test_webhook import HERE, reached

pytestmark = embedded_alone

#: The inputs by name, and how many of their requests are sent.
SENT = {
    "10 pods, 5,000 spread constraints": 3,
    "100 pods, 128 anti-affinity terms": 20,
    "10 pods, 9,000 node affinity terms": 3,
    "100 pods, 20,000 labels": 3,
    "1,000 pods that each bind wakes": 60,
    "100 pods, 64 containers, 1.4 MB": 3,
    "100 claims of 9,900 levels": 3,
    "20 Jobs of 6,000 unknown dependencies": 2,
    # From here on there is no webhook.
    "1,000 queues in a cycle": 40,
    "50 Jobs with templates of 1,500 levels": 4,
    "a Job of 2^31-1 pods without a webhook": 4,
}
COMPONENTS = {"scheduler": "agent-scheduler", "controllers": "agent-scheduler-controllers"}


async def tenant(made: Installation) -> Http1Transport:
    """Return a transport with a tenant's rights, which are those of its namespace."""
    metadata = {"name": TENANT, "namespace": TENANT}
    rbac = "rbac.authorization.k8s.io"
    subject = {"kind": "ServiceAccount", "name": TENANT, "namespace": TENANT}
    role = {"apiGroup": rbac, "kind": "Role", "name": TENANT}
    for each in (
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": TENANT}},
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata},
        {"apiVersion": f"{rbac}/v1", "kind": "Role", "metadata": metadata, "rules": RIGHTS},
        {
            "apiVersion": f"{rbac}/v1",
            "kind": "RoleBinding",
            "metadata": metadata,
            "roleRef": role,
            "subjects": [subject],
        },
    ):
        await made.add(each)
    return Http1Transport(load_endpoint(kubeconfig=await made.kubeconfig_of(TENANT, TENANT)))


async def holders(made: Installation) -> dict[str, tuple[str, int]]:
    specs = {each["metadata"]["name"]: each["spec"] for each in (await made.ask("GET", LEASES))["items"]}
    return {name: (spec["holderIdentity"], spec["leaseTransitions"]) for name, spec in specs.items()}


async def test_pods_of_others_are_bound_beside_hostile_objects(tmp_path: Path) -> None:
    components = ["crd", "default", "controllers", "webhook"]
    async with own_cluster(tmp_path, "--nodes", "20", "--no-kubelets", components=components) as made:
        started = [await made.start(deployment, name) for name, deployment in COMPONENTS.items()]
        started.append(await made.start("agent-scheduler-webhook", "webhook", *HERE))
        for each in started:
            await each.ready()
        await reached(made, started[-1])
        await made.ask("POST", PODS, pod("first"))
        await bound(made, "first")
        before = await holders(made)
        assert len(before) == 2
        hostile = await tenant(made)
        try:
            for number, (name, count) in enumerate(SENT.items()):
                (given,) = [each for each in INPUTS if each.name == name]
                accepted = 0
                for request in itertools.islice(given.requests(), count):
                    transport = made.transport if given.admin else hostile
                    answer = await transport.request(
                        request.method,
                        request.path,
                        body=request.body or None,
                        content_type=request.content_type,
                        timeout=300,
                    )
                    accepted += answer.status < 300 or request.method == "DELETE"
                assert accepted == (0 if "dependencies" in name else count), name
                names = [f"p{number}-{each}" for each in range(5)]
                for each in names:
                    await made.ask("POST", PODS, pod(each))
                await bound(made, *names)
        finally:
            await hostile.close()
        assert await holders(made) == before
        for process, deployment in zip(started, (*COMPONENTS.values(), "agent-scheduler-webhook"), strict=True):
            process.check()
            (container,) = made.named("Deployment", deployment)["spec"]["template"]["spec"]["containers"]
            limit = container["resources"]["limits"]["memory"]
            assert (peak(process.process.pid) or 0) < resource_value("memory", limit), (deployment, limit)
