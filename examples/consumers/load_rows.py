"""Load the rows of a run with the `datasets` library (4.7 or newer): `python load_rows.py data/my_run`."""

import sys
from pathlib import Path

from datasets import load_dataset

from hermes.batch.export.features import features

run = Path(sys.argv[1])
# Without the columns the library guesses them from the first 10 MiB and fails on what comes later.
rows = load_dataset("json", data_files=str(run / "trajectories.jsonl"), split="train", features=features("sharegpt"))
print(rows)
print(rows[0]["conversations"][0])
