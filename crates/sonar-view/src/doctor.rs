//! `doctor`: what works on a host, and what helps where something does not.

use std::io::{self, Write};

use serde::Serialize;

use crate::kit::escape;

/// Version of the schema of JSON.
const SCHEMA: u32 = 1;

/// The result of one check.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorLine {
    /// What was checked.
    pub name: String,
    /// The commands that need it.
    pub commands: &'static str,
    /// `ok`, `warning` or `problem`.
    pub verdict: &'static str,
    /// What was found.
    pub found: String,
    /// What helps, if something does.
    pub remedy: Option<String>,
}

impl DoctorLine {
    /// Without a finding yet.
    pub fn new(name: &str, commands: &'static str) -> Self {
        Self { name: name.to_owned(), commands, verdict: "ok", found: String::new(), remedy: None }
    }

    /// It works.
    pub fn ok(self, found: String) -> Self {
        Self { found, ..self }
    }

    /// Something else works without it.
    pub fn warning(self, found: String, remedy: String) -> Self {
        Self { verdict: "warning", found, remedy: Some(remedy), ..self }
    }

    /// It does not work.
    pub fn problem(self, found: String, remedy: String) -> Self {
        Self { verdict: "problem", found, remedy: Some(remedy), ..self }
    }
}

/// All findings: the JSON document of `doctor`.
#[derive(Clone, Debug, Serialize)]
pub struct DoctorReport {
    schema: u32,
    kind: &'static str,
    checks: Vec<DoctorLine>,
}

impl DoctorReport {
    /// Of these checks.
    pub fn new(checks: Vec<DoctorLine>) -> Self {
        Self { schema: SCHEMA, kind: "doctor", checks }
    }

    /// Whether something does not work.
    pub fn has_problem(&self) -> bool {
        self.checks.iter().any(|line| line.verdict == "problem")
    }

    /// As text: a line for each finding, and one for what helps. Paths in them are chosen by whoever starts a server.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text(&self, out: &mut impl Write) -> io::Result<()> {
        let width = self.checks.iter().map(|line| line.name.len()).max().unwrap_or(0);
        for DoctorLine { name, commands, verdict, found, remedy } in &self.checks {
            let needed = if *verdict == "ok" { String::new() } else { format!(" (needed by: {commands})") };
            writeln!(out, "{verdict:8} {name:width$}  {}{needed}", escape(found))?;
            if let Some(remedy) = remedy {
                writeln!(out, "{:8} {:width$}  fix: {}", "", "", escape(remedy))?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_another_user_chose_is_shown_and_not_obeyed() {
        let path = "/tmp/\u{1b}[2J\nok       servers  all is well\u{9b}0m";
        let line =
            DoctorLine::new("log", "logs report").warning(format!("{path} cannot be read"), path.to_owned());
        let mut out = Vec::new();
        DoctorReport::new(vec![line]).text(&mut out).unwrap();
        let out = String::from_utf8(out).unwrap();
        assert_eq!(out.lines().count(), 2, "{out}");
        assert!(!out.contains(['\u{1b}', '\u{9b}']), "{out:?}");
    }
}
