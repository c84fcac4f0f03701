//! Who is at the other end of a connection: a MongoDB server, or an application?
//!
//! One rule for the wire and for logs. Servers say so themselves since 3.6, by `internalClient` in their
//! hello. Before that, and in logs, which do not repeat it, the driver's name is all there is: but the old
//! `mongo` shell and the old tools use the server's own driver, and are distinguished by the application name
//! they give.

use sonar_core::Application;

/// Application names of the shell and the tools, in any case, alone or with more behind them
/// (`mongosh 2.1.1`).
const SHELL_AND_TOOLS: [&str; 16] = [
    "MongoDB Shell",
    "MongoDB Tools",
    "mongo",
    "mongosh",
    "mongodump",
    "mongorestore",
    "mongoexport",
    "mongoimport",
    "mongostat",
    "mongotop",
    "mongofiles",
    "mongooplog",
    "mongoperf",
    "mongoreplay",
    "mongosniff",
    "bsondump",
];

/// The first version whose servers send `internalClient`.
const SAYS_SO_SINCE: (u32, u32) = (3, 6);

/// Whether a client is a MongoDB server. `internal_client`: whether its hello had that field; `None` where
/// the hello itself was not seen, as in a log.
pub fn is_server(app: &Application, internal_client: Option<bool>) -> bool {
    match internal_client {
        Some(true) => true,
        Some(false) if version(&app.driver_version).is_some_and(|version| version >= SAYS_SO_SINCE) => false,
        _ => is_internal_driver(&app.driver) && !is_shell_or_tool(&app.name),
    }
}

/// Whether a driver's name is that of the driver inside of servers; its version is then the server's.
fn is_internal_driver(driver: &str) -> bool {
    driver.starts_with("NetworkInterface") || driver == "MongoDB Internal Client"
}

fn is_shell_or_tool(name: &str) -> bool {
    SHELL_AND_TOOLS.iter().any(|known| {
        name.get(..known.len()).is_some_and(|begin| begin.eq_ignore_ascii_case(known))
            && !name[known.len()..].starts_with(|next: char| next.is_alphanumeric())
    })
}

/// Major and minor version at the beginning of `text`; `None` where there is none.
fn version(text: &str) -> Option<(u32, u32)> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit());
    Some((parts.next()?.parse().ok()?, parts.next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn client(name: &str, driver: &str, version: &str) -> Application {
        Application {
            name: name.into(),
            driver: driver.into(),
            driver_version: version.into(),
            joined_late: false,
        }
    }

    #[test]
    fn a_server_says_so_since_3_6() {
        let member = client("", "NetworkInterfaceTL", "4.4.6");
        assert!(is_server(&member, Some(true)));
        assert!(!is_server(&member, Some(false)), "4.4 would have said so");
        // Any name will do: the shell's user may choose one.
        assert!(!is_server(&client("my script", "MongoDB Internal Client", "4.0.3"), Some(false)));
        assert!(is_server(&client("OplogFetcher", "MongoDB Internal Client", "4.0.3"), Some(true)));
        assert!(!is_server(&client("api", "nodejs", "6.0.0"), Some(false)));
    }

    #[test]
    fn before_3_6_and_in_logs_the_names_decide() {
        for (internal_client, version) in
            [(Some(false), "3.4.24"), (Some(false), ""), (None, "4.4.6"), (None, "")]
        {
            for driver in ["MongoDB Internal Client", "NetworkInterfaceASIO-RS", "NetworkInterfaceTL"] {
                assert!(is_server(&client("", driver, version), internal_client), "{driver} {version}");
                for name in SHELL_AND_TOOLS.into_iter().chain(["mongosh 1.10.6", "Mongo"]) {
                    assert!(
                        !is_server(&client(name, driver, version), internal_client),
                        "{name} {driver} {version}"
                    );
                }
                assert!(
                    is_server(&client("mongos", driver, version), internal_client),
                    "mongos is no `mongo`"
                );
            }
            assert!(!is_server(&client("", "PyMongo", version), internal_client));
        }
    }

    #[test]
    fn a_version_is_what_can_be_read_as_one() {
        assert_eq!(version("4.4.6-8"), Some((4, 4)));
        assert_eq!(version("10.0.0-rc1"), Some((10, 0)));
        for none in ["", "4", "v4.4", "99999999999.1", "é.1"] {
            assert_eq!(version(none), None, "{none}");
        }
    }
}
