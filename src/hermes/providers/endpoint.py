"""Address, key and habits of a model endpoint, and which wire format it speaks.

Where the key comes from is not decided here, and nothing is sent.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal
from urllib.parse import urlsplit

import msgspec

from hermes.providers.render import ReasoningEcho

__all__ = ["API_MODES", "ApiMode", "Endpoint", "api_mode_of"]

#: The wire formats, by the names that settings use.
ApiMode = Literal["chat_completions", "anthropic_messages", "codex_responses"]
API_MODES: tuple[ApiMode, ...] = ("chat_completions", "anthropic_messages", "codex_responses")

#: Ends of an address that name a format.
_ENDS: tuple[tuple[str, ApiMode], ...] = (
    ("/chat/completions", "chat_completions"),
    ("/messages", "anthropic_messages"),
    ("/anthropic", "anthropic_messages"),
    ("/responses", "codex_responses"),
)


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Address, key and habits of an endpoint; its `repr` shows no key.

    `base_url` is what comes before `/chat/completions` (`/v1/messages`, `/responses`). An empty `api_key` sends none.
    `headers` are added to every request. `reasoning_echo` is the field in which a Chat Completions endpoint has to get
    earlier reasoning back, if any. `api_mode` is the wire format; empty: by the address.
    """

    base_url: str
    api_key: str = ""
    headers: Mapping[str, str] = {}
    reasoning_echo: ReasoningEcho = ""
    api_mode: ApiMode | Literal[""] = ""

    def __repr__(self) -> str:
        key = "set" if self.api_key else "none"
        return f"Endpoint(base_url={self.base_url!r}, api_key=<{key}>, headers={sorted(self.headers)!r})"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("base_url", self.base_url), ("api_key", "<set>" if self.api_key else "<none>")]

    @property
    def host(self) -> str:
        """Host and port, for people."""
        return urlsplit(self.base_url).netloc.rpartition("@")[2] or self.base_url

    def request_headers(self) -> dict[str, str]:
        """The headers of every request; a compressed stream would arrive in blocks, so none is asked for."""
        headers = {"Content-Type": "application/json", "Accept-Encoding": "identity"}
        if self.api_key:
            headers["Authorization"] = f"Bearer {self.api_key.strip()}"
        return {**headers, **self.headers}

    def url(self, path: str) -> str:
        """Where replies are asked for: the address, and `path` (`/chat/completions`) unless it ends so already."""
        base = self.base_url.rstrip("/")
        return base if base.endswith(path) else f"{base}{path}"


def api_mode_of(endpoint: Endpoint) -> ApiMode:
    """The wire format of an endpoint: as given, else by its address, else Chat Completions."""
    if endpoint.api_mode:
        return endpoint.api_mode
    parts = urlsplit(endpoint.base_url)
    path = parts.path.rstrip("/")
    for end, mode in _ENDS:
        if path.endswith(end):
            return mode
    return "anthropic_messages" if parts.hostname == "api.anthropic.com" else "chat_completions"
