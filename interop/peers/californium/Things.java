import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import java.util.jar.JarFile;

import org.eclipse.californium.core.CoapClient;
import org.eclipse.californium.core.CoapHandler;
import org.eclipse.californium.core.CoapObserveRelation;
import org.eclipse.californium.core.CoapResource;
import org.eclipse.californium.core.CoapResponse;
import org.eclipse.californium.core.CoapServer;
import org.eclipse.californium.core.coap.CoAP.ResponseCode;
import org.eclipse.californium.core.coap.Request;
import org.eclipse.californium.core.network.CoapEndpoint;
import org.eclipse.californium.core.server.resources.CoapExchange;
import org.eclipse.californium.core.server.resources.Resource;
import org.eclipse.californium.elements.config.Configuration;

/** What the programs of Californium have in common: the resources of a server, and what a client prints. */
final class Things {
    private static final byte[] BIG = new byte[5000];

    static {
        for (int at = 0; at < BIG.length; at++) {
            BIG[at] = (byte) "0123456789abcdef".charAt(at % 16);
        }
    }

    private Things() {
    }

    static synchronized void say(String line) {
        System.out.println(line);
        System.out.flush();
    }

    /** The version of the library that this class is of. */
    static void sayVersion(Class<?> of) throws Exception {
        URI jar = of.getProtectionDomain().getCodeSource().getLocation().toURI();
        try (JarFile file = new JarFile(jar.getPath())) {
            say("version " + file.getManifest().getMainAttributes().getValue("Bundle-Version"));
        }
    }

    /** Until the input of this program ends. */
    static void awaitEnd() throws IOException {
        while (System.in.read() >= 0) {
            // what comes is nothing to it
        }
    }

    static Resource[] all() {
        byte[] hello = "hello".getBytes(StandardCharsets.UTF_8);
        return new Resource[] {new Value("v", hello), new Value("big", BIG), new Slow(), new Count()};
    }

    /** A server of all of them, until the input of this program ends. */
    static void serve(CoapEndpoint endpoint) throws IOException {
        CoapServer server = new CoapServer(Configuration.getStandard());
        server.addEndpoint(endpoint);
        server.add(all());
        server.start();
        say("listening");
        awaitEnd();
        server.destroy();
    }

    /** The response; without one this program ends. */
    static CoapResponse ask(CoapClient client, Request request) throws Exception {
        CoapResponse response = client.advanced(request);
        if (response == null) {
            System.err.println("no response");
            System.exit(1);
        }
        return response;
    }

    /** A payload of the command line. */
    static byte[] bytes(String word) {
        return word.equals("BIG") ? BIG : word.getBytes(StandardCharsets.UTF_8);
    }

    static String text(CoapResponse response) {
        byte[] payload = response.getPayload();
        boolean big = Arrays.equals(payload, BIG);
        return response.getCode() + " " + (big ? "BIG" : new String(payload, StandardCharsets.UTF_8));
    }

    /** Prints as many representations and cancels. */
    static void observe(CoapClient client, Request request, int count) throws Exception {
        CountDownLatch wanted = new CountDownLatch(count);
        request.setObserve();
        CoapObserveRelation relation = client.observe(request, new CoapHandler() {
            @Override
            public void onLoad(CoapResponse response) {
                if (wanted.getCount() > 0) {
                    say(text(response));
                }
                wanted.countDown();
            }

            @Override
            public void onError() {
                say("it is no observation");
                System.exit(1);
            }
        });
        wanted.await(20, TimeUnit.SECONDS);
        relation.proactiveCancel();
        say("cancelled");
        awaitEnd();
    }

    /** What PUT wrote; gone after DELETE; POST appends. */
    private static final class Value extends CoapResource {
        private byte[] value;

        Value(String name, byte[] value) {
            super(name);
            this.value = value;
        }

        @Override
        public void handleGET(CoapExchange exchange) {
            if (value == null) {
                exchange.respond(ResponseCode.NOT_FOUND);
            } else {
                exchange.respond(ResponseCode.CONTENT, value);
            }
        }

        @Override
        public void handlePUT(CoapExchange exchange) {
            byte[] payload = exchange.getRequestPayload();
            if (getName().equals("big")) {
                if (!Arrays.equals(payload, BIG)) {
                    exchange.respond(ResponseCode.BAD_REQUEST, payload.length + " other bytes");
                    return;
                }
                say("took 5000 bytes");
            }
            ResponseCode code = value == null ? ResponseCode.CREATED : ResponseCode.CHANGED;
            value = payload;
            exchange.respond(code);
        }

        @Override
        public void handlePOST(CoapExchange exchange) {
            byte[] more = exchange.getRequestPayload();
            byte[] old = value == null ? new byte[0] : value;
            value = Arrays.copyOf(old, old.length + more.length);
            System.arraycopy(more, 0, value, old.length, more.length);
            exchange.respond(ResponseCode.CHANGED, value);
        }

        @Override
        public void handleDELETE(CoapExchange exchange) {
            value = null;
            exchange.respond(ResponseCode.DELETED);
        }
    }

    /** Takes longer than a piggybacked response may. */
    private static final class Slow extends CoapResource {
        Slow() {
            super("slow");
        }

        @Override
        public void handleGET(CoapExchange exchange) {
            exchange.accept();
            Executors.newSingleThreadScheduledExecutor().schedule(() -> exchange.respond("slowly"), 1500, TimeUnit.MILLISECONDS);
        }
    }

    /** One more every half second, for whoever observes. */
    private static final class Count extends CoapResource {
        private volatile int count;
        private int observers;

        Count() {
            super("count");
            setObservable(true);
            getAttributes().setObservable();
            Executors.newSingleThreadScheduledExecutor().scheduleAtFixedRate(() -> {
                count++;
                changed();
                if (observers != getObserverCount()) {
                    observers = getObserverCount();
                    say("observers " + observers);
                }
            }, 500, 500, TimeUnit.MILLISECONDS);
        }

        @Override
        public void handleGET(CoapExchange exchange) {
            exchange.respond(String.valueOf(count));
        }
    }
}
