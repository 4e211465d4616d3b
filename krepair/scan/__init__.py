"""Reading of logs and index files: the scan on which all fixes base their decisions, and the reader of records."""
