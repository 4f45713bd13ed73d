import java.net.InetSocketAddress;
import java.net.URI;
import java.util.Arrays;
import java.util.Scanner;
import java.util.Set;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;

import org.eclipse.californium.core.CoapClient;
import org.eclipse.californium.core.coap.CoAP.Code;
import org.eclipse.californium.core.coap.CoAP.Type;
import org.eclipse.californium.core.coap.Request;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.elements.AddressEndpointContext;
import org.eclipse.californium.elements.DtlsEndpointContext;
import org.eclipse.californium.elements.EndpointContext;
import org.eclipse.californium.elements.MessageCallback;
import org.eclipse.californium.elements.RawData;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.util.Bytes;
import org.eclipse.californium.elements.util.StringUtil;
import org.eclipse.californium.scandium.DTLSConnector;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConfig.DtlsRole;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.DTLSContext;
import org.eclipse.californium.scandium.dtls.Handshaker;
import org.eclipse.californium.scandium.dtls.MaxFragmentLengthExtension;
import org.eclipse.californium.scandium.dtls.SessionAdapter;

/**
 * Scandium as one end of a DTLS session (the words of interop/src/talker.rs), and Californium as a server or a client of
 * CoAP (the words of interop/src/plain.rs), over Scandium where an identity and a key are given.
 *
 * <pre>
 * client|server ADDRESS IDENTITY KEY [max_fragment_length|record_size_limit|connection_id BYTES]     the key in hexadecimal
 * client|server ADDRESS IDENTITY KEY resume id
 * client|server ADDRESS psk SUITE IDENTITY KEY
 * client|server ADDRESS x509 SUITE CA CERTIFICATE KEY          files in PEM
 * client ADDRESS x509 SUITE CA CERTIFICATE KEY resume id NAME  of the server
 * client|server ADDRESS raw SUITE KEY PUBLIC_KEY PEER          files in DER
 * coap-server HOST PORT [IDENTITY KEY]
 * coap-client METHOD URI [PAYLOAD [IDENTITY KEY]]
 * proxied-client PROXY METHOD URI [PAYLOAD [IDENTITY KEY]]
 * version|suites
 * </pre>
 */
public final class Peer {
    private static final Set<String> LIMITS = Set.of("max_fragment_length", "record_size_limit", "connection_id", "resume");

    static {
        CoapConfig.register();
        DtlsConfig.register();
        Configuration.createStandardWithoutFile();
    }

    public static void main(String[] words) throws Exception {
        switch (words[0]) {
            case "suites":
                Things.say("suites " + Credentials.suites());
                break;
            case "version":
                Things.sayVersion(DTLSConnector.class);
                break;
            case "client":
            case "server":
                boolean limited = words.length == 6 && LIMITS.contains(words[4]);
                boolean named = words.length == 10 && LIMITS.contains(words[7]);
                if (limited) {
                    limit(words[4], words[5]);
                } else if (named) {
                    limit(words[7], words[8]);
                    serverName = words[9];
                    Configuration.getStandard().set(DtlsConfig.DTLS_USE_SERVER_NAME_INDICATION, true);
                }
                String[] own = Arrays.copyOfRange(words, 2, limited ? 4 : named ? 7 : words.length);
                talk(words[0].equals("server"), address(words[1]), Credentials.of(own));
                break;
            case "coap-server":
                serve(words);
                break;
            case "coap-client":
                ask(words, null);
                break;
            case "proxied-client":
                ask(Arrays.copyOfRange(words, 1, words.length), words[1]);
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
        System.exit(0);
    }

    private static InetSocketAddress address(String text) throws Exception {
        URI uri = new URI("coap://" + text);
        return new InetSocketAddress(uri.getHost(), uri.getPort());
    }

    private static void limit(String extension, String value) {
        if (extension.equals("resume")) {
            // By session id is what it does by itself.
            resumes = true;
            return;
        }
        int bytes = Integer.parseInt(value);
        if (extension.equals("connection_id")) {
            Configuration.getStandard().set(DtlsConfig.DTLS_CONNECTION_ID_LENGTH, bytes);
        } else if (extension.equals("record_size_limit")) {
            Configuration.getStandard().set(DtlsConfig.DTLS_RECORD_SIZE_LIMIT, bytes);
        } else {
            int code = Integer.numberOfTrailingZeros(bytes) - 8;
            Configuration.getStandard().set(DtlsConfig.DTLS_MAX_FRAGMENT_LENGTH, MaxFragmentLengthExtension.Length.fromCode(code));
        }
    }

    private static DTLSConnector connector(boolean server, InetSocketAddress address, Credentials own) throws Exception {
        DtlsConnectorConfig.Builder builder = DtlsConnectorConfig.builder(Configuration.getStandard());
        builder.set(DtlsConfig.DTLS_ROLE, server ? DtlsRole.SERVER_ONLY : DtlsRole.CLIENT_ONLY);
        builder.set(DtlsConfig.DTLS_RECOMMENDED_CIPHER_SUITES_ONLY, false);
        builder.setAddress(address);
        own.use(builder, server);
        if (server && resumes) {
            // A server may speak first in a session that is resumed.
            builder.setSessionListener(new SessionAdapter() {
                @Override
                public void contextEstablished(Handshaker handshaker, DTLSContext context) {
                    other = new AddressEndpointContext(handshaker.getPeerAddress());
                    sayResumed(context.getSession().getSessionIdentifier(), context.getLastHandshakeTime());
                }
            });
        }
        return new DTLSConnector(builder.build());
    }

    // --- Scandium ---

    private static volatile EndpointContext other;
    private static boolean resumes;
    private static String serverName;
    private static Bytes lastId;
    private static long lastHandshake;

    /** Of each session once; one that is resumed has the id of the one before. */
    private static synchronized void sayResumed(Bytes id, long handshake) {
        if (resumes && handshake != lastHandshake && id.equals(lastId)) {
            Things.say("resumed");
        }
        lastId = id;
        lastHandshake = handshake;
    }

    private static void talk(boolean server, InetSocketAddress address, Credentials own) throws Exception {
        DTLSConnector connector = connector(server, server ? address : new InetSocketAddress(0), own);
        connector.setRawDataReceiver(record -> {
            other = record.getEndpointContext();
            sayResumed(other.get(DtlsEndpointContext.KEY_SESSION_ID), other.get(DtlsEndpointContext.KEY_HANDSHAKE_TIMESTAMP));
            Credentials.sayAgreed(other);
            Things.say("received " + StringUtil.byteArray2Hex(record.bytes).toLowerCase());
        });
        connector.start();
        if (server) {
            Things.say("listening");
        } else {
            other = new AddressEndpointContext(address, serverName, null);
            // It makes a session only for something to send: here a record of nothing.
            send(connector, new byte[0], "established");
        }
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            String line = lines.nextLine().trim();
            if (line.startsWith("again")) {
                // At another address it would open a session of its own.
                connector.forceResumeSessionFor(address);
                other = new AddressEndpointContext(address, serverName, null);
                send(connector, new byte[0], "established");
            } else {
                send(connector, StringUtil.hex2ByteArray(line), null);
            }
        }
        if (other != null) {
            connector.close(other.getPeerAddress());
            Thread.sleep(200);
        }
        connector.destroy();
    }

    /** Waits until it has gone; a failure ends the program. */
    private static void send(DTLSConnector connector, byte[] record, String word) throws Exception {
        CountDownLatch gone = new CountDownLatch(1);
        connector.send(RawData.outbound(record, other, new MessageCallback() {
            @Override
            public void onConnecting() {
            }

            @Override
            public void onDtlsRetransmission(int flight) {
            }

            @Override
            public void onContextEstablished(EndpointContext context) {
            }

            @Override
            public void onSent() {
                if (word != null) {
                    Things.say(word);
                }
                gone.countDown();
            }

            @Override
            public void onError(Throwable error) {
                Things.say("failed " + error);
                System.exit(1);
            }
        }, false));
        gone.await(30, TimeUnit.SECONDS);
    }

    // --- Californium ---

    private static void serve(String[] words) throws Exception {
        InetSocketAddress address = new InetSocketAddress(words[1], Integer.parseInt(words[2]));
        CoapEndpoint.Builder endpoint = CoapEndpoint.builder();
        if (words.length > 4) {
            endpoint.setConnector(connector(true, address, Credentials.of(words[3], words[4])));
        } else {
            endpoint.setInetSocketAddress(address);
        }
        Things.serve(endpoint.build());
    }

    private static void ask(String[] words, String proxy) throws Exception {
        String method = words[1];
        CoapClient client = new CoapClient(proxy == null ? words[2] : proxy);
        client.setTimeout(20000L);
        if (words.length > 5) {
            DTLSConnector connector = connector(false, new InetSocketAddress(0), Credentials.of(words[4], words[5]));
            client.setEndpoint(CoapEndpoint.builder().setConnector(connector).build());
        }
        if (method.equals("observe")) {
            Request registration = Request.newGet();
            if (proxy != null) {
                registration.getOptions().setProxyUri(words[2]);
            }
            Things.observe(client, registration, 4);
            return;
        }
        Request request = new Request(method.equals("non") ? Code.GET : Code.valueOf(method.toUpperCase()));
        request.setType(method.equals("non") ? Type.NON : Type.CON);
        if (words.length > 3 && !words[3].isEmpty()) {
            request.setPayload(Things.bytes(words[3]));
        }
        if (proxy != null) {
            request.getOptions().setProxyUri(words[2]);
        }
        Things.say(Things.text(Things.ask(client, request)));
    }
}
