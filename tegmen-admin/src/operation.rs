//! Operations of the interface. An operation is a function, together with the parts of the request that it reads and
//! the answers that it gives.

use crate::api::{Admitted, Api};
use crate::description::Description;
use crate::keys::Principal;
use crate::parts::Part;
use crate::problem::{Code, Problem};
use crate::replay::{self, Kept};
use crate::reply::{Answer, Reply, Streamed};
use crate::scope::Scope;
use axum::http::Method;
use axum::response::{IntoResponse, Response};
use schemars::JsonSchema;
use serde_json::json;
use std::pin::Pin;
use std::sync::Arc;
use tegmen_store::Store;

/// A route: a path with its method and the scope that it needs.
#[derive(Debug)]
pub struct Route {
    /// The method.
    pub method: Method,
    /// The path, with the names of its parameters in braces.
    pub path: &'static str,
    /// The scope that a request needs; `None` for a route that needs no credential.
    pub scope: Option<Scope>,
}

/// A route with the function that implements it.
pub(crate) struct Operation<S> {
    pub(crate) route: Route,
    /// The name of the operation in the OpenAPI document. Generated programs use it as the name of a function.
    pub(crate) id: &'static str,
    /// The description of the operation in the OpenAPI document, one sentence.
    pub(crate) summary: &'static str,
    /// The codes with which the operation itself refuses requests. Further codes come from the parts of a request that
    /// the operation reads ([`Part`](crate::parts::Part)), and some codes apply to all operations.
    pub(crate) codes: &'static [Code],
    /// True if the bootstrap token may call the operation.
    pub(crate) is_for_bootstrap: bool,
    pub(crate) action: Action<S>,
}

type Outcome = Pin<Box<dyn Future<Output = Result<Response, Problem>> + Send>>;

/// The function of an operation, and its description.
pub(crate) struct Action<S> {
    pub(crate) describe: fn(&mut Description<'_>),
    pub(crate) run: Run<S>,
}

/// The function of an operation. The variant decides which checks a request must pass before the function is called.
pub(crate) enum Run<S> {
    /// A function that handles the requests of any sender, without authentication. The function does not read the
    /// request.
    Anyone(fn() -> Response),
    /// A function that handles the requests of any sender, without authentication. Because any sender can call the
    /// function, its request body has at most `MAX_OPEN_BODY` bytes.
    Open(Box<dyn Fn(Arc<Api<S>>, Admitted) -> Outcome + Send + Sync>),
    /// A function for requests that passed authentication and all checks.
    Admitted(Box<dyn Fn(Arc<Api<S>>, Admitted) -> Outcome + Send + Sync>),
}

/// Makes an operation that only reads. The operation calls `find`.
pub(crate) fn reads<S, P, A, F>(find: impl Fn(Arc<Api<S>>, P) -> F + Copy + Send + Sync + 'static) -> Action<S>
where
    S: Store,
    P: Part,
    A: Answer,
    F: Future<Output = Result<A, Problem>> + Send,
{
    Action {
        describe: |about| {
            P::describe(about);
            A::describe(about);
        },
        run: Run::Admitted(Box::new(move |api, admitted| {
            Box::pin(async move { Ok(find(api, P::read(&admitted)?).await?.reply().into_response()) })
        })),
    }
}

/// Makes an operation for any sender. `check` returns the checked request, or refuses the request before the store is
/// read. `make` executes the checked request.
pub(crate) fn opens<S, P, W, A, F>(
    check: fn(P) -> Result<W, Problem>,
    make: impl Fn(Arc<Api<S>>, W) -> F + Copy + Send + Sync + 'static,
) -> Action<S>
where
    S: Store,
    P: Part,
    W: Send + 'static,
    A: Answer,
    F: Future<Output = Result<A, Problem>> + Send,
{
    Action {
        describe: |about| {
            P::describe(about);
            A::describe(about);
        },
        run: Run::Open(Box::new(move |api, admitted| {
            Box::pin(async move {
                let work = check(P::read(&admitted)?)?;
                Ok(make(api, work).await?.reply().into_response())
            })
        })),
    }
}

/// Makes an operation that makes a change. `check` returns the checked change, or refuses the request before anything
/// is stored. `make` makes the change.
pub(crate) fn changes<S, P, W, A, F>(
    check: fn(P) -> Result<W, Problem>,
    make: impl Fn(Arc<Api<S>>, Principal, W) -> F + Copy + Send + Sync + 'static,
) -> Action<S>
where
    S: Store,
    P: Part,
    W: Send + 'static,
    A: Answer,
    F: Future<Output = Result<A, Problem>> + Send,
{
    Action {
        describe: |about| {
            P::describe(about);
            A::describe(about);
        },
        run: Run::Admitted(Box::new(move |api, admitted| {
            Box::pin(async move {
                let work = check(P::read(&admitted)?)?;
                Ok(make(api, admitted.by, work).await?.reply().into_response())
            })
        })),
    }
}

/// Makes an operation that makes a change only once for each `Idempotency-Key`. `check` and `make` are the same as for
/// [`changes`].
pub(crate) fn creates<S, P, W, A, F>(
    check: fn(P) -> Result<W, Problem>,
    make: impl Fn(Arc<Api<S>>, Principal, W) -> F + Copy + Send + Sync + 'static,
) -> Action<S>
where
    S: Store,
    P: Part,
    W: Send + 'static,
    A: Answer,
    F: Future<Output = Result<A, Problem>> + Send,
{
    Action {
        describe: |about| {
            P::describe(about);
            A::describe(about);
            let meaning = "A repetition within a day gets the answer of the first request.";
            let schema = json!({ "type": "string", "minLength": 1, "maxLength": 128 });
            about.parameter("Idempotency-Key", "header", false, meaning, &schema);
            about.codes([Code::IdempotencyKeyInUse, Code::IdempotencyKeyReused]);
        },
        run: Run::Admitted(Box::new(move |api, admitted| {
            Box::pin(async move {
                let work = check(P::read(&admitted)?)?;
                let store = api.store.clone();
                let make = |by| async move { make(api, by, work).await.map(Answer::reply) };
                once(store, admitted, make).await.map(IntoResponse::into_response)
            })
        })),
    }
}

/// Makes a change. If a request with the same `Idempotency-Key` was executed before, makes no change, and returns the
/// answer to the first request.
async fn once<S: Store, F: Future<Output = Result<Reply, Problem>>>(
    store: S,
    admitted: Admitted,
    make: impl FnOnce(Principal) -> F,
) -> Result<Reply, Problem> {
    let Some(key) = admitted.headers.get("idempotency-key") else { return make(admitted.by).await };
    let key = key.to_str().map_err(|_| Problem::malformed("an Idempotency-Key has visible ASCII characters"))?;
    let content = [admitted.path.as_bytes(), &[0], admitted.name.as_bytes(), &[0], &admitted.body[..]];
    match replay::look_up(&store, &admitted.by.name, key, &content).await? {
        Err(kept) => Ok(Reply::of(kept)),
        Ok(first) => {
            let outcome = make(admitted.by).await;
            let kept = match &outcome {
                Ok(reply) => reply.kept(),
                Err(problem) => Kept {
                    status: problem.code.status().as_u16(),
                    revision: None,
                    body: serde_json::to_value(problem.body()).unwrap_or_default(),
                },
            };
            first.keep(&store, kept).await;
            outcome
        }
    }
}

/// Makes an operation that answers with server-sent events. An event with the name `changes` has data of the type `C`.
/// An event with the name `end` has data of the type `E`.
pub(crate) fn streams<S, P, C, E, F>(follow: impl Fn(Arc<Api<S>>, P) -> F + Copy + Send + Sync + 'static) -> Action<S>
where
    S: Store,
    P: Part,
    C: JsonSchema,
    E: JsonSchema,
    F: Future<Output = Result<Streamed<C, E>, Problem>> + Send,
{
    Action {
        describe: |about| {
            P::describe(about);
            about.streams::<C, E>();
        },
        run: Run::Admitted(Box::new(move |api, admitted| {
            Box::pin(async move { Ok(follow(api, P::read(&admitted)?).await?.into_response()) })
        })),
    }
}
