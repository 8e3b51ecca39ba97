import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.io.PrintStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import org.apache.rocketmq.filter.FilterFactory;
import org.apache.rocketmq.filter.expression.EvaluationContext;
import org.apache.rocketmq.filter.expression.Expression;

/**
 * Upstream's SQL92 filter as an oracle: Filter < CASES
 *
 * A case is a line of tab-separated fields: expression, then property names and values in turn. The answer is a line:
 * true, false, null (unknown), error (the message makes the evaluation fail) or refused (the expression does not compile).
 */
public final class Filter {
    public static void main(String[] a) throws Exception {
        BufferedReader in = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8));
        PrintStream out = new PrintStream(System.out, false, "UTF-8");
        for (String line = in.readLine(); line != null; line = in.readLine()) {
            String[] fields = line.split("\t", -1);
            Map<String, Object> properties = new HashMap<>();
            for (int i = 1; i + 1 < fields.length; i += 2) properties.put(fields[i], fields[i + 1]);
            out.println(answer(fields[0], properties));
        }
        out.flush();
    }

    static String answer(String text, Map<String, Object> properties) {
        Expression expression;
        try {
            expression = FilterFactory.INSTANCE.get("SQL92").compile(text);
        } catch (Throwable e) {
            return "refused";
        }
        try {
            return String.valueOf(expression.evaluate(new EvaluationContext() {
                public Object get(String name) { return properties.get(name); }
                public Map<String, Object> keyValues() { return properties; }
            }));
        } catch (Throwable e) {
            return "error";
        }
    }
}
