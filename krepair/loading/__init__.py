"""Simulated start: what a broker's loader does with one partition, without changing a file.

The damage alone does not determine how a start ends. A broker reads only some places of a log, trusts its indexes,
rebuilds an index while it reads, and stops at an exception that one version catches and another does not. So the steps
of the loader are simulated one by one on values: which segments it recovers, where it truncates them, and which
exception ends it.

The simulation is proven with Kafka itself: ``tools/torture/forecasts.py`` loads thousands of damaged folders with the
loader classes of four versions, and compares the results with the forecast of ``krepair check``.

If several versions may start, one simulation represents all versions that behave alike: it asks for the behaviour of
its brokers only where that matters, and where the answers differ, each group is simulated separately. All simulations
share the batches that were read and checked.

* ``behaviour``: the differences between versions, and the brokers of one simulation.
* ``log_file``: batches, as ``FileLogInputStream`` reads them.
* ``index_state``: the offset index, the time index and the transaction index while a broker has them open.
* ``producers``: the snapshots of a partition, and the producer state that is built from them and from the log.
* ``segment``: the sanity check, the recovery and the reads of one segment.
* ``loader``: the whole partition, and the result.
"""
