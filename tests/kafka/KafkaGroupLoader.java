import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Method;
import java.lang.reflect.Proxy;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.HashMap;

/**
 * Replays logs of __consumer_offsets with the group coordinator of the release on the class path, or those of
 * __share_group_state with its share coordinator: the argument is the topic. A line of standard input is a JSON array of
 * [key, value] in Base64, value null for a tombstone; a line of standard output answers it: {"at", "why"}, the number of
 * the first record that the coordinator refuses, or {}.
 *
 * By reflection, as classes differ between releases. Written so that Janino compiles it, as KafkaReader.java is.
 */
public class KafkaGroupLoader {
    private static final String GROUP = "org.apache.kafka.coordinator.group.";
    private static final String SHARE = "org.apache.kafka.coordinator.share.";

    public static void main(String[] arguments) throws Exception {
        ObjectMapper mapper = new ObjectMapper();
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(new java.io.FileOutputStream(java.io.FileDescriptor.out), false, "UTF-8");
        String line = in.readLine();
        while (line != null) {
            ObjectNode answer = mapper.createObjectNode();
            JsonNode records = mapper.readTree(line);
            boolean isShare = arguments[0].equals("__share_group_state");
            Object shard = isShare ? shareShard() : shard();
            String name = isShare ? SHARE + "ShareCoordinatorRecordSerde" : GROUP + "GroupCoordinatorRecordSerde";
            Object serde = Class.forName(name).getConstructor(new Class[0]).newInstance(new Object[0]);
            for (int i = 0; i < records.size() && answer.size() == 0; i++) {
                JsonNode asked = (JsonNode) records.get(i);
                Object[] given = new Object[] {bytes((JsonNode) asked.get(0)), bytes((JsonNode) asked.get(1))};
                try {
                    Object record = call(serde, "deserialize", given);
                    replay(shard, i, record);
                } catch (InvocationTargetException error) {
                    String why = String.valueOf(error.getCause());
                    if (!why.contains("UnknownRecordTypeException")) {
                        answer.put("at", i);
                        answer.put("why", why);
                    }
                }
            }
            out.println(mapper.writeValueAsString(answer));
            line = in.readLine();
        }
        out.flush();
    }

    private static ByteBuffer bytes(JsonNode node) throws Exception {
        return node.isNull() ? null : ByteBuffer.wrap(Base64.getDecoder().decode(node.asText()));
    }

    private static void replay(Object shard, long offset, Object record) throws Exception {
        Method[] methods = shard.getClass().getMethods();
        for (int i = 0; i < methods.length; i++) {
            if (methods[i].getName().equals("replay") && methods[i].getParameterTypes()[3].isInstance(record)) {
                methods[i].invoke(shard, new Object[] {new Long(offset), new Long(-1), new Short((short) -1), record});
                return;
            }
        }
    }

    private static Object call(Object target, String name, Object[] given) throws Exception {
        Method[] methods = target.getClass().getMethods();
        for (int i = 0; i < methods.length; i++) {
            if (methods[i].getName().equals(name) && methods[i].getParameterTypes().length == given.length) {
                return methods[i].invoke(target, given);
            }
        }
        throw new IllegalStateException(name);
    }

    /** An interface of which every method gives nothing. */
    private static Object idle(Class type) {
        InvocationHandler nothing = new InvocationHandler() {
            public Object invoke(Object proxy, Method method, Object[] given) {
                return method.getReturnType() == boolean.class ? (Object) Boolean.FALSE : null;
            }
        };
        return Proxy.newProxyInstance(type.getClassLoader(), new Class[] {type}, nothing);
    }

    private static Object made(String name) throws Exception {
        return Class.forName(name).getConstructor(new Class[0]).newInstance(new Object[0]);
    }

    private static Object shard() throws Exception {
        Class settings = Class.forName(GROUP + "GroupCoordinatorConfig");
        Object config = settings.getMethod("fromProps", new Class[] {java.util.Map.class}).invoke(null, new Object[] {new HashMap()});
        java.lang.reflect.Constructor[] ways = Class.forName(GROUP + "GroupCoordinatorShard$Builder").getConstructors();
        Class configs = ways[0].getParameterTypes()[1];
        java.lang.reflect.Constructor way = configs.getConstructors()[0];
        Object[] given = new Object[way.getParameterTypes().length];
        if (given.length == 1) {
            given[0] = new HashMap();
        } else {
            Class share = way.getParameterTypes()[1];
            given[0] = config;
            given[1] = share.getMethod("fromProps", new Class[] {java.util.Map.class}).invoke(null, new Object[] {new HashMap()});
        }
        return built(ways[0].newInstance(new Object[] {config, way.newInstance(given)}), GROUP + "metrics.GroupCoordinatorMetrics");
    }

    private static Object shareShard() throws Exception {
        Class settings = Class.forName(SHARE + "ShareCoordinatorConfig");
        Object definition = settings.getField("CONFIG_DEF").get(null);
        Class configs = Class.forName("org.apache.kafka.common.config.AbstractConfig");
        Object plain = configs.getConstructor(new Class[] {definition.getClass(), java.util.Map.class}).newInstance(new Object[] {definition, new HashMap()});
        Object config = settings.getConstructor(new Class[] {configs}).newInstance(new Object[] {plain});
        Object builder = Class.forName(SHARE + "ShareCoordinatorShard$Builder").getConstructors()[0].newInstance(new Object[] {config});
        return built(builder, SHARE + "metrics.ShareCoordinatorMetrics");
    }

    private static Object built(Object builder, String metrics) throws Exception {
        Method[] methods = builder.getClass().getMethods();
        for (int i = 0; i < methods.length; i++) {
            String name = methods[i].getName();
            if (!name.startsWith("with")) {
                continue;
            }
            Class type = methods[i].getParameterTypes()[0];
            Object value;
            if (name.equals("withTime")) {
                value = type.getField("SYSTEM").get(null);
            } else if (name.equals("withCoordinatorMetrics")) {
                value = made(metrics);
            } else if (name.equals("withTopicPartition")) {
                value = type.getConstructor(new Class[] {String.class, int.class}).newInstance(new Object[] {"__consumer_offsets", new Integer(0)});
            } else if (name.equals("withSnapshotRegistry")) {
                java.lang.reflect.Constructor one = type.getConstructors()[0];
                Class log = one.getParameterTypes()[0];
                value = one.newInstance(new Object[] {log.getConstructor(new Class[0]).newInstance(new Object[0])});
            } else if (name.equals("withAuthorizerPlugin")) {
                value = java.util.Optional.empty();
            } else if (type.isInterface()) {
                value = idle(type);
            } else {
                value = type.getConstructor(new Class[0]).newInstance(new Object[0]);
            }
            methods[i].invoke(builder, new Object[] {value});
        }
        return call(builder, "build", new Object[0]);
    }
}
