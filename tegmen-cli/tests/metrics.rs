//! Tests the metrics endpoint of `tegmen serve`, also with clients that open connections and send no complete request.
#![cfg(target_os = "linux")]

#[allow(dead_code, reason = "each test uses its part")]
mod works;

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;
use works::{Plain, Scene, Server};

fn connect(to: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(to).unwrap();
    stream.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    stream
}

#[test]
fn half_requests_hold_few_descriptors_and_end() {
    let scene = Scene::new("metrics");
    let options = ["--value", "/a=1", "--plain", "--no-secure", "--shards", "1", "--metrics", "127.0.0.1:0", "--json"];
    let server = Server::start(&scene.0, &options, 2);
    let open = || std::fs::read_dir(format!("/proc/{}/fd", server.process.id())).unwrap().count();
    let before = open();
    let silent: Vec<TcpStream> = (0..20)
        .map(|n| {
            let mut stream = connect(server.addresses[1]);
            stream.write_all(if n % 2 == 0 { b"" } else { b"GET /metrics HTTP/1.1\r\nHost: " }).unwrap();
            stream
        })
        .collect();
    // Connections are accepted in order, so those before it were, or have ended.
    let mut scrape = connect(server.addresses[1]);
    scrape.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n").unwrap();
    let mut page = String::new();
    // To the end: it is closed after the answer.
    scrape.read_to_string(&mut page).unwrap();
    assert!(page.starts_with("HTTP/1.1 200 OK\r\n") && page.ends_with("# EOF\n"), "{page}");
    let held = open() - before;
    assert!(held <= 16, "{held} descriptors are held");
    assert_eq!(Plain::to(server.addresses[0]).get("a"), 205);
    for mut stream in silent {
        let ended = stream.read(&mut [0; 1]);
        assert!(matches!(ended, Ok(0)) || ended.is_err_and(|error| error.raw_os_error() == Some(104)), "it ends");
    }
}
