"""What stands before every killed run."""

from __future__ import annotations

PREFACE = """
from pathlib import Path
from tools.torture import faults
faults.start_again(["-c", Path("/proc/self/cmdline").read_bytes().split(b"\\0")[2].decode()])
from tools.torture.runs import *
from tools.torture.scenes import *
runner, work = Runner(), memory_or(None)
"""
