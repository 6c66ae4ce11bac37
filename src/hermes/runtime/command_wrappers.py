"""Rules for what runs something given in its words: wrappers, shells, interpreters.

They follow the inner command with the judge of the outer one; nothing is run.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hermes.runtime import danger_rules as tables
from hermes.runtime.command_judge import CommandJudge, Danger
from hermes.runtime.command_places import plain
from hermes.runtime.danger_code import judge_code
from hermes.runtime.shell_syntax import UNKNOWN, Simple

__all__ = ["DOWNLOADERS", "interprets", "runs_others"]

DOWNLOADERS = frozenset({"curl", "wget", "fetch", "aria2c", "http", "https"})


def runs_others(judge: CommandJudge, program: str, arguments: list[str], simple: Simple) -> bool:
    """Wrappers, shells and everything else that runs a command given in its arguments."""
    if program in tables.WRAPPERS:
        _unwrap(judge, program, arguments, simple)
        return True
    if program in tables.SHELLS:
        _shell(judge, program, arguments, simple)
        return True
    if program in ("eval", "trap"):
        words = [word for word in arguments if word != "--"]
        if words and not (program == "trap" and (words[0] in ("-", "") or words[0].startswith("-"))):
            judge.text(" ".join(words) if program == "eval" else words[0], program, here=program == "eval")
        return True
    if program in (".", "source"):
        _just_loaded(judge, arguments[:1], program)
        if arguments and UNKNOWN in arguments[0]:
            raise Danger("remote_code", "it runs a text that only running can tell (source)")
        return True
    return False


def _just_loaded(judge: CommandJudge, words: Sequence[str], program: str) -> None:
    """Raise Danger for a file that the same command line loads from another machine."""
    for word in words:
        if judge.places.absolute(word) in judge.fetched:
            raise Danger("remote_code", f"{program} runs what it has just loaded ({word})")


def _unwrap(judge: CommandJudge, program: str, arguments: list[str], simple: Simple) -> None:
    valued, before = tables.WRAPPERS[program]
    rest, inner = list(arguments), None
    while rest:
        word = rest[0]
        if program == "env" and word in ("-S", "--split-string") and len(rest) > 1:
            judge.text(rest[1], "env -S")
            return
        if program == "command" and word in ("-v", "-V"):
            return
        if word == "--":
            rest.pop(0)
            break
        if word.startswith("-") and len(word) > 1:
            rest.pop(0)
            moved = word.partition("=")[2] if word.startswith("--chdir=") else word[2:] if word[:2] == "-C" else ""
            if word in valued and rest:
                moved = rest.pop(0) if word in ("-C", "--chdir") else rest.pop(0) and ""
            if program == "env" and moved:
                inner = inner or judge.inner()
                inner.change_directory([moved])
        elif program == "env" and "=" in word:
            judge.assign(word.partition("=")[0], word.partition("=")[2])
            rest.pop(0)
        else:
            break
    rest = rest[before:]
    if program in ("command", "builtin") and rest[:1] in (["cd"], ["pushd"], ["eval"]):
        judge.words(rest, simple)
        return
    if program == "xargs":
        rest = [word.replace(mark, UNKNOWN) for word in rest for mark in [_replaced(arguments)]]
    inner = inner or judge.inner()
    if program == "watch" and len(rest) == 1 or program == "parallel" and len(rest) == 1:
        judge.text(rest[0], program)
    elif program in ("flock", "parallel") and rest[:1] == ["-c"]:
        judge.text(" ".join(rest[1:]), program)
    elif rest:
        extra = [UNKNOWN] if program in ("xargs", "parallel") and ":::" not in rest else []
        inner.words([*rest, *extra], simple)


def _replaced(arguments: Sequence[str]) -> str:
    """What xargs replaces by its input."""
    for index, word in enumerate(arguments):
        if word == "-I" and index + 1 < len(arguments):
            return arguments[index + 1]
        if word.startswith("-I"):
            return word[2:]
        if word.startswith("--replace="):
            return word[10:]
    return "{}"


def _shell(judge: CommandJudge, program: str, arguments: list[str], simple: Simple) -> None:
    rest = arguments[1:] if program == "busybox" else arguments
    if program == "busybox" and arguments and arguments[0] not in tables.SHELLS:
        judge.inner().words(list(arguments), simple)
        return
    for index, word in enumerate(rest):
        if index and re.fullmatch(r"[-+][oO]|--(?:rcfile|init-file)", rest[index - 1]):
            continue
        if re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word):
            command = next((one for one in rest[index + 1 :] if not one.startswith(("-", "+"))), "")
            for one in rest[index + 1 :] if command not in rest[index + 1 : index + 2] else (command,):
                judge.text(one, f"{program} -c")
            return
        if word in ("--version", "--help"):
            return
        if word in ("-s", "-"):
            break
        if not word.startswith(("-", "+")):
            if UNKNOWN in word:
                raise Danger("remote_code", f"{program} runs a text that only running can tell")
            _just_loaded(judge, [word], program)
            return
    if simple.stdin:
        judge.text(simple.stdin, program)
    elif simple.sources or any(redirect.operator == "<" for redirect in simple.redirects):
        source = simple.sources[-1] if simple.sources else "a file"
        raise Danger("remote_code", f"{program} runs whatever {source} gives it")


def interprets(judge: CommandJudge, program: str, arguments: list[str], simple: Simple) -> bool:
    """Interpreters: code in the arguments, in a here-document or from a pipe."""
    name = re.sub(r"[\d.]+$", "", program)
    if name == "pypy":
        name = "python"
    if name not in tables.CODE_FLAGS:
        return False
    if name == "python" and "-m" in arguments:
        module = arguments[arguments.index("-m") + 1 :]
        if module:
            judge.inner().words(list(module), simple)
            _module(judge, module)
        return True
    if name == "python" and arguments and arguments[0].rpartition("/")[2] == "setup.py" and "install" in arguments:
        raise Danger("install", "it installs a package (setup.py install)")
    _just_loaded(judge, plain(arguments)[:1], program)
    flags = tables.CODE_FLAGS[name]
    pieces = [simple.stdin] if not set(plain(arguments)) - {"-"} else []
    if not flags:
        pieces += arguments
    letters = "".join(flag[1] for flag in flags if len(flag) == 2)
    for index, word in enumerate(arguments):
        if word in flags or letters and re.fullmatch(rf"-[a-zA-Z]*[{letters}]", word):
            pieces.extend(arguments[index + 1 : index + 2])
        elif letters and re.match(rf"-[a-zA-Z]*?[{letters}].", word) and not word.startswith("--"):
            pieces.append(word)
        elif word.startswith("--") and word.partition("=")[0] in flags:
            pieces.append(word.partition("=")[2])
    if name in ("perl", "ruby") and any(re.match(r"-[a-zA-Z]*i", word) for word in arguments):
        for path in plain(arguments)[1:]:
            judge.writes(path, f"{program} -i")
    for piece in pieces:
        judge_code(judge, piece, program)
    if not arguments and not simple.stdin and any(source in DOWNLOADERS for source in simple.sources):
        raise Danger("remote_code", f"{program} runs what was loaded from the network")
    if not arguments or arguments == ["-"]:
        return True
    if any(UNKNOWN in word for word in arguments if word not in flags and word == arguments[0]):
        raise Danger("remote_code", f"{program} runs a text that only running can tell")
    return True


def _module(judge: CommandJudge, module: Sequence[str]) -> None:
    """Modules of python that run code given as a word, or unpack and make files."""
    if module[0] in ("timeit", "trace", "pdb", "cProfile", "profile", "code"):
        for word in module[1:]:
            judge_code(judge, word, f"python -m {module[0]}")
    elif module[0] in ("zipfile", "tarfile", "venv", "compileall", "ensurepip", "shutil"):
        for word in plain(module[1:]):
            judge.writes(word, f"python -m {module[0]}")
