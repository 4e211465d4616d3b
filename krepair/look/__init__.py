"""Looks into logs and changes nothing: records, groups, transactions."""
