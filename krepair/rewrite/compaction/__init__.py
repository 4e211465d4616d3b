"""Key compaction: which records are kept, the new logs, and an independent implementation that verifies them."""
