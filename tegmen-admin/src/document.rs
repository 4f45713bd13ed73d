//! Makes the OpenAPI document from the list of all operations.

use crate::api::Api;
use crate::description::{Description, Schemas};
use crate::operation::Operation;
use crate::problem::Code;
use crate::scope::Scope;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use tegmen_store::Store;

/// The refusal codes of every operation that needs a scope. An operation may have further codes.
const ALWAYS: [Code; 8] = [
    Code::Malformed,
    Code::Unauthorized,
    Code::ScopeMissing,
    Code::TooSlow,
    Code::TooLong,
    Code::TooManyFailures,
    Code::Internal,
    Code::StoreUnavailable,
];

/// Returns the names of the parameters in the template of a path.
fn parameters(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter_map(|segment| segment.strip_prefix('{')?.strip_suffix('}'))
}

fn described<S>(operation: &Operation<S>, schemas: &mut Schemas) -> Map<String, Value> {
    let Operation { route, id, summary, codes, action, .. } = operation;
    let mut about = Description::new(schemas);
    for name in parameters(route.path) {
        about.parameter(name, "path", true, "The name or the ID.", &json!({ "type": "string" }));
    }
    (action.describe)(&mut about);
    about.codes(codes.iter().copied());
    if route.scope.is_some() {
        about.codes(ALWAYS);
    }
    let mut described = about.finish();
    let security = |scope: Scope| json!([{ "key": [scope.name()] }, { "certificate": [scope.name()] }]);
    described.insert("operationId".to_owned(), json!(id));
    described.insert("summary".to_owned(), json!(summary));
    described.insert("security".to_owned(), route.scope.map_or_else(|| json!([]), security));
    described
}

impl<S: Store> Api<S> {
    /// Returns the OpenAPI document (version 3.1) of all [routes](Self::routes).
    pub fn document() -> Value {
        let mut schemas = Schemas::new();
        let mut paths: BTreeMap<&str, BTreeMap<String, Map<String, Value>>> = BTreeMap::new();
        for operation in Self::operations() {
            let described = described(&operation, &mut schemas);
            let method = operation.route.method.as_str().to_ascii_lowercase();
            paths.entry(operation.route.path).or_default().insert(method, described);
        }
        let (schemas, refusals) = schemas.finish();
        json!({
            "openapi": "3.1.0",
            "jsonSchemaDialect": "https://json-schema.org/draft/2020-12/schema",
            "info": {
                "title": "Tegmen access control: administration",
                "description": "Devices, policy, revocations, groups and API keys of an access control server.",
                "version": env!("CARGO_PKG_VERSION"),
                "license": { "name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0" },
            },
            "servers": [{ "url": "/" }],
            "paths": paths,
            "components": {
                "schemas": schemas,
                "responses": refusals,
                "securitySchemes": {
                    "key": { "type": "http", "scheme": "bearer", "description": "An API key. The roles are its scopes." },
                    "certificate": {
                        "type": "mutualTLS",
                        "description": "A client certificate. The configuration of the server gives its scopes.",
                    },
                },
            },
        })
    }
}
