"""The tables of a board, one definition for SQLite and PostgreSQL. No statements and no connections.

Text columns bear whatever a model writes: a lone surrogate or a NUL, which PostgreSQL refuses, becomes U+FFFD.
"""

from __future__ import annotations

from typing import Any

import sqlalchemy as sa

from hermes.core.codec import decode_json, encode_json, scrub_surrogates

__all__ = [
    "attachments",
    "calls",
    "cards",
    "comments",
    "events",
    "leases",
    "links",
    "meta",
    "metadata",
    "migrations",
    "notifications",
    "prepare_postgres",
    "questions",
    "reasons",
    "reservations",
    "runs",
]


class _Text(sa.types.TypeDecorator[str]):
    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: sa.Dialect) -> str | None:
        if value is None:
            return None
        return scrub_surrogates(value).replace("\0", "\ufffd")


class _Json(sa.types.TypeDecorator[Any]):
    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> str | None:
        # A NUL is written as an escape in JSON, which a column of text bears.
        return None if value is None else encode_json(value).decode()

    def process_result_value(self, value: str | None, dialect: sa.Dialect) -> Any:
        return None if value is None else decode_json(value)


_Id = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_Time = sa.Double
metadata = sa.MetaData()


def _number() -> sa.Column[int]:
    return sa.Column("id", _Id, sa.Identity(), primary_key=True)


def _text(name: str, *, null: bool = False, **more: Any) -> sa.Column[str]:
    return sa.Column(name, _Text, nullable=null, **more)


def _time(name: str, *, null: bool = True) -> sa.Column[float]:
    return sa.Column(name, _Time, nullable=null)


def _whole(name: str, *, null: bool = True, **more: Any) -> sa.Column[int]:
    return sa.Column(name, sa.BigInteger, nullable=null, **more)


def _card(**more: Any) -> sa.Column[str]:
    return sa.Column("card_id", _Text, sa.ForeignKey("cards.id"), nullable=False, **more)


meta = sa.Table("meta", metadata, _text("key", primary_key=True), sa.Column("value", _Json, nullable=False))

migrations = sa.Table(
    "migrations",
    metadata,
    sa.Column("version", sa.Integer, primary_key=True, autoincrement=False),
    _text("name"),
    _time("applied_at", null=False),
)

cards = sa.Table(
    "cards",
    metadata,
    sa.Column("seq", _Id, sa.Identity(), primary_key=True),
    _text("id", unique=True),
    _text("title"),
    _text("body"),
    _text("assignee", null=True),
    _text("status"),
    _whole("priority", null=False),
    _text("created_by"),
    _time("created_at", null=False),
    _time("updated_at", null=False),
    _time("started_at"),
    _time("completed_at"),
    _text("workspace_kind"),
    _text("workspace_path", null=True),
    _text("branch_name", null=True),
    _text("tenant", null=True),
    _text("result", null=True),
    _text("summary", null=True),
    _text("idempotency_key", null=True),
    _whole("attempts", null=False),
    _whole("consecutive_failures", null=False),
    _text("last_failure_error", null=True),
    _whole("max_runtime_seconds"),
    _whole("max_retries"),
    sa.Column("skills", _Json, nullable=False),
    _text("model_override", null=True),
    _text("provider_override", null=True),
    _text("reasoning_effort", null=True),
    sa.Column("goal_mode", sa.Boolean, nullable=False),
    _whole("goal_max_turns"),
    _text("session_id", null=True),
    _text("step"),
    _text("reviewer", null=True),
    _text("block_kind", null=True),
    _text("block_reason", null=True),
    _whole("block_recurrences", null=False),
    _text("acceptance", null=True),
    _text("check_command", null=True),
    _whole("check_failures", null=False),
    sa.Column("budget_usd", sa.Double),
    _whole("budget_tokens"),
    _time("scheduled_at"),
    _time("not_before"),
    _text("home_id", null=True),
    _text("host_id", null=True),
    _text("created_card", null=True),
    _text("created_run", null=True),
    _text("current_run_id", null=True),
    # The run whose process is not known to be gone; kept here so that a claim looks at one table alone.
    _text("busy_run", null=True),
    _text("claim_token", null=True),
    _time("claim_expires"),
    _text("stop_requested", null=True),
    _text("stop_reason", null=True),
    # The order in which cards are taken; a claim reads it from its beginning and stops at the first that fits.
    sa.Index("cards_queue", "status", sa.text("priority DESC"), "seq"),
    sa.Index(
        "cards_busy",
        "busy_run",
        sqlite_where=sa.text("busy_run IS NOT NULL"),
    ),
    # Every key once among the cards that are not put away.
    sa.Index(
        "cards_key",
        "idempotency_key",
        unique=True,
        sqlite_where=sa.text("idempotency_key IS NOT NULL AND status <> 'archived'"),
    ),
)

links = sa.Table(
    "links",
    metadata,
    sa.Column("parent_id", _Text, sa.ForeignKey("cards.id"), primary_key=True),
    sa.Column("child_id", _Text, sa.ForeignKey("cards.id"), primary_key=True),
    _text("kind"),
    sa.Index("links_child", "child_id", "kind"),
)

runs = sa.Table(
    "runs",
    metadata,
    _text("id", primary_key=True),
    _card(),
    _whole("attempt", null=False),
    _text("profile", null=True),
    _text("step"),
    sa.Column("manual", sa.Boolean, nullable=False),
    _text("token"),
    _text("host_id"),
    _text("home_id"),
    _text("boot_id"),
    _whole("pid"),
    _text("process_started"),
    _text("workspace", null=True),
    _text("session_id", null=True),
    _text("branch_name", null=True),
    _text("git_commit", null=True),
    _time("started_at", null=False),
    _time("heartbeat_at"),
    _time("expires"),
    _time("ended_at"),
    _time("exited_at"),
    _text("outcome", null=True),
    _text("summary", null=True),
    sa.Column("metadata", _Json, key="metadata_"),
    _text("error", null=True),
    _text("error_fingerprint", null=True),
    sa.Column("counted", sa.Boolean, nullable=False),
    sa.Index("runs_card", "card_id"),
    # Runs whose process may still be there: few, and asked for with every claim and every pass.
    sa.Index(
        "runs_alive",
        "card_id",
        sqlite_where=sa.text("exited_at IS NULL"),
    ),
    sa.Index("runs_failed", "ended_at", "error_fingerprint"),
)

comments = sa.Table(
    "comments",
    metadata,
    _number(),
    _card(),
    _text("author"),
    _text("body"),
    _time("created_at", null=False),
    sa.Index("comments_card", "card_id"),
)

events = sa.Table(
    "events",
    metadata,
    _number(),
    _text("card_id", null=True),
    _text("run_id", null=True),
    _text("kind"),
    _text("author"),
    sa.Column("payload", _Json, nullable=False),
    _time("created_at", null=False),
    sa.Index("events_card", "card_id", "id"),
)

attachments = sa.Table(
    "attachments",
    metadata,
    _number(),
    _card(),
    _text("name"),
    _text("media_type"),
    _whole("size", null=False),
    _text("sha256"),
    _text("created_by"),
    _time("created_at", null=False),
    sa.Column("data", sa.LargeBinary, nullable=False),
    sa.UniqueConstraint("card_id", "name"),
)

questions = sa.Table(
    "questions",
    metadata,
    _number(),
    _card(),
    _text("run_id", null=True),
    _text("question"),
    sa.Column("choices", _Json, nullable=False),
    _text("asked_by"),
    _time("asked_at", null=False),
    _text("answer", null=True),
    _text("answered_by", null=True),
    _time("answered_at"),
    sa.Index("questions_card", "card_id"),
)

#: Money and tokens set aside for a run and what it really took; `day` is the date of the board's clock in UTC.
reservations = sa.Table(
    "reservations",
    metadata,
    _text("run_id", primary_key=True),
    _card(index=True),
    _text("profile", null=True),
    _text("day", index=True),
    _whole("reserved_tokens", null=False),
    sa.Column("reserved_usd", sa.Double, nullable=False),
    _whole("spent_tokens", null=False),
    sa.Column("spent_usd", sa.Double, nullable=False),
    sa.Column("settled", sa.Boolean, nullable=False),
)

#: Answers already given, by the key of the call: a call that is repeated after a crash gets the same one.
calls = sa.Table(
    "calls",
    metadata,
    _text("key", primary_key=True),
    sa.Column("answer", _Json, nullable=False),
    _time("created_at", null=False),
)

#: Why the last pass of the dispatcher left a card alone.
reasons = sa.Table(
    "reasons",
    metadata,
    _text("card_id", primary_key=True),
    _text("reason"),
    _text("detail"),
    _text("cure"),
    _time("since", null=False),
)

#: Cards that somebody wants to be told of, and on which occasions.
notifications = sa.Table(
    "notifications",
    metadata,
    sa.Column("card_id", _Text, sa.ForeignKey("cards.id"), primary_key=True),
    sa.Column("occasions", _Json, nullable=False),
    _text("author"),
    _time("created_at", null=False),
)

#: Who leads (one dispatcher a board), until when.
leases = sa.Table(
    "leases",
    metadata,
    _text("name", primary_key=True),
    _text("holder"),
    _text("token"),
    _time("expires", null=False),
)


def prepare_postgres() -> None:
    """Give the partial indexes their conditions for PostgreSQL too. Done again it changes nothing.

    Naming them where the tables are would load that database's part of SQLAlchemy in every process that has a board.
    """
    for table in metadata.tables.values():
        for index in table.indexes:
            condition = index.dialect_options["sqlite"]["where"]
            if condition is not None:
                index.dialect_options["postgresql"]["where"] = condition
