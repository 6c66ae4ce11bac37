"""Settings of notifications and of keeping."""

from __future__ import annotations

from pathlib import Path

import pytest

from hermes.config import find_home, load
from hermes.config.load import Loaded


def loaded(folder: Path, text: str, **variables: str) -> Loaded:
    (folder / "config.yaml").write_text(text)
    return load(find_home({"HERMES_HOME": str(folder)}), variables)


def test_a_command_is_a_line_or_a_list(tmp_path: Path) -> None:
    line = loaded(tmp_path, "notify: {command: 'notify-send a, b', on: 'failed, done'}").require()
    assert line.notify.command == "notify-send a, b", "commas do not cut a line in pieces"
    assert line.notify.on == ("failed", "done")
    listed = loaded(
        tmp_path, "notify: {command: [notify-send, 'a, b'], webhook: '${HOOK}'}", HOOK="https://h/x"
    ).require()
    assert listed.notify.command == ("notify-send", "a, b") and listed.notify.webhook == "https://h/x"


@pytest.mark.parametrize("address", ["ftp://h/s3cr3t-part", "h/s3cr3t-part", "${UNSET}/s3cr3t-part"])
def test_only_web_addresses_and_they_are_not_repeated(tmp_path: Path, address: str) -> None:
    problems = [problem.message for problem in loaded(tmp_path, f"notify: {{webhook: '{address}'}}").problems]
    assert len(problems) == 1 and "http:// or https://" in problems[0] and "s3cr3t" not in problems[0]


def test_sessions_stay_thirty_days_or_for_ever(tmp_path: Path) -> None:
    assert loaded(tmp_path, "").require().store.keep_days == 30
    assert loaded(tmp_path, "store: {keep_days: 7}").require().store.keep_days == 7
    for word in ("unlimited", "0", "null"):
        assert loaded(tmp_path, f"store: {{keep_days: {word}}}").require().store.keep_days is None
    assert [problem.key for problem in loaded(tmp_path, "store: {keep_days: -3}").problems] == ["store.keep_days"]
