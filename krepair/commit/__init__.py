"""Crash-safe commit, undo, resume and purge of staged changes, one partition at a time.

The order of every rename is the proven one of the commit protocol (see the docs); this package adds the journal, the
fence, and the reading of what an interrupted run, or a broker that was started in between, has left.
"""
