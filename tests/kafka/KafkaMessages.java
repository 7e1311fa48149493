import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationTargetException;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import org.apache.kafka.common.protocol.ApiMessage;
import org.apache.kafka.common.protocol.ByteBufferAccessor;
import org.apache.kafka.common.protocol.Message;
import org.apache.kafka.common.protocol.ObjectSerializationCache;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecord;
import org.apache.kafka.coordinator.common.runtime.CoordinatorRecordSerde;
import org.apache.kafka.coordinator.group.GroupCoordinatorRecordSerde;
import org.apache.kafka.coordinator.share.ShareCoordinatorRecordSerde;
import org.apache.kafka.coordinator.transaction.TransactionCoordinatorRecordSerde;
import org.apache.kafka.metadata.MetadataRecordSerde;
import org.apache.kafka.server.common.ApiMessageAndVersion;
import org.apache.kafka.server.common.serialization.BytesApiMessageSerde;
import org.apache.kafka.server.log.remote.metadata.storage.generated.MetadataRecordType;

/**
 * Writes and reads the messages of Kafka's internal topics with Kafka's own classes. A line of standard input is a
 * JSON object, and a line of standard output answers it; bytes are Base64.
 *
 * {"class", "version", "json"}: the message of a generated class, filled from JSON, or with its defaults where json
 *   is null. Answers {"bytes", "json"}: how Kafka stores it, and how its JSON converter writes it.
 * {"topic", "key", "value"}: a record, read as the broker reads it. Answers {"key", "value", "version"}, key and value
 *   as JSON; or {"error"}.
 *
 * Written so that Janino compiles it, as KafkaReader.java is.
 */
public class KafkaMessages {
    private static final ObjectMapper JSON = new ObjectMapper();

    public static void main(String[] arguments) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, "UTF-8");
        String line = in.readLine();
        while (line != null) {
            JsonNode asked = JSON.readTree(line);
            ObjectNode answer = JSON.createObjectNode();
            try {
                if (asked.has("class")) {
                    write(asked, answer);
                } else {
                    read(asked, answer);
                }
            } catch (Throwable error) {
                Throwable cause = error instanceof InvocationTargetException ? error.getCause() : error;
                answer.removeAll();
                answer.put("error", String.valueOf(cause));
            }
            out.println(JSON.writeValueAsString(answer));
            line = in.readLine();
        }
        out.flush();
    }

    private static void write(JsonNode asked, ObjectNode answer) throws Exception {
        String name = asked.get("class").asText();
        short version = (short) asked.get("version").asInt();
        Message message;
        if (asked.get("json").isNull()) {
            message = (Message) Class.forName(name).getConstructor(new Class[0]).newInstance(new Object[0]);
        } else {
            Class[] takes = new Class[] {JsonNode.class, short.class};
            Object[] given = new Object[] {asked.get("json"), new Short(version)};
            message = (Message) Class.forName(name + "JsonConverter").getMethod("read", takes).invoke(null, given);
        }
        ObjectSerializationCache cache = new ObjectSerializationCache();
        ByteBuffer bytes = ByteBuffer.allocate(message.size(cache, version));
        message.write(new ByteBufferAccessor(bytes), cache, version);
        answer.put("bytes", bytes.array());
        answer.set("json", json(message, version));
    }

    private static JsonNode json(Message message, short version) throws Exception {
        Class converter = Class.forName(message.getClass().getName() + "JsonConverter");
        Class[] takes = new Class[] {message.getClass(), short.class};
        return (JsonNode) converter.getMethod("write", takes).invoke(null, new Object[] {message, new Short(version)});
    }

    private static ByteBuffer bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : ByteBuffer.wrap(Base64.getDecoder().decode(node.asText()));
    }

    private static CoordinatorRecordSerde coordinator(String topic) {
        if (topic.equals("__consumer_offsets")) {
            return new GroupCoordinatorRecordSerde();
        }
        if (topic.equals("__transaction_state")) {
            return new TransactionCoordinatorRecordSerde();
        }
        return topic.equals("__share_group_state") ? new ShareCoordinatorRecordSerde() : null;
    }

    private static void read(JsonNode asked, ObjectNode answer) throws Exception {
        String topic = asked.get("topic").asText();
        ByteBuffer key = bytes(asked.get("key"));
        ByteBuffer value = bytes(asked.get("value"));
        CoordinatorRecordSerde serde = coordinator(topic);
        ApiMessageAndVersion read;
        if (serde != null) {
            CoordinatorRecord record = serde.deserialize(key, value);
            answer.set("key", json(record.key(), (short) 0));
            read = record.value();
        } else if (topic.equals("__cluster_metadata")) {
            read = MetadataRecordSerde.INSTANCE.read(new ByteBufferAccessor(value), value.remaining());
        } else {
            read = remote().deserialize(value.array());
        }
        if (read != null) {
            answer.set("value", json(read.message(), read.version()));
            answer.put("version", read.version());
        }
    }

    private static BytesApiMessageSerde remote() {
        return new BytesApiMessageSerde() {
            public ApiMessage apiMessageFor(short apiKey) {
                return MetadataRecordType.fromId(apiKey).newMetadataRecord();
            }
        };
    }
}
