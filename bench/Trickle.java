import java.util.Properties;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.serialization.ByteArraySerializer;

/** Trickle BOOTSTRAP TOPIC RATE: messages of 600 bytes at a steady rate, to partitions 0 and 1 in turn, until ended. */
public class Trickle {
    public static void main(String[] a) throws Exception {
        Properties p = new Properties();
        p.put("bootstrap.servers", a[0]);
        p.put("acks", "1");
        p.put("key.serializer", ByteArraySerializer.class.getName());
        p.put("value.serializer", ByteArraySerializer.class.getName());
        double rate = Double.parseDouble(a[2]);
        byte[] body = new byte[600];
        long begin = System.nanoTime();
        try (KafkaProducer<byte[], byte[]> out = new KafkaProducer<>(p)) {
            for (long i = 0; ; i++) {
                out.send(new ProducerRecord<>(a[1], (int) (i % 2), null, body));
                long due = begin + (long) ((i + 1) * 1e9 / rate) - System.nanoTime();
                if (due > 0) {
                    Thread.sleep(due / 1_000_000, (int) (due % 1_000_000));
                }
            }
        }
    }
}
