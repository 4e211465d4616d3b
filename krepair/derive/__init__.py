"""Facts about a log that follow from its batch headers: epochs, producers, transactions, index entries.

Each fact is computed in one place, segment after segment, from the columns of ``krepair.kernels.columns`` or a scan.
"""
