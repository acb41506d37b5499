//! `/docs`: the OpenAPI document as a page, made once, without a script.

use std::fmt::Write;

use serde_json::Value;

use super::{Page, code_spans, escape};
use crate::openapi;

/// The page.
pub(crate) fn page() -> Page {
    let document = serde_json::to_value(openapi::document()).unwrap_or_default();
    let mut body = String::from("<h1>Tidegate API</h1>");
    put(
        &mut body,
        format_args!(
            "<p class=soft>Version {}. As JSON: <a href=/openapi.json>/openapi.json</a></p>",
            text(&document["info"]["version"])
        ),
    );
    for paragraph in document["info"]["description"].as_str().unwrap_or_default().split("\n\n") {
        put(&mut body, format_args!("<p>{}</p>", code_spans(paragraph)));
    }
    for tag in document["tags"].as_array().into_iter().flatten() {
        put(&mut body, format_args!("<h2>{}</h2><p class=soft>{}</p>", text(&tag["name"]), text(&tag["description"])));
        for (path, item) in members(&document["paths"]) {
            for (verb, operation) in members(item).filter(|(_, operation)| operation["tags"][0] == tag["name"]) {
                section(&mut body, path, verb, operation);
            }
        }
    }
    body.push_str("<h2>Shapes</h2>");
    for (name, schema) in members(&document["components"]["schemas"]) {
        put(&mut body, format_args!("<details id=\"{0}\"><summary><code>{0}</code></summary>", escape(name)));
        put(&mut body, format_args!("<p>{}</p>", text(&schema["description"])));
        fields(&mut body, schema);
        body.push_str("</details>");
    }
    Page::new("API", &body, "")
}

/// Writing to a string cannot fail.
fn put(body: &mut String, what: std::fmt::Arguments<'_>) {
    let _ = body.write_fmt(what);
}

fn text(value: &Value) -> String {
    code_spans(value.as_str().unwrap_or_default())
}

fn members(value: &Value) -> impl Iterator<Item = (&String, &Value)> {
    value.as_object().into_iter().flatten()
}

fn section(body: &mut String, path: &str, verb: &str, operation: &Value) {
    put(
        body,
        format_args!(
            "<details><summary><span class=verb>{}</span> <code>{}</code> {}</summary><p>{}</p>",
            verb.to_uppercase(),
            escape(path),
            text(&operation["summary"]),
            text(&operation["description"])
        ),
    );
    let parameters = operation["parameters"].as_array().map(Vec::as_slice).unwrap_or_default();
    if !parameters.is_empty() {
        body.push_str("<h3>Parameters</h3><table>");
        for parameter in parameters {
            put(
                body,
                format_args!(
                    "<tr><td><code>{}</code></td><td class=soft>{}</td><td>{}</td></tr>",
                    text(&parameter["name"]),
                    text(&parameter["in"]),
                    text(&parameter["description"])
                ),
            );
        }
        body.push_str("</table>");
    }
    let content = &operation["requestBody"]["content"]["application/json"];
    if !content.is_null() {
        put(body, format_args!("<h3>Body: {}</h3>", type_of(&content["schema"])));
        put(
            body,
            format_args!(
                "<pre><code>{}</code></pre>",
                escape(&serde_json::to_string_pretty(&content["example"]).unwrap_or_default())
            ),
        );
    }
    body.push_str("<h3>Answers</h3><table>");
    for (status, answer) in members(&operation["responses"]) {
        let shape =
            members(&answer["content"]).next().map(|(_, content)| type_of(&content["schema"])).unwrap_or_default();
        let told = text(&answer["description"]).replace("\n\n", "<br>");
        put(body, format_args!("<tr><td>{}</td><td>{shape}</td><td>{told}</td></tr>", escape(status)));
    }
    body.push_str("</table></details>");
}

fn fields(body: &mut String, schema: &Value) {
    let required = schema["required"].as_array().map(Vec::as_slice).unwrap_or_default();
    body.push_str("<table>");
    for (name, property) in members(&schema["properties"]) {
        let mark =
            if required.iter().any(|r| r == name.as_str()) { "" } else { " <span class=soft>may be left out</span>" };
        put(
            body,
            format_args!(
                "<tr><td><code>{}</code></td><td>{}{mark}</td><td>{}</td></tr>",
                escape(name),
                type_of(property),
                text(&property["description"])
            ),
        );
    }
    body.push_str("</table>");
}

fn type_of(schema: &Value) -> String {
    if let Some(name) = schema["$ref"].as_str().and_then(|target| target.rsplit('/').next()) {
        return format!("<a href=\"#{0}\">{0}</a>", escape(name));
    }
    if let Some(variants) = schema["oneOf"].as_array() {
        return variants.iter().map(type_of).collect::<Vec<_>>().join(" or ");
    }
    if let Some(names) = schema["enum"].as_array() {
        return names.iter().map(text).collect::<Vec<_>>().join(", ");
    }
    match &schema["type"] {
        Value::String(kind) if kind == "array" => format!("list of {}", type_of(&schema["items"])),
        Value::String(kind) => escape(kind),
        Value::Array(kinds) => kinds.iter().map(text).collect::<Vec<_>>().join(" or "),
        _ => String::new(),
    }
}
