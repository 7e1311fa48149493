-- The keys of client-side field encryption that Confluent's registry keeps in `_dek_registry_keys`: key encryption keys (KEK),
-- which lie in a key management service, and data encryption keys (DEK), encrypted by them. Each record, the last of a key too
-- Columns:
--   kind string: KEK or DEK; null where the record's key can't be read
--   tenant string: Tenant as stored
--   kek_name string: Name of the KEK
--   subject string: DEK: the subject whose fields or payloads it encrypts; null of a KEK
--   algorithm string: DEK: AES128_GCM, AES256_GCM or AES256_SIV; null of a KEK
--   dek_version int: DEK: its version; null of a KEK
--   kms_type string: KEK: the kind of its key management service, such as aws-kms; null of a DEK
--   kms_key_id string: KEK: its id there; null of a DEK
--   kms_properties string: KEK: properties of the service as JSON; null of a DEK
--   doc string: KEK: its description
--   is_shared boolean: KEK: the registry itself may use it; null of a DEK
--   encrypted_key_material string: DEK: its bytes, encrypted by the KEK, in Base64; null where the registry makes them on demand
--   is_deleted boolean: It is deleted softly
--   is_tombstone boolean: The record deletes the key for good
--   is_current boolean: The last record of this key in its copy of the topic
--   record_offset, record_timestamp, segment: as in schema_encoders
--   error string: Why the record can't be read; else null
--   raw_key binary: The record's key, where there is an error
--   raw_value binary: The record's value, where there is an error
WITH texts AS (
  SELECT try_validate_utf8(key) AS named, try_validate_utf8(value) AS held, key, value, offset, timestamp, segment, partition_dir
  FROM published_records
  WHERE topic = '_dek_registry_keys' AND NOT is_control
), fields AS (
  SELECT *, get_json_object(named, '$.type') AS stored_kind, get_json_object(named, '$.tenant') AS tenant,
    coalesce(get_json_object(named, '$.kekName'), get_json_object(named, '$.name')) AS kek_name,
    coalesce(get_json_object(named, '$.subject'), get_json_object(named, '$.scope')) AS subject,
    get_json_object(named, '$.algorithm') AS algorithm,
    TRY_CAST(get_json_object(named, '$.version') AS INT) AS dek_version, get_json_object(held, '$.type') AS held_kind
  FROM texts
), judged AS (
  SELECT *, CASE WHEN stored_kind IN ('KEK', 'DEK') AND kek_name IS NOT NULL THEN stored_kind END AS kind,
    CASE WHEN stored_kind IS NULL OR stored_kind NOT IN ('KEK', 'DEK') OR kek_name IS NULL THEN 'the key names no KEK and no DEK'
      WHEN value IS NOT NULL AND (held_kind IS NULL OR held_kind <> stored_kind) THEN 'the value is not that of a ' || stored_kind
    END AS error
  FROM fields
)
SELECT kind, tenant, kek_name, subject, algorithm, dek_version, get_json_object(held, '$.kmsType') AS kms_type,
  get_json_object(held, '$.kmsKeyId') AS kms_key_id, get_json_object(held, '$.kmsProps') AS kms_properties,
  get_json_object(held, '$.doc') AS doc,
  CASE WHEN kind = 'KEK' AND held IS NOT NULL THEN coalesce(get_json_object(held, '$.shared') = 'true', false) END AS is_shared,
  get_json_object(held, '$.encryptedKeyMaterial') AS encrypted_key_material,
  coalesce(get_json_object(held, '$.deleted') = 'true', false) AS is_deleted, value IS NULL AS is_tombstone,
  row_number() OVER (PARTITION BY partition_dir, kind, tenant, kek_name, subject, algorithm, dek_version,
    CASE WHEN kind IS NULL THEN key END ORDER BY offset DESC, segment) = 1 AS is_current,
  offset AS record_offset, timestamp AS record_timestamp, segment, error,
  CASE WHEN error IS NOT NULL THEN key END AS raw_key, CASE WHEN error IS NOT NULL THEN value END AS raw_value
FROM judged
