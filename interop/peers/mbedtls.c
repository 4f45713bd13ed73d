/*
 * Mbed TLS as one end of a DTLS session, spoken to in lines; the words are those of interop/src/talker.rs.
 *
 *   mbedtls client|server ADDRESS IDENTITY KEY [max_fragment_length BYTES]     the key in hexadecimal
 *   mbedtls client|server ADDRESS IDENTITY KEY resume ticket|id
 *   mbedtls client|server ADDRESS x509 SUITE CA CERTIFICATE KEY                files in PEM
 *   mbedtls client ADDRESS x509 SUITE CA CERTIFICATE KEY resume ticket|id NAME  of the server
 *   mbedtls version|suites
 */
#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <mbedtls/ctr_drbg.h>
#include <mbedtls/entropy.h>
#include <mbedtls/error.h>
#include <mbedtls/ssl.h>
#include <mbedtls/ssl_cache.h>
#include <mbedtls/ssl_cookie.h>
#include <mbedtls/ssl_ticket.h>
#include <mbedtls/timing.h>
#include <mbedtls/version.h>

#define DATAGRAM_MAX 2048

/* Both address families; which one it is stands in the family. */
union address {
    struct sockaddr any;
    struct sockaddr_in v4;
    struct sockaddr_in6 v6;
};

static int is_server;
/* Of the other end, where a suite is named and no certificate shown. */
static const char *identity;
static int sock;
static union address peer;
static socklen_t peer_len;

static mbedtls_ssl_context ssl;
static mbedtls_ssl_config conf;
static mbedtls_entropy_context entropy;
static mbedtls_ctr_drbg_context drbg;
static mbedtls_ssl_cookie_ctx cookies;
static mbedtls_timing_delay_context timer;
static mbedtls_ssl_ticket_context tickets;
static mbedtls_ssl_cache_context cache;
/* What the last session is resumed with, and its master secret: the library does not say which sessions are resumed. */
static mbedtls_ssl_session before;
static unsigned char last_master[48];
/* Of a program that shows a certificate. */
static mbedtls_x509_crt ca, certificate;
static mbedtls_pk_context pk;

static void fail(const char *doing, int code)
{
    char text[128] = "";
    mbedtls_strerror(code, text, sizeof text);
    printf("failed %s: -0x%04x %s\n", doing, (unsigned)-code, text);
    fflush(stdout);
}

static void must(const char *doing, int code)
{
    if (code != 0) {
        fail(doing, code);
        exit(1);
    }
}

/* The registry writes a low line where the library writes a dash. */
static void exchange(char *text, char from, char to)
{
    for (; (text = strchr(text, from)) != NULL; text++)
        *text = to;
}

static void name_suite(const char *before, const char *suite)
{
    char name[64];
    snprintf(name, sizeof name, "%s", suite);
    exchange(name, '-', '_');
    printf("%s%s", before, name);
}

static socklen_t parse(char *text, union address *address)
{
    char *port = strrchr(text, ':');
    memset(address, 0, sizeof *address);
    if (port == NULL)
        return 0;
    *port++ = 0;
    if (text[0] == '[') {
        text[strlen(text) - 1] = 0;
        address->v6.sin6_family = AF_INET6;
        address->v6.sin6_port = htons((uint16_t)atoi(port));
        return inet_pton(AF_INET6, text + 1, &address->v6.sin6_addr) == 1 ? sizeof address->v6 : 0;
    }
    address->v4.sin_family = AF_INET;
    address->v4.sin_port = htons((uint16_t)atoi(port));
    return inet_pton(AF_INET, text, &address->v4.sin_addr) == 1 ? sizeof address->v4 : 0;
}

static size_t from_hex(const char *text, unsigned char *bytes, size_t room)
{
    size_t len = 0;
    unsigned byte;
    while (len < room && sscanf(text + 2 * len, "%2x", &byte) == 1)
        bytes[len++] = (unsigned char)byte;
    return len;
}

/* The source of the datagram that waits; 0 if none does. */
static socklen_t source(union address *from)
{
    char byte;
    socklen_t len = sizeof *from;
    memset(from, 0, sizeof *from);
    return recvfrom(sock, &byte, 1, MSG_PEEK | MSG_DONTWAIT, &from->any, &len) < 0 ? 0 : len;
}

static int is_peer(const union address *from, socklen_t len)
{
    return len == peer_len && memcmp(from, &peer, len) == 0;
}

static int on_send(void *unused, const unsigned char *datagram, size_t len)
{
    (void)unused;
    ssize_t sent = sendto(sock, datagram, len, 0, &peer.any, peer_len);
    return sent < 0 ? -1 : (int)sent;
}

/* A datagram of somebody else is left for the loop, which begins a new session then. */
static int on_receive(void *unused, unsigned char *datagram, size_t room)
{
    (void)unused;
    union address from;
    if (!is_peer(&from, source(&from)))
        return MBEDTLS_ERR_SSL_WANT_READ;
    ssize_t len = recv(sock, datagram, room, MSG_DONTWAIT);
    return len < 0 ? MBEDTLS_ERR_SSL_WANT_READ : (int)len;
}

static void begin(void)
{
    must("reset", mbedtls_ssl_session_reset(&ssl));
    if (is_server)
        must("address", mbedtls_ssl_set_client_transport_id(&ssl, (unsigned char *)&peer, peer_len));
}

static int is_established(void)
{
    return ssl.state == MBEDTLS_SSL_HANDSHAKE_OVER;
}

/* As far as what has come allows; 0 if the session failed. */
static int advance(void)
{
    unsigned char payload[DATAGRAM_MAX];
    if (!is_established()) {
        int result = mbedtls_ssl_handshake(&ssl);
        if (result == MBEDTLS_ERR_SSL_HELLO_VERIFY_REQUIRED) {
            begin();
            return 1;
        }
        if (result == MBEDTLS_ERR_SSL_WANT_READ)
            return 1;
        if (result != 0) {
            fail("handshake", result);
            return 0;
        }
        const mbedtls_x509_crt *shown = mbedtls_ssl_get_peer_cert(&ssl);
        if (shown != NULL) {
            char name[256];
            must("name", mbedtls_x509_dn_gets(name, sizeof name, &shown->subject) < 0);
            name_suite("suite ", mbedtls_ssl_get_ciphersuite(&ssl));
            printf("\npeer %s\n", strncmp(name, "CN=", 3) == 0 ? name + 3 : name);
        } else if (identity != NULL) {
            name_suite("suite ", mbedtls_ssl_get_ciphersuite(&ssl));
            printf("\npeer %s\n", identity);
        }
        if (memcmp(last_master, ssl.session->master, sizeof last_master) == 0)
            printf("resumed\n");
        memcpy(last_master, ssl.session->master, sizeof last_master);
        printf("established\n");
    }
    for (;;) {
        int len = mbedtls_ssl_read(&ssl, payload, sizeof payload);
        if (len == MBEDTLS_ERR_SSL_WANT_READ)
            return 1;
        if (len <= 0) {
            fail("read", len);
            return 0;
        }
        printf("received ");
        for (int i = 0; i < len; i++)
            printf("%02x", payload[i]);
        printf("\n");
    }
}

static void limit(int bytes)
{
    int code = bytes >= 4096 ? MBEDTLS_SSL_MAX_FRAG_LEN_4096
        : bytes >= 2048      ? MBEDTLS_SSL_MAX_FRAG_LEN_2048
        : bytes >= 1024      ? MBEDTLS_SSL_MAX_FRAG_LEN_1024
                             : MBEDTLS_SSL_MAX_FRAG_LEN_512;
    must("max_fragment_length", mbedtls_ssl_conf_max_frag_len(&conf, (unsigned char)code));
}

static void resume(const char *by)
{
    int by_ticket = strcmp(by, "ticket") == 0;
    if (!is_server) {
        mbedtls_ssl_conf_session_tickets(&conf, by_ticket ? MBEDTLS_SSL_SESSION_TICKETS_ENABLED
                                                          : MBEDTLS_SSL_SESSION_TICKETS_DISABLED);
    } else if (by_ticket) {
        mbedtls_ssl_ticket_init(&tickets);
        must("tickets", mbedtls_ssl_ticket_setup(&tickets, mbedtls_ctr_drbg_random, &drbg, MBEDTLS_CIPHER_AES_256_GCM,
                                                 86400));
        mbedtls_ssl_conf_session_tickets_cb(&conf, mbedtls_ssl_ticket_write, mbedtls_ssl_ticket_parse, &tickets);
    } else {
        mbedtls_ssl_cache_init(&cache);
        mbedtls_ssl_conf_session_cache(&conf, &cache, mbedtls_ssl_cache_get, mbedtls_ssl_cache_set);
    }
}

/* Another session, from another port, with what there is of the last one; at the server of that one, if no other is named. */
static void again(char *at)
{
    mbedtls_ssl_session_init(&before);
    must("remembering", mbedtls_ssl_get_session(&ssl, &before));
    mbedtls_ssl_close_notify(&ssl);
    if (at != NULL) {
        at[strcspn(at, "\n")] = 0;
        peer_len = parse(at, &peer);
        must("address", peer_len == 0);
    }
    close(sock);
    sock = socket(peer.any.sa_family, SOCK_DGRAM, 0);
    begin();
    must("resuming", mbedtls_ssl_set_session(&ssl, &before));
    mbedtls_ssl_session_free(&before);
}

static void use_key(char **words)
{
    static const int suites[] = { MBEDTLS_TLS_PSK_WITH_AES_128_CCM_8, 0 };
    unsigned char key[64];
    mbedtls_ssl_conf_ciphersuites(&conf, suites);
    must("key", mbedtls_ssl_conf_psk(&conf, key, from_hex(words[1], key, sizeof key), (unsigned char *)words[0],
                                     strlen(words[0])));
}

static void use_suite(char *name)
{
    static int suites[2];
    exchange(name, '_', '-');
    suites[0] = mbedtls_ssl_get_ciphersuite_id(name);
    must("suite", suites[0] == 0);
    mbedtls_ssl_conf_ciphersuites(&conf, suites);
}

static void use_certificates(char **words)
{
    use_suite(words[1]);
    mbedtls_x509_crt_init(&ca);
    mbedtls_x509_crt_init(&certificate);
    mbedtls_pk_init(&pk);
    must("CA", mbedtls_x509_crt_parse_file(&ca, words[2]));
    must("certificate", mbedtls_x509_crt_parse_file(&certificate, words[3]));
    must("key", mbedtls_pk_parse_keyfile(&pk, words[4], NULL));
    mbedtls_ssl_conf_ca_chain(&conf, &ca, NULL);
    must("certificate", mbedtls_ssl_conf_own_cert(&conf, &certificate, &pk));
    mbedtls_ssl_conf_authmode(&conf, MBEDTLS_SSL_VERIFY_REQUIRED);
}

static void settle(char **words, int has_certificates, const char *server_name)
{
    mbedtls_ssl_init(&ssl);
    mbedtls_ssl_config_init(&conf);
    mbedtls_entropy_init(&entropy);
    mbedtls_ctr_drbg_init(&drbg);
    mbedtls_ssl_cookie_init(&cookies);
    must("seed", mbedtls_ctr_drbg_seed(&drbg, mbedtls_entropy_func, &entropy, NULL, 0));
    must("settings", mbedtls_ssl_config_defaults(&conf, is_server ? MBEDTLS_SSL_IS_SERVER : MBEDTLS_SSL_IS_CLIENT,
                                                 MBEDTLS_SSL_TRANSPORT_DATAGRAM, MBEDTLS_SSL_PRESET_DEFAULT));
    mbedtls_ssl_conf_rng(&conf, mbedtls_ctr_drbg_random, &drbg);
    if (has_certificates) {
        use_certificates(words);
    } else if (identity != NULL) {
        use_key(words + 2);
        use_suite(words[1]);
    } else {
        use_key(words);
    }
    must("cookies", mbedtls_ssl_cookie_setup(&cookies, mbedtls_ctr_drbg_random, &drbg));
    mbedtls_ssl_conf_dtls_cookies(&conf, mbedtls_ssl_cookie_write, mbedtls_ssl_cookie_check, &cookies);
    must("session", mbedtls_ssl_setup(&ssl, &conf));
    if (has_certificates && !is_server)
        must("name", mbedtls_ssl_set_hostname(&ssl, server_name));
    mbedtls_ssl_set_timer_cb(&ssl, &timer, mbedtls_timing_set_delay, mbedtls_timing_get_delay);
    mbedtls_ssl_set_bio(&ssl, NULL, on_send, on_receive, NULL);
}

int main(int count, char **words)
{
    if (count == 2 && strcmp(words[1], "version") == 0) {
        char text[32];
        mbedtls_version_get_string_full(text);
        printf("version %s\n", text);
        return 0;
    }
    if (count == 2 && strcmp(words[1], "suites") == 0) {
        printf("suites");
        for (const int *suite = mbedtls_ssl_list_ciphersuites(); *suite != 0; suite++)
            name_suite(" ", mbedtls_ssl_get_ciphersuite_name(*suite));
        printf("\n");
        return 0;
    }
    union address address;
    if (count == 7 && strcmp(words[3], "psk") == 0)
        identity = words[5];
    int resumes = (count == 7 && strcmp(words[5], "resume") == 0) || (count == 11 && strcmp(words[8], "resume") == 0);
    int has_certificates = (count == 8 || count == 9 || (count == 11 && resumes)) && strcmp(words[3], "x509") == 0;
    socklen_t len = count == 5 || count == 7 || has_certificates ? parse(words[2], &address) : 0;
    if (len == 0) {
        fprintf(stderr, "usage: mbedtls client|server ADDRESS IDENTITY KEY [max_fragment_length BYTES]\n"
                        "       mbedtls client|server ADDRESS IDENTITY KEY resume ticket|id\n"
                        "       mbedtls client|server ADDRESS psk SUITE IDENTITY KEY\n"
                        "       mbedtls client|server ADDRESS x509 SUITE CA CERTIFICATE KEY [MTU]\n"
                        "       mbedtls client ADDRESS x509 SUITE CA CERTIFICATE KEY resume ticket|id NAME\n");
        return 2;
    }
    setvbuf(stdout, NULL, _IOLBF, 0);
    setvbuf(stdin, NULL, _IONBF, 0); /* or a line could lie in a buffer that poll does not see */
    is_server = strcmp(words[1], "server") == 0;
    sock = socket(address.any.sa_family, SOCK_DGRAM, 0);
    if (is_server && bind(sock, &address.any, len) != 0) {
        printf("failed bind: %s\n", strerror(errno));
        return 1;
    }
    settle(words + 3, has_certificates, count == 11 ? words[10] : "localhost");
    if (count == 9)
        mbedtls_ssl_set_mtu(&ssl, (uint16_t)atoi(words[8]));
    if (resumes)
        resume(words[count == 7 ? 6 : 9]);
    else if (count == 7 && !is_server && identity == NULL) /* a server takes what it is asked for */
        limit(atoi(words[6]));
    if (is_server) {
        printf("listening\n");
    } else {
        peer = address;
        peer_len = len;
        if (!advance())
            return 1;
    }
    for (;;) {
        struct pollfd wait[] = { { .fd = sock, .events = POLLIN }, { .fd = STDIN_FILENO, .events = POLLIN } };
        /* Woken now and then for the timer of a handshake. */
        poll(wait, 2, peer_len != 0 && !is_established() ? 100 : -1);
        if (wait[1].revents != 0) {
            char line[2 * DATAGRAM_MAX + 2];
            unsigned char payload[DATAGRAM_MAX];
            if (fgets(line, sizeof line, stdin) == NULL)
                break;
            if (!is_server && strncmp(line, "again", 5) == 0) {
                again(line[5] == ' ' ? line + 6 : NULL);
                if (!advance())
                    return 1;
                continue;
            }
            int sent = mbedtls_ssl_write(&ssl, payload, from_hex(line, payload, sizeof payload));
            if (sent < 0)
                fail("write", sent);
        }
        union address from;
        socklen_t from_len = source(&from);
        if (from_len != 0 && !is_peer(&from, from_len)) {
            char dropped;
            if (!is_server) {
                recv(sock, &dropped, 1, MSG_DONTWAIT);
                continue;
            }
            peer = from;
            peer_len = from_len;
            begin();
        }
        if (peer_len != 0 && !advance()) {
            if (!is_server)
                return 1;
            peer_len = 0;
        }
    }
    if (peer_len != 0 && is_established())
        mbedtls_ssl_close_notify(&ssl);
    return 0;
}
