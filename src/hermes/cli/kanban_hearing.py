"""A conversation hears of the cards it made: who waits for an answer, what gave up, what is done.

What it was told stands in its history, in the notice that told it; nothing else is noted. So a process that dies before
a notice was written loses none, the next one that opens the conversation tells it, and none is told twice. Each
conversation asks for its own cards alone. Serves no board.
"""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.to_thread

from hermes.chat.interactive import Chat
from hermes.chat.render import one_line
from hermes.config.load import Loaded
from hermes.core.clock import NO_HOLD, Hold, held
from hermes.core.codec import decode_entry
from hermes.core.errors import HermesError
from hermes.core.inbox import Remark
from hermes.core.messages import Notice
from hermes.kanban.access import Access
from hermes.kanban.board import Board
from hermes.kanban.home import open_boards
from hermes.kanban.telling import Tiding, session_tidings
from hermes.runtime.session import Session

__all__ = ["Hearing"]

#: Seconds between two looks, and looks after which the boards themselves are looked for again.
LOOK, BOARDS = 1.0, 60
#: The kind of the notice; cards of which one notice tells; characters of what is said of one.
KIND, MOST, WORDS = "cards", 20, 600


class Hearing:
    """Hears for one chat. `run` goes on until cancelled and fails only in words; `look` looks once."""

    def __init__(self, loaded: Loaded, chat: Chat, hold: Hold = NO_HOLD) -> None:
        self._chat = chat
        self._loaded = loaded
        self._hold = hold
        self._access = Access(lambda: open_boards(loaded.home, loaded.settings), author=loaded.home.profile, hold=hold)
        self._session = ""
        self._told: dict[str, int] = {}  # by board the newest event that the conversation was told of
        self._seen: dict[str, int] = {}  # by board the newest event at the last look
        self._boards: list[str] = []
        self._looks = 0
        self._trouble = ""

    async def run(self) -> None:
        """Look again and again."""
        try:
            while True:
                try:
                    await self.look()
                except (HermesError, OSError) as error:  # also a folder that this user may not look into
                    if str(error) != self._trouble:
                        self._chat.screen.note(f"board: {error}")
                    self._trouble = str(error)
                await anyio.sleep(LOOK)
        finally:
            with anyio.CancelScope(shield=True):
                await self._access.close()

    async def look(self) -> None:
        """Tell the conversation that is open now what is new of its cards.

        Raises:
            HermesError: a board cannot be read.
        """
        session = self._chat.session
        if session is None or session.task.ended:
            return
        if session.id != self._session:
            self._told, self._seen = await self._told_before(session), {}
            self._session = session.id
        if self._looks % BOARDS == 0:
            self._seen.clear()  # on PostgreSQL an event may be committed behind one with a higher number
            with held(self._hold):
                self._boards = await anyio.to_thread.run_sync(self._existing)
        self._looks += 1
        failed: list[HermesError] = []
        for slug in self._boards:
            try:
                await self._ask(session, slug)
            except HermesError as error:  # the others can be heard of nevertheless
                failed.append(error)
        if failed:
            raise failed[0]

    def _existing(self) -> list[str]:
        return open_boards(self._loaded.home, self._loaded.settings).existing()

    async def _told_before(self, session: Session) -> dict[str, int]:
        found: dict[str, int] = {}
        for _, body in await self._chat.runtime.store.entries(session.task.id):
            entry = decode_entry(body)
            if isinstance(entry, Notice) and entry.kind == KIND:
                for ref in entry.refs:
                    slug, _, number = ref.rpartition(":")
                    found[slug] = max(found.get(slug, 0), int(number))
        return found

    async def _ask(self, session: Session, slug: str) -> None:
        board = await self._access.board(slug)
        newest = await board.run(Board.last_event)
        if newest == self._seen.get(slug):
            return
        after, profile = self._told.get(slug, 0), self._loaded.home.profile
        reviewer = self._loaded.settings.kanban.reviewer_profile
        news = await board.run(
            lambda board: session_tidings(board, session.id, after, profile=profile, reviewer=reviewer)
        )
        if self._chat.session is not session or session.task.ended:
            return  # it was left meanwhile: what was found is told when it is open again
        self._seen[slug] = newest
        if news:
            self._told[slug] = max(each.number for each in news)
            self._tell(session, slug, news)

    def _tell(self, session: Session, slug: str, news: Sequence[Tiding]) -> None:
        hide = self._chat.assembly.redactor.text
        named = f" --board {slug}" if slug != "default" else ""
        lines = []
        for each in news[:MOST]:
            cure = each.cure.replace("hermes kanban", f"hermes kanban{named}", 1)
            said = f"{each.card} {one_line(hide(each.title), 200)}"
            text = one_line(hide(each.text), WORDS)
            lines.append(f"- {said}{f': {text}' if text else ''}" + (f" ({cure})" if each.occasion != "done" else ""))
            self._chat.screen.note(f"board: {said}{f' — {one_line(text, 100)}' if text else ''}")
            if each.occasion != "done":
                self._chat.screen.note(f"  {cure}")
        if len(news) > MOST:
            lines.append(f"- and {len(news) - MOST} more: kanban_list has them")
            self._chat.screen.note(f"board: {len(news) - MOST} more: hermes kanban{named} list")
        where = f" on the board {slug}" if named else ""
        text = f"[Your cards{where}; a person gives the commands named here]\n" + "\n".join(lines)
        refs = tuple(f"{slug}:{each.number}" for each in news)
        session.task.inbox.remark(Remark(kind=KIND, text=text, refs=refs))
