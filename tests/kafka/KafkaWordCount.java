import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.KTable;
import org.apache.kafka.streams.kstream.KeyValueMapper;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.ValueMapper;
import org.apache.kafka.streams.state.Stores;

/**
 * Counts the words of the topic "lines" with Kafka Streams; each new count goes to the topic "counted".
 *
 * usage: KafkaWordCount ADDRESS APPLICATION_ID STATE_FOLDER
 *
 * It runs until a line comes from standard input, or it ends.
 *
 * Written so that Janino compiles it: no lambdas.
 */
public class KafkaWordCount {
    public static void main(String[] arguments) throws Exception {
        Properties settings = new Properties();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("application.id", arguments[1]);
        settings.put("state.dir", arguments[2]);
        settings.put("processing.guarantee", "exactly_once_v2");
        settings.put("commit.interval.ms", "100");
        settings.put("statestore.cache.max.bytes", "0");
        settings.put("default.key.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde");
        settings.put("default.value.serde", "org.apache.kafka.common.serialization.Serdes$StringSerde");
        StreamsBuilder builder = new StreamsBuilder();
        KStream words = builder.stream("lines").flatMapValues(new ValueMapper() {
            public Object apply(Object line) {
                return Arrays.asList(((String) line).split(","));
            }
        });
        Materialized store = Materialized.as(Stores.inMemoryKeyValueStore("counts"));
        KTable counts = words.groupBy(new KeyValueMapper() {
            public Object apply(Object key, Object word) {
                return word;
            }
        }).count(store.withKeySerde(Serdes.String()).withValueSerde(Serdes.Long()));
        counts.toStream().map(new KeyValueMapper() {
            public Object apply(Object word, Object count) {
                return KeyValue.pair(word, String.valueOf(count));
            }
        }).to("counted", Produced.with(Serdes.String(), Serdes.String()));
        KafkaStreams streams = new KafkaStreams(builder.build(), settings);
        streams.start();
        new BufferedReader(new InputStreamReader(System.in, "UTF-8")).readLine();
        streams.close();
    }
}
