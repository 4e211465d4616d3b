"""What the journal knows of each kind of change: one module per kind, found by the tables in ``table.py``.

No other module of this package asks of which kind a change, or its intent, is. A new kind is one intent in
``krepair.journal.record``, one module here and a line in each of the two tables.
"""
