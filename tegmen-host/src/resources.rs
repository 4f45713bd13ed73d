//! An application for servers that are configured, not programmed: values, files, commands, and Blink.

use crate::server::{Application, Later};
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tegmen::coap::handler::{Authorized, Response};
use tegmen::coap::link::{self, Link};
use tegmen::coap::{Code, OptionNumber};
use tokio::sync::Semaphore;

/// Largest representation: what fits one message. Block-wise transfer is not built yet.
pub const MAX_REPRESENTATION: usize = 1024;
/// Commands that run at once, in all shards together.
const MAX_COMMANDS: usize = 8;
/// A command that takes longer is ended.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// What stands behind a path.
#[derive(Clone)]
pub enum Resource {
    /// Bytes that GET reads and PUT writes.
    Value(Arc<Mutex<Vec<u8>>>),
    /// A file that GET reads.
    File(PathBuf),
    /// A directory whose files GET reads, by the rest of the path.
    Directory(PathBuf),
    /// A program that GET or POST runs; its output is the response, the payload of a POST its input.
    Command(Vec<String>),
    /// Counts PUTs and answers with the counter, one byte: the Blink of the paper.
    Blink(Arc<AtomicU8>),
}

impl Resource {
    /// A value that begins with these bytes.
    pub fn value(bytes: &[u8]) -> Self {
        Self::Value(Arc::new(Mutex::new(bytes.to_vec())))
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Value(_) => "value",
            Self::File(_) => "file",
            Self::Directory(_) => "directory",
            Self::Command(_) => "command",
            Self::Blink(_) => "blink",
        }
    }
}

/// Resources by path, without a slash in front.
#[derive(Clone)]
pub struct Resources {
    by_path: Arc<BTreeMap<String, Resource>>,
    running: Arc<Semaphore>,
}

impl Resources {
    /// These resources, and `/.well-known/core` that lists them.
    pub fn new(resources: impl IntoIterator<Item = (String, Resource)>) -> Self {
        let by_path = resources.into_iter().map(|(path, resource)| (path.trim_matches('/').to_owned(), resource));
        Self { by_path: Arc::new(by_path.collect()), running: Arc::new(Semaphore::new(MAX_COMMANDS)) }
    }

    /// The resource of a path, and what of the path goes on below it (for directories).
    fn find<'p>(&self, path: &'p str) -> Option<(&Resource, &'p str)> {
        if let Some(found) = self.by_path.get(path) {
            return Some((found, ""));
        }
        let directories = self.by_path.iter().filter(|(_, resource)| matches!(resource, Resource::Directory(_)));
        directories
            .filter_map(|(prefix, resource)| match prefix.as_str() {
                "" => Some((resource, path)),
                prefix => Some((resource, path.strip_prefix(prefix)?.strip_prefix('/')?)),
            })
            .min_by_key(|(_, below)| below.len())
    }

    fn run(&self, argv: &[String], input: Vec<u8>, later: &Later, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let permit = self.running.clone().try_acquire_owned().map_err(|_| Code::SERVICE_UNAVAILABLE)?;
        let ticket = later.ticket(response);
        let argv = argv.to_vec();
        tokio::spawn(async move {
            let _permit = permit;
            match tokio::time::timeout(COMMAND_TIMEOUT, output(&argv, &input)).await {
                Ok(Ok(out)) if out.len() <= MAX_REPRESENTATION => ticket.respond(Code::CONTENT, Some(0), out),
                Ok(Ok(_)) => ticket.respond(Code::NOT_IMPLEMENTED, None, TOO_LONG.to_vec()),
                Ok(Err(message)) => ticket.respond(Code::INTERNAL_SERVER_ERROR, None, message.into_bytes()),
                Err(_) => ticket.respond(Code::SERVICE_UNAVAILABLE, None, b"the command took too long".to_vec()),
            }
        });
        Ok(())
    }
}

const TOO_LONG: &[u8] = b"longer than one message; block-wise transfer is not built yet";

async fn output(argv: &[String], input: &[u8]) -> Result<Vec<u8>, String> {
    use tokio::io::AsyncWriteExt as _;
    let (program, arguments) = argv.split_first().ok_or("no program")?;
    let mut command = tokio::process::Command::new(program);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null()).kill_on_drop(true);
    let mut child = command.spawn().map_err(|_| "the command cannot be started".to_owned())?;
    if let Some(mut stdin) = child.stdin.take() {
        // A command that does not read its input closes it; that is its right.
        let _ = stdin.write_all(input).await;
    }
    let output = child.wait_with_output().await.map_err(|_| "the command cannot be waited for".to_owned())?;
    if output.status.success() { Ok(output.stdout) } else { Err(format!("the command failed: {}", output.status)) }
}

impl Application for Resources {
    fn handle(&mut self, request: &Authorized<'_>, response: &mut Response<'_, '_>, later: &Later) -> Result<(), Code> {
        let message = request.message();
        let mut path = String::new();
        for segment in message.values(OptionNumber::URI_PATH) {
            let segment = std::str::from_utf8(segment).map_err(|_| Code::BAD_REQUEST)?;
            if !path.is_empty() {
                path.push('/');
            }
            path.push_str(segment);
        }
        if path == link::WELL_KNOWN_CORE {
            let links = self.by_path.iter().filter(|(path, _)| !path.is_empty());
            let link = |(path, resource): (&'_ String, &'_ Resource)| (path.clone(), resource.kind());
            let links: Vec<_> = links.map(link).collect();
            let links = links.iter().map(|(path, kind)| Link { path, resource_type: kind, content_format: None });
            return link::respond(request, response, links);
        }
        let (resource, below) = self.find(&path).ok_or(Code::NOT_FOUND)?;
        match (resource, message.code()) {
            (Resource::Value(value), Code::GET) => {
                response.payload(&value.lock().unwrap_or_else(PoisonError::into_inner))
            }
            (Resource::Value(value), Code::PUT) => {
                if message.payload().len() > MAX_REPRESENTATION {
                    return Err(Code::REQUEST_ENTITY_TOO_LARGE);
                }
                *value.lock().unwrap_or_else(PoisonError::into_inner) = message.payload().to_vec();
                response.set_code(Code::CHANGED);
                Ok(())
            }
            (Resource::File(file), Code::GET) => send_file(file, message.uint(OptionNumber::ACCEPT), response),
            (Resource::Directory(root), Code::GET) => {
                let below = Path::new(below);
                // Nothing but plain names: no way up, no absolute path, nothing hidden.
                let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
                if below.as_os_str().is_empty() || !plain || path.split('/').any(|part| part.starts_with('.')) {
                    return Err(Code::NOT_FOUND);
                }
                send_file(&root.join(below), message.uint(OptionNumber::ACCEPT), response)
            }
            (Resource::Command(argv), Code::GET | Code::POST) => {
                self.run(argv, message.payload().to_vec(), later, response)
            }
            (Resource::Blink(counter), Code::PUT) => {
                let count = counter.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
                response.set_code(Code::CHANGED);
                response.payload(&[count])
            }
            (Resource::Blink(counter), Code::GET) => response.payload(&[counter.load(Ordering::Relaxed)]),
            _ => Err(Code::METHOD_NOT_ALLOWED),
        }
    }
}

fn send_file(file: &Path, accept: Option<u32>, response: &mut Response<'_, '_>) -> Result<(), Code> {
    let meta = std::fs::metadata(file).map_err(|_| Code::NOT_FOUND)?;
    if !meta.is_file() {
        return Err(Code::NOT_FOUND);
    }
    if meta.len() > MAX_REPRESENTATION as u64 {
        response.set_code(Code::NOT_IMPLEMENTED);
        return response.payload(TOO_LONG);
    }
    let format = content_format(file);
    if accept.is_some_and(|accept| Some(accept) != format) {
        return Err(Code::NOT_ACCEPTABLE);
    }
    let bytes = std::fs::read(file).map_err(|_| Code::NOT_FOUND)?;
    if let Some(format) = format {
        response.uint(OptionNumber::CONTENT_FORMAT, format)?;
    }
    response.payload(&bytes)
}

/// The Content-Format that a file's ending stands for (IANA CoAP Content-Formats registry).
fn content_format(file: &Path) -> Option<u32> {
    match file.extension()?.to_str()? {
        "txt" => Some(0),
        "wlnk" => Some(40),
        "xml" => Some(41),
        "json" => Some(50),
        "cbor" => Some(60),
        "senml" => Some(110),
        _ => None,
    }
}
