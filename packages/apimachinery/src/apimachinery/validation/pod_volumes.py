"""Checks the volumes of a template: names, one source each, and the fields of common sources.

The words are those of Kubernetes' `ValidateVolumes`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Final

import msgspec

from apimachinery.wire import Resources, Wire

from . import names
from .field_problems import (
    annotation_problems,
    descending,
    duplicate,
    file_mode,
    forbidden,
    formatted,
    invalid,
    label_problems,
    more_than_one,
    named,
    no_backsteps,
    one_of,
    present,
    required,
)
from .pod_fields import FieldRef, ResourceFieldRef, field_problems, resource_field_problems
from .pod_placement import LabelSelector, selector_problems
from .pod_resources import nano_of

_HOST_PATHS: Final = (
    *("", "BlockDevice", "CharDevice", "Directory", "DirectoryOrCreate"),
    *("File", "FileOrCreate", "Socket"),
)
_ACCESS: Final = ("ReadOnlyMany", "ReadWriteMany", "ReadWriteOnce", "ReadWriteOncePod")
_ALONE: Final = "ReadWriteOncePod"
_PULL: Final = ("Always", "IfNotPresent", "Never")
_SHORTEST_TOKEN: Final = 600
_LONGEST_DRIVER: Final = 63
_MORE: Final = "may not specify more than 1 volume type"

#: A source whose content is not checked.
_Any = dict[str, Any]


class _EmptyDir(Wire, frozen=True):
    size_limit: str | int | float | None = None


class _HostPath(Wire, frozen=True):
    path: str = ""
    type: str | None = None


class _Item(Wire, frozen=True):
    key: str = ""
    path: str = ""
    mode: int | None = None


class _ConfigMap(Wire, frozen=True):
    name: str = ""
    default_mode: int | None = None
    items: tuple[_Item, ...] = ()


class _Secret(Wire, frozen=True):
    secret_name: str = ""
    default_mode: int | None = None
    items: tuple[_Item, ...] = ()


class _ClaimVolumeSource(Wire, frozen=True):
    claim_name: str = ""


class _Nfs(Wire, frozen=True):
    server: str = ""
    path: str = ""


class _Csi(Wire, frozen=True):
    driver: str = ""


class _DownwardItem(Wire, frozen=True):
    path: str = ""
    mode: int | None = None
    field_ref: FieldRef | None = None
    resource_field_ref: ResourceFieldRef | None = None


class _Downward(Wire, frozen=True):
    default_mode: int | None = None
    items: tuple[_DownwardItem, ...] = ()


class _Token(Wire, frozen=True):
    path: str = ""
    expiration_seconds: int | None = None


class _Source(Wire, frozen=True):
    secret: _ConfigMap | None = None
    downward_api: _Downward | None = msgspec.field(default=None, name="downwardAPI")
    config_map: _ConfigMap | None = None
    service_account_token: _Token | None = None
    cluster_trust_bundle: _Any | None = None
    pod_certificate: _Any | None = None


class _Projected(Wire, frozen=True):
    default_mode: int | None = None
    sources: tuple[_Source, ...] = ()


class _VolumeResourceRequirements(Wire, frozen=True):
    requests: Resources | None = None


class _DataSource(Wire, frozen=True):
    api_group: str | None = None
    kind: str = ""
    name: str = ""


class _ClaimSpec(Wire, frozen=True):
    access_modes: tuple[str, ...] = ()
    selector: LabelSelector | None = None
    resources: _VolumeResourceRequirements = _VolumeResourceRequirements()
    storage_class_name: str | None = None
    volume_mode: str | None = None
    data_source: _DataSource | None = None
    data_source_ref: _DataSource | None = None
    volume_attributes_class_name: str | None = None


class TemplateMetadata(Wire, frozen=True):
    """The metadata of a template that pods or claims inherit."""

    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None


class _ClaimTemplate(Wire, frozen=True):
    metadata: TemplateMetadata = TemplateMetadata()
    spec: _ClaimSpec = _ClaimSpec()


class _Ephemeral(Wire, frozen=True):
    volume_claim_template: _ClaimTemplate | None = None


class _Image(Wire, frozen=True):
    reference: str = ""
    pull_policy: str | None = None


class Volume(Wire, frozen=True):
    """A volume with one of these sources; without one it is an empty directory. The order is Kubernetes'."""

    name: str = ""
    empty_dir: _EmptyDir | None = None
    host_path: _HostPath | None = None
    git_repo: _Any | None = None
    gce_persistent_disk: _Any | None = None
    aws_elastic_block_store: _Any | None = None
    secret: _Secret | None = None
    nfs: _Nfs | None = None
    iscsi: _Any | None = None
    glusterfs: _Any | None = None
    flocker: _Any | None = None
    persistent_volume_claim: _ClaimVolumeSource | None = None
    rbd: _Any | None = None
    cinder: _Any | None = None
    cephfs: _Any | None = None
    quobyte: _Any | None = None
    downward_api: _Downward | None = msgspec.field(default=None, name="downwardAPI")
    fc: _Any | None = None
    flex_volume: _Any | None = None
    config_map: _ConfigMap | None = None
    azure_file: _Any | None = None
    vsphere_volume: _Any | None = None
    photon_persistent_disk: _Any | None = None
    portworx_volume: _Any | None = None
    azure_disk: _Any | None = None
    storageos: _Any | None = None
    projected: _Projected | None = None
    scale_io: _Any | None = msgspec.field(default=None, name="scaleIO")
    csi: _Csi | None = None
    ephemeral: _Ephemeral | None = None
    image: _Image | None = None


def volume_problems(volumes: Sequence[Volume], field: str) -> Iterator[str]:
    seen: set[str] = set()
    for index, volume in enumerate(volumes):
        at = f"{field}[{index}]"
        yield from named(f"{at}.name", volume.name, names.label)
        if volume.name in seen:
            yield duplicate(f"{at}.name", volume.name)
        seen.add(volume.name)
        given = _given(volume)
        for kind, source in list(given.items())[:1]:
            yield from _of_source(source, f"{at}.{kind}")
        yield from more_than_one(at, given, _MORE)


def _given(volume: Volume) -> dict[str, object]:
    """Return its sources by field name."""
    found = {each.encode_name: getattr(volume, each.name) for each in _FIELDS if each.name != "name"}
    return {kind: source for kind, source in found.items() if source is not None}


_FIELDS: Final = msgspec.structs.fields(Volume)


def _of_source(source: object, field: str) -> Iterator[str]:
    match source:
        case _EmptyDir():
            if source.size_limit is not None and nano_of(source.size_limit) < 0:
                yield forbidden(f"{field}.sizeLimit", "SizeLimit field must be a valid resource quantity")
        case _HostPath():
            yield from present(f"{field}.path", source.path)
            yield from no_backsteps(f"{field}.path", source.path)
            yield from one_of(f"{field}.type", source.type, _HOST_PATHS)
        case _Secret():
            yield from present(f"{field}.secretName", source.secret_name)
            yield from _of_items(source.default_mode, source.items, field)
        case _Nfs():
            yield from present(f"{field}.server", source.server)
            yield from present(f"{field}.path", source.path)
            if source.path and not source.path.startswith("/"):
                yield invalid(f"{field}.path", source.path, "must be an absolute path")
        case _ClaimVolumeSource():
            yield from present(f"{field}.claimName", source.claim_name)
        case _Downward():
            yield from _of_downward(source, field)
        case _ConfigMap():
            yield from _of_config(source, field)
        case _Projected():
            yield from _of_projected(source, field)
        case _Csi():
            yield from _of_driver(source.driver, f"{field}.driver")
        case _Ephemeral():
            yield from _of_claim_template(source.volume_claim_template, f"{field}.volumeClaimTemplate")
        case _Image():
            yield from present(f"{field}.reference", source.reference)
            yield from one_of(f"{field}.pullPolicy", source.pull_policy, _PULL)


def block_devices(volumes: Sequence[Volume]) -> frozenset[str]:
    """Return the names of the volumes that may be block devices."""
    return frozenset(
        each.name for each in volumes if each.persistent_volume_claim is not None or each.ephemeral is not None
    )


def _of_items(mode: int | None, items: Sequence[_Item], field: str) -> Iterator[str]:
    yield from file_mode(f"{field}.defaultMode", mode)
    for index, item in enumerate(items):
        at = f"{field}.items[{index}]"
        yield from present(f"{at}.key", item.key)
        yield from _of_path(item.path, f"{at}.path")
        yield from file_mode(f"{at}.mode", item.mode)


def _of_path(path: str, at: str) -> Iterator[str]:
    if path:
        yield from descending(at, path)
    else:
        yield required(at)


def _of_config(config: _ConfigMap, field: str) -> Iterator[str]:
    """Check a ConfigMap, or a Secret in a projected volume."""
    yield from present(f"{field}.name", config.name)
    yield from _of_items(config.default_mode, config.items, field)


def _of_downward(downward: _Downward, field: str) -> Iterator[str]:
    yield from file_mode(f"{field}.defaultMode", downward.default_mode)
    for index, item in enumerate(downward.items):
        at = f"{field}.items[{index}]"
        yield from _of_path(item.path, f"{at}.path")
        if item.field_ref is None and item.resource_field_ref is None:
            yield required(at, "one of fieldRef and resourceFieldRef is required")
        elif item.field_ref is not None and item.resource_field_ref is not None:
            yield invalid(at, "resource", "fieldRef and resourceFieldRef can not be specified simultaneously")
        elif item.field_ref is not None:
            yield from field_problems(item.field_ref, f"{at}.fieldRef", in_volume=True)
        elif item.resource_field_ref is not None:
            yield from resource_field_problems(item.resource_field_ref, f"{at}.resourceFieldRef", in_volume=True)
        yield from file_mode(f"{at}.mode", item.mode)


def _of_projected(projected: _Projected, field: str) -> Iterator[str]:
    yield from file_mode(f"{field}.defaultMode", projected.default_mode)
    for index, source in enumerate(projected.sources):
        at = f"{field}.sources[{index}]"
        given = [each for each in msgspec.structs.asdict(source).values() if each is not None]
        if len(given) > 1:
            yield forbidden(at, _MORE)
        token = source.service_account_token
        if token is not None:
            seconds = token.expiration_seconds
            if seconds is not None and seconds < _SHORTEST_TOKEN:
                detail = "may not specify a duration less than 10 minutes"
                yield invalid(f"{at}.serviceAccountToken.expirationSeconds", seconds, detail)
            yield from present(f"{at}.serviceAccountToken.path", token.path)
        if source.secret is not None:
            yield from _of_config(source.secret, f"{at}.secret")
        if source.config_map is not None:
            yield from _of_config(source.config_map, f"{at}.configMap")
        if source.downward_api is not None:
            yield from _of_downward(source.downward_api, f"{at}.downwardAPI")


def _of_driver(driver: str, at: str) -> Iterator[str]:
    if not driver:
        yield required(at)
    elif len(driver) > _LONGEST_DRIVER:
        yield f"{at}: Too long: may not be more than {_LONGEST_DRIVER} bytes"
    else:
        for problem in names.subdomain(driver.lower()):
            yield invalid(at, driver, problem)


def _of_claim_template(template: _ClaimTemplate | None, field: str) -> Iterator[str]:
    if template is None:
        yield required(field)
        return
    yield from label_problems(f"{field}.metadata.labels", template.metadata.labels)
    yield from annotation_problems(f"{field}.metadata.annotations", template.metadata.annotations)
    yield from _of_claim(template.spec, f"{field}.spec")


def _of_claim(spec: _ClaimSpec, field: str) -> Iterator[str]:
    modes, at = spec.access_modes, f"{field}.accessModes"
    if not modes:
        yield required(at, "at least 1 access mode is required")
    yield from selector_problems(spec.selector, f"{field}.selector")
    for mode in modes:
        yield from one_of(at, mode, _ACCESS)
    if _ALONE in modes and any(mode != _ALONE and mode in _ACCESS for mode in modes):
        yield forbidden(at, f"may not use {_ALONE} with other access modes")
    storage = (spec.resources.requests or {}).get("storage")
    if storage is None:
        yield required(f"{field}.resources[storage]")
    elif nano_of(storage) <= 0:
        yield invalid(f"{field}.resources[storage]", storage, "must be greater than zero")
    if spec.storage_class_name:
        yield from formatted(f"{field}.storageClassName", spec.storage_class_name, names.subdomain)
    yield from one_of(f"{field}.volumeMode", spec.volume_mode, ("Block", "Filesystem"))
    for name, source in (("dataSource", spec.data_source), ("dataSourceRef", spec.data_source_ref)):
        if source is not None:
            yield from _of_data_source(source, f"{field}.{name}")
    if spec.volume_attributes_class_name:
        at = f"{field}.volumeAttributesClassName"
        yield from formatted(at, spec.volume_attributes_class_name, names.subdomain)


def _of_data_source(source: _DataSource, at: str) -> Iterator[str]:
    yield from present(f"{at}.name", source.name)
    yield from present(f"{at}.kind", source.kind)
    if source.api_group:
        yield from formatted(f"{at}.apiGroup", source.api_group, names.subdomain)
    elif source.kind != "PersistentVolumeClaim":
        detail = "must be 'PersistentVolumeClaim' when referencing the default apiGroup"
        yield invalid(at, source.kind, detail)
