"""A web site on this machine, and names that lead to it: pages, redirects, floods, a search service."""

from __future__ import annotations

import socket
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
import anyio
from aiohttp import web
from aiohttp.abc import AbstractResolver, ResolveResult

from hermes.providers.http import HttpSession
from hermes.tools.web_address import AddressPolicy, guarded_connector
from hermes.tools.web_fetch import Fetcher, FetchLimits

LOOPBACK = ("127.0.0.0/8",)

PAGE = """<!doctype html><html><head><title> A   page </title><style>p{}</style><script>alert("no")</script></head>
<body><nav>menu</nav><main><h1>Heading</h1><p>One <a href="/two?q=1">link</a> and <b>bold</b>.<p>Second.
<ul><li>a<li>b</ul><!-- a comment --><form><input value=x></form><img alt="a cat" src="data:xx"></main>
<footer>imprint</footer></body></html>"""


class Names(AbstractResolver):
    """Looks names up in a table; a list of several answers is gone through, one at each look-up."""

    def __init__(self, table: Mapping[str, Sequence[str]]) -> None:
        self.table = {name: list(answers) for name, answers in table.items()}
        self.asked: list[str] = []

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        self.asked.append(host)
        answers = self.table.get(host)
        if not answers:
            raise OSError(f"no such name: {host}")
        address = answers.pop(0) if len(answers) > 1 else answers[0]
        return [
            ResolveResult(hostname=host, host=each, port=port, family=socket.AF_INET, proto=0, flags=0)
            for each in address.split()
        ]

    async def close(self) -> None:
        """Nothing is open."""


class Site:
    """Serves `PAGE` at `/`, and what a test adds. `seen` holds the path of each request with its headers."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, Mapping[str, str], str]] = []
        self.answers: dict[str, web.Response] = {}
        self.port = 0
        self._sessions: list[HttpSession] = []
        self._over = anyio.Event()

    async def __aenter__(self) -> Site:
        app = web.Application()
        app.router.add_route("*", "/{path:.*}", self._answer)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        place = web.TCPSite(self._runner, "127.0.0.1", 0)
        await place.start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        self._over.set()
        for session in self._sessions:
            await session.close()
        await self._runner.cleanup()

    def url(self, path: str = "/", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    def add(self, path: str, body: str | bytes = "", content_type: str = "text/html", **more: Any) -> None:
        """Answer `path` with this."""
        data = body.encode() if isinstance(body, str) else body
        headers = {"Content-Type": content_type} if content_type else {}
        self.answers[path] = web.Response(body=data, headers={**headers, **more.pop("headers", {})}, **more)

    def redirect(self, path: str, target: str, status: int = 302) -> None:
        """Redirect `path`."""
        self.add(path, status=status, headers={"Location": target})

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.seen.append((request.path_qs, dict(request.headers), await request.text()))
        if request.path == "/":
            return web.Response(text=PAGE, content_type="text/html")
        if request.path == "/flood":
            return await self._flood(request)
        if request.path == "/silence":
            response = web.StreamResponse(headers={"Content-Type": "text/plain"})
            await response.prepare(request)
            await self._over.wait()
            return response
        known = self.answers.get(request.path)
        if known is None:
            raise web.HTTPNotFound
        return web.Response(body=known.body, headers=known.headers, status=known.status)

    async def _flood(self, request: web.Request) -> web.StreamResponse:
        """Without end: only a reader that stops ends it."""
        response = web.StreamResponse(headers={"Content-Type": "text/plain"})
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * 65536)
        except (ConnectionError, aiohttp.ClientError):
            return response

    def session(self, names: Names | None = None, allowed: Sequence[str] = LOOPBACK) -> HttpSession:
        """A session that reaches `allowed` and what is public; closed with the site."""
        policy = AddressPolicy(allowed)
        session = HttpSession(connector=lambda: guarded_connector(policy, names))
        self._sessions.append(session)
        return session

    def fetcher(self, names: Names | None = None, allowed: Sequence[str] = LOOPBACK, **more: Any) -> Fetcher:
        """What fetches over such a session."""
        limits = FetchLimits(
            **{name: more.pop(name) for name in ("timeout", "max_bytes", "max_redirects") if name in more}
        )
        return Fetcher(self.session(names, allowed), limits, **more)
