"""Column pruning and filters for batch reads: a rule of Spark's optimizer, in Java, that a session compiles itself.

Spark prunes no columns of a Python source, and what it pushes down to one (`pushFilters`) stays with the DataFrame:
later queries of it return too few rows, also those without a filter, and both sides of a self-join get the filter of
one. The rule gives each scan of each query a source of its own instead, so nothing is shared that a query could change.

It needs the session's own JVM: a client of Spark Connect keeps to options.
"""

from importlib.resources import files
from typing import Any

from tandemq.spark.runtime.task_log import note

RULE = "tandemq.PushDown"


def install(spark: Any) -> bool:
    """Adds the rule to a session unless it has it; False where there is no JVM, or one that the rule does not fit.

    A session without the rule gives the same answers; it only reads more than it needs.
    """
    session = getattr(spark, "_jsparkSession", None)
    if session is None:
        return False
    from py4j.protocol import Py4JError

    try:
        experimental = session.experimental()
        rules = experimental.extraOptimizations()
        if any(rules.apply(number).getClass().getName() == RULE for number in range(rules.length())):
            return True
        made = _compiled(spark._jvm).getDeclaredConstructor(_nothing(spark))
        rule = made.newInstance(_nothing(spark, of_objects=True))
        getattr(experimental, "extraOptimizations_$eq")(rules.appended(rule))
    except Py4JError as error:
        note(f"Spark {spark.version}: queries read all columns unless options choose them ({_first_line(error)})")
        return False
    return True


def _first_line(error: Exception) -> str:
    java = getattr(error, "java_exception", None)
    return str(error if java is None else java.toString()).strip().partition("\n")[0]


def _compiled(jvm: Any) -> Any:
    """Returns the rule's class."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.org.apache.spark.util.Utils.getContextOrSparkClassLoader())
    compiler.cook(files(__package__).joinpath("PushDown.java").read_text())
    return compiler.getClassLoader().loadClass(RULE)


def _nothing(spark: Any, *, of_objects: bool = False) -> Any:
    """Returns an empty array, for Java's methods with any number of arguments."""
    gateway = spark.sparkContext._gateway
    return gateway.new_array(gateway.jvm.Object if of_objects else gateway.jvm.Class, 0)
