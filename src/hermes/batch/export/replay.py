"""Groups for replay from `trajectories.jsonl` alone, and the Atropos environment that serves them.

`python -m hermes.batch.export.replay process --env.trajectories data/my_run/trajectories.jsonl …` (or `serve`) needs
atroposlib, the extra `atropos`. Rows of one prompt become one group; a row without a score gets the default. The rows
hold text and no token ids, so this is for supervised training and for looking at groups, not for training on-policy.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from typing import Any

import msgspec

from hermes.batch.export.atropos import TransformersTokenizer
from hermes.batch.export.conversation import Call, Message
from hermes.batch.export.masks import encode
from hermes.batch.export.tags import call_block, response_block
from hermes.core.errors import UsageError

__all__ = ["chat_of", "endless_groups", "main", "read_groups"]


def read_groups(path: Path, size: int, score_default: float = 0.0) -> Iterator[tuple[list[Any], list[float]]]:
    """Yield (conversations, scores) of each prompt with `size` rows, in the order of the file.

    Raises:
        UsageError: a line is no row.
    """
    with path.open("rb") as file:
        rows = (_row(path, number, line) for number, line in enumerate(file, 1))
        for _, group in groupby(rows, key=lambda row: row.get("group_id") or row["prompt_index"]):
            members = list(group)
            if len(members) == size:
                scores = [score_default if row.get("score") is None else float(row["score"]) for row in members]
                yield [chat_of(row) for row in members], scores


def endless_groups(path: Path, size: int, score_default: float = 0.0) -> Iterator[tuple[list[Any], list[float]]]:
    """Yield groups as `read_groups` does, again and again from the beginning, one in memory at a time; ends where there
    is none."""
    found = True
    while found:
        found = False
        for group in read_groups(path, size, score_default):
            found = True
            yield group


def _row(path: Path, number: int, line: bytes) -> dict[str, Any]:
    try:
        row = msgspec.json.decode(line, type=dict[str, Any])
    except msgspec.DecodeError as error:
        raise UsageError(f"{path}:{number} is no row: {error}") from error
    if "conversations" not in row or "prompt_index" not in row:
        raise UsageError(f"{path}:{number} is no row: it has no `conversations` and `prompt_index`.")
    return row


_ROLES = {"human": "user", "gpt": "assistant", "tool": "tool", "system": "system"}


def chat_of(row: dict[str, Any]) -> list[dict[str, str]]:
    """Return the messages of a row with its calls as tags, as templates print them."""
    found: list[dict[str, str]] = []
    for number, turn in enumerate(row["conversations"]):
        text = turn["value"]
        calls = [
            call_block(Call(id=f"call_{number}_{place}", name=call["name"], arguments=_arguments(call["arguments"])))
            for place, call in enumerate(turn.get("tool_calls") or ())
        ]
        if turn["from"] == "tool":
            text = response_block(Message(role="tool", text=text, call_id=f"call_{number}", name="tool"))
        content = "\n".join([text, *calls])
        if found and turn["from"] == "tool" and found[-1]["role"] == "tool":
            found[-1]["content"] += f"\n{content}"
        else:
            found.append({"role": _ROLES[turn["from"]], "content": content})
    return found


def _arguments(given: Any) -> dict[str, Any]:
    return msgspec.json.decode(given, type=dict[str, Any]) if isinstance(given, str) else given


def _environment() -> Any:
    try:
        # edge: heavy and optional
        from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig, ScoredDataGroup
    except ImportError as error:
        raise UsageError("this needs atroposlib: pip install 'hermes-tasktree[atropos]'.") from error

    class ReplayConfig(BaseEnvConfig):  # type: ignore[misc]
        """Adds where the rows are. Equal scores are kept: a replay has rows to show, not a policy to better."""

        trajectories: str = ""
        score_default: float = 0.0
        ensure_scores_are_not_same: bool = False
        wandb_name: str = "replay"
        inference_weight: float = 1.0
        use_wandb: bool = False

    class ReplayEnv(BaseEnv):  # type: ignore[misc]
        """Serves the groups of a file, in order, again from its beginning when it has come to its end."""

        name = "hermes_replay"
        env_config_cls = ReplayConfig

        @classmethod
        def config_init(cls) -> tuple[Any, list[Any]]:
            # No model is asked; without a key its client does not start.
            return ReplayConfig(), [APIServerConfig(model_name="none", base_url="http://127.0.0.1:9", api_key="none")]

        async def setup(self) -> None:
            path = Path(self.config.trajectories)
            size, default = self.config.group_size, self.config.score_default
            if next(read_groups(path, size, default), None) is None:
                raise UsageError(f"{path} has no prompt with {size} rows (--env.group_size).")
            self.groups = endless_groups(path, size, default)

        async def get_next_item(self) -> Any:
            return next(self.groups, None)

        async def collect_trajectories(self, item: Any) -> tuple[Any, list[Any]]:
            tokenizer = TransformersTokenizer(self.tokenizer)
            chats, scores = item
            encoded = [encode(tokenizer, chat, None) for chat in chats]
            group = ScoredDataGroup()
            group["tokens"] = [list(one.tokens) for one in encoded]
            group["masks"] = [list(one.masks) for one in encoded]
            group["scores"] = scores
            group["messages"] = chats
            group["advantages"] = group["ref_logprobs"] = None
            group["group_overrides"], group["overrides"] = {}, [{} for _ in scores]
            return group, []

        async def evaluate(self, *args: Any, **more: Any) -> None:
            """Nothing is evaluated: the rows are what they are."""

    return ReplayEnv


def main() -> None:
    """Hand the command line over to the environment."""
    _environment().cli()


if __name__ == "__main__":
    main()
