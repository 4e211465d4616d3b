"""Read-only views of logs: records, groups, transactions."""
