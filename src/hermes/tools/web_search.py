"""Services that search the web, each as one request and a reading of its answer; which one is asked is a setting.

A key goes to its own service alone: addresses are fixed here or given by the user, and no redirect is followed.
Nothing is asked twice and nothing is kept.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import anyio
import anyio.to_thread
import msgspec

from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.errors import ToolError
from hermes.tools.web_asking import Asking
from hermes.tools.web_fetch import SessionSource, read_at_most

__all__ = ["SEARCHERS", "Found", "SearchService", "Searcher", "searcher_for"]

#: Longest answer of a service that is read, bytes.
_MAX_ANSWER = 1024 * 1024
_EMPHASIS = re.compile(r"</?(?:strong|b|em|mark|span)\b[^<>]{0,200}>", re.IGNORECASE)


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """One result."""

    title: str
    url: str
    description: str = ""


class _Request(msgspec.Struct, frozen=True, kw_only=True):
    url: str
    method: str = "GET"
    query: dict[str, str] = {}
    form: dict[str, str] | None = None
    json: dict[str, Any] | None = None
    headers: dict[str, str] = {}


class SearchService(msgspec.Struct, frozen=True, kw_only=True):
    """One service. `key` names the variable that holds its key, "" where it needs none; for SearXNG that is the
    address of an instance. `ask` makes the request for (query, number of results, key), `read` its results."""

    name: str
    key: str
    ask: Callable[[str, int, str], _Request]
    read: Callable[[bytes], list[Found]]


def _text(value: object) -> str:
    return " ".join(str(value or "").split())


def _plain(value: object) -> str:
    """Text without the marks in which services put the words that were found."""
    return _text(html.unescape(_EMPHASIS.sub("", _text(value))))


def _results(data: bytes, path: tuple[str, ...], description: tuple[str, ...]) -> list[Found]:
    """Read results out of JSON: a list at `path`, each with a title, an address and one of the description's fields."""
    try:
        value = msgspec.json.decode(data)
    except msgspec.DecodeError:
        raise ToolError("web_search: the service answered with something that is no JSON; try again later.") from None
    for name in path:
        value = value.get(name) if isinstance(value, dict) else None
    found = []
    for item in value if isinstance(value, list) else ():
        if isinstance(item, dict) and item.get("url"):
            words = next((item[name] for name in description if item.get(name)), "")
            if isinstance(words, list):
                words = " … ".join(map(str, words))
            found.append(Found(title=_plain(item.get("title")), url=str(item["url"]), description=_plain(words)))
    return found


def _duckduckgo(query: str, _limit: int, _key: str) -> _Request:
    return _Request(method="POST", url="https://html.duckduckgo.com/html/", form={"q": query})


def _read_duckduckgo(data: bytes) -> list[Found]:
    # edge: a parser that only this one service needs, at its first search
    from bs4 import BeautifulSoup, Tag

    soup = BeautifulSoup(data, "html.parser")
    if soup.select_one(".anomaly-modal__modal, #challenge-form") is not None:
        raise ToolError(
            "web_search: DuckDuckGo wants to see a person and answers no more for now. Try later; a key for brave, "
            "tavily or exa or an instance of SearXNG makes searching reliable, which the user may want to know."
        )
    found = []
    for result in soup.select("div.result"):
        link, words = result.select_one("a.result__a"), result.select_one(".result__snippet")
        if not isinstance(link, Tag) or "result--ad" in (result.get("class") or []):
            continue
        url = _without_detour(str(link.get("href") or ""))
        if url:
            description = words.get_text(" ") if words is not None else ""
            found.append(Found(title=_text(link.get_text(" ")), url=url, description=_text(description)))
    return found


def _without_detour(href: str) -> str:
    """The address behind a link that goes over the search service."""
    try:
        parts = urlsplit(href if "://" in href else f"https:{href}")
        target = parse_qs(parts.query).get("uddg", [""])[0]
        if target:
            return target if urlsplit(target).scheme in ("http", "https") else ""
        return "" if (parts.hostname or "").endswith("duckduckgo.com") else parts.geturl()
    except ValueError:
        return ""


def _searxng(query: str, _limit: int, address: str) -> _Request:
    return _Request(url=address.rstrip("/") + "/search", query={"q": query, "format": "json"})


def _brave(query: str, limit: int, key: str) -> _Request:
    return _Request(
        url="https://api.search.brave.com/res/v1/web/search",
        query={"q": query, "count": str(limit)},
        headers={"X-Subscription-Token": key, "Accept": "application/json"},
    )


def _tavily(query: str, limit: int, key: str) -> _Request:
    return _Request(
        method="POST",
        url="https://api.tavily.com/search",
        json={"query": query, "max_results": limit},
        headers={"Authorization": f"Bearer {key}"},
    )


def _exa(query: str, limit: int, key: str) -> _Request:
    return _Request(
        method="POST",
        url="https://api.exa.ai/search",
        json={"query": query, "numResults": limit, "contents": {"highlights": True}},
        headers={"x-api-key": key},
    )


#: The services in the order in which they are taken when none is named: those with a key first.
SEARCHERS: tuple[SearchService, ...] = (
    SearchService(
        name="brave", key="BRAVE_SEARCH_API_KEY", ask=_brave,
        read=lambda data: _results(data, ("web", "results"), ("description",)),
    ),
    SearchService(
        name="tavily", key="TAVILY_API_KEY", ask=_tavily, read=lambda data: _results(data, ("results",), ("content",))
    ),
    SearchService(
        name="exa", key="EXA_API_KEY", ask=_exa,
        read=lambda data: _results(data, ("results",), ("highlights", "summary", "text")),
    ),
    SearchService(
        name="searxng", key="SEARXNG_URL", ask=_searxng,
        read=lambda data: _results(data, ("results",), ("content",)),
    ),
    SearchService(name="duckduckgo", key="", ask=_duckduckgo, read=_read_duckduckgo),
)  # fmt: skip


class Searcher:
    """Asks one service. `base` replaces scheme, host and port of its address: for a stand-in on this machine."""

    def __init__(
        self,
        service: SearchService,
        key: str,
        session: SessionSource,
        *,
        timeout: float = 30.0,
        base: str = "",
        hold: Hold = NO_HOLD,
        asking: Asking | None = None,
    ) -> None:
        self._hold = hold
        self._asking = asking or Asking()
        self.name = service.name
        self._service = service
        self._key = key
        self._session = session
        self._timeout = timeout
        self._base = base

    def __repr__(self) -> str:
        return f"<Searcher {self.name}>"

    async def search(self, query: str, limit: int) -> list[Found]:
        """Return at most `limit` results, best first.

        Raises:
            ToolError: the service cannot be reached, refuses, or answers what cannot be read.
        """
        request = self._service.ask(query, limit, self._key)
        url = self._base + urlsplit(request.url).path if self._base else request.url
        try:
            data = await self._asking.within(self._timeout, lambda: self._answer(request, url))
        except TimeoutError:
            raise ToolError(f"web_search: {self.name} did not answer within {self._timeout:g} s.") from None
        except (aiohttp.ClientError, OSError) as error:
            # The text of the error could hold the address with its query; its kind says enough.
            raise ToolError(f"web_search: {self.name} cannot be reached ({type(error).__name__}).") from None
        with held(self._hold):
            found = await anyio.to_thread.run_sync(self._service.read, data)
        return found[:limit]

    async def _answer(self, request: _Request, url: str) -> bytes:
        response = await self._session().request(
            request.method,
            url,
            params=request.query or None,
            data=request.form,
            json=request.json,
            headers=request.headers,
            allow_redirects=False,
        )
        try:
            if response.status in (401, 403) and self._service.key:
                raise ToolError(f"web_search: {self.name} refuses the key in {self._service.key} ({response.status}).")
            if response.status == 429:
                raise ToolError(f"web_search: {self.name} has had too many searches; try later or with fewer.")
            # 202 is DuckDuckGo's page that asks whether a person is there.
            if response.status not in (200, 202):
                raise ToolError(f"web_search: {self.name} answered {response.status} {response.reason or ''}.")
            data, cut = await read_at_most(response, _MAX_ANSWER)
            if cut:
                raise ToolError(f"web_search: the answer of {self.name} is larger than {_MAX_ANSWER:,} bytes.")
            return data
        finally:
            response.close()


def searcher_for(
    name: str,
    variables: Mapping[str, str],
    session: SessionSource,
    *,
    timeout: float = 30.0,
    base: str = "",
    hold: Hold = NO_HOLD,
    asking: Asking | None = None,
) -> Searcher:
    """The service called `name`, or without a name the first whose key is in `variables`.

    Raises:
        ToolError: there is no such service here, or it has no key.
    """
    for service in SEARCHERS:
        key = variables.get(service.key, "").strip() if service.key else ""
        if name == service.name or not name and (key or not service.key):
            if service.key and not key:
                raise ToolError(
                    f"web_search: web.backend is {name}, but {service.key} is not set; export it or put it into .env."
                )
            return Searcher(service, key, session, timeout=timeout, base=base, hold=hold, asking=asking)
    known = ", ".join(service.name for service in SEARCHERS)
    raise ToolError(f"web_search: web.backend is {name!r}, which is not in this release; it can be {known}.")
