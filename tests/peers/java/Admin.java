import org.apache.rocketmq.acl.common.AclClientRPCHook;
import org.apache.rocketmq.acl.common.SessionCredentials;
import org.apache.rocketmq.remoting.RPCHook;
import org.apache.rocketmq.tools.command.MQAdminStartup;

/**
 * Upstream's mqadmin, several commands in one process: Admin "COMMAND ARGS..." ...
 *
 * Starting a JVM for each would take longer than all of them together. Before each it prints "=== COMMAND ARGS...".
 * Requests are signed if the environment has ADMIN_ACCESS_KEY and ADMIN_SECRET_KEY.
 */
public final class Admin {
    public static void main(String[] lines) {
        String key = System.getenv("ADMIN_ACCESS_KEY");
        RPCHook hook = key == null
            ? null : new AclClientRPCHook(new SessionCredentials(key, System.getenv("ADMIN_SECRET_KEY")));
        for (String line : lines) {
            System.out.println("\n=== " + line);
            MQAdminStartup.main0(line.trim().split("\\s+"), hook);
            System.out.flush();
        }
        System.exit(0);
    }
}
