import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.admin.PulsarAdmin;
import org.apache.pulsar.client.api.*;

/**
 * The scenarios of scenarios.py by the official Java client and admin library.
 *
 * Arguments: service URL, admin URL, prefix of all topics, names of scenarios. Writes one line for each: its name, a tab,
 * what was observed as JSON; or, after the tab, "error " and the exception.
 */
public class Scenarios {
    interface Scenario {
        Object run(String topic) throws Exception;
    }

    static final int TIMEOUT_S = 20;
    static PulsarClient client;
    static PulsarAdmin admin;

    public static void main(String[] arguments) throws Exception {
        client = PulsarClient.builder().serviceUrl(arguments[0]).operationTimeout(TIMEOUT_S, TimeUnit.SECONDS).build();
        admin = PulsarAdmin.builder().serviceHttpUrl(arguments[1]).build();
        Map<String, Scenario> all = new LinkedHashMap<>();
        all.put("order", Scenarios::order);
        all.put("compression", Scenarios::compression);
        all.put("chunks", Scenarios::chunks);
        all.put("shared", Scenarios::shared);
        all.put("redelivery_count", Scenarios::redeliveryCount);
        all.put("delayed", Scenarios::delayed);
        all.put("ack_timeout", Scenarios::ackTimeout);
        all.put("dead_letter", Scenarios::deadLetter);
        all.put("failover", Scenarios::failover);
        all.put("key_shared", Scenarios::keyShared);
        all.put("exclusive_is_busy", Scenarios::exclusiveIsBusy);
        all.put("cumulative", Scenarios::cumulative);
        all.put("seek", Scenarios::seek);
        all.put("reader", Scenarios::reader);
        all.put("compacted", Scenarios::compacted);
        all.put("deduplication", Scenarios::deduplication);
        all.put("access_mode", Scenarios::accessMode);
        all.put("partitioned", Scenarios::partitioned);
        all.put("regex", Scenarios::regex);
        all.put("non_persistent", Scenarios::nonPersistent);
        all.put("schemas", Scenarios::schemas);
        all.put("unsubscribe", Scenarios::unsubscribe);
        all.put("administration", Scenarios::administration);
        all.put("retry_letter", Scenarios::retryLetter);
        all.put("sticky", Scenarios::sticky);
        all.put("batch_index", Scenarios::batchIndex);
        all.put("table_view", Scenarios::tableView);
        ObjectMapper json = new ObjectMapper();
        for (String name : Arrays.asList(arguments).subList(3, arguments.length)) {
            Scenario scenario = all.get(name);
            String seen;
            if (scenario == null) {
                seen = "absent";
            } else {
                try {
                    seen = json.writeValueAsString(scenario.run(arguments[2] + "-" + name));
                } catch (Throwable error) {
                    seen = "error " + String.valueOf(error).replaceAll("\\s+", " ");
                }
            }
            System.out.println(name + "\t" + seen);
        }
        client.close();
        admin.close();
        System.exit(0); // threads of a client that did not end must not keep the test waiting
    }

    static Producer<byte[]> producer(String topic) throws Exception {
        return client.newProducer().topic(topic).enableBatching(false).create();
    }

    static ConsumerBuilder<byte[]> consumer(String topic, SubscriptionType type) {
        return client.newConsumer().topic(topic).subscriptionName("s").subscriptionType(type)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest);
    }

    static void send(String topic, int from, int to) throws Exception {
        try (Producer<byte[]> producer = producer(topic)) {
            for (int i = from; i < to; i++) {
                producer.send(("m" + i).getBytes());
            }
        }
    }

    static String text(Message<byte[]> message) {
        return message == null ? null : new String(message.getData());
    }

    static List<String> texts(Consumer<byte[]> consumer, int count) throws Exception {
        List<String> texts = new ArrayList<>();
        for (int i = 0; i < count; i++) {
            Message<byte[]> message = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
            texts.add(text(message));
            consumer.acknowledge(message);
        }
        return texts;
    }

    static Object order(String topic) throws Exception {
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).batchingMaxMessages(10).create()) {
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int i = 0; i < 100; i++) {
                sent.add(producer.newMessage().key("k" + i % 5).property("number", "" + i).eventTime(1000 + i)
                        .value(("m" + i).getBytes()).sendAsync());
            }
            CompletableFuture.allOf(sent.toArray(new CompletableFuture[0])).get(TIMEOUT_S, TimeUnit.SECONDS);
            Set<String> keys = new TreeSet<>();
            int ordered = 0;
            for (int i = 0; i < 100; i++) {
                Message<byte[]> message = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
                keys.add(message.getKey());
                if (text(message).equals("m" + i) && message.getProperty("number").equals("" + i)
                        && message.getEventTime() == 1000 + i) {
                    ordered++;
                }
                consumer.acknowledge(message);
            }
            return List.of(ordered, keys);
        }
    }

    static Object compression(String topic) throws Exception {
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            for (CompressionType type : List.of(CompressionType.LZ4, CompressionType.ZLIB, CompressionType.ZSTD)) {
                try (Producer<byte[]> producer = client.newProducer().topic(topic).compressionType(type).create()) {
                    producer.send("x".repeat(10_000).getBytes());
                }
            }
            List<Integer> lengths = new ArrayList<>();
            for (String text : texts(consumer, 3)) {
                lengths.add(text.equals("x".repeat(10_000)) ? text.length() : -1);
            }
            return lengths;
        }
    }

    static Object chunks(String topic) throws Exception {
        byte[] large = new byte[12_000_000];
        for (int i = 0; i < large.length; i++) {
            large[i] = (byte) (i * 31 / 7);
        }
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).enableBatching(false)
                        .enableChunking(true).create()) {
            producer.send(large);
            producer.send("after".getBytes());
            Message<byte[]> message = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
            boolean isSame = Arrays.equals(message.getData(), large);
            consumer.acknowledge(message);
            return List.of(isSame, texts(consumer, 1));
        }
    }

    static Object shared(String topic) throws Exception {
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Shared).receiverQueueSize(1);
        Set<String> seen = new TreeSet<>();
        boolean isShared;
        try (Consumer<byte[]> second = builder.clone().subscribe()) {
            try (Consumer<byte[]> first = builder.clone().subscribe()) {
                send(topic, 0, 20);
                isShared = first.receive(TIMEOUT_S, TimeUnit.SECONDS) != null; // and keeps it until it is closed
                seen.addAll(texts(second, 5));
            }
            seen.addAll(texts(second, 15));
        }
        return List.of(isShared, seen.size());
    }

    static Object redeliveryCount(String topic) throws Exception {
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(200, TimeUnit.MILLISECONDS).subscribe()) {
            send(topic, 0, 1);
            List<Integer> counts = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                Message<byte[]> message = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
                counts.add(message.getRedeliveryCount());
                consumer.negativeAcknowledge(message);
            }
            return counts;
        }
    }

    static Object delayed(String topic) throws Exception {
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            long now = System.currentTimeMillis();
            producer.newMessage().value("m0".getBytes()).deliverAfter(5, TimeUnit.SECONDS).send();
            producer.newMessage().value("m1".getBytes()).deliverAt(now + 2000).send();
            producer.newMessage().value("m2".getBytes()).send();
            List<Object> seen = new ArrayList<>();
            for (long least : List.of(0L, 2000L, 5000L)) {
                seen.add(text(consumer.receive(TIMEOUT_S, TimeUnit.SECONDS)));
                seen.add(System.currentTimeMillis() >= now + least);
            }
            return seen;
        }
    }

    static Object ackTimeout(String topic) throws Exception {
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared)
                .ackTimeout(1, TimeUnit.SECONDS).subscribe()) {
            send(topic, 0, 1);
            Message<byte[]> first = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
            Message<byte[]> again = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
            consumer.acknowledge(again);
            return List.of(text(first), text(again), again.getRedeliveryCount());
        }
    }

    static Object deadLetter(String topic) throws Exception {
        DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(2).initialSubscriptionName("dead").build();
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(200, TimeUnit.MILLISECONDS).deadLetterPolicy(policy).subscribe();
                Consumer<byte[]> dead = consumer(topic + "-s-DLQ", SubscriptionType.Shared).subscribe()) {
            send(topic, 0, 2);
            int times = 0;
            boolean isGood = false;
            Message<byte[]> message;
            while ((message = consumer.receive(3, TimeUnit.SECONDS)) != null) {
                if (text(message).equals("m0")) {
                    times++;
                    consumer.negativeAcknowledge(message);
                } else {
                    isGood = true;
                    consumer.acknowledge(message);
                }
            }
            Message<byte[]> letter = dead.receive(TIMEOUT_S, TimeUnit.SECONDS);
            dead.acknowledge(letter);
            return List.of(times, isGood, text(letter), letter.getProperty("REAL_TOPIC").equals(consumer.getTopic()),
                    admin.topics().getStats(consumer.getTopic()).getSubscriptions().get("s").getMsgBacklog());
        }
    }

    static Object retryLetter(String topic) throws Exception {
        DeadLetterPolicy policy = DeadLetterPolicy.builder().maxRedeliverCount(2).build();
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Shared).enableRetry(true)
                .deadLetterPolicy(policy).subscribe();
                Consumer<byte[]> dead = consumer(topic + "-s-DLQ", SubscriptionType.Shared).subscribe()) {
            send(topic, 0, 1);
            List<String> times = new ArrayList<>();
            for (int i = 0; i < 3; i++) {
                Message<byte[]> message = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
                times.add(message.getProperties().getOrDefault("RECONSUMETIMES", ""));
                consumer.reconsumeLater(message, 1, TimeUnit.SECONDS);
            }
            return List.of(times, texts(dead, 1));
        }
    }

    public static class Order {
        public int number;
        public String text;
    }

    public static class LongerOrder {
        public int number;
        public String text;
        public String note;
    }

    public static class WrongOrder {
        public String number;
    }

    static <T> boolean comesAsSent(String topic, Schema<T> schema, T value) throws Exception {
        try (Consumer<T> consumer = client.newConsumer(schema).topic(topic).subscriptionName("s").subscribe();
                Producer<T> producer = client.newProducer(schema).topic(topic).create()) {
            producer.send(value);
            return value.equals(consumer.receive(TIMEOUT_S, TimeUnit.SECONDS).getValue());
        }
    }

    static String refusal(java.util.concurrent.Callable<?> call) throws Exception {
        try {
            call.call();
            return "none";
        } catch (PulsarClientException error) {
            return error.getClass().getSimpleName();
        }
    }

    static Object schemas(String topic) throws Exception {
        long seconds = 1_700_000_000;
        Map<Schema<?>, Object> values = new LinkedHashMap<>();
        values.put(Schema.STRING, "text");
        values.put(Schema.BOOL, true);
        values.put(Schema.INT8, (byte) 8);
        values.put(Schema.INT16, (short) 16);
        values.put(Schema.INT32, 32);
        values.put(Schema.INT64, 64L);
        values.put(Schema.FLOAT, 1.5f);
        values.put(Schema.DOUBLE, 2.5);
        values.put(Schema.DATE, new java.util.Date(seconds * 1000));
        values.put(Schema.TIME, new java.sql.Time(seconds * 1000));
        values.put(Schema.TIMESTAMP, new java.sql.Timestamp(seconds * 1000));
        values.put(Schema.INSTANT, java.time.Instant.ofEpochSecond(seconds));
        values.put(Schema.LOCAL_DATE, java.time.LocalDate.of(2026, 11, 23));
        values.put(Schema.LOCAL_TIME, java.time.LocalTime.of(14, 50));
        values.put(Schema.LOCAL_DATE_TIME, java.time.LocalDateTime.of(2026, 11, 23, 14, 50));
        com.google.protobuf.Timestamp timestamp = com.google.protobuf.Timestamp.newBuilder().setSeconds(seconds).build();
        values.put(Schema.PROTOBUF_NATIVE(com.google.protobuf.Timestamp.class), timestamp);
        org.apache.pulsar.common.schema.KeyValue<String, Integer> pair =
                new org.apache.pulsar.common.schema.KeyValue<>("k", 1);
        values.put(Schema.KeyValue(Schema.STRING, Schema.INT32,
                org.apache.pulsar.common.schema.KeyValueEncodingType.SEPARATED), pair);
        List<String> different = new ArrayList<>();
        int number = 0;
        for (Map.Entry<Schema<?>, Object> each : values.entrySet()) {
            @SuppressWarnings("unchecked")
            Schema<Object> schema = (Schema<Object>) each.getKey();
            if (!comesAsSent(topic + "-" + number++, schema, each.getValue())) {
                different.add(schema.getSchemaInfo().getType().name());
            }
        }
        List<Object> read = new ArrayList<>();
        try (Producer<Order> orders = client.newProducer(Schema.AVRO(Order.class)).topic(topic).create();
                Producer<LongerOrder> longer = client.newProducer(Schema.AVRO(LongerOrder.class)).topic(topic).create();
                Producer<byte[]> any = client.newProducer(Schema.AUTO_PRODUCE_BYTES()).topic(topic).create();
                Consumer<org.apache.pulsar.client.api.schema.GenericRecord> consumer =
                        client.newConsumer(Schema.AUTO_CONSUME()).topic(topic).subscriptionName("s")
                                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            Order order = new Order();
            order.number = 1;
            orders.send(order);
            LongerOrder second = new LongerOrder();
            second.number = 2;
            second.note = "note";
            longer.send(second);
            second.number = 3;
            any.send(Schema.AVRO(LongerOrder.class).encode(second));
            for (int i = 0; i < 3; i++) {
                org.apache.pulsar.client.api.schema.GenericRecord record =
                        consumer.receive(TIMEOUT_S, TimeUnit.SECONDS).getValue();
                read.add(record.getField("number"));
                read.add(record.getFields().size());
            }
        }
        String producer = refusal(() -> client.newProducer(Schema.AVRO(WrongOrder.class)).topic(topic).create());
        String consumer = refusal(() -> client.newConsumer(Schema.JSON(Order.class)).topic(topic).subscriptionName("j")
                .subscribe());
        List<Object> held = new ArrayList<>();
        for (org.apache.pulsar.common.schema.SchemaInfo info : admin.schemas().getAllSchemas(topic)) {
            held.add(info.getType().name());
        }
        boolean fits = admin.schemas().testCompatibility(topic, Schema.AVRO(Order.class).getSchemaInfo()).isCompatibility();
        Long version = admin.schemas().getVersionBySchema(topic, Schema.AVRO(LongerOrder.class).getSchemaInfo());
        admin.schemas().deleteSchema(topic);
        return List.of(different, read, producer, consumer, held, fits, version,
                admin.schemas().getAllSchemas(topic).size());
    }

    static Object failover(String topic) throws Exception {
        // What is acknowledged without a receipt just before a consumer closes may come again.
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Failover).isAckReceiptEnabled(true);
        try (Consumer<byte[]> one = builder.clone().subscribe(); Consumer<byte[]> other = builder.clone().subscribe()) {
            TimeUnit.SECONDS.sleep(2); // a change of the active consumer has a delay of one
            send(topic, 0, 6);
            Consumer<byte[]> active = other;
            Message<byte[]> message = null;
            for (int i = 0; message == null && i < 10 * TIMEOUT_S; i++) {
                active = active == one ? other : one;
                message = active.receive(100, TimeUnit.MILLISECONDS);
            }
            active.acknowledge(message);
            List<String> seen = new ArrayList<>(List.of(text(message)));
            seen.addAll(texts(active, 2));
            active.receive(TIMEOUT_S, TimeUnit.SECONDS); // and is not acknowledged
            active.close();
            seen.addAll(texts(active == one ? other : one, 3));
            return seen;
        }
    }

    static Object keyShared(String topic) throws Exception {
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Key_Shared);
        try (Consumer<byte[]> one = builder.clone().subscribe(); Consumer<byte[]> other = builder.clone().subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).batcherBuilder(BatcherBuilder.KEY_BASED).create()) {
            List<CompletableFuture<MessageId>> sent = new ArrayList<>();
            for (int i = 0; i < 200; i++) {
                sent.add(producer.newMessage().key("k" + i % 20).value(("" + i).getBytes()).sendAsync());
            }
            CompletableFuture.allOf(sent.toArray(new CompletableFuture[0])).get(TIMEOUT_S, TimeUnit.SECONDS);
            Map<String, List<Integer>> numbers = new LinkedHashMap<>();
            Map<String, Set<Object>> places = new LinkedHashMap<>();
            int count = 0;
            for (Consumer<byte[]> consumer : List.of(one, other)) {
                Message<byte[]> message;
                while ((message = consumer.receive(2, TimeUnit.SECONDS)) != null) {
                    numbers.computeIfAbsent(message.getKey(), key -> new ArrayList<>()).add(Integer.parseInt(text(message)));
                    places.computeIfAbsent(message.getKey(), key -> new HashSet<>()).add(consumer);
                    consumer.acknowledge(message);
                    count++;
                }
            }
            boolean isOrdered = numbers.values().stream().allMatch(list -> list.equals(list.stream().sorted().toList()));
            int most = places.values().stream().mapToInt(Set::size).max().orElse(0);
            long used = places.values().stream().flatMap(Set::stream).distinct().count();
            return List.of(count, isOrdered, most, used);
        }
    }

    static Consumer<byte[]> stickyConsumer(String topic, int first, int last) throws Exception {
        return consumer(topic, SubscriptionType.Key_Shared)
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(first, last))).subscribe();
    }

    static Object sticky(String topic) throws Exception {
        try (Consumer<byte[]> low = stickyConsumer(topic, 0, 32767); Consumer<byte[]> high = stickyConsumer(topic, 32768, 65535);
                Producer<byte[]> producer = producer(topic)) {
            String refusal = "is taken";
            try {
                stickyConsumer(topic, 100, 200).close();
            } catch (PulsarClientException.ConsumerAssignException error) {
                refusal = "is refused";
            }
            for (int i = 0; i < 20; i++) {
                producer.newMessage().key("k" + i % 10).value("m".getBytes()).send();
            }
            List<Object> seen = new ArrayList<>();
            for (Consumer<byte[]> consumer : List.of(low, high)) {
                Set<String> keys = new TreeSet<>();
                Message<byte[]> message;
                while ((message = consumer.receive(2, TimeUnit.SECONDS)) != null) {
                    keys.add(message.getKey());
                    consumer.acknowledge(message);
                }
                seen.add(keys);
            }
            seen.add(refusal);
            return seen;
        }
    }

    static Object batchIndex(String topic) throws Exception {
        ConsumerBuilder<byte[]> builder = consumer(topic, SubscriptionType.Shared).enableBatchIndexAcknowledgment(true);
        try (Consumer<byte[]> consumer = builder.clone().subscribe(); Producer<byte[]> producer = client.newProducer()
                .topic(topic).batchingMaxMessages(10).batchingMaxPublishDelay(TIMEOUT_S, TimeUnit.SECONDS).create()) {
            for (int i = 0; i < 10; i++) {
                producer.sendAsync(("m" + i).getBytes());
            }
            producer.flush();
            for (int i = 0; i < 10; i++) {
                Message<byte[]> message = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
                if (i % 2 == 0) {
                    consumer.acknowledge(message);
                }
            }
        }
        try (Consumer<byte[]> consumer = builder.clone().subscribe()) {
            List<String> seen = texts(consumer, 5);
            seen.add(text(consumer.receive(500, TimeUnit.MILLISECONDS)));
            return seen;
        }
    }

    static Object tableView(String topic) throws Exception {
        try (Producer<byte[]> producer = producer(topic)) {
            for (int i = 0; i < 6; i++) {
                producer.newMessage().key("k" + i % 3).value(("m" + i).getBytes()).send();
            }
            try (TableView<byte[]> view = client.newTableView(Schema.BYTES).topic(topic).create()) {
                List<String> seen = new ArrayList<>();
                for (String key : List.of("k0", "k1", "k2")) {
                    seen.add(new String(view.get(key)));
                }
                producer.newMessage().key("k0").value("m6".getBytes()).send();
                producer.newMessage().key("k1").value(new byte[0]).send(); // which deletes the key
                long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
                while (view.containsKey("k1") && System.nanoTime() < until) {
                    TimeUnit.MILLISECONDS.sleep(50);
                }
                seen.add(new String(view.get("k0")));
                seen.add(view.containsKey("k1") ? "k1" : null);
                return seen;
            }
        }
    }

    static Object exclusiveIsBusy(String topic) throws Exception {
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            try {
                consumer(topic, SubscriptionType.Exclusive).subscribe().close();
                return "both are there";
            } catch (PulsarClientException.ConsumerBusyException error) {
                return "busy";
            }
        }
    }

    static Object cumulative(String topic) throws Exception {
        send(topic, 0, 10);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            Message<byte[]> message = null;
            for (int i = 0; i < 7; i++) {
                message = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
            }
            consumer.acknowledgeCumulative(message);
        }
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            return texts(consumer, 3);
        }
    }

    static Object seek(String topic) throws Exception {
        send(topic, 0, 10);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            List<MessageId> ids = new ArrayList<>();
            for (int i = 0; i < 10; i++) {
                Message<byte[]> message = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
                ids.add(message.getMessageId());
                consumer.acknowledge(message);
            }
            List<Object> seen = new ArrayList<>();
            consumer.seek(MessageId.earliest);
            seen.add(texts(consumer, 1));
            consumer.seek(ids.get(5));
            seen.add(texts(consumer, 1));
            consumer.seek(0);
            seen.add(texts(consumer, 1));
            consumer.seek(MessageId.latest);
            send(topic, 10, 11);
            seen.add(texts(consumer, 1));
            return seen;
        }
    }

    static Object reader(String topic) throws Exception {
        send(topic, 0, 5);
        List<String> seen = new ArrayList<>();
        MessageId second = null;
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.earliest).create()) {
            while (reader.hasMessageAvailable()) {
                Message<byte[]> message = reader.readNext(TIMEOUT_S, TimeUnit.SECONDS);
                seen.add(text(message));
                second = seen.size() == 2 ? message.getMessageId() : second;
            }
        }
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(second).create()) {
            seen.add(text(reader.readNext(TIMEOUT_S, TimeUnit.SECONDS)));
        }
        try (Reader<byte[]> reader = client.newReader().topic(topic).startMessageId(MessageId.latest).create()) {
            seen.add(String.valueOf(reader.hasMessageAvailable()));
        }
        return seen;
    }

    static Object compacted(String topic) throws Exception {
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer = producer(topic)) {
            for (int i = 0; i < 9; i++) {
                producer.newMessage().key("k" + i % 3).value(("m" + i).getBytes()).send();
            }
            producer.newMessage().key("k0").value(new byte[0]).send(); // which deletes the key
            consumer.acknowledge(consumer.receive(TIMEOUT_S, TimeUnit.SECONDS));
        }
        admin.topics().triggerCompaction(topic);
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
        while (!admin.topics().compactionStatus(topic).status.name().equals("SUCCESS") && System.nanoTime() < until) {
            TimeUnit.MILLISECONDS.sleep(50);
        }
        try (Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("compacted")
                .readCompacted(true).subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            return texts(consumer, 2);
        }
    }

    static Object deduplication(String topic) throws Exception {
        admin.topics().createNonPartitionedTopic(topic);
        admin.topicPolicies().setDeduplicationStatus(topic, true);
        long until = System.nanoTime() + TimeUnit.SECONDS.toNanos(TIMEOUT_S);
        while (!Boolean.TRUE.equals(admin.topicPolicies().getDeduplicationStatus(topic)) && System.nanoTime() < until) {
            TimeUnit.MILLISECONDS.sleep(50);
        }
        TimeUnit.SECONDS.sleep(1); // Pulsar obeys a policy of a topic some time after it has said so
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            for (int life = 0; life < 2; life++) {
                try (Producer<byte[]> producer = client.newProducer().topic(topic).producerName("p")
                        .sendTimeout(0, TimeUnit.SECONDS).enableBatching(false).create()) {
                    for (int i = 0; i < 5 + life; i++) {
                        producer.newMessage().sequenceId(i).value(("m" + i).getBytes()).send();
                    }
                }
            }
            List<String> seen = texts(consumer, 6);
            seen.add(text(consumer.receive(500, TimeUnit.MILLISECONDS)));
            return seen;
        }
    }

    static Object accessMode(String topic) throws Exception {
        List<String> seen = new ArrayList<>();
        CompletableFuture<Producer<byte[]>> waiting;
        try (Producer<byte[]> first = client.newProducer().topic(topic).accessMode(ProducerAccessMode.Exclusive).create()) {
            for (ProducerAccessMode mode : List.of(ProducerAccessMode.Exclusive, ProducerAccessMode.Shared)) {
                try {
                    client.newProducer().topic(topic).accessMode(mode).create().close();
                    seen.add("both are there");
                } catch (PulsarClientException.ProducerFencedException error) {
                    seen.add("fenced");
                } catch (PulsarClientException.ProducerBusyException error) {
                    seen.add("busy");
                }
            }
            waiting = client.newProducer().topic(topic).accessMode(ProducerAccessMode.WaitForExclusive).createAsync();
            TimeUnit.MILLISECONDS.sleep(300);
            seen.add(waiting.isDone() ? "did not wait" : "waits");
        }
        waiting.get(TIMEOUT_S, TimeUnit.SECONDS).close();
        seen.add("has it");
        return seen;
    }

    static Object partitioned(String topic) throws Exception {
        admin.topics().createPartitionedTopic(topic, 3);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            for (int i = 0; i < 30; i++) {
                producer.newMessage().key("k" + i % 10).value(("m" + i).getBytes()).send();
            }
            Map<String, Set<String>> partitions = new LinkedHashMap<>();
            for (int i = 0; i < 30; i++) {
                Message<byte[]> message = consumer.receive(TIMEOUT_S, TimeUnit.SECONDS);
                partitions.computeIfAbsent(message.getKey(), key -> new TreeSet<>()).add(message.getTopicName());
                consumer.acknowledge(message);
            }
            int places = partitions.values().stream().mapToInt(Set::size).max().orElse(0);
            return List.of(partitions.size(), places, admin.topics().getPartitionedTopicMetadata(topic).partitions);
        }
    }

    static Object regex(String topic) throws Exception {
        send(topic + "-one", 0, 1);
        try (Consumer<byte[]> consumer = client.newConsumer().topicsPattern(topic + "-.*").subscriptionName("s")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            List<String> seen = texts(consumer, 1);
            send(topic + "x", 2, 3);
            send(topic + "-two", 1, 2); // which a watch tells; the client itself looks after 60 s
            seen.addAll(texts(consumer, 1));
            seen.add(text(consumer.receive(500, TimeUnit.MILLISECONDS)));
            return seen;
        }
    }

    static Object nonPersistent(String persistent) throws Exception {
        String topic = "non-" + persistent;
        List<String> seen;
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            send(topic, 0, 5);
            seen = texts(consumer, 5);
        }
        send(topic, 5, 6);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            send(topic, 6, 7);
            seen.addAll(texts(consumer, 1));
        }
        return seen;
    }

    static Object unsubscribe(String topic) throws Exception {
        send(topic, 0, 1);
        try (Consumer<byte[]> consumer = consumer(topic, SubscriptionType.Exclusive).subscribe()) {
            texts(consumer, 1);
            consumer.unsubscribe();
        }
        return admin.topics().getSubscriptions(topic);
    }

    static Object administration(String topic) throws Exception {
        List<Object> seen = new ArrayList<>();
        admin.topics().createNonPartitionedTopic(topic);
        admin.topics().createSubscription(topic, "s", MessageId.latest);
        send(topic, 0, 10);
        seen.add(admin.topics().getStats(topic).getSubscriptions().get("s").getMsgBacklog());
        seen.add(admin.topics().peekMessages(topic, "s", 2).stream().map(Scenarios::text).toList());
        admin.topics().skipMessages(topic, "s", 4);
        seen.add(admin.topics().getStats(topic).getSubscriptions().get("s").getMsgBacklog());
        admin.topics().resetCursor(topic, "s", 0);
        seen.add(admin.topics().getStats(topic).getSubscriptions().get("s").getMsgBacklog());
        admin.topics().skipAllMessages(topic, "s");
        seen.add(admin.topics().getStats(topic).getSubscriptions().get("s").getMsgBacklog());
        admin.topics().unload(topic);
        seen.add(admin.topics().getInternalStats(topic).entriesAddedCounter);
        seen.add(admin.topics().terminateTopic(topic) != null);
        try {
            send(topic, 10, 11);
            seen.add("is open");
        } catch (PulsarClientException error) {
            seen.add("is terminated");
        }
        admin.topics().delete(topic);
        seen.add(admin.topics().getList("public/default").contains(topic));
        return seen;
    }
}
