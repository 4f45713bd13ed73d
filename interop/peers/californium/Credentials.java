import java.io.FileInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.security.GeneralSecurityException;
import java.security.KeyFactory;
import java.security.Principal;
import java.security.PrivateKey;
import java.security.PublicKey;
import java.security.spec.PKCS8EncodedKeySpec;
import java.security.spec.X509EncodedKeySpec;
import java.util.Arrays;
import java.util.stream.Collectors;

import org.eclipse.californium.elements.DtlsEndpointContext;
import org.eclipse.californium.elements.EndpointContext;
import org.eclipse.californium.elements.auth.RawPublicKeyIdentity;
import org.eclipse.californium.elements.auth.X509CertPath;
import org.eclipse.californium.elements.util.SslContextUtil;
import org.eclipse.californium.elements.util.StringUtil;
import org.eclipse.californium.scandium.config.DtlsConfig;
import org.eclipse.californium.scandium.config.DtlsConnectorConfig;
import org.eclipse.californium.scandium.dtls.CertificateType;
import org.eclipse.californium.scandium.dtls.cipher.CipherSuite;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedMultiPskStore;
import org.eclipse.californium.scandium.dtls.pskstore.AdvancedSinglePskStore;
import org.eclipse.californium.scandium.dtls.x509.SingleCertificateProvider;
import org.eclipse.californium.scandium.dtls.x509.StaticNewAdvancedCertificateVerifier;

/** What an end proves itself with, and whom it believes. */
interface Credentials {
    void use(DtlsConnectorConfig.Builder builder, boolean server) throws Exception;

    static Credentials psk(CipherSuite suite, String identity, String key) {
        byte[] secret = StringUtil.hex2ByteArray(key);
        return (builder, server) -> {
            builder.setAsList(DtlsConfig.DTLS_CIPHER_SUITES, suite);
            if (server) {
                AdvancedMultiPskStore keys = new AdvancedMultiPskStore();
                keys.setKey(identity, secret);
                builder.setAdvancedPskStore(keys);
            } else {
                builder.setAdvancedPskStore(new AdvancedSinglePskStore(identity, secret));
            }
        };
    }

    /** Files in PEM. */
    static Credentials x509(CipherSuite suite, String ca, String certificate, String key) {
        return (builder, server) -> {
            SslContextUtil.Credentials own = fromPem(key, certificate);
            builder.setAsList(DtlsConfig.DTLS_CIPHER_SUITES, suite);
            builder.setCertificateIdentityProvider(new SingleCertificateProvider(own.getPrivateKey(),
                    own.getCertificateChain(), CertificateType.X_509));
            builder.setAdvancedCertificateVerifier(StaticNewAdvancedCertificateVerifier.builder()
                    .setTrustedCertificates(SslContextUtil.loadTrustedCertificates(ca)).build());
        };
    }

    /** Files in DER, of keys of an elliptic curve. */
    static Credentials raw(CipherSuite suite, String key, String publicKey, String peer) {
        return (builder, server) -> {
            PrivateKey own = KeyFactory.getInstance("EC").generatePrivate(new PKCS8EncodedKeySpec(read(key)));
            builder.setAsList(DtlsConfig.DTLS_CIPHER_SUITES, suite);
            builder.setCertificateIdentityProvider(new SingleCertificateProvider(own, publicKey(publicKey)));
            builder.setAdvancedCertificateVerifier(StaticNewAdvancedCertificateVerifier.builder()
                    .setTrustedRPKs(new RawPublicKeyIdentity(publicKey(peer))).build());
        };
    }

    /** The words IDENTITY KEY, psk SUITE IDENTITY KEY, x509 SUITE CA CERTIFICATE KEY or raw SUITE KEY PUBLIC_KEY PEER. */
    static Credentials of(String... words) {
        if (words.length < 4) {
            return psk(CipherSuite.TLS_PSK_WITH_AES_128_CCM_8, words[0], words[1]);
        }
        CipherSuite suite = CipherSuite.getTypeByName(words[1]);
        switch (words[0]) {
            case "psk":
                return psk(suite, words[2], words[3]);
            case "x509":
                return x509(suite, words[2], words[3], words[4]);
            case "raw":
                return raw(suite, words[2], words[3], words[4]);
            default:
                return psk(CipherSuite.TLS_PSK_WITH_AES_128_CCM_8, words[0], words[1]);
        }
    }

    /** The names of all suites. */
    static String suites() {
        return Arrays.stream(CipherSuite.values()).map(CipherSuite::name).collect(Collectors.joining(" "));
    }

    /** Prints the suite, and who is at the other end. */
    static void sayAgreed(EndpointContext context) {
        Principal peer = context.getPeerIdentity();
        boolean raw = peer instanceof RawPublicKeyIdentity;
        String name = peer instanceof X509CertPath ? ((X509CertPath) peer).getCN() : peer.getName();
        Things.say("suite " + context.get(DtlsEndpointContext.KEY_CIPHER));
        Things.say("peer " + (raw ? "raw public key" : name));
    }

    private static SslContextUtil.Credentials fromPem(String key, String certificate)
            throws IOException, GeneralSecurityException {
        try (InputStream both = new SequenceInputStream(new FileInputStream(key), new FileInputStream(certificate))) {
            return SslContextUtil.loadPemCredentials(both);
        }
    }

    private static PublicKey publicKey(String file) throws IOException, GeneralSecurityException {
        return KeyFactory.getInstance("EC").generatePublic(new X509EncodedKeySpec(read(file)));
    }

    private static byte[] read(String file) throws IOException {
        return Files.readAllBytes(Path.of(file));
    }
}
