"""What processes that speak HTTP show the API server and trust of it: a token or a client certificate, and the bundle
of authorities, in files as a pod has them; and the server, which takes what is current and refuses what was withdrawn.

The handshake is a real one, of the context that the product made with that of the server, over memory. Bytes then go
as they are: what a connection knows is whose certificate was shown when it was made.
"""

from __future__ import annotations

import random
import ssl
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from agent_scheduler.kube.tls import load_certificate
from tests.support.authority import Authority

if TYPE_CHECKING:
    from .world import World

HOST = "api.example.com"
#: Authorities that follow one another, and client certificates that do; then the first comes again.
_AUTHORITIES, _CERTIFICATES = 3, 4
#: How many worlds have processes that show a certificate, and no token.
_BY_CERTIFICATE = 0.5
#: Seconds until everybody has read a file anew and has a connection again.
_NOTICED_WITHIN = 95.0


class _Made:
    """Made once: authorities, servers and client certificates do not differ from world to world."""

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="sim-certificates-")
        folders = [Path(self._folder.name) / str(number) for number in range(_AUTHORITIES)]
        for folder in folders:
            folder.mkdir()
        authorities = [Authority(folder) for folder in folders]
        self.authorities = [each.pem for each in authorities]
        self.servers = [self._server(each) for each in authorities]
        issued = [authorities[0].issue(f"client-{number}") for number in range(_CERTIFICATES)]
        self.certificates = [(certificate.read_bytes(), key.read_bytes()) for certificate, key in issued]
        #: Of handshakes that were made: whose certificate was shown, "" for none, or why there was no connection.
        self.shaken: dict[tuple[ssl.SSLContext, int], str | ssl.SSLError] = {}

    def _server(self, authority: Authority) -> ssl.SSLContext:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        certificate, key = authority.issue("server", HOST)
        load_certificate(context, certificate.read_bytes(), key.read_bytes())
        context.verify_mode = ssl.CERT_OPTIONAL
        context.load_verify_locations(cadata=self.authorities[0].decode())
        return context


@cache
def _made() -> _Made:
    return _Made()


class Certificates:
    """Owner of the files of a world, and of what its server takes. Use `close` in the end."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._made = _made()
        self.rng = random.Random(f"{world.seed} certificates")
        self.by_certificate = self.rng.random() < _BY_CERTIFICATE
        self._folder = tempfile.TemporaryDirectory(prefix="sim-credentials-")
        folder = Path(self._folder.name)
        self.token_file, self.authority_file = folder / "token", folder / "ca.crt"
        self.files = folder / "client.crt", folder / "client.key"
        self._authority = self._certificate = self._token = 0
        #: Names of the certificates that the server takes.
        self._taken = {"client-0"}
        self.token_file.write_text("token-0")
        self.authority_file.write_bytes(self._made.authorities[0])
        self.complete()

    def close(self) -> None:
        self._folder.cleanup()

    def complete(self) -> None:
        """A process that starts has its files whole, as a container has its volumes."""
        for file, content in zip(self.files, self._made.certificates[self._certificate], strict=True):
            file.write_bytes(content)

    # -- the server

    def is_authorized(self, shown: str, header: bytes) -> bool:
        """Whether it takes a request on a connection on which this certificate was shown."""
        states = self._world.states
        if self.by_certificate:
            if shown not in self._taken:
                states.reached("old certificate refused")
            return shown in self._taken
        if header != f"Bearer token-{self._token}".encode():
            states.reached("old token refused")
            return False
        return True

    def shake(self, client: ssl.SSLContext) -> str:
        """A handshake; gives the name in the client's certificate, "" if it shows none. Raises SSLError."""
        key = client, self._authority
        if key not in self._made.shaken:
            self._made.shaken[key] = self._shake(client, self._made.servers[self._authority])
        outcome = self._made.shaken[key]
        if isinstance(outcome, ssl.SSLError):
            self._world.states.reached("unknown authority")
            raise outcome
        return outcome

    def _shake(self, client_context: ssl.SSLContext, server_context: ssl.SSLContext) -> str | ssl.SSLError:
        there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
        client = client_context.wrap_bio(back, there, server_hostname=HOST)
        server = server_context.wrap_bio(there, back, server_side=True)
        left = [client, server]
        while left:
            for each in list(left):
                try:
                    each.do_handshake()
                except ssl.SSLWantReadError:
                    continue
                except ssl.SSLError as error:
                    return error
                left.remove(each)
        subject = (server.getpeercert() or {}).get("subject", ())
        return next((str(value) for pairs in subject for name, value in pairs if name == "commonName"), "")

    # -- what is replaced

    def rotate(self) -> None:
        """One of the three, in order or in haste."""
        world = self._world
        world.plan.lasts(world.loop.time() + _NOTICED_WITHIN)
        if self.rng.random() < 0.4:
            self._replace_authority()
        elif self.by_certificate:
            self._replace_certificate()
        else:
            self._token += 1
            self.token_file.write_text(f"token-{self._token}")
            world.trace("", f"the token is token-{self._token}")

    def _replace_certificate(self) -> None:
        self._certificate = (self._certificate + 1) % _CERTIFICATES
        number, old = self._certificate, set(self._taken)
        self._taken.add(f"client-{number}")
        certificate, key = self._made.certificates[number]
        self._world.trace("", f"the client's certificate is number {number}")
        self.files[0].write_bytes(certificate)
        # The new one beside the old key, for a moment.
        self._later(
            (0.0, 0.0, 3.0),
            lambda: self.files[1].write_bytes(key),
            unless=lambda: self._certificate != number,
        )

        def withdraw() -> None:
            self._world.trace("", f"refused from now on: {sorted(old - {f'client-{number}'})}")
            self._taken = {f"client-{self._certificate}", f"client-{number}"}

        self._later((0.0, 0.5, 70.0), withdraw, unless=lambda: False)

    def _replace_authority(self) -> None:
        was = self._authority
        number = (was + 1) % _AUTHORITIES
        old, new = self._made.authorities[was], self._made.authorities[number]

        def switch() -> None:
            self._world.trace("", f"the server's certificate is of authority {number}")
            self._authority = number
            self.authority_file.write_bytes(new)

        if self.rng.random() < 0.5:
            switch()
            return
        # As it should be done: the new one is trusted before it is used.
        self.authority_file.write_bytes(old + new)
        self._later((5.0, 70.0), switch, unless=lambda: self._authority != was)

    def _later(
        self, choices: tuple[float, ...], act: Callable[[], object], *, unless: Callable[[], bool]
    ) -> None:
        seconds = self.rng.choice(choices)
        loop, plan = self._world.loop, self._world.plan
        plan.lasts(loop.time() + seconds + _NOTICED_WITHIN)

        def do() -> None:
            if not unless():
                act()

        if seconds:
            loop.call_later(seconds, do, context=self._world.context)
        else:
            do()
