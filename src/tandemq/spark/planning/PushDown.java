package tandemq;

import java.lang.reflect.Field;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.spark.sql.catalyst.expressions.And;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.AttributeReference;
import org.apache.spark.sql.catalyst.expressions.AttributeSet;
import org.apache.spark.sql.catalyst.expressions.BinaryComparison;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.In;
import org.apache.spark.sql.catalyst.expressions.InSet;
import org.apache.spark.sql.catalyst.expressions.Literal;
import org.apache.spark.sql.catalyst.plans.logical.Aggregate;
import org.apache.spark.sql.catalyst.plans.logical.Filter;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.catalyst.plans.logical.Project;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.catalyst.trees.TreeNode;
import org.apache.spark.sql.connector.read.Scan;
import org.apache.spark.sql.execution.datasources.v2.DataSourceV2ScanRelation;
import org.apache.spark.sql.execution.datasources.v2.python.PythonDataSourceV2;
import org.apache.spark.sql.execution.datasources.v2.python.PythonScan;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.util.CaseInsensitiveStringMap;

/**
 * Gives every batch scan of our sources a data source of its own that is told which columns the query needs and which
 * rows it asks for. Spark evaluates every filter again above the scan, so a source may return more rows than these,
 * never fewer.
 *
 * Compiled by the session itself (Janino), which knows neither lambdas nor inferred type arguments.
 */
public class PushDown extends Rule {
    private static final String PLANNED = "tandemq.planned";
    private static final String TABLE_OPTIONS = "tandemq.options";
    private static final Set FORMATS =
            new HashSet(Arrays.asList(new Object[] {"rocketmq", "rocketmq-commitlog", "rocketmq_commitlog"}));
    private static final Set FILTERED = new HashSet(Arrays.asList(new Object[] {
        "topic", "broker", "tags", "keys", "queue_id", "queue_offset", "offset", "store_timestamp", "timestamp"}));
    private static final Set ALWAYS_KEPT = new HashSet(Arrays.asList(new Object[] {"_corrupt_record"}));
    /** The column that is read where a query needs none, as count() does. */
    private static final Object[] CHEAPEST = {"queue_offset", "offset", "queue_id", "physical_offset", "topic"};

    /** A plan that this rule does not understand stays as it is: it reads more than it needs, and is as right. */
    public TreeNode apply(TreeNode plan) {
        try {
            return rewritten((LogicalPlan) plan, null, new ArrayList());
        } catch (RuntimeException error) {
            return plan;
        }
    }

    /** `needed`: ids of the columns that the nodes above use, null for all; `asked`: conditions right above. */
    private LogicalPlan rewritten(LogicalPlan plan, Set needed, List asked) {
        if (plan instanceof DataSourceV2ScanRelation) {
            return scanned((DataSourceV2ScanRelation) plan, needed, asked);
        }
        Set below = null;
        List conditions = new ArrayList();
        if (plan instanceof Project || plan instanceof Aggregate) {
            below = ids(plan.references());
        } else if (plan instanceof Filter) {
            conditions.addAll(asked);
            split(((Filter) plan).condition(), conditions);
            if (needed != null) {
                below = new HashSet(needed);
                below.addAll(ids(plan.references()));
            }
        }
        scala.collection.immutable.Seq children = plan.children();
        List made = new ArrayList();
        boolean changed = false;
        for (int i = 0; i < children.length(); i++) {
            LogicalPlan child = (LogicalPlan) children.apply(i);
            LogicalPlan next = rewritten(child, below, conditions);
            changed |= next != child;
            made.add(next);
        }
        return changed ? (LogicalPlan) plan.withNewChildren(sequence(made)) : plan;
    }

    private LogicalPlan scanned(DataSourceV2ScanRelation relation, Set needed, List asked) {
        Scan scan = relation.scan();
        if (!(scan instanceof PythonScan)) {
            return relation;
        }
        String name = (String) hidden(scan, "shortName");
        CaseInsensitiveStringMap options = (CaseInsensitiveStringMap) hidden(scan, "options");
        if (!FORMATS.contains(name) || options.containsKey(PLANNED)) {
            return relation;
        }
        scala.collection.immutable.Seq output = relation.output();
        StructField[] fields = scan.readSchema().fields();
        if (fields.length != output.length()) {
            return relation;
        }
        List kept = new ArrayList();
        List keptFields = new ArrayList();
        choose(output, fields, needed, kept, keptFields);
        Map given = new HashMap(options.asCaseSensitiveMap());
        given.put(PLANNED, pushed(asked, ids(output)));
        PythonDataSourceV2 source = new PythonDataSourceV2();
        source.setShortName(name);
        Scan planned = new PythonScan(source, name, schemaOf(keptFields, fields), new CaseInsensitiveStringMap(given),
            new org.apache.spark.sql.sources.Filter[0]);
        Object[] parts = new Object[relation.productArity()];
        for (int i = 0; i < parts.length; i++) {
            Object part = relation.productElement(i);
            parts[i] = part == scan ? planned : part == output ? sequence(kept) : part;
        }
        return (LogicalPlan) relation.makeCopy(parts);
    }

    private void choose(scala.collection.immutable.Seq output, StructField[] fields, Set needed, List kept, List keptFields) {
        for (int i = 0; i < fields.length; i++) {
            Attribute attribute = (Attribute) output.apply(i);
            if (needed == null || needed.contains(attribute.exprId()) || ALWAYS_KEPT.contains(fields[i].name())) {
                kept.add(attribute);
                keptFields.add(fields[i]);
            }
        }
        for (int n = 0; kept.isEmpty() && n <= CHEAPEST.length; n++) {
            for (int i = 0; kept.isEmpty() && i < fields.length; i++) {
                if (n == CHEAPEST.length || CHEAPEST[n].equals(fields[i].name())) {
                    kept.add(output.apply(i));
                    keptFields.add(fields[i]);
                }
            }
        }
    }

    /** The options of a catalog's table are in the metadata of its first column: they go with whichever is left. */
    private StructType schemaOf(List kept, StructField[] all) {
        StructField[] made = (StructField[]) kept.toArray(new StructField[0]);
        boolean there = false;
        for (int i = 0; i < made.length; i++) {
            there |= made[i].metadata().contains(TABLE_OPTIONS);
        }
        for (int i = 0; !there && i < all.length; i++) {
            if (all[i].metadata().contains(TABLE_OPTIONS)) {
                made[0] = new StructField(made[0].name(), made[0].dataType(), made[0].nullable(), all[i].metadata());
                there = true;
            }
        }
        return new StructType(made);
    }

    private void split(Expression condition, List found) {
        if (condition instanceof And) {
            split(((And) condition).left(), found);
            split(((And) condition).right(), found);
        } else {
            found.add(condition);
        }
    }

    /** The conditions that a source understands, as JSON: [[column, operator, [values]], ...]. */
    private String pushed(List asked, Set columns) {
        StringBuilder text = new StringBuilder("[");
        for (int i = 0; i < asked.size(); i++) {
            String one = pushedOne((Expression) asked.get(i), columns);
            if (one != null) {
                text.append(text.length() > 1 ? "," : "").append(one);
            }
        }
        return text.append("]").toString();
    }

    private String pushedOne(Expression condition, Set columns) {
        if (condition instanceof BinaryComparison) {
            BinaryComparison comparison = (BinaryComparison) condition;
            Expression left = (Expression) comparison.left();
            Expression right = (Expression) comparison.right();
            boolean turned = left instanceof Literal;
            String operator = operatorOf(comparison.symbol(), turned);
            return operator == null ? null : text(turned ? right : left, operator, new Object[] {turned ? left : right}, columns);
        }
        if (condition instanceof In) {
            scala.collection.immutable.Seq listed = ((In) condition).list();
            Object[] values = new Object[listed.length()];
            for (int i = 0; i < values.length; i++) {
                values[i] = listed.apply(i);
            }
            return text(((In) condition).value(), "in", values, columns);
        }
        if (condition instanceof InSet) {
            InSet set = (InSet) condition;
            List values = new ArrayList();
            scala.collection.Iterator all = set.hset().iterator();
            while (all.hasNext()) {
                values.add(all.next());
            }
            return text(set.child(), "in", values.toArray(), columns);
        }
        return null;
    }

    private String operatorOf(String symbol, boolean turned) {
        if (symbol.equals("=") || symbol.equals("<=>")) {
            return "in";
        }
        boolean less = symbol.startsWith("<");
        if (!less && !symbol.startsWith(">")) {
            return null;
        }
        return (less != turned ? "l" : "g") + (symbol.endsWith("=") ? "e" : "t");
    }

    private String text(Expression column, String operator, Object[] values, Set columns) {
        if (!(column instanceof AttributeReference)) {
            return null;
        }
        AttributeReference attribute = (AttributeReference) column;
        if (!columns.contains(attribute.exprId()) || !FILTERED.contains(attribute.name())) {
            return null;
        }
        StringBuilder text = new StringBuilder("[").append(quoted(attribute.name())).append(",");
        text.append(quoted(operator)).append(",[");
        int count = 0;
        for (int i = 0; i < values.length; i++) {
            Object value = values[i];
            if (value instanceof Expression) {
                if (!(value instanceof Literal)) {
                    return null;
                }
                value = ((Literal) value).value();
            }
            if (value == null) {
                if (values.length == 1) {
                    return null;
                }
                continue;
            }
            if (value instanceof Long || value instanceof Integer) {
                text.append(count > 0 ? "," : "").append(value.toString());
            } else if (value instanceof org.apache.spark.unsafe.types.UTF8String) {
                text.append(count > 0 ? "," : "").append(quoted(value.toString()));
            } else {
                return null;
            }
            count++;
        }
        return text.append("]]").toString();
    }

    private String quoted(String value) {
        StringBuilder text = new StringBuilder("\"");
        for (int i = 0; i < value.length(); i++) {
            char letter = value.charAt(i);
            if (letter == '"' || letter == '\\' || letter < ' ' || letter > '~') {
                String digits = Integer.toHexString(letter);
                text.append("\\u").append("0000".substring(digits.length())).append(digits);
            } else {
                text.append(letter);
            }
        }
        return text.append("\"").toString();
    }

    private Set ids(AttributeSet attributes) {
        return ids(attributes.toSeq());
    }

    private Set ids(scala.collection.immutable.Seq attributes) {
        Set found = new HashSet();
        for (int i = 0; i < attributes.length(); i++) {
            found.add(((Attribute) attributes.apply(i)).exprId());
        }
        return found;
    }

    private scala.collection.immutable.Seq sequence(List items) {
        scala.collection.immutable.List made = (scala.collection.immutable.List) scala.collection.immutable.List$.MODULE$.empty();
        for (int i = items.size() - 1; i >= 0; i--) {
            made = made.$colon$colon(items.get(i));
        }
        return made;
    }

    private Object hidden(Object owner, String name) {
        try {
            Field field = owner.getClass().getDeclaredField(name);
            field.setAccessible(true);
            return field.get(owner);
        } catch (ReflectiveOperationException error) {
            throw new IllegalStateException("this version of Spark has no " + name + " in " + owner.getClass(), error);
        }
    }
}
