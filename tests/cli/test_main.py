"""The command line as a whole: quick answers, refusals, exit codes, generated pages."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from pathlib import Path

import click
import pytest

import hermes as package
from hermes.cli import docs
from hermes.cli.group import COMMANDS, cli, run
from hermes.core.errors import OperatorError, TryLater
from tests.cli.conftest import Ran

ROOT = Path(__file__).resolve().parents[2]
Hermes = Callable[..., Ran]


def test_the_version_is_the_projects(hermes: Hermes) -> None:
    version = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]
    assert package.__version__ == version
    assert hermes("--version").out == hermes("-V").out == f"hermes {version}\n"


@pytest.mark.parametrize("flag", ["--version", "--help"])
def test_quick_answers_import_almost_nothing(flag: str) -> None:
    code = (
        "import sys; before = set(sys.modules); from hermes.cli.main import main; code = main([sys.argv[1]]); "
        "print(code, *sorted(set(sys.modules) - before), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code, flag], capture_output=True, text=True, check=True)
    _, *loaded = done.stderr.split()
    allowed = {"__future__", "hermes", "hermes.cli", "hermes.cli.fast", "hermes.cli.main"}
    assert set(loaded) <= allowed
    assert done.stdout


def test_the_quick_help_is_what_the_commands_say(hermes: Hermes) -> None:
    assert hermes("--help").out == docs.help_text()
    with click.Context(cli) as context:
        for name, entry in COMMANDS.items():
            assert (f"  {name} " in docs.help_text()) == bool(entry.summary)  # the host is started by others
            command = cli.get_command(context, name)
            if command is not None:
                assert command.name == name


def test_the_generated_pages_are_true() -> None:
    # In a process of its own: a command that was called alone before remembers other names for its help option.
    command = [sys.executable, "-m", "hermes.cli.docs", "--check"]
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT / "src")})
    assert done.returncode == 0, done.stdout + done.stderr + "run `make docs`"


def test_a_stale_page_is_noticed(tmp_path: Path) -> None:
    assert "| `agent.max_turns` |" in docs.pages(tmp_path)[tmp_path / "docs" / "settings.md"]
    assert docs.main(["--wrong"]) == 2


def test_every_event_is_documented() -> None:
    page = docs.events_page()
    assert "## task.ended\n" in page and "## text.delta *(shown only)*" in page and "## Object Usage" in page


@pytest.mark.parametrize(
    "command",
    ["tools", "tools list", "tools enable", "config", "config set", "sessions", "sessions show", "setup", "doctor"],
)
def test_every_command_has_help_with_an_example(hermes: Hermes, command: str) -> None:
    ran = hermes(*command.split(), "--help")
    assert ran.code == 0 and "Example" in ran.out and f"hermes {command.split()[0]}" in ran.out


@pytest.mark.parametrize(
    "args", [["--foo"], ["tools", "--foo"], ["tools", "list", "--foo"], ["nothing"], ["config", "get"]]
)
def test_wrong_usage_is_one_message_and_code_2(hermes: Hermes, args: list[str]) -> None:
    ran = hermes(*args)
    assert ran.code == 2 and ran.out == "" and ran.err.startswith("hermes: ") and "--help" in ran.err
    assert "Traceback" not in ran.err


def test_a_misspelled_command_names_the_nearest_and_a_group_alone_shows_its_help(hermes: Hermes) -> None:
    assert "Did you mean 'doctor'?" in hermes("docter").err
    ran = hermes("batch")
    assert ran.code == 2 and ran.out == "" and ran.err.startswith("Usage: hermes batch")


@pytest.mark.parametrize(
    "args",
    [["--dev"], ["--skills", "a,b"], ["-s", "a"], ["--accept-hooks"],
     ["--ignore-rules"], ["--ignore-user-config"],
     ["--pass-session-id"]],
)  # fmt: skip
def test_options_of_other_programs_are_refused_by_name(hermes: Hermes, args: list[str]) -> None:
    ran = hermes(*args)
    assert ran.code == 2 and ran.out == ""
    assert "is not supported in this release" in ran.err and "--" in ran.err


def test_flags_are_checked_before_anything_runs(hermes: Hermes, hermes_home: Path) -> None:
    ran = hermes("tools", "enable", "kanban", "--frobnicate")
    assert ran.code == 2 and list(hermes_home.iterdir()) == []


def test_global_options_reach_the_settings(hermes: Hermes) -> None:
    ran = hermes(
        "-m", "a/b", "--max-turns", "unlimited", "--reasoning", "low", "--run-budget", "9", "--yolo", "config", "show"
    )
    lines = {line.split()[0]: line.split()[1:] for line in ran.out.splitlines() if line.startswith("  ")}
    assert lines["model.default"] == ["command", "line", "a/b"]
    assert lines["agent.max_turns"] == ["command", "line", "null"]
    assert lines["agent.reasoning_effort"] == ["command", "line", "low"]
    assert lines["agent.run_budget_seconds"] == ["command", "line", "9.0"]
    assert lines["approvals.mode"] == ["command", "line", "allow"]


@pytest.mark.parametrize(
    "args", [["--max-turns", "x"], ["--max-turns", "-5"], ["--run-budget", "0"], ["--reasoning", "q"]]
)
def test_bad_values_of_global_options(hermes: Hermes, args: list[str]) -> None:
    assert hermes(*args, "doctor").code == 2


def test_in_changes_the_folder_and_a_missing_one_is_refused(
    hermes: Hermes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "inner").mkdir()
    assert hermes("--in", "inner", "config", "path").code == 0
    assert Path.cwd() == tmp_path / "inner"
    ran = hermes("--in", "nowhere", "config", "path")
    assert ran.code == 2 and "--in nowhere" in ran.err


def test_a_prompt_and_a_command_exclude_each_other(hermes: Hermes) -> None:
    ran = hermes("-z", "hello", "tools", "list")
    assert ran.code == 2 and "exclude each other" in ran.err


@pytest.mark.parametrize(
    ("error", "code", "text"),
    [
        (OperatorError("the thing broke"), 1, "hermes: the thing broke\n"),
        (TryLater("later"), 75, "hermes: later\n"),
        (KeyboardInterrupt(), 130, ""),
        (ExceptionGroup("x", [OperatorError("inside")]), 1, "hermes: inside\n"),
        (
            OSError(28, "No space left on device", "/x/y"),
            1,
            "hermes: /x/y: No space left on device. Make room and start again.\n",
        ),
        (
            RuntimeError("sk-or-secret-0001"),
            1,
            "hermes: internal error: RuntimeError: [redacted:secret]. HERMES_DEBUG=1 shows where.\n",
        ),
    ],
)
def test_errors_become_one_message_and_an_exit_code(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    code: int,
    text: str,
) -> None:
    monkeypatch.setenv("OPENROUTER_API_KEY", "sk-or-secret-0001")

    @click.command()
    def fail() -> None:
        raise error

    assert run([], fail) == code
    assert capsys.readouterr().err.strip("\n") == text.strip("\n")


def test_a_reader_that_goes_away_is_no_error() -> None:
    code = "import sys; from hermes.cli.main import main; sys.exit(main(['config', 'show', '--json']))"
    line = f'"{sys.executable}" -c "{code}" | head -c 1; exit ${{PIPESTATUS[0]}}'
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr and "BrokenPipe" not in done.stderr
