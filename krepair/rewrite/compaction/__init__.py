"""Key compaction: which records stay, the new logs, and a second implementation that proves them."""
