//! An application that a server can run from its configuration, without code. Its resources are values, files, images,
//! commands, and a counter of PUT requests, which the Blink paper measures ([`Resource::Blink`]).

mod files;
mod image;

pub use image::Image;

use crate::clock;
use crate::etag::etag;
use crate::image::ImageId;
use crate::server::{Application, Notifier, Reply, Request};
use crate::uri::encoded_path;
use files::{Files, Trouble};
use image::Taken;
use std::collections::BTreeMap;
use std::path::{Component, Path, PathBuf};
use std::process::Stdio;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tegmen::coap::link::{self, Link};
use tegmen::coap::observe::REGISTER;
use tegmen::coap::{Block, Code, MessageRef, OptionNumber, Response, block};
use tokio::sync::Semaphore;

/// Maximum number of commands that run at the same time, in all tasks (shards) of a server together.
const MAX_COMMANDS: usize = 8;
/// The Content-Format application/cbor.
const CBOR: u32 = 60;
/// The time after which a command is stopped.
const COMMAND_TIMEOUT: Duration = Duration::from_secs(60);

/// The resource behind a path.
#[derive(Clone)]
pub enum Resource {
    /// Bytes that GET reads and PUT writes. PATCH and iPATCH apply a JSON merge patch (RFC 7396). The value can be
    /// observed.
    Value(Arc<Mutex<Value>>),
    /// A file that GET reads. The file can be observed; the server checks it for changes each second.
    File(PathBuf),
    /// A directory. GET reads the file that the rest of the path names, as for [`Self::File`]. The server does not
    /// follow links that lead out of the directory.
    Directory {
        /// The path of the directory.
        root: PathBuf,
        /// True if PUT writes files and DELETE removes them.
        writable: bool,
    },
    /// A file that GET reads and PUT writes. A sender can replace the file in many members of a group at once: see
    /// [`crate::image`].
    Image(Arc<Image>),
    /// A program that GET, POST, FETCH, PATCH or iPATCH starts. The environment variable `COAP_METHOD` contains the
    /// method, the standard input contains the payload, and the output becomes the response.
    Command(Vec<String>),
    /// A counter of PUT requests. The response is the counter as one byte. The Blink paper, which this project
    /// reproduces, measures this application.
    Blink(Arc<AtomicU8>),
}

/// The content of a [`Resource::Value`].
#[derive(Clone, Debug)]
pub struct Value {
    bytes: Vec<u8>,
    format: Option<u16>,
    /// The entity tag of the value, computed once for each change.
    etag: [u8; 4],
}

impl Value {
    /// Returns a value with this representation and its Content-Format, if the format is known.
    pub fn new(bytes: Vec<u8>, format: Option<u16>) -> Self {
        let etag = etag(&bytes);
        Self { bytes, format, etag }
    }

    /// Returns the representation.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

impl Resource {
    /// Returns a value with these bytes as its first content.
    pub fn value(bytes: &[u8]) -> Self {
        Self::Value(Arc::new(Mutex::new(Value::new(bytes.to_vec(), None))))
    }

    /// True if both resources share the same value or counter, or have the same file, directory or program.
    fn is_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Value(one), Self::Value(other)) => Arc::ptr_eq(one, other),
            (Self::Blink(one), Self::Blink(other)) => Arc::ptr_eq(one, other),
            (Self::Image(one), Self::Image(other)) => Arc::ptr_eq(one, other),
            (Self::File(one), Self::File(other)) => one == other,
            (Self::Directory { root: one, .. }, Self::Directory { root: other, .. }) => one == other,
            (Self::Command(one), Self::Command(other)) => one == other,
            _ => false,
        }
    }

    const fn is_observable(&self) -> bool {
        matches!(self, Self::Value(_) | Self::File(_) | Self::Image(_) | Self::Blink(_))
    }

    const fn kind(&self) -> &'static str {
        match self {
            Self::Value(_) => "value",
            Self::File(_) => "file",
            Self::Directory { .. } => "directory",
            Self::Image(_) => "image",
            Self::Command(_) => "command",
            Self::Blink(_) => "blink",
        }
    }
}

/// A path that another application of the same server serves. `/.well-known/core` lists this path (RFC 6690).
#[derive(Clone, Debug)]
pub struct ListedPath {
    /// The path, without a leading slash.
    pub path: String,
    /// The resource type (`rt`).
    pub resource_type: &'static str,
    /// The Content-Format (`ct`), if it is always the same.
    pub content_format: Option<u16>,
    /// True if the resource can be observed (`obs`).
    pub observable: bool,
}

/// The resources of a server by their paths, without leading slashes. All clones serve the same resources.
#[derive(Clone)]
pub struct Resources {
    /// The version of the resources that this clone serves. The clone replaces this version when it finds a newer one
    /// in [`Newest`].
    set: Arc<Set>,
    newest: Arc<Newest>,
    running: Arc<Semaphore>,
    files: Files,
}

/// One version of the resources. Each change of the resources makes a new set.
#[derive(Clone)]
struct Set {
    by_path: BTreeMap<String, Resource>,
    /// The paths that `/.well-known/core` also lists, because other applications of the same server serve them.
    others: Vec<ListedPath>,
    max_body: usize,
    /// The number of changes of the resources since the first set, which has version 0.
    version: u64,
}

/// The newest set of resources. All clones of a [`Resources`] must serve this set.
struct Newest {
    version: AtomicU64,
    set: Mutex<Arc<Set>>,
}

impl Resources {
    /// Returns an application with these resources, and with `/.well-known/core`, which lists them.
    pub fn new(resources: impl IntoIterator<Item = (String, Resource)>) -> Self {
        let by_path = resources.into_iter().map(|(path, resource)| (path.trim_matches('/').to_owned(), resource));
        let set = Arc::new(Set { by_path: by_path.collect(), others: Vec::new(), max_body: usize::MAX, version: 0 });
        Self {
            set: set.clone(),
            newest: Arc::new(Newest { version: AtomicU64::new(0), set: Mutex::new(set) }),
            running: Arc::new(Semaphore::new(MAX_COMMANDS)),
            files: Files::default(),
        }
    }

    /// Sets the maximum length in bytes of a value after a patch.
    pub fn with_max_body(self, max_body: usize) -> Self {
        let newest = Set { max_body, ..Set::clone(&self.set) };
        self.publish(newest);
        self
    }

    /// Makes `/.well-known/core` also list the paths in `others`, which other applications of the server serve.
    pub fn with_others(self, others: Vec<ListedPath>) -> Self {
        let newest = Set { others, ..Set::clone(&self.newest()) };
        self.publish(newest);
        self
    }

    /// Replaces the resources in all clones by those of `other`, and notifies the observers of paths whose resource
    /// changed or was removed. A [`Resource::Value`] keeps its content if the same value, or a clone of it, is also in
    /// `other`.
    pub fn replace(&self, other: &Self, notifier: &Notifier) {
        let old = self.newest();
        let new = other.newest();
        self.publish(Set::clone(&new));
        let changed = old
            .by_path
            .iter()
            .filter(|(path, resource)| new.by_path.get(*path).is_none_or(|now| !now.is_same(resource)));
        changed.for_each(|(path, _)| notifier.changed(path));
        // Files below directories, too.
        self.files.watched_paths().iter().for_each(|path| notifier.changed(path));
    }

    fn newest(&self) -> Arc<Set> {
        self.newest.set.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn publish(&self, set: Set) {
        let mut newest = self.newest.set.lock().unwrap_or_else(PoisonError::into_inner);
        let version = newest.version + 1;
        *newest = Arc::new(Set { version, ..set });
        self.newest.version.store(version, Ordering::Release);
    }

    /// Returns the resource at a path. For a directory, also returns the rest of the path below the directory.
    fn find<'p>(&self, path: &'p str) -> Option<(&Resource, &'p str)> {
        if let Some(found) = self.set.by_path.get(path) {
            return Some((found, ""));
        }
        let directories =
            self.set.by_path.iter().filter(|(_, resource)| matches!(resource, Resource::Directory { .. }));
        directories
            .filter_map(|(prefix, resource)| match prefix.as_str() {
                "" => Some((resource, path)),
                prefix => Some((resource, path.strip_prefix(prefix)?.strip_prefix('/')?)),
            })
            .min_by_key(|(_, below)| below.len())
    }

    /// Returns the paths that `/.well-known/core` lists.
    pub fn listed(&self) -> Vec<ListedPath> {
        let set = self.newest();
        let own = set.by_path.iter().filter(|(path, _)| !path.is_empty()).map(|(path, resource)| ListedPath {
            path: path.clone(),
            resource_type: resource.kind(),
            content_format: None,
            observable: resource.is_observable(),
        });
        own.chain(set.others.iter().cloned()).collect()
    }

    /// Lists the resources (RFC 6690).
    fn list(&self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let mut listed = self.listed();
        listed.iter_mut().for_each(|listed| listed.path = encoded_path(&listed.path));
        let links = listed.iter().map(|ListedPath { path, resource_type, content_format, observable }| Link {
            path,
            resource_type,
            content_format: *content_format,
            observable: *observable,
        });
        link::respond(request.authorized(), response, links)
    }

    /// Reads, replaces or patches a value.
    fn serve_value(
        &self,
        value: &mut Value,
        request: &Request<'_>,
        response: &mut Response<'_, '_>,
    ) -> Result<(), Code> {
        let message = request.message();
        match message.code() {
            Code::GET => {
                response.observable();
                if is_valid(message, &value.etag, response)? {
                    return Ok(());
                }
                if let Some(format) = value.format {
                    accepts(message, Some(format.into()))?;
                    response.uint(OptionNumber::CONTENT_FORMAT, format.into())?;
                }
                response.payload(&value.bytes)
            }
            Code::PUT => {
                may_change(message, Some(&value.etag))?;
                let format = message.uint(OptionNumber::CONTENT_FORMAT).map(|format| format as u16);
                *value = Value::new(message.payload().to_vec(), format);
                request.changed(request.path());
                response.set_code(Code::CHANGED);
                Ok(())
            }
            Code::PATCH | Code::IPATCH => {
                may_change(message, Some(&value.etag))?;
                let merged = merged(message, &value.bytes)?;
                if merged.len() > self.set.max_body {
                    return Err(Code::REQUEST_ENTITY_TOO_LARGE);
                }
                *value = Value::new(merged, value.format);
                request.changed(request.path());
                response.set_code(Code::CHANGED);
                Ok(())
            }
            _ => Err(Code::METHOD_NOT_ALLOWED),
        }
    }

    /// Reads a file of a directory. If the directory is writable, also writes or removes a file.
    fn serve_file(
        &self,
        file: &Path,
        writable: bool,
        request: &Request<'_>,
        response: &mut Response<'_, '_>,
    ) -> Result<(), Code> {
        let (path, message) = (request.path(), request.message());
        match message.code() {
            Code::GET => self.send(path, file, message, response).map_err(reported(request)),
            Code::PUT if writable => {
                response.set_code(self.files.write(path, file, message).map_err(reported(request))?);
                request.changed(path);
                Ok(())
            }
            Code::DELETE if writable => {
                self.files.remove(path, file, message).map_err(reported(request))?;
                response.set_code(Code::DELETED);
                request.changed(path);
                Ok(())
            }
            _ => Err(Code::METHOD_NOT_ALLOWED),
        }
    }

    /// Answers a request for an image. The request asks for the status of a transfer, contains a block of the image, or
    /// reads or replaces the whole file of the image.
    fn serve_image(
        &self,
        image: &Arc<Image>,
        request: &Request<'_>,
        response: &mut Response<'_, '_>,
    ) -> Result<(), Code> {
        let message = request.message();
        match (message.code(), ImageId::in_query(message)) {
            (Code::GET, Some(id)) => {
                let longest = response.wanted().len().min(block::MAX_SIZE);
                let report = image.report(id, longest, clock::now()).map_err(reported(request))?;
                response.uint(OptionNumber::CONTENT_FORMAT, CBOR)?;
                response.payload(&report.write())
            }
            (Code::PUT, Some(id)) => take_block(image, id, request, response),
            (Code::GET | Code::PUT, None) => self.serve_file(image.file(), true, request, response),
            _ => Err(Code::METHOD_NOT_ALLOWED),
        }
    }

    fn run(&self, argv: &[String], request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        let permit = self.running.clone().try_acquire_owned().map_err(|_| {
            request.because(format!("{MAX_COMMANDS} commands are running"));
            Code::SERVICE_UNAVAILABLE
        })?;
        let responder = request.defer(response);
        let (argv, method, input) = (argv.to_vec(), request.method().name(), request.payload().to_vec());
        tokio::spawn(async move {
            let _permit = permit;
            match tokio::time::timeout(COMMAND_TIMEOUT, output(&argv, method, &input)).await {
                Ok(Ok(out)) if out.is_empty() => responder.send(Reply::new(Code::CONTENT)),
                Ok(Ok(out)) => responder.send(Reply::content(0, out)),
                Ok(Err(Failed { message, cause })) => {
                    let cause = format!("{}: {cause}", argv.join(" "));
                    responder.send(Reply::new(Code::INTERNAL_SERVER_ERROR).payload(message).because(cause));
                }
                Err(_) => {
                    let cause = format!("{}: it took longer than {} s", argv.join(" "), COMMAND_TIMEOUT.as_secs());
                    let reply = Reply::new(Code::SERVICE_UNAVAILABLE).payload("the command took too long");
                    responder.send(reply.because(cause));
                }
            }
        });
        Ok(())
    }

    /// Sends a file. If the client observes the file, the server then checks it for changes each second.
    fn send(
        &self,
        path: &str,
        file: &Path,
        message: &MessageRef<'_>,
        response: &mut Response<'_, '_>,
    ) -> Result<(), Trouble> {
        let sent = files::send(file, message, response)?;
        if message.uint(OptionNumber::OBSERVE) == Some(REGISTER) && self.files.watch(path, file, sent) {
            response.observable();
        }
        Ok(())
    }
}

/// The failure of a command: the message for the client, and the cause for the operator.
struct Failed {
    message: String,
    cause: String,
}

impl Failed {
    fn new(message: impl Into<String>, cause: impl ToString) -> Self {
        Self { message: message.into(), cause: cause.to_string() }
    }
}

async fn output(argv: &[String], method: &str, input: &[u8]) -> Result<Vec<u8>, Failed> {
    use tokio::io::AsyncWriteExt as _;
    let (program, arguments) =
        argv.split_first().ok_or_else(|| Failed::new("there is no command", "--command names no program"))?;
    let mut command = tokio::process::Command::new(program);
    command
        .env("COAP_METHOD", method)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true);
    let mut child = command.spawn().map_err(|error| Failed::new("the command cannot be started", error))?;
    let stdin = child.stdin.take();
    // Written while the output is read: a command may answer before it has read all.
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command that does not read its input closes it; that is its right.
            let _ = stdin.write_all(input).await;
        }
        std::future::pending().await
    };
    let output = tokio::select! {
        output = child.wait_with_output() => output,
        never = feed => never,
    };
    let output = output.map_err(|error| Failed::new("the command cannot be waited for", error))?;
    match output.status.success() {
        true => Ok(output.stdout),
        false => Err(Failed::new(format!("the command failed: {}", output.status), output.status)),
    }
}

/// Takes a block of an image. The response to the last missing block comes after the image has been verified and
/// stored.
fn take_block(
    image: &Arc<Image>,
    id: ImageId,
    request: &Request<'_>,
    response: &mut Response<'_, '_>,
) -> Result<(), Code> {
    let message = request.message();
    let block = message.block(OptionNumber::BLOCK1)?;
    let start = u32::try_from(block.map_or(0, Block::offset)).map_err(|_| Code::BAD_REQUEST)?;
    match image.take(id, start, message.payload(), clock::now()).map_err(reported(request))? {
        Taken::Known => response.set_code(Code::CHANGED),
        Taken::Incomplete => {
            // Behind the last block there is none with which the sender could continue.
            let block = block.filter(|block| block.more).ok_or(Code::REQUEST_ENTITY_INCOMPLETE)?;
            response.set_code(Code::CONTINUE);
            response.uint(OptionNumber::BLOCK1, block.value())?;
        }
        Taken::Whole(whole) => {
            let responder = request.defer(response);
            let (image, notifier, path) = (image.clone(), request.notifier(), request.path().to_owned());
            tokio::task::spawn_blocking(move || match image.finish(whole) {
                Ok(()) => {
                    notifier.changed(&path);
                    responder.send(Reply::new(Code::CHANGED));
                }
                Err(Trouble { code, cause }) => {
                    responder.send(Reply::new(code).because(cause.unwrap_or_default()));
                }
            });
        }
    }
    Ok(())
}

/// Returns a function that reports the cause of an error to the operator, and returns the response code.
fn reported(request: &Request<'_>) -> impl Fn(Trouble) -> Code {
    move |Trouble { code, cause }| {
        cause.into_iter().for_each(|cause| request.because(cause));
        code
    }
}

/// Returns the file that `below` names in a directory. `path` is the path of the whole request.
fn file_below(root: &Path, path: &str, below: &str) -> Result<PathBuf, Code> {
    let below = Path::new(below);
    // Nothing but plain names: no way up, no absolute path, nothing hidden.
    let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
    if below.as_os_str().is_empty() || !plain || path.split('/').any(|part| part.is_empty() || part.starts_with('.')) {
        return Err(Code::NOT_FOUND);
    }
    files::below(root, below).ok_or(Code::NOT_FOUND)
}

impl Application for Resources {
    fn handle(&mut self, request: &Request<'_>, response: &mut Response<'_, '_>) -> Result<(), Code> {
        if self.newest.version.load(Ordering::Acquire) != self.set.version {
            self.set = self.newest();
        }
        let (message, path) = (request.message(), request.path());
        if path == link::WELL_KNOWN_CORE {
            return self.list(request, response);
        }
        let (resource, below) = self.find(path).ok_or(Code::NOT_FOUND)?;
        match (resource, message.code()) {
            (Resource::Value(value), _) => {
                let mut value = value.lock().unwrap_or_else(PoisonError::into_inner);
                self.serve_value(&mut value, request, response)
            }
            (Resource::File(file), Code::GET) => self.send(path, file, message, response).map_err(reported(request)),
            (Resource::Directory { root, writable }, _) => {
                let file = file_below(root, path, below)?;
                self.serve_file(&file, *writable, request, response)
            }
            (Resource::Image(image), _) => self.serve_image(image, request, response),
            (Resource::Command(argv), Code::GET | Code::POST | Code::FETCH | Code::PATCH | Code::IPATCH) => {
                self.run(argv, request, response)
            }
            (Resource::Blink(counter), Code::PUT) => {
                let count = counter.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
                request.changed(path);
                response.set_code(Code::CHANGED);
                response.payload(&[count])
            }
            (Resource::Blink(counter), Code::GET) => {
                response.observable();
                response.payload(&[counter.load(Ordering::Relaxed)])
            }
            _ => Err(Code::METHOD_NOT_ALLOWED),
        }
    }

    fn critical_options(&self) -> &[OptionNumber] {
        const OPTIONS: &[OptionNumber] = &[
            OptionNumber::IF_MATCH,
            OptionNumber::URI_HOST,
            OptionNumber::IF_NONE_MATCH,
            OptionNumber::URI_PORT,
            OptionNumber::URI_PATH,
            OptionNumber::URI_QUERY,
            OptionNumber::ACCEPT,
        ];
        OPTIONS
    }

    fn acts_on_blocks(&self, path: &str, request: &MessageRef<'_>) -> bool {
        request.code() == Code::PUT
            && matches!(self.set.by_path.get(path), Some(Resource::Image(_)))
            && ImageId::in_query(request).is_some()
    }

    fn every_second(&mut self, notifier: &Notifier) {
        for path in self.files.look(|path| notifier.is_observed(path)) {
            notifier.changed(&path);
        }
    }
}

/// Writes the entity tag. Returns true if the request shows that the client already has this representation. The
/// response then has only the entity tag (RFC 7252, section 5.10.6.2).
fn is_valid(message: &MessageRef<'_>, etag: &[u8], response: &mut Response<'_, '_>) -> Result<bool, Code> {
    response.option(OptionNumber::ETAG, etag)?;
    let valid = message.values(OptionNumber::ETAG).any(|known| known == etag);
    if valid {
        response.set_code(Code::VALID);
    }
    Ok(valid)
}

/// Checks If-Match and If-None-Match (RFC 7252, section 5.10.8) before a resource is changed. `etag` is the entity tag
/// of the resource; `None` if the resource does not exist.
fn may_change(message: &MessageRef<'_>, etag: Option<&[u8]>) -> Result<(), Code> {
    let mut wanted = message.values(OptionNumber::IF_MATCH).peekable();
    let matches = |wanted: &[u8]| etag.is_some_and(|etag| wanted.is_empty() || wanted == etag);
    let refused = wanted.peek().is_some() && !wanted.any(matches)
        || message.option(OptionNumber::IF_NONE_MATCH).is_some() && etag.is_some();
    if refused { Err(Code::PRECONDITION_FAILED) } else { Ok(()) }
}

fn accepts(message: &MessageRef<'_>, format: Option<u32>) -> Result<(), Code> {
    match message.uint(OptionNumber::ACCEPT) {
        Some(accept) if Some(accept) != format => Err(Code::NOT_ACCEPTABLE),
        _ => Ok(()),
    }
}

/// Returns a JSON value after a merge patch (RFC 7396; RFC 8132, section 3).
fn merged(message: &MessageRef<'_>, bytes: &[u8]) -> Result<Vec<u8>, Code> {
    const MERGE_PATCH_JSON: u32 = 52;
    if message.uint(OptionNumber::CONTENT_FORMAT) != Some(MERGE_PATCH_JSON) {
        return Err(Code::UNSUPPORTED_CONTENT_FORMAT);
    }
    let patch = serde_json::from_slice(message.payload()).map_err(|_| Code::BAD_REQUEST)?;
    // The present value must be JSON, too. If it is not, the patch does not fit the state of the resource.
    let mut value = serde_json::from_slice(bytes).map_err(|_| Code::CONFLICT)?;
    merge(&mut value, patch);
    serde_json::to_vec(&value).map_err(|_| Code::INTERNAL_SERVER_ERROR)
}

fn merge(target: &mut serde_json::Value, patch: serde_json::Value) {
    use serde_json::Value::{Null, Object};
    let Object(changes) = patch else {
        *target = patch;
        return;
    };
    if !target.is_object() {
        *target = Object(serde_json::Map::new());
    }
    let Object(members) = target else { return };
    for (name, change) in changes {
        if change == Null {
            members.remove(&name);
        } else {
            merge(members.entry(name).or_insert(Null), change);
        }
    }
}
