import java.util.Arrays;
import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/**
 * Java's own producer commits one transaction after the other, and says how long each took, in nanoseconds.
 *
 * <p>Arguments: bootstrap servers, transactional id, topic, partitions, records of a transaction, bytes of a record,
 * seconds before it counts, seconds that count.
 */
public final class JavaCommits {
    private JavaCommits() {}

    public static void main(String[] arguments) {
        Properties properties = new Properties();
        properties.put("bootstrap.servers", arguments[0]);
        properties.put("transactional.id", arguments[1]);
        properties.put("linger.ms", "0");
        String topic = arguments[2];
        int partitions = Integer.parseInt(arguments[3]);
        int records = Integer.parseInt(arguments[4]);
        byte[] value = new byte[Integer.parseInt(arguments[5])];
        Arrays.fill(value, (byte) 'v');
        var serializer = new ByteArraySerializer();
        try (var producer = new KafkaProducer<>(properties, serializer, serializer)) {
            producer.initTransactions();
            for (int phase = 6; phase <= 7; phase++) {
                long end = System.nanoTime() + (long) (Double.parseDouble(arguments[phase]) * 1e9);
                for (long begun = System.nanoTime(); begun < end; begun = System.nanoTime()) {
                    producer.beginTransaction();
                    for (int number = 0; number < records; number++) {
                        producer.send(new ProducerRecord<>(topic, number % partitions, null, value));
                    }
                    producer.commitTransaction();
                    if (phase == 7) {
                        System.out.println(System.nanoTime() - begun);
                    }
                }
            }
        }
    }
}
