"""The person's own editor: what cannot be one is said, and the screen stays."""

from __future__ import annotations

import pytest
from textual.app import App

from hermes.core.errors import OperatorError
from hermes.tui.editing import edited


@pytest.mark.anyio
async def test_an_editor_that_is_no_command_is_refused() -> None:
    with pytest.raises(OperatorError, match="set EDITOR"):
        await edited(App[None](), "text", {"EDITOR": "vi '"})
