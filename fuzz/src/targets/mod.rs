//! A module for each target: what it takes and what must hold.

pub mod bson;
pub mod capture_file;
pub mod decoder;
pub mod decryption;
pub mod frame;
pub mod ftdc;
pub mod inflate;
pub mod io_file;
pub mod log;
pub mod message;
pub mod plaintext;
pub mod profile;
pub mod shape;
pub mod stacks;
pub mod store;
pub mod stream;
pub mod template;

/// The name of a target, which is that of its seeds' folder, and what takes an input.
pub type Target = (&'static str, fn(&[u8]));

/// All targets.
pub const TARGETS: [Target; 17] = [
    ("bson", bson::run),
    ("capture_file", capture_file::run),
    ("decoder", decoder::run),
    ("decryption", decryption::run),
    ("frame", frame::run),
    ("ftdc", ftdc::run),
    ("inflate", inflate::run),
    ("io_file", io_file::run),
    ("log", log::run),
    ("message", message::run),
    ("plaintext", plaintext::run),
    ("profile", profile::run),
    ("shape", shape::run),
    ("stacks", stacks::run),
    ("store", store::run),
    ("stream", stream::run),
    ("template", template::run),
];
