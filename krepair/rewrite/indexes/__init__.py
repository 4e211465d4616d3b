"""Index files of segments: looked at, made anew from the log, and held against it."""
