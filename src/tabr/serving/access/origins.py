"""Which pages may ask: the Host, Origin and Sec-Fetch headers of a request."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
from dataclasses import dataclass
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import Scope

from tabr.errors import DataError

PORTS = {"http": 80, "https": 443}
PAGES = ("/", "/docs")  # to which a link of another site may lead


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address.

    >>> is_loopback("127.0.0.1"), is_loopback("localhost"), is_loopback("0.0.0.0")
    (True, True, False)
    """
    with contextlib.suppress(ValueError):  # which is a name
        return ipaddress.ip_address(host).is_loopback
    return host == "localhost"


def check_name(name: str) -> str:
    """Return a name of the service as browsers send it: `example.org`, `[::1]:81`."""
    if split_authority(name) is None:
        raise DataError(
            "a name of the service must be like example.org or example.org:8443,"
            f" however: {name!r:.80}"
        )
    return name.lower()


def split_authority(text: str) -> tuple[str, int | None] | None:
    """Return the host and the port of a Host header; None if it is none.

    >>> (
    ...     split_authority("Example.org:81"),
    ...     split_authority("[::1]"),
    ...     split_authority("a/b"),
    ... )
    (('example.org', 81), ('::1', None), None)
    """
    if not text or not text.isascii() or set(text) & set("/\\?#@ *,\t"):
        return None
    try:
        parts = urlsplit(f"//{text}")
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    return (host, port) if host else None


@dataclass(frozen=True)
class Origins:
    """The names under which the service is asked, and by its own pages alone.

    A foreign page can have a browser send requests here, and with a name of its own
    that it points here (DNS rebinding) it could read the answers. But a browser always
    tells the name by which it asks, and the origin of the page that asks.

    Attributes:
        bound: The address that the service listens on.
        names: More names, with a port where it is not the usual one.
    """

    bound: str = "127.0.0.1"
    names: tuple[str, ...] = ()

    def check(self, scope: Scope) -> None:
        """Refuse a request under a foreign name, or of a foreign page."""
        headers = Headers(scope=scope)
        authority = headers.get("host", "").lower()
        if not self.is_own(authority):
            raise HTTPException(
                421,
                "the service must be asked by a name that it knows, however not by"
                f" {authority!r:.80}: `tabr serve --allow-host NAME` adds one",
            )
        origins = headers.getlist("origin")
        if not all(self._is_own_page(origin, authority) for origin in origins):
            raise HTTPException(
                403,
                "only a page of the service itself may ask, however one of"
                f" {origins[-1]!r:.80} did",
            )
        site = headers.get("sec-fetch-site", "none")
        if site not in ("same-origin", "none") and not _follows_link(scope, headers):
            raise HTTPException(
                403, "only a page of the service itself may ask, however another did"
            )

    def is_own(self, authority: str) -> bool:
        """Whether a Host header names this service."""
        parts = split_authority(authority)
        if parts is None:
            return False
        host = parts[0]
        if {host, authority} & {self.bound.lower(), *self.names}:
            return True
        if is_loopback(host):
            return True
        if is_loopback(self.bound):
            return False
        # Nobody can point a number elsewhere, so a page under a number is what that
        # machine has sent.
        with contextlib.suppress(ValueError):
            return ipaddress.ip_address(host) is not None
        return host == socket.gethostname().lower()

    def _is_own_page(self, origin: str, authority: str) -> bool:
        """Whether an origin is where the request goes, or has one of the names."""
        scheme, found, place = origin.lower().partition("://")
        parts = split_authority(place)
        if not found or scheme not in PORTS or parts is None:
            return False  # such as null, of a page without an origin
        places = {place}
        host = f"[{parts[0]}]" if ":" in parts[0] else parts[0]
        if parts[1] in (None, PORTS[scheme]):  # which browsers leave out
            places = {host, f"{host}:{PORTS[scheme]}"}
        return bool(places & {authority, *self.names})


def _follows_link(scope: Scope, headers: Headers) -> bool:
    """Whether a person came by a link to a page, which holds no data by itself."""
    return (
        scope["method"] == "GET"
        and scope["path"] in PAGES
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )
