"""`hermes kanban`: the table of its commands. Each is imported only when it is called."""

from __future__ import annotations

import click

from hermes.cli.lazy_group import Entry, LazyGroup

__all__ = ["COMMANDS", "kanban"]


_CARDS, _MOVES, _LOOKS, _BOARDS, _SERVES = "Cards", "Moving cards", "Looking", "Boards", "Serving the board"
#: Every command: where it is and what it is for; one without a summary is not listed. The summaries stand here so that
#: help loads none of the modules.
COMMANDS: dict[str, Entry] = {
    "create": Entry("hermes.cli.kanban_cards", "create", "Make a card.", _CARDS),
    "list": Entry("hermes.cli.kanban_cards", "list_", "List cards, the next to be taken first.", _CARDS),
    "ls": Entry("hermes.cli.kanban_cards", "list_", "", _CARDS),
    "show": Entry("hermes.cli.kanban_cards", "show", "Show a card with everything that hangs on it.", _CARDS),
    "edit": Entry("hermes.cli.kanban_cards", "edit", "Change fields of a card.", _CARDS),
    "assign": Entry("hermes.cli.kanban_cards", "assign", "Give a card to a profile, or to nobody.", _CARDS),
    "set-model": Entry("hermes.cli.kanban_cards", "set_model", "Say which model the workers of a card use.", _CARDS),
    "link": Entry("hermes.cli.kanban_cards", "link", "Make a card wait for another one.", _CARDS),
    "unlink": Entry("hermes.cli.kanban_cards", "unlink", "Let it wait no longer.", _CARDS),
    "comment": Entry("hermes.cli.kanban_cards", "comment", "Say something about a card.", _CARDS),
    "attach": Entry("hermes.cli.kanban_boards", "attach", "Keep a file with a card.", _CARDS),
    "attachments": Entry(
        "hermes.cli.kanban_boards", "attachments", "List, write or remove the files of a card.", _CARDS
    ),
    "attach-rm": Entry("hermes.cli.kanban_boards", "attach_rm", "Remove a file of a card.", _CARDS),
    "context": Entry("hermes.cli.kanban_cards", "context_", "Print what a card's worker is told.", _CARDS),
    "complete": Entry("hermes.cli.kanban_moves", "complete", "Finish cards.", _MOVES),
    "block": Entry("hermes.cli.kanban_moves", "block", "Set a card aside.", _MOVES),
    "unblock": Entry("hermes.cli.kanban_moves", "unblock", "Let cards go on.", _MOVES),
    "archive": Entry("hermes.cli.kanban_moves", "archive", "Put cards away.", _MOVES),
    "promote": Entry("hermes.cli.kanban_moves", "promote", "Make cards ready that nothing holds back.", _MOVES),
    "schedule": Entry("hermes.cli.kanban_moves", "schedule", "Park a card until a time.", _MOVES),
    "claim": Entry("hermes.cli.kanban_moves", "claim", "Take a card yourself.", _MOVES),
    "reclaim": Entry("hermes.cli.kanban_moves", "reclaim", "Take cards from their workers.", _MOVES),
    "reassign": Entry("hermes.cli.kanban_moves", "reassign", "Give a card to another profile, also at work.", _MOVES),
    "reopen": Entry("hermes.cli.kanban_moves", "reopen", "Take finished cards up again.", _MOVES),
    "reopen-review": Entry("hermes.cli.kanban_moves", "reopen", "", _MOVES),
    "request-review": Entry("hermes.cli.kanban_moves", "request_review", "Hand a card to a reviewer.", _MOVES),
    "request-changes": Entry("hermes.cli.kanban_moves", "request_changes", "Send a judged card back.", _MOVES),
    "heartbeat": Entry("hermes.cli.kanban_keeping", "heartbeat", "Say that you still work on a card.", _MOVES),
    "watch": Entry("hermes.cli.kanban_watch", "watch", "The board as it moves.", _LOOKS),
    "stats": Entry("hermes.cli.kanban_figures", "stats", "Cards and money in figures.", _LOOKS),
    "assignees": Entry("hermes.cli.kanban_figures", "assignees", "Who can be given cards, and what each has.", _LOOKS),
    "runs": Entry("hermes.cli.kanban_figures", "runs", "The attempts at a card.", _LOOKS),
    "log": Entry("hermes.cli.kanban_figures", "log", "What the workers of a card wrote.", _LOOKS),
    "events": Entry("hermes.cli.kanban_figures", "events", "What happened.", _LOOKS),
    "tail": Entry("hermes.cli.kanban_figures", "tail", "What happens to a card until it ends.", _LOOKS),
    "export": Entry("hermes.cli.kanban_moving", "export", "Write the work of a board as training rows.", _LOOKS),
    "boards": Entry("hermes.cli.kanban_boards", "boards", "The boards of this home.", _BOARDS),
    "init": Entry("hermes.cli.kanban_boards", "init", "Make the board, say where it is.", _BOARDS),
    "import": Entry("hermes.cli.kanban_moving", "import_", "Copy cards from another program's board.", _BOARDS),
    "run": Entry(
        "hermes.cli.kanban_run", "run", "Reach a goal: plan it, work on it, show the board until done.", _SERVES
    ),
    "swarm": Entry("hermes.cli.kanban_swarm", "swarm", "Give a goal to several workers, join what they find.", _SERVES),
    "decompose": Entry(
        "hermes.cli.kanban_planning", "decompose", "Let a model split a card in triage into cards.", _SERVES
    ),
    "specify": Entry(
        "hermes.cli.kanban_planning", "specify", "Let a model make one clear task of a card in triage.", _SERVES
    ),
    "questions": Entry("hermes.cli.kanban_people", "questions", "Show what workers ask.", _SERVES),
    "answer": Entry("hermes.cli.kanban_people", "answer", "Answer what a card asks; its work goes on.", _SERVES),
    "merge": Entry(
        "hermes.cli.kanban_people", "merge", "Join the branches of finished cards, checking after each.", _SERVES
    ),
    "notify-subscribe": Entry("hermes.cli.kanban_telling", "notify_subscribe", "Be told of a card.", _SERVES),
    "notify-list": Entry("hermes.cli.kanban_telling", "notify_list", "List the cards you are told of.", _SERVES),
    "notify-unsubscribe": Entry(
        "hermes.cli.kanban_telling", "notify_unsubscribe", "Be told of a card no longer.", _SERVES
    ),
    "dispatch": Entry("hermes.cli.kanban_dispatch", "dispatch", "Start workers for what is ready, once.", _SERVES),
    "daemon": Entry("hermes.cli.kanban_dispatch", "daemon", "Serve the board until it is stopped.", _SERVES),
    "why": Entry("hermes.cli.kanban_why", "why", "Say why a card is not worked on, and what cures it.", _SERVES),
    "doctor": Entry("hermes.cli.kanban_why", "doctor", "Look at everything that could hold the board up.", _SERVES),
    "diagnostics": Entry("hermes.cli.kanban_why", "doctor", "", _SERVES),
    "repair": Entry("hermes.cli.kanban_keeping", "repair", "Put right what contradicts itself.", _SERVES),
    "gc": Entry("hermes.cli.kanban_keeping", "gc", "Remove what is left of old, ended cards.", _SERVES),
    "pause": Entry("hermes.cli.kanban_why", "pause", "Start no more workers, or start them again.", _SERVES),
    "work": Entry("hermes.cli.kanban_work", "work", "", _SERVES),
}

_EPILOG = """\b
Examples:
  hermes kanban create "Read the API and write a report" --assignee researcher
  hermes kanban watch
  hermes kanban dispatch
  hermes kanban daemon --detach
  hermes kanban why t_1a2b
"""


@click.group(cls=LazyGroup, table=COMMANDS, epilog=_EPILOG)
@click.option("--board", default=None, metavar="NAME", help="Which board; the current one if not given.")
@click.pass_context
def kanban(context: click.Context, /, board: str | None) -> None:
    """The board: cards that several named agents and people work on for days."""
    context.meta["hermes.kanban.board"] = board
