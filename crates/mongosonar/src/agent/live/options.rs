//! The settings that a server was started with: those of its command line and of its configuration.

use std::collections::BTreeMap;

/// The most settings of a server.
const MAX_OPTIONS: usize = 100;
/// The most bytes of a value that are kept.
const MAX_VALUE: usize = 60;
/// Settings whose names contain one of these are secrets: only whether they are set is told.
const SECRET: [&str; 3] = ["password", "secret", "token"];

/// All settings of these arguments of a process, and of the text of its configuration.
pub fn of(arguments: &[String], configuration: Option<&str>) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    for (name, value) in of_file(configuration.unwrap_or_default()).into_iter().chain(of_arguments(arguments))
    {
        if options.len() < MAX_OPTIONS {
            let lower = name.to_ascii_lowercase();
            let is_secret = SECRET.iter().any(|secret| lower.contains(secret));
            let value =
                if is_secret { "(hidden)".to_owned() } else { value.chars().take(MAX_VALUE).collect() };
            options.insert(name, value);
        }
    }
    options
}

/// `--name value`, `--name=value`, `--name` and `--setParameter name=value`.
fn of_arguments(arguments: &[String]) -> Vec<(String, String)> {
    let mut options = Vec::new();
    let mut words = arguments.iter().skip(1).peekable();
    while let Some(word) = words.next() {
        let Some(option) = word.strip_prefix("--") else { continue };
        let (name, value) = match option.split_once('=') {
            Some((name, value)) => (name, value.to_owned()),
            None => {
                let value = words.next_if(|next| !next.starts_with('-'));
                (option, value.map_or_else(|| "true".to_owned(), Clone::clone))
            }
        };
        match value.split_once('=').filter(|_| name == "setParameter") {
            Some((parameter, value)) => options.push((parameter.to_owned(), value.to_owned())),
            None => options.push((name.to_owned(), value)),
        }
    }
    options
}

/// `section:` above `  name: value`, as `section.name`; `name = value` before 2.6.
fn of_file(text: &str) -> Vec<(String, String)> {
    let mut options = Vec::new();
    let mut sections: Vec<(usize, &str)> = Vec::new();
    for line in text.lines() {
        let line = line.split(" #").next().unwrap_or(line).trim_end();
        let content = line.trim_start();
        if content.is_empty() || content.starts_with(['#', '-', '%']) {
            continue;
        }
        let depth = line.len() - content.len();
        sections.retain(|(of_section, _)| *of_section < depth);
        let Some((name, value)) = content.split_once([':', '=']) else { continue };
        let (name, value) = (name.trim(), value.trim().trim_matches(['"', '\'']));
        if value.is_empty() {
            sections.push((depth, name));
            continue;
        }
        let path: Vec<&str> = sections.iter().map(|(_, section)| *section).chain([name]).collect();
        options.push((path.join("."), value.to_owned()));
    }
    options
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn settings_of_the_command_line_are_read() {
        let line = "mongod --port 27017 --quiet --wiredTigerCacheSizeGB=1.5 --setParameter ttlMonitorSleepSecs=9 -f /a";
        let options = of(&words(line), None);
        let expected = [
            ("port", "27017"),
            ("quiet", "true"),
            ("ttlMonitorSleepSecs", "9"),
            ("wiredTigerCacheSizeGB", "1.5"),
        ];
        let expected = expected.map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(options, BTreeMap::from(expected));
    }

    #[test]
    fn settings_of_a_configuration_have_their_sections() {
        let text = "# comment\nstorage:\n  dbPath: /data # here\n  wiredTiger:\n    engineConfig:\n      cacheSizeGB: 2\n\
                    net:\n  port: 27017\n  tls:\n    certificateKeyFilePassword: abc\n";
        let options = of(&[], Some(text));
        let get = |name: &str| options.get(name).map(String::as_str);
        assert_eq!(get("storage.wiredTiger.engineConfig.cacheSizeGB"), Some("2"));
        assert_eq!(get("storage.dbPath"), Some("/data"));
        assert_eq!(get("net.port"), Some("27017"));
        assert_eq!(get("net.tls.certificateKeyFilePassword"), Some("(hidden)"));
        assert_eq!(of(&[], Some("dbpath = /old\nport=1\n")).len(), 2);
    }

    #[test]
    fn secrets_are_hidden_and_the_number_of_settings_is_bounded() {
        let options = of(&words("mongod --tlsCertificateKeyFilePassword abc --oneToken=x"), None);
        assert!(options.values().all(|value| value == "(hidden)"), "{options:?}");
        let many: Vec<String> = (0..1_000).map(|number| format!("--a{number}=1")).collect();
        assert_eq!(of(&many, None).len(), MAX_OPTIONS);
        let long = of(&["x".to_owned(), format!("--a={}", "b".repeat(1_000))], None);
        assert_eq!(long["a"].len(), MAX_VALUE);
    }
}
