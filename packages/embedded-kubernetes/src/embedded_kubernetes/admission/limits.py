"""LimitRanges at work (plugin/pkg/admission/limitranger): defaults of containers, and bounds of pods and claims.

Only creates are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from apimachinery.quantity import milli_value

from ..builtin.quota_usage import amounts, text_of
from ..errors import forbidden
from ..registry import Registry, Served
from ..resource import Object

PODS = ("", "pods")
CLAIMS = ("", "persistentvolumeclaims")
_ANNOTATION = "kubernetes.io/limit-ranger"
_GROUPS = (("containers", "container"), ("initContainers", "init container"))


def _items(registry: Registry, namespace: str, kind: str) -> Iterator[Object]:
    for limits in registry.limits.get(namespace, {}).values():
        for item in (limits.get("spec") or {}).get("limits") or ():
            if item.get("type") == kind:
                yield item


def default(registry: Registry, pod: Object, namespace: str) -> None:
    """Set requests and limits that the containers of a new pod lack."""
    defaults: dict[str, dict[str, Any]] = {"requests": {}, "limits": {}}
    for item in _items(registry, namespace, "Container"):
        for field, source in (("requests", "defaultRequest"), ("limits", "default")):
            for name, amount in (item.get(source) or {}).items():
                defaults[field].setdefault(name, amount)
    applied = []
    for group, word in _GROUPS:
        for container in pod["spec"].get(group) or ():
            for field, wanted in defaults.items():
                given = dict((container.get("resources") or {}).get(field) or {})
                missing = {name: amount for name, amount in wanted.items() if name not in given}
                if missing:
                    container["resources"] = {**(container.get("resources") or {}), field: {**given, **missing}}
                    applied.append(
                        f"{', '.join(sorted(missing))} {field.removesuffix('s')} for {word} {container['name']}"
                    )
    if applied:
        annotations = pod["metadata"].get("annotations") or {}
        pod["metadata"]["annotations"] = {**annotations, _ANNOTATION: f"LimitRanger plugin set: {'; '.join(applied)}"}


def check(registry: Registry, served: Served, obj: Object) -> None:
    """Check a new pod or claim. Raises 403."""
    namespace = obj["metadata"].get("namespace", "")
    if served.name == PODS:
        wrong = list(_pod_problems(registry, obj["spec"], namespace))
    elif served.name == CLAIMS:
        requests = _milli((obj["spec"].get("resources") or {}).get("requests"))
        wrong = [
            text
            for item in _items(registry, namespace, "PersistentVolumeClaim")
            for text in (*_minimum(item, requests, {}), *_maximum(item, requests, {}, word="request"))
        ]
    else:
        return
    if wrong:
        text = wrong[0] if len(wrong) == 1 else f"[{', '.join(wrong)}]"
        raise forbidden(served.resource.plural, served.name[0], obj["metadata"].get("name", ""), text)


def _pod_problems(registry: Registry, spec: Object, namespace: str) -> Iterator[str]:
    for item in _items(registry, namespace, "Container"):
        for group, _ in _GROUPS:
            for container in spec.get(group) or ():
                resources = container.get("resources") or {}
                yield from _problems(item, _milli(resources.get("requests")), _milli(resources.get("limits")))
    for item in _items(registry, namespace, "Pod"):
        yield from _problems(item, amounts(spec, "requests"), amounts(spec, "limits"))


def _milli(quantities: Mapping[str, Any] | None) -> dict[str, int]:
    return {name: milli_value(amount) for name, amount in (quantities or {}).items()}


def _problems(item: Object, requests: dict[str, int], limits: dict[str, int]) -> Iterator[str]:
    yield from _minimum(item, requests, limits)
    yield from _maximum(item, requests, limits)
    for name, ratio in (item.get("maxLimitRequestRatio") or {}).items():
        about = f"{name} max limit to request ratio per {item['type']} is {ratio}, but"
        asked, limited = requests.get(name), limits.get(name)
        if not asked:
            yield f"{about} no request is specified or request is 0"
        elif not limited:
            yield f"{about} no limit is specified or limit is 0"
        elif limited * 1000 > milli_value(ratio) * asked:
            yield f"{about} provided ratio is {limited / asked:f}"


def _minimum(item: Object, requests: dict[str, int], limits: dict[str, int]) -> Iterator[str]:
    for name, bound in (item.get("min") or {}).items():
        about, least = f"minimum {name} usage per {item['type']} is {bound}", milli_value(bound)
        if name not in requests:
            yield f"{about}.  No request is specified"
        elif requests[name] < least:
            yield f"{about}, but request is {text_of(name, requests[name])}"
        elif limits.get(name, least) < least:
            yield f"{about}, but limit is {text_of(name, limits[name])}"


def _maximum(item: Object, requests: dict[str, int], limits: dict[str, int], *, word: str = "limit") -> Iterable[str]:
    """Yield what is above the maximum. `word` is what must be specified."""
    for name, bound in (item.get("max") or {}).items():
        about, most = f"maximum {name} usage per {item['type']} is {bound}", milli_value(bound)
        if name not in (limits if word == "limit" else requests):
            yield f"{about}.  No {word} is specified"
        elif limits.get(name, most) > most:
            yield f"{about}, but limit is {text_of(name, limits[name])}"
        elif requests.get(name, most) > most:
            yield f"{about}, but request is {text_of(name, requests[name])}"
