#!/usr/bin/env python3
"""EDHOC (RFC 9528) with static Diffie-Hellman keys in both roles, and one request with OSCORE, read from the RFCs a second time.

    edhoc_reader.py initiator KEY CREDENTIAL HOST PORT PATH combined|separate
    edhoc_reader.py responder KEY CREDENTIAL HOST PORT PAYLOAD

It shares no code with Tegmen or lakers. It follows RFC 9528 (sections 4, 5 and appendix A), RFC 8613 (sections 3, 5, 6 and 8) and
RFC 9668. KEY is a file of `tegmen edhoc new`, CREDENTIAL that of the other end in hexadecimal. The initiator prints the payload of the
response to a GET of PATH. The responder answers one GET with PAYLOAD. Needs `cryptography` of PyPI.
"""

import hashlib
import hmac
import os
import socket
import sys
import tomllib

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.ciphers.aead import AESCCM

METHOD, SUITE, TAG = 3, 2, 8
CON, ACK = 0, 2
GET, POST, CONTENT, CHANGED = 0x01, 0x02, 0x45, 0x44
OSCORE, URI_PATH, FORMAT, EDHOC = 9, 11, 12, 21


# CBOR (RFC 8949): as much as the messages need.


def head(major, number):
    if number < 24:
        return bytes([major << 5 | number])
    return bytes([major << 5 | 24, number]) if number < 256 else bytes([major << 5 | 25]) + number.to_bytes(2, "big")


def bstr(data):
    return head(2, len(data)) + data


def item(data):
    """The length of the first item, its major type and its number."""
    major, low = data[0] >> 5, data[0] & 31
    size = {24: 1, 25: 2}.get(low, 0)
    number = int.from_bytes(data[1 : 1 + size], "big") if size else low
    at = 1 + size
    if major in (2, 3):
        at += number
    elif major in (4, 5):
        for _ in range(number * (2 if major == 5 else 1)):
            at += item(data[at:])[0]
    return at, major, number


def items(data):
    found = []
    while data:
        length, _, _ = item(data)
        found.append(data[:length])
        data = data[length:]
    return found


def content(data):
    """The content of a byte string."""
    length, major, number = item(data)
    assert major == 2 and length == len(data), data.hex()
    return data[length - number :]


def identifier(name):
    """A connection identifier, or a kid, in a message: a number of one byte stands for that byte (section 3.3.2)."""
    return name if len(name) == 1 and name[0] >> 5 < 2 and name[0] & 31 < 24 else bstr(name)


def name_of(data):
    return data if data[0] >> 5 < 2 else content(data)


# The key schedule (section 4).


def sha256(data):
    return hashlib.sha256(data).digest()


def extract(salt, secret):
    return hmac.new(salt, secret, hashlib.sha256).digest()


def expand(key, info, length):
    out, block, count = b"", b"", 0
    while len(out) < length:
        count += 1
        block = hmac.new(key, block + info + bytes([count]), hashlib.sha256).digest()
        out += block
    return out[:length]


def kdf(key, label, context, length):
    return expand(key, head(0, label) + bstr(context) + head(0, length), length)


def x_of(private):
    return private.public_key().public_numbers().x.to_bytes(32, "big")


def agree(private, x):
    point = ec.EllipticCurvePublicKey.from_encoded_point(ec.SECP256R1(), b"\x02" + x)
    return private.exchange(ec.ECDH(), point)


class End:
    """An end: its key, its credential, and that of the other end."""

    def __init__(self, key, credential):
        with open(key, "rb") as file:
            key = tomllib.load(file)
        self.own = ec.derive_private_key(int(key["private_key"], 16), ec.SECP256R1())
        self.credential, self.by_value = bytes.fromhex(key["credential"]), key.get("by_value", False)
        self.other = bytes.fromhex(credential)
        self.ephemeral = ec.generate_private_key(ec.SECP256R1())

    def own_id(self):
        return self.id_of(self.credential, self.by_value)

    @staticmethod
    def key_of(credential):
        """The kid and the x-coordinate of a CCS."""
        at = credential.index(bytes([8, 0xA1, 1])) + 3
        parts = items(credential[at + 1 :])[: 2 * (credential[at] & 31)]
        fields = dict(zip(parts[::2], parts[1::2]))
        assert fields[b"\x01"] == b"\x02" and fields[b"\x20"] == b"\x01"
        return content(fields[b"\x02"]), content(fields[b"\x21"])

    def id_of(self, credential, by_value):
        """ID_CRED: the whole map, and its form in a plaintext."""
        if by_value:
            return b"\xa1\x0e" + credential, b"\xa1\x0e" + credential
        kid, _ = self.key_of(credential)
        return b"\xa1\x04" + bstr(kid), identifier(kid)

    def check_id(self, form):
        """The whole map of the identifier of the other end."""
        for by_value in (False, True):
            whole, short = self.id_of(self.other, by_value)
            if form == short:
                return whole
        raise ValueError(f"another credential: {form.hex()}")

    def th_3(self, th_2, plaintext_2, cred_r):
        return sha256(bstr(th_2) + plaintext_2 + cred_r)

    def finish(self, prk_4e3m, th_3, plaintext_3, cred_i, own_id, other_id):
        self.th_4 = sha256(bstr(th_3) + plaintext_3 + cred_i)
        self.prk_4e3m = prk_4e3m
        prk_out = kdf(prk_4e3m, 7, self.th_4, 32)
        exporter = kdf(prk_out, 10, b"", 32)
        self.context = Context(kdf(exporter, 0, b"", 16), kdf(exporter, 1, b"", 8), other_id, own_id)

    def message_4(self):
        nonce, key = kdf(self.prk_4e3m, 9, self.th_4, 13), kdf(self.prk_4e3m, 8, self.th_4, 16)
        return bstr(AESCCM(key, TAG).encrypt(nonce, b"", enc_structure(self.th_4)))


def enc_structure(th):
    return b"\x83" + head(3, 8) + b"Encrypt0" + b"\x40" + bstr(th)


def initiator(end, send):
    c_i = os.urandom(2)
    message_1 = head(0, METHOD) + head(0, SUITE) + bstr(x_of(end.ephemeral)) + identifier(c_i)
    message_2 = content(send(b"\xf5" + message_1, 65))
    g_y, ciphertext_2 = message_2[:32], message_2[32:]
    th_2 = sha256(bstr(g_y) + bstr(sha256(message_1)))
    prk_2e = extract(th_2, agree(end.ephemeral, g_y))
    stream = kdf(prk_2e, 0, th_2, len(ciphertext_2))
    plaintext_2 = bytes(a ^ b for a, b in zip(ciphertext_2, stream))
    c_r, form, mac_2 = items(plaintext_2)
    id_cred_r = end.check_id(form)
    _, g_r = end.key_of(end.other)
    prk_3e2m = extract(kdf(prk_2e, 1, th_2, 32), agree(end.ephemeral, g_r))
    context_2 = c_r + id_cred_r + bstr(th_2) + end.other
    assert content(mac_2) == kdf(prk_3e2m, 2, context_2, 8), "MAC_2"
    th_3 = end.th_3(th_2, plaintext_2, end.other)
    prk_4e3m = extract(kdf(prk_3e2m, 5, th_3, 32), agree(end.own, g_y))
    id_cred_i, form = end.own_id()
    mac_3 = kdf(prk_4e3m, 6, id_cred_i + bstr(th_3) + end.credential, 8)
    plaintext_3 = form + bstr(mac_3)
    cipher = AESCCM(kdf(prk_3e2m, 3, th_3, 16), TAG)
    message_3 = bstr(cipher.encrypt(kdf(prk_3e2m, 4, th_3, 13), plaintext_3, enc_structure(th_3)))
    end.finish(prk_4e3m, th_3, plaintext_3, end.credential, c_i, name_of(c_r))
    return c_r, message_3


class Responder:
    def __init__(self, end):
        self.end = end

    def message_2(self, message_1):
        end = self.end
        parts = items(message_1)
        assert parts[0] == head(0, METHOD) and parts[1] == head(0, SUITE) and len(parts) == 4, message_1.hex()
        g_x, self.c_i = content(parts[2]), parts[3]
        g_y = x_of(end.ephemeral)
        th_2 = sha256(bstr(g_y) + bstr(sha256(message_1)))
        prk_2e = extract(th_2, agree(end.ephemeral, g_x))
        self.prk_3e2m = extract(kdf(prk_2e, 1, th_2, 32), agree(end.own, g_x))
        self.c_r = identifier(os.urandom(2))
        id_cred_r, form = end.own_id()
        context_2 = self.c_r + id_cred_r + bstr(th_2) + end.credential
        plaintext_2 = self.c_r + form + bstr(kdf(self.prk_3e2m, 2, context_2, 8))
        self.th_3 = end.th_3(th_2, plaintext_2, end.credential)
        stream = kdf(prk_2e, 0, th_2, len(plaintext_2))
        return bstr(g_y + bytes(a ^ b for a, b in zip(plaintext_2, stream)))

    def on_message_3(self, message_3):
        end, th_3 = self.end, self.th_3
        cipher = AESCCM(kdf(self.prk_3e2m, 3, th_3, 16), TAG)
        plaintext_3 = cipher.decrypt(kdf(self.prk_3e2m, 4, th_3, 13), content(message_3), enc_structure(th_3))
        form, mac_3 = items(plaintext_3)
        id_cred_i = end.check_id(form)
        _, g_i = end.key_of(end.other)
        prk_4e3m = extract(kdf(self.prk_3e2m, 5, th_3, 32), agree(end.ephemeral, g_i))
        assert content(mac_3) == kdf(prk_4e3m, 6, id_cred_i + bstr(th_3) + end.other, 8), "MAC_3"
        end.finish(prk_4e3m, th_3, plaintext_3, end.other, name_of(self.c_r), name_of(self.c_i))


# OSCORE (RFC 8613) with AES-CCM-16-64-128: one request and its response.


class Context:
    def __init__(self, secret, salt, sender_id, recipient_id):
        prk = extract(salt, secret)
        self.sender_id, self.recipient_id = sender_id, recipient_id
        self.sender_key, self.recipient_key = self.derive(prk, sender_id, b"Key", 16), self.derive(prk, recipient_id, b"Key", 16)
        self.iv = self.derive(prk, b"", b"IV", 13)

    @staticmethod
    def derive(prk, name, kind, length):
        info = b"\x85" + bstr(name) + b"\xf6" + head(0, 10) + head(3, len(kind)) + kind + head(0, length)
        return expand(prk, info, length)

    def inputs(self, name, number):
        """Nonce and associated data of a request, or of a response without a number of its own."""
        padded = bytes([len(name)]) + name.rjust(7, b"\0") + number.rjust(5, b"\0")
        external = b"\x85\x01\x81\x0a" + bstr(name) + bstr(number) + b"\x40"
        nonce = bytes(a ^ b for a, b in zip(padded, self.iv))
        return nonce, b"\x83" + head(3, 8) + b"Encrypt0" + b"\x40" + bstr(external)


# CoAP (RFC 7252).


def message(kind, code, message_id, token, options, payload):
    out, before = bytes([0x40 | kind << 4 | len(token), code]) + message_id.to_bytes(2, "big") + token, 0
    for number, value in sorted(options, key=lambda option: option[0]):
        delta, before = number - before, number
        short = lambda n: (n, b"") if n < 13 else (13, bytes([n - 13]))
        (d, more_d), (l, more_l) = short(delta), short(len(value))
        out += bytes([d << 4 | l]) + more_d + more_l + value
    return out + (b"\xff" + payload if payload else b"")


def parse(datagram):
    token_len = datagram[0] & 15
    kind, code, token = datagram[0] >> 4 & 3, datagram[1], datagram[4 : 4 + token_len]
    at, number, options = 4 + token_len, 0, []
    while at < len(datagram) and datagram[at] != 0xFF:
        delta, length = datagram[at] >> 4, datagram[at] & 15
        at += 1
        if delta == 13:
            delta, at = 13 + datagram[at], at + 1
        if length == 13:
            length, at = 13 + datagram[at], at + 1
        number += delta
        options.append((number, datagram[at : at + length]))
        at += length
    return kind, code, datagram[2:4], token, options, datagram[at + 1 :]


def exchange(peer, options, payload, code=POST):
    message_id, token = int.from_bytes(os.urandom(2), "big"), os.urandom(3)
    peer.send(message(CON, code, message_id, token, options, payload))
    while True:
        kind, code, _, seen, options, payload = parse(peer.recv(2048))
        if code and seen == token:
            if kind == CON:
                peer.send(message(ACK, 0, 0, b"", [], b""))
            return code, options, payload


def initiate(end, host, port, path, how):
    peer = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    peer.settimeout(10)
    peer.connect((host, int(port)))
    where = [(URI_PATH, b".well-known"), (URI_PATH, b"edhoc")]

    def send(body, kind):
        code, options, payload = exchange(peer, where + [(FORMAT, bytes([kind]))], body)
        assert code == CHANGED and (FORMAT, bytes([64])) in options, (code, options, payload)
        return payload

    c_r, message_3 = initiator(end, send)
    if how == "separate":
        assert send(c_r + message_3, 65) == end.message_4(), "message_4"
    context, number = end.context, b"\0"
    inside = bytes([GET, URI_PATH << 4 | len(path)]) + path.encode()
    nonce, aad = context.inputs(context.sender_id, number)
    sealed = AESCCM(context.sender_key, TAG).encrypt(nonce, inside, aad)
    options = [(OSCORE, bytes([0x09]) + number + context.sender_id)]
    if how == "combined":
        options, sealed = options + [(EDHOC, b"")], message_3 + sealed
    code, options, payload = exchange(peer, options, sealed)
    assert (OSCORE, b"") in options, (code, options, payload)
    print(AESCCM(context.recipient_key, TAG).decrypt(nonce, payload, aad).split(b"\xff", 1)[1].decode())


def respond(end, host, port, answer):
    own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    own.bind((host, int(port)))
    print("listening", flush=True)
    responder = Responder(end)
    while True:
        datagram, peer = own.recvfrom(2048)
        _, _, message_id, token, options, payload = parse(datagram)
        reply = lambda code, options, payload: own.sendto(
            message(ACK, code, int.from_bytes(message_id, "big"), token, options, payload), peer
        )
        option = dict(options).get(OSCORE)
        if option is None and payload[:1] == b"\xf5":
            reply(CHANGED, [(FORMAT, bytes([64]))], responder.message_2(payload[1:]))
            continue
        if option is None:
            length, _, _ = item(payload)
            assert payload[:length] == responder.c_r, payload.hex()
            responder.on_message_3(payload[length:])
            reply(CHANGED, [(FORMAT, bytes([64]))], end.message_4())
            continue
        if (EDHOC, b"") in options:
            length, _, _ = item(payload)
            responder.on_message_3(payload[:length])
            payload = payload[length:]
        context, size = end.context, option[0] & 7
        number, kid = option[1 : 1 + size], option[1 + size :]
        assert kid == context.recipient_id, kid.hex()
        nonce, aad = context.inputs(kid, number)
        inside = AESCCM(context.recipient_key, TAG).decrypt(nonce, payload, aad)
        assert inside[0] == GET, inside.hex()
        sealed = AESCCM(context.sender_key, TAG).encrypt(nonce, bytes([CONTENT]) + b"\xff" + answer.encode(), aad)
        reply(CHANGED, [(OSCORE, b"")], sealed)
        return


match sys.argv[1:]:
    case ["initiator", key, credential, host, port, path, how]:
        initiate(End(key, credential), host, port, path, how)
    case ["responder", key, credential, host, port, answer]:
        respond(End(key, credential), host, port, answer)
    case _:
        sys.exit(__doc__)
