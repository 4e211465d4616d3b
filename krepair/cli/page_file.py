"""``--html FILE``: the page of what was found, written beside the answer."""

from __future__ import annotations

from collections.abc import Sequence


class PageFile:
    """Writes the page of one run; without a path it does nothing.

    Args:
        path: as typed, or empty.
        log_dirs: of this run; nothing is written into them.

    Raises:
        KrepairError: see ``krepair.ops.output_file.check_place``.
    """

    def __init__(self, path: str, log_dirs: Sequence[str]) -> None:
        self._path, self._target = path, ""
        if path:
            from krepair.cli.views.page import PAGE
            from krepair.ops import output_file

            self._target = output_file.check_place(PAGE, path, log_dirs)

    def write(self, report: object) -> None:
        """Write it whole, or leave what was there.

        Args:
            report: of a verb that takes ``--html``.

        Raises:
            KrepairError: see ``krepair.ops.output_file.not_written``.
        """
        if not self._target:
            return
        from krepair.cli.views.page import PAGE, check_page, compare_page
        from krepair.ops import output_file
        from krepair.ops.compare import CompareReport
        from krepair.ops.reports import CheckReport

        assert isinstance(report, CheckReport | CompareReport)
        page = check_page(report) if isinstance(report, CheckReport) else compare_page(report)
        data = page.encode()
        try:
            output_file.write(PAGE, self._target, data)
        except OSError as problem:
            raise output_file.not_written(PAGE, self._target, problem, len(data)) from None
