//! The check of a machine, as lines and as JSON.

use std::io::{self, Write};

use serde::Serialize;
use sonar_core::disk::check::{CheckFinding, Grade};

use super::run::SCHEMA;
use crate::kit::{escape, plural};

/// What a check came to.
#[derive(Clone, Debug)]
pub struct CheckReport {
    /// The folder of the data.
    pub dbpath: Option<String>,
    /// It could not be seen, so it is mongod's default.
    pub is_dbpath_guess: bool,
    /// How it was found, or why not.
    pub about: String,
    /// The lines.
    pub findings: Vec<CheckFinding>,
    /// What could not be seen, and what it would take.
    pub unseen: Vec<String>,
}

#[derive(Serialize)]
struct DiskCheckDocument<'a> {
    schema: u32,
    kind: &'static str,
    dbpath: Option<&'a str>,
    dbpath_is_guess: bool,
    about: &'a str,
    worst: &'static str,
    findings: Vec<CheckFindingJson<'a>>,
    unseen: &'a [String],
}

#[derive(Serialize)]
struct CheckFindingJson<'a> {
    name: &'a str,
    verdict: &'static str,
    found: &'a str,
    why: &'a str,
    remedy: Option<&'a str>,
    document: &'a str,
}

impl<'a> From<&'a CheckFinding> for CheckFindingJson<'a> {
    fn from(finding: &'a CheckFinding) -> Self {
        Self {
            name: finding.name,
            verdict: finding.grade.name(),
            found: &finding.found,
            why: finding.why,
            remedy: finding.remedy.as_deref(),
            document: finding.document,
        }
    }
}

impl CheckReport {
    /// The worst of all lines.
    pub fn worst(&self) -> Grade {
        self.findings.iter().map(|finding| finding.grade).max().unwrap_or(Grade::Ok)
    }

    /// As one line of JSON.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn json(&self, out: impl io::Write) -> io::Result<()> {
        let document = DiskCheckDocument {
            schema: SCHEMA,
            kind: "disk_check",
            dbpath: self.dbpath.as_deref(),
            dbpath_is_guess: self.is_dbpath_guess,
            about: &self.about,
            worst: self.worst().name(),
            findings: self.findings.iter().map(CheckFindingJson::from).collect(),
            unseen: &self.unseen,
        };
        crate::kit::json::line(&document, out)
    }

    /// How many lines there are of each kind, in one sentence.
    fn answer(&self) -> String {
        let count = |grade| self.findings.iter().filter(|finding| finding.grade == grade).count();
        format!(
            "{}, {}, {} ok, {} not seen.",
            plural(count(Grade::Problem), "problem"),
            plural(count(Grade::Warning), "warning"),
            count(Grade::Ok),
            self.unseen.len()
        )
    }

    /// As text: the answer, then what was found, the worst first, and below what is not as it should be, why it
    /// matters, what changes it, and the document.
    ///
    /// # Errors
    /// Those of `out`.
    pub fn text(&self, out: &mut impl Write) -> io::Result<()> {
        writeln!(out, "{}", self.answer())?;
        writeln!(out, "{}", escape(&self.about))?;
        writeln!(out)?;
        let width = self.findings.iter().map(|finding| finding.name.len()).max().unwrap_or(0);
        let mut findings: Vec<_> = self.findings.iter().collect();
        findings.sort_by_key(|finding| std::cmp::Reverse(finding.grade));
        for finding in findings {
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
        Ok(())
    }
}
