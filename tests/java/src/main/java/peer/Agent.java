package peer;

import java.io.FileInputStream;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.shardingsphere.elasticjob.api.JobConfiguration;
import org.apache.shardingsphere.elasticjob.lite.api.bootstrap.impl.ScheduleJobBootstrap;
import org.apache.shardingsphere.elasticjob.reg.zookeeper.ZookeeperConfiguration;
import org.apache.shardingsphere.elasticjob.reg.zookeeper.ZookeeperRegistryCenter;
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
        List<ScheduleJobBootstrap> started = new ArrayList<>();
        for (Map.Entry<String, Object> job : ((Map<String, Object>) top.get("jobs")).entrySet()) {
            started.add(start(registry, job.getKey(), (Map<String, Object>) job.getValue()));
        }
        System.out.println("started " + started.size());
        Thread.currentThread().join();
    }

    @SuppressWarnings("unchecked")
    private static ScheduleJobBootstrap start(
            final ZookeeperRegistryCenter registry, final String name, final Map<String, Object> job) {
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
                case "props" -> ((Map<String, Object>) value).forEach((k, v) -> builder.setProperty(k, v.toString()));
                case "elasticJobType", "shardingTotalCount" -> { }
                default -> throw new IllegalArgumentException(setting.getKey());
            }
        }
        ScheduleJobBootstrap bootstrap =
                new ScheduleJobBootstrap(registry, job.get("elasticJobType").toString(), builder.build());
        bootstrap.schedule();
        return bootstrap;
    }
}
