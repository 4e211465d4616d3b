"""Findings that no fix repairs, and the report that sums all findings up."""
