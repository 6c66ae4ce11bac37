"""Every row that the `datasets` library loads is the row that was written: run in an environment that has it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import datasets

from hermes.batch.export.features import features


def rows(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def main(folder: Path) -> None:
    cache = str(folder / f"cache-{datasets.__version__}")
    tools = json.loads((folder / "big" / "manifest.json").read_text())["tools"]
    untyped = hasattr(datasets, "Json")
    jobs = [("typed.jsonl", "typed")]
    if untyped:
        jobs += [(f"{name}.jsonl", name) for name in ("sharegpt", "hermes", "openai", "trees")]
    for name, kind in jobs:
        path = folder / name
        wanted = rows(path)
        columns = features(kind, tools)
        loaded = datasets.load_dataset("json", data_files=str(path), split="train", features=columns, cache_dir=cache)
        assert len(loaded) == len(wanted), (name, len(loaded), len(wanted))
        for number, (got, want) in enumerate(zip(loaded, wanted, strict=True)):
            assert got == want, f"{name}:{number + 1}\n got {str(got)[:600]}\nwant {str(want)[:600]}"
        print(f"datasets {datasets.__version__}: {len(wanted)} rows of {name} equal")
    table = datasets.load_dataset("parquet", data_files=str(folder / "typed.parquet"), split="train", cache_dir=cache)
    for got, want in zip(table, rows(folder / "typed.jsonl"), strict=True):
        assert got["conversations"] == want["conversations"]
    print(f"datasets {datasets.__version__}: {len(table)} rows of typed.parquet equal")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
