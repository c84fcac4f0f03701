//! Argument values, the configuration file, help and manual pages, shared by the commands.

pub mod config;
pub mod connection;
pub mod manual;
pub mod privileges;
pub mod values;
pub mod when;
