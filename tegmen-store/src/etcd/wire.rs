//! The messages of the JSON gateway of etcd (`/v3/...`). Bytes are in base64, numbers of 64 bits are text, and fields
//! with the value zero are left out.

use serde::{Deserialize, Serialize};

/// Bytes, written in base64.
#[derive(Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Base64(pub(super) Vec<u8>);

impl Serialize for Base64 {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use base64::Engine as _;
        serializer.serialize_str(&base64::engine::general_purpose::STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Base64 {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        use base64::Engine as _;
        let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
        base64::engine::general_purpose::STANDARD.decode(text.as_bytes()).map(Self).map_err(serde::de::Error::custom)
    }
}

/// A number of 64 bits, written as text.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Int(pub(super) u64);

impl Int {
    const fn is_zero(&self) -> bool {
        self.0 == 0
    }
}

impl Serialize for Int {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl<'de> Deserialize<'de> for Int {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'_, str>>::deserialize(deserializer)?;
        // A time to live of -1 is that of a lease that has ended.
        let number: i64 = text.parse().map_err(serde::de::Error::custom)?;
        Ok(Self(u64::try_from(number).unwrap_or(0)))
    }
}

#[derive(Default, Deserialize)]
pub(super) struct Header {
    #[serde(default)]
    pub(super) revision: Int,
}

#[derive(Clone, Default, Deserialize)]
#[serde(default)]
pub(super) struct KeyValue {
    pub(super) key: Base64,
    pub(super) create_revision: Int,
    pub(super) mod_revision: Int,
    /// The number of changes of the row, including the change that made the row: 1 for a new row.
    pub(super) version: Int,
    pub(super) value: Base64,
    pub(super) lease: Int,
}

#[derive(Default, Serialize)]
pub(super) struct RangeRequest {
    pub(super) key: Base64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range_end: Option<Base64>,
    #[serde(skip_serializing_if = "Int::is_zero")]
    pub(super) revision: Int,
    #[serde(skip_serializing_if = "Int::is_zero")]
    pub(super) limit: Int,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct RangeResponse {
    pub(super) header: Header,
    pub(super) kvs: Vec<KeyValue>,
    pub(super) more: bool,
}

/// A condition for a transaction: the last change of the row has the revision `mod_revision`. The revision 0 means that
/// the row does not exist.
#[derive(Serialize)]
pub(super) struct Compare {
    pub(super) key: Base64,
    pub(super) target: &'static str,
    pub(super) mod_revision: Int,
}

impl Compare {
    pub(super) const fn changed(key: Base64, at: u64) -> Self {
        Self { key, target: "MOD", mod_revision: Int(at) }
    }
}

#[derive(Serialize)]
pub(super) struct PutRequest {
    pub(super) key: Base64,
    pub(super) value: Base64,
    #[serde(skip_serializing_if = "Int::is_zero")]
    pub(super) lease: Int,
}

#[derive(Serialize)]
pub(super) struct DeleteRequest {
    pub(super) key: Base64,
}

#[derive(Serialize)]
pub(super) enum Operation {
    #[serde(rename = "request_range")]
    Range(RangeRequest),
    #[serde(rename = "request_put")]
    Put(PutRequest),
    #[serde(rename = "request_delete_range")]
    Delete(DeleteRequest),
}

#[derive(Serialize)]
pub(super) struct TxnRequest {
    pub(super) compare: Vec<Compare>,
    pub(super) success: Vec<Operation>,
    pub(super) failure: Vec<Operation>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct TxnResponse {
    pub(super) header: Header,
    pub(super) succeeded: bool,
    pub(super) responses: Vec<OperationResponse>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct OperationResponse {
    pub(super) response_range: Option<RangeResponse>,
}

#[derive(Serialize)]
pub(super) struct CompactionRequest {
    pub(super) revision: Int,
}

#[derive(Serialize)]
pub(super) struct LeaseRequest {
    #[serde(rename = "ID")]
    pub(super) id: Int,
    /// The duration of the lease in seconds.
    #[serde(rename = "TTL", skip_serializing_if = "Int::is_zero")]
    pub(super) ttl: Int,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct LeaseResponse {
    #[serde(rename = "ID")]
    pub(super) id: Int,
    /// The remaining time in seconds; 0 for a lease that has ended.
    #[serde(rename = "TTL")]
    pub(super) ttl: Int,
}

/// A response whose content is ignored.
#[derive(Deserialize)]
pub(super) struct Done {}

#[derive(Serialize)]
pub(super) struct WatchRequest {
    pub(super) create_request: WatchCreate,
}

#[derive(Serialize)]
pub(super) struct WatchCreate {
    pub(super) key: Base64,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) range_end: Option<Base64>,
    pub(super) start_revision: Int,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct WatchResponse {
    pub(super) header: Header,
    pub(super) created: bool,
    pub(super) canceled: bool,
    pub(super) compact_revision: Int,
    pub(super) events: Vec<Event>,
}

#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Event {
    /// `DELETE`; absent if the event writes a row.
    #[serde(rename = "type")]
    pub(super) kind: Option<String>,
    pub(super) kv: KeyValue,
}

/// A message of a stream: a result or an error.
#[derive(Deserialize)]
pub(super) struct Streamed<T> {
    #[serde(default = "none")]
    pub(super) result: Option<T>,
    pub(super) error: Option<StreamError>,
}

const fn none<T>() -> Option<T> {
    None
}

#[derive(Deserialize)]
pub(super) struct StreamError {
    #[serde(default)]
    pub(super) message: String,
}

/// An error that etcd returns.
#[derive(Default, Deserialize)]
#[serde(default)]
pub(super) struct Refusal {
    pub(super) error: String,
    /// The status code of gRPC.
    pub(super) code: u32,
}
