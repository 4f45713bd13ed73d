import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.InetSocketAddress;
import java.net.StandardProtocolFamily;
import java.net.UnixDomainSocketAddress;
import java.nio.ByteBuffer;
import java.nio.channels.SocketChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.security.Principal;
import java.time.Instant;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;

import javax.crypto.SecretKey;

import org.eclipse.californium.core.CoapResource;
import org.eclipse.californium.core.CoapServer;
import org.eclipse.californium.core.coap.CoAP.ResponseCode;
import org.eclipse.californium.core.coap.Response;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.core.network.Exchange;
import org.eclipse.californium.core.server.resources.CoapExchange;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.util.StringUtil;
import org.eclipse.californium.scandium.DTLSConnector;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConfig.DtlsRole;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.ConnectionId;
import org.eclipse.californium.scandium.dtls.HandshakeResultHandler;
import org.eclipse.californium.scandium.dtls.PskPublicInformation;
import org.eclipse.californium.scandium.dtls.PskSecretResult;
import org.eclipse.californium.scandium.dtls.cipher.CipherSuite;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedPskStore;
import org.eclipse.californium.scandium.util.SecretUtil;
import org.eclipse.californium.scandium.util.ServerNames;

/**
 * A subscriber with Californium 3, which takes the keys of its publishers from the agent of Tegmen (docs/agent.md). It needs
 * Java 16, listens at 127.0.0.1, and has the resource /temp, which publishers write and read.
 *
 * <pre>
 * java -cp 'JARS/*' examples/agent/CaliforniumSubscriber.java SOCKET PORT
 * </pre>
 */
public final class CaliforniumSubscriber {
    private CaliforniumSubscriber() {
    }

    public static void main(String[] words) throws Exception {
        CoapConfig.register();
        DtlsConfig.register();
        Configuration settings = Configuration.createStandardWithoutFile();
        AgentKeys keys = new AgentKeys(Path.of(words[0]));
        DtlsConnectorConfig.Builder dtls = DtlsConnectorConfig.builder(settings);
        dtls.set(DtlsConfig.DTLS_ROLE, DtlsRole.SERVER_ONLY);
        dtls.set(DtlsConfig.DTLS_RECOMMENDED_CIPHER_SUITES_ONLY, false);
        dtls.setAsList(DtlsConfig.DTLS_CIPHER_SUITES, CipherSuite.TLS_PSK_WITH_AES_128_CCM_8);
        // A key opens one session, so no session is resumed.
        dtls.set(DtlsConfig.DTLS_SERVER_USE_SESSION_ID, false);
        dtls.setAddress(new InetSocketAddress("127.0.0.1", Integer.parseInt(words[1])));
        dtls.setAdvancedPskStore(keys);
        CoapServer server = new CoapServer(settings);
        server.addEndpoint(CoapEndpoint.builder().setConnector(new DTLSConnector(dtls.build())).build());
        server.add(new Temperature(keys));
        server.start();
        System.out.println("listening");
    }

    /** Finds the key of each handshake at the agent, in a thread of its own: the agent asks another machine. */
    static final class AgentKeys implements AdvancedPskStore {
        private static final int MAX_ANSWER = 1024;

        private final Path socket;
        private final ExecutorService threads = Executors.newCachedThreadPool();
        /** The time after which a session may not be used, for each session identity with a limit. */
        private final Map<String, Instant> ends = new ConcurrentHashMap<>();
        private volatile HandshakeResultHandler results;

        AgentKeys(Path socket) {
            this.socket = socket;
        }

        /** True if the session of a publisher may be used now. */
        boolean isCurrent(Principal publisher) {
            Instant end = publisher == null ? null : ends.get(publisher.getName());
            return end != null && Instant.now().isBefore(end);
        }

        @Override
        public PskSecretResult requestPskSecretResult(ConnectionId connection, ServerNames names,
                PskPublicInformation identity, String hmac, SecretKey other, byte[] seed, boolean extendedMasterSecret) {
            threads.execute(() -> {
                SecretKey key = null;
                try {
                    key = ask(identity.getPublicInfoAsString());
                } catch (IOException | RuntimeException why) {
                    System.err.println("no key for " + identity + ": " + why.getMessage());
                }
                // A result without a key refuses the handshake.
                results.apply(new PskSecretResult(connection, identity, key));
            });
            return null;
        }

        /** The access control server gives the key of an identity once. */
        private SecretKey ask(String identity) throws IOException {
            // A peer that has proved nothing chose the identity. With a space or a line feed in it, the question would be
            // another one.
            if (!identity.matches("[!-~]{1,128}")) {
                throw new IOException("it is no session identity");
            }
            String[] answer = exchange("session " + identity + "\n").split(" ", 4);
            if (!answer[0].equals("key")) {
                throw new IOException(String.join(" ", answer));
            }
            long seconds = Long.parseLong(answer[3]);
            Instant now = Instant.now();
            ends.values().removeIf(now::isAfter);
            ends.put(identity, seconds == 0 ? Instant.MAX : now.plusSeconds(seconds));
            return SecretUtil.create(StringUtil.hex2ByteArray(answer[2]), PskSecretResult.ALGORITHM_PSK);
        }

        /** Sends a line, and reads one. */
        private String exchange(String line) throws IOException {
            try (SocketChannel agent = SocketChannel.open(StandardProtocolFamily.UNIX)) {
                agent.connect(UnixDomainSocketAddress.of(socket));
                agent.write(ByteBuffer.wrap(line.getBytes(StandardCharsets.US_ASCII)));
                ByteArrayOutputStream answer = new ByteArrayOutputStream();
                ByteBuffer part = ByteBuffer.allocate(MAX_ANSWER);
                while (answer.size() <= MAX_ANSWER && agent.read(part) >= 0) {
                    answer.write(part.array(), 0, part.position());
                    part.clear();
                }
                return answer.toString(StandardCharsets.UTF_8).strip();
            }
        }

        @Override
        public boolean hasEcdhePskSupported() {
            return false;
        }

        @Override
        public PskPublicInformation getIdentity(InetSocketAddress peer, ServerNames names) {
            // This end is never a client.
            return null;
        }

        @Override
        public void setResultHandler(HandshakeResultHandler handler) {
            results = handler;
        }
    }

    private static final class Temperature extends CoapResource {
        private final AgentKeys keys;
        private volatile byte[] value = new byte[0];

        Temperature(AgentKeys keys) {
            super("temp");
            this.keys = keys;
        }

        @Override
        public void handleRequest(Exchange exchange) {
            Principal publisher = exchange.getRequest().getSourceContext().getPeerIdentity();
            if (keys.isCurrent(publisher)) {
                System.out.println(publisher.getName() + ": " + exchange.getRequest().getCode());
                super.handleRequest(exchange);
            } else {
                exchange.sendResponse(new Response(ResponseCode.UNAUTHORIZED));
            }
        }

        @Override
        public void handleGET(CoapExchange exchange) {
            exchange.respond(ResponseCode.CONTENT, value);
        }

        @Override
        public void handlePUT(CoapExchange exchange) {
            value = exchange.getRequestPayload();
            exchange.respond(ResponseCode.CHANGED);
        }
    }
}
