//! The description of the API: its schemas are made of the types that the web app draws, and hold for real answers.
//!
//! `SNAPSHOTS=overwrite cargo test -p sonar-serve openapi` writes `src/schemas.json`.

use std::path::Path;

use axum::body::Body;
use axum::http::StatusCode;
use serde_json::{Map, Value, json};
use sonar_serve::PageLimits;

use crate::support::{TestHistory, TestPage, get};

/// Reads the types of TypeScript that `ts-rs` writes, as schemas of JSON.
struct TypeReader<'a> {
    rest: &'a str,
}

impl<'a> TypeReader<'a> {
    /// Skips spaces; returns the last comment before what follows.
    fn comment(&mut self) -> Option<String> {
        let mut last = None;
        loop {
            self.rest = self.rest.trim_start();
            if let Some(rest) = self.rest.strip_prefix("/**") {
                let (text, rest) = rest.split_once("*/").unwrap();
                let lines: Vec<&str> =
                    text.lines().map(|line| line.trim().trim_start_matches("* ").trim()).collect();
                (last, self.rest) = (Some(lines.join(" ").trim().to_owned()), rest);
            } else if self.rest.starts_with("//") {
                self.rest = self.rest.split_once('\n').unwrap().1;
            } else {
                return last;
            }
        }
    }

    fn takes(&mut self, token: &str) -> bool {
        self.comment();
        let rest = self.rest.strip_prefix(token);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, token: &str) {
        assert!(self.takes(token), "{token:?} at {:?}", &self.rest[..self.rest.len().min(80)]);
    }

    fn word(&mut self) -> &'a str {
        self.comment();
        if let Some((name, rest)) = self.rest.strip_prefix('"').and_then(|rest| rest.split_once('"')) {
            self.rest = rest;
            return name;
        }
        let end = self.rest.find(|letter: char| !letter.is_alphanumeric() && letter != '_');
        let (word, rest) = self.rest.split_at(end.unwrap_or(self.rest.len()));
        self.rest = rest;
        word
    }

    /// All declarations, by name.
    fn declarations(mut self) -> Map<String, Value> {
        let mut all = Map::new();
        loop {
            let about = self.comment();
            if self.rest.is_empty() {
                return all;
            }
            self.expect("export type ");
            let name = self.word().to_owned();
            self.expect("=");
            let mut schema = self.union();
            self.expect(";");
            describe(&mut schema, about);
            all.insert(name, schema);
        }
    }

    fn union(&mut self) -> Value {
        let mut all = vec![self.intersection()];
        while self.takes("|") {
            all.push(self.intersection());
        }
        if all.len() == 1 { all.remove(0) } else { json!({ "anyOf": all }) }
    }

    fn intersection(&mut self) -> Value {
        let mut all = vec![self.single()];
        while self.takes("&") {
            all.push(self.single());
        }
        if all.len() == 1 { all.remove(0) } else { json!({ "allOf": all }) }
    }

    fn single(&mut self) -> Value {
        if self.takes("(") {
            let inner = self.union();
            self.expect(")");
            return inner;
        }
        if self.takes("\"") {
            let (text, rest) = self.rest.split_once('"').unwrap();
            self.rest = rest;
            return json!({ "const": text });
        }
        if self.takes("[") {
            let mut items = Vec::new();
            while !self.takes("]") {
                items.push(self.union());
                self.takes(",");
            }
            let count = items.len();
            return json!({ "type": "array", "prefixItems": items, "minItems": count, "maxItems": count });
        }
        if self.takes("{") {
            return self.object();
        }
        match self.word() {
            "Array" => {
                self.expect("<");
                let items = self.union();
                self.expect(">");
                json!({ "type": "array", "items": items })
            }
            word @ ("string" | "number" | "boolean" | "null") => json!({ "type": word }),
            "" => panic!("no type at {:?}", &self.rest[..self.rest.len().min(80)]),
            name => json!({ "$ref": format!("#/components/schemas/{name}") }),
        }
    }

    fn object(&mut self) -> Value {
        if self.takes("[") {
            self.word();
            self.expect("in string]:");
            let values = self.union();
            self.expect("}");
            return json!({ "type": "object", "additionalProperties": values });
        }
        let (mut properties, mut required) = (Map::new(), Vec::new());
        loop {
            let about = self.comment();
            if self.takes("}") {
                return json!({ "type": "object", "properties": properties, "required": required });
            }
            let name = self.word().to_owned();
            if !self.takes("?") {
                required.push(name.clone());
            }
            self.expect(":");
            let mut schema = self.union();
            self.takes(",");
            describe(&mut schema, about);
            properties.insert(name, schema);
        }
    }
}

fn describe(schema: &mut Value, about: Option<String>) {
    if let (Value::Object(fields), Some(about)) = (schema, about) {
        fields.insert("description".to_owned(), about.into());
    }
}

/// The names of all schemas that this one needs.
fn references(schema: &Value, found: &mut Vec<String>) {
    match schema {
        Value::Object(fields) => {
            let name = fields.get("$ref").and_then(Value::as_str).and_then(|name| name.rsplit('/').next());
            found.extend(name.map(str::to_owned));
            fields.values().for_each(|value| references(value, found));
        }
        Value::Array(all) => all.iter().for_each(|value| references(value, found)),
        _ => {}
    }
}

/// The types of documents that the API has, with all that they are made of.
const DOCUMENTS: [&str; 12] = [
    "PageStatus",
    "NowReport",
    "QueriesDocument",
    "ShapeHistory",
    "TimelineReport",
    "ChangesReport",
    "IncidentReport",
    "WaitsReport",
    "StorageReport",
    "DifferentReport",
    "AllSeriesReport",
    "EventsReport",
];

#[test]
fn the_schemas_are_made_of_the_types_of_the_documents() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let types = std::fs::read_to_string(folder.join("../../web/src/documents.ts")).unwrap();
    let all = TypeReader { rest: &types }.declarations();
    let mut schemas = Map::new();
    let mut wanted: Vec<String> = DOCUMENTS.map(str::to_owned).to_vec();
    wanted.push("RequestProblem".to_owned());
    while let Some(name) = wanted.pop() {
        if !schemas.contains_key(&name) {
            let schema = all.get(&name).unwrap_or_else(|| panic!("there is no type {name}"));
            references(schema, &mut wanted);
            schemas.insert(name, schema.clone());
        }
    }
    // A schema in each line.
    let lines: Vec<String> = schemas.iter().map(|(name, schema)| format!("\"{name}\": {schema}")).collect();
    let text = format!("{{\n{}\n}}\n", lines.join(",\n"));
    let file = folder.join("src/schemas.json");
    if std::env::var("SNAPSHOTS").is_ok_and(|what| what == "overwrite") {
        std::fs::write(&file, &text).unwrap();
    }
    let written = std::fs::read_to_string(&file).unwrap();
    assert!(written == text, "src/schemas.json differs from the types: SNAPSHOTS=overwrite writes it");
}

/// Why a value is not what a schema says; `None` if it is.
fn wrong(value: &Value, schema: &Value, schemas: &Value) -> Option<String> {
    let inside = |at: &str, found: Option<String>| found.map(|why| format!("{at}: {why}"));
    if let Some(name) = schema["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
        return inside(name, wrong(value, &schemas[name], schemas));
    }
    if let Some(any) = schema["anyOf"].as_array() {
        let all: Vec<String> = any.iter().map_while(|one| wrong(value, one, schemas)).collect();
        return (all.len() == any.len()).then(|| all.join(" and "));
    }
    if let Some(all) = schema["allOf"].as_array() {
        return all.iter().find_map(|one| wrong(value, one, schemas));
    }
    if !schema["const"].is_null() {
        return (schema["const"] != *value).then(|| format!("{value} is not {}", schema["const"]));
    }
    let fits = match schema["type"].as_str().unwrap_or_default() {
        "string" => value.is_string(),
        "number" => value.is_number(),
        "boolean" => value.is_boolean(),
        "null" => value.is_null(),
        "array" => value.is_array(),
        "object" => value.is_object(),
        other => panic!("there is no type {other:?}"),
    };
    if !fits {
        return Some(format!("{value} is no {}", schema["type"]));
    }
    if let Some(fields) = value.as_object() {
        let lacks = schema["required"].as_array().into_iter().flatten();
        if let Some(name) = lacks.filter_map(Value::as_str).find(|name| !fields.contains_key(*name)) {
            return Some(format!("{name} is missing"));
        }
        return fields.iter().find_map(|(name, value)| {
            let of_name = &schema["properties"][name];
            let rest = &schema["additionalProperties"];
            let schema = if of_name.is_null() { rest } else { of_name };
            if schema.is_null() { None } else { inside(name, wrong(value, schema, schemas)) }
        });
    }
    let items = value.as_array()?;
    if let Some(each) = schema["prefixItems"].as_array() {
        if each.len() != items.len() {
            return Some(format!("{} items in place of {}", items.len(), each.len()));
        }
        return items.iter().zip(each).find_map(|(item, schema)| wrong(item, schema, schemas));
    }
    items.iter().find_map(|item| wrong(item, &schema["items"], schemas))
}

#[test]
fn answers_are_what_the_description_says() {
    let page = TestPage::new(TestHistory::running(), PageLimits::default());
    // Nobody needs a token to read it.
    let description = page.ask(get("/api/v1/openapi.json").body(Body::empty()).unwrap());
    assert_eq!(description.status, StatusCode::OK);
    let description = description.json();
    let schemas = &description["components"]["schemas"];
    let queries = page.read("/api/v1/queries").json();
    let id = queries["rows"][0]["shape_id"].as_str().unwrap().to_owned();
    let paths = description["paths"].as_object().unwrap();
    assert_eq!(paths.len(), 13);
    for (path, described) in paths {
        let operation = &described["get"];
        let answer =
            page.read(&if path.ends_with("shape") { format!("{path}?id={id}") } else { path.clone() });
        assert_eq!(answer.status, StatusCode::OK, "{path}");
        let media = answer.headers["content-type"].to_str().unwrap();
        let schema = &operation["responses"]["200"]["content"][media]["schema"];
        for line in answer.text.lines() {
            let document: Value = serde_json::from_str(line).unwrap();
            assert_eq!(wrong(&document, schema, schemas), None, "{path}");
        }
        for parameter in operation["parameters"].as_array().unwrap() {
            let name = parameter["name"].as_str().unwrap();
            let example = parameter["example"].as_str().unwrap();
            let more = match name {
                // It says how exactly a moment is known.
                "precision" => "&at=-30m".to_owned(),
                _ if path.ends_with("shape") && name != "id" => format!("&id={id}"),
                _ => String::new(),
            };
            let answer = page.read(&format!("{path}?{name}={example}{more}"));
            assert_ne!(answer.status, StatusCode::BAD_REQUEST, "{path} {name}: {}", answer.text);
        }
    }
    let refused = page.read("/api/v1/timeline?zone=Nowhere").json();
    assert_eq!(wrong(&refused, &schemas["RequestProblem"], schemas), None);
    let with_wrong = json!({ "schema": 1, "kind": "page_status" });
    assert!(wrong(&with_wrong, &schemas["PageStatus"], schemas).is_some(), "the check finds what is wrong");
}
