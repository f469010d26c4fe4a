package peer;

import org.apache.shardingsphere.elasticjob.infra.pojo.JobConfigurationPOJO;
import org.apache.shardingsphere.elasticjob.lite.lifecycle.api.JobAPIFactory;
import org.apache.shardingsphere.elasticjob.lite.lifecycle.api.JobConfigurationAPI;
import org.apache.shardingsphere.elasticjob.lite.lifecycle.api.JobOperateAPI;

/** Java's operation API: operate SERVERS NAMESPACE OPERATION JOB [VALUE]. */
final class Operate {
    private Operate() {
    }

    static void run(final String[] args) throws Exception {
        String servers = args[1];
        String namespace = args[2];
        String job = args[4];
        JobOperateAPI operate = JobAPIFactory.createJobOperateAPI(servers, namespace, null);
        JobConfigurationAPI configuration = JobAPIFactory.createJobConfigurationAPI(servers, namespace, null);
        switch (args[3]) {
            case "trigger" -> operate.trigger(job);
            case "disable" -> operate.disable(job, null);
            case "enable" -> operate.enable(job, null);
            case "shutdown" -> operate.shutdown(job, null);
            case "cron" -> {
                JobConfigurationPOJO stored = configuration.getJobConfiguration(job);
                stored.setCron(args[5]);
                configuration.updateJobConfiguration(stored);
            }
            case "items" -> {
                JobConfigurationPOJO stored = configuration.getJobConfiguration(job);
                stored.setShardingTotalCount(Integer.parseInt(args[5]));
                configuration.updateJobConfiguration(stored);
            }
            default -> throw new IllegalArgumentException(args[3]);
        }
        System.out.println("done");
        System.exit(0);
    }
}
