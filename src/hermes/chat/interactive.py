"""The conversation on a terminal: lines in, what happens out, while turns and tasks go on.

It knows nothing of keys and screens (`composer.py`) and nothing of what a command is called (`commands.py`).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import anyio
import msgspec

from hermes.chat.attaching import attached, without_files
from hermes.chat.commands import Commands
from hermes.chat.composer import Composer, Screen, Signal, Stage
from hermes.chat.hearing import Hearing
from hermes.chat.isolating import in_worktree
from hermes.chat.leaving import WAYS_OUT, goes_on
from hermes.chat.notes import commands_awaited, greeting, running_lines, sight_of, status, waiting
from hermes.chat.options import GlobalOptions
from hermes.chat.own_command import OwnCommand
from hermes.chat.parsing import parse
from hermes.chat.questions import Questions
from hermes.chat.reopening import reopened
from hermes.chat.stopping import Stopping
from hermes.chat.stream import Narrator
from hermes.chat.switching import Aside
from hermes.chat.unseen_text import show_unseen
from hermes.compose import Assembly, conversation_spec
from hermes.core.codec import scrub_surrogates
from hermes.core.errors import HermesError, OperatorError, StoreError
from hermes.core.events import Envelope
from hermes.core.messages import Content, Text, plain_text
from hermes.observe.unseen import mark_shown
from hermes.runtime.asking import Question
from hermes.runtime.control import Found
from hermes.runtime.session import Session
from hermes.runtime.task import Task

__all__ = ["Chat"]

NO_OPTIONS = GlobalOptions()
#: Seconds in which the signal comes that a terminal was lost, once nothing can be read from it any more.
HANGUP = 1.0


class Chat:
    """One place where a person talks with a model, over one conversation after the other."""

    def __init__(
        self,
        assembly: Assembly,
        composer: Composer,
        *,
        workspace: str,
        toolsets: tuple[str, ...] | None = None,
        verbose: bool = False,
        source: str = "cli",
        resume: str = "",
        detaches: bool = True,
        terminal: bool = False,
        options: GlobalOptions = NO_OPTIONS,
        stage: Stage | None = None,
        tell: Callable[[Envelope], None] | None = None,
    ) -> None:
        """`stage` shows what is said (default: lines through `composer`), `tell` what happens (default: in notes)."""
        self.assembly = assembly
        self.runtime = assembly.runtime
        self.tree = assembly.runtime.bus.tree
        self.workspace = workspace
        self.screen: Stage = stage if stage is not None else Screen(composer, assembly.redactor.text)
        self.session: Session | None = None
        self.runs: list[Task] = []
        self.spec, self.notes = conversation_spec(
            assembly, interactive=True, workspace=workspace, toolsets=toolsets, unattended=False
        )
        self.busy_mode: str = assembly.settings.display.busy_input_mode
        self.composer = composer
        self.toolsets = toolsets
        self._source = source
        self._commands = Commands(self)
        self.questions = Questions(self._asked, self.refresh, assembly.redactor.text)
        self.aside = Aside(self)
        self.own = OwnCommand(self.screen.note)
        self._waits = False  # whether it leaves once nothing runs any more
        self.stops = Stopping(self)
        self.last_session = ""  # the newest conversation of this run
        self._code = 0
        self._left = False
        self.taking = False  # whether a message is on its way to the conversation
        self._suspend = False
        self._resume = resume
        self.went_on = ""  # the session that another process went on with until now
        self.options = options  # what the command line named: it changes a conversation that is taken up
        self.terminal = terminal  # whether somebody is there to be asked
        self.detaches = detaches  # whether work goes on when the terminal is left in the middle of it
        self.detached = False  # whether it is to go on after this process
        self._reading = anyio.CancelScope()
        self.moved = anyio.Event()
        progress = "verbose" if verbose else assembly.settings.display.tool_progress
        narrator = Narrator(self.tree, self.screen.note, session_id=lambda: self.last_session, progress=progress)
        self._hearing = Hearing(self, tell if tell is not None else narrator.tell)
        composer.on_typing = self._typing

    # -- the run ----------------------------------------------------------------------------------------------------

    async def run(self) -> int:
        """Read lines until the person leaves; returns the exit code.

        Raises:
            StoreError: the journal broke.
        """
        gate = self.runtime.gate
        gate.asker = self.questions.ask
        subscription = self.runtime.bus.subscribe(self._hearing.listen, self._hearing.watches)
        try:
            async with self.composer:
                self._note(greeting(self))
                await show_unseen(self.assembly, self.screen.note)
                with self._reading:
                    if self._resume:
                        await self._reopen(self._resume)
                    while not self._left:
                        await self._next()
                if not self._suspend and self.runtime.supervisor.broken is None:
                    await self.end_session()
                    self.stops.tell(await self.aside.close())
                self.screen.finish()
                if self.last_session:
                    self.composer.write(f"This conversation: hermes sessions show {self.last_session}")
                    self.composer.write(f"Go on with it: {goes_on(self.last_session)}")
        finally:
            subscription.close()
            gate.asker = None
        if self.runtime.supervisor.broken is not None:
            raise self.runtime.supervisor.broken
        return self._code

    async def _next(self) -> None:
        self.refresh()
        line = await self.composer.read()
        if line is Signal.INTERRUPT:
            self.stops.interrupt()
        elif isinstance(line, str):
            await self.submit(line)
        elif self.composer.finished:
            await self._no_more_lines()
        elif self.stops.confirmed("quit"):
            self.leave()

    async def _no_more_lines(self) -> None:
        """Nobody can type any more: let what runs come to its end, then leave."""
        if self.questions.open and self.terminal:
            # A terminal that is lost also sends a signal, which decides what becomes of the work and of the question.
            await anyio.sleep(HANGUP)
        self.runtime.gate.asker = None
        self.questions.dismiss()
        while self.busy:
            self.moved = anyio.Event()
            await self.moved.wait()
        self.leave()

    async def _reopen(self, session_id: str) -> None:
        """Take a conversation up again, after saying what became of it."""
        chosen = await reopened(self, self.composer, session_id)
        if chosen is None:
            self.last_session = session_id
            self.leave(suspend=True)
            return
        self.hold(Session(chosen, self.runtime.control))

    def hold(self, session: Session) -> None:
        """Go on with this conversation."""
        self.session, self.last_session = session, session.id
        self.runs = [task for task in session.task.children if task.spec.kind == "background"]

    def forget_session(self) -> None:
        """Let go of the conversation without ending it."""
        self.session, self.last_session, self.runs = None, "", []

    def leave(self, code: int = 0, *, suspend: bool = False, detach: bool = False) -> None:
        """End reading. `suspend` leaves the tasks resumable, `detach` has them go on without this process."""
        busy = self.busy
        self._left, self._code, self._suspend = True, code, suspend or (detach and busy)
        self.detached = detach and busy
        if self.detached:
            self._note(commands_awaited(self))
        self._reading.cancel()

    def leave_later(self) -> None:
        """Leave once nothing runs any more; the next line stays."""
        self._waits = True
        self.screen.note("leaving when everything has ended; any line keeps you here")

    def handed_over(self) -> list[str]:
        """The sessions that go on without this process."""
        return [one.id for one in self.aside.busy] + ([self.last_session] if self.last_session else [])

    async def end_session(self) -> None:
        """End the conversation and stop its tasks; what they have is kept."""
        session, self.session = self.session, None
        if session is None:
            return
        going = session.running()
        with anyio.CancelScope(shield=True):
            await session.close()
            self.stops.tell(going)
            await mark_shown(self.runtime.store, [task.id for task in going], self.now())
        self.runs = []

    # -- what is going on -------------------------------------------------------------------------------------------

    @property
    def turn_runs(self) -> bool:
        """Whether the model of the conversation works, or has something to read."""
        return self.session is not None and not self.session.task.ended and self.session.busy

    def running(self) -> list[Task]:
        """Tasks of the conversation that have not ended, without itself."""
        return self.session.running() if self.session is not None else []

    @property
    def folder(self) -> str:
        """Where the conversation works: paths that a person names, and their own commands, are seen from there."""
        return self.session.task.spec.workspace if self.session is not None else self.workspace

    def status_line(self) -> str:
        """What stands in the status bar."""
        return status(self)

    def running_lines(self, width: int) -> list[str]:
        """What runs, here and beside, in lines of `width` columns."""
        return running_lines(self, width)

    @property
    def draft_of(self) -> str:
        """The session that what is typed belongs to; empty for one that has not begun."""
        return self.last_session or self._resume

    def find(self, which: str) -> Found:
        """A task of this conversation, by id or unique beginning."""
        if self.session is None:
            return Found(None)
        if self.session.task.id == which:
            return Found(self.session.task)
        return self.runtime.control.find(which, self.session.task.scope)

    def now(self) -> float:
        """Seconds since the epoch."""
        return self.runtime.clock.now()

    @property
    def busy(self) -> bool:
        """Whether a turn or a task runs, here or beside."""
        return self.turn_runs or bool(self.running() or self.aside.busy)

    def ring(self) -> None:
        """An answer is complete."""
        if self.assembly.settings.display.bell_on_complete:
            self.composer.bell()

    def refresh(self) -> None:
        """Bring prompt and status bar up to date; leave where that was put off until now."""
        if self._waits and not self.busy:
            self.leave()
        self.composer.refresh(self.questions.prompt or "> ", self.status_line())

    # -- lines ------------------------------------------------------------------------------------------------------

    async def submit(self, line: str) -> None:
        """Act on one line: the answer to a question, a command, or a message."""
        line = scrub_surrogates(line)
        text = line.strip()
        if not text:
            return
        self._waits = False
        parsed = parse(line.rstrip())
        own = text.startswith("!") and text != "!"
        if self.stops.asked == "quit" and (word := WAYS_OUT.get(text.lower())):
            self.stops.asked = ""
            await self._commands.quit(word)
            return
        if self.questions.take(text, command=bool(parsed.name or parsed.problem) or own):
            self.stops.asked = ""
            return
        if parsed.name != self.stops.asked:
            self.stops.asked = ""
        try:
            if parsed.problem:
                self.screen.note(parsed.problem)
            elif parsed.name:
                await self._commands.run(parsed)
            elif own:
                await self.own.run(text[1:], self.folder, os.environ)
            else:
                await self._take(text)
        except StoreError:
            raise
        except HermesError as error:
            self.screen.note(f"hermes: {error}")

    async def with_files(self, text: str) -> Content:
        """A message with the files that it names; its person is told which went along."""
        private, workspaces = str(self.assembly.home.root), str(self.assembly.workspaces.root)
        redact, sight = self.assembly.redactor.text, sight_of(self)
        found = await attached(text, self.folder, redact, private=private, workspaces=workspaces, sight=sight)
        self._note(found.notes)
        return found.content

    async def _take(self, text: str) -> None:
        """Send a line as a message. Ctrl+C may be pressed before it has arrived."""
        self.taking = True
        try:
            await self._message(await self.with_files(text))
        finally:
            self.taking = False
            self.stops.taken()

    async def _message(self, said: Content) -> None:
        if self.session is None:
            await self._open(said)
        elif not self.turn_runs:
            await self.session.say(said)
        elif self.busy_mode == "steer":
            await self.steer(said)
        else:
            if self.busy_mode == "interrupt":
                self.session.interrupt("the user wrote something new")
            await self.say(said)

    async def _open(self, goal: Content = ()) -> Session:
        said = without_files(plain_text(goal))
        spec = await in_worktree(self, said) if self.options.worktree else self.spec
        self.session = await self.runtime.open_session(msgspec.structs.replace(spec, goal=goal), source=self._source)
        return self.session

    async def say(self, said: Content) -> None:
        """Queue the next input."""
        if self.session is None:
            await self._open(said)
            return
        busy = self.turn_runs
        await self.session.say(said)
        if busy:
            self.screen.note("queued: it is read when this turn is over (/steer TEXT reaches it sooner)")
            self._note(waiting(self))

    async def steer(self, said: Content | str) -> None:
        """Correct the conversation; without a turn it is an ordinary message."""
        if self.session is None or not self.turn_runs:
            self.screen.note("no turn runs: sent as a message")
            await self._message((Text(said),) if isinstance(said, str) else said)
            return
        receipt = await self.runtime.control.steer(self.session.task, said)
        if receipt is None:
            raise OperatorError(f"session {self.session.id} has ended; the next line starts a new one")
        self.screen.note("the conversation reads this at its next step")
        self._note(waiting(self))

    async def start_background(self, prompt: str) -> tuple[int, Task]:
        """Start an independent run; returns its number and its task."""
        session = self.session or await self._open()  # before its folder is asked for
        spec, _ = conversation_spec(
            self.assembly,
            goal=prompt,
            interactive=False,
            workspace=self.folder,
            toolsets=self.toolsets,
            unattended=False,
        )
        task = await self.runtime.background(spec, session)
        self.runs.append(task)
        return len(self.runs), task

    # -- what comes from the runtime --------------------------------------------------------------------------------

    def _asked(self, question: Question) -> None:
        self.stops.asked = ""  # the next line answers what was asked last
        self.screen.question(question)

    def _typing(self, typing: bool) -> None:
        if self.session is not None:
            self.session.composing(typing)

    def _note(self, lines: Sequence[str]) -> None:
        for line in lines:
            self.screen.note(line)
