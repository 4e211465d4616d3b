"""Scenes under one start of a broker: each is a log directory of its own, with topics of its own.

A scene that needs a kill, a full disk, a cluster or settings of its own stays alone. ``tests/corpus/jbod.py`` has the
broker.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping
from pathlib import Path


def scene_of(log_dir: Path, target: Path, topics: Mapping[str, str]) -> Path:
    """Copy a log directory, and give its topics other names: in folders and in the checkpoints of the root.

    Args:
        log_dir: of one scene.
        target: where the copy is made.
        topics: name in the scene -> name before the broker.
    """
    shutil.copytree(log_dir, target)
    for old, new in topics.items():
        for folder in target.glob(f"{old}-[0-9]*"):
            folder.rename(target / f"{new}{folder.name.removeprefix(old)}")
    for path in target.glob("*-offset-checkpoint"):
        version, count, *lines = path.read_text().splitlines()
        named = [
            f"{topics.get(topic, topic)} {rest}" for topic, _, rest in (one.partition(" ") for one in lines)
        ]
        path.write_text("\n".join([version, count, *named]) + "\n")
    return target
