//! The configuration file: defaults for the flags of `queries`.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};
use serde::Deserialize;

use crate::cli::{
    ByArg, ClassArg, ColorArg, QueriesArgs, RoleArg, ShapeArg, parse_duration, parse_ports, parse_sample,
};

/// What a configuration file may hold.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields)]
pub struct File {
    /// Defaults for `mongosonar queries`.
    #[serde(default)]
    pub queries: Queries,
}

/// Named and written like the flags.
#[derive(Deserialize, Debug, Default)]
#[serde(deny_unknown_fields, rename_all = "kebab-case")]
pub struct Queries {
    interface: Option<Vec<String>>,
    port: Option<Vec<toml::Value>>,
    sample: Option<String>,
    snap_replies: Option<u32>,
    interval: Option<String>,
    by: Option<ByArg>,
    class: Option<Vec<ClassArg>>,
    role: Option<RoleArg>,
    sort: Option<String>,
    limit: Option<usize>,
    shape: Option<ShapeArg>,
    color: Option<ColorArg>,
    threads: Option<u16>,
    ring_mib: Option<u32>,
}

/// Where a configuration file is looked for, the first one found is read.
pub fn places() -> Vec<PathBuf> {
    let user = std::env::var_os("XDG_CONFIG_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".config")));
    let user = user.map(|folder| folder.join("mongosonar/config.toml"));
    user.into_iter().chain([PathBuf::from("/etc/mongosonar/config.toml")]).collect()
}

/// The file that is read, if there is one.
pub fn find(named: Option<&Path>) -> Option<PathBuf> {
    named.map(Path::to_path_buf).or_else(|| places().into_iter().find(|path| path.is_file()))
}

/// Reads the configuration; an empty one when there is no file.
pub fn load(named: Option<&Path>) -> Result<File> {
    let Some(path) = find(named) else { return Ok(File::default()) };
    let text = std::fs::read_to_string(&path)
        .with_context(|| format!("cannot read configuration {}", path.display()))?;
    toml::from_str(&text).with_context(|| format!("configuration {}", path.display()))
}

/// Fills what the arguments leave open.
pub fn merge(mut args: QueriesArgs, file: &File) -> Result<QueriesArgs> {
    let from = &file.queries;
    let wrong = |key: &str, why: String| anyhow!("configuration key queries.{key}: {why}");
    if args.interface.is_empty() && args.read.is_none() {
        args.interface = from.interface.clone().unwrap_or_default();
    }
    if args.port.is_empty() && args.read.is_none() {
        for port in from.port.iter().flatten() {
            let text = port.as_str().map_or_else(|| port.to_string(), str::to_owned);
            args.port.push(parse_ports(&text).map_err(|why| wrong("port", why))?);
        }
    }
    if args.class.is_empty() {
        args.class = from.class.clone().unwrap_or_default();
    }
    if let (None, Some(text)) = (args.sample, &from.sample) {
        args.sample = Some(parse_sample(text).map_err(|why| wrong("sample", why))?);
    }
    if let (None, Some(text), true) = (args.interval, &from.interval, args.read.is_none()) {
        args.interval = Some(parse_duration(text).map_err(|why| wrong("interval", why))?);
    }
    if args.read.is_none() {
        args.snap_replies = args.snap_replies.or(from.snap_replies);
    }
    args.by = args.by.or(from.by);
    args.role = args.role.or(from.role);
    args.sort = args.sort.or_else(|| from.sort.clone());
    args.limit = args.limit.or(from.limit);
    args.shape = args.shape.or(from.shape);
    args.color = args.color.or(from.color);
    args.threads = args.threads.or(from.threads);
    args.ring_mib = args.ring_mib.or(from.ring_mib);
    Ok(args)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_goes_before_the_file() {
        let file: File =
            toml::from_str("[queries]\nport = [27018, \"27020-27022\"]\nby = \"app\"\ninterval = \"5s\"\n")
                .unwrap();
        let merged = merge(QueriesArgs { by: Some(ByArg::Client), ..Default::default() }, &file).unwrap();
        assert_eq!((merged.by, merged.port.len()), (Some(ByArg::Client), 2));
        assert_eq!(merged.interval, Some(std::time::Duration::from_secs(5)));
    }

    #[test]
    fn an_unknown_key_is_named() {
        let error = toml::from_str::<File>("[queries]\nports = [1]\n").unwrap_err().to_string();
        assert!(error.contains("ports"), "{error}");
        let bad: File = toml::from_str("[queries]\nport = [\"x\"]\n").unwrap();
        assert!(merge(QueriesArgs::default(), &bad).unwrap_err().to_string().contains("queries.port"));
    }
}
