"""The settings of `execute_code`; `hermes.config.schema` holds them among all others. Runs nothing."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["CodeExecutionSettings"]


class CodeExecutionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Scripts that call tools."""

    timeout: Annotated[float, Meta(description="Seconds a script may take, at most.", gt=0)] = 300
    max_tool_calls: Annotated[int, Meta(description="Calls of tools that one script may make.", ge=0)] = 50
