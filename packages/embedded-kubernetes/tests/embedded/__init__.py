"""Tests of embedded-kubernetes, which need only the distribution with its extra `test`.

`support` has a server whose clock and controllers are driven by the test, and builders of objects. Recordings of real
API servers are not part of the distribution; the tests that replay them are skipped without them (`recordings`).

Each folder tests the modules and packages of `embedded_kubernetes` that `FOLDERS` lists for it:

- api: requests, storage, lists, watches, writes, subresources, discovery, HTTP and injected faults;
- auth: authentication and authorization;
- admission: webhooks and admission policies;
- cel: the expressions of policies;
- builtin: defaults and rules of the built-in kinds;
- patch: schemas, patches, apply, tables and OpenAPI;
- controllers: the controllers, including the autoscaler;
- kubelet: simulated kubelets and devices;
- assembly: a whole cluster, as a command and as a library;
- contract: the whole server against answers that were recorded from a real one;
- clients: other projects' clients of Kubernetes, against the whole server.
"""

from __future__ import annotations

_NAMES = {
    "api": "binding bodies collector connections deletion discovery errors fault_plan fault_streams faults handlers "
    "heads http inproc nesting pacing pages reading registry requests resource scale selectors store stream_sender "
    "subresources templates times tokens views watch writing",
    "auth": "auth",
    "admission": "admission",
    "cel": "cel",
    "builtin": "builtin",
    "patch": "apply cells crd crd_schema crd_validation gnostic json_syntax jsonpath openapi patch patching printing "
    "protobuf quantities schema schema_source strategic tables typed",
    "controllers": "accounts autoscaler conditions controller_list controllers cron disruption endpoint_slices "
    "generated_claims node_groups node_selection pod_claims podgc protection quotas recorder resource_claims scale_up "
    "taint_eviction volume_binding workloads",
    "kubelet": "device_driver kubelet kubelet_admission kubelet_claims kubelet_logs kubelet_play kubelet_resize "
    "kubelet_status",
    "assembly": "__main__ assembly certificates cluster command companion embedded hosts journal loading "
    "pytest_plugin server settings simulated_nodes",
}
#: Folder of tests -> names of the modules and packages of `embedded_kubernetes` that it tests.
FOLDERS = {folder: frozenset(names.split()) for folder, names in _NAMES.items()}
