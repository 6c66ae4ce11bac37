"""The board's tools for models, over the same verbs as the command line. Opt-in: only its own name turns it on.

A worker (a task with a seat) completes, blocks and heartbeats its own card alone, comments on any, and makes further
cards. Whoever has no seat is an orchestrator: it lists, unblocks, and reaches cards that no worker holds. Children that
were delegated get none of these tools. Every call that changes something carries its key, so that a call which is
repeated after a crash is answered and not done again.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import anyio
import anyio.to_thread
import msgspec

from hermes.core.clock import held
from hermes.core.errors import OperatorError, ToolError, UsageError
from hermes.core.tools import CallContext, Tool, ToolEnv, ToolOutput, json_output
from hermes.kanban import tool_arguments as a
from hermes.kanban.access import Access
from hermes.kanban.board import Board
from hermes.kanban.card import Card, Check, Claim, NewCard
from hermes.kanban.context import worker_context
from hermes.kanban.ending import Authority, Completion
from hermes.kanban.reading import CardFilter
from hermes.kanban.seat import Seat
from hermes.kanban.workspace_files import read_artifacts, save_file, unlisted

__all__ = ["WORKER_REFUSED", "KanbanToolset"]

#: Tools that a worker does not have.
WORKER_REFUSED = frozenset({"kanban_list", "kanban_unblock"})
_SHOWN_COMMENTS = 30
_T = TypeVar("_T")


class KanbanToolset:
    """Builds the tools of one task; `access` says which boards, under which name, and whether it is a worker."""

    name = "kanban"
    label = "Shared board of several named agents"
    opt_in = True
    tool_names = (
        "kanban_show", "kanban_list", "kanban_create", "kanban_complete", "kanban_block", "kanban_unblock",
        "kanban_heartbeat", "kanban_comment", "kanban_link", "kanban_request_review", "kanban_request_changes",
        "kanban_attach", "kanban_attachments",
    )  # fmt: skip

    def __init__(self, access: Access) -> None:
        self._access = access

    def build(self, env: ToolEnv) -> Sequence[Tool]:
        """The tools for one task: none for a child, a worker's without what only an orchestrator has."""
        if env.scope.kind not in ("main", "background", "card"):
            return ()
        verbs = _Verbs(self._access, env.unattended)
        seat = self._access.seat
        return tuple(
            _tool(name, description, arguments, getattr(verbs, name.removeprefix("kanban_")))
            for name, (arguments, description) in _OFFERED.items()
            if seat is None or name not in WORKER_REFUSED
        )


def _tool(
    name: str,
    description: str,
    arguments: type[msgspec.Struct],
    verb: Callable[[Any, CallContext], Awaitable[ToolOutput]],
) -> Tool:
    async def run(given: Any, context: CallContext) -> ToolOutput:
        try:
            return await verb(given, context)
        except (OperatorError, UsageError) as error:
            raise ToolError(str(error)) from None

    return Tool(name=name, description=description, arguments=arguments, run=run, safe_to_repeat=True)


class _Verbs:
    """The tools as methods. Each takes its arguments and the call."""

    def __init__(self, access: Access, unattended: bool) -> None:
        self._access, self._unattended = access, unattended
        self._author = access.author

    async def _on(self, name: str | None, work: Callable[[Board], _T]) -> _T:
        return await (await self._access.board(name)).run(work)

    def _key(self, board: Board, context: CallContext) -> str:
        """The call's key, unique among the homes that share a board."""
        return f"{board.here.home_id}:{context.key}"

    def _target(self, task_id: str | None) -> str:
        seat = self._access.seat
        if task_id:
            return task_id
        if seat is None:
            raise ToolError("task_id is missing: name the card.")
        return seat.claim.card_id

    async def _own(self, given: a.CardArgument, verb: str) -> tuple[str, Authority, Seat | None]:
        """The card that a call may move, and by what right."""
        seat = self._access.seat
        if seat is None:
            return self._target(given.task_id), Authority(author=self._author), None
        own = seat.claim.card_id
        if given.board or (given.task_id and given.task_id.strip() != own):
            raise ToolError(f"a worker may {verb} only its own card {own}; comment on the other one instead.")
        return own, Authority(author=self._author, claim=seat.claim), seat

    async def show(self, given: a.CardArgument, _: CallContext) -> ToolOutput:
        view = await self._on(given.board, lambda board: board.show(self._target(given.task_id)))
        seat = self._access.seat
        own = seat is not None and seat.claim.card_id == view.task.id
        answer: dict[str, Any] = msgspec.to_builtins(view)
        answer["task"] = {key: value for key, value in answer["task"].items() if value not in (None, [], "")}
        answer["comments"] = answer["comments"][-_SHOWN_COMMENTS:]
        answer["worker_context"] = worker_context(view, workspace=seat.workspace if own and seat else None)
        return json_output(answer, preview=f"{view.task.status}: {view.task.title}")

    async def list(self, given: a.List, _: CallContext) -> ToolOutput:
        wanted = CardFilter(
            assignee=given.assignee,
            status=(given.status,) if given.status else (),
            tenant=given.tenant,
            archived=given.include_archived,
            limit=given.limit + 1,
        )
        promoted = await self._on(given.board, lambda board: board.promote(author=self._author))
        found = await self._on(given.board, lambda board: board.cards(wanted))
        more = len(found) > given.limit
        answer = {
            "tasks": [_brief(card) for card in found[: given.limit]],
            "count": min(len(found), given.limit),
            "limit": given.limit,
            "truncated": more,
            "next_limit": min(200, given.limit * 2) if more and given.limit < 200 else None,
            "promoted": promoted,
        }
        return json_output(answer, preview=f"{answer['count']} cards")

    def _claim_on(self, board: str | None) -> Claim | None:
        """What a worker's writes on a board carry, so that one that lost its card writes nothing more."""
        seat = self._access.seat
        return seat.claim if seat is not None and not board else None

    async def create(self, given: a.Create, context: CallContext) -> ToolOutput:
        claim = self._claim_on(given.board)
        if given.subtask and claim is None:
            raise ToolError("subtask is for a worker's own card; use parents or kanban_link instead.")
        if given.skills:
            raise ToolError("workers load no skills: write what the worker has to know into body. Nothing was made.")
        kind, path = given.workspace_kind, given.workspace_path
        if kind is None and claim is not None:
            own = await self._on(None, lambda board: board.find(claim.card_id))
            kind, path = own.workspace_kind, path or own.workspace_path
        same = {
            name: getattr(given, name)
            for name in NewCard.__struct_fields__
            if name in a.Create.__struct_fields__ and name not in ("workspace_kind", "workspace_path")
        }
        for name in ("parents", "follows", "skills"):
            same[name] = tuple(same[name])
        # A worker's own conversation ends with its card; who hears of that card hears of these.
        same["session_id"] = given.session_id or (None if self._access.seat else context.scope.session_id)
        order = NewCard(
            **same,
            workspace_kind=kind or "scratch",
            workspace_path=path,
            check_command=given.check,
            subtask_of=claim.card_id if given.subtask and claim is not None else None,
        )
        made = await self._on(
            given.board,
            lambda board: board.create(order, author=self._author, claim=claim, key=self._key(board, context)),
        )
        told = not self._unattended and made.card.session_id == context.scope.session_id  # a run alone hears nothing
        answer = {"ok": True, "task_id": made.card.id, "status": made.card.status, "subscribed": told}
        answer |= {"warnings": made.warnings} if made.warnings else {}
        return json_output(answer, preview=f"{made.card.id} {made.card.status}")

    async def complete(self, given: a.Complete, context: CallContext) -> ToolOutput:
        if not (given.summary.strip() or given.result.strip()):
            raise ToolError("kanban_complete needs a summary or a result: what was done, and what comes of it.")
        name, by, seat = await self._own(given, "complete")
        check: Check | None = None
        if seat is not None:
            card = await self._saved(seat)
            if card.check_command and card.status == "running":
                check, answer = await self._checked(card, seat, context)
                if answer is not None:
                    return answer
        await self._keep(given, name, seat)
        done = Completion(
            summary=given.summary,
            result=given.result,
            metadata=given.metadata,
            created_cards=tuple(given.created_cards),
            check=check,
            denied=seat.refused() if seat is not None else "",
        )
        card = await self._on(given.board, lambda board: board.complete(name, done, by, key=self._key(board, context)))
        return self._moved(card, seat)

    async def _saved(self, seat: Seat) -> Card:
        """The card of a seat, once its work can be found by others. Raises `ToolError`."""
        card = await self._on(None, lambda board: board.find(seat.claim.card_id))
        told = await seat.unsaved(card)
        if told:
            raise ToolError(told)
        return card

    async def _checked(self, card: Card, seat: Seat, context: CallContext) -> tuple[Check | None, ToolOutput | None]:
        """Run a card's check; an answer instead when it failed."""
        if seat.check is None:
            raise ToolError(f"the check of {card.id} cannot be run here; block the card with kind capability.")
        check = await seat.check(card)
        if check.passed:
            return check, None
        told = f"The check failed: {card.check_command}\n{check.output}"
        if card.step == "review":
            raise ToolError(f"{told}\nA card whose check fails is not good: request changes, or block it.")
        verdict = await self._on(
            None,
            lambda board: board.report_check(
                seat.claim, check, author=self._author, key=f"{self._key(board, context)}:check"
            ),
        )
        if verdict == "again":
            raise ToolError(f"{told}\n{card.id} is still yours: mend it and complete it again.")
        return None, json_output(
            {"ok": False, "task_id": card.id, "run_id": seat.claim.run_id, "status": "review", "error": told},
            is_error=True,
        )

    async def _keep(self, given: a.Complete, name: str, seat: Seat | None) -> None:
        """Keep the named files with the card before its folder may go, and tell which were not named."""
        if seat is None:
            if given.artifacts:
                raise ToolError("only a card's worker has a workspace with files; attach them by the command line.")
            return

        def files() -> tuple[list[tuple[str, str, bytes]], list[str]]:
            return read_artifacts(seat.workspace, given.artifacts), unlisted(seat.workspace, given.artifacts)

        with held(self._access.hold):
            kept, forgotten = await anyio.to_thread.run_sync(files)
        for file_name, media_type, data in kept:
            await self._attach(name, file_name, media_type, data, seat)
        scratch = await self._on(None, lambda board: board.find(name).workspace_kind == "scratch")
        if scratch and forgotten:
            await self._on(
                None,
                lambda board: board.note(
                    "tip_scratch_workspace",
                    author=self._author,
                    card=name,
                    run_id=seat.claim.run_id,
                    claim=seat.claim,
                    not_kept=forgotten,
                ),
            )

    async def _attach(self, name: str, file_name: str, media_type: str, data: bytes, seat: Seat) -> int:
        kept = await self._on(
            None,
            lambda board: board.attach(
                name, file_name, data, author=self._author, media_type=media_type, claim=seat.claim
            ),
        )
        return kept.id

    def _moved(self, card: Card, seat: Seat | None) -> ToolOutput:
        run_id = seat.claim.run_id if seat is not None else card.current_run_id
        answer = {"ok": True, "task_id": card.id, "run_id": run_id, "status": card.status}
        return json_output(answer, preview=f"{card.id} {card.status}")

    async def block(self, given: a.Block, context: CallContext) -> ToolOutput:
        name, by, seat = await self._own(given, "block")
        card = await self._on(
            given.board,
            lambda board: board.block(
                name, given.reason, by, kind=given.kind, choices=given.choices, key=self._key(board, context)
            ),
        )
        return self._moved(card, seat)

    async def unblock(self, given: a.CardArgument, context: CallContext) -> ToolOutput:
        if self._access.seat is not None:
            raise ToolError("a worker may not unblock cards; comment on it, or ask with kanban_block.")
        name = self._target(given.task_id)
        card = await self._on(
            given.board, lambda board: board.unblock(name, author=self._author, key=self._key(board, context))
        )
        return json_output({"ok": True, "task_id": card.id, "status": card.status})

    async def heartbeat(self, given: a.Heartbeat, _: CallContext) -> ToolOutput:
        name, _by, seat = await self._own(given, "heartbeat")
        if seat is None:
            raise ToolError("only the worker of a card sends its signs of life.")
        beat = await self._on(None, lambda board: board.heartbeat(seat.claim, author=self._author, note=given.note))
        answer: dict[str, Any] = {"ok": True, "task_id": name}
        if beat.stop is not None:
            answer["stop"] = f"This card is wanted {beat.stop}: {beat.reason or 'no reason given'}. End your work now."
        return json_output(answer)

    async def comment(self, given: a.Comment, context: CallContext) -> ToolOutput:
        number = await self._on(
            given.board,
            lambda board: board.comment(
                given.task_id,
                given.body,
                author=self._author,
                key=self._key(board, context),
                claim=self._claim_on(given.board),
            ),
        )
        return json_output({"ok": True, "task_id": given.task_id, "comment_id": number})

    async def link(self, given: a.Link, context: CallContext) -> ToolOutput:
        parent, child = await self._on(
            given.board,
            lambda board: board.link(
                given.parent_id,
                given.child_id,
                author=self._author,
                kind=given.kind,
                key=self._key(board, context),
                claim=self._claim_on(given.board),
            ),
        )
        return json_output({"ok": True, "parent_id": parent, "child_id": child})

    async def request_review(self, given: a.RequestReview, context: CallContext) -> ToolOutput:
        name, by, seat = await self._own(given, "hand over")
        if seat is not None:
            await self._saved(seat)
        card = await self._on(
            given.board,
            lambda board: board.request_review(
                name, given.summary, by, metadata=given.metadata, reviewer=given.reviewer, key=self._key(board, context)
            ),
        )
        return self._moved(card, seat)

    async def request_changes(self, given: a.RequestChanges, context: CallContext) -> ToolOutput:
        name, by, seat = await self._own(given, "judge")
        card = await self._on(
            given.board, lambda board: board.request_changes(name, given.reason, by, key=self._key(board, context))
        )
        return self._moved(card, seat)

    async def attach(self, given: a.Attach, _: CallContext) -> ToolOutput:
        name, _by, seat = await self._own(given, "attach to")
        if seat is None:
            raise ToolError("only a card's worker has a workspace with files; attach them by the command line.")
        with held(self._access.hold):
            ((file_name, media_type, data),) = await anyio.to_thread.run_sync(
                read_artifacts, seat.workspace, [given.path]
            )
        number = await self._attach(name, file_name, media_type, data, seat)
        return json_output({"ok": True, "task_id": name, "attachment_id": number, "name": file_name})

    async def attachments(self, given: a.Attachments, _: CallContext) -> ToolOutput:
        name = self._target(given.task_id)
        found = await self._on(given.board, lambda board: board.attachments(name))
        answer: dict[str, Any] = {"ok": True, "task_id": name, "attachments": found}
        if given.save:
            seat = self._access.seat
            data = await self._on(given.board, lambda board: board.attachment(name, given.save or ""))
            with held(self._access.hold):
                answer["saved"] = await anyio.to_thread.run_sync(
                    save_file, seat.workspace if seat is not None else None, given.save, data
                )
        return json_output(msgspec.to_builtins(answer))


def _brief(card: Card) -> dict[str, Any]:
    names = ("id", "title", "status", "assignee", "priority", "tenant", "block_reason", "created_at", "updated_at")
    return {name: value for name in names if (value := getattr(card, name)) is not None}


_OFFERED: dict[str, tuple[type[msgspec.Struct], str]] = {
    "kanban_show": (a.CardArgument, "Read a card: task, results it builds on, comments, attempts, worker_context."),
    "kanban_list": (a.List, "List cards of the board, most urgent first."),
    "kanban_create": (a.Create, "Make a card for another profile; it runs once its parents are done."),
    "kanban_complete": (a.Complete, "Finish a card with what was done. A check the card has is run first."),
    "kanban_block": (a.Block, "Set a card aside with the reason. This ends your work on it."),
    "kanban_unblock": (a.CardArgument, "Let a blocked or parked card go on."),
    "kanban_heartbeat": (a.Heartbeat, "Say that you are still at work, in long stretches without other calls."),
    "kanban_comment": (a.Comment, "Write a comment on a card."),
    "kanban_link": (a.Link, "Make one card wait for another."),
    "kanban_request_review": (a.RequestReview, "Hand a finished card to a reviewer."),
    "kanban_request_changes": (a.RequestChanges, "Send a reviewed card back, with what has to change."),
    "kanban_attach": (a.Attach, "Keep a file of the workspace with your card."),
    "kanban_attachments": (a.Attachments, "List the files of a card; save one into your workspace."),
}
