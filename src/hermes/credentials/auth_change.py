"""Changing `auth.json`, which other programs read and write too: one entry at a time, on what the file holds by then.

A change is made under a lock between processes on the newest text, so that two writers lose nothing of each other; what
this program does not know stays as it is. The file is replaced in one step, mode 0600; the first change leaves the
former text beside it as `auth.json.bak`. An entry goes only where `remove_entry` is called.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import secrets
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

from hermes.core.errors import OperatorError, TryLater
from hermes.credentials.auth_file import SECRET_FIELDS
from hermes.credentials.pool import Credential

__all__ = [
    "add_entry",
    "change_entry",
    "clear_marks",
    "fingerprint",
    "in_backup",
    "locked",
    "remove_entry",
    "set_priority",
    "write_marks",
]

#: Seconds for which a lock that another process holds is waited for.
LOCK_WAIT = 10.0

_CODES = {"rate_limit": 429, "billing": 402, "auth": 401, "dead": 401}
_MARKS = (
    "last_status_at",
    "last_error_code",
    "last_error_reason",
    "last_error_message",
    "last_error_reset_at",
    "reset_guessed",
    "failure_reason",
)

T = TypeVar("T")
Entry = dict[str, Any]


def fingerprint(secret: str) -> str:
    """What tells a secret from another one without holding it."""
    return "sha256:" + hashlib.sha256(secret.encode()).hexdigest()[:16]


def add_entry(
    path: Path,
    provider: str,
    secret: str,
    *,
    label: str = "",
    priority: int | None = None,
    base_url: str = "",
    login: Mapping[str, Any] | None = None,
    lock_wait: float = LOCK_WAIT,
) -> tuple[str, str]:
    """Add a key; returns (id, label). Without `priority` it comes last. `lock_wait` are seconds. `login` are the fields
    of a key that runs out: `refresh_token`, `token_url`, `client_id`, `expires_at`; they take the place of a login with
    the same label that was logged out or revoked.

    Raises:
        OperatorError: the same key is there already, or the file cannot be read or written.
        TryLater: another process holds the file.
    """

    def change(pool: dict[str, list[Any]]) -> tuple[str, str]:
        entries = pool.setdefault(provider, [])
        for entry in _maps(entries):
            if secret in (entry.get("access_token"), entry.get("api_key")):
                name = entry.get("label") or entry.get("id")
                raise OperatorError(f"{provider} has this key already, as {name}. Remove that one first.")
        out = _ended(_maps(entries), label) if login is not None else None
        if out is not None:
            for field in (*_MARKS, "expires_at"):
                out.pop(field, None)
            out.update({"access_token": secret, "last_status": "ok", **(login or {})})
            if base_url:  # else the new key would go to the old server
                out["base_url"] = base_url
            out["priority"] = _priority(out) if priority is None else priority
            return str(out.get("id")), label
        taken = {entry.get("id") for entry in _maps(entries)}
        name = next(name for name in iter(lambda: secrets.token_hex(3), "") if name not in taken)
        shown = label or f"key-{len(_maps(entries)) + 1}"
        place = 1 + max((_priority(entry) for entry in _maps(entries)), default=-1) if priority is None else priority
        new: Entry = {"id": name, "label": shown, "auth_type": "api_key", "priority": place, "source": "manual"}
        new |= {"access_token": secret, "request_count": 0, "last_status": "ok"}
        if login is not None:
            new |= {"auth_type": "oauth", **login}
        entries.append(new | ({"base_url": base_url} if base_url else {}))
        return name, shown

    return _changed(path, change, lock_wait)


def _ended(entries: Iterable[Entry], label: str) -> Entry | None:
    """The login with this label that has no tokens any more, or was revoked."""
    for entry in entries:
        if label and entry.get("label") == label and entry.get("token_url"):
            bare = not any(entry.get(name) for name in SECRET_FIELDS)
            return entry if bare or entry.get("last_status") == "dead" else None
    return None


def in_backup(path: Path, secrets_: Iterable[str]) -> Path | None:
    """The copy that the first change left, if one of these secrets stands in it."""
    real = Path(os.path.realpath(path))
    backup = real.with_name(real.name + ".bak")
    try:
        text = backup.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return None
    return backup if any(secret and json.dumps(secret)[1:-1] in text for secret in secrets_) else None


def remove_entry(path: Path, provider: str, name: str) -> bool:
    """Remove the entry with this id; False if it is not there. Raises as `add_entry`."""

    def change(pool: dict[str, list[Any]]) -> bool:
        entries = pool.get(provider, [])
        kept = [entry for entry in entries if not (isinstance(entry, dict) and entry.get("id") == name)]
        if len(kept) == len(entries):
            return False
        pool[provider] = kept
        return True

    return _changed(path, change)


def change_entry(path: Path, provider: str, name: str, change: Callable[[Entry], T]) -> T | None:
    """Let `change` change the entry with this id; returns what it returns, None if there is no such entry. Raises as
    `add_entry`."""

    def found(pool: dict[str, list[Any]]) -> T | None:
        for entry in _maps(pool.get(provider, [])):
            if entry.get("id") == name:
                return change(entry)
        return None

    return _changed(path, found)


def clear_marks(path: Path, provider: str, names: Sequence[str]) -> int:
    """Let the entries with these ids be used again; returns how many had a mark. Raises as `add_entry`."""

    def change(pool: dict[str, list[Any]]) -> int:
        cleared = 0
        for entry in _maps(pool.get(provider, [])):
            if entry.get("id") in names and entry.get("last_status") not in (None, "ok"):
                cleared += 1
                entry["last_status"] = "ok"
                for field in _MARKS:
                    entry.pop(field, None)
        return cleared

    return _changed(path, change)


def set_priority(path: Path, credential: Credential, priority: int) -> None:
    """Give a key another place; the lowest number is used first, and of equal ones the one that was placed last. Raises
    as `add_entry`."""

    def change(pool: dict[str, list[Any]]) -> None:
        entry = _entry(pool, credential)
        entry["priority"] = priority
        entries = pool[credential.provider]
        equal = next(each for each in _maps(entries) if _priority(each) == priority)
        if equal is not entry:
            others = [each for each in entries if each is not entry]
            place = next(at for at, each in enumerate(others) if each is equal)
            entries[:] = [*others[:place], entry, *others[place:]]

    _changed(path, change)


def write_marks(path: Path, marks: Iterable[Credential], now: float) -> None:
    """Write what became of keys: when they may be used again, and how often they were used.

    A key of a variable gets an entry that names the variable and holds no secret. An entry that was removed meanwhile
    is not made again. `now` is seconds since the epoch. Raises as `add_entry`.
    """

    def change(pool: dict[str, list[Any]]) -> None:
        for mark in marks:
            if mark.source.startswith("env:") or _found(pool, mark) is not None:
                _put(_entry(pool, mark), mark, now)

    _changed(path, change)


def _put(entry: Entry, mark: Credential, now: float) -> None:
    before = entry.get("request_count")
    entry["request_count"] = max(0, before if isinstance(before, int) else 0) + max(0, mark.requests)
    if not mark.reason:
        entry["last_status"] = "ok"
        for field in _MARKS:
            entry.pop(field, None)
        return
    entry["last_status"] = "dead" if mark.reason == "dead" else "exhausted"
    entry["last_status_at"] = now
    entry["last_error_code"] = _CODES[mark.reason]
    entry["last_error_reason"] = mark.reason
    entry["last_error_reset_at"] = round(mark.rests_until, 3)
    entry.pop("reset_guessed", None)
    if not mark.named:  # our own guess, which holds nobody back where no other key is left
        entry["reset_guessed"] = True


def _maps(entries: Iterable[Any]) -> list[Entry]:
    return [entry for entry in entries if isinstance(entry, dict)]


def _priority(entry: Entry) -> int:
    value = entry.get("priority")
    return value if isinstance(value, int) else 0


def _found(pool: dict[str, list[Any]], credential: Credential) -> Entry | None:
    for entry in _maps(pool.get(credential.provider, [])):
        if credential.source.startswith("env:"):
            if entry.get("source") == credential.source:
                return entry
        elif entry.get("id") == credential.id:
            return entry
    return None


def _entry(pool: dict[str, list[Any]], credential: Credential) -> Entry:
    """The entry of a key; one without a secret is made for a variable that has none."""
    entry = _found(pool, credential)
    if entry is not None:
        return entry
    if not credential.source.startswith("env:"):
        raise OperatorError(f"{credential.provider} has no key {credential.label} any more. See `hermes auth list`.")
    new: Entry = {
        "id": secrets.token_hex(3),
        "label": credential.label,
        "auth_type": "api_key",
        "priority": credential.priority,
        "source": credential.source,
        "secret_fingerprint": fingerprint(credential.secret),
        "request_count": 0,
        "last_status": "ok",
    }
    pool.setdefault(credential.provider, []).append(new)
    return new


# -- the file -------------------------------------------------------------------------------------------------------


def _changed(path: Path, change: Callable[[dict[str, list[Any]]], T], lock_wait: float = LOCK_WAIT) -> T:
    with locked(Path(os.path.realpath(path)).with_suffix(".lock"), lock_wait):  # one lock for all links to the file
        text, data = _read(path)
        before = json.dumps(data)
        pool = data.setdefault("credential_pool", {})
        if not isinstance(pool, dict) or not all(isinstance(entries, list) for entries in pool.values()):
            raise OperatorError(f"{path}: credential_pool is not as expected. Mend the file or move it away.")
        result = change(pool)
        if json.dumps(data) != before:
            _write(path, text, data)
        return result


def _read(path: Path) -> tuple[str | None, dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
        data = json.loads(text)
    except FileNotFoundError:
        return None, {"version": 1}
    except OSError as error:
        raise OperatorError(f"cannot read {path}: {error.strerror}. Check its owner and mode.") from error
    except ValueError:
        # the decoder's own words are left out: they may quote a piece of a key
        raise OperatorError(f"{path} is not valid JSON. Mend it or move it away.") from None
    if not isinstance(data, dict):
        raise OperatorError(f"{path} is no JSON object. Mend it or move it away.")
    return text, data


def _write(path: Path, old: str | None, data: dict[str, Any]) -> None:
    indent = 2 if old is None or "\n" in old.strip() else None
    text = json.dumps(data, indent=indent, ensure_ascii=old is None or old.isascii())
    target = Path(os.path.realpath(path))
    spare = target.with_name(f".{target.name}.{secrets.token_hex(4)}.tmp")
    try:
        backup = target.with_name(target.name + ".bak")
        if old is not None and not backup.exists():
            _create(backup, old)
        _create(spare, text if old is None or not old.endswith("\n") else text + "\n")
        os.replace(spare, target)
    except OSError as error:
        spare.unlink(missing_ok=True)
        raise OperatorError(f"cannot write {path}: {error.strerror}. The old file is untouched.") from error


def _create(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def locked(lock: Path, most: float) -> Iterator[None]:
    """Hold the lock that guards the file between processes.

    It is not waited for without an end: a process that was stopped may hold it.
    """
    try:
        handle = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise OperatorError(f"cannot open the lock {lock}: {error.strerror}.") from error
    try:
        end = time.monotonic() + most
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            if time.monotonic() > end:
                raise TryLater(f"another process has held {lock} for {most:g} s. Try again.")
            time.sleep(0.01)
        yield
    finally:
        os.close(handle)
