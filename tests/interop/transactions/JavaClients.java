import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.kafka.clients.admin.AbortTransactionSpec;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.ProducerState;
import org.apache.kafka.clients.consumer.ConsumerGroupMetadata;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/**
 * Java's own clients, which another process uses: one call for each line of standard input.
 *
 * <p>A line is what to do, the name of the client, and arguments, with tabs between them. The answer is a line with
 * {@code ok} and results, or {@code error} and the class of the exception, with tabs between them.
 */
public final class JavaClients {
    private static final Duration DEADLINE = Duration.ofSeconds(90);
    private static final Map<String, KafkaProducer<String, String>> PRODUCERS = new HashMap<>();
    private static final Map<String, KafkaConsumer<String, String>> CONSUMERS = new HashMap<>();
    private static final Map<String, Admin> ADMINS = new HashMap<>();
    // What `groupMetadata` returned when it was asked to remember it.
    private static final Map<String, ConsumerGroupMetadata> GROUPS = new HashMap<>();

    private JavaClients() {}

    public static void main(String[] arguments) throws IOException {
        BufferedReader calls = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream answers = System.out;
        // Logs of the clients are not answers.
        System.setOut(System.err);
        for (String call = calls.readLine(); call != null; call = calls.readLine()) {
            String[] words = call.split("\t", -1);
            List<String> answer = new ArrayList<>();
            try {
                answer.add("ok");
                answer.addAll(answer(words[0], words[1], List.of(words).subList(2, words.length)));
            } catch (Exception failure) {
                Throwable cause = failure instanceof ExecutionException ? failure.getCause() : failure;
                cause.printStackTrace();
                answer = List.of("error", cause.getClass().getSimpleName(), String.valueOf(cause.getMessage()));
            }
            answers.println(answer.stream().map(JavaClients::plain).collect(Collectors.joining("\t")));
            answers.flush();
        }
        Runtime.getRuntime().halt(0);
    }

    private static String plain(String text) {
        return text.replaceAll("[\t\n]", " ");
    }

    private static List<String> answer(String what, String name, List<String> arguments) throws Exception {
        switch (what) {
            case "producer" -> {
                var serializer = new StringSerializer();
                PRODUCERS.put(name, new KafkaProducer<>(properties(arguments), serializer, serializer));
            }
            case "consumer" -> {
                var deserializer = new StringDeserializer();
                CONSUMERS.put(name, new KafkaConsumer<>(properties(arguments), deserializer, deserializer));
            }
            case "admin" -> ADMINS.put(name, Admin.create(properties(arguments)));
            default -> {
                if (PRODUCERS.containsKey(name)) {
                    return produce(what, name, PRODUCERS.get(name), arguments);
                }
                if (CONSUMERS.containsKey(name)) {
                    return consume(what, name, CONSUMERS.get(name), arguments);
                }
                return administer(what, name, ADMINS.get(name), arguments);
            }
        }
        return List.of();
    }

    private static Properties properties(List<String> options) {
        Properties properties = new Properties();
        for (String option : options) {
            String[] parts = option.split("=", 2);
            properties.put(parts[0], parts[1]);
        }
        return properties;
    }

    private static TopicPartition partition(List<String> arguments) {
        return new TopicPartition(arguments.get(0), Integer.parseInt(arguments.get(1)));
    }

    private static List<String> produce(
            String what, String name, KafkaProducer<String, String> producer, List<String> arguments) throws Exception {
        switch (what) {
            case "init" -> producer.initTransactions();
            case "begin" -> producer.beginTransaction();
            case "send" -> {
                TopicPartition to = partition(arguments);
                var record = new ProducerRecord<String, String>(to.topic(), to.partition(), null, arguments.get(2));
                var sent = producer.send(record).get(DEADLINE.toSeconds(), TimeUnit.SECONDS);
                return List.of(String.valueOf(sent.offset()));
            }
            case "offset" -> {
                var offset = new OffsetAndMetadata(Long.parseLong(arguments.get(2)));
                producer.sendOffsetsToTransaction(Map.of(partition(arguments), offset), GROUPS.get(arguments.get(3)));
            }
            case "commit" -> producer.commitTransaction();
            case "abort" -> producer.abortTransaction();
            case "close" -> PRODUCERS.remove(name).close(Duration.ZERO);
            default -> throw new IllegalArgumentException(what);
        }
        return List.of();
    }

    private static List<String> consume(
            String what, String name, KafkaConsumer<String, String> consumer, List<String> arguments) {
        switch (what) {
            case "subscribe" -> consumer.subscribe(arguments);
            case "assign" -> consumer.assign(List.of(partition(arguments)));
            case "poll" -> {
                Duration wait = Duration.ofMillis(Long.parseLong(arguments.get(0)));
                List<String> values = new ArrayList<>();
                for (ConsumerRecord<String, String> record : consumer.poll(wait)) {
                    values.add(record.value());
                }
                return values;
            }
            case "assignment" -> {
                return consumer.assignment().stream().map(TopicPartition::toString).sorted().toList();
            }
            case "remember" -> GROUPS.put(arguments.get(0), consumer.groupMetadata());
            case "committed" -> {
                var partition = partition(arguments);
                OffsetAndMetadata found = consumer.committed(Set.of(partition), DEADLINE).get(partition);
                return List.of(found == null ? "-1" : String.valueOf(found.offset()));
            }
            case "position" -> {
                return List.of(String.valueOf(consumer.position(partition(arguments), DEADLINE)));
            }
            case "end" -> {
                var partition = partition(arguments);
                return List.of(String.valueOf(consumer.endOffsets(List.of(partition), DEADLINE).get(partition)));
            }
            case "lag" -> {
                return List.of(String.valueOf(consumer.currentLag(partition(arguments)).orElse(-1)));
            }
            case "close" -> CONSUMERS.remove(name).close(Duration.ofSeconds(5));
            default -> throw new IllegalArgumentException(what);
        }
        return List.of();
    }

    private static List<String> administer(String what, String name, Admin admin, List<String> arguments)
            throws Exception {
        switch (what) {
            case "fence" -> admin.fenceProducers(arguments).all().get();
            case "state" -> {
                return List.of(admin.describeTransactions(arguments)
                        .description(arguments.get(0))
                        .get()
                        .state()
                        .toString());
            }
            case "abort-open" -> {
                // Whatever transaction is open in a partition.
                TopicPartition partition = partition(arguments);
                var producers = admin.describeProducers(List.of(partition)).partitionResult(partition).get();
                for (ProducerState state : producers.activeProducers()) {
                    if (state.currentTransactionStartOffset().isPresent()) {
                        var spec = new AbortTransactionSpec(
                                partition,
                                state.producerId(),
                                (short) state.producerEpoch(),
                                state.coordinatorEpoch().orElse(0));
                        admin.abortTransaction(spec).all().get();
                    }
                }
            }
            case "close" -> ADMINS.remove(name).close(Duration.ofSeconds(5));
            default -> throw new IllegalArgumentException(what);
        }
        return List.of();
    }
}
