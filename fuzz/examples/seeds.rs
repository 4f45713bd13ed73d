//! Writes the first inputs of the corpus (seeds): messages, scripts and the records of real handshakes.
//!
//! `cargo run --example seeds` in `fuzz/` writes these files of `corpus/` again. The name of each file describes its
//! content.

use std::path::Path;
use std::{fs, io};
use tegmen::address::{Address, Path as Way};
use tegmen::axiom::Suite;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageType, OptionNumber};
use tegmen::crypto::SignatureScheme;
use tegmen::secret::Secret;
use tegmen_control::access::ace::trl::{Answer, Cursor, TrlError, TrlErrorId, Update};
use tegmen_control::access::ace::{
    Aif, Claims, Confirmation, CoseKey, CreationHints, ErrorCode, ErrorResponse, Hint, IntrospectionRequest,
    IntrospectionResponse, Right, Scope, TokenRequest, TokenResponse,
};
use tegmen_fuzz::duel::{recorded_handshake, step};
use tegmen_fuzz::x509::{CA, CRL, DEVICE, REQUEST};
use tegmen_host::group::groupcomm::{Challenge, Cred, Creds, CredsFilter, GroupKeys, JoinRequest};
use tegmen_host::group::member_file::MemberFile;
use tegmen_lowpan::fragment::Fragments;
use tegmen_lowpan::frame::{self, LinkAddress, PanId};
use tegmen_lowpan::ip::headers;
use tegmen_lowpan::iphc::{Context, Hop};
use tegmen_lowpan::slip::encode;
use tegmen_lowpan::{flood, write_flooded};

fn main() -> io::Result<()> {
    oscore()?;
    group_oscore()?;
    axiom()?;
    delegated_device()?;
    edhoc()?;
    ndn()?;
    cbc()?;
    coap()?;
    responses_and_formats()?;
    certificates()?;
    handshakes()?;
    access()?;
    resumptions()
}

/// Writes packets of NDN, each after the byte that selects the parser, and scripts for the forwarder.
fn ndn() -> io::Result<()> {
    let (interest, data) = (tegmen_fuzz::ndn::interest_seed(), tegmen_fuzz::ndn::data_seed());
    write("ndn", "interest", &[&[1][..], &interest].concat())?;
    write("ndn", "data", &[&[1][..], &data].concat())?;
    write(
        "ndn",
        "lp",
        &[&[1, 100, interest.len() as u8 + 10, 98, 2, 7, 7, 0xfd, 3, 0x20, 0, 80, interest.len() as u8][..], &interest]
            .concat(),
    )?;
    write("ndn", "interest-to-compress", &[&[2][..], &interest].concat())?;
    write("ndn", "data-to-compress", &[&[2][..], &data].concat())?;
    write("ndn", "compressed-interest", &[2, 0xfe, 0x18, 2, 0x89, 1, 6, 0, 255, 1, 1, 1, 1])?;
    let data_head = [2, 0xfe, 0x30, 2, 9, 42, 0x10, b'7', 2, b'2', b'1', 2, 1, 0, 32];
    write("ndn", "compressed-data", &[&data_head[..], &[5; 32], &[0x28]].concat())?;
    write("ndn", "compressed-fragment", &[2, 0xc0, 120, 0, 1, 0xfe, 0x20, 6, 110, 7, 3])?;
    let step = |face: u8, packet: &[u8]| [&[1, face, packet.len() as u8], packet].concat();
    let script = [vec![0], step(3, &interest), step(2, &interest), step(1, &data), step(3, &interest)].concat();
    write("ndn", "answered", &script)?;
    let script = [vec![0], step(3, &interest), step(192 + 1, &interest), step(192 + 2, &interest)].concat();
    write("ndn", "refused", &script)
}

/// Writes messages of EDHOC, each after the byte that selects the case.
fn edhoc() -> io::Result<()> {
    let message_1 = [&[3, 2, 0x58, 0x20][..], &[5; 32], &[0x0e]].concat();
    write("edhoc", "message-1", &[&[0][..], &message_1].concat())?;
    write("edhoc", "message-1-suites", &[&[0, 3, 0x82, 6, 2][..], &message_1[2..], &[0x0f, 0x42, 1, 2]].concat())?;
    let mac = [0x48, 1, 2, 3, 4, 5, 6, 7, 8];
    write("edhoc", "plaintext-2", &[&[1, 0x27, 2][..], &mac].concat())?;
    write(
        "edhoc",
        "plaintext-2-value",
        &[&[1, 0x43, 1, 2, 3, 0xa1, 0x0e, 0xa1, 8, 0xa1, 1, 0xa1, 1, 2][..], &mac, &[0x0f]].concat(),
    )?;
    write("edhoc", "plaintext-3", &[&[2, 2][..], &mac, &[0x0f, 0x41, 7, 0x2e]].concat())?;
    write("edhoc", "message-3", &[&[3, 0x52][..], &[9; 18]].concat())?;
    write("edhoc", "body", &[&[4, 0xf5][..], &message_1].concat())?;
    write("edhoc", "error", &[4, 1, 0x62, b'n', b'o'])?;
    write("edhoc", "combined", &[4, 0x42, 1, 2, 3, 4])?;
    let point = [&[4][..], &[7; 64]].concat();
    let mut storage = [0; tegmen_edhoc::MAX_CREDENTIAL];
    let credential =
        tegmen_edhoc::Credential::write(Some("end"), &[1], point[..].try_into().expect("65 bytes"), &mut storage);
    write("edhoc", "credential", &[&[4], credential.expect("short")].concat())
}

/// Writes messages of ACE, each after the byte that selects the kind of message, and a policy.
fn access() -> io::Result<()> {
    let cnf = Some(Confirmation::Key(CoseKey { kid: Some(vec![1]), ..CoseKey::symmetric(&[7; 16]) }));
    let rights = Aif(vec![Right { path: "/temp".to_owned(), permissions: 17 }]);
    let scope = Some(Scope::of(&rights));
    let text = |text: &str| Some(text.to_owned());
    let seed = |kind: u8, name: &str, message: &[u8]| write("ace", name, &[&[kind], message].concat());
    let request =
        TokenRequest { req_cnf: cnf.clone(), audience: text("rs"), scope: scope.clone(), ..TokenRequest::default() };
    seed(0, "token-request", &request.encode())?;
    let response = TokenResponse { access_token: Some(vec![1, 2]), cnf: cnf.clone(), ..TokenResponse::default() };
    seed(1, "token-response", &response.encode())?;
    let (join, keys) = groupcomm();
    seed(12, "join", &join.encode())?;
    seed(13, "group-keys", &keys.encode())?;
    let uri = Some("coaps://controller/ace-group/lamps".to_owned());
    let file = MemberFile { group: "lamps".to_owned(), member: "hall".to_owned(), controller: uri, keys };
    seed(14, "member-file", &file.encode())?;
    let filter =
        CredsFilter { members: vec![vec![3], vec![0xfd; 16]], excludes: true, ..CredsFilter::of_role("requester") };
    seed(15, "creds-filter", &filter.encode())?;
    let cred = Cred { sender_id: Some(3), address: [0xfd; 16], public_key: vec![7; 44] };
    seed(16, "creds", &Creds { epoch: 2, creds: vec![cred] }.encode())?;
    seed(17, "challenge", &Challenge { scheme: SignatureScheme::ED25519, nonce: [8; 32] }.encode("lamps"))?;
    let token = b"oven;AAECAwQFBgcI".to_vec();
    let hint = Some(Hint::Name("protokey".to_owned()));
    seed(
        2,
        "introspection-request",
        &IntrospectionRequest { scope: scope.clone(), token: token.clone(), hint }.encode(),
    )?;
    seed(2, "session-identity", &token)?;
    let claims = Claims { subject: text("oven"), cnf, scope, expires_in: Some(600), ..Claims::default() };
    seed(3, "introspection-response", &IntrospectionResponse { active: true, claims: claims.clone() }.encode())?;
    seed(4, "error", &ErrorResponse::new(ErrorCode::INVALID_SCOPE).encode())?;
    seed(5, "hints", &CreationHints { auth_server: text("coaps://as"), ..CreationHints::default() }.encode())?;
    seed(6, "claims", &claims.encode())?;
    seed(7, "rights", &rights.encode())?;
    let update = Update { removed: vec![vec![1; 33]], added: vec![] };
    let updates = Answer::Diff { updates: vec![update], cursor: Some(Cursor::At(3)), more: Some(true) };
    seed(8, "updates", &updates.encode())?;
    seed(8, "list", &Answer::Full { hashes: vec![vec![1; 33]], cursor: Some(Cursor::Null) }.encode())?;
    seed(9, "trl-error", &TrlError { error: TrlErrorId::OUT_OF_BOUND_CURSOR, cursor: Some(Cursor::At(42)) }.encode())?;
    seed(9, "query", b"diff=3&cursor=7")?;
    write("policy", "kitchen", POLICY.as_bytes())
}

/// Makes a request to join a group, and the keys of a member.
fn groupcomm() -> (JoinRequest, GroupKeys) {
    let uri = Some("coap://[fd00::1]/ace-group/lamps/node".to_owned());
    let join = JoinRequest {
        group: "lamps".to_owned(),
        sends: true,
        control_uri: uri,
        checks_signatures: false,
        ..JoinRequest::default()
    };
    let keys = GroupKeys {
        group: [1; 16],
        group_id: 0,
        address: ([0xff; 16], 5684),
        suite: Suite::Ccm,
        senders: 16,
        sender_id: Some(3),
        own_address: [0xfd; 16],
        late: vec![0, 1],
        epoch: 2,
        chain: [2; 32],
        secret: Secret::new([3; 32]),
        randoms: [[4; 32], [5; 32]],
        leaf: 9,
        path: vec![[6; 16]; 4].into(),
        controller: Some(vec![7; 91]),
        signature: None,
        creds: None,
    };
    (join, keys)
}

/// A policy. Its first line is a comment that contains a request. The fuzz target asks the policy for the decision on
/// this request.
const POLICY: &str = r##"#GET /a/b,d-1 tag:d,oven tag:k
[[rule]]
name = "n"
subject = ["d-*", "tag:d"]
publisher = "tag:k"
allow = ["GET /a/*", "read /b"]

[[rule]]
subject = "d-9"
publisher = "*"
deny = "* /*"

[[test]]
subject = "d-3"
publisher = ["oven", "tag:k"]
request = "GET /a/1"
expect = "allow"
by = "n"
"##;

/// Writes one seed of a fuzz target.
fn write(target: &str, name: &str, bytes: &[u8]) -> io::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("corpus").join(target);
    fs::create_dir_all(&folder)?;
    fs::write(folder.join(name), bytes)
}

/// Writes scripts for the two endpoints of an OSCORE context, and values of the OSCORE option.
fn oscore() -> io::Result<()> {
    // Requests of both endpoints, delivered in turn, again, damaged; a restart, and the challenge after it.
    write(
        "oscore",
        "exchange",
        &[0, 1, 11, 0, 1, b'a', 2, 0, 0, 2, 0, 0, 128, 0, 2, 1, 0, 4, 1, 9, 3, 133, 0, 0, 2, 2, 0],
    )?;
    write("oscore", "option", &[0x19, 0x05, 0x02, 0x44, 0x61, 0x25])?;
    write("oscore", "forged", &[135, 9, 0, b'c', 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9])?;
    Ok(())
}

/// Writes scripts for three members that use Group OSCORE. Also writes values of the OSCORE option, and a credential.
fn group_oscore() -> io::Result<()> {
    // Requests to all and to one member, delivered, again and damaged, with their responses; a restart, and the
    // challenge after it.
    let exchange = [
        0, 2, 1, 11, b'v', 0, 0, 0, 0, 0, 0, 0, 0, 0, b'a', 18, 0, 0, 2, 0, 2, 1, 0, 34, 0, 0, 0, 0, 18, 0, 0, 0, 1, 0,
        0, 18, 3, 0, 4, 1, 9, 3, 21, 0, 0, 0, 18, 4, 0, 0, 2, 5, 0,
    ];
    write("group_oscore", "exchange", &exchange)?;
    // A request of the Deterministic Client, delivered, and its response; then the request again, and a damaged one.
    let text = [1; 20];
    let shared =
        [&[8, 0][..], &text, &[18, 0, 0, 0], &text, &[2, 1, 0, 34, 0, 0, 0], &text, &[20, 0, 60, 1, 0, 0]].concat();
    write("group_oscore", "deterministic", &shared)?;
    write("group_oscore", "option", &[0x39, 0x05, 0x01, b'g', 0x01])?;
    let mut forged = vec![7, 0x39, 0x05, 0x01, b'g', 0x01, 0, 0, 0, 0, 0, 0, 0];
    forged.extend([5; 120]);
    write("group_oscore", "forged", &forged)?;
    let mut credential = vec![0xa1, 0x08, 0xa1, 0x01, 0xa3, 0x01, 0x01, 0x20, 0x06, 0x21, 0x58, 0x20];
    credential.extend([9; 32]);
    write("group_oscore", "credential", &credential)
}

/// Writes scripts for two members of a group.
fn axiom() -> io::Result<()> {
    // Requests of both, each delivered, again and damaged; a response; a restart, an idle time, and the next epoch of both.
    let exchange = [
        0, 0, 130, 0, 130, 0, 132, 0, 30, 3, 129, 2, 1, 2, 1, 128, 2, 2, 141, 130, 0, 0, 130, 3, 6, 6, 5, 133, 0, 130,
        4,
    ];
    for (suite, name) in ["ccm", "ccm-8", "mac-only"].into_iter().enumerate() {
        let mut script = exchange;
        script[0] = suite as u8;
        write("axiom_member", name, &script)?;
    }
    // A key tree of three members. A join and a new epoch, an eviction, an epoch without signatures, and the messages
    // of it that each member receives: in order, again, late and damaged. Members that missed something catch up.
    let hear = |from: u8, to: u8| (0..4).flat_map(move |who| (from..to).flat_map(move |at| [who << 4 | 4, at]));
    let joined = [&[4, 3, 0][..], &hear(0, 4).collect::<Vec<_>>(), &[2], &hear(2, 6).collect::<Vec<_>>()].concat();
    write("axiom_member", "joined", &joined)?;
    let evicted =
        [&[4, 4, 0x11][..], &hear(0, 5).collect::<Vec<_>>(), &[6, 0, 9, 1, 0x26, 1, 30, 2, 0x23, 0x33]].concat();
    write("axiom_member", "evicted", &evicted)?;
    let pairwise = [&[4, 2, 8, 0x19][..], &hear(0, 8).collect::<Vec<_>>(), &[0x27, 7, 3, 0, 2, 1, 2, 3, 4]].concat();
    write("axiom_member", "pairwise", &pairwise)?;
    // Members that send and listen are admitted until the group is full. One is evicted, one joins again at the other controller, a
    // controller starts again, one gets a SenderID, devices hear everything and catch up.
    let admitted = [0, 0x00, 8, 0x21, 16, 0x42, 24, 0x64, 32, 0x80];
    let heard: Vec<u8> = (0..6).flat_map(|device| (0..8).flat_map(move |at| [device << 3 | 5, at])).collect();
    let script = [&[0, 30][..], &admitted, &[10, 0x88, 0x21, 0x84, 4, 3], &heard, &[6, 14, 6, 7, 15, 23]].concat();
    write("axiom_controller", "signed", &script)?;
    write("axiom_controller", "pairwise", &[&[1, 30][..], &admitted, &[10, 3, 18, 0x83], &heard].concat())?;
    write("axiom_controller", "last-epoch", &[0, 2, 0, 0, 3, 3, 3, 3, 2, 3])?;
    write(
        "axiom_member",
        "forged",
        &[0, 143, 23, 0xfe, 0xfd, 0, 1, 0, 0, 0, 0, 0, 0, 0, 26, 0, 1, 0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9],
    )
}

/// Writes scripts for a device with delegated sessions and its server.
fn delegated_device() -> io::Result<()> {
    // A session with the server, the first epoch and its time, and a ticket of the connection 5 that the device opens. A restart leaves
    // a device without the time and without a session.
    let (begin, time) = ([0, 1, 0, 1], [0, 0x11, 0, 1]);
    let (ticket, opens) = ([2, 5, 1, 0, 9], [7, 0, 0x27, 0]);
    let first = [&begin[..], &ticket, &opens].concat();
    let seed =
        |name: &str, parts: &[&[u8]]| write("delegated_device", name, &[&[0], parts.concat().as_slice()].concat());
    seed("revoked", &[&first, &[3, 5], &opens, &[6, 9], &time, &opens])?;
    seed("next-epoch", &[&first, &begin, &opens, &ticket, &[7, 1], &[0x11, 1, 0], &[9, 7, 1], &time, &[7, 0, 7, 1]])?;
    seed("other-device", &[&begin, &ticket, &[0x12, 5, 1, 0, 9, 7, 0, 7, 1, 0x27, 1]])?;
    seed("damaged", &[&first, &[0x17, 0, 20, 3, 0x17, 0, 1, 0, 0x37, 0, 88, 7], &begin, &[0x17, 0, 1, 1]])?;
    seed("forged", &[&first, &[15], &[7; 87], &[9, 15], &[0; 40]])?;
    seed(
        "handed-over",
        &[&begin, &[4, 3, 0, 0, 9, 1, 8, 1, 4, 4, 0, 0, 9, 2, 4, 6, 0, 0, 9, 3, 8, 2, 3, 3, 8, 1, 9, 8, 2]],
    )?;
    seed(
        "opened",
        &[&begin, &[0x34, 3, 0, 0, 9, 1, 5, 7, 3, 0x74, 3, 0, 0, 9, 30, 1, 3, 3, 5, 7, 3, 0x14, 3, 0, 0, 9, 1]],
    )?;
    seed(
        "full-list",
        &[&first, &[3, 0, 3, 1, 3, 2, 3, 3, 3, 4, 3, 0, 6, 0x13, 255, 255, 255, 255], &begin, &[3, 4, 6]],
    )?;
    seed("cut-refusal", &[&first, &[10, 0, 5, 3, 5, 3, 6, 6, 9, 3, 5, 10, 0, 23, 3, 1, 3, 2, 9], &time, &opens])?;
    seed(
        "cut-epoch",
        &[&first, &[10, 0, 200], &begin, &[3, 5], &opens, &[9], &time, &opens, &begin, &ticket, &[7, 1]],
    )?;
    seed("later", &[&first, &[11, 18, 0], &opens, &[0x11, 0, 0], &opens, &[2, 1, 0, 200, 9, 7, 1, 11, 0, 150, 7, 1]])?;
    seed(
        "wrong-epochs",
        &[&[1, 0, 1, 0, 0x21, 3, 0, 1, 0x41, 0, 1, 0, 1], &begin, &[0x31, 0, 0, 1, 0x51, 0, 9, 0, 1]],
    )?;
    let refuse = [&[0x1c, 1, 2, 4], &[0, 0, 0, 5][..], &[0x1c, 0, 1, 0, 0x1c, 0, 2, 1, 9, 0x5c, 0, 1, 0]].concat();
    seed(
        "strangers",
        &[&first, &refuse, &[0x4e, 0, 0x1e, 2, 13, 0, 4, 0x40, 1, 0, 9], &opens, &[14, 0, 14, 1], &opens],
    )?;
    write("delegated_device", "last-epochs", &[&[1][..], &begin, &begin, &ticket, &begin, &opens, &[6]].concat())
}

/// Writes records of CBC suites with paddings of many lengths, and a premaster secret.
fn cbc() -> io::Result<()> {
    for padding in [0, 16, 64, 240] {
        let text = [&[1][..], &[b'c'; 31], &[0; 32], &vec![padding; usize::from(padding) + 1]].concat();
        write("dtls_cbc", &format!("padding-{padding}"), &text)?;
        let text = [&[3][..], &[b'c'; 27], &[0; 20], &vec![padding; usize::from(padding) + 1]].concat();
        write("dtls_cbc", &format!("sha1-padding-{padding}"), &text)?;
    }
    let premaster = [&[4, 0, 2][..], &[0x11; 20], &[0, 254, 253], &[7; 46]].concat();
    write("dtls_cbc", "premaster", &premaster)?;
    Ok(())
}

/// Writes CoAP messages, the same messages in packets on a serial line, frames of 6LoWPAN, and a script of exchanges.
fn coap() -> io::Result<()> {
    for (name, bytes) in messages() {
        write("coap_message", name, &bytes)?;
        write("slip_ip", name, &packet(&bytes))?;
    }
    for (name, bytes) in frames() {
        write("lowpan", name, &bytes)?;
    }
    write("slip_ip", "seed-please", &[0xc0, b'?', 1, 0xc0])?;
    write("slip_ip", "start", &[&[0xc0, b'!', 1][..], &[7; 66], &[0xc0]].concat())?;
    write("coap_exchange", "all", &exchange_script())?;
    Ok(())
}

/// Writes responses that fit into one message or need several blocks, and payloads of each format.
fn responses_and_formats() -> io::Result<()> {
    for (name, bytes) in
        [("whole", &[0, 200, 50, 0, 7][..]), ("asked", &[4, 0, 9, 30, 2]), ("small", &[0, 20, 3, 63, 0])]
    {
        write("coap_response", name, &[bytes, b"a representation"].concat())?;
    }
    let formats: [(&str, u8, &[u8]); 6] = [
        ("link", 40, b"</temp>;rt=\"temperature\";obs,</a>"),
        ("json", 50, br#"{"a":[1,2.5,null],"b":{"c":"d"}}"#),
        ("cbor", 60, &[0xa1, 0x61, b'a', 0x82, 0x01, 0xf9, 0x3c, 0x00]),
        ("senml", 110, br#"[{"bn":"urn:dev:x:","bt":1.5e9,"bu":"V","n":"v","v":120.1},{"n":"c","t":-5,"vb":true}]"#),
        (
            "senml-cbor",
            112,
            &[0x81, 0xa3, 0x21, 0x61, b'd', 0x00, 0x61, b'n', 0x02, 0xfb, 0x40, 0x5e, 0, 0, 0, 0, 0, 0],
        ),
        ("problem", 0, &[0xa2, 0x20, 0x62, b'n', b'o', 0x21, 0x62, b'i', b't']),
    ];
    for (name, format, bytes) in formats {
        write("formats", name, &[&[format][..], bytes].concat())?;
    }
    write("formats", "uri", b"\0coaps://[2001:db8::1]:5684/a%20b/c?d=e&f")?;
    // The example of the draft (section 4.2.1.1), in its own form and in the form of the grammar; a response with a phantom
    // request and a notification; and the phantom request alone.
    let (server, group) =
        (b"\x20\x01\x0d\xb8\0\0\0\0\0\0\0\0\0\0\0\xab", b"\xff\x35\0\x30\x20\x01\x0d\xb8\0\0\0\0\0\0\0\x23");
    let example = [b"\xa1\0\x83\x82\x20\x50", &server[..], b"\x83\x20\x50", group, b"\x19\xf0\xb0\x41\x7b"].concat();
    write("informative", "example", &example)?;
    let tp_info =
        [b"\0\x83\x82\x20\x81\x50", &server[..], b"\x82\x20\x82\x50", group, b"\x19\xf0\xb0\x41\x7b"].concat();
    write("informative", "grammar", &[b"\xa1", &tp_info[..]].concat())?;
    let (phantom, latest) = (b"\x01\x60\x54temp", b"\x45\x61\x05\x60\x21\x3c\xff22.5");
    let messages = [b"\x01\x47", &phantom[..], b"\x02\x4b", latest].concat();
    write("informative", "messages", &[b"\xa3", &tp_info[..], &messages].concat())?;
    write(
        "informative",
        "ipv4",
        b"\xa1\0\x83\x82\x20\x81\x44\x0a\0\0\x01\x82\x20\x82\x44\xef\xff\x4f\x01\x19\xf0\xb0\x41\x7b",
    )?;
    write("informative", "phantom", phantom)?;
    Ok(())
}

/// Writes certificates, certificate requests, keys and revocation lists.
fn certificates() -> io::Result<()> {
    let listed = |der: &[u8]| [&(der.len() as u32).to_be_bytes()[1..], der].concat();
    let certificate = tegmen_host::x509::CertificateInfo::parse(DEVICE).expect("our own");
    let seeds: [(&str, u8, Vec<u8>); 8] = [
        ("list", 0, listed(DEVICE)),
        ("list-and-ca", 0, [listed(DEVICE), listed(CA)].concat()),
        ("certificate", 1, DEVICE.to_vec()),
        ("request", 2, REQUEST.to_vec()),
        ("key", 3, certificate.spki),
        ("anchor", 4, CA.to_vec()),
        ("crl", 4, CRL.to_vec()),
        ("plain", 5, format!("# lost\n{}\nserial 0a:01 issuer CN=Fuzz CA\n", "0a".repeat(32)).into_bytes()),
    ];
    for (name, form, bytes) in seeds {
        write("x509", name, &[&[form][..], &bytes].concat())?;
    }
    for (name, form) in [("client", 1), ("server", 12), ("device", 3)] {
        write("x509_motes", name, &[&[form][..], &listed(DEVICE)].concat())?;
    }
    let paths: [(&str, &[&str]); 3] =
        [("path", &["device_of_subsub", "subsub", "sub"]), ("alt-name", &["server"]), ("unknown", &["unknown"])];
    for (name, path) in paths {
        let list: Vec<u8> = path.iter().flat_map(|name| listed(&vector(name))).collect();
        write("x509_motes", name, &[&[9][..], &list].concat())?;
        // As they arrive: in fragments of 1, 16 and 144 bytes, in order or each two the other way round.
        for form in [0x11, 0x40, 0x41, 0xc0, 0xc1] {
            write("x509_motes", &format!("{name}-{form:02x}"), &[&[form][..], &list].concat())?;
        }
    }
    write("x509_motes", "pieces", &pieces(&listed(&[7; 40]), 20))
}

/// Splits a Certificate message with this list into fragments. Returns all fragments, each after its length, in the
/// form that the fuzz target reads.
fn pieces(list: &[u8], size: usize) -> Vec<u8> {
    let body = [&[0, 0, list.len() as u8][..], list].concat();
    let piece = |(n, piece): (usize, &[u8])| {
        let (at, len) = ((n * size) as u8, piece.len() as u8);
        [&[len + 12, 11, 0, 0, body.len() as u8, 0, 1, 0, 0, at, 0, 0, len][..], piece].concat()
    };
    let pieces = body.chunks(size).enumerate().flat_map(piece);
    [0xf1].into_iter().chain(pieces).collect()
}

/// Writes the records of handshakes, and scripts for handshakes.
fn handshakes() -> io::Result<()> {
    // The last with connection ids of six bytes.
    for (profile, flags) in [("default", 0), ("minimal", 1), ("with-id", 32 | 3 << 6)] {
        for (n, datagram) in recorded_handshake(flags).iter().enumerate() {
            write("dtls_records", &format!("{profile}-{n}"), datagram)?;
            if datagram[3..5] == [0, 0] && datagram[0] == 22 {
                write("dtls_hello", &format!("{profile}-{n}"), &[&datagram[13..14], &datagram[25..]].concat())?;
            }
        }
        // Both handshakes in scripts: without faults, with repetitions, with losses, and with an unauthenticated peer.
        for target in ["dtls_server", "dtls_client"] {
            for (name, script) in scripts() {
                write(target, &format!("{profile}-{name}"), &[&[flags][..], &script].concat())?;
            }
        }
    }
    Ok(())
}

/// Writes scripts for handshakes that resume a session.
fn resumptions() -> io::Result<()> {
    // After the flags, the byte of a resumption: the endpoint under test, resumption by id, an earlier close, lost
    // keys, changed bytes.
    for how in [0, 1, 2, 3, 4, 6, 8, 9, 64, 65, 128] {
        for (name, script) in scripts() {
            write("dtls_resumed", &format!("{how}-{name}"), &[&[0, how][..], &script].concat())?;
        }
    }
    Ok(())
}

/// Reads the certificate with this name from `vectors/x509`.
fn vector(name: &str) -> Vec<u8> {
    let lines = include_str!("../../vectors/x509/certificates.txt").lines();
    let mut digits = lines.filter_map(|line| line.split_once(' ')).filter(|(known, _)| *known == name);
    let (_, digits) = digits.next().expect("a name in that file");
    let byte = |at| u8::from_str_radix(&digits[at..at + 2], 16).expect("hexadecimal");
    (0..digits.len()).step_by(2).map(byte).collect()
}

fn scripts() -> Vec<(&'static str, Vec<u8>)> {
    let say = [step::ACT, 4, step::ACT, 5, step::DELIVER];
    let close = [step::ACT, 0, step::DELIVER, step::ACT, 1, step::DELIVER];
    let wait = [step::WAIT, 0, 200];
    let faithful = [&[step::DELIVER; 12][..], &say, &say, &close].concat();
    let repeated: Vec<u8> = (0..12).flat_map(|n| [step::DELIVER, step::REPEAT, n, 0]).chain(say).collect();
    let lossy =
        [&[step::DROP][..], &wait, &[step::DELIVER; 3], &[step::DROP], &wait, &wait, &[step::DELIVER; 12], &say];
    let changed: Vec<u8> =
        (0..8).flat_map(|n| [step::CHANGE, 1, 0, 20 + n, 7]).chain(wait).chain([step::DELIVER; 20]).collect();
    let strange: Vec<u8> =
        (0..8).flat_map(|n| [step::DELIVER, step::STRANGER, n, 0, 0, step::EXCERPT, n, 0, 40]).collect();
    let again = [&[step::DELIVER; 12][..], &say, &[step::ACT, 2, step::ACT, 3], &[step::DELIVER; 12], &say].concat();
    let made_up =
        [&[step::DELIVER; 4][..], &[step::MAKE_UP, 0, 15, 21, 254, 253, 0, 0, 0, 0, 0, 0, 0, 9, 0, 2, 2, 40], &say];
    vec![
        ("faithful", faithful),
        ("repeated", repeated),
        ("lossy", lossy.concat()),
        ("changed", changed),
        ("strange", strange),
        ("again", again),
        ("made-up", made_up.concat()),
    ]
}

fn messages() -> Vec<(&'static str, Vec<u8>)> {
    let build = |code, token: &[u8], options: &[(u16, &[u8])], payload: &[u8]| {
        let mut storage = [0; 800];
        let mut frame = Frame::new(&mut storage, 0);
        let mut builder = Builder::new(&mut frame, MessageType::Confirmable, code, 0x1234, token).expect("room");
        for (number, value) in options {
            builder.option(OptionNumber(*number), value).expect("in order");
        }
        builder.payload(payload).expect("room");
        frame.finish().to_vec()
    };
    vec![
        ("ping", vec![0x40, 0, 0, 1]),
        ("blink", build(Code::PUT, &[1], &[(11, b"blink")], &[1])),
        ("long-options", build(Code::GET, &[7; 8], &[(11, &[b'a'; 13]), (15, &[b'b'; 269]), (2049, &[0; 300])], &[])),
        (
            "protected",
            build(Code::POST, b"t", &[(3, b"host"), (9, &[9, 0, 1]), (39, b"coap")], &[1, 0xb1, b'x', 0xff, 7]),
        ),
        ("core", build(Code::GET, &[], &[(11, b".well-known"), (11, b"core"), (15, b"rt=r*"), (17, &[40])], &[])),
    ]
}

fn packet(payload: &[u8]) -> Vec<u8> {
    let end = |last| Address { ip: [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, last], port: 5683, scope: 0 };
    let headers = headers(&Way { local: end(1), remote: end(2) }, 64, payload).expect("it fits");
    encode(headers.iter().chain(payload)).collect()
}

/// Makes a script for one endpoint. The peer sends requests that the endpoint answers at once, answers later or
/// refuses, and repeats these requests. The endpoint also sends its own requests, and the peer answers them.
fn exchange_script() -> Vec<u8> {
    let mut script = vec![0, 0];
    let mut step = |operation: u8, datagram: &[u8]| {
        script.push(operation);
        script.push(datagram.len() as u8);
        script.extend(datagram);
    };
    for (_, message) in messages().iter().filter(|(_, message)| message.len() < 256) {
        step(8, message);
        step(8, message);
        step(8 | 64, message);
    }
    step(0, &[0x41, 1, 0, 9, 5]);
    step(8, &[0x60, 0, 0, 9]);
    step(8, &[0x41, 0x45, 0, 77, 5, 0xff, 1]);
    step(8, &[0x41, 0x45, 0, 77, 5, 0xff, 1]);
    step(0, &[0x41, 1, 0, 10, 6]);
    step(8, &[0x61, 0x45, 0, 10, 6]);
    step(0, &[0x41, 1, 0, 11, 6]);
    step(8, &[0x70, 0, 0, 11]);
    step(8, &[0x41, 2, 0, 12, 6, 0xff, 1]);
    step(4, &[]);
    script
}

/// Makes sequences of frames in the form that [`tegmen_fuzz::lowpan`] reads: a packet in one frame, a packet in
/// fragments, a packet for another node, and a flood.
fn frames() -> Vec<(&'static str, Vec<u8>)> {
    let (own, neighbour, link) = (ip_of(1), ip_of(9), LinkAddress::Short);
    let hop = Hop { source: link(9), destination: link(1) };
    let contexts = [Context { id: 0, prefix: own, len: 64 }];
    let script = |packet: &[u8], flooded: bool| {
        let (mut script, mut out, mut body) = (Vec::new(), [0; 127], [0; 127]);
        let mut fragments = Fragments::new(packet, &hop, &contexts, 7).expect("a packet of ours");
        while let Ok(Some(payload)) = fragments.next_frame(80, &mut out) {
            let header =
                flood::Header { hops_left: 3, originator: link(9), destination: LinkAddress::BROADCAST, sequence: 1 };
            let mut room = [0; 127];
            let payload = if flooded { write_flooded(&header, payload, &mut room).expect("room") } else { payload };
            let frame = frame::write(&frame::Header::data(PanId(0xabcd), link(9), link(1), 1), payload, &mut body);
            let frame = frame.expect("room");
            let without_fcs = &frame[..frame.len() - 2];
            script.extend([1, without_fcs.len() as u8]);
            script.extend(without_fcs);
        }
        script
    };
    let packet = |to: [u8; 16], payload: &[u8]| {
        let address = |ip| Address { ip, port: 0xf0b1, scope: 0 };
        let way = Way { local: address(neighbour), remote: address(to) };
        let mut packet = headers(&way, 64, payload).expect("short").to_vec();
        packet.extend(payload);
        packet
    };
    vec![
        ("one", script(&packet(own, b"hello"), false)),
        ("fragments", script(&packet(own, &[7; 300]), false)),
        ("on", script(&packet(ip_of(3), b"hello"), false)),
        ("flood", script(&packet(own, b"hello"), true)),
    ]
}

fn ip_of(node: u8) -> [u8; 16] {
    [0xfd, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe, 0, 0, node]
}
