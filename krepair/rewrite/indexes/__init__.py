"""Index files of segments: examined, rebuilt from the log, and compared with it."""
