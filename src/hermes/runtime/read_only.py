"""The commands a model may run that can only be trusted to look: a short list, everything else is refused.

Made for tiny local models whose commands are often nonsense. It errs on the side of refusing and explains itself.
"""

from __future__ import annotations

import ast
import re

import msgspec

from hermes.runtime.shell_syntax import UNKNOWN, VARIABLE, Simple, Unreadable, parse

__all__ = ["Permission", "allowed_read_only"]


class Permission(msgspec.Struct, frozen=True, kw_only=True):
    """Whether a command may run, and a clause that says why not."""

    allowed: bool
    reason: str = ""


_PROGRAMS = frozenset(
    """ls cat wc head tail grep egrep fgrep find echo pwd date whoami expr seq sort uniq cut bc printf stat file du
    basename dirname tr nl rev cksum sha256sum md5sum sha1sum tac paste comm diff cmp column fold tree true false test [
    cd id uname hostname nproc df factor numfmt od""".split()
)
#: Options that would write, run or wait for ever.
_REFUSED_OPTIONS: dict[str, re.Pattern[str]] = {
    "find": re.compile(r"-(?:exec|execdir|ok|okdir|delete|fprint|fprint0|fprintf|fls)"),
    "sort": re.compile(r"-[a-zA-Z]*o.*|--output.*|--compress-program.*|-T.*|--temporary-directory.*|--files0-from.*"),
    "date": re.compile(r"-[a-zA-Z]*s.*|--set.*"),
    "tail": re.compile(r"-[a-zA-Z0-9]*[fF].*|--follow.*|--retry"),
    "tree": re.compile(r"-o.*|--output.*"),
    "file": re.compile(r"-[a-zA-Z]*C.*|--compile|-[a-zA-Z]*m.*|--magic-file.*"),
    "hostname": re.compile(r"[^-].*|-[bF].*|--file.*|--boot"),
    "diff": re.compile(r"--output.*"),
}
_CALLS = frozenset(
    {"print", "len", "sum", "range", "min", "max", "abs", "round", "sorted", "str", "int", "float", "divmod"}
)
_NODES = (
    ast.Module,
    ast.Expr,
    ast.Assign,
    ast.Call,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.Constant,
    ast.Name,
    ast.Load,
    ast.Store,
    ast.List,
    ast.Tuple,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
)
_MAX_EXPONENT = 1000
_ECHOES = frozenset({"echo", "printf", "expr"})


def allowed_read_only(command: str) -> Permission:
    """Return whether `command` consists of commands that only look."""
    try:
        commands = parse(command)
    except Unreadable as error:
        return Permission(allowed=False, reason=f"the command cannot be read ({error})")
    if not commands:
        return Permission(allowed=False, reason="the command is empty")
    for simple in commands:
        reason = _refusal(simple)
        if reason:
            return Permission(allowed=False, reason=reason)
    return Permission(allowed=True)


def _refusal(simple: Simple) -> str:
    if simple.background:
        return "it runs in the background"
    for redirect in simple.redirects:
        if redirect.operator in ("<", "<&") or redirect.target == "/dev/null":
            continue
        if redirect.operator == ">&" and redirect.target.isdigit():
            continue
        return "it writes to a file"
    for inner in simple.substitutions:
        reason = _refusal(inner)
        if reason:
            return reason
    if not simple.words:
        return ""
    program, arguments = simple.words[0], simple.words[1:]
    if program in ("python3", "python"):
        return _python(arguments, simple)
    if program not in _PROGRAMS:
        shown = VARIABLE.sub("…", program).replace(UNKNOWN, "…")[:40]
        return f"{shown!r} is not one of the commands that only look"
    if program not in _ECHOES and any(UNKNOWN in word or VARIABLE.search(word) for word in arguments):
        return f"what {program} gets is only known by running it"
    if any(word.startswith("/dev/") and word != "/dev/null" for word in arguments):
        return "it reads a device"
    refused = _REFUSED_OPTIONS.get(program)
    for word in arguments:
        if refused is not None and refused.fullmatch(word):
            return f"{program} {word[:40]} does more than look"
    if program == "uniq" and len([word for word in arguments if not word.startswith("-")]) > 1:
        return "uniq with two files writes the second"
    return ""


def _python(arguments: tuple[str, ...], simple: Simple) -> str:
    """Allow `python3 -c` with arithmetic and print alone."""
    if len(arguments) != 2 or arguments[0] != "-c" or simple.sources:
        return "python3 is allowed as python3 -c 'print(…)' with arithmetic only"
    if UNKNOWN in arguments[1] or VARIABLE.search(arguments[1]):
        return "what python3 gets is only known by running it"
    try:
        tree = ast.parse(arguments[1])
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "the Python code cannot be read"
    for node in ast.walk(tree):
        if not isinstance(node, _NODES):
            return f"the Python code does more than arithmetic ({type(node).__name__})"
        if isinstance(node, ast.Call) and not (isinstance(node.func, ast.Name) and node.func.id in _CALLS):
            return "the Python code calls more than print and arithmetic"
        if isinstance(node, ast.Name) and node.id.startswith("_"):
            return "the Python code uses internal names"
        if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)) and not _small(node.right):
            return f"the Python code raises to a power above {_MAX_EXPONENT}"
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow) and isinstance(node.left, ast.BinOp):
            return "the Python code raises a result to a power"
    return ""


def _small(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, (int, float)) and abs(node.value) <= _MAX_EXPONENT
