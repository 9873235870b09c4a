# The compiler, threads, children, sockets, watches, collectors, tools that attach to a running machine.
# as: root dev
# image: suites
cd "$(mktemp -d)"
cat >A.java <<'C'
import java.net.*;
import java.nio.file.*;
import java.util.*;
import java.util.concurrent.*;

public class A {
    public static void main(String[] args) throws Exception {
        ExecutorService pool = Executors.newFixedThreadPool(50);
        List<Future<Integer>> all = new ArrayList<>();
        for (int i = 0; i < 200; i++) {
            final int n = i;
            all.add(pool.submit(() -> n));
        }
        int sum = 0;
        for (Future<Integer> f : all)
            sum += f.get();
        pool.shutdown();
        ServerSocket server = new ServerSocket(0);
        new Thread(() -> { try (Socket s = server.accept()) { s.getOutputStream().write('x'); } catch (Exception e) { } }).start();
        int read = new Socket("localhost", server.getLocalPort()).getInputStream().read();
        String child = new String(new ProcessBuilder("echo", "child").start().getInputStream().readAllBytes()).trim();
        Path dir = Files.createTempDirectory("watched");
        WatchService watch = FileSystems.getDefault().newWatchService();
        dir.register(watch, StandardWatchEventKinds.ENTRY_CREATE);
        Files.writeString(dir.resolve("new"), "x");
        boolean seen = watch.poll(60, TimeUnit.SECONDS) != null;
        byte[][] waste = new byte[40][];
        for (int i = 0; i < 200; i++)
            waste[i % 40] = new byte[1 << 20];
        System.gc();
        System.out.println(sum + " " + (char) read + " " + child + " " + seen + " " + (Runtime.getRuntime().availableProcessors() > 0));
        if (args.length > 0)
            Thread.sleep(1000000);
    }
}
C
javac A.java
for collector in Serial Parallel G1 Z; do
    [ "$(java -XX:+Use${collector}GC A)" = "19900 x child true true" ]
done
[ "$(java A.java)" = "19900 x child true true" ]
java -Xmx32m A 2>&1 | grep -q OutOfMemoryError
java A stay >out &
until [ -s out ]; do sleep 0.1; done
jcmd $! VM.version | grep -q 'JDK 17'
jstack $! | grep -q '"main"'
kill $!
! wait $!
jar cf a.jar *.class
[ "$(java -cp a.jar A)" = "19900 x child true true" ]
