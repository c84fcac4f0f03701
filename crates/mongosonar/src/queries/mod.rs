//! `mongosonar queries`: shows the queries on the wire, or in a capture file.

pub mod args;
mod baseline;
mod file;
pub mod live;
mod local_servers;
mod output;
mod past;
mod replay;
mod server_names;

pub use self::args::QueriesArgs;

use anyhow::Result;
use sonar_core::Role;
use sonar_view::kit::Zone;
use sonar_view::queries::{Column, Grouping, Selection, Sort};

use self::args::{ByArg, RoleArg};
use crate::args::values::{ClassArg, ShapeArg};
use crate::exit::usage;

/// Runs the command and returns the exit code.
pub fn run(args: &QueriesArgs) -> Result<u8> {
    let mut selection = selection(args)?;
    if let Some(path) = &args.baseline {
        selection.baseline = Some(baseline::load(args, path, &selection)?);
    }
    if args.is_past() {
        return past::run(args, &selection);
    }
    match &args.read {
        Some(path) => {
            if !args.interface.is_empty() {
                return Err(usage!("--interface is for capturing live; --read reads a whole file"));
            }
            if args.replay { replay::run(args, &selection, path) } else { file::run(args, &selection, path) }
        }
        None => live::run(args, &selection),
    }
}

/// Which rows to show, and in which order.
fn selection(args: &QueriesArgs) -> Result<Selection> {
    let by = match args.by.unwrap_or(ByArg::Shape) {
        ByArg::Shape | ByArg::Wait => Grouping::Shape,
        ByArg::Order => Grouping::Order,
        ByArg::Namespace => Grouping::Namespace,
        ByArg::App => Grouping::App,
        ByArg::Client => Grouping::Client,
    };
    let classes = ClassArg::classes(&args.class);
    let column = match &args.sort {
        // A digest has other columns.
        _ if args.makes_digest() => Column::Load,
        None if args.by == Some(ByArg::Wait) => Column::Wait,
        None => Column::Load,
        Some(name) => Column::from_name(name).ok_or_else(|| {
            let names: Vec<_> = Column::ALL.iter().map(|column| column.name()).collect();
            usage!("no column {name:?} to sort by; there are: {}", names.join(" "))
        })?,
    };
    if column == Column::Wait && args.split.is_none() && !args.is_past() {
        return Err(usage!("how long operations waited is known with --split only"));
    }
    Ok(Selection {
        has_splits: args.split.is_some(),
        by,
        classes,
        role: match args.role.unwrap_or(RoleArg::Served) {
            RoleArg::Served => Some(Role::Served),
            RoleArg::Issued => Some(Role::Issued),
            RoleArg::All => None,
        },
        form: ShapeArg::form(args.shape),
        text: args.filter.clone().unwrap_or_default(),
        sort: Sort { column, reverse: false },
        limit: args.limit,
        // People remember when something happened by the clock of their machine.
        zone: args.zone.asked().unwrap_or_else(|| if args.is_past() { Zone::local() } else { Zone::utc() }),
        ..Selection::default()
    })
}

#[cfg(test)]
mod tests {
    use std::net::{IpAddr, SocketAddr};
    use std::num::NonZeroU32;
    use std::sync::Arc;

    use proptest::prelude::*;
    use sonar_core::{Endpoint, Operation, Timestamp};
    use sonar_decode::testing::TestFrame;
    use sonar_decode::{Decoder, Ports, Settings, Shared, Sink};
    use sonar_sys::PacketFilter;

    struct NoOperation;

    impl Sink for NoOperation {
        fn operation(&mut self, _: &Operation<'_>) {}
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(2_000))]
        /// `--sample` in the kernel's filter and in the decoder: the same connections.
        #[test]
        fn a_file_and_the_wire_are_sampled_alike(
            (one, other) in prop_oneof![
                any::<([u8; 4], [u8; 4])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
                any::<([u8; 16], [u8; 16])>().prop_map(|(a, b)| (IpAddr::from(a), IpAddr::from(b))),
            ],
            one_port in prop_oneof![any::<u16>(), 27_015u16..27_022],
            other_port in 27_015u16..27_022,
            ports in proptest::collection::vec(27_015u16..27_022, 0..3),
            every in prop_oneof![1u32..5, 1u32..65_537],
        ) {
            let filter = PacketFilter {
                ports: ports.iter().map(|port| *port..=*port).collect(),
                sample: NonZeroU32::new(every),
                ..PacketFilter::default()
            };
            let ranges = ports.iter().map(|port| (*port, *port)).collect();
            let settings = Settings {
                ports: if ports.is_empty() { Ports::Any } else { Ports::Ranges(ranges) },
                sample: every,
                ..Settings::default()
            };
            let (one, other) = (SocketAddr::new(one, one_port), SocketAddr::new(other, other_port));
            let asked_for = ports.is_empty() || ports.contains(&one_port) || ports.contains(&other_port);
            for (source, destination) in [(one, other), (other, one)] {
                let mut decoder = Decoder::new(settings.clone(), Arc::new(Shared::default()));
                let packet = TestFrame::new(source, destination).packet(Timestamp::from_unix(1, 0));
                decoder.packet(&packet.as_packet(), &mut NoOperation);
                let coverage = decoder.coverage();
                prop_assert_eq!(coverage.frames_other_port == 0, asked_for);
                if asked_for {
                    let keeps = filter.keeps(&Endpoint::from(source), &Endpoint::from(destination));
                    prop_assert_eq!(coverage.frames_sampled_out == 0, keeps, "{:?}", coverage);
                    prop_assert_eq!(coverage.frames_decoded == 1, keeps, "{:?}", coverage);
                }
            }
        }
    }
}
