"""What the plan layer knows of each kind of change: one module per kind, found by the table in ``table.py``.

No other module of this layer asks of which kind a change is. A new kind is one struct in ``krepair.plan.model``, one
module here and one line in the table.
"""
