"""The only package that changes files. Its interface is small, so that a test can record, fail or stop every call."""
