"""Which variables a command may see: an allow-list, so that no secret is passed on by having been forgotten.

What is not named here or in `terminal.env_passthrough` stays out, wherever it came from: the process environment, a
`.env` file or a credential store. It does not look at values; the redactor does that for output.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from fnmatch import fnmatchcase

__all__ = ["command_environment", "looks_secret"]

_ALLOWED = frozenset(
    {"PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LANGUAGE", "TERM", "TMPDIR", "TZ", "PWD", "COLUMNS", "LINES"}
)
_DEFAULT_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_SECRET = ("*_KEY", "*_TOKEN", "*_SECRET", "*PASSWORD*", "*PASSWD*", "*CREDENTIAL*", "*APIKEY*")


def looks_secret(name: str) -> bool:
    """Return whether a variable of this name usually holds a secret."""
    upper = name.upper()
    return any(fnmatchcase(upper, pattern) for pattern in _SECRET)


def command_environment(source: Mapping[str, str], passthrough: Iterable[str] = ()) -> dict[str, str]:
    """Return the variables of `source` that commands get.

    `passthrough` holds names and patterns (`AWS_*`). A pattern never matches a name that looks like a secret; such a
    variable has to be named in full by whoever wants it passed on.
    """
    exact = set()
    patterns = []
    for name in passthrough:
        if any(mark in name for mark in "*?["):
            patterns.append(name)
        else:
            exact.add(name)
    kept = {
        name: value
        for name, value in source.items()
        if name in _ALLOWED
        or (name.startswith("LC_") and not looks_secret(name))
        or name in exact
        or (patterns and not looks_secret(name) and any(fnmatchcase(name, pattern) for pattern in patterns))
    }
    kept.setdefault("PATH", _DEFAULT_PATH)
    kept.setdefault("TERM", "dumb")
    return kept
