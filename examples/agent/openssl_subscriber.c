/*
 * A subscriber with OpenSSL, which takes the keys of its publishers from the agent of Tegmen (docs/agent.md).
 *
 *   cc -o openssl_subscriber examples/agent/openssl_subscriber.c -lssl -lcrypto
 *   ./openssl_subscriber SOCKET PORT
 *
 * It listens at 127.0.0.1, has a process for each publisher, prints each message in hexadecimal, and acknowledges each
 * confirmable request of CoAP with 2.04. It needs OpenSSL 3.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <openssl/crypto.h>
#include <openssl/err.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>
#include <openssl/ssl.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <time.h>
#include <unistd.h>

enum { MAX_ANSWER = 1024, MAX_IDENTITY = 128, MAX_MESSAGE = 2048, SECRET = 32 };
/* Seconds of silence after which a handshake, and a session, is given up. */
enum { SILENT_HANDSHAKE = 10, SILENT_SESSION = 60 };

/* The session with a publisher. */
struct publisher {
    char identity[MAX_IDENTITY + 1];
    /* Seconds for which the session may be used, from the answer of the agent on; 0 without a limit. */
    unsigned long seconds;
    time_t since;
};

/* Path of the socket of the agent. */
static const char *agent_path;
/* The key of the cookies. */
static unsigned char cookie_secret[SECRET];

/* --- the agent --- */

/* Sends the question to the agent, and reads its answer up to the end of the connection. Returns 0 if there is none. */
static int ask_agent(const char *question, char answer[MAX_ANSWER + 1])
{
    struct sockaddr_un address = {.sun_family = AF_UNIX};
    /* The agent may have to connect to the access control server again. */
    struct timeval patience = {.tv_sec = 20};
    size_t length = 0;
    ssize_t part = -1;
    int agent = socket(AF_UNIX, SOCK_STREAM, 0);
    if (agent < 0)
        return 0;
    snprintf(address.sun_path, sizeof address.sun_path, "%s", agent_path);
    if (connect(agent, (struct sockaddr *)&address, sizeof address) == 0 &&
        setsockopt(agent, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience) == 0 &&
        send(agent, question, strlen(question), MSG_NOSIGNAL) == (ssize_t)strlen(question)) {
        while (length < MAX_ANSWER && (part = recv(agent, answer + length, MAX_ANSWER - length, 0)) > 0)
            length += (size_t)part;
    }
    if (part < 0)
        fprintf(stderr, "no answer from the agent at %s: %s\n", agent_path, strerror(errno));
    close(agent);
    answer[length] = '\0';
    return part == 0 && length > 0;
}

/*
 * The callback of OpenSSL, during the handshake of a publisher: the key of the identity that the publisher shows. Returns the
 * length of the key, or 0 to refuse. The access control server gives the key of an identity once.
 */
static unsigned int find_key(SSL *ssl, const char *identity, unsigned char *key, unsigned int max_key)
{
    struct publisher *publisher = SSL_get_app_data(ssl);
    char question[MAX_IDENTITY + 16], answer[MAX_ANSWER + 1], *rest = NULL;
    size_t length = 0;
    /* A peer that has proved nothing chose the identity. With a space or a line feed in it, the question would be another one. */
    if (strlen(identity) > MAX_IDENTITY || strpbrk(identity, " \r\n") != NULL)
        return 0;
    snprintf(question, sizeof question, "session %s\n", identity);
    if (!ask_agent(question, answer))
        return 0;
    /* key IDENTITY KEY SECONDS, or error CODE TEXT. */
    const char *kind = strtok_r(answer, " \n", &rest);
    if (kind != NULL && strcmp(kind, "key") == 0) {
        const char *same = strtok_r(NULL, " \n", &rest);
        const char *hex = strtok_r(NULL, " \n", &rest);
        const char *seconds = strtok_r(NULL, " \n", &rest);
        if (seconds != NULL && strcmp(same, identity) == 0 && OPENSSL_hexstr2buf_ex(key, max_key, &length, hex, '\0')) {
            strcpy(publisher->identity, identity);
            publisher->seconds = strtoul(seconds, NULL, 10);
            publisher->since = time(NULL);
        } else {
            length = 0;
        }
    } else {
        fprintf(stderr, "no key for %s: %s", identity, rest == NULL ? "an empty answer\n" : rest);
    }
    OPENSSL_cleanse(answer, sizeof answer);
    return (unsigned int)length;
}

/* --- the handshake --- */

/* The cookie of an address, without memory of the address: no handshake begins before the peer has proved it. */
static int make_cookie(SSL *ssl, unsigned char *cookie, unsigned int *length)
{
    struct {
        in_addr_t host;
        in_port_t port;
    } bytes;
    int made = 0;
    BIO_ADDR *peer = BIO_ADDR_new();
    memset(&bytes, 0, sizeof bytes);
    if (peer != NULL && BIO_dgram_get_peer(SSL_get_rbio(ssl), peer) > 0 && BIO_ADDR_rawaddress(peer, &bytes.host, NULL)) {
        bytes.port = BIO_ADDR_rawport(peer);
        made = HMAC(EVP_sha256(), cookie_secret, SECRET, (unsigned char *)&bytes, sizeof bytes, cookie, length) != NULL;
    }
    BIO_ADDR_free(peer);
    return made;
}

static int verify_cookie(SSL *ssl, const unsigned char *cookie, unsigned int length)
{
    unsigned char expected[EVP_MAX_MD_SIZE];
    unsigned int expected_length = 0;
    return make_cookie(ssl, expected, &expected_length) && length == expected_length &&
           CRYPTO_memcmp(cookie, expected, length) == 0;
}

static SSL_CTX *make_context(void)
{
    SSL_CTX *context = SSL_CTX_new(DTLS_server_method());
    /* OpenSSL counts the first suite among the weak ones, because its tag has eight bytes. RFC 7252 makes it mandatory. */
    if (context == NULL || RAND_bytes(cookie_secret, SECRET) != 1 ||
        SSL_CTX_set_min_proto_version(context, DTLS1_2_VERSION) != 1 ||
        SSL_CTX_set_cipher_list(context, "PSK-AES128-CCM8:PSK-AES128-GCM-SHA256:@SECLEVEL=0") != 1)
        return NULL;
    /* A key opens one session, so no session is resumed. */
    SSL_CTX_set_options(context, SSL_OP_COOKIE_EXCHANGE | SSL_OP_NO_TICKET);
    SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
    SSL_CTX_set_cookie_generate_cb(context, make_cookie);
    SSL_CTX_set_cookie_verify_cb(context, verify_cookie);
    SSL_CTX_set_psk_server_callback(context, find_key);
    return context;
}

/* Returns 1 if the handshake succeeds. A flight that is lost is sent again. */
static int shake_hands(SSL *ssl)
{
    for (int silent = 0; silent < SILENT_HANDSHAKE; silent++) {
        int done = SSL_accept(ssl);
        if (done == 1)
            return 1;
        if (SSL_get_error(ssl, done) != SSL_ERROR_WANT_READ || DTLSv1_handle_timeout(ssl) < 0)
            return 0;
    }
    return 0;
}

/* --- the application --- */

/* Acknowledges a confirmable request of CoAP with 2.04 Changed (RFC 7252, section 3). */
static void answer_request(SSL *ssl, const unsigned char *message, int length)
{
    unsigned char answer[4 + 8];
    int token = length >= 4 ? message[0] & 0x0f : 0;
    int is_request = length >= 4 + token && token <= 8 && (message[0] & 0xf0) == 0x40 && message[1] > 0 && message[1] < 32;
    if (!is_request)
        return;
    answer[0] = (unsigned char)(0x60 | token);
    answer[1] = 0x44;
    memcpy(answer + 2, message + 2, (size_t)(2 + token));
    SSL_write(ssl, answer, 4 + token);
}

/* Takes the messages of a publisher until it ends the session, is silent, or may use the session no longer. */
static void take_messages(SSL *ssl, const struct publisher *publisher)
{
    unsigned char message[MAX_MESSAGE];
    struct pollfd readable = {.fd = SSL_get_fd(ssl), .events = POLLIN};
    int silent = 0;
    while ((publisher->seconds == 0 || (unsigned long)(time(NULL) - publisher->since) < publisher->seconds) &&
           silent < SILENT_SESSION) {
        if (!SSL_has_pending(ssl) && poll(&readable, 1, 1000) == 0) {
            silent++;
            continue;
        }
        int length = SSL_read(ssl, message, sizeof message);
        if (length <= 0 && SSL_get_error(ssl, length) != SSL_ERROR_WANT_READ)
            break;
        if (length <= 0)
            continue;
        silent = 0;
        printf("%s: ", publisher->identity);
        for (int at = 0; at < length; at++)
            printf("%02x", message[at]);
        printf("\n");
        answer_request(ssl, message, length);
    }
    SSL_shutdown(ssl);
    printf("%s: ended\n", publisher->identity);
}

/* A UDP socket at our own address, beside others there. */
static int bind_own(const struct sockaddr_in *own)
{
    int yes = 1, udp = socket(AF_INET, SOCK_DGRAM, 0);
    if (udp >= 0 && setsockopt(udp, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes) == 0 &&
        bind(udp, (const struct sockaddr *)own, sizeof *own) == 0)
        return udp;
    perror("127.0.0.1 cannot be served");
    exit(1);
}

/* Waits for a peer that has proved its address, and gives its session a socket with the datagrams of this peer alone. */
static int await_peer(SSL *ssl, const struct sockaddr_in *own)
{
    struct sockaddr_in address = {.sin_family = AF_INET};
    struct timeval second = {.tv_sec = 1};
    BIO *bio = SSL_get_rbio(ssl);
    BIO_ADDR *peer = BIO_ADDR_new();
    if (peer == NULL)
        return 0;
    while (DTLSv1_listen(ssl, peer) <= 0)
        ERR_clear_error();
    BIO_ADDR_rawaddress(peer, &address.sin_addr, NULL);
    address.sin_port = BIO_ADDR_rawport(peer);
    int udp = bind_own(own);
    int done = connect(udp, (struct sockaddr *)&address, sizeof address) == 0;
    BIO_set_fd(bio, udp, BIO_CLOSE);
    BIO_ctrl_set_connected(bio, peer);
    BIO_ctrl(bio, BIO_CTRL_DGRAM_SET_RECV_TIMEOUT, 0, &second);
    BIO_ADDR_free(peer);
    return done;
}

/* Waits for a publisher, and serves it in a process of its own. */
static void serve_next(SSL_CTX *context, int listener, const struct sockaddr_in *own)
{
    struct publisher publisher = {.identity = ""};
    SSL *ssl = SSL_new(context);
    BIO *bio = BIO_new_dgram(listener, BIO_NOCLOSE);
    if (ssl == NULL || bio == NULL)
        abort();
    SSL_set_bio(ssl, bio, bio);
    SSL_set_app_data(ssl, &publisher);
    if (await_peer(ssl, own) && fork() == 0) {
        close(listener);
        if (shake_hands(ssl)) {
            printf("%s: begins\n", publisher.identity);
            take_messages(ssl, &publisher);
        } else {
            fprintf(stderr, "a handshake failed\n");
            ERR_print_errors_fp(stderr);
        }
        SSL_free(ssl);
        exit(0);
    }
    SSL_free(ssl);
    ERR_clear_error();
}

int main(int words, char **word)
{
    struct sockaddr_in own = {.sin_family = AF_INET, .sin_addr.s_addr = htonl(INADDR_LOOPBACK)};
    if (words != 3 || strlen(word[1]) >= sizeof ((struct sockaddr_un *)0)->sun_path) {
        fprintf(stderr, "usage: %s SOCKET PORT, where SOCKET has at most 107 bytes\n", word[0]);
        return 2;
    }
    agent_path = word[1];
    own.sin_port = htons((unsigned short)atoi(word[2]));
    setvbuf(stdout, NULL, _IOLBF, 0);
    SSL_CTX *context = make_context();
    if (context == NULL) {
        ERR_print_errors_fp(stderr);
        return 1;
    }
    /* Nobody waits for the processes of publishers. */
    signal(SIGCHLD, SIG_IGN);
    int listener = bind_own(&own);
    printf("listening\n");
    for (;;)
        serve_next(context, listener, &own);
}
