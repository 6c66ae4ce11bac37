"""Which addresses pages may be read from: those of the public internet, and networks that are allowed by name.

The decision is made on the address a connection really goes to, when its socket is made, so that neither a name that
changes its mind between two look-ups nor an odd spelling of a number gets past it. It sends nothing itself.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterable

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from aiohttp.connector import AddrInfoType
from yarl import URL

from hermes.core.errors import ToolError

__all__ = ["AddressPolicy", "AddressRefused", "CheckedResolver", "checked_page", "guarded_connector"]

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Network = ipaddress.IPv4Network | ipaddress.IPv6Network

#: Longest address of a page, characters.
MAX_URL = 4_096
#: Public by its number, but the platform's own service on every machine of one cloud.
_PLATFORM = (ipaddress.IPv4Address("168.63.129.16"),)
#: IPv6 networks whose last 32 bits are an IPv4 address that is really meant.
_TRANSLATED = (ipaddress.IPv6Network("64:ff9b::/96"), ipaddress.IPv6Network("64:ff9b:1::/48"))


class AddressRefused(OSError):
    """A connection that the policy forbids; the text says which address and why."""


class AddressPolicy:
    """Says which addresses may be connected to.

    Args:
        allowed: networks that are not public and allowed all the same, such as `10.1.0.0/16`.

    Raises:
        ValueError: one of them is no network.
    """

    def __init__(self, allowed: Iterable[str] = ()) -> None:
        self._allowed: tuple[Network, ...] = tuple(ipaddress.ip_network(network, strict=False) for network in allowed)

    def check(self, address: str) -> None:
        """Return when `address`, a number, may be connected to. Raises AddressRefused."""
        try:
            number = ipaddress.ip_address(address.partition("%")[0])
        except ValueError:
            raise AddressRefused(f"{address!r} is no address") from None
        meant = _meant(number)
        if any(number in network or meant in network for network in self._allowed):
            return
        if not _is_public(meant):
            raise AddressRefused(f"{address} is {_kind(meant)}, not one of the public internet")

    def socket(self, info: AddrInfoType) -> socket.socket:
        """Make the socket of one connection, if its address may be connected to. Raises AddressRefused, OSError."""
        family, kind, protocol, _, where = info
        self.check(str(where[0]))
        made = socket.socket(family=family, type=kind, proto=protocol)
        made.setblocking(False)
        return made


def _meant(number: Address) -> Address:
    """The IPv4 address inside an IPv6 one, where there is one."""
    if isinstance(number, ipaddress.IPv4Address):
        return number
    inside = number.ipv4_mapped or number.sixtofour
    if inside is not None:
        return inside
    if any(number in network for network in _TRANSLATED):
        return ipaddress.IPv4Address(int(number) & 0xFFFFFFFF)
    return number


def _is_public(number: Address) -> bool:
    if number in _PLATFORM or number.is_multicast or number.is_reserved:
        return False
    if isinstance(number, ipaddress.IPv6Address) and number.is_site_local:
        return False
    return number.is_global


def _kind(number: Address) -> str:
    if number.is_loopback or number.is_unspecified:
        return "an address of this machine"
    if number.is_link_local:
        return "a link-local address"
    return "a private or reserved address"


def guarded_connector(policy: AddressPolicy, resolver: AbstractResolver | None = None) -> aiohttp.TCPConnector:
    """Make what connects for pages: every address is judged, at most six connections to a host.

    `resolver` looks names up; default: the system's.
    """
    return aiohttp.TCPConnector(
        limit=64,
        limit_per_host=6,
        keepalive_timeout=4.0,
        resolver=CheckedResolver(policy, resolver or aiohttp.ThreadedResolver()),
        socket_factory=policy.socket,
    )


class CheckedResolver(AbstractResolver):
    """Resolves names, and refuses one as soon as any of its addresses is not allowed."""

    def __init__(self, policy: AddressPolicy, inner: AbstractResolver) -> None:
        self._policy = policy
        self._inner = inner

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        """Resolve `host`. Raises AddressRefused, OSError."""
        found = await self._inner.resolve(host, port, family)
        for entry in found:
            try:
                self._policy.check(entry["host"])
            except AddressRefused as error:
                raise AddressRefused(f"{host} leads to {error}") from None
        return found

    async def close(self) -> None:
        """Close what it resolves with."""
        await self._inner.close()


def checked_page(text: str) -> URL:
    """Return the address of a page without its fragment. What its host leads to is judged when it is connected to.

    Raises:
        ToolError: it is no http(s) address, carries a login, or spells a number as no browser shows it.
    """
    if len(text) > MAX_URL:
        raise ToolError(f"the address has {len(text):,} characters; at most {MAX_URL:,} are sent.")
    try:
        url = URL(text.strip())
        host = url.host or ""
    except ValueError as error:
        raise ToolError(f"{text[:200]!r} is no address of a page ({error}); write it as https://host/path.") from None
    if url.scheme not in ("http", "https") or not host:
        raise ToolError(f"{text[:200]!r} is no address of a page; write it as https://host/path.")
    if url.raw_user is not None or url.raw_password is not None:
        raise ToolError(f"The address of {host} holds a login; pages are read without one. Leave out what is before @.")
    if any(letter.isspace() or letter in '%\\"<>^`{|}' for letter in host):
        raise ToolError(f"{host!r} is no name of a host.")
    plain = host.rstrip(".")
    try:
        ipaddress.ip_address(plain)
    except ValueError:
        if (number := _old_spelling(plain)) is not None:
            raise ToolError(f"{host} is another spelling of {number}; write the address as it is.") from None
    return url.with_fragment(None)


def _old_spelling(host: str) -> str | None:
    """The address behind a decimal, octal, hexadecimal or shortened number, None for a name."""
    try:
        return socket.inet_ntoa(socket.inet_aton(host))
    except (OSError, UnicodeEncodeError):
        return None
