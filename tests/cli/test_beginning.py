"""How a conversation begins on the full screen."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.cli.beginning import Wish, begin
from hermes.cli.faces import Chosen
from hermes.cli.options import GlobalOptions, open_sources
from hermes.credentials import NotConfigured


@pytest.mark.anyio
@pytest.mark.usefixtures("home")
async def test_nothing_configured_is_told_before_a_screen_comes(tmp_path: Path) -> None:
    sources = open_sources(GlobalOptions(), {"HOME": str(tmp_path), "PATH": "/bin"})
    wish = Wish(
        sources=sources,
        face=Chosen("screen"),
        workspace=str(tmp_path),
        toolsets=None,
        verbose=False,
        source="cli",
    )
    with pytest.raises(NotConfigured):
        await begin(wish)
