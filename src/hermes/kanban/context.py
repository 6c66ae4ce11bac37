"""What a worker is told of its card, as one Markdown text: the card, what it builds on, what was tried and said before.

This is how the result of one card reaches the next. Every part has a limit, so that a long history never crowds out the
task; what is cut says so. Other people's words stand as quotations: they inform, they do not command.
"""

from __future__ import annotations

from datetime import UTC, datetime

from hermes.kanban.card import Run
from hermes.kanban.reading import CardView, Related

__all__ = ["news", "uncommitted", "worker_context"]

ATTEMPTS, COMMENTS = 10, 30
#: Bytes of UTF-8.
FIELD, BODY, COMMENT = 4096, 8192, 2048


def cut(text: str | None, limit: int) -> str:
    """Return at most `limit` bytes of a text; a cut one ends with how much is missing."""
    data = (text or "").strip().encode()
    if len(data) <= limit:
        return data.decode()
    return f"{data[:limit].decode(errors='ignore').rstrip()} [… {len(data) - limit} bytes more]"


def _time(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _quoted(text: str) -> str:
    return "\n".join(f"> {line}".rstrip() for line in text.splitlines()) or "> (nothing)"


def worker_context(view: CardView, *, workspace: str | None = None) -> str:
    """Return the text for the worker of a card; `workspace` is the folder it works in."""
    card = view.task
    parts = [f"# Card {card.id}: {card.title}"]
    if card.step == "review":
        parts.append(
            "You review this card: judge the result below. Complete it if it is good, else request changes and say "
            "exactly what is missing. Do not do the work yourself."
        )
    parts.append(cut(card.body, BODY) or "(no description)")
    if card.acceptance:
        parts.append(f"## Done when\n\n{cut(card.acceptance, FIELD)}")
    if card.check_command:
        parts.append(
            f"## Check\n\nOn completion this is run in the workspace and has to succeed:\n\n"
            f"    {cut(card.check_command, FIELD)}"
        )
    if card.skills:
        named = cut(", ".join(card.skills), FIELD)
        parts.append(f"## Skills\n\nThe card names skills that are not loaded here; work without them: {named}")
    where = [f"- kind: {card.workspace_kind}"]
    if workspace or card.workspace_path:
        where.append(f"- folder: {workspace or card.workspace_path}")
    if card.branch_name:
        where.append(f"- branch: {card.branch_name}")
    parts.append("## Workspace\n\n" + "\n".join(where))
    if card.step == "review" and card.result:
        parts.append(f"## Result to review\n\n{_quoted(cut(card.result, FIELD))}")
    needed = [_parent(parent) for parent in view.parents]
    if needed:
        parts.append("## Results it builds on\n\n" + "\n\n".join(needed))
    ended = [run for run in view.runs if run.ended_at is not None][-ATTEMPTS:]
    if ended:
        parts.append("## Earlier attempts\n\n" + "\n".join(_attempt(run) for run in ended))
    said = view.comments[-COMMENTS:]
    if said:
        more = len(view.comments) - len(said)
        told = [
            f"{comment.author}, {_time(comment.created_at)}:\n{_quoted(cut(comment.body, COMMENT))}" for comment in said
        ]
        if more:
            told.insert(0, f"({more} older ones are not shown)")
        parts.append("## Comments\n\n" + "\n\n".join(told))
    if view.attachments:
        files = [f"- {each.name} ({each.size:,} bytes, {each.media_type})" for each in view.attachments]
        parts.append("## Attachments\n\n" + "\n".join(files))
    return "\n\n".join(parts) + "\n"


def news(view: CardView, *, since: float, why: str) -> str:
    """What a worker is told that goes on with a card where it stood: `why` it goes on, and what was said meanwhile."""
    said = [comment for comment in view.comments if comment.created_at >= since][-COMMENTS:]
    parts = [f"You go on with card {view.task.id}. {why}".strip()]
    parts += [f"{each.author}, {_time(each.created_at)}:\n{_quoted(cut(each.body, COMMENT))}" for each in said]
    return "\n\n".join(parts)


def _parent(parent: Related) -> str:
    branch = f", branch {parent.branch_name}" if parent.branch_name else ""
    head = f"{parent.id} ({parent.status}{branch}): {parent.title}"
    return f"{head}\n{_quoted(cut(parent.result or parent.summary, FIELD))}"


def uncommitted(run: Run) -> str:
    """The files that a run left uncommitted in its worktree, as a list in words; empty for none."""
    left = (run.metadata or {}).get("uncommitted")
    return cut(", ".join(map(str, left)), FIELD) if isinstance(left, list) else ""


def _attempt(run: Run) -> str:
    ended = _time(run.ended_at) if run.ended_at is not None else "now"
    what = cut(run.error or run.summary, FIELD)
    commit = f", commit {run.git_commit}" if run.git_commit else ""
    left = uncommitted(run)
    loose = f"; left uncommitted in the folder: {left}" if left else ""
    line = f"- {run.attempt}. {run.profile or 'nobody'}, {ended}: {run.outcome}{commit}{loose}"
    return f"{line}\n{_quoted(what)}" if what else line
