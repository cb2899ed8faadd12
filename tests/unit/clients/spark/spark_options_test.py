"""Options of the data source: what a program may say, and what it is told where it may not."""

import pytest

from tidelog.clients.asking import Address
from tidelog.clients.settings import Acks, Isolation
from tidelog.kernel.ids import Partition
from tidelog.spark.durations import duration_ms
from tidelog.spark.option_rows import EXACTLY_ONCE, SINK, SOURCE
from tidelog.spark.options import (
    Assigned,
    Matching,
    Mode,
    Offsets,
    OptionError,
    Sides,
    SinkOptions,
    SourceOptions,
    Subscribed,
    Times,
    columns_of,
    sink_options,
    source_options,
)
from tidelog.wire.codecs import Codec

BOOTSTRAP = {"kafka.bootstrap.servers": "h:1"}
ZERO = ("t", Partition(0))


def source(mode: Mode = Mode.BATCH, /, **given: str) -> SourceOptions:
    return source_options({**BOOTSTRAP, "subscribe": "t", **_dotted(given)}, mode)


def sink(mode: Mode = Mode.STREAM, /, **given: str) -> SinkOptions:
    return sink_options({**BOOTSTRAP, "topic": "t", **_dotted(given)}, mode)


def _dotted(given: dict[str, str]) -> dict[str, str]:
    return {name.replace("_", "."): value for name, value in given.items()}


def refused(mode: Mode = Mode.BATCH, of: str = "source", /, **given: str) -> str:
    with pytest.raises(OptionError) as caught:
        (source if of == "source" else sink)(mode, **given)
    return str(caught.value)


def test_a_program_of_the_connector_needs_no_other_options() -> None:
    batch = source()
    assert batch.wanted == Subscribed(("t",))
    assert (batch.starting, batch.ending) == (Sides.EARLIEST, Sides.LATEST)
    assert batch.fail_on_data_loss
    assert batch.fetching.isolation is Isolation.READ_UNCOMMITTED
    assert [one.value for one in batch.columns.wanted] == [
        *("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
    ]
    assert source(Mode.STREAM).starting is Sides.LATEST


def test_names_count_in_any_case() -> None:
    given = {
        "KAFKA.Bootstrap.Servers": "h:1,[::1]:2",
        "SUBSCRIBE": "a, b",
        "failondataloss": "FALSE",
    }
    found = source_options(given, Mode.BATCH)
    assert found.connection is not None
    assert found.connection.bootstrap == (Address("h", 1), Address("::1", 2))
    assert found.wanted == Subscribed(("a", "b"))
    assert not found.fail_on_data_loss


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("startingOffset", "startingOffsets"),
        ("kafka.bootstrap.server", "kafka.bootstrap.servers"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("tidelog.column", "tidelog.columns"),
        ("kafka.max.poll.record", "kafka.max.poll.records"),
    ],
)
def test_an_option_that_is_not_known_names_the_nearest(name: str, nearest: str) -> None:
    assert refused(**{name: "1"}) == f"unknown option {name!r}; did you mean {nearest!r}?"


def test_only_a_batch_that_reads_files_needs_no_cluster() -> None:
    files = {"subscribe": "t", "tidelog.read": "segments", "tidelog.dataDirs": "data, more"}
    found = source_options(files, Mode.BATCH)
    assert (found.connection, found.data_dirs) == (None, ("data", "more"))
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        source_options(files, Mode.STREAM)


def test_an_option_of_the_other_side_is_told_so() -> None:
    assert "is one of the sink" in refused(topic="t")
    assert "is one of the source" in refused(Mode.STREAM, "sink", subscribe="t")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"kafka_auto_offset_reset": "earliest"}, "startingOffsets says"),
        ({"kafka_enable_auto_commit": "true"}, "commitOffsetsToGroup"),
        ({"kafka_key_deserializer": "x"}, "cast the column"),
        ({"kafka_security_protocol": "SSL"}, "TLS and SASL are not spoken yet"),
        ({"kafka_bootstrap_servers": "h"}, "'h' is not host:port"),
        ({"startingOffsets": "latest"}, "reads nothing"),
        ({"startingOffsets": '{"t":{"0":-1}}'}, "reads nothing"),
        ({"startingOffsets": '{"t":{"0":"5"}}'}, "must be JSON such as"),
        ({"startingOffsets": '{"t":{"0":-3}}'}, "-3 for t-0 must be an offset, -2 (earliest)"),
        ({"startingOffsets": '{"t":{"-2":5}}'}, "topic 't' has no partition -2; the first is 0"),
        ({"startingOffsets": '{"a/b":{"0":5}}'}, "'a/b' is no topic name: only letters"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-5}}'}, "-5 for t-0 must be a time in mil"),
        ({"subscribe": "t,nope/.."}, "option subscribe: 'nope/..' is no topic name: only letters"),
        ({"kafka_ssl_truststore_password": "x"}, "TLS and SASL are not spoken yet"),
        ({"kafka_sasl_jaas_config": "x"}, "kafka.sasl.jaas.config is refused: TLS and SASL are"),
        ({"KAFKA_SASL_mechanism": "x"}, "TLS and SASL are not spoken yet"),
        ({"startingOffsets": "first"}, "must be JSON such as"),
        ({"endingOffsets": "earliest"}, "reads nothing"),
        ({"assign": '{"t":[0]}'}, "exactly one of the options"),
        ({"tidelog_read": "segments"}, "go together"),
        ({"tidelog_dataDirs": "data"}, "go together"),
        ({"minPartitions": "0"}, "must be a whole number above 0"),
        ({"commitOffsetsToGroup": "g"}, "is for streams"),
        ({"tidelog_columns": "value,sum"}, "must be columns"),
        ({"includeHeaders": "true", "tidelog_includeHeaders": "true"}, "two names of one"),
    ],
)
def test_what_cannot_be_is_refused_with_what_is_right(given: dict[str, str], says: str) -> None:
    assert says in refused(**given)


def test_a_stream_has_no_end() -> None:
    assert "a stream has no end" in refused(Mode.STREAM, endingOffsets="latest")


def test_bootstrap_servers_must_be_given() -> None:
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers is missing"):
        source_options({"subscribe": "t"}, Mode.BATCH)


def test_what_to_read_is_said_in_one_of_three_ways() -> None:
    given = {**BOOTSTRAP, "assign": '{"b":[1,0],"a":[2]}'}
    wanted = (("a", Partition(2)), ("b", Partition(0)), ("b", Partition(1)))
    assert source_options(given, Mode.BATCH).wanted == Assigned(wanted)
    given = {**BOOTSTRAP, "subscribePattern": "t.*"}
    assert source_options(given, Mode.BATCH).wanted == Matching("t.*")
    with pytest.raises(OptionError, match="here none"):
        source_options(BOOTSTRAP, Mode.BATCH)
    with pytest.raises(OptionError, match=r"assign: topic 't' has no partition -2"):
        source_options({**BOOTSTRAP, "assign": '{"t":[-2]}'}, Mode.BATCH)
    with pytest.raises(OptionError, match=r"assign: 'a/b' is no topic name"):
        source_options({**BOOTSTRAP, "assign": '{"a/b":[0]}'}, Mode.BATCH)
    with pytest.raises(OptionError, match="subscribePattern"):
        source_options({**BOOTSTRAP, "subscribePattern": "("}, Mode.BATCH)


def test_one_timestamp_wins_over_timestamps_and_those_over_offsets() -> None:
    offsets, times = '{"t":{"0":-2}}', '{"t":{"0":7}}'
    assert source(startingOffsets=offsets).starting == Offsets({ZERO: -2})
    given = {"startingOffsets": offsets, "startingOffsetsByTimestamp": times}
    assert source(**given).starting == Times({ZERO: 7})
    assert source(**given, startingTimestamp="9").starting == Times({}, 9)
    assert source(endingOffsetsByTimestamp=times).ending == Times({ZERO: 7})


def test_as_of_is_another_name_of_the_end() -> None:
    assert source(tidelog_asOfTimestamp="5").ending == Times({}, 5)
    assert source(tidelog_asOfOffsets='{"t":{"0":4}}').ending == Offsets({ZERO: 4})


def test_columns_are_chosen_by_name_and_headers_by_either_option() -> None:
    assert [*columns_of({"tidelog.columns": "offset,value"}).wanted] == ["offset", "value"]
    assert columns_of({"includeHeaders": "true"}).wanted[-1] == "headers"
    chosen = columns_of({"tidelog.columns": "headers", "tidelog.includeHeaders": "true"})
    assert [*chosen.wanted] == ["headers"]


def test_the_limits_of_a_micro_batch_fit_each_other() -> None:
    limits = source(Mode.STREAM, minOffsetsPerTrigger="5", maxTriggerDelay="30 seconds").limits
    assert (limits.offsets_min, limits.offsets_max, limits.delay_ms) == (5, None, 30_000)
    given = {"minOffsetsPerTrigger": "6", "maxOffsetsPerTrigger": "5"}
    assert "is above maxOffsetsPerTrigger" in refused(Mode.STREAM, **given)


@pytest.mark.parametrize("text", ["", "5", "5 weeks", "m", "-1s"])
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=text or "^$"):
        duration_ms(text)


def test_a_sink_is_at_least_once_and_acknowledged_by_all_unless_told_otherwise() -> None:
    found = sink()
    assert (found.delivery, found.topic, found.producing.acks) == ("at-least-once", "t", Acks.ALL)
    assert sink(kafka_acks="1").producing.acks is Acks.LEADER
    assert sink(kafka_compression_type="zstd").producing.codec is Codec.ZSTD


def test_a_batch_write_is_exactly_once_under_a_name() -> None:
    found = sink(Mode.BATCH, tidelog_job_id="load-7")
    assert (found.delivery, found.job_id) == (EXACTLY_ONCE, "load-7")


@pytest.mark.parametrize(
    ("mode", "given", "says"),
    [
        (Mode.BATCH, {"tidelog_delivery": "exactly-once"}, "give it one with tidelog.job.id"),
        (Mode.STREAM, {"tidelog_job_id": "j"}, "a stream has tidelog.sink.id"),
        (Mode.STREAM, {"tidelog_delivery": "twice"}, "must be at-least-once"),
        (Mode.STREAM, {"tidelog_delivery": "exactly-once", "kafka_acks": "1"}, "kafka.acks=all"),
        (Mode.STREAM, {"tidelog_sink_id": "a b"}, "must be letters"),
        (Mode.STREAM, {"kafka_ssl_keystore_location": "x"}, "TLS and SASL are not spoken yet"),
        (Mode.STREAM, {"topic": "nope/.."}, "option topic: 'nope/..' is no topic name"),
        (Mode.STREAM, {"tidelog_sink_markerTopic": "a b"}, "'a b' is no topic name"),
        (Mode.STREAM, {"kafka_transactional_id": "x"}, "tidelog.sink.id say it"),
        (Mode.STREAM, {"kafka_delivery_timeout_ms": "5"}, "is below kafka.request.timeout.ms"),
    ],
)
def test_what_a_sink_cannot_be_is_refused(mode: Mode, given: dict[str, str], says: str) -> None:
    assert says in refused(mode, "sink", **given)


def test_an_exactly_once_sink_without_a_topic_is_told_where_its_marker_lies() -> None:
    given = {**BOOTSTRAP, "tidelog.delivery": "exactly-once"}
    with pytest.raises(OptionError, match=r"tidelog\.sink\.markerTopic"):
        sink_options(given, Mode.STREAM)
    found = sink_options({**given, "tidelog.sink.markerTopic": "m"}, Mode.STREAM)
    assert (found.topic, found.marker_topic) == (None, "m")


def test_every_option_says_what_it_does() -> None:
    rows = [*SOURCE.all_rows().values(), *SINK.all_rows().values()]
    assert [row.name for row in rows if not row.doc or not row.rule] == []


def test_only_a_stream_has_a_checkpoint_that_tells_its_micro_batches_apart() -> None:
    """Two writes of one foreachBatch have the same plan, but not the same rows."""
    assert sink(Mode.STREAM, checkpointLocation="/c").checkpoint == "/c"
    assert not sink(Mode.BATCH, checkpointLocation="/c", tidelog_job_id="j").checkpoint
