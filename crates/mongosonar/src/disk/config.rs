//! mongoperf's configuration: a flat JSON document whose keys may be unquoted.

use std::fmt;

use anyhow::{Context, Result, anyhow, bail};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use sonar_sys::disk::MOST_IN_FLIGHT;

use super::args::{BenchArgs, MOST_FILE_MB, MOST_PAUSE, MOST_RECORD_KB};

/// The most bytes of a document. mongoperf accepted a thousand.
pub const MOST_BYTES: usize = 64 << 10;
/// mongoperf's options with their defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    pub n_threads: u32,
    pub file_size_mb: u64,
    pub sleep_micros: u64,
    pub mmf: bool,
    pub r: bool,
    pub w: bool,
    pub rec_size_kb: u32,
    pub sync_delay: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            n_threads: 1,
            file_size_mb: 1,
            sleep_micros: 0,
            mmf: false,
            r: false,
            w: false,
            rec_size_kb: 4,
            sync_delay: 0,
        }
    }
}

const KEYS: &str = "nThreads fileSizeMB sleepMicros mmf r w recSizeKB syncDelay";

/// The members of a document in order, including repeated keys.
struct Members(Vec<(String, Value)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Flat;
        impl<'de> Visitor<'de> for Flat {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a document like {nThreads:16, fileSizeMB:1000, r:true}")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Flat)
    }
}

/// Whether a document is flat: one pair of braces, no brackets. A nested document is no configuration, so no parser
/// has to recurse.
fn is_flat(text: &str) -> bool {
    let (mut quote, mut escaped, mut braces) = (None, false, 0);
    for c in text.chars() {
        match (quote, c) {
            (Some(_), _) if escaped => escaped = false,
            (Some(_), '\\') => escaped = true,
            (Some(q), c) if c == q => quote = None,
            (Some(_), _) => {}
            (None, '"' | '\'') => quote = Some(c),
            (None, '{') => braces += 1,
            (None, '[') => return false,
            _ => {}
        }
    }
    braces <= 1
}

fn number(key: &str, value: &Value, low: u64, high: u64) -> Result<u64> {
    let whole = value.as_u64().or_else(|| {
        // 16.0 and 1e3 are whole numbers too.
        value.as_f64().filter(|n| n.fract() == 0.0 && (0.0..1e15).contains(n)).map(|n| n as u64)
    });
    whole
        .filter(|n| (low..=high).contains(n))
        .ok_or_else(|| anyhow!("{key}: {value} is not a whole number from {low} to {high}"))
}

fn truth(key: &str, value: &Value) -> Result<bool> {
    match value {
        Value::Bool(truth) => Ok(*truth),
        // As mongoperf: any number but zero is true.
        Value::Number(number) => Ok(number.as_f64() != Some(0.0)),
        _ => bail!("{key}: {value} is neither true nor false"),
    }
}

/// Reads a document; an empty one keeps all defaults.
pub fn parse(bytes: &[u8]) -> Result<Options> {
    if bytes.len() > MOST_BYTES {
        bail!(
            "the configuration is longer than {} KiB: it must be one small JSON document",
            MOST_BYTES >> 10
        );
    }
    let text = std::str::from_utf8(bytes).context("the configuration is no text in UTF-8")?;
    let mut options = Options::default();
    if text.trim().is_empty() {
        return Ok(options);
    }
    if !is_flat(text) {
        bail!("the configuration is nested: it must be one flat document like {{nThreads:16, r:true}}");
    }
    let members: Members =
        json5::from_str(text).map_err(|error| anyhow!("the configuration is no JSON document: {error}"))?;
    let mut seen: Vec<&str> = Vec::new();
    for (key, value) in &members.0 {
        if seen.contains(&key.as_str()) {
            bail!("{key} is given twice");
        }
        seen.push(key);
        match key.as_str() {
            "nThreads" => options.n_threads = number(key, value, 1, u64::from(MOST_IN_FLIGHT))? as u32,
            "fileSizeMB" => options.file_size_mb = number(key, value, 1, MOST_FILE_MB)?,
            "sleepMicros" => options.sleep_micros = number(key, value, 0, MOST_PAUSE)?,
            "recSizeKB" => options.rec_size_kb = number(key, value, 1, u64::from(MOST_RECORD_KB))? as u32,
            "syncDelay" => options.sync_delay = number(key, value, 0, MOST_PAUSE)?,
            "mmf" => options.mmf = truth(key, value)?,
            "r" => options.r = truth(key, value)?,
            "w" => options.w = truth(key, value)?,
            _ => bail!("unknown key {key:?}; there are: {KEYS}"),
        }
    }
    Ok(options)
}

/// Flags override the document. Checks that the options fit together.
pub fn merge(mut options: Options, args: &BenchArgs) -> Result<Options> {
    options.n_threads = args.n_threads.unwrap_or(options.n_threads);
    options.file_size_mb = args.file_size_mb.unwrap_or(options.file_size_mb);
    options.rec_size_kb = args.rec_size_kb.unwrap_or(options.rec_size_kb);
    options.sleep_micros = args.sleep_micros.unwrap_or(options.sleep_micros);
    options.sync_delay = args.sync_delay.unwrap_or(options.sync_delay);
    options.mmf = args.mmf.unwrap_or(options.mmf);
    options.r = args.r.unwrap_or(options.r);
    options.w = args.w.unwrap_or(options.w);
    if !options.r && !options.w {
        bail!(
            "r and w are both false: say what to do, with --r, --w or both, or in a document like \
             {{nThreads:16, fileSizeMB:1000, r:true}}"
        );
    }
    if u64::from(options.rec_size_kb) > options.file_size_mb << 10 {
        bail!(
            "recSizeKB: a record of {} KB does not fit into a file of {} MB (fileSizeMB)",
            options.rec_size_kb,
            options.file_size_mb
        );
    }
    Ok(options)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_of_mongoperf_is_taken_as_it_is() {
        let wanted = Options {
            n_threads: 1_024,
            file_size_mb: 1_000,
            r: true,
            w: true,
            sync_delay: 60,
            ..Options::default()
        };
        for text in [
            "{ nThreads:1024, fileSizeMB:1000, mmf:false, r:true, w:true, syncDelay:60 }",
            "{\"nThreads\": 1024, \"fileSizeMB\": 1000, \"mmf\": false, \"r\": true, \"w\": true, \"syncDelay\": 60}",
            "{\r\n  'nThreads' : 1024.0,\r\n  fileSizeMB : 1e3, r : 1, w : 1, mmf : 0, syncDelay : 60,\r\n}\n",
        ] {
            assert_eq!(parse(text.as_bytes()).unwrap(), wanted, "{text}");
        }
        assert_eq!(parse(b" \n").unwrap(), Options::default());
        assert_eq!(parse(b"{recSizeKB:64000,sleepMicros:7}").unwrap().rec_size_kb, 64_000);
    }

    #[test]
    fn an_error_names_the_key() {
        for (text, named) in [
            ("{nthreads:1}", "\"nthreads\""),
            ("{nThreads:0}", "nThreads"),
            ("{nThreads:-1}", "nThreads"),
            ("{nThreads:1.5}", "nThreads"),
            ("{nThreads:\"16\"}", "nThreads"),
            ("{nThreads:1e99}", "nThreads"),
            ("{fileSizeMB:null}", "fileSizeMB"),
            ("{recSizeKB:64001}", "recSizeKB"),
            ("{sleepMicros:true}", "sleepMicros"),
            ("{syncDelay:NaN}", "syncDelay"),
            ("{r:\"yes\"}", "r: "),
            ("{w:null}", "w: "),
            ("{mmf:'false'}", "mmf"),
            ("{r:true,r:true}", "r is given twice"),
        ] {
            let error = format!("{:#}", parse(text.as_bytes()).unwrap_err());
            assert!(error.contains(named), "{text}: {error}");
        }
    }

    #[test]
    fn what_is_no_configuration_is_refused_whatever_it_is() {
        let deep = "[".repeat(30_000);
        let deeper = "{a:".repeat(20_000);
        for bad in ["{", "16", "r:true", "{r}", "{r:true}}", "{r:{}}", "{\"r\":true", "[1]", &deep, &deeper] {
            assert!(parse(bad.as_bytes()).is_err(), "{:.20}", bad);
        }
        assert!(parse(&vec![b' '; 1 << 20]).unwrap_err().to_string().contains("longer than 64 KiB"));
        assert!(parse(&[0xff, 0xfe]).is_err());
        // Braces and brackets inside quotes do not count.
        assert!(format!("{:#}", parse(b"{'[{':1}").unwrap_err()).contains("unknown key"));
    }

    #[test]
    fn a_flag_goes_before_the_document() {
        let document = parse(b"{nThreads:4, r:true, fileSizeMB:10}").unwrap();
        let args = BenchArgs { n_threads: Some(8), r: Some(false), w: Some(true), ..BenchArgs::default() };
        let merged = merge(document, &args).unwrap();
        assert_eq!((merged.n_threads, merged.r, merged.w, merged.file_size_mb), (8, false, true, 10));
    }

    #[test]
    fn what_does_not_go_together_is_said() {
        let refused = |args: BenchArgs| merge(Options::default(), &args).unwrap_err().to_string();
        assert!(refused(BenchArgs::default()).contains("--r, --w"));
        let large = BenchArgs { r: Some(true), rec_size_kb: Some(2_048), ..BenchArgs::default() };
        assert!(refused(large).contains("fileSizeMB"));
    }
}
