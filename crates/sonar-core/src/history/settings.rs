//! Settings that a server was started with, and how those of two starts differ.

use std::collections::{BTreeMap, BTreeSet};

/// The most settings of a server that are kept.
pub const MAX_SETTINGS: usize = 100;
/// The most letters of a value that are kept.
const MAX_VALUE: usize = 60;
/// The most settings that a text names.
const MAX_CHANGED: usize = 4;
/// Settings whose names or values contain one of these may hold secrets: their values are hidden.
const SECRET: [&str; 5] = ["password", "passphrase", "secret", "token", "credential"];

/// The value of a setting as it may be shown: cut, and hidden if it may be a secret.
pub fn shown_setting(name: &str, value: &str) -> String {
    match may_be_secret(name) || may_be_secret(value) {
        true => "(hidden)".to_owned(),
        false => value.chars().take(MAX_VALUE).collect(),
    }
}

/// Whether a name or a value may be, or contain, a secret. Lists and objects contain settings of any name, and an
/// address may contain a login.
fn may_be_secret(text: &str) -> bool {
    let lower = text.to_ascii_lowercase();
    let has_login = lower.split_once("://").is_some_and(|(_, rest)| rest.contains('@'));
    has_login || lower.contains(['{', '[']) || SECRET.iter().any(|secret| lower.contains(secret))
}

/// Which settings have another value than before, in words; `None` if none has, or they are not known.
pub fn changed_settings(before: &BTreeMap<String, String>, now: &BTreeMap<String, String>) -> Option<String> {
    if before.is_empty() || now.is_empty() {
        return None;
    }
    let names: BTreeSet<&String> = before.keys().chain(now.keys()).collect();
    let changed: Vec<String> = names
        .into_iter()
        .filter_map(|name| match (before.get(name), now.get(name)) {
            (Some(was), Some(is)) if was == is => None,
            (Some(was), Some(is)) => Some(format!("{name} {is}, was {was}")),
            (None, Some(is)) => Some(format!("{name} {is}, was not set")),
            (Some(was), None) => Some(format!("{name} is not set, was {was}")),
            (None, None) => None,
        })
        .collect();
    let more = changed.len().saturating_sub(MAX_CHANGED);
    let more = if more > 0 { format!("; and {more} more") } else { String::new() };
    let shown: Vec<String> = changed.into_iter().take(MAX_CHANGED).collect();
    (!shown.is_empty()).then(|| format!("{}{more}", shown.join("; ")))
}
