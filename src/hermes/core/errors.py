"""The tree of errors, sorted by who has to act on them.

    HermesError
    ├── ToolError            the model: a sentence it can act on; becomes an error result, never a crash
    ├── UsageError           the user: wrong flag, value or file; exit code 2
    │   └── ConfigError      a setting that cannot be used, with file and line
    ├── OperatorError        whoever runs the program: what happened, the value, what to do; exit code 1
    │   ├── TryLater         the same, but waiting helps; exit code 75
    │   ├── StoreError       the journal cannot be written or read
    │   │   ├── StoreBusy    another process held the database for too long
    │   │   ├── StoreFull    no room on the disk
    │   │   └── OwnershipLost another process owns the task now
    │   └── AdmissionRefused a task may not start (depth, live cap)
    ├── ModelError           a model call failed; carries the class of the failure and what may be done
    └── LimitReached         control flow: a budget of the tree is used up

Control flow of the event loop (cancellation) is not here and is never caught by `except Exception`.
"""

from __future__ import annotations

from typing import Literal

__all__ = [
    "AdmissionRefused",
    "ConfigError",
    "HermesError",
    "LimitKind",
    "LimitReached",
    "ModelError",
    "ModelErrorReason",
    "OperatorError",
    "OwnershipLost",
    "StoreBusy",
    "StoreError",
    "StoreFull",
    "ToolError",
    "TryLater",
    "UsageError",
]


class HermesError(Exception):
    """Root of every error this package raises on purpose."""

    exit_code = 1


class ToolError(HermesError):
    """Raised by a tool; its text is what the model reads, so it says what to do next."""


class UsageError(HermesError):
    """The user asked for something that cannot be; nothing has been started. Exit code 2."""

    exit_code = 2


class ConfigError(UsageError):
    """A configuration value that cannot be used; the text names file and line."""


class OperatorError(HermesError):
    """Something failed that the person running the program has to know about. Exit code 1."""


class TryLater(OperatorError):
    """Nothing is wrong that waiting would not cure: quota, budget, a lock. Exit code 75."""

    exit_code = 75


class StoreError(OperatorError):
    """The journal could not be read or written; the runtime stops cleanly and resumes later."""


class StoreBusy(StoreError):
    """Another process held the database for longer than the busy limit."""


class StoreFull(StoreError):
    """The disk has no room left."""


class OwnershipLost(StoreError):
    """Another process took the task up; this one must not write to it any more."""


class AdmissionRefused(OperatorError):
    """A task may not start. The text is also what the model reads."""


ModelErrorReason = Literal[
    "auth",
    "auth_permanent",
    "billing",
    "rate_limit",
    "overloaded",
    "server_error",
    "timeout",
    "unreachable",
    "context_overflow",
    "payload_too_large",
    "model_not_found",
    "provider_policy_blocked",
    "content_policy_blocked",
    "format_error",
    "malformed_response",
    "suspended",
    "unknown",
]


class ModelError(HermesError):
    """A model call failed.

    Attributes:
        reason: class of the failure, the table of `providers/classify.py`.
        status: HTTP status, or None where there was no answer.
        retryable: the same request may succeed a little later.
        retry_after: seconds the provider asked to wait, or None.
        permanent: no other request to this endpoint can succeed before a person acts
            (wrong key, no money, unknown model, no such host).
    """

    def __init__(
        self,
        message: str,
        *,
        reason: ModelErrorReason = "unknown",
        status: int | None = None,
        retryable: bool = False,
        retry_after: float | None = None,
        permanent: bool = False,
    ) -> None:
        super().__init__(message)
        self.reason: ModelErrorReason = reason
        self.status = status
        self.retryable = retryable
        self.retry_after = retry_after
        self.permanent = permanent


LimitKind = Literal["turns", "requests", "tokens", "cost", "calls", "clock", "inactivity"]


class LimitReached(HermesError):
    """A budget is used up. `scope` names whose budget it was (a task id, or "session")."""

    def __init__(self, kind: LimitKind, scope: str, limit: float) -> None:
        amount = f"${limit:g}" if kind == "cost" else f"{limit:g}"
        super().__init__(f"{kind} limit of {amount} reached ({scope})")
        self.kind: LimitKind = kind
        self.scope = scope
        self.limit = limit
