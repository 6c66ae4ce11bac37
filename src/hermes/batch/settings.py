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

__all__ = [
    "CHANGEABLE",
    "CWD_MODES",
    "EXECUTORS",
    "LOCAL",
    "PROVIDER_SORTS",
    "BatchSettings",
    "check_routing",
    "check_run_name",
    "new_settings",
    "resumed_settings",
    "routing",
    "stored",
]

#: May differ on `--resume`. The dataset is compared by its rows, so its path may change too.
CHANGEABLE = frozenset(
    {
        "api_key",
        "base_url",
        "dataset_file",
        "keep_workspaces",
        "max_cost",
        "max_total_tokens",
        "processes",
        "executor",
        "ray_address",
        "log_prefix_chars",
        "max_copy_mb",
        "max_failure_share",
        "num_workers",
        "provider_sort",
        "providers_allowed",
        "providers_ignored",
        "providers_order",
        "row_timeout",
        "verbose",
        "verifier_modules",
    }
)


#: Rollouts are carried out on this machine.
LOCAL = "local"
#: Where rollouts are carried out.
EXECUTORS = (LOCAL, "ray")
#: How a rollout comes to its place in the `cwd` of its row.
CWD_MODES = ("auto", "copy", "inplace")
#: By what a router may choose among providers.
PROVIDER_SORTS = ("price", "throughput", "latency")

_POSITIVE = (
    "batch_size",
    "num_workers",
    "processes",
    "max_cost",
    "max_total_tokens",
    "max_turns",
    "max_samples",
    "max_tokens",
    "max_copy_mb",
    "row_timeout",
    "rollouts_per_prompt",
)


class BatchSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Everything a run is started with.

    `model` is None until the engine has named the one it uses. `row_timeout` is seconds of running time for one row,
    None = none. `max_failure_share` (0 to 1) stops the run once at least 20 rows have ended and more than that share of
    them failed. `processes` carry the rows out (1: this one does); with the `executor` ray so many on each node of the
    cluster at `ray_address`. `max_cost` (US dollars) and `max_total_tokens` are
    of the whole run with all its sessions, None for no limit. `rollouts_per_prompt` is the size of a row's group;
    `temperature`, `top_p` and `seed` go to the model as they are, None = the endpoint's own; rollout number i of a row
    is asked with `seed` + i. `providers_*` and `provider_sort` say which providers a router may ask, and in which
    order. `cwd_mode` is auto (each rollout works in a checkout of its own where its row's `cwd` is a repository, else
    on a copy), copy (on a copy of all its files) or inplace. `max_copy_mb` limits one copy in MB (2**20 bytes), blocks
    that the file system shares left out. `verifier_modules` are the Python modules whose functions rows may name as
    verifiers. `log_prefix_chars` is how much of a prompt a log line shows.
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
    processes: int = 1
    executor: str = LOCAL
    ray_address: str | None = None
    max_cost: float | None = None
    max_total_tokens: int | None = None
    max_samples: int | None = None
    reasoning_effort: str | None = None
    ephemeral_system_prompt: str | None = None
    prefill_messages_file: str | None = None
    cwd_mode: str = "auto"
    max_copy_mb: int = 1024
    keep_workspaces: bool = False
    row_timeout: float | None = 3600.0
    max_failure_share: float = 1.0
    rollouts_per_prompt: int = 1
    temperature: float | None = None
    top_p: float | None = None
    seed: int | None = None
    providers_allowed: tuple[str, ...] = ()
    providers_ignored: tuple[str, ...] = ()
    providers_order: tuple[str, ...] = ()
    provider_sort: str | None = None
    verifier_modules: tuple[str, ...] = ()
    log_prefix_chars: int = 100
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
        if not _changeable(name, value, recorded) and not _same(name, value, getattr(recorded, name))
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
    changed = {name: value for name, value in values.items() if _changeable(name, value, recorded)}
    return _checked(msgspec.structs.replace(recorded, **changed))


def differences(given: Mapping[str, Any], recorded: BatchSettings) -> list[str]:
    """Return one line for each given value that differs from the record, changeable ones left out."""
    return [
        f"--{name}={_shown(value)} (the run has {_shown(getattr(recorded, name))})"
        for name, value in given.items()
        if value is not None
        and not _changeable(name, value, recorded)
        and not _same(name, value, getattr(recorded, name))
    ]


def _changeable(name: str, value: Any, recorded: BatchSettings) -> bool:
    """Whether a resumed run may have another value; more rollouts only add to what there is."""
    return name in CHANGEABLE or name == "rollouts_per_prompt" and value >= recorded.rollouts_per_prompt


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
    for name in _POSITIVE:
        value = getattr(settings, name)
        if value is not None and value <= 0:
            raise UsageError(f"--{name}={value:g} cannot be used: it has to be at least 1.")
    _check_sampling(settings)
    if not 0 <= settings.max_failure_share <= 1:
        raise UsageError(f"--max_failure_share={settings.max_failure_share:g} cannot be used: it is a share, 0 to 1.")
    if settings.reasoning_effort is not None and settings.reasoning_effort not in EFFORTS:
        raise UsageError(f"unknown reasoning effort {settings.reasoning_effort!r}. There are: {', '.join(EFFORTS)}.")
    if settings.cwd_mode not in CWD_MODES:
        raise UsageError(f"unknown --cwd_mode={settings.cwd_mode}. There are: {', '.join(CWD_MODES)}.")
    _check_executor(settings)
    if settings.provider_sort is not None and settings.provider_sort not in PROVIDER_SORTS:
        raise UsageError(f"unknown --provider_sort={settings.provider_sort}. There are: {', '.join(PROVIDER_SORTS)}.")
    return settings


def _check_executor(settings: BatchSettings) -> None:
    if settings.executor not in EXECUTORS:
        raise UsageError(f"unknown --executor={settings.executor}. There are: {', '.join(EXECUTORS)}.")
    if settings.executor != LOCAL and settings.cwd_mode == "inplace":
        raise UsageError(f"--cwd_mode=inplace needs --executor={LOCAL}: other machines work on copies of their own.")


def _check_sampling(settings: BatchSettings) -> None:
    temperature, top_p = settings.temperature, settings.top_p
    if temperature is not None and not 0 <= temperature <= 2:
        raise UsageError(f"--temperature={temperature:g} cannot be used: it has to be within 0 and 2.")
    if top_p is not None and not 0 < top_p <= 1:
        raise UsageError(f"--top_p={top_p:g} cannot be used: it has to be above 0 and at most 1.")
    if settings.rollouts_per_prompt > 1 and temperature == 0:
        raise UsageError(
            f"--rollouts_per_prompt={settings.rollouts_per_prompt} at --temperature=0 would pay for the same answer "
            "again and again. Give a temperature above 0, or one rollout a prompt."
        )


def routing(settings: BatchSettings) -> dict[str, Any]:
    """What a router is to be told of the providers behind it, in the words of OpenRouter's `provider` object."""
    wishes = {
        "only": list(settings.providers_allowed),
        "ignore": list(settings.providers_ignored),
        "order": list(settings.providers_order),
        "sort": settings.provider_sort,
    }
    return {name: value for name, value in wishes.items() if value}


def check_routing(settings: BatchSettings, host: str) -> None:
    """See that the endpoint at `host` can be told which providers to ask.

    Raises:
        UsageError: it cannot; the settings are named.
    """
    if not routing(settings) or host.split(":")[0].endswith("openrouter.ai"):
        return
    names = ("providers_allowed", "providers_ignored", "providers_order", "provider_sort")
    given = ", ".join(f"--{name}" for name in names if getattr(settings, name))
    raise UsageError(f"{given}: {host} routes to no other providers, only openrouter.ai does. Leave them out.")
