"""`EmbeddedCluster`: a Kubernetes API server for the duration of a `with` block, for tests of clients.

The server runs in its own thread and event loop, also with `async with`, so that it serves while a test blocks, and
clients may run in any event loop or none.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from types import TracebackType
from typing import Any, Self, TypeVar

import orjson

from apimachinery.errors import ConfigurationError

from .assembly import Running, running, write_kubeconfig
from .auth.audit import AuditedRequest
from .auth.identity import SELF
from .errors import ClusterError
from .fault_plan import Faults, plan_from
from .faults import Injector
from .handlers import Api
from .loading import Manifests, apply
from .requests import Disturbance, Request, Response
from .resource import Object
from .settings import Settings

_T = TypeVar("_T")
#: Seconds. No client waits for responses when the block exits, but a fault may delay one for long.
_GRACE = 0.2
_FAILED = "the cluster failed while it ran"


@dataclass
class _Thread:
    """The thread and event loop of a running server."""

    loop: asyncio.AbstractEventLoop = field(default_factory=asyncio.new_event_loop)
    stopping: asyncio.Event = field(default_factory=asyncio.Event)
    #: Set after `cluster` or `failure`.
    ready: threading.Event = field(default_factory=threading.Event)
    thread: threading.Thread | None = None
    cluster: Running | None = None
    failure: BaseException | None = None
    waiting: list[Future[Any]] = field(default_factory=list)

    def start(self, serve: Callable[[_Thread], None]) -> None:
        # A daemon, so that a cluster that was not closed does not keep the interpreter alive.
        self.thread = threading.Thread(target=serve, args=(self,), name="embedded-kubernetes", daemon=True)
        self.thread.start()

    def carry_out(self, work: Callable[[], _T]) -> _T:
        """Run a function in the event loop; wait for its result. Raises `ClusterError` if the loop has ended."""
        done: Future[_T] = Future()

        def working() -> None:
            try:
                done.set_result(work())
            except BaseException as error:
                done.set_exception(error)

        # Added before the loop is called, so that `ended` cancels it if the loop ends first.
        self.waiting.append(done)
        try:
            self.loop.call_soon_threadsafe(working)
            return done.result()
        except (RuntimeError, CancelledError):
            # RuntimeError comes from a closed loop or from the function itself.
            if done.done() and not done.cancelled():
                raise
            raise ClusterError(_FAILED) from self.failure
        finally:
            self.waiting.remove(done)

    def ended(self) -> None:
        """Release all waiting calls. The thread calls this after its loop is closed."""
        self.ready.set()
        for done in list(self.waiting):
            done.cancel()

    def end(self) -> None:
        """Stop the server and wait for its end."""
        # RuntimeError: the loop is closed, because the cluster failed.
        with suppress(RuntimeError):
            self.loop.call_soon_threadsafe(self.stopping.set)
        if self.thread is not None:
            self.thread.join()


def _tell(failure: BaseException | None, error: BaseException | None) -> None:
    """Raise the failure that ended the cluster early, or add it as a note to the error that left the block."""
    if failure is None:
        return
    if error is None:
        raise failure
    error.add_note(f"{_FAILED}: {failure!r}")


@dataclass(kw_only=True, eq=False, repr=False)
class EmbeddedCluster(Settings):
    """A Kubernetes API server over HTTP, with nodes, kubelets and controllers, inside a `with` block.

    `with` and `async with` are equivalent. The options are the fields. Without `data_dir`, objects are lost when the
    block exits, and entering again starts an empty cluster. Raises `ClusterError` for an invalid option, or if it
    cannot start.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        self._on: _Thread | None = None
        self._folder: TemporaryDirectory[str] | None = None
        self._asked: list[AuditedRequest] = []
        self._injector: Injector | None = None
        self.inject(self.faults)

    def __enter__(self) -> Self:
        on = self._begin()
        try:
            on.ready.wait()
            self._be_ready(on)
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _tell(self._end(), error)

    async def __aenter__(self) -> Self:
        on = self._begin()
        try:
            await asyncio.to_thread(on.ready.wait)
            self._be_ready(on)
        except BaseException:
            # Not awaited, because the cancellation that led here would cancel it, too. It is quick.
            self._end()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        _tell(await asyncio.to_thread(self._end), error)

    # -- access

    @property
    def url(self) -> str:
        """The server's URL, such as `http://127.0.0.1:40123`."""
        return self._cluster.url

    @property
    def authority(self) -> str:
        """The CA certificate of the server in PEM; empty without TLS."""
        return self._cluster.authority.decode()

    @property
    def kubeconfig(self) -> Path:
        """A kubeconfig file with the administrator's access.

        It is deleted with the cluster unless `kubeconfig_out` is set.
        """
        self._cluster  # noqa: B018 - raises if the cluster is not running
        if self.kubeconfig_out is not None:
            return Path(self.kubeconfig_out)
        assert self._folder is not None
        return Path(self._folder.name, "kubeconfig")

    def kubeconfig_dict(self, token: str | None = None) -> Object:
        """Return the content of a kubeconfig, for the administrator or for the user of `token`."""
        return self._cluster.kubeconfig(token)

    def service_account_token(self, name: str = "default", namespace: str = "default") -> str:
        """Return a token of this service account, which is created if it is missing. It is valid for an hour."""
        account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name, "namespace": namespace}}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"

        def work(api: Api) -> str:
            apply(api, account)
            answer = api.carry_out(Request("POST", path, body=b"{}", content_type="application/json", user=SELF))
            assert isinstance(answer, Response)
            body = orjson.loads(answer.body)
            if answer.status != 201:
                raise ClusterError(f"no token of service account {namespace}/{name}: {body['message']}")
            token: str = body["status"]["token"]
            return token

        return self._carry_out(work)

    # -- control

    def apply(self, manifests: Manifests) -> list[Object]:
        """Create or change objects by server-side apply; return them as stored.

        Manifests are YAML texts, files (`pathlib.Path`), objects, or a sequence of these. Permissions and faults do
        not apply, and `requests` does not include them. Raises `ClusterError` that names the object.
        """
        return self._carry_out(lambda api: apply(api, manifests))

    def inject(self, faults: Faults | None) -> None:
        """Replace the faults from the next request on; None ends them.

        A plan has the form of docs/faults.md, as text, file (`pathlib.Path`) or mapping. Raises `ClusterError` for an
        invalid plan.
        """
        try:
            self._injector = None if faults is None else Injector(plan_from(faults))
        except ConfigurationError as error:
            raise ClusterError(str(error)) from None

    @property
    def fired(self) -> dict[str, int]:
        """The number of fired faults of each kind in the current plan."""
        injector = self._injector
        return {} if injector is None else dict(injector.fired)

    @property
    def requests(self) -> list[AuditedRequest]:
        """The requests of clients in order of completion."""
        return list(self._asked)

    # -- thread

    @property
    def _cluster(self) -> Running:
        on = self._on
        if on is None or on.cluster is None:
            raise ClusterError("the cluster is not running: enter it with `with` or `async with`")
        if on.failure is not None:
            raise ClusterError(_FAILED) from on.failure
        return on.cluster

    def _carry_out(self, work: Callable[[Api], _T]) -> _T:
        """Run a function in the server's event loop, between requests."""
        cluster, on = self._cluster, self._on
        assert on is not None
        return on.carry_out(lambda: work(cluster.api))

    def _disturb(self, request: Request) -> Disturbance | None:
        injector = self._injector
        return None if injector is None else injector(request)

    def _begin(self) -> _Thread:
        if self._on is not None:
            raise ClusterError("the cluster is running already")
        self._asked = []
        on = self._on = _Thread()
        on.start(self._run)
        return on

    def _run(self, on: _Thread) -> None:
        try:
            with asyncio.Runner(loop_factory=lambda: on.loop) as runner:
                runner.run(self._serve(on))
        except BaseException as error:
            on.failure = error
        finally:
            on.ended()

    async def _serve(self, on: _Thread) -> None:
        async with running(self, observer=self._asked.append, disturb=self._disturb, grace=_GRACE) as cluster:
            on.cluster = cluster
            on.ready.set()
            await on.stopping.wait()

    def _be_ready(self, on: _Thread) -> None:
        if on.failure is not None:
            raise on.failure
        if self.kubeconfig_out is None:
            self._folder = TemporaryDirectory(prefix="embedded-kubernetes-")
            write_kubeconfig(self.kubeconfig, self.kubeconfig_dict())

    def _end(self) -> BaseException | None:
        """Stop the cluster and clean up; return the failure that ended it before, if any."""
        on, self._on = self._on, None
        folder, self._folder = self._folder, None
        if folder is not None:
            folder.cleanup()
        if on is None:
            return None
        on.end()
        return on.failure
