"""The rules for single programs, in the order in which they are asked.

Each rule gets the judge, the program's name, its arguments and the command as it was written. It returns True when it
knows the program and nothing more has to be asked, and raises `Danger` when consent is needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from hermes.runtime import danger_rules as tables
from hermes.runtime.command_judge import CommandJudge, Danger, Rule, is_local
from hermes.runtime.command_places import plain
from hermes.runtime.command_traps import TRAPS, git_words
from hermes.runtime.command_wrappers import DOWNLOADERS, interprets, runs_others
from hermes.runtime.shell_syntax import UNKNOWN, Simple

__all__ = ["RULES"]

_SENDS = re.compile(r"-(?:d|F|T|X|-data.*|-form.*|-upload-file|-request|-json|-post-data|-post-file|-method)")
_READING_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def _machine(judge: CommandJudge, program: str, arguments: list[str], _simple: Simple) -> bool:
    """Programs that are dangerous by their name."""
    name = program.split(".")[0] if program.startswith("mkfs") else program
    if program in tables.PRIVILEGE:
        judge.note("privilege", f"it gains the rights of another user ({program})")
    if program in tables.KILLS and arguments[:1] not in (["-l"], ["-L"], ["--list"], ["-0"]):
        raise Danger("kill", f"it ends processes ({program})")
    if name in tables.MACHINE and not (program == "mount" and not arguments):
        raise Danger("machine", f"it changes the machine itself ({program})")
    if program == "fuser" and any(word.startswith("-") and "k" in word for word in arguments):
        raise Danger("kill", "it ends processes (fuser -k)")
    if program == "crontab" and "-l" not in arguments:
        raise Danger("machine", "it changes scheduled jobs (crontab)")
    if program == "sysctl" and any("=" in word or word == "-w" for word in arguments):
        raise Danger("machine", "it changes the machine itself (sysctl)")
    if program in tables.AGENTS and not set(arguments) <= {"--version", "--help", "-h", "-V"}:
        raise Danger("agent", f"it starts another agent ({program})")
    if any(tuple(words) == (program, *arguments)[: len(words)] for words in tables.SECRET_COMMANDS):
        raise Danger("secrets", f"it prints keys or logins ({program} {' '.join(arguments[:2])})")
    if program == "openssl" and arguments[:1] == ["s_client"]:
        raise Danger("push", "it talks to another machine (openssl s_client)")
    if program in ("gdb", "strace", "ltrace", "lldb") and {"-p", "--pid", "--attach-pid"} & set(arguments):
        raise Danger("machine", f"it reaches into another process ({program} -p)")
    if program in tables.REMOTE:
        raise Danger("push", f"it works on another machine or sends to it ({program})")
    return False


def _deletes(_judge: CommandJudge, program: str, arguments: list[str], _simple: Simple) -> bool:
    if program in tables.DELETES:
        if set(arguments) <= {"--version", "--help"} and arguments:
            return True
        raise Danger("delete", f"it deletes files ({program})")
    return False


def _moves(judge: CommandJudge, program: str, arguments: list[str], _simple: Simple) -> bool:
    if program in ("cd", "pushd", "chdir"):
        judge.change_directory(arguments)
        return True
    if program == "popd":
        judge.change_directory(["-"])
        return True
    if program in ("read", "mapfile", "readarray", "getopts"):
        for name in plain(arguments):
            judge.variables[name] = None
        return True
    if program == "printf" and arguments[:1] == ["-v"] and len(arguments) > 1:
        judge.variables[arguments[1]] = None
    if program in ("declare", "typeset", "local") and any(word.startswith("-") and "n" in word for word in arguments):
        for word in plain(arguments):
            judge.unknowable(word.partition("=")[0])
        return True
    if program in ("export", "declare", "local", "readonly", "typeset"):
        for word in plain(arguments):
            name, sign, value = word.partition("=")
            if sign:
                judge.assign(name, value)
        return True
    return False


def _installs(_judge: CommandJudge, program: str, arguments: list[str], _simple: Simple) -> bool:
    verbs = tables.PUBLISHERS.get(program, frozenset())
    words = set(arguments)
    if words & verbs:
        raise Danger("push", f"it changes something outside this machine ({program} {sorted(words & verbs)[0]})")
    if re.sub(r"[\d.]+$", "", program) in tables.INSTALLERS or program in tables.INSTALLERS:
        if program == "dpkg" and not words & {"-i", "-r", "-P", "--install", "--remove", "--purge"}:
            return True
        first = [word for word in arguments if word in tables.INSTALL_WORDS]
        script = arguments[:1] in (["run"], ["test"], ["exec"])
        if first and not script or program == "yarn" and not arguments:
            raise Danger("install", f"it installs or removes software ({program} {first[0] if first else 'install'})")
        return program not in ("cargo", "go", "uv", "poetry", "npm", "pnpm", "yarn")
    if program in ("npx", "bunx", "pnpx") and arguments:
        raise Danger("install", f"it loads a package and runs it ({program})")
    if program in ("make", "gmake", "ninja", "cmake", "just") and words & {"install", "uninstall", "--install"}:
        raise Danger("install", f"it installs software ({program} install)")
    return False


def _containers(_judge: CommandJudge, program: str, arguments: list[str], _simple: Simple) -> bool:
    if program not in ("docker", "podman", "nerdctl", "docker-compose", "lxc", "incus", "vagrant", "multipass"):
        return False
    verbs = plain(arguments)
    if verbs and verbs[0] in ("compose", "container", "image", "volume", "network", "system"):
        verbs = [word for word in verbs[1:] if word != "ls" and word != "df"] or ["ps"]
    if (verbs and verbs[0] not in tables.CONTAINER_READS) or (not verbs and program == "docker-compose"):
        raise Danger(
            "machine", f"it controls containers, which reach past the working directory ({program} {verbs[0]})"
        )
    return True


def _git(judge: CommandJudge, program: str, arguments: list[str], simple: Simple) -> bool:
    if program != "git":
        return False
    options, rest = git_words(arguments)
    for option, value in options:
        writes = rest and rest[0] not in ("status", "log", "diff", "show")
        if option in ("-C", "--work-tree", "--git-dir") and writes:
            judge.writes(value, f"git {option}")
    if not rest:
        return True
    verb, words = rest[0], rest[1:]
    if verb in tables.GIT_DANGEROUS:
        category, needed, what = tables.GIT_DANGEROUS[verb]
        if verb == "restore" and "--staged" in words and "--worktree" not in words:
            return True
        if not needed or set(words) & set(needed):
            raise Danger(category, f"it {what}")
    if verb in ("clone", "init", "worktree", "bundle", "archive") and len(plain(words)) > 0:
        targets = plain(words)
        if verb == "clone" and len(targets) > 1:
            judge.writes(targets[1], "git clone")
        elif verb == "init":
            judge.writes(targets[0], "git init")
        elif verb == "worktree" and targets[0] == "add" and len(targets) > 1:
            judge.writes(targets[1], "git worktree add")
    if verb in ("bisect", "rebase", "submodule", "for-each-ref") and "run" in words:
        judge.inner().words(words[words.index("run") + 1 :], simple)
    if verb == "rebase" and ("-x" in words or "--exec" in words):
        raise Danger("unclear", "it has git run a command of its own (git rebase --exec)")
    return True


def _find(judge: CommandJudge, program: str, arguments: list[str], simple: Simple) -> bool:
    if program not in ("find", "fd", "fdfind"):
        return False
    if "-delete" in arguments:
        raise Danger("delete", "it deletes files (find -delete)")
    for index, word in enumerate(arguments):
        if word in ("-exec", "-execdir", "-ok", "-okdir", "-x", "-X", "--exec", "--exec-batch"):
            command = []
            for part in arguments[index + 1 :]:
                if part in (";", "+"):
                    break
                command.append(part.replace("{}", UNKNOWN))
            if command:
                judge.inner().words(command, simple)
        elif word in ("-fprint", "-fprintf", "-fls", "-fprint0") and index + 1 < len(arguments):
            judge.writes(arguments[index + 1], f"find {word}")
    return True


def _permissions(judge: CommandJudge, program: str, arguments: list[str], _simple: Simple) -> bool:
    if program not in ("chmod", "chown", "chgrp"):
        return False
    if program != "chmod":
        raise Danger("permissions", f"it changes who owns files ({program})")
    if any(re.fullmatch(r"-[a-zA-Z]*R[a-zA-Z]*|--recursive", word) for word in arguments):
        raise Danger("permissions", "it changes the permissions of a whole tree (chmod -R)")
    targets = plain(arguments)[1:]
    if any(re.search(r"\+[rwx]*s|[2467]\d{3}$", word) for word in plain(arguments)[:1]):
        raise Danger("permissions", "it gives a program the rights of its owner (chmod +s)")
    for path in targets:
        judge.writes(path, "chmod")
    return True


def _network(judge: CommandJudge, program: str, arguments: list[str], _simple: Simple) -> bool:
    """Sending, as opposed to loading, through a downloader."""
    if program not in DOWNLOADERS and program not in tables.NETWORK:
        return False
    local = any(is_local(word) for word in plain(arguments))
    if not local and any(UNKNOWN in word for word in arguments):
        judge.note("push", f"it may send what only running can tell to another machine ({program})")
    if program not in DOWNLOADERS:
        return False
    for word in (*arguments, *(os.path.basename(word) for word in arguments)):
        path = judge.places.absolute(word) if word and not local else None
        if path is not None and "://" not in word and not word.startswith("-"):
            judge.fetched.add(path)
    for index, word in enumerate(arguments):
        if _SENDS.fullmatch(word.partition("=")[0]) is None and not re.match(r"-(?:d|F|T)\S", word):
            continue
        following = arguments[index + 1] if index + 1 < len(arguments) else ""
        method = word.partition("=")[2] or following
        if word.startswith(("-X", "--request", "--method")) and method.upper() in _READING_METHODS:
            continue
        if not local:
            raise Danger("push", f"it sends data to another machine ({program} {word.partition('=')[0]})")
    return False


def _output_options(judge: CommandJudge, program: str, arguments: list[str], _simple: Simple) -> bool:
    if (
        program in ("tar", "bsdtar")
        and len(arguments) > 1
        and re.fullmatch(r"-?[a-zA-Z]*[cru][a-zA-Z]*f", arguments[0])
    ):
        judge.writes(arguments[1], f"{program} {arguments[0]}")
    for option in tables.OUTPUT_OPTIONS.get(program, ()):
        for index, word in enumerate(arguments):
            value = ""
            if word == option and index + 1 < len(arguments):
                value = arguments[index + 1]
            elif option.startswith("--") and word.startswith(option + "="):
                value = word[len(option) + 1 :]
            elif not option.startswith("--") and len(option) == 2 and word.startswith(option) and len(word) > 2:
                value = word[2:]
            if value and not _only_reads(program, option, arguments):
                judge.writes(value, f"{program} {option}")
    return False


def _only_reads(program: str, option: str, arguments: Sequence[str]) -> bool:
    """Whether `-f` of tar names an archive that is read, and -C of git or make is judged elsewhere."""
    if program == "git":
        return True
    if program == "tar" and option in ("-f", "--file"):
        first = arguments[0].lstrip("-") if arguments else ""
        return "c" not in first and not {"--create", "-c", "-r", "-u"} & set(arguments)
    return False


def _destinations(judge: CommandJudge, program: str, arguments: list[str], _simple: Simple) -> bool:
    targets = plain(arguments)
    if program == "dd":
        for word in arguments:
            if word.startswith("of="):
                judge.writes(word[3:], "dd")
        return True
    if program in ("sed", "gsed") and any(re.match(r"-[a-zA-Z]*i|--in-place", word) for word in arguments):
        scripted = any(word in ("-e", "-f", "--expression") for word in arguments)
        for path in targets if scripted else targets[1:]:
            judge.writes(path, f"{program} -i")
    if program == "rsync" and any(word.startswith("--del") or word == "--remove-source-files" for word in arguments):
        raise Danger("delete", "it deletes files (rsync --delete)")
    if program == "rsync" and any(re.match(r"[\w.@-]+::?", word) for word in targets):
        raise Danger("push", "it works on another machine (rsync)")
    if program in tables.DESTINATIONS and targets:
        if not any(word == "-t" or word.startswith("--target-directory") for word in arguments):
            judge.writes(targets[-1], program)
        if program in ("ln", "link"):
            for source in targets[:-1]:
                judge.writes(source, f"{program}, which opens a way to it")
    elif program in ("zip", "7z", "7za") and targets:
        judge.writes(targets[1] if program != "zip" and len(targets) > 1 else targets[0], program)
    elif program in tables.WRITES_ALL:
        skip = 1 if program == "split" else 0
        for path in targets[skip:]:
            if program in ("truncate", "mkdir", "mknod") and re.fullmatch(r"[+-]?\d+[KMG]?", path):
                continue
            judge.writes(path, program)
    return False


#: In the order in which they are asked.
RULES: tuple[Rule, ...] = (
    *TRAPS,
    _machine,
    _deletes,
    _moves,
    runs_others,
    interprets,
    _installs,
    _containers,
    _git,
    _find,
    _permissions,
    _network,
    _output_options,
    _destinations,
)
