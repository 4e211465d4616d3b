"""Simulates what a broker's loader does with one partition at a start, without changing a file.

The damage alone does not tell how a start ends. A broker reads only some places of a log, trusts its indexes, rebuilds
an index while it reads, and stops at an exception that one version catches and another does not. So the steps of the
loader are simulated one by one, on values: which segments it recovers, where it truncates them, which exception ends
it.

The simulation is proven with Kafka itself: ``tools/torture/forecasts.py`` loads thousands of damaged folders with the
loader classes of four versions, and compares the results with the forecast of ``krepair check``.

Where several versions may start, one play stands for all that do the same: a play asks what its brokers do only where
that makes a difference, and where their answers differ each group is played by itself. What was read and checked of the
files is shared by all plays.

* ``behaviour``: the differences between versions, and the brokers of one play.
* ``log_file``: batches, as ``FileLogInputStream`` reads them.
* ``index_state``: the offset index, the time index and the transaction index while a broker has them open.
* ``producers``: the snapshots of a partition, and the producer state that is built from them and from the log.
* ``segment``: one segment: its sanity check, its recovery, the reads of a start.
* ``loader``: the whole partition, and the result.
"""
