"""The kinds of dynamic resource allocation (resource.k8s.io/v1, KEP-4381)."""

from __future__ import annotations

from ..resource import Resource
from .dra_claims import (
    check_claim,
    check_claim_status,
    check_template,
    default_claim,
    default_template,
    forget_devices,
)
from .dra_devices import check_device_class, check_slice, date_taints, slice_fields
from .kind import builtin

_GROUP = "resource.k8s.io"

DRA: tuple[Resource, ...] = (
    builtin(
        group=_GROUP,
        version="v1",
        kind="DeviceClass",
        plural="deviceclasses",
        namespaced=False,
        check=check_device_class,
        generation=True,
        returns_deleted=True,
    ),
    builtin(
        group=_GROUP,
        version="v1",
        kind="ResourceClaim",
        plural="resourceclaims",
        namespaced=True,
        default=default_claim,
        check=check_claim,
        status=True,
        first_status={},
        on_status=forget_devices,
        check_status=check_claim_status,
        status_keeps_labels=True,
        returns_deleted=True,
    ),
    builtin(
        group=_GROUP,
        version="v1",
        kind="ResourceClaimTemplate",
        plural="resourceclaimtemplates",
        namespaced=True,
        default=default_template,
        check=check_template,
        returns_deleted=True,
    ),
    builtin(
        group=_GROUP,
        version="v1",
        kind="ResourceSlice",
        rechecks="change",
        plural="resourceslices",
        namespaced=False,
        check=check_slice,
        on_create=date_taints,
        generation=True,
        field_names=("spec.nodeName", "spec.driver"),
        fields=slice_fields,
        returns_deleted=True,
    ),
)
