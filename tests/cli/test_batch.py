from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner, Result

from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.cli.batch_cmd import BatchParts
from hermes.cli.batch_group import batch
from hermes.core.errors import HermesError, UsageError
from tests.batch.fakes import Desk, FakeEngine, answered, failed, prompts


class Shell:
    """Calls the command as the command line does."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.engine = FakeEngine()

    def __call__(self, *arguments: str) -> Result:
        parts = BatchParts(open_engine=self.engine.open, data_dir=self.desk.data)
        return CliRunner().invoke(batch, list(arguments), obj=parts, standalone_mode=False)


@pytest.fixture
def shell(tmp_path: Path) -> Shell:
    return Shell(Desk(tmp_path))


def exit_code(result: Result) -> Any:
    return result.return_value


def test_the_two_documented_commands_one_after_the_other(shell: Shell) -> None:
    path = shell.desk.dataset(prompts(3))
    first = shell(
        "run",
        f"--dataset_file={path}",
        "--batch_size=10",
        "--run_name=my_first_run",
        "--model=anthropic/claude-sonnet-4-6",
        "--num_workers=4",
    )
    assert exit_code(first) == 0 and "kept 3 rejected 0 failed 0 pending 0 of 3" in first.stdout
    second = shell("run", f"--dataset_file={path}", "--batch_size=10", "--run_name=my_first_run", "--resume")
    assert exit_code(second) == 0 and "nothing is left to run" in second.stdout
    assert shell.engine.settings[0].model == "anthropic/claude-sonnet-4-6"


def test_how_a_run_ended_as_json(shell: Shell) -> None:
    path = shell.desk.dataset(prompts(3))
    given = ("run", f"--dataset_file={path}", "--batch_size=10", "--run_name=first", "--json")
    ended = shell(*given)
    told = json.loads(ended.stdout)
    assert exit_code(ended) == told["exit_code"] == 0 and told["state"] == "finished" and told["go_on"] == ""
    assert (told["kept"], told["total"], told["statistics"]["kept"]) == (3, 3, 3)
    assert "kept 3 rejected 0" in ended.stderr
    known = json.loads(shell("status", "first", "--json").stdout)
    assert known == {name: told[name] for name in known}
    for flag in ("dry_run", "detach", "list_distributions"):
        refused = shell(*given, f"--{flag}")
        assert isinstance(refused.exception, UsageError) and f"--json and --{flag} exclude" in str(refused.exception)


def test_a_run_that_left_something_says_in_json_how_to_go_on(shell: Shell) -> None:
    path = shell.desk.dataset(prompts(2))

    async def script(request: RolloutRequest) -> RolloutResult:
        return failed("server_error") if request.prompt.endswith("1") else answered(request.prompt)

    shell.engine.script = script
    ended = shell("run", f"--dataset_file={path}", "--batch_size=10", "--run_name=first", "--json")
    told = json.loads(ended.stdout)
    assert exit_code(ended) == told["exit_code"] == 1 and told["state"] == "stopped"
    assert told["go_on"] == "hermes batch run --run_name=first --resume" and told["failed"] == 1


def test_dashes_values_apart_and_the_size_that_was_not_given(shell: Shell) -> None:
    path = shell.desk.dataset(prompts(5))
    result = shell(
        "run", "--dataset-file", str(path), "--run-name", "42", "--num-workers", "2", "--max-samples=2", "--yes=true"
    )
    assert exit_code(result) == 0, result.output
    assert "10 rows in a batch file" in result.stderr
    assert len(shell.engine.requests) == 2 and shell.engine.settings[0].batch_size == 10


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        (["--batch_size=0"], "--batch_size=0"),
        (["--num_workers=-3"], "--num_workers=-3"),
        (["--reasoning_effort=huge"], "huge"),
        (["--run_name=a/b"], "slash"),
    ],
)
def test_wrong_values_are_refused_before_anything_runs(shell: Shell, arguments: list[str], word: str) -> None:
    path = shell.desk.dataset(prompts(1))
    result = shell("run", f"--dataset_file={path}", "--run_name=r", *arguments)
    assert isinstance(result.exception, UsageError) and word in str(result.exception)
    assert shell.engine.requests == [] and not shell.desk.data.exists()


@pytest.mark.parametrize("flag", ["--provider_allowed=x", "--log-prefix=3", "--nonsense", "--batch_size=ten"])
def test_unknown_flags_are_refused_by_name(shell: Shell, flag: str) -> None:
    path = shell.desk.dataset(prompts(1))
    result = shell("run", f"--dataset_file={path}", "--run_name=r", flag)
    assert isinstance(result.exception, click.ClickException)
    assert flag.split("=")[0].lstrip("-").replace("-", "_") in result.exception.format_message()
    assert not isinstance(result.exception, HermesError) and not shell.desk.data.exists()


def test_sampling_and_routing_flags_reach_the_rollouts(shell: Shell) -> None:
    path = shell.desk.dataset(prompts(1))
    flags = ("--rollouts_per_prompt=2", "--temperature=0.7", "--top-p=0.5", "--seed=3", "--providers-order=a, b")
    shell("run", f"--dataset_file={path}", "--run_name=r", *flags, "--log_prefix_chars=5")
    assert [(request.temperature, request.top_p, request.seed) for request in shell.engine.requests] == [
        (0.7, 0.5, 3),
        (0.7, 0.5, 4),
    ]
    assert shell.engine.requests[0].extra == {"provider": {"order": ["a", "b"]}}


def test_reasoning_disabled_wins(shell: Shell) -> None:
    path = shell.desk.dataset(prompts(1))
    shell("run", f"--dataset_file={path}", "--run_name=r", "--reasoning_effort=high", "--reasoning_disabled")
    assert shell.engine.requests[0].reasoning_effort == "none"
    shell("run", f"--dataset_file={path}", "--run_name=s", "--reasoning_effort=ultra")
    assert shell.engine.requests[-1].reasoning_effort == "ultra"


def test_verbose_says_how_each_row_ended(shell: Shell) -> None:
    path = shell.desk.dataset(prompts(2))
    result = shell("run", f"--dataset_file={path}", "--run_name=r", "--verbose")
    assert "row 0 kept, 120 tokens" in result.stderr and "row 1 kept" in result.stderr


STUCK = """
import sys, anyio
from pathlib import Path
from hermes.cli.batch_cmd import BatchParts
from hermes.cli.batch_group import batch
from tests.batch.fakes import FakeEngine, answered
async def script(request):
    if request.index < 3:
        return answered(request.prompt)
    print("stuck", flush=True)
    await anyio.sleep_forever()
parts = BatchParts(open_engine=FakeEngine(script).open, data_dir=Path(sys.argv[1]), drain=float(sys.argv[2]))
sys.exit(batch(["run", *sys.argv[3:]], obj=parts, standalone_mode=False))
"""


@pytest.mark.fault("B116")
@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_saves_and_a_second_one_stops_at_once(shell: Shell, times: int) -> None:
    path = shell.desk.dataset(prompts(5))
    root = Path(__file__).parents[2]
    paths = [str(root), str(root / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    drain = "0.1" if times == 1 else "600"  # the second one comes before the rows are cut off, however late that is
    command = [sys.executable, "-c", STUCK, str(shell.desk.data), drain]
    command += [f"--dataset_file={path}", "--run_name=r", "--num_workers=1"]
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.readline() == "stuck\n"
        process.send_signal(signal.SIGINT)
        if times == 2:  # sent before the first was seen, the two would be one
            while "Ctrl+C again stops at once" not in (line := process.stderr.readline()):
                assert line, "it ended"
            process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    if times == 1:
        assert out.splitlines()[-1].startswith("kept 3 rejected 0 failed 0 pending 2 of 5")
    else:
        assert "stopped at once" in err and "--resume" in err
    assert exit_code(shell("run", "--run_name=r", "--resume")) == 0
    assert len(shell.engine.requests) == 2


def test_show_prints_rows_readably(shell: Shell) -> None:
    path = shell.desk.dataset(prompts(5))
    shell("run", f"--dataset_file={path}", "--run_name=r")
    result = shell("show", "r", "-n", "2")
    assert result.exception is None, result.output
    assert result.stdout.count("── row") == 2
    assert "[user]\n  prompt 0" in result.stdout and '→ terminal {"command":"ls"}' in result.stdout
    assert "has no rows" in shell("show", "r", "--rejected").stdout


def test_whatever_looks_at_a_run_prints_json_too(shell: Shell) -> None:
    path = shell.desk.dataset(prompts(5))
    shell("run", f"--dataset_file={path}", "--run_name=r")

    def told(*args: str) -> Any:
        result = shell(*args, "--json")
        assert result.exception is None, result.exception
        return json.loads(result.stdout)

    folder = shell.desk.data / "r"
    for name in ("sharegpt", "hermes", "openai", "llamafactory", "parquet", "trees"):
        report = told("export", "r", "--to", name)
        assert report["rows"] == 5 and Path(report["path"]).parent == folder.absolute() / "export", report
    assert told("merge", "r")["kept"] == 5
    assert told("report", "r") == {"run_name": "r", "path": str((folder / "report.html").absolute())}
    assert told("status", "r")["kept"] == told("list")[0]["kept"] == 5
    rows = [json.loads(line) for line in shell("show", "r", "-n", "2", "--json").stdout.splitlines()]
    assert rows == shell.desk.lines("trajectories.jsonl")[:2]
    (row,) = [json.loads(line) for line in shell("show", "r", "3", "--json").stdout.splitlines()]
    assert row["prompt_index"] == 3
    assert "terminal_only" in told("distributions")


def test_a_run_that_is_not_there_is_told_with_the_names_that_are_near(shell: Shell) -> None:
    path = shell.desk.dataset(prompts(1))
    for name in ("first", "fourth"):
        shell("run", f"--dataset_file={path}", f"--run_name={name}")
    for verb in (["show", "frist"], ["status", "frist"], ["merge", "frist"], ["run", "--run_name=frist", "--resume"]):
        error = shell(*verb).exception
        assert isinstance(error, UsageError) and "no run 'frist'" in str(error) and "Near: first." in str(error), verb
    assert "Runs there: first, fourth." in str(shell("show", "x").exception)
    (shell.desk.data / "first" / "rejected.jsonl").unlink()
    assert "hermes batch merge first" in str(shell("show", "first", "--rejected").exception)


def test_the_distributions_can_be_listed(shell: Shell) -> None:
    result = shell("run", "--list_distributions")
    assert "terminal_only" in result.stdout and exit_code(result) == 0


def test_help_has_examples(shell: Shell) -> None:
    for command in ([], ["run"], ["show"]):
        assert "Examples:" in shell(*command, "--help").stdout
