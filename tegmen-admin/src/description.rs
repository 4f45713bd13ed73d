//! Descriptions of operations in the OpenAPI document.

use crate::problem::{self, Code};
use axum::http::StatusCode;
use schemars::generate::SchemaSettings;
use schemars::{JsonSchema, SchemaGenerator};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// The schemas and refusals that several operations of the OpenAPI document share.
pub(crate) struct Schemas {
    requests: SchemaGenerator,
    answers: SchemaGenerator,
    /// The responses to refused requests. The key of a response consists of the names of its codes, joined with dots.
    refusals: Map<String, Value>,
}

impl Schemas {
    /// Makes two generators of schemas, one for requests and one for answers. They have no schemas yet. The schema of a
    /// request describes the type that the server reads. The schema of an answer describes the type that it writes.
    pub(crate) fn new() -> Self {
        let settings = SchemaSettings::draft2020_12().with(|settings| {
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
        });
        let (requests, answers) = (settings.clone().for_deserialize(), settings.for_serialize());
        Self { requests: requests.into_generator(), answers: answers.into_generator(), refusals: Map::new() }
    }

    /// Returns two maps: first all schemas with their names as keys, and then the responses to refused requests, with
    /// the joined names of their codes as keys.
    pub(crate) fn finish(mut self) -> (Map<String, Value>, Map<String, Value>) {
        let mut all = self.requests.take_definitions(true);
        all.extend(self.answers.take_definitions(true));
        (all, self.refusals)
    }
}

/// The description of one operation.
pub(crate) struct Description<'s> {
    schemas: &'s mut Schemas,
    parameters: Vec<Value>,
    body: Option<Value>,
    responses: BTreeMap<u16, Value>,
    codes: BTreeSet<Code>,
}

impl<'s> Description<'s> {
    /// Begins the description of an operation. The description has no parameters, body and responses yet.
    pub(crate) fn new(schemas: &'s mut Schemas) -> Self {
        Self { schemas, parameters: Vec::new(), body: None, responses: BTreeMap::new(), codes: BTreeSet::new() }
    }

    /// Adds a parameter of the request. `place` is `path`, `query` or `header`, and `meaning` is the description of the
    /// parameter.
    pub(crate) fn parameter(&mut self, name: &str, place: &str, is_required: bool, meaning: &str, schema: &Value) {
        self.parameters.push(json!({
            "name": name,
            "in": place,
            "required": is_required,
            "description": meaning,
            "schema": schema,
        }));
    }

    /// Sets the type of the body of the request.
    pub(crate) fn takes<T: JsonSchema>(&mut self) {
        let schema = self.schemas.requests.subschema_for::<T>();
        self.body = Some(json!({ "required": true, "content": { "application/json": { "schema": schema } } }));
    }

    /// Adds to the operation an answer with this status. The body of the answer is JSON of the type `T`.
    pub(crate) fn gives<T: JsonSchema>(&mut self, status: StatusCode, meaning: &str) {
        let schema = self.schemas.answers.subschema_for::<T>();
        let content = json!({ "application/json": { "schema": schema } });
        self.response(status, json!({ "description": meaning, "content": content }));
    }

    /// Adds to the operation an answer that is a stream of server-sent events. An event with the name `changes` has
    /// data of the type `C`. An event with the name `end` has data of the type `E`.
    pub(crate) fn streams<C: JsonSchema, E: JsonSchema>(&mut self) {
        let answers = &mut self.schemas.answers;
        let data = json!({ "changes": answers.subschema_for::<C>(), "end": answers.subschema_for::<E>() });
        let content = json!({ "text/event-stream": { "schema": { "type": "string" }, "x-event-data": data } });
        let meaning = "Server-sent events. The member x-event-data has the schemas of their data, by their types. The stream \
                       ends behind an event of the type end.";
        self.response(StatusCode::OK, json!({ "description": meaning, "content": content }));
    }

    /// Adds to the operation the object `response`, which describes the response with this status.
    pub(crate) fn response(&mut self, status: StatusCode, response: Value) {
        self.responses.insert(status.as_u16(), response);
    }

    /// Adds the header ETag to all responses that were added so far.
    pub(crate) fn tagged(&mut self) {
        let tag = json!({ "ETag": {
            "description": "The revision, for If-Match.",
            "required": true,
            "schema": { "type": "string", "pattern": "^\"[0-9]+\"$" },
        } });
        for response in self.responses.values_mut().filter_map(Value::as_object_mut) {
            response.insert("headers".to_owned(), tag.clone());
        }
    }

    /// Adds to the operation the codes with which it refuses requests.
    pub(crate) fn codes(&mut self, codes: impl IntoIterator<Item = Code>) {
        self.codes.extend(codes);
    }

    /// Returns the members of the operation object in JSON.
    pub(crate) fn finish(mut self) -> Map<String, Value> {
        self.refusals();
        let mut members = Map::new();
        let status = |(status, response): (u16, Value)| (status.to_string(), response);
        members.insert("responses".to_owned(), self.responses.into_iter().map(status).collect());
        if !self.parameters.is_empty() {
            members.insert("parameters".to_owned(), Value::Array(self.parameters));
        }
        members.extend(self.body.map(|body| ("requestBody".to_owned(), body)));
        members
    }

    /// Adds to the operation one response for each HTTP status of its refusal codes, which [`Self::codes`] added.
    fn refusals(&mut self) {
        let mut names: BTreeMap<u16, Vec<&str>> = BTreeMap::new();
        for code in &self.codes {
            names.entry(code.status().as_u16()).or_default().push(code.name());
        }
        let problem = self.schemas.answers.subschema_for::<problem::Document<'_>>();
        for (status, names) in names {
            let codes = json!({ "properties": { "status": { "const": status }, "code": { "enum": names } } });
            let content = json!({ "application/problem+json": { "schema": { "allOf": [problem, codes] } } });
            let description = format!("Refused: {}.", names.join(", "));
            let name = names.join(".");
            self.responses.insert(status, json!({ "$ref": format!("#/components/responses/{name}") }));
            self.schemas.refusals.insert(name, json!({ "description": description, "content": content }));
        }
    }
}
