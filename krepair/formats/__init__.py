"""On-disk formats of Kafka: bytes to values and back.

No paths, no I/O, no policy; damage is a value, never an exception.
"""
