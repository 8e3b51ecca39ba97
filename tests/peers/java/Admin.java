import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Upstream's mqadmin, several commands in one process: Admin "COMMAND ARGS..." ...
 *
 * Starting a JVM for each would take longer than all of them together. Before each it prints "=== COMMAND ARGS...".
 */
public final class Admin {
    public static void main(String[] lines) {
        for (String line : lines) {
            System.out.println("\n=== " + line);
            MQAdminStartup.main0(line.trim().split("\\s+"), null);
            System.out.flush();
        }
        System.exit(0);
    }
}
