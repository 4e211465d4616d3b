"""The read-only view of a log directory: partitions, segments, settings, lock, fingerprints."""
