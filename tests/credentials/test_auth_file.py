"""The shared credential pool is read and left alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hermes.core.errors import OperatorError
from hermes.credentials import find_keys, known_secrets, read_auth_file

POOL = {
    "version": 1,
    "unknown": {"kept": True},
    "credential_pool": {
        "custom:mine": [
            {"id": "aa1111", "auth_type": "api_key", "access_token": "mine-0001", "base_url": "http://m:1/v1"}
        ],
        "anthropic": [
            {"id": "bb2222", "auth_type": "oauth", "access_token": "oauth-access", "refresh_token": "oauth-refresh"},
        ],
        "openrouter": [
            {"id": "cc3333", "label": "second", "priority": 5, "access_token": "or-second-key", "source": "manual"},
            {"id": "dd4444", "label": "first", "priority": 1, "access_token": "or-first-key", "source": "manual"},
            {"id": "ee5555", "label": "gone", "priority": 0, "access_token": "or-dead-key", "last_status": "dead"},
            {"id": "ff6666", "label": "named", "priority": 0, "source": "env:OPENROUTER_API_KEY"},
            "not an entry",
        ],
        "odd": "not a list",
    },
}


def test_usable_keys_in_order_of_provider_and_priority(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_text(json.dumps(POOL))
    before = path.read_bytes()
    pool = read_auth_file(path)
    assert [(key.secret, key.base_url) for key in find_keys({}, {}, pool)] == [
        ("or-first-key", "https://openrouter.ai/api/v1"),
        ("or-second-key", "https://openrouter.ai/api/v1"),
        ("mine-0001", "http://m:1/v1"),
    ]
    assert path.read_bytes() == before


def test_logins_and_dead_keys_are_never_sent_and_still_kept_out_of_logs(tmp_path: Path) -> None:
    path = tmp_path / "auth.json"
    path.write_text(json.dumps(POOL))
    pool = read_auth_file(path)
    assert {"oauth-access", "oauth-refresh", "or-dead-key"} <= set(known_secrets({}, {}, pool))
    assert "or-first-key" not in repr(pool)


@pytest.mark.parametrize(
    "text",
    ['{"credential_pool": ', "[1]", '{"credential_pool": [1]}'],
)
def test_a_broken_file_is_one_clear_error_without_its_content(tmp_path: Path, text: str) -> None:
    path = tmp_path / "auth.json"
    path.write_text(text)
    with pytest.raises(OperatorError, match=r"auth\.json.* move it away"):
        read_auth_file(path)


def test_no_file_and_no_pool_are_no_keys(tmp_path: Path) -> None:
    assert read_auth_file(tmp_path / "auth.json") == ()
    (tmp_path / "auth.json").write_text('{"version": 1}')
    assert read_auth_file(tmp_path / "auth.json") == ()
