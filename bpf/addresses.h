// SPDX-License-Identifier: GPL-2.0 OR Apache-2.0
// The two ends of a connection.
#pragma once

// Seen from the process: `server` is its own end, `client` the other one.
struct socket_addresses {
    __u8 server[16];
    __u8 client[16];
    __u16 server_port; // host byte order
    __u16 client_port;
    __u16 family;
    __u16 unused;
};
