import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;

/**
 * A message through one listener of a broker, by the official Java client.
 *
 * Arguments: service URL, listener name, topic. Writes the payload that came back, or "error" and the error; keeps its
 * producer until standard input ends.
 */
public class Listener {
    static final int LIMIT_S = 5;

    public static void main(String[] arguments) throws Exception {
        ClientBuilder builder = PulsarClient.builder().serviceUrl(arguments[0])
            .operationTimeout(LIMIT_S, TimeUnit.SECONDS).lookupTimeout(LIMIT_S, TimeUnit.SECONDS);
        if (!arguments[1].isEmpty()) {
            builder.listenerName(arguments[1]);
        }
        try (PulsarClient client = builder.build()) {
            Consumer<byte[]> consumer = client.newConsumer().topic(arguments[2]).subscriptionName("s").subscribe();
            Producer<byte[]> producer = client.newProducer().topic(arguments[2]).create();
            producer.send("hello".getBytes());
            System.out.println(new String(consumer.receive(20, TimeUnit.SECONDS).getData()));
            System.out.flush();
            System.in.readAllBytes();
        } catch (PulsarClientException error) {
            System.out.println("error " + error);
        }
        System.exit(0);
    }
}
