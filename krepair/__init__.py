"""krepair: repairs and rewrites Apache Kafka log directories, offline and safely."""

__version__ = "1.1.0"
