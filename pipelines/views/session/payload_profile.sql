-- What keys and values are: per topic, side and format how many, which schemas, the share that decodes, and an example
-- Columns:
--   topic, side: as in value_errors
--   format string: avro, avro-container, protobuf, jsonschema, json, json-connect, text, number (4 or 8 bytes that begin with 00 or FF), bytes, empty, internal (Kafka's own topics), or the framing of a registry that is not at hand (azure, glue, apicurio8 by 8 bytes, apicurio by a header, avro-single-object)
--   certainty string: of the surest payload. schema: a schema consumes every byte; framing: only first bytes or a header say so; look: the bytes look like it
--   schema_ids array<int>: Ids of the schemas, sorted; null where none has one
--   payloads bigint: Payloads of this format; nulls are not counted
--   share double: payloads, as a share of all payloads of the topic's side
--   decoded bigint: Payloads that decode
--   decoded_share double: decoded / payloads
--   reasons array<string>: Why others do not, as value_errors.reason, sorted; null where all decode
--   example_partition int: Partition of the first payload that decodes, else of the first one; of several copies the first by its folder
--   example_offset bigint: Its offset
--   example string: That payload as JSON; null where it does not decode
WITH looked AS (
  SELECT topic, 'key' AS side, partition, offset, segment, batch_position, key AS payload, headers,
    kafka_payload(topic, 'key', key, headers) AS d
  FROM published_records WHERE NOT is_control AND key IS NOT NULL
  UNION ALL
  SELECT topic, 'value' AS side, partition, offset, segment, batch_position, value AS payload, headers,
    kafka_payload(topic, 'value', value, headers) AS d
  FROM published_records WHERE NOT is_control AND value IS NOT NULL
), placed AS (
  SELECT topic, side, partition, offset, d.format AS format, d.certainty AS certainty, d.schema_id AS schema_id,
    d.reason AS reason, CASE WHEN d.reason IS NULL THEN payload END AS payload,
    struct(CASE WHEN d.reason IS NULL THEN 0 ELSE 1 END,
      struct(struct(partition, offset), struct(segment, batch_position))) AS place,
    transform(sequence(1, 1), one -> headers) AS headers -- min_by of DuckDB leaves out nulls
  FROM looked
), counted AS (
  SELECT topic, side, format, CASE WHEN count_if(certainty = 'schema') > 0 THEN 'schema'
      WHEN count_if(certainty = 'framing') > 0 THEN 'framing' ELSE max(certainty) END AS certainty,
    CASE WHEN count(schema_id) > 0
      THEN sort_array(array_agg(DISTINCT schema_id) FILTER (WHERE schema_id IS NOT NULL)) END AS schema_ids,
    count(*) AS payloads, count(*) FILTER (WHERE reason IS NULL) AS decoded,
    CASE WHEN count(reason) > 0
      THEN sort_array(array_agg(DISTINCT reason) FILTER (WHERE reason IS NOT NULL)) END AS reasons,
    min_by(partition, place) AS example_partition, min_by(offset, place) AS example_offset,
    min_by(payload, place) AS payload, try_element_at(min_by(headers, place), 1) AS headers
  FROM placed GROUP BY topic, side, format
)
SELECT topic, side, format, certainty, schema_ids, payloads,
  payloads / sum(payloads) OVER (PARTITION BY topic, side) AS share, decoded, decoded / payloads AS decoded_share,
  reasons, example_partition, example_offset, kafka_payload_json(topic, side, payload, headers) AS example
FROM counted
