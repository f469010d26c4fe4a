package peer;

import com.zaxxer.hikari.HikariDataSource;
import java.io.FileInputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import javax.sql.DataSource;
import org.apache.shardingsphere.elasticjob.api.JobConfiguration;
import org.apache.shardingsphere.elasticjob.lite.api.bootstrap.impl.ScheduleJobBootstrap;
import org.apache.shardingsphere.elasticjob.lite.internal.snapshot.SnapshotService;
import org.apache.shardingsphere.elasticjob.reg.zookeeper.ZookeeperConfiguration;
import org.apache.shardingsphere.elasticjob.reg.zookeeper.ZookeeperRegistryCenter;
import org.apache.shardingsphere.elasticjob.tracing.api.TracingConfiguration;
import org.yaml.snakeyaml.Yaml;

/** A Java ElasticJob process that runs the jobs of a file that our own agent reads too. */
final class Agent {
    private Agent() {
    }

    @SuppressWarnings("unchecked")
    static void run(final String file) throws Exception {
        Map<String, Object> top;
        try (FileInputStream input = new FileInputStream(file)) {
            top = (Map<String, Object>) new Yaml().<Map<String, Object>>load(input).get("elasticjob");
        }
        Map<String, Object> center = (Map<String, Object>) top.get("regCenter");
        ZookeeperConfiguration configuration =
                new ZookeeperConfiguration(center.get("serverLists").toString(), center.get("namespace").toString());
        configuration.setSessionTimeoutMilliseconds((Integer) center.get("sessionTimeoutMilliseconds"));
        ZookeeperRegistryCenter registry = new ZookeeperRegistryCenter(configuration);
        registry.init();
        HikariDataSource tracing = dataSource((Map<String, Object>) top.get("tracing"));
        List<ScheduleJobBootstrap> started = new ArrayList<>();
        for (Map.Entry<String, Object> job : ((Map<String, Object>) top.get("jobs")).entrySet()) {
            started.add(start(registry, job.getKey(), (Map<String, Object>) job.getValue(), tracing));
        }
        Map<String, Object> dump = (Map<String, Object>) top.get("dump");
        if (null != dump) {
            new SnapshotService(registry, (Integer) dump.get("port")).listen();
        }
        System.out.println("started " + started.size());
        Thread.currentThread().join();
    }

    /** The addresses of our agent become those of JDBC. */
    @SuppressWarnings("unchecked")
    private static HikariDataSource dataSource(final Map<String, Object> tracing) {
        if (null == tracing) {
            return null;
        }
        Map<String, Object> source = (Map<String, Object>) tracing.get("dataSource");
        String url = source.get("url").toString();
        HikariDataSource result = new HikariDataSource();
        result.setJdbcUrl("jdbc:" + url.replaceFirst("^postgres:", "postgresql:"));
        result.setUsername(source.get("username").toString());
        result.setPassword(source.get("password").toString());
        result.setMaximumPoolSize(2);
        return result;
    }

    @SuppressWarnings("unchecked")
    private static ScheduleJobBootstrap start(
            final ZookeeperRegistryCenter registry,
            final String name,
            final Map<String, Object> job,
            final HikariDataSource tracing) {
        JobConfiguration.Builder builder = JobConfiguration.newBuilder(name, (Integer) job.get("shardingTotalCount"));
        for (Map.Entry<String, Object> setting : job.entrySet()) {
            Object value = setting.getValue();
            switch (setting.getKey()) {
                case "cron" -> builder.cron(value.toString());
                case "timeZone" -> builder.timeZone(value.toString());
                case "shardingItemParameters" -> builder.shardingItemParameters(value.toString());
                case "jobParameter" -> builder.jobParameter(value.toString());
                case "failover" -> builder.failover((Boolean) value);
                case "misfire" -> builder.misfire((Boolean) value);
                case "monitorExecution" -> builder.monitorExecution((Boolean) value);
                case "overwrite" -> builder.overwrite((Boolean) value);
                case "description" -> builder.description(value.toString());
                case "jobErrorHandlerType" -> builder.jobErrorHandlerType(value.toString());
                case "jobListenerTypes" -> {
                    Once.settings = (Map<String, Object>) job.get("props");
                    builder.jobListenerTypes(value.toString());
                }
                case "props" -> ((Map<String, Object>) value).forEach((k, v) -> builder.setProperty(k, v.toString()));
                case "elasticJobType", "shardingTotalCount" -> { }
                default -> throw new IllegalArgumentException(setting.getKey());
            }
        }
        if (null != tracing) {
            builder.addExtraConfigurations(new TracingConfiguration<DataSource>("RDB", tracing));
        }
        ScheduleJobBootstrap bootstrap =
                new ScheduleJobBootstrap(registry, job.get("elasticJobType").toString(), builder.build());
        bootstrap.schedule();
        return bootstrap;
    }
}
