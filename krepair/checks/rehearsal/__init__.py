"""Plays through what a broker's loader does to one partition when it starts, without touching a file.

Some starts cannot be told from what is damaged alone. A broker reads only some places of a log, believes its indexes,
makes an index anew while it reads, and stops at an exception that one version catches and another does not. So the
loader's steps are taken one by one, on values: which segments it recovers, where it cuts them, which exception ends it.

The twin that proves it is Kafka itself: ``tools/torture/forecasts.py`` loads thousands of damaged folders with the
loader classes of four versions and holds the forecast of ``krepair check`` against what they did.

* ``behaviour``: in what the versions differ.
* ``log_file``: batches as ``FileLogInputStream`` gives them.
* ``index_state``: the offset index, the time index and the transaction index while a broker has them open.
* ``producers``: the snapshots of a partition, and the producer state that is built from them and from the log.
* ``segment``: one segment: its sanity check, its recovery, the reads that a start makes.
* ``loader``: the whole partition, and what came of it.
"""
