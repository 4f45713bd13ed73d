//! Requests with an `Idempotency-Key`. The server executes the first request with a key, and stores the answer. A later
//! request with the same key is a repetition. The server does not execute a repetition, and sends the stored answer.
//!
//! ```text
//! admin/replay/WHO/HASH   the hash of the request, and its answer as soon as there is one
//! ```
//!
//! The server writes the row before it makes the change. If the server fails before it stores the answer, the row has
//! no answer, and the server refuses repetitions. So no repetition makes the change twice. The row is attached to a
//! lease of the store, and is removed when the lease ends.

use crate::problem::{Code, Problem};
use crate::sha256;
use serde::{Deserialize, Serialize};
use std::time::Duration;
use tegmen_store::store::LeaseId;
use tegmen_store::{Revision, Store, StoreError, Transaction, Value};

const ROWS: &str = "admin/replay/";
/// The time for which an answer is kept.
const KEPT: Duration = Duration::from_secs(24 * 3600);

/// The stored answer to a request, without secrets.
#[derive(Clone, Serialize, Deserialize)]
pub(crate) struct Kept {
    pub(crate) status: u16,
    /// The revision in the entity tag of the answer; `None` for an answer without an entity tag.
    #[serde(default)]
    pub(crate) revision: Option<u64>,
    pub(crate) body: serde_json::Value,
}

#[derive(Serialize, Deserialize)]
struct Row {
    request: String,
    answer: Option<Kept>,
}

/// The database row that [`look_up`] made for a request with a new `Idempotency-Key`. The row does not contain the
/// answer to the request yet: see [`First::keep`].
pub(crate) struct First {
    row: String,
    request: String,
    at: Revision,
    lease: LeaseId,
}

fn in_use() -> Problem {
    Problem::new(
        Code::IdempotencyKeyInUse,
        "the first request with this Idempotency-Key has no answer yet, or failed with the server: read whether it was made",
    )
}

/// Looks up a request by its sender `who`, its `Idempotency-Key` and its content. Returns the stored answer as `Err` if
/// the request was sent before, and otherwise a new row as `Ok`.
pub(crate) async fn look_up<S: Store>(
    store: &S,
    who: &str,
    key: &str,
    content: &[&[u8]],
) -> Result<Result<First, Kept>, Problem> {
    if key.is_empty() || key.len() > 128 {
        return Err(Problem::malformed("an Idempotency-Key has 1 to 128 characters"));
    }
    let row = format!("{ROWS}{who}/{}", sha256(&[key.as_bytes()]));
    let request = sha256(content);
    if let Some(entry) = store.read(row.as_bytes(), None).await?.entry {
        let found = entry.value.plain().and_then(|text| serde_json::from_slice::<Row>(text).ok()).ok_or_else(in_use)?;
        if found.request != request {
            return Err(Problem::new(
                Code::IdempotencyKeyReused,
                "another request had this Idempotency-Key: draw a new one for each request",
            ));
        }
        return found.answer.map(Err).ok_or_else(in_use);
    }
    let lease = store.grant(KEPT).await?;
    let value = json(&Row { request: request.clone(), answer: None });
    let transaction = Transaction::default().require(row.as_str(), Revision::ABSENT);
    match store.commit(transaction.put_leased(row.as_str(), value, lease)).await {
        Ok(at) => Ok(Ok(First { row, request, at, lease })),
        Err(StoreError::Conflict { .. }) => Err(in_use()),
        Err(error) => Err(error.into()),
    }
}

impl First {
    /// Stores the answer. If the store fails, the server refuses repeated requests, because it does not know the
    /// answer.
    pub(crate) async fn keep<S: Store>(self, store: &S, answer: Kept) {
        let value = json(&Row { request: self.request, answer: Some(answer) });
        let transaction = Transaction::default().require(self.row.as_str(), self.at);
        let _ = store.commit(transaction.put_leased(self.row, value, self.lease)).await;
    }
}

fn json(row: &Row) -> Value {
    Value::Plain(serde_json::to_vec(row).unwrap_or_default())
}
