//! The committed OpenAPI document, and the check of requests and answers against it.

use super::Answer;
use regex::Regex;
use serde_json::Value;
use std::sync::LazyLock;

/// The committed OpenAPI document.
pub(crate) static DOCUMENT: LazyLock<Value> =
    LazyLock::new(|| serde_json::from_str(include_str!("../../openapi.json")).unwrap());

/// Returns the operation of a request in the document; `None` if the document has no such operation. `path` may have a
/// query.
pub(crate) fn operation(method: &str, path: &str) -> Option<&'static Value> {
    let path = path.split('?').next().unwrap();
    let is_match = |template: &str| {
        template.split('/').count() == path.split('/').count()
            && template.split('/').zip(path.split('/')).all(|(one, other)| one == other || one.starts_with('{'))
    };
    let (_, operations) = DOCUMENT["paths"].as_object().unwrap().iter().find(|(template, _)| is_match(template))?;
    operations.get(method.to_ascii_lowercase())
}

/// Returns the schema to which a reference points.
pub(crate) fn target(reference: &Value) -> &'static Value {
    let reference = reference.as_str().unwrap();
    let target = reference.strip_prefix('#').and_then(|pointer| DOCUMENT.pointer(pointer));
    target.unwrap_or_else(|| panic!("{reference} has no target"))
}

/// Returns the mistakes of a value, compared with a schema (JSON Schema 2020-12). The function panics for a keyword
/// that it does not know, so that no part of a schema remains unchecked.
pub(crate) fn mistakes(schema: &Value, value: &Value) -> Vec<String> {
    let Some(keywords) = schema.as_object() else {
        return if schema == &Value::Bool(true) { vec![] } else { vec![format!("{schema} allows nothing")] };
    };
    let all = |schemas: &Value| -> Vec<Vec<String>> {
        schemas.as_array().unwrap().iter().map(|schema| mistakes(schema, value)).collect()
    };
    let mut found = Vec::new();
    for (keyword, rule) in keywords {
        let is_right = match keyword.as_str() {
            "description" | "title" | "default" | "format" => true,
            "$ref" => {
                found.extend(mistakes(target(rule), value));
                true
            }
            "type" => rule.as_array().map_or_else(|| is_of(rule, value), |all| all.iter().any(|one| is_of(one, value))),
            "enum" => rule.as_array().unwrap().contains(value),
            "const" => rule == value,
            "allOf" => {
                found.extend(all(rule).concat());
                true
            }
            "anyOf" => all(rule).iter().any(Vec::is_empty),
            "oneOf" => all(rule).iter().filter(|mistakes| mistakes.is_empty()).count() == 1,
            "properties" => {
                let fields = rule.as_object().unwrap().iter().filter_map(|(name, rule)| Some((rule, value.get(name)?)));
                found.extend(fields.flat_map(|(rule, value)| mistakes(rule, value)));
                true
            }
            "required" => rule.as_array().unwrap().iter().all(|name| value.get(name.as_str().unwrap()).is_some()),
            "additionalProperties" => {
                assert_eq!(rule, &Value::Bool(false));
                let known = |name: &String| schema["properties"].get(name).is_some();
                value.as_object().is_none_or(|fields| fields.keys().all(known))
            }
            "items" => {
                found.extend(value.as_array().into_iter().flatten().flat_map(|item| mistakes(rule, item)));
                true
            }
            "minItems" => value.as_array().is_none_or(|items| items.len() as u64 >= rule.as_u64().unwrap()),
            "uniqueItems" => value
                .as_array()
                .is_none_or(|items| items.iter().enumerate().all(|(at, item)| !items[..at].contains(item))),
            "minLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 >= rule.as_u64().unwrap()),
            "maxLength" => value.as_str().is_none_or(|text| text.chars().count() as u64 <= rule.as_u64().unwrap()),
            "minimum" => value.as_f64().is_none_or(|number| number >= rule.as_f64().unwrap()),
            "maximum" => value.as_f64().is_none_or(|number| number <= rule.as_f64().unwrap()),
            "pattern" => value.as_str().is_none_or(|text| Regex::new(rule.as_str().unwrap()).unwrap().is_match(text)),
            other => panic!("check the keyword {other} here, too"),
        };
        if !is_right {
            found.push(format!("{value} breaks {keyword}: {rule}"));
        }
    }
    found
}

fn is_of(name: &Value, value: &Value) -> bool {
    match name.as_str().unwrap() {
        "null" => value.is_null(),
        "boolean" => value.is_boolean(),
        "integer" => value.is_i64() || value.is_u64(),
        "number" => value.is_number(),
        "string" => value.is_string(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("there is no type {other}"),
    }
}

/// Checks that the bodies of a request and of its answer match the schemas of the document.
pub(crate) fn check(method: &str, path: &str, request: &str, answer: &Answer) {
    let Some(operation) = operation(method, path) else {
        assert!(["no-route", "no-method"].contains(&answer.code()), "{method} {path} is missing: {answer:?}");
        return;
    };
    let status = answer.status;
    let response = &operation["responses"][status.to_string()];
    let response = response.get("$ref").map_or(response, target);
    assert!(response.is_object(), "{method} {path}: the document has no response {status}: {answer:?}");
    assert_eq!(answer.header("etag").is_some(), response["headers"]["ETag"].is_object(), "{method} {path}: {answer:?}");
    match response["content"].as_object() {
        None => assert_eq!(answer.text, "", "{method} {path}"),
        Some(content) => {
            let (kind, content) = content.iter().next().unwrap();
            assert_eq!(answer.header("content-type"), Some(kind.as_str()), "{method} {path}");
            if kind == "text/event-stream" {
                return;
            }
            let mistakes = mistakes(&content["schema"], &answer.body);
            assert!(mistakes.is_empty(), "{method} {path}: {mistakes:?}: {answer:?}");
        }
    }
    let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
    if (200..300).contains(&status) && schema.is_object() {
        let mistakes = mistakes(schema, &serde_json::from_str(request).unwrap());
        assert!(mistakes.is_empty(), "{method} {path} took what its schema refuses: {mistakes:?}");
    }
}
