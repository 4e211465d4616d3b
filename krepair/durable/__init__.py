"""The only package that writes: one small interface, so that a test can record, fail or stop any call."""
