"""The model of power losses by hand, a sample of the programme, and that it misses every sync that is left out."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from krepair.errors import ExitCode
from krepair.plan.keep import UNTIL_VERIFIED
from tests.torture.not_missed import MISSED, NOT_MISSED, TOGETHER
from tools.torture.disk_model import State, Volume
from tools.torture.power_loss import HISTORIES, Case, Checker, Outcome, Site, explore, placed, trials, units
from tools.torture.recording import Attrs, Born, Event, Gave, Moved, Named, Synced, Unnamed, Wrote
from tools.torture.scenes import ONE_BARRIER, SCENES, build, every_keep
from tools.torture.syncs import find_missed, syncs_of

ROOT, FOLDER, FILE, OTHER = 1, 2, 3, 4
NEW = Attrs(0o600, 0, 0, 10)
GIVEN = Attrs(0o640, 7, 7, 5)
START = State({"a": FILE}, {"d": FOLDER}, {FILE: b"old"}, {FILE: GIVEN, FOLDER: Attrs(0o755, 0, 0, 0)})


def states(*events: Event) -> list[State]:
    """Everything that may be there after these calls, as far as 400 samples tell."""
    volume = Volume(ROOT, START)
    for event in events:
        volume.take(event)
    return list(volume.states(random.Random(1), 400))


def seen(found: list[State], path: str) -> set[bytes | None]:
    """Every content that a path may have; None where it is not there."""
    return {state.data[state.files[path]] if path in state.files else None for state in found}


def wrote(data: bytes, node: int = FILE) -> Wrote:
    return Wrote(node, data, NEW)


# -- the model ----------------------------------------------------------------------------------------
def test_a_write_without_fsync_is_there_or_not_or_in_part() -> None:
    found = seen(states(wrote(b"oldnew")), "a")
    assert {b"old", b"oldnew", b"oldn", b"old\0\0\0"} <= found
    assert all(content is not None and content.startswith(b"old") for content in found)


def test_what_was_synced_stays() -> None:
    assert seen(states(wrote(b"new"), Synced(FILE, "")), "a") == {b"new"}
    assert {
        content[:3]
        for content in seen(states(wrote(b"new"), Synced(FILE, ""), wrote(b"new2")), "a")
        if content
    } == {b"new"}


def test_a_truncation_without_fsync_may_leave_zeros_at_the_old_size() -> None:
    assert {b"old", b"o", b"o\0\0"} <= seen(states(wrote(b"o")), "a")


def test_fsync_of_a_file_does_not_make_its_name_durable_nor_the_other_way() -> None:
    born = Born(FOLDER, "n", OTHER, b"", NEW)
    assert seen(states(born, wrote(b"new", OTHER), Synced(OTHER, "")), "d/n") == {None, b"new"}
    assert {b"", b"new"} <= seen(states(born, wrote(b"new", OTHER), Synced(FOLDER, "")), "d/n")
    assert None not in seen(states(born, wrote(b"new", OTHER), Synced(FOLDER, "")), "d/n")


def test_owner_mode_and_time_are_old_or_new_whatever_the_bytes_are() -> None:
    found = {
        (state.data[FILE], state.attrs[FILE].mtime_ns) for state in states(wrote(b"new"), Gave(FILE, GIVEN))
    }
    assert {(b"new", 5), (b"new", 10), (b"old", 5), (b"old", 10)} <= found


@pytest.mark.parametrize("synced", [ROOT, FOLDER])
def test_a_rename_is_one_step_and_durable_with_either_folder(synced: int) -> None:
    moved = Moved(ROOT, "a", FOLDER, "b", FILE)
    assert {tuple(state.files) for state in states(moved)} == {("a",), ("d/b",)}
    assert {tuple(state.files) for state in states(moved, Synced(synced, ""))} == {("d/b",)}


def test_a_later_name_may_be_there_without_an_earlier_one_but_one_name_changes_in_order() -> None:
    found = states(Named(ROOT, "b", FILE), Named(FOLDER, "c", FILE), Unnamed(ROOT, "a", FILE))
    names = {frozenset(state.files) for state in found}
    assert frozenset({"b", "d/c"}) in names
    assert frozenset() in names
    again = states(
        Unnamed(ROOT, "a", FILE), Named(ROOT, "a", FILE), Unnamed(ROOT, "a", FILE), Synced(ROOT, "")
    )
    assert {frozenset(state.files) for state in again} == {frozenset()}


def test_a_folder_whose_name_is_lost_is_lost_with_what_is_in_it() -> None:
    new = 9
    events = [Born(ROOT, "n", new, None, NEW), Named(new, "b", FILE), Synced(new, "")]
    assert {frozenset(state.files) for state in states(*events)} == {
        frozenset({"a"}),
        frozenset({"a", "n/b"}),
    }


# -- the programme ------------------------------------------------------------------------------------
# A third of the scenes; and compacted segments are swapped as rewritten ones are, at several times the cost. The
# programme cuts the power of all.
IN_THE_GATE = [name for name in every_keep(SCENES) if not name.startswith("keys")][::3]


@pytest.mark.slow
@pytest.mark.parametrize("name", [*IN_THE_GATE, *ONE_BARRIER[:1]])
def test_after_a_power_loss_every_verb_ends_right(name: str) -> None:
    """That a recording misses no call is checked with each of them."""
    figures: Counter[str] = Counter()
    wrong = []
    histories, most = (1, 6) if "~" in name else (2, 6)
    with placed(build(name)) as site:
        for case in random.Random(name).sample(units(name, 0), histories):
            for failed, failure in explore(site, case, figures, most=most):
                wrong.append(f"python -m tools.torture --replay power_loss:{failed}\n{failure}")
    assert wrong == []
    assert figures["trees"] > 3


def test_replaying_a_case_makes_the_same_state_again() -> None:
    """Inode numbers and times of day differ from run to run; what is lost does not."""

    def lost() -> list[tuple[int, int, list[str]]]:
        case = Case("removals", 0, "undo")
        found = []
        with placed(build("removals")) as site:
            recording = site.record(HISTORIES["undo"])
            for trial in trials(site, recording, seed=case.words, per_point=3):
                names = sorted(path.replace(site.plan.plan_id, "") for path in trial.state.files)
                found.append((trial.point, trial.choice, names))
        return found

    assert lost() == lost()


class TestUndoWhereApplyFreesOriginals:
    """How the judge takes an undo that is refused: right only where that is true, and where nothing was changed."""

    @pytest.fixture
    def site(self) -> Iterator[Site]:
        with placed(build(f"removals~{UNTIL_VERIFIED}")) as site:
            yield site

    def judged(self, site: Site, monkeypatch: pytest.MonkeyPatch, said: str, changes: str = "") -> str:
        recording = site.record(HISTORIES["apply"])
        checker = Checker(site, "apply", recording, Counter())
        site.reset()

        def run(verb: str) -> Outcome:
            for path in Path(site.root).glob(f"*/{changes}") if changes else ():
                path.unlink()
            return Outcome(int(ExitCode.REFUSED), said)

        monkeypatch.setattr(checker, "_run", run)
        return checker._undo_as_far_as_it_goes()

    def test_once_all_is_applied_and_no_record_is_left_it_may_say_so(self, site: Site) -> None:
        recording = site.record(HISTORIES["apply"])
        assert Checker(site, "apply", recording, Counter())._undo_as_far_as_it_goes() == ""

    def test_while_a_file_is_still_the_old_one_it_may_not(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        assert "no journal" in self.judged(site, monkeypatch, "no journal of this plan is here")

    def test_a_refusal_that_changed_a_file_is_wrong(
        self, site: Site, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        wrong = self.judged(site, monkeypatch, "its originals were freed", "*.index.deleted")
        assert wrong.startswith("undo ends with 13, but ")


@pytest.mark.slow
def test_every_sync_that_is_left_out_is_missed_or_known_not_to_matter() -> None:
    """For each: ``python -m tools.torture.syncs``; a sync that is not missed needs its reason in ``NOT_MISSED``."""
    found = find_missed(["tail-cut"], known=NOT_MISSED)
    assert {sync for sync, missed in found.items() if missed is None} == set()
    assert len(found) > 7


def test_of_two_syncs_that_stand_in_for_each_other_one_is_missed() -> None:
    for scene, history, both in TOGETHER:
        case = Case(scene, 0, history, 0.5 if "kill" in history else 0.0, 4)
        with placed(build(scene)) as site:
            failures = explore(site, case, Counter(), most=300, without=both)
            assert next(failures, None) is not None, both


@pytest.mark.slow
@pytest.mark.parametrize(("scene", "syncs"), MISSED, ids=[scene for scene, _ in MISSED])
def test_each_sync_that_a_partition_of_many_costs_is_missed(scene: str, syncs: tuple[str, ...]) -> None:
    """Each of the eight that stay where one barrier serves all that is staged; and each of that which it stands for."""
    with placed(build(scene)) as site:
        assert set(syncs) <= syncs_of(site, "apply", 0.0)
        for sync in syncs:
            failures = explore(site, Case(scene, 0, "apply", 0.0, 4), Counter(), most=300, without=(sync,))
            assert next(failures, None) is not None, sync
