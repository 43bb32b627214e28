"""Dynamic resource allocation (resource.k8s.io/v1): which devices a pod's claims get, and on which nodes.

What others use:

- `records`: `read_device_class`, `read_slice`, `read_claim`, and the values that they make;
- `catalogue.Devices`: the owner. `set_*` and `delete_*` (of slices: of its `pools`) with what the watch shows;
  `assume(key, allocation, pod_uid)`, `written(key, pod_uid, resource_version)`, `forget(pod_uid)` with what the binder
  does; `changed` tells whose rows may have other answers; `version` is of the classes, from which a pod's class is
  compiled;
- `demand`: `PodClaim`, `PodRef`, `demand()` for a pod's class, `to_allocate()` for the claims that the answer is for,
  `missing()` for PreEnqueue;
- `allocator`: `allocate(demand, devices, node)`, `Refused`; `answer()` is the same, kept by node;
- `allocation.Allocation`: `status(claim_uid)` is the `status.allocation` to write;
- `extended`: `needs_of()` a pod for `demand(extended=...)`; `met_by_devices()` for NodeResourcesFit; `claim_for()` a
  pod on its node, which the last allocation is for;
- `extended_claim`: the claim that is made then, its name, and what its pod is told;
- `reservation`: what a binder takes, writes and takes back, a claim at a time.
"""
