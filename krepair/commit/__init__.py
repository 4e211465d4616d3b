"""Crash-safe commit, undo, resume and purge of staged changes, one partition at a time.

The order of all renames is that of the commit protocol (see the docs), which was tested at every rename with loaders
of six Kafka versions. This package also has the journal, the fence, and the examination of a folder in which a run was
interrupted, or in which a broker was started in between.
"""
