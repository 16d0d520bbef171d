import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.net.URL;
import java.nio.file.Paths;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.impl.auth.AuthenticationBasic;
import org.apache.pulsar.client.impl.auth.AuthenticationToken;
import org.apache.pulsar.client.impl.auth.oauth2.AuthenticationFactoryOAuth2;

/**
 * Cases of secured_cases.py by the official Java client.
 *
 * Reads a case from each line of standard input, JSON as secured_site.py writes it. Writes a line for each: its name, what
 * came of it, the seconds that it took, and what the client said, separated by tabs.
 */
public class Secured {
    static final int AT_ONCE = 8;
    static final int RECEIVE_S = 20;
    static final long PAUSE_MS = 200;

    public static void main(String[] arguments) throws Exception {
        ObjectMapper json = new ObjectMapper();
        BufferedReader input = new BufferedReader(new InputStreamReader(System.in));
        ExecutorService pool = Executors.newFixedThreadPool(AT_ONCE);
        List<Future<String>> outcomes = new ArrayList<>();
        for (String line = input.readLine(); line != null; line = input.readLine()) {
            JsonNode one = json.readTree(line);
            outcomes.add(pool.submit(() -> outcome(one)));
        }
        for (Future<String> outcome : outcomes) {
            System.out.println(outcome.get());
        }
        System.exit(0); // threads of a client that did not end must not keep the test waiting
    }

    static String outcome(JsonNode one) {
        long began = System.nanoTime();
        String result;
        String said = "";
        try {
            result = play(one);
        } catch (Throwable error) {
            said = chain(error);
            result = word(error, said);
        }
        double seconds = (System.nanoTime() - began) / 1e9;
        return String.format("%s\t%s\t%.2f\t%s", text(one, "name"), result, seconds, said);
    }

    /** Send a message and receive it; then go on sending for as long as the case says. */
    static String play(JsonNode one) throws Exception {
        int limit = one.get("limit_s").asInt();
        ClientBuilder builder = PulsarClient.builder().serviceUrl(text(one, "url"))
            .operationTimeout(limit, TimeUnit.SECONDS).lookupTimeout(limit, TimeUnit.SECONDS)
            .connectionTimeout(limit, TimeUnit.SECONDS);
        Authentication shown = authentication(one);
        if (shown != null) {
            builder.authentication(shown);
        }
        if (!text(one, "trust").isEmpty()) {
            builder.tlsTrustCertsFilePath(text(one, "trust")).enableTlsHostnameVerification(one.get("verifies").asBoolean());
        }
        try (PulsarClient client = builder.build()) {
            String topic = text(one, "topic");
            Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("s").subscribe();
            Producer<byte[]> producer = client.newProducer().topic(topic).sendTimeout(limit, TimeUnit.SECONDS).create();
            producer.send("hello".getBytes());
            Message<byte[]> message = consumer.receive(RECEIVE_S, TimeUnit.SECONDS);
            consumer.acknowledge(message);
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(one.get("seconds").asInt());
            try {
                while (System.nanoTime() < end) {
                    producer.send("again".getBytes());
                    Thread.sleep(PAUSE_MS);
                }
            } catch (PulsarClientException ended) {
                return "ended";
            }
            return new String(message.getData()).equals("hello") ? "ok" : "another message";
        }
    }

    static Authentication authentication(JsonNode one) throws Exception {
        JsonNode params = one.get("params");
        switch (text(one, "kind")) {
            case "token":
                return AuthenticationFactory.token(text(params, "token"));
            case "token file":
                return AuthenticationFactory.create(AuthenticationToken.class.getName(), "file://" + text(params, "file"));
            case "basic":
                AuthenticationBasic basic = new AuthenticationBasic();
                basic.configure(Map.of("userId", text(params, "user"), "password", text(params, "password")));
                return basic;
            case "tls":
                return AuthenticationFactory.TLS(text(params, "certificate"), text(params, "key"));
            case "oauth2":
                URL keys = Paths.get(text(params, "key_file")).toUri().toURL();
                return AuthenticationFactoryOAuth2.clientCredentials(new URL(text(params, "issuer")), keys, text(params, "audience"));
            default:
                return null;
        }
    }

    /** What refused it, by the kinds of the errors and, of those that have no kind of their own, by their words. */
    static String word(Throwable error, String said) {
        for (Throwable one = error; one != null; one = one.getCause()) {
            if (one instanceof javax.net.ssl.SSLException || one instanceof java.security.GeneralSecurityException) {
                return "tls";
            }
        }
        if (said.contains("SSLException") || said.contains("SSLHandshakeException") || said.contains("DecoderException")) {
            return "tls";
        }
        if (error instanceof PulsarClientException.AuthenticationException) {
            return "authentication";
        }
        if (error instanceof PulsarClientException.AuthorizationException) {
            return "authorization";
        }
        if (error instanceof PulsarClientException.TimeoutException) {
            return "timeout";
        }
        return "connection";
    }

    static String chain(Throwable error) {
        StringBuilder said = new StringBuilder();
        for (Throwable one = error; one != null; one = one.getCause()) {
            said.append(one).append(" | ");
        }
        return said.toString().replaceAll("\\s+", " ");
    }

    static String text(JsonNode node, String name) {
        return node.get(name).asText();
    }
}
