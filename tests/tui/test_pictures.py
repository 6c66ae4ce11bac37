"""What the conversation looks like, held against kept pictures of text.

`PICTURES=write` takes them anew, to be looked at; `PICTURES=/some/folder` also puts SVG files there, with colours.
"""

from __future__ import annotations

import os
import re
import time
from pathlib import Path

import pytest

from hermes.core.messages import Usage
from hermes.testing.scripted import ScriptedModel, call, hang, reply
from hermes.tui.leave_screen import LeaveScreen
from tests.tui.hands import is_picture
from tests.tui.seat import Seat, seat

pytestmark = pytest.mark.anyio

ANSWER = """Three things stand out in **`parser.py`**:

1. the file is read *twice*
2. errors lose their line
3. nothing is ever closed

| function | lines | risk |
|---|---|---|
| `read` | 120 | high |
| `join` | 14 | low |

```python
def read(path: Path) -> str:
    return path.read_text(encoding="utf-8")
```

> Each child looks at one of them.
"""
#: What is never the same twice, by what stands for it: as long, so that nothing moves.
NEVER_THE_SAME = {
    r"\d{8}_\d{6}_[0-9a-f]{6}": "20260101_120000_abcdef",
    r"(async|bg)_[0-9a-f]{8}": r"\1_01234567",
    r"\b\d\.\ds": "1.0s",
    r"\b4m \d\ds": "4m 59s",
    r"\b5\dm \d\ds": "59m 59s",
    r"\d+\.\d ms late": "0.1 ms late",
}
#: A line with a time of ten seconds and more, as a busy machine takes.
WIDE = r"^.*\b\d{2}\.\ds.*$"


class BriefClock:
    """A clock that goes ever slower and never comes to its ninth second: the times it gives are all as wide."""

    def __init__(self) -> None:
        self._start = time.time()

    def now(self) -> float:
        passed = max(0.0, time.time() - self._start)
        return self._start + 9.0 * passed / (passed + 9.0)

    def hold(self) -> None: ...

    def release(self) -> None: ...


def _narrow(line: re.Match[str]) -> str:
    """The same line with times of one digit, its last wide gap as much wider as they are shorter."""
    text, times = re.subn(r"\b\d(\d\.\ds)", r"\1", line.group())
    return re.sub(r" {3,}(?!.* {3})", lambda gap: gap.group() + " " * times, text)


async def picture(at: Seat, name: str) -> None:
    """Wait until the screen is the kept picture of that name and size."""
    width, height = at.app.size

    def lines() -> list[str]:
        text = re.sub(WIDE, _narrow, at.text, flags=re.MULTILINE)
        for real, other in NEVER_THE_SAME.items():
            text = re.sub(real, other, text)
        return re.sub(r"[▂▃▄▅▆▇█▁ ]*$", "", text, flags=re.MULTILINE).splitlines()  # without the scroll bar

    await is_picture(f"{name}_{width}x{height}", lines, at.pilot)
    if "/" in (wish := os.environ.get("PICTURES", "")):
        svg = at.app.export_screenshot(title="hermes")
        (Path(wish) / f"{name}_{width}x{height}.svg").write_text(svg, encoding="utf-8")


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_the_conversation(tmp_path: Path, size: tuple[int, int]) -> None:
    spawn = reply(
        ANSWER,
        thinking="Where does the time go?",
        calls=[call("delegate_task_async", goal=f"look at {part}") for part in ("read", "join", "close")],
        usage=Usage(input=1_200, output=300, cost_usd=0.0123),
    )
    scripts = {"look at read": [hang()], "look at join": [hang()], "look at close": [reply("# Closed\n\nnothing is")]}
    model = ScriptedModel("m", [spawn, hang()], scripts=scripts)
    async with seat(model, tmp_path, size=size, workspace="/tmp", clock=BriefClock()) as at:
        await at.send("What is wrong with parser.py?")
        await at.until(lambda: model.in_flight == 3 and "✓ look at close" in at.text)
        await at.until(lambda: at.text.count("running model") == 2)
        at.screen.prompt.insert("and ")
        await picture(at, "chat")
        at.screen.prompt.text = ""
        await at.press("f7")
        await at.press(*"/st")
        await at.sees("/steer")
        await picture(at, "chat_choices")
        await at.press("escape")
        at.screen.prompt.text = ""
        await at.press("ctrl+q")
        await at.until(lambda: isinstance(at.app.screen, LeaveScreen))
        await picture(at, "leave")
        await at.press("escape")


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_a_question(tmp_path: Path, size: tuple[int, int]) -> None:
    dig = reply(calls=[call("delegate_task_async", goal="clean the build folder")])
    scripts = {"clean": [reply(calls=[call("terminal", command="rm -rf build/cache")]), reply("no")]}
    model = ScriptedModel("m", [dig, reply("A child does it."), reply("well")], scripts=scripts)
    async with seat(model, tmp_path, size=size, workspace="/tmp", clock=BriefClock()) as at:
        await at.send("Clean up, please.")
        await at.sees("wants terminal: rm -rf build/cache")
        await at.sees("counts as no in 4m ")
        await at.quiet()
        await at.sees("answered while 1 of its tasks still run")
        await picture(at, "question")
        at.screen._ask.grace = 0.0
        await at.until(lambda: at.screen._ask.takes("n", at.chat.now()))
        await at.press("n")
        await at.sees("well")


@pytest.mark.parametrize("size", [(80, 24), (160, 50)])
async def test_a_question_of_the_model(tmp_path: Path, size: tuple[int, int]) -> None:
    ask = reply(
        "There are two ways to go on.",
        calls=[
            call(
                "clarify",
                question="The parser reads each file twice. Shall I keep its public function `read` as it is, so that "
                "callers need no change, or rename it to what it does?\n\nИмя видно снаружи.",
                choices=["Keep `read`, change only the inside", "Rename it to `read_once`", "Ask the author first"],
            )
        ],
    )
    model = ScriptedModel("m", [ask, reply("I keep it.")])
    async with seat(model, tmp_path, size=size, workspace="/tmp", clock=BriefClock()) as at:
        await at.send("Make the parser faster.")
        await at.sees("it goes on alone in 5")
        await at.sees("1-3 chooses")
        await picture(at, "clarify")
        at.screen._ask.grace = 0.0
        await at.until(lambda: at.screen._ask.takes("1", at.chat.now()))
        await at.press("1")
        await at.sees("I keep it.")
        await at.sees("Keep `read`, change only the inside")
