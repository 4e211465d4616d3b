"""The facts of a log, each worked out in one place from the columns of its batches, segment after segment."""
