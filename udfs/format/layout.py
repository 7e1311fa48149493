"""The bytes of a Kafka log segment: positions, masks and sentinels, each named once.

A segment is a row of batches. Every batch starts with the same twelve bytes, and the magic byte
lies at the same place in all three formats, so it alone decides how to read on:

    offset int64 | length int32 | ... | magic int8 at 16 | ...      (all integers big-endian)

Source: Apache Kafka at the tag 4.1.0, clients/src/main/java/org/apache/kafka/common/record/: the names in
parentheses are files there, without ``.java``.
"""

# Every batch (Records)
OFFSET_POS = 0
LENGTH_POS = OFFSET_POS + 8
LOG_OVERHEAD = LENGTH_POS + 4  # batch size on disk = LOG_OVERHEAD + length
MAGIC_POS = 16
HEADER_UP_TO_MAGIC = MAGIC_POS + 1

MAGIC_V0, MAGIC_V1, MAGIC_V2 = 0, 1, 2

# Magic 2: the record batch (DefaultRecordBatch). Base offset, length, leader epoch and magic lie outside
# its CRC-32C.
LEADER_EPOCH_POS = LOG_OVERHEAD
V2_CRC_POS = MAGIC_POS + 1
V2_ATTRIBUTES_POS = V2_CRC_POS + 4  # the checksum covers the batch from here on
LAST_OFFSET_DELTA_POS = V2_ATTRIBUTES_POS + 2
BASE_TIMESTAMP_POS = LAST_OFFSET_DELTA_POS + 4
MAX_TIMESTAMP_POS = BASE_TIMESTAMP_POS + 8
PRODUCER_ID_POS = MAX_TIMESTAMP_POS + 8
PRODUCER_EPOCH_POS = PRODUCER_ID_POS + 8
BASE_SEQUENCE_POS = PRODUCER_EPOCH_POS + 2
RECORDS_COUNT_POS = BASE_SEQUENCE_POS + 4
V2_HEADER_SIZE = RECORDS_COUNT_POS + 4  # 61

# Magic 0 and 1: the message (LegacyRecord). CRC-32 from the magic byte to the end.
LEGACY_CRC_POS = LOG_OVERHEAD
LEGACY_ATTRIBUTES_POS = MAGIC_POS + 1
V1_TIMESTAMP_POS = LEGACY_ATTRIBUTES_POS + 1
V0_KEY_LENGTH_POS = LEGACY_ATTRIBUTES_POS + 1
V1_KEY_LENGTH_POS = V1_TIMESTAMP_POS + 8
V0_MIN_SIZE = V0_KEY_LENGTH_POS + 4 + 4  # both key and value null: 26
V1_MIN_SIZE = V1_KEY_LENGTH_POS + 4 + 4  # 34

# Bytes of the smallest batch of each magic
MIN_SIZES = {MAGIC_V0: V0_MIN_SIZE, MAGIC_V1: V1_MIN_SIZE, MAGIC_V2: V2_HEADER_SIZE}

# Attributes (DefaultRecordBatch, LegacyRecord), codecs (CompressionType) and timestamps (TimestampType)
CODEC_MASK = 0x07
TIMESTAMP_TYPE_MASK = 0x08
TRANSACTIONAL_MASK = 0x10
CONTROL_MASK = 0x20
DELETE_HORIZON_MASK = 0x40
V2_UNUSED_MASK = 0xFF80
V1_UNUSED_MASK = 0xF0
V0_UNUSED_MASK = 0xF8
UNUSED_MASKS = {MAGIC_V0: V0_UNUSED_MASK, MAGIC_V1: V1_UNUSED_MASK, MAGIC_V2: V2_UNUSED_MASK}

CODEC_NONE, CODEC_GZIP, CODEC_SNAPPY, CODEC_LZ4, CODEC_ZSTD = range(5)
LAST_CODECS = {MAGIC_V0: CODEC_LZ4, MAGIC_V1: CODEC_LZ4, MAGIC_V2: CODEC_ZSTD}
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd", "unknown", "unknown", "unknown")

CREATE_TIME, LOG_APPEND_TIME, NO_TIMESTAMP_TYPE = 0, 1, -1

# Control records (ControlRecordType, EndTransactionMarker): the key holds int16 version, int16 type
CONTROL_TYPES = (
    "ABORT",
    "COMMIT",
    "LEADER_CHANGE",
    "SNAPSHOT_HEADER",
    "SNAPSHOT_FOOTER",
    "KRAFT_VERSION",
    "KRAFT_VOTERS",
)
CONTROL_ABORT, CONTROL_COMMIT = 0, 1
CONTROL_UNKNOWN = len(CONTROL_TYPES)  # the code this project gives to every other type
NO_CONTROL = -1
CONTROL_KEY_SIZE = 4
END_MARKER_VALUE_SIZE = 6  # int16 version, int32 coordinator epoch

# Sentinels (RecordBatch) and bounds (DefaultRecord)
NO_TIMESTAMP = -1
NO_SEQUENCE = -1
NO_PRODUCER_ID = -1
NULL_LENGTH = -1
MIN_RECORD_SIZE = 7  # length, attributes, two deltas, two lengths, header count: a byte each
MIN_HEADER_SIZE = 2
MAX_VARINT_BYTES = 5
MAX_VARLONG_BYTES = 10
MAX_OFFSET = 2**63 - 1
# What a SQL timestamp holds: years 1 to 9999, in milliseconds
MIN_TIMESTAMP_MS = -62_135_596_800_000
MAX_TIMESTAMP_MS = 253_402_300_799_999
