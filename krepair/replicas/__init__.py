"""Reading of replicas for ``compare``, ``facts`` and ``--replicas``: batch headers, and records as hashes."""
