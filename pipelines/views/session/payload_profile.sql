-- What keys and values are: per topic, side and format how many, which schemas, the share that decodes, and an example
-- Columns:
--   topic string: Topic
--   side string: key or value
--   format string: avro, protobuf, jsonschema, json, json-connect, text, number, bytes, empty, internal (Kafka's own topics), or the framing of a registry that is not at hand (azure, glue, apicurio, avro-single-object)
--   certainty string: of the surest payload. schema: a schema consumes every byte; framing: only first bytes or a header say so; look: the bytes look like it
--   schema_ids array<int>: Ids of the schemas, sorted; null where none has one
--   payloads bigint: Payloads of this format; nulls are not counted
--   share double: payloads, as a share of all payloads of the topic's side
--   decoded bigint: Payloads that decode
--   decoded_share double: decoded / payloads
--   reasons array<string>: Why others do not, as value_errors.reason, sorted; null where all decode
--   example_partition int: Partition of the first payload that decodes, else of the first one
--   example_offset bigint: Its offset
--   example string: That payload as JSON; null where it does not decode
WITH looked AS (
  SELECT topic, 'key' AS side, partition, offset, key AS payload, headers,
    kafka_payload(topic, 'key', key, headers) AS d
  FROM published_records WHERE NOT is_control AND key IS NOT NULL
  UNION ALL
  SELECT topic, 'value' AS side, partition, offset, value AS payload, headers,
    kafka_payload(topic, 'value', value, headers) AS d
  FROM published_records WHERE NOT is_control AND value IS NOT NULL
),
numbered AS (
  SELECT topic, side, partition, offset, payload, headers, d.format AS format, d.certainty AS certainty,
    d.schema_id AS schema_id, d.reason AS reason,
    row_number() OVER (
      PARTITION BY topic, side, d.format
      ORDER BY CASE WHEN d.reason IS NULL THEN 0 ELSE 1 END, partition, offset
    ) AS number,
    count(*) OVER (PARTITION BY topic, side) AS of_side
  FROM looked
),
counted AS (
  SELECT topic, side, format, max(certainty) AS certainty,
    CASE WHEN count(schema_id) > 0
      THEN sort_array(array_agg(DISTINCT schema_id) FILTER (WHERE schema_id IS NOT NULL)) END AS schema_ids,
    count(*) AS payloads, max(of_side) AS of_side, count(*) FILTER (WHERE reason IS NULL) AS decoded,
    CASE WHEN count(reason) > 0
      THEN sort_array(array_agg(DISTINCT reason) FILTER (WHERE reason IS NOT NULL)) END AS reasons
  FROM numbered GROUP BY topic, side, format
)
SELECT c.topic, c.side, c.format, c.certainty, c.schema_ids, c.payloads, c.payloads / c.of_side AS share, c.decoded,
  c.decoded / c.payloads AS decoded_share, c.reasons, n.partition AS example_partition, n.offset AS example_offset,
  kafka_payload_json(n.topic, n.side, n.payload, n.headers) AS example
FROM counted c JOIN numbered n
  ON n.topic = c.topic AND n.side = c.side AND n.format = c.format AND n.number = 1
