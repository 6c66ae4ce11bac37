"""Ways in which ordinary programs run other commands, load code, or fill the machine: rules like those of
`command_rules.py`, asked before them.

They cover what is documented of common programs. A program of the workspace that does such things is not seen here.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence

from hermes.runtime.command_judge import CommandJudge, Danger, Rule
from hermes.runtime.command_places import plain
from hermes.runtime.danger_code import MAX_CODE
from hermes.runtime.shell_syntax import UNKNOWN, Simple

__all__ = ["TRAPS", "git_words"]

#: Options whose value is a command line that the program runs. A one-letter option may carry its value directly.
_RUNS: dict[str, tuple[str, ...]] = {
    "tar": ("--to-command", "-I", "--use-compress-program", "--rsh-command", "-F", "--info-script", "--rmt-command"),
    "bsdtar": ("--use-compress-program",),
    "zip": ("-TT", "--unzip-command"),
    "rsync": ("-e", "--rsh", "--rsync-path"),
    "sort": ("--compress-program",),
    "man": ("-P", "--pager", "-H", "--html"),
    "script": ("-c", "--command"),
    "split": ("--filter",),
    "make": ("--eval",),
    "gmake": ("--eval",),
    "gdb": ("-ex", "-iex", "--eval-command", "-eval-command"),
    "expect": ("-c",),
    "tclsh": ("-c",),
    "pwsh": ("-c", "-Command", "-command"),
    "screen": ("-X",),
    "mapfile": ("-C",),
    "readarray": ("-C",),
    "complete": ("-C",),
    "sg": ("-c",),
    "git": ("--upload-pack", "--receive-pack", "--extcmd", "-x", "--exec"),
    "sqlite3": ("-cmd",),
    "rg": ("--pre", "--hostname-bin"),
    "ag": ("--pager",),
    "bat": ("--pager",),
    "wget": ("--use-askpass",),
    "nmap": ("--script",),
    "mutt": ("-e",),
    "ssh-keygen": ("-D",),
    "npm": ("-c", "--call"),
    "npx": ("-c", "--call"),
    "valgrind": ("--db-command",),
}
#: Settings of git (lower case) that name something to run, or where to find it.
_GIT_RUNS = re.compile(
    r"alias\..*|core\.(?:pager|editor|sshcommand|fsmonitor|hookspath|askpass|gitproxy|alternaterefscommand|worktree)"
    r"|pager\..*|diff\.(?:external|.*\.(?:command|textconv))|difftool\..*|mergetool\..*|merge\..*\.driver"
    r"|filter\..*|credential\..*|gpg\..*|sequence\.editor|protocol\..*|.*\.(?:uploadpack|receivepack|vcs|proxy)"
    r"|uploadpack\..*|include\..*|includeif\..*|init\.templatedir|browser\..*|web\.browser|man\..*|help\..*|trailer\..*"
    r"|sendemail\..*|interactive\.difffilter|ssh\.variant|url\..*"
)
_GIT_VALUED = frozenset({"-C", "-c", "--git-dir", "--work-tree", "--exec-path", "--namespace", "--config-env"})
_BIG = 8 << 30
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}
_ENDLESS = frozenset({"/dev/zero", "/dev/urandom", "/dev/random", "/dev/full"})
_SCRIPTED = frozenset(
    {"sed", "gsed", "awk", "gawk", "mawk", "nawk", "sqlite3", "psql", "mysql", "mariadb", "duckdb", "gdb"}
)
_INTERPRETED = re.compile(r"\b(?:system|shell|pipe|exec|spawn|popen)\b|^\s*[.!\\]|\|\s*[\"'\w]|\\!")


def git_words(arguments: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Split the arguments of git into its global options with their values, and the subcommand with its words."""
    rest, options = list(arguments), []
    while rest and rest[0].startswith("-"):
        option, sign, value = rest.pop(0).partition("=")
        if not sign and option in _GIT_VALUED and rest:
            value = rest.pop(0)
        options.append((option, value))
    return options, rest


def _values(arguments: Sequence[str], options: Sequence[str]) -> Iterator[tuple[str, str]]:
    """The values that `options` get: `-o value`, `-ovalue`, `--option value`, `--option=value`, abbreviations too."""
    for index, word in enumerate(arguments):
        if word == "--":
            return
        name, sign, value = word.partition("=")
        for option in options:
            long = option.startswith("--")
            exact = word == option or long and not sign and len(word) > 4 and option.startswith(word)
            if exact and index + 1 < len(arguments):
                yield option, arguments[index + 1]
            elif long and sign and len(name) > 4 and option.startswith(name):
                yield option, value
            elif not long and len(option) == 2 and word.startswith(option) and len(word) > 2:
                yield option, word[2:].removeprefix("=")


def _options_that_run(judge: CommandJudge, program: str, arguments: list[str], _simple: Simple) -> bool:
    for option, value in _values(arguments, _RUNS.get(program, ())):
        if option == "-x" and program == "git" and "rebase" not in arguments and "difftool" not in arguments:
            continue
        judge.text(value, f"{program} {option}")
    if program in ("tar", "bsdtar"):
        for word in arguments:
            action = re.match(r"--checkpoint-a[a-z-]*=exec=(.*)", word)
            if action:
                judge.text(action.group(1), "tar --checkpoint-action")
        if "--checkpoint-action" in arguments or any(word.startswith("--checkpoint-action=exec") for word in arguments):
            raise Danger("unclear", "it has tar run a command of its own (--checkpoint-action)")
        if any(word in ("-P", "--absolute-names") for word in arguments):
            raise Danger("write_outside", "it unpacks to absolute places (tar -P)")
        if "--remove-files" in arguments:
            raise Danger("delete", "it deletes files (tar --remove-files)")
    return False


def _git_traps(judge: CommandJudge, program: str, arguments: list[str], _simple: Simple) -> bool:
    if program != "git":
        return False
    options, words = git_words(arguments)
    settings = [value for option, value in options if option in ("-c", "--config-env")]
    settings += [value for _, value in _values(words, ("-c", "--config")) if words[:1] == ["clone"]]
    if words[:1] == ["config"]:
        settings += plain(words[1:])[:1]
    for setting in settings:
        name = setting.partition("=")[0].lower()
        if UNKNOWN in name or _GIT_RUNS.fullmatch(name):
            judge.note("unclear", f"it has git run a command of its own ({name.replace(UNKNOWN, '…')})")
    if any(option == "--exec-path" and value for option, value in options):
        judge.note("unclear", "it has git run a command of its own (--exec-path)")
    if any("ext::" in word or word.startswith("fd::") for word in words):
        judge.note("unclear", "it has git run a command of its own (ext::)")
    if words[:1] == ["submodule"] and "foreach" in words:
        judge.text(" ".join(words[words.index("foreach") + 1 :]), "git submodule foreach")
    if words[:1] == ["grep"] and any(re.match(r"-O.|--open-files-in-pager=", word) for word in words):
        judge.note("unclear", "it has git run a command of its own (git grep -O)")
    if words[:1] in (["clone"], ["init"]) and any(word.startswith("--template") for word in words):
        judge.note("unclear", "it has git take over hooks (--template)")
    for option, value in _values(words, ("--output", "-o", "--output-directory", "--file", "--separate-git-dir")):
        if (option, words[0]) not in (("-o", "commit"), ("--file", "commit"), ("-o", "clone"), ("-o", "ls-files")):
            judge.writes(value, f"git {words[0]} {option}")
    if words[:2] == ["bundle", "create"] and len(plain(words)) > 2:
        judge.writes(plain(words)[2], "git bundle")
    return False


def _wrapped(judge: CommandJudge, program: str, arguments: list[str], simple: Simple) -> bool:
    """Loaders, shells' own words and terminals that start what they are given."""
    if re.fullmatch(r"ld-linux.*|ld-musl.*|ld(?:64)?\.so.*", program):
        judge.inner().words(plain(arguments), simple)
        return True
    if program == "alias":
        for word in arguments:
            judge.text(word.partition("=")[2], "alias")
    elif program == "hash" and "-p" in arguments or program == "enable" and "-f" in arguments:
        raise Danger("unclear", f"it gives a command another meaning ({program})")
    elif program == "tmux":
        for word in plain(arguments)[1:]:
            judge.text(word, "tmux")
    elif program == "screen":
        rest = plain(arguments)
        if rest:
            judge.inner().words(rest, simple)
    elif program in ("cpio", "pax") and plain(arguments):
        judge.writes(plain(arguments)[-1], program)
    elif program == "ssh-agent" and plain(arguments):
        judge.inner().words(plain(arguments), simple)
    return False


def _languages(judge: CommandJudge, program: str, arguments: list[str], simple: Simple) -> bool:
    """Editors, databases and stream editors: what their scripts run and write."""
    scripts = [*arguments, simple.stdin]
    if program in _SCRIPTED and sum(map(len, scripts)) > MAX_CODE:
        raise Danger("unclear", f"its script is longer than can be judged ({program})")
    if program in ("sed", "gsed"):
        for script in scripts:
            _sed(judge, script, arguments)
    elif program in ("awk", "gawk", "mawk", "nawk"):
        for script in arguments:
            for match in re.finditer(r">{1,2}\s*\"([^\"]+)\"", script):
                judge.writes(match.group(1), f"{program} print")
            if re.search(r"\bprintf?\b[^{};\n|]{0,200}>{1,2}\s*[A-Za-z_$(]", script):
                raise Danger("unclear", f"its code writes to a place that only running can tell ({program})")
        if "inplace" in arguments:
            for path in plain(arguments)[2:]:
                judge.writes(path, f"{program} -i inplace")
    elif program in ("vi", "vim", "nvim", "view", "ex", "ed", "emacs", "nano"):
        if (
            any(re.match(r"(?:\+|-c|-S|-s|--cmd|--eval|--batch|-Es|-es|-l)", word) for word in arguments)
            or simple.stdin
        ):
            raise Danger("unclear", f"it has an editor carry out orders ({program})")
    elif program in (
        "sqlite3",
        "psql",
        "mysql",
        "mariadb",
        "duckdb",
        "gdb",
        "lldb",
        "gnuplot",
        "maxima",
        "octave",
        "R",
    ):
        for script in scripts:
            found = _INTERPRETED.search(script)
            if found is not None and (script is simple.stdin or script.startswith((".", "\\", "!")) or " " in script):
                raise Danger("unclear", f"its script may run commands ({program}: {found.group().strip()})")
    return False


def _sed(judge: CommandJudge, script: str, arguments: Sequence[str]) -> None:
    """The commands of sed that write files or run something: w, W, s///w, e, s///e."""
    if any(word == script for word in arguments) and script.startswith("-") and not script.startswith("-e"):
        return
    for match in re.finditer(r"(?:^|[;{}\d$/\n!])\s*[wW]\s+([^\n;}]+)", script):
        judge.writes(match.group(1).strip(), "sed w")
    for match in re.finditer(r"s(?P<d>[^\w\s\\])(?:\\.|(?!(?P=d)).)*(?P=d)(?:\\.|(?!(?P=d)).)*(?P=d)([\w]*)", script):
        flags = match.group(2)
        if "w" in flags:
            judge.writes(script[match.end() :].strip().split("\n")[0], "sed s///w")
        if "e" in flags:
            raise Danger("unclear", "it has sed run a command of its own (s///e)")
    if re.search(r"(?:^|[;{}\d$/\n])\s*e(?:\s|$)", script) and not os.path.exists(script):
        raise Danger("unclear", "it has sed run a command of its own (e)")


def _fills(_judge: CommandJudge, program: str, arguments: list[str], simple: Simple) -> bool:
    """What fills the disk or the memory."""
    inputs = {word for word in arguments if word in _ENDLESS}
    inputs |= {redirect.target for redirect in simple.redirects if redirect.operator == "<"} & _ENDLESS
    to_file = any(
        redirect.operator in (">", ">>", ">|", "<>", ">&") and not redirect.target.startswith("/dev/")
        for redirect in simple.redirects
        if not redirect.target.isdigit()
    )
    if program == "yes" and to_file or inputs and program in ("cat", "tee", "cp", "tail", "sort", "tac", "rev", "shuf"):
        raise Danger(
            "machine", f"it fills the disk or the memory ({program} {' '.join(sorted(inputs))})".replace(" )", ")")
        )
    if program in ("fallocate", "truncate", "head", "dd", "mkfile", "stress", "stress-ng"):
        size = _size(program, arguments, bool(inputs))
        if program.startswith("stress") or size is None or size >= _BIG:
            raise Danger("machine", f"it fills the disk or the memory ({program})")
    return False


def _size(program: str, arguments: Sequence[str], endless: bool) -> int | None:
    """Bytes that it makes; None: without end."""
    if program == "dd":
        given = dict(word.split("=", 1) for word in arguments if "=" in word)
        if given.get("if") not in _ENDLESS or given.get("of", "/dev/null") == "/dev/null":
            return 0
        count, block = _number(given.get("count", "")), _number(given.get("bs", "512"))
        return None if count is None or block is None else count * block
    if program == "head" and not endless:
        return 0
    sizes = [_number(value) for _, value in _values(arguments, ("-l", "-s", "-c", "--length", "--size", "--bytes"))]
    if program == "mkfile":
        sizes.append(_number(arguments[0] if arguments else ""))
    return max((size or 0 for size in sizes), default=None if program == "head" else 0)


def _number(text: str) -> int | None:
    match = re.fullmatch(r"[+-]?(\d+)\s*([KMGTPkmgtp]?)(?:i?B)?", text.strip())
    return int(match.group(1)) * _UNITS[match.group(2).upper()] if match else None


#: In the order in which they are asked, before the rules for single programs.
TRAPS: tuple[Rule, ...] = (_wrapped, _options_that_run, _git_traps, _languages, _fills)
