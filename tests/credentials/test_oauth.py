"""Logins whose key runs out: renewed once, by whoever comes first, and never sent twice."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest

from hermes.core.errors import TryLater
from hermes.credentials import read_auth_file
from hermes.credentials.auth_change import add_entry, change_entry, locked, remove_entry, write_marks
from hermes.credentials.oauth import Login, LoginLost, Tokens, log_out, renew
from hermes.credentials.pool import Credential
from hermes.providers.token_endpoint import TokenReply, ask_token

NOW = 1_700_000_000.0


class Issuer:
    """An endpoint whose refresh tokens work once: a second use revokes the login."""

    def __init__(self) -> None:
        self.asked: list[Mapping[str, str]] = []
        self.number, self.revoked = 0, False
        self.lock = threading.Lock()

    def __call__(self, url: str, form: Mapping[str, str]) -> TokenReply:
        with self.lock:
            self.asked.append(form)
            self.revoked |= form["refresh_token"] != f"refresh-{self.number}"
            if self.revoked:
                return TokenReply(error="invalid_grant", final=True)
            self.number += 1
            return TokenReply(access_token=self.access, refresh_token=f"refresh-{self.number}", expires_in=3600.0)

    @property
    def access(self) -> str:
        return f"access-{self.number}"


@contextmanager
def served(issuer: Issuer) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:  # noqa: N802
            body = self.rfile.read(int(self.headers["Content-Length"])).decode()
            given = issuer("", {name: values[0] for name, values in parse_qs(body).items()})
            answer = {"error": given.error} if given.error else {"access_token": given.access_token}
            answer |= {"refresh_token": given.refresh_token, "expires_in": 3600, "token_type": "Bearer"}
            data = json.dumps(answer).encode()
            self.send_response(400 if given.error else 200)
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/token"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def login_in(folder: Path, url: str = "http://127.0.0.1:9/token", expires_at: object = NOW - 5) -> tuple[Path, Login]:
    path = folder / "auth.json"
    kept = {"refresh_token": "refresh-0", "token_url": url, "client_id": "client", "expires_at": expires_at}
    name, _ = add_entry(path, "openai", "access-0", label="work", login=kept)
    return path, Login(provider="openai", id=name, label="work")


def entry_of(path: Path) -> dict[str, Any]:
    entry: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))["credential_pool"]["openai"][0]
    return entry


def test_a_key_that_runs_out_is_renewed_and_written_back(tmp_path: Path) -> None:
    path, login = login_in(tmp_path)
    issuer = Issuer()
    assert renew(path, login, issuer, lambda: NOW) == Tokens(access="access-1", expires_at=NOW + 3600)
    assert issuer.asked == [{"grant_type": "refresh_token", "refresh_token": "refresh-0", "client_id": "client"}]
    entry = entry_of(path)
    assert (entry["access_token"], entry["refresh_token"], entry["expires_at"]) == ("access-1", "refresh-1", NOW + 3600)
    assert renew(path, login, issuer, lambda: NOW).access == "access-1" and len(issuer.asked) == 1
    assert renew(path, login, issuer, lambda: NOW, refused="access-1").access == "access-2"
    assert "access" not in repr(renew(path, login, issuer, lambda: NOW))


@pytest.mark.parametrize("before", ["2023-11-14T22:13:15+00:00", int(NOW * 1000)])
def test_the_moment_keeps_the_form_that_another_program_gave_it(tmp_path: Path, before: object) -> None:
    path, login = login_in(tmp_path, expires_at=before)
    renew(path, login, Issuer(), lambda: NOW)
    assert type(entry_of(path)["expires_at"]) is type(before)
    assert {entry.expires_at for entry in read_auth_file(path)} == {NOW + 3600}


def test_a_foreign_login_is_left_alone(tmp_path: Path) -> None:
    path, login = login_in(tmp_path)
    change_entry(path, "openai", login.id, lambda entry: entry.pop("token_url"))
    assert [entry.usable for entry in read_auth_file(path)] == [False, False]
    with pytest.raises(LoginLost, match="has gone"):
        renew(path, login, Issuer(), lambda: NOW)


_CHILD = """
import sys, time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from hermes.credentials.oauth import Login, renew
from hermes.providers.token_endpoint import ask_token

def one(number):
    login = Login(provider="openai", id=sys.argv[2])
    return renew(Path(sys.argv[1]), login, ask_token, time.time, refused="access-0").access

with ThreadPoolExecutor(25) as threads:
    print(sorted(set(threads.map(one, range(25)))))
"""


@pytest.mark.fault("B066")
def test_a_hundred_in_four_processes_renew_once(tmp_path: Path) -> None:
    issuer = Issuer()
    with served(issuer) as url:
        path, login = login_in(tmp_path, url)
        command = [sys.executable, "-c", _CHILD, str(path), login.id]
        running = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
        said = [each.communicate(timeout=100)[0].strip() for each in running]
    assert said == ["['access-1']"] * 4
    assert len(issuer.asked) == 1 and not issuer.revoked


@pytest.mark.fault("B066")
def test_a_lock_that_is_held_means_try_later(tmp_path: Path) -> None:
    path, login = login_in(tmp_path)
    renew(path, login, Issuer(), lambda: NOW)
    (lock,) = (each for each in tmp_path.glob("auth.*.lock"))
    with locked(lock, 1.0), pytest.raises(TryLater):
        renew(path, login, Issuer(), lambda: NOW, refused="access-1", wait=0.05)
    assert entry_of(path)["last_status"] == "ok"


@pytest.mark.fault("B067")
def test_two_homes_with_one_linked_file_have_one_login(tmp_path: Path) -> None:
    path, login = login_in(tmp_path)
    (tmp_path / "other").mkdir()
    link = tmp_path / "other" / "auth.json"
    link.symlink_to(path)
    issuer = Issuer()
    assert renew(path, login, issuer, lambda: NOW).access == "access-1"
    assert renew(link, login, issuer, lambda: NOW, refused="access-0").access == "access-1"
    assert renew(link, login, issuer, lambda: NOW, refused="access-1").access == "access-2"
    assert link.is_symlink() and entry_of(path)["access_token"] == "access-2"
    assert [each.name for each in (tmp_path / "other").iterdir()] == ["auth.json"]


def test_threads_of_a_process_renew_once(tmp_path: Path) -> None:
    path, login = login_in(tmp_path)
    issuer = Issuer()
    with ThreadPoolExecutor(20) as threads:
        found = set(threads.map(lambda _: renew(path, login, issuer, lambda: NOW).access, range(20)))
    assert found == {"access-1"} and len(issuer.asked) == 1


def test_a_login_that_was_logged_out_of_is_not_renewed(tmp_path: Path) -> None:
    path, login = login_in(tmp_path)
    issuer = Issuer()
    assert log_out(path, login, NOW) and not log_out(path, login, NOW)
    with pytest.raises(LoginLost, match="work of openai is logged out"):
        renew(path, login, issuer, lambda: NOW)
    used = Credential(id=login.id, label=login.label, secret="key-0", provider=login.provider, source="manual")
    write_marks(path, [used], NOW)  # by a process whose last request was just accepted
    with pytest.raises(LoginLost, match="work of openai is logged out"):
        renew(path, login, issuer, lambda: NOW)
    assert issuer.asked == [] and "refresh-0" not in path.read_text()


def test_a_revoked_login_says_what_to_do_and_is_dead(tmp_path: Path) -> None:
    path, login = login_in(tmp_path)
    issuer = Issuer()
    issuer.revoked = True
    with pytest.raises(
        LoginLost, match=r"login work of openai was revoked \(invalid_grant\).*hermes auth add openai .*--label work"
    ):
        renew(path, login, issuer, lambda: NOW)
    assert entry_of(path)["last_status"] == "dead" and not any(entry.usable for entry in read_auth_file(path))
    remove_entry(path, "openai", login.id)
    with pytest.raises(LoginLost, match="has gone"):
        renew(path, login, issuer, lambda: NOW)


def test_what_another_program_renewed_meanwhile_is_taken(tmp_path: Path) -> None:
    path, login = login_in(tmp_path)

    def ask(url: str, form: Mapping[str, str]) -> TokenReply:
        new = {"access_token": "theirs", "refresh_token": "refresh-9", "expires_at": NOW + 900}
        change_entry(path, "openai", login.id, lambda entry: entry.update(new))
        return TokenReply(error="invalid_grant", final=True)

    assert renew(path, login, ask, lambda: NOW) == Tokens(access="theirs", expires_at=NOW + 900)
    assert entry_of(path)["last_status"] == "ok"


def test_an_endpoint_in_trouble_is_asked_later(tmp_path: Path) -> None:
    path, login = login_in(tmp_path)
    with pytest.raises(TryLater, match=r"could not be renewed: HTTP 503"):
        renew(path, login, lambda url, form: TokenReply(error="HTTP 503"), lambda: NOW)
    assert entry_of(path)["last_status"] == "ok"


def test_the_endpoint_is_spoken_to_as_the_standard_says() -> None:
    issuer = Issuer()
    with served(issuer) as url:
        given = ask_token(url, {"grant_type": "refresh_token", "refresh_token": "refresh-0"})
        assert (given.access_token, given.refresh_token, given.expires_in) == ("access-1", "refresh-1", 3600)
        refused = ask_token(url, {"grant_type": "refresh_token", "refresh_token": "refresh-0"})
        assert (refused.access_token, refused.error, refused.final) == ("", "invalid_grant", True)
    gone = ask_token(url, {"refresh_token": "secret-text"})
    assert not gone.final and "does not answer" in gone.error and "secret-text" not in repr(gone)
