"""The journal: what stands before anything acts on it, on disk or in memory, and who owns a task.

It stores rows and bytes and knows no task, model or screen.
"""
