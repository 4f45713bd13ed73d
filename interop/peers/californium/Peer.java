import java.net.InetSocketAddress;
import java.net.URI;
import java.util.Scanner;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.jar.JarFile;

import org.eclipse.californium.core.CoapClient;
import org.eclipse.californium.core.CoapResponse;
import org.eclipse.californium.core.CoapServer;
import org.eclipse.californium.core.coap.CoAP.Code;
import org.eclipse.californium.core.coap.CoAP.Type;
import org.eclipse.californium.core.coap.Request;
import org.eclipse.californium.core.config.CoapConfig;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.elements.AddressEndpointContext;
import org.eclipse.californium.elements.EndpointContext;
import org.eclipse.californium.elements.MessageCallback;
import org.eclipse.californium.elements.RawData;
import org.eclipse.californium.elements.config.Configuration;
import org.eclipse.californium.elements.util.StringUtil;
import org.eclipse.californium.scandium.DTLSConnector;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConfig.DtlsRole;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.MaxFragmentLengthExtension;
import org.eclipse.californium.scandium.dtls.cipher.CipherSuite;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedMultiPskStore;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedSinglePskStore;

/**
 * Scandium as one end of a DTLS session (the words of interop/src/talker.rs), and Californium as a server or a client of
 * CoAP (the words of interop/src/plain.rs), over Scandium where an identity and a key are given.
 *
 * <pre>
 * client|server ADDRESS IDENTITY KEY [max_fragment_length|record_size_limit|connection_id BYTES]     the key in hexadecimal
 * coap-server HOST PORT [IDENTITY KEY]
 * coap-client METHOD URI [PAYLOAD [IDENTITY KEY]]
 * version
 * </pre>
 */
public final class Peer {
    static {
        CoapConfig.register();
        DtlsConfig.register();
        Configuration.createStandardWithoutFile();
    }

    public static void main(String[] words) throws Exception {
        switch (words[0]) {
            case "version":
                Things.say("version " + version());
                break;
            case "client":
            case "server":
                if (words.length > 5) {
                    limit(words[4], Integer.parseInt(words[5]));
                }
                talk(words[0].equals("server"), address(words[1]), words[2], StringUtil.hex2ByteArray(words[3]));
                break;
            case "coap-server":
                serve(words);
                break;
            case "coap-client":
                ask(words);
                break;
            default:
                throw new IllegalArgumentException(words[0]);
        }
        System.exit(0);
    }

    private static String version() throws Exception {
        URI jar = DTLSConnector.class.getProtectionDomain().getCodeSource().getLocation().toURI();
        try (JarFile file = new JarFile(jar.getPath())) {
            return file.getManifest().getMainAttributes().getValue("Bundle-Version");
        }
    }

    private static InetSocketAddress address(String text) throws Exception {
        URI uri = new URI("coap://" + text);
        return new InetSocketAddress(uri.getHost(), uri.getPort());
    }

    private static void limit(String extension, int bytes) {
        if (extension.equals("connection_id")) {
            Configuration.getStandard().set(DtlsConfig.DTLS_CONNECTION_ID_LENGTH, bytes);
        } else if (extension.equals("record_size_limit")) {
            Configuration.getStandard().set(DtlsConfig.DTLS_RECORD_SIZE_LIMIT, bytes);
        } else {
            int code = Integer.numberOfTrailingZeros(bytes) - 8;
            Configuration.getStandard().set(DtlsConfig.DTLS_MAX_FRAGMENT_LENGTH, MaxFragmentLengthExtension.Length.fromCode(code));
        }
    }

    private static DTLSConnector connector(boolean server, InetSocketAddress address, String identity, byte[] key) {
        DtlsConnectorConfig.Builder builder = DtlsConnectorConfig.builder(Configuration.getStandard());
        builder.set(DtlsConfig.DTLS_ROLE, server ? DtlsRole.SERVER_ONLY : DtlsRole.CLIENT_ONLY);
        builder.setAsList(DtlsConfig.DTLS_CIPHER_SUITES, CipherSuite.TLS_PSK_WITH_AES_128_CCM_8);
        builder.setAddress(address);
        if (server) {
            AdvancedMultiPskStore keys = new AdvancedMultiPskStore();
            keys.setKey(identity, key);
            builder.setAdvancedPskStore(keys);
        } else {
            builder.setAdvancedPskStore(new AdvancedSinglePskStore(identity, key));
        }
        return new DTLSConnector(builder.build());
    }

    // --- Scandium ---

    private static volatile EndpointContext other;

    private static void talk(boolean server, InetSocketAddress address, String identity, byte[] key) throws Exception {
        DTLSConnector connector = connector(server, server ? address : new InetSocketAddress(0), identity, key);
        connector.setRawDataReceiver(record -> {
            other = record.getEndpointContext();
            Things.say("received " + StringUtil.byteArray2Hex(record.bytes).toLowerCase());
        });
        connector.start();
        if (server) {
            Things.say("listening");
        } else {
            other = new AddressEndpointContext(address);
            // It makes a session only for something to send: here a record of nothing.
            send(connector, new byte[0], "established");
        }
        Scanner lines = new Scanner(System.in);
        while (lines.hasNextLine()) {
            send(connector, StringUtil.hex2ByteArray(lines.nextLine().trim()), null);
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
            endpoint.setConnector(connector(true, address, words[3], StringUtil.hex2ByteArray(words[4])));
        } else {
            endpoint.setInetSocketAddress(address);
        }
        CoapServer server = new CoapServer(Configuration.getStandard());
        server.addEndpoint(endpoint.build());
        server.add(Things.all());
        server.start();
        Things.say("listening");
        Things.awaitEnd();
        server.destroy();
    }

    private static void ask(String[] words) throws Exception {
        String method = words[1];
        CoapClient client = new CoapClient(words[2]);
        client.setTimeout(20000L);
        if (words.length > 5) {
            DTLSConnector connector = connector(false, new InetSocketAddress(0), words[4], StringUtil.hex2ByteArray(words[5]));
            client.setEndpoint(CoapEndpoint.builder().setConnector(connector).build());
        }
        if (method.equals("observe")) {
            Things.observe(client, Request.newGet(), 4);
            return;
        }
        Request request = new Request(method.equals("non") ? Code.GET : Code.valueOf(method.toUpperCase()));
        request.setType(method.equals("non") ? Type.NON : Type.CON);
        if (words.length > 3 && !words[3].isEmpty()) {
            request.setPayload(Things.bytes(words[3]));
        }
        CoapResponse response = client.advanced(request);
        if (response == null) {
            System.err.println("no response");
            System.exit(1);
        }
        Things.say(Things.text(response));
    }
}
