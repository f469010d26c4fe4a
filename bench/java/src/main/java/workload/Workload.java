package workload;

import com.zaxxer.hikari.HikariDataSource;
import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.net.URI;
import java.net.URLDecoder;
import java.nio.charset.StandardCharsets;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.AtomicLong;
import javax.sql.DataSource;
import org.apache.shardingsphere.elasticjob.api.JobConfiguration;
import org.apache.shardingsphere.elasticjob.lite.api.bootstrap.impl.OneOffJobBootstrap;
import org.apache.shardingsphere.elasticjob.lite.api.bootstrap.impl.ScheduleJobBootstrap;
import org.apache.shardingsphere.elasticjob.reg.zookeeper.ZookeeperConfiguration;
import org.apache.shardingsphere.elasticjob.reg.zookeeper.ZookeeperRegistryCenter;
import org.apache.shardingsphere.elasticjob.simple.job.SimpleJob;
import org.apache.shardingsphere.elasticjob.tracing.api.TracingConfiguration;

/** The workload of the comparison on Java ElasticJob; the arguments and the output are those of the Rust side. */
public final class Workload {
    /** A run that has not come by then was lost. */
    private static final int LOST_SECONDS = 2;

    private final Map<String, String> settings = new HashMap<>();

    private final AtomicLong count = new AtomicLong();

    private final Semaphore done = new Semaphore(0);

    private PrintStream out;

    private Workload(final String[] args) {
        for (String arg : args) {
            int at = arg.indexOf('=');
            settings.put(arg.substring(0, at), arg.substring(at + 1));
        }
    }

    public static void main(final String[] args) throws Exception {
        new Workload(args).run();
        System.exit(0);
    }

    private static long micros() {
        Instant now = Instant.now();
        return now.getEpochSecond() * 1_000_000L + now.getNano() / 1_000;
    }

    private String text(final String key, final String value) {
        return settings.getOrDefault(key, value);
    }

    private int number(final String key, final int value) {
        return Integer.parseInt(text(key, Integer.toString(value)));
    }

    private boolean flag(final String key, final boolean value) {
        return Boolean.parseBoolean(text(key, Boolean.toString(value)));
    }

    private void run() throws Exception {
        ZookeeperConfiguration configuration =
                new ZookeeperConfiguration(text("zk", "127.0.0.1:2181"), text("ns", "bench"));
        configuration.setSessionTimeoutMilliseconds(number("session", 60_000));
        ZookeeperRegistryCenter registry = new ZookeeperRegistryCenter(configuration);
        registry.init();
        String file = text("out", "");
        out = new PrintStream(
                new BufferedOutputStream(file.isEmpty() ? System.out : new FileOutputStream(file), 1 << 16), false);
        boolean oneOff = "oneoff".equals(text("mode", "schedule"));
        int jobs = number("jobs", 1);
        HikariDataSource trace = trace();
        long start = micros();
        OneOffJobBootstrap last = null;
        for (int i = 0; i < jobs; i++) {
            String name = jobs == 1 ? "job" : "job" + i;
            JobConfiguration.Builder builder = JobConfiguration.newBuilder(name, number("shards", 1))
                    .failover(flag("failover", false))
                    .monitorExecution(flag("monitor", true))
                    .misfire(flag("misfire", true))
                    .overwrite(true);
            if (null != trace) {
                builder.addExtraConfigurations(new TracingConfiguration<DataSource>("RDB", trace));
            }
            if (oneOff) {
                last = new OneOffJobBootstrap(registry, job(), builder.build());
            } else {
                bootstrap(registry, builder.cron(text("cron", "* * * * * ?"))).schedule();
            }
        }
        print("started jobs=" + jobs + " ms=" + (micros() - start) / 1_000 + " pid=" + ProcessHandle.current().pid());
        if (oneOff) {
            execute(last);
        } else {
            Thread.sleep(number("seconds", 20) * 1_000L);
            print("count " + count.get());
        }
    }

    private ScheduleJobBootstrap bootstrap(
            final ZookeeperRegistryCenter registry, final JobConfiguration.Builder builder) {
        switch (text("kind", "simple")) {
            case "simple":
                return new ScheduleJobBootstrap(registry, job(), builder.build());
            case "http":
                builder.setProperty("http.uri", text("target", "")).setProperty("http.method", "POST");
                return new ScheduleJobBootstrap(registry, "HTTP", builder.build());
            case "script":
                builder.setProperty("script.command.line", text("target", ""));
                return new ScheduleJobBootstrap(registry, "SCRIPT", builder.build());
            default:
                throw new IllegalArgumentException("kind: expected simple, http or script");
        }
    }

    /** The database of {@code trace=postgres://USER:PASSWORD@HOST:PORT/NAME}. */
    private HikariDataSource trace() {
        if (text("trace", "").isEmpty()) {
            return null;
        }
        URI address = URI.create(text("trace", ""));
        String[] user = address.getRawUserInfo().split(":", 2);
        HikariDataSource result = new HikariDataSource();
        result.setJdbcUrl("jdbc:postgresql://" + address.getHost() + ":" + address.getPort() + address.getPath());
        result.setUsername(URLDecoder.decode(user[0], StandardCharsets.UTF_8));
        result.setPassword(URLDecoder.decode(user[1], StandardCharsets.UTF_8));
        return result;
    }

    private SimpleJob job() {
        long sleep = number("sleep", 0);
        return context -> {
            long start = micros();
            if (sleep > 0) {
                try {
                    Thread.sleep(sleep);
                } catch (final InterruptedException ex) {
                    return;
                }
            }
            count.incrementAndGet();
            String line = "run " + start + " " + micros() + " " + context.getJobName() + " "
                    + context.getShardingItem() + " " + ProcessHandle.current().pid();
            synchronized (this) {
                out.println(line);
            }
            done.release();
        };
    }

    private void execute(final OneOffJobBootstrap job) throws Exception {
        int n = number("n", 200);
        int shards = number("shards", 1);
        Thread.sleep(1_000L);
        long[] times = new long[n];
        long took = 0;
        int ran = 0;
        for (int i = 0; i < n; i++) {
            long start = micros();
            job.execute();
            // A trigger that comes while the run before it is cleaned up may be lost; nobody is told.
            if (done.tryAcquire(shards, LOST_SECONDS, TimeUnit.SECONDS)) {
                times[ran++] = micros() - start;
                took += times[ran - 1];
            } else {
                done.drainPermits();
            }
        }
        times = Arrays.copyOf(times, ran);
        Arrays.sort(times);
        print("oneoff n=" + n + " shards=" + shards + " per_s=" + ran * 1e6 / took + " p50_us=" + times[ran / 2]
                + " p99_us=" + times[ran * 99 / 100] + " lost=" + (n - ran));
    }

    private synchronized void print(final String line) {
        out.println(line);
        out.flush();
    }
}
