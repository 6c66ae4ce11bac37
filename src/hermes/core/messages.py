"""The entries of a history and the values inside them. Frozen; nothing stored is ever edited.

A history holds *entries*, not wire messages: a provider's adapter renders them (`render` in its module) as a pure
function that is stable under appending. This module knows no wire format and no storage.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import msgspec

__all__ = [
    "LARGE",
    "NOTHING",
    "Assistant",
    "Content",
    "Entry",
    "Image",
    "Interrupted",
    "Notice",
    "Part",
    "Steer",
    "StopReason",
    "Summary",
    "Text",
    "ToolCall",
    "ToolResult",
    "Usage",
    "User",
    "is_large",
    "opening",
    "plain_text",
]


class Text(msgspec.Struct, frozen=True, gc=False, tag="text"):
    """A piece of text."""

    text: str


class Image(msgspec.Struct, frozen=True, gc=False, tag="image"):
    """A picture: `data` is base64, `media_type` such as `image/png`."""

    media_type: str
    data: str


Part = Text | Image
Content = tuple[Part, ...]


def plain_text(content: Sequence[Part]) -> str:
    """Join the text parts of `content`; a picture becomes `[image/png]`."""
    if len(content) == 1 and isinstance(content[0], Text):
        return content[0].text
    return "".join(part.text if isinstance(part, Text) else f"[{part.media_type}]" for part in content)


#: Characters of one text or picture from which writing it takes long enough that it is done in a thread: 5 ms for each
#: million, several times over.
LARGE = 4_000_000


def is_large(content: Sequence[Part]) -> bool:
    """Whether one piece of it is large."""
    for part in content:
        if len(part.text if isinstance(part, Text) else part.data) > LARGE:
            return True
    return False


def opening(text: str, most: int) -> str:
    """How a text begins, on one line: its words until `most` characters. A long text is not gone through for it."""
    words = " ".join(text[: 8 * most].split())
    if len(words) < most and len(text) > 8 * most:  # it begins with much space
        words = " ".join(text.split(None, most))
    return words[:most]


def viewable(entries: tuple[Entry, ...], images: bool | None) -> tuple[Entry, ...]:
    """The entries as a model can take them: where it looks at no pictures (`images` False), a word stands for each."""
    if images is not False:
        return entries
    return tuple(_in_words(entry) if isinstance(entry, User | ToolResult | Steer) else entry for entry in entries)


def _in_words(entry: User | ToolResult | Steer) -> User | ToolResult | Steer:
    if isinstance(entry, Steer):
        words_of = "".join(f" [{picture.media_type}, not shown]" for picture in entry.pictures)
        return msgspec.structs.replace(entry, text=entry.text + words_of, pictures=()) if words_of else entry
    if not any(isinstance(part, Image) for part in entry.content):
        return entry
    words = (part if isinstance(part, Text) else Text(f" [{part.media_type}, not shown]") for part in entry.content)
    return msgspec.structs.replace(entry, content=tuple(words))


class Usage(msgspec.Struct, frozen=True, gc=False, kw_only=True, omit_defaults=True):
    """Tokens and money of one or more model calls.

    `input` counts all prompt tokens, the cached ones included; `output` all completion tokens, the reasoning ones
    included. `cost_usd` is None where no price is known. `estimated` marks figures the provider did not report.
    """

    input: int = 0
    output: int = 0
    cached: int = 0
    cache_write: int = 0
    reasoning: int = 0
    cost_usd: float | None = None
    estimated: bool = False

    @property
    def total(self) -> int:
        """Prompt and completion tokens together."""
        return self.input + self.output

    def __add__(self, other: Usage) -> Usage:
        mine, theirs = self.cost_usd, other.cost_usd
        return Usage(
            input=self.input + other.input,
            output=self.output + other.output,
            cached=self.cached + other.cached,
            cache_write=self.cache_write + other.cache_write,
            reasoning=self.reasoning + other.reasoning,
            cost_usd=mine if theirs is None else theirs if mine is None else mine + theirs,
            estimated=self.estimated or other.estimated,
        )


#: What costs nothing. One value for all that have used nothing yet: thousands wait for their first reply.
NOTHING = Usage()


class ToolCall(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """One call as the model wrote it.

    `id` is the provider's id and only echoed. `raw` is what the model really wrote; `arguments` is that text parsed, or
    empty with `invalid` saying why it could not be.
    """

    id: str
    name: str
    arguments: dict[str, Any] = {}
    raw: str = ""
    invalid: str = ""


StopReason = Literal["stop", "tool_calls", "length", "content_filter", "error"]


class User(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="user"):
    """What a person (or the parent, for a child's goal) said. `source`: user, goal, follow_up, summary_request."""

    content: Content
    source: str = "user"
    at: float = 0.0


class Assistant(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="assistant"):
    """One complete reply.

    `thinking` is reasoning text in whatever form it came; `provider_data` is kept for the provider that made it and
    sent back only where its API demands so. `finish` is the provider's own word for the stop.
    """

    text: str = ""
    thinking: str = ""
    calls: tuple[ToolCall, ...] = ()
    stop: StopReason = "stop"
    finish: str = ""
    usage: Usage = NOTHING
    model: str = ""
    provider_data: Any = None
    at: float = 0.0


class ToolResult(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="tool_result"):
    """The answer to one call. `position` and `index` are its call key, `call_id` the provider's id to echo.

    `details` is for people and programs and never sent to the model.
    """

    position: int
    index: int
    call_id: str
    name: str
    content: Content
    is_error: bool = False
    invalid_call: bool = False
    details: Any = None
    at: float = 0.0


class Steer(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="steer"):
    """A correction from a person or a parent that does not interrupt; delivered at a boundary with its receipt."""

    text: str
    receipt: str
    sender: str = "user"
    pictures: tuple[Image, ...] = ()
    at: float = 0.0

    @property
    def content(self) -> tuple[Part, ...]:
        """What was said, as the content of a user's message."""
        return (Text(self.text), *self.pictures)


class Notice(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False, tag="notice"):
    """Something the runtime tells the model: the end of children, a limit near, a call that repeats.

    `kind`: children, budget, stuck, continue, schema, check, process, cards. `tasks` are the ids whose ends it
    delivers, `refs` name what else it tells of, so that whoever told it knows later what was told.
    """

    kind: str
    text: str
    tasks: tuple[str, ...] = ()
    refs: tuple[str, ...] = ()
    at: float = 0.0


class Interrupted(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="interrupted"):
    """The turn was stopped by a person here. Rendered as a short assistant message, so that roles alternate."""

    reason: str = "interrupted by the user"
    partial: str = ""
    at: float = 0.0


class Summary(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag="summary"):
    """Stands for everything before `upto`, the first history position that its segment shows as it is. With an empty
    text nothing was left out: the segment has other tools, or another model, and shows all that stood before."""

    text: str
    upto: int
    at: float = 0.0


Entry = User | Assistant | ToolResult | Steer | Notice | Interrupted | Summary
