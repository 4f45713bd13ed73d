//! The parts of a request that an operation reads, such as the body. Each part adds its own description to the OpenAPI
//! document, so the document describes exactly the data that the server reads.

use crate::api::Admitted;
use crate::description::Description;
use crate::keys::{Keys, Principal};
use crate::problem::{Code, Problem};
use crate::scope::Scope;
use crate::tls::Peer;
use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::json;
use std::net::IpAddr;
use tegmen_base::hex::from_hex;
use tegmen_store::{Revision, Store};

/// Maximum number of entries in a page of a list.
const MAX_PAGE: usize = 1000;

/// A part of a request. It is read from the request, and adds its description to the OpenAPI document.
pub(crate) trait Part: Sized + Send + 'static {
    fn read(admitted: &Admitted) -> Result<Self, Problem>;
    fn describe(about: &mut Description<'_>);
}

impl Part for () {
    fn read(_: &Admitted) -> Result<Self, Problem> {
        Ok(())
    }

    fn describe(_: &mut Description<'_>) {}
}

impl<A: Part, B: Part> Part for (A, B) {
    fn read(admitted: &Admitted) -> Result<Self, Problem> {
        Ok((A::read(admitted)?, B::read(admitted)?))
    }

    fn describe(about: &mut Description<'_>) {
        A::describe(about);
        B::describe(about);
    }
}

impl<A: Part, B: Part, C: Part> Part for (A, B, C) {
    fn read(admitted: &Admitted) -> Result<Self, Problem> {
        Ok((A::read(admitted)?, B::read(admitted)?, C::read(admitted)?))
    }

    fn describe(about: &mut Description<'_>) {
        <(A, B)>::describe(about);
        C::describe(about);
    }
}

/// The first parameter of the path. This type adds nothing to the OpenAPI document: the parameters of a path are
/// described there together with the path.
pub(crate) struct Name(pub(crate) String);

impl Part for Name {
    fn read(admitted: &Admitted) -> Result<Self, Problem> {
        Ok(Self(admitted.name.clone()))
    }

    fn describe(_: &mut Description<'_>) {}
}

/// The second parameter of the path.
pub(crate) struct Member(pub(crate) String);

impl Part for Member {
    fn read(admitted: &Admitted) -> Result<Self, Problem> {
        Ok(Self(admitted.member.clone()))
    }

    fn describe(_: &mut Description<'_>) {}
}

/// The authenticated sender of the request.
impl Part for Principal {
    fn read(admitted: &Admitted) -> Result<Self, Problem> {
        Ok(admitted.by.clone())
    }

    fn describe(_: &mut Description<'_>) {}
}

/// The sender of a request, with the client at the other end of the connection. A stream of events may last longer than
/// the sender's right. So the server checks this right again while it sends the stream.
pub(crate) struct Sender {
    by: Principal,
    peer: Option<Peer>,
}

impl Part for Sender {
    fn read(admitted: &Admitted) -> Result<Self, Problem> {
        Ok(Self { by: admitted.by.clone(), peer: admitted.peer.clone() })
    }

    fn describe(_: &mut Description<'_>) {}
}

impl Sender {
    /// Returns the IP address of the client on the connection.
    pub(crate) fn address(&self) -> IpAddr {
        Peer::address_of(self.peer.as_ref())
    }

    /// Checks that the key or the certificate of the sender is still valid, and that it has the scope `scope`.
    pub(crate) async fn check<S: Store>(&self, keys: &Keys<S>, scope: Scope) -> Result<(), Problem> {
        if self.by.is_key() {
            return keys.check(&self.by.name, scope).await;
        }
        let certified = self.peer.as_ref().and_then(Peer::certified);
        let ended = || Problem::new(Code::Unauthorized, "the certificate is not accepted any more: use another one");
        certified.filter(|by| by.name == self.by.name && by.has(scope)).map(drop).ok_or_else(ended)
    }
}

/// A body that contains JSON.
pub(crate) struct Body<T>(pub(crate) T);

impl<T: DeserializeOwned + JsonSchema + Send + 'static> Part for Body<T> {
    fn read(admitted: &Admitted) -> Result<Self, Problem> {
        // The place and the kind of a mistake, without what stood there: it may be a secret.
        let body = serde_json::from_slice(&admitted.body).map_err(|error| {
            let (line, column) = (error.line(), error.column());
            let fault =
                if error.is_data() { "a field is missing, unknown or of another type" } else { "it is not JSON" };
            let fault = if error.is_data() {
                members(&error.to_string()).unwrap_or_else(|| fault.to_owned())
            } else {
                fault.to_owned()
            };
            Problem::malformed(format!(
                "the body cannot be read at line {line}, column {column}: {fault}: see docs/admin.md"
            ))
        });
        body.map(Self)
    }

    fn describe(about: &mut Description<'_>) {
        about.takes::<T>();
    }
}

/// Returns the members that a body lacks or can have, from the error of a body that is JSON. Returns `None` if the error
/// names no members. The result contains only names of members that the server knows, and no text of the body.
fn members(error: &str) -> Option<String> {
    let (error, _) = error.rsplit_once(" at line ").unwrap_or((error, ""));
    if error.starts_with("missing field ") {
        return Some(error.to_owned());
    }
    let (_, expected) = error.rsplit_once(", expected ").filter(|_| error.starts_with("unknown field "))?;
    Some(format!("a field is unknown, expected {expected}"))
}

/// The revision of the object that the sender intends to change; `None` if the sender accepts any revision.
pub(crate) struct Over(pub(crate) Option<Revision>);

impl Part for Over {
    /// Reads the header `If-Match`. Its value is `*`, or one entity tag (RFC 9110, section 13.1.1). The entity tag of an
    /// object is its revision in quotation marks. A weak entity tag and any other one match no object.
    fn read(admitted: &Admitted) -> Result<Self, Problem> {
        let missing = "send If-Match with the ETag of the last GET, or * for any";
        let header = admitted.headers.get("if-match").ok_or_else(|| Problem::new(Code::IfMatchMissing, missing))?;
        let text = header.to_str().unwrap_or_default().trim();
        if text == "*" {
            return Ok(Self(None));
        }
        let strong = text.strip_prefix("W/").unwrap_or(text);
        let opaque = strong.strip_prefix('"').and_then(|rest| rest.strip_suffix('"'));
        let opaque = opaque.filter(|opaque| !opaque.contains('"')).ok_or_else(|| Problem::malformed(missing))?;
        // No object has this revision.
        let revision = opaque.parse().ok().filter(|_| strong == text).unwrap_or(u64::MAX);
        Ok(Self(Some(Revision(revision))))
    }

    fn describe(about: &mut Description<'_>) {
        let meaning = "The ETag of the last GET, or * for any: without the revision that it names, nothing changes.";
        about.parameter(
            "If-Match",
            "header",
            true,
            meaning,
            &json!({ "type": "string", "pattern": "^(\\*|(W/)?\"[^\"]*\")$" }),
        );
        about.codes([Code::IfMatchMissing, Code::ChangedMeanwhile]);
    }
}

/// Returns the problem for a query whose cursor is not valid.
pub(crate) fn wrong_cursor() -> Problem {
    Problem::malformed("after is the next of the page before")
}

/// The requested page of a list.
pub(crate) struct Paging {
    /// The name or the hash after which the page begins; `None` for the first page.
    pub(crate) after: Option<Vec<u8>>,
    /// Maximum number of entries of the page.
    pub(crate) most: usize,
}

impl Part for Paging {
    fn read(admitted: &Admitted) -> Result<Self, Problem> {
        let mut paging = Self { after: None, most: 100 };
        for (name, value) in admitted.query() {
            match name {
                "limit" => {
                    let limit = value.parse().ok().filter(|limit| (1..=MAX_PAGE).contains(limit));
                    paging.most = limit.ok_or_else(|| Problem::malformed("limit is a number from 1 to 1000"))?;
                }
                // A cursor has hexadecimal digits, so that each name of a device goes into a query.
                "after" => {
                    paging.after = Some(from_hex(value).ok_or_else(wrong_cursor)?);
                }
                _ => return Err(Problem::malformed("a list has the parameters limit and after")),
            }
        }
        Ok(paging)
    }

    fn describe(about: &mut Description<'_>) {
        let limit = json!({ "type": "integer", "minimum": 1, "maximum": MAX_PAGE, "default": 100 });
        about.parameter("limit", "query", false, "The most entries of the page.", &limit);
        let after = json!({ "type": "string", "pattern": "^([0-9a-f]{2})+$" });
        about.parameter("after", "query", false, "The cursor of the page: next of the page before.", &after);
    }
}

/// The revision after which the stream of events begins; `None` for a stream that begins now.
pub(crate) struct Since(pub(crate) Option<Revision>);

impl Part for Since {
    fn read(admitted: &Admitted) -> Result<Self, Problem> {
        let Some(header) = admitted.headers.get("last-event-id") else { return Ok(Self(None)) };
        let revision = header.to_str().ok().and_then(|text| text.trim().parse().ok());
        let wrong = || Problem::malformed("Last-Event-ID is the id of an event of this server");
        revision.map(|revision| Self(Some(Revision(revision)))).ok_or_else(wrong)
    }

    fn describe(about: &mut Description<'_>) {
        let meaning = "The id of the last event that was read: the stream begins behind it. Without it, it begins now.";
        let schema = json!({ "type": "string", "pattern": "^[0-9]+$" });
        about.parameter("Last-Event-ID", "header", false, meaning, &schema);
    }
}
