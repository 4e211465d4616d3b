"""The table of tasks names functions by words: each is there, and takes and gives what the table says."""

from __future__ import annotations

import inspect
from importlib.util import find_spec
from typing import Any

import msgspec

from krepair.pipeline import jobs
from krepair.pipeline.jobs import TASKS, Task

TABLE: dict[str, Task[Any, Any]] = {
    name: value for name, value in vars(jobs).items() if isinstance(value, Task)
}


def test_every_task_of_the_table_can_be_sent_to_a_worker() -> None:
    assert TABLE
    assert [TASKS[task.name] for task in TABLE.values()] == list(TABLE.values())


def test_tasks_are_functions_of_the_modules_that_are_named_and_of_the_types_that_are_written() -> None:
    for name, task in TABLE.items():
        module, _, function = task.where.partition(":")
        # Below the pipeline by construction; not something that the module itself has from elsewhere.
        assert find_spec(f"krepair.pipeline.{module}") is not None, name
        assert (task.run.__module__, task.run.__name__) == (f"krepair.pipeline.{module}", function)
        # Where the item's log directory is opened for a function, that is its second argument.
        assert list(inspect.signature(task.run).parameters)[1:] in ([], ["tree"]), name
        assert jobs.__annotations__[name] == f"Task[{task.item.__name__}, {task.result.__name__}]"


def test_what_travels_for_a_task_can_be_read_back() -> None:
    for name, task in TABLE.items():
        for kind in (task.item, task.result):
            assert issubclass(kind, msgspec.Struct), name
            msgspec.msgpack.Decoder(kind)


def test_an_item_says_how_much_its_task_reads_and_a_person_is_told_in_a_word_or_two() -> None:
    for name, task in TABLE.items():
        assert isinstance(getattr(task.item, "bytes_to_read", None), property), name
        assert 0 < len(task.shown.split()) <= 2, name
