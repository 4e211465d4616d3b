"""The table of rules is complete and in order, and says truly which rules are built."""

from __future__ import annotations

import re

from msgspec.structs import asdict

from krepair.checks.catalogue import CATALOGUE, RULES, Finding, Severity, counts


def test_codes_are_unique_and_ascending():
    codes = [rule.code for rule in CATALOGUE]
    assert codes == sorted(set(codes))
    assert list(RULES) == codes


def test_every_code_has_its_form_and_every_hundred_is_there():
    assert all(re.fullmatch(r"KR[1-9][0-9]{2}", rule.code) for rule in CATALOGUE)
    assert {rule.code[2] for rule in CATALOGUE} == set("123456789")


def test_every_field_is_filled_and_is_one_line():
    for rule in CATALOGUE:
        for field, value in asdict(rule).items():
            assert value, (rule.code, field)
            assert str(value) == " ".join(str(value).split()), (rule.code, field)


def test_rules_that_users_know_by_number_keep_their_meaning():
    assert {
        code: RULES[code].title.split(" ")[0]
        for code in ("KR101", "KR104", "KR201", "KR301", "KR302", "KR405", "KR601", "KR602", "KR606")
    } == {
        "KR101": "Transaction",
        "KR104": "Log",
        "KR201": "Time",
        "KR301": "Torn",
        "KR302": "Damaged",
        "KR405": "Log",
        "KR601": "Leftovers",
        "KR602": "Folder",
        "KR606": "Symlink,",
    }


def test_information_is_no_finding_that_counts():
    quiet = next(rule for rule in CATALOGUE if rule.severity is Severity.INFORMATION)
    assert not counts(Finding(rule=quiet.code))
    assert counts(Finding(rule="KR101"))
