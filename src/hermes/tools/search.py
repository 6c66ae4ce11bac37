"""The `search_files` tool: find text in files by a regular expression, or files by a name pattern.

It walks the tree itself, bounded in results, time and size, and skips version control, caches, binary files and what
holds secrets. It changes nothing and follows no symlinked directory.
"""

from __future__ import annotations

import fnmatch
import os
import re
import time
from collections.abc import Iterator
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from hermes.core.errors import ToolError
from hermes.core.tools import CallContext, Tool, ToolOutput, json_output
from hermes.tools.file import FileAccess

__all__ = ["SearchArguments", "search_files_tool"]

_SKIPPED = frozenset({".git", ".hg", ".svn", "__pycache__", "node_modules", ".venv", ".mypy_cache", ".ruff_cache"})
_MAX_FILE = 10 * 1024 * 1024
_MAX_LINE = 4_000
_SHOWN_LINE = 300
_SECONDS = 20.0
_MAX_CONTEXT = 10
_MAX_RESULTS = 1_000
#: A repeated group that itself holds a repetition takes exponential time on a line that nearly matches.
_EXPONENTIAL = re.compile(r"\((?:[^()\\]|\\.)*[+*}](?:[^()\\]|\\.)*\)[+*{]")


class SearchArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `search_files`."""

    pattern: Annotated[
        str, Meta(description="target=content: a regular expression (Python). target=files: a pattern such as *.py.")
    ]
    target: Annotated[Literal["content", "files"], Meta(description="Search in files, or for files by name.")] = (
        "content"
    )
    path: Annotated[str, Meta(description="Directory or file to search.")] = "."
    file_glob: Annotated[str, Meta(description="Only files whose name matches, e.g. *.md (content).")] = ""
    limit: Annotated[int, Meta(description="Results to return.", ge=1)] = 50
    offset: Annotated[int, Meta(description="Results to skip.", ge=0)] = 0
    context: Annotated[int, Meta(description="Lines before and after each match.", ge=0)] = 0
    ignore_case: Annotated[bool, Meta(description="Letters match in either case.")] = False


class _Search:
    """One walk. `skipped` counts files that were too large or could not be read."""

    def __init__(self, access: FileAccess, root: str, arguments: SearchArguments) -> None:
        self.access = access
        self.root = root
        self.arguments = arguments
        self.skipped = 0
        self.deadline = time.monotonic() + _SECONDS
        self.late = False

    def files(self) -> Iterator[str]:
        """Every regular file below the root, names in order, until the time is up."""
        if self.access.kind(self.root) == "file":
            yield self.root
            return
        stack = [self.root]
        while stack:
            folder = stack.pop()
            try:
                found = self.access.scan(folder)
            except (OSError, ToolError):
                self.skipped += 1
                continue
            below = []
            for name, kind in found:
                if time.monotonic() > self.deadline:
                    self.late = True
                    return
                path = os.path.join(folder, name)
                if kind == "folder":
                    if name not in _SKIPPED:
                        below.append(path)
                elif kind == "file" or kind == "link" and self._leads_to_file(path):
                    yield path
            stack.extend(reversed(below))

    def _leads_to_file(self, path: str) -> bool:
        try:
            return self.access.kind(path) == "file"
        except ToolError:  # it leads out of what the task may reach
            return False

    def by_name(self) -> Iterator[dict[str, Any]]:
        """Files whose name, or path below the root, matches the pattern."""
        pattern = self.arguments.pattern
        for path in self.files():
            relative = os.path.relpath(path, self.root)
            if fnmatch.fnmatch(os.path.basename(path), pattern) or fnmatch.fnmatch(relative, pattern):
                yield {"path": path}

    def by_content(self, expression: re.Pattern[str]) -> Iterator[dict[str, Any]]:
        """Lines that match."""
        glob = self.arguments.file_glob
        for path in self.files():
            if glob and not fnmatch.fnmatch(os.path.basename(path), glob):
                continue
            lines = self._lines(path)
            for number, line in enumerate(lines):
                if number % 256 == 0 and time.monotonic() > self.deadline:
                    self.late = True
                    return
                if expression.search(line[:_MAX_LINE]):
                    yield self._match(path, lines, number)

    def _lines(self, path: str) -> list[str]:
        try:
            if self.access.denied(path):
                self.skipped += 1
                return []
            data = self.access.load(path, _MAX_FILE)
        except (OSError, ToolError):
            self.skipped += 1
            return []
        return [] if b"\0" in data[:8192] else data.decode("utf-8", "replace").splitlines()

    def _match(self, path: str, lines: list[str], number: int) -> dict[str, Any]:
        around = min(self.arguments.context, _MAX_CONTEXT)
        match: dict[str, Any] = {"path": path, "line": number + 1, "content": lines[number][:_SHOWN_LINE]}
        if around:
            first = max(0, number - around)
            match["context"] = "\n".join(
                f"{first + index + 1}|{line[:_SHOWN_LINE]}"
                for index, line in enumerate(lines[first : number + around + 1])
            )
        return match


def _compiled(arguments: SearchArguments) -> re.Pattern[str]:
    if _EXPONENTIAL.search(arguments.pattern):
        raise ToolError(
            f"search_files: {arguments.pattern!r} repeats a group that holds a repetition, which can take for ever; "
            "write it without one of the two."
        )
    try:
        return re.compile(arguments.pattern, re.IGNORECASE if arguments.ignore_case else 0)
    except re.error as error:
        raise ToolError(
            f"search_files: {arguments.pattern!r} is no regular expression ({error}); escape special characters."
        ) from None


def search_files_tool(access: FileAccess) -> Tool:
    """Return `search_files` for one task."""

    async def run(arguments: SearchArguments, _context: CallContext) -> ToolOutput:
        if not arguments.pattern:
            raise ToolError("search_files: the pattern is empty; give one.")
        root = access.resolve(arguments.path)
        expression = _compiled(arguments) if arguments.target == "content" else None
        return await access.on_thread(lambda: _found(_Search(access, root, arguments), expression))

    return Tool(
        name="search_files",
        description=(
            "Search the text of files with a regular expression (target=content), or files by name (target=files). "
            "Version control, caches and binary files are skipped."
        ),
        arguments=SearchArguments,
        run=run,
        safe_to_repeat=True,
        describe=lambda arguments: f"{arguments.get('pattern', '')} in {arguments.get('path', '.')}",
    )


def _found(search: _Search, expression: re.Pattern[str] | None) -> ToolOutput:
    if search.access.kind(search.root) is None:
        raise ToolError(f"search_files: there is no {search.root}.")
    arguments = search.arguments
    limit = min(arguments.limit, _MAX_RESULTS)
    results = search.by_name() if expression is None else search.by_content(expression)
    shown: list[dict[str, Any]] = []
    more = False
    for number, result in enumerate(results):
        if number >= arguments.offset + limit:
            more = True
            break
        if number >= arguments.offset:
            shown.append(result)
    name = "files" if expression is None else "matches"
    answer: dict[str, Any] = {
        "count": len(shown),
        name: [item["path"] for item in shown] if expression is None else shown,
    }
    if more:
        answer["truncated"] = True
        answer["hint"] = f"There are more; go on with offset={arguments.offset + limit}."
    if search.late:
        answer["truncated"] = True
        answer["warning"] = f"The search stopped after {_SECONDS:g} s; search a smaller directory."
    if search.skipped:
        answer["skipped_files"] = search.skipped
    return json_output(answer, preview=f"{len(shown)} {name}")
