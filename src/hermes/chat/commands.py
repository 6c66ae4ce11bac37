"""The commands of a conversation: what each does. Their names stand in `parsing`.

What a command does is done through `interactive.Chat`; nothing here reads keys or knows a terminal.
"""

from __future__ import annotations

import os
import re
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING

import anyio.to_thread
import msgspec

from hermes.chat.budget_text import budget_rows, read_money, with_money
from hermes.chat.notes import changed, describe_source, loop_delay
from hermes.chat.own_command import board_command
from hermes.chat.parsing import COMMANDS, Parsed, background_verb
from hermes.chat.render import aligned, duration, one_line, usage_text
from hermes.chat.switching import change_model, read_model, take_up
from hermes.chat.tree_text import one_row, task_details, tree_lines
from hermes.config.default_model import store_default_model
from hermes.core.limits import Limits
from hermes.core.usage import TURN_ENDED, fold, stored_call
from hermes.kanban.home import SESSION
from hermes.runtime.task import Task

if TYPE_CHECKING:
    from hermes.chat.interactive import Chat

__all__ = ["Commands"]


_TASK = re.compile(r"(?i)(?:main_|bg_|sa-|async_)[0-9a-f]+|#\d+|all")


class Commands:
    """What the commands do, for one chat."""

    def __init__(self, chat: Chat) -> None:
        self._chat = chat

    async def run(self, parsed: Parsed) -> None:
        """Carry a command out."""
        actions: dict[str, Callable[[str], Awaitable[None]]] = {
            "help": self.help,
            "background": self.background,
            "agents": self.agents,
            "steer": self.steer,
            "queue": self.queue,
            "stop": self.stop,
            "busy": self.busy,
            "detach": self.detach,
            "new": self.new,
            "sessions": self.sessions,
            "resume": self.resume,
            "model": self.model,
            "kanban": self.kanban,
            "config": self.config,
            "status": self.status,
            "usage": self.usage,
            "budget": self.budget,
            "tools": self.tools,
            "quit": self.quit,
        }
        await actions[parsed.name](parsed.argument)

    def _say(self, *lines: str) -> None:
        for line in lines:
            self._chat.screen.note(line)

    def _table(self, rows: Sequence[tuple[str, str]]) -> None:
        self._say(*aligned(rows, width=self._chat.screen.width))

    async def help(self, argument: str) -> None:
        """List the commands."""
        rows = [(entry.usage, entry.summary) for entry in COMMANDS]
        self._say("Commands (any unique beginning will do):")
        self._table(rows)
        if self._chat.screen.keys:
            self._say("Keys:")
            self._table(self._chat.screen.keys)
        self._say("Ctrl+C stops the turn and no task; twice within 2 s leaves. A line typed meanwhile is queued.")

    # -- other tasks ------------------------------------------------------------------------------------------------

    async def background(self, argument: str) -> None:
        """Start an independent run, or look at them."""
        verb, rest = background_verb(argument)
        if not verb:
            if not rest:
                self._say("usage: /background PROMPT, or /background status|list|cancel N")
                return
            number, task = await self._chat.start_background(rest)
            preview = one_line(rest, 60)
            self._say(f'🔄 Background task #{number} started: "{preview}"', f"Task ID: {task.id}")
            return
        runs = self._chat.runs
        if rest:
            found = self._run(rest)
            if found is None:
                self._say(f"there is no background task {rest}; /background list shows them")
            elif verb == "cancel":
                await self._cancel(found)
            else:
                self._detail(found)
        elif verb == "cancel":
            self._say("usage: /background cancel N; /background list shows the numbers")
        elif not runs:
            self._say("no background tasks yet")
        else:
            tree, now = self._chat.tree, self._chat.now()
            for number, task in enumerate(runs, 1):
                self._say(f"#{number} " + one_row(tree, tree.tasks[task.id], now))

    def _run(self, which: str) -> Task | None:
        runs = self._chat.runs
        if which.lstrip("#").isdigit():
            number = int(which.lstrip("#"))
            return runs[number - 1] if 0 < number <= len(runs) else None
        return next((task for task in runs if task.id.startswith(which)), None)

    async def _cancel(self, task: Task) -> None:
        stopped = await self._chat.runtime.control.cancel([task], "cancelled by the user")
        self._say(f"stopping {task.id}" if stopped else f"{task.id} is not running ({task.state})")

    def _detail(self, task: Task) -> None:
        self._say(*task_details(self._chat.tree, self._chat.tree.tasks[task.id], self._chat.now()))

    async def agents(self, argument: str) -> None:
        """Show the tree, or one task."""
        chat = self._chat
        if not argument:
            if chat.screen.opens("agents"):
                return
            session = chat.session.id if chat.session is not None else ""
            self._say(*tree_lines(chat.tree, chat.now(), session_id=session, width=chat.screen.width))
            return
        task = self._find(argument)
        if task is not None:
            self._detail(task)

    def _find(self, which: str) -> Task | None:
        """A task by id, beginning of an id, or number of a background run; says so when there is none."""
        if which.startswith("#"):
            run = self._run(which)
            if run is None:
                self._say(f"there is no background task {which}")
            return run
        found = self._chat.find(which)
        if found.task is None:
            near = f" Near: {', '.join(found.nearest)}." if found.nearest else ""
            self._say(f"Task not found: {which}.{near} /agents shows them")
        return found.task

    async def steer(self, argument: str) -> None:
        """Correct the conversation, one task, or all."""
        first, _, rest = argument.partition(" ")
        if not _TASK.fullmatch(first):
            if argument:
                await self._chat.steer(argument)
            else:
                self._say("usage: /steer TEXT, /steer ID TEXT, /steer all TEXT")
            return
        if not rest.strip():
            self._say(f"usage: /steer {first} TEXT")
            return
        if first.lower() == "all":
            tasks = self._chat.running()
            if not tasks:
                self._say("no task runs")
        else:
            task = self._find(first)
            tasks = [task] if task is not None else []
        for task in tasks:
            receipt = await self._chat.runtime.control.steer(task, rest.strip())
            done = "reads it at its next step" if receipt is not None else f"is not running ({task.state})"
            self._say(f"{task.id} {done}")

    async def stop(self, argument: str) -> None:
        """Stop everything of the session."""
        await self._chat.stops.stop()

    # -- the conversation -------------------------------------------------------------------------------------------

    async def queue(self, argument: str) -> None:
        """Queue the next input."""
        if argument:
            await self._chat.say(await self._chat.with_files(argument))
        else:
            self._say("usage: /queue TEXT")

    async def busy(self, argument: str) -> None:
        """Change what typing during a turn does."""
        if argument in ("queue", "steer", "interrupt"):
            self._chat.busy_mode = argument
        elif argument not in ("", "status"):
            self._say("usage: /busy queue|steer|interrupt")
            return
        self._say(f"a line typed during a turn: {self._chat.busy_mode}")

    async def new(self, argument: str) -> None:
        """Begin a new conversation."""
        if not self._chat.stops.confirmed("new"):
            return
        await self._chat.end_session()
        self._say("a new conversation begins with your next line")

    async def sessions(self, argument: str) -> None:
        """The newest conversations of this home."""
        chat = self._chat
        if chat.screen.opens("sessions"):
            return
        found = await chat.runtime.store.sessions(limit=20)
        ago = [(row, duration(max(0.0, chat.now() - row.updated_at))) for row in found if row.source != "batch"]
        self._table([(row.session_id, f"{time} ago · {one_line(row.title, 60)}") for row, time in ago])
        self._say("/resume ID goes on with one" if ago else "no conversation yet")

    async def resume(self, argument: str) -> None:
        """Go to another conversation."""
        if argument:
            await take_up(self._chat, argument)
        else:
            await self.sessions("")

    async def model(self, argument: str) -> None:
        """Say which model answers, or change it."""
        chat = self._chat
        wish = read_model(argument)
        if wish.name:
            await change_model(chat, wish.name, wish.provider)
            if wish.lasting:
                await anyio.to_thread.run_sync(store_default_model, chat.assembly.home, wish.name, wish.provider)
                self._say(f"new conversations begin with it too ({chat.assembly.home.config_file})")
            return
        now = (chat.session.task.spec if chat.session is not None else chat.spec).model.name
        rows = [("model", now or chat.assembly.endpoint.model), ("source", describe_source(chat.assembly))]
        short = ", ".join(f"{alias} = {full}" for alias, full in chat.assembly.settings.model.aliases.items())
        self._table([*rows, ("short names", short or "none (model.aliases)")])
        self._say("/model NAME changes it here; `hermes model` lists the models of the server")

    async def kanban(self, argument: str) -> None:
        """Look at the board or change it, as the profile of this conversation."""
        chat = self._chat
        if not argument and chat.screen.opens("board"):
            return
        place = {"HERMES_HOME": str(chat.assembly.home.path), "COLUMNS": str(chat.screen.width)}
        if chat.session is not None:  # a card that is made so is told of here
            place[SESSION] = chat.session.id
        await chat.own.run(board_command(argument), chat.folder, {**os.environ, **place})

    async def config(self, argument: str) -> None:
        """The settings that were changed."""
        chat = self._chat
        self._table([("file", str(chat.assembly.home.config_file)), *changed(chat.assembly.settings)])
        self._say("`hermes config set KEY VALUE` changes one for the next start")

    async def status(self, argument: str) -> None:
        """Session, model and what runs."""
        chat = self._chat
        session = chat.session
        gate = chat.runtime.gate
        rows = [
            ("session", session.id if session is not None else "not started yet"),
            ("model", describe_source(chat.assembly)),
            ("folder", chat.folder),
            ("turn", "running" if chat.turn_runs else "waits for you"),
            ("tasks", f"{len(chat.running())} running"),
            ("queued", f"{len(session.task.inbox.follow_ups) if session is not None else 0} lines"),
            ("approvals", "all allowed (--yolo)" if gate.yolo else gate.mode),
            ("typing during a turn", chat.busy_mode),
            ("beside", ", ".join(one.id for one in chat.aside.busy) or "nothing"),
            ("loop", f"{await loop_delay() * 1_000:.1f} ms late"),
        ]
        self._table(rows)

    async def usage(self, argument: str) -> None:
        """Tokens and money, from the calls that are stored."""
        chat = self._chat
        rows = await chat.runtime.store.events_of_type(TURN_ENDED, session_id=chat.session.id) if chat.session else []
        calls = [stored_call(row.task_id, row.session_id, row.at, row.body) for row in rows]
        table = fold(calls, "purpose")
        total, used = table.total, table.total.usage
        unknown = f" ({total.unpriced} of unknown price)" if total.unpriced else ""
        lines = [(line.key, usage_text(line.usage)) for line in table.lines]
        lines.append(("with all tasks", f"{usage_text(used)}, {total.calls} calls of the model{unknown}"))
        lines.append(("cached, reasoning", f"{used.cached}, {used.reasoning} tokens"))
        self._table(lines)

    async def budget(self, argument: str) -> None:
        """Show or change what the conversation and its tasks may cost."""
        chat = self._chat
        budget = chat.runtime.supervisor.budgets.of(chat.session.id) if chat.session is not None else None
        limits = budget.limits if budget is not None else chat.spec.session or Limits()
        if argument:
            limits = with_money(chat.assembly, limits, read_money(argument))
            chat.spec = msgspec.structs.replace(chat.spec, session=limits)
            if chat.session is not None:
                await chat.session.limit(limits)
        self._table(budget_rows(limits, budget))

    async def tools(self, argument: str) -> None:
        """The tools in use."""
        spec = self._chat.spec
        registry = self._chat.runtime.registry
        self._table([(name, ", ".join(registry.tool_names((name,)))) for name in spec.toolsets])
        self._say("`hermes tools enable|disable NAME` changes them for the next start")

    async def detach(self, argument: str) -> None:
        """Leave without stopping anything."""
        if not self._chat.busy:
            self._say("nothing runs; /quit leaves, and the conversation can be resumed")
            return
        self._chat.leave(detach=True)

    async def quit(self, argument: str) -> None:
        """Leave, after asking once where something runs."""
        chat, word = self._chat, argument.lower()
        if word == "stop" or (word == "detach" and not chat.busy):
            chat.leave()
        elif word == "detach":
            chat.leave(detach=True)
        elif word == "wait":
            chat.leave_later()
        elif word:
            self._say("usage: /quit [stop|detach|wait]")
        elif chat.busy and chat.screen.opens("leave"):
            return
        elif chat.stops.confirmed("quit"):
            chat.leave()
