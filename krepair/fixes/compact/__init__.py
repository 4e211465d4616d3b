"""Fix ``compact``: key compaction of partitions whose cleaner makes no progress."""
