import java.util.Map;
import java.util.TreeMap;
import org.apache.rocketmq.client.producer.DefaultMQProducer;
import org.apache.rocketmq.client.producer.SendResult;
import org.apache.rocketmq.client.producer.SendStatus;
import org.apache.rocketmq.common.message.Message;

/**
 * One message after the other until it is ended: Steady NAMESRV TOPIC [key=value ...]
 *
 * Options: poll=MS between questions for routes (default 1000), timeout=MS of a send (default 500), size=BYTES,
 * keys=PREFIX gives each message that and its number as key, and a line "ok BEGAN ENDED KEY".
 * Prints a line for each send: "ok BEGAN ENDED", "other BEGAN ENDED STATUS" or "failed BEGAN ENDED ERROR", times in
 * milliseconds of the wall clock. Sends are not repeated by the client: what fails is told.
 */
public final class Steady {
    public static void main(String[] a) throws Exception {
        Map<String, String> opt = new TreeMap<>();
        for (int i = 2; i < a.length; i++) opt.put(a[i].split("=", 2)[0], a[i].split("=", 2)[1]);
        DefaultMQProducer producer = new DefaultMQProducer("GID_steady_" + ProcessHandle.current().pid());
        producer.setNamesrvAddr(a[0]);
        producer.setSendMsgTimeout(Integer.parseInt(opt.getOrDefault("timeout", "500")));
        producer.setPollNameServerInterval(Integer.parseInt(opt.getOrDefault("poll", "1000")));
        producer.setRetryTimesWhenSendFailed(0);
        producer.start();
        byte[] body = new byte[Integer.parseInt(opt.getOrDefault("size", "1024"))];
        String prefix = opt.get("keys");
        for (long number = 0; ; number++) {
            long began = System.currentTimeMillis();
            String line;
            try {
                Message message = new Message(a[1], body);
                if (prefix != null) message.setKeys(prefix + number);
                SendResult r = producer.send(message);
                boolean ok = r.getSendStatus() == SendStatus.SEND_OK;
                String more = ok ? (prefix == null ? "" : " " + prefix + number) : " " + r.getSendStatus();
                line = (ok ? "ok " : "other ") + began + " " + System.currentTimeMillis() + more;
            } catch (Exception e) {
                String text = String.valueOf(e.getMessage()).replaceAll("\\s+", " ");
                line = "failed " + began + " " + System.currentTimeMillis() + " " + text.substring(0, Math.min(120, text.length()));
            }
            System.out.println(line);
            Thread.sleep(line.startsWith("failed") ? 5 : 2);
        }
    }
}
