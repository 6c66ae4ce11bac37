"""What could stand where a person types: names of commands, ids of tasks, paths after `@`.

Pure, but that it lists folders. It changes nothing and shows nothing; a face asks it after each key.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import msgspec

from hermes.chat.parsing import COMMANDS
from hermes.chat.render import one_line, printable
from hermes.core.views import TreeView

__all__ = ["Choice", "Completion", "complete"]

#: Choices that are offered at once, and names of a folder that are looked at.
MOST, MOST_NAMES = 50, 2_000
#: Commands whose first argument is a task.
_OF_TASKS = ("steer", "agents", "tasks")


class Choice(msgspec.Struct, frozen=True):
    """One thing to insert, and what it is."""

    text: str
    about: str = ""


class Completion(msgspec.Struct, frozen=True, kw_only=True):
    """Choices for the characters of the line from `start` to the cursor."""

    start: int = 0
    choices: tuple[Choice, ...] = ()


_NOTHING = Completion()


def complete(line: str, cursor: int, tree: TreeView, session_id: str, workspace: str) -> Completion:
    """What fits before `cursor` (a character of `line`). The choices for a path end with `/` where it is a folder."""
    before = line[:cursor]
    word_at = max(before.rfind(" "), before.rfind("\t")) + 1
    word = before[word_at:]
    if word.startswith("@"):
        return Completion(start=word_at, choices=_paths(word[1:], workspace))
    if not before.startswith("/"):
        return _NOTHING
    if word_at == 0:
        wanted = word[1:].lower()
        found = {entry.name: entry for entry in reversed(COMMANDS) if entry.name.startswith(wanted)}
        choices = [Choice(f"/{name} ", one_line(found[name].summary, 70)) for name in sorted(found)]
        return Completion(start=0, choices=tuple(choices))
    command, *rest = before.split()
    name = command[1:].lower()
    takes_task = any(each.startswith(name) for each in _OF_TASKS) and len(rest) <= (1 if word else 0)
    cancels = name in ("background", "bg") and rest[:1] in (["cancel"], ["status"]) and len(rest) <= (2 if word else 1)
    if takes_task or cancels:
        return Completion(start=word_at, choices=_tasks(word, tree, session_id, background=cancels))
    return _NOTHING


def _tasks(word: str, tree: TreeView, session_id: str, *, background: bool) -> tuple[Choice, ...]:
    found: list[Choice] = []
    for view in reversed(list(tree.tasks.values())):
        if view.session_id != session_id or view.kind == "main" or (background and view.kind != "background"):
            continue
        if view.task_id.startswith(word) or (word and word.lower() in (view.label or view.goal).lower()):
            about = f"{view.state} · {one_line(view.label or view.goal, 60)}"
            found.append(Choice(f"{view.task_id} ", about))
    found.sort(key=lambda choice: not choice.about.startswith("running"))
    return tuple(found[:MOST])


def _paths(typed: str, workspace: str) -> tuple[Choice, ...]:
    folder, _, start = typed.rpartition("/")
    lead = f"{folder}/" if "/" in typed else ""
    names: list[tuple[str, bool]] = []
    try:
        with os.scandir(os.path.join(workspace, os.path.expanduser(lead or "."))) as entries:
            for entry in entries:
                if entry.name.lower().startswith(start.lower()) and (start.startswith(".") or entry.name[0] != "."):
                    names.append((entry.name, _is_folder(entry)))
                if len(names) >= MOST_NAMES:
                    break
    except (OSError, ValueError):  # the latter: a name with a character that none can have
        return ()
    names.sort(key=lambda item: (not item[1], item[0].lower()))
    safe: Sequence[tuple[str, bool]] = [item for item in names if printable(item[0]) == item[0] and " " not in item[0]]
    return tuple(Choice(f"@{lead}{name}{'/' if folder_ else ' '}") for name, folder_ in safe[:MOST])


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
