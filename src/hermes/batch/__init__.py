"""Batch runs: a file of prompts in, training rows out. Knows the runtime only through `rollout.Engine`."""
