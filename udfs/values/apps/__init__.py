"""Reads what Kafka Streams, Kafka Connect and MirrorMaker 2 write: a kind of topic says how its bytes lie.

topic_format   kind, serdes and window size of a topic, as a file of formats gives them
cursor         reads the fields of a payload one after another
serdes         the serializers of Kafka's clients and of Streams' windows
streams        keys and values of Streams' stores, repartition topics and joins
connect        JSON with Connect's schema
connect_topics records of Connect's own topics: configurations, states, source offsets
mirror         MirrorMaker's records, of which key and value are one
payloads       a topic's format -> readers and column types of its sides
columns        the SQL functions of Connect's and MirrorMaker's records
recognise      a topic's name and first records -> its format, where they leave no doubt
"""
