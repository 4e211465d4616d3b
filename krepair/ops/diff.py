"""Compares two plans of one directory. Pure.

Plans are compared field by field in the form of their files, so that fields of a later version are compared too.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET, Struct

from krepair.errors import ExitCode, UsageError
from krepair.formats.java_numbers import INT64_MAX
from krepair.formats.words import count_text, time_text
from krepair.options import Options
from krepair.plan.model import PartitionPlan, Plan, Preview, RootPlan
from krepair.plan.view import size_text
from krepair.rules.reasons import told_of

PlaceOf = Literal["both", "first", "second"]

_SHOWN_LETTERS: Final = 100
_APART: Final = frozenset({"partitions", "root", "policy", "digest", "plan_id", "preview"})
"""Fields of a plan that are compared separately, or that follow from all others."""
_ONLY_ASKED: Final = ("config", "topic_config", "settings", "topics", "partitions")
"""Options with which a plan was made that are not in its policy."""
_NOT_IN_A_PREVIEW: Final = frozenset({"commit"})
"""Fields of a plan that cannot be known while a broker is running."""
_SEEN_OR_SAID: Final = frozenset(
    {
        *(
            "files",
            "high_watermark",
            "log_start_offset",
            "log_end_offset",
            "log_bytes_before",
            "log_bytes_after",
            "span",
        ),
        *("horizons", "notes", "why", "next_command"),
    }
)
"""Facts and texts about a partition. Apply does the same, whatever they are."""
_DECIDED: Final = frozenset({"status", "code", "kept_last", "keeper"})
_NAMED_BY: Final = ("name", "reason", "code", "key")


class Difference(Struct, frozen=True, kw_only=True):
    """One value that differs.

    Attributes:
        what: name of the field, with dots between the levels.
        first: its value in the first plan, as short text; empty if it has none.
        second: its value in the second plan.
        label: the field in words.
        before: its value in the first plan as a person reads it, with its unit.
        after: its value in the second plan, likewise.
    """

    what: str
    first: str
    second: str
    label: str = ""
    before: str = ""
    after: str = ""


class ChangeDiff(Struct, frozen=True, kw_only=True):
    """One change that differs.

    Attributes:
        change_id: id of the change.
        where: the plan or plans that have it.
        differences: the differences, if both plans have it.
    """

    change_id: str
    where: PlaceOf
    differences: tuple[Difference, ...] = ()


class PartitionDiff(Struct, frozen=True, kw_only=True):
    """One partition that differs.

    Attributes:
        folder: its name; ``.`` for the files in the root.
        where: the plan or plans that have it.
        decisions_same: whether both plans have it and make the same changes, with the same decisions.
        only_seen: whether all figures are the same too. Then only notes differ, or facts about the partition (sizes and
            times of files, offsets).
        differences: all differences, except those of its changes.
        changes: the changes that differ, by id.
    """

    folder: str
    where: PlaceOf
    decisions_same: bool = False
    only_seen: bool = False
    differences: tuple[Difference, ...] = ()
    changes: tuple[ChangeDiff, ...] = ()


class PlanDiff(Struct, frozen=True, kw_only=True):
    """What changed from the first plan to the second.

    Attributes:
        log_dir: log directory of both plans.
        first: digest of the first plan.
        second: digest of the second plan.
        differences: differences of clock, options, settings, sums and risks.
        partitions: the partitions that differ, by folder.
        same_partitions: number of partitions that are equal.
        same_decisions: number of partitions that differ, but have the same decisions.
        only_seen: number of these that also have the same figures; see ``PartitionDiff``.
        previews: the plans that were made while a broker was running. Their order of commit was not known, so it is not
            compared.
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
        """DONE when the plans are the same, else FOUND."""
        return ExitCode.DONE if self.same else ExitCode.FOUND

    @property
    def same(self) -> bool:
        """Whether nothing differs."""
        return not (self.differences or self.partitions)


def diff_plans(first: Plan, second: Plan) -> PlanDiff:
    """Compare two plans.

    Raises:
        UsageError: they are for different hosts or directories.
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
    found = [
        one
        for folder in folders
        if (one := _partition(folder, before.get(folder), after.get(folder))) is not None
    ]
    return PlanDiff(
        log_dir=second.log_dir,
        first=first.digest,
        second=second.digest,
        differences=tuple(_differences(_heads(first, unknown), _heads(second, unknown))),
        partitions=tuple(found),
        same_partitions=len(folders) - len(found),
        same_decisions=sum(one.decisions_same for one in found),
        only_seen=sum(one.only_seen for one in found),
        previews=tuple(previews),
    )


def _parts(plan: Plan) -> dict[str, PartitionPlan | RootPlan]:
    parts: dict[str, PartitionPlan | RootPlan] = {one.folder: one for one in plan.partitions}
    return parts if plan.root is None else parts | {".": plan.root}


def _heads(plan: Plan, unknown: frozenset[str]) -> dict[str, Any]:
    """A plan without its partitions, on one level. The fields in ``unknown`` are left out."""
    fields = {
        name: msgspec.to_builtins(getattr(plan, name))
        for name in plan.__struct_fields__
        if name not in _APART | unknown and getattr(plan, name) is not UNSET
    }
    policy: dict[str, Any] = msgspec.to_builtins(plan.policy)
    options = Options.of_words(plan.asked)
    fields["asked"] = {name: msgspec.to_builtins(getattr(options, name)) for name in _ONLY_ASKED}
    if "commit" in fields:
        fields["commit"].pop("looked_at", None)  # a digest of files, not a decision
    settings = {
        f"{topic or 'broker'}.{setting['key']}": setting["value"]
        for topic, members in policy.pop("settings").items()
        for setting in members
    }
    return fields | policy | {"settings": settings}


def _partition(
    folder: str, first: PartitionPlan | RootPlan | None, second: PartitionPlan | RootPlan | None
) -> PartitionDiff | None:
    if first is None or second is None:
        return PartitionDiff(folder=folder, where="second" if first is None else "first")
    if first == second:
        return None
    before, after = msgspec.to_builtins(first), msgspec.to_builtins(second)
    changes = tuple(_changes(before.pop("changes"), after.pop("changes")))
    differences = tuple(_differences(before, after))
    same = not changes and not any(one.what in _DECIDED for one in differences)
    return PartitionDiff(
        folder=folder,
        where="both",
        decisions_same=same,
        only_seen=same and all(_is_seen_or_said(one) for one in differences),
        differences=differences,
        changes=changes,
    )


def _is_seen_or_said(one: Difference) -> bool:
    return one.what.partition(".")[0] in _SEEN_OR_SAID


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
    first: Mapping[str, Any], second: Mapping[str, Any], within: str = ""
) -> Iterator[Difference]:
    for name in (*first, *(name for name in second if name not in first)):
        before, after = first.get(name), second.get(name)
        if before == after:
            continue
        what = f"{within}{name}"
        named_before, named_after = _by_name(before), _by_name(after)
        if named_before is not None and named_after is not None:
            yield from _differences(named_before, named_after, f"{what}.")
        else:
            yield _difference(what, before, after)


def _difference(what: str, first: Any, second: Any) -> Difference:
    before, after = words(what, first), words(what, second)
    if before == after:  # they differ by less than the unit shows
        before, after = exact(first), exact(second)
    return Difference(
        what=what,
        first=_short(first),
        second=_short(second),
        label=label(what),
        before=before,
        after=after,
    )


def _by_name(value: Any) -> Mapping[str, Any] | None:
    """The members of a value by their names; None for a plain value."""
    if isinstance(value, Mapping):
        return value
    if not isinstance(value, list | tuple) or not all(isinstance(member, dict) for member in value):
        return None
    for key in _NAMED_BY:
        names = [member.get(key) for member in value]
        if None not in names and len(set(names)) == len(names):
            return {str(name): member for name, member in zip(names, value, strict=True)}
    if value and all("base_offset" in member for member in value):
        return {str(member["base_offset"]): member for member in value}
    return None


def _short(value: Any) -> str:
    if value is None:
        return ""
    text = value if isinstance(value, str) else json.dumps(value)
    return text if len(text) <= _SHOWN_LETTERS else f"{text[:_SHOWN_LETTERS]}..."


# -- differences in the words and units of a person

_LABELS: Final = {
    "now_ms": "clock of the decisions",
    "horizon": "delete horizon",
    "horizon_ms": "delete horizon",
    "keep": "originals (--keep)",
    "freed_at_apply": "freed by apply, before purge",
    "freed_at_purge": "freed after purge",
    "peak_extra_bytes": "needed while apply runs",
    "log_bytes_before": ".log before",
    "log_bytes_after": ".log after",
    "log_bytes": ".log of the new segment",
    "index_bytes_at_most": "indexes of the new segment, at most",
    "batches": "batches of the new segment",
    "kept_bytes": "bytes that stay",
    "kept_batches": "batches that stay",
    "kept_markers": "markers that stay",
    "compaction": "records by key",
    "compacted": "records by key",
    "log_end_offset": "log end offset",
    "log_start_offset": "log start offset",
    "high_watermark": "high watermark",
    "drop_unstamped": "markers without a stamp may go",
    "looked_at": "files that were looked at",
    "undo": "way back",
    "type": "kind",
    "expected_seconds": "expected time of apply",
}
_DIGESTS: Final = ("digest", "headers", "crc")
_FIRST_CLOCK_MS: Final = 10**11
"""Numbers of milliseconds below this are lengths of time, and not moments since 1970."""
_NAMED: Final = 3
_LETTERS: Final = 80


def label(what: str) -> str:
    """What a field is called; a field of a later version keeps its name, without underscores."""
    first, _, rest = what.partition(".")
    above, _, name = what.rpartition(".")
    if first == "settings" and "." in rest:
        topic, _, key = rest.partition(".")
        return f"setting {key} of {topic}"
    if above == "risks":
        return f"risk {name}"
    if above.endswith("reasons"):
        return _reason(name)
    if above.endswith("undo"):
        return _LABELS["undo"]
    return _LABELS.get(name, name.replace("_", " "))


def _reason(code: str) -> str:
    known = told_of(code)
    return f"{code}, {known.text}" if known else code


def words(what: str, value: Any) -> str:
    """A value of a plan as a person reads it; empty where there is none.

    Args:
        what: name of the field, with dots between the levels.
        value: as it stands in the plan file.
    """
    if value is None or value == "":
        return ""
    if isinstance(value, Mapping):
        return _members(what, value)
    return _list(what, value) if isinstance(value, list | tuple) else _plain(what.rpartition(".")[2], value)


def _plain(name: str, value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return number(name, value)
    return f"{value:,.1f}" if isinstance(value, float) else _text(name, str(value))


def number(name: str, value: int) -> str:
    """A whole number of a field, with its unit."""
    if name.endswith("_ns"):
        return time_text(value // 1_000_000)
    if name.endswith("_ms"):
        if value >= INT64_MAX:
            return "any time"
        return time_text(value) if value >= _FIRST_CLOCK_MS else f"{value:,} ms"
    if "bytes" in name.split("_") or name.startswith(("freed_at", "size_")):
        return f"{size_text(-value)} taken" if value < 0 else size_text(value)
    return f"{value:,}"


def exact(value: Any) -> str:
    """A value in full, for two that look the same in a large unit."""
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    text = "" if value is None else str(value)
    return text if len(text) <= _LETTERS else "differs"


def _text(name: str, value: str) -> str:
    if name in {"horizon", *_LABELS} and value.isascii() and value.isdigit():
        return time_text(int(value)) if len(value) < len(str(INT64_MAX)) else "any time"
    if name.startswith(_DIGESTS):
        return f"{value[:8]}..." if len(value) > len("12345678...") else value
    return value if len(value) <= _LETTERS else f"{value[:_LETTERS]}..."


def _members(what: str, value: Mapping[str, Any]) -> str:
    if "text" in value:
        return _text("", str(value["text"]))
    if {"batches", "bytes"} <= value.keys():
        return f"{count_text(value['batches'], 'batch', 'batches')}, {size_text(value['bytes'])}"
    if {"records", "kept"} <= value.keys():
        return f"{value['kept']:,} of {count_text(value['records'], 'record')} stay"
    plain = [
        f"{_LABELS.get(name, name.replace('_', ' '))} {words(f'{what}.{name}', member)}"
        for name, member in value.items()
        if not isinstance(member, Mapping | list | tuple)
    ]
    return ", ".join(plain[:_NAMED]) + (", ..." if len(plain) > _NAMED else "")


def _list(what: str, value: Sequence[Any]) -> str:
    if not value:
        return "none"
    shown = [
        "-".join(str(part) for part in member) if isinstance(member, list | tuple) else words(what, member)
        for member in value[:_NAMED]
    ]
    more = f" and {len(value) - _NAMED:,} more" if len(value) > _NAMED else ""
    return ", ".join(shown) + more
