"""How a line is read as a command: the table of names, and what stands after one. Pure; does nothing."""

from __future__ import annotations

import re

import msgspec

__all__ = ["COMMANDS", "Parsed", "background_verb", "parse"]


class _Entry(msgspec.Struct, frozen=True):
    name: str
    aliases: tuple[str, ...]
    usage: str
    summary: str


COMMANDS = (
    _Entry("help", (), "/help", "this list"),
    _Entry("background", ("bg",), "/background PROMPT", "run PROMPT beside the conversation, without its history"),
    _Entry("background", ("bg",), "/background status [N] | list | cancel N", "look at such runs, stop one"),
    _Entry("agents", ("tasks",), "/agents [ID]", "the tree of tasks, running and finished; one with its log"),
    _Entry("steer", (), "/steer [ID|#N|all] TEXT", "correct what runs without stopping it"),
    _Entry("queue", ("q",), "/queue TEXT", "the next input, when this turn is over"),
    _Entry("stop", (), "/stop", "stop the turn and every task; what they have is kept"),
    _Entry("busy", (), "/busy queue|steer|interrupt", "what a line typed during a turn does"),
    _Entry("detach", (), "/detach", "leave, and let what runs go on in the background"),
    _Entry("new", ("reset",), "/new", "a new conversation"),
    _Entry("sessions", (), "/sessions", "earlier conversations"),
    _Entry("resume", (), "/resume ID", "go on with another conversation; what runs here goes on beside"),
    _Entry(
        "model", (), "/model [NAME] [--global]", "which model answers; another one from here on (--provider P), always"
    ),
    _Entry("kanban", (), "/kanban [VERB …]", "the board of cards, as `hermes kanban` on the command line"),
    _Entry("config", (), "/config", "the settings that are not the usual ones"),
    _Entry("status", (), "/status", "session, model, what runs"),
    _Entry("usage", (), "/usage", "tokens and money so far"),
    _Entry("budget", (), "/budget [USD]", "what this conversation may cost; /budget 20 changes it, none lifts it"),
    _Entry("tools", (), "/tools", "the tools of this conversation"),
    _Entry("quit", ("exit",), "/quit [stop|detach|wait]", "leave; asks once where something runs"),
)
_NAMES = {name: entry.name for entry in COMMANDS for name in (entry.name, *entry.aliases)}
_LINE = re.compile(r"/([^\s/]+)(?:\s+(.*))?", re.DOTALL)
_VERB = re.compile(r"(?i)(list|status)|(status|cancel)\s+(#?\d+|bg_[0-9a-f]+)|(cancel)")


class Parsed(msgspec.Struct, frozen=True):
    """A line read as a command: its name and the rest; or what is wrong with it. Neither: it is a message."""

    name: str = ""
    argument: str = ""
    problem: str = ""


def parse(line: str) -> Parsed:
    """Read a line. Names count without case and by unique prefix; `/usr/bin is full` is a message."""
    match = _LINE.fullmatch(line)
    if match is None:
        return Parsed()
    word, rest = match[1], match[2] or ""
    wanted = word.lower()
    found = {_NAMES[name] for name in _NAMES if name == wanted} or {
        command for name, command in _NAMES.items() if name.startswith(wanted)
    }
    if len(found) == 1:
        return Parsed(found.pop(), rest.strip())
    if found:
        names = ", ".join(f"/{name}" for name in sorted(found))
        return Parsed(problem=f"/{word} could be {names}")
    return Parsed(problem=f"there is no command /{word}; /help lists them. A space before it makes it a message")


def background_verb(argument: str) -> tuple[str, str]:
    """Read the argument of /background: (verb, which run), or ("", prompt). A quoted one is always a prompt."""
    match = _VERB.fullmatch(argument)
    if match is not None:
        verb = next(group for group in (match[1], match[2], match[4]) if group)
        return verb.lower(), match[3] or ""
    if len(argument) > 1 and argument[0] == argument[-1] and argument[0] in "\"'":
        return "", argument[1:-1].strip()
    return "", argument
