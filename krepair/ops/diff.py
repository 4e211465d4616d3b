"""``krepair diff``: compare two plans for one log directory. It opens no file.

Plans are compared field by field in the form of their files, so that fields of a later version are compared too.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal, NamedTuple

import msgspec
from msgspec import UNSET, Struct

from krepair.errors import ExitCode, UsageError
from krepair.formats.words import count_text, names_text, time_text
from krepair.options import Options
from krepair.plan.model import PartitionPlan, Plan, Preview, RootPlan
from krepair.plan.planfile import spelled_out
from krepair.plan.view import asked_horizon, horizon_text, size_text
from krepair.rules.reasons import reason_text

PlaceOf = Literal["both", "first", "second"]

_SHOWN_LETTERS: Final = 100
_COMPARED_SEPARATELY: Final = frozenset({"partitions", "root", "policy", "digest", "plan_id", "preview"})
"""Fields of a plan that are compared separately, or that follow from the other fields."""
_ONLY_ASKED: Final = ("config", "topic_config", "settings", "topics", "partitions")
"""Options with which a plan was made that are not in its policy."""
_NOT_IN_A_PREVIEW: Final = frozenset({"commit"})
"""Fields of a plan that cannot be known while a broker is running."""
_FACTS_AND_TEXTS: Final = frozenset(
    {
        "files",
        "high_watermark",
        "log_start_offset",
        "log_end_offset",
        "log_bytes_before",
        "log_bytes_after",
        "span",
        "horizons",
        "notes",
        "why",
        "next_command",
    }
)
"""Facts and texts about a partition that do not affect what apply does."""
_DECIDED: Final = frozenset({"status", "code", "kept_last", "keeper"})
_NAMED_BY: Final = ("name", "reason", "code", "key", "base_offset")
_SETTINGS: Final = "settings"


class Difference(Struct, frozen=True, kw_only=True):
    """One field whose value differs.

    Attributes:
        what: field path, with dots between the levels.
        first: short text of the value in the first plan, empty if there is none.
        second: short text of the value in the second plan, empty if there is none.
        label: name of the field in plain words.
        before: value in the first plan with its unit; empty if there is none, or if only the fact that it differs
            matters.
        after: value in the second plan with its unit, likewise.
    """

    what: str
    first: str
    second: str
    label: str = ""
    before: str = ""
    after: str = ""


class ChangeDiff(Struct, frozen=True, kw_only=True):
    """One change that differs between the plans.

    Attributes:
        change_id: id of the change, the same in both plans.
        where: the plan or plans that have the change.
        differences: differing fields, if both plans have the change.
    """

    change_id: str
    where: PlaceOf
    differences: tuple[Difference, ...] = ()


class PartitionDiff(Struct, frozen=True, kw_only=True):
    """One partition that differs between the plans.

    Attributes:
        folder: folder of the partition, ``.`` for the files in the root.
        where: the plan or plans that have the partition.
        decisions_same: True if both plans have the partition and make the same changes, with the same decisions.
        only_seen: True if all figures are the same too, so that only notes or facts (sizes, times, offsets) differ.
        differences: differing fields, except those of its changes.
        changes: the changes that differ, by id.
    """

    folder: str
    where: PlaceOf
    decisions_same: bool = False
    only_seen: bool = False
    differences: tuple[Difference, ...] = ()
    changes: tuple[ChangeDiff, ...] = ()


class PlanDiff(Struct, frozen=True, kw_only=True):
    """Differences between two plans.

    Attributes:
        log_dir: path of the log directory that both plans are for.
        first: digest of the first plan.
        second: digest of the second plan.
        differences: differences in clock, options, settings, sums and risks.
        partitions: the partitions that differ, by folder.
        same_partitions: number of partitions that are equal.
        same_decisions: number of differing partitions whose decisions are the same.
        only_seen: number of partitions with the same decisions whose figures are the same too; see ``PartitionDiff``.
        previews: plans made while a broker was running; their order of commit was unknown and is not compared.
    """

    log_dir: str
    first: str
    second: str
    differences: tuple[Difference, ...] = ()
    partitions: tuple[PartitionDiff, ...] = ()
    same_partitions: int = 0
    same_decisions: int = 0
    only_seen: int = 0
    previews: tuple[Literal["first", "second"], ...] = ()

    @property
    def exit_code(self) -> ExitCode:
        """DONE if the plans are the same, else FOUND."""
        return ExitCode.DONE if self.same else ExitCode.FOUND

    @property
    def same(self) -> bool:
        """True if the plans do not differ."""
        return not (self.differences or self.partitions)


def diff_plans(first: Plan, second: Plan) -> PlanDiff:
    """Compare two plans.

    Raises:
        UsageError: the plans are for different hosts or directories.
    """
    if (first.host, first.log_dir) != (second.host, second.log_dir):
        raise UsageError(
            f"these are plans of two directories: {first.host}:{first.log_dir} and {second.host}:{second.log_dir}"
        )
    before, after = _parts(first), _parts(second)
    previews: list[Literal["first", "second"]] = []
    previews += ["first"] if isinstance(first.preview, Preview) else []
    previews += ["second"] if isinstance(second.preview, Preview) else []
    unknown = _NOT_IN_A_PREVIEW if previews else frozenset()
    folders = sorted({*before, *after})
    differing = [
        partition
        for folder in folders
        if (partition := _partition(folder, before.get(folder), after.get(folder))) is not None
    ]
    return PlanDiff(
        log_dir=second.log_dir,
        first=first.digest,
        second=second.digest,
        differences=tuple(_differences(_heads(first, unknown), _heads(second, unknown))),
        partitions=tuple(differing),
        same_partitions=len(folders) - len(differing),
        same_decisions=sum(partition.decisions_same for partition in differing),
        only_seen=sum(partition.only_seen for partition in differing),
        previews=tuple(previews),
    )


def _parts(plan: Plan) -> dict[str, PartitionPlan | RootPlan]:
    parts: dict[str, PartitionPlan | RootPlan] = {
        partition.folder: partition for partition in plan.partitions
    }
    return parts if plan.root is None else parts | {".": plan.root}


def _heads(plan: Plan, unknown: frozenset[str]) -> dict[str, Any]:
    """Return the plan's fields without its partitions, on one level, without the ``unknown`` fields."""
    fields = {
        name: spelled_out(getattr(plan, name))
        for name in plan.__struct_fields__
        if name not in _COMPARED_SEPARATELY | unknown and getattr(plan, name) is not UNSET
    }
    policy: dict[str, Any] = spelled_out(plan.policy)
    options = Options.of_words(plan.asked)
    fields["asked"] = {name: msgspec.to_builtins(getattr(options, name)) for name in _ONLY_ASKED}
    if "commit" in fields:
        fields["commit"].pop("looked_at", None)  # a digest of files, not a decision
    settings = {
        topic or "broker": {setting["key"]: setting["value"] for setting in members}
        for topic, members in policy.pop("settings").items()
    }
    return fields | policy | {_SETTINGS: settings}


def _partition(
    folder: str, first: PartitionPlan | RootPlan | None, second: PartitionPlan | RootPlan | None
) -> PartitionDiff | None:
    """Compare one partition of both plans; return None if it is the same."""
    if first is None or second is None:
        return PartitionDiff(folder=folder, where="second" if first is None else "first")
    if first == second:
        return None
    before, after = spelled_out(first), spelled_out(second)
    changes = tuple(_changes(before.pop("changes"), after.pop("changes")))
    fields = {name for name in {*before, *after} if before.get(name) != after.get(name)}
    same = not changes and not fields & _DECIDED
    return PartitionDiff(
        folder=folder,
        where="both",
        decisions_same=same,
        only_seen=same and fields <= _FACTS_AND_TEXTS,
        differences=tuple(_differences(before, after)),
        changes=changes,
    )


def _changes(first: Sequence[Mapping[str, Any]], second: Sequence[Mapping[str, Any]]) -> Iterator[ChangeDiff]:
    before = {change["change_id"]: change for change in first}
    after = {change["change_id"]: change for change in second}
    for change_id in sorted({*before, *after}):
        if change_id not in before or change_id not in after:
            yield ChangeDiff(change_id=change_id, where="second" if change_id not in before else "first")
        elif before[change_id] != after[change_id]:
            differences = tuple(_differences(before[change_id], after[change_id]))
            yield ChangeDiff(change_id=change_id, where="both", differences=differences)


def _differences(
    first: Mapping[str, Any], second: Mapping[str, Any], within: tuple[str, ...] = ()
) -> Iterator[Difference]:
    for name in (*first, *(name for name in second if name not in first)):
        before, after = first.get(name), second.get(name)
        if before == after:
            continue
        path = (*within, name)
        named_before, named_after = _by_name(before), _by_name(after)
        is_whole = bool(within) and within[-1] in _MEMBERS
        if named_before is not None and named_after is not None and not is_whole:
            yield from _differences(named_before, named_after, path)
        else:
            yield _difference(path, before, after)


def _difference(path: tuple[str, ...], first: Any, second: Any) -> Difference:
    field_format = format_of_field(path)
    before, after = field_format.text(first), field_format.text(second)
    if before == after and before:  # the values differ by less than the unit shows
        before, after = exact(first), exact(second)
    return Difference(
        what=".".join(path),
        first=_short(first),
        second=_short(second),
        label=field_format.label,
        before=before,
        after=after,
    )


def _by_name(value: Any) -> Mapping[str, Any] | None:
    """Return the members of a value by their names, or None for a plain value."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(member, dict) for member in value):
        return None
    for key in _NAMED_BY:
        names = [member.get(key) for member in value]
        if None not in names and len(set(names)) == len(names):
            return {str(name): member for name, member in zip(names, value, strict=True)}
    return None


def _short(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."


# -- differences in plain words, with units

_LETTERS: Final = 80


def exact(value: Any) -> str:
    """Return a value in full, so that values stay distinct that look the same in a large unit."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = str(value)
    return text if len(text) <= _LETTERS and not isinstance(value, Mapping) else "differs"


def words(value: Any) -> str:
    """Return a value without a unit in plain words."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return f"{value:,}"
    if isinstance(value, float):
        return f"{value:,.1f}"
    if isinstance(value, Mapping):
        fields = {name: format_of_field((name,)) for name in value}
        plain = [
            f"{field_format.label} {field_format.text(value[name])}"
            for name, field_format in fields.items()
            if not isinstance(value[name], Mapping | list | tuple)
        ]
        return names_text(plain)
    if isinstance(value, list | tuple):
        members = [
            "-".join(map(str, member)) if isinstance(member, list | tuple) else words(member)
            for member in value
        ]
        return names_text(members) or "none"
    text = str(value)
    return text if len(text) <= _LETTERS else f"{text[:_LETTERS]}..."


def _bytes(value: int) -> str:
    return f"{size_text(-value)} taken" if value < 0 else size_text(value)


def _tally(value: Mapping[str, Any]) -> str:
    return f"{count_text(value['batches'], 'batch', 'batches')}, {size_text(value['bytes'])}"


class FieldFormat(NamedTuple):
    """Label and text format of a field.

    Attributes:
        label: name of the field in plain words.
        words: formatter of the field's value.
    """

    label: str
    words: Callable[[Any], str] = words

    def text(self, value: Any) -> str:
        """Format a value; a missing value gives an empty text."""
        return "" if value is None or value == "" else self.words(value)


def _differs(label: str) -> FieldFormat:
    """Return a format that only says that the field differs."""
    return FieldFormat(label, lambda _value: "")


_PARTITION_FORMATS: Final = {
    "files": _differs("files"),
    "horizons": _differs("what other horizons would give"),
    "notes": _differs("notes"),
    "reasons": _differs("counts by reason"),
}
"""Field of a partition or of the root -> format of everything in it."""

_OTHER_BYTES: Final = [
    "always_bytes",
    "later_bytes",
    "by_time_bytes",
    "dropped_bytes",
    "uncleanable_bytes",
    "file_bytes",
    "front_bytes",
    "scratch_bytes",
    "block_bytes",
    "free_bytes",
    "reserve_bytes",
    "start_bytes",
    "bytes",
    "bytes_before",
    "bytes_after",
    "size",
    "size_before",
    "size_after",
]
_BY_KEY: Final = FieldFormat(
    "records by key",
    lambda value: f"{value['kept']:,} of {count_text(value['records'], 'record')} stay",
)
_FIELDS: Final = {
    "now_ms": FieldFormat("clock of the decisions", time_text),
    "horizon": FieldFormat("delete horizon", asked_horizon),
    "horizon_ms": FieldFormat("delete horizon", horizon_text),
    "mtime_ns": FieldFormat("modification time", lambda value: time_text(value // 1_000_000)),
    "keep": FieldFormat("originals (--keep)"),
    "compaction": _BY_KEY,
    "compacted": _BY_KEY,
    "batches": FieldFormat("batches of the new segment"),
    "kept_batches": FieldFormat("batches that stay"),
    "kept_markers": FieldFormat("markers that stay"),
    "log_end_offset": FieldFormat("log end offset"),
    "drop_unstamped": FieldFormat("markers without a delete horizon may go"),
    "undo": FieldFormat("way back"),
    "type": FieldFormat("kind"),
    "expected_seconds": FieldFormat("expected time of apply", lambda seconds: f"{seconds:,.1f} s"),
    "freed_at_apply": FieldFormat("freed by apply, before purge, by files of brokers alone", _bytes),
    "freed_at_purge": FieldFormat("freed after purge", _bytes),
    "peak_extra_bytes": FieldFormat("needed while apply runs", _bytes),
    "log_bytes_before": FieldFormat(".log before", _bytes),
    "log_bytes_after": FieldFormat(".log after", _bytes),
    "log_bytes": FieldFormat(".log of the new segment", _bytes),
    "index_bytes_at_most": FieldFormat("indexes of the new segment, at most", _bytes),
    "kept_bytes": FieldFormat("bytes that stay", _bytes),
    **{name: FieldFormat(name.replace("_", " "), _bytes) for name in _OTHER_BYTES},
}
"""Field -> its format, for fields whose name and plain value are not clear enough."""


def _of_reason(code: str) -> FieldFormat:
    known = reason_text(code)
    return FieldFormat(f"{code}, {known.text}" if known else code, _tally)


_MEMBERS: Final[dict[str, Callable[[str], FieldFormat]]] = {
    "risks": lambda code: FieldFormat(f"risk {code}", lambda risk: str(risk["text"])),
    "reasons": _of_reason,
    "undo": lambda _name: _FIELDS["undo"],
}
"""Field with named members -> format of each member as a whole."""


def format_of_field(path: Sequence[str]) -> FieldFormat:
    """Return the label and text format of a field.

    Args:
        path: names of the enclosing fields and of the field; an unknown field keeps its name.
    """
    first, name = path[0], path[-1]
    if first == _SETTINGS:
        topic, *key = path[1:]
        return FieldFormat(f"setting {key[0]} of {topic}" if key else f"settings of {topic}")
    if first in _PARTITION_FORMATS:
        return _PARTITION_FORMATS[first]
    above = path[-2] if len(path) > 1 else ""
    if above in _MEMBERS:
        return _MEMBERS[above](name)
    return _FIELDS.get(name) or FieldFormat(name.replace("_", " "))
