"""Fixes: for each ``--fix``, its findings, its planned changes, and the code that makes and verifies these changes."""
