"""What a cluster is made of: the options of `EmbeddedCluster`, which are the flags of `embedded-kubernetes`."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from os import PathLike

from apimachinery.quantity import QuantityError, resource_value

from . import controller_list
from .auth.identity import User
from .auth.options import MODES
from .builtin import OFF_BY_DEFAULT
from .device_driver import Attaching, DevicesShape
from .errors import ClusterError
from .fault_plan import Faults
from .loading import Manifests
from .node_groups import NodeGroup, RuleError, read_rules
from .simulated_nodes import GPU, node_name

#: A file by its name.
File = str | PathLike[str]
Quantity = str | float


class SettingError(ClusterError):
    """A setting that cannot be followed; the text names it. `given` is what was given, where that helps to find it."""

    def __init__(self, name: str, why: str, given: object = None) -> None:
        self._name = name
        self._rest = f": {why}" if given is None else f" {given}: {why}"
        super().__init__(name + self._rest)

    def as_flag(self) -> str:
        """The text for who gave the setting as a flag."""
        return f"--{self._name.replace('_', '-')}{self._rest}"


@dataclass(kw_only=True)
class Settings:
    """What is not given is as `embedded-kubernetes --help` says, but for `nodes` and `port`.

    There are no nodes, and the port is a free one. Raises `SettingError` for a value that is not allowed; files are
    read when the cluster starts.
    """

    host: str = "127.0.0.1"
    port: int = 0
    nodes: int = 0
    node_cpu: Quantity = "32"
    node_memory: Quantity = "128Gi"
    node_pods: Quantity = "110"
    node_gpus: Quantity = "0"
    #: What else every node has: NAME=QUANTITY each.
    node_resource: Sequence[str] = ()
    devices_per_node: int = 0
    device_nodes: int | None = None
    device_attach_seconds: float | None = None
    kubeconfig_out: File | None = None
    kubelets: bool = True
    controllers: str = "*"
    #: A node group's rule each.
    autoscaler: str | Sequence[str] = ()
    #: Versions that are off by default, each with "=true" behind it.
    runtime_config: str = ""
    #: Created at the start.
    load: Manifests = ()
    tls: bool | None = None
    #: The administrator's. With RBAC one is made unless it is given.
    token: str = ""
    authorization_mode: str = "AlwaysAllow"
    token_auth_file: File | None = None
    #: By their tokens, beside those of the file. Not a flag.
    users: Mapping[str, User] = field(default_factory=dict)
    anonymous_auth: bool = True
    service_account_issuer: str = ""
    api_audiences: str = ""
    service_account_signing_key_file: File | None = None
    audit_log_path: File | None = None
    faults: Faults | None = None

    def __post_init__(self) -> None:
        self._check_numbers()
        if self.authorization_mode not in MODES:
            why = f"must be one of {', '.join(MODES)}, not {self.authorization_mode}"
            raise SettingError("authorization_mode", why)
        for user in self.users.values():
            if not isinstance(user, User):
                raise SettingError("users", f"must be embedded_kubernetes.User by token, not {user!r}")
        self.node_amounts()
        self.controller_names()
        self.node_groups()
        self.versions()
        if self.rbac and not self.token:
            self.token = secrets.token_urlsafe(24)

    def _check_numbers(self) -> None:
        for name in ("port", "nodes", "devices_per_node", "device_nodes"):
            value = getattr(self, name)
            if type(value) is not int and not (name == "device_nodes" and value is None):
                raise SettingError(name, f"must be a whole number, not {value!r}")
        seconds = self.device_attach_seconds
        if seconds is not None and not isinstance(seconds, int | float):
            raise SettingError("device_attach_seconds", f"must be a number, not {seconds!r}")
        for name in ("nodes", "devices_per_node", "device_nodes", "device_attach_seconds"):
            if (getattr(self, name) or 0) < 0:
                raise SettingError(name, f"must be at least 0, not {getattr(self, name)}")
        if self.port not in range(65536):
            raise SettingError("port", f"must be from 0 to 65535, not {self.port}")

    @property
    def rbac(self) -> bool:
        return self.authorization_mode == "RBAC"

    @property
    def serves_tls(self) -> bool:
        # kubectl sends no token over plain HTTP.
        return self.rbac if self.tls is None else self.tls

    def node_amounts(self) -> dict[str, str]:
        """What every simulated node has, by resource name; GPUs only if there are any."""
        amounts = {}
        for name, setting in (("cpu", "cpu"), ("memory", "memory"), ("pods", "pods"), (GPU, "gpus")):
            setting = f"node_{setting}"
            text = str(getattr(self, setting))
            try:
                amount = resource_value(name, text)
            except QuantityError as error:
                raise SettingError(setting, str(error)) from None
            if amount < 0:
                raise SettingError(setting, f"must be at least 0, not {text}")
            if name != GPU or amount:
                amounts[name] = text
        for pair in self.node_resource:
            name, equals, text = pair.partition("=")
            try:
                good = bool(equals and "/" in name) and resource_value(name, text) >= 0
            except QuantityError:
                good = False
            if not good:
                allowed = "allowed: NAME=QUANTITY of an extended resource, such as example.com/card=4"
                raise SettingError("node_resource", f"{pair!r}; {allowed}")
            amounts[name] = text
        return amounts

    def controller_names(self) -> frozenset[str]:
        try:
            return controller_list.chosen(self.controllers)
        except ValueError as error:
            raise SettingError("controllers", str(error)) from None

    def node_groups(self) -> tuple[NodeGroup, ...]:
        """Whose nodes the autoscaler adds and takes away; without any there is no autoscaler."""
        try:
            return read_rules((self.autoscaler,) if isinstance(self.autoscaler, str) else self.autoscaler)
        except RuleError as error:
            raise SettingError("autoscaler", str(error), error.rule) from None

    def versions(self) -> frozenset[str]:
        """Groups with the versions that are served besides."""
        given = [each.partition("=") for each in filter(None, self.runtime_config.split(","))]
        for name, _, value in given:
            if name not in OFF_BY_DEFAULT or value not in ("true", "false"):
                allowed = ", ".join(f"{each}=true" for each in sorted(OFF_BY_DEFAULT))
                raise SettingError("runtime_config", f"allowed: {allowed}", self.runtime_config)
        return frozenset(name for name, _, value in given if value == "true")

    def devices(self) -> DevicesShape | None:
        """The devices of the simulated nodes; None without any."""
        if not self.devices_per_node:
            return None
        named = None if self.device_nodes is None else frozenset(map(node_name, range(self.device_nodes)))
        seconds = self.device_attach_seconds
        return DevicesShape(self.devices_per_node, named, None if seconds is None else Attaching(seconds))
