import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.Array;
import java.lang.reflect.Constructor;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.Collection;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.TreeMap;
import org.mockito.Mockito;
import org.mockito.invocation.InvocationOnMock;
import org.mockito.stubbing.Answer;

/**
 * Replays logs as the release on the class path does. The first argument is the topic: __transaction_state by
 * TransactionStateManager, __cluster_metadata by MetadataDelta, connect-configs by KafkaConfigBackingStore. A line of
 * standard input is a JSON array of [key, value] in Base64, null for null; a line of standard output answers it: {"at"},
 * the number of the first record that stops the loader, {} for none; of connect-configs {"connectors": {name: tasks}},
 * tasks -1 where the store calls the connector inconsistent.
 *
 * By reflection, as classes differ between releases. Written so that Janino compiles it, as KafkaReader.java is.
 */
public class KafkaStateLoader {
    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, "UTF-8");
        String line = in.readLine();
        while (line != null) {
            ObjectNode answer = mapper.createObjectNode();
            JsonNode log = mapper.readTree(line);
            if (arguments[0].equals("__transaction_state")) {
                transactions(log, answer);
            } else if (arguments[0].equals("__cluster_metadata")) {
                metadata(log, answer);
            } else {
                connect(log, answer);
            }
            out.println(mapper.writeValueAsString(answer));
            line = in.readLine();
        }
        out.flush();
    }

    private static byte[] bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static Class named(String first, String second) throws Exception {
        try {
            return Class.forName(first);
        } catch (ClassNotFoundException error) {
            return Class.forName(second);
        }
    }

    private static Class record(String name) throws Exception {
        String common = "org.apache.kafka.common.record.";
        return named(common + "internal." + name, common + name);
    }

    private static Method method(Class type, String name, int parameters) throws Exception {
        Method[] methods = type.getDeclaredMethods();
        for (int i = 0; i < methods.length; i++) {
            if (methods[i].getName().equals(name) && methods[i].getParameterTypes().length == parameters) {
                methods[i].setAccessible(true);
                return methods[i];
            }
        }
        throw new IllegalStateException(name);
    }

    /** An object of which methods give a value by their name, and nothing else. */
    private static Object answering(Class type, final Map values) {
        return Mockito.mock(type, new Answer() {
            public Object answer(InvocationOnMock call) throws Throwable {
                String name = call.getMethod().getName();
                return values.containsKey(name) ? values.get(name) : Mockito.RETURNS_DEFAULTS.answer(call);
            }
        });
    }

    /** The manager says nothing of a record that stops it: a last record that is not loaded tells it. */
    private static void transactions(JsonNode log, ObjectNode answer) throws Exception {
        if (loads(log, log.size())) {
            return;
        }
        int low = 0;
        int high = log.size();
        while (low + 1 < high) {
            int middle = (low + high) / 2;
            if (loads(log, middle)) {
                low = middle;
            } else {
                high = middle;
            }
        }
        answer.put("at", high - 1);
    }

    private static final String LAST = "the last record";

    private static boolean loads(JsonNode log, int count) throws Exception {
        Class simple = record("SimpleRecord");
        Constructor make = simple.getConstructor(new Class[] {byte[].class, byte[].class});
        Object records = Array.newInstance(simple, count + 1);
        for (int i = 0; i < count; i++) {
            JsonNode one = (JsonNode) log.get(i);
            Array.set(records, i, make.newInstance(new Object[] {bytes((JsonNode) one.get(0)), bytes((JsonNode) one.get(1))}));
        }
        ByteBuffer key = ByteBuffer.allocate(4 + LAST.length());
        key.putShort((short) 0).putShort((short) LAST.length()).put(LAST.getBytes(StandardCharsets.UTF_8));
        ByteBuffer value = ByteBuffer.allocate(2 + 8 + 2 + 4 + 1 + 4 + 8 + 8);
        value.putShort((short) 0).putLong(1).putShort((short) 0).putInt(1000).put((byte) 0).putInt(-1).putLong(0).putLong(0);
        Array.set(records, count, make.newInstance(new Object[] {key.array(), value.array()}));
        Class compression = Class.forName("org.apache.kafka.common.compress.Compression");
        Class memory = record("MemoryRecords");
        Object bytes = memory.getMethod("withRecords", new Class[] {compression, records.getClass()})
            .invoke(null, new Object[] {compression.getField("NONE").get(null), records});
        Map fetched = new HashMap();
        Class info = Class.forName("org.apache.kafka.storage.internals.log.FetchDataInfo");
        Constructor[] ways = info.getConstructors();
        Object data = null;
        for (int i = 0; i < ways.length; i++) {
            if (ways[i].getParameterTypes().length == 2) {
                data = ways[i].newInstance(new Object[] {null, bytes});
            }
        }
        fetched.put("read", data);
        fetched.put("logStartOffset", new Long(0));
        Map held = new HashMap();
        Object read = answering(Class.forName("org.apache.kafka.storage.internals.log.UnifiedLog"), fetched);
        held.put("getLog", Class.forName("scala.Option").getMethod("apply", new Class[] {Object.class}).invoke(null, new Object[] {read}));
        held.put("getLogEndOffset", Class.forName("scala.Option").getMethod("apply", new Class[] {Object.class})
            .invoke(null, new Object[] {new Long(count + 1)}));
        Class manager = Class.forName("kafka.coordinator.transaction.TransactionStateManager");
        Constructor way = manager.getConstructors()[0];
        Object[] given = new Object[way.getParameterTypes().length];
        for (int i = 0; i < given.length; i++) {
            Class type = way.getParameterTypes()[i];
            if (type == int.class) {
                given[i] = new Integer(1);
            } else if (type.getName().endsWith("ReplicaManager")) {
                given[i] = answering(type, held);
            } else if (type.getName().endsWith("TransactionConfig")) {
                Map sizes = new HashMap();
                sizes.put("transactionLogLoadBufferSize", new Integer(1 << 26));
                given[i] = answering(type, sizes);
            } else if (type.getName().endsWith("Metrics")) {
                given[i] = type.getConstructor(new Class[0]).newInstance(new Object[0]);
            } else {
                given[i] = Mockito.mock(type);
            }
        }
        Object made = way.newInstance(given);
        Class place = Class.forName("org.apache.kafka.common.TopicPartition");
        Object partition = place.getConstructor(new Class[] {String.class, int.class}).newInstance(new Object[] {"__transaction_state", new Integer(0)});
        method(manager, "addLoadingPartition", 2).invoke(made, new Object[] {new Integer(0), new Integer(0)});
        Map found = (Map) method(manager, "loadTransactionMetadata", 2).invoke(made, new Object[] {partition, new Integer(0)});
        return found.containsKey(LAST);
    }

    private static void metadata(JsonNode log, ObjectNode answer) throws Exception {
        Class image = Class.forName("org.apache.kafka.image.MetadataImage");
        Class deltas = Class.forName("org.apache.kafka.image.MetadataDelta");
        Class provenance = Class.forName("org.apache.kafka.image.MetadataProvenance");
        Class messages = Class.forName("org.apache.kafka.common.protocol.ApiMessage");
        Object serde = Class.forName("org.apache.kafka.metadata.MetadataRecordSerde").getField("INSTANCE").get(null);
        Object now = image.getField("EMPTY").get(null);
        for (int i = 0; i < log.size(); i++) {
            byte[] value = bytes((JsonNode) ((JsonNode) log.get(i)).get(1));
            try {
                Object readable = Class.forName("org.apache.kafka.common.protocol.ByteBufferAccessor")
                    .getConstructor(new Class[] {ByteBuffer.class}).newInstance(new Object[] {ByteBuffer.wrap(value)});
                Object read = method(Class.forName("org.apache.kafka.server.common.serialization.AbstractApiMessageSerde"), "read", 2)
                    .invoke(serde, new Object[] {readable, new Integer(value.length)});
                Object message = read.getClass().getMethod("message", new Class[0]).invoke(read, new Object[0]);
                String name = message.getClass().getSimpleName();
                if (name.endsWith("TransactionRecord")) {
                    continue;
                }
                Class builders = Class.forName("org.apache.kafka.image.MetadataDelta$Builder");
                Object builder = builders.getConstructor(new Class[0]).newInstance(new Object[0]);
                builders.getMethod("setImage", new Class[] {image}).invoke(builder, new Object[] {now});
                Object delta = builders.getMethod("build", new Class[0]).invoke(builder, new Object[0]);
                deltas.getMethod("replay", new Class[] {messages}).invoke(delta, new Object[] {message});
                Object empty = provenance.getField("EMPTY").get(null);
                now = deltas.getMethod("apply", new Class[] {provenance}).invoke(delta, new Object[] {empty});
            } catch (InvocationTargetException error) {
                answer.put("at", i);
                answer.put("why", String.valueOf(error.getCause()));
                return;
            }
        }
    }

    private static void connect(JsonNode log, ObjectNode answer) throws Exception {
        String connect = "org.apache.kafka.connect.";
        Class stores = Class.forName(connect + "storage.KafkaConfigBackingStore");
        Map texts = new HashMap();
        texts.put("getString", "connect-configs");
        Object config = answering(Class.forName(connect + "runtime.distributed.DistributedConfig"), texts);
        Object converter = Class.forName(connect + "json.JsonConverter").getConstructor(new Class[0]).newInstance(new Object[0]);
        Map plain = new HashMap();
        plain.put("schemas.enable", "false");
        converter.getClass().getMethod("configure", new Class[] {Map.class, boolean.class}).invoke(converter, new Object[] {plain, Boolean.FALSE});
        Constructor way = stores.getConstructors()[0];
        Constructor[] ways = stores.getDeclaredConstructors();
        for (int i = 0; i < ways.length; i++) {
            if (ways[i].getParameterTypes().length > way.getParameterTypes().length) {
                way = ways[i];
            }
        }
        way.setAccessible(true);
        Object[] given = new Object[way.getParameterTypes().length];
        for (int i = 0; i < given.length; i++) {
            Class type = way.getParameterTypes()[i];
            if (type.isInstance(converter)) {
                given[i] = converter;
            } else if (type.isInstance(config)) {
                given[i] = config;
            } else if (type == String.class) {
                given[i] = "client";
            } else {
                given[i] = Mockito.mock(type);
            }
        }
        Object store = way.newInstance(given);
        Constructor callback = Class.forName(connect + "storage.KafkaConfigBackingStore$ConsumeCallback").getDeclaredConstructors()[0];
        callback.setAccessible(true);
        Object[] outer = callback.getParameterTypes().length == 1 ? new Object[] {store} : new Object[] {store, null};
        Object consumer = callback.newInstance(outer);
        Class records = Class.forName("org.apache.kafka.clients.consumer.ConsumerRecord");
        Constructor make = records.getConstructor(new Class[] {String.class, int.class, long.class, Object.class, Object.class});
        Method take = method(consumer.getClass(), "onCompletion", 2);
        for (int i = 0; i < log.size(); i++) {
            JsonNode one = (JsonNode) log.get(i);
            String key = new String(bytes((JsonNode) one.get(0)), StandardCharsets.UTF_8);
            Object record = make.newInstance(new Object[] {"connect-configs", new Integer(0), new Long(i), key, bytes((JsonNode) one.get(1))});
            take.invoke(consumer, new Object[] {null, record});
        }
        Object state = stores.getMethod("snapshot", new Class[0]).invoke(store, new Object[0]);
        Collection bad = (Collection) state.getClass().getMethod("inconsistentConnectors", new Class[0]).invoke(state, new Object[0]);
        ObjectNode found = answer.putObject("connectors");
        Iterator names = ((Collection) state.getClass().getMethod("connectors", new Class[0]).invoke(state, new Object[0])).iterator();
        while (names.hasNext()) {
            String name = (String) names.next();
            Object tasks = state.getClass().getMethod("tasks", new Class[] {String.class}).invoke(state, new Object[] {name});
            found.put(name, bad.contains(name) ? -1 : ((Collection) tasks).size());
        }
    }
}
