//! Documents that only a served page has.

use std::collections::BTreeMap;

use serde::Serialize;
use ts_rs::TS;

use crate::agent::AgentStatus;
use crate::changes::GapJson;

/// Version of the schema of these documents.
pub const SCHEMA: u32 = 1;

/// What a history has, and what the agent that writes it is doing.
#[derive(Clone, Debug, Serialize, TS)]
pub struct PageStatus {
    /// Version of the schema.
    pub schema: u32,
    /// `page_status`.
    #[ts(type = "\"page_status\"")]
    pub kind: &'static str,
    /// The version of mongosonar.
    pub version: &'static str,
    /// The folder of the history.
    pub history: String,
    /// The time of the answer, in nanoseconds since 1970.
    pub now_ns: u64,
    /// The host that the history is of, if it is known.
    pub host: Option<String>,
    /// The start of the time that the history covers; null if it is empty.
    pub start_ns: Option<u64>,
    /// Its end.
    pub end_ns: Option<u64>,
    /// What was not observed in its last hour.
    pub gaps: Vec<GapJson>,
    /// What the agent does; null if none has written for a minute.
    pub agent: Option<AgentStatus>,
    /// Why it is not known what the agent does.
    pub agent_problem: Option<String>,
    /// How much was refused since the start of the page, by its reason.
    pub refused: BTreeMap<&'static str, u64>,
}

/// Why a request was refused.
#[derive(Clone, Debug, Serialize, TS)]
pub struct RequestProblem {
    /// Version of the schema.
    pub schema: u32,
    /// `problem`.
    #[ts(type = "\"problem\"")]
    pub kind: &'static str,
    /// The version of mongosonar.
    pub version: &'static str,
    /// The reason, for programs.
    pub reason: &'static str,
    /// What is wrong, and what helps.
    pub words: String,
    /// The parameter that is wrong, if it is one.
    pub parameter: Option<String>,
}
