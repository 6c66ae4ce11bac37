"""Fetching one page: redirects one by one, each judged again; limits on time, size and their number; text only.

It sends no key, no cookie and no body, and asks once, or again where the machine slept meanwhile. What a page of HTML
says is made readable by `web_page`.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable

import aiohttp
import anyio
import anyio.to_thread
import msgspec
from yarl import URL

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.errors import ToolError
from hermes.tools.web_address import AddressRefused, checked_page
from hermes.tools.web_asking import Asking
from hermes.tools.web_text import Page, PageSource, is_html, is_text, plain_page

__all__ = ["FetchLimits", "Fetched", "Fetcher", "SessionSource", "read_at_most"]

#: Gives the client session of the running event loop.
SessionSource = Callable[[], aiohttp.ClientSession]

_REDIRECTS = frozenset({301, 302, 303, 307, 308})
_ACCEPT = "text/html,application/xhtml+xml,text/markdown;q=0.9,text/plain;q=0.8,application/json;q=0.7,*/*;q=0.1"
#: Seconds in which a page has to be made readable.
_READABLE_WITHIN = 25.0


class FetchLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`timeout` is seconds for a whole page with its redirects, `max_bytes` of its body after decompression."""

    timeout: float = 30.0
    max_bytes: int = 2 * 1024 * 1024
    max_redirects: int = 5


class Fetched(msgspec.Struct, frozen=True, kw_only=True):
    """A page. `url` is where it was found in the end; `cut` says that its body was longer than what was read."""

    url: str
    page: Page
    cut: bool = False


def _follow(_host: str) -> bool:
    return True


class Fetcher:
    """Fetches pages over a session whose connections are guarded by an address policy.

    Args:
        session: gives that session; nothing else here looks at addresses.
        may_follow: whether a redirect may lead to this host without being asked for by name.
        clean: replaces secrets in text; an address that it changes is not sent.
        asking: what asks again after a sleep of the machine.
    """

    def __init__(
        self,
        session: SessionSource,
        limits: FetchLimits | None = None,
        *,
        may_follow: Callable[[str], bool] = _follow,
        clean: Callable[[str], str] = str,
        hold: Hold = NO_HOLD,
        asking: Asking | None = None,
    ) -> None:
        self._session = session
        self._asking = asking or Asking()
        self._limits = limits or FetchLimits()
        self._may_follow = may_follow
        self._clean = clean
        self._hold = hold
        self._readers = anyio.CapacityLimiter(max(2, os.cpu_count() or 2))

    async def fetch(self, address: str) -> Fetched:
        """Return the page at `address`.

        Raises:
            ToolError: it cannot be had; the text says which address, why, and what to do.
        """
        url = self._checked(address)
        try:
            source = await self._asking.within(self._limits.timeout, lambda: self._body(url))
        except TimeoutError:
            raise ToolError(f"{url} did not answer in full within {self._limits.timeout:g} s.") from None
        return Fetched(url=source.url, page=await self._readable(source), cut=source.cut)

    def _checked(self, address: str) -> URL:
        url = checked_page(address)
        text = str(url)
        if self._clean(text) != text or self._clean(address) != address:
            raise ToolError(f"The address of {url.host} holds a key or a password; it was not sent. Leave it out.")
        return url

    async def _body(self, url: URL) -> PageSource:
        first = url
        for _ in range(self._limits.max_redirects + 1):
            found = await self._answer(url)
            if not isinstance(found, str):
                return found
            try:
                target = self._checked(str(url.join(URL(found))))
            except (ValueError, ToolError) as error:
                raise ToolError(f"{url} redirects to an address that is not followed: {error}") from None
            if target.host != url.host and not self._may_follow(target.host or ""):
                raise ToolError(f"{url} redirects to {target}, a host with a rule of its own; ask for it by name.")
            url = target
        raise ToolError(f"{first} redirects more than {self._limits.max_redirects} times, last to {url}.")

    async def _answer(self, url: URL) -> PageSource | str:
        """One request: the body, or where it redirects to."""
        try:
            response = await self._session().get(url, allow_redirects=False, headers={"Accept": _ACCEPT})
        except (aiohttp.ClientError, OSError, ValueError) as error:
            raise ToolError(_unreachable(url, error)) from None
        try:
            return await self._read(url, response)
        except (aiohttp.ClientError, OSError) as error:
            raise ToolError(f"{url} broke off while it was read ({_named(error)}).") from None
        finally:
            response.close()

    async def _read(self, url: URL, response: aiohttp.ClientResponse) -> PageSource | str:
        location = response.headers.get("Location", "")
        if response.status in _REDIRECTS and location:
            return location
        content_type = response.content_type if "Content-Type" in response.headers else ""
        if response.status >= 400:
            raise ToolError(f"{url} answered {response.status} {response.reason or ''}".rstrip() + ".")
        if not is_text(content_type):
            size = response.content_length
            length = f" of {size:,} bytes" if size else ""
            raise ToolError(f"{url} is {content_type}{length}, no text; only pages and text can be read here.")
        data, cut = await read_at_most(response, self._limits.max_bytes)
        if not content_type and b"\0" in data[:1024]:
            raise ToolError(f"{url} is no text; only pages and text can be read here.")
        charset = response.charset or ""
        return PageSource(data=data, content_type=content_type, charset=charset, url=str(url), cut=cut)

    async def _readable(self, source: PageSource) -> Page:
        with held(self._hold):
            if not is_html(source):
                return await anyio.to_thread.run_sync(plain_page, source)
            async with self._readers:
                return await _in_a_process(source)


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}" if str(error) else type(error).__name__


def _unreachable(url: URL, error: BaseException) -> str:
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, AddressRefused):
            return f"{url} is not read: {cause}. Only networks that web.allowed_networks names are excepted."
        inner = getattr(cause, "os_error", None)
        cause = inner if isinstance(inner, BaseException) else cause.__cause__
    return f"{url} cannot be reached ({_named(error)})."


async def _in_a_process(source: PageSource) -> Page:
    """Make a page readable in a process of its own, which is ended when it takes too long or nobody waits any more."""
    process: subprocess.Popen[bytes] | None = None

    def start() -> subprocess.Popen[bytes]:
        # It gets no variable that could hold a secret; PYTHONPATH says where the program lies.
        env = {name: os.environ[name] for name in ("PYTHONPATH", "PATH") if name in os.environ}
        return subprocess.Popen(
            [sys.executable, "-P", "-m", "hermes.tools.web_page"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            cwd="/", env=env, start_new_session=True,
        )  # fmt: skip

    try:
        process = await anyio.to_thread.run_sync(start)
        data = msgspec.msgpack.encode(source)
        with anyio.fail_after(_READABLE_WITHIN):
            written, _ = await anyio.to_thread.run_sync(process.communicate, data, abandon_on_cancel=True)
    except TimeoutError:
        raise ToolError(f"{source.url} is built so that it cannot be made readable; leave it.") from None
    finally:
        if process is not None and process.poll() is None:
            process.send_signal(signal.SIGKILL)  # the abandoned thread then ends, and reaps it
    if process.returncode != 0:
        raise ToolError(f"{source.url} is built so that it cannot be made readable; leave it.")
    return msgspec.msgpack.decode(written, type=Page)


async def read_at_most(response: aiohttp.ClientResponse, most: int) -> tuple[bytes, bool]:
    """The first `most` bytes of a body, and whether there were more. Raises aiohttp.ClientError, OSError."""
    data = bytearray()
    async for chunk in response.content.iter_any():
        data += chunk
        if len(data) > most:
            return bytes(data[:most]), True
    return bytes(data), False
