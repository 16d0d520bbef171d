import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.*;

/**
 * A message through an advertised listener, and what the admin API says of addresses.
 *
 * Arguments: service URL, admin URL, topic, name of the listener. Writes JSON, as test_listeners.py expects it.
 */
public class Listener {
    static final int LIMIT_S = 10;

    public static void main(String[] arguments) throws Exception {
        Map<String, Object> seen = new LinkedHashMap<>();
        seen.put("outcome", outcome(arguments[0], arguments[2], arguments[3]));
        try (PulsarAdmin admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).build()) {
            seen.put("lookup", admin.lookups().lookupTopic(arguments[2]));
            seen.put("brokers", admin.brokers().getActiveBrokers());
        }
        System.out.println(new ObjectMapper().writeValueAsString(seen));
        System.exit(0); // client threads that are still running must not keep the test waiting
    }

    static String outcome(String serviceUrl, String topic, String listener) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(serviceUrl).listenerName(listener)
                .operationTimeout(LIMIT_S, TimeUnit.SECONDS).lookupTimeout(LIMIT_S, TimeUnit.SECONDS).build();
                Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("s").subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            producer.send("m0".getBytes());
            Message<byte[]> message = consumer.receive(LIMIT_S, TimeUnit.SECONDS);
            return message == null ? "nothing" : new String(message.getData());
        } catch (PulsarClientException error) {
            return "refused";
        }
    }
}
