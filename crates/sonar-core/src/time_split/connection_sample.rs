//! Which connections are followed.

use std::num::NonZeroU16;

use crate::Endpoint;

/// Samples one connection in `every`, by the client's port, so that the wire and the kernel choose the same ones.
#[derive(Copy, Clone, PartialEq, Eq, Debug)]
pub struct ConnectionSample {
    /// Every how many connections one is chosen; 1 chooses all.
    pub every: NonZeroU16,
}

impl Default for ConnectionSample {
    fn default() -> Self {
        Self { every: NonZeroU16::MIN }
    }
}

impl ConnectionSample {
    /// The multiplier of the hash of a port.
    pub const MULTIPLIER: u32 = 0x9e37_79b1;
    /// By how much its product is shifted right.
    pub const SHIFT: u32 = 16;

    /// Whether some connections are left out.
    pub const fn is_partial(self) -> bool {
        self.every.get() > 1
    }

    /// Whether the connection of this client is followed. `is_sampled` in `bpf/split.h` has the same rule.
    pub fn has(self, client: Endpoint) -> bool {
        // Clients often have only even ports.
        let mixed = u32::from(client.port).wrapping_mul(Self::MULTIPLIER);
        (mixed >> Self::SHIFT).is_multiple_of(u32::from(self.every.get()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    fn sampled(every: u16, ports: impl Iterator<Item = u16>) -> usize {
        let sample = ConnectionSample { every: NonZeroU16::new(every).unwrap() };
        ports.filter(|port| sample.has(Endpoint::v4([10, 0, 0, 1], *port))).count()
    }

    #[test]
    fn one_connection_in_every_is_chosen_even_if_all_ports_are_even() {
        let all = || 32_768..61_000;
        let even = || (32_768..61_000).step_by(2);
        assert_eq!(sampled(1, all()), all().len());
        for every in [2, 3, 8, 10, 100] {
            for (chosen, of) in [(sampled(every, all()), all().len()), (sampled(every, even()), even().len())]
            {
                let expected = of as f64 / f64::from(every);
                assert!((chosen as f64 - expected).abs() < 0.2 * expected, "1/{every}: {chosen} of {of}");
            }
        }
    }
}
