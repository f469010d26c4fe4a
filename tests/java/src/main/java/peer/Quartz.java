package peer;

import java.io.BufferedReader;
import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Date;
import java.util.TimeZone;
import org.quartz.CronExpression;

/** What Quartz says: reads "expression|zone|start in ms" lines, writes "refused" or up to four fire times in ms. */
final class Quartz {
    private static final int FIRES = 4;

    private Quartz() {
    }

    static void run(final String in, final String out) throws Exception {
        try (BufferedReader reader = Files.newBufferedReader(Path.of(in));
                PrintWriter writer = new PrintWriter(Files.newBufferedWriter(Path.of(out)))) {
            for (String line = reader.readLine(); line != null; line = reader.readLine()) {
                writer.println(answer(line.split("\\|", -1)));
            }
        }
    }

    private static String answer(final String[] parts) {
        CronExpression expression;
        try {
            expression = new CronExpression(parts[0]);
        } catch (final Exception ex) {
            return "refused";
        }
        expression.setTimeZone(TimeZone.getTimeZone(parts[1]));
        Date at = new Date(Long.parseLong(parts[2]));
        StringBuilder fires = new StringBuilder();
        try {
            for (int i = 0; i < FIRES; i++) {
                at = expression.getNextValidTimeAfter(at);
                if (at == null) {
                    break;
                }
                fires.append(at.getTime()).append(' ');
            }
        } catch (final RuntimeException ex) {
            return "failed";
        }
        return fires.toString().trim();
    }
}
