"""Logins whose key runs out: renewing it at the token endpoint that the login itself names, once for all processes.

A refresh token often works once: whoever sends it a second time may lose the whole login. So there is one renewal at a
time, under a lock between processes; whoever comes later finds the new key in `auth.json` and takes that. A login that
names no endpoint belongs to the program that made it and is left alone: no address is guessed. It blocks, and belongs
into a thread; what speaks to the endpoint is passed in. Logging out forgets the tokens of a login and keeps its entry,
so that logging in again finds its place; no provider is told.
"""

from __future__ import annotations

import hashlib
import os
import shlex
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol

import msgspec

from hermes.core.errors import OperatorError, TryLater
from hermes.credentials.auth_change import change_entry, locked
from hermes.credentials.auth_file import SECRET_FIELDS, read_moment
from hermes.credentials.pool import RENEWED_BEFORE

__all__ = ["Ask", "Login", "LoginLost", "TokenAnswer", "Tokens", "log_out", "renew"]

#: Seconds for which the renewal of another process is waited for.
LOGIN_WAIT = 30.0


class Login(msgspec.Struct, frozen=True, kw_only=True):
    """Which entry of `auth.json` a key that runs out stands in."""

    provider: str
    id: str
    label: str = ""


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """The key of a login, and when it runs out (seconds since the epoch; 0: it is not known)."""

    access: str
    expires_at: float = 0.0

    def __repr__(self) -> str:
        return f"Tokens(expires_at={self.expires_at})"


class TokenAnswer(Protocol):
    """What a token endpoint answers. Without an `access_token` the key was refused, `error` says why, `final` that it
    always will be. `expires_in` are seconds; an empty `refresh_token` means the old one stays."""

    @property
    def access_token(self) -> str: ...
    @property
    def refresh_token(self) -> str: ...
    @property
    def expires_in(self) -> float | None: ...
    @property
    def error(self) -> str: ...
    @property
    def final(self) -> bool: ...


class LoginLost(OperatorError):
    """A login was revoked, or has gone."""


#: Sends a form to an address.
Ask = Callable[[str, Mapping[str, str]], TokenAnswer]


def renew(
    path: Path,
    login: Login,
    ask: Ask,
    now: Callable[[], float],
    *,
    refused: str = "",
    wait: float = LOGIN_WAIT,
) -> Tokens:
    """Return a key of `login` that is good for a while, renewed if need be. `refused` is a key that is good no more.

    Raises:
        LoginLost: the login was revoked or removed.
        TryLater: the endpoint does not answer, or another process is renewing for longer than `wait` seconds.
        OperatorError: the file cannot be read or written.
    """
    real = Path(os.path.realpath(path))
    with locked(_lock(real, login), wait):
        entry = _entry(real, login)
        known = _tokens(entry)
        left = known.expires_at - now() if known.expires_at else RENEWED_BEFORE + 1
        if known.access and known.access != refused and left > RENEWED_BEFORE:
            return known
        form = {"grant_type": "refresh_token", "refresh_token": entry["refresh_token"]}
        if entry.get("client_id"):
            form["client_id"] = entry["client_id"]
        answer = ask(entry["token_url"], form)
        if not answer.access_token:
            return _refused(real, login, entry, answer)
        return _written(real, login, answer, now())


def log_out(path: Path, login: Login, now: float, *, wait: float = LOGIN_WAIT) -> bool:
    """Forget the tokens of a login; False if it has none, or has gone. A renewal under way is waited for, since it
    would bring new ones. `now` is seconds since the epoch.

    Raises:
        TryLater: another process is renewing for longer than `wait` seconds.
        OperatorError: the file cannot be read or written.
    """

    def forget(entry: dict[str, Any]) -> bool:
        known = [entry.pop(name) for name in (*SECRET_FIELDS, "expires_at") if name in entry]
        if known:
            entry["last_status"], entry["last_status_at"] = "dead", round(now, 3)
            entry["last_error_reason"] = "logged_out"
        return bool(known)

    real = Path(os.path.realpath(path))
    with locked(_lock(real, login), wait):
        return bool(change_entry(real, login.provider, login.id, forget))


def _lock(path: Path, login: Login) -> Path:
    name = hashlib.sha256(f"{login.provider}\0{login.id}".encode()).hexdigest()[:12]
    return path.with_name(f"{path.stem}.{name}.lock")


def _entry(path: Path, login: Login) -> dict[str, Any]:
    entry = change_entry(path, login.provider, login.id, dict)
    # by what it holds: a process that still used its key may have taken the mark away
    if entry is not None and entry.get("token_url") and not any(entry.get(name) for name in SECRET_FIELDS):
        raise LoginLost(f"{login.label or login.id} of {login.provider} is logged out. {_again(login)}")
    if entry is None or not entry.get("refresh_token") or not entry.get("token_url"):
        raise LoginLost(
            f"the login {login.label or login.id} of {login.provider} has gone from {path}. {_again(login)}"
        )
    return entry


def _tokens(entry: Mapping[str, Any]) -> Tokens:
    return Tokens(access=entry.get("access_token") or "", expires_at=read_moment(entry, "expires_at"))


def _refused(path: Path, login: Login, entry: Mapping[str, Any], answer: TokenAnswer) -> Tokens:
    if not answer.final:
        said = f"the login {login.label or login.id} of {login.provider} could not be renewed: {answer.error}."
        raise TryLater(f"{said} Try again.")

    def mark(found: dict[str, Any]) -> dict[str, Any]:
        if found.get("refresh_token") == entry["refresh_token"]:
            found["last_status"], found["last_error_code"], found["last_error_reason"] = "dead", 401, "dead"
            found["failure_reason"] = answer.error[:200]
        return dict(found)

    newest = change_entry(path, login.provider, login.id, mark)
    if newest is not None and newest.get("refresh_token") != entry["refresh_token"]:
        return _tokens(newest)  # another program renewed it meanwhile
    raise LoginLost(
        f"the login {login.label or login.id} of {login.provider} was revoked ({answer.error}). {_again(login)}"
    )


def _written(path: Path, login: Login, answer: TokenAnswer, now: float) -> Tokens:
    expires = now + answer.expires_in if answer.expires_in else 0.0

    def write(found: dict[str, Any]) -> Tokens:
        before = found.get("expires_at")
        found["access_token"] = answer.access_token
        found["refresh_token"] = answer.refresh_token or found["refresh_token"]
        found["last_status"] = "ok"
        found.pop("expires_at", None)
        if expires:
            found["expires_at"] = _moment(expires, before)
        return Tokens(access=answer.access_token, expires_at=expires)

    tokens = change_entry(path, login.provider, login.id, write)
    if tokens is None:
        raise LoginLost(f"the login {login.label or login.id} of {login.provider} was removed meanwhile.")
    return tokens


def _moment(at: float, before: object) -> float | int | str:
    """A moment in the form in which one stood there: the file is shared with another program."""
    if isinstance(before, str):
        return datetime.fromtimestamp(at, UTC).isoformat()
    return int(at * 1_000) if isinstance(before, (int, float)) and before > 1e11 else round(at, 3)


def _again(login: Login) -> str:
    label = f" --label {shlex.quote(login.label)}" if login.label else ""
    return f"Log in anew: hermes auth add {login.provider} --type oauth{label}."
