"""Second readings of logs, and of aborted transactions: by code that shares nothing with what made the files.

A reading uses the formats, the plain walk of a log (``krepair.checks.walk``: numpy and the crc32c package) and the one
judge of index entries. It uses no scan, no replay and no merge of the kernels and the rules. Engines map them, so
that whole logs are read where an engine runs.
"""
