import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.admin.PulsarAdminException;
import org.apache.pulsar.client.api.*;
import org.apache.pulsar.client.impl.MessageIdImpl;
import org.apache.pulsar.common.policies.data.*;

/**
 * The details of details.py by the official Java client and admin library.
 *
 * Arguments: service URL, admin URL, prefix of all topics, names of details. Writes one line for each: its name, a tab,
 * what was observed as JSON; or, after the tab, "error " and the exception, or "absent" for one that is not here.
 */
public class Details {
    interface Detail {
        Object run(String topic, String namespace) throws Exception;
    }

    interface Call {
        void run() throws Exception;
    }

    static final int TIMEOUT_S = 20;
    static final ObjectMapper JSON = new ObjectMapper();
    static PulsarClient client;
    static PulsarAdmin admin;

    public static void main(String[] arguments) throws Exception {
        client = PulsarClient.builder().serviceUrl(arguments[0]).operationTimeout(TIMEOUT_S, TimeUnit.SECONDS).build();
        admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).build();
        Map<String, Detail> all = new LinkedHashMap<>();
        all.put("non_durable", Details::nonDurable);
        all.put("largest_message", Details::largestMessage);
        all.put("topic_type", Details::topicType);
        all.put("partition_index", Details::partitionIndex);
        all.put("cluster_slash", Details::clusterSlash);
        all.put("anti_affinity", Details::antiAffinity);
        all.put("resource_groups", Details::resourceGroups);
        all.put("subscription_properties", Details::subscriptionProperties);
        all.put("dynamic_settings", Details::dynamicSettings);
        all.put("broker_stats", Details::brokerStats);
        all.put("replicator_rates", Details::replicatorRates);
        all.put("bookie_affinity", Details::bookieAffinity);
        all.put("peek_absent", Details::peekAbsent);
        for (String name : Arrays.asList(arguments).subList(3, arguments.length)) {
            String topic = arguments[2] + "-" + name;
            String namespace = "public/" + topic.substring(topic.lastIndexOf('/') + 1);
            Detail detail = all.get(name);
            String seen;
            if (detail == null) {
                seen = "absent";
            } else {
                try {
                    seen = JSON.writeValueAsString(detail.run(topic, namespace));
                } catch (Throwable error) {
                    seen = "error " + String.valueOf(error).replaceAll("\\s+", " ");
                }
            }
            System.out.println(name + "\t" + seen);
        }
        client.close();
        admin.close();
        System.exit(0); // client threads that are still running must not keep the test waiting
    }

    static void send(String topic, int from, int to) throws Exception {
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create()) {
            for (int i = from; i < to; i++) {
                producer.send(("m" + i).getBytes());
            }
        }
    }

    /** The status that the admin API answers an invalid call with; 0 if it succeeds. */
    static int status(Call call) throws Exception {
        try {
            call.run();
            return 0;
        } catch (PulsarAdminException error) {
            return error.getStatusCode();
        }
    }

    static List<String> texts(Consumer<byte[]> consumer, int count) throws Exception {
        List<String> texts = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message<byte[]> message = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
            texts.add(message == null ? null : new String(message.getData()));
        }
        return texts;
    }

    static Object nonDurable(String topic, String namespace) throws Exception {
        send(topic, 0, 3);
        ConsumerBuilder<byte[]> builder = client.newConsumer().topic(topic).subscriptionMode(SubscriptionMode.NonDurable);
        List<Object> seen = new ArrayList<>();
        try (Consumer<byte[]> earliest = builder.clone().subscriptionName("earliest")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
                Consumer<byte[]> latest = builder.clone().subscriptionName("latest")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Latest).subscribe()) {
            send(topic, 3, 4);
            seen.add(texts(earliest, 4));
            seen.add(texts(latest, 1));
        }
        seen.add(admin.topics().getSubscriptions(topic));
        return seen;
    }

    /** How many bytes below maxMessageSize the largest payload is, without those of the producer's name. */
    static Object largestMessage(String topic, String namespace) throws Exception {
        int limit = Integer.parseInt(admin.brokers().getRuntimeConfigurations().get("maxMessageSize"));
        try (Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false).create();
                Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("s").subscribe()) {
            int low = limit - 200; // a size that is sent
            int high = limit + 1; // and one that is refused
            producer.send(new byte[low]);
            while (high - low > 1) {
                int middle = (low + high) / 2;
                try {
                    producer.send(new byte[middle]);
                    low = middle;
                } catch (PulsarClientException.InvalidMessageException error) {
                    high = middle;
                }
            }
            while (consumer.receive(TIMEOUT_S, TimeUnit.SECONDS).getData().length != low) { // those that are smaller
            }
            String name = producer.getProducerName();
            return List.of(limit - low - name.length(), name.matches("standalone-\\d+-\\d+"));
        }
    }

    static Object topicType(String topic, String namespace) throws Exception {
        admin.namespaces().createNamespace(namespace);
        admin.namespaces().setAutoTopicCreation(namespace,
                AutoTopicCreationOverride.builder().allowAutoTopicCreation(false).topicType("").build());
        AutoTopicCreationOverride kept = admin.namespaces().getAutoTopicCreation(namespace);
        List<Object> seen = new ArrayList<>(List.of(kept.isAllowAutoTopicCreation(), kept.getTopicType()));
        try {
            client.newProducer().topic(namespace + "/t").create().close();
            seen.add("created");
        } catch (PulsarClientException error) {
            seen.add("refused");
        }
        seen.add(status(() -> admin.namespaces().setAutoTopicCreation(namespace,
                AutoTopicCreationOverride.builder().allowAutoTopicCreation(true).topicType("").build())));
        admin.namespaces().removeAutoTopicCreation(namespace);
        client.newProducer().topic(namespace + "/t").create().close();
        seen.add("created");
        return seen;
    }

    static Object partitionIndex(String topic, String namespace) throws Exception {
        admin.topics().createPartitionedTopic(topic, 3);
        send(topic + "-partition-2", 0, 1);
        send(topic + "-plain", 0, 1);
        List<Object> seen = new ArrayList<>();
        for (String one : List.of(topic + "-partition-2", topic + "-plain")) {
            seen.add(((MessageIdImpl) admin.topics().getMessageIdByTimestamp(one, 0)).getPartitionIndex());
            seen.add(((MessageIdImpl) admin.topics().getLastMessageId(one)).getPartitionIndex());
        }
        return seen;
    }

    static Object clusterSlash(String topic, String namespace) throws Exception {
        String cluster = namespace.substring("public/".length());
        admin.clusters().createCluster(cluster, ClusterData.builder().serviceUrl("http://127.0.0.1:8080/")
                .brokerServiceUrl("pulsar://127.0.0.1:6650/").build());
        ClusterData kept = admin.clusters().getCluster(cluster);
        admin.clusters().deleteCluster(cluster);
        return List.of(kept.getServiceUrl(), kept.getBrokerServiceUrl());
    }

    static Object antiAffinity(String topic, String namespace) throws Exception {
        admin.namespaces().createNamespace(namespace);
        String group = namespace.substring("public/".length()) + "-group";
        admin.namespaces().setNamespaceAntiAffinityGroup(namespace, group);
        List<Object> seen = new ArrayList<>();
        seen.add(group.equals(admin.namespaces().getNamespaceAntiAffinityGroup(namespace)));
        seen.add(admin.namespaces().getAntiAffinityNamespaces("public", "standalone", group).equals(List.of(namespace)));
        admin.namespaces().deleteNamespaceAntiAffinityGroup(namespace);
        String left = admin.namespaces().getNamespaceAntiAffinityGroup(namespace);
        seen.add(left == null ? "" : left);
        return seen;
    }

    static Object resourceGroups(String topic, String namespace) throws Exception {
        String group = namespace.substring("public/".length());
        admin.namespaces().createNamespace(namespace);
        ResourceGroup rates = new ResourceGroup();
        rates.setPublishRateInMsgs(1000);
        rates.setPublishRateInBytes(100_000L);
        admin.resourcegroups().createResourceGroup(group, rates);
        rates.setPublishRateInMsgs(2000);
        rates.setDispatchRateInMsgs(3000);
        admin.resourcegroups().updateResourceGroup(group, rates);
        ResourceGroup kept = admin.resourcegroups().getResourceGroup(group);
        List<Object> seen = new ArrayList<>(
                List.of(kept.getPublishRateInMsgs(), kept.getPublishRateInBytes(), kept.getDispatchRateInMsgs()));
        seen.add(admin.resourcegroups().getResourceGroups().contains(group));
        admin.namespaces().setNamespaceResourceGroup(namespace, group);
        seen.add(admin.namespaces().getNamespaceResourceGroup(namespace).equals(group));
        seen.add(status(() -> admin.namespaces().setNamespaceResourceGroup(namespace, "absent")));
        seen.add(status(() -> admin.resourcegroups().deleteResourceGroup(group)));
        admin.namespaces().removeNamespaceResourceGroup(namespace);
        admin.resourcegroups().deleteResourceGroup(group);
        seen.add(status(() -> admin.resourcegroups().getResourceGroup(group)));
        return seen;
    }

    static Object subscriptionProperties(String topic, String namespace) throws Exception {
        admin.topics().createPartitionedTopic(topic, 2);
        admin.topics().createSubscription(topic, "s", MessageId.latest, false, Map.of("a", "b"));
        List<Object> seen = new ArrayList<>(List.of(admin.topics().getSubscriptionProperties(topic, "s")));
        admin.topics().updateSubscriptionProperties(topic, "s", Map.of("c", "d"));
        seen.add(admin.topics().getSubscriptionProperties(topic, "s"));
        seen.add(admin.topics().getStats(topic + "-partition-1").getSubscriptions().get("s").getSubscriptionProperties());
        admin.topics().updateSubscriptionProperties(topic, "s", Map.of());
        seen.add(admin.topics().getSubscriptionProperties(topic, "s"));
        return seen;
    }

    static Object dynamicSettings(String topic, String namespace) throws Exception {
        Map<String, String> values = Map.of("maxConcurrentLookupRequest", "40000",
                "dispatchThrottlingRatePerSubscriptionInMsg", "100000", "dispatchThrottlingRateInByte", "1000000000");
        List<Object> seen = new ArrayList<>();
        seen.add(admin.brokers().getDynamicConfigurationNames().containsAll(values.keySet()));
        for (Map.Entry<String, String> one : values.entrySet()) {
            admin.brokers().updateDynamicConfiguration(one.getKey(), one.getValue());
        }
        Map<String, String> changed = admin.brokers().getAllDynamicConfigurations();
        seen.add(changed.entrySet().containsAll(values.entrySet()));
        for (String name : values.keySet()) {
            admin.brokers().deleteDynamicConfiguration(name);
        }
        Set<String> left = admin.brokers().getAllDynamicConfigurations().keySet();
        seen.add(values.keySet().stream().noneMatch(left::contains));
        seen.add(status(() -> admin.brokers().updateDynamicConfiguration("absent", "1")));
        return seen;
    }

    static Object brokerStats(String topic, String namespace) throws Exception {
        boolean areRows = true;
        JsonNode metrics = JSON.readTree(admin.brokerStats().getMetrics());
        for (JsonNode row : metrics) {
            areRows &= row.get("metrics").isObject() && row.get("dimensions").isObject();
        }
        List<Object> seen = new ArrayList<>(List.of(metrics.size() > 0 && areRows));
        boolean hasThreads = false;
        for (JsonNode row : JSON.readTree(admin.brokerStats().getMBeans())) {
            hasThreads |= row.at("/dimensions/MBean").asText().equals("java.lang:type=Threading")
                    && row.at("/metrics/ThreadCount").asInt() > 0;
        }
        seen.add(hasThreads);
        seen.add(JSON.readTree(admin.brokerStats().getTopics()).isObject()); // each minute's, on Apache Pulsar
        seen.add(admin.brokerStats().getAllocatorStats("default").numThreadLocalCaches >= 0);
        seen.add(admin.brokerStats().getAllocatorStats("ml-cache").numThreadLocalCaches >= 0);
        return seen;
    }

    static Object replicatorRates(String topic, String namespace) throws Exception {
        admin.namespaces().createNamespace(namespace);
        DispatchRate rate = DispatchRate.builder().dispatchThrottlingRateInMsg(12).dispatchThrottlingRateInByte(22)
                .ratePeriodInSecond(1).build();
        admin.namespaces().setReplicatorDispatchRate(namespace, rate);
        List<Object> seen = new ArrayList<>(List.of(numbers(admin.namespaces().getReplicatorDispatchRate(namespace))));
        String inside = "persistent://" + namespace + "/t";
        admin.topics().createNonPartitionedTopic(inside);
        admin.topicPolicies().setReplicatorDispatchRate(inside, DispatchRate.builder().dispatchThrottlingRateInMsg(13)
                .dispatchThrottlingRateInByte(23).ratePeriodInSecond(2).build());
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
        while (admin.topicPolicies().getReplicatorDispatchRate(inside) == null && System.nanoTime() < until) {
            TimeUnit.MILLISECONDS.sleep(50);
        }
        seen.add(numbers(admin.topicPolicies().getReplicatorDispatchRate(inside)));
        return seen;
    }

    static List<Long> numbers(DispatchRate rate) {
        return List.of((long) rate.getDispatchThrottlingRateInMsg(), rate.getDispatchThrottlingRateInByte(),
                (long) rate.getRatePeriodInSecond());
    }

    static Object bookieAffinity(String topic, String namespace) throws Exception {
        admin.namespaces().createNamespace(namespace);
        admin.namespaces().setBookieAffinityGroup(namespace, BookieAffinityGroupData.builder()
                .bookkeeperAffinityGroupPrimary("one").bookkeeperAffinityGroupSecondary("two").build());
        BookieAffinityGroupData kept = admin.namespaces().getBookieAffinityGroup(namespace);
        List<Object> seen = new ArrayList<>(
                List.of(kept.getBookkeeperAffinityGroupPrimary(), kept.getBookkeeperAffinityGroupSecondary()));
        admin.namespaces().deleteBookieAffinityGroup(namespace);
        seen.add(status(() -> admin.namespaces().getBookieAffinityGroup(namespace)));
        return seen;
    }

    static Object peekAbsent(String topic, String namespace) throws Exception {
        send(topic, 0, 2);
        List<Object> seen = new ArrayList<>();
        for (Message<byte[]> message : admin.topics().peekMessages(topic, "absent", 2)) {
            seen.add(new String(message.getData()));
        }
        return seen;
    }
}
