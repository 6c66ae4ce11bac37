"""Groups through a real Atropos server, and the replay environment: run in an environment that has atroposlib 0.4.0."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import anyio
from atroposlib.utils.tokenize_for_trainer import tokenize_for_trainer
from tokenizers_here import make

from hermes.batch.export.job import ExportOptions, export_run
from hermes.batch.export.push import push_groups
from hermes.batch.export.source import open_run
from hermes.core.errors import TryLater


def ask(url: str, body: dict | None = None) -> dict:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data=data, headers={"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        return json.load(answer)


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return found.getsockname()[1]


class Wrapped:
    """The library's own helper expects lists where newer tokenizers give mappings."""

    def __init__(self, inner) -> None:
        self.inner = inner

    def __getattr__(self, name):
        return getattr(self.inner, name)

    def apply_chat_template(self, *args, **more):
        return self.inner.apply_chat_template(*args, **{**more, "return_dict": False})


def check_masks(groups: list[dict], tokenizer) -> None:
    for group in groups:
        for tokens, masks, chat in zip(group["tokens"], group["masks"], group["messages"], strict=True):
            judge = tokenize_for_trainer(Wrapped(tokenizer), chat, train_on_all_assistant_turns=True)
            assert (tokens, masks) == (judge["tokens"], judge["masks"])
            trained = tokenizer.decode([token for token in masks if token != -100])
            assert "TOOL-OUTPUT" in tokenizer.decode(tokens) and "TOOL-OUTPUT" not in trained
    print(f"atropos: tokens and masks of {len(groups)} groups equal those of its own helper")


def live(path: Path, groups: list[dict]) -> None:
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    program = Path(sys.executable).with_name("run-api")
    server = subprocess.Popen([program, "--host", "127.0.0.1", "--port", str(port)], stderr=subprocess.DEVNULL)
    try:
        for _ in range(240):
            try:
                ask(f"{url}/info")
                break
            except OSError:
                time.sleep(0.25)
        try:
            anyio.run(lambda: push_groups(path, url, name="run", wait=1))
            raise AssertionError("groups were pushed though no trainer is there")
        except TryLater as error:
            print(f"atropos: {error}")
        trainer = {
            "wandb_group": "",
            "wandb_project": "",
            "batch_size": 8,
            "max_token_len": 4096,
            "checkpoint_dir": "",
            "save_checkpoint_interval": 0,
            "starting_step": 0,
            "num_steps": 10,
        }
        ask(f"{url}/register", trainer)
        assert ask(f"{url}/batch") == {"batch": None}
        report = anyio.run(lambda: push_groups(path, url, name="run"))
        assert report.sent == len(groups) == 2, report
        got = ask(f"{url}/batch")["batch"]
        assert got is not None and len(got) == 2
        for group in groups:
            same = [item for item in got if item["scores"] == group["scores"] and item["tokens"] == group["tokens"]]
            assert same, "a group did not come back"
            for key, value in group.items():
                assert same[0][key] == value, key
        print("atropos: 2 groups of 4 pushed, /batch of 8 equals them field by field")
    finally:
        server.terminate()
        server.wait(20)


def replay(folder: Path, tokenizer_dir: Path) -> None:
    out = folder / "replayed.jsonl"
    given = {
        "trajectories": folder / "groups" / "trajectories.jsonl",
        "group_size": 4,
        "tokenizer_name": tokenizer_dir,
        "total_steps": 2,
        "data_path_to_save_groups": out,
        "include_messages": True,
        "use_wandb": False,
        "ensure_scores_are_not_same": False,
        "max_token_length": 8192,
    }
    flags = [f"--env.{name}={value}" for name, value in given.items()]
    subprocess.run([sys.executable, "-m", "hermes.batch.export.replay", "process", *flags], check=True, timeout=240)
    groups = [json.loads(line) for line in out.read_bytes().splitlines()]
    assert [len(group["scores"]) for group in groups] == [4, 4], len(groups)
    assert groups[0]["scores"] == [1.0, 1.0, 0.0, 0.25]
    print("atropos: the replay environment wrote both groups of trajectories.jsonl")


def main(folder: Path) -> None:
    tokenizer_dir = folder / "tokenizer-atropos"
    tokenizer = make(tokenizer_dir)
    path = folder / "groups.jsonl"
    report = export_run(open_run(folder, "groups"), "atropos", path, ExportOptions(tokenizer=str(tokenizer_dir)))
    assert report.rows == 2, report
    groups = [json.loads(line) for line in path.read_bytes().splitlines()]
    check_masks(groups, tokenizer)
    live(path, groups)
    replay(folder, tokenizer_dir)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
