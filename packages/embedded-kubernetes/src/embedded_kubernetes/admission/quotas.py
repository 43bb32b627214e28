"""ResourceQuotas at work (pkg/quota/v1 and its admission plugin): what a create uses is checked and added.

A create that passes is added to `status.used` at once, so that no burst exceeds a quota; the controller in `quotas`
subtracts what goes. If the status is unknown, kube-apiserver rejects; here the use is summed up instead, so that a
manifest with a quota and its pods can be applied at once. Updates are not checked.
"""

from __future__ import annotations

from apimachinery.quantity import milli_value

from ..builtin.quota_usage import PODS, Amounts, counts, kind_of, pretty, text_of, unspecified
from ..errors import forbidden
from ..registry import QUOTAS, Registry, Served
from ..resource import Object


def charge(registry: Registry, served: Served, obj: Object, *, dry: bool) -> None:
    """Check a new object against the quotas of its namespace, and add what it uses. Raises 403."""
    namespace = obj["metadata"].get("namespace", "")
    quotas = registry.stored(QUOTAS)
    changed = []
    for key in registry.quotas.get(namespace, ()):
        record = quotas.table.records[key]
        quota = quotas.stored.decode(record.data)
        wanted = counts(quota, served.name, obj)
        if not wanted:
            continue
        used = _used(registry, quota, namespace)
        problem = unspecified(quota, obj) if served.name == PODS else ""
        if problem:
            _refuse(served, obj, f"failed quota: {record.name}: must specify {problem}")
        hard = quota["spec"]["hard"]
        short = [
            name for name, amount in wanted.items() if amount and used.get(name, 0) + amount > milli_value(hard[name])
        ]
        if short:
            asked = pretty({name: text_of(name, amount) for name, amount in wanted.items()}, short)
            has = pretty({name: text_of(name, used.get(name, 0)) for name in short}, short)
            text = f"requested: {asked}, used: {has}, limited: {pretty(hard, short)}"
            _refuse(served, obj, f"exceeded quota: {record.name}, {text}")
        changed.append((record, quota, {name: used.get(name, 0) + wanted.get(name, 0) for name in hard}))
    for record, quota, used in changed if not dry else ():
        registry.store.replace(QUOTAS, record, {**quota, "status": status(quota, used)})


def status(quota: Object, used: Amounts) -> Object:
    """Return the status of a quota."""
    hard = (quota.get("spec") or {}).get("hard") or {}
    return {"hard": hard, "used": {name: text_of(name, used.get(name, 0)) for name in hard}}


def _used(registry: Registry, quota: Object, namespace: str) -> Amounts:
    hard = quota["spec"]["hard"]
    known = (quota.get("status") or {}).get("used") or {}
    if hard.keys() <= known.keys():
        return {name: milli_value(known[name]) for name in hard}
    return total(registry, quota, namespace)


def total(registry: Registry, quota: Object, namespace: str) -> Amounts:
    """Sum up what the objects of a namespace use of a quota."""
    used = dict.fromkeys((quota.get("spec") or {}).get("hard") or {}, 0)
    for name in {kind_of(resource) for resource in used}:
        for served in registry.tables():
            if served.name == name:
                for record in served.table.scan(namespace):
                    for resource, amount in counts(quota, name, served.stored.decode(record.data)).items():
                        used[resource] += amount
    return used


def _refuse(served: Served, obj: Object, why: str) -> None:
    raise forbidden(served.resource.plural, served.name[0], obj["metadata"].get("name", ""), why)
