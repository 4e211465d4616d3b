"""Facts of a log, each derived in one place from the columns of its batches, segment after segment."""
