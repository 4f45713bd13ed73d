//! Nodes, consumers and producers over real sockets.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tegmen_base::buf::Frame;
use tegmen_base::crypto::RustCrypto;
use tegmen_base::secret::Secret;
use tegmen_ndn::certificate::Validity;
use tegmen_ndn::lp::{LpPacket, MAX_FIELDS, NackReason, Part, acks};
use tegmen_ndn::publisher::{ContentKey, TAG_LEN};
use tegmen_ndn::signature::DigestSha256;
use tegmen_ndn::{Component, Data, Interest, Name, ReceivedData, ReceivedInterest};
use tegmen_ndn_host::client::{Client, ClientError, Received, interest_bytes, name_bytes};
use tegmen_ndn_host::keys::{Key, KeyKind, Subject};
use tegmen_ndn_host::node::{Config, Node};
use tegmen_ndn_host::object::{FetchError, Fetched, MAX_ENCRYPTED, Object, fetch};
use tegmen_ndn_host::trust::{Trust, TrustError, now};
use tegmen_ndn_host::uri::FaceUri;
use tokio::sync::oneshot;

/// A node in a thread of its own.
struct Running {
    addresses: Vec<FaceUri>,
    end: Option<oneshot::Sender<()>>,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Running {
    fn start(config: Config) -> Self {
        let (end, ended) = oneshot::channel();
        let (tell, told) = std::sync::mpsc::channel();
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let node = Node::bind(config).await.unwrap();
                tell.send(node.addresses()).unwrap();
                node.run(async { drop(ended.await) }).await;
            });
        });
        Self { addresses: told.recv().unwrap(), end: Some(end), thread: Some(thread) }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.end.take());
        if let Some(thread) = self.thread.take() {
            thread.join().unwrap();
        }
    }
}

fn all_links(name: &str) -> Config {
    let any = "127.0.0.1:0".parse().unwrap();
    let path = std::env::temp_dir().join(format!("tegmen-ndn-{}-{name}.sock", std::process::id()));
    Config { udp: vec![any], tcp: vec![any], unix: vec![path], ..Config::default() }
}

/// Registers `prefix` at the forwarder `to`, and starts a task that answers Interests until the forwarder ends. Each
/// answer contains the text of the Interest's name, and dots up to a length of `len` bytes.
async fn produce(to: FaceUri, prefix: &str, len: usize) {
    let mut client = Client::connect(&to).await.unwrap();
    let prefix = name_bytes(prefix).unwrap();
    client.register(&Name::of_checked(&prefix)).await.unwrap();
    tokio::spawn(async move {
        while let Ok(received) = client.receive().await {
            let Received::Interest(packet) = received else { continue };
            let name = ReceivedInterest::parse(&packet).unwrap().interest.name;
            let mut content = name.to_string().into_bytes();
            content.resize(content.len().max(len), b'.');
            let data = Data { name, freshness: Some(10_000), content: Some(&content), ..Data::default() };
            let packet = client.sign(&data, &DigestSha256).unwrap();
            client.send(&packet).await.unwrap();
        }
    });
}

async fn get(client: &mut Client, text: &str) -> Result<String, ClientError> {
    let name = name_bytes(text).unwrap();
    let interest = Interest { name: Name::of_checked(&name), ..Interest::default() };
    let packet = client.ask(&interest, Duration::from_secs(4)).await?;
    let content = ReceivedData::parse(&packet).unwrap().data.content.unwrap().to_vec();
    Ok(String::from_utf8(content).unwrap())
}

#[tokio::test]
async fn a_consumer_reaches_a_producer_over_each_link() {
    let node = Running::start(all_links("links"));
    for (number, producer) in node.addresses.iter().enumerate() {
        produce(producer.clone(), &format!("/p{number}"), 0).await;
        for consumer in &node.addresses {
            let mut client = Client::connect(consumer).await.unwrap();
            let text = format!("/p{number}/{}", consumer.to_string().len());
            assert_eq!(get(&mut client, &text).await.unwrap(), text, "{producer} from {consumer}");
        }
    }
}

#[tokio::test]
async fn packets_pass_two_nodes_over_each_link_also_in_fragments() {
    let back = Running::start(all_links("back"));
    let unix = |node: &Running| node.addresses.last().unwrap().clone();
    produce(unix(&back), "/long", 6000).await;
    for to in &back.addresses {
        let mut config = all_links("front");
        config.routes = vec![(name_bytes("/long").unwrap(), to.clone(), 1)];
        let front = Running::start(config);
        tokio::time::sleep(Duration::from_millis(100)).await;
        let mut client = Client::connect(&unix(&front)).await.unwrap();
        let text = format!("/long/{}", to.to_string().len());
        let content = get(&mut client, &text).await.unwrap();
        assert_eq!((content.len(), content.starts_with(&text)), (6000, true), "{to}");
    }
}

#[tokio::test]
async fn an_object_of_a_megabyte_is_fetched_in_segments_by_its_prefix_and_by_its_version() {
    let node = Running::start(all_links("object"));
    let to = node.addresses[2].clone();
    let content: Vec<u8> = (0..1_000_000u32).map(|number| (number % 251) as u8).collect();
    let mut producer = Client::connect(&to).await.unwrap();
    let prefix = name_bytes("/file").unwrap();
    let object = Object::new(&mut producer, &Name::of_checked(&prefix), 7, &content, 1000, &DigestSha256).unwrap();
    producer.register(&Name::of_checked(&prefix)).await.unwrap();
    assert_eq!(object.len(), 125);
    let task = tokio::spawn(async move { object.serve(&mut producer).await });
    let mut verify =
        |received: &ReceivedData<'_>| received.signed.verify(&mut RustCrypto::new([1; 32]), &DigestSha256).is_ok();
    for text in ["/file", "/file/v=7"] {
        for link in &node.addresses {
            let mut client = Client::connect(link).await.unwrap();
            let name = name_bytes(text).unwrap();
            let name = Name::of_checked(&name);
            let fetched = fetch(&mut client, &name, Duration::from_secs(2), &mut verify).await.unwrap();
            assert!(fetched.content == content, "{text} at {link}");
            assert_eq!((fetched.segments, fetched.name), (125, name_bytes("/file/v=7").unwrap()));
        }
    }
    let mut client = Client::connect(&to).await.unwrap();
    let name = name_bytes("/file").unwrap();
    let refused =
        fetch(&mut client, &Name::of_checked(&name), Duration::from_secs(2), &mut |_: &ReceivedData<'_>| false).await;
    assert!(matches!(refused, Err(FetchError::NotAuthentic)));
    task.abort();
}

/// Encrypts the content 21.5 as an object of a producer, and serves the object. `start` is the number of the producer's
/// start: it determines the key and its identity.
async fn encrypting(to: &FaceUri, start: u8) -> tokio::task::JoinHandle<()> {
    let mut producer = Client::connect(to).await.unwrap();
    let prefix = name_bytes("/house/temp").unwrap();
    let prefix = Name::of_checked(&prefix);
    let identity = format!("oven;{start:024}");
    let key = (identity.as_bytes(), ContentKey::new(Secret::new([start; 16])));
    let object = Object::encrypted(&mut producer, &prefix, key, 7, b"21.5", 0, &DigestSha256).unwrap();
    producer.register(&prefix).await.unwrap();
    tokio::spawn(async move { drop(object.serve(&mut producer).await) })
}

/// At its second start, a producer uses the version of its first start again, because its clock was set back. The new
/// key has another identity, so the object also has another name. Without the identity in the name, a cache would have
/// two contents for one name, and this test would fail.
#[tokio::test]
async fn an_encrypted_object_is_opened_with_its_key_alone_and_another_start_has_another_name() {
    let node = Running::start(all_links("encrypted"));
    let to = &node.addresses[2];
    let name = name_bytes("/house/temp").unwrap();
    let mut names = Vec::new();
    for start in [1, 2] {
        let task = encrypting(to, start).await;
        let mut client = Client::connect(to).await.unwrap();
        let mut verify = |_: &ReceivedData<'_>| true;
        let name = Name::of_checked(&name);
        let mut fetched = fetch(&mut client, &name, Duration::from_secs(2), &mut verify).await.unwrap();
        let (prefix, identity) = fetched.key().unwrap();
        assert_eq!((prefix, identity), (name, format!("oven;{start:024}").as_bytes()));
        assert_eq!(fetched.content.len(), 4 + TAG_LEN);
        let mut other = fetched.clone();
        other.decrypt(&ContentKey::new(Secret::new([start + 1; 16]))).unwrap_err();
        fetched.decrypt(&ContentKey::new(Secret::new([start; 16]))).unwrap();
        assert_eq!(fetched.content, b"21.5");
        names.push(fetched.name);
        task.abort();
        // The metadata of this start are fresh for 10 ms.
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert_ne!(names[0], names[1]);
}

#[tokio::test]
async fn a_content_that_the_cipher_does_not_take_is_refused() {
    let node = Running::start(all_links("too-long"));
    let mut client = Client::connect(&node.addresses[2]).await.unwrap();
    let prefix = name_bytes("/house/temp").unwrap();
    let mut encrypt = |len| {
        let key = (&b"oven;AAECAwQFBgcI"[..], ContentKey::new(Secret::new([1; 16])));
        Object::encrypted(&mut client, &Name::of_checked(&prefix), key, 7, &vec![0; len], 0, &DigestSha256)
    };
    assert_eq!(encrypt(MAX_ENCRYPTED).unwrap().len(), 9);
    assert!(matches!(encrypt(MAX_ENCRYPTED + 1), Err(ClientError::TooLong(65_536))));
}

#[test]
fn an_object_in_clear_names_no_key() {
    let key =
        |text: &str| Fetched { name: name_bytes(text).unwrap(), content: Vec::new(), segments: 1 }.key().is_some();
    assert!(key("/house/32=key/oven/v=1"));
    for text in ["/house/v=1", "/house/key/oven/v=1", "/house/32=key/v=1", "/32=key/32=oven/v=1", "/32=key/oven/1", "/"]
    {
        assert!(!key(text), "{text}");
    }
}

/// Makes a key, and a certificate of the key. `issuer` signs the certificate. With `None`, the key itself signs the
/// certificate.
fn certified(identity: &str, issuer: Option<&Key>) -> (Key, Vec<u8>) {
    let mut crypto = RustCrypto::new([identity.len() as u8; 32]);
    let identity = name_bytes(identity).unwrap();
    let key = Key::generate(&mut crypto, &Name::of_checked(&identity), KeyKind::P256).unwrap();
    let subject =
        Subject { key_name: key.name(), public_key: key.public_key(), issuer: Component::generic(b"test"), version: 1 };
    let validity = Validity { not_before: now() - 60, not_after: now() + 60 };
    let issuer = issuer.unwrap_or(&key);
    let certificate = issuer.certify(&mut crypto, issuer.name(), &subject, validity).unwrap();
    (key, certificate)
}

#[tokio::test]
async fn an_object_is_fetched_with_the_certificates_of_its_key_and_refused_with_another_anchor() {
    let node = Running::start(all_links("trust"));
    let to = node.addresses[2].clone();
    let (root, anchor) = certified("/file", None);
    let (key, certificate) = certified("/file/x", Some(&root));
    let mut producer = Client::connect(&to).await.unwrap();
    let prefix = name_bytes("/file/x").unwrap();
    let prefix = Name::of_checked(&prefix);
    let content = vec![7; 30_000];
    let object = Object::new(&mut producer, &prefix, 7, &content, 1000, &key.signer(key.name())).unwrap();
    producer.register(&prefix).await.unwrap();
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let task = tokio::spawn(async move {
        while let Ok(received) = producer.receive().await {
            let Received::Interest(packet) = received else { continue };
            let interest = ReceivedInterest::parse(&packet).unwrap().interest;
            if interest.name == key.name() {
                count.fetch_add(1, Ordering::Relaxed);
                producer.send(&certificate).await.unwrap();
            } else if let Some(answer) = object.answer(&interest) {
                producer.send(answer).await.unwrap();
            }
        }
    });
    let within = Duration::from_secs(2);
    let mut client = Client::connect(&to).await.unwrap();
    let mut trust = Trust::new(client.crypto(), vec![anchor], None, now()).unwrap();
    let fetched = fetch(&mut client, &prefix, within, &mut trust).await.unwrap();
    assert_eq!((fetched.content, fetched.segments), (content, 4));
    // One certificate for the metadata and all segments.
    assert_eq!(asked.load(Ordering::Relaxed), 1);
    let (_, anchor) = certified("/file/x/other", None);
    let mut trust = Trust::new(client.crypto(), vec![anchor], None, now()).unwrap();
    let refused = fetch(&mut client, &prefix, within, &mut trust).await.unwrap_err();
    // The certificate is there, and that of its issuer is not.
    let wanted =
        matches!(refused, FetchError::Trust(TrustError::NotFetched(_, ClientError::Nack(NackReason::NO_ROUTE))));
    assert!(wanted, "{refused}");
    task.abort();
}

#[tokio::test]
async fn a_name_without_a_producer_is_refused_at_once_and_so_is_one_whose_producer_is_gone() {
    let node = Running::start(all_links("gone"));
    let mut client = Client::connect(&node.addresses[1]).await.unwrap();
    assert!(matches!(get(&mut client, "/none").await, Err(ClientError::Nack(NackReason::NO_ROUTE))));
    {
        let mut producer = Client::connect(&node.addresses[1]).await.unwrap();
        let prefix = name_bytes("/none").unwrap();
        producer.register(&Name::of_checked(&prefix)).await.unwrap();
    }
    tokio::time::sleep(Duration::from_millis(100)).await;
    assert!(matches!(get(&mut client, "/none").await, Err(ClientError::Nack(NackReason::NO_ROUTE))));
}

#[tokio::test]
async fn an_interest_without_a_nonce_is_given_one() {
    let node = Running::start(all_links("nonce"));
    let mut producer = Client::connect(&node.addresses[2]).await.unwrap();
    let prefix = name_bytes("/a").unwrap();
    producer.register(&Name::of_checked(&prefix)).await.unwrap();
    let mut consumer = Client::connect(&node.addresses[2]).await.unwrap();
    let interest = Interest { name: Name::of_checked(&prefix), ..Interest::default() };
    consumer.send(&interest_bytes(&interest).unwrap()).await.unwrap();
    let Received::Interest(packet) = producer.receive().await.unwrap() else { panic!("no Interest") };
    assert!(ReceivedInterest::parse(&packet).unwrap().interest.nonce.is_some());
}

#[tokio::test]
async fn datasets_show_faces_and_routes() {
    let node = Running::start(all_links("status"));
    produce(node.addresses[2].clone(), "/house/temp", 0).await;
    let mut client = Client::connect(&node.addresses[2]).await.unwrap();
    for (dataset, wanted) in
        [("status/general", "tegmen"), ("faces/list", "unix://"), ("rib/list", "house"), ("fib/list", "house")]
    {
        let name = name_bytes(&format!("/localhost/nfd/{dataset}")).unwrap();
        let interest =
            Interest { name: Name::of_checked(&name), can_be_prefix: true, must_be_fresh: true, ..Interest::default() };
        let packet = client.ask(&interest, Duration::from_secs(4)).await.unwrap();
        let content = ReceivedData::parse(&packet).unwrap().data.content.unwrap().to_vec();
        assert!(content.windows(wanted.len()).any(|bytes| bytes == wanted.as_bytes()), "{dataset}");
    }
}

#[tokio::test]
async fn a_socket_of_a_program_that_ended_is_replaced_and_a_taken_one_is_refused() {
    let path: PathBuf = std::env::temp_dir().join(format!("tegmen-ndn-{}-stale.sock", std::process::id()));
    drop(std::os::unix::net::UnixListener::bind(&path).unwrap());
    let config = Config { unix: vec![path.clone()], ..Config::default() };
    let node = Running::start(config.clone());
    let Err(refused) = Node::bind(config).await else { panic!("two nodes have one socket") };
    assert!(refused.to_string().contains("is in use"), "{refused}");
    drop(node);
    assert!(!path.exists());
}

#[tokio::test]
async fn a_socket_that_cannot_be_opened_is_refused_with_the_reason() {
    for (path, reason) in
        [("/none/there/x.sock".into(), "folder of the socket is missing"), ("/tmp/x".repeat(30), "107 bytes")]
    {
        let config = Config { unix: vec![path.into()], ..Config::default() };
        let Err(refused) = Node::bind(config).await else { panic!("a node has the socket") };
        assert!(refused.to_string().contains(reason), "{refused}");
    }
}

#[tokio::test]
async fn bytes_that_are_no_packet_end_a_stream_and_not_the_node() {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
    let node = Running::start(all_links("garbage"));
    let FaceUri::Tcp(address) = node.addresses[1] else { panic!("no TCP") };
    for garbage in
        [&b"GET / HTTP/1.1\r\n\r\n"[..], &[6, 255, 255, 255, 255, 255, 255, 255, 255, 255], &[100, 254, 0, 1, 0, 0]]
    {
        let mut stream = tokio::net::TcpStream::connect(address).await.unwrap();
        stream.write_all(garbage).await.unwrap();
        assert_eq!(stream.read(&mut [0; 10]).await.unwrap_or(0), 0);
    }
    produce(node.addresses[1].clone(), "/a", 0).await;
    let mut client = Client::connect(&node.addresses[1]).await.unwrap();
    assert_eq!(get(&mut client, "/a/1").await.unwrap(), "/a/1");
}

/// A neighbour with the reliability of NDNLPv2 retransmits an Interest if the acknowledgement of the Interest is lost.
#[tokio::test]
async fn a_retransmitted_lp_packet_is_acknowledged_again_and_not_processed_again() {
    let node = Running::start(Config { reliable: true, ..all_links("again") });
    produce(node.addresses[2].clone(), "/a", 0).await;
    let FaceUri::Udp(address) = node.addresses[0] else { panic!("no UDP") };
    let neighbour = tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap();
    neighbour.connect(address).await.unwrap();
    let name = name_bytes("/a/1").unwrap();
    let interest = Interest { name: Name::of_checked(&name), nonce: Some([1; 4]), ..Interest::default() };
    let interest = interest_bytes(&interest).unwrap();
    let (mut data, mut acknowledged) = (0, Vec::new());
    for tx_sequence in [7, 8] {
        let part = Some(Part { sequence: 70, index: 0, count: 1 });
        let fields = LpPacket { part, tx_sequence: Some(tx_sequence), ..LpPacket::default() };
        let mut storage = [0; MAX_FIELDS + 100];
        let mut frame = Frame::new(&mut storage, MAX_FIELDS);
        frame.append(&interest).unwrap();
        fields.write_around(&mut frame).unwrap();
        neighbour.send(frame.bytes()).await.unwrap();
        let is_done = |data, acknowledged: &[u64]| data > 0 && acknowledged.contains(&tx_sequence);
        while !is_done(data, &acknowledged) {
            let mut bytes = [0; 2_000];
            let len = neighbour.recv(&mut bytes).await.unwrap();
            let packet = LpPacket::parse(&bytes[..len]).unwrap();
            assert_eq!(packet.nack, None);
            if packet.fragment.is_some() {
                let part = packet.part.expect("a reliable face numbers each packet");
                assert_eq!((part.index, part.count), (0, 1));
                data += 1;
            }
            acknowledged.extend(acks(&bytes[..len]));
        }
    }
}

/// After a restart the neighbour has the same address, and its packets must not be taken for those before the restart.
#[tokio::test]
async fn packets_of_a_neighbour_that_restarts_are_processed() {
    let far = Running::start(Config { reliable: true, ..all_links("restart-far") });
    produce(far.addresses[2].clone(), "/far", 0).await;
    let mut config = all_links("restart-near");
    config.routes = vec![(name_bytes("/far").unwrap(), far.addresses[0].clone(), 1)];
    config.reliable = true;
    for number in 0..3 {
        let near = Running::start(config.clone());
        let FaceUri::Udp(address) = near.addresses[0] else { panic!("no UDP") };
        config.udp = vec![address];
        let mut client = Client::connect(&near.addresses[1]).await.unwrap();
        // One Interest, which the client does not repeat.
        let name = name_bytes(&format!("/far/{number}")).unwrap();
        let name = Name::of_checked(&name);
        let interest = Interest { name, nonce: Some([number; 4]), lifetime: Some(10_000), ..Interest::default() };
        client.send(&interest_bytes(&interest).unwrap()).await.unwrap();
        let received = tokio::time::timeout(Duration::from_secs(10), client.receive()).await;
        assert!(matches!(received, Ok(Ok(Received::Data(_)))), "after {number} restarts");
    }
}

/// Passes datagrams between a client and a server, and drops one of each `every` datagrams.
async fn lossy_relay(server: FaceUri, every: u64) -> FaceUri {
    let FaceUri::Udp(server) = server else { panic!("a UDP address") };
    let (near, far) = (
        tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap(),
        tokio::net::UdpSocket::bind("127.0.0.1:0").await.unwrap(),
    );
    let address = FaceUri::Udp(near.local_addr().unwrap());
    tokio::spawn(async move {
        let (mut there, mut back, mut client, mut random) = ([0; 2000], [0; 2000], None, 1u64);
        let mut is_lost = || {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33).is_multiple_of(every)
        };
        loop {
            tokio::select! {
                Ok((len, from)) = near.recv_from(&mut there) => {
                    client = Some(from);
                    if !is_lost() {
                        far.send_to(&there[..len], server).await.unwrap();
                    }
                }
                Ok((len, _)) = far.recv_from(&mut back) => {
                    if let Some(client) = client && !is_lost() {
                        near.send_to(&back[..len], client).await.unwrap();
                    }
                }
            }
        }
    });
    address
}

/// Requests 40 names, each once, over a link that loses a quarter of the datagrams. Returns the number of answers.
async fn answers_over_a_lossy_link(name: &str, reliable: bool, retransmissions: u8) -> usize {
    let any = "127.0.0.1:0".parse().unwrap();
    let far = Running::start(Config { reliable, ..all_links(&format!("{name}-far")) });
    produce(far.addresses[2].clone(), "/far", 3_000).await;
    let relay = lossy_relay(far.addresses[0].clone(), 4).await;
    let path = std::env::temp_dir().join(format!("tegmen-ndn-{}-{name}-near.sock", std::process::id()));
    let routes = vec![(name_bytes("/far").unwrap(), relay, 1)];
    let (udp, unix) = (vec![any], vec![path]);
    let near = Running::start(Config { udp, unix, routes, reliable, retransmissions, ..Config::default() });
    // With the longer lifetime, each answer to a repeated packet arrives in time, also on a slow machine.
    let lifetime = if reliable || retransmissions > 0 { 8_000 } else { 2_000 };
    let mut consumers = tokio::task::JoinSet::new();
    let free = Arc::new(tokio::sync::Semaphore::new(8));
    for number in 0..40 {
        let (face, free) = (near.addresses[1].clone(), free.clone());
        consumers.spawn(async move {
            let _permit = free.acquire_owned().await.unwrap();
            let mut client = Client::connect(&face).await.unwrap();
            let name = name_bytes(&format!("/far/{number}")).unwrap();
            let name = Name::of_checked(&name);
            let interest = Interest { name, nonce: Some([number; 4]), lifetime: Some(lifetime), ..Interest::default() };
            client.send(&interest_bytes(&interest).unwrap()).await.unwrap();
            matches!(
                tokio::time::timeout(Duration::from_millis(lifetime), client.receive()).await,
                Ok(Ok(Received::Data(_)))
            )
        });
    }
    consumers.join_all().await.into_iter().filter(|answered| *answered).count()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reliable_link_delivers_what_another_loses() {
    let (without, with) =
        (answers_over_a_lossy_link("unreliable", false, 0).await, answers_over_a_lossy_link("reliable", true, 0).await);
    // An Interest and three fragments pass, each with 3 of 4: a third of the answers. With three retransmissions, 98 of 100.
    assert!(without < 25, "{without}");
    assert!(with > 34, "{with}");
}

/// The next hop repeats nothing. It answers a repeated Interest from its content store.
#[tokio::test(flavor = "multi_thread")]
async fn a_node_that_repeats_interests_gets_what_the_link_loses() {
    let answers = answers_over_a_lossy_link("repeating", false, 63).await;
    // In each half second, a third of the waiting Interests get an answer. After 15 half seconds, 99 of 100 have an
    // answer.
    assert!(answers > 34, "{answers}");
}
