import java.util.concurrent.CountDownLatch;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Everything in a topic, consumed with upstream's push consumer: Consume NAMESRV TOPIC COUNT [batch]
 *
 * A new group that starts at the first offset; `batch` messages a call (default 1). The clock runs from the first
 * message to the COUNTth: what starting and rebalancing take is not counted. Prints one JSON line.
 */
public final class Consume {
    public static void main(String[] a) throws Exception {
        long count = Long.parseLong(a[2]);
        int batch = a.length > 3 ? Integer.parseInt(a[3]) : 1;
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer("GID_consume_" + ProcessHandle.current().pid());
        consumer.setNamesrvAddr(a[0]);
        consumer.setInstanceName("consume-" + ProcessHandle.current().pid());
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.setConsumeMessageBatchMaxSize(batch);
        consumer.subscribe(a[1], "*");
        AtomicLong messages = new AtomicLong(), bytes = new AtomicLong(), began = new AtomicLong(), ended = new AtomicLong();
        CountDownLatch all = new CountDownLatch(1);
        consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> {
            began.compareAndSet(0, System.nanoTime());
            for (MessageExt m : list) {
                bytes.addAndGet(m.getBody().length);
                if (messages.incrementAndGet() == count) {
                    ended.set(System.nanoTime());
                    all.countDown();
                }
            }
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        all.await();
        double seconds = (ended.get() - began.get()) / 1e9;
        System.out.printf("{\"messages\":%d,\"bytes\":%d,\"seconds\":%.3f,\"per_s\":%.0f}%n",
            messages.get(), bytes.get(), seconds, count / seconds);
        consumer.shutdown();
        System.exit(0);
    }
}
