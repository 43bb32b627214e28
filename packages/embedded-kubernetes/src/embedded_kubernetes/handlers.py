"""The API: from a request to a response or a watch. No I/O; shared by HTTP and the in-process transport.

`Api.handle` authorizes the request by `auth.gate`, resolves kind and verb by the path, runs the verb and turns errors
into Statuses. It is synchronous, so requests are atomic. A write that calls webhooks has three steps: prepare, review
and commit. Only the review is awaited; afterwards, the commit checks that the stored object has not changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from urllib.parse import unquote

import yaml

from . import binding, deletion, nesting, patching, protobuf, reading, scale, subresources, tokens, writing
from .admission.calls import Https, Transport
from .admission.configured import Overtaken, Reviewers
from .auth.aggregation import gather
from .auth.audit import Observer
from .auth.gate import Gate, attach
from .auth.identity import SELF
from .auth.options import Options, open_to_all
from .auth.rbac import Rbac
from .collector import Collector
from .errors import ApiError, method_not_allowed, not_found_path, timed_out
from .pages import Pages, page_not_found
from .registry import DEFINITIONS, NAMESPACES, Registry, Served
from .requests import AT_ONCE, Answer, Pending, Request, Response, Stream, refusal, then
from .resource import Object, Resource
from .schema_source import data
from .store import Store
from .templates import BURSTS, Templates
from .views import JSON, PROTOBUF, YAML, View, preferred_type

_NAMESPACE_SUBRESOURCES = frozenset({"status", "finalize"})
#: The label and the annotation of roles that the server creates and updates.
_BOOTSTRAPPED = "kubernetes.io/bootstrapping"
_UPDATED = "rbac.authorization.kubernetes.io/autoupdate"
#: Handlers of POST to subresources, by table and path.
_POSTED = {
    (subresources.PODS, "binding"): binding.bind,
    (subresources.PODS, "eviction"): subresources.evict,
    (tokens.SERVICE_ACCOUNTS, "token"): tokens.request_token,
}
#: The time limit of a write in seconds, including webhooks.
_REQUEST_TIMEOUT = 60.0
#: The capacity of the cache of collection paths.
_MOST_ROUTES = 1024


def _watching(request: Request) -> Request:
    if request.method != "GET":
        raise method_not_allowed()
    return request.asking(f"{request.query}&watch=true".lstrip("&"))


def _shaped(view: View, served: Served, response: Response) -> Response:
    """Return the response of a write as a Table or as metadata, if the client asked for that."""
    if nesting.loads(response.body).get("kind") != served.resource.kind:
        return response
    return Response(response.status, view.object(response.body), headers=response.headers)


def _encoded(accept: str, response: Response) -> Response:
    """Return a JSON response in the media type that the client prefers, if that can represent it."""
    if response.content_type != JSON:
        return response
    if nesting.has_deep(response.body) and preferred_type(accept) == YAML:
        # JSON is YAML, too.
        return Response(response.status, response.body, YAML, response.headers)
    obj = nesting.loads(response.body)
    media = preferred_type(accept, obj.get("kind", ""))
    body: bytes | None = None
    if media == YAML:
        body = yaml.safe_dump(obj, default_flow_style=False, allow_unicode=True).encode()
    elif media == PROTOBUF:
        try:
            body = protobuf.encode(obj)
        except ApiError as refused:
            return refusal(refused)
    return response if body is None else Response(response.status, body, media, response.headers)


class Api:
    """The verbs on one store.

    `auth` configures authentication and authorization; without it, every request is allowed. `observer` receives
    every request. Without `controllers`, it behaves like a bare API server in a cluster without controller manager,
    where dependents and contents of namespaces are not deleted. `transport` calls webhooks, by default over HTTPS.
    The store must be empty or filled by an `Api`. `restore` fills it before the server's own objects are created.
    """

    def __init__(
        self,
        store: Store,
        resources: Iterable[Resource],
        *,
        auth: Options | None = None,
        observer: Observer | None = None,
        controllers: bool = True,
        transport: Transport | None = None,
        restore: Callable[[Registry, Collector], None] | None = None,
    ) -> None:
        self.store = store
        self.registry = Registry(store, resources)
        #: The CA certificate of the server in PEM; empty without TLS.
        self.authority = b""
        #: Calls webhooks.
        self.transport: Transport = transport or Https()
        Reviewers(self.registry, self.transport)
        self._pages = Pages(self.registry)
        self.collector = Collector(self.registry, definitions_only=not controllers)
        access = self.access = attach(self.registry, auth or open_to_all())
        asks = access.authenticator is not None or observer is not None
        #: None if there is neither authentication nor an observer.
        self._gate = Gate(self.registry, access, observer) if asks else None
        #: Keyed by the kind's group and plural.
        self._templates: dict[tuple[str, str], Templates] = {}
        for served in self.registry.all():
            kind = (served.resource.group, served.resource.plural)
            if kind in BURSTS:
                self._templates[kind] = Templates(self.registry, served, BURSTS[kind])
        if restore is not None:
            restore(self.registry, self.collector)
        self._bootstrap()

    def _bootstrap(self) -> None:
        """Create the objects that kube-apiserver creates at its first start."""
        made = data("bootstrap.json")
        kinds = {served.resource.kind: served.name for served in self.registry.tables()}
        for obj in made["objects"]:
            self.create(kinds[obj["kind"]], obj)
        if isinstance(self.access.authorizer, Rbac):
            for obj in made["policy"]:
                metadata = {**obj["metadata"], "annotations": {_UPDATED: "true"}}
                metadata["labels"] = {**metadata.get("labels", {}), _BOOTSTRAPPED: "rbac-defaults"}
                self.create(kinds[obj["kind"]], {**obj, "metadata": metadata})
            while gather(self.registry):
                pass

    def create(self, name: tuple[str, str], obj: Object) -> Object | None:
        """Create an object from inside the process, with all checks of a POST; return None if the name is taken.

        Raises `ApiError`, or KeyError for a kind that is not served.
        """
        served = self.registry.stored(name)
        resource = served.resource
        body = {"kind": resource.kind, "apiVersion": resource.api_version, **obj}
        namespace = obj.get("metadata", {}).get("namespace", "") if resource.namespaced else ""
        request = Request("POST", resource.path, body=nesting.dumps(body), user=SELF)
        try:
            response = writing.create(self.registry, served, namespace, request)
        except ApiError as error:
            if error.reason == "AlreadyExists":
                return None
            raise
        assert isinstance(response, Response), "the server's own writes are not reviewed"
        created: Object = nesting.loads(response.body)
        return created

    async def close(self) -> None:
        """Close the connections to webhooks. Requests are still possible."""
        await self.transport.close()

    @property
    def address(self) -> str:
        """Host and port of the server."""
        return self._pages.address

    @address.setter
    def address(self, address: str) -> None:
        self._pages.address = address

    def handle(self, request: Request) -> Answer | Stream:
        """Answer one request. Errors become responses; other exceptions are bugs of this server.

        The result has to be awaited if webhooks are called.
        """
        gate = self._gate
        result = self.ask(request) if gate is None else gate.handle(request, self._answer)
        accept = request.accept
        if accept and accept != JSON and preferred_type(accept) != JSON and not isinstance(result, Stream):
            return then(result, lambda response: _encoded(accept, response))
        return result

    def carry_out(self, request: Request) -> Response | Stream:
        """Answer a request of the server itself, without authorization and review."""
        result = self.ask(request)
        assert isinstance(result, AT_ONCE), "webhooks are not called for the server's own requests"
        return result

    def ask(self, request: Request) -> Answer | Stream:
        """Answer a request of an authorized `user`. As for `handle`, the result may have to be awaited."""
        try:
            result = self._handle(request)
        except ApiError as error:
            return refusal(error)
        return result if isinstance(result, AT_ONCE) else self._refusing(self._settled(request, result))

    async def _refusing(self, pending: Pending) -> Response:
        try:
            return await pending
        except ApiError as error:
            return refusal(error)

    def _answer(self, request: Request) -> Answer | Stream:
        result = self._handle(request)
        return result if isinstance(result, AT_ONCE) else self._settled(request, result)

    async def _settled(self, request: Request, pending: Pending) -> Response:
        """Return the response of a reviewed write, which is repeated as long as the object changes meanwhile.

        Raises 504 after the time limit, for example if a webhook itself writes the object under review.
        """
        until = self.store.clock() + _REQUEST_TIMEOUT
        while True:
            try:
                return await pending
            except Overtaken:
                if self.store.clock() >= until:
                    raise timed_out() from None
                result = self._handle(request)
                assert not isinstance(result, Stream), "reads are not reviewed"
                if isinstance(result, Response):
                    return result
                pending = result

    def _handle(self, request: Request) -> Answer | Stream:
        routes, path = self.registry.routes, request.path
        below: tuple[str, ...] = ()
        route = routes.get(path)
        if route is None:
            above, _, last = path.rpartition("/")
            below = (last,)
            route = routes.get(above)
            if route is None:
                above, _, name = above.rpartition("/")
                below = (name, last)
                route = routes.get(above)
            if route is None or not last or "%" in path:
                return self._resolve(request)
        return self._dispatch(request, *route, below, in_namespace=True)

    def size(self, request: Request) -> int:
        """Return the bytes that a write reads: those of its body, and of the object that it patches or binds."""
        size = len(request.body)
        if request.method == "PATCH" or request.path.endswith("/binding"):
            above, _, name = request.path.rpartition("/")
            route = self.registry.routes.get(above)
            if route is None:
                above, _, name = above.rpartition("/")
                route = self.registry.routes.get(above)
            record = route[0].table.get(route[1], name) if route is not None else None
            size += len(record.data) if record is not None else 0
        return size

    def _resolve(self, request: Request) -> Answer | Stream:
        """Answer a request with a path that is not cached."""
        path = request.path
        segments = (unquote(path) if "%" in path else path).strip("/").split("/")
        first = segments[0]
        if first == "api" and len(segments) > 2:
            kinds = self.registry.served.get(("", segments[1]))
            rest = segments[2:]
        elif first == "apis" and len(segments) > 3:
            kinds = self.registry.served.get((segments[1], segments[2]))
            rest = segments[3:]
        else:
            return self._pages.answer(request, segments)
        if kinds is None:
            return self._pages.no_version("" if first == "api" else segments[1])
        if rest[0] == "watch" and len(rest) > 1:
            # The deprecated form of a watch, with `watch` in the path.
            request, rest, path = _watching(request), rest[1:], ""
        namespace = ""
        in_namespace = False
        if rest[0] == "namespaces" and len(rest) > 2 and not (len(rest) == 3 and rest[2] in _NAMESPACE_SUBRESOURCES):
            namespace, in_namespace = rest[1], True
            rest = rest[2:]
        served = kinds.get(rest[0])
        if served is None:
            if rest == ["bindings"] and first == "api" and in_namespace:
                return self._binding(request, kinds["pods"], namespace)
            return self._no_kind(kinds)
        if in_namespace != served.resource.namespaced and (in_namespace or len(rest) > 1):
            return self._no_kind(kinds)
        below = tuple(rest[1:])
        if in_namespace and rest[0] not in _NAMESPACE_SUBRESOURCES:
            self._learn(path, segments[: len(segments) - len(below)], served, namespace)
        return self._dispatch(request, served, namespace, below, in_namespace=in_namespace)

    def _learn(self, path: str, collection: list[str], served: Served, namespace: str) -> None:
        """Cache the path of a collection, if it is in canonical form."""
        known, routes = "/" + "/".join(collection), self.registry.routes
        if path.startswith(known) and "%" not in path:
            if len(routes) >= _MOST_ROUTES:
                routes.clear()
            routes[known] = (served, namespace)

    def _dispatch(
        self, request: Request, served: Served, namespace: str, below: tuple[str, ...], *, in_namespace: bool
    ) -> Answer | Stream:
        """Answer a request for a kind. `below` are the path's segments after the kind."""
        # Reads convert their responses themselves.
        view = None
        if request.accept is not None and request.accept != JSON and request.method not in ("GET", "HEAD"):
            view = reading.view_of(self.registry, served, request)
        depth = len(below)
        if depth == 0:
            result = self._collection(request, served, namespace, in_namespace=in_namespace)
        elif depth == 1:
            result = self._object(request, served, namespace, below[0])
        elif depth == 2:
            result = self._subresource(request, served, namespace, below[0], subresource=below[1])
        else:
            raise not_found_path()
        if view is None or view is served.view:
            return result
        assert not isinstance(result, Stream)
        shown = view
        return then(result, lambda response: _shaped(shown, served, response))

    def _no_kind(self, kinds: dict[str, Served]) -> Response:
        """Return the response for an unknown kind, which for a group of custom kinds is that of an unknown path."""
        if all(served.resource.custom for served in kinds.values()):
            return page_not_found()
        raise not_found_path()

    def _binding(self, request: Request, pods: Served, namespace: str) -> Answer:
        if request.method != "POST":
            raise method_not_allowed()
        return binding.bind(self.registry, pods, namespace, "", request)

    def _collection(self, request: Request, served: Served, namespace: str, *, in_namespace: bool) -> Answer | Stream:
        method, registry, verbs = request.method, self.registry, served.resource.verbs
        if method in ("GET", "HEAD"):
            if request.query and request.flag("watch"):
                if "watch" not in verbs:
                    raise method_not_allowed()
                return reading.watch(registry, served, namespace, request)
            if "list" not in verbs:
                raise method_not_allowed()
            return reading.list_objects(registry, served, namespace, request)
        if served.resource.namespaced and not in_namespace:
            raise method_not_allowed()
        if method == "POST" and "create" in verbs:
            answer = self._create(served, namespace, request)
            return then(answer, self._establish) if served.name == DEFINITIONS else answer
        if method == "DELETE" and "deletecollection" in verbs:
            return deletion.delete_collection(registry, served, namespace, request)
        raise method_not_allowed()

    def _create(self, served: Served, namespace: str, request: Request) -> Answer:
        """Create an object, by a template of earlier creates if possible."""
        if self.registry.is_reviewed:
            return writing.create(self.registry, served, namespace, request)
        templates = self._templates.get((served.resource.group, served.resource.plural))
        sight = templates.look(request, namespace) if templates is not None else None
        if templates is None or sight is None:
            return writing.create(self.registry, served, namespace, request)
        response = templates.make(sight)
        if response is None:
            answer = writing.create(self.registry, served, namespace, request)
            if isinstance(answer, Response) and not answer.headers:
                templates.learn(sight)
            return answer
        return response

    def _object(self, request: Request, served: Served, namespace: str, name: str) -> Answer | Stream:
        method, registry, verbs = request.method, self.registry, served.resource.verbs
        if method in ("GET", "HEAD") and "get" in verbs:
            if request.query and request.flag("watch"):
                return reading.watch(registry, served, namespace, request, name=name)
            return reading.get(registry, served, namespace, name, request)
        if method == "PUT" and "update" in verbs:
            return writing.update(registry, served, namespace, name, subresource="", request=request)
        if method == "PATCH" and "patch" in verbs:
            answer = patching.patched(registry, served, namespace, name, subresource="", request=request)
            return then(answer, self._establish) if served.name == DEFINITIONS else answer
        if method == "DELETE" and "delete" in verbs:
            return deletion.delete(registry, served, namespace, name, request)
        raise method_not_allowed()

    def _subresource(
        self, request: Request, served: Served, namespace: str, name: str, *, subresource: str
    ) -> Answer | Stream:
        method, registry = request.method, self.registry
        post = _POSTED.get((served.name, subresource))
        if post is not None:
            if method != "POST":
                raise method_not_allowed()
            return post(registry, served, namespace, name, request)
        if served.name == subresources.PODS and subresource in subresources.STREAMS:
            return subresources.stream(registry, served, namespace, name, subresource, request)
        if served.name == NAMESPACES and subresource == "finalize":
            if method != "PUT":
                raise method_not_allowed()
            return subresources.finalize(registry, served, name, request)
        if subresource == "status":
            if not served.resource.status:
                raise not_found_path()
        elif not any(subresource == below.name for below in served.resource.subresources):
            raise not_found_path()
        if subresource == "scale":
            return scale.respond(registry, served, namespace, name, request)
        if method in ("GET", "HEAD"):
            return reading.get(registry, served, namespace, name, request)
        if method == "PUT":
            return writing.update(registry, served, namespace, name, subresource=subresource, request=request)
        if method == "PATCH":
            return patching.patched(registry, served, namespace, name, subresource=subresource, request=request)
        raise method_not_allowed()

    def _establish(self, response: Response) -> Response:
        """Establish a new definition at once, which the apiextensions controllers do a moment later."""
        if response.status == 201:
            writing.establish(self.registry, nesting.loads(response.body)["metadata"]["name"])
        return response
