//! A client that reads the stream of events.

use super::Scene;
use super::document::{mistakes, operation};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

/// One connection that follows the events.
pub(crate) struct Follower {
    stream: TlsStream<TcpStream>,
    unread: Vec<u8>,
}

/// One block of the stream of events. An empty line ends a block.
#[derive(Debug, Default)]
pub(crate) struct Block {
    pub(crate) id: Option<u64>,
    pub(crate) event: String,
    pub(crate) data: Value,
}

impl Block {
    /// Reads a block from its text, and checks its data against the document.
    fn of(text: &str) -> Self {
        let mut block = Self::default();
        for line in text.lines() {
            match line.split_once(':').unwrap() {
                ("", _) => {}
                ("id", id) => block.id = Some(id.trim().parse().unwrap()),
                ("event", event) => block.event = event.trim().to_owned(),
                ("data", data) => block.data = serde_json::from_str(data).unwrap(),
                _ => panic!("{line}"),
            }
        }
        if !block.event.is_empty() {
            let response = &operation("GET", "/v1/events").unwrap()["responses"]["200"];
            let schema = &response["content"]["text/event-stream"]["x-event-data"][&block.event];
            assert!(schema.is_object(), "{block:?}");
            assert_eq!(mistakes(schema, &block.data), Vec::<String>::new(), "{block:?}");
        }
        block
    }

    /// Returns the changes in the event.
    pub(crate) fn changes(&self) -> impl Iterator<Item = &Value> {
        self.data["changes"].as_array().into_iter().flatten()
    }
}

impl Follower {
    /// Connects, and follows the events after the event with the ID `after`. If `after` is `None`, follows the events
    /// from now on.
    pub(crate) async fn new(scene: &Scene, key: Option<&str>, after: Option<u64>) -> Self {
        let mut stream = scene.connect().await;
        // A client of HTTP/1.0 gets the body as it is, up to the end of the connection.
        let mut request = "GET /v1/events HTTP/1.0\r\nhost: localhost\r\n".to_owned();
        key.iter().for_each(|key| request += &format!("authorization: Bearer {key}\r\n"));
        after.iter().for_each(|after| request += &format!("last-event-id: {after}\r\n"));
        stream.write_all(format!("{request}\r\n").as_bytes()).await.unwrap();
        let mut follower = Self { stream, unread: Vec::new() };
        let head = follower.until("\r\n\r\n", usize::MAX).await.unwrap();
        assert!(head.starts_with("HTTP/1.0 200 "), "{head}");
        follower
    }

    /// Reads up to this separator, and returns the text before it. Reads at most `most` bytes from the connection.
    /// Returns `None` if the connection or these bytes end before the separator.
    async fn until(&mut self, separator: &str, most: usize) -> Option<String> {
        let (mut left, mut searched) = (most, 0);
        loop {
            let mut places = self.unread[searched..].windows(separator.len());
            if let Some(at) = places.position(|bytes| bytes == separator.as_bytes()).map(|at| searched + at) {
                let rest = self.unread.split_off(at + separator.len());
                let whole = std::mem::replace(&mut self.unread, rest);
                return Some(String::from_utf8(whole[..at].to_vec()).unwrap());
            }
            searched = self.unread.len().saturating_sub(separator.len());
            let mut part = vec![0; left.min(1 << 16)];
            let read = self.stream.read(&mut part).await.unwrap_or(0);
            if read == 0 {
                return None;
            }
            left -= read;
            self.unread.extend_from_slice(&part[..read]);
        }
    }

    /// Returns the next block; `None` at the end of the stream.
    pub(crate) async fn block(&mut self) -> Option<Block> {
        self.block_within(usize::MAX).await
    }

    /// Returns the next block. Reads at most `most` bytes from the connection; returns `None` if the block is not
    /// complete then.
    pub(crate) async fn block_within(&mut self, most: usize) -> Option<Block> {
        self.until("\n\n", most).await.map(|text| Block::of(&text))
    }

    /// Skips blocks up to the next event with this name, and returns the event.
    pub(crate) async fn event(&mut self, event: &str) -> Block {
        loop {
            let block = self.block().await.unwrap_or_else(|| panic!("the stream ended before {event}"));
            if block.event == event {
                return block;
            }
        }
    }
}
