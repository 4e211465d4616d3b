"""Tasks that compare the index files of segments with their logs, and rebuild the wrong files."""
