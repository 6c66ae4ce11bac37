"""`openai` rows through TRL's chat templates and one training step: run in an environment that has trl and torch."""

from __future__ import annotations

import json
import sys
from importlib.resources import files
from pathlib import Path

from datasets import load_dataset
from tokenizers_here import make
from transformers import Qwen2Config, Qwen2ForCausalLM
from trl import SFTConfig, SFTTrainer

from hermes.batch.export.features import features


def main(folder: Path) -> None:
    template = files("trl").joinpath("chat_templates/qwen3_training.jinja").read_text()
    tokenizer = make(folder / "tokenizer", template)
    rows = load_dataset(
        "json",
        data_files=str(folder / "openai.jsonl"),
        split="train",
        features=features("openai"),
        cache_dir=str(folder / "cache-trl"),
    )
    calling = [row for row in rows if any(message.get("tool_calls") for message in row["messages"])]
    assert len(calling) == 24, len(calling)
    for row in calling:
        text = tokenizer.apply_chat_template(row["messages"], tools=json.loads(row["tools"]), tokenize=False)
        for message in row["messages"]:
            for call in message.get("tool_calls") or ():
                wanted = json.dumps(call["function"]["arguments"], ensure_ascii=False)
                assert f'"arguments": {wanted}' in text, (wanted, text[-2000:])
            if message["role"] == "tool":
                assert message["content"] in text
    print(f"trl: every call and result of {len(calling)} rows is printed, arguments as objects")
    few = rows.select(range(len(rows) - 24, len(rows)))
    trainer = _trainer(folder, tokenizer, few)
    batch = trainer.data_collator([trainer.train_dataset[0]])
    labels = [int(token) for token in batch["labels"][0] if token != -100]
    trained = tokenizer.decode(labels)
    assert "<tool_response>" not in trained, trained
    assert "I will look." in trained and "terminal" in trained and "done" in trained, trained
    assert "task" not in trained, "the question is trained"
    trainer.train()
    print(f"trl: one step on assistant turns alone, {len(labels)} trained tokens in the first row")


def _trainer(folder: Path, tokenizer, rows) -> SFTTrainer:
    config = Qwen2Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
    )
    arguments = SFTConfig(
        output_dir=str(folder / "out"),
        max_steps=1,
        per_device_train_batch_size=1,
        assistant_only_loss=True,
        max_length=None,
        report_to=[],
        use_cpu=True,
        save_strategy="no",
    )
    return SFTTrainer(
        Qwen2ForCausalLM(config),
        args=arguments,
        train_dataset=rows.select_columns(["messages", "tools"]),
        processing_class=tokenizer,
    )


if __name__ == "__main__":
    main(Path(sys.argv[1]))
