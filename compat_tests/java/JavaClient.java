// The Java client on a leash: one JSON command a line on stdin, one JSON answer a line on stdout.
// Bytes travel as base64 text, null as null.

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.CreateTopicsOptions;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.Node;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.TopicPartitionInfo;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.header.Header;
import org.apache.kafka.common.protocol.Errors;
import org.apache.kafka.common.serialization.ByteArrayDeserializer;
import org.apache.kafka.common.serialization.ByteArraySerializer;

public class JavaClient {
    private static final ObjectMapper JSON = new ObjectMapper();
    private static final long WAIT_SECONDS = 30;
    private static CompletableFuture<ArrayNode> watched;

    public static void main(String[] arguments) throws Exception {
        PrintStream answers = new PrintStream(System.out, true, StandardCharsets.UTF_8);
        System.setOut(System.err);
        BufferedReader commands = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        for (String line = commands.readLine(); line != null; line = commands.readLine()) {
            ObjectNode answer = JSON.createObjectNode();
            try {
                answer.set("ok", run(JSON.readTree(line)));
            } catch (Throwable thrown) {
                Throwable cause = thrown;
                while ((cause instanceof ExecutionException || cause.getClass().equals(org.apache.kafka.common.KafkaException.class))
                        && cause.getCause() != null) {
                    cause = cause.getCause();
                }
                answer.put("error", Errors.forException(cause).code());
                answer.put("text", cause.toString());
            }
            answers.println(JSON.writeValueAsString(answer));
        }
    }

    private static JsonNode run(JsonNode command) throws Exception {
        String bootstrap = command.get("bootstrap").asText();
        String name = command.path("topic").asText(null);
        switch (command.get("op").asText()) {
            case "produce":
                return produce(bootstrap, command);
            case "consume":
                return consume(bootstrap, command, null);
            case "transact":
                return transact(bootstrap, command);
            case "watch":
                return watch(bootstrap, command);
            case "watched":
                return watched.get(WAIT_SECONDS, TimeUnit.SECONDS);
            default:
                try (Admin admin = Admin.create(Map.of("bootstrap.servers", bootstrap))) {
                    return ask(admin, command, name);
                }
        }
    }

    private static JsonNode produce(String bootstrap, JsonNode command) throws Exception {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("linger.ms", 5);
        settings.put("delivery.timeout.ms", (int) WAIT_SECONDS * 1000);
        settings.put("request.timeout.ms", (int) WAIT_SECONDS * 900);
        command.get("settings").fields().forEachRemaining(e -> settings.put(e.getKey(), e.getValue().asText()));
        ArrayNode offsets = JSON.createArrayNode();
        try (KafkaProducer<byte[], byte[]> producer =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (JsonNode record : command.get("records")) {
                Long when = record.get(2).isNull() ? null : record.get(2).asLong();
                ProducerRecord<byte[], byte[]> one = new ProducerRecord<>(
                    command.get("topic").asText(), record.get(3).asInt(), when, bytes(record.get(0)), bytes(record.get(1)));
                for (JsonNode header : record.get(4)) {
                    one.headers().add(header.get(0).asText(), bytes(header.get(1)));
                }
                sent.add(producer.send(one));
            }
            producer.flush();
            for (Future<RecordMetadata> one : sent) {
                RecordMetadata where = one.get(WAIT_SECONDS, TimeUnit.SECONDS);
                offsets.add(where.hasOffset() ? where.offset() : -1);
            }
        }
        return offsets;
    }

    /** Commits, aborts, both with a group's offsets, and is fenced: what the last commit came to. */
    private static JsonNode transact(String bootstrap, JsonNode command) throws Exception {
        Map<String, Object> settings = Map.of(
            "bootstrap.servers", bootstrap, "transactional.id", command.get("id").asText(), "linger.ms", 0);
        String topic = command.get("topic").asText();
        TopicPartition read = new TopicPartition(command.get("read").asText(), 0);
        ConsumerGroupMetadata group = new ConsumerGroupMetadata(command.get("group").asText());
        try (KafkaProducer<byte[], byte[]> first =
                new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
            first.initTransactions();
            for (int turn = 0; turn < 6; turn++) {
                first.beginTransaction();
                for (int partition = 0; partition < 2; partition++) {
                    first.send(new ProducerRecord<>(topic, partition, null, ("turn " + turn).getBytes()));
                }
                if (turn >= 2) {
                    first.sendOffsetsToTransaction(Map.of(read, new OffsetAndMetadata(10 + turn)), group);
                }
                if (turn % 2 == 0) {
                    first.commitTransaction();
                } else {
                    first.flush();
                    first.abortTransaction();
                }
            }
            first.beginTransaction();
            first.send(new ProducerRecord<>(topic, 0, null, "of the fenced".getBytes())).get(WAIT_SECONDS, TimeUnit.SECONDS);
            try (KafkaProducer<byte[], byte[]> second =
                    new KafkaProducer<>(settings, new ByteArraySerializer(), new ByteArraySerializer())) {
                second.initTransactions();
                second.beginTransaction();
                second.send(new ProducerRecord<>(topic, 1, null, "of the second".getBytes()));
                second.commitTransaction();
            }
            try {
                first.commitTransaction();
                return JSON.getNodeFactory().textNode("committed");
            } catch (org.apache.kafka.common.KafkaException fenced) {
                return JSON.getNodeFactory().textNode(fenced.getClass().getSimpleName());
            }
        }
    }

    private static ArrayNode consume(String bootstrap, JsonNode command, CompletableFuture<Void> polling) {
        Map<String, Object> settings = new HashMap<>();
        settings.put("bootstrap.servers", bootstrap);
        settings.put("auto.offset.reset", "none");
        settings.put("enable.auto.commit", "false");
        settings.put("max.partition.fetch.bytes", 4 << 20);
        settings.put("isolation.level", command.path("committed").asBoolean() ? "read_committed" : "read_uncommitted");
        int count = command.get("count").asInt();
        ArrayNode records = JSON.createArrayNode();
        try (KafkaConsumer<byte[], byte[]> consumer =
                new KafkaConsumer<>(settings, new ByteArrayDeserializer(), new ByteArrayDeserializer())) {
            TopicPartition place = new TopicPartition(command.get("topic").asText(), command.path("partition").asInt());
            consumer.assign(List.of(place));
            consumer.seek(place, command.path("offset").asLong());
            if (polling != null) {
                consumer.poll(Duration.ZERO);
                polling.complete(null);
            }
            while (records.size() < count) {
                var polled = consumer.poll(Duration.ofSeconds(WAIT_SECONDS));
                if (polled.isEmpty()) {
                    throw new org.apache.kafka.common.errors.TimeoutException(records.size() + " of " + count + " arrived");
                }
                for (ConsumerRecord<byte[], byte[]> record : polled) {
                    if (records.size() < count) {
                        records.add(told(record));
                    }
                }
            }
        }
        return records;
    }

    private static ArrayNode told(ConsumerRecord<byte[], byte[]> record) {
        ArrayNode headers = JSON.createArrayNode();
        for (Header header : record.headers()) {
            headers.addArray().add(header.key()).add(text(header.value()));
        }
        return JSON.createArrayNode().add(record.offset()).add(text(record.key())).add(text(record.value()))
            .add(headers).add(record.timestamp());
    }

    private static JsonNode watch(String bootstrap, JsonNode command) throws Exception {
        CompletableFuture<Void> polling = new CompletableFuture<>();
        watched = CompletableFuture.supplyAsync(() -> consume(bootstrap, command, polling));
        polling.get(WAIT_SECONDS, TimeUnit.SECONDS);
        return JSON.nullNode();
    }

    private static JsonNode ask(Admin admin, JsonNode command, String name) throws Exception {
        switch (command.get("op").asText()) {
            case "create_topic": {
                Map<String, String> configs = new HashMap<>();
                command.get("configs").fields().forEachRemaining(e -> configs.put(e.getKey(), e.getValue().asText()));
                NewTopic topic = new NewTopic(name, command.get("partitions").asInt(),
                    (short) command.get("replication_factor").asInt()).configs(configs);
                CreateTopicsOptions options = new CreateTopicsOptions().validateOnly(command.get("validate_only").asBoolean());
                admin.createTopics(List.of(topic), options).all().get();
                return JSON.nullNode();
            }
            case "delete_topic":
                admin.deleteTopics(List.of(name)).all().get();
                return JSON.nullNode();
            case "create_partitions":
                admin.createPartitions(Map.of(name, NewPartitions.increaseTo(command.get("total").asInt()))).all().get();
                return JSON.nullNode();
            case "list_topics":
                return JSON.valueToTree(admin.listTopics().names().get());
            case "describe_topic": {
                ObjectNode partitions = JSON.createObjectNode();
                for (TopicPartitionInfo p : admin.describeTopics(List.of(name)).allTopicNames().get().get(name).partitions()) {
                    ObjectNode one = partitions.putObject(Integer.toString(p.partition()));
                    one.put("leader", p.leader() == null ? -1 : p.leader().id());
                    one.set("replicas", ids(p.replicas()));
                    one.set("isr", ids(p.isr()));
                }
                return partitions;
            }
            default:
                return askMore(admin, command, name);
        }
    }

    private static JsonNode askMore(Admin admin, JsonNode command, String name) throws Exception {
        switch (command.get("op").asText()) {
            case "describe_configs": {
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
                ObjectNode configs = JSON.createObjectNode();
                admin.describeConfigs(List.of(resource)).all().get().get(resource).entries()
                    .forEach(e -> configs.put(e.name(), e.value()));
                return configs;
            }
            case "alter_configs": {
                List<AlterConfigOp> changes = new ArrayList<>();
                command.get("configs").fields().forEachRemaining(e -> changes.add(new AlterConfigOp(
                    new ConfigEntry(e.getKey(), e.getValue().asText()), AlterConfigOp.OpType.SET)));
                ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
                admin.incrementalAlterConfigs(Map.of(resource, changes)).all().get();
                return JSON.nullNode();
            }
            case "describe_cluster": {
                var cluster = admin.describeCluster();
                ObjectNode answer = JSON.createObjectNode().put("controller", cluster.controller().get().id());
                ArrayNode nodes = answer.putArray("nodes");
                for (Node node : cluster.nodes().get()) {
                    nodes.addArray().add(node.id()).add(node.host() + ":" + node.port());
                }
                return answer;
            }
            case "list_offset": {
                TopicPartition place = new TopicPartition(name, command.get("partition").asInt());
                long when = command.get("timestamp").asLong();
                OffsetSpec spec = when == -1 ? OffsetSpec.latest()
                    : when == -2 ? OffsetSpec.earliest()
                    : when == -3 ? OffsetSpec.maxTimestamp() : OffsetSpec.forTimestamp(when);
                return JSON.getNodeFactory().numberNode(admin.listOffsets(Map.of(place, spec)).partitionResult(place).get().offset());
            }
            default:
                throw new IllegalArgumentException(command.get("op").asText());
        }
    }

    private static ArrayNode ids(List<Node> nodes) {
        ArrayNode ids = JSON.createArrayNode();
        nodes.forEach(node -> ids.add(node.id()));
        return ids;
    }

    private static byte[] bytes(JsonNode node) {
        return node.isNull() ? null : Base64.getDecoder().decode(node.asText());
    }

    private static String text(byte[] bytes) {
        return bytes == null ? null : Base64.getEncoder().encodeToString(bytes);
    }
}
