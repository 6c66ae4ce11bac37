"""What looks at a run from beside it: live transcripts, notifications, keeping and removing, results nobody saw.

Everything here reads the stream of events or the journal; no task waits for it, and a run is the same without it.
"""
