"""From the lossless records of a run to the files that loaders and trainers read.

`conversation` turns a record into chat messages; `source` streams the records of a run, singly or by group. Each format
is a module with one pure function from records to rows: `sharegpt`, `tags` (the Hermes format), `openai`,
`llamafactory`, `dpo`, `atropos`, `trees`, `parquet`. `job` runs one export and writes its files. `features` describes
the columns for the loaders of datasets. Nothing here needs a home, a key, a network or a model; nothing filters again:
what was kept and rejected is read from the run.
"""
