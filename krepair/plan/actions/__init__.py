"""The plan layer's code for each kind of change: one module per kind, listed in ``table.py``.

No other module of this layer checks the kind of a change. A new kind needs one struct in ``krepair.plan.model``, one
module here and one line in the table.
"""
