"""What people get wrong, one by one, through the installed command: one clear message with the file and line or the
value, 2 for wrong usage and 1 for failure, and nothing that was written is lost."""

from __future__ import annotations

import json
import os
import re
import resource
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import anyio
import pytest

from hermes.testing.faults import Fault, Stall, bad_key, forbidden
from hermes.testing.scripted import Reply, reply
from hermes.testing.server import Request, serve_in_thread
from tests.cli.conftest import Ran
from tests.cli.program import KEY, Program, worker

MODELS = ("gpt-5-mini", "claude-sonnet-4.6", "qwen3-coder", "claude-opus-4.5", "claude-haiku-4.5")


@pytest.fixture
def program(tmp_path: Path) -> Iterator[Program]:
    with serve_in_thread(worker, models=MODELS) as server:
        yield Program(tmp_path).use(server)


@pytest.fixture
def alone(tmp_path: Path) -> Program:
    """Without a server."""
    return Program(tmp_path)


def refused(ran: Ran, code: int, *words: str) -> None:
    """One message with these words on stderr, no trace of the program's inside, and nothing on stdout."""
    assert ran.code == code, ran
    said = [line for line in ran.err.splitlines() if line.startswith("hermes: ")]
    assert len(said) == 1 and not ran.out
    for word in words:
        assert word in ran.err
    assert "Traceback" not in ran.err and "internal error" not in ran.err and KEY not in ran.err


# -- the dataset ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b'{"prompt": "cut off', "prompts.jsonl:2: not JSON"),
        (b'{"text": "no prompt"}', 'prompts.jsonl:2: no "prompt"'),
        (b'{"prompt": null}', 'prompts.jsonl:2: "prompt" is null'),
        (b'{"prompt": "\xff"}', "prompts.jsonl:2: not UTF-8"),
    ],
    ids=["broken", "no-prompt", "null", "not-utf-8"],
)
def test_a_line_that_cannot_be_used(program: Program, line: bytes, word: str) -> None:
    data = program.dataset(b'{"prompt": "good"}\n' + line + b'\n{"prompt": "good too"}\n')
    refused(program.batch(f"--dataset_file={data}", "--run_name=r"), 2, word, "nothing was run")
    assert program.runs() == []


@pytest.mark.fault("B116")
def test_an_empty_file(program: Program) -> None:
    data = program.dataset(b"")
    refused(program.batch(f"--dataset_file={data}", "--run_name=r"), 2, "prompts.jsonl: the dataset has no rows")


def test_a_file_that_is_not_there(program: Program) -> None:
    ran = program.batch("--dataset_file=nowhere.jsonl", "--run_name=r")
    refused(ran, 2, "cannot read the dataset nowhere.jsonl", "No such file")


def test_byte_order_mark_and_windows_line_ends_are_read(program: Program) -> None:
    data = program.dataset(b'\xef\xbb\xbf{"prompt": "one"}\r\n{"prompt": "two"}\r\n')
    assert program.batch(f"--dataset_file={data}", "--run_name=r").code == 0
    assert [row["conversations"][0]["value"] for row in program.rows("r")] == ["one", "two"]


def test_a_prompt_of_a_megabyte(program: Program) -> None:
    data = program.dataset(b'{"prompt": "' + b"x" * 1_000_000 + b'"}\n')
    assert program.batch(f"--dataset_file={data}", "--run_name=r").code == 0
    assert len(program.rows("r")[0]["conversations"][0]["value"]) == 1_000_000


@pytest.mark.fault("B099")
def test_equal_prompts_are_rows_of_their_own(program: Program) -> None:
    data = program.dataset(b'{"prompt": "same"}\n' * 3)
    assert program.batch(f"--dataset_file={data}", "--run_name=r").code == 0
    assert [row["prompt_index"] for row in program.rows("r")] == [0, 1, 2]


@pytest.mark.fault("B127")
def test_lone_surrogates_are_replaced_and_counted(program: Program) -> None:
    data = program.dataset(b'{"prompt": "half \\ud83d of it"}\n')
    ran = program.batch(f"--dataset_file={data}", "--run_name=r")
    assert ran.code == 0 and "1 text of the dataset holds half characters" in ran.err
    assert program.rows("r")[0]["conversations"][0]["value"] == "half \ufffd of it"


# -- names and flags ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("more", [(), ("--processes=2",), ("--detach",)])
def test_a_start_that_is_refused_leaves_its_name_free(program: Program, more: tuple[str, ...]) -> None:
    data, folder = f"--dataset_file={program.dataset(1)}", program.folder / "data" / "first"
    ran = program.batch(data, "--run_name=first", "--distribution=devlopment", *more)
    assert ran.code == 2 and not folder.exists()
    assert "unknown distribution 'devlopment'. Did you mean 'development'?" in ran.err
    folder.mkdir(parents=True)  # what a process leaves that was killed at the same place
    for name in ("run.lock", "run.db", "run.db-wal", "run-1.db"):
        (folder / name).touch()
    ran = program.batch(data, "--run_name=first")
    assert ran.code == 0 and len(program.rows("first")) == 1, ran.err
    (folder.parent / "second").mkdir()
    (folder.parent / "second" / "mine.txt").touch()
    assert program.batch(data, "--run_name=second").code == 2 and (folder.parent / "second" / "mine.txt").exists()


def test_a_run_may_be_named_by_a_number_and_not_by_a_path(program: Program) -> None:
    data = program.dataset(1)
    refused(program.batch(f"--dataset_file={data}", "--run_name=a/b"), 2, "run name 'a/b' has a slash")
    assert program.batch(f"--dataset_file={data}", "--run_name=42").code == 0
    assert program.runs() == ["42"]


def test_a_file_in_the_place_of_the_folder(program: Program) -> None:
    data = program.dataset(1)
    (program.folder / "data").write_text("mine", encoding="utf-8")
    refused(program.batch(f"--dataset_file={data}", "--run_name=r"), 2, str(program.folder / "data" / "r"), "a file")
    assert (program.folder / "data").read_text(encoding="utf-8") == "mine"


@pytest.mark.parametrize("args", [("chat", "-q", "hi", "--nope"), ("--nope", "chat", "-q", "hi"), ("chat", "-q")])
def test_unknown_flags_are_refused_before_anything_runs(program: Program, args: tuple[str, ...]) -> None:
    refused(program.run("-m", "test-model", *args), 2, "--nope" if "--nope" in args else "-q")
    assert not program.home.exists()


def test_unknown_flags_of_a_batch_are_refused_before_anything_runs(program: Program) -> None:
    data = program.dataset(1)
    refused(program.batch(f"--dataset_file={data}", "--run_name=r", "--nope=3"), 2, "--nope")
    assert not (program.folder / "data").exists()


# -- model, key and endpoint ----------------------------------------------------------------------------------------


def test_nothing_configured(alone: Program) -> None:
    data = alone.dataset(1)
    for ran in (alone.run("chat", "-q", "hi"), alone.batch(f"--dataset_file={data}", "--run_name=r", model="")):
        refused(ran, 2, "OPENROUTER_API_KEY", "OPENAI_BASE_URL", "-m embedded")


def test_no_key_for_the_provider_that_was_asked_for(program: Program) -> None:
    refused(program.run("--provider", "anthropic", "-m", "m", "chat", "-q", "hi"), 2, "ANTHROPIC_API_KEY")
    refused(program.run("--provider", "antropic", "-m", "m", "chat", "-q", "hi"), 2, "'antropic'", "anthropic")


def unused_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def test_an_endpoint_that_nobody_answers_at(alone: Program) -> None:
    where = f"127.0.0.1:{unused_port()}"
    alone.environ |= {"OPENAI_BASE_URL": f"http://{where}/v1", "OPENAI_API_KEY": KEY}
    alone.configure("agent:\n  api_max_retries: 1\n")  # what is asked again after seconds is tested elsewhere
    asked = alone.ask()
    assert asked.code == 1 and not asked.out
    assert f"hermes: no connection to {where}: Connection refused." in asked.err
    data = alone.dataset(3)
    ran = alone.batch(f"--dataset_file={data}", "--run_name=r")
    assert ran.code == 1 and f"no connection to {where}" in ran.out
    assert "kept 0 rejected 0 failed 1 pending 2 of 3" in ran.out and "--resume" in ran.out
    with serve_in_thread(worker) as server:
        resumed = alone.use(server).batch("--run_name=r", "--resume", model="")
    assert resumed.code == 0 and len(alone.rows("r")) == 3


def test_an_address_that_is_none(alone: Program) -> None:
    alone.environ |= {"OPENAI_BASE_URL": "localhost", "OPENAI_API_KEY": KEY}
    refused(alone.ask(), 2, "'localhost' (OPENAI_BASE_URL)", "https://host/v1")


@pytest.mark.fault("B108")
@pytest.mark.parametrize(("step", "status"), [(bad_key(), "401"), (forbidden(), "403")])
def test_an_endpoint_that_refuses(alone: Program, step: object, status: str) -> None:
    data = alone.dataset(5)
    with serve_in_thread(lambda _: step) as server:  # type: ignore[arg-type, return-value]
        asked = alone.use(server).ask()
        before = server.count
        ran = alone.batch(f"--dataset_file={data}", "--run_name=r")
        assert server.count == before + 1, "one fault costs one request"
    assert asked.code == 1 and f"answered {status} for model test-model" in asked.err and not asked.out
    assert ran.code == 1 and f"answered {status}" in ran.out and "pending 5 of 5" in ran.out
    assert KEY not in asked.err + ran.out + ran.err and "· error" not in asked.err


def test_an_unknown_model_is_told_the_three_nearest_names(alone: Program) -> None:
    data = alone.dataset(3)
    nearest = "claude-sonnet-4.6, claude-opus-4.5, claude-haiku-4.5."
    with serve_in_thread(worker, models=MODELS, strict=True) as server:
        asked = alone.use(server).run("-m", "claude-sonet-4-6", "chat", "-q", "hi")
        ran = alone.batch(f"--dataset_file={data}", "--run_name=r", model="--model=claude-sonet-4-6")
    assert asked.code == 1 and "claude-sonet-4-6" in asked.err and nearest in asked.err
    assert ran.code == 1 and nearest in ran.out and "pending 3 of 3" in ran.out
    assert "--overwrite" in ran.out.splitlines()[-1] and "--resume" not in ran.out.splitlines()[-1]


# -- settings and home ----------------------------------------------------------------------------------------------


def test_a_typo_in_the_settings(program: Program) -> None:
    program.configure("model: test-model\ndelegation:\n  max_concurent_children: 3\n")
    place = f"{program.home / 'config.yaml'}:3"
    data = program.dataset(1)
    for ran in (program.ask(), program.batch(f"--dataset_file={data}", "--run_name=r")):
        refused(ran, 2, place, "max_concurent_children", "max_concurrent_children?")
    assert program.runs() == []


def test_a_home_that_cannot_be_written(program: Program) -> None:
    program.home.parent.joinpath("file").write_text("", encoding="utf-8")
    program.environ["HERMES_HOME"] = str(program.home.parent / "file" / "home")
    for args in (("-m", "test-model", "chat", "-q", "hi"), ("config", "set", "model.default", "m")):
        refused(program.run(*args), 1, str(program.home.parent / "file"))


def test_a_batch_needs_nothing_of_a_home_that_cannot_be_written(program: Program) -> None:
    program.environ["HERMES_HOME"] = "/proc/hermes"
    data = program.dataset(2)
    assert program.batch(f"--dataset_file={data}", "--run_name=r").code == 0
    assert [row["tool_stats"]["terminal"]["success"] for row in program.rows("r")] == [1, 1]
    left = {path.name for path in (program.folder / "data" / "r").iterdir()}
    assert not left & {"state", "workspaces"}


# -- what the machine has no more of --------------------------------------------------------------------------------


@pytest.mark.parametrize(("soft", "hard"), [(64, 4096), (64, 64)], ids=["raised", "lived-with"])
def test_few_file_descriptors(tmp_path: Path, soft: int, hard: int) -> None:
    async def patient(request: Request) -> Reply | Fault:
        while hard > soft and request.number > 2 and server.peak <= 16:  # after the first row the others come
            await anyio.sleep(0.01)
        return worker(request)

    with serve_in_thread(patient, latency=0.01) as server:
        program = Program(tmp_path).use(server)
        data = program.dataset(30)
        ran = program.batch(
            f"--dataset_file={data}",
            "--run_name=r",
            "--num_workers=30",
            before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
        )
        asked = program.ask(before=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)))
        peak = server.peak
    assert ran.code == 0, ran
    assert [row["tool_stats"]["terminal"]["success"] for row in program.rows("r")] == [1] * 30
    assert asked.code == 0 and asked.out == "done\n"
    assert peak > 16 if hard > soft else peak <= 16


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A disk of 400 KB: only root may make one, and not in every container."""
    place = tmp_path / "disk"
    place.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=400k,mode=777", "tmpfs", str(place)]
    if os.geteuid() or subprocess.run(command, capture_output=True, check=False).returncode:
        pytest.skip("a small disk can be mounted by root only")
    yield place
    subprocess.run(["umount", "-l", str(place)], check=True)


def size(place: Path, given: str = "20m") -> None:
    subprocess.run(["mount", "-o", f"remount,size={given}", str(place)], check=True)


def test_a_full_disk_stops_a_batch_and_loses_no_row(program: Program, small_disk: Path) -> None:
    data = program.folder / program.dataset(40)
    size(small_disk, "1500k")
    ran = program.batch(f"--dataset_file={data}", "--run_name=r", folder=small_disk)
    last = ran.out.splitlines()[-1]
    # Whichever grows first: the files of the run, or its journal.
    full = re.search(rf"no room on the disk for {small_disk}|the journal {small_disk}\S*run\.db cannot grow", ran.out)
    assert ran.code == 1 and full is not None and "--resume" in last
    assert "Traceback" not in ran.err and not list(small_disk.glob("data/r/.*.tmp"))
    kept = int(last.split()[1])
    assert 0 < kept < 40
    size(small_disk)
    program.folder = small_disk
    resumed = program.batch("--run_name=r", "--resume", model="")
    # A row that was whole on the disk before the sync that failed stands too.
    done = re.search(r"(\d+) done, (\d+) to run", resumed.err)
    assert resumed.code == 0 and done is not None
    assert kept <= int(done[1]) and int(done[1]) + int(done[2]) == 40
    assert [row["prompt_index"] for row in program.rows("r")] == list(range(40))


def test_a_full_disk_stops_a_question_and_loses_no_session(program: Program, small_disk: Path) -> None:
    program.environ["HERMES_HOME"] = str(small_disk)
    ballast = small_disk / "ballast"
    size(small_disk)
    assert program.ask().code == 0
    room = os.statvfs(small_disk)
    ballast.write_bytes(b"x" * (room.f_bavail * room.f_frsize))
    ran = program.ask()
    assert ran.code == 1 and str(small_disk / "runtime.db") in ran.err and "free some space" in ran.err
    assert "Traceback" not in ran.err
    ballast.unlink()
    assert program.run("sessions", "list").out.count("hello") == 1
    assert program.ask().code == 0
    assert program.run("sessions", "list").out.count("hello") == 2


def test_a_file_that_may_not_grow_stops_a_batch_and_loses_no_row(program: Program) -> None:
    data = program.dataset(30)
    ran = program.batch(
        f"--dataset_file={data}",
        "--run_name=r",
        before=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (1_000_000, 1_000_000)),
    )
    assert ran.code == 1 and "/data/r/run.db cannot be used" in ran.out, "the journal of the run is what grows first"
    kept = int(ran.out.splitlines()[-1].split()[1])
    assert 0 < kept < 30
    assert program.batch("--run_name=r", "--resume", model="").code == 0
    assert [row["prompt_index"] for row in program.rows("r")] == list(range(30))


# -- the streams and the keys -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("closed", [(0,), (1,), (2,), (0, 1, 2)])
def test_a_closed_stream_is_nothing_and_no_file_takes_its_place(program: Program, closed: tuple[int, ...]) -> None:
    ran = program.ask(before=lambda: [os.close(number) for number in closed] and None)
    assert (ran.code, ran.out) == (0, "" if 1 in closed else "done\n"), ran.err
    listed = program.run("sessions", "list", "--json")  # what was said went into no file of the home
    assert listed.code == 0 and '"hello"' in listed.out


def test_rows_are_exported_into_a_pipe(program: Program) -> None:
    dataset = program.dataset('{"prompt": "го 🎉"}\n{"prompt": "prompt 1"}\n'.encode())
    assert program.batch(f"--dataset_file={dataset}", "--run_name=first").code == 0
    program.environ["PYTHONIOENCODING"] = "ascii"  # lines of JSON are UTF-8 all the same
    ran = program.run("batch", "export", "first", "--to", "openai", "--out", "-")
    rows = [json.loads(line) for line in ran.out.splitlines()]
    assert ran.code == 0 and [row["messages"][0]["content"] for row in rows] == ["го 🎉", "prompt 1"]
    assert "2 rows of openai" in ran.err and not (program.folder / "-").exists()
    refused(program.run("batch", "export", "first", "--to", "parquet", "--out", "-"), 2, "parquet needs a file")


@pytest.mark.parametrize(
    ("encoding", "seen"), [("ascii", "\\u0433\\u043e \\U0001f389\n"), ("koi8-r", "го \\U0001f389\n")]
)
def test_an_answer_is_not_lost_over_a_character_that_the_output_cannot_show(
    tmp_path: Path, encoding: str, seen: str
) -> None:
    with serve_in_thread(lambda request: reply("го 🎉")) as server:
        program = Program(tmp_path).use(server)
        program.environ["PYTHONIOENCODING"] = encoding
        command = [*program.command, "-m", "test-model", "chat", "-q", "Привет"]
        done = subprocess.run(command, cwd=program.folder, env=program.environ, capture_output=True, timeout=60)
    assert (done.returncode, done.stdout.decode(encoding)) == (0, seen), done.stderr


def test_a_conversation_with_nobody_ends_by_itself(program: Program) -> None:
    ran = program.run("-m", "test-model", "chat", "--cli")  # from /dev/null
    assert ran.code == 0 and "hermes: " not in ran.err, ran


@pytest.mark.parametrize("words", [("batch", "run", "--run_name=first"), ("sessions", "list"), ("--help",)])
def test_a_reader_that_goes_away_ends_it_as_the_signal_would(program: Program, words: tuple[str, ...]) -> None:
    more = (f"--dataset_file={program.dataset(1)}", "--model=test-model") if "batch" in words else ()
    reads, writes = os.pipe()
    os.close(reads)
    done = subprocess.run(
        [*program.command, *words, *more], cwd=program.folder, env=program.environ, stdin=subprocess.DEVNULL,
        stdout=writes, stderr=subprocess.PIPE, timeout=60, check=False,
    )  # fmt: skip
    os.close(writes)
    assert done.returncode == 141, done.stderr
    assert (
        b"Traceback" not in done.stderr and b"Exception ignored" not in done.stderr and b"hermes: " not in done.stderr
    )
    if "batch" in words:
        assert len(program.rows("first")) == 1


def test_ctrl_c_while_it_is_loaded_shows_no_inside(tmp_path: Path) -> None:
    with serve_in_thread(lambda request: Stall()) as server:
        program = Program(tmp_path).use(server)
        command = [*program.command, "-m", "test-model", "chat", "-q", "hello"]
        with subprocess.Popen(
            command, cwd=program.folder, env=program.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        ) as process:
            maps = Path(f"/proc/{process.pid}/maps")
            while "msgspec" not in maps.read_text():
                assert process.poll() is None
            process.send_signal(signal.SIGINT)
            out, err = process.communicate(timeout=60)
    assert b"Traceback" not in err and b"internal error" not in err
    # 130: this process slept so long that the program was loaded before the signal
    assert (process.returncode, out) in ((-signal.SIGINT, b""), (130, b""))
