// java.net.http and the older URLConnection: HTTP/2 and 1.1, large bodies both ways, many requests at once.
import java.io.InputStream;
import java.net.URI;
import java.net.URL;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse.BodyHandlers;
import java.security.MessageDigest;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HexFormat;
import java.util.List;
import java.util.concurrent.CompletableFuture;

public class Client {
    static final String WEB = "https://www.farm.test";

    static String sha(byte[] b) throws Exception {
        return HexFormat.of().formatHex(MessageDigest.getInstance("SHA-256").digest(b));
    }

    static void same(Object a, Object b) {
        if (!a.equals(b))
            throw new AssertionError(a + " is not " + b);
    }

    static void use(HttpClient c, String base, HttpClient.Version version) throws Exception {
        var text = c.send(HttpRequest.newBuilder(URI.create(base + "/big.sha256")).build(), BodyHandlers.ofString());
        same(text.version(), version);
        byte[] big = c.send(HttpRequest.newBuilder(URI.create(base + "/big")).build(), BodyHandlers.ofByteArray()).body();
        same(sha(big), text.body().trim());
        byte[] up = Arrays.copyOf(big, 9000001);
        var post = HttpRequest.newBuilder(URI.create(base + "/app/upload")).POST(HttpRequest.BodyPublishers.ofByteArray(up)).build();
        same(c.send(post, BodyHandlers.ofString()).body(), up.length + " " + sha(up) + "\n");
        List<CompletableFuture<String>> all = new ArrayList<>();
        for (int i = 0; i < 50; i++)
            all.add(c.sendAsync(HttpRequest.newBuilder(URI.create(base + "/app/slow?" + i)).build(), BodyHandlers.ofString())
                .thenApply(r -> r.body()));
        for (var one : all)
            same(one.get(), "0\n1\n2\n3\n4\n5\n6\n7\n8\n9\n");
    }

    public static void main(String[] args) throws Exception {
        var two = HttpClient.newBuilder().version(HttpClient.Version.HTTP_2).build();
        use(two, WEB, HttpClient.Version.HTTP_2);
        use(HttpClient.newBuilder().version(HttpClient.Version.HTTP_1_1).build(), WEB, HttpClient.Version.HTTP_1_1);
        // Offers HTTP/2 without TLS, and takes it that the offer is not answered.
        use(two, "http://www.farm.test", HttpClient.Version.HTTP_1_1);
        try (InputStream in = new URL(WEB + "/small").openStream()) {
            same(new String(in.readAllBytes()), "small\n");
        }
    }
}
