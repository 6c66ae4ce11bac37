"""A home that another program of this name made keeps every byte while we only look."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Callable
from pathlib import Path

import pytest

from hermes.cli.options import GlobalOptions, open_sources
from tests.cli.conftest import Ran

Hermes = Callable[..., Ran]

CONFIG = """\
# My settings. Do not lose this line.
model:
  default: "anthropic/claude-sonnet-4.6"   # the good one
  provider: openrouter
  streaming: true
toolsets: [hermes-cli]
agent:
  max_turns: none
  gateway_timeout: 1800
  stall_guards: true
terminal: {backend: local, docker_image: "nikolaik/python-nodejs:python3.11-nodejs20", persistent_shell: true}
delegation:
  max_concurrent_children: 3
  inherit_mcp_toolsets: true
  request_overrides: {}
kanban:
  dispatch_in_gateway: true
auxiliary:
  compression: {provider: auto, model: "", timeout: 120}
mcp_servers: {files: {command: npx, tools: {exclude: [rm]}}}
display: {interface: tui, tool_progress: all}
something_of_their_own: [1, 2, {three: "${NOT_DEFINED}"}]
"""
STATE = """
CREATE TABLE sessions (id TEXT PRIMARY KEY, source TEXT, started_at REAL);
CREATE TABLE async_delegations (delegation_id TEXT PRIMARY KEY, origin_session TEXT, state TEXT, dispatched_at REAL,
  event_json TEXT, result_json TEXT, task_json TEXT, delivery_state TEXT DEFAULT 'pending', owner_pid INTEGER);
INSERT INTO async_delegations VALUES ('deleg_1', 's', 'running', 1.0, '{}', NULL, '{}', 'pending', 1);
"""
KANBAN = """
CREATE TABLE tasks (id TEXT PRIMARY KEY, title TEXT, body TEXT, assignee TEXT, status TEXT, priority INTEGER DEFAULT 0,
  created_at INTEGER, claim_lock TEXT, claim_expires INTEGER);
CREATE TABLE task_links (parent_id TEXT, child_id TEXT);
CREATE TABLE task_comments (id INTEGER PRIMARY KEY, task_id TEXT, author TEXT, body TEXT, created_at INTEGER);
CREATE TABLE task_events (id INTEGER PRIMARY KEY, task_id TEXT, run_id INTEGER, kind TEXT, payload TEXT);
INSERT INTO tasks VALUES ('t_0a1b2c3d', 'a card', 'b', 'coder', 'ready', 0, 1, NULL, NULL);
"""
AUTH = {
    "version": 1,
    "credential_pool": {
        "openrouter": [
            {"id": "a1b2c3", "label": "main", "auth_type": "api_key", "priority": 0, "source": "manual",
             "access_token": "sk-or-0123456789abcdef", "request_count": 3, "last_status": "ok"},
        ],
        "anthropic": [{"id": "d4e5f6", "auth_type": "oauth", "source": "hermes_pkce", "expires_at": 1,
                       "access_token": "oauth-0123456789", "refresh_token": "refresh-0123456789"}],
    },
}  # fmt: skip


def database(path: Path, script: str) -> None:
    with sqlite3.connect(path) as db:
        db.execute("PRAGMA journal_mode=WAL")
        db.executescript(script)
    db.close()


@pytest.fixture
def foreign(hermes_home: Path) -> Path:
    (hermes_home / "config.yaml").write_text(CONFIG)
    (hermes_home / ".env").write_text("# keys\nexport GITHUB_TOKEN=ghp_0123456789abcdef\nTERMINAL_TIMEOUT='99'\n")
    (hermes_home / "auth.json").write_text(json.dumps(AUTH, indent=2))
    database(hermes_home / "state.db", STATE)
    database(hermes_home / "kanban.db", KANBAN)
    work = hermes_home / "profiles" / "researcher"
    work.mkdir(parents=True)
    (work / "config.yaml").write_text("model: other/model\n")
    (work / "profile.yaml").write_text("description: Finds things\ndescription_auto: false\n")
    (work / "SOUL.md").write_text("# who I am\n")
    (hermes_home / "kanban" / "boards" / "b").mkdir(parents=True)
    (hermes_home / "kanban" / "current").write_text("default")
    return hermes_home


def hashes(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.mark.parametrize(
    "args",
    [
        ["tools", "list"],
        ["doctor"],
        ["config", "show"],
        ["config", "check"],
        ["config", "get", "something_of_their_own"],
        ["sessions", "list"],
        ["-p", "researcher", "config", "show"],
        ["-p", "researcher", "doctor"],
    ],
    ids=" ".join,
)
def test_looking_changes_no_file_and_adds_none(hermes: Hermes, foreign: Path, args: list[str]) -> None:
    before = hashes(foreign)
    ran = hermes(*args)
    assert ran.code == 0, ran
    assert "0123456789" not in ran.out + ran.err
    assert hashes(foreign) == before


def test_its_settings_and_keys_are_understood(hermes: Hermes, foreign: Path) -> None:
    out = hermes("doctor").out
    assert "anthropic/claude-sonnet-4.6 at https://openrouter.ai/api/v1, key: auth.json, openrouter main" in out
    assert "state.db, kanban.db: another program's" in out
    assert "✗" not in out
    answer = json.loads(hermes("config", "show", "--json").out)
    assert answer["problems"] == []
    values = {entry["key"]: (entry["value"], entry["source"]) for entry in answer["settings"]}
    assert values["agent.max_turns"] == (None, "config.yaml:8")
    assert values["delegation.max_concurrent_children"][0] == 3
    assert values["terminal.timeout"] == (99, "TERMINAL_TIMEOUT (.env)")


def test_every_secret_of_it_is_known_logins_included(foreign: Path) -> None:
    found = open_sources(GlobalOptions(), {"HERMES_HOME": str(foreign)}).secrets()
    assert set(found) == {"sk-or-0123456789abcdef", "oauth-0123456789", "refresh-0123456789", "ghp_0123456789abcdef"}


def test_a_change_touches_one_line_of_one_file_and_keeps_the_old_one(hermes: Hermes, foreign: Path) -> None:
    before = hashes(foreign)
    assert hermes("config", "set", "agent.max_turns", "7").code == 0
    assert hermes("tools", "enable", "kanban").code == 0
    after = hashes(foreign)
    assert {name for name in before if after[name] != before[name]} == {"config.yaml"}
    assert set(after) - set(before) == {"config.yaml.bak", "run/config.lock"}
    assert after["config.yaml.bak"] == before["config.yaml"]
    changed = CONFIG.replace("max_turns: none", "max_turns: 7")
    names = "terminal, file, web, code_execution, todo, clarify, delegation, async_delegation, kanban"
    lists = f"platform_toolsets:\n  cli: [{names}]\n"
    assert (foreign / "config.yaml").read_text() == changed + lists
