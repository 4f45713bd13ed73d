//! Tests of a device on a host: the answers of the device to its delegation server and to other peers.

use crate::world::{LAMP, Scene, TIME};
use std::net::SocketAddr;
use tegmen::buf::Writer;
use tegmen_base::secret::Secret;
use tegmen_coap::Code;
use tegmen_control::delegated::{DelegatedDevice, DeviceSettings, Scopes};
use tegmen_delegation::{DeviceKey, EXPORTER, Epoch, Request};
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::credentials::Credentials;
use tegmen_host::server::{Listen, Router, Server, ServerConfig};
use tegmen_host::uri::Scheme;
use tegmen_trust::provider::HostCrypto;

/// The key of a client. The credentials of the device allow every request of this client.
const CLIENT_KEY: &[u8] = b"0123456789abcdef";

fn key() -> DeviceKey {
    DeviceKey(Secret::new([7; 32]))
}

/// Starts a device, and the DTLS server that is the endpoint of the device. The state of the device is a file in
/// `scene`.
fn start(scene: &Scene) -> (Server, SocketAddr, DelegatedDevice) {
    let settings = DeviceSettings {
        name: LAMP.to_owned(),
        key: Some(key()),
        state: scene.0.join("lamp.state"),
        scopes: Scopes::default(),
    };
    let credentials = Credentials::single("client", CLIENT_KEY);
    let device = DelegatedDevice::open(settings, credentials.clone()).unwrap();
    let config = ServerConfig::default().with(|config| {
        config.listen = vec![Listen { address: "127.0.0.1:0".parse().unwrap(), scheme: Scheme::Coaps }];
        config.shards = 1;
        device.configure(config);
    });
    let [of_get, of_post] = [device.clone(), device.clone()];
    let router = Router::new().on(Code::GET, "/dlg/*", move |request, response| of_get.handle(request, response)).on(
        Code::POST,
        "/dlg/*",
        move |request, response| of_post.handle(request, response),
    );
    let server = Server::with(config).credentials(credentials).policy(device.policy(false)).serve(router).unwrap();
    let address = server.addresses()[0].address;
    (server, address, device)
}

/// Opens a session with the device, as its delegation server does in this epoch. `random` is different for each
/// session.
async fn session_of_server(address: SocketAddr, epoch: &Epoch, random: u8) -> Session {
    let identity = format!("{LAMP};{};{random}", epoch.number);
    let psk = epoch.key.psk::<HostCrypto>(identity.as_bytes());
    let config = ClientConfig::psk(identity, &psk.expose()[..]).with(|config| config.export = Some(EXPORTER));
    Session::connect_to(address, Scheme::Coaps, config).await.unwrap()
}

/// Sends a request in a session, and returns the code of the response.
async fn send(session: &Session, request: &Request<'_>) -> Code {
    let mut room = [0; 64];
    let mut payload = Writer::new(&mut room);
    request.write(&mut payload).unwrap();
    let path = request.resource().path();
    match request {
        Request::Status => session.get(path).await.unwrap().code,
        _ => session.post(path, payload.written()).await.unwrap().code,
    }
}

/// Returns the request to begin the epoch after `before`, and this epoch. The epoch is derived from the keying material
/// of the session.
fn to_begin(before: &Epoch, session: &Session) -> (Request<'static>, Epoch) {
    let next = before.next::<HostCrypto>(&session.exported().unwrap()).unwrap();
    let time = u32::try_from(TIME).unwrap();
    (Request::Epoch { number: next.number, time, check: next.check::<HostCrypto>() }, next)
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_device_uses_the_keying_material_of_a_session_for_one_epoch() {
    let scene = Scene::new("device-material");
    let (_server, address, device) = start(&scene);
    runtime().block_on(async {
        let before = Epoch::first(key());
        let session = session_of_server(address, &before, 1).await;
        let wrong = Request::Epoch { number: 1, time: u32::try_from(TIME).unwrap(), check: [0; 8] };
        assert_eq!(send(&session, &wrong).await, Code::CONFLICT);
        let (begin, first) = to_begin(&before, &session);
        assert_eq!(send(&session, &begin).await, Code::CHANGED);
        let (again, _) = to_begin(&first, &session);
        assert_eq!((send(&session, &again).await, device.status().epoch), (Code::CONFLICT, 1));
        let session = session_of_server(address, &first, 2).await;
        let (begin, _) = to_begin(&first, &session);
        assert_eq!((send(&session, &begin).await, device.status().epoch), (Code::CHANGED, 2));
    });
}

#[test]
fn only_the_delegation_server_sends_requests_to_the_resources_of_a_device() {
    let scene = Scene::new("device-other-peer");
    let (_server, address, device) = start(&scene);
    runtime().block_on(async {
        let of_server = session_of_server(address, &Epoch::first(key()), 1).await;
        let config = ClientConfig::psk("client", CLIENT_KEY);
        let of_client = Session::connect_to(address, Scheme::Coaps, config).await.unwrap();
        let missing = of_client.get("temp").await.unwrap();
        assert_eq!(missing.code, Code::NOT_FOUND, "the credentials allow every request");
        let requests = [to_begin(&Epoch::first(key()), &of_server).0, Request::Refuse(5), Request::Status];
        let before = device.status();
        for request in &requests {
            assert_eq!(send(&of_client, request).await, Code::FORBIDDEN, "{request:?}");
        }
        assert_eq!(device.status(), before);
        for request in &requests {
            assert!(send(&of_server, request).await.is_success(), "{request:?}");
        }
    });
}
