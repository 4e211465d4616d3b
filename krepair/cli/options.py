"""The options of all verbs, in one table: each stands here once, with its type, its default and its help.

A verb says with ``takes`` which of them it has, in the order of its help. Help, manual page, completions and
``docs/cli.md`` are made from that. Where an option of one name means something else for another verb, it has two rows.
"""
# No "from __future__ import annotations": the types of the table are needed as types when a verb is loaded.

import inspect
import re
from collections.abc import Callable, Iterable
from functools import cache, wraps
from typing import Annotated, Any, Final

import typer
from msgspec import Struct

from krepair import options as parsing
from krepair.errors import UsageError
from krepair.options import Engine, Options

_VERSION: Final = re.compile(r"[0-9]{1,4}\.[0-9]{1,4}(\.[0-9]{1,4}){0,2}([-+][A-Za-z0-9.+-]{1,40})?")

LogDirArgument = Annotated[
    str, typer.Argument(metavar="LOGDIR", help="The log directory of a stopped broker.")
]
PlanOrLogDirArgument = Annotated[
    str,
    typer.Argument(metavar="PLAN|LOGDIR", help="A plan file, or the log directory that it was applied to."),
]
PlanArgument = Annotated[str, typer.Argument(metavar="PLAN", help="A plan file.")]


_TABLE: Final = """\
config --config FILE
  The broker's server.properties.
topic_config --topic-config FILE
  Topic settings: JSON {"topic": {"key": "value"}}, or what kafka-configs.sh --describe prints.
setting --set KEY=VALUE
  One setting in Kafka's own name; may be repeated.
broker_version --broker-version VERSION
  Version of the broker that will start on it.
now --now TIME
  The clock of all decisions: ISO 8601 or epoch milliseconds.
topic --topic TOPIC
  Only this topic; may be repeated.
partition --partition TOPIC-N
  Only this partition; may be repeated.
engine --engine auto|spark|inline
  Where the work is done; auto picks by size.
master --master URL
  Spark master, as local[*] or spark://host:7077.
scratch --scratch DIR
  Where keys and hashes go that do not fit into memory; on a log directory's file system only if it is named here.
json --json
  One JSON document on standard output.
json_lines --json
  One JSON object a line.
quiet --quiet -q
  No progress, no page; the exit code tells.
metrics --metrics FILE.prom
  At the end write metrics here, for the node exporter's text file collector.
html --html FILE
  At the end write a page for a browser here, too.
output_format --format text|md|html|json
  For a terminal, a ticket, a browser, a program.
section --section partitions|reasons|horizons|settings|replicas|commit|risks
  Only this section.
ticket_format --format text|md
  For a terminal, or for a ticket.
deep --deep
  Also decompress all compressed content (KR307); costs CPU time.
every --all
  Each finding, each partition and each line of the forecast.
every_partition --all
  Also one line for each partition that is as it should be.
rule --rule KRnnn
  Each finding of this rule, and what to type for it.
fix --fix LIST
  Names divided by commas; markers if left out; may be repeated.
out --out PLAN
  Where to write the plan; never in LOGDIR.
preview --preview
  Beside a running broker: a plan to read and to agree on, which apply refuses.
accept_data_loss --accept-data-loss RULE:TOPIC-PARTITION:OFFSET
  With --fix tail or checkpoints: plan the way out of this one damage, named by its rule, partition and first lost
  offset as krepair check names it; may be repeated.
delete_horizon --delete-horizon next-pass|newest|TIME
  How far markers may go: what the broker's next pass would use, newest cleanable segment minus delete.retention.ms,
  or a time.
keep --keep inplace|until-verified|auto
  Where originals stay until purge: in the partition folder; nowhere (apply frees them, group by group, as soon as
  what replaces them is verified); or auto: in the folder while the disk has room, else nowhere.
no_merge --no-merge
  Do not join neighbouring segments.
assume_high_watermark --assume-high-watermark log-end
  Plan partitions without a recorded high watermark as if the log end were it.
replicas --replicas ID=LOGDIR[,LOGDIR]
  Another broker's log directories, stopped; may be repeated. With this broker's own ID: its other log directories.
cluster --cluster FILE
  What the cluster says of its partitions: the output of kafka-topics.sh --bootstrap-server ... --describe, or a copy
  of the active controller's __cluster_metadata-0. Where all other replicas are in sync without this one, markers and
  tombstones older than delete.retention.ms may go.
only_replica --only-replica TOPIC|*
  There is no other replica of this topic (* for all): markers and tombstones may go; may be repeated. Metadata that
  names several replicas counts more: give --config, so that it is found.
as_broker --as-broker
  Consent: markers and tombstones older than delete.retention.ms go, as a broker's cleaner would remove them, whatever
  other replicas still hold.
expect --expect DIGEST
  Refuse a plan of another digest; at least 32 of its 64 hex digits, from the front.
plan_id --plan-id ID
  With LOGDIR: the plan, by its id; left out, what is kept is listed.
originals --originals
  Of a plan: also hold what apply made against the kept originals, byte for byte. Ends with 2 where none is kept any
  more.
facts_file --out FILE
  The facts file to write.
group --group GROUP
  Only this group, with members and commits; may be repeated.
transactional_id --transactional-id ID
  Only this id, in whatever state; may be repeated.
batches --batches
  Of logs: the headers of batches.
records --records
  Of logs: the records. Without either both are shown.
offsets --offsets A..B
  Only these offsets, both included; as 100.. or ..200 too.
grep --grep PATTERN
  Only records with this regular expression in key, value, headers or decoded fields.
limit --limit N
  Stop after so many lines; those of files and damage do not count.
keys --keys auto|text|json|hex|base64
  How keys are shown; auto is text, or base64 where the bytes are no UTF-8.
values --values auto|text|json|hex|base64
  How values are shown.
cut --cut BYTES
  Show at most so many bytes of a key or a value.
decode --decode auto|offsets|transactions|share|none
  Decode records of the coordinators' topics; auto goes by the name of the folder.
into --into DIR
  Where to; left out: into the installation, for all its users.
"""


class Typed(Struct, frozen=True, kw_only=True):
    """What was typed, by the rows of the table. Options that a verb does not take have their defaults."""

    # what the broker is, and what is looked at
    config: str | None = None
    topic_config: str | None = None
    setting: list[str] | None = None
    broker_version: str = ""
    now: str | None = None
    topic: list[str] | None = None
    partition: list[str] | None = None
    # where the work is done
    engine: str = "auto"
    master: str = ""
    scratch: str = ""
    # what comes out
    json: bool = False
    json_lines: bool = False
    quiet: bool = False
    metrics: str = ""
    html: str = ""
    output_format: str = "text"
    section: str = ""
    ticket_format: str = "text"
    # check and compare
    deep: bool = False
    every: bool = False
    every_partition: bool = False
    rule: str = ""
    # plan: what is made, and of what
    fix: list[str] | None = None
    out: str | None = None
    preview: bool = False
    accept_data_loss: list[str] | None = None
    # plan: what may go, and where originals stay
    delete_horizon: str = "newest"
    keep: str = "inplace"
    no_merge: bool = False
    assume_high_watermark: str = ""
    # plan: what is known of other replicas
    replicas: list[str] | None = None
    cluster: str = ""
    only_replica: list[str] | None = None
    as_broker: bool = False
    # verbs of a plan
    expect: str = ""
    plan_id: str = ""
    originals: bool = False
    # one verb each
    facts_file: str = ""
    group: list[str] | None = None
    transactional_id: list[str] | None = None
    batches: bool = False
    records: bool = False
    offsets: str | None = None
    grep: str = ""
    limit: int | None = None
    keys: str = "auto"
    values: str = "auto"
    cut: int = 1 << 20
    decode: str = "auto"
    into: str = ""

    def options(self) -> Options:
        """What was typed, as typed values.

        Raises:
            UsageError: a value that cannot be read.
        """
        more: dict[str, Any] = {}
        if self.now is not None:
            more["now_ms"] = parsing.parse_clock_ms(self.now)
        if self.fix is not None:
            from krepair.fixes.table import parse_fixes

            more["fixes"] = parse_fixes(",".join(self.fix))
        if self.only_replica is not None:
            more["only_replica"] = tuple(sorted(set(self.only_replica)))
        if self.broker_version and not _VERSION.fullmatch(self.broker_version):
            raise UsageError(f"--broker-version {self.broker_version!r}: expected a version, as 2.2.1")
        return Options(
            config=self.config,
            topic_config=self.topic_config,
            settings=tuple(parsing.parse_setting(text) for text in self.setting or ()),
            broker_version=self.broker_version,
            topics=tuple(self.topic or ()),
            partitions=tuple(parsing.parse_partition(text) for text in self.partition or ()),
            engine=parse_engine(self.engine),
            master=self.master,
            scratch=self.scratch,
            deep=self.deep,
            delete_horizon=parsing.parse_delete_horizon(self.delete_horizon),
            keep=parsing.parse_keep(self.keep),
            merge=not self.no_merge,
            replicas=tuple(self.replicas or ()),
            cluster=self.cluster,
            assume_high_watermark=parsing.parse_assume_high_watermark(self.assume_high_watermark),
            accepted_losses=tuple(
                sorted({parsing.parse_accepted_loss(text) for text in self.accept_data_loss or ()})
            ),
            as_broker=self.as_broker,
            originals=self.originals,
            **more,
        )


Verb = Callable[..., None]


@cache
def rows() -> dict[str, Any]:
    """The table as options of typer, by name; what has no metavar is a flag."""
    found = {}
    for head, text in re.findall(r"^(\S.*)\n((?:  .*\n)+)", _TABLE, re.MULTILINE):
        name, *words = head.split()
        metavar = None if words[-1].startswith("-") else words.pop()
        found[name] = typer.Option(*words, metavar=metavar, help=" ".join(text.split()))
    return found


def takes(names: str) -> Callable[[Verb], Verb]:
    """Give a verb these rows of the table, in this order, as its argument ``typed``."""
    wanted, table = names.split(), rows()
    defaults = dict(zip(Typed.__struct_fields__, Typed.__struct_defaults__, strict=True))
    options = [
        inspect.Parameter(
            name,
            inspect.Parameter.KEYWORD_ONLY,
            default=defaults[name],
            annotation=Annotated[Typed.__annotations__[name], table[name]],
        )
        for name in wanted
    ]

    def with_options(verb: Verb) -> Verb:
        own = [
            one for one in inspect.signature(verb, eval_str=True).parameters.values() if one.name != "typed"
        ]
        parameters = [*own, *options]

        @wraps(verb)
        def run(**given: Any) -> None:
            _check_no_empty_operand(given[each.name] for each in own if each.name in given)
            verb(typed=Typed(**{name: given.pop(name) for name in wanted}), **given)

        # What typer reads in place of the verb's own.
        read: Any = run
        read.__signature__ = inspect.Signature(parameters)
        read.__annotations__ = {each.name: each.annotation for each in parameters}
        return run

    return with_options


def _check_no_empty_operand(operands: Iterable[Any]) -> None:
    """Refuse an empty word, which would name the folder in which krepair was started.

    Raises:
        UsageError: there is one.
    """
    for words in operands:
        if words == "" or (isinstance(words, list) and "" in words):
            raise UsageError(
                "expected a path or a name, found an empty word: is a variable of the shell empty?"
            )


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


def parse_section(text: str) -> str:
    """Read ``--section``.

    Raises:
        UsageError: a plan has no such section.
    """
    from krepair.plan.view import PARTS

    if text and text not in PARTS:
        raise UsageError(f"--section {text!r}: the sections are {', '.join(PARTS)}")
    return text
