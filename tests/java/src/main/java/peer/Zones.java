package peer;

import java.io.PrintWriter;
import java.nio.file.Files;
import java.nio.file.Path;
import java.time.Instant;
import java.time.ZoneId;
import java.time.zone.ZoneOffsetTransition;
import java.time.zone.ZoneRules;
import java.util.TreeSet;

/** The rules of every zone that Java knows: "zone|offset|second:offset,second:offset" from 2009 to 2041. */
final class Zones {
    private static final Instant FIRST = Instant.parse("2009-01-01T00:00:00Z");

    private static final Instant LAST = Instant.parse("2041-01-01T00:00:00Z");

    private Zones() {
    }

    static void run(final String out) throws Exception {
        try (PrintWriter writer = new PrintWriter(Files.newBufferedWriter(Path.of(out)))) {
            for (String id : new TreeSet<>(ZoneId.getAvailableZoneIds())) {
                if (id.contains("/")) {
                    writer.println(id + "|" + describe(ZoneId.of(id).getRules()));
                }
            }
        }
    }

    private static String describe(final ZoneRules rules) {
        StringBuilder text = new StringBuilder();
        text.append(rules.getOffset(FIRST).getTotalSeconds()).append('|');
        ZoneOffsetTransition next = rules.nextTransition(FIRST);
        while (next != null && next.getInstant().isBefore(LAST)) {
            text.append(next.toEpochSecond()).append(':').append(next.getOffsetAfter().getTotalSeconds()).append(',');
            next = rules.nextTransition(next.getInstant());
        }
        return text.toString();
    }
}
