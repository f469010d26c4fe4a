package workload;

import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.PrintStream;
import java.time.Instant;
import java.util.Arrays;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.Semaphore;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.shardingsphere.elasticjob.api.JobConfiguration;
import org.apache.shardingsphere.elasticjob.lite.api.bootstrap.impl.OneOffJobBootstrap;
import org.apache.shardingsphere.elasticjob.lite.api.bootstrap.impl.ScheduleJobBootstrap;
import org.apache.shardingsphere.elasticjob.reg.zookeeper.ZookeeperConfiguration;
import org.apache.shardingsphere.elasticjob.reg.zookeeper.ZookeeperRegistryCenter;
import org.apache.shardingsphere.elasticjob.simple.job.SimpleJob;

/** The workload of the comparison on Java ElasticJob; the arguments and the output are those of the Rust side. */
public final class Workload {
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
        long start = micros();
        OneOffJobBootstrap last = null;
        for (int i = 0; i < jobs; i++) {
            String name = jobs == 1 ? "job" : "job" + i;
            JobConfiguration.Builder builder = JobConfiguration.newBuilder(name, number("shards", 1))
                    .failover(flag("failover", false))
                    .monitorExecution(flag("monitor", true))
                    .misfire(flag("misfire", true))
                    .overwrite(true);
            if (oneOff) {
                last = new OneOffJobBootstrap(registry, job(), builder.build());
            } else {
                new ScheduleJobBootstrap(registry, job(), builder.cron(text("cron", "* * * * * ?")).build()).schedule();
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
        long begin = micros();
        for (int i = 0; i < n; i++) {
            long start = micros();
            job.execute();
            done.acquire(shards);
            times[i] = micros() - start;
        }
        long took = micros() - begin;
        Arrays.sort(times);
        print("oneoff n=" + n + " shards=" + shards + " per_s=" + n * 1e6 / took + " p50_us=" + times[n / 2]
                + " p99_us=" + times[n * 99 / 100]);
    }

    private synchronized void print(final String line) {
        out.println(line);
        out.flush();
    }
}
