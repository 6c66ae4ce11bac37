"""The runtime: the one place where tasks are spawned, run, watched and ended.

Knows the core and the adapters; knows no feature and no face.
"""
