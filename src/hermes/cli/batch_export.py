"""`hermes batch export`, `merge` and `report`: other files from the records of a run, without a model call. Reads
flags and prints counts; the work is done by `hermes.batch.export` and `hermes.batch.again`."""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any, Literal, cast

import anyio
import click
import msgspec

from hermes.batch.again import merge_again
from hermes.batch.export.groups import GroupOptions
from hermes.batch.export.job import FORMATS, ExportOptions, ExportReport, export_run
from hermes.batch.export.push import push_groups
from hermes.batch.export.source import RunSource, open_run
from hermes.batch.filter_settings import FILTERS, filter_settings
from hermes.cli.batch_cmd import data_dir_of
from hermes.core.codec import encode_json
from hermes.core.errors import UsageError

__all__ = ["export", "merge", "report"]

_SUFFIX = {"parquet": "parquet"}
#: Formats that are no lines of text, or have other files beside theirs.
_OF_SEVERAL_FILES = ("parquet", "llamafactory", "atropos")

_EXPORT_EXAMPLES = """\b
Examples:
  hermes batch export first --to openai --out - | head -n 1
  hermes batch export first --to sharegpt --arguments json --out rows.jsonl
  hermes batch export first --to atropos --tokenizer ./qwen --push http://127.0.0.1:8000
"""


@click.command(epilog=_EXPORT_EXAMPLES)
@click.argument("run_name", metavar="RUN")
@click.option("--to", "format_name", metavar="FORMAT", required=True, help=f"One of: {', '.join(FORMATS)}.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="The file (RUN/export/FORMAT.jsonl); - is stdout."
)
@click.option(
    "--arguments", type=click.Choice(["object", "json"]), default="object", help="Calls in sharegpt (object)."
)
@click.option(
    "--think", type=click.Choice(["keep", "drop"]), default="drop", help="Reasoning before calls, llamafactory."
)
@click.option("--tokenizer", metavar="FOLDER", help="Tokenizer of the model to be trained, for atropos.")
@click.option("--chat-template", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="Template file.")
@click.option("--max-token-len", type=click.IntRange(min=1), metavar="N", help="Drop groups with a longer sequence.")
@click.option("--score-default", type=float, metavar="NUMBER", help="Score of rollouts without one.")
@click.option(
    "--filtered",
    type=click.Choice(["negative", "drop_group"]),
    default="negative",
    help="Rejected rollouts in groups: negatives with --filtered-score, or their group goes.",
)
@click.option("--filtered-score", type=float, default=0.0, metavar="NUMBER", help="Score of such negatives (0).")
@click.option("--min-gap", type=float, default=0.0, metavar="NUMBER", help="Least difference of scores of a dpo pair.")
@click.option("--push", "url", metavar="URL", help="Send atropos groups to a running server as well.")
@click.option("--json", "as_json", is_flag=True, help="Print the report as JSON.")
@click.pass_context
def export(context: click.Context, /, run_name: str, format_name: str, out: Path | None, **given: Any) -> None:
    """Write the kept rows of a run for a loader or trainer.

    Groups (dpo, atropos) take the rejected rollouts too, as negatives. What a format cannot hold is counted and
    printed. Needs only the run's folder; RUN may be a path.
    """
    source = open_run(data_dir_of(context), run_name)
    url, as_json = given.pop("url"), given.pop("as_json")
    if url and format_name != "atropos":
        raise UsageError("--push sends groups of token ids: it goes with --to atropos.")
    if out == Path("-"):
        if url or format_name in _OF_SEVERAL_FILES:
            raise UsageError(f"--out - is for rows as lines of JSON: {format_name} needs a file.")
        return _to_stdout(source, format_name, given, as_json)
    suffix = _SUFFIX.get(format_name, "jsonl")
    path = out or source.folder.path / "export" / f"{format_name}.{suffix}"
    report = export_run(source, format_name, path, _export_options(given))
    click.echo(_json(report) if as_json else "\n".join(_lines(report)))
    if url:
        sent = anyio.run(lambda: push_groups(path, url, name=source.meta.run_name))
        told = encode_json(sent).decode() if as_json else f"sent {sent.sent} groups to {url}, {sent.no_signal} left out"
        click.echo(told)


def _to_stdout(source: RunSource, format_name: str, given: dict[str, Any], as_json: bool) -> None:
    """Rows on stdout, the report on stderr. Nothing is printed before all rows are made."""
    with tempfile.TemporaryDirectory() as place:
        path = Path(place) / "rows.jsonl"
        report = msgspec.structs.replace(export_run(source, format_name, path, _export_options(given)), path=Path("-"))
        out = sys.stdout.buffer  # UTF-8, whatever the terminal shows: it is a file that is printed
        with path.open("rb") as file:
            shutil.copyfileobj(file, out)
        out.flush()
    click.echo(_json(report) if as_json else "\n".join(_lines(report)), err=True)


def _export_options(given: dict[str, Any]) -> ExportOptions:
    groups = GroupOptions(
        filtered=cast(Literal["negative", "drop_group"], given["filtered"]),
        filtered_score=given["filtered_score"],
        score_default=given["score_default"],
    )
    return ExportOptions(
        arguments=cast(Literal["object", "json"], given["arguments"]),
        think=given["think"] == "keep",
        groups=groups,
        min_gap=given["min_gap"],
        tokenizer=given["tokenizer"],
        chat_template=given["chat_template"],
        max_token_len=given["max_token_len"],
    )


def _json(report: ExportReport) -> str:
    return encode_json(msgspec.to_builtins(report, enc_hook=str)).decode()  # paths are no JSON


def _lines(report: ExportReport) -> list[str]:
    beside = "".join(f"\n  beside it: {path.name}" for path in report.beside)
    losses = [f"  {count:>6} × {what}" for what, count in report.losses.items()]
    return [f"{report.rows} rows of {report.format} in {report.path}{beside}", *losses]


@click.command(epilog="\b\nExamples:\n  hermes batch merge first --filters default,duplicate,refused\n")
@click.argument("run_name", metavar="RUN")
@click.option("--filters", "names", metavar="NAMES", help=f"Of: {', '.join(FILTERS)}, default, all, none.")
@click.option("--max-row-tokens", type=int, metavar="N", help="Bound of the filter too_long (32768).")
@click.option("--json", "as_json", is_flag=True, help="Print the counts as JSON.")
@click.pass_context
def merge(context: click.Context, run_name: str, names: str | None, max_row_tokens: int | None, as_json: bool) -> None:
    """Make the merged files of a run anew, with other filters if any are given.

    Asks no model and runs nothing: rows move between trajectories.jsonl and rejected.jsonl, and back again.
    """
    if max_row_tokens is not None and (names is None or "too_long" not in names):
        names = f"{names or 'default'},too_long"
    chosen = None if names is None else filter_settings((item.strip() for item in names.split(",")), max_row_tokens)
    tally, pending = merge_again(data_dir_of(context), run_name, chosen)
    counts = {
        "kept": tally.kept,
        "rejected": dict(sorted(tally.rejected.items())),
        "failed": dict(sorted(tally.failed.items())),
        "pending": pending,
    }
    if as_json:
        click.echo(msgspec.json.encode(counts).decode())
        return
    for what in ("rejected", "failed"):
        for reason, count in sorted(getattr(tally, what).items()):
            click.echo(f"{what} {count}: {reason}")
    rejected, failed = tally.rejected.total(), tally.failed.total()
    total = tally.kept + rejected + failed + pending
    click.echo(f"kept {tally.kept} rejected {rejected} failed {failed} pending {pending} of {total}")


@click.command(epilog="\b\nExamples:\n  hermes batch report first\n")
@click.argument("run_name", metavar="RUN")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.pass_context
def report(context: click.Context, run_name: str, as_json: bool) -> None:
    """Make report.html of a run again and print its path.

    The page shows counts, plots and the first conversations; it loads nothing from elsewhere. Every run that ends makes
    it too.
    """
    data_dir = data_dir_of(context)
    merge_again(data_dir, run_name, None)
    path = str((data_dir / run_name / "report.html").absolute())
    click.echo(encode_json({"run_name": run_name, "path": path}).decode() if as_json else path)
