"""How long the lab waits for a broker, a client or another process: longer than a slow machine beside other work needs.

A limit costs nothing while all goes well. What takes a second here had limits of 20 to 60 seconds; a machine that did
ten other things at once met them now and then.
"""

from __future__ import annotations

import time

LIMIT_S = 240
"""For all that comes; below the time that a whole test may take."""


def wait_for(condition: object, timeout_s: float = LIMIT_S, step_s: float = 0.05) -> None:
    """Wait until a callable gives a true value.

    Raises:
        TimeoutError: it did not in time.
    """
    assert callable(condition)
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not so within {timeout_s} s")
        time.sleep(step_s)
