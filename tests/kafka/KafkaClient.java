import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.Future;
import org.apache.kafka.clients.admin.AdminClient;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Makes topics of a broker and writes to them with Kafka's own producer.
 *
 * usage: KafkaClient ADDRESS
 *
 * Standard input has a command a line, each is answered by lines and an empty line when it is done:
 *   create TOPIC PARTITIONS [NAME=VALUE ...]       with these settings of the topic
 *   send TOPIC PARTITION KEY=VALUE [KEY=VALUE ...]  a line for each record once all are acknowledged: its offset
 *
 * Written so that Janino, the small compiler that Spark ships, compiles it: no lambdas, and a cast where generics
 * would have inferred a type.
 */
public class KafkaClient {
    public static void main(String[] arguments) throws Exception {
        Map settings = new HashMap();
        settings.put("bootstrap.servers", arguments[0]);
        settings.put("acks", "all");
        AdminClient admin = AdminClient.create(settings);
        KafkaProducer producer = new KafkaProducer(settings, new ByteArraySerializer(), new ByteArraySerializer());
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in, "UTF-8"));
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            String[] words = line.split(" ");
            if (words[0].equals("create")) {
                create(admin, words);
            } else {
                send(producer, words);
            }
            System.out.println();
        }
        producer.close();
        admin.close();
    }

    private static void create(AdminClient admin, String[] words) throws Exception {
        Map configs = new HashMap();
        for (int i = 3; i < words.length; i++) {
            configs.put(words[i].split("=")[0], words[i].split("=")[1]);
        }
        NewTopic topic = new NewTopic(words[1], Integer.parseInt(words[2]), (short) 1);
        admin.createTopics(Collections.singletonList(topic.configs(configs))).all().get();
    }

    private static void send(KafkaProducer producer, String[] words) throws Exception {
        List sent = new ArrayList();
        for (int i = 3; i < words.length; i++) {
            byte[] key = words[i].split("=")[0].getBytes(StandardCharsets.UTF_8);
            byte[] value = words[i].split("=")[1].getBytes(StandardCharsets.UTF_8);
            sent.add(producer.send(new ProducerRecord(words[1], Integer.valueOf(words[2]), key, value)));
        }
        for (int i = 0; i < sent.size(); i++) {
            System.out.println(((RecordMetadata) ((Future) sent.get(i)).get()).offset());
        }
    }
}
