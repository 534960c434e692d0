// A client of a run in Java, with worker.py's roles of writer and copier, its arguments and its diary.
// Java's producer speaks transaction version 2: a new epoch with every transaction, partitions added by producing.

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.stream.Collectors;
import java.util.stream.IntStream;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.InvalidProducerEpochException;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.errors.TimeoutException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

public class Worker {
    private static final String QUEUE = "queue", SOURCE = "source", TARGET = "target", GROUP = "copiers";
    private static final int PARTITIONS = 3, TAIL = 1_000;
    private static final int TRANSACTION_MS = 6_000, ASK_MS = 4_000, GIVE_UP_MS = 30_000;
    private static final ObjectMapper JSON = new ObjectMapper();

    private final Map<String, String> asked;
    private final String name;
    private final Random chance;
    private final OutputStream diary;
    private int operation;
    private int life;
    private volatile boolean ending;

    /** This producer is of no use any more. */
    private static class Over extends Exception {
        final boolean fenced;

        Over(Throwable cause) {
            super(cause);
            fenced = cause instanceof ProducerFencedException || cause instanceof InvalidProducerEpochException;
        }
    }

    /** The transaction must be aborted. */
    private static class Abortable extends Exception {
        Abortable(Throwable cause) {
            super(cause);
        }
    }

    private Worker(Map<String, String> asked) throws IOException {
        this.asked = asked;
        this.name = asked.get("--name");
        this.chance = new Random((asked.get("--seed") + name).hashCode());
        this.diary = new FileOutputStream(asked.get("--diary"), true);
    }

    public static void main(String[] words) throws Exception {
        Map<String, String> asked = new HashMap<>();
        for (int at = 1; at + 1 < words.length; at += 2) {
            asked.put(words[at], words[at + 1]);
        }
        Worker worker = new Worker(asked);
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> {
            worker.ending = true;
            try {
                main.join();
            } catch (InterruptedException ignored) {
                Thread.currentThread().interrupt();
            }
        }));
        while (!worker.ending) {
            try {
                if (words[0].equals("writer")) {
                    worker.write();
                } else {
                    worker.copy();
                }
            } catch (Over over) {
                if (over.fenced && !worker.ending) {
                    Runtime.getRuntime().halt(0);
                }
            } catch (KafkaException trouble) {
                // A consumer's: everything is made anew.
            }
        }
    }

    private synchronized void tell(ObjectNode told) {
        try {
            diary.write((JSON.writeValueAsString(told) + "\n").getBytes(StandardCharsets.UTF_8));
        } catch (IOException failed) {
            throw new IllegalStateException(failed);
        }
    }

    private static ObjectNode event(String kind) {
        return JSON.createObjectNode().put("event", kind);
    }

    private int begin() {
        operation += 1;
        tell(event("begin").put("op", operation).put("at", System.nanoTime()));
        return operation;
    }

    private void end(String outcome) {
        tell(event("end").put("outcome", outcome).put("at", System.nanoTime()));
    }

    private Properties settings() {
        Properties made = new Properties();
        made.put("bootstrap.servers", asked.get("--bootstrap"));
        made.put("client.id", name);
        made.put("request.timeout.ms", "3000");
        made.put("reconnect.backoff.max.ms", "200");
        return made;
    }

    private KafkaProducer<String, String> producer() throws Over {
        Properties made = settings();
        made.put("transactional.id", asked.get("--id"));
        made.put("transaction.timeout.ms", String.valueOf(TRANSACTION_MS));
        made.put("max.block.ms", String.valueOf(ASK_MS));
        made.put("delivery.timeout.ms", "20000");
        made.put("linger.ms", "1");
        KafkaProducer<String, String> producer = new KafkaProducer<>(made, new StringSerializer(), new StringSerializer());
        long began = System.nanoTime();
        try {
            insist(producer::initTransactions);
            tell(event("taken").put("id", asked.get("--id")).put("asked", began).put("at", System.nanoTime()));
        } catch (Over | Abortable failed) {
            producer.close(Duration.ZERO);
            throw failed instanceof Over over ? over : new Over(failed);
        }
        return producer;
    }

    /** Until it is answered: a time-out of these calls is answered by calling again. */
    private void insist(Runnable ask) throws Over, Abortable {
        long giveUp = System.nanoTime() + GIVE_UP_MS * 1_000_000L;
        while (true) {
            try {
                ask.run();
                return;
            } catch (TimeoutException late) {
                if (System.nanoTime() > giveUp) {
                    throw new Over(late);
                }
            } catch (ProducerFencedException | InvalidProducerEpochException fenced) {
                throw new Over(fenced);
            } catch (KafkaException failed) {
                throw new Abortable(failed);
            } catch (IllegalStateException wrong) {
                throw new Over(wrong);
            }
        }
    }

    private KafkaConsumer<String, String> consumer(String group) {
        Properties made = settings();
        made.put("group.id", group);
        made.put("isolation.level", "read_committed");
        made.put("enable.auto.commit", "false");
        made.put("auto.offset.reset", "earliest");
        made.put("session.timeout.ms", "6000");
        made.put("default.api.timeout.ms", String.valueOf(GIVE_UP_MS));
        return new KafkaConsumer<>(made, new StringDeserializer(), new StringDeserializer());
    }

    private void send(KafkaProducer<String, String> producer, String topic, int partition, String value) throws Over, Abortable {
        tell(event("send").put("partition", topic + "-" + partition).put("value", value));
        insist(() -> producer.send(new ProducerRecord<>(topic, partition, null, value), (told, failed) -> {
            if (failed == null) {
                tell(event("sent").put("value", value).put("offset", told.offset()));
            }
        }));
    }

    private void note(ConsumerRecords<String, String> found) {
        for (TopicPartition partition : found.partitions()) {
            ObjectNode told = event("seen").put("life", life).put("partition", partition.toString());
            ArrayNode records = told.putArray("records");
            for (ConsumerRecord<String, String> record : found.records(partition)) {
                records.addArray().add(record.offset()).add(record.value());
            }
            tell(told.put("at", System.nanoTime()));
        }
    }

    private void commit(KafkaProducer<String, String> producer) throws Over {
        tell(event("committing").put("at", System.nanoTime()));
        try {
            insist(producer::commitTransaction);
            end("ok");
        } catch (Abortable failed) {
            abort(producer);
        } catch (Over over) {
            end("unknown");
            throw over;
        }
    }

    private void abort(KafkaProducer<String, String> producer) throws Over {
        tell(event("aborting"));
        try {
            insist(producer::abortTransaction);
        } catch (Over | Abortable failed) {
            end("unknown");
            throw failed instanceof Over over ? over : new Over(failed);
        }
        end("failed");
    }

    private void write() throws Over {
        KafkaProducer<String, String> producer = producer();
        try (KafkaConsumer<String, String> reader = consumer("reads-of-" + name)) {
            life += 1;
            List<TopicPartition> all =
                    IntStream.range(0, PARTITIONS).mapToObj(number -> new TopicPartition(QUEUE, number)).collect(Collectors.toList());
            reader.assign(all);
            reader.endOffsets(all).forEach((partition, end) -> reader.seek(partition, Math.max(0, end - TAIL)));
            while (!ending) {
                int number = begin();
                try {
                    producer.beginTransaction();
                    int sends = 1 + chance.nextInt(4);
                    for (int count = 0; count < sends; count++) {
                        send(producer, QUEUE, chance.nextInt(PARTITIONS), name + "-" + number + "-" + count);
                    }
                    if (chance.nextDouble() < 0.4) {
                        note(reader.poll(Duration.ofMillis(200)));
                    }
                } catch (Abortable failed) {
                    abort(producer);
                    continue;
                }
                if (chance.nextDouble() < 0.15) {
                    producer.flush(); // what was not sent yet would be dropped here
                    abort(producer);
                } else {
                    commit(producer);
                }
            }
        } finally {
            producer.close(Duration.ofSeconds(2));
        }
    }

    private void copy() throws Over {
        KafkaProducer<String, String> producer = producer();
        try (KafkaConsumer<String, String> consumer = consumer(GROUP)) {
            consumer.subscribe(List.of(SOURCE), new ConsumerRebalanceListener() {
                @Override
                public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
                    life += 1;
                }

                @Override
                public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
                    life += 1;
                }
            });
            while (!ending) {
                copySome(producer, consumer);
            }
        } finally {
            producer.close(Duration.ofSeconds(2));
        }
    }

    private void copySome(KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer) throws Over {
        ConsumerRecords<String, String> found = consumer.poll(Duration.ofMillis(300));
        int number = begin();
        note(found);
        if (found.isEmpty()) {
            end("failed");
            return;
        }
        Map<TopicPartition, OffsetAndMetadata> ends = new HashMap<>();
        boolean copied = false;
        try {
            producer.beginTransaction();
            for (ConsumerRecord<String, String> record : found) {
                TopicPartition from = new TopicPartition(record.topic(), record.partition());
                ends.put(from, new OffsetAndMetadata(record.offset() + 1));
                send(producer, TARGET, record.partition(), from + "@" + record.offset() + "@" + name + "-" + number);
            }
            insist(() -> producer.sendOffsetsToTransaction(ends, consumer.groupMetadata()));
            if (chance.nextDouble() < 0.1) {
                abort(producer);
            } else {
                tell(event("committing").put("at", System.nanoTime()));
                try {
                    insist(producer::commitTransaction);
                } catch (Over over) {
                    end("unknown");
                    throw over;
                }
                end("ok");
                copied = true;
            }
        } catch (Abortable failed) {
            abort(producer);
        }
        if (!copied) {
            goBack(consumer);
        }
    }

    /** To what the group has committed: the copies were dropped. */
    private void goBack(KafkaConsumer<String, String> consumer) {
        life += 1;
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(consumer.assignment());
        committed.forEach((partition, at) -> consumer.seek(partition, at == null ? 0 : at.offset()));
    }
}
