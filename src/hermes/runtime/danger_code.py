"""Judging code of other languages by its words: what deletes, starts programs, sends, writes outside or reads keys.

It is no parser: code that hides what it does (names put together, a file of the workspace that is run) is not seen.
"""

from __future__ import annotations

import re

from hermes.runtime.command_judge import CommandJudge, Danger
from hermes.runtime.danger_rules import CODE

__all__ = ["MAX_CODE", "judge_code"]

#: Characters of code that are judged.
MAX_CODE = 20_000
_PATH = re.compile(r"[\"'](?:[<+]?>{0,2}\s*)(~?/[^\"'\n]*|\.\.(?:/[^\"'\n]*)?|[^\"'\n]{0,200}/\.\./[^\"'\n]*|~)[\"']")
_WRITES = re.compile(
    r"[\"'][rbt]?(?:[wax][bt+]{0,2}|r[bt]?\+[bt]?)[\"']|write_text|write_bytes|\.touch\(|mkdir|makedirs|[wW]riteFile"
    r"|appendFile|createWriteStream|File\.(?:write|open)|IO\.write|copy|extractall|[\"']>{1,2}|file_put_contents"
    r"|O_(?:WRONLY|RDWR|CREAT)|to_csv|\.save\(|\.dump\("
)
_UNKNOWN_PLACE = re.compile(
    r"\bopen\s*\(\s*(?:[fF][\"']|[^\"'rbRB\s)])[^,)]{0,200},\s*(?:mode\s*=\s*)?[\"'][rbt]?[wax]"
    r"|\bopen\s*\(\s*[\"'][^\"']{0,200}[\"']\s*[+%.][^,)]{0,200},\s*(?:mode\s*=\s*)?[\"'][rbt]?[wax]"
    r"|Path\s*\(\s*[^\"'\s)][^)]{0,200}\)\.(?:write_|touch|open\([\"'][wax])|Path\.home\(\)"
)


def judge_code(judge: CommandJudge, code: str, who: str) -> None:
    """Note what the code does that needs consent. Raises Danger for what may do anything; `who` names its runner."""
    if len(code) > MAX_CODE:
        raise Danger("unclear", f"its code is longer than can be judged ({who})")
    for match in _PATH.finditer(code):
        target = judge.places.absolute(match.group(1))
        if target is not None and judge.places.holds_keys(target):
            judge.note("secrets", f"its code reads keys or logins ({match.group(1)})", target)
        elif _WRITES.search(code):
            judge.writes(match.group(1), f"code of {who}")
    if _UNKNOWN_PLACE.search(code):
        raise Danger("unclear", f"its code writes to a place that only running can tell ({who})")
    found = CODE.search(code)
    if found is not None:
        raise Danger("unclear", f"its code may delete, send or start programs ({who}: {found.group()})")
