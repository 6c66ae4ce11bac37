"""What the processes of one home tell each other of a provider's limits: a small file, written once a grant.

Every process writes what it has to do and what it found out, and reads its share for the next two seconds, all in one
transaction; no request waits for it. The file knows a key by a digest only. What is in it is worth nothing once its
processes have ended, so it is not kept safe from a loss of power. Who asks is not decided here.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

import msgspec

from hermes.credentials.shares import Demand, divide

__all__ = ["GRANT", "Found", "Grant", "Grants", "Want", "believed", "limit_name"]

#: Seconds for which a share is given.
GRANT = 2.0
#: Seconds after which the demand of a process that said nothing more counts no longer: two grants, and what a busy
#: machine may be late.
LAPSE = 2 * GRANT + 0.5
#: Seconds after which what was found out is not believed any more.
FORGET = 3_600.0
#: Seconds between two moments that are the same one, read by two clocks.
SAME = 0.05
#: Seconds for which another process's transaction is waited for.
BUSY = 1.0

_TABLES = """
CREATE TABLE IF NOT EXISTS limits (
    name TEXT PRIMARY KEY, rate REAL, size REAL, found REAL NOT NULL, measured INTEGER NOT NULL,
    token_rate REAL, token_size REAL, token_found REAL NOT NULL, token_measured INTEGER NOT NULL,
    paused REAL NOT NULL, at_once REAL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS demands (
    name TEXT, owner TEXT, at REAL NOT NULL, front REAL NOT NULL, back REAL NOT NULL, trees INTEGER NOT NULL,
    sent REAL NOT NULL, tokens REAL NOT NULL, PRIMARY KEY (name, owner)
) WITHOUT ROWID;
"""


def limit_name(server: str, secret: str, model: str) -> str:
    """What a limit is called in the file: nothing of the key can be read from it."""
    return hashlib.sha256("\0".join((server, secret, model)).encode()).hexdigest()[:32]


class Found(msgspec.Struct, frozen=True, kw_only=True):
    """A limit as somebody found it out at `at` (seconds since the epoch; 0: nobody did): `rate` a second, `size` at
    once. `measured`: it is more than a first guess."""

    rate: float | None = None
    size: float = 1.0
    at: float = 0.0
    measured: bool = False


class Want(msgspec.Struct, frozen=True, kw_only=True):
    """What a process says of one limit.

    `front`, `back` and `trees` are its demand, `sent` and `tokens` what it sent a second; `requests` and `token_limit`
    what it knows; `paused` until when the key is left alone (seconds since the epoch). `at_once` is its part of the
    requests at once, None where their number was never too large, and `at_once_given` what it was given of them last.
    """

    name: str
    front: float = 0.0
    back: float = 0.0
    trees: int = 1
    sent: float = 0.0
    tokens: float = 0.0
    requests: Found = Found()
    token_limit: Found = Found()
    paused: float = 0.0
    at_once: float | None = None
    at_once_given: float | None = None

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return self.front + self.back <= 0


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """What a process may do with one limit until the next grant.

    `share` is its part of the rate, `at_once` of the requests at once (None: nobody found a limit); `sent` and `tokens`
    are what the others sent a second, `pressed` that they have more to do than they may; the rest is the newest that
    anybody found out.
    """

    name: str
    share: float = 1.0
    sent: float = 0.0
    tokens: float = 0.0
    pressed: bool = False
    requests: Found = Found()
    token_limit: Found = Found()
    paused: float = 0.0
    at_once: float | None = None


class Grants:
    """The file. Every call opens and closes it, from any thread.

    Args:
        path: where it is; it is made, readable by its user only, when something is written for the first time.
        owner: the id of this process.
        gone: whether the process of an id is proven to have ended.
    """

    def __init__(self, path: Path, owner: str, gone: Callable[[str], bool]) -> None:
        self.path = path
        self.owner = owner
        self._gone = gone

    def exchange(self, wants: Sequence[Want], now: float) -> tuple[Grant, ...]:
        """Say what is wanted and found out, and take this process's grants. `now` is seconds since the epoch.

        Raises:
            sqlite3.Error, OSError: the file cannot be used, or another process holds it for long.
        """
        os.close(os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600))
        with closing(sqlite3.connect(self.path, timeout=BUSY, isolation_level=None)) as db:
            db.execute("PRAGMA synchronous = OFF")
            db.execute("BEGIN IMMEDIATE")
            for statement in _TABLES.split(";"):
                db.execute(statement)
            self._clean(db, now)
            granted = tuple(self._one(db, want, now) for want in wants)
            db.execute("COMMIT")
        return granted

    def leave(self) -> None:
        """This process wants nothing more. Raises as `exchange`."""
        if not self.path.exists():
            return
        with closing(sqlite3.connect(self.path, timeout=BUSY, isolation_level=None)) as db:
            db.execute("DELETE FROM demands WHERE owner = ?", (self.owner,))

    def _clean(self, db: sqlite3.Connection, now: float) -> None:
        db.execute("DELETE FROM demands WHERE at < ? OR at > ?", (now - LAPSE, now + LAPSE))
        db.execute("DELETE FROM limits WHERE max(found, token_found, paused) < ?", (now - FORGET,))
        owners = db.execute("SELECT DISTINCT owner FROM demands WHERE owner <> ?", (self.owner,)).fetchall()
        for (owner,) in owners:
            if self._gone(owner):
                db.execute("DELETE FROM demands WHERE owner = ?", (owner,))

    def _one(self, db: sqlite3.Connection, want: Want, now: float) -> Grant:
        known = self._merged(db, want)
        if want.idle:
            db.execute("DELETE FROM demands WHERE name = ? AND owner = ?", (want.name, self.owner))
        else:
            row = (want.name, self.owner, now, want.front, want.back, want.trees, want.sent, want.tokens)
            db.execute("INSERT OR REPLACE INTO demands VALUES (?, ?, ?, ?, ?, ?, ?, ?)", row)
        found = db.execute(
            "SELECT owner, front, back, trees, sent, tokens FROM demands WHERE name = ?", (want.name,)
        ).fetchall()
        others = [each for each in found if each[0] != self.owner]
        demands = [Demand(owner=each[0], front=each[1], back=each[2], trees=each[3]) for each in found]
        if want.idle:
            demands.append(Demand(owner=self.owner, front=0.0, back=0.0))
        amount = GRANT * known.requests.rate if known.requests.rate else 2 * (known.at_once or 0.0)
        share = divide(demands, amount)[self.owner]
        return msgspec.structs.replace(
            known,
            share=share,
            sent=sum(each[4] for each in others),
            tokens=sum(each[5] for each in others),
            pressed=amount > 0 and sum(each[1] + each[2] for each in others) > (1 - share) * amount,
            at_once=None if known.at_once is None else max(1.0, share * known.at_once),
        )

    def _merged(self, db: sqlite3.Connection, want: Want) -> Grant:
        """The newest that is known of a limit, for all processes; what this one knows is written if it is newer."""
        row = db.execute(
            "SELECT rate, size, found, measured, token_rate, token_size, token_found, token_measured, paused, at_once"
            " FROM limits WHERE name = ?",
            (want.name,),
        ).fetchone()
        requests, tokens, paused, at_once = want.requests, want.token_limit, want.paused, want.at_once
        if row is not None:
            requests = believed(requests, Found(rate=row[0], size=row[1], at=row[2], measured=bool(row[3])))
            tokens = believed(tokens, Found(rate=row[4], size=row[5], at=row[6], measured=bool(row[7])))
            paused = max(paused, row[8])
            if row[9] is not None:
                own = want.at_once_given
                at_once = max(1.0, row[9] + (at_once - own if at_once is not None and own is not None else 0.0))
        values = (*_columns(requests), *_columns(tokens), paused, at_once)
        if row != values:
            marks = ", ".join("?" * (1 + len(values)))
            db.execute(f"INSERT OR REPLACE INTO limits VALUES ({marks})", (want.name, *values))
        return Grant(name=want.name, requests=requests, token_limit=tokens, paused=paused, at_once=at_once)


def believed(own: Found, theirs: Found) -> Found:
    """What is to be believed of a limit that two found out."""
    if theirs.rate is None or own.rate is None:
        return own if theirs.rate is None else theirs
    newer = theirs if (theirs.measured, theirs.at) > (own.measured, own.at + SAME) else own
    # What one saw go through is less where it did not know yet what the others sent, never more: within a grant the
    # larger figure is the better one.
    same = own.measured == theirs.measured and abs(own.at - theirs.at) < 2 * GRANT
    rate = max(own.rate, theirs.rate) if same else newer.rate
    return msgspec.structs.replace(newer, rate=rate, size=max(own.size, theirs.size))


def _columns(found: Found) -> tuple[float | None, float, float, int]:
    return found.rate, found.size, found.at, int(found.measured)
