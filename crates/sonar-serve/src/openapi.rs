//! The description of the API in OpenAPI 3.1, for programs that make clients of it.

use serde_json::{Value, json};
use sonar_core::history::{EventKind, SeriesSubject};
use sonar_view::queries::{Column, Grouping};

use crate::documents::DocumentKind;
use crate::site::PagePath;

/// The schemas of all documents, made of the types of `sonar_view` by a test, which also writes this file.
const SCHEMAS: &str = include_str!("schemas.json");

/// A parameter of a request.
struct ParameterDoc {
    name: &'static str,
    about: &'static str,
    /// A value that is accepted.
    example: &'static str,
    schema: fn() -> Value,
    is_required: bool,
}

const fn parameter(name: &'static str, about: &'static str, example: &'static str) -> ParameterDoc {
    ParameterDoc { name, about, example, schema: text, is_required: false }
}

impl ParameterDoc {
    const fn with(self, schema: fn() -> Value) -> Self {
        Self { schema, ..self }
    }
}

fn text() -> Value {
    json!({ "type": "string" })
}

fn number() -> Value {
    json!({ "type": "integer", "minimum": 1 })
}

fn nanoseconds() -> Value {
    json!({ "type": "integer", "minimum": 0 })
}

fn port() -> Value {
    json!({ "type": "integer", "minimum": 1, "exclusiveMaximum": 65_536 })
}

fn grouping() -> Value {
    let stored = Grouping::ALL.into_iter().filter(|by| *by != Grouping::Order);
    json!({ "type": "string", "enum": stored.map(Grouping::name).collect::<Vec<_>>() })
}

fn column() -> Value {
    json!({ "type": "string", "enum": Column::ALL.map(Column::name).to_vec() })
}

fn subject() -> Value {
    json!({ "type": "string", "enum": SeriesSubject::ALL.map(SeriesSubject::name) })
}

fn event_kind() -> Value {
    json!({ "type": "string", "enum": EventKind::ALL.iter().map(|kind| kind.name()).collect::<Vec<_>>() })
}

fn against() -> Value {
    json!({ "type": "string", "enum": ["yesterday", "last-week"] })
}

const SPAN: [ParameterDoc; 4] = [
    parameter(
        "from",
        "start of the span: a time of RFC 3339, or -15m, -2h, -7d; the last hour without from and to",
        "-2h",
    ),
    parameter("to", "end of the span, in the same form; the end of the history without it", "-1m"),
    parameter("zone", "zone of times in sentences; UTC without it", "Europe/Berlin"),
    parameter("port", "only the server at this port", "27017").with(port),
];
const ROWS: [ParameterDoc; 4] = [
    parameter("by", "what a row is: shape, namespace, app or client", "namespace").with(grouping),
    parameter("sort", "the column that rows are sorted by", "calls").with(column),
    parameter("filter", "words that a row has", "orders"),
    parameter("limit", "the most rows", "10").with(number),
];

const SELECTED: [ParameterDoc; 6] = [
    parameter("start", "start of the time of the operations to compare, in the form of from", "-30m"),
    parameter("end", "end of that time", "-1m"),
    parameter(
        "low",
        "they took longer than so many nanoseconds; without times and latencies they are the slowest twentieth",
        "100000000",
    )
    .with(nanoseconds),
    parameter("high", "they took so many nanoseconds at most", "900000000").with(nanoseconds),
    parameter("id", "only operations of the shape with this id are compared", "1f"),
    parameter("namespace", "only operations of this namespace are compared", "shop.orders"),
];

impl DocumentKind {
    /// What it is, in a few words.
    const fn summary(self) -> &'static str {
        match self {
            Self::Status => "What the history has, and what the agent does",
            Self::Now => {
                "The operations that run now, the oldest first, as the agent listed them a moment ago"
            }
            Self::Queries => "The queries of a span",
            Self::Intervals => "The queries of each interval of a span, an object in each line",
            Self::Shape => "One query shape over a span",
            Self::Timeline => "Queries, internals, machine and events on one axis of time",
            Self::Changes => "What changed at a moment or in a span",
            Self::Incident => "What changed, the timeline and the queries of a span",
            Self::Waits => "Where the time of operations went over a span",
            Self::Storage => "Files, disks and space over a span",
            Self::Different => "In what some operations of a span differ from the rest",
            Self::Series => "Every stored series over a span",
            Self::Events => "The events of a span",
        }
    }

    /// The type of its documents in `schemas.json`.
    const fn schema(self) -> &'static str {
        match self {
            Self::Status => "PageStatus",
            Self::Now => "NowReport",
            Self::Queries | Self::Intervals => "QueriesDocument",
            Self::Shape => "ShapeHistory",
            Self::Timeline => "TimelineReport",
            Self::Changes => "ChangesReport",
            Self::Incident => "IncidentReport",
            Self::Waits => "WaitsReport",
            Self::Storage => "StorageReport",
            Self::Different => "DifferentReport",
            Self::Series => "AllSeriesReport",
            Self::Events => "EventsReport",
        }
    }

    fn parameters(self) -> Vec<ParameterDoc> {
        let mut all = Vec::new();
        match self {
            Self::Status | Self::Now => return all,
            Self::Queries => all.extend(ROWS),
            Self::Intervals => {
                all.extend(ROWS);
                all.push(
                    parameter("width", "length of an interval in seconds; 60 without it", "600").with(number),
                );
            }
            Self::Shape => all.push(ParameterDoc {
                name: "id",
                about: "the id of the shape, as documents have it",
                example: "1f",
                schema: text,
                is_required: true,
            }),
            Self::Changes => all.extend([
                parameter("at", "the moment, in place of a span", "-30m"),
                parameter("precision", "how exactly the moment is known, in seconds; 1 without it", "60")
                    .with(number),
                parameter("against", "what the span is compared with: yesterday or last-week", "yesterday")
                    .with(against),
            ]),
            Self::Series => all.extend([
                parameter("subject", "what series are about: machine, server, device …", "machine")
                    .with(subject),
                parameter("filter", "words of the name or the meaning", "processor"),
                parameter("limit", "the most series", "10").with(number),
            ]),
            Self::Events => all.extend([
                parameter("kind", "the kind of events", "server_start").with(event_kind),
                parameter("filter", "words of the sentence", "started"),
                parameter("limit", "the most events: the latest", "10").with(number),
            ]),
            Self::Different => all.extend(SELECTED),
            Self::Timeline | Self::Incident | Self::Waits | Self::Storage => {}
        }
        all.extend(SPAN);
        all
    }

    fn operation(self) -> Value {
        let parameters: Vec<Value> = self
            .parameters()
            .into_iter()
            .map(|one| {
                json!({
                    "name": one.name,
                    "in": "query",
                    "required": one.is_required,
                    "description": one.about,
                    "schema": (one.schema)(),
                    "example": one.example,
                })
            })
            .collect();
        let answer = json!({ "$ref": format!("#/components/schemas/{}", self.schema()) });
        let problem = json!({ "$ref": "#/components/schemas/RequestProblem" });
        let mut content = serde_json::Map::new();
        content.insert(self.media_type().to_owned(), json!({ "schema": answer }));
        json!({
            "get": {
                "summary": self.summary(),
                "operationId": self.path().trim_start_matches("/api/v1/").replace('/', "-"),
                "parameters": parameters,
                "responses": {
                    "200": { "description": "The document", "content": content },
                    "304": { "description": "It is still the one whose ETag If-None-Match has" },
                    "default": {
                        "description": "Why there is none",
                        "content": { "application/json": { "schema": problem } },
                    },
                },
            },
        })
    }
}

/// The description of a page below this path, as JSON.
pub(crate) fn document(path: &PagePath) -> String {
    let paths: serde_json::Map<String, Value> =
        DocumentKind::ALL.into_iter().map(|kind| (kind.path().to_owned(), kind.operation())).collect();
    let schemas: Value = serde_json::from_str(SCHEMAS).unwrap_or_default();
    let mut description = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "mongosonar",
            "version": env!("CARGO_PKG_VERSION"),
            "description": "What a history of mongosonar says about a span of time. No value of a query is in it.",
        },
        "paths": paths,
        "components": {
            "schemas": schemas,
            "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        },
        "security": [{ "token": [] }],
    });
    // Without it the addresses are those of the root.
    if !path.is_root() {
        description["servers"] = json!([{ "url": path.as_str() }]);
    }
    description.to_string()
}
