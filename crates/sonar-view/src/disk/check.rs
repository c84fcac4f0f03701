//! The check of a machine, as lines and as JSON.

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::disk::check::{Finding, Grade};

use super::run::SCHEMA;
use crate::kit::escape;

/// What a check came to.
#[derive(Clone, Debug)]
pub struct Report {
    /// The folder of the data.
    pub dbpath: Option<String>,
    /// How it was found, or why not.
    pub about: String,
    /// The lines.
    pub findings: Vec<Finding>,
    /// What could not be seen, and what it would take.
    pub unseen: Vec<String>,
}

#[derive(Serialize)]
struct Object<'a> {
    schema: u32,
    kind: &'static str,
    dbpath: Option<&'a str>,
    about: &'a str,
    worst: &'static str,
    findings: Vec<Line<'a>>,
    unseen: &'a [String],
}

#[derive(Serialize)]
struct Line<'a> {
    name: &'static str,
    verdict: &'static str,
    found: &'a str,
    why: &'static str,
    remedy: Option<&'a str>,
    document: &'static str,
}

impl Report {
    /// The worst of all lines.
    pub fn worst(&self) -> Grade {
        self.findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Ok)
    }

    /// As one line of JSON.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn write(&self, out: impl io::Write) -> io::Result<()> {
        let findings = self.findings.iter().map(|finding| Line {
            name: finding.name,
            verdict: finding.grade.name(),
            found: &finding.found,
            why: finding.why,
            remedy: finding.remedy.as_deref(),
            document: finding.document,
        });
        let object = Object {
            schema: SCHEMA,
            kind: "disk_check",
            dbpath: self.dbpath.as_deref(),
            about: &self.about,
            worst: self.worst().name(),
            findings: findings.collect(),
            unseen: &self.unseen,
        };
        crate::kit::json::line(&object, out)
    }

    /// As lines: what was found, and below what is not as it should be, why it matters, what changes it, and the
    /// document.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn lines(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", escape(&self.about))?;
        writeln!(out)?;
        let width = self.findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
        for finding in &self.findings {
            writeln!(out, "{:8} {:width$}  {}", finding.grade.name(), finding.name, escape(&finding.found))?;
            if finding.grade == Grade::Ok {
                continue;
            }
            writeln!(out, "{:8} {:width$}  why: {}", "", "", finding.why)?;
            if let Some(remedy) = &finding.remedy {
                writeln!(out, "{:8} {:width$}  fix: {}", "", "", escape(remedy))?;
            }
            writeln!(out, "{:8} {:width$}  from: {}", "", "", finding.document)?;
        }
        for unseen in &self.unseen {
            writeln!(out, "{:8} {}", "not seen", escape(unseen))?;
        }
        let count = |grade| self.findings.iter().filter(|finding| finding.grade == grade).count();
        writeln!(out)?;
        writeln!(
            out,
            "{} ok, {} warnings, {} problems, {} not seen",
            count(Grade::Ok),
            count(Grade::Warning),
            count(Grade::Problem),
            self.unseen.len()
        )
    }
}
