"""What a run and the processes that carry its rollouts out say to each other: one JSON object a line, through the pipes
of the process. How they are carried is not known here."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from hermes.batch.rollout import RolloutRequest, RolloutResult
from hermes.core.codec import encode_json
from hermes.core.model import ModelProfile

__all__ = [
    "Begin",
    "Beat",
    "Broken",
    "Cancel",
    "Done",
    "Gone",
    "Keep",
    "Lines",
    "Opened",
    "Phase",
    "Refused",
    "Run",
    "Said",
    "Settled",
    "ToRun",
    "ToWorker",
    "decode_to_run",
    "decode_to_worker",
    "encode",
    "request_of",
    "run_message",
]


class _Message(msgspec.Struct, frozen=True, kw_only=True, tag_field="is", omit_defaults=True):
    pass


class Begin(_Message, frozen=True, kw_only=True, tag="begin"):
    """The first line: which of the processes it is, and what it opens its engine with.

    With `away` it works for the run of this id from another machine: `carried` are settings and keys in the place of
    those of a home, and `journal` is the one that the process before it had. `record` is the cassette of which it
    writes a piece, `replay` the one from which it answers.
    """

    number: int
    data_dir: str
    settings: Mapping[str, Any]
    options: Mapping[str, Any]
    away: str = ""
    carried: Mapping[str, Any] = {}
    journal: str = ""
    record: str = ""
    replay: str = ""


class Run(_Message, frozen=True, kw_only=True, tag="run"):
    """Carry a rollout out, or go on with it."""

    id: int
    request: Mapping[str, Any]


class Cancel(_Message, frozen=True, kw_only=True, tag="cancel"):
    """Stop a rollout where it stands; answered with `Gone`."""

    id: int


class Settled(_Message, frozen=True, kw_only=True, tag="settled"):
    """The record of a rollout is synced."""

    key: str
    attempt: int


class Keep(_Message, frozen=True, kw_only=True, tag="keep"):
    """Let go of all half-done rollouts but these."""

    names: tuple[str, ...]


class Opened(_Message, frozen=True, kw_only=True, tag="opened"):
    """The engine is open; `begun` are its half-done rollouts. Away from the run, `journal` is where they stand, on the
    machine `host`."""

    model: str
    profile: ModelProfile
    toolsets: dict[str, tuple[str, ...]]
    begun: tuple[str, ...] = ()
    journal: str = ""
    host: str = ""


class Refused(_Message, frozen=True, kw_only=True, tag="refused"):
    """The engine cannot be opened; `code` is the exit code that says who has to act."""

    text: str
    code: int = 1


class Said(_Message, frozen=True, kw_only=True, tag="said"):
    """A line for whoever watches."""

    text: str


class Phase(_Message, frozen=True, kw_only=True, tag="phase"):
    """What a rollout is doing."""

    id: int
    phase: str


class Done(_Message, frozen=True, kw_only=True, tag="done"):
    """What a rollout brought."""

    id: int
    result: RolloutResult


class Gone(_Message, frozen=True, kw_only=True, tag="gone"):
    """A rollout was stopped where it stands."""

    id: int


class Broken(_Message, frozen=True, kw_only=True, tag="broken"):
    """Nothing can be carried out any more."""

    id: int
    text: str


class Beat(_Message, frozen=True, kw_only=True, tag="beat"):
    """Tokens and US dollars used so far with what is set aside, and what everything waits for."""

    tokens: int
    cost_usd: float
    waiting_for: str = ""


ToWorker = Begin | Run | Cancel | Settled | Keep
ToRun = Opened | Refused | Said | Phase | Done | Gone | Broken | Beat

_to_worker = msgspec.json.Decoder(ToWorker)
_to_run = msgspec.json.Decoder(ToRun)


def encode(message: ToWorker | ToRun) -> bytes:
    """Encode a message as a line."""
    return encode_json(message) + b"\n"


class Lines:
    """Puts lines together from what arrives in pieces; a line of megabytes comes in hundreds of them."""

    def __init__(self) -> None:
        self._rest: list[bytes] = []

    def feed(self, chunk: bytes) -> list[bytes]:
        """The lines that are whole now, without their ends."""
        *whole, tail = chunk.split(b"\n")
        if whole:
            whole[0] = b"".join((*self._rest, whole[0]))
            self._rest = []
        if tail:
            self._rest.append(tail)
        return whole


def decode_to_worker(line: bytes) -> ToWorker:
    """Decode a line. Raises `msgspec.DecodeError`."""
    return _to_worker.decode(line)


def decode_to_run(line: bytes) -> ToRun:
    """Decode a line. Raises `msgspec.DecodeError`."""
    return _to_run.decode(line)


def run_message(number: int, request: RolloutRequest) -> Run:
    """The message that asks for a rollout; its `report` stays here."""
    names = (name for name in request.__struct_fields__ if name != "report")
    return Run(id=number, request={name: getattr(request, name) for name in names})


def request_of(message: Run) -> RolloutRequest:
    """The rollout that a message asks for; it reports to nobody yet."""
    return msgspec.convert(message.request, RolloutRequest)
