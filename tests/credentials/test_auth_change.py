"""A file that two programs write: nothing of the other is lost, and nobody sees half of it."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from hermes.core.errors import OperatorError, TryLater
from hermes.credentials import find_keys, read_auth_file
from hermes.credentials.auth_change import (
    add_entry,
    clear_marks,
    in_backup,
    remove_entry,
    set_priority,
    write_marks,
)
from hermes.credentials.oauth import Login, log_out
from hermes.credentials.pool import Credential, CredentialPool

NOW = 1_700_000_000.0
FOREIGN = {
    "version": 1,
    "active_provider": "nous",
    "providers": {"nous": {"tokens": {"access_token": "kept"}, "ünïcode": "✓", "big": 12345678901234567890}},
    "credential_pool": {
        "openrouter": [{"id": "aa1111", "label": "one", "access_token": "sk-one-0123456789", "their_field": [1, {}]}],
        "anthropic": [{"id": "bb2222", "auth_type": "oauth", "refresh_token": "r", "last_status": "ok"}],
    },
}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "auth.json"
    file.write_text(json.dumps(FOREIGN, indent=2, ensure_ascii=False))
    return file


def mark(name: str = "aa1111", **more: object) -> Credential:
    fields = {"label": "one", "secret": "sk-one-0123456789", "provider": "openrouter", "source": "manual", **more}
    return Credential(id=name, **fields)  # type: ignore[arg-type]


def entries(path: Path, provider: str = "openrouter") -> list[dict[str, object]]:
    found: list[dict[str, object]] = json.loads(path.read_text())["credential_pool"][provider]
    return found


def test_what_others_wrote_survives_and_the_first_change_leaves_a_copy(path: Path) -> None:
    before = path.read_text()
    add_entry(path, "openrouter", "sk-two-0123456789", label="two")
    write_marks(path, [mark(reason="rate_limit", rests_until=NOW + 60, requests=3)], NOW)
    data = json.loads(path.read_text())
    assert {key: data[key] for key in ("version", "active_provider", "providers")} == {
        key: FOREIGN[key] for key in ("version", "active_provider", "providers")
    }
    assert entries(path, "anthropic") == FOREIGN["credential_pool"]["anthropic"]  # type: ignore[index]
    assert entries(path)[0]["their_field"] == [1, {}] and "ünïcode" in path.read_text()
    assert path.with_name("auth.json.bak").read_text() == before
    assert stat.S_IMODE(path.stat().st_mode) == 0o600 == stat.S_IMODE(path.with_name("auth.json.bak").stat().st_mode)
    assert sorted(file.name for file in path.parent.glob("*auth*")) == ["auth.json", "auth.json.bak", "auth.lock"]


def test_a_key_that_was_added_is_found_and_one_that_rests_says_so(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    add_entry(path, "openrouter", "sk-two-0123456789", label="two")
    name, label = add_entry(path, "openrouter", "sk-three-0123456789", priority=0)
    assert label == "key-2" and [entry["priority"] for entry in entries(path)] == [0, 0]
    with pytest.raises(OperatorError, match="has this key already, as two"):
        add_entry(path, "openrouter", "sk-two-0123456789")
    write_marks(path, [mark(name, reason="billing", rests_until=NOW + 60, requests=2)], NOW)
    write_marks(path, [mark(name, reason="billing", rests_until=NOW + 60, requests=5)], NOW)
    keys = find_keys({}, {}, read_auth_file(path))
    assert [key.secret for key in keys] == ["sk-two-0123456789", "sk-three-0123456789"]
    record = keys[1].entry
    assert record is not None
    assert (record.rests_until, record.reason, record.requests) == (NOW + 60, "billing", 7)
    assert clear_marks(path, "openrouter", [name]) == 1 and clear_marks(path, "openrouter", [name]) == 0
    assert read_auth_file(path)[1].reason == ""


def test_a_rest_that_was_guessed_is_known_as_such_by_the_next_process(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    name, _ = add_entry(path, "openrouter", "sk-two-0123456789")
    for named in (False, True):
        write_marks(path, [mark(name, reason="rate_limit", rests_until=NOW + 60, named=named)], NOW)
        (entry,) = read_auth_file(path)
        assert (entry.rests_until, entry.named) == (NOW + 60, named)
        pool = CredentialPool(now=lambda: NOW)
        pool.add("openrouter", [mark(name, reason="rate_limit", rests_until=entry.rests_until, named=entry.named)])
        # nobody but the provider knows when it may be used again: if it named no time, it is asked
        assert pool.lease("openrouter").wait == (60.0 if named else 0.0)
    clear_marks(path, "openrouter", [name])
    assert "reset_guessed" not in path.read_text()


def test_a_key_of_a_variable_is_marked_without_its_secret(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    secret = "sk-env-0123456789"
    credential = Credential(
        id="env:OPENROUTER_API_KEY", label="OPENROUTER_API_KEY", secret=secret, provider="openrouter",
        source="env:OPENROUTER_API_KEY", reason="rate_limit", rests_until=NOW + 60,
    )  # fmt: skip
    write_marks(path, [credential], NOW)
    set_priority(path, credential, 7)
    assert secret not in path.read_text() and len(entries(path)) == 1
    (key,) = find_keys({"OPENROUTER_API_KEY": secret}, {}, read_auth_file(path))
    assert key.secret == secret and key.entry is not None
    assert (key.entry.priority, key.entry.rests_until) == (7, NOW + 60)


def test_an_entry_goes_only_by_removing_it_and_stays_gone(path: Path) -> None:
    write_marks(path, [mark(reason="dead")], NOW)
    assert entries(path)[0]["last_status"] == "dead" and find_keys({}, {}, read_auth_file(path)) == ()
    assert remove_entry(path, "openrouter", "aa1111") and not remove_entry(path, "openrouter", "aa1111")
    write_marks(path, [mark(reason="rate_limit")], NOW)  # another process still knows it
    assert entries(path) == []
    with pytest.raises(OperatorError, match="has no key one any more"):
        set_priority(path, mark(), 1)


def test_a_change_that_changes_nothing_writes_nothing(path: Path) -> None:
    before = path.stat()
    assert clear_marks(path, "openrouter", ["aa1111"]) == 0
    assert path.stat().st_mtime_ns == before.st_mtime_ns and not path.with_name("auth.json.bak").exists()


@pytest.mark.parametrize("text", ['{"credential_pool": ', "[1]", '{"credential_pool": {"p": 1}}'])
def test_a_broken_file_is_left_alone(tmp_path: Path, text: str) -> None:
    path = tmp_path / "auth.json"
    path.write_text(text)
    with pytest.raises(OperatorError, match="move it away"):
        add_entry(path, "openrouter", "sk-two-0123456789")
    assert path.read_text() == text


def test_a_lock_that_is_held_means_later_and_not_never(path: Path) -> None:
    with open(path.with_suffix(".lock"), "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(TryLater, match="another process has held"):
            add_entry(path, "openrouter", "sk-two-0123456789", lock_wait=0.02)
    assert len(entries(path)) == 1


_WRITER = """
import sys
from pathlib import Path
from hermes.core.errors import TryLater
from hermes.credentials.auth_change import add_entry, write_marks
from hermes.credentials.pool import Credential
path, number, rounds = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])

def written(write, *arguments):
    for _ in range(9):  # it says to try again when seven others had the file for long
        try:
            return write(*arguments)
        except TryLater:
            continue
    return write(*arguments)

name, _ = written(add_entry, path, "openrouter", f"sk-{number}-0123456789")
print("ready", flush=True)
for turn in range(rounds):
    reason = "rate_limit" if turn % 2 else ""
    for key in (name, "aa1111"):
        more = {"provider": "openrouter", "reason": reason, "rests_until": 1.0, "requests": 1}
        written(write_marks, path, [Credential(id=key, label="x", secret="s", **more)], 1.0)
print("done", flush=True)
"""


@pytest.mark.fault("B064")
def test_processes_that_write_at_once_and_are_killed_lose_nothing(path: Path) -> None:
    """Six write until they are done, two are killed at some moment."""
    rounds = 15
    writers = [
        subprocess.Popen(
            [sys.executable, "-c", _WRITER, str(path), str(number), str(rounds if number < 6 else 10_000)],
            stdout=subprocess.PIPE,
            text=True,
            env=dict(os.environ),
        )
        for number in range(8)
    ]
    broken: list[str] = []
    stop = threading.Event()

    def look() -> None:
        while not stop.is_set():
            try:
                json.loads(path.read_text())
            except ValueError as error:
                broken.append(str(error))

    reader = threading.Thread(target=look)
    reader.start()
    try:
        for writer in writers:
            assert writer.stdout is not None and writer.stdout.readline() == "ready\n"
        for writer in writers[6:]:
            writer.send_signal(signal.SIGKILL)
        for writer in writers[:6]:
            assert writer.wait(250) == 0
    finally:
        stop.set()
        reader.join()
        for writer in writers:
            writer.kill()
            writer.wait()
            assert writer.stdout is not None
            writer.stdout.close()
    assert broken == []
    found = {str(entry["access_token"]): entry for entry in entries(path)}
    assert set(found) == {"sk-one-0123456789"} | {f"sk-{number}-0123456789" for number in range(8)}
    assert all(found[f"sk-{number}-0123456789"]["request_count"] == rounds for number in range(6))
    count = found["sk-one-0123456789"]["request_count"]
    assert isinstance(count, int) and count >= 6 * rounds


def test_a_login_at_an_old_place_goes_to_its_own_server_and_nowhere_else(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    login = {"refresh_token": "r", "token_url": "https://id.example/token", "client_id": "c"}
    name, _ = add_entry(path, "gw", "at-one-0123456789", label="work", base_url="https://old.example/v1", login=login)
    for url, now_at in (("https://new.example/v1", "https://new.example/v1"), ("", "https://new.example/v1")):
        assert log_out(path, Login(provider="gw", id=name, label="work"), NOW)
        again = add_entry(path, "gw", f"at-{len(url)}-0123456789", label="work", base_url=url, login=login)
        assert again == (name, "work")
        assert [entry["base_url"] for entry in entries(path, "gw")] == [now_at]


def test_the_copy_of_a_file_behind_a_link_is_found(path: Path) -> None:
    link = path.with_name("elsewhere.json")
    link.symlink_to(path)
    add_entry(link, "openrouter", "sk-two-0123456789")
    assert (
        in_backup(link, ["sk-one-0123456789"])
        == in_backup(path, ["sk-one-0123456789"])
        == path.with_name("auth.json.bak")
    )
    assert in_backup(link, ["sk-two-0123456789"]) is None
