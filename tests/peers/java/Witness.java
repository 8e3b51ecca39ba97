import org.apache.rocketmq.client.consumer.DefaultMQPushConsumer;
import org.apache.rocketmq.client.consumer.listener.ConsumeConcurrentlyStatus;
import org.apache.rocketmq.client.consumer.listener.MessageListenerConcurrently;
import org.apache.rocketmq.common.consumer.ConsumeFromWhere;
import org.apache.rocketmq.common.message.MessageExt;

/**
 * Tells what a push consumer is given until it is ended: Witness NAMESRV TOPIC GROUP
 *
 * Prints the key of each message, in the order in which they come; a key that comes twice is printed twice.
 */
public final class Witness {
    public static void main(String[] a) throws Exception {
        DefaultMQPushConsumer consumer = new DefaultMQPushConsumer(a[2]);
        consumer.setNamesrvAddr(a[0]);
        consumer.setInstanceName("witness-" + ProcessHandle.current().pid());
        consumer.setPollNameServerInterval(1000);
        consumer.setHeartbeatBrokerInterval(1000);
        consumer.setConsumeFromWhere(ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET);
        consumer.subscribe(a[1], "*");
        consumer.registerMessageListener((MessageListenerConcurrently) (list, context) -> {
            for (MessageExt m : list) System.out.println(m.getKeys());
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS;
        });
        consumer.start();
        Thread.sleep(Long.MAX_VALUE);
    }
}
