//! `mongosonar queries`: hear the queries on the wire, or in a capture file.

mod file;
mod live;
mod output;
mod write;

pub use live::SERVERS;

use anyhow::{Result, anyhow, bail};
use sonar_core::window::WindowSettings;
use sonar_core::{Class, Role};
use sonar_decode::Ports;
use sonar_view::{By, Classes, Column, Form, Selection, Sort};

use crate::cli::{ByArg, ClassArg, QueriesArgs, RoleArg, ShapeArg};

/// Runs the command; gives the exit code.
pub fn run(args: &QueriesArgs) -> Result<u8> {
    let selection = selection(args)?;
    match &args.read {
        Some(path) => {
            if !args.interface.is_empty() {
                bail!("--interface is for listening; a file is read whole with --read");
            }
            file::run(args, &selection, path)
        }
        None => live::run(args, &selection),
    }
}

/// Which rows are asked for, and in which order.
fn selection(args: &QueriesArgs) -> Result<Selection> {
    let by = match args.by.unwrap_or(ByArg::Shape) {
        ByArg::Shape => By::Shape,
        ByArg::Order => By::Order,
        ByArg::Namespace => By::Namespace,
        ByArg::App => By::App,
        ByArg::Client => By::Client,
    };
    let classes = if args.class.contains(&ClassArg::All) {
        Classes::ALL
    } else if args.class.is_empty() {
        Classes::USER
    } else {
        args.class
            .iter()
            .filter_map(|class| match class {
                ClassArg::User => Some(Class::User),
                ClassArg::Internal => Some(Class::Internal),
                ClassArg::Monitoring => Some(Class::Monitoring),
                ClassArg::Replication => Some(Class::Replication),
                ClassArg::Waiting => Some(Class::Waiting),
                ClassArg::All => None,
            })
            .collect()
    };
    let column = match &args.sort {
        None => Column::Load,
        Some(name) => Column::from_name(name).ok_or_else(|| {
            let names: Vec<_> = Column::ALL.iter().map(|column| column.name()).collect();
            anyhow!("no column {name:?} to sort by; there are: {}", names.join(" "))
        })?,
    };
    Ok(Selection {
        by,
        classes,
        role: match args.role.unwrap_or(RoleArg::Served) {
            RoleArg::Served => Some(Role::Served),
            RoleArg::Issued => Some(Role::Issued),
            RoleArg::All => None,
        },
        form: match args.shape.unwrap_or(ShapeArg::Typed) {
            ShapeArg::Typed => Form::Typed,
            ShapeArg::Plain => Form::Plain,
        },
        text: args.filter.clone().unwrap_or_default(),
        sort: Sort { column, reverse: false },
        limit: args.limit,
        ..Selection::default()
    })
}

/// The ports as the decoder wants them.
fn ports(args: &QueriesArgs) -> Ports {
    if args.port.is_empty() {
        Ports::Any
    } else {
        Ports::Ranges(args.port.iter().map(|range| (range.0, range.1)).collect())
    }
}

fn window_settings(args: &QueriesArgs) -> WindowSettings {
    WindowSettings { sample: args.sample.unwrap_or(1), split_by_order: args.by == Some(ByArg::Order) }
}
