//! Tests clients whose server is restarted. The new server does not know their sessions and observations.

use std::net::{SocketAddr, UdpSocket};
use std::path::Path;
use std::time::Duration;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, Code, MessageRef, MessageType, OptionNumber};
use tegmen_host::client::{ClientConfig, ClientError, ClientKey, Response, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::resources::{Resource, Resources};
use tegmen_host::server::{Listen, Server, ServerConfig};
use tegmen_host::state::Database;
use tegmen_host::uri::Scheme;

struct Running {
    server: Server,
    database: Option<Database>,
    address: SocketAddr,
}

impl Running {
    fn start(value: &[u8], state: Option<&Path>, at: Option<SocketAddr>) -> Self {
        let database = state.map(|file| Database::open(file).unwrap());
        let address = at.unwrap_or("127.0.0.1:0".parse().unwrap());
        let listen = vec![Listen { address, scheme: Scheme::Coaps }];
        let mut config = ServerConfig::default();
        config.listen = listen;
        config.shards = 1;
        config.state = database.clone();
        let resources = Resources::new([("value".to_owned(), Resource::value(value))]);
        let credentials = Credentials::single("me", b"key");
        let server = Server::with(config).credentials(credentials.clone()).serve(resources).unwrap();
        let address = server.addresses()[0].address;
        Self { server, database, address }
    }

    /// Ends the server in the same way as `kill -9`: the clients receive nothing.
    fn kill(self) -> SocketAddr {
        if let Some(database) = &self.database {
            database.flush().unwrap();
            database.abandon();
        }
        drop(self.server);
        self.address
    }
}

fn config() -> ClientConfig {
    let key = ClientKey { identity: "me".to_owned(), key: b"key".to_vec().into() };
    ClientConfig::default().with(|config| {
        config.trust.key = Some(key);
        config.coap.timeout = Duration::from_secs(30);
    })
}

async fn ask(client: &Session, method: Code) -> Result<Response, ClientError> {
    client.request(method, "value").await
}

#[tokio::test]
async fn a_request_to_a_server_that_forgot_the_session_begins_another() {
    let running = Running::start(b"first", None, None);
    let client = Session::connect_to(running.address, Scheme::Coaps, config()).await.unwrap();
    assert_eq!(ask(&client, Code::GET).await.unwrap().payload, b"first");
    let address = running.kill();
    let _running = Running::start(b"second", None, Some(address));
    assert_eq!(ask(&client, Code::GET).await.unwrap().payload, b"second");
}

#[tokio::test]
async fn a_post_is_not_repeated_and_nothing_is_without_reconnection() {
    let running = Running::start(b"first", None, None);
    let client = Session::connect_to(running.address, Scheme::Coaps, config()).await.unwrap();
    let mut fixed = config();
    fixed.recovery.reconnect = false;
    fixed.coap.timeout = Duration::from_secs(3);
    let other = Session::connect_to(running.address, Scheme::Coaps, fixed).await.unwrap();
    let address = running.kill();
    let _running = Running::start(b"second", None, Some(address));
    let (posted, got) = tokio::join!(ask(&client, Code::POST), ask(&other, Code::GET));
    assert!(matches!(posted, Err(ClientError::Ended { .. })), "{posted:?}");
    assert!(got.is_err(), "{got:?}");
    assert_eq!((client.reconnects(), other.reconnects()), (0, 0));
    // The next one begins a session before it is sent.
    ask(&client, Code::POST).await.unwrap();
    assert_eq!(client.reconnects(), 1);
}

#[tokio::test]
async fn an_observation_goes_on_after_its_server_was_killed_with_and_without_state() {
    let state = std::env::temp_dir().join(format!("tegmen-reconnect-{}.db", std::process::id()));
    let remove = || {
        for end in ["", "-wal", "-shm", ".key", ".place", ".place.new"] {
            let _ = std::fs::remove_file(format!("{}{end}", state.display()));
        }
    };
    remove();
    for (state, reconnects) in [(Some(state.as_path()), 0), (None, 1)] {
        let running = Running::start(b"first", state, None);
        let mut config = config();
        config.recovery.alive = Some(Duration::from_secs(1));
        let client = Session::connect_to(running.address, Scheme::Coaps, config).await.unwrap();
        let mut observation = client.observe("value").await.unwrap();
        assert_eq!(observation.next().await.unwrap().unwrap().payload, b"first");
        let address = running.kill();
        let running = Running::start(b"second", state, Some(address));
        let reply = observation.next().await.unwrap().unwrap();
        assert_eq!((reply.code, reply.payload), (Code::CONTENT, b"second".to_vec()));
        assert!(observation.is_registered());
        assert_eq!(observation.reconnects(), reconnects);
        running.kill();
    }
    remove();
}

/// The code and the options of a response.
type Answer = (Code, Vec<(OptionNumber, Vec<u8>)>);

/// Starts a server without protection that gives one of these answers to each request. The thread returns the requests.
fn answer(socket: UdpSocket, answers: Vec<Answer>) -> std::thread::JoinHandle<Vec<Vec<u8>>> {
    std::thread::spawn(move || {
        let mut asked = Vec::new();
        for (code, options) in answers {
            let mut datagram = [0; 1500];
            let (len, from) = socket.recv_from(&mut datagram).unwrap();
            let message = MessageRef::parse(&datagram[..len]).unwrap();
            let mut storage = [0; 200];
            let mut frame = Frame::new(&mut storage, 0);
            let (id, token) = (message.message_id(), message.token());
            let mut builder = Builder::new(&mut frame, MessageType::Acknowledgement, code, id, token).unwrap();
            for (number, value) in options {
                builder.option(number, &value).unwrap();
            }
            builder.payload(&[]).unwrap();
            socket.send_to(frame.bytes(), from).unwrap();
            asked.push(datagram[..len].to_vec());
        }
        asked
    })
}

#[tokio::test]
async fn an_observation_that_is_registered_again_repeats_the_echo_that_is_asked_of_it() {
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    let address = socket.local_addr().unwrap();
    let representation =
        |observe: u8| (Code::CONTENT, vec![(OptionNumber::OBSERVE, vec![observe]), (OptionNumber::MAX_AGE, vec![])]);
    let challenge = (Code::UNAUTHORIZED, vec![(OptionNumber::ECHO, b"fresh".to_vec())]);
    let asked = answer(socket, vec![representation(7), challenge, representation(1)]);
    let client = Session::connect_to(address, Scheme::Coap, ClientConfig::default()).await.unwrap();
    let mut observation = client.observe("value").await.unwrap();
    observation.next().await.unwrap().unwrap();
    // Max-Age is 0.
    let again = observation.next().await.unwrap().unwrap();
    assert_eq!(again.code, Code::CONTENT);
    assert!(observation.is_registered());
    let asked = asked.join().unwrap();
    let last = MessageRef::parse(&asked[2]).unwrap();
    assert_eq!(last.option(OptionNumber::ECHO), Some(&b"fresh"[..]));
    assert_eq!(last.token(), MessageRef::parse(&asked[0]).unwrap().token(), "one entry at the server");
}
