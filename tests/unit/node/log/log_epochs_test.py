"""The leader-epoch cache, and the text files beside the logs."""

import pytest

from tidelog.kernel.failures import CorruptError
from tidelog.kernel.ids import NO_EPOCH, NO_OFFSET, ZERO_UUID, Partition, Uuid
from tidelog.node.log.epochs import EpochCache, decode_epochs
from tidelog.wire.checkpoints import (
    decode_offsets,
    decode_partition_metadata,
    decode_properties,
    encode_offsets,
    encode_partition_metadata,
    encode_properties,
)

TOPIC_ID = Uuid(bytes(range(16)))


def cache(*rows: tuple[int, int]) -> EpochCache:
    made = EpochCache()
    for epoch, start in rows:
        assert made.assign(epoch, start)
    return made


def test_an_epoch_ends_where_the_next_begins() -> None:
    epochs = cache((1, 0), (3, 10), (4, 15))
    assert epochs.end_of(1, 20) == (1, 10)
    assert epochs.end_of(2, 20) == (1, 10), "the largest one not above"
    assert epochs.end_of(4, 20) == (4, 20)


def test_an_epoch_newer_than_all_is_unknown() -> None:
    assert cache((1, 0)).end_of(2, 20) == (NO_EPOCH, NO_OFFSET)
    assert EpochCache().end_of(0, 0) == (NO_EPOCH, NO_OFFSET)


def test_an_epoch_older_than_all_ends_where_the_first_begins() -> None:
    assert cache((5, 7)).end_of(2, 20) == (2, 7)


def test_an_epoch_that_wrote_nothing_gives_way() -> None:
    assert cache((1, 0), (2, 5), (3, 5)).entries() == [(1, 0), (3, 5)]


def test_an_old_epoch_is_no_news() -> None:
    epochs = cache((3, 0))
    assert not epochs.assign(3, 5)
    assert not epochs.assign(2, 5)
    assert not EpochCache().assign(-1, 0)


def test_who_wrote_an_offset() -> None:
    epochs = cache((1, 5), (3, 10))
    assert [epochs.epoch_at(at) for at in (4, 5, 9, 10, 99)] == [-1, 1, 1, 3, 3]
    assert (epochs.latest, EpochCache().latest) == (3, NO_EPOCH)


def test_a_cut_forgets_the_epochs_behind_it() -> None:
    epochs = cache((1, 0), (3, 10))
    assert not epochs.cut_from(11)
    assert epochs.cut_from(10)
    assert epochs.entries() == [(1, 0)]


def test_a_new_start_keeps_the_epoch_that_covers_it() -> None:
    epochs = cache((1, 0), (3, 10))
    assert not epochs.cut_below(0)
    assert epochs.cut_below(4)
    assert epochs.entries() == [(1, 4), (3, 10)]
    assert epochs.cut_below(12)
    assert epochs.entries() == [(3, 12)]
    assert not EpochCache().cut_below(5)
    assert not cache((1, 5)).cut_below(3)


def test_a_start_that_was_set_back_takes_the_first_epoch_along() -> None:
    epochs = cache((1, 20), (3, 30))
    epochs.reach_back(25)
    assert epochs.entries() == [(1, 20), (3, 30)]
    epochs.reach_back(10)
    assert epochs.entries() == [(1, 10), (3, 30)]
    EpochCache().reach_back(3)


def test_the_epoch_file_is_kafkas() -> None:
    epochs = cache((1, 0), (3, 10))
    assert epochs.encode() == b"0\n2\n1 0\n3 10\n"
    assert decode_epochs(epochs.encode(), place="x") == epochs
    assert epochs != 5


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\xff",
        b"1\n0\n",
        b"0\n1\n",
        b"0\n1\n1 0",
        b"0\nx\n",
        b"0\n1\n1\n",
        b"0\n1\n1 2 3\n",
        b"0\n1\na b\n",
        b"0\n2\n1 0\n1 5\n",
        b"0\n2\n1 5\n2 5\n",
        b"0\n1\n1 -1\n",
        b"0\n1\n-1 0\n",
    ],
)
def test_what_is_no_epoch_file_is_corrupt(content: bytes) -> None:
    with pytest.raises(CorruptError, match="no epoch list"):
        decode_epochs(content, place="x")


def test_offset_checkpoints_are_kafkas() -> None:
    offsets = {("t", Partition(1)): 5, ("a.b-c", Partition(0)): 7}
    content = encode_offsets(offsets)
    assert content == b"0\n2\na.b-c 0 7\nt 1 5\n"
    assert decode_offsets(content, place="x") == offsets
    assert decode_offsets(b"0\n0\n", place="x") == {}


@pytest.mark.parametrize(
    "content", [b"", b"0\n2\nt 0 1\n", b"0\n1\nt 0\n", b"0\n1\nt x 1\n", b"0\n1\nt 0 -1\n", b"\xff"]
)
def test_what_is_no_checkpoint_is_corrupt(content: bytes) -> None:
    with pytest.raises(CorruptError, match="no checkpoint"):
        decode_offsets(content, place="x")


def test_partition_metadata_names_the_topic_or_nobody() -> None:
    content = encode_partition_metadata(TOPIC_ID)
    assert content == b"version: 0\ntopic_id: AAECAwQFBgcICQoLDA0ODw"
    assert decode_partition_metadata(content) == TOPIC_ID
    for damaged in (None, b"", b"\xff", b"version: 0\ntopic_id: x", b"version: 0\nnothing"):
        assert decode_partition_metadata(damaged) == ZERO_UUID


def test_properties_are_read_with_comments_and_blanks() -> None:
    content = b"#\n#Mon Jan 01\n\n cluster.id = abc \nversion=1\n"
    assert decode_properties(content, place="x") == {"cluster.id": "abc", "version": "1"}
    assert encode_properties({"a": "b"}) == b"a=b\n"
    for damaged in (b"\xff", b"nonsense\n"):
        with pytest.raises(CorruptError):
            decode_properties(damaged, place="x")
