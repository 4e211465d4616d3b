"""Scenes of ``make torture`` for tests that place many copies of one."""

from __future__ import annotations

import functools

from tools.torture.scenes import Scene, build


@functools.cache
def built(name: str) -> Scene:
    """A scene of ``make torture``; made once in a process, since each test gets a copy from its ``place``."""
    return build(name)
