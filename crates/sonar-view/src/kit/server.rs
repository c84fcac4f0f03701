//! How text names a server.

use sonar_core::Endpoint;

/// The port of a server of this host, which may listen on all addresses, else its address.
pub fn server_name(server: Endpoint) -> String {
    server_address(server).unwrap_or_else(|| server.port.to_string())
}

/// The address of a server, with its port; `None` if its port alone is its name, as that of most servers of this host.
pub fn server_address(server: Endpoint) -> Option<String> {
    (!server.ip().is_unspecified()).then(|| server.to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_of_this_host_is_named_by_its_port() {
        assert_eq!(server_name(Endpoint::v4([0; 4], 27_601)), "27601");
        assert_eq!(server_name(Endpoint::v6([0; 16], 27_601)), "27601");
        assert_eq!(server_name(Endpoint::v4([10, 0, 0, 9], 27_601)), "10.0.0.9:27601");
        assert_eq!(server_address(Endpoint::v4([0; 4], 27_601)), None);
    }
}
