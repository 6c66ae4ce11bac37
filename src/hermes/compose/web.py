"""The web tools of a runtime: a session that reaches only allowed addresses, and the service that is searched."""

from __future__ import annotations

from collections.abc import Callable
from fnmatch import fnmatchcase

from hermes.compose.parts import Parts
from hermes.core.tools import Toolset
from hermes.credentials.redact import Redactor
from hermes.providers.http import HttpSession, SessionSource
from hermes.tools.web import SearchToolset, WebToolset
from hermes.tools.web_address import AddressPolicy, guarded_connector
from hermes.tools.web_asking import Asking
from hermes.tools.web_fetch import Fetcher, FetchLimits
from hermes.tools.web_search import Searcher, searcher_for

__all__ = ["Web"]


class Web:
    """The toolsets, and their session for pages. Services are asked over `session`, the one that models are asked over:
    their addresses are given and not found in a page. `woke` tells whether the machine slept until a moment ago."""

    def __init__(
        self, parts: Parts, redactor: Redactor, session: SessionSource, woke: Callable[[], bool] = bool
    ) -> None:
        settings = parts.loaded.settings.web
        policy = AddressPolicy(settings.allowed_networks)
        # No proxy: it would connect in our place, and to addresses that nobody has looked at.
        self._pages = HttpSession(connector=lambda: guarded_connector(policy))
        self._asking = Asking(woke)
        ruled = [rule.host for rule in parts.loaded.settings.approvals.rules if rule.host and rule.decision != "allow"]

        def searcher() -> Searcher:
            return searcher_for(
                settings.backend,
                parts.variables,
                session,
                timeout=settings.timeout,
                hold=parts.hold,
                asking=self._asking,
            )

        fetcher = Fetcher(
            self._pages,
            FetchLimits(timeout=settings.timeout, max_bytes=settings.max_bytes, max_redirects=settings.max_redirects),
            may_follow=lambda host: not any(fnmatchcase(host.lower(), pattern.lower()) for pattern in ruled),
            clean=redactor.text,
            hold=parts.hold,
            asking=self._asking,
        )
        self.toolsets: tuple[Toolset, ...] = (
            WebToolset(searcher, fetcher, clean=redactor.text, hold=parts.hold),
            SearchToolset(searcher, clean=redactor.text),
        )

    def drop(self, seconds: float) -> None:
        """Use no connection again that was open before nothing ran for `seconds`, and ask again what was under way. The
        session of services has to be told before."""
        self._pages.drop(seconds)
        self._asking.drop()

    async def close(self) -> None:
        """Close the connections to pages. Safe to call twice."""
        await self._pages.close()
