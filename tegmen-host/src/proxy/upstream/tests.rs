use super::*;
use crate::proxy::entry::Kind;
use crate::proxy::{Proxy, ProxyConfig, Route};
use std::net::UdpSocket;
use std::sync::Arc;
use tegmen::buf::Frame;
use tegmen::coap::{Builder, MessageRef, MessageType};
use tegmen::identity::{Identity, Principal, Protection};

/// An origin that answers nothing, and the parts of a proxy that has a session with it.
struct World {
    shared: Arc<Shared>,
    pool: Pool,
    origin: Origin,
    upstream: Upstream,
    notifier: Notifier,
    _silent: UdpSocket,
}

async fn world() -> World {
    let silent = UdpSocket::bind("127.0.0.1:0").unwrap();
    let config = ProxyConfig::default().with(|config| config.client.coap.timeout = Duration::from_millis(100));
    let pool = Pool::new(&config);
    let shared = Proxy::new(config).unwrap().shared;
    let port = silent.local_addr().unwrap().port();
    let scheme = TargetScheme::Coap(Scheme::Coap);
    let route = Route { scheme, host: "127.0.0.1", port, name: None, skipped: 0, prefix: "" };
    let mut storage = [0; 64];
    let mut frame = Frame::new(&mut storage, 0);
    Builder::new(&mut frame, MessageType::Confirmable, Code::GET, 1, &[1]).unwrap();
    let upstream = Upstream::new(&MessageRef::parse(frame.bytes()).unwrap(), &route, 1, None);
    let origin = route.origin();
    pool.session(Scheme::Coap, &origin).await.unwrap();
    assert!(pool.has(&origin));
    let notifier = Notifier::of(&mpsc::unbounded_channel().0);
    World { shared, pool, origin, upstream, notifier, _silent: silent }
}

#[tokio::test]
async fn an_observation_forgets_the_session_with_an_origin_that_does_not_answer() {
    let world = world().await;
    let of = ((&world.origin, &world.upstream), (b"key".as_slice(), 0));
    let owner = Owner::new(&Identity { principal: Principal::NOBODY, protection: Protection::Plain }, None);
    let failed = follow(&world.shared, &world.pool, of.0, of.1, owner, ("path", &world.notifier)).await.err().unwrap();
    assert_eq!(failed.code, Code::GATEWAY_TIMEOUT);
    assert!(!world.pool.has(&world.origin));
}

#[tokio::test]
async fn a_protected_observation_forgets_the_session_with_an_origin_that_does_not_answer() {
    // The origin is silent for longer than the client waits, or for longer than the proxy waits.
    for longest in [LONGEST, Duration::from_millis(1)] {
        let world = world().await;
        let (_cancel, cancellations) = mpsc::unbounded_channel();
        let (key, path, notifier) = ((*b"key").into(), "path".to_owned(), world.notifier.clone());
        let relay = Relay { key, entry: Entry::new(&world.shared, Kind::Removed), cancellations, path, notifier };
        relay.run(&world.shared, &world.pool, (&world.origin, &world.upstream), longest).await;
        assert!(!world.pool.has(&world.origin), "{longest:?}");
    }
}
