"""The boards of a home by its settings. Loads the database's code only when boards are opened, so that whoever has none
does not wait for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

from hermes.config import Home, Settings
from hermes.config import home as homes

if TYPE_CHECKING:
    from hermes.kanban.boards import Boards

__all__ = ["SESSION", "busy_cards", "open_boards", "profile_names"]

#: Variable that names the conversation from which a person uses the board by a command.
SESSION = "HERMES_KANBAN_SESSION"


def profile_names(home: Home) -> list[str]:
    """The profiles that a home's root has, `default` first."""
    return homes.profile_names(home.root)


def open_boards(home: Home, settings: Settings, environ: Mapping[str, str] | None = None) -> Boards:
    """The boards of a home. Writes the home's and the machine's id on first use; reads the disk.

    Raises:
        OperatorError: the home cannot be written.
    """
    # edge: SQLAlchemy loads in a tenth of a second, which only those pay who use a board
    from hermes.kanban.boards import Boards
    from hermes.kanban.place import this_worker

    variables = os.environ if environ is None else environ
    url = settings.kanban.database_url
    return Boards(
        home.root,
        this_worker(home.root, variables),
        environ=variables,
        url=url or None,
        preferred=settings.kanban.board or None,
        # On a database that hosts share, a profile may be another host's.
        profiles=None if url else profile_names(home),
    )


def busy_cards(home: Home, settings: Settings, profile: str) -> tuple[list[str], list[str]]:
    """The cards that a profile works on now and those that wait for it, on all boards of a home.

    Raises:
        StoreError, OperatorError: a board cannot be read.
    """
    # edge: SQLAlchemy loads in a tenth of a second, which only those pay who use a board
    from hermes.kanban.moves import OPEN
    from hermes.kanban.reading import CardFilter

    boards = open_boards(home, settings)
    running: list[str] = []
    waiting: list[str] = []
    for name in boards.existing():
        with boards.open(name) as board:
            # a profile of the same name in another home that shares the database is another one
            whose = (profile, boards.here.home_id)
            live = [run.card_id for run in board.live_runs() if (run.profile, run.home_id) == whose]
            running += live
            waiting += [
                card.id for card in board.cards(CardFilter(assignee=profile, status=OPEN)) if card.id not in live
            ]
    return running, waiting
