"""Folders for tests that need no disk below them."""

from tests.ops.conftest import memory_dir

__all__ = ["memory_dir"]
