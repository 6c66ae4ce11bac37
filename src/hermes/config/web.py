"""The settings of the web tools; `hermes.config.schema` holds them among all others. Reaches nothing."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["WebSettings"]


class WebSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Searching the web and reading pages."""

    backend: Annotated[
        str,
        Meta(
            description="Service that is searched: `brave`, `tavily`, `exa`, `searxng`, `duckduckgo`; empty: the first "
            "whose key is there, else DuckDuckGo, which needs none."
        ),
    ] = ""
    timeout: Annotated[float, Meta(description="Seconds a page or a search may take in all.", gt=0)] = 30
    max_bytes: Annotated[int, Meta(description="Bytes that are read of one page.", ge=1024)] = 2 * 1024 * 1024
    max_redirects: Annotated[int, Meta(description="Redirects that are followed to a page.", ge=0)] = 5
    allowed_networks: Annotated[
        tuple[str, ...],
        Meta(description="Networks that pages may be read from although they are not public, e.g. `10.1.0.0/16`."),
    ] = ()
