"""What can hold commands, and what it lacks here."""

from __future__ import annotations

from pathlib import Path

from hermes.environments.availability import available
from hermes.environments.cgroup import ControlGroups


def test_what_a_sandbox_lacks_is_named(tmp_path: Path) -> None:
    program = tmp_path / "bwrap"
    program.write_text('#!/bin/sh\ncase "$*" in *--seccomp*) echo "bwrap: no seccomp here" >&2; exit 1;; esac\n')
    program.chmod(0o755)
    where = {"PATH": str(tmp_path)}
    whole = available(where, ControlGroups(version=2))["sandbox"]
    assert whole.reason == "" and whole.lacks.startswith("system calls are not filtered: ")
    poor = available(where, ControlGroups(reason="nothing is delegated"))["sandbox"]
    assert poor.lacks.endswith("; memory is limited for each process and not for a task: nothing is delegated")
    assert available(where)["local"] == ("", "")
