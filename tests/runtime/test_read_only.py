"""The short list for models whose commands can only be trusted to look."""

from __future__ import annotations

import pytest

from hermes.runtime.read_only import allowed_read_only

ALLOWED = [
    "ls",
    "ls -la files",
    "wc -l README.md",
    "cat a.txt | head -3",
    "tail -n 5 a.txt",
    "grep -c error log.txt 2>/dev/null",
    "find . -name '*.txt' | wc -l",
    "echo $((17 * 23))",
    "echo $(ls | wc -l)",
    "pwd; date; whoami",
    "expr 2 + 3",
    "seq 1 10 | sort -rn | uniq | tail -1",
    "python3 -c 'print(17 * 23)'",
    'python3 -c "print(sum(range(1, 101)))"',
    "python3 -c 'print(2 ** 10)'",
    "printf '%s\\n' a b",
    "cut -d, -f1 a.csv",
    "stat a.txt && file a.txt",
    "sha256sum a.txt",
    "sort < a.txt",
    "cd files && ls",
]

REFUSED = [
    "",
    "rm a",
    "sudo ls",
    "sudo sudo -i",
    "echo hi > a.txt",
    "ls >> a.txt",
    "cat a | tee b",
    "find . -delete",
    "find . -exec rm {} ;",
    "find . -fprint x",
    "sort a -o b",
    "sort -ob a",
    "uniq a b",
    "date -s 2020-01-01",
    "tail -f a",
    "curl http://example.org",
    "python3 a.py",
    "python3 -c 'import os'",
    'python3 -c \'open("a", "w")\'',
    "python3 -c 'print(__import__(\"os\"))'",
    "python3 -c 'print(9 ** 9 ** 9)'",
    "python3 -c 'print(9 ** 99999)'",
    "python3 -c 'print((9 ** 999) ** 999)'",
    "python3 -c 'print(().__class__)'",
    "echo $(rm a)",
    "echo `rm a`",
    "cat $(echo a)",
    "sort $OPTIONS a",
    "bash -c ls",
    "env ls",
    "A=1 ls",
    "ls &",
    "cat /dev/zero",
    "sed -n 1p a",
    "awk 1 a",
    "xargs ls",
    "echo 'open",
    "cat <(rm a)",
    "print_directory",
]


@pytest.mark.parametrize("command", ALLOWED)
def test_looking_is_allowed(command: str) -> None:
    permission = allowed_read_only(command)
    assert (permission.allowed, permission.reason) == (True, "")


@pytest.mark.parametrize("command", REFUSED)
def test_everything_else_is_refused_with_a_reason(command: str) -> None:
    permission = allowed_read_only(command)
    assert not permission.allowed
    assert permission.reason
