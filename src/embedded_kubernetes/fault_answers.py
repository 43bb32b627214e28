"""Answers that are not the API server's own: what proxies and load balancers before it say, and what they cut short."""

from __future__ import annotations

from typing import Final

from .requests import Response

_HTML: Final = "text/html; charset=utf-8"
_TEXT: Final = "text/plain; charset=utf-8"


def _page(title: str) -> bytes:
    return f"<html><head><title>{title}</title></head><body><h1>{title}</h1></body></html>\r\n".encode()


#: Of a fault of the kind `middlebox`.
MIDDLEBOX: Final = {
    "badGateway": Response(502, _page("502 Bad Gateway"), _HTML),
    "empty": Response(200, b"", _TEXT),
    "emptyObject": Response(200, b"{}"),
    "forbidden": Response(403, _page("403 Forbidden"), _HTML),
    "gatewayTimeout": Response(504, _page("504 Gateway Time-out"), _HTML),
    "loginPage": Response(200, _page("Sign in"), _HTML),
    "notFound": Response(404, b"default backend - 404", _TEXT),
    "redirect": Response(302, _page("302 Found"), _HTML, (("Location", "https://login.example/"),)),
    "serviceUnavailable": Response(503, _page("503 Service Unavailable"), _HTML),
    "tooManyRequests": Response(429, _page("429 Too Many Requests"), _HTML, (("Retry-After", "1"),)),
    "unauthorized": Response(401, _page("401 Authorization Required"), _HTML),
}


def cut_body(answer: Response, *, size: int | None) -> Response:
    """The answer with the first `size` bytes of its body, half of them if None; its length says that this is all."""
    kept = len(answer.body) // 2 if size is None else size
    return Response(answer.status, answer.body[:kept], answer.content_type, answer.headers)
