-- Functions of Spark that DuckDB lacks, for the views and for statements that both run
CREATE MACRO array_join(list, separator) AS array_to_string(list, separator);
CREATE MACRO explode(list) AS unnest(list);
CREATE MACRO get_json_object(json, path) AS CASE WHEN json_valid(json) THEN json_extract_string(json, path) END;
CREATE MACRO map_from_arrays(keys, "values") AS map(keys, "values");
CREATE MACRO pmod(a, b) AS ((a % b) + b) % b;
CREATE MACRO sequence(first, last) AS generate_series(first, last);
CREATE MACRO sha2(bytes, bits) AS sha256(bytes);
CREATE MACRO shiftright(number, bits) AS number >> bits;
CREATE MACRO size(list) AS len(list);
CREATE MACRO sort_array(list) AS list_sort(list);
CREATE MACRO struct(a, b) AS row(a, b);
CREATE MACRO timestamp_millis(ms) AS CAST(epoch_ms(CAST(ms AS BIGINT)) AS TIMESTAMPTZ);
CREATE MACRO try_element_at(list, i) AS list_extract(list, i);
CREATE MACRO try_validate_utf8(bytes) AS try(decode(bytes));
CREATE MACRO unix_millis(moment) AS epoch_us(moment) // 1000 - CAST(epoch_us(moment) % 1000 < 0 AS BIGINT);
