"""The kinds of dynamic resource allocation (resource.k8s.io/v1, KEP-4381)."""

from __future__ import annotations

from .dra_claims import (
    check_claim,
    check_claim_status,
    check_template,
    default_claim,
    default_template,
    forget_devices,
)
from .dra_devices import check_device_class, check_slice, date_taints
from .kind import Logic

_GROUP = "resource.k8s.io"

LOGIC = {
    (_GROUP, "DeviceClass"): Logic(check=check_device_class),
    (_GROUP, "ResourceClaim"): Logic(
        default=default_claim, check=check_claim, on_status=forget_devices, check_status=check_claim_status
    ),
    (_GROUP, "ResourceClaimTemplate"): Logic(default=default_template, check=check_template),
    (_GROUP, "ResourceSlice"): Logic(check=check_slice, on_create=date_taints),
}
