#!/usr/bin/env bash
# Serve a run to Atropos 0.4.0. It listens everywhere by default and asks for no password: keep it on this machine.
set -euo pipefail
run=${1:?the name of a run} tokenizer=${2:?the folder of the tokenizer of the model to be trained}
run-api --host 127.0.0.1 --port 8000 &
# Start the trainer now; groups are sent once it is there.
hermes batch export "$run" --to atropos --tokenizer "$tokenizer" --score-default 0 --push http://127.0.0.1:8000
# Or let the replay environment serve trajectories.jsonl itself:
#   python -m hermes.batch.export.replay serve --env.trajectories "data/$run/trajectories.jsonl" \
#     --env.tokenizer_name "$tokenizer" --env.group_size 4 --slurm=false
