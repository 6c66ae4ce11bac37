"""The settings of a run: what was given, what the run's record says, and what a resumed run may change.

A setting that is not given comes from the run's record; a given one that differs from it is refused, unless it is one
of `CHANGEABLE`, which have no part in what the rows are. Keys are never stored, nor a password inside an address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import msgspec

from hermes.config.endpoints import EFFORTS
from hermes.core.errors import UsageError

__all__ = ["CHANGEABLE", "BatchSettings", "check_run_name", "new_settings", "resumed_settings", "stored"]

#: May differ on `--resume`. The dataset is compared by its rows, so its path may change too.
CHANGEABLE = frozenset(
    {
        "api_key",
        "base_url",
        "dataset_file",
        "keep_workspaces",
        "max_failure_share",
        "num_workers",
        "row_timeout",
        "verbose",
    }
)


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a run is started with.

    `model` is None until the engine has named the one it uses. `row_timeout` is seconds of running time for one row,
    None = none. `max_failure_share` (0 to 1) stops the run once at least 20 rows have ended and more than that share
    of them failed. `rollouts_per_prompt` is the size of a row's group; `temperature`, `top_p` and `seed` go to the
    model as they are, None = the endpoint's own. `cwd_mode` is copy (each row works on its own copy of its `cwd`) or
    inplace.
    """

    dataset_file: str
    run_name: str
    batch_size: int = 10
    distribution: str = "default"
    model: str | None = None
    base_url: str | None = None
    api_key: str | None = None
    max_turns: int = 10
    max_tokens: int | None = None
    num_workers: int = 4
    max_samples: int | None = None
    reasoning_effort: str | None = None
    ephemeral_system_prompt: str | None = None
    prefill_messages_file: str | None = None
    cwd_mode: str = "copy"
    keep_workspaces: bool = False
    row_timeout: float | None = 3600.0
    max_failure_share: float = 1.0
    rollouts_per_prompt: int = 1
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    verbose: bool = False


def check_run_name(name: str) -> str:
    """Return `name` if it can be the name of a run, which is also the name of its folder.

    Raises:
        UsageError: it is empty, has a slash or control character, begins with a dash or a dot, or is too long.
    """
    if not name or not name.strip():
        fault = "is empty"
    elif "/" in name or "\\" in name:
        fault = "has a slash"
    elif name.startswith(("-", ".")):
        fault = f"begins with {name[0]!r}"
    elif not name.isprintable():
        fault = "has a character that cannot be printed"
    elif len(name.encode("utf-8", "replace")) > 200:
        fault = "is longer than 200 bytes"
    else:
        return name
    raise UsageError(f"run name {name!r} {fault}. It names the folder data/<run_name>: use letters, digits, _ and -.")


def new_settings(given: Mapping[str, Any]) -> BatchSettings:
    """Return the settings of a new run from what was given (values of None count as not given).

    Raises:
        UsageError: a required setting is missing or a value cannot be used.
    """
    values = {name: value for name, value in given.items() if value is not None}
    if "dataset_file" not in values:
        raise UsageError("no dataset: give --dataset_file=prompts.jsonl.")
    if "run_name" not in values:
        raise UsageError("no run name: give --run_name=my_first_run; it names the folder data/my_first_run.")
    return _checked(BatchSettings(**values))


def resumed_settings(given: Mapping[str, Any], recorded: BatchSettings) -> BatchSettings:
    """Return the recorded settings with the given ones that may change.

    Raises:
        UsageError: a given value differs from the run's record; both are named.
    """
    values = {name: value for name, value in given.items() if value is not None}
    wrong = [
        f"  --{name}={_shown(value)} was given, the run has {_shown(getattr(recorded, name))}"
        for name, value in values.items()
        if name not in CHANGEABLE and not _same(name, value, getattr(recorded, name))
    ]
    if wrong:
        raise UsageError(
            "\n".join(
                [
                    f"run {recorded.run_name!r} was started with other settings:",
                    *wrong,
                    "Leave these out to go on as the run began, or take another --run_name.",
                ]
            )
        )
    return _checked(msgspec.structs.replace(recorded, **{k: v for k, v in values.items() if k in CHANGEABLE}))


def differences(given: Mapping[str, Any], recorded: BatchSettings) -> list[str]:
    """Return one line for each given value that differs from the record, changeable ones left out."""
    return [
        f"--{name}={_shown(value)} (the run has {_shown(getattr(recorded, name))})"
        for name, value in given.items()
        if value is not None and name not in CHANGEABLE and not _same(name, value, getattr(recorded, name))
    ]


def stored(settings: BatchSettings) -> dict[str, Any]:
    """Return what of the settings goes into the run's record: no key, no password in the address."""
    values = msgspec.structs.asdict(settings)
    values["api_key"] = None
    if settings.base_url:
        parts = urlsplit(settings.base_url)
        host = parts.netloc.rpartition("@")[2]
        values["base_url"] = urlunsplit((parts.scheme, host, parts.path, "", ""))
    values["dataset_file"] = str(Path(settings.dataset_file).absolute())
    return values


def same_model(left: str, right: str) -> bool:
    """Whether two spellings name one model: vendor prefix, case, and `4-6` for `4.6` make no difference."""
    return _model_key(left) == _model_key(right)


def _model_key(name: str) -> str:
    return re.sub(r"(?<=\d)-(?=\d)", ".", name.rpartition("/")[2].lower())


def _same(name: str, value: Any, recorded: Any) -> bool:
    if name == "model" and isinstance(recorded, str):
        return same_model(str(value), recorded)
    if name == "prefill_messages_file" and isinstance(recorded, str):
        return Path(value).absolute() == Path(recorded).absolute()
    return bool(value == recorded)


def _shown(value: Any) -> str:
    text = "(not set)" if value is None else str(value)
    return text if len(text) <= 80 else text[:77] + "…"


def _checked(settings: BatchSettings) -> BatchSettings:
    check_run_name(settings.run_name)
    for name in ("batch_size", "num_workers", "max_turns", "max_samples", "max_tokens", "row_timeout"):
        value = getattr(settings, name)
        if value is not None and value <= 0:
            raise UsageError(f"--{name}={value:g} cannot be used: it has to be at least 1.")
    if not 0 <= settings.max_failure_share <= 1:
        raise UsageError(f"--max_failure_share={settings.max_failure_share:g} cannot be used: it is a share, 0 to 1.")
    if settings.reasoning_effort is not None and settings.reasoning_effort not in EFFORTS:
        raise UsageError(f"unknown reasoning effort {settings.reasoning_effort!r}. There are: {', '.join(EFFORTS)}.")
    if settings.cwd_mode not in ("copy", "inplace"):
        raise UsageError(f"unknown --cwd_mode={settings.cwd_mode}. There are: copy, inplace.")
    return settings
