"""The only package that writes. Its interface is small, so that a test can record, fail or stop every call."""
