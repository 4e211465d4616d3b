"""The options that several verbs share, as typer reads them, and their way to ``Options``."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import typer

from krepair import options as parsing
from krepair.errors import UsageError
from krepair.options import Engine, Options

_VERSION: Final = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4}){0,2}([-+][A-Za-z0-9.+-]{1,40})?")

ConfigOption = Annotated[
    str | None, typer.Option("--config", metavar="FILE", help="The broker's server.properties.")
]
TopicConfigOption = Annotated[
    str | None,
    typer.Option(
        "--topic-config",
        metavar="FILE",
        help='Topic settings: JSON {"topic": {"key": "value"}}, or what kafka-configs.sh --describe prints.',
    ),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="One setting in Kafka's own name; may be repeated."),
]
NowOption = Annotated[
    str | None,
    typer.Option("--now", metavar="TIME", help="The clock of all decisions: ISO 8601 or epoch milliseconds."),
]
BrokerVersionOption = Annotated[
    str,
    typer.Option("--broker-version", metavar="VERSION", help="Version of the broker that will start on it."),
]
TopicOption = Annotated[
    list[str] | None, typer.Option("--topic", metavar="TOPIC", help="Only this topic; may be repeated.")
]
PartitionOption = Annotated[
    list[str] | None,
    typer.Option("--partition", metavar="TOPIC-N", help="Only this partition; may be repeated."),
]
EngineOption = Annotated[
    str,
    typer.Option("--engine", metavar="auto|spark|inline", help="Where the work is done; auto picks by size."),
]
MasterOption = Annotated[
    str, typer.Option("--master", metavar="URL", help="Spark master, as local[*] or spark://host:7077.")
]
UseReservedOption = Annotated[
    bool,
    typer.Option(
        "--use-reserved",
        help="As root, on ext4: also count the blocks reserved for root. Refused unless the broker, which is not root, "
        "has what its next start needs afterwards.",
    ),
]
RebuildJournalOption = Annotated[
    bool,
    typer.Option(
        "--rebuild-journal",
        help="Where a journal is damaged: say what the files tell of each change, set the damaged journal aside, and "
        "write a new one. Nothing is undone yet.",
    ),
]
AtOption = Annotated[
    str,
    typer.Option(
        "--at",
        metavar="LOGDIR",
        help="The directory that is meant, where the plan's directory was copied, or is at another path now. Its "
        "journals and what the plan keeps and made have to prove that it is the plan's.",
    ),
]
TakeOverOption = Annotated[
    str,
    typer.Option(
        "--take-over",
        metavar="HOST:PID",
        help="On storage of several hosts: the krepair of this process has ended, and what it left to keep others out "
        "no longer counts. Look on that host first.",
    ),
]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on standard output.")]
QuietOption = Annotated[
    bool, typer.Option("--quiet", "-q", help="No progress, no page; the exit code tells.")
]
MetricsOption = Annotated[
    str,
    typer.Option(
        "--metrics",
        metavar="FILE.prom",
        help="At the end write metrics here, for the node exporter's text file collector.",
    ),
]
HorizonOption = Annotated[
    str,
    typer.Option(
        "--delete-horizon",
        metavar="next-pass|newest|TIME",
        help="How far markers may go: what the broker's next pass would use, newest cleanable segment minus "
        "delete.retention.ms, or a time.",
    ),
]
FixOption = Annotated[
    str | None,
    typer.Option("--fix", metavar="LIST", help="Names divided by commas; markers if left out."),
]
AcceptOption = Annotated[
    list[str] | None,
    typer.Option(
        "--accept-data-loss",
        metavar="RULE:TOPIC-PARTITION:OFFSET",
        help="With --fix tail: plan the way out of this one damage, named by its rule, partition and first lost "
        "offset as krepair check names it; may be repeated.",
    ),
]
KeepOption = Annotated[
    str,
    typer.Option(
        "--keep",
        metavar="inplace|until-verified|DIR",
        help="Where originals stay until purge: in the partition folder; nowhere (apply frees them, group by group, as "
        "soon as what replaces them is verified); or as copies in a folder on another file system.",
    ),
]
NoMergeOption = Annotated[bool, typer.Option("--no-merge", help="Do not join neighbouring segments.")]
ScratchOption = Annotated[
    str,
    typer.Option(
        "--scratch",
        metavar="DIR",
        help="Where keys go that do not fit into memory (--fix compact); on the log directory's file system only if "
        "it is named here.",
    ),
]
AssumeOption = Annotated[
    str,
    typer.Option(
        "--assume-high-watermark",
        metavar="log-end",
        help="Plan partitions without a recorded high watermark as if the log end were it.",
    ),
]
ReplicasOption = Annotated[
    list[str] | None,
    typer.Option(
        "--replicas",
        metavar="ID=LOGDIR[,LOGDIR]|ID=FACTS",
        help="Another broker's log directories, stopped, or its facts file, best an answer to --ask; may be repeated. "
        "With this broker's own ID: its other log directories.",
    ),
]
ClusterOption = Annotated[
    str,
    typer.Option(
        "--cluster",
        metavar="FILE",
        help="What the cluster says of its partitions: the output of kafka-topics.sh --bootstrap-server ... "
        "--describe, or a copy of the active controller's __cluster_metadata-0. Where all other replicas are in sync "
        "without this one, markers and tombstones older than delete.retention.ms may go.",
    ),
]
ClusterAsOfOption = Annotated[
    str | None,
    typer.Option(
        "--cluster-as-of",
        metavar="TIME",
        help="When that --describe was run against the running cluster; else the time of FILE counts, and --fix "
        "refetch refuses.",
    ),
]
LogDirsArgument = Annotated[
    list[str],
    typer.Argument(
        metavar="LOGDIR...",
        help="Log directories of stopped brokers; of several, each is answered for by itself.",
    ),
]
ClusterConfigOption = Annotated[
    list[str] | None,
    typer.Option(
        "--cluster-config",
        metavar="FILE",
        help="With --fix refetch: server.properties of the brokers and controllers, or kafka-configs.sh --describe "
        "--all of them: they say whether unclean leader election is off. For 2.2 and 2.3 also the content of "
        "/admin/reassign_partitions in ZooKeeper; may be repeated.",
    ),
]
OnlyReplicaOption = Annotated[
    list[str] | None,
    typer.Option(
        "--only-replica",
        metavar="TOPIC|*",
        help="There is no other replica of this topic (* for all): markers and tombstones may go; may be repeated.",
    ),
]
AsBrokerOption = Annotated[
    bool,
    typer.Option(
        "--as-broker",
        help="Consent: markers and tombstones older than delete.retention.ms go, as a broker's cleaner would remove "
        "them, whatever other replicas still hold.",
    ),
]
AloneOption = Annotated[
    list[str] | None,
    typer.Option(
        "--alone",
        metavar="TOPIC-PARTITION",
        help="Consent for one partition: markers and tombstones go whatever other replicas hold, since these will be "
        "deleted and fetched anew from this one; may be repeated.",
    ),
]
PlanOrLogDirArgument = Annotated[
    str,
    typer.Argument(metavar="PLAN|LOGDIR", help="A plan file, or the log directory that it was applied to."),
]
PlanIdOption = Annotated[
    str,
    typer.Option(
        "--plan-id", metavar="ID", help="With LOGDIR: the plan, by its id; left out, what is kept is listed."
    ),
]
PlanArgument = Annotated[str, typer.Argument(metavar="PLAN", help="A plan file.")]


def parse_engine(text: str) -> Engine:
    """Read ``--engine``.

    Raises:
        UsageError: none of the three.
    """
    try:
        return Engine(text)
    except ValueError:
        raise UsageError(f"--engine {text!r}: expected one of {', '.join(Engine)}") from None


def parse_rule(text: str) -> str:
    """Read ``--rule``.

    Raises:
        UsageError: there is no such rule.
    """
    from krepair.checks.catalogue import RULES

    code = text.upper()
    if code and code not in RULES:
        raise UsageError(f"--rule {text!r}: there is no such rule", next_command="krepair explain")
    return code


def common_options(
    *,
    config: str | None = None,
    topic_config: str | None = None,
    settings: list[str] | None = None,
    now: str | None = None,
    broker_version: str = "",
    topics: list[str] | None = None,
    partitions: list[str] | None = None,
    engine: str = "auto",
    master: str = "",
    as_of: str | None = None,
    **more: Any,
) -> Options:
    """What was typed, as typed values; ``more`` holds fields of ``Options`` that only one verb has.

    Raises:
        UsageError: a value that cannot be read.
    """
    if now is not None:
        more["now_ms"] = parsing.parse_time_ms(now, "--now")
    if as_of is not None:
        more["cluster_as_of"] = parsing.parse_time_ms(as_of, "--cluster-as-of")
    if broker_version and not _VERSION.fullmatch(broker_version):
        raise UsageError(f"--broker-version {broker_version!r}: expected a version, as 2.2.1")
    return Options(
        config=config,
        topic_config=topic_config,
        settings=tuple(parsing.parse_setting(text) for text in settings or ()),
        broker_version=broker_version,
        topics=tuple(topics or ()),
        partitions=tuple(parsing.parse_partition(text) for text in partitions or ()),
        engine=parse_engine(engine),
        master=master,
        **more,
    )
