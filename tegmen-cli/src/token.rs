//! `tegmen token`: gets access tokens from an access control server for a resource server. The tokens are for OSCORE
//! (RFC 9203), or for EDHOC with OSCORE.

use crate::connect::{Connect, access_control};
use crate::files::{Readers, read_secret, write};
use crate::output::{Failure, Output, printable, runtime};
use clap::{Args, Subcommand};
use serde::Deserialize;
use serde_json::json;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tegmen::coap::Rule;
use tegmen_control::access::ace::oscore::InputMaterial;
use tegmen_control::access::ace::{Aif, Confirmation, Profile, Right, TokenResponse};
use tegmen_control::subscriber::NotGranted;
use tegmen_control::token_client::{post_alone, post_token, public_key, request_token};
use tegmen_host::client::{ClientConfig, Session};
use tegmen_host::contexts;
use tegmen_host::edhoc::{Transfer, read_key};
use tegmen_host::hex::{from_hex, to_hex};
use tegmen_host::uri::{Scheme, Uri};
use zeroize::Zeroizing;

#[derive(Args)]
pub(crate) struct Token {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Request a token from an access control server, and write it to a file that only you can read.
    #[command(after_help = "Examples:\n  \
        tegmen token request coaps://access.example -u display -k 00ff --audience oven --allow 'GET /temp' --output oven.token\n  \
        tegmen token request coaps://access.example -u display -k 00ff --update oven.token --allow 'PUT /light' --output more.token\n  \
        tegmen token request coaps://access.example -u display -k 00ff --audience lock --own-key display.edhoc --allow 'GET /state' --output lock.token")]
    Request(Box<Request>),
    /// Post a token at its resource server, and write the OSCORE context that client and server derive. If the token
    /// updates rights, change the rights of an existing context instead.
    #[command(after_help = "Examples:\n  \
        tegmen token post oven.token coap://oven.example --context oven && tegmen get --oscore oven coap://oven.example/temp\n  \
        tegmen token post more.token coap://oven.example --context oven     # a token that updates the rights of this context\n  \
        tegmen token post lock.token coap://lock.example && tegmen get --edhoc display.edhoc --edhoc-server lock.pub coap://lock.example/state\n\n\
        Post a token again, with another directory, when the resource server has forgotten it: the keys are new.")]
    Post(Post),
}

#[derive(Args)]
struct Request {
    /// The access control server: coaps://host[:port].
    uri: String,
    /// The name of the resource server.
    #[arg(long, value_name = "NAME", required_unless_present = "update")]
    audience: Option<String>,
    /// A right, such as 'GET /temp'; may be repeated.
    #[arg(long, value_name = "RULE", required = true, value_parser = right)]
    allow: Vec<Right>,
    /// Request other rights for the OSCORE context of the token in this file, at the same resource server.
    #[arg(long, value_name = "FILE", conflicts_with = "audience")]
    update: Option<PathBuf>,
    /// Bind the token to the key in this file, made with `tegmen edhoc new`. The resource server must be of the kind
    /// edhoc.
    #[arg(long, value_name = "FILE", conflicts_with = "update")]
    own_key: Option<PathBuf>,
    /// Write the token to this file.
    #[arg(long, value_name = "FILE")]
    output: PathBuf,
    #[command(flatten)]
    connect: Connect,
}

#[derive(Args)]
struct Post {
    /// The file with the token.
    token: PathBuf,
    /// The resource server: coap://host[:port].
    uri: String,
    /// Directory of the OSCORE context. The command creates it. For a token that updates the rights, name the
    /// directory of the context in use. Do not give this option for a token that is bound to a key of your own.
    #[arg(long, value_name = "DIR")]
    context: Option<PathBuf>,
}

/// The content of the file of a token.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct TokenFile {
    audience: String,
    /// The time at which the token expires, in seconds since 1970.
    expires: u64,
    /// The payload of the response of the access control server, in hexadecimal.
    response: String,
}

impl Token {
    pub(crate) fn run(self, out: Output) -> Result<ExitCode, Failure> {
        match self.command {
            Command::Request(request) => request.run(out)?,
            Command::Post(post) => post.run(out)?,
        }
        Ok(ExitCode::SUCCESS)
    }
}

impl Request {
    fn run(self, out: Output) -> Result<(), Failure> {
        let uri = access_control(&self.uri)?;
        let earlier = self.update.as_deref().map(read).transpose()?;
        let material = earlier.as_ref().map(|(file, response)| input_material(response).map(|found| (file, found)));
        let (audience, key) = match material {
            Some(found) => {
                let (file, material) = found.map_err(Failure::usage)?;
                (file.audience.clone(), Some(Confirmation::Kid(material.id.clone())))
            }
            None => (self.audience.unwrap_or_default(), self.own_key.as_deref().map(own_key).transpose()?),
        };
        let config = self.connect.config(&uri)?;
        let (payload, response) = runtime()?.block_on(async {
            let session = Session::connect(&uri, config).await.map_err(Failure::request)?;
            let granted = request_token(&session, &audience, &Aif(self.allow), key).await;
            session.close();
            granted.map_err(not_granted)
        })?;
        let seconds = response.expires_in.unwrap_or_default();
        let expires = contexts::now().saturating_add(seconds);
        let digits = Zeroizing::new(to_hex(&payload));
        let text = Zeroizing::new(format!(
            "# An access token (RFC 9203). Anyone who reads this file has its rights.\n\
             audience = {audience:?}\nexpires = {expires}\nresponse = \"{}\"\n",
            *digits
        ));
        write(&self.output, text.as_bytes(), Readers::Owner)?;
        let file = self.output.display().to_string();
        out.line(
            || printable(&format!("Wrote a token for {audience}, valid for {seconds} s, to {file} (mode 600).")),
            || json!({ "event": "token", "audience": audience, "expires_in": seconds, "file": file }),
        );
        Ok(())
    }
}

impl Post {
    fn run(self, out: Output) -> Result<(), Failure> {
        let uri = Uri::parse(&self.uri).map_err(Failure::usage)?;
        if uri.scheme != Scheme::Coap || !uri.path.is_empty() || !uri.query.is_empty() {
            return Err(Failure::usage(format!("{}: name the resource server alone, as coap://host[:port]", self.uri)));
        }
        let (TokenFile { audience, expires, .. }, response) = read(&self.token)?;
        let token = response.access_token.as_deref().unwrap_or_default();
        if expires <= contexts::now() {
            let why = format!("{}: the token expired: ask for another by `tegmen token request`", self.token.display());
            return Err(Failure::usage(why));
        }
        let is_bound = response.ace_profile == Some(Profile::COAP_EDHOC_OSCORE);
        if is_bound == self.context.is_some() {
            let why = "--context goes with each token that is not bound to a key of your own, and with no other";
            return Err(Failure::usage(why));
        }
        let context = self.context.unwrap_or_default();
        let dir = context.display().to_string();
        match input_material(&response) {
            Ok(material) => {
                if context.exists() {
                    let why = "it exists already, and a posted token makes a new context: name another directory";
                    return Err(Failure::usage(format!("{dir}: {why}")));
                }
                let agreed = runtime()?.block_on(async {
                    let session = Session::connect(&uri, ClientConfig::default()).await.map_err(Failure::request)?;
                    let posted = post_token(&session, token, material).await;
                    session.close();
                    posted.map_err(Failure::new)
                })?;
                contexts::create(&context, &agreed.until(expires)).map_err(Failure::usage)?;
            }
            Err(_) => {
                let config =
                    ClientConfig::default().with(|config| config.oscore = (!is_bound).then(|| context.clone()));
                runtime()?.block_on(async {
                    let session = Session::connect(&uri, config).await.map_err(Failure::request)?;
                    let updated = post_alone(&session, token).await;
                    session.close();
                    updated.map_err(Failure::new)
                })?;
            }
        }
        let with = if is_bound { "your key and --edhoc".to_owned() } else { format!("--oscore {dir}") };
        out.line(
            || printable(&format!("{audience} took the token. Ask with {with}.")),
            || json!({ "event": "posted", "audience": audience, "context": dir }),
        );
        Ok(())
    }
}

/// Reads the public part of a key for EDHOC.
fn own_key(file: &Path) -> Result<Confirmation, Failure> {
    let identity = read_key(file).map_err(Failure::usage)?;
    // A resource server knows the key alone, and the credential has a name, too.
    if identity.transfer() == Transfer::ByReference {
        let why = "messages name its credential by kid, which the resource server does not have: `tegmen edhoc new --by-value`";
        return Err(Failure::usage(format!("{}: {why}", file.display())));
    }
    let wrong = || Failure::usage(format!("{}: the credential has no public key", file.display()));
    public_key(identity.credential()).ok_or_else(wrong)
}

/// Reads a right, which is a rule for one path.
fn right(text: &str) -> Result<Right, String> {
    let rule = Rule::parse(text).filter(|rule| !rule.path.contains('*'));
    let rule = rule.ok_or_else(|| format!("a method and the path of one resource, as 'GET /temp'; not '{text}'"))?;
    // The methods of CoAP alone have bits in a token (RFC 9237, section 3).
    Ok(Right { path: rule.path.to_owned(), permissions: u64::from(rule.methods.0 & 0x7f) })
}

/// Reads the file of a token.
fn read(file: &Path) -> Result<(TokenFile, TokenResponse), Failure> {
    let text = read_secret(file).map_err(Failure::usage)?;
    let wrong = || Failure::usage(format!("{}: no token, as `tegmen token request` writes one", file.display()));
    let mut parsed: TokenFile = toml::from_str(&text).map_err(|_| wrong())?;
    let digits = Zeroizing::new(std::mem::take(&mut parsed.response));
    let payload = from_hex(&digits).map(Zeroizing::new).ok_or_else(wrong)?;
    let response = TokenResponse::parse(&payload).map_err(|_| wrong())?;
    if response.access_token.is_some() { Ok((parsed, response)) } else { Err(wrong()) }
}

/// Returns the input material for an OSCORE context from the response with a token. The error is the reason why the
/// response contains no input material.
fn input_material(response: &TokenResponse) -> Result<&InputMaterial, &'static str> {
    match &response.cnf {
        Some(Confirmation::Osc(material)) => Ok(material),
        _ => Err("--update: name the token with which the context was made, not one that updated its rights"),
    }
}

fn not_granted(error: NotGranted) -> Failure {
    match error {
        NotGranted::NoResponse(error) => Failure::request(error),
        error => Failure::new(error),
    }
}
