"""`manifest.json`: what a run's files are, complete in itself, so that they can be read and exported on another machine
years later. A fold over the run's record; holds no secret and no path of the machine."""

from __future__ import annotations

import platform
from collections import Counter
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec

from hermes.batch.folder import RunFolder, RunMeta, replace_file
from hermes.batch.record import Record
from hermes.batch.settings import routing
from hermes.core.codec import encode_json

__all__ = ["ManifestFold", "write_manifest"]

#: Number of the layout of a manifest.
SCHEMA = 1


class ManifestFold:
    """Adds up what the manifest says of the rollouts: models that really answered, and how often each toolset was
    drawn."""

    def __init__(self) -> None:
        self.models: Counter[str] = Counter()
        self.toolsets: Counter[str] = Counter()
        self.draws: Counter[tuple[str, ...]] = Counter()

    def add(self, record: Record) -> None:
        """Take one record in."""
        if record.result.model:
            self.models[record.result.model] += 1
        self.toolsets.update(record.toolsets)
        self.draws[record.toolsets] += 1


def write_manifest(folder: RunFolder, meta: RunMeta, fold: ManifestFold, tools: list[str]) -> None:
    """Replace the run's manifest.

    Raises:
        StoreFull, OperatorError: it could not be written; the old one stands.
    """
    settings = meta.settings
    sampling = {
        name: getattr(settings, name)
        for name in ("temperature", "top_p", "seed", "max_tokens", "max_turns", "reasoning_effort")
    }
    content: dict[str, Any] = {
        "schema": SCHEMA,
        "run_name": meta.run_name,
        "created_at": meta.created_at,
        "hermes": version("hermes-tasktree"),
        "python": platform.python_version(),
        "dataset": {"name": Path(settings.dataset_file).name, "rows_sha256": meta.sessions[-1].dataset},
        "model": settings.model,
        "models_used": dict(fold.models.most_common()),
        "sampling": sampling,
        "distribution": settings.distribution,
        "distribution_table": meta.table,
        "routing": routing(settings),
        "toolsets_drawn": dict(sorted(fold.toolsets.items())),
        "draws": [{"toolsets": list(names), "rollouts": count} for names, count in fold.draws.most_common(100)],
        "tools": tools,
        "rollouts_per_prompt": settings.rollouts_per_prompt,
        "prices": meta.sessions[-1].prices,
        "filters": msgspec.to_builtins(meta.filters),
        # Token ids and log-probabilities come from an engine that serves the weights; hosted endpoints give neither.
        "on_policy": False,
    }
    replace_file(folder.path / "manifest.json", [msgspec.json.format(encode_json(content), indent=2) + b"\n"])
