//! Samples that were saved one by one: the output of `db.adminCommand({getDiagnosticData: 1})`, as a shell prints it or
//! as JSON, one document for each sample.

use std::io::{self, BufRead, BufReader, Read};

use anyhow::Result;
use bson::{Bson, Document};
use serde_json::Value;
use sonar_decode::ftdc::ChunkError;
use sonar_decode::syntax::documents::{Documents, FoundDocument};
use sonar_decode::syntax::{printed, time};

/// Whether what is read is a text. A file of `diagnostic.data` begins with the length of a document, which has a zero
/// byte.
pub fn is_saved(documents: &BufReader<Box<dyn Read>>) -> bool {
    let head = documents.buffer();
    !head.is_empty() && !head.iter().take(4).any(|byte| *byte == 0)
}

/// What could not be read of a file.
#[derive(Debug, Default)]
pub struct SavedLosses {
    /// Documents that could not be read.
    pub broken: usize,
    /// Why the file was not read to its end.
    pub damage: Option<String>,
}

/// Hands out each sample as BSON, as far as the file can be read.
///
/// # Errors
/// The outer error of `each`.
pub fn read(
    mut input: BufReader<Box<dyn Read>>,
    mut each: impl FnMut(&[u8]) -> Result<Result<(), ChunkError>>,
) -> Result<SavedLosses> {
    let (mut documents, mut broken) = (Documents::default(), 0);
    let damage = loop {
        let mut rest = match input.fill_buf() {
            Ok(rest) => rest,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => break Some(format!("cannot be read further: {error}")),
        };
        let got = rest.len();
        if got == 0 {
            break None;
        }
        while let Some(found) = documents.next(&mut rest) {
            let sample = match found {
                FoundDocument::Document(document) => sample(document),
                FoundDocument::Broken => None,
            };
            match sample {
                Some(sample) => broken += usize::from(each(&sample)?.is_err()),
                None => broken += 1,
            }
        }
        input.consume(got);
    };
    // Without its end, the last document is no fault of its own.
    let is_cut = damage.is_none() && documents.is_cut();
    Ok(SavedLosses { broken: broken + usize::from(is_cut), damage })
}

/// The sample in a printed document: what `data` holds, or the document itself.
fn sample(text: &[u8]) -> Option<Vec<u8>> {
    let mut json = Vec::new();
    printed::to_json(text, &mut json).ok()?;
    let Value::Object(mut document) = serde_json::from_slice(&json).ok()? else { return None };
    let sample = match document.remove("data") {
        Some(Value::Object(data)) => data,
        _ => document,
    };
    let is_sample = sample.contains_key("serverStatus") || sample.contains_key("common");
    let Some(Bson::Document(sample)) = value_of(Value::Object(sample)) else { return None };
    is_sample.then(|| sample.to_vec().ok())?
}

/// A value of extended JSON; `None` for what no figure needs, and for a timestamp that was lost when the document was
/// read as text: it would count as zeros.
fn value_of(value: Value) -> Option<Bson> {
    let integer = |value: &Value| match value {
        Value::String(text) => text.parse::<i64>().ok(),
        number => number.as_i64(),
    };
    Some(match value {
        Value::Null => return None,
        Value::Bool(flag) => Bson::Boolean(flag),
        Value::Number(number) => match number.as_i64() {
            Some(integer) => Bson::Int64(integer),
            None => Bson::Double(number.as_f64()?),
        },
        // `JSON.stringify` writes a date as a text.
        Value::String(text) => match time::iso_with_offset(text.as_bytes()) {
            Some((ms, Some(_))) => Bson::DateTime(bson::DateTime::from_millis(ms)),
            _ => Bson::String(text),
        },
        Value::Array(all) => Bson::Array(all.into_iter().filter_map(value_of).collect()),
        Value::Object(object) => match object.iter().next().map(|(name, value)| (name.as_str(), value)) {
            Some(("$numberLong" | "$numberInt", number)) => Bson::Int64(integer(number)?),
            Some(("$numberDouble", number)) => Bson::Double(number.as_str()?.parse().ok()?),
            Some(("$date", Value::String(text))) => {
                Bson::DateTime(bson::DateTime::from_millis(time::iso(text.as_bytes())?))
            }
            Some(("$date", date)) => {
                let ms = date.get("$numberLong").map_or_else(|| integer(date), integer)?;
                Bson::DateTime(bson::DateTime::from_millis(ms))
            }
            Some(("$timestamp", parts)) => {
                let part = |name| u32::try_from(parts.get(name)?.as_i64()?).ok();
                let (time, increment) = (part("t").filter(|seconds| *seconds > 0)?, part("i")?);
                Bson::Timestamp(bson::Timestamp { time, increment })
            }
            Some((name, _)) if name.starts_with('$') => return None,
            _ => {
                let members = object.into_iter().filter_map(|(name, value)| Some((name, value_of(value)?)));
                Bson::Document(members.collect::<Document>())
            }
        },
    })
}
