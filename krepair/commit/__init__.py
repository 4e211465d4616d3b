"""Crash-safe commit, undo, resume and purge of staged changes, one partition at a time.

All renames follow the order of the commit protocol (docs/crash-safety.md), which was tested at every rename with the
loaders of six Kafka versions. This package also contains the journal, the recovery guard, and the checks of a
folder in which a run was interrupted or a broker was started in between.
"""
