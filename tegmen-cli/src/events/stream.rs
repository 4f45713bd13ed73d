//! A parser for server-sent events that arrive in pieces (WHATWG HTML, section 9.2.6).

/// Maximum number of bytes of an event that is not complete.
const LONGEST: usize = 8 << 20;

/// A server-sent event: the fields in the lines of the stream before an empty line. An event may contain only an ID.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(super) struct Event {
    /// The ID of the event; `None` if no line of the event contains an ID.
    pub(super) id: Option<String>,
    /// The type of the event.
    pub(super) kind: String,
    pub(super) data: String,
}

/// The state of the parser: the part of a stream that is not yet complete.
#[derive(Default)]
pub(super) struct Events {
    /// A line whose end has not arrived.
    line: Vec<u8>,
    /// The fields, read so far, of an event whose last line (an empty line) has not arrived.
    block: Event,
}

impl Events {
    /// Reads further bytes of the stream. Returns the events that are now complete.
    pub(super) fn read(&mut self, bytes: &[u8]) -> Result<Vec<Event>, &'static str> {
        let mut complete = Vec::new();
        for piece in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.line.extend_from_slice(piece);
            if self.line.len().saturating_add(self.block.data.len()) > LONGEST {
                return Err(
                    "an event is longer than 8 MiB: compare --server with the address of an access control server",
                );
            }
            if piece.ends_with(b"\n") {
                let line = std::mem::take(&mut self.line);
                let line = String::from_utf8_lossy(&line);
                match line.trim_end_matches(['\r', '\n']) {
                    "" => complete.push(std::mem::take(&mut self.block)),
                    line => self.field(line),
                }
            }
        }
        Ok(complete)
    }

    fn field(&mut self, line: &str) {
        let (name, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match name {
            "id" => self.block.id = Some(value.to_owned()),
            "event" => value.clone_into(&mut self.block.kind),
            "data" => {
                if !self.block.data.is_empty() {
                    self.block.data.push('\n');
                }
                self.block.data.push_str(value);
            }
            // A comment, or a field of a later version.
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests;
