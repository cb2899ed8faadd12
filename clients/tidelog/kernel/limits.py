"""Every bound of the cluster in one place, with asserts on how they relate."""

KIB = 1024
MIB = 1024 * KIB

# frames
REQUEST_BYTES_MAX = 100 * MIB
REQUEST_BYTES_MAX_BEFORE_AUTHENTICATION = 64 * KIB
CLIENT_ID_BYTES_LOGGED_MAX = 256
MESSAGE_ELEMENTS_MAX = 1_000_000
REQUEST_ELEMENTS_MAX = 200_000
"""Less: a request takes memory and a thread's time for each of them."""
DECIDED_ELEMENTS_MAX = 50_000
"""Of a request on which a coordinator decides at one go: the controller, a group's, or that of
transactions. As many partitions as one decision may make fit, each with its replicas."""
FORWARDED_WEIGHT_MAX = 2_000
"""Of what the controller decides on in one step of its loop, if a request can be cut into pieces. A
unit takes it about five microseconds: a new partition, or an entry; a new topic weighs ten."""
FEW_ELEMENTS_MAX = 10_000
"""Of a request that names members of one group, or filters: nobody has use for more."""
ELEMENTS_AT_ONCE_MAX = 5_000
"""A request or an answer of more is decoded or encoded in a thread: on the loop it would take
longer than the 5 ms after which threads take turns."""
ELEMENTS_LIGHT = 20_000
"""One of more waits behind others of its kind, not in front of ordinary work."""
ELEMENT_BYTES = 200
"""Of memory, for each element of a request that is kept until it is done."""
STRING_BYTES_MAX = 32_767
TAGGED_FIELDS_MAX = 1_000
QUOTED_CHARS_MAX = 200
"""Of a client's text, where an error message quotes it."""
REFUSAL_CHARS_MAX = 2_000
"""Of a whole error message; a character takes up to 4 bytes on the wire."""
MEMBER_ID_PREFIX_CHARS_MAX = 200
"""A coordinator makes the id of a group's member of the client's own name and a uuid."""

# connections
CONNECTIONS_MAX = 10_000
SILENT_CONNECTION_MS = 3_000
"""Where no more may connect, a connection that has not asked anything for as long makes room."""
IN_FLIGHT_REQUESTS_MAX = 16
UNDELIVERED_ANSWER_BYTES_MAX = 8 * MIB
RECEIVE_BUFFER_BYTES_FIRST = 4 * KIB
RECEIVE_BUFFER_BYTES_STEADY = 256 * KIB
RECEIVE_BUFFER_BYTES_KEPT = 2 * MIB
RECEIVED_BYTES_MAX = 256 * MIB
"""Of all connections together, beyond the small buffer that each has."""
INCOMPLETE_REQUEST_MS = 10_000
"""While others wait for memory, a request that takes longer to come ends its connection."""
STALLED_REQUEST_MS = 3_000
"""So does one of which no further byte comes for as long."""
PARTITIONS_PER_REQUEST_MAX = 2_000
FETCH_SESSION_PARTITIONS_MAX = 20_000
"""Of one session: a request of a few bytes has all of them looked at."""
FETCH_SESSIONS_PARTITIONS_MAX = 200_000

# log
BATCH_BYTES_MAX_DEFAULT = 1_048_588
SEGMENT_BYTES_MIN = 4 * KIB
SEGMENT_BYTES_MAX = 2**31 - 1
DECOMPRESSED_BATCH_BYTES_MAX = 64 * MIB
RECORDS_LOOKED_AT_MAX = 1_000_000
"""Of all batches in one request. No client puts more into a batch (librdkafka's
`batch.num.messages` ends there), and a few KiB can unpack to ten times as many."""
RECORDS_LIGHT = 20_000
"""A batch of more records waits behind others of its kind, not in front of ordinary ones."""
RECORDS_PER_STEP = 1_000
"""A thread that looks at records lets the loop run after this many, which take 1 ms."""
RECORDS_AT_ONCE_MAX = 2_000
"""Of all batches in one request, on the loop itself."""
LOOKED_AT_ONCE_BYTES = MIB
"""Of batches that a search by time reads on the loop before other clients have their turn; the last
of them may be larger."""
HEADERS_PER_STEP = 2_000
"""A search by time that passes more batches lets other clients have their turn."""
ROWS_PER_STEP = 500
"""A request that names more partitions lets other clients have their turn."""
RECORDS_NAMED_MAX = 10_000
"""Records at fault that one answer lists: as many as a batch of librdkafka's has by default."""
LOOKED_AT_BYTES_MAX = 64 * MIB
"""Batches that searches by time have in memory; one more may come, other searches wait."""
UNPACKED_BYTES_LIGHT = 4 * MIB
UNPACKED_BYTES_PER_REQUEST_MAX = 512 * MIB
PRODUCER_BATCHES_KEPT = 5
PRODUCERS_PER_LOG_MAX = 10_000
"""1.5 KiB each; a broker has no more clients at one time."""
RECOVERY_CHUNK_BYTES = 4 * MIB

# topics
TOPIC_NAME_CHARS_MAX = 249
PARTITIONS_PER_TOPIC_MAX = 10_000
PARTITIONS_IN_CLUSTER_MAX = 100_000
PARTITIONS_PER_DECISION_MAX = 10_000
CONFIG_CHANGES_PER_DECISION_MAX = 10_000
RESOURCES_WITH_SETTINGS_MAX = 10_000
"""Groups, and subscriptions to clients' metrics: of each kind."""

# groups
GROUP_MEMBERS_MAX = 1_000
TRANSACTION_OFFSETS_MAX = 20_000
"""Offsets that one transaction commits in one partition of the groups' log: all of them begin to
count with its marker, in one turn of the loop."""
GROUP_BYTES_MAX = 8 * MIB
"""What the members of one group say of themselves and are assigned, together."""

# transaction coordinator
TRANSACTION_BYTES_MAX = 512 * KIB
"""Of one record of `__transaction_state`: a batch holds one of this size at least."""
TRANSACTION_PARTITIONS_MAX = 12_000
"""Of one transaction: the largest topic, and what its producer needs beside it. They are sorted,
written and sent to at one go: each thousand takes the coordinator three milliseconds."""
TRANSACTIONS_EXPIRED_PER_DECISION_MAX = 500
TRANSACTION_CALLS_MAX = 10_000
TRANSACTION_PARKED_MS = 300
"""So long a request waits for what the coordinator is about to have, before it is turned away."""
TRANSACTION_END_WAIT_MS = 100
"""So long EndTxn waits for markers, once its outcome is certain."""
TRANSACTION_AGAIN_MS_FIRST = 10
TRANSACTION_AGAIN_MS = 100
"""What was refused is tried again after this, if nothing has changed until then."""
TRANSACTION_APPENDS_IN_FLIGHT_MAX = 5
TRANSACTION_APPENDS_QUEUED_MAX = 1_000
"""Decisions of one partition that wait for those."""
TRANSACTION_CHUNK_BYTES = 256 * KIB
TRANSACTION_LOADS_MAX = 16
TRANSACTION_MARKERS_PER_MESSAGE_MAX = 100
TRANSACTION_MARKS_IN_FLIGHT_MAX = 8
"""Messages to one broker; what comes meanwhile goes together in the next one. It may write all that
is under way in one turn of its loop."""
TRANSACTION_ADMITS_UNHEARD_MAX = 10_000
"""Partitions that one broker was told of unasked, since it last answered a message that was sent
behind that; for others it has to ask."""
TRANSACTION_MESSAGES_QUEUED_MAX = 100_000
"""To one broker that does not read: more than all of the bounds above let come together, for what
is not sent is lost, and the connection would have to end."""

# metadata
METADATA_SNAPSHOT_RECORDS = 20_000
METADATA_SNAPSHOTS_KEPT = 2
METADATA_RECORDS_KEPT = 50_000
FEED_RECORDS_IN_FLIGHT = 20_000
FEED_SNAPSHOT_CHUNK_RECORDS = 1_000
CONTROL_MESSAGE_BYTES_MAX = 64 * MIB
FORWARDED_FRAME_BYTES_MAX = 8 * MIB
FORWARDED_CALLS_MAX = 1_000
SETTLED_ANSWERS_BYTES_MAX = 8 * MIB
COORDINATOR_DOWN_WAIT_MS = 1_500
COORDINATORS_PER_CALL_MAX = 2
"""A client's request is sent once more after the coordinator that had it has died, and no more."""
REGISTER_AGAIN_MS = 500
JOIN_AGAIN_MS = 2_000

# transactions: a broker and their coordinator
TRANSACTIONS_DOWN_WAIT_MS = 300
"""So long a client's request waits for a transaction coordinator that is started again."""
TRANSACTION_CALLS_WAITING_BYTES_MAX = 32 * MIB
TRANSACTION_REQUESTS_MAX = 16_384
"""What the transaction coordinator may have under way with one broker: appends, reads, markers."""
TRANSACTION_REQUESTS_BYTES_MAX = 128 * MIB
TRANSACTION_READ_BYTES_MAX = MIB

# replication
RING_BYTES = 32 * MIB
RING_BYTES_MIN = 2 * MIB
ROOM_BYTES_MIN = MIB
"""With less a disk that was full is full still."""

# processes
BROKERS_MAX = 64
PRODUCER_ID_BLOCK = 1_000
PRODUCERS_BEGUN_BURST = 20_000
"""InitProducerId requests that a broker answers at once; twice as many clients as can connect."""
PRODUCERS_BEGUN_PER_S = 2_000
"""As many again in each second."""
PRODUCERS_BEGUN_BURST_OF_CLIENT = 1_000
"""Of one connection: a producer asks once, an admin client that fences producers once for each."""
PRODUCERS_BEGUN_PER_S_OF_CLIENT = 50
PRODUCERS_BEGUN_WAIT_MS = 2_000
"""Whoever would have to wait longer is refused."""
FORWARD_TIMEOUT_MS = 30_000
ALTER_ISR_TIMEOUT_MS = 2_000
UNCLEAN_RECOVERY_WAIT_MS = 30_000
LEADERS_MOVED_PER_DECISION_MAX = 1_000
METADATA_APPLY_WAIT_MS = 500
HEARTBEAT_MS = 100
BROKER_STOPPED_MS = 1_000
BROKER_SILENT_MS = 6_000
COORDINATOR_SILENT_MS = 2_000
COORDINATOR_STOPPED_MS = 200
"""With a standby; without one a stopped coordinator has as long as a silent one."""
STANDBYS_MAX = 4
DISK_FAULTS_MAX = 8
"""Made on purpose, of one broker's disks at a time."""
DISK_FAULT_DELAY_MAX_MS = 60_000
DISK_BYTES_MIN = 32 * MIB
"""Of a disk that a process has of its own: room for a journal, and some segments."""
DISK_BYTES_MAX = MIB * MIB

assert 4 * QUOTED_CHARS_MAX <= 4 * REFUSAL_CHARS_MAX <= STRING_BYTES_MAX
assert RECEIVE_BUFFER_BYTES_FIRST <= RECEIVE_BUFFER_BYTES_STEADY <= RECEIVE_BUFFER_BYTES_KEPT
assert RECEIVE_BUFFER_BYTES_KEPT <= REQUEST_BYTES_MAX < RECEIVED_BYTES_MAX
assert STALLED_REQUEST_MS < INCOMPLETE_REQUEST_MS
assert BATCH_BYTES_MAX_DEFAULT <= DECOMPRESSED_BATCH_BYTES_MAX <= REQUEST_BYTES_MAX
assert BATCH_BYTES_MAX_DEFAULT <= UNPACKED_BYTES_LIGHT <= DECOMPRESSED_BATCH_BYTES_MAX
assert DECOMPRESSED_BATCH_BYTES_MAX <= UNPACKED_BYTES_PER_REQUEST_MAX
assert RECORDS_PER_STEP <= RECORDS_AT_ONCE_MAX <= RECORDS_LIGHT <= RECORDS_LOOKED_AT_MAX
assert RECORDS_NAMED_MAX <= RECORDS_LIGHT
assert CONNECTIONS_MAX <= PRODUCERS_PER_LOG_MAX
assert CONNECTIONS_MAX <= PRODUCERS_BEGUN_BURST
assert PRODUCERS_BEGUN_BURST_OF_CLIENT <= PRODUCERS_BEGUN_BURST
assert PRODUCERS_BEGUN_PER_S_OF_CLIENT <= PRODUCERS_BEGUN_PER_S
assert HEARTBEAT_MS * 10 <= BROKER_STOPPED_MS < COORDINATOR_SILENT_MS < BROKER_SILENT_MS
assert FETCH_SESSION_PARTITIONS_MAX <= FETCH_SESSIONS_PARTITIONS_MAX <= REQUEST_ELEMENTS_MAX
assert ROWS_PER_STEP <= ELEMENTS_AT_ONCE_MAX <= ELEMENTS_LIGHT <= REQUEST_ELEMENTS_MAX
assert ELEMENTS_AT_ONCE_MAX <= FEW_ELEMENTS_MAX <= DECIDED_ELEMENTS_MAX <= REQUEST_ELEMENTS_MAX
assert 4 * PARTITIONS_PER_DECISION_MAX < DECIDED_ELEMENTS_MAX
assert GROUP_MEMBERS_MAX < FEW_ELEMENTS_MAX
assert TAGGED_FIELDS_MAX <= ELEMENTS_AT_ONCE_MAX
assert 2 * PARTITIONS_IN_CLUSTER_MAX <= REQUEST_ELEMENTS_MAX <= MESSAGE_ELEMENTS_MAX
assert PARTITIONS_PER_TOPIC_MAX <= PARTITIONS_PER_DECISION_MAX <= PARTITIONS_IN_CLUSTER_MAX
assert FEED_SNAPSHOT_CHUNK_RECORDS < FEED_RECORDS_IN_FLIGHT <= METADATA_RECORDS_KEPT
assert FORWARDED_FRAME_BYTES_MAX < CONTROL_MESSAGE_BYTES_MAX
assert REGISTER_AGAIN_MS < JOIN_AGAIN_MS
assert CONNECTIONS_MAX <= TRANSACTION_CALLS_MAX
assert TRANSACTION_AGAIN_MS_FIRST < TRANSACTION_AGAIN_MS < TRANSACTION_PARKED_MS
assert TRANSACTION_END_WAIT_MS <= TRANSACTION_PARKED_MS < FORWARD_TIMEOUT_MS
assert TRANSACTION_APPENDS_IN_FLIGHT_MAX <= PRODUCER_BATCHES_KEPT
assert (
    (TRANSACTION_APPENDS_IN_FLIGHT_MAX + 1) * PARTITIONS_PER_TOPIC_MAX
    + TRANSACTION_MARKS_IN_FLIGHT_MAX
    + TRANSACTION_ADMITS_UNHEARD_MAX
    + TRANSACTION_CALLS_MAX
    < TRANSACTION_MESSAGES_QUEUED_MAX
)
assert 2 * TRANSACTION_BYTES_MAX <= BATCH_BYTES_MAX_DEFAULT
assert PARTITIONS_PER_TOPIC_MAX < TRANSACTION_PARTITIONS_MAX
assert TRANSACTION_MARKERS_PER_MESSAGE_MAX * TRANSACTION_MARKS_IN_FLIGHT_MAX <= 2 * ROWS_PER_STEP
assert COORDINATOR_DOWN_WAIT_MS < ALTER_ISR_TIMEOUT_MS
assert METADATA_SNAPSHOT_RECORDS <= METADATA_RECORDS_KEPT
assert TRANSACTIONS_DOWN_WAIT_MS < COORDINATOR_DOWN_WAIT_MS
assert FORWARDED_FRAME_BYTES_MAX <= TRANSACTION_CALLS_WAITING_BYTES_MAX
assert TRANSACTION_READ_BYTES_MAX < CONTROL_MESSAGE_BYTES_MAX <= TRANSACTION_REQUESTS_BYTES_MAX
