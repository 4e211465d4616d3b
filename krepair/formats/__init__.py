"""On-disk formats of Kafka: from bytes to values and back.

This package knows no paths, does no I/O and decides nothing. Damage is a value, not an exception.
"""
