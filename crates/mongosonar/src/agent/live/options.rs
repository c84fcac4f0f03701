//! The settings that a server was started with: those of its command line and of its configuration.

use std::collections::BTreeMap;

use sonar_core::history::{MAX_SETTINGS, shown_setting};

use crate::servers::configuration::ServerConfiguration;

/// The most bytes of a name. MongoDB has no longer one.
const MAX_NAME: usize = 120;

/// All settings of these arguments of a process, and of its configuration.
pub fn of(arguments: &[String], configuration: &ServerConfiguration) -> BTreeMap<String, String> {
    let mut options = BTreeMap::new();
    for (name, value) in configuration.settings().iter().cloned().chain(of_arguments(arguments)) {
        if options.len() < MAX_SETTINGS && name.len() <= MAX_NAME {
            let value = shown_setting(&name, &value);
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

#[cfg(test)]
mod tests {
    use super::*;

    fn of_file(text: &str) -> BTreeMap<String, String> {
        of(&[], &ServerConfiguration::parse(text))
    }

    fn of_words(arguments: &[String]) -> BTreeMap<String, String> {
        of(arguments, &ServerConfiguration::default())
    }

    fn words(line: &str) -> Vec<String> {
        line.split(' ').map(str::to_owned).collect()
    }

    #[test]
    fn settings_of_the_command_line_are_read() {
        let line = "mongod --port 27017 --quiet --wiredTigerCacheSizeGB=1.5 --setParameter ttlMonitorSleepSecs=9 -f /a";
        let options = of_words(&words(line));
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
        let options = of_file(text);
        let get = |name: &str| options.get(name).map(String::as_str);
        assert_eq!(get("storage.wiredTiger.engineConfig.cacheSizeGB"), Some("2"));
        assert_eq!(get("storage.dbPath"), Some("/data"));
        assert_eq!(get("net.port"), Some("27017"));
        assert_eq!(get("net.tls.certificateKeyFilePassword"), Some("(hidden)"));
        assert_eq!(of_file("dbpath = /old\nport=1\n").len(), 2);
    }

    #[test]
    fn secrets_within_lists_objects_and_long_values_are_hidden() {
        for text in [
            "setParameter: { ldapBindPassword: hunter2 }\n",
            "setParameter: {ttlMonitorSleepSecs: 9,\n  \"hunter2\": 7, ldapBindPassword: hunter2}\nnet:\n  port: 1\n",
            "setParameter: {\n  \"ldapBindPassword\": \"hunter2\"\n}\n",
            "{\"setParameter\": {\"ldapBindPassword\": \"hunter2\"}}\n",
            "{\n  \"setParameter\": {\n    \"ldapBindPassword\": \"hunter2\"\n  }\n}\n",
            "security:\n  ldap: [a, {bind: hunter2}]\n",
            "security:\n  ldap:\n    bind:\n      queryPassword: >-\n        hunter2: hunter2\n    servers: a\n",
            "security:\n  ldap:\n    bind:\n      method: \"a\n        hunter2: hunter2\"\n",
            "setParameter = ldapBindPassword=hunter2\n",
            "sharding:\n  configDB: mongodb://u:hunter2@db1/\n",
        ] {
            let options = of_file(text);
            assert!(!format!("{options:?}").contains("hunter2"), "{text}: {options:?}");
        }
        let flow = of_file("setParameter: {a: 1,\n  b: 2}\nnet:\n  port: 1\n");
        let expected = [("net.port", "1"), ("setParameter", "(hidden)")];
        assert_eq!(flow, expected.map(|(name, value)| (name.to_owned(), value.to_owned())).into());
        let line = ["mongod", "--setParameter", "x={ldapBindPassword:hunter2}"].map(str::to_owned);
        assert_eq!(of_words(&line)["x"], "(hidden)");
    }

    #[test]
    fn secrets_are_hidden_and_the_number_of_settings_is_bounded() {
        let options = of_words(&words("mongod --tlsCertificateKeyFilePassword abc --oneToken=x"));
        assert!(options.values().all(|value| value == "(hidden)"), "{options:?}");
        let many: Vec<String> = (0..1_000).map(|number| format!("--a{number}=1")).collect();
        assert_eq!(of_words(&many).len(), MAX_SETTINGS);
        let named = of_words(&["x".to_owned(), format!("--{}=1", "b".repeat(1_000)), "--port=1".to_owned()]);
        assert_eq!(named.into_keys().collect::<Vec<_>>(), ["port"]);
        let long = of_words(&["x".to_owned(), format!("--a={}", "b".repeat(1_000))]);
        assert_eq!(long["a"].len(), 60);
    }
}
