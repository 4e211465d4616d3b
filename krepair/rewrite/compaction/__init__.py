"""Key compaction: which records stay, the new logs, and an independent implementation that verifies them."""
