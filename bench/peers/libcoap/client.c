/* A client of libcoap with 64 confirmable GETs at once (NSTART 64): `client ADDRESS PORT [IDENTITY KEY]`.
 *
 * Each line of its input is a time in milliseconds. It asks for so long, and prints how many requests were answered. */

#include <arpa/inet.h>
#include <coap3/coap.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define AT_ONCE 64
#define PATH "example_data"
#define VALUE_LEN 16

static unsigned long answered;
static unsigned in_flight;
static double end;

static double now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec + time.tv_nsec / 1e9;
}

static void fail(const char *reason) {
    fprintf(stderr, "libcoap: %s\n", reason);
    exit(1);
}

static void ask(coap_session_t *session) {
    coap_pdu_t *request = coap_new_pdu(COAP_MESSAGE_CON, COAP_REQUEST_CODE_GET, session);
    uint8_t token[8];
    size_t len = 0;
    if (!request)
        fail("no memory for a request");
    coap_session_new_token(session, &len, token);
    if (!coap_add_token(request, len, token) ||
        !coap_add_option(request, COAP_OPTION_URI_PATH, strlen(PATH), (const uint8_t *)PATH))
        fail("no room in a request");
    if (coap_send(session, request) == COAP_INVALID_MID)
        fail("a request was not sent");
    in_flight++;
}

static coap_response_t take(coap_session_t *session, const coap_pdu_t *sent, const coap_pdu_t *received,
                            const coap_mid_t mid) {
    const uint8_t *payload;
    size_t len = 0;
    (void)sent, (void)mid;
    if (coap_pdu_get_code(received) != COAP_RESPONSE_CODE_CONTENT || !coap_get_data(received, &len, &payload) ||
        len != VALUE_LEN)
        fail("a response without the value");
    answered++;
    in_flight--;
    if (now() < end)
        ask(session);
    return COAP_RESPONSE_OK;
}

static void lose(coap_session_t *session, const coap_pdu_t *sent, const coap_nack_reason_t reason,
                 const coap_mid_t mid) {
    (void)session, (void)sent, (void)reason, (void)mid;
    fail("a request was not answered");
}

static coap_session_t *connect_to(coap_context_t *context, char **words, int secure) {
    coap_address_t server;
    coap_address_init(&server);
    server.addr.sin.sin_family = AF_INET;
    server.addr.sin.sin_port = htons((uint16_t)atoi(words[1]));
    server.size = sizeof server.addr.sin;
    if (inet_pton(AF_INET, words[0], &server.addr.sin.sin_addr) != 1)
        fail("no address");
    if (!secure)
        return coap_new_client_session(context, NULL, &server, COAP_PROTO_UDP);
    coap_dtls_cpsk_t psk;
    memset(&psk, 0, sizeof psk);
    psk.version = COAP_DTLS_CPSK_SETUP_VERSION;
    psk.psk_info.identity.s = (const uint8_t *)words[2];
    psk.psk_info.identity.length = strlen(words[2]);
    psk.psk_info.key.s = (const uint8_t *)words[3];
    psk.psk_info.key.length = strlen(words[3]);
    return coap_new_client_session_psk2(context, NULL, &server, COAP_PROTO_DTLS, &psk);
}

int main(int count, char **words) {
    if (count != 3 && count != 5)
        fail("usage: client ADDRESS PORT [IDENTITY KEY]");
    coap_startup();
    coap_context_t *context = coap_new_context(NULL);
    if (!context)
        fail("no context");
    coap_register_response_handler(context, take);
    coap_register_nack_handler(context, lose);
    coap_session_t *session = connect_to(context, words + 1, count == 5);
    if (!session)
        fail("no session");
    coap_session_set_nstart(session, AT_ONCE);
    char line[32];
    while (fgets(line, sizeof line, stdin)) {
        answered = 0;
        end = now() + atof(line) / 1000;
        for (int i = 0; i < AT_ONCE; i++)
            ask(session);
        while (in_flight > 0)
            if (coap_io_process(context, 1000) < 0)
                fail("no input or output");
        printf("%lu\n", answered);
        fflush(stdout);
    }
    coap_session_release(session);
    coap_free_context(context);
    return 0;
}
