"""Function as a worker calls it: function, item and result are pickled on the way."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, TypeVar, TypeVarTuple

from krepair.engine.items import Failed

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")


def travelled(function: Callable[[*Arguments], Result], *item: *Arguments) -> Result:
    """What comes back."""
    there: tuple[Callable[..., Any], Any] = pickle.loads(pickle.dumps((function, item)))
    result: Result = pickle.loads(pickle.dumps(there[0](*there[1])))
    return result


def failure_of(result: object) -> str:
    """Kind of failure, empty if a function gave what it was asked for."""
    return result.kind if isinstance(result, Failed) else ""
