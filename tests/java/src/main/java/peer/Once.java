package peer;

import java.io.IOException;
import java.util.Map;
import org.apache.shardingsphere.elasticjob.infra.listener.ShardingContexts;
import org.apache.shardingsphere.elasticjob.lite.api.listener.AbstractDistributeOnceElasticJobListener;

/** Java's distribute-once listener with the name and the properties of ours: it runs the same commands. */
public final class Once extends AbstractDistributeOnceElasticJobListener {
    static Map<String, Object> settings;

    public Once() {
        super(millis("started"), millis("completed"));
    }

    private static long millis(final String moment) {
        Object value = null == settings ? null : settings.get("elasticjob.listener." + moment + ".timeout.milliseconds");
        return null == value ? 60_000L : Long.parseLong(value.toString());
    }

    @Override
    public void doBeforeJobExecutedAtLastStarted(final ShardingContexts contexts) {
        run("started");
    }

    @Override
    public void doAfterJobExecutedAtLastCompleted(final ShardingContexts contexts) {
        run("completed");
    }

    private static void run(final String moment) {
        String command = settings.get("elasticjob.listener." + moment + ".command.line").toString();
        try {
            new ProcessBuilder((command + " java").split(" ")).inheritIO().start().waitFor();
        } catch (final IOException | InterruptedException ex) {
            throw new IllegalStateException(ex);
        }
    }

    @Override
    public String getType() {
        return "DISTRIBUTE_ONCE";
    }
}
