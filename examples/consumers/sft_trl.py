"""Fine-tune with TRL on the assistant's turns: `python sft_trl.py data/my_run/export/openai.jsonl MODEL`."""

import sys

from datasets import load_dataset
from trl import SFTConfig, SFTTrainer

from hermes.batch.export.features import features

path, model = sys.argv[1:3]
rows = load_dataset("json", data_files=path, split="train", features=features("openai"))
trainer = SFTTrainer(
    model,
    args=SFTConfig(output_dir="out", assistant_only_loss=True, report_to=[]),
    train_dataset=rows.select_columns(["messages", "tools"]),
)
trainer.train()
