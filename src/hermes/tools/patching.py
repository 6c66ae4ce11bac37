"""The `patch` tool: replace one exact piece of a file, or every occurrence of it.

It guesses nothing: text that is not there, or stands there more than once, is refused with what the file has instead.
"""

from __future__ import annotations

import difflib
import os
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from hermes.core.errors import ToolError
from hermes.core.tools import CallContext, Tool, ToolOutput, json_output
from hermes.tools.file import FileAccess, conflicts, decode_text

__all__ = ["PatchArguments", "patch_tool", "replaced"]

_MAX_DIFF = 8_000
_MAX_COMPARED_LINES = 5_000


class PatchArguments(msgspec.Struct, frozen=True, kw_only=True):
    """Arguments of `patch`."""

    path: Annotated[str, Meta(description="The file, absolute or relative to the current directory.")]
    old_string: Annotated[
        str, Meta(description="The text to replace, exactly as in the file (no line numbers), with enough around it.")
    ]
    new_string: Annotated[str, Meta(description="What to put there; empty to delete.")]
    replace_all: Annotated[bool, Meta(description="Replace every occurrence.")] = False


def patch_tool(access: FileAccess) -> Tool:
    """Return `patch` for one task."""

    async def run(arguments: PatchArguments, _context: CallContext) -> ToolOutput:
        path = access.resolve(arguments.path)

        def work() -> ToolOutput:
            before = decode_text(access.read(path), path)
            change = access.seen.conflict(access.real(path))
            after, count = replaced(
                before, arguments.old_string, arguments.new_string, replace_all=arguments.replace_all, path=path
            )
            access.seen.wrote(access.write(path, after.encode("utf-8", "replace")))
            answer: dict[str, Any] = {
                "success": True,
                "path": path,
                "replacements": count,
                "diff": _diff(before, after, path),
            }
            if change is not None:
                answer["warning"] = f"{change.text} The patch was applied to the newer content."
            return json_output(
                answer,
                preview=f"{count} replaced",
                files_read=(path,),
                files_written=(path,),
                conflicts=conflicts(path, change),
            )

        return await access.on_thread(work)

    return Tool(
        name="patch",
        description=(
            "Change part of a text file: old_string is replaced by new_string. It must be in the file exactly once, or "
            "replace_all=true."
        ),
        arguments=PatchArguments,
        run=run,
        safe_to_repeat=False,
        describe=lambda arguments: str(arguments.get("path", "")),
    )


def replaced(text: str, old: str, new: str, *, replace_all: bool, path: str) -> tuple[str, int]:
    """Return (new text, replacements). Line ends of `old` and `new` follow the file's. Raises ToolError."""
    if not old:
        raise ToolError("patch: old_string is empty; use write_file to make a file.")
    if old == new:
        raise ToolError("patch: old_string and new_string are the same, nothing would change.")
    if "\r\n" in text and "\r\n" not in old:
        old, new = old.replace("\n", "\r\n"), new.replace("\r\n", "\n").replace("\n", "\r\n")
    count = text.count(old)
    if count == 0:
        raise ToolError(f"patch: old_string is not in {path}.{_nearest(text, old)}")
    if count > 1 and not replace_all:
        raise ToolError(
            f"patch: old_string is in {path} {count} times (lines {_places(text, old)}); add lines around it so "
            "that it is unique, or set replace_all=true."
        )
    return text.replace(old, new), count


def _places(text: str, old: str) -> str:
    numbers: list[str] = []
    position = text.find(old)
    while position >= 0 and len(numbers) < 10:
        numbers.append(str(text.count("\n", 0, position) + 1))
        position = text.find(old, position + len(old))
    return ", ".join(numbers)


def _nearest(text: str, old: str) -> str:
    """Return the piece of the file that is most like `old`, with line numbers, as a sentence."""
    lines = text.splitlines()[:_MAX_COMPARED_LINES]
    wanted = old.splitlines()
    if not lines or not wanted:
        return " The file is empty." if not lines else ""
    anchor = max(wanted, key=len).strip()
    offset = [line.strip() for line in wanted].index(anchor)
    matcher = difflib.SequenceMatcher(autojunk=False)
    matcher.set_seq2(anchor)
    best, score = -1, 0.5
    for number, line in enumerate(lines):
        matcher.set_seq1(line.strip()[:500])
        if matcher.real_quick_ratio() > score and matcher.quick_ratio() > score:
            ratio = matcher.ratio()
            if ratio > score:
                best, score = number, ratio
    if best < 0:
        return " Nothing in it is like it; read the file first."
    first = max(0, best - offset)
    piece = lines[first : first + max(3, min(len(wanted), 20))]
    shown = "\n".join(f"{first + index + 1}|{line[:500]}" for index, line in enumerate(piece))
    return f" The nearest text there is:\n{shown}"


def _diff(before: str, after: str, path: str) -> str:
    if before.count("\n") > 20_000:  # the comparison takes quadratic time
        return ""
    lines = difflib.unified_diff(
        before.splitlines(),
        after.splitlines(),
        f"a/{os.path.basename(path)}",
        f"b/{os.path.basename(path)}",
        lineterm="",
    )
    text = "\n".join(lines)
    return text if len(text) <= _MAX_DIFF else f"{text[:_MAX_DIFF]}\n[… {len(text) - _MAX_DIFF} characters cut]"
