"""Second readings: what apply made, read and worked out again by code that shares nothing with what made it.

A reading uses the formats, the plain walk of a log (``krepair.checks.walk``: numpy and the crc32c package) and the one
judge of index entries. It uses no scan, no replay and no merge of the kernels and the rules, which made the bytes. Each
is a task, so that whole logs are read where the engine runs. A reading that only compared a digest would find a file
that changed; it would not find that the wrong bytes were made and planned.
"""
